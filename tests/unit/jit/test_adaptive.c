// Tests adaptive functions: which values get a variant and when, trials, bans, budgets and bounds,
// what the cache gives, and that calls may go on while all of that changes. Time, processor time
// and the durations of calls are the test's; but for the last tests, which have threads, it makes
// each step of the background by hand.
// ctest-labels: tsan
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

#include "jit/engine/adaptive.h"
#include "quern/adaptive.h"
#include "quern/device.h"
#include "quern/ir.h"
#include "tests/support/sanitized.h"
#include "tests/unit/jit/support_gate.h"

#define MILLISECOND INT64_C(1000000)

// ---------------------------------------------------------------------------------- the world

static int64_t clock_ns, cpu_ns, cost_ns;
static int64_t generic_ns, special_ns;  // the durations that samples get

static int64_t fake_now(void) {
  return clock_ns;
}
static int64_t fake_cpu(void) {
  cpu_ns += cost_ns;
  return cpu_ns;
}
static void fake_duration(qn__dispatch_sample_t* sample) {
  if (sample->duration_ns < 0) return;
  sample->duration_ns = sample->slot == QN__DISPATCH_MAX_CASES ? generic_ns : special_ns;
}

// y[i, j] = k + 10 n + 100 m, where n and m are symbols and k is a scalar.
static const char text[] =
    "func f(k: i32, out y: i32[n, m]) {\n"
    "  for i in 0..n { for j in 0..m { y[i, j] = k + 10 * i32(n) + 100 * i32(m); } }\n"
    "}\n";

typedef struct world {
  gated_t gated;
  qn_module_t* module;
  qn_function_t* function;
} world_t;

static void use_fakes(qn_engine_t* engine) {
  clock_ns = SECOND;
  cpu_ns = cost_ns = 0;
  generic_ns = 100 * MILLISECOND;
  special_ns = 50 * MILLISECOND;
  engine->background.is_manual = true;
  engine->background.now_ns = fake_now;
  engine->background.cpu_ns = fake_cpu;
  engine->background.on_sample = fake_duration;
}

static void begin_with(world_t* world, const qn_engine_options_t* options) {
  gated_begin(&world->gated, options);
  gate_set(&world->gated.gate, true);
  use_fakes(world->gated.engine);
  world->module = must_parse(text);
  world->function = NULL;
}

static void begin(world_t* world, const qn_setting_t* settings, size_t count) {
  qn_engine_options_t options = {
      .struct_size = sizeof options, .settings = settings, .setting_count = count};
  begin_with(world, &options);
}

static void end(world_t* world) {
  qn_function_release(world->function);
  qn_module_release(world->module);
  gated_end(&world->gated);
}

static void make(world_t* world, const qn_adaptive_name_t* names, size_t count,
                 qn_adaptive_options_t options) {
  options.struct_size = sizeof options;
  options.names = names;
  options.name_count = count;
  must(qn_engine_adaptive_function(world->gated.engine, world->module, world->gated.target, "f",
                                   &options, NULL, &world->function));
  qn__dispatch_set_period(qn__function_dispatch(world->function), 1);
}

static void make_for_n(world_t* world) {
  const qn_adaptive_name_t n = {.name = "n"};
  make(world, &n, 1, (qn_adaptive_options_t){0});
}

static qn_status_t call_on(qn_function_t* function, qn_stream_t* stream, int64_t k, int64_t n,
                           int64_t m, int32_t* y) {
  int64_t shape[] = {n, m};
  qn_tensor_t tensor = {y, {QN_DEVICE_CPU, 0}, 2, qn_dtype_to_dl(QN_DTYPE_I32), shape, NULL, 0};
  qn_value_t args[] = {qn_value_int(k), qn_value_tensor(&tensor)};
  return stream ? qn_function_call_on(function, stream, args, 2, NULL)
                : qn_function_call(function, args, 2, NULL);
}

static void call_it(world_t* world, int64_t k, int64_t n, int64_t m, int times) {
  int32_t y[64];
  assert_true(n * m <= 64);
  for (int i = 0; i < times; i++) {
    memset(y, 0, sizeof y);
    must(call_on(world->function, NULL, k, n, m, y));
    for (int64_t j = 0; j < n * m; j++) assert_int_equal(y[j], k + 10 * n + 100 * m);
  }
}

static bool step(world_t* world) {
  return qn__background_step(&world->gated.engine->background);
}

