// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // personality
// tests/unit/llvm/test_determinism.c: tests that equal inputs give equal bytes in any environment.
//
// The same modules, targets and tiers are compiled in processes that differ in locale, time zone,
// working directory, size of the environment, address layout, contents of fresh memory, order of
// the modules, and number of compile threads. Each process prints a digest of the entries'
// contents; all must agree. A longer run:
//   llvm_test_determinism --seed 1000 --count 5000
// ctest-labels: slow
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <glob.h>
#include <locale.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/digest.h"
#include "base/fs.h"
#include "quern/backend.h"
#include "quern/target.h"
#include "tests/support/generate.h"

QN_API const qn_codegen_t* qn_codegen_entry(uint32_t abi_version);

enum { MAX_THREADS = 4 };

static uint64_t first_seed = 1;
static uint64_t seed_count = 80;

static const struct {
  const char* target;
  qn_tier_t tier;
  bool is_checked;
} builds[] = {
    {"cpu", QN_TIER_FULL, false},
    {"cpu -mcpu=x86-64", QN_TIER_FULL, false},
    {"cpu -mcpu=x86-64-v3", QN_TIER_FAST, false},
    {"cpu -mcpu=x86-64-v3", QN_TIER_FULL, true},
    {"cpu -mcpu=x86-64-v4", QN_TIER_FULL, false},
    {"cpu -mcpu=x86-64-v4", QN_TIER_FAST, true},
};
enum { BUILD_COUNT = sizeof builds / sizeof builds[0] };

static void must(qn_status_t status) {
  if (qn_ok(status)) return;
  (void)fprintf(stderr, "%s\n", qn_status_message(status));
  exit(1);
}

// ------------------------------------------------------------------------------------ one process

typedef struct work {
  qn_module_t** modules;
  size_t module_count;
  qn_target_t* targets[BUILD_COUNT];
  const qn_codegen_t* codegen;
  void* generator;
  uint64_t order;         // 0: as they come
  _Atomic size_t next;    // place in the order
  qn_hash128_t* digests;  // per module and build
} work_t;

static void put_text(qn__buffer_t* bytes, const char* text) {
  qn__buffer_run(bytes, (qn_span_t){(const uint8_t*)text, strlen(text)});
}

static void put_artifact(qn__buffer_t* bytes, const qn_artifact_t* artifact) {
  put_text(bytes, artifact->format);
  put_text(bytes, artifact->isa);
  qn__buffer_run(bytes, (qn_span_t){artifact->payload, artifact->payload_size});
  qn__buffer_run(bytes, (qn_span_t){artifact->metadata, artifact->metadata_size});
  for (size_t i = 0; i < artifact->function_count; i++) {
    const qn_artifact_function_t* function = &artifact->functions[i];
    put_text(bytes, function->name);
    qn__buffer_u64(bytes, function->code_offset);
    qn__buffer_u64(bytes, function->code_size_bytes);
    qn__buffer_u32(bytes, function->launch_count);
    qn__buffer_u8(bytes, function->has_32_bit_indices);
    for (uint32_t k = 0; k < function->site_count; k++) {
      qn__buffer_u32(bytes, (uint32_t)function->sites[k].kind);
      qn__buffer_u32(bytes, function->sites[k].buffer_id);
      qn__buffer_u32(bytes, function->sites[k].dim);
      put_text(bytes, function->sites[k].message ? function->sites[k].message : "");
    }
  }
}

static qn_hash128_t compile_one(const work_t* work, size_t job) {
  size_t build = job % BUILD_COUNT, size;
  const qn_module_t* module = work->modules[job / BUILD_COUNT];
  qn_compile_request_t request = {.struct_size = sizeof request,
                                  .module_bytes = qn_module_bytes(module, &size),
                                  .target_json = qn_target_json(work->targets[build]),
                                  .tier = builds[build].tier,
                                  .is_checked = builds[build].is_checked};
  request.module_size = size;
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  qn_artifact_t* artifact = NULL;
  qn_status_t status = work->codegen->compile(work->generator, &request, &artifact);
  if (qn_ok(status)) {
    put_artifact(&bytes, artifact);
    artifact->release(artifact);
  } else {
    // A refusal says the same everywhere, too.
    put_text(&bytes, qn_status_message(status));
    qn_status_free(status);
  }
  must(qn__buffer_status(&bytes, "an artifact"));
  qn_hash128_t digest = qn__xxh128(qn__buffer_as_span(&bytes), 0);
  qn__buffer_deinit(&bytes);
  return digest;
}

