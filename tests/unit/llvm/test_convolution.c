// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/test_convolution.c: random convolutions, the interpreter against compiled code
// for several processors.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/interpret.h"
#include "support_oracle.h"
#include "tests/support/conv_program.h"
#include "tests/support/generate.h"

static uint64_t first_seed = 1;
static uint64_t seed_count = 40;

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
    conv_program_init(seed, &program);
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

// Elements that are two or three apart are loaded with their neighbours.
static void strides_need_no_gather(void** state) {
  (void)state;
  static const char* const programs[] = {
      "func f(x: f32[64, n, n], k: f32[64, 64, 3], out y: f32[64, n, n]) {\n"
      "  parallel o in 0..64 { parallel i in 0..n { parallel j in 0..n {\n"
      "    y[o, i, j] = sum c in 0..64 { sum q in 0..3 {\n"
      "      (j * 2 + q >= 1 && j * 2 + q <= n ? x[c, i, j * 2 + q - 1] : 0.0) * k[o, c, q]\n"
      "    } }; } } }\n"
      "}",
      "func f(x: f16[n, m, 3], out y: f32[n, m]) {\n"
      "  parallel i in 0..n { for j in 0..m { y[i, j] = f32(x[i, j, 1]); } }\n"
      "}"};
  for (size_t p = 0; p < QN_COUNT_OF(programs); ++p) {
    char* text = assembly_of(programs[p], "cpu -mcpu=x86-64-v4");
    if (strstr(text, "gather") || strstr(text, "vpinsrw")) fail_msg("%s", programs[p]);
    free(text);
  }
}

// Weights that are no numbers do not count in the padding: the only row of an image has none.
static void guards_exclude_infinities(void** state) {
  (void)state;
  static const char program[] =
      "func f(x: f32[3, n, m], inout k: f32[9, 3, 3, 3], out y: f32[9, n, m]) {\n"
      "  parallel o in 0..9 { for c in 0..3 { for q in 0..3 {\n"
      "    k[o, c, 0, q] = k[o, c, 2, q] > 0.0 ? inf : nan; } } }\n"
      "  parallel o in 0..9 { parallel i in 0..n { parallel j in 0..m {\n"
      "    y[o, i, j] = sum c in 0..3 { sum p in 0..3 { sum q in 0..3 {\n"
      "      let r = i + p - 1; let s = j + q - 1;\n"
      "      r >= 0 && r < n && s >= 0 && s < m ? x[c, r, s] * k[o, c, p, q] : 0.0 } } }; } } }\n"
      "}";
  static const int64_t shapes[][2] = {{1, 1}, {1, 17}, {1, 100}, {7, 33}, {0, 5}};
  qn_module_t* module = parse_or_die(program);
  const qn__ir_func_t* f = module->functions[0];
  for (size_t b = 0; b < QN_COUNT_OF(builds); ++b) {
    if (!build_can_run(builds[b].cpu)) continue;
    qn_status_t error;
    kernels_t* kernels = kernels_create(module, builds[b], false, &error);
    if (!kernels) fail_msg("%s: %s", builds[b].cpu, qn_status_message(error));
    for (size_t s = 0; s < QN_COUNT_OF(shapes); ++s) {
      int64_t symbols[2];
      for (size_t i = 0; i < f->symbol_count; ++i) {
        symbols[i] = shapes[s][f->symbols[i]->name[0] == 'm'];
      }
      oracle_case_t test = {.function = f,
                            .symbols = symbols,
                            .seed = s + 3,
                            .has_specials = true,
                            .tolerance = 1e-4};
      const char* problem = oracle_compare(&test, 0, &kernels, 1);
      if (problem) fail_msg("%s: %s", builds[b].cpu, problem);
    }
    kernels_destroy(kernels);
  }
  qn_module_release(module);
}

int main(void) {
  qn_generate_seeds(&first_seed, &seed_count);
  const struct CMUnitTest tests[] = {cmocka_unit_test(compiled_programs_agree),
                                     cmocka_unit_test(strides_need_no_gather),
                                     cmocka_unit_test(guards_exclude_infinities)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