static uint64_t counter(const world_t* world, const char* name) {
  return counter_of(world->gated.engine, name);
}

typedef struct find {
  const char* values;
  qn_variant_info_t info;
  char reason[256];
  int count;
} find_t;

static void on_variant(void* self, const qn_variant_info_t* variant) {
  find_t* find = self;
  find->count++;
  assert_int_equal(variant->struct_size, sizeof *variant);
  if (strcmp(variant->values, find->values) != 0) return;
  find->info = *variant;
  (void)snprintf(find->reason, sizeof find->reason, "%s", variant->reason);
}

static find_t look(const world_t* world, const char* values) {
  find_t find = {.values = values};
  must(qn_engine_variants(world->gated.engine, world->function, on_variant, &find));
  return find;
}

static void assert_state(const world_t* world, const char* values, qn_variant_state_t state,
                         const char* reason) {
  find_t find = look(world, values);
  assert_string_equal(qn_variant_state_text(find.info.state), qn_variant_state_text(state));
  if (!strstr(find.reason, reason)) fail_msg("'%s' lacks '%s'", find.reason, reason);
}

// Calls often enough for a variant, and makes it: the first step finds it in the cache, or not; the
// second one compiles.
static void bring_to_trial(world_t* world, int64_t k, int64_t n, int64_t m, const char* values) {
  call_it(world, k, n, m, 40);
  assert_true(step(world));
  if (look(world, values).info.state != QN_VARIANT_TRIAL) assert_true(step(world));
  assert_state(world, values, QN_VARIANT_TRIAL, "prove");
}

static void bring_to_end(world_t* world, int64_t k, int64_t n, int64_t m, const char* values) {
  bring_to_trial(world, k, n, m, values);
  call_it(world, k, n, m, 64);
  (void)step(world);
}

// ---------------------------------------------------------------------------------- the tests

static void test_a_variant_is_kept(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  make_for_n(&world);
  assert_false(qn_function_is_fallback(world.function));
  assert_string_equal(qn_function_signature(world.function), "f(k: i32, out y: i32[n, m])");
  assert_int_equal(gate_started(&world.gated.gate), 1);
  call_it(&world, 7, 3, 2, 20);
  assert_false(step(&world));
  assert_state(&world, "n=3", QN_VARIANT_SEEN, "too few calls: 32");
  call_it(&world, 7, 3, 5, 20);  // m may differ
  assert_true(step(&world));     // asks the cache
  assert_int_equal(gate_started(&world.gated.gate), 1);
  assert_true(step(&world));  // compiles
  assert_int_equal(gate_started(&world.gated.gate), 2);
  assert_state(&world, "n=3", QN_VARIANT_TRIAL, "prove");
  call_it(&world, 7, 3, 2, 63);
  assert_false(step(&world));
  assert_state(&world, "n=3", QN_VARIANT_TRIAL, "prove");
  call_it(&world, 7, 3, 2, 1);
  assert_false(step(&world));
  find_t find = look(&world, "n=3");
  assert_int_equal(find.info.state, QN_VARIANT_KEPT);
  assert_string_equal(find.reason, "");
  assert_int_equal(find.info.generic_ns, 100 * MILLISECOND);
  assert_int_equal(find.info.special_ns, 50 * MILLISECOND);
  assert_int_equal(strlen(find.info.key.hex), 32);
  uint64_t before = counter(&world, "variant_calls");
  assert_int_equal(before, 32);  // of the trial
  call_it(&world, 8, 3, 4, 10);
  call_it(&world, 8, 4, 4, 10);
  assert_false(step(&world));
  assert_int_equal(counter(&world, "variant_calls"), before + 10);
  assert_int_equal(look(&world, "n=3").info.call_count, 42);
  assert_int_equal(counter(&world, "variants_made"), 1);
  assert_int_equal(counter(&world, "variants_kept"), 1);
  assert_int_equal(counter(&world, "variants_banned"), 0);
  // A wrong call is refused in the words of the generic function.
  int32_t y[4];
  qn_status_t status = call_on(world.function, NULL, INT64_C(1) << 40, 3, 1, y);
  assert_int_equal(qn_status_code(status), QN_STATUS_VALUE_ERROR);
  assert_non_null(strstr(qn_status_message(status), "f(k: i32, out y: i32[n, m])"));
  qn_status_free(status);
  end(&world);
}

