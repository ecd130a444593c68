// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu_codegen/test_compiler_guard.c: tests the guard that makes fork and exit wait for
// compiles in libraries with global state. Forks at random moments of warm-ups and compiles, with
// one guard and with two.
//
// The library is a plain mutex without fork handlers, as in real compiler libraries: a child that
// inherits it locked would hang. An alarm ends such a child; it is long because test machines can
// be slow.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "jit/gpu/compiler_guard.h"
#include "tests/support/sanitized.h"

static pthread_mutex_t library = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t work_count;

static void work_in_library(void) {
  (void)pthread_mutex_lock(&library);
  for (int i = 0; i < 1000; ++i) atomic_fetch_add(&work_count, 1);
  (void)pthread_mutex_unlock(&library);
}

static void warm(void* self) {
  (void)self;
  work_in_library();
}

static qn_status_code_t compile(qn__gpu_compiler_guard_t* guard) {
  qn_status_t status = qn__gpu_compiler_guard_begin(guard);
  if (qn_ok(status)) {
    work_in_library();
    qn__gpu_compiler_guard_end(guard);
  }
  return qn_status_consume(status);
}

static void* compile_thrice(void* arg) {
  qn_status_code_t worst = QN_STATUS_OK;
  for (int i = 0; i < 3; ++i) {
    qn_status_code_t code = compile(arg);
    if (code != QN_STATUS_OK) worst = code;
  }
  return worst == QN_STATUS_OK ? arg : NULL;
}

// Forks, compiles in the child and returns the code of that compile. Under sanitizers it compiles
// without a fork: ThreadSanitizer reports threads that ended before a fork as leaks of the child,
// and AddressSanitizer's heap keeps its locks as they were at the fork.
static int fork_and_compile(qn__gpu_compiler_guard_t* guard) {
  if (IS_SANITIZED) return (int)compile(guard);
  pid_t child = fork();
  if (child == 0) {
    (void)alarm(600);
    _exit((int)compile(guard));
  }
  int status = -1;
  assert_true(child > 0 && waitpid(child, &status, 0) == child);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

enum { THREADS = 2, ROUNDS = 100, FORKS = 3 };

static void forks_at_the_first_compiles(void** state) {
  (void)state;
  for (int round = 0; round < ROUNDS; ++round) {
    qn__gpu_compiler_guard_t guard = {0};
    qn__gpu_compiler_guard_init(&guard, "the library");
    qn__gpu_compiler_guard_warm(&guard, "warm", warm, NULL);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i) {
      assert_int_equal(pthread_create(&threads[i], NULL, compile_thrice, &guard), 0);
    }
    for (int i = 0; i < FORKS; ++i) {
      int code = fork_and_compile(&guard);
      assert_true(code == QN_STATUS_OK || code == QN_STATUS_UNAVAILABLE);
    }
    for (int i = 0; i < THREADS; ++i) {
      void* result = NULL;
      assert_int_equal(pthread_join(threads[i], &result), 0);
      assert_ptr_equal(result, &guard);
    }
    assert_int_equal(fork_and_compile(&guard), QN_STATUS_OK);
    qn__gpu_compiler_guard_deinit(&guard);
  }
}

// ---- a warm-up that lasts until the test ends it

static qn__mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static qn__cond_t changed = PTHREAD_COND_INITIALIZER;
static bool has_begun, may_end;

static void warm_slowly(void* self) {
  (void)self;
  (void)pthread_mutex_lock(&library);
  qn__mutex_lock(&mutex);
  has_begun = true;
  qn__cond_broadcast(&changed);
  while (!may_end) qn__cond_wait(&changed, &mutex);
  qn__mutex_unlock(&mutex);
  (void)pthread_mutex_unlock(&library);
}

// Ends the warm-up after 30 ms. By then the fork most likely waits for it.
static void* end_warm_up(void* arg) {
  (void)nanosleep(&(struct timespec){0, 30000000}, NULL);
  qn__mutex_lock(&mutex);
  may_end = true;
  qn__cond_broadcast(&changed);
  qn__mutex_unlock(&mutex);
  return arg;
}

// Checks both guards of one library in the child: one had warmed up long before the fork, the other
// was warming up during it.
static void a_fork_waits_for_a_warm_up(void** state) {
  (void)state;
  qn__gpu_compiler_guard_t guards[2] = {{0}, {0}};
  qn__gpu_compiler_guard_init(&guards[0], "the library");
  qn__gpu_compiler_guard_warm(&guards[0], "warm", warm, NULL);
  assert_int_equal(compile(&guards[0]), QN_STATUS_OK);
  for (int i = 0; i < 2; ++i) {
    has_begun = may_end = false;
    qn__gpu_compiler_guard_init(&guards[1], "the library");
    qn__gpu_compiler_guard_warm(&guards[1], "warm", warm_slowly, NULL);
    qn__mutex_lock(&mutex);
    while (!has_begun) qn__cond_wait(&changed, &mutex);
    qn__mutex_unlock(&mutex);
    pthread_t ender;
    assert_int_equal(pthread_create(&ender, NULL, end_warm_up, NULL), 0);
    assert_int_equal(fork_and_compile(&guards[i]), QN_STATUS_OK);
    assert_int_equal(pthread_join(ender, NULL), 0);
    assert_int_equal(compile(&guards[1]), QN_STATUS_OK);
    qn__gpu_compiler_guard_deinit(&guards[1]);
    guards[1] = (qn__gpu_compiler_guard_t){0};
  }
  qn__gpu_compiler_guard_deinit(&guards[0]);
}

// Checks that an unused guard can be deinitialised while it warms up.
static void unused_guards_end(void** state) {
  (void)state;
  for (int i = 0; i < 20; ++i) {
    qn__gpu_compiler_guard_t guard = {0};
    qn__gpu_compiler_guard_init(&guard, "the library");
    qn__gpu_compiler_guard_warm(&guard, "warm", warm, NULL);
    if (i % 2) (void)fork_and_compile(&guard);
    qn__gpu_compiler_guard_deinit(&guard);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forks_at_the_first_compiles),
      cmocka_unit_test(a_fork_waits_for_a_warm_up),
      cmocka_unit_test(unused_guards_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
