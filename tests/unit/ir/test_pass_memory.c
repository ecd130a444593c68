// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_memory.c: tests of the passes for loops that memory bounds
// (ir/passes/cpu/ strips.c and its neighbours), with the interpreter as the oracle.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/interpret.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support_pass.h"
#include "tests/support/fault.h"
#include "tests/support/generate.h"
#include "tests/support/memory_program.h"
#include "tests/support/sanitized.h"

static uint64_t first_seed = 1;
static uint64_t seed_count = IS_SANITIZED ? 60 : 300;

static const qn__pass_options_t targets[] = {
    {.vector_bytes = 16, .has_blocks = true},
    {.vector_bytes = 32, .has_blocks = true},
    {.vector_bytes = 64, .has_blocks = true, .has_masked_memory = true},
};

// ---- results

static void run(const memory_program_t* program, const qn__ir_func_t* function,
                memory_args_t* args) {
  qn__interpret_args_t call = {
      .params = args->words, .symbols = program->symbols, .warp_size = 32, .runs_lanes = true};
  qn_status_t status = qn__interpret(function, &call, qn_allocator_default());
  if (!qn_ok(status)) {
    fail_msg("seed %" PRIu64 ": %s\n%s", program->seed, qn_status_message(status), program->text);
  }
}

static void interpret(const memory_program_t* program, const qn__ir_func_t* function,
                      memory_args_t* args) {
  memory_args_init(program, args);
  run(program, function, args);
}

static void show(const qn__ir_body_t* body) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn__text_print(body, &text);
  print_message("%s\n", (const char*)text.data);
  qn__buffer_deinit(&text);
}

static void compare(const memory_program_t* program, const memory_args_t* want,
                    const qn__pass_options_t* options) {
  qn__ir_body_t body;
  assert_true(qn_ok(qn__body_clone(&program->module->body, qn_allocator_default(), &body)));
  qn_status_t status = qn__passes_run_cpu(&body, options);
  if (qn_ok(status)) status = qn__body_verify_status(&body, "the passes");
  if (!qn_ok(status)) {
    fail_msg("seed %" PRIu64 ": %s\n%s", program->seed, qn_status_message(status), program->text);
  }
  qn__function_number(body.first);
  memory_args_t have;
  interpret(program, body.first, &have);
  size_t index;
  const char* name = memory_args_compare(program, want, &have, &index);
  if (name) {
    show(&body);
    fail_msg("seed %" PRIu64 ": '%s' differs at %zu\n%s", program->seed, name, index,
             program->text);
  }
  memory_args_deinit(&have);
  qn__body_deinit(&body);
}

static void random_programs_keep_their_results(void** state) {
  (void)state;
  for (uint64_t seed = first_seed; seed < first_seed + seed_count; ++seed) {
    memory_program_t program;
    memory_program_init(seed, &program);
    memory_args_t want;
    interpret(&program, program.module->functions[0], &want);
    compare(&program, &want, &targets[seed % QN_COUNT_OF(targets)]);
    memory_args_deinit(&want);
    memory_program_deinit(&program);
  }
}

