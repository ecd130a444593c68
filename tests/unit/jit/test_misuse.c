// SPDX-License-Identifier: Apache-2.0
// Tests invalid arguments to the engine's public functions: each gives an error with a message,
// never a crash. Also tests two edge cases of a call's checks: products of extents that only an
// empty tensor can have, and empty tensors inside others.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>

#include "jit/codegen/artifact.h"
#include "jit/identity/identity.h"
#include "quern/backend.h"
#include "quern/observe.h"
#include "quern/quern.h"
#include "tests/support/must.h"

static const char text[] =
    "func f(a: f32[n], out y: f32[n]) { for i in 0..n { y[i] = a[i]; } }\n"
    "func wide(a: f32[n], out x: f32[n * 2, m, k]) { for i in 0..n { x[i, 0, 0] = a[i]; } }\n"
    "func last(inout y: f32[n], a: f32[m], k: i32) { for i in 0..n { y[i] = f32(k); } }\n"
    "func nothing() { }\n"
    "func scalars(a: u64, b: f32, c: bf16, d: i64, out u: u64[n], out v: f32[n], out w: bf16[n]) "
    "{\n"
    "  for i in 0..n { u[i] = a + u64(d); v[i] = b; w[i] = c; } }\n";

static const qn_device_t cpu = {QN_DEVICE_CPU, 0};

typedef struct fixture {
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  qn_executable_t* executable;
} fixture_t;

static int set_up(void** state) {
  fixture_t* f = calloc(1, sizeof *f);
  assert_non_null(f);
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = "", .ignores_environment = true};
  must(qn_engine_create(&options, &f->engine));
  must(qn_module_parse(text, sizeof text - 1, NULL, &f->module));
  must(qn_target_parse("interp", &f->target));
  must(qn_engine_executable(f->engine, f->module, f->target, NULL, NULL, &f->executable));
  *state = f;
  return 0;
}
static int tear_down(void** state) {
  fixture_t* f = *state;
  qn_executable_release(f->executable);
  qn_target_release(f->target);
  qn_module_release(f->module);
  qn_engine_destroy(f->engine);
  free(f);
  return 0;
}

static qn_status_t drop(void* self, const void* data, size_t size_bytes) {
  (void)self;
  (void)data;
  (void)size_bytes;
  return QN_OK;
}

static void test_null_objects(void** state) {
  fixture_t* f = *state;
  const qn_status_code_t invalid = QN_STATUS_INVALID_ARGUMENT;
  qn_executable_t* executable = f->executable;
  must_fail(qn_engine_executable(NULL, f->module, f->target, NULL, NULL, &executable), invalid,
            "engine");
  assert_null(executable);
  must_fail(qn_engine_executable(f->engine, NULL, f->target, NULL, NULL, &executable), invalid,
            "module");
  must_fail(qn_engine_executable(f->engine, f->module, NULL, NULL, NULL, &executable), invalid,
            "target");
  qn_function_t* function;
  must_fail(qn_engine_function(f->engine, f->module, f->target, NULL, NULL, NULL, &function),
            invalid, "name");
  assert_null(function);
  must_fail(qn_executable_function(NULL, f->module, "f", &function), invalid, "executable");
  must_fail(qn_executable_function(f->executable, NULL, "f", &function), invalid, "module");
  must_fail(qn_executable_function(f->executable, f->module, NULL, &function), invalid, "name");
  must_fail(qn_function_call(NULL, NULL, 0, NULL), invalid, "function");
  must_fail(qn_function_call_on(NULL, NULL, NULL, 0, NULL), invalid, "function");
  qn_sink_t sink = {NULL, drop};
  must_fail(qn_engine_emit(NULL, f->module, f->target, NULL, "ir", sink), invalid, "engine");
  must_fail(qn_engine_emit(f->engine, f->module, f->target, NULL, NULL, sink), invalid, "form");
  must_fail(qn_engine_emit(f->engine, f->module, f->target, NULL, "ir", (qn_sink_t){NULL, NULL}),
            invalid, "sink");
  assert_false(qn_engine_unload(NULL, f->module, f->target, NULL));
  assert_false(qn_engine_unload(f->engine, NULL, f->target, NULL));
}

static qn_function_t* function_of(fixture_t* f, const char* name) {
  qn_function_t* function;
  must(qn_executable_function(f->executable, f->module, name, &function));
  return function;
}

