// SPDX-License-Identifier: Apache-2.0
// Shapes of parameters: their text, and what the arguments that exist say of those that do not.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "quern/ir.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"

enum { LARGEST_COUNT = 4, LARGEST_RANK = 3 };

static qn_module_t* parse(const char* text) {
  qn_module_t* module = NULL;
  must(qn_module_parse(text, strlen(text), NULL, &module));
  return module;
}

// The arguments of a call, and what is inferred from them. No tensor has memory.
typedef struct call {
  qn_value_t args[LARGEST_COUNT];
  qn_tensor_t tensors[LARGEST_COUNT];
  int64_t given[LARGEST_COUNT][LARGEST_RANK];
  int64_t given_strides[LARGEST_COUNT][LARGEST_RANK];
  int64_t shapes[LARGEST_COUNT][LARGEST_RANK];
  int64_t strides[LARGEST_COUNT][LARGEST_RANK];
} call_t;

static void give(call_t* call, size_t index, int32_t rank, const int64_t* shape,
                 const int64_t* strides) {
  memcpy(call->given[index], shape, (size_t)rank * sizeof *shape);
  call->tensors[index] = (qn_tensor_t){.ndim = rank, .shape = call->given[index]};
  if (strides) {
    memcpy(call->given_strides[index], strides, (size_t)rank * sizeof *strides);
    call->tensors[index].strides = call->given_strides[index];
  }
  call->args[index] = qn_value_tensor(&call->tensors[index]);
}
#define LIST(...) ((const int64_t[]){__VA_ARGS__})
#define GIVE(call, index, ...) \
  give(call, index, sizeof LIST(__VA_ARGS__) / sizeof(int64_t), LIST(__VA_ARGS__), NULL)

static qn_status_t infer(const char* text, call_t* call) {
  qn_module_t* module = parse(text);
  int64_t *shapes[LARGEST_COUNT], *strides[LARGEST_COUNT];
  memset(call->shapes, 0xff, sizeof call->shapes);
  memset(call->strides, 0xff, sizeof call->strides);
  for (size_t i = 0; i < LARGEST_COUNT; i++) {
    shapes[i] = call->shapes[i];
    strides[i] = call->strides[i];
  }
  size_t count = qn_module_function_param_count(module, 0);
  qn_status_t status = qn_module_infer_shapes(module, 0, call->args, count, shapes, strides);
  qn_module_release(module);
  return status;
}

static void refuse(const char* text, call_t* call, qn_status_code_t code, const char* words) {
  qn_status_t status = infer(text, call);
  assert_int_equal(qn_status_code(status), code);
  if (!strstr(qn_status_message(status), words)) {
    fail_msg("no '%s' in: %s", words, qn_status_message(status));
  }
  for (size_t i = 0; i < LARGEST_COUNT; i++) assert_int_equal(call->shapes[i][0], -1);
  qn_status_free(status);
}

static void expect(const int64_t* got, size_t count, const int64_t* expected) {
  for (size_t d = 0; d < count; d++) assert_int_equal(got[d], expected[d]);
}
#define EXPECT(got, ...) expect(got, sizeof LIST(__VA_ARGS__) / sizeof(int64_t), LIST(__VA_ARGS__))

static void test_symbols(void** state) {
  (void)state;
  qn_module_t* module = parse(
      "func f(x: f32[n, m + 2], s: i32, out y: f32[n - 4], z: f32[m]) {\n"
      "  parallel i in 0..n - 4 {\n    y[i] = x[i, 0];\n  }\n}\n");
  assert_int_equal(qn_module_function_symbol_count(module, 0), 2);
  assert_int_equal(qn_module_function_symbol_count(module, 1), 0);
  assert_string_equal(qn_module_symbol_name(module, 0, 0), "n");
  assert_string_equal(qn_module_symbol_name(module, 0, 1), "m");
  assert_null(qn_module_symbol_name(module, 0, 2));
  int64_t symbols[] = {10, 20}, shape[2] = {0};
  must(qn_module_param_shape(module, 0, 0, symbols, shape));
  assert_int_equal(shape[0], 10);
  assert_int_equal(shape[1], 22);
  must(qn_module_param_shape(module, 0, 2, symbols, shape));
  assert_int_equal(shape[0], 6);
  qn_status_t status = qn_module_param_shape(module, 0, 1, symbols, shape);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  qn_status_free(status);
  symbols[0] = 3;
  status = qn_module_param_shape(module, 0, 2, symbols, shape);
  assert_int_equal(qn_status_code(status), QN_STATUS_VALUE_ERROR);
  assert_non_null(strstr(qn_status_message(status), "extent 0 of 'y' is negative"));
  qn_status_free(status);
  qn_module_release(module);
}

