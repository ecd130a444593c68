// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_random.c: random modules survive every way through the IR.
//
// For each seed: print and parse, encode and decode give the same bytes; and the interpreter gives
// the same results before and after each pass and after the whole CPU pipeline, checked and not.
// Nothing reorders floats here, so that they too must agree bit for bit, but in functions marked
// `fast`.
//
// QUERN_TEST_SEEDS=FIRST:COUNT runs other seeds, as many as one likes.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/interpret.h"
#include "ir/passes/passes.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/support/generate.h"

static uint64_t first_seed = 1;
static uint64_t seed_count = 200;

static void give_up(const qn_generated_t* generated, const char* what, const char* message) {
  print_message("%s\n", generated->text);
  fail_msg("seed %" PRIu64 ", %s: %s", generated->seed, what, message);
}

static void interpret(const qn_generated_t* generated, const qn__ir_func_t* function,
                      const char* what, qn_generated_args_t* args) {
  qn_generated_args_init(generated, args);
  qn__interpret_args_t call = {
      .params = args->params, .symbols = generated->symbols, .warp_size = 32, .runs_lanes = true};
  qn_status_t status = qn__interpret(function, &call, qn_allocator_default());
  if (!qn_ok(status)) give_up(generated, what, qn_status_message(status));
}

static qn_generated_t make_from(uint64_t seed, const qn_generate_options_t* options) {
  qn_generated_t generated;
  qn_status_t status;
  if (!qn_generate(seed, options, &generated, &status)) {
    give_up(&generated, "parse", qn_status_message(status));
  }
  return generated;
}

static qn_generated_t make(uint64_t seed, bool allows_faults) {
  qn_generate_options_t options = {.size = 4,
                                   .allows_fast = true,
                                   .allows_threads = true,
                                   .allows_waits = true,
                                   .allows_faults = allows_faults};
  return make_from(seed, &options);
}

static void same_bytes(const qn_generated_t* generated, const char* what, qn_status_t status,
                       qn_module_t* other) {
  if (!qn_ok(status)) give_up(generated, what, qn_status_message(status));
  size_t a, b;
  const void* bytes = qn_module_bytes(generated->module, &a);
  const void* others = qn_module_bytes(other, &b);
  if (a != b || memcmp(bytes, others, a) != 0) give_up(generated, what, "other bytes");
  qn_module_release(other);
}

static void round_trips(void** state) {
  (void)state;
  for (uint64_t seed = first_seed; seed < first_seed + seed_count; ++seed) {
    qn_generated_t generated = make(seed, false);
    char* text;
    size_t size;
    qn_module_t* again = NULL;
    assert_true(qn_ok(qn_module_print(generated.module, &text, &size)));
    qn_status_t status = qn_module_parse(text, size, NULL, &again);
    same_bytes(&generated, "print and parse", status, again);
    qn_text_free(text);
    const void* bytes = qn_module_bytes(generated.module, &size);
    status = qn_module_decode(bytes, size, NULL, &again);
    same_bytes(&generated, "encode and decode", status, again);
    qn_generated_release(&generated);
  }
}

// Runs passes on a copy and compares with what the module itself gave.
static void compare_after(const qn_generated_t* generated, const qn_generated_args_t* expected,
                          const char* what, const qn__pass_options_t* options,
                          const qn__pass_t* const* passes, size_t pass_count) {
  bool is_exact = !generated->is_fast && !options->has_blocks;
  qn__ir_body_t body;
  assert_true(qn_ok(qn__body_clone(&generated->module->body, qn_allocator_default(), &body)));
  qn_status_t status = pass_count > 0 ? qn__passes_run(&body, options, passes, pass_count)
                                      : qn__passes_run_cpu(&body, options);
  if (qn_ok(status)) status = qn__body_verify_status(&body, what);
  if (!qn_ok(status)) give_up(generated, what, qn_status_message(status));
  qn__function_number(body.first);
  qn_generated_args_t actual;
  interpret(generated, body.first, what, &actual);
  char message[256];
  if (!qn_generated_compare(generated, expected, &actual, is_exact, message, sizeof message)) {
    qn__buffer_t text;
    qn__buffer_init(&text, qn_allocator_default());
    qn__text_print(&body, &text);
    print_message("%s\n", (const char*)text.data);
    qn__buffer_deinit(&text);
    give_up(generated, what, message);
  }
  qn_generated_args_deinit(&actual);
  qn__body_deinit(&body);
}

