// SPDX-License-Identifier: Apache-2.0
// tests/unit/shaderc/test_threads.c: tests many threads that compile at once on one new generator:
// they get the same bytes as one thread, and a child forked meanwhile can compile.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support_shaderc.h"

enum { THREADS = 4, ROUNDS = 6, MODULES = 3 };

static const char* const texts[MODULES] = {
    "func f(x: f32[n], y: f32[n], out z: f32[n]) {\n  parallel i in 0..n {\n    z[i] = x[i] * y[i] "
    "+ x[i];\n  }\n}\n",
    "func f(x: f32[n, m], out y: f32[n]) {\n  parallel i in 0..n {\n    y[i] = sum j in 0..m { "
    "exp(x[i, j]) };\n  }\n}\n",
    "func f(x: i32[n], out y: i32[n]) {\n  block.x b in 0..n // 32 {\n    alloc t: i32[32] in "
    "shared;\n    thread.x i in 0..32 {\n      t[i] = x[b * 32 + i];\n      barrier;\n      y[b * "
    "32 + i] = t[31 - i];\n    }\n  }\n}\n",
};

static qn_module_t* modules[MODULES];
static qn_hash128_t expected[MODULES][2];
static _Atomic uint32_t wrong;

static qn_hash128_t digest_of(const compiled_t* compiled) {
  qn_hash128_t digest = {{0}};
  uint64_t sum = 1469598103934665603u;
  const uint8_t* bytes = compiled->artifact->payload;
  for (size_t i = 0; i < compiled->artifact->payload_size; ++i)
    sum = (sum ^ bytes[i]) * 1099511628211u;
  bytes = compiled->artifact->metadata;
  for (size_t i = 0; i < compiled->artifact->metadata_size; ++i) {
    sum = (sum ^ bytes[i]) * 1099511628211u;
  }
  memcpy(digest.bytes, &sum, sizeof sum);
  return digest;
}

static bool compile_one(size_t module, uint32_t tier, qn_hash128_t* out) {
  request_t request = {TARGET_1_2, tier ? QN_TIER_FAST : QN_TIER_FULL, false};
  compiled_t compiled;
  qn_status_t status = compile(modules[module], &request, &compiled);
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "%s\n", qn_status_message(status));
    qn_status_free(status);
    return false;
  }
  *out = digest_of(&compiled);
  compiled_release(&compiled);
  return true;
}

static void* work(void* self) {
  size_t first = *(const size_t*)self;
  for (size_t i = 0; i < ROUNDS; ++i) {
    size_t module = (first + i) % MODULES;
    uint32_t tier = (uint32_t)(i & 1);
    qn_hash128_t digest;
    bool is_right =
        compile_one(module, tier, &digest) && qn__hash128_equal(digest, expected[module][tier]);
    if (!is_right) atomic_fetch_add(&wrong, 1);
  }
  return NULL;
}

static void run_threads(void) {
  pthread_t threads[THREADS];
  size_t numbers[THREADS];
  for (size_t i = 0; i < THREADS; ++i) {
    numbers[i] = i;
    assert_int_equal(pthread_create(&threads[i], NULL, work, &numbers[i]), 0);
  }
  for (size_t i = 0; i < THREADS; ++i) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void test_same_bytes(void** state) {
  (void)state;
  for (size_t i = 0; i < MODULES; ++i) {
    for (uint32_t tier = 0; tier < 2; ++tier) assert_true(compile_one(i, tier, &expected[i][tier]));
  }
  run_threads();
  assert_int_equal(atomic_load(&wrong), 0);
}

// The sanitizers' allocators hold their locks across a fork: a child that is made while another
// thread allocates hangs in them.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
static void test_fork(void** state) {
  (void)state;
  pthread_t threads[2];
  size_t numbers[2] = {0, 1};
  for (size_t i = 0; i < 2; ++i) {
    assert_int_equal(pthread_create(&threads[i], NULL, work, &numbers[i]), 0);
  }
  for (uint32_t i = 0; i < 8; ++i) {
    pid_t child = fork();
    if (child == 0) {
      (void)alarm(600);  // a hang is a failure
      qn_hash128_t digest;
      bool is_right = compile_one(0, 0, &digest) && qn__hash128_equal(digest, expected[0][0]);
      _exit(is_right ? 0 : 1);
    }
    int result = -1;
    assert_true(child > 0 && waitpid(child, &result, 0) == child);
    assert_int_equal(result, 0);
  }
  for (size_t i = 0; i < 2; ++i) assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(atomic_load(&wrong), 0);
}
#endif

// Generators come and go while they warm up.
static void test_short_lives(void** state) {
  (void)state;
  for (uint32_t i = 0; i < 5; ++i) {
    qn__shaderc_t* other = NULL;
    assert_true(qn_ok(qn__shaderc_create(qn_allocator_default(), &other)));
    assert_string_equal(other->identity, the_shaderc()->identity);
    qn__shaderc_destroy(other);
  }
}

int main(void) {
  for (size_t i = 0; i < MODULES; ++i) modules[i] = parse(texts[i]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_bytes),
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
      cmocka_unit_test(test_fork),
#endif
      cmocka_unit_test(test_short_lives),
  };
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  for (size_t i = 0; i < MODULES; ++i) qn_module_release(modules[i]);
  qn__shaderc_destroy(the_shaderc());
  return result;
}
