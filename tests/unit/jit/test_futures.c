// SPDX-License-Identifier: Apache-2.0
// Tests async lookups: polling, waiting, callbacks, cancelling before and during the compile,
// timeouts, release in any order, and use after the engine's end.
// ctest-labels: tsan
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/jit/support_gate.h"

static void begin(gated_t* gated) {
  static const qn_setting_t one_thread[] = {{"compile_threads", "1"}};
  gated_begin_with(gated, one_thread, 1);
}

static qn_future_t* request(gated_t* gated, qn_module_t* module, const char* name,
                            qn_miss_policy_t miss, int64_t timeout_ns) {
  qn_lookup_options_t options = {
      .struct_size = sizeof options, .miss = miss, .time_limit_ns = timeout_ns};
  qn_future_t* future;
  must(qn_engine_request(gated->engine, module, gated->target, name, &options, &future));
  return future;
}

typedef struct ear {
  qn__mutex_t mutex;
  qn__cond_t heard;
  int count;
} ear_t;

static void ear_init(ear_t* ear) {
  memset(ear, 0, sizeof *ear);
  must(qn__mutex_init(&ear->mutex));
  must(qn__cond_init(&ear->heard));
}
static void on_ready(void* self) {
  ear_t* ear = self;
  qn__mutex_lock(&ear->mutex);
  ear->count++;
  qn__cond_broadcast(&ear->heard);
  qn__mutex_unlock(&ear->mutex);
}
static void ear_await(ear_t* ear, int count) {
  qn__mutex_lock(&ear->mutex);
  while (ear->count < count) qn__cond_wait(&ear->heard, &ear->mutex);
  assert_int_equal(ear->count, count);
  qn__mutex_unlock(&ear->mutex);
}
static void ear_deinit(ear_t* ear) {
  qn__mutex_deinit(&ear->mutex);
  qn__cond_deinit(&ear->heard);
}

static void test_poll_and_wait(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated);
  qn_module_t* module = module_of("f", 5);
  qn_future_t* future = request(&gated, module, "f", QN_MISS_BLOCK, 0);
  qn_future_t* again = request(&gated, module, "f", QN_MISS_BLOCK, 0);
  assert_false(qn_future_is_ready(future));
  qn_function_t* function;
  must_fail(qn_future_wait(future, 0, NULL, &function), QN_STATUS_DEADLINE_EXCEEDED, "'f'");
  assert_null(function);
  must_fail(qn_future_wait(future, 1000000, NULL, &function), QN_STATUS_DEADLINE_EXCEEDED,
            "the lookup continues");
  gate_set(&gated.gate, true);
  qn_lookup_info_t info = {.struct_size = sizeof info};
  must(qn_future_wait(future, -1, &info, &function));
  assert_int_equal(call(function), 5);
  assert_int_equal(info.source, QN_SOURCE_COMPILED);
  assert_int_equal(info.tier, QN_TIER_FULL);
  assert_true(info.lookup_ns > 0 && info.compile_ns > 0 && strlen(info.key.hex) == 32);
  assert_true(qn_future_is_ready(future));
  // Asking again gives it again.
  qn_function_t* same;
  must(qn_future_wait(future, 0, NULL, &same));
  assert_ptr_equal(same, function);
  qn_function_release(same);
  qn_future_release(future);
  assert_int_equal(call(function), 5);
  qn_function_release(function);
  // The other one has a cell of its own, and was not the one that compiled.
  must(qn_future_wait(again, -1, &info, &function));
  assert_int_equal(info.source, QN_SOURCE_MEMORY);
  assert_int_equal(call(function), 5);
  qn_function_release(function);
  qn_future_release(again);
  // A memory hit is ready at once.
  future = request(&gated, module, "f", QN_MISS_FAIL, 1);
  assert_true(qn_future_is_ready(future));
  must(qn_future_wait(future, 0, NULL, &function));
  qn_function_release(function);
  qn_future_release(future);
  assert_int_equal(gate_started(&gated.gate), 1);
  assert_int_equal(counter_of(gated.engine, "requests"), 3);
  qn_module_release(module);
  gated_end(&gated);
}

