// SPDX-License-Identifier: Apache-2.0
// tests/faults/test_reference.c: tests failures that other caches of compiled code had, one test
// for each failure without a test elsewhere. The full list is in docs/reliability.md.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "quern/cache.h"
#include "quern/observe.h"
#include "tests/faults/kernels.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"

#define PATIENCE_NS INT64_C(60000000000)

// ------------------------------------------------------------- a publisher reads nothing back (B2)

static _Atomic int entries_opened, directories_removed;

static void count_calls(void* self, const char* call, const char* path) {
  (void)self;
  size_t size = strlen(path);
  bool is_entry = size > 2 && strcmp(path + size - 2, ".k") == 0;
  entries_opened += strcmp(call, "open") == 0 && is_entry;
  directories_removed += strcmp(call, "rmdir") == 0;
}

static void nothing_is_read_back(void** state) {
  (void)state;
  qn_engine_t* engine = kernel_engine((qn_allocator_t){0}, cache_root, NULL, 0);
  qn_fault_fs_install();
  qn_fault_fs_hook(count_calls, NULL);
  qn_source_t source;
  assert_true(qn_ok(kernel_look_up(engine, 1, "interp", NULL, &source)));
  assert_int_equal(source, QN_SOURCE_COMPILED);
  entries_opened = directories_removed = 0;
  assert_true(qn_engine_flush(engine, PATIENCE_NS));
  assert_true(qn_ok(kernel_look_up(engine, 1, "interp", NULL, &source)));
  assert_int_equal(source, QN_SOURCE_MEMORY);
  qn_engine_destroy(engine);
  qn_fault_fs_remove();
  assert_int_equal(entries_opened, 0);
  assert_int_equal(directories_removed, 0);  // only files are removed (B3)
}

// ------------------------------------------------------ what is in the making is no entry (B6)

static bool count_file(void* self, const qn__disk_file_t* file) {
  (void)file;
  ++*(unsigned*)self;
  return true;
}

static void what_is_in_the_making_is_no_entry(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 3, 500);
  qn__disk_t* disk = open_cache(&(qn__disk_options_t){.sweep_period_ns = -1});
  assert_true(put_and_wait(disk, &sample));
  // A whole entry under the name of a temporary file, and under names that other caches listed as
  // entries.
  char from[QN_TEST_PATH_SIZE + 64], to[QN_TEST_PATH_SIZE + 96];
  entry_path(&sample, from);
  static uint8_t bytes[4096];
  long size = qn_test_read_file(from, bytes, sizeof bytes);
  assert_true(size > 0);
  const char* const suffixes[] = {".tmp", "~", ".k.tmp.1234"};
  for (size_t i = 0; i < QN_COUNT_OF(suffixes); i++) {
    (void)snprintf(to, sizeof to, "%s%s", from, suffixes[i]);
    assert_true(qn_test_write_file(to, bytes, (size_t)size));
  }
  (void)snprintf(to, sizeof to, "%s/v1/tmp/0000abcd-0123456789abcdef.t", cache_root);
  assert_int_equal(rename(from, to), 0);
  qn__hit_t hit;
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_ABSENT);
  unsigned count = 0;
  uint64_t temporaries = 0;
  assert_int_equal(qn__disk_scan(disk, count_file, &count, &temporaries), 0);
  assert_int_equal(count, 0);
  assert_int_equal(temporaries, 1);
  qn_cache_dir_t* dir;
  char bundle[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(bundle, sizeof bundle, "%s/bundle", cache_root);
  assert_true(qn_ok(qn_cache_dir_open(cache_root, &dir)));
  assert_int_equal(qn_status_consume(qn_cache_bundle_write(bundle, dir, NULL, 0, NULL, NULL)),
                   QN_STATUS_NOT_FOUND);
  qn_cache_dir_close(dir);
  qn__disk_close(disk, PATIENCE_NS);
  sample_free(&sample);
}

// ------------------------------------------------------- keys: all that matters, and no more (B10,
// B12)

typedef struct lookup_case {
  const char* text;
  const char* target;
  const char* cache_namespace;
  qn_tier_t tier;
  bool is_checked;
} lookup_case_t;

