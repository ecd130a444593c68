// SPDX-License-Identifier: Apache-2.0
// Tests every check of a packed call (promise 5): an error names the function, the argument, the
// expected and the actual value. The fast and the slow path agree on random calls.
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "jit/call/executable.h"
#include "tests/support/must.h"

static const char program[] =
    "func f(a: f32, k: i32, u: u8, flag: bool, x: f32[n, m], inout y: f32[n] align 64,\n"
    "       z: f32[n + 2, 4], s: f32[n, m] strides [p, 1]) {\n"
    "  for i in 0..n { y[i] = a + x[i, 0] + z[i, 0] + s[i, 0] + f32(k) + f32(u); }\n"
    "}\n";

enum { A, K, U, FLAG, X, Y, Z, S, COUNT };

typedef struct fixture {
  qn_module_t* module;
  qn__plan_t* plan;
  float* memory;
  qn_tensor_t x, y, z, s;
  int64_t shapes[4][2];
  int64_t strides[4][2];
  qn_value_t args[COUNT];
} fixture_t;

static const qn_device_t cpu = {QN_DEVICE_CPU, 0};

static void set_tensor(fixture_t* f, qn_tensor_t* tensor, int index, float* data, int32_t rank,
                       int64_t d0, int64_t d1) {
  f->shapes[index][0] = d0;
  f->shapes[index][1] = d1;
  *tensor = (qn_tensor_t){data, cpu, rank, qn_dtype_to_dl(QN_DTYPE_F32), f->shapes[index], NULL, 0};
}

// A call that is right: n = 3, m = 5, p = 7.
static void reset(fixture_t* f) {
  float* at = f->memory;
  set_tensor(f, &f->x, 0, at, 2, 3, 5);
  set_tensor(f, &f->y, 1, at + 64, 1, 3, 0);
  set_tensor(f, &f->z, 2, at + 128, 2, 5, 4);
  set_tensor(f, &f->s, 3, at + 192, 2, 3, 5);
  f->strides[3][0] = 7;
  f->strides[3][1] = 1;
  f->s.strides = f->strides[3];
  f->args[A] = qn_value_float(1.5);
  f->args[K] = qn_value_int(-7);
  f->args[U] = qn_value_int(200);
  f->args[FLAG] = qn_value_bool(true);
  f->args[X] = qn_value_tensor(&f->x);
  f->args[Y] = qn_value_tensor(&f->y);
  f->args[Z] = qn_value_tensor(&f->z);
  f->args[S] = qn_value_tensor(&f->s);
}

static int setup(void** state) {
  fixture_t* f = calloc(1, sizeof *f);
  assert_non_null(f);
  must(qn_module_parse(program, sizeof program - 1, NULL, &f->module));
  must(qn__plan_create(f->module->functions[0], cpu, false, qn_allocator_default(), &f->plan));
  assert_int_equal(posix_memalign((void**)&f->memory, 64, 4096), 0);
  reset(f);
  *state = f;
  return 0;
}

static int teardown(void** state) {
  fixture_t* f = *state;
  qn__plan_destroy(f->plan);
  qn_module_release(f->module);
  free(f->memory);
  free(f);
  return 0;
}

static uint64_t kernel_words[QN__MAX_WORDS];
static size_t kernel_word_count;

static int32_t kernel(const qn_cpu_env_t* env, const uint64_t* words) {
  (void)env;
  memcpy(kernel_words, words, kernel_word_count * sizeof *words);
  return 0;
}

// Calls a function with this plan, whose kernel keeps its words in `kernel_words`. False when the
// call is refused.
static bool call(qn__plan_t* plan, const qn_value_t* args, size_t count) {
  qn_function_t function = {.device = cpu, .ir = plan->function};
  qn__variant_t variant = {.function = &function, .plan = plan, .entry = kernel};
  variant.needs_more = plan->deferred_count != 0;
  atomic_init(&function.variant, &variant);
  kernel_word_count = plan->arg_count + plan->symbol_count;
  qn_status_t status = qn_function_call(&function, args, count, NULL);
  bool is_accepted = qn_ok(status);
  qn_status_free(status);
  return is_accepted;
}

static bool bind(fixture_t* f, size_t count) {
  return call(f->plan, f->args, count);
}

