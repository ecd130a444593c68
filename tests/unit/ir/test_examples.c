// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_examples.c: programs of examples/ir, run by the interpreter against results
// that are worked out in C here. The first six are in test_interpret.c; kernels that run on every
// device in tests/examples.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "ir/interpret.h"
#include "tests/unit/ir/support_ir.h"

#define P(array) ((uint64_t)(uintptr_t)(array))

static void run(const char* name, const int64_t* symbols, const uint64_t* params) {
  size_t size;
  char* text = qn_sample_text(name, &size);
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text, size, NULL, &module);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  qn__interpret_args_t args = {.params = params, .symbols = symbols, .warp_size = 32};
  status = qn__interpret(module->functions[0], &args, qn_allocator_default());
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  qn_module_release(module);
  qn_sample_text_free(text, size);
}

static void test_histogram(void** state) {
  (void)state;
  uint8_t x[] = {3, 3, 255, 0, 3, 255};
  int32_t counts[256] = {0};
  int32_t largest[1] = {0};
  run("histogram", (int64_t[]){6}, (uint64_t[]){P(x), P(counts), P(largest)});
  assert_int_equal(counts[3], 3);
  assert_int_equal(counts[255], 2);
  assert_int_equal(counts[0], 1);
  assert_int_equal(counts[1], 0);
  assert_int_equal(largest[0], 3);
}

static void test_fir_filter(void** state) {
  (void)state;
  enum { n = 5 };
  int16_t x[n + 2] = {0, 100, -32768, -32768, -32768, 32767, 32767};
  int16_t y[n];
  // n is a scalar here: it comes before y, and binds nothing.
  run("fir_filter", NULL, (uint64_t[]){P(x), (uint64_t)n, P(y)});
  for (int i = 0; i < n; i++) {
    int32_t sum = 64 * x[i] + 128 * x[i + 1] + 64 * x[i + 2] + 128;
    int32_t shifted = (int32_t)floor((double)sum / 256.0);
    assert_int_equal(y[i], shifted > 32767 ? 32767 : shifted < -32768 ? -32768 : shifted);
  }
}

static void test_split_sum(void** state) {
  (void)state;
  float x[2100], y = -1.0f;
  for (int i = 0; i < 2100; i++) x[i] = (float)(i % 7);
  run("split_sum", (int64_t[]){2100}, (uint64_t[]){P(x), P(&y)});
  assert_true(y == 6300.0f);
  run("split_sum", (int64_t[]){0}, (uint64_t[]){P(x), P(&y)});
  assert_true(y == 0.0f);
}

static void test_prefix_sum(void** state) {
  (void)state;
  int32_t x[600], y[600];
  for (int i = 0; i < 600; i++) x[i] = i % 3 - 7;
  run("prefix_sum", (int64_t[]){600}, (uint64_t[]){P(x), P(y)});
  for (int32_t i = 0, sum = 0; i < 600; i++) assert_int_equal(y[i], sum += x[i]);
}

static void test_recurrence(void** state) {
  (void)state;
  float a[2][300], b[2][300], h[2][300];
  for (int i = 0; i < 600; i++) {
    a[i / 300][i % 300] = (float)(i % 5) * 0.25f;
    b[i / 300][i % 300] = (float)(i % 7) - 3.0f;
  }
  run("recurrence", (int64_t[]){2, 300}, (uint64_t[]){P(a), P(b), P(h)});
  for (int c = 0; c < 2; c++) {
    double wanted = 0;
    for (int t = 0; t < 300; t++) {
      wanted = (double)a[c][t] * wanted + (double)b[c][t];
      assert_true(fabs((double)h[c][t] - wanted) <= 1e-4);
    }
  }
}

static void test_newton_sqrt(void** state) {
  (void)state;
  float x[] = {4.0f, 2.0f, 0.0f, 1e-12f, 1e20f, -1.0f};
  float y[6];
  run("newton_sqrt", (int64_t[]){6}, (uint64_t[]){P(x), P(y)});
  for (int i = 0; i < 5; i++) {
    double wanted = sqrt((double)x[i]);
    assert_true(fabs((double)y[i] - wanted) <= 1e-6 * wanted);
  }
  assert_true(isnan(y[5]));
}

static void test_block_norm(void** state) {
  (void)state;
  enum { n = 2, m = 300 };
  static float x[n * m];
  float y[n];
  double wanted[n] = {0.0};
  for (int i = 0; i < n * m; i++) {
    x[i] = (float)(i % 11 - 5);
    wanted[i / m] += (double)(x[i] * x[i]);
  }
  run("block_norm", (int64_t[]){n, m}, (uint64_t[]){P(x), P(y)});
  for (int i = 0; i < n; i++) assert_true(fabs((double)y[i] - sqrt(wanted[i])) < 1e-4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_split_sum),  cmocka_unit_test(test_prefix_sum),
      cmocka_unit_test(test_recurrence), cmocka_unit_test(test_histogram),
      cmocka_unit_test(test_fir_filter), cmocka_unit_test(test_newton_sqrt),
      cmocka_unit_test(test_block_norm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