static void expect_text(qn_status_t status, char* text, const char* expected) {
  must(status);
  assert_string_equal(text, expected);
  qn_text_free(text);
}

static void test_text(void** state) {
  (void)state;
  qn_module_t* module =
      parse("func f(k: i32, x: f32[n, 3] strides [n + 1, 2], out y: f32[(n - k) // 2]) {\n}\n");
  char* text = NULL;
  qn_status_t status = qn_module_param_extent_text(module, 0, 1, 0, &text);
  expect_text(status, text, "n");
  status = qn_module_param_extent_text(module, 0, 1, 1, &text);
  expect_text(status, text, "3");
  status = qn_module_param_stride_text(module, 0, 1, 0, &text);
  expect_text(status, text, "n + 1");
  status = qn_module_param_extent_text(module, 0, 2, 0, &text);
  expect_text(status, text, "(n - k) // 2");
  must(qn_module_param_stride_text(module, 0, 2, 0, &text));
  assert_null(text);
  const uint32_t wrong[][2] = {{0, 0}, {1, 2}, {2, 1}, {3, 0}};
  for (size_t i = 0; i < QN_COUNT_OF(wrong); i++) {
    status = qn_module_param_extent_text(module, 0, wrong[i][0], wrong[i][1], &text);
    assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
    assert_null(text);
    qn_status_free(status);
  }
  qn_module_release(module);
}

static const char program[] =
    "func f(out y: f32[n - 4, m * k], x: f32[n, m + 2], z: f32[m], k: i32) {\n}\n";

static void test_outputs(void** state) {
  (void)state;
  call_t call = {0};
  GIVE(&call, 1, 10, 22);
  GIVE(&call, 2, 20);
  call.args[3] = qn_value_int(3);
  must(infer(program, &call));
  EXPECT(call.shapes[0], 6, 60);
  EXPECT(call.strides[0], 60, 1);
  EXPECT(call.shapes[1], 10, 22);
  EXPECT(call.strides[1], 22, 1);
  EXPECT(call.shapes[2], 20);
  // A given output binds, too.
  call = (call_t){0};
  GIVE(&call, 0, 4);
  must(infer("func f(out y: f32[n], x: f32[n + 1]) {\n}\n", &call));
  EXPECT(call.shapes[1], 5);
  // A fixed scalar need not be given.
  call = (call_t){0};
  GIVE(&call, 1, 4);
  must(infer("func f(k: i64 = 3, x: f32[n], out y: f32[n + k]) {\n}\n", &call));
  EXPECT(call.shapes[2], 7);
  // A scalar that no shape needs may have any value of its dtype, and a float may be an integer.
  static const char scalars[] = "func f(u: u64, b: bool, a: f32, out y: f32[4]) {\n}\n";
  call = (call_t){.args = {qn_value_uint(UINT64_MAX), qn_value_bool(true), qn_value_int(1)}};
  must(infer(scalars, &call));
  EXPECT(call.shapes[3], 4);
  call.args[0] = qn_value_int(-1);
  refuse(scalars, &call, QN_STATUS_VALUE_ERROR, "argument 0 'u': expected a value of u64");
  call.args[0] = qn_value_int(1);
  call.args[1] = qn_value_int(2);
  refuse(scalars, &call, QN_STATUS_VALUE_ERROR, "argument 1 'b': expected a value of bool");
  // What is not wanted may be NULL, and so may all strides.
  qn_module_t* module = parse("func f(x: f32[n], out y: f32[n]) {\n}\n");
  call = (call_t){0};
  GIVE(&call, 0, 4);
  int64_t* shapes[] = {NULL, call.shapes[1]};
  must(qn_module_infer_shapes(module, 0, call.args, 2, shapes, NULL));
  EXPECT(call.shapes[1], 4);
  qn_module_release(module);
}