// The call is refused by both halves, with this code and these words in the message.
static void expect(fixture_t* f, qn_status_code_t code, const char* const* parts) {
  assert_false(bind(f, COUNT));
  qn_status_t status = qn__plan_explain(f->plan, f->args, COUNT);
  assert_false(qn_ok(status));
  const char* message = qn_status_message(status);
  if (qn_status_code(status) != code) fail_msg("code %d: %s", qn_status_code(status), message);
  if (!strstr(message, "f(a: f32, k: i32")) fail_msg("no signature in: %s", message);
  for (; *parts; parts++) {
    if (!strstr(message, *parts)) fail_msg("no '%s' in: %s", *parts, message);
  }
  qn_status_free(status);
  reset(f);
}
#define EXPECT(f, code, ...) expect(f, QN_STATUS_##code, (const char* const[]){__VA_ARGS__, NULL})

static void test_right_call(void** state) {
  fixture_t* f = *state;
  assert_true(call(f->plan, f->args, COUNT));
  must(qn__plan_explain(f->plan, f->args, COUNT));
  float a = 1.5f;
  uint32_t bits;
  memcpy(&bits, &a, 4);
  assert_int_equal(kernel_words[A], bits);
  assert_int_equal(kernel_words[K], 0xfffffff9u);
  assert_int_equal(kernel_words[U], 200);
  assert_int_equal(kernel_words[FLAG], 1);
  assert_int_equal(kernel_words[X], (uintptr_t)f->x.data);
  // Symbols in the order of first appearance: n, m, p.
  assert_int_equal(kernel_words[COUNT], 3);
  assert_int_equal(kernel_words[COUNT + 1], 5);
  assert_int_equal(kernel_words[COUNT + 2], 7);
}

static void test_count(void** state) {
  fixture_t* f = *state;
  assert_false(bind(f, COUNT - 1));
  qn_status_t status = qn__plan_explain(f->plan, f->args, COUNT - 1);
  assert_int_equal(qn_status_code(status), QN_STATUS_TYPE_ERROR);
  assert_non_null(strstr(qn_status_message(status), "expected 8 arguments, got 7"));
  qn_status_free(status);
  assert_false(call(f->plan, NULL, COUNT));
  status = qn__plan_explain(f->plan, NULL, COUNT);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  qn_status_free(status);
}

static void test_types(void** state) {
  fixture_t* f = *state;
  f->args[A] = qn_value_tensor(&f->x);
  EXPECT(f, TYPE_ERROR, "argument 0 'a'", "expected a float (f32)", "got a tensor");
  f->args[K] = qn_value_float(1);
  EXPECT(f, TYPE_ERROR, "argument 1 'k'", "expected an integer (i32)", "got a float");
  f->args[FLAG] = qn_value_float(1);
  EXPECT(f, TYPE_ERROR, "argument 3 'flag'", "bool", "float");
  f->args[X] = qn_value_int(1);
  EXPECT(f, TYPE_ERROR, "argument 4 'x'", "expected a tensor of f32", "got an int");
  f->args[X].type = 99;
  EXPECT(f, TYPE_ERROR, "argument 4 'x'", "unknown type");
  f->args[X] = qn_value_tensor(NULL);
  EXPECT(f, TYPE_ERROR, "argument 4 'x'", "null pointer");
}

static void test_integer_range(void** state) {
  fixture_t* f = *state;
  f->args[K] = qn_value_int((int64_t)INT32_MAX + 1);
  EXPECT(f, VALUE_ERROR, "argument 1 'k'", "[-2147483648, 2147483647]", "got 2147483648");
  f->args[U] = qn_value_int(-1);
  EXPECT(f, VALUE_ERROR, "argument 2 'u'", "[0, 255]", "got -1");
  f->args[U] = qn_value_int(256);
  EXPECT(f, VALUE_ERROR, "argument 2 'u'", "got 256");
  f->args[FLAG] = qn_value_int(2);
  EXPECT(f, VALUE_ERROR, "argument 3 'flag'", "[0, 1]", "got 2");
  f->args[A] = qn_value_float(1e300);
  EXPECT(f, VALUE_ERROR, "argument 0 'a'", "beyond the range of f32");
  f->args[A] = qn_value_float((double)INFINITY);
  assert_true(bind(f, COUNT));
}

