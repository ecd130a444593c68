// SPDX-License-Identifier: Apache-2.0
// conformance/cache.c: code of the target in the cache: the next engine finds it on disk, and an
// engine without a compiler in a bundle.
#define _XOPEN_SOURCE 700  // mkdtemp, nftw
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conformance/suite.h"
#include "quern/cache.h"

static const char text[] =
    "func cached(x: f32[n, m], out y: f32[n]) { parallel i in 0..n {\n"
    "  y[i] = sum j in 0..m { x[i, j] * 0.5 }; } }\n"
    "func guarded(x: i32[n], out y: i32[n]) { parallel i in 0..n {\n"
    "  assert x[i] >= 0, \"negative\"; y[i] = x[i] + 1; } }";

typedef struct cache_place {
  char root[64];
  char cache[96], bundle[96], empty[96];
} cache_place_t;

static int remove_one(const char* path, const struct stat* info, int type, struct FTW* ftw) {
  (void)info, (void)type, (void)ftw;
  (void)remove(path);
  return 0;
}

static bool make_place(conf_t* c, cache_place_t* p) {
  (void)snprintf(p->root, sizeof p->root, "/tmp/quern-conformance-XXXXXX");
  if (!mkdtemp(p->root)) {
    conf_fail(c, "no directory in /tmp");
    return false;
  }
  (void)snprintf(p->cache, sizeof p->cache, "%s/cache", p->root);
  (void)snprintf(p->bundle, sizeof p->bundle, "%s/all.qnb", p->root);
  (void)snprintf(p->empty, sizeof p->empty, "%s/empty", p->root);
  return mkdir(p->empty, 0700) == 0;
}

static void remove_place(const cache_place_t* p) {
  (void)nftw(p->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

enum { N = 50, M = 9 };

// Calls both functions of the text. `source` is for messages.
static bool call_both(conf_t* c, qn_function_t* cached, qn_function_t* guarded,
                      qn_source_t source) {
  int64_t x_shape[2] = {N, M}, y_shape[1] = {N};
  float* host = conf_host_memory(c, N * M * 4);
  void* x = conf_device_memory(c, N * M * 4);
  void* y = conf_device_memory(c, N * 4);
  if (!host || !x || !y) return false;
  for (int i = 0; i < N * M; i++) host[i] = (float)(i / M);
  qn_tensor_t from = conf_tensor(c, x, QN_DTYPE_F32, 2, x_shape);
  qn_tensor_t to = conf_tensor(c, y, QN_DTYPE_F32, 1, y_shape);
  qn_value_t args[] = {qn_value_tensor(&from), qn_value_tensor(&to)};
  if (!conf_upload(c, x, 0, host, N * M * 4) || !conf_ok(c, conf_call(c, cached, args, 2)) ||
      !conf_download(c, host, y, 0, N * 4)) {
    return false;
  }
  for (int i = 0; i < N; i++) {
    if (host[i] == 0.5f * (float)M * (float)i) continue;
    conf_fail(c, "the code from '%s' computes %g at %d", qn_source_text(source), (double)host[i],
              i);
    return false;
  }
  // The cache also has the messages of the program.
  int32_t numbers[N] = {1, -1};
  if (!conf_upload(c, x, 0, numbers, sizeof numbers)) return false;
  from = conf_tensor(c, x, QN_DTYPE_I32, 1, y_shape);
  to = conf_tensor(c, y, QN_DTYPE_I32, 1, y_shape);
  return conf_expect(c, conf_call(c, guarded, args, 2), QN_STATUS_ASSERTION, "guarded,negative");
}

// Looks both functions up on an engine with these options, and calls them.
static bool use(conf_t* c, const qn_engine_options_t* options, qn_miss_policy_t miss,
                qn_source_t source, bool is_publishing) {
  qn_engine_t* engine = NULL;
  qn_module_t* module = NULL;
  qn_executable_t* executable = NULL;
  qn_function_t *cached = NULL, *guarded = NULL;
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_lookup_options_t lookup = {.struct_size = sizeof lookup, .miss = miss};
  bool is_good =
      conf_ok(c, qn_engine_create(options, &engine)) &&
      conf_ok(c, qn_module_parse(text, strlen(text), NULL, &module)) &&
      conf_ok(c, qn_engine_executable(engine, module, c->target, &lookup, &info, &executable)) &&
      conf_ok(c, qn_executable_function(executable, module, "cached", &cached)) &&
      conf_ok(c, qn_executable_function(executable, module, "guarded", &guarded));
  if (is_good && info.source != source) {
    conf_fail(c, "the code's source is '%s', not '%s'", qn_source_text(info.source),
              qn_source_text(source));
  }
  is_good = is_good && call_both(c, cached, guarded, source);
  if (is_good && is_publishing && !qn_engine_flush(engine, INT64_C(600000000000))) {
    conf_fail(c, "the code was not published within ten minutes");
  }
  qn_function_release(cached);
  qn_function_release(guarded);
  qn_executable_release(executable);
  qn_module_release(module);
  qn_engine_destroy(engine);
  return is_good && c->verdict == CONF_PASS;
}

static qn_engine_options_t on_disk(const cache_place_t* p) {
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = p->cache, .cache_mode = QN_CACHE_RW};
  return options;
}

static void warm_hit(conf_t* c) {
  cache_place_t p;
  if (!make_place(c, &p)) return;
  qn_engine_options_t options = on_disk(&p);
  if (use(c, &options, QN_MISS_BLOCK, QN_SOURCE_COMPILED, true)) {
    (void)use(c, &options, QN_MISS_FAIL, QN_SOURCE_DISK, false);
  }
  remove_place(&p);
}

// Uses a bundle on an engine with the option `generator_dir` (NULL: generators are where they are
// installed) and another setting.
static void use_bundle(conf_t* c, cache_place_t* p, const char* generator_dir,
                       qn_setting_t setting) {
  qn_engine_options_t options = on_disk(p);
  qn_cache_dir_t* dir = NULL;
  bool is_good = use(c, &options, QN_MISS_BLOCK, QN_SOURCE_COMPILED, true) &&
                 conf_ok(c, qn_cache_dir_open(p->cache, &dir)) &&
                 conf_ok(c, qn_cache_bundle_write(p->bundle, dir, NULL, 0, NULL, NULL));
  qn_cache_dir_close(dir);
  if (!is_good) return;
  qn_setting_t settings[] = {{"bundles", p->bundle}, setting};
  qn_engine_options_t shipped = {.struct_size = sizeof shipped,
                                 .cache_dir = "",
                                 .cache_mode = QN_CACHE_RO,
                                 .generator_dir = generator_dir,
                                 .settings = settings,
                                 .setting_count = CONF_COUNT_OF(settings)};
  (void)use(c, &shipped, QN_MISS_BLOCK, QN_SOURCE_BUNDLE, false);
}

static void from_bundle(conf_t* c) {
  cache_place_t p;
  if (!make_place(c, &p)) return;
  use_bundle(c, &p, NULL, (qn_setting_t){"jit", "forbid"});
  remove_place(&p);
}

static void without_generator(conf_t* c) {
  cache_place_t p;
  if (!make_place(c, &p)) return;
  use_bundle(c, &p, "none", (qn_setting_t){"generator_dir", "none"});
  remove_place(&p);
}

static const conf_case_t cases[] = {
    {"warm hit on disk", warm_hit},
    {"bundle where compiling is forbidden", from_bundle},
    {"bundle where no generator is installed", without_generator},
};
const conf_area_t conf_area_cache = {"cache", cases, CONF_COUNT_OF(cases), NULL};
