// SPDX-License-Identifier: Apache-2.0
// Tests waiting in lookups: one compile per key, parallel compiles and priorities, lookups with a
// time limit or without waiting, hanging file systems and other processes, and failing allocations.
// Nothing is timed: operations that must not be waited for hang until the call returns.
// ctest-labels: tsan
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "tests/support/fault.h"
#include "tests/unit/jit/support_gate.h"

static const qn_setting_t one_thread[] = {{"compile_threads", "1"}};
static const qn_setting_t two_threads[] = {{"compile_threads", "2"}};

// ---- single flight

static void test_one_compile_for_many(void** state) {
  (void)state;
  enum { count = 16 };
  gated_t gated;
  gated_begin_with(&gated, two_threads, 1);
  qn_module_t* module = module_of("f", 7);
  seeker_t seekers[count];
  for (int i = 0; i < count; i++) seeker_start(&seekers[i], &gated, module, "f", NULL);
  gate_await_started(&gated.gate, 1);
  gate_set(&gated.gate, true);
  int compiled = 0;
  for (int i = 0; i < count; i++) {
    seeker_join_value(&seekers[i], 7);
    compiled += seekers[i].info.source == QN_SOURCE_COMPILED;
    assert_int_equal(strlen(seekers[i].info.key.hex), 32);
    assert_int_equal(seekers[i].info.tier, QN_TIER_FULL);
  }
  assert_int_equal(compiled, 1);
  assert_int_equal(gate_started(&gated.gate), 1);
  assert_int_equal(counter_of(gated.engine, "compiles"), 1);
  qn_module_release(module);
  gated_end(&gated);
}

static void test_two_keys_in_parallel(void** state) {
  (void)state;
  gated_t gated;
  gated_begin_with(&gated, two_threads, 1);
  qn_module_t* modules[] = {module_of("a", 1), module_of("b", 2)};
  seeker_t seekers[2];
  seeker_start(&seekers[0], &gated, modules[0], "a", NULL);
  seeker_start(&seekers[1], &gated, modules[1], "b", NULL);
  gate_await_started(&gated.gate, 2);  // both, while the gate is closed
  gate_set(&gated.gate, true);
  for (int i = 0; i < 2; i++) {
    seeker_join_value(&seekers[i], i + 1);
    qn_module_release(modules[i]);
  }
  gated_end(&gated);
}

static void test_priorities(void** state) {
  (void)state;
  gated_t gated;
  gated_begin_with(&gated, one_thread, 1);
  static const char* const names[] = {"first", "low", "high", "raised"};
  static const int32_t priorities[] = {0, 0, 5, 0};
  qn_module_t* modules[4];
  qn_future_t* futures[4];
  for (int i = 0; i < 4; i++) {
    modules[i] = module_of(names[i], i);
    futures[i] = gated_request(&gated, modules[i], names[i], priorities[i]);
    if (i == 0) gate_await_started(&gated.gate, 1);
    if (i > 0) await_queued(gated.engine, (uint32_t)i);
  }
  // A lookup with a higher priority waits for a compile that is already queued.
  qn_future_t* hurried = gated_request(&gated, modules[3], "raised", 9);
  gate_set(&gated.gate, true);
  for (int i = 0; i < 4; i++) await_value(futures[i], i);
  await_value(hurried, 3);
  static const char* const expected[] = {"first full", "raised full", "high full", "low full"};
  for (int i = 0; i < 4; i++) {
    assert_string_equal(gated.gate.log[i], expected[i]);
    qn_module_release(modules[i]);
  }
  gated_end(&gated);
}

// ---- lookups that must not wait