static void test_dtype_rank_device(void** state) {
  fixture_t* f = *state;
  f->x.dtype = qn_dtype_to_dl(QN_DTYPE_I64);
  EXPECT(f, TYPE_ERROR, "argument 4 'x'", "expected dtype f32", "got i64");
  f->x.dtype.lanes = 4;
  EXPECT(f, TYPE_ERROR, "argument 4 'x'", "4 lanes");
  f->x.ndim = 1;
  EXPECT(f, TYPE_ERROR, "argument 4 'x'", "expected rank 2, got 1");
  f->y.ndim = 2;
  EXPECT(f, TYPE_ERROR, "argument 5 'y'", "expected rank 1, got 2");
  f->x.device.type = QN_DEVICE_CUDA;
  EXPECT(f, VALUE_ERROR, "argument 4 'x'", "expected a tensor on device cpu:0", "got cuda:0");
  f->x.device.id = 1;
  EXPECT(f, VALUE_ERROR, "argument 4 'x'", "cpu:0", "got cpu:1");
}

// Tensors as other libraries hand them over: pinned memory of any GPU is the CPU's.
static void test_pinned_memory(void** state) {
  fixture_t* f = *state;
  f->x.device = (qn_device_t){QN_DEVICE_CUDA_HOST, 0};
  f->y.device = (qn_device_t){QN_DEVICE_CUDA_HOST, 1};
  f->s.device = (qn_device_t){QN_DEVICE_CUDA_HOST, 0};
  assert_true(bind(f, COUNT));
  must(qn__plan_explain(f->plan, f->args, COUNT));
  assert_int_equal(kernel_words[X], (uintptr_t)f->x.data);
  // Its other properties are checked.
  f->x.ndim = 1;
  EXPECT(f, TYPE_ERROR, "argument 4 'x'", "expected rank 2, got 1");
  f->y.device = (qn_device_t){QN_DEVICE_CUDA_HOST, 0};
  f->y.data = f->x.data;
  EXPECT(f, VALUE_ERROR, "argument 5 'y'", "overlaps that of argument 4 'x'");
  // A GPU does not take it.
  qn__plan_t* plan;
  must(qn__plan_create(f->module->functions[0], (qn_device_t){QN_DEVICE_CUDA, 0}, false,
                       qn_allocator_default(), &plan));
  f->x.device = (qn_device_t){QN_DEVICE_CUDA_HOST, 0};
  assert_false(call(plan, f->args, COUNT));
  qn_status_t status = qn__plan_explain(plan, f->args, COUNT);
  assert_non_null(
      strstr(qn_status_message(status), "expected a tensor on device cuda:0, got cuda_host:0"));
  qn_status_free(status);
  qn__plan_destroy(plan);
  reset(f);
}

static void test_shapes(void** state) {
  fixture_t* f = *state;
  f->shapes[1][0] = 4;
  EXPECT(f, VALUE_ERROR, "argument 5 'y'",
         "extent 0: expected n = 3 (bound by argument 4 'x'), got 4");
  f->shapes[2][1] = 5;
  EXPECT(f, VALUE_ERROR, "argument 6 'z'", "extent 1: expected 4, got 5");
  f->shapes[2][0] = 6;
  EXPECT(f, VALUE_ERROR, "argument 6 'z'", "extent 0: expected n + 2 = 5, got 6");
  f->shapes[0][1] = -1;
  EXPECT(f, VALUE_ERROR, "argument 4 'x'", "extent 1: expected at least 0, got -1");
  f->x.shape = NULL;
  EXPECT(f, VALUE_ERROR, "argument 4 'x'", "shape is null");
  f->shapes[0][0] = f->shapes[0][1] = INT64_MAX / 2;
  EXPECT(f, VALUE_ERROR, "argument 4 'x'", "product of its extents overflows");
}

static void test_strides(void** state) {
  fixture_t* f = *state;
  f->strides[0][0] = 6;
  f->strides[0][1] = 1;
  f->x.strides = f->strides[0];
  EXPECT(f, VALUE_ERROR, "argument 4 'x'", "stride 0: expected 5 elements (row-major), got 6");
  f->x.strides = f->strides[0];
  f->strides[0][0] = 5;
  assert_true(bind(f, COUNT));
  f->strides[3][1] = 2;
  EXPECT(f, VALUE_ERROR, "argument 7 's'", "stride 1: expected 1, got 2");
  f->strides[3][0] = -7;
  EXPECT(f, VALUE_ERROR, "argument 7 's'", "stride 0: expected at least 0, got -7");
  f->strides[3][0] = INT64_MAX;
  EXPECT(f, VALUE_ERROR, "argument 7 's'", "overflows");
  // Without strides a tensor is row-major: p is 5.
  f->s.strides = NULL;
  assert_true(call(f->plan, f->args, COUNT));
  assert_int_equal(kernel_words[COUNT + 2], 5);
}

