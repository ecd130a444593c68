// SPDX-License-Identifier: Apache-2.0
// qn_engine_compile puts an entry into the directory without loading its code; qn_engine_cached
// lists such entries as lookups; qn_engine_settings makes an engine like another.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quern/cache.h"
#include "quern/ir.h"
#include "quern/observe.h"
#include "quern/quern.h"
#include "quern/target.h"
#include "tests/support/engine.h"
#include "tests/support/tempdir.h"

static const char text[] = "func one(out y: i32[n]) { for i in 0..n { y[i] = 1; } }\n";

typedef struct fixture {
  char directory[QN_TEST_PATH_SIZE];
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
} fixture_t;

static qn_engine_t* make_engine(const char* directory, qn_cache_mode_t mode) {
  return must_engine(
      (qn_engine_options_t){.cache_dir = directory, .cache_mode = mode, .cache_namespace = "here"});
}

static int set_up(void** state) {
  fixture_t* f = calloc(1, sizeof *f);
  assert_non_null(f);
  assert_true(qn_test_tempdir_make(f->directory));
  f->engine = make_engine(f->directory, QN_CACHE_RW);
  must(qn_module_parse(text, sizeof text - 1, NULL, &f->module));
  must(qn_target_parse("interp", &f->target));
  *state = f;
  return 0;
}
static int tear_down(void** state) {
  fixture_t* f = *state;
  qn_target_release(f->target);
  qn_module_release(f->module);
  qn_engine_destroy(f->engine);
  qn_test_tempdir_remove(f->directory);
  free(f);
  return 0;
}

static void test_compiles_once(void** state) {
  fixture_t* f = *state;
  qn_lookup_options_t only_ask = {.struct_size = sizeof only_ask, .miss = QN_MISS_FAIL};
  qn_lookup_info_t asked = {.struct_size = sizeof asked};
  qn_lookup_info_t info = {.struct_size = sizeof info};
  assert_int_equal(
      qn_status_consume(qn_engine_compile(f->engine, f->module, f->target, &only_ask, &asked)),
      QN_STATUS_COMPILE_FORBIDDEN);
  assert_int_equal(strlen(asked.key.hex), 32);
  must(qn_engine_compile(f->engine, f->module, f->target, NULL, &info));
  assert_int_equal(info.source, QN_SOURCE_COMPILED);
  assert_true(info.compile_ns > 0 && info.lookup_ns >= info.compile_ns);
  assert_string_equal(info.key.hex, asked.key.hex);
  must(qn_engine_compile(f->engine, f->module, f->target, &only_ask, &info));
  assert_int_equal(info.source, QN_SOURCE_DISK);
  // The entry is in the directory, and nothing was loaded.
  qn_executable_t* executable;
  must(qn_engine_executable(f->engine, f->module, f->target, NULL, &info, &executable));
  assert_int_equal(info.source, QN_SOURCE_DISK);
  assert_string_equal(info.key.hex, asked.key.hex);
  qn_executable_release(executable);
}

static void test_waits_for_a_lookup(void** state) {
  fixture_t* f = *state;
  qn_executable_t* executable;
  must(qn_engine_executable(f->engine, f->module, f->target, NULL, NULL, &executable));
  qn_executable_release(executable);
  // The publish may still be queued: it is waited for, not compiled again.
  qn_lookup_info_t info = {.struct_size = sizeof info};
  must(qn_engine_compile(f->engine, f->module, f->target, NULL, &info));
  assert_int_equal(info.source, QN_SOURCE_DISK);
}

static void test_needs_a_directory(void** state) {
  fixture_t* f = *state;
  qn_engine_t* off = make_engine("", QN_CACHE_RW);
  qn_engine_t* reader = make_engine(f->directory, QN_CACHE_RO);
  qn_cached_report_t report = {.struct_size = sizeof report};
  assert_int_equal(qn_status_consume(qn_engine_compile(off, f->module, f->target, NULL, NULL)),
                   QN_STATUS_FAILED_PRECONDITION);
  assert_int_equal(qn_status_consume(qn_engine_compile(reader, f->module, f->target, NULL, NULL)),
                   QN_STATUS_FAILED_PRECONDITION);
  assert_int_equal(qn_status_consume(qn_engine_compile(off, NULL, f->target, NULL, NULL)),
                   QN_STATUS_INVALID_ARGUMENT);
  assert_int_equal(qn_status_consume(qn_engine_cached(off, NULL, NULL, &report)),
                   QN_STATUS_INVALID_ARGUMENT);
  qn_engine_destroy(off);
  qn_engine_destroy(reader);
}