static void test_errors(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated);
  gate_set(&gated.gate, true);
  qn_module_t* module = module_of("f", 5);
  qn_future_t* future = request(&gated, module, "g", QN_MISS_BLOCK, 0);
  qn_function_t* function;
  must_fail(qn_future_wait(future, -1, NULL, &function), QN_STATUS_NOT_FOUND, "'f'");
  must_fail(qn_future_wait(future, -1, NULL, &function), QN_STATUS_NOT_FOUND, "'f'");
  qn_future_release(future);
  must_fail(qn_engine_request(gated.engine, module, gated.target, NULL, NULL, &future),
            QN_STATUS_INVALID_ARGUMENT, "name");
  assert_null(future);
  qn_module_t* other = module_of("other", 1);
  future = request(&gated, other, "other", QN_MISS_FAIL, 0);
  must_fail(qn_future_wait(future, -1, NULL, &function), QN_STATUS_COMPILE_FORBIDDEN, "other@");
  qn_future_release(future);
  gated.gate.fails_with = QN_STATUS_UNSUPPORTED;
  for (int i = 0; i < 2; i++) {
    future = request(&gated, other, "other", QN_MISS_BLOCK, 0);
    must_fail(qn_future_wait(future, -1, NULL, &function), QN_STATUS_UNSUPPORTED, "want");
    qn_future_release(future);
  }
  assert_int_equal(counter_of(gated.engine, "failed_remembered"), 1);
  qn_future_release(NULL);
  qn_module_release(module);
  qn_module_release(other);
  gated_end(&gated);
}
// Checks that a lookup cancelled before its compile began is not compiled, unless another lookup
// waits for the same key.
static void test_cancel_before_it_begins(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated);
  qn_module_t* modules[] = {module_of("runs", 0), module_of("alone", 1), module_of("shared", 2)};
  qn_future_t* runs = request(&gated, modules[0], "runs", QN_MISS_BLOCK, 0);
  gate_await_started(&gated.gate, 1);
  qn_future_t* alone = request(&gated, modules[1], "alone", QN_MISS_BLOCK, 0);
  qn_future_t* shared = request(&gated, modules[2], "shared", QN_MISS_BLOCK, 0);
  qn_future_t* sharer = request(&gated, modules[2], "shared", QN_MISS_BLOCK, 0);
  await_queued(gated.engine, 2);
  ear_t ear;
  ear_init(&ear);
  qn_future_notify(alone, on_ready, &ear);
  qn_future_cancel(alone);
  ear_await(&ear, 1);
  await_queued(gated.engine, 1);
  qn_future_cancel(shared);
  qn_future_cancel(shared);  // again is nothing new
  await_queued(gated.engine, 1);
  qn_function_t* function;
  must_fail(qn_future_wait(alone, -1, NULL, &function), QN_STATUS_CANCELLED, "'alone'");
  must_fail(qn_future_wait(shared, -1, NULL, &function), QN_STATUS_CANCELLED, "'shared'");
  assert_true(qn_future_is_ready(shared));
  gate_set(&gated.gate, true);
  must(qn_future_wait(runs, -1, NULL, &function));
  qn_function_release(function);
  must(qn_future_wait(sharer, -1, NULL, &function));
  assert_int_equal(call(function), 2);
  qn_function_release(function);
  assert_int_equal(gate_started(&gated.gate), 2);
  assert_string_equal(gated.gate.log[1], "shared full");
  assert_int_equal(counter_of(gated.engine, "cancelled"), 2);
  // It can be asked for again.
  qn_future_t* later = request(&gated, modules[1], "alone", QN_MISS_BLOCK, 0);
  must(qn_future_wait(later, -1, NULL, &function));
  assert_int_equal(call(function), 1);
  qn_function_release(function);
  qn_future_t* all[] = {runs, alone, shared, sharer, later};
  for (size_t i = 0; i < 5; i++) qn_future_release(all[i]);
  for (size_t i = 0; i < 3; i++) qn_module_release(modules[i]);
  ear_deinit(&ear);
  gated_end(&gated);
}