#define BODY "func f(x: f32[n], out y: f32[n]) { for i in 0..n { y[i] = x[i] * 2.0; } }"

static void key_of(const lookup_case_t* lookup, const char* directory, char out[33]) {
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = directory,
                                 .cache_namespace = lookup->cache_namespace,
                                 .ignores_environment = true};
  qn_lookup_options_t how = {
      .struct_size = sizeof how, .tier = lookup->tier, .is_checked = lookup->is_checked};
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  qn_explanation_t* explanation;
  assert_true(qn_ok(qn_engine_create(&options, &engine)));
  assert_true(qn_ok(qn_module_parse(lookup->text, strlen(lookup->text), NULL, &module)));
  assert_true(qn_ok(qn_target_parse(lookup->target, &target)));
  qn_status_t status = qn_engine_explain(engine, module, target, &how, &explanation);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  memcpy(out, explanation->key.hex, 33);
  qn_explanation_free(explanation);
  qn_target_release(target);
  qn_module_release(module);
  qn_engine_destroy(engine);
}

static void keys_hold_what_matters(void** state) {
  (void)state;
  const lookup_case_t cases[] = {
      {BODY, "interp", NULL, QN_TIER_FULL, false},
      {BODY, "interp", "tenant", QN_TIER_FULL, false},
      {BODY, "interp", NULL, QN_TIER_FAST, false},
      {BODY, "interp", NULL, QN_TIER_FULL, true},
      // One constant, one type, one operator, one shape, one order, one kind of loop, one licence.
      {"func f(x: f32[n], out y: f32[n]) { for i in 0..n { y[i] = x[i] * 3.0; } }", "interp", NULL,
       QN_TIER_FULL, false},
      {"func f(x: f64[n], out y: f64[n]) { for i in 0..n { y[i] = x[i] * 2.0; } }", "interp", NULL,
       QN_TIER_FULL, false},
      {"func f(x: f32[n], out y: f32[n]) { for i in 0..n { y[i] = x[i] + 2.0; } }", "interp", NULL,
       QN_TIER_FULL, false},
      {"func f(x: f32[8], out y: f32[8]) { for i in 0..8 { y[i] = x[i] * 2.0; } }", "interp", NULL,
       QN_TIER_FULL, false},
      {"func f(out y: f32[n], x: f32[n]) { for i in 0..n { y[i] = x[i] * 2.0; } }", "interp", NULL,
       QN_TIER_FULL, false},
      {"func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] * 2.0; } }", "interp",
       NULL, QN_TIER_FULL, false},
      {"func g(x: f32[n], out y: f32[n]) { for i in 0..n { y[i] = x[i] * 2.0; } }", "interp", NULL,
       QN_TIER_FULL, false},
      {BODY, "cpu -mcpu=znver3", NULL, QN_TIER_FULL, false},
      {BODY, "cpu -mcpu=znver4", NULL, QN_TIER_FULL, false},
      {BODY, "cpu -mcpu=znver3 -mattr=-avx2", NULL, QN_TIER_FULL, false},
      {BODY, "cpu -mcpu=znver3 -vector_width=128", NULL, QN_TIER_FULL, false},
      {BODY, "cpu -mcpu=znver3", NULL, QN_TIER_FAST, false},
      {BODY, "cpu -mcpu=znver3", NULL, QN_TIER_FULL, true},
  };
  // The key of the cpu target names the generator, which may not have been built.
  size_t count = QN_HAVE_LLVM ? QN_COUNT_OF(cases) : 11;
  char keys[QN_COUNT_OF(cases)][33];
  for (size_t i = 0; i < count; i++) {
    key_of(&cases[i], cache_root, keys[i]);
    for (size_t j = 0; j < i; j++) {
      if (strcmp(keys[i], keys[j]) == 0) fail_msg("cases %zu and %zu have one key", j, i);
    }
  }
}