// A permutation without a table: steps of a length that has no factor in common with the count.
static size_t place(const work_t* work, size_t index, size_t count) {
  if (work->order == 0) return index;
  size_t step = (size_t)work->order % count;
  for (;; step++) {
    size_t a = count, b = step % count;
    while (b != 0) {
      size_t rest = a % b;
      a = b;
      b = rest;
    }
    if (a == 1) break;
  }
  return (index * step + count / 3) % count;
}

static void* compile_some(void* arg) {
  work_t* work = arg;
  size_t count = work->module_count * BUILD_COUNT;
  for (;;) {
    size_t index = atomic_fetch_add(&work->next, 1);
    if (index >= count) return NULL;
    size_t job = place(work, index, count);
    work->digests[job] = compile_one(work, job);
  }
}

static void read_files(work_t* work, const char* pattern) {
  glob_t files;
  if (glob(pattern, 0, NULL, &files) != 0) return;
  for (size_t i = 0; i < files.gl_pathc; i++) {
    uint8_t* data;
    size_t size;
    must(qn__fs_read_file(qn_allocator_default(), files.gl_pathv[i], 1 << 20, &data, &size));
    must(qn_module_parse((const char*)data, size, NULL, &work->modules[work->module_count++]));
    qn__free(qn_allocator_default(), data, size + 1);
  }
  globfree(&files);
}

static void make_modules(work_t* work) {
  work->modules = calloc(seed_count + 256, sizeof *work->modules);
  if (!work->modules) exit(1);
  read_files(work, QN_SOURCE_DIR "/examples/ir/*.qn");
  for (uint64_t i = 0; i < seed_count; i++) {
    qn_generate_options_t options = {
        .size = 1 + (uint32_t)(i % 4), .allows_fast = i % 3 == 0, .allows_threads = true};
    qn_generated_t generated;
    qn_status_t error;
    if (!qn_generate(first_seed + i, &options, &generated, &error)) must(error);
    qn_module_retain(generated.module);
    work->modules[work->module_count++] = generated.module;
    qn_generated_release(&generated);
  }
}

// What a process of its own does: argv[2] is the order, argv[3] the number of threads.
static int run_child(char** argv) {
  (void)setlocale(LC_ALL, "");
  work_t work = {.order = strtoull(argv[2], NULL, 10),
                 .codegen = qn_codegen_entry(QN_CODEGEN_ABI_VERSION)};
  size_t thread_count = (size_t)strtoull(argv[3], NULL, 10);
  first_seed = strtoull(argv[4], NULL, 10);
  seed_count = strtoull(argv[5], NULL, 10);
  make_modules(&work);
  for (size_t i = 0; i < BUILD_COUNT; i++) {
    must(qn_target_parse(builds[i].target, &work.targets[i]));
  }
  must(work.codegen->create(&work.generator));
  work.digests = calloc(work.module_count * BUILD_COUNT, sizeof *work.digests);
  if (!work.digests) return 1;
  pthread_t threads[MAX_THREADS];
  for (size_t i = 0; i < thread_count; i++) {
    if (pthread_create(&threads[i], NULL, compile_some, &work) != 0) return 1;
  }
  for (size_t i = 0; i < thread_count; i++) (void)pthread_join(threads[i], NULL);
  for (size_t i = 0; i < work.module_count * BUILD_COUNT; i++) {
    char hex[33];
    qn__hash128_hex(work.digests[i], hex);
    (void)printf("%s\n", hex);
  }
  work.codegen->destroy(work.generator);
  for (size_t i = 0; i < BUILD_COUNT; i++) qn_target_release(work.targets[i]);
  for (size_t i = 0; i < work.module_count; i++) qn_module_release(work.modules[i]);
  free(work.modules);
  free(work.digests);
  return fflush(stdout) == 0 ? 0 : 1;
}

// ------------------------------------------------------------------------------------ the parent

typedef struct surroundings {
  const char* order;
  const char* threads;
  const char* directory;
  const char* const* environment;  // name=value
  bool has_fixed_addresses;
} surroundings_t;