// A written tensor whose elements are one and the same: iterations would store to one element.
// Where a tensor has one element along a dimension, or none at all, libraries give any stride.
static void test_strides_that_do_not_count(void** state) {
  (void)state;
  const char text[] =
      "func g(x: f32[n, m] strides [p, 1], out y: f32[n, m] strides [p, 1],\n"
      "       z: f32[n, m] strides [2 * p, 1]) {}\n";
  qn_module_t* module = must_parse(text);
  qn__plan_t* plan;
  must(qn__plan_create(module->functions[0], cpu, false, qn_allocator_default(), &plan));
  float memory[3][16];
  int64_t shapes[3][2], strides[3][2];
  qn_tensor_t tensors[3];
  qn_value_t args[3];
  const struct {
    int64_t n, m;
    int64_t strides[3][2];
    const char* message;  // NULL: accepted
  } cases[] = {
      {2, 3, {{4, 1}, {4, 1}, {8, 1}}, NULL},
      {1, 3, {{4, 1}, {7, 1}, {9, 1}}, NULL},
      {2, 1, {{4, 5}, {4, 0}, {8, 2}}, NULL},
      {0, 3, {{4, 2}, {5, 2}, {9, 3}}, NULL},
      {2, 3, {{4, 1}, {5, 1}, {8, 1}}, "argument 1 'y': stride 0: expected p = 4"},
      {2, 3, {{4, 1}, {4, 1}, {9, 1}}, "argument 2 'z': stride 0: expected 2 * p = 8, got 9"},
      {2, 3, {{4, 2}, {4, 1}, {8, 1}}, "argument 0 'x': stride 1: expected 1, got 2"},
      {2, 1, {{4, -1}, {4, 1}, {8, 1}}, "argument 0 'x': stride 1: expected at least 0, got -1"},
  };
  for (size_t c = 0; c < QN_COUNT_OF(cases); c++) {
    memcpy(strides, cases[c].strides, sizeof strides);
    for (size_t i = 0; i < 3; i++) {
      shapes[i][0] = cases[c].n;
      shapes[i][1] = cases[c].m;
      tensors[i] =
          (qn_tensor_t){memory[i], cpu, 2, qn_dtype_to_dl(QN_DTYPE_F32), shapes[i], strides[i], 0};
      args[i] = qn_value_tensor(&tensors[i]);
    }
    assert_int_equal(call(plan, args, 3), !cases[c].message);
    qn_status_t status = qn__plan_explain(plan, args, 3);
    assert_int_equal(qn_ok(status), !cases[c].message);
    if (cases[c].message) assert_non_null(strstr(qn_status_message(status), cases[c].message));
    qn_status_free(status);
  }
  qn__plan_destroy(plan);
  qn_module_release(module);
}

static void test_written_stride_of_zero(void** state) {
  (void)state;
  static const char text[] =
      "func g(x: f32[n] strides [p], out y: f32[n] strides [q]) {\n"
      "  for i in 0..n { y[i] = x[i]; }\n"
      "}\n";
  qn_module_t* module;
  qn__plan_t* plan;
  must(qn_module_parse(text, sizeof text - 1, NULL, &module));
  must(qn__plan_create(module->functions[0], cpu, false, qn_allocator_default(), &plan));
  float x[4], y[4];
  int64_t shape[] = {4}, zero[] = {0}, one[] = {1};
  qn_tensor_t tx = {x, cpu, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, zero, 0};
  qn_tensor_t ty = {y, cpu, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, one, 0};
  qn_value_t args[] = {qn_value_tensor(&tx), qn_value_tensor(&ty)};
  assert_true(call(plan, args, 2));
  ty.strides = zero;
  assert_false(call(plan, args, 2));
  qn_status_t status = qn__plan_explain(plan, args, 2);
  assert_int_equal(qn_status_code(status), QN_STATUS_VALUE_ERROR);
  assert_non_null(
      strstr(qn_status_message(status), "argument 1 'y': stride 0: expected at least 1"));
  qn_status_free(status);
  shape[0] = 1;
  assert_true(call(plan, args, 2));
  qn__plan_destroy(plan);
  qn_module_release(module);
}

