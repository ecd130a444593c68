// SPDX-License-Identifier: Apache-2.0
// Tests the policy FALLBACK: which variant is returned when, its results, the later replacement by
// a better variant, and a failure of that.
// ctest-labels: tsan
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/jit/support_gate.h"

static void begin(gated_t* gated, bool is_forbidden) {
  const qn_setting_t settings[] = {{"compile_threads", "1"},
                                   {"jit", is_forbidden ? "forbid" : "allow"}};
  gated_begin_with(gated, settings, 2);
}

static qn_lookup_options_t fallback(qn_tier_t tier, int64_t timeout_ns, qn_module_t* generic) {
  return (qn_lookup_options_t){.struct_size = sizeof(qn_lookup_options_t),
                               .tier = tier,
                               .miss = QN_MISS_FALLBACK,
                               .time_limit_ns = timeout_ns,
                               .generic = generic};
}

// "func NAME(out y: i32[SHAPE])", which writes VALUE.
static qn_module_t* shaped(const char* name, const char* shape, int value) {
  char text[256];
  (void)snprintf(text, sizeof text, "func %s(out y: i32[%s]) { for i in 0..%s { y[i] = %d; } }\n",
                 name, shape, shape, value);
  qn_module_t* module;
  must(qn_module_parse(text, strlen(text), NULL, &module));
  return module;
}

static void compile_now(gated_t* gated, qn_module_t* module, qn_tier_t tier) {
  qn_lookup_options_t options = {.struct_size = sizeof options, .tier = tier};
  qn_executable_t* executable;
  must(qn_engine_executable(gated->engine, module, gated->target, &options, NULL, &executable));
  qn_executable_release(executable);
}

static void await_rank(qn_function_t* function, qn__rank_t rank) {
  while (qn__function_rank(function) < rank) usleep(100);
  assert_int_equal(qn__function_rank(function), rank);
}

static void get(gated_t* gated, qn_module_t* module, const qn_lookup_options_t* options,
                qn_lookup_info_t* info, qn_function_t** function) {
  must(qn_engine_function(gated->engine, module, gated->target, "f", options, info, function));
}

static void test_what_was_asked_for(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, false);
  gate_set(&gated.gate, true);
  qn_module_t* module = shaped("f", "3", 1);
  compile_now(&gated, module, QN_TIER_FULL);
  qn_lookup_options_t options = fallback(QN_TIER_FULL, 0, NULL);
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_function_t* function;
  get(&gated, module, &options, &info, &function);
  assert_int_equal(info.source, QN_SOURCE_MEMORY);
  assert_false(info.is_fallback);
  assert_int_equal(qn__function_rank(function), QN__RANK_ASKED);
  qn_function_release(function);
  // From the directory, with and without a deadline.
  assert_true(qn_engine_flush(gated.engine, 3600 * SECOND));
  for (int i = 0; i < 2; i++) {
    options.time_limit_ns = i * 3600 * SECOND;
    assert_true(qn_engine_unload(gated.engine, module, gated.target, NULL));
    get(&gated, module, &options, &info, &function);
    assert_int_equal(info.source, QN_SOURCE_DISK);
    assert_false(info.is_fallback);
    assert_int_equal(call(function), 1);
    qn_function_release(function);
  }
  assert_int_equal(gate_started(&gated.gate), 1);
  assert_int_equal(counter_of(gated.engine, "fallbacks"), 0);
  qn_module_release(module);
  gated_end(&gated);
}

