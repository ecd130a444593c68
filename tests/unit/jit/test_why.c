// SPDX-License-Identifier: Apache-2.0
// Tests explanations of a lookup: the tier that would answer, the differing section as text, the
// choice of the nearest entry, damage, and bundles. An explanation must change nothing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "cache/disk_inner.h"
#include "jit/engine/engine.h"
#include "jit/report/why.h"
#include "quern/cache.h"
#include "quern/observe.h"
#include "quern/quern.h"
#include "tests/support/engine.h"
#include "tests/support/fault.h"
#include "tests/support/tempdir.h"

static const char one_text[] = "func one(out y: i32[n]) { for i in 0..n { y[i] = 1; } }\n";
static const char two_text[] = "func two(out y: i32[n]) { for i in 0..n { y[i] = 2 + 2; } }\n";

static void must_have(const char* text, const char* part) {
  if (!strstr(text, part)) fail_msg("expected '%s' in '%s'", part, text);
}
static void must_lack(const char* text, const char* part) {
  if (strstr(text, part)) fail_msg("did not expect '%s' in '%s'", part, text);
}

typedef struct place {
  char directory[QN_TEST_PATH_SIZE];
  qn_engine_t* engine;
  qn_module_t* one;
  qn_module_t* two;
  qn_target_t* interp;
} place_t;

static qn_engine_t* engine_with(const char* directory, const char* mode, const char* bundles,
                                qn_allocator_t allocator) {
  const qn_setting_t settings[] = {{"cache_mode", mode}, {"bundles", bundles}};
  return must_engine((qn_engine_options_t){.allocator = allocator,
                                           .cache_dir = directory,
                                           .settings = settings,
                                           .setting_count = QN_COUNT_OF(settings)});
}

static int set_up(void** state) {
  place_t* place = calloc(1, sizeof *place);
  if (!place || !qn_test_tempdir_make(place->directory)) return -1;
  place->engine = engine_with(place->directory, "rw", "", (qn_allocator_t){0});
  // Its writer opens no file at a time of its own.
  qn__engine_disk(place->engine)->sweep_period_ns = -1;
  place->one = must_parse(one_text);
  place->two = must_parse(two_text);
  place->interp = must_target("interp");
  *state = place;
  return 0;
}
static int tear_down(void** state) {
  place_t* place = *state;
  qn_engine_destroy(place->engine);
  qn_module_release(place->one);
  qn_module_release(place->two);
  qn_target_release(place->interp);
  qn_test_tempdir_remove(place->directory);
  free(place);
  return 0;
}

static qn_explanation_t* explain(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                                 const qn_lookup_options_t* options) {
  qn_explanation_t* explanation;
  // On a slow machine the usual bound may be over before the nearest is found.
  must(qn__explain(engine, module, target, options, 50000, INT64_C(3600000000000), &explanation));
  assert_int_equal(strlen(explanation->key.hex), 32);
  return explanation;
}

static void compile(qn_engine_t* engine, qn_module_t* module, qn_target_t* target, char key[33]) {
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_executable_t* executable;
  must(qn_engine_executable(engine, module, target, NULL, &info, &executable));
  qn_executable_release(executable);
  if (key) memcpy(key, info.key.hex, 33);
  assert_true(qn_engine_flush(engine, INT64_C(3600000000000)));
}

// ---------------------------------------------------------------------------------- entries

typedef struct fake {
  qn_module_t* module;
  qn_target_t* target;
  qn_tier_t tier;
  bool is_checked;
  const char* identity;
  const char* cache_namespace;
  uint32_t schema;     // 0: the one in force
  int64_t created_ns;  // 0: now
  qn_hash128_t out_key;
} fake_t;