// A shape's conditional evaluates the arm that it takes, and shapes may nest as deeply as the text.
static void test_expressions(void** state) {
  (void)state;
  char text[512] = "func e(x: f32[n], y: f32[n > 0 ? 12 // n : 0], z: f32[";
  for (int i = 0; i < 50; i++) strcat(text, "1 + (");
  strcat(text, "n");
  for (int i = 0; i < 50; i++) strcat(text, ")");
  strcat(text, "], out w: f32[2]) {\n  w[0] = 0.0;\n}\n");
  qn_module_t* module;
  qn__plan_t* plan;
  must(qn_module_parse(text, strlen(text), NULL, &module));
  must(qn__plan_create(module->functions[0], cpu, false, qn_allocator_default(), &plan));
  float memory[4][64];
  int64_t shapes[4] = {3, 4, 53, 2};
  qn_tensor_t tensors[4];
  qn_value_t args[4];
  for (size_t i = 0; i < 4; i++) {
    tensors[i] =
        (qn_tensor_t){memory[i], cpu, 1, qn_dtype_to_dl(QN_DTYPE_F32), &shapes[i], NULL, 0};
    args[i] = qn_value_tensor(&tensors[i]);
  }
  assert_true(call(plan, args, 4));
  shapes[2] = 52;
  assert_false(call(plan, args, 4));
  shapes[0] = shapes[1] = 0;
  shapes[2] = 50;
  assert_true(call(plan, args, 4));
  shapes[1] = 1;
  assert_false(call(plan, args, 4));
  qn__plan_destroy(plan);
  qn_module_release(module);
}

// Tensors of one dimension, whose extent the first one binds: the quick check of the others.
static void test_vectors(void** state) {
  (void)state;
  static const char text[] =
      "func h(x: f32[n], y: f64[n], d: f64, z: f32[n], out w: f32[1]) {\n"
      "  for i in 0..1 { w[i] = x[i] + f32(y[i] + d) + z[i]; }\n"
      "}\n";
  qn_module_t* module;
  qn__plan_t* plan;
  must(qn_module_parse(text, sizeof text - 1, NULL, &module));
  must(qn__plan_create(module->functions[0], cpu, false, qn_allocator_default(), &plan));
  float x[8], z[8], w[1];
  double y[8];
  int64_t n = 8, m = 8, one = 1;
  const qn_dl_dtype_t f32 = qn_dtype_to_dl(QN_DTYPE_F32), f64 = qn_dtype_to_dl(QN_DTYPE_F64);
  qn_tensor_t tx = {x, cpu, 1, f32, &n, NULL, 0}, ty = {y, cpu, 1, f64, &n, NULL, 0};
  qn_tensor_t tz = {z, cpu, 1, f32, &m, NULL, 0}, tw = {w, cpu, 1, f32, &one, NULL, 0};
  enum { ARGS = 5 };
  qn_value_t args[ARGS] = {qn_value_tensor(&tx), qn_value_tensor(&ty), qn_value_float(0.1),
                           qn_value_tensor(&tz), qn_value_tensor(&tw)};
  assert_true(call(plan, args, ARGS));
  assert_int_equal(kernel_words[0], (uintptr_t)x);
  assert_int_equal(kernel_words[1], (uintptr_t)y);
  assert_memory_equal(&kernel_words[2], &args[2].float_value, sizeof kernel_words[2]);
  assert_int_equal(kernel_words[ARGS], 8);
  static const int64_t other[] = {-1, 0, 7, 9, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < QN_COUNT_OF(other); i++) {
    m = other[i];
    assert_false(call(plan, args, ARGS));
  }
  // So many elements fit in bytes as f32, and not as f64.
  n = m = INT64_MAX / 5;
  assert_false(call(plan, args, ARGS));
  qn_status_t status = qn__plan_explain(plan, args, ARGS);
  assert_non_null(strstr(qn_status_message(status), "argument 1 'y'"));
  qn_status_free(status);
  static const int64_t wrong[] = {-1, INT64_MIN, INT64_MAX};
  for (size_t i = 0; i < QN_COUNT_OF(wrong); i++) {
    n = m = wrong[i];
    assert_false(call(plan, args, ARGS));
  }
  n = m = 0;
  assert_true(call(plan, args, ARGS));
  tz.shape = NULL;
  assert_false(call(plan, args, ARGS));
  tz.shape = &m;
  n = m = 8;
  args[2] = qn_value_int(3);
  assert_true(call(plan, args, ARGS));
  const double three = 3;
  assert_memory_equal(&kernel_words[2], &three, sizeof three);
  tw.data = &z[7];
  assert_false(call(plan, args, ARGS));
  qn__plan_destroy(plan);
  qn_module_release(module);
}

