// SPDX-License-Identifier: Apache-2.0
// Tests adaptive functions: which values get a variant, trials, bans, what the cache gives,
// streams, bad input. Each step of the background is made by hand. ctest-labels: tsan
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "quern/device.h"
#include "quern/ir.h"
#include "tests/unit/jit/support_adaptive.h"

static void test_a_variant_is_kept(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  world_make_for_n(&world);
  assert_false(qn_function_is_fallback(world.function));
  assert_string_equal(qn_function_signature(world.function), "f(k: i32, out y: i32[n, m])");
  assert_int_equal(gate_started(&world.gated.gate), 1);
  world_call(&world, 7, 3, 2, 20);
  assert_false(world_step(&world));
  world_assert_state(&world, "n=3", QN_VARIANT_SEEN, "too few calls: 32");
  world_call(&world, 7, 3, 5, 20);  // m may differ
  assert_true(world_step(&world));  // asks the cache
  assert_int_equal(gate_started(&world.gated.gate), 1);
  assert_true(world_step(&world));  // compiles
  assert_int_equal(gate_started(&world.gated.gate), 2);
  world_assert_state(&world, "n=3", QN_VARIANT_TRIAL, "prove");
  world_call(&world, 7, 3, 2, 63);
  assert_false(world_step(&world));
  world_assert_state(&world, "n=3", QN_VARIANT_TRIAL, "prove");
  world_call(&world, 7, 3, 2, 1);
  assert_false(world_step(&world));
  find_t find = world_look(&world, "n=3");
  assert_int_equal(find.info.state, QN_VARIANT_KEPT);
  assert_string_equal(find.reason, "");
  assert_int_equal(find.info.generic_ns, 100 * MILLISECOND);
  assert_int_equal(find.info.special_ns, 50 * MILLISECOND);
  assert_int_equal(strlen(find.info.key.hex), 32);
  uint64_t before = world_counter(&world, "variant_calls");
  assert_int_equal(before, 32);  // of the trial
  world_call(&world, 8, 3, 4, 10);
  world_call(&world, 8, 4, 4, 10);
  assert_false(world_step(&world));
  assert_int_equal(world_counter(&world, "variant_calls"), before + 10);
  assert_int_equal(world_look(&world, "n=3").info.call_count, 42);
  assert_int_equal(world_counter(&world, "variants_made"), 1);
  assert_int_equal(world_counter(&world, "variants_kept"), 1);
  assert_int_equal(world_counter(&world, "variants_banned"), 0);
  // A wrong call is refused in the words of the generic function.
  int32_t y[4];
  qn_status_t status = adaptive_call(world.function, NULL, INT64_C(1) << 40, 3, 1, y);
  assert_int_equal(qn_status_code(status), QN_STATUS_VALUE_ERROR);
  assert_non_null(strstr(qn_status_message(status), "f(k: i32, out y: i32[n, m])"));
  qn_status_free(status);
  world_end(&world);
}

static void test_a_slower_variant_is_banned(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  world_make_for_n(&world);
  fakes.special_ns = fakes.generic_ns;
  world_bring_to_end(&world, 1, 3, 1, "n=3");
  world_assert_state(&world, "n=3", QN_VARIANT_BANNED, "not faster");
  assert_int_equal(world_counter(&world, "variants_banned"), 1);
  assert_int_equal(world.gated.engine->background.variant_count, 0);
  world_call(&world, 1, 3, 1, 200);
  for (int i = 0; i < 5; i++) {
    fakes.clock_ns += 200 * SECOND;
    assert_false(world_step(&world));
  }
  world_assert_state(&world, "n=3", QN_VARIANT_BANNED, "not faster");
  // Too little of a gain is not one either.
  fakes.special_ns = fakes.generic_ns - fakes.generic_ns / 64;
  world_bring_to_trial(&world, 1, 4, 1, "n=4");
  for (int i = 0; i < 4; i++) {
    world_call(&world, 1, 4, 1, 64);
    assert_false(world_step(&world));
  }
  world_assert_state(&world, "n=4", QN_VARIANT_BANNED, "of 128 turns");
  assert_int_equal(world_counter(&world, "variants_made"), 2);
  world_end(&world);
}