static void test_a_slower_variant_is_banned(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  make_for_n(&world);
  special_ns = generic_ns;
  bring_to_end(&world, 1, 3, 1, "n=3");
  assert_state(&world, "n=3", QN_VARIANT_BANNED, "not faster");
  assert_int_equal(counter(&world, "variants_banned"), 1);
  assert_int_equal(world.gated.engine->background.variant_count, 0);
  call_it(&world, 1, 3, 1, 200);
  for (int i = 0; i < 5; i++) {
    clock_ns += 200 * SECOND;
    assert_false(step(&world));
  }
  assert_state(&world, "n=3", QN_VARIANT_BANNED, "not faster");
  // Too little of a gain is not one either.
  special_ns = generic_ns - generic_ns / 64;
  bring_to_trial(&world, 1, 4, 1, "n=4");
  for (int i = 0; i < 4; i++) {
    call_it(&world, 1, 4, 1, 64);
    assert_false(step(&world));
  }
  assert_state(&world, "n=4", QN_VARIANT_BANNED, "of 128 turns");
  assert_int_equal(counter(&world, "variants_made"), 2);
  end(&world);
}

static void test_several_names(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  const qn_adaptive_name_t names[] = {{.name = "m"}, {.name = "k"}};
  make(&world, names, 2, (qn_adaptive_options_t){0});
  bring_to_end(&world, -5, 3, 2, "m=2,k=-5");
  assert_state(&world, "m=2,k=-5", QN_VARIANT_KEPT, "");
  uint64_t before = counter(&world, "variant_calls");
  call_it(&world, -5, 1, 2, 5);
  call_it(&world, -5, 6, 2, 5);
  call_it(&world, -4, 3, 2, 5);
  call_it(&world, -5, 3, 1, 5);
  (void)step(&world);
  assert_int_equal(counter(&world, "variant_calls"), before + 10);
  end(&world);
}

static void test_the_family_is_closed(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  const int64_t values[] = {1, 4};
  const qn_adaptive_name_t names[] = {{.name = "n", .min_value = 2, .max_value = 3},
                                      {.name = "m", .values = values, .value_count = 2}};
  make(&world, names, 2, (qn_adaptive_options_t){0});
  const int64_t outside[][2] = {{1, 1}, {4, 1}, {2, 2}, {3, 3}, {2, 5}};
  for (size_t i = 0; i < QN_COUNT_OF(outside); i++) {
    call_it(&world, 1, outside[i][0], outside[i][1], 50);
    assert_false(step(&world));
  }
  assert_int_equal(look(&world, "").count, 0);
  bring_to_end(&world, 1, 2, 4, "n=2,m=4");
  assert_state(&world, "n=2,m=4", QN_VARIANT_KEPT, "");
  end(&world);
}

static void test_never_while_busy(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  make_for_n(&world);
  call_it(&world, 1, 3, 1, 40);
  qn_engine_busy_begin(world.gated.engine);
  qn_engine_busy_begin(world.gated.engine);
  assert_false(step(&world));
  qn_engine_busy_end(world.gated.engine);
  assert_false(step(&world));
  qn_engine_busy_end(world.gated.engine);
  qn_engine_busy_end(world.gated.engine);  // one too many
  assert_true(step(&world));
  qn_engine_busy_begin(world.gated.engine);
  assert_false(step(&world));
  qn_engine_busy_end(world.gated.engine);
  assert_true(step(&world));
  end(&world);
}

static void test_the_budget(void** state) {
  (void)state;
  world_t world;
  const qn_setting_t settings[] = {{"special_budget", "10"}};
  begin(&world, settings, 1);
  make_for_n(&world);
  call_it(&world, 1, 3, 1, 40);
  assert_true(step(&world));  // asks the cache, for nothing
  cost_ns = 3 * SECOND;       // one second is there at first
  assert_true(step(&world));
  assert_int_equal(counter(&world, "variants_cpu_ns"), 3 * SECOND);
  assert_int_equal(world.gated.engine->background.tokens_ns, -2 * SECOND);
  call_it(&world, 1, 4, 1, 40);
  assert_false(step(&world));
  clock_ns += 19 * SECOND;
  call_it(&world, 1, 3, 1, 1);
  assert_false(step(&world));
  clock_ns += 2 * SECOND;
  assert_true(step(&world));
  // The burst is bounded.
  clock_ns += 100000 * SECOND;
  (void)step(&world);
  assert_true(world.gated.engine->background.tokens_ns <= SECOND);
  end(&world);
}