// Symbols from extents that are linear in them. Which ones give them depends on what exists.
static void test_equations(void** state) {
  (void)state;
  static const char text[] =
      "func f(x: f32[2 * th + 2], y: f32[k // (th - 3) + d], out z: f32[th, d], k: i64) {\n}\n";
  static const char lone[] = "func f(x: f32[2 * th + 2], out y: f32[th]) {\n}\n";
  call_t call = {0};
  GIVE(&call, 0, 8);
  must(infer(lone, &call));
  EXPECT(call.shapes[1], 3);
  GIVE(&call, 0, 7);
  refuse(lone, &call, QN_STATUS_VALUE_ERROR,
         "argument 0 'x': extent 0: 7 is 2 * th + 2 for no th; expected 6 or 8");
  GIVE(&call, 0, 8);
  GIVE(&call, 1, 4);
  refuse(lone, &call, QN_STATUS_VALUE_ERROR,
         "argument 0 'x': extent 0, '2 * th + 2', is 10, got 8");
  // d needs th, k, and a divisor other than 0.
  call = (call_t){.args = {[3] = qn_value_int(4)}};
  GIVE(&call, 0, 12);
  GIVE(&call, 1, 9);
  must(infer(text, &call));
  EXPECT(call.shapes[2], 5, 7);
  GIVE(&call, 0, 8);
  refuse(text, &call, QN_STATUS_VALUE_ERROR,
         "argument 1 'y': extent 0: 'k // (th - 3) + d' divides by zero");
  GIVE(&call, 0, 10);
  GIVE(&call, 1, 3);
  refuse(text, &call, QN_STATUS_VALUE_ERROR,
         "argument 1 'y': extent 0: 3 is k // (th - 3) + d for no d of at least 0; expected at "
         "least 4");
  call.args[1] = (qn_value_t){.type = QN_VALUE_NONE};
  refuse(text, &call, QN_STATUS_VALUE_ERROR, "needs 'd', which no given argument gives");
}

static void test_strides(void** state) {
  (void)state;
  static const char rows[] =
      "func f(x: f32[n, m] strides [s, 1], out y: f32[n, m] strides [1, t],\n"
      "       out z: f32[n, m] strides [s, 1], out w: f32[n, m, 2] strides [p + 1, 4, p]) {\n}\n";
  // The strides of x are given, so z has them.
  call_t call = {0};
  give(&call, 0, 2, LIST(3, 5), LIST(8, 1));
  must(infer(rows, &call));
  EXPECT(call.strides[0], 8, 1);
  EXPECT(call.strides[1], 1, 3);
  EXPECT(call.strides[2], 8, 1);
  EXPECT(call.strides[3], 18, 4, 17);
  // The shape of x alone is given.
  call = (call_t){0};
  GIVE(&call, 0, 3, 5);
  must(infer(rows, &call));
  EXPECT(call.strides[0], 5, 1);
  EXPECT(call.strides[2], 5, 1);
  // A tensor with memory and without strides is row-major.
  call.tensors[0].data = &call;
  must(infer(rows, &call));
  EXPECT(call.strides[0], 5, 1);
  give(&call, 0, 2, LIST(3, 5), LIST(5, 2));
  refuse(rows, &call, QN_STATUS_VALUE_ERROR, "argument 0 'x': stride 1: expected 1, got 2");
  // The stride of one row does not count.
  give(&call, 0, 2, LIST(3, 5), LIST(8, 1));
  give(&call, 2, 2, LIST(3, 5), LIST(9, 1));
  refuse(rows, &call, QN_STATUS_VALUE_ERROR, "argument 2 'z': stride 0: expected s = 8");
  give(&call, 0, 2, LIST(1, 5), LIST(8, 1));
  give(&call, 2, 2, LIST(1, 5), LIST(9, 1));
  must(infer(rows, &call));
  // Without elements.
  call = (call_t){0};
  GIVE(&call, 0, 0, 5);
  must(infer(rows, &call));
  EXPECT(call.strides[1], 1, 1);
}

