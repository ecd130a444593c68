// SPDX-License-Identifier: Apache-2.0
// Tests adaptive functions while their engine, their tables and the memory go, and while threads
// call them and a process forks: the last ones have the background's own thread. ctest-labels: tsan
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "quern/ir.h"
#include "tests/support/sanitized.h"
#include "tests/unit/jit/support_adaptive.h"

static void test_a_function_outlives_its_engine(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  world_make_for_n(&world);
  world_bring_to_end(&world, 1, 3, 1, "n=3");
  world_bring_to_trial(&world, 1, 4, 1, "n=4");
  qn_engine_destroy(world.gated.engine);
  world.gated.engine = NULL;
  world_call(&world, 1, 3, 1, 300);
  world_call(&world, 1, 4, 1, 300);
  world_call(&world, 1, 5, 1, 300);
  world_end(&world);
}

static _Atomic int allocations_left;  // negative: all succeed

static void* allocate_some(void* self, void* pointer, size_t old_bytes, size_t new_bytes) {
  (void)self;
  (void)old_bytes;
  if (new_bytes == 0) {
    free(pointer);
    return NULL;
  }
  if (atomic_load(&allocations_left) >= 0 && atomic_fetch_sub(&allocations_left, 1) == 0) {
    return NULL;
  }
  return realloc(pointer, new_bytes);
}

// The n-th allocation fails, for each n: nothing leaks, and calls go on.
static void test_without_memory(void** state) {
  (void)state;
  bool has_failed = true;
  for (int n = 0; has_failed; n++) {
    world_t world;
    atomic_store(&allocations_left, -1);
    qn_engine_options_t options = {.struct_size = sizeof options,
                                   .allocator = {NULL, allocate_some}};
    world_begin_with(&world, &options);
    const qn_adaptive_name_t name = {.name = "n"};
    qn_adaptive_options_t adaptive = {
        .struct_size = sizeof adaptive, .names = &name, .name_count = 1};
    atomic_store(&allocations_left, n);
    qn_status_t status =
        qn_engine_adaptive_function(world.gated.engine, world.module, world.gated.target, "f",
                                    &adaptive, NULL, &world.function);
    if (qn_ok(status)) {
      qn__dispatch_set_period(qn__function_dispatch(world.function), 1);
      for (int i = 0; i < 4; i++) {
        world_call(&world, 1, 3, 1, 64);
        (void)world_step(&world);
      }
    } else {
      assert_null(world.function);
      assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_MEMORY);
    }
    qn_status_free(status);
    has_failed = atomic_exchange(&allocations_left, -1) < 0;
    if (!has_failed) world_assert_state(&world, "n=3", QN_VARIANT_KEPT, "");
    world_end(&world);
  }
}

static void test_released_functions_are_forgotten(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  world_make_for_n(&world);
  world_bring_to_end(&world, 1, 3, 1, "n=3");
  qn_function_release(world.function);
  world.function = NULL;
  assert_int_equal(world.gated.engine->background.variant_count, 1);
  assert_false(world_step(&world));
  assert_null(world.gated.engine->background.first);
  assert_int_equal(world.gated.engine->background.variant_count, 0);
  world_end(&world);
}

// A table that a call holds is not released under it: the call goes on while variants change.
static void test_old_tables_wait_for_calls(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  world_make_for_n(&world);
  qn__dispatch_t* dispatch = qn__function_dispatch(world.function);
  qn_function_t* special;
  const char* const names[] = {"n"};
  const int64_t value = 3;
  const uint64_t word = 3;
  qn_module_t* module;
  must(qn_module_specialize(world.module, names, &value, 1, &module));
  must(qn_engine_function(world.gated.engine, module, world.gated.target, "f", NULL, NULL,
                          &special));
  // As if a call had entered: its thread was stopped there.
  must(qn__dispatch_set(dispatch, 0, &word, special, false));
  qn__dispatch_hold(dispatch);
  qn_status_t status = QN_OK;
  int changes = 0;
  while (qn_ok(status)) {
    status = qn__dispatch_set(dispatch, 0, &word, special, false);
    changes += qn_ok(status);
    assert_true(changes < 100);
  }
  must_fail(status, QN_STATUS_FAILED_PRECONDITION, "old tables");
  world_call(&world, 1, 3, 1, 3);
  qn__dispatch_unhold(dispatch);
  must(qn__dispatch_clear(dispatch, 0));
  world_call(&world, 1, 3, 1, 3);
  qn_function_release(special);
  qn_module_release(module);
  world_end(&world);
}

typedef struct caller {
  pthread_t thread;
  qn_function_t* function;
  _Atomic bool* has_ended;
  _Atomic int* phase;
  uint32_t seed;
  uint64_t wrong_count;
} caller_t;