// Puts an entry under the key of these inputs; nobody will run what is in it.
static void put_fake(qn_engine_t* engine, fake_t* fake) {
  qn_lookup_options_t options = {
      .struct_size = sizeof options, .tier = fake->tier, .is_checked = fake->is_checked};
  qn__request_t request;
  must(qn__request_init(engine, fake->module, fake->target, &options, &request));
  qn__buffer_t preimage;
  qn__buffer_init(&preimage, qn_allocator_default());
  must(qn__key_make(&request, fake->identity, fake->cache_namespace ? fake->cache_namespace : "",
                    &preimage, &fake->out_key));
  // The first section is the schema's, behind four bytes and its own eight.
  if (fake->schema) preimage.data[12] = (uint8_t)fake->schema;
  fake->out_key = qn__preimage_key(qn__buffer_as_span(&preimage));
  static const uint8_t payload[64] = {1};
  qn__entry_t entry = {.created_ns = fake->created_ns ? fake->created_ns : qn__wall_ns(),
                       .compile_ns = 1000,
                       .preimage = qn__buffer_as_span(&preimage),
                       .metadata = {payload, 7},
                       .payload = {payload, sizeof payload}};
  assert_true(qn__disk_put(qn__engine_disk(engine), &entry, NULL));
  assert_true(qn__disk_flush(qn__engine_disk(engine), INT64_C(3600000000000)));
  qn__buffer_deinit(&preimage);
}

static const char* interp_identity(qn_engine_t* engine, char out[256]) {
  uint32_t index;
  must(qn__generators_find(&engine->generators, "interp", &index, out));
  return out;
}

// ---------------------------------------------------------------------------------- found

// The writer looks after a sweep at its own time.
static void collect_counter(void* self, const char* name, uint64_t value, const char* doc) {
  (void)doc;
  if (strncmp(name, "sweep_", 6) == 0) return;
  qn__buffer_format(self, "%s %llu\n", name, (unsigned long long)value);
}
static qn__buffer_t counters_of(qn_engine_t* engine) {
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  qn_engine_counters(engine, collect_counter, &out);
  return out;
}

static void test_found(void** state) {
  place_t* place = *state;
  qn_explanation_t* it = explain(place->engine, place->one, place->interp, NULL);
  assert_string_equal(it->found_in, "");
  assert_string_equal(it->nearest_key.hex, "");
  assert_string_equal(it->section, "");
  must_have(it->text, "there is no entry in");
  must_have(it->text, place->directory);
  qn_explanation_free(it);

  char key[33];
  compile(place->engine, place->one, place->interp, key);
  qn__buffer_t before = counters_of(place->engine);
  it = explain(place->engine, place->one, place->interp, NULL);
  assert_string_equal(it->found_in, "memory");
  assert_string_equal(it->key.hex, key);
  must_have(it->text, "in memory");
  qn_explanation_free(it);
  assert_true(qn_engine_unload(place->engine, place->one, place->interp, NULL));
  it = explain(place->engine, place->one, place->interp, NULL);
  assert_string_equal(it->found_in, "disk");
  assert_string_equal(it->key.hex, key);
  must_have(it->text, place->directory);
  qn_explanation_free(it);
  // Another one is looked for among all entries, and still nothing is counted.
  it = explain(place->engine, place->two, place->interp, NULL);
  assert_string_equal(it->nearest_key.hex, key);
  qn_explanation_free(it);
  qn__buffer_t after = counters_of(place->engine);
  assert_string_equal((const char*)before.data, (const char*)after.data);
  qn__buffer_deinit(&before);
  qn__buffer_deinit(&after);

  qn_engine_t* refreshing = engine_with(place->directory, "refresh", "", (qn_allocator_t){0});
  it = explain(refreshing, place->one, place->interp, NULL);
  assert_string_equal(it->found_in, "");
  must_have(it->text, "compiled again");
  qn_explanation_free(it);
  qn_engine_destroy(refreshing);
}