static void test_several_names(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  const qn_adaptive_name_t names[] = {{.name = "m"}, {.name = "k"}};
  world_make(&world, names, 2, (qn_adaptive_options_t){0});
  world_bring_to_end(&world, -5, 3, 2, "m=2,k=-5");
  world_assert_state(&world, "m=2,k=-5", QN_VARIANT_KEPT, "");
  uint64_t before = world_counter(&world, "variant_calls");
  world_call(&world, -5, 1, 2, 5);
  world_call(&world, -5, 6, 2, 5);
  world_call(&world, -4, 3, 2, 5);
  world_call(&world, -5, 3, 1, 5);
  (void)world_step(&world);
  assert_int_equal(world_counter(&world, "variant_calls"), before + 10);
  world_end(&world);
}

static void test_the_family_is_closed(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  const int64_t values[] = {1, 4};
  const qn_adaptive_name_t names[] = {{.name = "n", .min_value = 2, .max_value = 3},
                                      {.name = "m", .values = values, .value_count = 2}};
  world_make(&world, names, 2, (qn_adaptive_options_t){0});
  const int64_t outside[][2] = {{1, 1}, {4, 1}, {2, 2}, {3, 3}, {2, 5}};
  for (size_t i = 0; i < QN_COUNT_OF(outside); i++) {
    world_call(&world, 1, outside[i][0], outside[i][1], 50);
    assert_false(world_step(&world));
  }
  assert_int_equal(world_look(&world, "").count, 0);
  world_bring_to_end(&world, 1, 2, 4, "n=2,m=4");
  world_assert_state(&world, "n=2,m=4", QN_VARIANT_KEPT, "");
  world_end(&world);
}

static void test_failures_are_banned(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  world_make_for_n(&world);
  world.gated.gate.fails_with = QN_STATUS_INTERNAL;
  world_call(&world, 1, 3, 1, 40);
  assert_true(world_step(&world));
  assert_true(world_step(&world));
  world_assert_state(&world, "n=3", QN_VARIANT_BANNED, "does not want to");
  fakes.clock_ns += 3600 * SECOND;
  world_call(&world, 1, 3, 1, 100);
  assert_false(world_step(&world));
  // Errors of the moment are not: the generator may be installed later.
  world.gated.engine->in_flight.failures.period_ns = 0;
  world.gated.gate.fails_with = QN_STATUS_UNAVAILABLE;
  world_call(&world, 1, 4, 1, 40);
  assert_true(world_step(&world));
  assert_true(world_step(&world));
  world_assert_state(&world, "n=4", QN_VARIANT_SEEN, "does not want to");
  assert_false(world_step(&world));
  world.gated.gate.fails_with = QN_STATUS_OK;
  fakes.clock_ns += 61 * SECOND;
  world_call(&world, 1, 4, 1, 40);
  assert_true(world_step(&world));
  world_assert_state(&world, "n=4", QN_VARIANT_TRIAL, "");
  world_end(&world);
}

// A second engine that may not compile finds the variant in the cache, and puts it to trial again.
static void test_the_cache_has_variants(void** state) {
  (void)state;
  world_t world, second;
  world_begin(&world, NULL, 0);
  world_make_for_n(&world);
  world_bring_to_end(&world, 1, 3, 1, "n=3");
  assert_true(qn_engine_flush(world.gated.engine, QN_TIMEOUT_INFINITE));
  const qn_setting_t settings[] = {{"jit", "forbid"}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = world.gated.directory,
                                 .settings = settings,
                                 .setting_count = 1};
  world_begin_with(&second, &options);
  world_make_for_n(&second);
  world_bring_to_end(&second, 1, 3, 1, "n=3");
  world_assert_state(&second, "n=3", QN_VARIANT_KEPT, "");
  world_call(&second, 1, 4, 1, 40);
  assert_true(world_step(&second));
  assert_false(world_step(&second));
  world_assert_state(&second, "n=4", QN_VARIANT_SEEN, "compiling is forbidden");
  assert_int_equal(gate_started(&second.gated.gate), 0);
  assert_int_equal(world_counter(&second, "compiles_forbidden"), 0);
  assert_int_equal(world_counter(&second, "variants_banned"), 0);
  world_end(&second);
  world_end(&world);
}