static void test_cancel_while_it_compiles(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated);
  qn_module_t* module = module_of("f", 6);
  qn_future_t* future = request(&gated, module, "f", QN_MISS_BLOCK, 0);
  gate_await_started(&gated.gate, 1);
  qn_future_cancel(future);
  qn_function_t* function;
  must_fail(qn_future_wait(future, -1, NULL, &function), QN_STATUS_CANCELLED, "'f'");
  qn_future_release(future);
  gate_set(&gated.gate, true);
  // The compile continues; its result goes to memory and the cache.
  qn_lookup_info_t info = {.struct_size = sizeof info};
  must(qn_engine_function(gated.engine, module, gated.target, "f", NULL, &info, &function));
  assert_int_equal(call(function), 6);
  qn_function_release(function);
  assert_true(qn_engine_flush(gated.engine, 3600 * SECOND));
  assert_true(qn_engine_unload(gated.engine, module, gated.target, NULL));
  must(qn_engine_function(gated.engine, module, gated.target, "f", NULL, &info, &function));
  assert_int_equal(info.source, QN_SOURCE_DISK);
  qn_function_release(function);
  assert_int_equal(gate_started(&gated.gate), 1);
  qn_module_release(module);
  gated_end(&gated);
}

// Checks that a lookup continues when its future is released without a cancel.
static void test_release_is_no_cancel(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated);
  qn_module_t* modules[] = {module_of("runs", 0), module_of("queued", 1)};
  qn_future_release(request(&gated, modules[0], "runs", QN_MISS_BLOCK, 0));
  gate_await_started(&gated.gate, 1);
  qn_future_release(request(&gated, modules[1], "queued", QN_MISS_BLOCK, 0));
  gate_set(&gated.gate, true);
  gate_await_ended(&gated.gate, 2);
  qn_module_release(modules[0]);
  qn_module_release(modules[1]);
  gated_end(&gated);
}

static void test_notify(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated);
  qn_module_t* module = module_of("f", 6);
  ear_t ear;
  ear_init(&ear);
  qn_future_t* future = request(&gated, module, "f", QN_MISS_BLOCK, 0);
  qn_future_notify(future, on_ready, &ear);
  gate_await_started(&gated.gate, 1);
  assert_int_equal(ear.count, 0);
  gate_set(&gated.gate, true);
  ear_await(&ear, 1);
  assert_true(qn_future_is_ready(future));
  qn_function_t* function;
  must(qn_future_wait(future, 0, NULL, &function));
  qn_function_release(function);
  // At once when it is ready already.
  qn_future_notify(future, on_ready, &ear);
  ear_await(&ear, 2);
  qn_future_release(future);
  qn_module_release(module);
  ear_deinit(&ear);
  gated_end(&gated);
}

// Checks a timeout while the compile hangs: waiters, polls and callbacks get it.
static void test_out_of_time(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated);
  qn_module_t* modules[] = {module_of("hangs", 1), module_of("queued", 2)};
  ear_t ears[3];
  qn_future_t* futures[3];
  for (int i = 0; i < 3; i++) {
    ear_init(&ears[i]);
    // The latest is asked for first, so that the earlier ones must wake the clock's thread.
    futures[i] = request(&gated, modules[i > 0], i > 0 ? "queued" : "hangs", QN_MISS_BLOCK,
                         i == 0 ? 30000000 : 10000000);
    qn_future_notify(futures[i], on_ready, &ears[i]);
  }
  qn_function_t* function;
  for (int i = 0; i < 3; i++) {
    ear_await(&ears[i], 1);
    assert_true(qn_future_is_ready(futures[i]));
    must_fail(qn_future_wait(futures[i], -1, NULL, &function), QN_STATUS_DEADLINE_EXCEEDED,
              "continues in the background");
  }
  // Without a callback the timeout is detected at the next query.
  qn_future_t* late = request(&gated, modules[0], "hangs", QN_MISS_BLOCK, 1);
  must_fail(qn_future_wait(late, -1, NULL, &function), QN_STATUS_DEADLINE_EXCEEDED, "0.000 ms");
  qn_future_release(late);
  gate_set(&gated.gate, true);
  gate_await_ended(&gated.gate, 2);
  for (int i = 0; i < 3; i++) {
    qn_future_release(futures[i]);
    ear_deinit(&ears[i]);
  }
  qn_module_release(modules[0]);
  qn_module_release(modules[1]);
  gated_end(&gated);
}