static void test_nothing(void** state) {
  place_t* place = *state;
  qn_engine_t* engine = engine_with("", "rw", "", (qn_allocator_t){0});
  qn_explanation_t* it = explain(engine, place->one, place->interp, NULL);
  assert_string_equal(it->found_in, "");
  must_have(it->text, "neither a cache directory nor a bundle");
  qn_explanation_free(it);
  qn_explanation_t* none;
  qn_status_t status = qn_engine_explain(engine, NULL, place->interp, NULL, &none);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  assert_null(none);
  qn_status_free(status);
  qn_explanation_free(NULL);
  qn_engine_destroy(engine);
}

// ---------------------------------------------------------------------------------- sections

typedef struct expected {
  const char* section;
  const char* wanted;
  const char* cached;
  const char* text;
} expected_t;

static void check(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                  const fake_t* nearest, const expected_t* expected) {
  qn_explanation_t* it = explain(engine, module, target, NULL);
  char hex[33];
  qn__hash128_hex(nearest->out_key, hex);
  assert_string_equal(it->found_in, "");
  assert_string_equal(it->nearest_key.hex, hex);
  assert_string_equal(it->section, expected->section);
  assert_string_equal(it->wanted, expected->wanted);
  assert_string_equal(it->cached, expected->cached);
  must_have(it->text, expected->text);
  hex[12] = '\0';
  must_have(it->text, hex);
  qn_explanation_free(it);
}

static void wipe(place_t* place) {
  assert_true(qn__disk_clear(qn__engine_disk(place->engine)) > 0);
}

static void test_sections(void** state) {
  place_t* place = *state;
  qn_engine_t* engine = place->engine;
  char identity[256];
  fake_t same = {
      .module = place->one, .target = place->interp, .identity = interp_identity(engine, identity)};

  fake_t fake = same;
  fake.tier = QN_TIER_FAST;
  put_fake(engine, &fake);
  check(engine, place->one, place->interp, &fake,
        &(expected_t){"options", "options: tier=full", "options: tier=fast",
                      "not cached: options: tier=full, cached tier=fast (entry "});
  wipe(place);

  fake = same;
  fake.is_checked = true;
  put_fake(engine, &fake);
  check(engine, place->one, place->interp, &fake,
        &(expected_t){"options", "options: checked=0", "options: checked=1",
                      "options: checked=0, cached checked=1"});
  wipe(place);

  fake = same;
  fake.cache_namespace = "team a";
  put_fake(engine, &fake);
  check(engine, place->one, place->interp, &fake,
        &(expected_t){"namespace", "namespace: ''", "namespace: 'team a'",
                      "namespace: '', cached 'team a'"});
  wipe(place);

  fake = same;
  fake.identity = "interp 0.0.9";
  put_fake(engine, &fake);
  char wanted[300];
  (void)snprintf(wanted, sizeof wanted, "generator: %s", identity);
  check(engine, place->one, place->interp, &fake,
        &(expected_t){"generator", wanted, "generator: interp 0.0.9", ", cached interp 0.0.9"});
  wipe(place);

  fake = same;
  fake.schema = 77;
  put_fake(engine, &fake);
  check(engine, place->one, place->interp, &fake,
        &(expected_t){"schema", "schema: version 1 of keys", "schema: 77", ", cached 77"});
  wipe(place);

  fake = same;
  fake.module = place->two;
  put_fake(engine, &fake);
  qn_explanation_t* it = explain(engine, place->one, place->interp, NULL);
  assert_string_equal(it->section, "module");
  must_have(it->text, "module: no entry of this module (one, ");
  must_have(it->text, "; the nearest has another (");
  must_have(it->wanted, "module: one, ");
  must_have(it->cached, " bytes");
  qn_explanation_free(it);
  // Of a real entry, the functions are told.
  wipe(place);
  compile(engine, place->two, place->interp, NULL);
  it = explain(engine, place->one, place->interp, NULL);
  must_have(it->text, "the nearest has another (two, ");
  must_have(it->cached, "module: two, ");
  qn_explanation_free(it);
}