static void test_without_a_budget(void** state) {
  (void)state;
  world_t world;
  const qn_setting_t settings[] = {{"special_budget", "0"}};
  begin(&world, settings, 1);
  make_for_n(&world);
  call_it(&world, 1, 3, 1, 40);
  assert_true(step(&world));
  assert_false(step(&world));
  assert_state(&world, "n=3", QN_VARIANT_SEEN, "special_budget is 0");
  assert_int_equal(gate_started(&world.gated.gate), 1);
  end(&world);
}

static void test_a_compile_must_pay(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  make_for_n(&world);
  generic_ns = MILLISECOND;  // 499 ms, where ten times 50 ms are needed
  call_it(&world, 1, 3, 1, 250);
  assert_true(step(&world));
  call_it(&world, 1, 3, 1, 249);
  assert_false(step(&world));
  assert_state(&world, "n=3", QN_VARIANT_SEEN, "500.000 ms of calls, there are 499.000");
  call_it(&world, 1, 3, 1, 1);
  assert_true(step(&world));
  assert_state(&world, "n=3", QN_VARIANT_TRIAL, "");
  end(&world);
}

static void test_the_bound_of_a_function(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  const qn_adaptive_name_t n = {.name = "n"};
  make(&world, &n, 1, (qn_adaptive_options_t){.max_variants = 2});
  bring_to_end(&world, 1, 3, 1, "n=3");
  clock_ns += SECOND;
  bring_to_end(&world, 1, 4, 1, "n=4");
  call_it(&world, 1, 5, 1, 40);
  assert_false(step(&world));
  assert_state(&world, "n=5", QN_VARIANT_SEEN, "all 2 variants of the function are in use");
  // The one that was not used makes room.
  clock_ns += 11 * SECOND;
  call_it(&world, 1, 4, 1, 1);
  assert_true(step(&world));
  assert_state(&world, "n=3", QN_VARIANT_SEEN, "dropped");
  assert_state(&world, "n=4", QN_VARIANT_KEPT, "");
  assert_int_equal(counter(&world, "variants_dropped"), 1);
  // It comes back from the cache, without a compile.
  assert_true(step(&world));
  int started = gate_started(&world.gated.gate);
  assert_true(qn_engine_flush(world.gated.engine, QN_TIMEOUT_INFINITE));
  call_it(&world, 1, 5, 1, 64);
  (void)step(&world);
  clock_ns += 11 * SECOND;
  call_it(&world, 1, 3, 1, 40);
  call_it(&world, 1, 5, 1, 1);
  assert_true(step(&world));
  assert_state(&world, "n=3", QN_VARIANT_TRIAL, "");
  assert_int_equal(gate_started(&world.gated.gate), started);
  end(&world);
}

static void test_the_bound_of_an_engine(void** state) {
  (void)state;
  for (int limit = 0; limit < 2; limit++) {
    world_t world;
    const qn_setting_t settings[] = {{"special_limit", limit ? "1" : "0"}};
    begin(&world, settings, 1);
    make_for_n(&world);
    if (limit) bring_to_end(&world, 1, 3, 1, "n=3");
    call_it(&world, 1, 4, 1, 40);
    assert_false(step(&world));
    assert_state(&world, "n=4", QN_VARIANT_SEEN,
                 limit ? "all 1 variants of the engine are in use" : "special_limit is 0");
    end(&world);
  }
}

static void test_unused_variants_go(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  make_for_n(&world);
  bring_to_end(&world, 1, 3, 1, "n=3");
  bring_to_trial(&world, 1, 4, 1, "n=4");
  clock_ns += 61 * SECOND;
  call_it(&world, 1, 3, 1, 1);
  assert_false(step(&world));
  assert_state(&world, "n=3", QN_VARIANT_KEPT, "");
  assert_int_equal(counter(&world, "variants_dropped"), 1);
  clock_ns += 61 * SECOND;
  assert_false(step(&world));
  assert_int_equal(counter(&world, "variants_dropped"), 2);
  assert_int_equal(world.gated.engine->background.variant_count, 0);
  call_it(&world, 1, 3, 1, 1);
  call_it(&world, 1, 4, 1, 1);
  end(&world);
}