// The fast tier is there: it is given at once while the full one hangs, and the cell changes when
// that lands.
static void test_the_other_tier(void** state) {
  (void)state;
  for (int round = 0; round < 4; round++) {
    gated_t gated;
    begin(&gated, false);
    gated.gate.only_tier = QN_TIER_FULL;
    qn_module_t* module = shaped("f", "3", 1);
    compile_now(&gated, module, QN_TIER_FAST);
    bool is_on_disk = round % 2;
    if (is_on_disk) {
      qn_lookup_options_t fast = {.struct_size = sizeof fast, .tier = QN_TIER_FAST};
      assert_true(qn_engine_flush(gated.engine, 3600 * SECOND));
      assert_true(qn_engine_unload(gated.engine, module, gated.target, &fast));
    }
    qn_lookup_options_t options = fallback(0, round / 2 ? 3600 * SECOND : 0, NULL);
    qn_lookup_info_t info = {.struct_size = sizeof info};
    qn_function_t* function;
    get(&gated, module, &options, &info, &function);
    assert_true(info.is_fallback);
    assert_int_equal(info.tier, QN_TIER_FAST);
    assert_int_equal(info.source, is_on_disk ? QN_SOURCE_DISK : QN_SOURCE_MEMORY);
    assert_int_equal(qn__function_rank(function), QN__RANK_FAST);
    assert_int_equal(call(function), 1);
    gate_await_started(&gated.gate, 2);
    assert_int_equal(call(function), 1);
    gate_set(&gated.gate, true);
    await_rank(function, QN__RANK_ASKED);
    assert_int_equal(call(function), 1);
    qn_function_release(function);
    get(&gated, module, &options, &info, &function);
    assert_false(info.is_fallback);
    assert_int_equal(info.tier, QN_TIER_FULL);
    qn_function_release(function);
    assert_int_equal(counter_of(gated.engine, "fallbacks"), 1);
    qn_module_release(module);
    gated_end(&gated);
  }
}

// The generic module's function serves a fixed shape until its own is there; the numbers tell which
// one ran.
static void test_the_generic_module(void** state) {
  (void)state;
  for (int round = 0; round < 2; round++) {
    gated_t gated;
    begin(&gated, false);
    qn_module_t* generic = shaped("f", "n", 7);
    qn_module_t* module = shaped("f", "3", 1);
    gate_set(&gated.gate, true);
    compile_now(&gated, generic, QN_TIER_FULL);
    gate_set(&gated.gate, false);
    qn_lookup_options_t options = fallback(0, round ? 3600 * SECOND : 0, generic);
    qn_lookup_info_t info = {.struct_size = sizeof info};
    qn_function_t* function;
    get(&gated, module, &options, &info, &function);
    assert_true(info.is_fallback);
    assert_int_equal(qn__function_rank(function), QN__RANK_GENERIC);
    assert_true(qn_function_is_fallback(function));
    assert_int_equal(call(function), 7);
    gate_await_started(&gated.gate, 2);
    assert_int_equal(call(function), 7);
    gate_set(&gated.gate, true);
    await_rank(function, QN__RANK_ASKED);
    assert_false(qn_function_is_fallback(function));
    assert_int_equal(call(function), 1);
    // Counted behind the change, by the thread that made it.
    while (counter_of(gated.engine, "upgrades") == 0) usleep(100);
    assert_int_equal(counter_of(gated.engine, "upgrades"), 1);
    qn_function_release(function);
    qn_module_release(module);
    qn_module_release(generic);
    gated_end(&gated);
  }
}

// A special module refuses other values than its own while the generic function serves it, too.
static void test_a_specialized_module(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, false);
  qn_module_t* generic =
      must_parse("func f(k: i64, out y: i32[n]) { for i in 0..n { y[i] = i32(k) * 2; } }\n");
  const char* const names[] = {"n", "k"};
  const int64_t values[] = {3, 21};
  qn_module_t* module;
  must(qn_module_specialize(generic, names, values, 2, &module));
  gate_set(&gated.gate, true);
  compile_now(&gated, generic, QN_TIER_FULL);
  gate_set(&gated.gate, false);
  qn_lookup_options_t options = fallback(0, 0, generic);
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_function_t* function;
  get(&gated, module, &options, &info, &function);
  assert_true(info.is_fallback);
  for (int round = 0; round < 2; round++) {
    if (round == 1) {
      gate_set(&gated.gate, true);
      await_rank(function, QN__RANK_ASKED);
    }
    int32_t y[4] = {0};
    int64_t extent = 3;
    qn_tensor_t tensor = {y, {QN_DEVICE_CPU, 0}, 1, qn_dtype_to_dl(QN_DTYPE_I32), &extent, NULL, 0};
    qn_value_t args[] = {qn_value_int(21), qn_value_tensor(&tensor)};
    must(qn_function_call(function, args, 2, NULL));
    assert_int_equal(y[2], 42);
    args[0] = qn_value_int(20);
    must_fail(qn_function_call(function, args, 2, NULL), QN_STATUS_VALUE_ERROR,
              "argument 0 'k': expected 21, got 20");
    args[0] = qn_value_int(21);
    extent = 4;
    must_fail(qn_function_call(function, args, 2, NULL), QN_STATUS_VALUE_ERROR,
              "argument 1 'y': extent 0: expected 3, got 4");
  }
  assert_false(qn_function_is_fallback(function));
  qn_function_release(function);
  qn_module_release(module);
  qn_module_release(generic);
  gated_end(&gated);
}