static const char* const plain[] = {"LC_ALL=C", "TZ=UTC", NULL};
static const char* const strange[] = {
    "LC_ALL=C.UTF-8", "LANG=de_DE.UTF-8", "LC_NUMERIC=de_DE.UTF-8", "TZ=Asia/Kolkata",
    // Fresh and freed memory has other contents, and lies elsewhere.
    "MALLOC_PERTURB_=165", "MALLOC_ARENA_MAX=1", "MALLOC_TOP_PAD_=1048576", "QUERN_DUMP=ir",
    "SOURCE_DATE_EPOCH=1", "COLUMNS=40", "TERM=dumb", "NO_COLOR=1", NULL};

static FILE* start(const surroundings_t* around, pid_t* out_pid) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  char seed[32], count[32];
  (void)snprintf(seed, sizeof seed, "%llu", (unsigned long long)first_seed);
  (void)snprintf(count, sizeof count, "%llu", (unsigned long long)seed_count);
  *out_pid = fork();
  assert_true(*out_pid >= 0);
  if (*out_pid == 0) {
    char padding[8192];
    memset(padding, 'x', sizeof padding);
    memcpy(padding, "PADDING=", 8);
    padding[around->has_fixed_addresses ? 100 : sizeof padding - 1] = '\0';
    const char* environment[32] = {padding};
    size_t at = 1;
    // Where the sanitizers' options come from.
    static const char* const kept[] = {"ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "PATH"};
    char values[4][1024];
    for (size_t i = 0; i < 4; i++) {
      const char* value = getenv(kept[i]);
      if (value) (void)snprintf(values[i], sizeof values[i], "%s=%s", kept[i], value);
      if (value) environment[at++] = values[i];
    }
    for (size_t i = 0; around->environment[i]; i++) environment[at++] = around->environment[i];
    environment[at] = NULL;
    if (around->has_fixed_addresses) (void)personality(ADDR_NO_RANDOMIZE);
    if (chdir(around->directory) != 0 || dup2(ends[1], STDOUT_FILENO) < 0) _exit(1);
    const char* arguments[] = {"determinism", "--child", around->order, around->threads,
                               seed,          count,     NULL};
    char* const* argv;
    char* const* envp;
    const char* const* from = arguments;
    memcpy(&argv, &from, sizeof argv);
    from = environment;
    memcpy(&envp, &from, sizeof envp);
    (void)execve("/proc/self/exe", argv, envp);
    _exit(1);
  }
  (void)close(ends[1]);
  FILE* lines = fdopen(ends[0], "r");
  assert_non_null(lines);
  return lines;
}

static void test_bytes_do_not_depend_on_surroundings(void** state) {
  (void)state;
  const surroundings_t around[] = {
      {"0", "1", QN_SOURCE_DIR, plain, true},
      {"7919", "3", "/", strange, false},
  };
  enum { CHILD_COUNT = sizeof around / sizeof around[0] };
  FILE* lines[CHILD_COUNT];
  pid_t pids[CHILD_COUNT];
  for (size_t i = 0; i < CHILD_COUNT; i++) lines[i] = start(&around[i], &pids[i]);
  size_t count = 0, different_count = 0;
  char first[64], other[64];
  while (fgets(first, sizeof first, lines[0])) {
    for (size_t i = 1; i < CHILD_COUNT; i++) {
      if (!fgets(other, sizeof other, lines[i])) other[0] = '\0';
      if (strcmp(first, other) == 0) continue;
      different_count++;
      print_message("module %zu (examples first, then seeds from %llu on), %s, tier %d%s differs\n",
                    count / BUILD_COUNT, (unsigned long long)first_seed,
                    builds[count % BUILD_COUNT].target, (int)builds[count % BUILD_COUNT].tier,
                    builds[count % BUILD_COUNT].is_checked ? ", checked" : "");
    }
    count++;
  }
  for (size_t i = 0; i < CHILD_COUNT; i++) {
    int status;
    assert_null(fgets(other, sizeof other, lines[i]));
    (void)fclose(lines[i]);
    assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  assert_true(count >= seed_count * BUILD_COUNT);
  assert_int_equal(different_count, 0);
}

int main(int argc, char** argv) {
  if (argc == 6 && strcmp(argv[1], "--child") == 0) return run_child(argv);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--seed") == 0) first_seed = strtoull(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--count") == 0) seed_count = strtoull(argv[i + 1], NULL, 10);
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes_do_not_depend_on_surroundings)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