static void test_failures_are_banned(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  make_for_n(&world);
  world.gated.gate.fails_with = QN_STATUS_INTERNAL;
  call_it(&world, 1, 3, 1, 40);
  assert_true(step(&world));
  assert_true(step(&world));
  assert_state(&world, "n=3", QN_VARIANT_BANNED, "does not want to");
  clock_ns += 3600 * SECOND;
  call_it(&world, 1, 3, 1, 100);
  assert_false(step(&world));
  // Errors of the moment are not: the generator may be installed later.
  world.gated.engine->in_flight.failures.period_ns = 0;
  world.gated.gate.fails_with = QN_STATUS_UNAVAILABLE;
  call_it(&world, 1, 4, 1, 40);
  assert_true(step(&world));
  assert_true(step(&world));
  assert_state(&world, "n=4", QN_VARIANT_SEEN, "does not want to");
  assert_false(step(&world));
  world.gated.gate.fails_with = QN_STATUS_OK;
  clock_ns += 61 * SECOND;
  call_it(&world, 1, 4, 1, 40);
  assert_true(step(&world));
  assert_state(&world, "n=4", QN_VARIANT_TRIAL, "");
  end(&world);
}

// A second engine that may not compile finds the variant in the cache, and puts it to trial again.
static void test_the_cache_has_variants(void** state) {
  (void)state;
  world_t world, second;
  begin(&world, NULL, 0);
  make_for_n(&world);
  bring_to_end(&world, 1, 3, 1, "n=3");
  assert_true(qn_engine_flush(world.gated.engine, QN_TIMEOUT_INFINITE));
  const qn_setting_t settings[] = {{"jit", "forbid"}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = world.gated.directory,
                                 .settings = settings,
                                 .setting_count = 1};
  begin_with(&second, &options);
  make_for_n(&second);
  bring_to_end(&second, 1, 3, 1, "n=3");
  assert_state(&second, "n=3", QN_VARIANT_KEPT, "");
  call_it(&second, 1, 4, 1, 40);
  assert_true(step(&second));
  assert_false(step(&second));
  assert_state(&second, "n=4", QN_VARIANT_SEEN, "compiling is forbidden");
  assert_int_equal(gate_started(&second.gated.gate), 0);
  assert_int_equal(counter(&second, "compiles_forbidden"), 0);
  assert_int_equal(counter(&second, "variants_banned"), 0);
  end(&second);
  end(&world);
}

// The list for `quern warm` has what was kept, and nothing that was only tried.
static void test_kept_variants_are_recorded(void** state) {
  (void)state;
  char directory[QN_TEST_PATH_SIZE], path[QN_TEST_PATH_SIZE + 16];
  assert_true(qn_test_tempdir_make(directory));
  (void)snprintf(path, sizeof path, "%s/list", directory);
  world_t world;
  const qn_setting_t settings[] = {{"record", path}};
  begin(&world, settings, 1);
  make_for_n(&world);
  bring_to_end(&world, 1, 3, 1, "n=3");
  special_ns = generic_ns;
  bring_to_end(&world, 1, 4, 1, "n=4");
  find_t kept = look(&world, "n=3"), banned = look(&world, "n=4");
  assert_int_equal(kept.info.state, QN_VARIANT_KEPT);
  assert_int_equal(banned.info.state, QN_VARIANT_BANNED);
  end(&world);
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
    begin(&world, NULL, 0);
    const qn_adaptive_name_t n = {.name = "n"};
    make(&world, &n, 1, (qn_adaptive_options_t){.keeps_unmeasured = keeps != 0});
    qn_stream_t* stream;
    must(qn_stream_create((qn_device_t){QN_DEVICE_CPU, 0}, &stream));
    int32_t y[3];
    for (int i = 0; i < 100; i++) must(call_on(world.function, stream, 1, 3, 1, y));
    must(qn_stream_sync((qn_device_t){QN_DEVICE_CPU, 0}, stream));
    if (!keeps) {
      assert_false(step(&world));
      assert_state(&world, "n=3", QN_VARIANT_SEEN, "cannot time");
      // A trial by other calls does not concern those on streams.
      bring_to_trial(&world, 1, 3, 1, "n=3");
      for (int i = 0; i < 100; i++) must(call_on(world.function, stream, 1, 3, 1, y));
      assert_false(step(&world));
      assert_state(&world, "n=3", QN_VARIANT_TRIAL, "");
      assert_int_equal(counter(&world, "variant_calls"), 0);
    } else {
      assert_true(step(&world));
      assert_false(step(&world));
      assert_state(&world, "n=3", QN_VARIANT_SEEN, "320 calls");
      for (int i = 0; i < 220; i++) must(call_on(world.function, stream, 1, 3, 1, y));
      assert_true(step(&world));
      assert_state(&world, "n=3", QN_VARIANT_KEPT, "");
      for (int i = 0; i < 10; i++) must(call_on(world.function, stream, 1, 3, 1, y));
      // Queued calls hold the variant, which is dropped meanwhile.
      clock_ns += 3600 * SECOND;
      (void)step(&world);
      clock_ns += 3600 * SECOND;
      (void)step(&world);
      assert_int_equal(counter(&world, "variants_dropped"), 1);
    }
    must(qn_stream_sync((qn_device_t){QN_DEVICE_CPU, 0}, stream));
    assert_int_equal(y[2], 1 + 30 + 100);
    qn_stream_destroy(stream);
    end(&world);
  }
}

