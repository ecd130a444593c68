// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_bundle_threads.c: tests many threads that read one bundle, whole and
// truncated during the reads.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/unit/cache/support_bundle.h"

enum { SAMPLES = 12, THREADS = 6, ROUNDS = 400 };

static sample_t samples[SAMPLES];
static qn__bundle_t* bundle;
static _Atomic int hit_count, miss_count;

static void* get_all(void* arg) {
  unsigned first = *(unsigned*)arg;
  qn__hit_t kept[2] = {0};
  for (unsigned i = 0; i < ROUNDS; i++) {
    const sample_t* sample = &samples[(first + i) % SAMPLES];
    qn__hit_t hit;
    if (qn__bundle_get(bundle, &sample->expected, &hit) == QN__GET_HIT) {
      if (!sample_equals(sample, &hit.entry)) abort();
      atomic_fetch_add(&hit_count, 1);
    } else {
      atomic_fetch_add(&miss_count, 1);
    }
    // Two are held at a time, so that buffers come and go in another order than they were taken.
    qn__bundle_hit_release(bundle, &kept[i % 2]);
    kept[i % 2] = hit;
  }
  qn__bundle_hit_release(bundle, &kept[0]);
  qn__bundle_hit_release(bundle, &kept[1]);
  return NULL;
}

static void run_threads(void) {
  pthread_t threads[THREADS];
  unsigned first[THREADS];
  hit_count = miss_count = 0;
  for (unsigned i = 0; i < THREADS; i++) {
    first[i] = i;
    assert_int_equal(pthread_create(&threads[i], NULL, get_all, &first[i]), 0);
  }
  for (unsigned i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(hit_count + miss_count, THREADS * ROUNDS);
}

static void threads_share_a_bundle(void** state) {
  (void)state;
  char path[BUNDLE_PATH_SIZE];
  bundle_path("a.qnb", path);
  for (unsigned i = 0; i < SAMPLES; i++) sample_make_by(&samples[i], i, 3000 * i, "maker 1");
  assert_true(write_bundle(path, samples, SAMPLES, NULL, false));
  bundle = open_bundle(path, NULL, NULL);
  assert_non_null(bundle);
  run_threads();
  assert_int_equal(hit_count, THREADS * ROUNDS);
  assert_int_equal(bundle_counter(bundle, "bundle_hits"), THREADS * ROUNDS);
  // Cut under their eyes: hits of what is left, misses of the rest.
  static uint8_t bytes[1 << 18];
  long size = qn_test_read_file(path, bytes, sizeof bytes);
  assert_true(size > 0 && size < (long)sizeof bytes);
  assert_true(qn_test_write_file(path, bytes, (size_t)size / 2));
  run_threads();
  assert_true(hit_count > 0 && miss_count > 0);
  assert_int_equal(bundle_counter(bundle, "bundle_bad_truncated"), miss_count);
  qn__bundle_close(bundle);
  for (unsigned i = 0; i < SAMPLES; i++) sample_free(&samples[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(threads_share_a_bundle, cache_set_up, cache_tear_down),
  };
  return cmocka_run_group_tests_name("bundle_threads", tests, NULL, NULL);
}