static void test_targets(void** state) {
  place_t* place = *state;
  qn_engine_t* engine = place->engine;
  qn_target_t* v2 = must_target("cpu -mtriple=x86_64 -mcpu=x86-64-v2");
  qn_target_t* v3 = must_target("cpu -mtriple=x86_64 -mcpu=x86-64-v3");
  qn_target_t* wide = must_target("cpu -mtriple=x86_64 -mcpu=x86-64-v3 -vector_width=128");
  char identity[256];
  uint32_t index;
  must(qn__generators_find(&engine->generators, "llvm", &index, identity));
  fake_t fake = {.module = place->one, .target = v3, .identity = identity};
  put_fake(engine, &fake);
  qn_explanation_t* it = explain(engine, place->one, v2, NULL);
  assert_string_equal(it->section, "target");
  // What decides is named first, what follows from it afterwards.
  must_have(it->text, "target.");
  must_have(it->text, "cached");
  must_lack(it->text, "{");
  qn_explanation_free(it);
  it = explain(engine, place->one, wide, NULL);
  assert_string_equal(it->wanted, "target.vector_width: 128");
  must_have(it->text, "target.vector_width: 128, cached ");
  qn_explanation_free(it);
  it = explain(engine, place->one, place->interp, NULL);
  assert_string_equal(it->wanted, "target.kind: interp");
  assert_string_equal(it->cached, "target.kind: cpu");
  qn_explanation_free(it);
  qn_target_release(v2);
  qn_target_release(v3);
  qn_target_release(wide);
}

static void say(uint32_t tag, const char* wanted, const char* cached, const char* expected) {
  qn__difference_t difference;
  qn__difference_init(&difference, qn_allocator_default());
  qn__difference_make(tag, (qn_span_t){(const uint8_t*)wanted, strlen(wanted)},
                      (qn_span_t){(const uint8_t*)cached, strlen(cached)}, &difference);
  char text[512];
  (void)snprintf(text, sizeof text, "%.*s | %.*s | %.*s | %.*s",
                 QN_STR_ARG(qn__buffer_as_str(&difference.member)),
                 QN_STR_ARG(qn__buffer_as_str(&difference.wanted)),
                 QN_STR_ARG(qn__buffer_as_str(&difference.cached)),
                 QN_STR_ARG(qn__buffer_as_str(&difference.others)));
  assert_string_equal(text, expected);
  qn__difference_deinit(&difference);
}

