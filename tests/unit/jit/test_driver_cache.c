// SPDX-License-Identifier: Apache-2.0
// Tests the cache of driver data: stored beside the artifact's entry, returned only to the same
// driver, and no longer used after the engine is destroyed.
// ctest-labels: tsan
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "quern/backend.h"
#include "quern/cache.h"
#include "quern/observe.h"
#include "quern/quern.h"
#include "tests/support/tempdir.h"
#include "tests/unit/jit/support_gate.h"

#define SECOND INT64_C(1000000000)
enum { DEVICE = 40 };

// A device that loads what the null generator makes, and has data of its own: `made`, where the
// store has none.
static struct {
  const char* identity;
  const char* made;
  char got[64];
  size_t got_count;
  qn_driver_cache_t kept;  // of the last load, retained
} driver;

static int32_t count(void) {
  return 1;
}
static qn_status_t attribute(int32_t id, qn_attribute_t which, qn_attribute_value_t* out_value) {
  (void)id;
  (void)which;
  (void)out_value;
  return QN_OK;
}
static qn_status_t allocate(int32_t id, size_t size, size_t alignment, void** out_pointer) {
  (void)id;
  (void)size;
  (void)alignment;
  *out_pointer = NULL;
  return qn_status_make(QN_STATUS_UNSUPPORTED, "no memory here");
}
static qn_status_t release_memory(int32_t id, void* pointer) {
  (void)id;
  (void)pointer;
  return QN_OK;
}
static qn_status_t copy(int32_t id, void* stream, const qn_copy_t* what) {
  (void)id;
  (void)stream;
  (void)what;
  return QN_OK;
}
static bool accepts(const char* format) {
  return strcmp(format, "null-1") == 0;
}

static qn_status_t keep(void* self, const void* data, size_t size) {
  (void)self;
  assert_in_range(size, 1, sizeof driver.got - 1);
  memcpy(driver.got, data, size);
  driver.got[size] = '\0';
  driver.got_count++;
  return QN_OK;
}

static qn_status_t load(int32_t id, const qn_artifact_t* artifact, const qn_load_options_t* options,
                        void** out_executable) {
  (void)id;
  (void)artifact;
  driver.got[0] = '\0';
  driver.kept = options->driver_cache;
  if (options->driver_cache.get) {
    options->driver_cache.get(options->driver_cache.self, driver.identity, (qn_sink_t){NULL, keep});
  }
  if (driver.got[0] == '\0' && options->driver_cache.put) {
    options->driver_cache.put(options->driver_cache.self, driver.identity, driver.made,
                              strlen(driver.made));
  }
  if (options->driver_cache.retain) options->driver_cache.retain(options->driver_cache.self);
  *out_executable = &driver;
  return QN_OK;
}
static void unload(int32_t id, void* executable) {
  (void)id;
  (void)executable;
}
static qn_status_t launch(int32_t id, void* executable, uint32_t index, void* stream,
                          const qn_launch_t* call) {
  (void)id;
  (void)executable;
  (void)index;
  (void)stream;
  (void)call;
  return QN_OK;
}

static const qn_device_table_t table = {
    .abi_version = QN_DEVICE_ABI_VERSION,
    .struct_size = sizeof(qn_device_table_t),
    .type = DEVICE,
    .name = "driven",
    .count = count,
    .attribute = attribute,
    .allocate = allocate,
    .free = release_memory,
    .copy = copy,
    .accepts = accepts,
    .load = load,
    .unload = unload,
    .launch = launch,
};

static void let_go(void) {
  if (driver.kept.release) driver.kept.release(driver.kept.self);
  memset(&driver.kept, 0, sizeof driver.kept);
}

static qn_module_t* module;
static qn_target_t* target;

// A lookup by an engine of its own; the engine is returned.
static qn_engine_t* look_up(const char* directory, const char* mode) {
  const qn_setting_t settings[] = {{"cache_mode", mode}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = directory,
                                 .settings = settings,
                                 .setting_count = 1};
  qn_engine_t* engine;
  must(qn_engine_create(&options, &engine));
  qn_function_t* function;
  must(qn_engine_function(engine, module, target, "f", NULL, NULL, &function));
  qn_function_release(function);
  assert_true(qn_engine_flush(engine, 3600 * SECOND));
  return engine;
}

