// tests/interface/test_sizes.c: structs that a program fills, from an older program (shorter) and a
// newer one (longer), and the default streams.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "quern/cache.h"
#include "quern/device.h"
#include "quern/observe.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"

typedef struct fixture {
  char directory[QN_TEST_PATH_SIZE];
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  qn_cache_dir_t* dir;
} fixture_t;

static const char text[] =
    "func f(n: i64, out y: f32[n]) {\n  for i in 0..n {\n    y[i] = 1.0;\n  }\n}\n";

static int make(void** state) {
  fixture_t* f = calloc(1, sizeof *f);
  assert_non_null(f);
  assert_true(qn_test_tempdir_make(f->directory));
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = f->directory, .ignores_environment = true};
  must(qn_engine_create(&options, &f->engine));
  f->module = must_parse(text);
  must(qn_target_parse("interp", &f->target));
  qn_executable_t* executable;
  must(qn_engine_executable(f->engine, f->module, f->target, NULL, NULL, &executable));
  qn_executable_release(executable);
  assert_true(qn_engine_flush(f->engine, QN_TIMEOUT_INFINITE));
  must(qn_cache_dir_open(f->directory, &f->dir));
  *state = f;
  return 0;
}

static int drop(void** state) {
  fixture_t* f = *state;
  qn_cache_dir_close(f->dir);
  qn_target_release(f->target);
  qn_module_release(f->module);
  qn_engine_destroy(f->engine);
  qn_test_tempdir_remove(f->directory);
  free(f);
  return 0;
}

static qn_status_t give_engine(fixture_t* f, const void* options) {
  (void)f;
  qn_engine_t* engine;
  qn_status_t status = qn_engine_create(options, &engine);
  qn_engine_destroy(engine);
  return status;
}
static qn_status_t give_lookup(fixture_t* f, const void* options) {
  qn_executable_t* executable;
  qn_status_t status =
      qn_engine_executable(f->engine, f->module, f->target, options, NULL, &executable);
  qn_executable_release(executable);
  return status;
}
static qn_status_t give_parse(fixture_t* f, const void* options) {
  (void)f;
  qn_module_t* module;
  qn_status_t status = qn_module_parse(text, sizeof text - 1, options, &module);
  qn_module_release(module);
  return status;
}
static qn_status_t give_write(fixture_t* f, const void* options) {
  char path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(path, sizeof path, "%s/kernels.qnb", f->directory);
  return qn_cache_bundle_write(path, f->dir, NULL, 0, options, NULL);
}
static qn_status_t give_recompile(fixture_t* f, const void* options) {
  return qn_engine_recompile(f->engine, options, NULL);
}
static qn_status_t give_copy(fixture_t* f, const void* copy) {
  (void)f;
  return qn_device_copy(copy, NULL);
}

// The members up to `least` must be there for the call to be a success.
static const struct {
  const char* name;
  size_t size;
  size_t least;
  qn_status_t (*give)(fixture_t* f, const void* options);
} structs[] = {
    {"qn_engine_options_t", sizeof(qn_engine_options_t), sizeof(size_t), give_engine},
    {"qn_lookup_options_t", sizeof(qn_lookup_options_t), sizeof(size_t), give_lookup},
    {"qn_parse_options_t", sizeof(qn_parse_options_t), sizeof(size_t), give_parse},
    {"qn_cache_write_options_t", sizeof(qn_cache_write_options_t), sizeof(size_t), give_write},
    {"qn_recompile_options_t", sizeof(qn_recompile_options_t), sizeof(size_t), give_recompile},
    {"qn_copy_t", sizeof(qn_copy_t), offsetof(qn_copy_t, from), give_copy},
};

// A struct of exactly `size` bytes, so that a sanitizer sees a byte too much.
static qn_status_t give(fixture_t* f, size_t i, size_t size, size_t stated, uint8_t last) {
  uint8_t* bytes = calloc(1, size);
  assert_non_null(bytes);
  if (structs[i].give == give_copy) {
    qn_copy_t copy = {.from_device = {QN_DEVICE_CPU, 0}, .to_device = {QN_DEVICE_CPU, 0}};
    memcpy(bytes, &copy, size < sizeof copy ? size : sizeof copy);
  }
  memcpy(bytes, &stated, sizeof stated < size ? sizeof stated : size);
  if (last) bytes[size - 1] = last;
  qn_status_t status = structs[i].give(f, bytes);
  free(bytes);
  return status;
}

static void test_sizes(void** state) {
  fixture_t* f = *state;
  for (size_t i = 0; i < QN_COUNT_OF(structs); i++) {
    size_t size = structs[i].size;
    const char* name = structs[i].name;
    must(give(f, i, size, size, 0));
    if (structs[i].give != give_copy) must(give(f, i, structs[i].least, structs[i].least, 0));
    must(give(f, i, size + 1, size + 1, 0));
    must(give(f, i, size + 64, size + 64, 0));
    must_fail(give(f, i, size + 64, size + 64, 1), QN_STATUS_INVALID_ARGUMENT, name);
    must_fail(give(f, i, size, 0, 0), QN_STATUS_INVALID_ARGUMENT, name);
    must_fail(give(f, i, size, 7, 0), QN_STATUS_INVALID_ARGUMENT, "struct_size is 7");
    must_fail(give(f, i, size, SIZE_MAX, 0), QN_STATUS_INVALID_ARGUMENT, "struct_size");
  }
  // A member that an older program does not have is the default; what it has, counts.
  qn_lookup_options_t options = {.struct_size = offsetof(qn_lookup_options_t, is_checked),
                                 .tier = QN_TIER_FAST,
                                 .is_checked = true,
                                 .time_limit_ns = -1};
  qn_lookup_info_t info;
  qn_executable_t* executable;
  must(qn_engine_executable(f->engine, f->module, f->target, &options, &info, &executable));
  assert_int_equal(info.tier, QN_TIER_FAST);
  qn_executable_release(executable);
}

static void test_default_stream(void** state) {
  (void)state;
  const qn_device_t cpu = {QN_DEVICE_CPU, 0};
  qn_stream_t *stream, *again, *own;
  must(qn_stream_default(cpu, &stream));
  must(qn_stream_default(cpu, &again));
  assert_ptr_equal(stream, again);
  assert_int_equal(qn_stream_device(stream).type, QN_DEVICE_CPU);
  assert_true(qn_stream_is_idle(stream));
  must(qn_stream_sync(cpu, stream));
  assert_null(qn_stream_native(stream));
  must(qn_stream_create(cpu, &own));
  must(qn_stream_wait(cpu, own, stream));
  must(qn_stream_wait(cpu, stream, own));
  must(qn_set_active_stream(cpu, own));
  must(qn_set_active_stream(cpu, stream));
  assert_null(qn_active_stream(cpu));
  qn_stream_destroy(own);
  qn_stream_destroy(stream);
  assert_true(qn_stream_is_idle(stream));
  qn_device_t none = {QN_DEVICE_CPU, 7};
  must_fail(qn_stream_default(none, &stream), QN_STATUS_NOT_FOUND, "cpu:7");
  assert_null(stream);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_sizes, make, drop),
      cmocka_unit_test(test_default_stream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