static void test_words(void** state) {
  (void)state;
  say(QN__SECTION_TARGET, "{\"kind\":\"cpu\",\"mcpu\":\"znver3\"}",
      "{\"kind\":\"cpu\",\"mcpu\":\"znver4\"}", "target.mcpu | znver3 | znver4 | ");
  say(QN__SECTION_TARGET, "{\"a\":1,\"kind\":\"cpu\",\"mcpu\":\"x\",\"z\":true}",
      "{\"a\":2,\"kind\":\"cpu\",\"mcpu\":\"y\",\"z\":false}",
      "target.mcpu | x | y | target.a, target.z");
  say(QN__SECTION_TARGET, "{\"features\":[\"avx\",\"avx2\",\"fma\"]}",
      "{\"features\":[\"avx\",\"sse4\"]}", "target.features | with avx2, fma | with sse4 | ");
  say(QN__SECTION_TARGET, "{\"features\":[\"avx\"]}", "{\"features\":[\"avx\",\"fma\"]}",
      "target.features | without | with fma | ");
  say(QN__SECTION_TARGET, "{\"features\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"]}",
      "{\"features\":[]}", "target.features | with a, b, c, d, e, f and 2 more | without | ");
  say(QN__SECTION_TARGET, "{\"features\":[\"a\",\"b\"]}", "{\"features\":[\"b\",\"a\"]}",
      "target.features | [\"a\",\"b\"] | [\"b\",\"a\"] | ");
  say(QN__SECTION_TARGET, "{\"host\":{\"mcpu\":\"x\"},\"kind\":\"cuda\"}",
      "{\"host\":{\"mcpu\":\"y\"},\"kind\":\"cuda\"}", "target.host.mcpu | x | y | ");
  say(QN__SECTION_TARGET, "{\"kind\":\"cpu\"}", "{\"kind\":\"cpu\",\"n\":3}",
      "target.n | none | 3 | ");
  // What is no JSON, or differs in nothing that JSON tells, is shown whole.
  say(QN__SECTION_TARGET, "{", "[]", "target | { | [] | ");
  say(QN__SECTION_TARGET, "{\"n\":3}", "{\"n\": 3}", "target | {\"n\":3} | {\"n\": 3} | ");
  say(QN__SECTION_GENERATOR, "llvm 0.1.0, build id ab, library 12",
      "llvm 0.1.0, build id ab, library 34", "generator | llvm 0.1.0, library 12 | library 34 | ");
  say(QN__SECTION_GENERATOR, "llvm 0.2.0, build id ab", "llvm 0.1.0, build id cd",
      "generator | llvm 0.2.0 | llvm 0.1.0 | ");
  say(QN__SECTION_GENERATOR, "llvm 1", "llvm 1, library 12",
      "generator | llvm 1, nothing | library 12 | ");
  say(QN__SECTION_OPTIONS, "tier=full checked=0", "tier=full checked=0 more=1",
      "options | nothing | more=1 | ");
  say(QN__SECTION_OPTIONS, "a b", "a b ", "options | a b | a b  | ");
  say(QN__SECTION_NAMESPACE, "", "x", "namespace | '' | 'x' | ");
  say(QN__SECTION_SCHEMA, "abc", "abcd", "schema | version 0 of keys | 1684234849 | ");
  say(99, "abc", "", "unknown | 3 bytes | 0 bytes | ");
}

static void test_nearest(void** state) {
  place_t* place = *state;
  qn_engine_t* engine = place->engine;
  char identity[256];
  fake_t base = {
      .module = place->one, .target = place->interp, .identity = interp_identity(engine, identity)};
  // Another module that agrees in all else, against this module that agrees in little.
  fake_t other = base;
  other.module = place->two;
  put_fake(engine, &other);
  qn_target_t* null_target = must_target("null");
  fake_t far = base;
  far.target = null_target;
  far.tier = QN_TIER_FAST;
  far.identity = "null 7";
  far.created_ns = 1000000000;
  put_fake(engine, &far);
  check(engine, place->one, place->interp, &far,
        &(expected_t){"target", "target.kind: interp", "target.kind: null", "target.kind"});
  // One section closer.
  fake_t closer = far;
  closer.tier = QN_TIER_FULL;
  put_fake(engine, &closer);
  check(engine, place->one, place->interp, &closer,
        &(expected_t){"target", "target.kind: interp", "target.kind: null", "target.kind"});
  // As close, and later.
  fake_t later = far;
  later.identity = identity;
  later.created_ns = 2000000000;
  put_fake(engine, &later);
  check(engine, place->one, place->interp, &later,
        &(expected_t){"target", "target.kind: interp", "target.kind: null",
                      "made 1970-01-01 00:00 UTC"});
  qn_target_release(null_target);
}

// A search that has no time for all says so, and tells the nearest that it has met.
static void test_limits(void** state) {
  place_t* place = *state;
  char identity[256];
  fake_t fake = {.module = place->two,
                 .target = place->interp,
                 .identity = interp_identity(place->engine, identity)};
  for (int i = 0; i < 3; i++) {
    fake.cache_namespace = i == 0 ? "a" : i == 1 ? "b" : "c";
    put_fake(place->engine, &fake);
  }
  for (uint64_t most = 1; most <= 4; most++) {
    qn_explanation_t* it;
    must(qn__explain(place->engine, place->one, place->interp, NULL, most, INT64_C(3600000000000),
                     &it));
    assert_string_equal(it->section, "module");
    char expected[64];
    (void)snprintf(expected, sizeof expected, "stopped after %llu", (unsigned long long)most);
    if (most < 3) {
      must_have(it->text, expected);
    } else {
      must_lack(it->text, "stopped");
    }
    qn_explanation_free(it);
  }
  // What is over before it begins, as on a machine that has held the process, looks at some.
  qn_explanation_t* late;
  must(qn__explain(place->engine, place->one, place->interp, NULL, 50000, -1, &late));
  assert_string_equal(late->section, "module");
  must_lack(late->text, "stopped");
  qn_explanation_free(late);
}