static void test_fail_does_not_wait(void** state) {
  (void)state;
  gated_t gated;
  gated_begin_with(&gated, one_thread, 1);
  qn_module_t* module = module_of("f", 3);
  qn_lookup_options_t fail = lookup_with(QN_MISS_FAIL, 0, 0);
  must_fail(gated_look_up(&gated, module, "f", &fail, NULL), QN_STATUS_COMPILE_FORBIDDEN,
            ", target interp)");
  assert_int_equal(gate_started(&gated.gate), 0);
  seeker_t seeker;
  seeker_start(&seeker, &gated, module, "f", NULL);
  gate_await_started(&gated.gate, 1);
  // The compile runs and hangs: neither of these waits for it.
  must_fail(gated_look_up(&gated, module, "f", &fail, NULL), QN_STATUS_COMPILE_FORBIDDEN, "f@");
  fail.time_limit_ns = SECOND * 3600;
  must_fail(gated_look_up(&gated, module, "f", &fail, NULL), QN_STATUS_COMPILE_FORBIDDEN, "f@");
  gate_set(&gated.gate, true);
  seeker_join_value(&seeker, 3);
  qn_lookup_info_t info = {.struct_size = sizeof info};
  must(gated_look_up(&gated, module, "f", &fail, &info));
  assert_int_equal(info.source, QN_SOURCE_MEMORY);
  assert_int_equal(counter_of(gated.engine, "compiles_forbidden"), 3);
  qn_module_release(module);
  gated_end(&gated);
}

static void test_deadline_and_then_the_cache(void** state) {
  (void)state;
  gated_t gated;
  gated_begin_with(&gated, one_thread, 1);
  qn_module_t* module = module_of("f", 4);
  qn_lookup_options_t soon = lookup_with(QN_MISS_BLOCK, 1000000, 0);
  must_fail(gated_look_up(&gated, module, "f", &soon, NULL), QN_STATUS_DEADLINE_EXCEEDED,
            "continues in the background");
  assert_int_equal(counter_of(gated.engine, "deadline_exceeded"), 1);
  // The compile continues without a waiter.
  gate_await_started(&gated.gate, 1);
  seeker_t patient;
  seeker_start(&patient, &gated, module, "f", NULL);
  must_fail(gated_look_up(&gated, module, "f", &soon, NULL), QN_STATUS_DEADLINE_EXCEEDED,
            "is not ready within 1.000 ms; the lookup continues in the background (key ");
  gate_set(&gated.gate, true);
  seeker_join_value(&patient, 4);
  soon.time_limit_ns = SECOND * 3600;
  qn_lookup_info_t info = {.struct_size = sizeof info};
  must(gated_look_up(&gated, module, "f", &soon, &info));
  assert_int_equal(info.source, QN_SOURCE_MEMORY);
  assert_int_equal(gate_started(&gated.gate), 1);
  // And it is in the directory, from where a lookup with a deadline reads on another thread.
  assert_true(qn_engine_flush(gated.engine, 3600 * SECOND));
  assert_true(qn_engine_unload(gated.engine, module, gated.target, NULL));
  must(gated_look_up(&gated, module, "f", &soon, &info));
  assert_int_equal(info.source, QN_SOURCE_DISK);
  qn_module_release(module);
  gated_end(&gated);
}

static void test_bad_options(void** state) {
  (void)state;
  gated_t gated;
  gated_begin_with(&gated, one_thread, 1);
  qn_module_t* module = module_of("f", 4);
  qn_lookup_options_t options = lookup_with(QN_MISS_BLOCK, -1, 0);
  must_fail(gated_look_up(&gated, module, "f", &options, NULL), QN_STATUS_INVALID_ARGUMENT,
            "time_limit_ns");
  options = lookup_with((qn_miss_policy_t)7, 0, 0);
  must_fail(gated_look_up(&gated, module, "f", &options, NULL), QN_STATUS_INVALID_ARGUMENT,
            "miss: 7");
  qn_future_t* future;
  must_fail(qn_engine_request(gated.engine, module, gated.target, "f", &options, &future),
            QN_STATUS_INVALID_ARGUMENT, "miss: 7");
  assert_null(future);
  qn_module_release(module);
  gated_end(&gated);
}

// ---- file systems and processes that hang

static struct {
  _Atomic bool is_on;
  _Atomic int held_count;
} files;

static void hold_files(void* self, const char* call_name, const char* path) {
  (void)self;
  if (!files.is_on || strcmp(call_name, "open") != 0 || !strstr(path, ".k")) return;
  files.held_count++;
  while (files.is_on) usleep(100);
  files.held_count--;
}