static void test_no_parameters(void** state) {
  fixture_t* f = *state;
  qn_function_t* nothing = function_of(f, "nothing");
  must(qn_function_call(nothing, NULL, 0, NULL));
  qn_value_t one = qn_value_int(1);
  must_fail(qn_function_call(nothing, &one, 1, NULL), QN_STATUS_TYPE_ERROR, "expected 0 arguments");
  qn_function_release(nothing);
}

static qn_tensor_t tensor_of(float* data, int32_t rank, int64_t* shape) {
  return (qn_tensor_t){data, cpu, rank, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
}

// The product of the extents is 0, that of the last two does not fit in 64 bits.
// Integers of 64 bits: unsigned ones beyond 2^63 - 1, and those that a float does not hold.
static void test_wide_integers(void** state) {
  fixture_t* f = *state;
  qn_function_t* function = NULL;
  must(qn_executable_function(f->executable, f->module, "scalars", &function));
  int64_t shape = 1;
  uint64_t u = 0;
  float v = 0;
  uint16_t w = 0;
  qn_tensor_t tu = {.data = &u, .device = cpu, .ndim = 1, .dtype = qn_dtype_to_dl(QN_DTYPE_U64)};
  qn_tensor_t tv = {.data = &v, .device = cpu, .ndim = 1, .dtype = qn_dtype_to_dl(QN_DTYPE_F32)};
  qn_tensor_t tw = {.data = &w, .device = cpu, .ndim = 1, .dtype = qn_dtype_to_dl(QN_DTYPE_BF16)};
  tu.shape = tv.shape = tw.shape = &shape;
  // By way of f64 both of these would be a tie first, and go down to the even one.
  const int64_t above_f32 = INT64_C(0x4000004000000001), above_bf16 = INT64_C(0x4040000000000001);
  qn_value_t args[] = {qn_value_uint(UINT64_MAX), qn_value_int(above_f32), qn_value_int(above_bf16),
                       qn_value_int(0),           qn_value_tensor(&tu),    qn_value_tensor(&tv),
                       qn_value_tensor(&tw)};
  must(qn_function_call(function, args, 7, NULL));
  assert_true(u == UINT64_MAX);
  assert_true(v == 0x1.000002p62F);
  assert_int_equal(w, 0x5E81);
  args[1] = qn_value_uint((uint64_t)above_f32 * 2);
  args[2] = qn_value_uint((uint64_t)above_bf16 * 2);
  args[0] = qn_value_uint(7);
  args[3] = qn_value_uint(INT64_MAX);
  must(qn_function_call(function, args, 7, NULL));
  assert_true(u == (UINT64_C(1) << 63) + 6);
  assert_true(v == 0x1.000002p63F);
  assert_int_equal(w, 0x5F01);
  args[3] = qn_value_uint(UINT64_C(1) << 63);
  must_fail(qn_function_call(function, args, 7, NULL), QN_STATUS_VALUE_ERROR,
            "expected a value of i64 in [-9223372036854775808, 9223372036854775807], got "
            "9223372036854775808");
  args[3] = qn_value_int(0);
  args[0] = qn_value_int(-1);
  must_fail(qn_function_call(function, args, 7, NULL), QN_STATUS_VALUE_ERROR, "got -1");
  args[0] = qn_value_int(1);
  args[4] = qn_value_uint(1);
  must_fail(qn_function_call(function, args, 7, NULL), QN_STATUS_TYPE_ERROR, "an unsigned int");
  qn_function_release(function);
}

static void test_empty_tensor_of_huge_rows(void** state) {
  fixture_t* f = *state;
  qn_function_t* wide = function_of(f, "wide");
  int64_t none[] = {0}, rows[] = {0, INT64_C(1) << 40, INT64_C(1) << 40};
  qn_tensor_t a = tensor_of(NULL, 1, none), x = tensor_of(NULL, 3, rows);
  qn_value_t args[] = {qn_value_tensor(&a), qn_value_tensor(&x)};
  must(qn_function_call(wide, args, 2, NULL));
  rows[0] = 1;
  rows[1] = 0;
  must_fail(qn_function_call(wide, args, 2, NULL), QN_STATUS_VALUE_ERROR, "extent 0: expected");
  qn_function_release(wide);
}

// An empty tensor overlaps nothing; what is wrong is the argument behind it.
static void test_empty_tensor_inside_another(void** state) {
  fixture_t* f = *state;
  qn_function_t* last = function_of(f, "last");
  float y[4] = {0};
  int64_t four[] = {4}, none[] = {0};
  qn_tensor_t ty = tensor_of(y, 1, four), ta = tensor_of(y + 2, 1, none);
  qn_value_t args[] = {qn_value_tensor(&ty), qn_value_tensor(&ta), qn_value_int(3)};
  must(qn_function_call(last, args, 3, NULL));
  assert_true(y[3] == 3);
  args[2] = qn_value_float(3);
  must_fail(qn_function_call(last, args, 3, NULL), QN_STATUS_TYPE_ERROR, "argument 2 'k'");
  qn_function_release(last);
}

// What a generator outside of the library may hand over.
static void test_broken_artifacts(void** state) {
  (void)state;
  qn_artifact_function_t function = {.name = "f", .site_count = 2};
  qn_artifact_t artifact = {.struct_size = sizeof artifact,
                            .format = "null-1",
                            .isa = "{}",
                            .function_count = 1,
                            .functions = &function};
  const qn_artifact_t empty = {.struct_size = sizeof empty};
  must_fail(qn__artifact_check(&empty), QN_STATUS_DATA_LOSS, "lacks");
  must_fail(qn__artifact_check(&artifact), QN_STATUS_DATA_LOSS, "lacks its 2 sites");
  function.site_count = 0;
  must(qn__artifact_check(&artifact));
  artifact.isa = NULL;
  must_fail(qn__artifact_check(&artifact), QN_STATUS_DATA_LOSS, "isa");
}

// Checks that a copy shares nothing with what it was made of.
static void test_copy_of_artifact(void** state) {
  (void)state;
  char name[] = "f", message[] = "k > 0", format[] = "x-1", isa[] = "{}", code[] = "code";
  char data[] = "own";
  qn_artifact_site_t site = {QN_SITE_ASSERT, UINT32_MAX, 0, 7, message};
  qn_artifact_function_t function = {
      .name = name, .code_offset = 1, .code_size_bytes = 3, .site_count = 1, .sites = &site};
  qn_artifact_t artifact = {.struct_size = sizeof artifact,
                            .format = format,
                            .isa = isa,
                            .payload = code,
                            .payload_size = 4,
                            .metadata = data,
                            .metadata_size = 3,
                            .function_count = 1,
                            .functions = &function};
  qn_artifact_t* copy = NULL;
  must(qn_artifact_copy(&artifact, &copy));
  name[0] = message[0] = format[0] = isa[0] = code[0] = data[0] = '#';
  site.place = 0;
  function.code_offset = 0;
  assert_string_equal(copy->format, "x-1");
  assert_string_equal(copy->isa, "{}");
  assert_int_equal(copy->payload_size, 4);
  assert_memory_equal(copy->payload, "code", 4);
  assert_int_equal(copy->metadata_size, 3);
  assert_memory_equal(copy->metadata, "own", 3);
  assert_int_equal(copy->function_count, 1);
  assert_string_equal(copy->functions[0].name, "f");
  assert_int_equal(copy->functions[0].code_offset, 1);
  assert_int_equal(copy->functions[0].sites[0].place, 7);
  assert_string_equal(copy->functions[0].sites[0].message, "k > 0");
  copy->release(copy);
  function.code_size_bytes = 9;
  must_fail(qn_artifact_copy(&artifact, &copy), QN_STATUS_DATA_LOSS, "outside of its payload");
  assert_null(copy);
}

// Checks that the identity predicted from a generator's file equals the one that the generator
// reports.
static void test_identity_of_others(void** state) {
  (void)state;
  char id[QN__BUILD_ID_HEX_BYTES], predicted[QN_IDENTITY_BYTES], said[QN_IDENTITY_BYTES];
  assert_true(qn__elf_build_id(QN_BINARY_DIR "/lib/libquern.so", id));
  qn__generator_identity("mine", id, NULL, predicted);
  void* library = dlopen(QN_BINARY_DIR "/lib/libquern.so", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  assert_non_null(library);
  must(qn_codegen_identity("mine", dlsym(library, "qn_codegen_identity"), said));
  assert_string_equal(said, predicted);
  (void)dlclose(library);
  int on_stack = 0;
  must_fail(qn_codegen_identity("mine", &on_stack, said), QN_STATUS_NOT_FOUND, "-Wl,--build-id");
  assert_string_equal(said, "");
  must_fail(qn_codegen_identity("", text, said), QN_STATUS_INVALID_ARGUMENT, "31 characters");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_null_objects, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_no_parameters, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_wide_integers, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_empty_tensor_of_huge_rows, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_empty_tensor_inside_another, set_up, tear_down),
      cmocka_unit_test(test_broken_artifacts),
      cmocka_unit_test(test_copy_of_artifact),
      cmocka_unit_test(test_identity_of_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