static void test_a_generic_module_that_does_not_fit(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, false);
  gate_set(&gated.gate, true);
  static const char text[] = "func f(x: f32[n], out y: i32[n]) { for i in 0..n { y[i] = 2; } }\n";
  qn_module_t* generic;
  must(qn_module_parse(text, sizeof text - 1, NULL, &generic));
  qn_module_t* module = shaped("f", "3", 1);
  compile_now(&gated, generic, QN_TIER_FULL);
  qn_lookup_options_t options = fallback(0, 0, generic);
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_function_t* function;
  get(&gated, module, &options, &info, &function);
  assert_int_equal(call(function), 1);
  qn_function_release(function);
  qn_module_release(module);
  qn_module_release(generic);
  gated_end(&gated);
}

// Nothing is there: the fast tier is compiled ahead of the full one, and given as it lands.
static void test_the_first_that_lands(void** state) {
  (void)state;
  for (int round = 0; round < 2; round++) {
    gated_t gated;
    begin(&gated, false);
    gated.gate.only_tier = QN_TIER_FULL;
    qn_module_t* module = shaped("f", "3", 1);
    qn_lookup_options_t options = fallback(0, round ? 3600 * SECOND : 0, NULL);
    qn_lookup_info_t info = {.struct_size = sizeof info};
    qn_function_t* function;
    get(&gated, module, &options, &info, &function);
    assert_true(info.is_fallback);
    assert_int_equal(info.tier, QN_TIER_FAST);
    assert_int_equal(info.source, QN_SOURCE_COMPILED);
    assert_int_equal(call(function), 1);
    gate_await_started(&gated.gate, 2);
    assert_string_equal(gated.gate.log[0], "f fast");
    assert_string_equal(gated.gate.log[1], "f full");
    gate_set(&gated.gate, true);
    await_rank(function, QN__RANK_ASKED);
    assert_int_equal(call(function), 1);
    qn_function_release(function);
    qn_module_release(module);
    gated_end(&gated);
  }
}

static void test_time_and_failures(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, false);
  qn_module_t* module = shaped("f", "3", 1);
  qn_lookup_options_t options = fallback(0, 5000000, NULL);
  qn_function_t* function;
  // Both hang.
  must_fail(qn_engine_function(gated.engine, module, gated.target, "f", &options, NULL, &function),
            QN_STATUS_DEADLINE_EXCEEDED, "'f'");
  assert_null(function);
  gate_set(&gated.gate, true);
  gate_await_ended(&gated.gate, 2);
  gated.gate.fails_with = QN_STATUS_UNSUPPORTED;
  qn_module_t* other = shaped("f", "4", 2);
  options.time_limit_ns = 0;
  for (int i = 0; i < 3; i++) {
    must_fail(qn_engine_function(gated.engine, other, gated.target, "f", &options, NULL, &function),
              QN_STATUS_UNSUPPORTED, "want");
  }
  // The full one fails, the fast one was there: it stays.
  gated.gate.fails_with = QN_STATUS_OK;
  qn_module_t* third = shaped("f", "3", 3);
  compile_now(&gated, third, QN_TIER_FAST);
  gated.gate.fails_with = QN_STATUS_UNSUPPORTED;
  int ended = gated.gate.ended_count;
  qn_lookup_info_t info = {.struct_size = sizeof info};
  get(&gated, third, &options, &info, &function);
  gate_await_ended(&gated.gate, ended + 1);
  assert_int_equal(call(function), 3);
  qn_function_release(function);
  get(&gated, third, &options, &info, &function);  // the failure is remembered
  assert_int_equal(call(function), 3);
  assert_int_equal(qn__function_rank(function), QN__RANK_FAST);
  qn_function_release(function);
  must_fail(qn_engine_function(gated.engine, third, gated.target, "g", &options, NULL, &function),
            QN_STATUS_NOT_FOUND, "'g'");
  qn_module_release(module);
  qn_module_release(other);
  qn_module_release(third);
  gated_end(&gated);
}

