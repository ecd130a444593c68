// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/test_memory.c: random programs that memory bounds, the interpreter against
// compiled code for several processors.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/interpret.h"
#include "support_emit.h"
#include "tests/support/generate.h"
#include "tests/support/memory_program.h"

static uint64_t first_seed = 1;
static uint64_t seed_count = 60;

static const build_t builds[] = {
    {.cpu = "native"},
    {.cpu = "x86-64-v3"},
    {.cpu = "x86-64"},
    {.cpu = "x86-64-v4", .vector_bytes = 32},
    {.cpu = "native", .is_fast = true},
};

static void check(const memory_program_t* program, const memory_args_t* want, build_t build,
                  uint32_t pieces) {
  qn_status_t error;
  kernels_t* kernels = kernels_create(program->module, build, false, &error);
  if (!kernels) fail_msg("seed %" PRIu64 ": %s", program->seed, qn_status_message(error));
  memory_args_t have;
  memory_args_init(program, &have);
  run_report_t report = kernels_run(kernels, 0, have.words, pieces, 1000);
  assert_int_equal(report.result, 0);
  assert_int_equal(report.held_workspaces, 0);
  size_t index;
  const char* name = memory_args_compare(program, want, &have, &index);
  if (name) {
    fail_msg("seed %" PRIu64 ", %s%s: '%s' differs at %zu\n%s", program->seed, build.cpu,
             build.is_fast ? " fast" : "", name, index, program->text);
  }
  memory_args_deinit(&have);
  kernels_destroy(kernels);
}

static void compiled_programs_agree(void** state) {
  (void)state;
  for (uint64_t seed = first_seed; seed < first_seed + seed_count; ++seed) {
    memory_program_t program;
    memory_program_init(seed, &program);
    memory_args_t want;
    memory_args_init(&program, &want);
    qn__interpret_args_t call = {.params = want.words, .symbols = program.symbols, .warp_size = 32};
    const qn__ir_func_t* function = program.module->functions[0];
    assert_true(qn_ok(qn__interpret(function, &call, qn_allocator_default())));
    for (size_t i = 0; i < QN_COUNT_OF(builds); ++i) {
      bool is_asked = i == 0 || i == 1 + seed % (QN_COUNT_OF(builds) - 1);
      if (is_asked && build_can_run(builds[i].cpu)) check(&program, &want, builds[i], 3);
    }
    memory_args_deinit(&want);
    memory_program_deinit(&program);
  }
}

// ---- loops that begin at lines of the cache (jit/llvm/emit_align.c)

enum { long_count = 1500 };

// Runs loops over begin..n, and compares with C: no element is stored outside, and those that a
// loop loads, too, are stored once.
static void check_long_loops(build_t build, int64_t begin, int64_t n) {
  char text[512];
  (void)snprintf(text, sizeof text,
                 "func f(x: f32[n], inout y: f32[n], inout z: f32[n], inout w: i8[n]) {\n"
                 "  for j in %" PRId64
                 "..n { y[j] = x[j] + 1.0; }\n"
                 "  for j in %" PRId64
                 "..n { z[j] = z[j] * 2.0; }\n"
                 "  for j in %" PRId64
                 "..n { w[j] = i8(i32(x[j]) %% 100); }\n"
                 "}",
                 begin, begin, begin);
  qn_module_t* module = parse_or_die(text);
  qn_status_t error;
  kernels_t* kernels = kernels_create(module, build, false, &error);
  if (!kernels) fail_msg("%s", qn_status_message(error));
  static float x[long_count], y[long_count], z[long_count];
  static int8_t w[long_count];
  for (int i = 0; i < long_count; ++i) {
    x[i] = (float)i;
    y[i] = -1.0F;
    z[i] = (float)i;
    w[i] = -1;
  }
  const uint64_t words[] = {(uintptr_t)x, (uintptr_t)y, (uintptr_t)z, (uintptr_t)w, (uint64_t)n};
  assert_int_equal(kernels_run(kernels, 0, words, 3, 0).result, 0);
  for (int i = 0; i < long_count; ++i) {
    bool is_own = i >= begin && i < n;
    assert_true(y[i] == (is_own ? (float)i + 1.0F : -1.0F));
    assert_true(z[i] == (is_own ? 2.0F * (float)i : (float)i));
    assert_int_equal(w[i], is_own ? i % 100 : -1);
  }
  kernels_destroy(kernels);
  qn_module_release(module);
}

static void long_loops_at_any_place(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(builds); ++i) {
    if (!build_can_run(builds[i].cpu)) continue;
    for (int64_t begin = 0; begin < 20; begin += 3) {
      check_long_loops(builds[i], begin, begin + 511);
      check_long_loops(builds[i], begin, begin + 512);
      check_long_loops(builds[i], begin, long_count - begin);
    }
  }
}

int main(void) {
  qn_generate_seeds(&first_seed, &seed_count);
  const struct CMUnitTest tests[] = {cmocka_unit_test(compiled_programs_agree),
                                     cmocka_unit_test(long_loops_at_any_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
