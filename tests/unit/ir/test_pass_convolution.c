// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_convolution.c: tests that convolutions written as loops become products
// in blocks and tiles, with the interpreter as the oracle.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/interpret.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support_pass.h"
#include "tests/support/conv_program.h"
#include "tests/support/fault.h"
#include "tests/support/generate.h"
#include "tests/support/sanitized.h"

static uint64_t first_seed = 1;
static uint64_t seed_count = IS_SANITIZED ? 40 : 200;

// Three processors with small caches, one with large vectors, and one GPU.
static const qn__pass_options_t targets[] = {
    {.vector_bytes = 16, .has_blocks = true, .l1_bytes = 1024, .l2_bytes = 8192},
    {.vector_bytes = 32, .has_blocks = true, .l1_bytes = 4096, .l2_bytes = 16384},
    {.vector_bytes = 64, .has_blocks = true, .has_masked_memory = true},
    {.vector_bytes = 32,
     .has_blocks = true,
     .has_masked_words = true,
     .l1_bytes = 4096,
     .l2_bytes = 16384},
    {.warp_size = 8, .max_threads = 128, .preferred_threads = 64, .max_shared_bytes = 4096},
};

static qn_status_t run_passes(qn__ir_body_t* body, const qn__pass_options_t* options) {
  return options->warp_size ? qn__passes_run_gpu(body, options) : qn__passes_run_cpu(body, options);
}

static void interpret(const memory_program_t* program, const qn__ir_func_t* function,
                      memory_args_t* args) {
  memory_args_init(program, args);
  qn__interpret_args_t call = {
      .params = args->words, .symbols = program->symbols, .warp_size = 32, .runs_lanes = true};
  qn_status_t status = qn__interpret(function, &call, qn_allocator_default());
  if (!qn_ok(status)) {
    fail_msg("seed %" PRIu64 ": %s\n%s", program->seed, qn_status_message(status), program->text);
  }
}

static void compare(const memory_program_t* program, const memory_args_t* want,
                    const qn__pass_options_t* options) {
  qn__ir_body_t body;
  assert_true(qn_ok(qn__body_clone(&program->module->body, qn_allocator_default(), &body)));
  qn_status_t status = run_passes(&body, options);
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
    fail_msg("seed %" PRIu64 ": '%s' differs at %zu\n%s", program->seed, name, index,
             program->text);
  }
  memory_args_deinit(&have);
  qn__body_deinit(&body);
}

static void random_convolutions_keep_their_results(void** state) {
  (void)state;
  for (uint64_t seed = first_seed; seed < first_seed + seed_count; ++seed) {
    memory_program_t program;
    conv_program_init(seed, &program);
    memory_args_t want;
    interpret(&program, program.module->functions[0], &want);
    compare(&program, &want, &targets[seed % QN_COUNT_OF(targets)]);
    memory_args_deinit(&want);
    memory_program_deinit(&program);
  }
}

static bool try_without_memory(qn_allocator_t allocator, void* user) {
  const memory_program_t* program = user;
  qn__ir_body_t body;
  qn_status_t status = qn__body_clone(&program->module->body, allocator, &body);
  if (qn_ok(status)) {
    status = run_passes(&body, &targets[program->seed % QN_COUNT_OF(targets)]);
    qn__body_deinit(&body);
  }
  bool is_fine = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  qn_status_free(status);
  return is_fine;
}

static void memory_runs_out(void** state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    memory_program_t program;
    conv_program_init(seed, &program);
    assert_true(qn_fault_walk_alloc(try_without_memory, &program) > 0);
    memory_program_deinit(&program);
  }
}

// ---- forms

static void expect_blocks(const char* text, bool has_blocks) {
  static const qn__pass_t* const passes[] = {&qn__pass_independent, &qn__pass_block};
  char* printed = qn_test_pass(text, &targets[2], passes, QN_COUNT_OF(passes));
  if ((strstr(printed, "packed_columns") != NULL) != has_blocks) fail_msg("%s", printed);
  free(printed);
}

