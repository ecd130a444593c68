// SPDX-License-Identifier: Apache-2.0
// Counts of operations and bytes against numbers that follow from the programs by hand.
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

static qn_module_t* parse(const char* text) {
  qn_module_t* module = NULL;
  must(qn_module_parse(text, strlen(text), NULL, &module));
  return module;
}

// An argument: a tensor of i64 or other contents, or a number.
typedef struct arg {
  int32_t rank;
  int64_t shape[4];
  void* data;
  int64_t number;
  bool is_number;
  int32_t device_type;  // 0: the CPU
} arg_t;

#define ARRAY(...)                                                                       \
  {                                                                                      \
    .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .shape = { __VA_ARGS__ } \
  }

static qn_status_t count_status(const char* text, const arg_t* given, size_t count,
                                qn_work_t* out) {
  qn_tensor_t tensors[4];
  qn_value_t args[4];
  int64_t shapes[4][4];
  for (size_t i = 0; i < count; i++) {
    memcpy(shapes[i], given[i].shape, sizeof shapes[i]);
    tensors[i] =
        (qn_tensor_t){.data = given[i].data,
                      .device = {given[i].device_type ? given[i].device_type : QN_DEVICE_CPU, 0},
                      .ndim = given[i].rank,
                      .shape = shapes[i]};
    args[i] = given[i].is_number ? qn_value_int(given[i].number) : qn_value_tensor(&tensors[i]);
  }
  qn_module_t* module = parse(text);
  *out = (qn_work_t){.struct_size = sizeof *out};
  qn_status_t status = qn_module_work(module, 0, args, count, 32, out);
  qn_module_release(module);
  return status;
}

static qn_work_t count(const char* text, const arg_t* given, size_t arg_count) {
  qn_work_t work;
  must(count_status(text, given, arg_count, &work));
  return work;
}

static void expect_number(double value, double expected) {
  if (value != expected) fail_msg("counted %.17g, expected %.17g", value, expected);
}

static const char product[] =
    "func f(a: f32[n, k], b: f32[k, m], out c: f32[n, m]) {\n"
    "  parallel i in 0..n { parallel j in 0..m {\n"
    "    c[i, j] = sum p in 0..k { a[i, p] * b[p, j] };\n  } }\n}\n";

static void test_product(void** state) {
  (void)state;
  arg_t args[] = {ARRAY(512, 300), ARRAY(300, 700), ARRAY(512, 700)};
  qn_work_t work = count(product, args, 3);
  expect_number(work.flops, 2.0 * 512 * 300 * 700);
  expect_number(work.integer_ops, 0);
  expect_number(work.calls, 0);
  expect_number(work.loaded_bytes, 8.0 * 512 * 300 * 700);
  expect_number(work.stored_bytes, 4.0 * 512 * 700);
  expect_number(work.moved_bytes, 4.0 * (512 * 300 + 300 * 700 + 512 * 700));
  assert_int_equal(work.dtype, QN_DTYPE_F32);
  assert_true(work.is_exact);
  // Extents of 0 and extents beyond any memory.
  args[0].shape[1] = args[1].shape[0] = 0;
  expect_number(count(product, args, 3).flops, 0);
  arg_t large[] = {ARRAY(1 << 20, 1 << 10), ARRAY(1 << 10, 1 << 20), ARRAY(1 << 20, 1 << 20)};
  expect_number(count(product, large, 3).flops, 2.0 * (1 << 20) * (1 << 20) * (1 << 10));
}

static void test_copy(void** state) {
  (void)state;
  const char text[] =
      "func f(x: f64[n], out y: f64[n]) {\n  parallel i in 0..n {\n    y[i] = x[i];\n  }\n}\n";
  arg_t args[] = {ARRAY(1000), ARRAY(1000)};
  qn_work_t work = count(text, args, 2);
  expect_number(work.flops, 0);
  expect_number(work.moved_bytes, 16000);
  assert_int_equal(work.dtype, QN_DTYPE_NONE);
}

static void test_kinds_of_operations(void** state) {
  (void)state;
  const char text[] =
      "func f(a: i8[n], x: f32[n], inout y: f32[n], out s: i32[n]) {\n"
      "  parallel i in 0..n {\n"
      "    y[i] = fma(x[i], 2.0, exp(-y[i])) / sqrt(x[(i + 1) % n]);\n"
      "    s[i] = i32(a[i]) * 3 + 1;\n"
      "  }\n}\n";
  arg_t args[] = {ARRAY(100), ARRAY(100), ARRAY(100), ARRAY(100)};
  qn_work_t work = count(text, args, 4);
  expect_number(work.flops, 400);  // fma 2, division, square root; a change of sign is none
  expect_number(work.integer_ops, 200);
  expect_number(work.calls, 100);
  expect_number(work.loaded_bytes, 100 * (1 + 4 + 4 + 4));
  expect_number(work.moved_bytes, 100 * (1 + 4 + 8 + 4));  // x once, y twice
}

