// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_gpu_random.c: random modules mean the same after the mapping to a
// GPU.
//
// The mapped module runs in the interpreter, whose warps are as wide as the target's. Sums and
// products of floats are spread over threads, so floats agree within the tolerance that the
// generator states; integers bit for bit. QUERN_TEST_SEEDS=FIRST:COUNT runs other seeds.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "ir/interpret.h"
#include "ir/passes/passes.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support_gpu.h"
#include "tests/support/generate.h"

static uint64_t first_seed = 1;
static uint64_t seed_count = 150;

// What differs among targets.
static const qn__pass_options_t targets[] = {
    {.warp_size = 32,
     .max_threads = 1024,
     .preferred_threads = 256,
     .max_shared_bytes = 49152,
     .access_bytes = 16,
     .has_shuffles = true,
     .has_block_reductions = true},
    {.warp_size = 8,
     .max_threads = 128,
     .preferred_threads = 64,
     .max_shared_bytes = 32768,
     .has_shuffles = true},
    {.warp_size = 8,
     .max_threads = 64,
     .preferred_threads = 16,
     .max_shared_bytes = 16384,
     .access_bytes = 16,
     .multiprocessors = 2},
    {.warp_size = 32,
     .max_threads = 256,
     .preferred_threads = 64,
     .max_shared_bytes = 32768,
     .multiprocessors = 4,
     .has_block_reductions = true},
};

static void give_up(const qn_generated_t* generated, const qn__ir_body_t* body, const char* what,
                    const char* message) {
  print_message("%s\n", generated->text);
  if (body) qn_test_show(body);
  fail_msg("seed %" PRIu64 ", %s: %s", generated->seed, what, message);
}

static void generate(uint64_t seed, bool is_form, qn_generated_t* out_generated) {
  const qn_generate_options_t make = {.size = is_form ? 1 : 4,
                                      .allows_fast = true,
                                      .allows_threads = true,
                                      .allows_waits = true,
                                      .is_form = is_form};
  qn_status_t status;
  if (!qn_generate(seed, &make, out_generated, &status)) {
    give_up(out_generated, NULL, "parse", qn_status_message(status));
  }
}

static void interpret(const qn_generated_t* generated, const qn__ir_body_t* body,
                      uint32_t warp_size, const char* what, qn_generated_args_t* args) {
  qn_generated_args_init(generated, args);
  qn__interpret_args_t call = {
      .params = args->params, .symbols = generated->symbols, .warp_size = warp_size};
  qn_status_t status = qn__interpret(body->first, &call, qn_allocator_default());
  if (!qn_ok(status)) give_up(generated, body, what, qn_status_message(status));
}

// Runs the first `pass_count` passes.
static void compare(const qn_generated_t* generated, const qn_generated_args_t* expected,
                    const qn__pass_options_t* options, size_t pass_count, const char* what) {
  qn__ir_body_t body;
  assert_true(qn_ok(qn__body_clone(&generated->module->body, qn_allocator_default(), &body)));
  qn_status_t status = qn__passes_run(&body, options, qn__pipeline_gpu.passes, pass_count);
  if (qn_ok(status)) status = qn__body_verify_status(&body, what);
  if (!qn_ok(status)) give_up(generated, NULL, what, qn_status_message(status));
  qn__function_number(body.first);
  char message[256];
  if (pass_count == qn__pipeline_gpu.pass_count &&
      !qn_test_is_mapped(body.first, options, message, sizeof message)) {
    give_up(generated, &body, what, message);
  }
  qn_generated_args_t actual;
  interpret(generated, &body, options->warp_size, what, &actual);
  if (!qn_generated_compare(generated, expected, &actual, false, message, sizeof message)) {
    give_up(generated, &body, what, message);
  }
  qn_generated_args_deinit(&actual);
  qn__body_deinit(&body);
}

static void check_mapping(uint64_t count, bool is_form) {
  for (uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    qn_generated_t generated;
    generate(seed, is_form, &generated);
    qn_generated_args_t expected;
    qn__pass_options_t options = targets[seed % QN_COUNT_OF(targets)];
    interpret(&generated, &generated.module->body, options.warp_size, "as written", &expected);
    char what[64];
    for (int checked = 0; checked < 2; ++checked) {
      options.is_checked = checked != 0;
      (void)snprintf(what, sizeof what, "target %d%s", (int)(seed % QN_COUNT_OF(targets)),
                     checked ? ", checked" : "");
      compare(&generated, &expected, &options, qn__pipeline_gpu.pass_count, what);
    }
    qn_generated_args_deinit(&expected);
    qn_generated_release(&generated);
  }
}

static void mapping_keeps_the_meaning(void** state) {
  (void)state;
  check_mapping(seed_count, false);
}

static void mapping_keeps_forms(void** state) {
  (void)state;
  check_mapping(seed_count / 3, true);
}

// A launch means the same after each pass that leaves it written for one thread.
static void every_pass_keeps_the_meaning(void** state) {
  (void)state;
  for (uint64_t seed = first_seed; seed < first_seed + seed_count; seed += 8) {
    qn_generated_t generated;
    generate(seed, false, &generated);
    qn_generated_args_t expected;
    const qn__pass_options_t* options = &targets[seed / 8 % QN_COUNT_OF(targets)];
    interpret(&generated, &generated.module->body, options->warp_size, "as written", &expected);
    const qn__pass_t* const* passes = qn__pipeline_gpu.passes;
    for (size_t i = 0; passes[i] != &qn__pass_cooperative; ++i) {
      compare(&generated, &expected, options, i + 1, passes[i]->name);
    }
    qn_generated_args_deinit(&expected);
    qn_generated_release(&generated);
  }
}

int main(void) {
  qn_generate_seeds(&first_seed, &seed_count);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mapping_keeps_the_meaning),
      cmocka_unit_test(mapping_keeps_forms),
      cmocka_unit_test(every_pass_keeps_the_meaning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
