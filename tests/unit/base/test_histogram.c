// SPDX-License-Identifier: Apache-2.0
// Tests histograms: every value lies in its bucket's range, quantiles agree with sorted values, and
// snapshots work while other threads add values.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/histogram.h"
#include "base/thread.h"

static void test_buckets(void** state) {
  (void)state;
  assert_int_equal(qn__histogram_index(0), 0);
  assert_int_equal(qn__histogram_index(1), 0);
  uint64_t last = 0;
  for (size_t i = 0; i < QN__HISTOGRAM_BUCKETS - 1; i++) {
    uint64_t upper = qn__histogram_upper(i);
    assert_true(upper > last);
    assert_int_equal(qn__histogram_index(upper), i);
    assert_int_equal(qn__histogram_index(last + 1), i);
    assert_int_equal(qn__histogram_index(upper + 1), i + 1);
    // At most an eighth too large, for the smallest value of the bucket too.
    assert_true(upper - (last + 1) <= (last + 1) / 8);
    last = upper;
  }
  assert_true(last == (uint64_t)1 << 40);
  assert_int_equal(qn__histogram_index(UINT64_MAX), QN__HISTOGRAM_BUCKETS - 1);
  assert_true(qn__histogram_upper(QN__HISTOGRAM_BUCKETS - 1) == UINT64_MAX);
  for (unsigned power = 0; power <= 40; power++) {
    uint64_t value = (uint64_t)1 << power;
    assert_true(qn__histogram_upper(qn__histogram_index(value)) == value);
  }
}

static int compare(const void* a, const void* b) {
  int64_t x = *(const int64_t*)a, y = *(const int64_t*)b;
  return (x > y) - (x < y);
}

static void test_quantiles(void** state) {
  (void)state;
  static qn__histogram_t histogram;
  static qn__histogram_snapshot_t snapshot;
  qn__histogram_read(&histogram, &snapshot);
  assert_int_equal(snapshot.count, 0);
  assert_int_equal(qn__histogram_quantile(&snapshot, 500), 0);
  enum { COUNT = 4321 };
  static int64_t values[COUNT];
  uint64_t random = 88172645463325252u, total = 0;
  for (size_t i = 0; i < COUNT; i++) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    values[i] = (int64_t)(random >> (24 + random % 40));
    total += (uint64_t)values[i];
    qn__histogram_add(&histogram, values[i]);
  }
  qsort(values, COUNT, sizeof values[0], compare);
  qn__histogram_read(&histogram, &snapshot);
  assert_int_equal(snapshot.count, COUNT);
  assert_true(snapshot.total == total);
  assert_true(snapshot.max == (uint64_t)values[COUNT - 1]);
  static const unsigned permilles[] = {0, 1, 100, 500, 900, 990, 999, 1000};
  for (size_t i = 0; i < QN_COUNT_OF(permilles); i++) {
    size_t rank = (COUNT * permilles[i] + 999) / 1000;
    uint64_t exact = (uint64_t)values[rank ? rank - 1 : 0];
    uint64_t told = qn__histogram_quantile(&snapshot, permilles[i]);
    assert_true(told >= exact && told - exact <= exact / 8 + 1);
  }
  for (unsigned power = 0; power < 41; power++) {
    uint64_t limit = (uint64_t)1 << power, exact = 0;
    while (exact < COUNT && (uint64_t)values[exact] <= limit) exact++;
    assert_true(qn__histogram_count_to(&snapshot, limit) == exact);
  }
}

static void test_ends(void** state) {
  (void)state;
  static qn__histogram_t histogram;
  static qn__histogram_snapshot_t snapshot;
  qn__histogram_add(&histogram, -5);  // a clock that was set back is no duration
  qn__histogram_read(&histogram, &snapshot);
  assert_int_equal(snapshot.total, 0);
  assert_int_equal(snapshot.buckets[0], 1);
  qn__histogram_add(&histogram, INT64_MAX);
  qn__histogram_read(&histogram, &snapshot);
  assert_int_equal(snapshot.count, 2);
  assert_true(qn__histogram_quantile(&snapshot, 1000) == INT64_MAX);
  assert_true(qn__histogram_count_to(&snapshot, (uint64_t)1 << 40) == 1);
}

enum { THREADS = 4, ADDITIONS = 20000 };

static void* add_many(void* arg) {
  for (int64_t i = 0; i < ADDITIONS; i++) qn__histogram_add(arg, i);
  return NULL;
}

static void test_threads(void** state) {
  (void)state;
  static qn__histogram_t histogram;
  static qn__histogram_snapshot_t snapshot;
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, add_many, &histogram), 0);
  }
  uint64_t last = 0;
  for (int round = 0; round < 200; round++) {
    qn__histogram_read(&histogram, &snapshot);
    uint64_t sum = 0;
    for (size_t i = 0; i < QN__HISTOGRAM_BUCKETS; i++) sum += snapshot.buckets[i];
    assert_true(snapshot.count == sum && sum >= last);
    last = sum;
    assert_true(qn__histogram_quantile(&snapshot, 1000) <= snapshot.max);
  }
  for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  qn__histogram_read(&histogram, &snapshot);
  assert_true(snapshot.count == (uint64_t)THREADS * ADDITIONS);
  assert_true(snapshot.total == (uint64_t)THREADS * ADDITIONS * (ADDITIONS - 1) / 2);
  assert_int_equal(snapshot.max, ADDITIONS - 1);
}

// A snapshot in the middle of a histogram's only addition: what it holds agrees with itself.
enum { FRESH = 512, ONLY = 1000 };
static qn__histogram_t fresh[FRESH];

static void* add_to_each(void* arg) {
  (void)arg;
  for (size_t i = 0; i < FRESH; i++) qn__histogram_add(&fresh[i], ONLY);
  return NULL;
}

static void test_partial_additions(void** state) {
  (void)state;
  static qn__histogram_snapshot_t snapshot;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, add_to_each, NULL), 0);
  for (size_t i = 0; i < FRESH; i++) {
    do {
      qn__histogram_read(&fresh[i], &snapshot);
      assert_true(qn__histogram_quantile(&snapshot, 990) <= snapshot.max);
      assert_true(snapshot.max <= snapshot.total);
      assert_true(snapshot.count <= 1 && snapshot.total <= ONLY);
    } while (snapshot.count == 0);
    assert_true(snapshot.max == ONLY && snapshot.total == ONLY);
  }
  assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_buckets),
      cmocka_unit_test(test_quantiles),
      cmocka_unit_test(test_ends),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_partial_additions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