static void passes_keep_the_meaning(void** state) {
  (void)state;
  static const qn__pass_t* const passes[] = {
      &qn__pass_lower_views, &qn__pass_serialize_threads, &qn__pass_unroll, &qn__pass_simplify,
      &qn__pass_hoist,       &qn__pass_vectorize,
  };
  for (uint64_t seed = first_seed; seed < first_seed + seed_count; ++seed) {
    qn_generated_t generated = make(seed, false);
    qn_generated_args_t expected;
    interpret(&generated, generated.module->functions[0], "as written", &expected);
    for (int checked = 0; checked < 2; ++checked) {
      qn__pass_options_t options = {.vector_bytes = 16U << (seed % 3),
                                    .has_masked_memory = seed % 2 == 0,
                                    .is_checked = checked != 0};
      for (size_t i = 0; i < QN_COUNT_OF(passes); ++i) {
        // Each follows those that replace what it does not know.
        const qn__pass_t* const list[] = {&qn__pass_lower_leaves, &qn__pass_lower_several,
                                          &qn__pass_lower_dtypes, &qn__pass_lower_exchanges,
                                          passes[i]};
        compare_after(&generated, &expected, passes[i]->name, &options, list, QN_COUNT_OF(list));
      }
      compare_after(&generated, &expected, "pipeline", &options, NULL, 0);
    }
    qn_generated_args_deinit(&expected);
    qn_generated_release(&generated);
  }
}

// The passes of the full tier, for processors and caches of several sizes. They reorder sums.
static void forms_keep_the_meaning(void** state) {
  (void)state;
  static const qn__pass_options_t targets[] = {
      {.vector_bytes = 64, .has_masked_memory = true, .has_fma = true, .has_blocks = true},
      {.vector_bytes = 64, .has_masked_memory = true, .wide_multiplies = 2, .has_blocks = true},
      {.vector_bytes = 32, .has_masked_words = true, .has_fma = true, .has_blocks = true},
      {.vector_bytes = 16, .has_blocks = true, .l1_bytes = 1024, .l2_bytes = 4096},
      {.vector_bytes = 32, .has_fma = true, .has_blocks = true, .l1_bytes = 4096, .l2_bytes = 8192},
  };
  for (uint64_t seed = first_seed; seed < first_seed + seed_count / 2; ++seed) {
    qn_generate_options_t options = {.size = 1, .allows_fast = true, .is_form = true};
    qn_generated_t generated = make_from(seed, &options);
    qn_generated_args_t expected;
    interpret(&generated, generated.module->functions[0], "as written", &expected);
    compare_after(&generated, &expected, "full tier", &targets[seed % QN_COUNT_OF(targets)], NULL,
                  0);
    qn_generated_args_deinit(&expected);
    qn_generated_release(&generated);
  }
}

static qn_status_code_t run_code(const qn_generated_t* generated, const qn__ir_func_t* function,
                                 qn_generated_args_t* args) {
  qn_generated_args_init(generated, args);
  qn__interpret_args_t call = {
      .params = args->params, .symbols = generated->symbols, .warp_size = 32};
  return qn_status_consume(qn__interpret(function, &call, qn_allocator_default()));
}

// A program that leaves a buffer or divides by zero does so after the passes of a checked build
// too, and one that does not, does not. (Which of two errors comes first may change: threads become
// loops.)
static void checks_are_kept(void** state) {
  (void)state;
  uint64_t faulty_count = 0;
  for (uint64_t seed = first_seed; seed < first_seed + seed_count; ++seed) {
    qn_generated_t generated = make(seed, true);
    qn_generated_args_t expected, actual;
    qn_status_code_t before = run_code(&generated, generated.module->functions[0], &expected);
    qn__ir_body_t body;
    assert_true(qn_ok(qn__body_clone(&generated.module->body, qn_allocator_default(), &body)));
    qn__pass_options_t options = {.vector_bytes = 32, .is_checked = true};
    qn_status_t status = qn__passes_run_cpu(&body, &options);
    if (!qn_ok(status)) give_up(&generated, "checked passes", qn_status_message(status));
    qn__function_number(body.first);
    qn_status_code_t after = run_code(&generated, body.first, &actual);
    if ((before == QN_STATUS_OK) != (after == QN_STATUS_OK)) {
      give_up(&generated, "checked passes", qn_status_code_text(after));
    }
    if (before != QN_STATUS_OK) ++faulty_count;
    char message[256];
    if (before == QN_STATUS_OK &&
        !qn_generated_compare(&generated, &expected, &actual, !generated.is_fast, message,
                              sizeof message)) {
      give_up(&generated, "checked passes", message);
    }
    qn__body_deinit(&body);
    qn_generated_args_deinit(&actual);
    qn_generated_args_deinit(&expected);
    qn_generated_release(&generated);
  }
  assert_true(faulty_count > seed_count / 10);  // else this test tests nothing
  assert_true(faulty_count < seed_count);
}

int main(void) {
  qn_generate_seeds(&first_seed, &seed_count);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trips),
      cmocka_unit_test(passes_keep_the_meaning),
      cmocka_unit_test(forms_keep_the_meaning),
      cmocka_unit_test(checks_are_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