static void* call_many(void* arg) {
  caller_t* caller = arg;
  int32_t y[8];
  while (!atomic_load(caller->has_ended)) {
    caller->seed = caller->seed * 1664525u + 1013904223u;
    int64_t n = 1 + atomic_load(caller->phase) + (int64_t)(caller->seed >> 24) % 3;
    if (!qn_ok(adaptive_call(caller->function, NULL, 1, n, 1, y))) caller->wrong_count++;
    for (int64_t i = 0; i < n; i++) caller->wrong_count += y[i] != 1 + 10 * n + 100;
  }
  qn_function_release(caller->function);
  return NULL;
}

static _Atomic uint32_t random_state;

// Variants prove faster or slower by chance.
static void chance(qn__dispatch_sample_t* sample) {
  if (sample->duration_ns < 0) return;
  uint32_t seed = atomic_fetch_add(&random_state, 2654435761u);
  bool is_generic = sample->slot == QN__DISPATCH_MAX_CASES;
  bool is_good = ((uint32_t)sample->words[0] * 2654435761u >> 16) % 3 != 0;
  sample->duration_ns = (is_generic == is_good ? 100 : 50) * MILLISECOND + (seed >> 28);
}

// Makes time pass, so that variants are dropped, too.
static _Atomic int64_t leaping_ns;
static int64_t leaping_now(void) {
  return atomic_fetch_add(&leaping_ns, 7 * SECOND);
}

// Callers in threads while variants are made, kept, banned and dropped; then the engine and at
// last the function go. The background's own thread does its work.
static void test_callers_in_threads(void** state) {
  (void)state;
  world_t world;
  const qn_setting_t settings[] = {{"special_budget", "100"}, {"special_limit", "3"}};
  world_begin(&world, settings, 2);
  qn__background_t* background = &world.gated.engine->background;
  atomic_store(&leaping_ns, SECOND);
  background->is_manual = false;
  background->now_ns = leaping_now;
  background->on_sample = chance;
  background->period_ns = MILLISECOND;
  world_make_for_n(&world);
  // Which values calls have, so that variants are no longer used.
  _Atomic int phase = 0;
  int64_t moved_ns = 0;
  _Atomic bool has_ended = false;
  caller_t callers[3];
  for (int i = 0; i < 3; i++) {
    callers[i] = (caller_t){.function = world.function,
                            .has_ended = &has_ended,
                            .phase = &phase,
                            .seed = (uint32_t)i * 77u};
    qn_function_retain(world.function);
    must(qn__thread_start(&callers[i].thread, "caller", 0, call_many, &callers[i]));
  }
  // This thread calls, too, so that there are samples however others are scheduled.
  for (int i = 0;
       world_counter(&world, "variants_kept") < 3 || world_counter(&world, "variants_banned") < 1 ||
       world_counter(&world, "variants_dropped") < 1;
       i++) {
    if (i % 16 == 0) usleep(200);
    int64_t now_ns = atomic_load(&leaping_ns);
    if (now_ns - moved_ns > 600 * SECOND) {
      moved_ns = now_ns;
      atomic_store(&phase, (atomic_load(&phase) + 3) % 6);
    }
    qn_engine_busy_begin(world.gated.engine);
    world_call(&world, 1, 1 + atomic_load(&phase) + i / 64 % 3, 1, 1);
    qn_engine_busy_end(world.gated.engine);
    if (i % 100 == 0) (void)world_look(&world, "n=1");
  }
  qn_engine_destroy(world.gated.engine);
  world.gated.engine = NULL;
  world_call(&world, 1, 3, 1, 50);
  qn_function_release(world.function);
  world.function = NULL;
  atomic_store(&has_ended, true);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
    assert_int_equal(callers[i].wrong_count, 0);
  }
  world_end(&world);
}

// A child of fork serves with its variants, and makes others after qn_engine_busy_end.
static void test_fork(void** state) {
  (void)state;
  world_t world;
  const qn_setting_t settings[] = {{"special_budget", "100"}};
  world_begin(&world, settings, 1);
  world.gated.engine->background.is_manual = false;
  world.gated.engine->background.period_ns = MILLISECOND;
  world_make_for_n(&world);
  while (world_counter(&world, "variants_kept") < 1) world_call(&world, 1, 3, 1, 16);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    uint64_t kept = world_counter(&world, "variants_kept");
    world_call(&world, 1, 3, 1, 100);
    // ThreadSanitizer starts no thread in a child of a process with threads.
    if (!IS_SANITIZED) {
      qn_engine_busy_end(world.gated.engine);
      while (world_counter(&world, "variants_kept") == kept) world_call(&world, 1, 4, 1, 16);
    }
    qn_function_release(world.function);
    qn_engine_destroy(world.gated.engine);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  world_call(&world, 1, 3, 1, 100);
  world_end(&world);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_function_outlives_its_engine),
      cmocka_unit_test(test_without_memory),
      cmocka_unit_test(test_released_functions_are_forgotten),
      cmocka_unit_test(test_old_tables_wait_for_calls),
      cmocka_unit_test(test_callers_in_threads),
      cmocka_unit_test(test_fork),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