static void test_memory(void** state) {
  fixture_t* f = *state;
  f->y.data = f->memory + 65;
  EXPECT(f, VALUE_ERROR, "argument 5 'y'", "aligned to 64 bytes");
  f->y.byte_offset = 4;
  EXPECT(f, VALUE_ERROR, "argument 5 'y'", "aligned to 64 bytes", "byte_offset 4");
  f->x.byte_offset = 2;
  EXPECT(f, VALUE_ERROR, "argument 4 'x'", "aligned to 4 bytes");
  f->x.data = NULL;
  EXPECT(f, VALUE_ERROR, "argument 4 'x'", "data is null", "60 bytes");
  f->x.byte_offset = UINT64_MAX - 7;
  EXPECT(f, VALUE_ERROR, "argument 4 'x'", "beyond the address space");
  // Empty tensors need no data.
  f->shapes[0][0] = f->shapes[1][0] = f->shapes[3][0] = 0;
  f->shapes[2][0] = 2;
  f->x.data = f->y.data = f->s.data = NULL;
  assert_true(bind(f, COUNT));
}

static void test_aliasing(void** state) {
  fixture_t* f = *state;
  f->y.data = f->x.data;
  EXPECT(f, VALUE_ERROR, "argument 5 'y'", "overlaps that of argument 4 'x'", "inout");
  f->z.data = f->memory + 66;
  EXPECT(f, VALUE_ERROR, "argument 6 'z'", "overlaps that of argument 5 'y'");
  // Two tensors that are only read may share memory.
  f->z.data = f->x.data;
  assert_true(bind(f, COUNT));
  reset(f);
  // Touching is not overlapping.
  f->x.data = (char*)f->y.data - 60;
  assert_true(bind(f, COUNT));
}

static void test_32_bit_indices(void** state) {
  fixture_t* f = *state;
  qn__plan_t* narrow;
  must(qn__plan_create(f->module->functions[0], cpu, true, qn_allocator_default(), &narrow));
  f->shapes[0][1] = f->shapes[3][1] = INT32_MAX;
  assert_false(call(narrow, f->args, COUNT));
  qn_status_t status = qn__plan_explain(narrow, f->args, COUNT);
  assert_int_equal(qn_status_code(status), QN_STATUS_VALUE_ERROR);
  assert_non_null(strstr(qn_status_message(status), "32-bit indices"));
  qn_status_free(status);
  qn__plan_destroy(narrow);
}

// The two halves must give the same verdict on any call.
static void test_halves_agree(void** state) {
  fixture_t* f = *state;
  uint64_t seed = 1;
  size_t refused = 0;
  for (int round = 0; round < 200000; round++) {
    reset(f);
    int changes = 1 + (int)(seed >> 60) % 2;
    for (int c = 0; c < changes; c++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      qn_tensor_t* tensors[] = {&f->x, &f->y, &f->z, &f->s};
      int t = (int)(seed >> 33) % 4;
      int64_t small = (int64_t)((seed >> 40) % 9) - 2;
      switch ((seed >> 50) % 11) {
        case 0:
          f->shapes[t][0] = small;
          break;
        case 1:
          f->shapes[t][1] = small;
          break;
        case 2:
          f->strides[t][0] = small;
          f->strides[t][1] = 1;
          tensors[t]->strides = f->strides[t];
          break;
        case 3:
          tensors[t]->byte_offset = (uint64_t)(small < 0 ? 64 : small * 4);
          break;
        case 4:
          tensors[t]->data = f->memory + small * 16 + 32;
          break;
        case 5:
          tensors[t]->ndim = (int32_t)small;
          break;
        case 6:
          tensors[t]->dtype.bits = (uint8_t)(small < 3 ? 32 : 64);
          break;
        case 7:
          f->args[(seed >> 44) % COUNT].type = (int32_t)small;
          break;
        case 8:
          f->args[K] = qn_value_int(INT64_MAX >> ((seed >> 44) % 48));
          break;
        case 9:
          tensors[t]->data = small < 0 ? NULL : tensors[t]->data;
          break;
        case 10:
          f->strides[3][0] = INT64_MAX >> ((seed >> 44) % 62);
          break;
      }
    }
    // A value whose tag says tensor must point at one.
    for (int i = 0; i < FLAG + 1; i++) {
      if (f->args[i].type == QN_VALUE_TENSOR) f->args[i].tensor = NULL;
    }
    bool is_bound = bind(f, COUNT);
    qn_status_t status = qn__plan_explain(f->plan, f->args, COUNT);
    if (is_bound != qn_ok(status)) {
      fail_msg("round %d: bind says %d, explain says '%s'", round, is_bound,
               qn_status_message(status));
    }
    refused += !is_bound;
    qn_status_free(status);
  }
  // The test is about both verdicts.
  assert_in_range(refused, 50000, 199000);
}

