// SPDX-License-Identifier: Apache-2.0
// Quantiles, histograms and intervals of `quern bench`.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/cli/bench/stats.h"

// Adds rounds of values around `center`, each round shifted by its own amount.
static samples_t make(double center, double shift, size_t rounds, size_t count) {
  samples_t samples = {.round_count = 0};
  for (size_t r = 0; r < rounds; r++) {
    for (size_t i = 0; i < count; i++) {
      double offset = (double)(i * 7 % 11) - 5;
      samples_add(&samples, r, center + offset + shift * ((double)(r * 3 % 5) - 2));
    }
  }
  return samples;
}

static void expect_near(double value, double expected) {
  if (value < expected - 1e-9 || value > expected + 1e-9) {
    fail_msg("%.17g, expected %.17g", value, expected);
  }
}

static void test_distribution(void** state) {
  (void)state;
  samples_t samples = {.round_count = 0};
  distribution_t d = samples_distribution(&samples);
  assert_int_equal(d.count, 0);
  for (int i = 100; i >= 0; i--) samples_add(&samples, (size_t)i % 3, (double)i);
  d = samples_distribution(&samples);
  assert_int_equal(d.count, 101);
  expect_near(d.min, 0);
  expect_near(d.median, 50);
  expect_near(d.p90, 90);
  expect_near(d.p99, 99);
  expect_near(d.max, 100);
  expect_near(d.mean, 50);
  expect_near(d.spread, 1);
  samples_free(&samples);
  // Between two samples quantiles are interpolated; one sample is all of them.
  samples_add(&samples, 0, 10);
  expect_near(samples_distribution(&samples).p99, 10);
  samples_add(&samples, 0, 20);
  expect_near(samples_distribution(&samples).median, 15);
  samples_free(&samples);
}

static void test_histogram(void** state) {
  (void)state;
  size_t bins[4];
  samples_t samples = {.round_count = 0};
  samples_histogram(&samples, bins, 4);
  assert_int_equal(bins[0] + bins[1] + bins[2] + bins[3], 0);
  for (int i = 0; i < 400; i++) samples_add(&samples, 0, (double)(i % 4));
  samples_add(&samples, 0, 1e9);  // one that is far off does not squeeze the others
  samples_histogram(&samples, bins, 4);
  assert_int_equal(bins[0], 100);
  assert_int_equal(bins[0] + bins[1] + bins[2] + bins[3], 401);
  assert_true(bins[1] > 0 && bins[3] > 0);
  samples_free(&samples);
  samples_add(&samples, 0, 5);
  samples_histogram(&samples, bins, 4);  // no width
  assert_int_equal(bins[0] + bins[3], 1);
  samples_free(&samples);
}

static void test_ratio(void** state) {
  (void)state;
  samples_t a = make(1000, 0, 5, 40), b = make(1000, 0, 5, 40), twice = make(2000, 0, 5, 40);
  ratio_t same = samples_ratio(&a, &b);
  expect_near(same.ratio, 1);
  assert_true(same.low <= 1 && same.high >= 1);
  ratio_t slower = samples_ratio(&twice, &a);
  expect_near(slower.ratio, 2);
  assert_true(slower.low > 1.9 && slower.high < 2.1 && slower.low <= slower.high);
  // Rounds that disagree make an interval wide, however many samples each of them has.
  samples_t loose = make(1020, 60, 5, 400), tight = make(1000, 0, 5, 400);
  ratio_t unsure = samples_ratio(&loose, &tight);
  assert_true(unsure.low < 1 && unsure.high > 1.02);
  ratio_t again = samples_ratio(&loose, &tight);
  expect_near(again.low, unsure.low);
  expect_near(again.high, unsure.high);
  samples_free(&a);
  samples_free(&b);
  samples_free(&twice);
  samples_free(&loose);
  samples_free(&tight);
}

// More rounds than an interval draws samples from, and single samples, are fine.
static void test_few_and_many(void** state) {
  (void)state;
  samples_t one = make(10, 0, 1, 1), many = make(1000, 1, MAX_ROUNDS, 100);
  ratio_t ratio = samples_ratio(&many, &one);
  assert_true(ratio.low > 0 && ratio.low <= ratio.high);
  samples_free(&one);
  samples_free(&many);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_distribution),
      cmocka_unit_test(test_histogram),
      cmocka_unit_test(test_ratio),
      cmocka_unit_test(test_few_and_many),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