// A row must not meet an infinity beyond its range, which would make its sums NaN.
static void infinity_beyond_a_range(void** state) {
  (void)state;
  static const char text[] =
      "func f(a: f32[n, 8], b: f32[n, 8], inout c: f32[n, 8], out d: f32[n, 8]) {\n"
      "  parallel i in 0..n {\n"
      "    alloc p: f32[128] in local;\n"
      "    for j in 0..i + 1 { p[j] = sum t in 0..8 { a[i, t] * b[j, t] }; }\n"
      "    let total = sum j in 0..i + 1 { p[j] };\n"
      "    for t in 0..8 { d[i, t] = total + sum j in 0..i + 1 { p[j] * c[j, t] }; }\n"
      "  }\n"
      "}";
  memory_program_t program = {.symbols = {100}};
  assert_true(qn_ok(qn_module_parse(text, strlen(text), NULL, &program.module)));
  const float values[] = {1.0F, INFINITY, -INFINITY, NAN};
  for (size_t v = 0; v < QN_COUNT_OF(values); ++v) {
    qn__ir_body_t body;
    assert_true(qn_ok(qn__body_clone(&program.module->body, qn_allocator_default(), &body)));
    assert_true(qn_ok(qn__passes_run_cpu(&body, &targets[1])));
    qn__function_number(body.first);
    memory_args_t want, have;
    memory_args_init(&program, &want);
    memory_args_init(&program, &have);
    ((float*)(void*)want.data[2])[40 * 8 + 3] = values[v];
    ((float*)(void*)have.data[2])[40 * 8 + 3] = values[v];
    run(&program, program.module->functions[0], &want);
    run(&program, body.first, &have);
    size_t index;
    assert_null(memory_args_compare(&program, &want, &have, &index));
    memory_args_deinit(&want);
    memory_args_deinit(&have);
    qn__body_deinit(&body);
  }
  qn_module_release(program.module);
}

static bool try_without_memory(qn_allocator_t allocator, void* user) {
  const memory_program_t* program = user;
  qn__ir_body_t body;
  qn_status_t status = qn__body_clone(&program->module->body, allocator, &body);
  if (qn_ok(status)) {
    status = qn__passes_run_cpu(&body, &targets[2]);
    qn__body_deinit(&body);
  }
  bool is_fine = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  qn_status_free(status);
  return is_fine;
}

static void memory_runs_out(void** state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    memory_program_t program;
    memory_program_init(seed, &program);
    assert_true(qn_fault_walk_alloc(try_without_memory, &program) > 0);
    memory_program_deinit(&program);
  }
}

// ---- strips

static void expect_strips(const char* text, const char* expected) {
  static const qn__pass_t* const passes[] = {&qn__pass_independent, &qn__pass_strip};
  qn_test_expect_all(passes, QN_COUNT_OF(passes), &targets[2], text, expected);
}

static void sums_of_columns(void** state) {
  (void)state;
  expect_strips(
      "func f(a: f32[n, m], out c: f32[m]) {\n"
      "  parallel j in 0..m { c[j] = (sum i in 0..n { a[i, j] }) * 2.0; }\n"
      "}",
      "parallel strip in 0..ceildiv(columns, lines) {\n"
      "alloc acc: f32[4096] in local;\n"
      "acc[j - first] = 0.0;\n"
      "for t in 0..rounds {\n"
      "let i_3 = t * 4 + 3;\n"
      "parallel j in first..limit {\n"
      "let sum_4 = sum_3 + term_3;\n"
      "acc[j - first] = sum_4;\n"
      "for t in rounds * 4..steps {\n"
      "c[j] = acc[j - first] * 2.0;\n");
  // Reductions over one range share a loop. The second range is another.
  expect_strips(
      "func f(a: f32[n, m], out c: f32[m]) {\n"
      "  parallel j in 0..m {\n"
      "    let s = sum i in 0..n { a[i, j] };\n"
      "    let t = max i in 0..n { a[i, j] };\n"
      "    c[j] = s + t + (sum i in 1..n { a[i, j] * t });\n"
      "  }\n"
      "}",
      "acc[j - first] = 0.0;\n"
      "acc_1[j - first] = -inf;\n"
      "acc[j - first] = sum_8;\n"
      "acc_1[j - first] = sum_9;\n"
      "acc_2[j - first] = 0.0;\n");
  // Sums of narrow floats are sums of f32, rounded once.
  expect_strips(
      "func f(a: f16[n, m], out c: f16[m]) {\n"
      "  parallel j in 0..m { c[j] = sum i in 0..n { a[i, j] }; }\n"
      "}",
      "alloc acc: f32[4096] in local;\n"
      "c[j] = f16(acc[j - first]);\n");
}