static void test_hanging_file_system(void** state) {
  (void)state;
  gated_t gated;
  files.is_on = false;
  qn_fault_fs_install();
  qn_fault_fs_hook(hold_files, NULL);
  gated_begin_with(&gated, one_thread, 1);
  gate_set(&gated.gate, true);
  qn_module_t* module = module_of("f", 5);
  qn_module_t* ready = module_of("ready", 6);
  must(gated_look_up(&gated, ready, "ready", NULL, NULL));
  assert_true(qn_engine_flush(gated.engine, 3600 * SECOND));
  files.is_on = true;
  static const qn_miss_policy_t policies[] = {QN_MISS_BLOCK, QN_MISS_FALLBACK, QN_MISS_FAIL};
  // Nothing compiles for FAIL alone, and what BLOCK and FALLBACK have begun continues to a compile.
  qn_module_t* uncompiled = module_of("g", 7);
  qn_lookup_options_t fail = lookup_with(QN_MISS_FAIL, 2000000, 0);
  must_fail(gated_look_up(&gated, uncompiled, "g", &fail, NULL), QN_STATUS_DEADLINE_EXCEEDED,
            "without a compile");
  qn_module_release(uncompiled);
  static const char* const continuations[] = {"the lookup continues", "the lookup continues",
                                              "another lookup continues and may compile it"};
  for (size_t i = 0; i < 3; i++) {
    qn_lookup_options_t soon = lookup_with(policies[i], 2000000, 0);
    must_fail(gated_look_up(&gated, module, "f", &soon, NULL), QN_STATUS_DEADLINE_EXCEEDED,
              continuations[i]);
    must(gated_look_up(&gated, ready, "ready", &soon, NULL));  // from memory
  }
  // The operation continues without a waiter, and hangs.
  while (files.held_count == 0) usleep(100);
  qn_lookup_options_t soon = lookup_with(QN_MISS_BLOCK, 2000000, 0);
  qn_future_t* future;
  must(qn_engine_request(gated.engine, module, gated.target, "f", &soon, &future));
  qn_function_t* function;
  must_fail(qn_future_wait(future, -1, NULL, &function), QN_STATUS_DEADLINE_EXCEEDED, "'f'");
  qn_future_release(future);
  assert_true(files.held_count > 0);
  files.is_on = false;
  must(gated_look_up(&gated, module, "f", NULL, NULL));
  qn_module_release(module);
  qn_module_release(ready);
  gated_end(&gated);
  qn_fault_fs_hook(NULL, NULL);
  qn_fault_fs_remove();
}

// Another engine on the same directory, as another process would be, holds the key and hangs.
static void test_hanging_holder(void** state) {
  (void)state;
  gated_t holder, other;
  gated_begin_with(&holder, one_thread, 1);
  const qn_setting_t settings[] = {{"compile_threads", "1"}, {"lock_timeout", "20ms"}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = holder.directory,
                                 .settings = settings,
                                 .setting_count = 2};
  gated_begin(&other, &options);
  gate_set(&other.gate, true);
  qn_module_t* module = module_of("f", 8);
  seeker_t seeker;
  seeker_start(&seeker, &holder, module, "f", NULL);
  gate_await_started(&holder.gate, 1);
  // It waits for the bound and then compiles by itself; the holder hangs still.
  must(gated_look_up(&other, module, "f", NULL, NULL));
  assert_int_equal(gate_started(&other.gate), 1);
  gate_set(&holder.gate, true);
  seeker_join_value(&seeker, 8);
  qn_module_release(module);
  gated_end(&other);
  gated_end(&holder);
}

// Checks that while a task waits for another process its slot serves other keys, and that the other
// process's result is not compiled again.
static void test_waiting_for_a_holder_stops_nobody(void** state) {
  (void)state;
  gated_t holder, other;
  gated_begin_with(&holder, one_thread, 1);
  const qn_setting_t settings[] = {{"compile_threads", "1"}, {"lock_timeout", "3600s"}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = holder.directory,
                                 .settings = settings,
                                 .setting_count = 2};
  gated_begin(&other, &options);
  gate_set(&other.gate, true);
  qn_module_t* module = module_of("f", 8);
  qn_module_t* free_module = module_of("g", 9);
  seeker_t seeker, waiter;
  seeker_start(&seeker, &holder, module, "f", NULL);
  gate_await_started(&holder.gate, 1);
  seeker_start(&waiter, &other, module, "f", NULL);
  // Until it waits.
  for (;;) {
    qn__mutex_lock(&other.engine->pool.mutex);
    bool waits = other.engine->pool.lent_count == 1;
    qn__mutex_unlock(&other.engine->pool.mutex);
    if (waits) break;
    usleep(100);
  }
  must(gated_look_up(&other, free_module, "g", NULL, NULL));
  gate_set(&holder.gate, true);
  seeker_join_value(&seeker, 8);
  seeker_join_value(&waiter, 8);
  assert_int_equal(waiter.info.source, QN_SOURCE_DISK);
  assert_int_equal(counter_of(other.engine, "compiles"), 1);
  assert_int_equal(counter_of(other.engine, "claimed_hits"), 1);
  qn_module_release(module);
  qn_module_release(free_module);
  gated_end(&other);
  gated_end(&holder);
}