// The table of values is bounded: rare ones make room.
static void test_many_values(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  const qn_adaptive_name_t k = {.name = "k"};
  make(&world, &k, 1, (qn_adaptive_options_t){0});
  call_it(&world, 100000, 1, 1, 20);
  (void)step(&world);
  for (int i = 0; i < 1000; i++) {
    call_it(&world, i, 1, 1, 1);
    if (i % 100 == 0) (void)step(&world);
  }
  (void)step(&world);
  find_t find = look(&world, "k=100000");
  assert_int_equal(find.info.call_count, 20);
  assert_true(find.count <= (int)QN__ADAPTIVE_MAX_TUPLES);
  end(&world);
}

static void expect(qn_status_t status, qn_status_code_t code, const char* words) {
  assert_int_equal(qn_status_code(status), code);
  if (!strstr(qn_status_message(status), words)) {
    fail_msg("'%s' lacks '%s'", qn_status_message(status), words);
  }
  qn_status_free(status);
}

static void test_bad_input(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
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
    expect(qn_engine_adaptive_function(world.gated.engine, world.module, world.gated.target, "f",
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
    expect(qn_engine_adaptive_function(world.gated.engine, module, world.gated.target, "f",
                                       &options, NULL, &function),
           QN_STATUS_INVALID_ARGUMENT, i ? "it is fixed" : "it is f32");
  }
  qn_function_t* plain;
  must(qn_engine_function(world.gated.engine, world.module, world.gated.target, "f", NULL, NULL,
                          &plain));
  find_t find = {.values = ""};
  expect(qn_engine_variants(world.gated.engine, plain, on_variant, &find),
         QN_STATUS_INVALID_ARGUMENT, "is no adaptive function of this engine");
  assert_string_equal(qn_variant_state_text((qn_variant_state_t)9), "unknown");
  qn_function_release(plain);
  qn_module_release(module);
  end(&world);
}

// ------------------------------------------------------------------------------------ lifetimes

static void test_a_function_outlives_its_engine(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  make_for_n(&world);
  bring_to_end(&world, 1, 3, 1, "n=3");
  bring_to_trial(&world, 1, 4, 1, "n=4");
  qn_engine_destroy(world.gated.engine);
  world.gated.engine = NULL;
  call_it(&world, 1, 3, 1, 300);
  call_it(&world, 1, 4, 1, 300);
  call_it(&world, 1, 5, 1, 300);
  end(&world);
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
    begin_with(&world, &options);
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
        call_it(&world, 1, 3, 1, 64);
        (void)step(&world);
      }
    } else {
      assert_null(world.function);
      assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_MEMORY);
    }
    qn_status_free(status);
    has_failed = atomic_exchange(&allocations_left, -1) < 0;
    if (!has_failed) assert_state(&world, "n=3", QN_VARIANT_KEPT, "");
    end(&world);
  }
}

static void test_released_functions_are_forgotten(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  make_for_n(&world);
  bring_to_end(&world, 1, 3, 1, "n=3");
  qn_function_release(world.function);
  world.function = NULL;
  assert_int_equal(world.gated.engine->background.variant_count, 1);
  assert_false(step(&world));
  assert_null(world.gated.engine->background.first);
  assert_int_equal(world.gated.engine->background.variant_count, 0);
  end(&world);
}

