// SPDX-License-Identifier: Apache-2.0
// Tests the one-word lock: concurrent increments are not lost, even when a holder sleeps.
// ctest-labels: tsan
#include "base/short_lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

#include "base/thread.h"

enum { THREADS = 6, TURNS = 20000 };

static qn__short_lock_t lock;
static uint64_t count;  // plain: the lock guards it

static void* count_up(void* arg) {
  const uint32_t* index = arg;
  for (uint32_t turn = 0; turn < TURNS; turn++) {
    qn__short_lock(&lock);
    count++;
    // Sometimes holds the lock for longer than a waiter spins and yields.
    if (*index == 0 && turn % 1000 == 0) (void)nanosleep(&(struct timespec){0, 300000}, NULL);
    qn__short_unlock(&lock);
  }
  return NULL;
}

static void test_counting(void** state) {
  (void)state;
  qn__short_lock_init(&lock);
  pthread_t threads[THREADS];
  uint32_t indices[THREADS];
  for (uint32_t i = 0; i < THREADS; i++) {
    indices[i] = i;
    assert_true(qn_ok(qn__thread_start(&threads[i], "counter", 0, count_up, &indices[i])));
  }
  for (uint32_t i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(count, THREADS * TURNS);
  assert_int_equal(lock.is_taken, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_counting)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