static void loops_down_columns(void** state) {
  (void)state;
  expect_strips(
      "func f(a: f32[n, m], out b: f32[n, m]) {\n"
      "  parallel j in 0..m {\n"
      "    alloc s: f32[2] in local;\n"
      "    s[0] = 0.0;\n"
      "    for i in 0..n { s[0] = s[0] + a[i, j]; b[i, j] = s[0]; }\n"
      "  }\n"
      "}",
      "alloc s: f32[2, 4096] in local;\n"
      "parallel j in first..limit {\n"
      "s[0, j - first] = 0.0;\n"
      "for i in 0..n {\n"
      "parallel j in first..limit {\n"
      "s[0, j - first] = s[0, j - first] + a[i, j];\n"
      "b[i, j] = s[0, j - first];\n");
  // A product whose sum is a loop of statements: the order of the sum is fixed.
  expect_strips(
      "func f(a: f32[n, k], b: f32[k, m], out c: f32[n, m]) {\n"
      "  parallel i in 0..n { parallel j in 0..m {\n"
      "    alloc s: f32[1] in local;\n"
      "    s[0] = 0.0;\n"
      "    for p in 0..k { s[0] = s[0] + a[i, p] * b[p, j]; }\n"
      "    c[i, j] = s[0];\n"
      "  } }\n"
      "}",
      "alloc s: f32[1, 4096] in local;\n"
      "for p in 0..k {\n"
      "parallel j in first..limit {\n"
      "s[0, j - first] = s[0, j - first] + a[i, p] * b[p, j];\n"
      "c[i, j] = s[0, j - first];\n");
}

// The strip's loops must not appear.
static void expect_none(const char* text) {
  static const qn__pass_t* const passes[] = {&qn__pass_independent, &qn__pass_strip};
  char* printed = qn_test_pass(text, &targets[2], passes, QN_COUNT_OF(passes));
  if (strstr(printed, "strip")) fail_msg("%s", printed);
  free(printed);
}

static void other_loops_stay(void** state) {
  (void)state;
  // Rows, a window over a row, a product, and registers.
  expect_none(
      "func f(a: f32[n, m], out c: f32[n]) {\n"
      "  parallel i in 0..n { c[i] = sum j in 0..m { a[i, j] }; }\n}");
  expect_none(
      "func f(a: f32[n + m], b: f32[n], out c: f32[m]) {\n"
      "  parallel j in 0..m { c[j] = sum i in 0..n { a[i + j] }; }\n}");
  expect_none(
      "func f(a: f32[n, m], x: f32[n], out c: f32[m]) {\n"
      "  parallel j in 0..m { c[j] = sum i in 0..n { x[i] * a[i, j] }; }\n}");
  expect_none(
      "func f(a: f32[4, m], out c: f32[m]) {\n"
      "  parallel j in 0..m { c[j] = sum i in 0..4 { a[i, j] }; }\n}");
  // An iteration that needs the one before.
  expect_none(
      "func f(a: f32[n, m], inout c: f32[m + 1]) {\n"
      "  for j in 0..m { c[j + 1] = c[j] + (sum i in 0..n { a[i, j] }); }\n}");
  // Columns that are not equally long.
  expect_none(
      "func f(a: f32[n, m], out c: f32[m]) {\n"
      "  parallel j in 0..m { c[j] = sum i in 0..min(j, n) { a[i, j] }; }\n}");
  // Asserts and atomics keep their order.
  expect_none(
      "func f(a: f32[n, m], inout h: i32[1], out c: f32[m]) {\n"
      "  parallel j in 0..m { c[j] = sum i in 0..n { a[i, j] }; atomic_add(h[0], 1); }\n}");
}

// ---- orders and tiles

static void expect_permuted(const char* text, const char* expected) {
  static const qn__pass_t* const passes[] = {&qn__pass_independent, &qn__pass_permute};
  qn_test_expect_all(passes, QN_COUNT_OF(passes), &targets[2], text, expected);
}