// ---- memory that runs out

typedef struct walk {
  qn_miss_policy_t miss;
  int64_t timeout_ns;
  bool is_request;
} walk_t;

static bool look_up_with(qn_allocator_t allocator, void* user) {
  const walk_t* walk = user;
  gated_t gated;
  memset(&gated, 0, sizeof gated);
  must(qn__mutex_init(&gated.gate.mutex));
  must(qn__cond_init(&gated.gate.moved));
  gated.gate.is_open = true;
  must(qn_target_parse("interp", &gated.target));
  qn_module_t* module = module_of("f", 3);
  qn_module_t* generic = module_of("f", 4);
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .allocator = allocator,
                                 .cache_mode = QN_CACHE_OFF,
                                 .settings = two_threads,
                                 .setting_count = 1,
                                 .ignores_environment = true};
  qn_lookup_options_t lookup = lookup_with(walk->miss, walk->timeout_ns, 0);
  lookup.generic = generic;
  qn_function_t* function = NULL;
  qn_future_t* future = NULL;
  qn_status_t status = qn_engine_create(&options, &gated.engine);
  if (qn_ok(status)) gate_install(&gated.gate, gated.engine);
  if (qn_ok(status) && walk->is_request) {
    status = qn_engine_request(gated.engine, module, gated.target, "f", &lookup, &future);
    if (qn_ok(status)) status = qn_future_wait(future, -1, NULL, &function);
  } else if (qn_ok(status)) {
    status = qn_engine_function(gated.engine, module, gated.target, "f", &lookup, NULL, &function);
  }
  qn_status_code_t code = qn_status_consume(status);
  bool is_right = walk->miss == QN_MISS_FAIL
                      ? code == QN_STATUS_COMPILE_FORBIDDEN || code == QN_STATUS_OUT_OF_MEMORY
                      : code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY;
  if (function) is_right = is_right && call(function) == 3;
  qn_function_release(function);
  qn_future_release(future);
  qn_engine_destroy(gated.engine);
  qn_module_release(module);
  qn_module_release(generic);
  qn_target_release(gated.target);
  qn__mutex_deinit(&gated.gate.mutex);
  qn__cond_deinit(&gated.gate.moved);
  return is_right;
}

static void test_out_of_memory(void** state) {
  (void)state;
  const walk_t walks[] = {{QN_MISS_BLOCK, 0, false},    {QN_MISS_BLOCK, 3600 * SECOND, false},
                          {QN_MISS_FALLBACK, 0, false}, {QN_MISS_FALLBACK, 3600 * SECOND, false},
                          {QN_MISS_FAIL, 0, false},     {QN_MISS_FAIL, 3600 * SECOND, false},
                          {QN_MISS_BLOCK, 0, true},     {QN_MISS_BLOCK, 3600 * SECOND, true}};
  for (size_t i = 0; i < QN_COUNT_OF(walks); i++) {
    walk_t walk = walks[i];
    long runs = qn_fault_walk_alloc(look_up_with, &walk);
    if (runs <= 10) fail_msg("walk %zu: %ld", i, runs);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_compile_for_many),
      cmocka_unit_test(test_two_keys_in_parallel),
      cmocka_unit_test(test_priorities),
      cmocka_unit_test(test_fail_does_not_wait),
      cmocka_unit_test(test_deadline_and_then_the_cache),
      cmocka_unit_test(test_bad_options),
      cmocka_unit_test(test_hanging_file_system),
      cmocka_unit_test(test_hanging_holder),
      cmocka_unit_test(test_waiting_for_a_holder_stops_nobody),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
