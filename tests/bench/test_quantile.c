// SPDX-License-Identifier: Apache-2.0
// Quantiles and their intervals, against ranks from tables of the binomial distribution.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "bench/serve/quantile.h"
#include "tests/support/random.h"

static void expect_ranks(size_t count, double p, size_t low, size_t high) {
  size_t found_low = 0;
  size_t found_high = 0;
  quantile_ranks(count, p, &found_low, &found_high);
  assert_int_equal(found_low, low);
  assert_int_equal(found_high, high);
}

static void test_ranks(void** state) {
  (void)state;
  // The sign test's tables for the median: of 10 values the 2nd and 9th, of 20 the 6th and 15th,
  // of 100 the 40th and 61st.
  expect_ranks(10, 0.5, 2, 9);
  expect_ranks(20, 0.5, 6, 15);
  expect_ranks(100, 0.5, 40, 61);
  // Too few values to bound: P(all five below the median) is 3 %.
  expect_ranks(5, 0.5, 0, 6);
  // With 100 values the 99th percentile has no upper bound: the chance that none is above is 37 %.
  size_t low = 0;
  size_t high = 0;
  quantile_ranks(100, 0.99, &low, &high);
  assert_int_equal(high, 101);
  // Of many values the ranks are those of the normal distribution: 7920 +- 1.96 * 8.9.
  quantile_ranks(8000, 0.99, &low, &high);
  assert_in_range(low, 7900, 7904);
  assert_in_range(high, 7937, 7941);
  quantile_ranks(1000000, 0.999, &low, &high);
  assert_in_range(low, 998936, 998940);
  assert_in_range(high, 999060, 999064);
}

static void test_values(void** state) {
  (void)state;
  double values[1000];
  for (int i = 0; i < 1000; i++) values[i] = (double)((i * 7 + 3) % 1000 + 1);  // 1..1000
  quantile_sort(values, 1000);
  assert_true(quantile_of(values, 1000, 0.5).value == 500);
  assert_true(quantile_of(values, 1000, 0.99).value == 990);
  assert_true(quantile_of(values, 1000, 0.999).value == 999);
  assert_true(isnan(quantile_of(values, 1000, 0.999).high));
  assert_true(quantile_of(values, 1000, 0.5).low == 469);
  assert_true(quantile_of(values, 1, 0.5).value == 1);
  assert_true(isnan(quantile_of(values, 0, 0.5).value));
  values[998] = values[999] = INFINITY;  // failures
  assert_true(isinf(quantile_of(values, 1000, 0.999).value));
  assert_true(quantile_of(values, 1000, 0.99).value == 990);
}

// The interval holds the true value in at least 95 % of samples (less 1 % for chance).
static void test_coverage(void** state) {
  (void)state;
  enum { ROUNDS = 2000, COUNT = 400 };
  static double values[COUNT];
  uint64_t random = 7;
  int held = 0;
  for (int r = 0; r < ROUNDS; r++) {
    for (int i = 0; i < COUNT; i++) values[i] = (double)(random_next(&random) >> 11) * 0x1p-53;
    quantile_sort(values, COUNT);
    quantile_t q = quantile_of(values, COUNT, 0.9);
    held += q.low <= 0.9 && q.high >= 0.9;
  }
  assert_in_range(held, ROUNDS * 94 / 100, ROUNDS * 99 / 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ranks),
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_coverage),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