static void* compile_ahead(void* arg) {
  fixture_t* f = arg;
  must(qn_engine_compile(f->engine, f->module, f->target, NULL, NULL));
  return NULL;
}
static void take_compiles(void* self, const char* name, uint64_t value, const char* doc) {
  (void)doc;
  if (strcmp(name, "compiles") == 0) *(uint64_t*)self = value;
}

static void test_threads_share_a_compile(void** state) {
  fixture_t* f = *state;
  pthread_t threads[4];
  for (size_t i = 0; i < 4; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, compile_ahead, f), 0);
  }
  for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  uint64_t compiles = 0;
  qn_engine_counters(f->engine, take_compiles, &compiles);
  assert_int_equal(compiles, 1);
}

static void count_compile(void* self, const qn_compile_event_t* event) {
  assert_int_equal(event->reason, QN_MISSED_ABSENT);
  ++*(int*)self;
}

static void test_reports_the_compile(void** state) {
  fixture_t* f = *state;
  int count = 0;
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = f->directory,
                                 .cache_mode = QN_CACHE_RW,
                                 .ignores_environment = true,
                                 .on_compile = count_compile,
                                 .on_compile_self = &count};
  qn_engine_t* engine;
  must(qn_engine_create(&options, &engine));
  must(qn_engine_compile(engine, f->module, f->target, NULL, NULL));
  must(qn_engine_compile(engine, f->module, f->target, NULL, NULL));
  assert_int_equal(count, 1);
  qn_engine_destroy(engine);
}

static void test_refresh_compiles_again(void** state) {
  fixture_t* f = *state;
  qn_engine_t* refresh = make_engine(f->directory, QN_CACHE_REFRESH);
  for (int i = 0; i < 2; i++) {
    qn_lookup_info_t info = {.struct_size = sizeof info};
    must(qn_engine_compile(refresh, f->module, f->target, NULL, &info));
    assert_int_equal(info.source, QN_SOURCE_COMPILED);
  }
  qn_engine_destroy(refresh);
}

typedef struct seen {
  fixture_t* fixture;
  size_t count;
  size_t stop_after;
} seen_t;
static bool see(void* self, const qn_cached_lookup_t* lookup) {
  seen_t* seen = self;
  assert_memory_equal(qn_module_digest(lookup->module), qn_module_digest(seen->fixture->module),
                      16);
  assert_string_equal(qn_target_kind(lookup->target), "interp");
  assert_int_equal(strlen(lookup->key.hex), 32);
  return ++seen->count != seen->stop_after;
}

static void test_lists_entries_as_lookups(void** state) {
  fixture_t* f = *state;
  for (int i = 0; i < 4; i++) {
    qn_lookup_options_t options = {.struct_size = sizeof options,
                                   .tier = i & 1 ? QN_TIER_FAST : QN_TIER_FULL,
                                   .is_checked = i >= 2};
    must(qn_engine_compile(f->engine, f->module, f->target, &options, NULL));
  }
  seen_t seen = {.fixture = f};
  qn_cached_report_t report = {.struct_size = sizeof report};
  must(qn_engine_cached(f->engine, see, &seen, &report));
  assert_int_equal(seen.count, 4);
  assert_int_equal(report.entry_count, 4);
  assert_int_equal(report.lookup_count, 4);
  seen = (seen_t){.fixture = f, .stop_after = 2};
  must(qn_engine_cached(f->engine, see, &seen, NULL));
  assert_int_equal(seen.count, 2);
}

typedef struct settings {
  qn_setting_t items[128];
  size_t count;
} settings_t;
static void take(void* self, const qn_setting_t* setting) {
  settings_t* settings = self;
  assert_true(settings->count < 128);
  settings->items[settings->count++] = *setting;
}

static void test_settings_make_an_engine_like_it(void** state) {
  fixture_t* f = *state;
  settings_t settings = {.count = 0};
  qn_engine_settings(f->engine, take, &settings);
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .ignores_environment = true,
                                 .settings = settings.items,
                                 .setting_count = settings.count};
  qn_engine_t* other;
  must(qn_engine_create(&options, &other));
  qn_lookup_info_t info = {.struct_size = sizeof info};
  must(qn_engine_compile(f->engine, f->module, f->target, NULL, &info));
  must(qn_engine_compile(other, f->module, f->target, NULL, &info));
  assert_int_equal(info.source, QN_SOURCE_DISK);  // the same directory and namespace
  qn_engine_destroy(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_compiles_once, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_waits_for_a_lookup, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_needs_a_directory, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_threads_share_a_compile, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_reports_the_compile, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_refresh_compiles_again, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_lists_entries_as_lookups, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_settings_make_an_engine_like_it, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
