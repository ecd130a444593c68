// SPDX-License-Identifier: Apache-2.0
// Tests what bounds adaptive functions: busy engines, the budget, what a compile must bring, and
// how many variants and values there are. Each step of the background is made by hand.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/jit/support_adaptive.h"

static void test_never_while_busy(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  world_make_for_n(&world);
  world_call(&world, 1, 3, 1, 40);
  qn_engine_busy_begin(world.gated.engine);
  qn_engine_busy_begin(world.gated.engine);
  assert_false(world_step(&world));
  qn_engine_busy_end(world.gated.engine);
  assert_false(world_step(&world));
  qn_engine_busy_end(world.gated.engine);
  qn_engine_busy_end(world.gated.engine);  // one too many
  assert_true(world_step(&world));
  qn_engine_busy_begin(world.gated.engine);
  assert_false(world_step(&world));
  qn_engine_busy_end(world.gated.engine);
  assert_true(world_step(&world));
  world_end(&world);
}

static void test_the_budget(void** state) {
  (void)state;
  world_t world;
  const qn_setting_t settings[] = {{"special_budget", "10"}};
  world_begin(&world, settings, 1);
  world_make_for_n(&world);
  world_call(&world, 1, 3, 1, 40);
  assert_true(world_step(&world));  // asks the cache, for nothing
  fakes.cost_ns = 3 * SECOND;       // one second is there at first
  assert_true(world_step(&world));
  assert_int_equal(world_counter(&world, "variants_cpu_ns"), 3 * SECOND);
  assert_int_equal(world.gated.engine->background.tokens_ns, -2 * SECOND);
  world_call(&world, 1, 4, 1, 40);
  assert_false(world_step(&world));
  fakes.clock_ns += 19 * SECOND;
  world_call(&world, 1, 3, 1, 1);
  assert_false(world_step(&world));
  fakes.clock_ns += 2 * SECOND;
  assert_true(world_step(&world));
  // The burst is bounded.
  fakes.clock_ns += 100000 * SECOND;
  (void)world_step(&world);
  assert_true(world.gated.engine->background.tokens_ns <= SECOND);
  world_end(&world);
}

static void test_without_a_budget(void** state) {
  (void)state;
  world_t world;
  const qn_setting_t settings[] = {{"special_budget", "0"}};
  world_begin(&world, settings, 1);
  world_make_for_n(&world);
  world_call(&world, 1, 3, 1, 40);
  assert_true(world_step(&world));
  assert_false(world_step(&world));
  world_assert_state(&world, "n=3", QN_VARIANT_SEEN, "special_budget is 0");
  assert_int_equal(gate_started(&world.gated.gate), 1);
  world_end(&world);
}

static void test_a_compile_must_pay(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  world_make_for_n(&world);
  fakes.generic_ns = MILLISECOND;  // 499 ms, where ten times 50 ms are needed
  world_call(&world, 1, 3, 1, 250);
  assert_true(world_step(&world));
  world_call(&world, 1, 3, 1, 249);
  assert_false(world_step(&world));
  world_assert_state(&world, "n=3", QN_VARIANT_SEEN, "500.000 ms of calls, there are 499.000");
  world_call(&world, 1, 3, 1, 1);
  assert_true(world_step(&world));
  world_assert_state(&world, "n=3", QN_VARIANT_TRIAL, "");
  world_end(&world);
}

static void test_the_bound_of_a_function(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  const qn_adaptive_name_t n = {.name = "n"};
  world_make(&world, &n, 1, (qn_adaptive_options_t){.max_variants = 2});
  world_bring_to_end(&world, 1, 3, 1, "n=3");
  fakes.clock_ns += SECOND;
  world_bring_to_end(&world, 1, 4, 1, "n=4");
  world_call(&world, 1, 5, 1, 40);
  assert_false(world_step(&world));
  world_assert_state(&world, "n=5", QN_VARIANT_SEEN, "all 2 variants of the function are in use");
  // The one that was not used makes room.
  fakes.clock_ns += 11 * SECOND;
  world_call(&world, 1, 4, 1, 1);
  assert_true(world_step(&world));
  world_assert_state(&world, "n=3", QN_VARIANT_SEEN, "dropped");
  world_assert_state(&world, "n=4", QN_VARIANT_KEPT, "");
  assert_int_equal(world_counter(&world, "variants_dropped"), 1);
  // It comes back from the cache, without a compile.
  assert_true(world_step(&world));
  int started = gate_started(&world.gated.gate);
  assert_true(qn_engine_flush(world.gated.engine, QN_TIMEOUT_INFINITE));
  world_call(&world, 1, 5, 1, 64);
  (void)world_step(&world);
  fakes.clock_ns += 11 * SECOND;
  world_call(&world, 1, 3, 1, 40);
  world_call(&world, 1, 5, 1, 1);
  assert_true(world_step(&world));
  world_assert_state(&world, "n=3", QN_VARIANT_TRIAL, "");
  assert_int_equal(gate_started(&world.gated.gate), started);
  world_end(&world);
}

static void test_the_bound_of_an_engine(void** state) {
  (void)state;
  for (int limit = 0; limit < 2; limit++) {
    world_t world;
    const qn_setting_t settings[] = {{"special_limit", limit ? "1" : "0"}};
    world_begin(&world, settings, 1);
    world_make_for_n(&world);
    if (limit) world_bring_to_end(&world, 1, 3, 1, "n=3");
    world_call(&world, 1, 4, 1, 40);
    assert_false(world_step(&world));
    world_assert_state(&world, "n=4", QN_VARIANT_SEEN,
                       limit ? "all 1 variants of the engine are in use" : "special_limit is 0");
    world_end(&world);
  }
}

static void test_unused_variants_go(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  world_make_for_n(&world);
  world_bring_to_end(&world, 1, 3, 1, "n=3");
  world_bring_to_trial(&world, 1, 4, 1, "n=4");
  fakes.clock_ns += 61 * SECOND;
  world_call(&world, 1, 3, 1, 1);
  assert_false(world_step(&world));
  world_assert_state(&world, "n=3", QN_VARIANT_KEPT, "");
  assert_int_equal(world_counter(&world, "variants_dropped"), 1);
  fakes.clock_ns += 61 * SECOND;
  assert_false(world_step(&world));
  assert_int_equal(world_counter(&world, "variants_dropped"), 2);
  assert_int_equal(world.gated.engine->background.variant_count, 0);
  world_call(&world, 1, 3, 1, 1);
  world_call(&world, 1, 4, 1, 1);
  world_end(&world);
}

// The table of values is bounded: rare ones make room.
static void test_many_values(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  const qn_adaptive_name_t k = {.name = "k"};
  world_make(&world, &k, 1, (qn_adaptive_options_t){0});
  world_call(&world, 100000, 1, 1, 20);
  (void)world_step(&world);
  for (int i = 0; i < 1000; i++) {
    world_call(&world, i, 1, 1, 1);
    if (i % 100 == 0) (void)world_step(&world);
  }
  (void)world_step(&world);
  find_t find = world_look(&world, "k=100000");
  assert_int_equal(find.info.call_count, 20);
  assert_true(find.count <= (int)QN__ADAPTIVE_MAX_TUPLES);
  world_end(&world);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_never_while_busy),        cmocka_unit_test(test_the_budget),
      cmocka_unit_test(test_without_a_budget),        cmocka_unit_test(test_a_compile_must_pay),
      cmocka_unit_test(test_the_bound_of_a_function), cmocka_unit_test(test_the_bound_of_an_engine),
      cmocka_unit_test(test_unused_variants_go),      cmocka_unit_test(test_many_values),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