// ---------------------------------------------------------------------------------- damage

static void entry_path(const place_t* place, const char* key, char out[QN_TEST_PATH_SIZE]) {
  (void)snprintf(out, QN_TEST_PATH_SIZE, "%.400s/v1/%.2s/%s.k", place->directory, key, key + 2);
}

static void test_damage(void** state) {
  place_t* place = *state;
  char key[33], path[QN_TEST_PATH_SIZE], moved[QN_TEST_PATH_SIZE + 8];
  compile(place->engine, place->one, place->interp, key);
  (void)qn_engine_unload(place->engine, place->one, place->interp, NULL);
  entry_path(place, key, path);
  static uint8_t bytes[1 << 16], again[1 << 16];
  long size = qn_test_read_file(path, bytes, sizeof bytes);
  assert_true(size > 100);
  bytes[size - 20] ^= 1;
  assert_true(qn_test_write_file(path, bytes, (size_t)size));
  struct stat before, after;
  assert_int_equal(stat(path, &before), 0);
  qn_explanation_t* it = explain(place->engine, place->one, place->interp, NULL);
  assert_string_equal(it->found_in, "");
  assert_string_equal(it->key.hex, key);
  assert_string_equal(it->nearest_key.hex, "");
  must_have(it->text, "damaged");
  must_have(it->text, "checksum");
  qn_explanation_free(it);
  // Neither healed nor touched.
  assert_int_equal(stat(path, &after), 0);
  assert_true(before.st_mtim.tv_nsec == after.st_mtim.tv_nsec && before.st_ino == after.st_ino);
  assert_int_equal(qn_test_read_file(path, again, sizeof again), size);
  assert_memory_equal(bytes, again, (size_t)size);
  // Damaged entries are nobody's nearest as long as the beginning is damaged.
  bytes[120] ^= 1;
  assert_true(qn_test_write_file(path, bytes, (size_t)size));
  it = explain(place->engine, place->two, place->interp, NULL);
  assert_string_equal(it->nearest_key.hex, "");
  qn_explanation_free(it);

  (void)snprintf(moved, sizeof moved, "%s.moved", path);
  assert_int_equal(rename(path, moved), 0);
  assert_int_equal(symlink(moved, path), 0);
  it = explain(place->engine, place->one, place->interp, NULL);
  must_have(it->text, "no regular file");
  qn_explanation_free(it);
  assert_int_equal(unlink(path), 0);

  qn_fault_fs_install();
  qn_fault_fs_arm(1, QN_FAULT_ONCE, QN_FAULT_ERRNO, 13);
  it = explain(place->engine, place->one, place->interp, NULL);
  must_have(it->text, "cannot read");
  qn_explanation_free(it);
  qn_fault_fs_remove();
}

// ---------------------------------------------------------------------------------- bundles