static void keys_hold_nothing_else(void** state) {
  (void)state;
  static const lookup_case_t cases[] = {
      {BODY, "interp", NULL, QN_TIER_FULL, false},
      {"// a comment\nfunc f(x: f32[n], out y: f32[n]) {\n  for i in 0..n { y[i] = x[i] * 2.0; "
       "}\n}",
       "interp", NULL, QN_TIER_FULL, false},
      {"func f(x: f32[n], out y: f32[n]) { for element in 0..n { y[element] = x[element] * 2.0; } "
       "}",
       "interp", "", QN_TIER_FULL, false},
      {BODY, "{\"kind\": \"interp\"}", NULL, QN_TIER_FULL, false},
  };
  char first[33], other[33], elsewhere[QN_TEST_PATH_SIZE];
  key_of(&cases[0], cache_root, first);
  for (size_t i = 1; i < QN_COUNT_OF(cases); i++) {
    key_of(&cases[i], cache_root, other);
    assert_string_equal(first, other);
  }
  // The same key in another process, working directory, cache directory and environment, at a later
  // time.
  assert_true(qn_test_tempdir_make(elsewhere));
  int pipes[2];
  assert_int_equal(pipe(pipes), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)setenv("PATH", "/nowhere", 1);
    (void)setenv("LANG", "tr_TR.UTF-8", 1);
    if (chdir("/") != 0) _exit(1);
    key_of(&cases[0], elsewhere, other);
    _exit(write(pipes[1], other, sizeof other) == (ssize_t)sizeof other ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(read(pipes[0], other, sizeof other), (int)sizeof other);
  assert_string_equal(first, other);
  (void)close(pipes[0]);
  (void)close(pipes[1]);
  qn_test_tempdir_remove(elsewhere);
}

// ------------------------------------------------ a sweep credits what others removed (B25)

#define ENTRIES 20u
#define BOUND 10u

static sample_t entries[ENTRIES];
static _Atomic bool is_removing;

// Removes the oldest half, as another process would, when the sweep begins to evict.
static void remove_the_oldest(void* self, const char* call, const char* path) {
  (void)self;
  size_t size = strlen(path);
  if (strcmp(call, "statvfs_free") != 0 || size == 0 || !atomic_exchange(&is_removing, false))
    return;
  for (unsigned i = 0; i < ENTRIES / 2; i++) {
    char file[QN_TEST_PATH_SIZE + 64];
    entry_path(&entries[i], file);
    (void)unlink(file);
  }
}

static void what_others_removed_is_credited(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(
      &(qn__disk_options_t){.sweep_period_ns = -1, .max_entries = BOUND, .min_free_bytes = 1});
  for (unsigned i = 0; i < ENTRIES; i++) {
    sample_make(&entries[i], i, 100);
    assert_true(put_and_wait(disk, &entries[i]));
    char file[QN_TEST_PATH_SIZE + 64];
    entry_path(&entries[i], file);
    set_age(file, ENTRIES - i);  // each is older than the next
  }
  qn_fault_fs_install();
  qn_fault_fs_hook(remove_the_oldest, NULL);
  is_removing = true;
  assert_true(qn__disk_sweep(disk));
  qn_fault_fs_remove();
  assert_false(is_removing);
  // Ten entries are left after that removal, and eight may stay. The sweep must count entries
  // removed by others, and evict no further ones in their place.
  unsigned count = 0;
  assert_int_equal(qn__disk_scan(disk, count_file, &count, NULL), 0);
  assert_int_equal(count, BOUND - BOUND / 5);
  for (unsigned i = 0; i < ENTRIES; i++) {
    qn__hit_t hit;
    bool is_young = i >= ENTRIES - (BOUND - BOUND / 5);
    assert_int_equal(qn__disk_get(disk, &entries[i].expected, &hit),
                     is_young ? QN__GET_HIT : QN__GET_ABSENT);
    qn__disk_hit_release(disk, &hit);
    sample_free(&entries[i]);
  }
  qn__disk_close(disk, PATIENCE_NS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, cache_set_up, cache_tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(nothing_is_read_back),
      TEST(what_is_in_the_making_is_no_entry),
      TEST(keys_hold_what_matters),
      TEST(keys_hold_nothing_else),
      TEST(what_others_removed_is_credited),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