static void test_range_of_u64(void** state) {
  (void)state;
  qn_module_t* module = must_parse("func g(u: u64) {}\n");
  qn__plan_t* plan;
  must(qn__plan_create(module->functions[0], cpu, false, qn_allocator_default(), &plan));
  qn_value_t value = qn_value_uint(UINT64_MAX);
  assert_true(call(plan, &value, 1));
  value = qn_value_int(-1);
  assert_false(call(plan, &value, 1));
  qn_status_t status = qn__plan_explain(plan, &value, 1);
  assert_non_null(strstr(qn_status_message(status), "u64 in [0, 18446744073709551615], got -1"));
  qn_status_free(status);
  qn__plan_destroy(plan);
  qn_module_release(module);
}

// A fixed scalar takes its value in any form, and no other one.
static void test_fixed_scalars(void** state) {
  (void)state;
  const char text[] = "func g(k: i32 = -7, u: u8 = 200, w: u64 = 9223372036854775807, n: i64) {}\n";
  qn_module_t* module = must_parse(text);
  qn__plan_t* plan;
  must(qn__plan_create(module->functions[0], cpu, false, qn_allocator_default(), &plan));
  const qn_value_t right[] = {qn_value_int(-7), qn_value_int(200), qn_value_int(INT64_MAX),
                              qn_value_int(3)};
  assert_true(call(plan, right, 4));
  assert_true(kernel_words[0] == 0xfffffff9u && kernel_words[1] == 200);
  const struct {
    uint32_t index;
    qn_value_t value;
    const char* message;  // NULL: accepted
  } cases[] = {
      {1, qn_value_uint(200), NULL},
      {2, qn_value_uint(INT64_MAX), NULL},
      {0, qn_value_int(7), "argument 0 'k': expected -7, got 7"},
      {0, qn_value_int(INT64_MIN), "argument 0 'k': expected -7, got -9223372036854775808"},
      {0, qn_value_uint(0xfffffff9u), "argument 0 'k': expected -7, got 4294967289"},
      {0, qn_value_uint(UINT64_MAX - 6), "argument 0 'k': expected -7, got 18446744073709551609"},
      {0, qn_value_float(-7), "argument 0 'k': expected an integer (i32), got a float"},
      {1, qn_value_bool(true), "argument 1 'u': expected 200, got 1"},
      {1, qn_value_int(456), "argument 1 'u': expected 200, got 456"},
      {2, qn_value_uint(UINT64_MAX), "argument 2 'w': expected 9223372036854775807, got 184"},
      {2, qn_value_int(0), "argument 2 'w': expected 9223372036854775807, got 0"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn_value_t args[4];
    memcpy(args, right, sizeof args);
    args[cases[i].index] = cases[i].value;
    assert_int_equal(call(plan, args, 4), cases[i].message == NULL);
    qn_status_t status = qn__plan_explain(plan, args, 4);
    if (cases[i].message) {
      qn_status_code_t code = i == 6 ? QN_STATUS_TYPE_ERROR : QN_STATUS_VALUE_ERROR;
      must_fail(status, code, cases[i].message);
    } else {
      must(status);
    }
  }
  qn__plan_destroy(plan);
  qn_module_release(module);
}

// Symbols that stand alone in no shape: th and tw from x, then d from y.
static void test_equations(void** state) {
  (void)state;
  static const char text[] =
      "func g(x: f32[2 * th + 2, 4 * tw - k // j], y: f32[5 - d, d + 3 * th], j: i32,\n"
      "       z: f32[9223372036854775807 * e], w: f32[k]) {}\n";
  qn_module_t* module = must_parse(text);
  qn__plan_t* plan;
  must(qn__plan_create(module->functions[0], cpu, false, qn_allocator_default(), &plan));
  assert_int_equal(plan->equation_count, 4);
  float memory[64];
  const struct {
    int64_t x[2], y[2], j, z, k;
    const char* message;  // NULL: accepted
  } cases[] = {
      {{8, 11}, {4, 10}, 2, 0, 3, NULL},
      {{2, 0}, {3, 2}, 1, 0, 0, NULL},
      {{7, 11},
       {4, 10},
       2,
       0,
       3,
       "argument 0 'x': extent 0: 7 is 2 * th + 2 for no th; expected 6 or 8"},
      {{1, 11},
       {4, 10},
       2,
       0,
       3,
       "argument 0 'x': extent 0: 1 is 2 * th + 2 for no th of at least 0; expected at least 2"},
      {{8, 12},
       {4, 10},
       2,
       0,
       3,
       "argument 0 'x': extent 1: 12 is 4 * tw - k // j for no tw; expected 11 or 15"},
      {{8, 11}, {4, 10}, 0, 0, 3, "argument 0 'x': extent 1: '4 * tw - k // j' divides by zero"},
      {{8, 11},
       {6, 10},
       2,
       0,
       3,
       "argument 1 'y': extent 0: 6 is 5 - d for no d of at least 0; expected at most 5"},
      {{8, 11}, {4, 11}, 2, 0, 3, "argument 1 'y': extent 1: expected d + 3 * th = 10, got 11"},
      {{8, 11},
       {4, 10},
       2,
       1,
       3,
       "argument 3 'z': extent 0: 1 is 9223372036854775807 * e for no e; expected 0 or "
       "9223372036854775807"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    int64_t y[2], x[2], z[1] = {cases[i].z}, w[1] = {cases[i].k};
    memcpy(y, cases[i].y, sizeof y);
    memcpy(x, cases[i].x, sizeof x);
    const qn_dl_dtype_t f32 = qn_dtype_to_dl(QN_DTYPE_F32);
    qn_tensor_t tensors[] = {{memory, cpu, 2, f32, x, NULL, 0},
                             {memory, cpu, 2, f32, y, NULL, 0},
                             {memory, cpu, 1, f32, z, NULL, 0},
                             {memory, cpu, 1, f32, w, NULL, 0}};
    const qn_value_t args[] = {qn_value_tensor(&tensors[0]), qn_value_tensor(&tensors[1]),
                               qn_value_int(cases[i].j), qn_value_tensor(&tensors[2]),
                               qn_value_tensor(&tensors[3])};
    assert_int_equal(call(plan, args, 5), cases[i].message == NULL);
    qn_status_t status = qn__plan_explain(plan, args, 5);
    if (cases[i].message) {
      must_fail(status, QN_STATUS_VALUE_ERROR, cases[i].message);
      continue;
    }
    must(status);
    // The symbols in their order: th, tw, k, d, e.
    assert_int_equal(kernel_words[5], (x[0] - 2) / 2);
    assert_int_equal(kernel_words[6], (x[1] + cases[i].k / cases[i].j) / 4);
    assert_int_equal(kernel_words[7], cases[i].k);
    assert_int_equal(kernel_words[8], 5 - y[0]);
    assert_int_equal(kernel_words[9], 0);
  }
  qn__plan_destroy(plan);
  qn_module_release(module);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_right_call, setup, teardown),
      cmocka_unit_test_setup_teardown(test_count, setup, teardown),
      cmocka_unit_test_setup_teardown(test_types, setup, teardown),
      cmocka_unit_test_setup_teardown(test_integer_range, setup, teardown),
      cmocka_unit_test_setup_teardown(test_dtype_rank_device, setup, teardown),
      cmocka_unit_test_setup_teardown(test_pinned_memory, setup, teardown),
      cmocka_unit_test_setup_teardown(test_shapes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_strides, setup, teardown),
      cmocka_unit_test(test_strides_that_do_not_count),
      cmocka_unit_test(test_written_stride_of_zero),
      cmocka_unit_test(test_expressions),
      cmocka_unit_test(test_range_of_u64),
      cmocka_unit_test(test_fixed_scalars),
      cmocka_unit_test(test_vectors),
      cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
      cmocka_unit_test_setup_teardown(test_aliasing, setup, teardown),
      cmocka_unit_test_setup_teardown(test_32_bit_indices, setup, teardown),
      cmocka_unit_test_setup_teardown(test_halves_agree, setup, teardown),
      cmocka_unit_test(test_equations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