// A convolution of 3 x 3 whose summand is `value`.
#define CONVOLUTION(value)                                                       \
  "func f(x: f32[64, 56, 56], k: f32[64, 64, 3, 3], out y: f32[64, 56, 56]) {\n" \
  "  parallel o in 0..64 { parallel i in 0..56 { parallel j in 0..56 {\n"        \
  "    y[o, i, j] = sum c in 0..64 { sum p in 0..3 { sum q in 0..3 {\n"          \
  "      let r = i + p - 1; let s = j + q - 1;\n"                                \
  "      " value                                                                 \
  "} } };\n"                                                                     \
  "  } } }\n"                                                                    \
  "}"
#define IS_INSIDE "r >= 0 && r < 56 && s >= 0 && s < 56"

static void padding_is_part_of_an_operand(void** state) {
  (void)state;
  expect_blocks(CONVOLUTION("(" IS_INSIDE " ? x[c, r, s] : 0.0) * k[o, c, p, q]"), true);
  expect_blocks(CONVOLUTION("let v = " IS_INSIDE " ? x[c, r, s] : 0.0; k[o, c, p, q] * v"), true);
}

// Checks the text of a convolution after the pass.
static void expect_parts(const char* text, const qn__pass_options_t* target,
                         const char* const* parts, const char* missing) {
  static const qn__pass_t* const passes[] = {&qn__pass_independent, &qn__pass_block};
  char* printed = qn_test_pass(text, target, passes, QN_COUNT_OF(passes));
  for (; *parts; ++parts) {
    if (!strstr(printed, *parts)) fail_msg("no '%s' in\n%s", *parts, printed);
  }
  if (strstr(printed, missing)) fail_msg("'%s' in\n%s", missing, printed);
  free(printed);
}

static void padding_costs_no_condition(void** state) {
  (void)state;
  static const char text[] = CONVOLUTION("(" IS_INSIDE " ? x[c, r, s] : 0.0) * k[o, c, p, q]");
  // Inside of the padding no element has a condition; the weights are copied as they lie.
  static const char* const runs[] = {" in inside..outside {", " in outside..to {",
                                     "= k[o, 0, 0, 0];", NULL};
  qn__pass_options_t plain = targets[2];
  plain.has_masked_memory = false;
  expect_parts(text, &plain, runs, "? x[");
  // Masks depend on no channel, whose loop is innermost.
  static const char* const masks[] = {"l >= inside_1 && l < outside_1 ? x[c,", "= k[o, 0, 0, 0];",
                                      "in ceildiv(skipped, 9)..ceildiv(skipped + count, 9) {",
                                      NULL};
  expect_parts(text, &targets[2], masks, "r < 56");
  // Where only loads have masks, whole vectors are stored: lanes of other runs keep what is packed.
  // The weights are read where they are.
  qn__pass_options_t words = {.vector_bytes = 32, .has_blocks = true, .has_masked_words = true};
  static const char* const blended[] = {"l >= inside_1 && l < outside_1 ? x[c,",
                                        "l < end ? 0.0 :", "= k[o, 0, 0, 0];", NULL};
  expect_parts(text, &words, blended, "packed_rows");
}

// Along the window there are three neighbours, along the image as many as a vector has, two
// elements apart.
static void strided_columns_are_packed_across(void** state) {
  (void)state;
  static const char text[] =
      "func f(x: f32[64, 56, 56], k: f32[64, 64, 3, 3], out y: f32[64, 28, 28]) {\n"
      "  parallel o in 0..64 { parallel i in 0..28 { parallel j in 0..28 {\n"
      "    y[o, i, j] = sum c in 0..64 { sum p in 0..3 { sum q in 0..3 {\n"
      "      let r = i * 2 + p - 1; let s = j * 2 + q - 1;\n"
      "      (" IS_INSIDE
      " ? x[c, r, s] : 0.0) * k[o, c, p, q]\n"
      "    } } };\n"
      "  } } }\n"
      "}";
  static const char* const masks[] = {"vector l in 0..32 {",
                                      "l >= inside_1 && l < outside_1 ? x[c,", NULL};
  expect_parts(text, &targets[2], masks, "r < 56");
  static const char* const words[] = {"l >= inside_1 && l < outside_1 ? x[c,", NULL};
  expect_parts(text, &targets[3], words, "r < 56");
}