// Iterations that differ: a triangle, and the borders of a filter.
static void test_iterations_differ(void** state) {
  (void)state;
  const char triangle[] =
      "func f(x: f32[n, n], out y: f32[n]) {\n"
      "  parallel i in 0..n {\n    y[i] = sum j in 0..i + 1 { x[i, j] };\n  }\n}\n";
  arg_t args[] = {ARRAY(100, 100), ARRAY(100)};
  qn_work_t work = count(triangle, args, 2);
  expect_number(work.flops, 5050);
  expect_number(work.moved_bytes, 5050 * 4 + 400);  // half of x
  assert_true(work.is_exact);
  const char filter[] =
      "func f(x: f32[c, n], w: f32[3], out y: f32[c, n]) {\n"
      "  parallel q in 0..c { parallel i in 0..n {\n"
      "    y[q, i] = sum t in 0..3 {\n"
      "      let at = i + t - 1;\n"
      "      at >= 0 && at < n ? x[q, at] * w[t] : 0.0\n"
      "    };\n  } }\n}\n";
  arg_t others[] = {ARRAY(7, 50), ARRAY(3), ARRAY(7, 50)};
  work = count(filter, others, 3);
  expect_number(work.flops, 7 * (50 * 3 + 148));  // two products fall off the edges
  assert_true(work.is_exact);
}

static void test_contents_decide(void** state) {
  (void)state;
  const char ragged[] =
      "func f(x: f32[n], at: i64[m], out y: f32[m]) {\n"
      "  parallel i in 0..m - 1 {\n"
      "    y[i] = sum j in at[i]..at[i + 1] { x[j] };\n  }\n}\n";
  int64_t offsets[] = {0, 3, 3, 10};
  arg_t args[] = {ARRAY(10), {.rank = 1, .shape = {4}, .data = offsets}, ARRAY(4)};
  qn_work_t work = count(ragged, args, 3);
  expect_number(work.flops, 10);
  expect_number(work.stored_bytes, 12);
  // Pinned memory can be read, a GPU's cannot.
  args[1].device_type = QN_DEVICE_CUDA_HOST;
  expect_number(count(ragged, args, 3).flops, 10);
  args[1].device_type = QN_DEVICE_CUDA;
  qn_status_t of_gpu = count_status(ragged, args, 3, &work);
  assert_int_equal(qn_status_code(of_gpu), QN_STATUS_UNSUPPORTED);
  qn_status_free(of_gpu);
  // Without the contents nothing says how often the sum runs.
  args[1].data = NULL;
  qn_status_t status = count_status(ragged, args, 3, &work);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNSUPPORTED);
  assert_non_null(strstr(qn_status_message(status), "the range of 'j'"));
  qn_status_free(status);
}

static void test_unknown_conditions_take_the_larger_arm(void** state) {
  (void)state;
  const char text[] =
      "func f(x: f32[n], out y: f32[n]) {\n"
      "  parallel i in 0..n {\n"
      "    if x[i] > 0.0 {\n      y[i] = x[i];\n    } else {\n"
      "      y[i] = x[i] * x[i] + 1.0;\n    }\n  }\n}\n";
  arg_t args[] = {ARRAY(10), ARRAY(10)};
  qn_work_t work = count(text, args, 2);
  expect_number(work.flops, 20);
  expect_number(work.loaded_bytes, 10 * 12);
  assert_false(work.is_exact);
}

static void test_loops_of_the_call(void** state) {
  (void)state;
  qn_work_t work;
  arg_t args[] = {ARRAY(10)};
  qn_status_t status = count_status(
      "func f(inout x: f32[n]) {\n  while x[0] > 1.0 {\n    x[0] = x[0] * 0.5;\n  }\n}\n", args, 1,
      &work);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNSUPPORTED);
  qn_status_free(status);
  // 2^40 iterations, each of which differs.
  const char endless[] =
      "func f(n: i64, out y: f32[1]) {\n  for i in 0..n {\n"
      "    if i % 2 == 0 {\n      y[0] = 1.0;\n    }\n  }\n}\n";
  arg_t many[] = {{.number = INT64_C(1) << 40, .is_number = true}, ARRAY(1)};
  status = count_status(endless, many, 2, &work);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNSUPPORTED);
  assert_non_null(strstr(qn_status_message(status), "too long"));
  qn_status_free(status);
  many[0].number = 7;
  expect_number(count(endless, many, 2).stored_bytes, 16);
}

static void test_blocks_and_threads(void** state) {
  (void)state;
  const char text[] =
      "func f(x: f32[n], out y: f32[n]) {\n"
      "  block.x b in 0..ceildiv(n, warp_size()) {\n"
      "    thread.x t in 0..warp_size() {\n"
      "      let i = b * warp_size() + t;\n"
      "      if i < n {\n        y[i] = 2.0 * x[i];\n      }\n    }\n  }\n}\n";
  arg_t args[] = {ARRAY(100), ARRAY(100)};
  qn_work_t work = count(text, args, 2);
  expect_number(work.flops, 100);
  expect_number(work.moved_bytes, 800);
  assert_true(work.is_exact);
}

static void test_wrong_arguments(void** state) {
  (void)state;
  qn_work_t work;
  arg_t args[] = {ARRAY(4, 4), ARRAY(4), ARRAY(4, 4)};
  for (size_t arg_count = 2; arg_count < 4; arg_count++) {
    qn_status_t status = count_status(product, args, arg_count, &work);
    assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
    qn_status_free(status);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_product),
      cmocka_unit_test(test_copy),
      cmocka_unit_test(test_kinds_of_operations),
      cmocka_unit_test(test_iterations_differ),
      cmocka_unit_test(test_contents_decide),
      cmocka_unit_test(test_unknown_conditions_take_the_larger_arm),
      cmocka_unit_test(test_loops_of_the_call),
      cmocka_unit_test(test_blocks_and_threads),
      cmocka_unit_test(test_wrong_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
