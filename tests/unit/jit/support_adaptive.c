// SPDX-License-Identifier: Apache-2.0
// tests/unit/jit/support_adaptive.c: see support_adaptive.h.
#include "tests/unit/jit/support_adaptive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
// After those that it needs.
#include <cmocka.h>

#include "quern/ir.h"

fakes_t fakes;

static int64_t fake_now(void) {
  return fakes.clock_ns;
}
static int64_t fake_cpu(void) {
  fakes.cpu_ns += fakes.cost_ns;
  return fakes.cpu_ns;
}
static void fake_duration(qn__dispatch_sample_t* sample) {
  if (sample->duration_ns < 0) return;
  sample->duration_ns =
      sample->slot == QN__DISPATCH_MAX_CASES ? fakes.generic_ns : fakes.special_ns;
}

static const char text[] =
    "func f(k: i32, out y: i32[n, m]) {\n"
    "  for i in 0..n { for j in 0..m { y[i, j] = k + 10 * i32(n) + 100 * i32(m); } }\n"
    "}\n";

static void use_fakes(qn_engine_t* engine) {
  fakes = (fakes_t){
      .clock_ns = SECOND, .generic_ns = 100 * MILLISECOND, .special_ns = 50 * MILLISECOND};
  engine->background.is_manual = true;
  engine->background.now_ns = fake_now;
  engine->background.cpu_ns = fake_cpu;
  engine->background.on_sample = fake_duration;
}

void world_begin_with(world_t* world, const qn_engine_options_t* options) {
  gated_begin(&world->gated, options);
  gate_set(&world->gated.gate, true);
  use_fakes(world->gated.engine);
  world->module = must_parse(text);
  world->function = NULL;
}

void world_begin(world_t* world, const qn_setting_t* settings, size_t count) {
  qn_engine_options_t options = {
      .struct_size = sizeof options, .settings = settings, .setting_count = count};
  world_begin_with(world, &options);
}

void world_end(world_t* world) {
  qn_function_release(world->function);
  qn_module_release(world->module);
  gated_end(&world->gated);
}

void world_make(world_t* world, const qn_adaptive_name_t* names, size_t count,
                qn_adaptive_options_t options) {
  options.struct_size = sizeof options;
  options.names = names;
  options.name_count = count;
  must(qn_engine_adaptive_function(world->gated.engine, world->module, world->gated.target, "f",
                                   &options, NULL, &world->function));
  qn__dispatch_set_period(qn__function_dispatch(world->function), 1);
}

void world_make_for_n(world_t* world) {
  const qn_adaptive_name_t n = {.name = "n"};
  world_make(world, &n, 1, (qn_adaptive_options_t){0});
}

qn_status_t adaptive_call(qn_function_t* function, qn_stream_t* stream, int64_t k, int64_t n,
                          int64_t m, int32_t* y) {
  int64_t shape[] = {n, m};
  qn_tensor_t tensor = {y, {QN_DEVICE_CPU, 0}, 2, qn_dtype_to_dl(QN_DTYPE_I32), shape, NULL, 0};
  qn_value_t args[] = {qn_value_int(k), qn_value_tensor(&tensor)};
  return stream ? qn_function_call_on(function, stream, args, 2, NULL)
                : qn_function_call(function, args, 2, NULL);
}

void world_call(world_t* world, int64_t k, int64_t n, int64_t m, int times) {
  int32_t y[64];
  assert_true(n * m <= 64);
  for (int i = 0; i < times; i++) {
    memset(y, 0, sizeof y);
    must(adaptive_call(world->function, NULL, k, n, m, y));
    for (int64_t j = 0; j < n * m; j++) assert_int_equal(y[j], k + 10 * n + 100 * m);
  }
}

bool world_step(world_t* world) {
  return qn__background_step(&world->gated.engine->background);
}

uint64_t world_counter(const world_t* world, const char* name) {
  return counter_of(world->gated.engine, name);
}

void world_on_variant(void* self, const qn_variant_info_t* variant) {
  find_t* find = self;
  find->count++;
  assert_int_equal(variant->struct_size, sizeof *variant);
  if (strcmp(variant->values, find->values) != 0) return;
  find->info = *variant;
  (void)snprintf(find->reason, sizeof find->reason, "%s", variant->reason);
}

find_t world_look(const world_t* world, const char* values) {
  find_t find = {.values = values};
  must(qn_engine_variants(world->gated.engine, world->function, world_on_variant, &find));
  return find;
}

void world_assert_state(const world_t* world, const char* values, qn_variant_state_t state,
                        const char* reason) {
  find_t find = world_look(world, values);
  assert_string_equal(qn_variant_state_text(find.info.state), qn_variant_state_text(state));
  if (!strstr(find.reason, reason)) fail_msg("'%s' lacks '%s'", find.reason, reason);
}

void world_bring_to_trial(world_t* world, int64_t k, int64_t n, int64_t m, const char* values) {
  world_call(world, k, n, m, 40);
  assert_true(world_step(world));
  if (world_look(world, values).info.state != QN_VARIANT_TRIAL) assert_true(world_step(world));
  world_assert_state(world, values, QN_VARIANT_TRIAL, "prove");
}

void world_bring_to_end(world_t* world, int64_t k, int64_t n, int64_t m, const char* values) {
  world_bring_to_trial(world, k, n, m, values);
  world_call(world, k, n, m, 64);
  (void)world_step(world);
}