static void loops_along_rows(void** state) {
  (void)state;
  expect_permuted(
      "func f(a: f32[n, m], out b: f32[n, m]) {\n"
      "  parallel j in 0..m { for i in 0..n { b[i, j] = a[i, j] * 2.0; } }\n"
      "}",
      "parallel i in 0..n {\n"
      "parallel j in 0..m {\n"
      "b[i, j] = a[i, j] * 2.0;\n");
  // A loop that depends on the one around it stays inside.
  expect_permuted(
      "func f(a: f32[n, m], out b: f32[n, m]) {\n"
      "  parallel j in 0..m { for i in 0..min(j, n) { b[i, j] = a[i, j] * 2.0; } }\n"
      "}",
      "parallel j in 0..m {\n"
      "for i in 0..min(j, n) {\n");
}

static void transposes_in_tiles(void** state) {
  (void)state;
  expect_permuted(
      "func f(a: f16[k, n, m], c: f32[k, m, n], out b: f32[k, m, n]) {\n"
      "  parallel u in 0..k { parallel i in 0..n { parallel j in 0..m {\n"
      "    b[u, j, i] = f32(a[u, i, j]) + c[u, j, i];\n"
      "  } } }\n"
      "}",
      "parallel u in 0..k {\n"
      "if count_1 < 16 {\n"
      "b[u, first + i_1, i] = f32(a[u, i, first + i_1]) + c[u, first + i_1, i];\n"
      "for tile_p in 0..tiles_p {\n"
      "for tile_q in 0..tiles_q {\n"
      "alloc tile: f16[16, 16] in local;\n");
  // Lines of half a vector.
  expect_permuted(
      "func f(a: f32[n, m], out b: f32[m, n]) {\n"
      "  parallel i in 0..n { parallel j in 0..m { b[j, i] = a[i, j]; } }\n"
      "}",
      "alloc tile: f32[8, 8] in local;\n");
}

// The tiles must not appear.
static void expect_no_tile(const char* text) {
  static const qn__pass_t* const passes[] = {&qn__pass_independent, &qn__pass_permute};
  char* printed = qn_test_pass(text, &targets[2], passes, QN_COUNT_OF(passes));
  if (strstr(printed, "tile")) fail_msg("%s", printed);
  free(printed);
}

static void other_nests_have_no_tiles(void** state) {
  (void)state;
  // A load that not every iteration evaluates, and one of memory that the nest stores to.
  expect_no_tile(
      "func f(a: f32[n, m], out b: f32[m, n]) {\n"
      "  parallel i in 0..n { parallel j in 0..m {\n"
      "    b[j, i] = i > j ? a[i, j] : 0.0; } }\n}");
  expect_no_tile(
      "func f(a: f32[n, m], inout b: f32[m, n]) {\n"
      "  parallel i in 0..n { parallel j in 0..m {\n"
      "    if i > j { b[j, i] = b[i, j] + a[i, j]; } } }\n}");
  // Sides that are shorter than a tile, and a place that is read from memory.
  expect_no_tile(
      "func f(a: f32[n, 3], out b: f32[3, n]) {\n"
      "  parallel i in 0..n { parallel j in 0..3 { b[j, i] = a[i, j]; } }\n}");
  expect_no_tile(
      "func f(a: f32[n, m], s: i32[n], out b: f32[m, n]) {\n"
      "  parallel i in 0..n { parallel j in 0..m { b[j, i] = a[s[i], j]; } }\n}");
  // Loops in lanes do not nest.
  expect_no_tile(
      "func f(a: f32[n, m, 4], out b: f32[4, m, n]) {\n"
      "  vector v in 0..4 { for i in 0..n { for j in 0..m {\n"
      "    b[v, j, i] = a[i, j, v]; } } }\n}");
}

int main(void) {
  qn_generate_seeds(&first_seed, &seed_count);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_programs_keep_their_results),
      cmocka_unit_test(infinity_beyond_a_range),
      cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(sums_of_columns),
      cmocka_unit_test(loops_down_columns),
      cmocka_unit_test(other_loops_stay),
      cmocka_unit_test(loops_along_rows),
      cmocka_unit_test(transposes_in_tiles),
      cmocka_unit_test(other_nests_have_no_tiles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