static int set_up(void** state) {
  (void)state;
  static const qn_target_kind_info_t kind = {.struct_size = sizeof kind,
                                             .name = "driven",
                                             .doc = "a test",
                                             .codegen = "null",
                                             .device_type = DEVICE};
  must(qn_device_register(&table));
  must(qn_target_kind_register(&kind));
  must(qn_target_parse("driven", &target));
  const char* text = "func f(x: f32[n]) { }";
  must(qn_module_parse(text, strlen(text), NULL, &module));
  return 0;
}
static int tear_down(void** state) {
  (void)state;
  qn_module_release(module);
  qn_target_release(target);
  return 0;
}

static void test_kept_for_one_driver(void** state) {
  (void)state;
  char directory[QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(directory));
  driver.identity = "driver 1";
  driver.made = "pipelines of driver 1";
  driver.got_count = 0;
  qn_engine_t* engine = look_up(directory, "rw");
  assert_int_equal(driver.got_count, 0);
  assert_int_equal(counter_of(engine, "driver_misses"), 1);
  assert_int_equal(counter_of(engine, "driver_puts"), 1);
  qn_engine_destroy(engine);
  let_go();

  // The next process of the same driver.
  engine = look_up(directory, "rw");
  assert_string_equal(driver.got, "pipelines of driver 1");
  assert_int_equal(counter_of(engine, "driver_hits"), 1);
  assert_int_equal(counter_of(engine, "driver_puts"), 0);
  qn_engine_destroy(engine);
  let_go();

  // After an update of the driver.
  driver.identity = "driver 2";
  driver.made = "pipelines of driver 2";
  engine = look_up(directory, "rw");
  assert_string_equal(driver.got, "");
  assert_int_equal(counter_of(engine, "driver_misses"), 1);
  qn_engine_destroy(engine);
  let_go();
  engine = look_up(directory, "ro");
  assert_string_equal(driver.got, "pipelines of driver 2");
  assert_null(driver.kept.put);
  qn_engine_destroy(engine);
  let_go();
  qn_test_tempdir_remove(directory);
}

static void test_modes(void** state) {
  (void)state;
  char directory[QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(directory));
  driver.identity = "driver 1";
  driver.made = "new";
  qn_engine_t* engine = look_up(directory, "off");
  assert_null(driver.kept.get);
  assert_null(driver.kept.put);
  qn_engine_destroy(engine);
  let_go();
  engine = look_up(directory, "refresh");
  assert_null(driver.kept.get);
  assert_non_null(driver.kept.put);
  assert_int_equal(counter_of(engine, "driver_puts"), 1);
  qn_engine_destroy(engine);
  // The device still has the store, but its puts have no effect.
  driver.kept.put(driver.kept.self, "driver 1", "late", 4);
  let_go();
  engine = look_up(directory, "rw");
  assert_string_equal(driver.got, "new");
  qn_engine_destroy(engine);
  let_go();
  qn_test_tempdir_remove(directory);
}

static void test_bundles_have_none(void** state) {
  (void)state;
  char directory[QN_TEST_PATH_SIZE];
  char path[QN_TEST_PATH_SIZE + 16];
  assert_true(qn_test_tempdir_make(directory));
  driver.identity = "driver 1";
  driver.made = "pipelines";
  qn_engine_t* engine = look_up(directory, "rw");
  qn_recompile_report_t recompiled = {.struct_size = sizeof recompiled};
  must(qn_engine_recompile(engine, NULL, &recompiled));
  assert_int_equal(recompiled.entry_count, 2);
  assert_int_equal(recompiled.same_count, 1);
  assert_int_equal(recompiled.without_module_count, 0);
  qn_engine_destroy(engine);
  let_go();
  qn_cache_dir_t* dir;
  must(qn_cache_dir_open(directory, &dir));
  (void)snprintf(path, sizeof path, "%s/a.qnb", directory);
  qn_cache_write_report_t report = {.struct_size = sizeof report};
  must(qn_cache_bundle_write(path, dir, NULL, 0, NULL, &report));
  assert_int_equal(report.written_count, 1);
  qn_cache_dir_close(dir);
  qn_test_tempdir_remove(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_kept_for_one_driver),
      cmocka_unit_test(test_modes),
      cmocka_unit_test(test_bundles_have_none),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