static void test_refusals(void** state) {
  (void)state;
  call_t call = {0};
  GIVE(&call, 2, 20);
  call.args[3] = qn_value_int(3);
  refuse(program, &call, QN_STATUS_VALUE_ERROR,
         "argument 0 'y': extent 0, 'n - 4', needs 'n', which no given argument gives");
  GIVE(&call, 1, 10, 22);
  GIVE(&call, 2, 21);
  refuse(program, &call, QN_STATUS_VALUE_ERROR, "argument 1 'x': extent 1, 'm + 2', is 23, got 22");
  GIVE(&call, 2, 20);
  call.args[3] = (qn_value_t){.type = QN_VALUE_NONE};
  refuse(program, &call, QN_STATUS_VALUE_ERROR, "needs 'k', a scalar that was not given");
  call.args[3] = qn_value_float(3);
  refuse(program, &call, QN_STATUS_TYPE_ERROR, "argument 3 'k': expected an integer (i32)");
  call.args[3] = qn_value_int(INT64_C(1) << 40);
  refuse(program, &call, QN_STATUS_VALUE_ERROR, "argument 3 'k': expected a value of i32");
  call.args[3] = qn_value_int(-3);
  refuse(program, &call, QN_STATUS_VALUE_ERROR, "'m * k', is -60, less than 0");
  call.args[3] = qn_value_int(3);
  GIVE(&call, 1, 10);
  refuse(program, &call, QN_STATUS_TYPE_ERROR, "argument 1 'x': expected rank 2, got 1");
  GIVE(&call, 1, -1, 22);
  refuse(program, &call, QN_STATUS_VALUE_ERROR, "extent 0: expected at least 0, got -1");
  call.args[1] = qn_value_int(3);
  refuse(program, &call, QN_STATUS_TYPE_ERROR, "argument 1 'x': expected a tensor, or nothing");

  call = (call_t){0};
  GIVE(&call, 0, 4);
  GIVE(&call, 1, 5);
  refuse("func f(x: f32[n], y: f32[n], out z: f32[n]) {\n}\n", &call, QN_STATUS_VALUE_ERROR,
         "argument 1 'y': extent 0: expected n = 4 (bound by argument 0 'x'), got 5");
  call = (call_t){0};
  GIVE(&call, 0, INT64_C(1) << 40);
  static const char square[] = "func f(x: f32[n], out y: f32[n * n]) {\n}\n";
  refuse(square, &call, QN_STATUS_VALUE_ERROR, "extent 0, 'n * n', overflows");
  GIVE(&call, 0, INT64_C(1) << 31);
  refuse(square, &call, QN_STATUS_VALUE_ERROR, "argument 1 'y': its size in bytes overflows");
  GIVE(&call, 0, 0);
  refuse("func f(x: f32[n], out y: f32[8 // n]) {\n}\n", &call, QN_STATUS_VALUE_ERROR,
         "extent 0, '8 // n', divides by zero");

  qn_module_t* module = parse(square);
  int64_t* shapes[2] = {NULL};
  qn_status_t status = qn_module_infer_shapes(module, 0, call.args, 1, shapes, NULL);
  assert_int_equal(qn_status_code(status), QN_STATUS_TYPE_ERROR);
  qn_status_free(status);
  status = qn_module_infer_shapes(module, 1, call.args, 2, shapes, NULL);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  qn_status_free(status);
  qn_module_release(module);
}

// ---- values of symbols

static void test_values_of_symbols(void** state) {
  (void)state;
  qn_module_t* module = parse(
      "func f(x: f32[2 * th + 2, m], y: f32[n] strides [s], z: f32[q], w: f32[m - k], c: i64) "
      "{\n}\n");
  int64_t symbols[7];
  call_t call = {0};
  memset(symbols, 0, sizeof symbols);
  must(qn_module_infer_symbols(module, 0, call.args, 5, symbols));
  expect(symbols, 7, LIST(-1, -1, -1, -1, -1, -1, 0));  // th, m, n, s, q, k; no more is written
  GIVE(&call, 0, 10, 7);
  give(&call, 1, 1, LIST(3), LIST(2));
  GIVE(&call, 3, 2);
  must(qn_module_infer_symbols(module, 0, call.args, 5, symbols));
  expect(symbols, 7, LIST(4, 7, 3, 2, -1, 5, 0));
  // What no call accepts gives nothing.
  GIVE(&call, 0, 11, 7);
  qn_status_t status = qn_module_infer_symbols(module, 0, call.args, 5, symbols);
  assert_int_equal(qn_status_code(status), QN_STATUS_VALUE_ERROR);
  assert_non_null(
      strstr(qn_status_message(status), "11 is 2 * th + 2 for no th; expected 10 or 12"));
  qn_status_free(status);
  status = qn_module_infer_symbols(module, 0, call.args, 4, symbols);
  assert_int_equal(qn_status_consume(status), QN_STATUS_TYPE_ERROR);
  status = qn_module_infer_symbols(module, 1, call.args, 5, symbols);
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
  expect(symbols, 7, LIST(4, 7, 3, 2, -1, 5, 0));
  qn_module_release(module);
}

static bool infer_with(qn_allocator_t allocator, void* user) {
  (void)user;
  const char text[] = "func f(x: f32[n, m], out y: f32[n + m] strides [2]) {\n}\n";
  qn_parse_options_t options = {.struct_size = sizeof options, .allocator = allocator};
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text, strlen(text), &options, &module);
  call_t call = {0};
  GIVE(&call, 0, 2, 3);
  int64_t *shapes[] = {NULL, call.shapes[1]}, *strides[] = {NULL, call.strides[1]};
  if (qn_ok(status)) status = qn_module_infer_shapes(module, 0, call.args, 2, shapes, strides);
  bool is_good = qn_ok(status) ? call.shapes[1][0] == 5 && call.strides[1][0] == 2
                               : qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  qn_status_free(status);
  qn_module_release(module);
  return is_good;
}

static void test_without_memory(void** state) {
  (void)state;
  assert_in_range(qn_fault_walk_alloc(infer_with, NULL), 5, 10000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_symbols),           cmocka_unit_test(test_text),
      cmocka_unit_test(test_outputs),           cmocka_unit_test(test_equations),
      cmocka_unit_test(test_strides),           cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_values_of_symbols), cmocka_unit_test(test_without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