// Engines that end, and futures that outlive them, with alarms that never rang.
static void test_after_the_engine(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated);
  gate_set(&gated.gate, true);
  qn_module_t* module = module_of("f", 6);
  ear_t ear;
  ear_init(&ear);
  enum { count = 20 };
  qn_future_t* futures[count];
  for (int i = 0; i < count; i++) {
    futures[i] = request(&gated, module, "f", QN_MISS_BLOCK, 3600 * SECOND);
    qn_future_notify(futures[i], on_ready, &ear);
  }
  qn_engine_destroy(gated.engine);
  ear_await(&ear, count);
  for (int i = 0; i < count; i++) {
    qn_function_t* function;
    qn_status_t status = qn_future_wait(futures[i], 0, NULL, &function);
    if (qn_ok(status)) {
      assert_int_equal(call(function), 6);
    } else {
      must_fail(status, QN_STATUS_CANCELLED, "is being destroyed");
    }
    qn_function_release(function);
    qn_future_cancel(futures[i]);
    qn_future_release(futures[i]);
  }
  must(qn_engine_create(NULL, &gated.engine));
  qn_module_release(module);
  ear_deinit(&ear);
  gated_end(&gated);
}

// Many threads that ask, cancel and release at once.
typedef struct stirrer {
  pthread_t thread;
  gated_t* gated;
  qn_module_t** modules;
  unsigned seed;
} stirrer_t;

enum { stir_modules = 8, stir_rounds = 200 };

static void* stir(void* arg) {
  stirrer_t* self = arg;
  for (int i = 0; i < stir_rounds; i++) {
    int number = (int)(rand_r(&self->seed) % stir_modules);
    qn_future_t* future = request(self->gated, self->modules[number], "f",
                                  rand_r(&self->seed) % 4 == 0 ? QN_MISS_FAIL : QN_MISS_BLOCK,
                                  rand_r(&self->seed) % 3 == 0 ? 50000 : 0);
    if (rand_r(&self->seed) % 3 == 0) qn_future_cancel(future);
    qn_function_t* function;
    qn_status_t status = qn_future_wait(future, rand_r(&self->seed) % 2 ? -1 : 0, NULL, &function);
    if (qn_ok(status)) assert_int_equal(call(function), number);
    qn_status_free(status);
    qn_function_release(function);
    qn_future_release(future);
    if (rand_r(&self->seed) % 5 == 0) {
      (void)qn_engine_unload(self->gated->engine, self->modules[number], self->gated->target, NULL);
    }
  }
  return NULL;
}

static void test_stirred(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated);
  gate_set(&gated.gate, true);
  qn_module_t* modules[stir_modules];
  for (int i = 0; i < stir_modules; i++) modules[i] = module_of("f", i);
  stirrer_t stirrers[4];
  for (unsigned i = 0; i < 4; i++) {
    stirrers[i] = (stirrer_t){.gated = &gated, .modules = modules, .seed = i + 1};
    must(qn__thread_start(&stirrers[i].thread, "stirrer", 0, stir, &stirrers[i]));
  }
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(stirrers[i].thread, NULL), 0);
  for (int i = 0; i < stir_modules; i++) qn_module_release(modules[i]);
  gated_end(&gated);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_poll_and_wait),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_cancel_before_it_begins),
      cmocka_unit_test(test_cancel_while_it_compiles),
      cmocka_unit_test(test_release_is_no_cancel),
      cmocka_unit_test(test_notify),
      cmocka_unit_test(test_out_of_time),
      cmocka_unit_test(test_after_the_engine),
      cmocka_unit_test(test_stirred),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