// The list for `quern warm` has what was kept, and nothing that was only tried.
static void test_kept_variants_are_recorded(void** state) {
  (void)state;
  char directory[QN_TEST_PATH_SIZE], path[QN_TEST_PATH_SIZE + 16];
  assert_true(qn_test_tempdir_make(directory));
  (void)snprintf(path, sizeof path, "%s/list", directory);
  world_t world;
  const qn_setting_t settings[] = {{"record", path}};
  world_begin(&world, settings, 1);
  world_make_for_n(&world);
  world_bring_to_end(&world, 1, 3, 1, "n=3");
  fakes.special_ns = fakes.generic_ns;
  world_bring_to_end(&world, 1, 4, 1, "n=4");
  find_t kept = world_look(&world, "n=3"), banned = world_look(&world, "n=4");
  assert_int_equal(kept.info.state, QN_VARIANT_KEPT);
  assert_int_equal(banned.info.state, QN_VARIANT_BANNED);
  world_end(&world);
  FILE* file = fopen(path, "re");
  assert_non_null(file);
  static char lines[65536];
  size_t size = fread(lines, 1, sizeof lines - 1, file);
  lines[size] = '\0';
  (void)fclose(file);
  assert_non_null(strstr(lines, kept.info.key.hex));
  assert_null(strstr(lines, banned.info.key.hex));
  qn_test_tempdir_remove(directory);
}

static void test_streams(void** state) {
  (void)state;
  for (int keeps = 0; keeps < 2; keeps++) {
    world_t world;
    world_begin(&world, NULL, 0);
    const qn_adaptive_name_t n = {.name = "n"};
    world_make(&world, &n, 1, (qn_adaptive_options_t){.keeps_unmeasured = keeps != 0});
    qn_stream_t* stream;
    must(qn_stream_create((qn_device_t){QN_DEVICE_CPU, 0}, &stream));
    int32_t y[3];
    for (int i = 0; i < 100; i++) must(adaptive_call(world.function, stream, 1, 3, 1, y));
    must(qn_stream_sync((qn_device_t){QN_DEVICE_CPU, 0}, stream));
    if (!keeps) {
      assert_false(world_step(&world));
      world_assert_state(&world, "n=3", QN_VARIANT_SEEN, "cannot time");
      // A trial by other calls does not concern those on streams.
      world_bring_to_trial(&world, 1, 3, 1, "n=3");
      for (int i = 0; i < 100; i++) must(adaptive_call(world.function, stream, 1, 3, 1, y));
      assert_false(world_step(&world));
      world_assert_state(&world, "n=3", QN_VARIANT_TRIAL, "");
      assert_int_equal(world_counter(&world, "variant_calls"), 0);
    } else {
      assert_true(world_step(&world));
      assert_false(world_step(&world));
      world_assert_state(&world, "n=3", QN_VARIANT_SEEN, "320 calls");
      for (int i = 0; i < 220; i++) must(adaptive_call(world.function, stream, 1, 3, 1, y));
      assert_true(world_step(&world));
      world_assert_state(&world, "n=3", QN_VARIANT_KEPT, "");
      for (int i = 0; i < 10; i++) must(adaptive_call(world.function, stream, 1, 3, 1, y));
      // Queued calls hold the variant, which is dropped meanwhile.
      fakes.clock_ns += 3600 * SECOND;
      (void)world_step(&world);
      fakes.clock_ns += 3600 * SECOND;
      (void)world_step(&world);
      assert_int_equal(world_counter(&world, "variants_dropped"), 1);
    }
    must(qn_stream_sync((qn_device_t){QN_DEVICE_CPU, 0}, stream));
    assert_int_equal(y[2], 1 + 30 + 100);
    qn_stream_destroy(stream);
    world_end(&world);
  }
}

