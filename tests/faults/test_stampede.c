// SPDX-License-Identifier: Apache-2.0
// tests/faults/test_stampede.c: tests 64 processes that look up the same 50 cold keys at once.
// There must be exactly 50 compiles in all, and every process must get correct kernels.
// bench/bench_stampede.c measures the time.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/faults/kernels.h"
#include "tests/unit/cache/support.h"

#define PROCESSES 64u
#define KEYS 50u
// An operation that takes longer counts as a hang.
#define PATIENCE_SECONDS 1200
#define PATIENCE_NS (PATIENCE_SECONDS * INT64_C(1000000000))

typedef struct shared {
  _Atomic unsigned ready;
  _Atomic bool is_started;
  _Atomic uint64_t compiles, answers, failures, without_claim;
} shared_t;

static int ask_for_all(shared_t* shared, unsigned number, unsigned stride) {
  const qn_setting_t settings[] = {{"lock_timeout", "1200s"}};
  qn_engine_t* engine = kernel_engine((qn_allocator_t){0}, cache_root, settings, 1);
  if (!engine) return 1;
  shared->ready++;
  while (!shared->is_started) usleep(500);
  for (unsigned i = 0; i < KEYS; i++) {
    qn_status_t status = kernel_look_up(engine, (i + number * stride) % KEYS, "interp", NULL, NULL);
    if (!qn_ok(status)) (void)fprintf(stderr, "%s\n", qn_status_message(status));
    shared->failures += qn_status_consume(status) != QN_STATUS_OK;
  }
  shared->compiles += kernel_counter(engine, "compiles");
  shared->answers += kernel_counter(engine, "compiles") + kernel_counter(engine, "directory_hits") +
                     kernel_counter(engine, "claimed_hits");
  shared->without_claim +=
      kernel_counter(engine, "claim_unavailable") + kernel_counter(engine, "claim_off");
  // Destroying waits some seconds for a slow disk and then drops queued entries, which another
  // process would compile again.
  bool is_flushed = qn_engine_flush(engine, PATIENCE_NS);
  qn_engine_destroy(engine);
  return is_flushed ? 0 : 2;
}

// With `stride` 0 all processes use the same order. Otherwise each begins at another key.
static void stampede(unsigned stride) {
  shared_t* shared =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED);
  pid_t children[PROCESSES];
  (void)fflush(NULL);
  for (unsigned i = 0; i < PROCESSES; i++) {
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0) {
      (void)alarm(PATIENCE_SECONDS);
      _exit(ask_for_all(shared, i, stride));
    }
  }
  // A process that could not start has exited; its status is checked below.
  siginfo_t ended = {0};
  while (shared->ready < PROCESSES && ended.si_pid == 0) {
    usleep(500);
    assert_int_equal(waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
  }
  shared->is_started = true;
  for (unsigned i = 0; i < PROCESSES; i++) {
    int status = -1;
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    assert_int_equal(status, 0);
  }
  assert_int_equal(shared->failures, 0);
  assert_int_equal(shared->without_claim, 0);
  assert_int_equal(shared->compiles, KEYS);
  assert_int_equal(shared->answers, PROCESSES * KEYS);
  assert_int_equal(munmap(shared, sizeof *shared), 0);
}

static void in_the_same_order(void** state) {
  (void)state;
  stampede(0);
}
static void each_from_elsewhere(void** state) {
  (void)state;
  stampede(7);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, cache_set_up, cache_tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(in_the_same_order),
      TEST(each_from_elsewhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