// The guard is packed as a mask, so that no factor of a padded element counts.
static void products_are_guarded(void** state) {
  (void)state;
  static const char* const parts[] = {"packed_columns: bool[", "? x[c,",
                                      "l < outside_1 ? true : false", NULL};
  expect_parts(CONVOLUTION(IS_INSIDE " ? x[c, r, s] * k[o, c, p, q] : 0.0"), &targets[2], parts,
               "r < 56");
  // Another value than 0, a guard that depends on rows, and rows that may not exist.
  expect_blocks(CONVOLUTION(IS_INSIDE " ? x[c, r, s] * k[o, c, p, q] : 1.0"), false);
  expect_blocks(CONVOLUTION("s < o ? x[c, i, j] * k[o, c, p, q] : 0.0"), false);
  expect_blocks(
      CONVOLUTION(
          "c + s < 64 && s >= 0 && r >= 0 && r < 56 ? x[c, r, s] * k[o, c + s, p, q] : 0.0"),
      false);
  expect_blocks(CONVOLUTION(IS_INSIDE " && c < 63 ? x[c, r, s] * k[o, c + 1, p, q] : 0.0"), false);
}

static void other_sums_of_sums_stay(void** state) {
  (void)state;
  // A factor between the sums, bounds of the inner one that vary, and other kinds of reductions.
  static const char format[] =
      "func f(a: f32[64, 64, 9], b: f32[64, 9, 64], out c: f32[64, 64]) {\n"
      "  parallel i in 0..64 { parallel j in 0..64 { c[i, j] = sum p in 0..64 { %s }; } }\n"
      "}";
  static const struct {
    const char* value;
    bool has_blocks;
  } forms[] = {
      {"sum q in 0..9 { a[i, p, q] * b[p, q, j] }", true},
      {"let t = sum q in 0..9 { a[i, p, q] * b[p, q, j] }; t", true},
      {"2.0 * (sum q in 0..9 { a[i, p, q] * b[p, q, j] })", false},
      {"sum q in 0..p { a[i, p, q] * b[p, q, j] }", false},
      {"max q in 0..9 { a[i, p, q] * b[p, q, j] }", false},
  };
  for (size_t f = 0; f < QN_COUNT_OF(forms); ++f) {
    char text[512];
    (void)snprintf(text, sizeof text, format, forms[f].value);
    expect_blocks(text, forms[f].has_blocks);
  }
}

// Sizes of blocks are computed without overflow.
static void the_largest_extent_has_blocks(void** state) {
  (void)state;
#define LARGEST "9223372036854775807"
  static const char text[] =
      "func f(x: f32[" LARGEST ", 30, 64] strides [0, 64, 1], w: f32[32, " LARGEST
      "] strides [1, 0],\n"
      "       out y: f32[32, 30, 64]) {\n"
      "  parallel o in 0..32 { for u in 0..30 { for v in 0..64 {\n"
      "    y[o, u, v] = sum c in 0.." LARGEST
      " { x[c, u, v] * w[o, c] }; } } }\n"
      "}";
  static const char* const parts[] = {"alloc packed_columns: f32[", NULL};
  for (size_t t = 0; t < 3; ++t) {
    expect_parts(text, &targets[t], parts, "packed_columns: f32[" LARGEST);
  }
}

int main(void) {
  qn_generate_seeds(&first_seed, &seed_count);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_convolutions_keep_their_results),
      cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(padding_is_part_of_an_operand),
      cmocka_unit_test(padding_costs_no_condition),
      cmocka_unit_test(strided_columns_are_packed_across),
      cmocka_unit_test(products_are_guarded),
      cmocka_unit_test(other_sums_of_sums_stay),
      cmocka_unit_test(the_largest_extent_has_blocks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