// A table that a call holds is not released under it: the call goes on while variants change.
static void test_old_tables_wait_for_calls(void** state) {
  (void)state;
  world_t world;
  begin(&world, NULL, 0);
  make_for_n(&world);
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
  expect(status, QN_STATUS_FAILED_PRECONDITION, "old tables");
  call_it(&world, 1, 3, 1, 3);
  qn__dispatch_unhold(dispatch);
  must(qn__dispatch_clear(dispatch, 0));
  call_it(&world, 1, 3, 1, 3);
  qn_function_release(special);
  qn_module_release(module);
  end(&world);
}

// -------------------------------------------------------------------------------------- threads

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
    if (!qn_ok(call_on(caller->function, NULL, 1, n, 1, y))) caller->wrong_count++;
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
  begin(&world, settings, 2);
  qn__background_t* background = &world.gated.engine->background;
  atomic_store(&leaping_ns, SECOND);
  background->is_manual = false;
  background->now_ns = leaping_now;
  background->on_sample = chance;
  background->period_ns = MILLISECOND;
  make_for_n(&world);
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
  for (int i = 0; counter(&world, "variants_kept") < 3 || counter(&world, "variants_banned") < 1 ||
                  counter(&world, "variants_dropped") < 1;
       i++) {
    if (i % 16 == 0) usleep(200);
    int64_t now_ns = atomic_load(&leaping_ns);
    if (now_ns - moved_ns > 600 * SECOND) {
      moved_ns = now_ns;
      atomic_store(&phase, (atomic_load(&phase) + 3) % 6);
    }
    qn_engine_busy_begin(world.gated.engine);
    call_it(&world, 1, 1 + atomic_load(&phase) + i / 64 % 3, 1, 1);
    qn_engine_busy_end(world.gated.engine);
    if (i % 100 == 0) (void)look(&world, "n=1");
  }
  qn_engine_destroy(world.gated.engine);
  world.gated.engine = NULL;
  call_it(&world, 1, 3, 1, 50);
  qn_function_release(world.function);
  world.function = NULL;
  atomic_store(&has_ended, true);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
    assert_int_equal(callers[i].wrong_count, 0);
  }
  end(&world);
}

// A child of fork serves with its variants, and makes others after qn_engine_busy_end.
static void test_fork(void** state) {
  (void)state;
  world_t world;
  const qn_setting_t settings[] = {{"special_budget", "100"}};
  begin(&world, settings, 1);
  world.gated.engine->background.is_manual = false;
  world.gated.engine->background.period_ns = MILLISECOND;
  make_for_n(&world);
  while (counter(&world, "variants_kept") < 1) call_it(&world, 1, 3, 1, 16);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    uint64_t kept = counter(&world, "variants_kept");
    call_it(&world, 1, 3, 1, 100);
    // ThreadSanitizer starts no thread in a child of a process with threads.
    if (!IS_SANITIZED) {
      qn_engine_busy_end(world.gated.engine);
      while (counter(&world, "variants_kept") == kept) call_it(&world, 1, 4, 1, 16);
    }
    qn_function_release(world.function);
    qn_engine_destroy(world.gated.engine);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  call_it(&world, 1, 3, 1, 100);
  end(&world);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_variant_is_kept),
      cmocka_unit_test(test_a_slower_variant_is_banned),
      cmocka_unit_test(test_several_names),
      cmocka_unit_test(test_the_family_is_closed),
      cmocka_unit_test(test_never_while_busy),
      cmocka_unit_test(test_the_budget),
      cmocka_unit_test(test_without_a_budget),
      cmocka_unit_test(test_a_compile_must_pay),
      cmocka_unit_test(test_the_bound_of_a_function),
      cmocka_unit_test(test_the_bound_of_an_engine),
      cmocka_unit_test(test_unused_variants_go),
      cmocka_unit_test(test_failures_are_banned),
      cmocka_unit_test(test_the_cache_has_variants),
      cmocka_unit_test(test_kept_variants_are_recorded),
      cmocka_unit_test(test_streams),
      cmocka_unit_test(test_many_values),
      cmocka_unit_test(test_bad_input),
      cmocka_unit_test(test_a_function_outlives_its_engine),
      cmocka_unit_test(test_without_memory),
      cmocka_unit_test(test_released_functions_are_forgotten),
      cmocka_unit_test(test_old_tables_wait_for_calls),
      cmocka_unit_test(test_callers_in_threads),
      cmocka_unit_test(test_fork),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