static void test_bundles(void** state) {
  place_t* place = *state;
  char key[33], path[QN_TEST_PATH_SIZE + 16];
  compile(place->engine, place->one, place->interp, key);
  (void)snprintf(path, sizeof path, "%s/kernels.qnb", place->directory);
  qn_cache_dir_t* dir;
  must(qn_cache_dir_open(place->directory, &dir));
  must(qn_cache_bundle_write(path, dir, NULL, 0, NULL, NULL));
  qn_cache_dir_close(dir);
  qn_engine_t* engine = engine_with("", "rw", path, (qn_allocator_t){0});
  qn__buffer_t before = counters_of(engine);
  qn_explanation_t* it = explain(engine, place->one, place->interp, NULL);
  assert_string_equal(it->found_in, "bundle");
  assert_string_equal(it->key.hex, key);
  must_have(it->text, "kernels.qnb");
  qn_explanation_free(it);
  it = explain(engine, place->two, place->interp, NULL);
  assert_string_equal(it->found_in, "");
  assert_string_equal(it->nearest_key.hex, key);
  assert_string_equal(it->section, "module");
  must_have(it->text, "the nearest has another (one, ");
  must_have(it->text, "in the bundle");
  qn_explanation_free(it);
  qn__buffer_t after = counters_of(engine);
  assert_string_equal((const char*)before.data, (const char*)after.data);
  qn__buffer_deinit(&before);
  qn__buffer_deinit(&after);
  qn_engine_destroy(engine);
  // Behind a directory that has a nearer one.
  engine = engine_with(place->directory, "ro", path, (qn_allocator_t){0});
  it = explain(engine, place->one, place->interp, NULL);
  assert_string_equal(it->found_in, "disk");
  qn_explanation_free(it);
  qn_engine_destroy(engine);
}

// ---------------------------------------------------------------------------------- faults

static void test_allocations(void** state) {
  place_t* place = *state;
  compile(place->engine, place->two, place->interp, NULL);
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  qn_engine_t* engine = engine_with(place->directory, "ro", "", qn_fault_heap_allocator(&heap));
  long blocks = heap.live_blocks;
  bool is_clean = false;
  long n = 1;
  for (; !is_clean; n++) {
    assert_true(n < 1000);
    for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
      qn_fault_heap_arm(&heap, n, (qn_fault_mode_t)mode);
      qn_explanation_t* it;
      qn_status_t status = qn_engine_explain(engine, place->one, place->interp, NULL, &it);
      is_clean = heap.failure_count == 0;
      qn_fault_heap_arm(&heap, 0, QN_FAULT_ONCE);
      if (qn_ok(status)) {
        assert_true(it->text[0] != '\0');
      } else {
        assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_MEMORY);
        assert_null(it);
      }
      qn_explanation_free(it);
      qn_status_free(status);
      // The directory keeps its read buffers.
      assert_true(heap.live_blocks <= blocks + 2);
    }
  }
  assert_true(n > 5);
  qn_engine_destroy(engine);
  assert_int_equal(heap.live_blocks, 0);
  assert_int_equal(heap.size_errors, 0);
}

static void test_files(void** state) {
  place_t* place = *state;
  compile(place->engine, place->two, place->interp, NULL);
  compile(place->engine, place->one, place->interp, NULL);
  (void)qn_engine_unload(place->engine, place->one, place->interp, NULL);
  qn_lookup_options_t options = {.struct_size = sizeof options, .is_checked = true};
  int descriptors = qn_test_descriptor_count();
  qn_fault_fs_install();
  bool is_clean = false;
  for (long n = 1; !is_clean; n++) {
    for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
      qn_fault_fs_arm(n, (qn_fault_mode_t)mode, QN_FAULT_ERRNO, 5);
      qn_explanation_free(explain(place->engine, place->one, place->interp, NULL));
      qn_explanation_free(explain(place->engine, place->one, place->interp, &options));
      is_clean = qn_fault_fs_failures() == 0;
    }
  }
  qn_fault_fs_remove();
  assert_int_equal(qn_test_descriptor_count(), descriptors);
  qn_explanation_t* it = explain(place->engine, place->one, place->interp, NULL);
  assert_string_equal(it->found_in, "disk");
  qn_explanation_free(it);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_found, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_nothing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_sections, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_targets, set_up, tear_down),
      cmocka_unit_test(test_words),
      cmocka_unit_test_setup_teardown(test_nearest, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_limits, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_bundles, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_allocations, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_files, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