// Released before the better one lands; and the engine ends before it.
static void test_release_before_the_better_one(void** state) {
  (void)state;
  for (int round = 0; round < 2; round++) {
    gated_t gated;
    begin(&gated, false);
    gated.gate.only_tier = QN_TIER_FULL;
    qn_module_t* module = shaped("f", "3", 1);
    qn_module_t* queued = shaped("f", "3", 2);
    compile_now(&gated, module, QN_TIER_FAST);
    compile_now(&gated, queued, QN_TIER_FAST);
    qn_lookup_options_t options = fallback(0, 0, NULL);
    qn_function_t *function, *other;
    get(&gated, module, &options, NULL, &function);
    gate_await_started(&gated.gate, 3);
    get(&gated, queued, &options, NULL, &other);
    qn_function_release(function);
    if (round == 0) {
      gate_set(&gated.gate, true);
      gate_await_ended(&gated.gate, 4);
    } else {
      // The queued compile is cancelled. The running one is abandoned and completes later.
      gated.engine->compile_grace_ns = 1000000;
      qn__engine_retain(gated.engine);
      qn_engine_destroy(gated.engine);
      assert_int_equal(qn__function_rank(other), QN__RANK_FAST);
      gate_set(&gated.gate, true);
      gate_await_ended(&gated.gate, 3);
    }
    assert_int_equal(call(other), 2);
    qn_function_release(other);
    qn_module_release(module);
    qn_module_release(queued);
    if (round == 0) {
      gated_end(&gated);
    } else {
      gated_end_left(&gated, gated.engine);
    }
  }
}

static void test_fast_wanted_full_there(void** state) {
  (void)state;
  gated_t gated;
  begin(&gated, false);
  gate_set(&gated.gate, true);
  qn_module_t* module = shaped("f", "3", 1);
  compile_now(&gated, module, QN_TIER_FULL);
  qn_lookup_options_t options = fallback(QN_TIER_FAST, 0, NULL);
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_function_t* function;
  get(&gated, module, &options, &info, &function);
  assert_int_equal(info.tier, QN_TIER_FULL);
  assert_false(info.is_fallback);  // nothing better is being made
  assert_false(qn_function_is_fallback(function));
  assert_int_equal(call(function), 1);
  qn_function_release(function);
  assert_int_equal(gate_started(&gated.gate), 1);
  qn_module_release(module);
  gated_end(&gated);
}

// Checks that finished variants are still used where compiling is forbidden.
static void test_forbidden(void** state) {
  (void)state;
  gated_t gated, open;
  begin(&gated, true);
  qn_engine_options_t base = {.struct_size = sizeof base, .cache_dir = gated.directory};
  gated_begin(&open, &base);
  gate_set(&open.gate, true);
  qn_module_t* module = shaped("f", "3", 1);
  compile_now(&open, module, QN_TIER_FAST);
  assert_true(qn_engine_flush(open.engine, 3600 * SECOND));
  for (int i = 0; i < 2; i++) {
    qn_lookup_options_t options = fallback(0, i * 3600 * SECOND, NULL);
    qn_lookup_info_t info = {.struct_size = sizeof info};
    qn_function_t* function;
    get(&gated, module, &options, &info, &function);
    assert_int_equal(info.tier, QN_TIER_FAST);
    assert_int_equal(call(function), 1);
    qn_function_release(function);
  }
  assert_int_equal(gate_started(&gated.gate), 0);
  qn_module_release(module);
  gated_end(&open);
  gated_end(&gated);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_was_asked_for),
      cmocka_unit_test(test_the_other_tier),
      cmocka_unit_test(test_the_generic_module),
      cmocka_unit_test(test_a_specialized_module),
      cmocka_unit_test(test_a_generic_module_that_does_not_fit),
      cmocka_unit_test(test_the_first_that_lands),
      cmocka_unit_test(test_time_and_failures),
      cmocka_unit_test(test_release_before_the_better_one),
      cmocka_unit_test(test_fast_wanted_full_there),
      cmocka_unit_test(test_forbidden),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