static void test_bad_input(void** state) {
  (void)state;
  world_t world;
  world_begin(&world, NULL, 0);
  const int64_t values[] = {1};
  const struct {
    qn_adaptive_name_t names[2];
    size_t count;
    uint32_t max_variants;
    qn_status_code_t code;
    const char* words;
  } rows[] = {
      {{{.name = "n"}}, 0, 0, QN_STATUS_INVALID_ARGUMENT, "1 to 8 names, got 0"},
      {{{.name = "n"}}, 9, 0, QN_STATUS_INVALID_ARGUMENT, "got 9"},
      {{{.name = "n"}}, 1, 9, QN_STATUS_INVALID_ARGUMENT, "max_variants is 9; at most 8"},
      {{{.name = NULL}}, 1, 0, QN_STATUS_INVALID_ARGUMENT, "name 0"},
      {{{.name = "q"}}, 1, 0, QN_STATUS_NOT_FOUND, "'q' is neither a symbol nor a scalar of 'f("},
      {{{.name = "n"}, {.name = "n"}}, 2, 0, QN_STATUS_INVALID_ARGUMENT, "'n' is given twice"},
      {{{.name = "n", .min_value = 3, .max_value = 2}},
       1,
       0,
       QN_STATUS_INVALID_ARGUMENT,
       "3 to 2 hold no value"},
      {{{.name = "n", .values = values}}, 1, 0, QN_STATUS_INVALID_ARGUMENT, "at least one value"},
      {{{.name = "n", .values = values, .value_count = 1, .max_value = 1}},
       1,
       0,
       QN_STATUS_INVALID_ARGUMENT,
       "no bounds beside values"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(rows); i++) {
    qn_adaptive_options_t options = {.struct_size = sizeof options,
                                     .names = rows[i].names,
                                     .name_count = rows[i].count,
                                     .max_variants = rows[i].max_variants};
    qn_function_t* function = (qn_function_t*)1;
    must_fail(qn_engine_adaptive_function(world.gated.engine, world.module, world.gated.target, "f",
                                          &options, NULL, &function),
              rows[i].code, rows[i].words);
    assert_null(function);
  }
  qn_module_t* module = must_parse("func f(a: f32, k: i32 = 4, out y: i32[n]) { y[0] = k; }\n");
  for (int i = 0; i < 2; i++) {
    const qn_adaptive_name_t name = {.name = i ? "k" : "a"};
    qn_adaptive_options_t options = {
        .struct_size = sizeof options, .names = &name, .name_count = 1};
    qn_function_t* function;
    must_fail(qn_engine_adaptive_function(world.gated.engine, module, world.gated.target, "f",
                                          &options, NULL, &function),
              QN_STATUS_INVALID_ARGUMENT, i ? "it is fixed" : "it is f32");
  }
  qn_function_t* plain;
  must(qn_engine_function(world.gated.engine, world.module, world.gated.target, "f", NULL, NULL,
                          &plain));
  find_t find = {.values = ""};
  must_fail(qn_engine_variants(world.gated.engine, plain, world_on_variant, &find),
            QN_STATUS_INVALID_ARGUMENT, "is no adaptive function of this engine");
  assert_string_equal(qn_variant_state_text((qn_variant_state_t)9), "unknown");
  qn_function_release(plain);
  qn_module_release(module);
  world_end(&world);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_variant_is_kept),
      cmocka_unit_test(test_a_slower_variant_is_banned),
      cmocka_unit_test(test_several_names),
      cmocka_unit_test(test_the_family_is_closed),
      cmocka_unit_test(test_failures_are_banned),
      cmocka_unit_test(test_the_cache_has_variants),
      cmocka_unit_test(test_kept_variants_are_recorded),
      cmocka_unit_test(test_streams),
      cmocka_unit_test(test_bad_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
