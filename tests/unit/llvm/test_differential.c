// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/test_differential.c: random modules, the interpreter against compiled code.
//
// Each module runs in both tiers, as scalar code, checked, and for older processors. Integers agree
// bit for bit, floats within the bound that the generator carries. A longer run:
//   llvm_test_differential --seed 1000 --count 5000 [--size 10] [--forms] [--tiers] [--print]
// --forms: only programs of the forms that mappings look for, such as products; --tiers: only the
// two tiers for this processor. A failure names the seed; --seed N --count 1 --print shows that
// module. Thread rule: one thread. Read next: tests/support/generate.h.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ir/interpret.h"
#include "support_emit.h"
#include "tests/support/generate.h"

typedef struct options {
  uint64_t seed;
  uint64_t count;
  uint32_t size;
  bool prints;
  bool has_forms_only;
  bool has_tiers_only;
} options_t;

static options_t options = {.seed = 1, .count = 40, .size = 0};

// A signal of compiled code ends the program: says which module it was.
static volatile uint64_t current_seed;

static void report_signal(int number) {
  static const char before[] = "a signal in the code of seed ";
  char digits[24];
  size_t at = sizeof digits;
  digits[--at] = '\n';
  uint64_t rest = current_seed;
  do digits[--at] = (char)('0' + rest % 10);
  while ((rest /= 10) > 0);
  ssize_t written = write(STDERR_FILENO, before, sizeof before - 1);
  if (written > 0) written = write(STDERR_FILENO, digits + at, sizeof digits - at);
  (void)written;
  (void)signal(number, SIG_DFL);
  (void)raise(number);
}

static const build_t builds[] = {
    {.cpu = "native"},
    {.cpu = "native", .is_fast = true},
    {.cpu = "native", .is_scalar = true},
    {.cpu = "x86-64-v3"},
    {.cpu = "native", .is_checked = true},
    {.cpu = "x86-64"},
    {.cpu = "x86-64-v3", .is_fast = true},
    {.cpu = "x86-64-v4", .vector_bytes = 32},
    {.cpu = "cascadelake"},
    {.cpu = "cooperlake"},
    {.cpu = "cooperlake", .vector_bytes = 32, .l1_bytes = 1024, .l2_bytes = 4096},
    {.cpu = "sapphirerapids"},
    {.cpu = "sapphirerapids", .vector_bytes = 32, .is_checked = true},
    {.cpu = "x86-64", .is_fast = true, .is_checked = true},
    // Caches so small that products of a few thousand steps have several blocks.
    {.cpu = "native", .l1_bytes = 1024, .l2_bytes = 4096},
    {.cpu = "x86-64-v3", .l1_bytes = 2048, .l2_bytes = 4096},
    {.cpu = "x86-64", .l1_bytes = 4096, .l2_bytes = 16384},
};

static void fill_words(const qn_generated_t* generated, const qn_generated_args_t* args,
                       uint64_t* out_words) {
  memcpy(out_words, args->params, generated->param_count * sizeof *out_words);
  for (size_t i = 0; i < generated->module->functions[0]->symbol_count; ++i) {
    out_words[generated->param_count + i] = (uint64_t)generated->symbols[i];
  }
}

static void describe(const qn_generated_t* generated, build_t build, const char* problem) {
  (void)fprintf(stderr, "seed %llu, %s%s%s%s: %s\n", (unsigned long long)generated->seed, build.cpu,
                build.is_fast ? " fast" : "", build.is_scalar ? " scalar" : "",
                build.is_checked ? " checked" : "", problem);
}

// Returns true if a call reports that it gets no more workspace than `limit`, and holds none then.
static bool check_refusal(const qn_generated_t* generated, const kernels_t* kernels,
                          uint32_t limit) {
  qn_generated_args_t args;
  qn_generated_args_init(generated, &args);
  uint64_t words[qn_generated_max_params + qn_generated_max_symbols];
  fill_words(generated, &args, words);
  run_report_t report = kernels_run(kernels, 0, words, 3, limit);
  qn_generated_args_deinit(&args);
  return report.result != 0 && report.held_workspaces == 0 &&
         kernels->result.functions[0].sites[report.site].kind == QN_SITE_MEMORY;
}

static bool check_build(const qn_generated_t* generated, const qn_generated_args_t* expected,
                        build_t build) {
  qn_status_t error;
  kernels_t* kernels = kernels_create(generated->module, build, false, &error);
  if (!kernels) {
    describe(generated, build, qn_status_message(error));
    qn_status_free(error);
    return false;
  }
  qn_generated_args_t actual;
  qn_generated_args_init(generated, &actual);
  uint64_t words[qn_generated_max_params + qn_generated_max_symbols];
  fill_words(generated, &actual, words);
  run_report_t report = kernels_run(kernels, 0, words, 3, 1000);
  char message[512] = "";
  bool is_right = report.result == 0 && report.held_workspaces == 0;
  if (!is_right) {
    const qn_artifact_site_t* site = &kernels->result.functions[0].sites[report.site];
    (void)snprintf(message, sizeof message,
                   "it failed at a site of kind %d, buffer %u: %lld of %lld", (int)site->kind,
                   site->buffer_id, (long long)report.index, (long long)report.extent);
  } else {
    is_right = qn_generated_compare(generated, expected, &actual, false, message, sizeof message);
  }
  if (is_right && report.allocations > 0) {
    uint32_t limit = (uint32_t)(generated->seed % report.allocations);
    is_right = check_refusal(generated, kernels, limit);
    (void)snprintf(message, sizeof message, "it does not report that workspace %u is refused",
                   limit);
  }
  if (!is_right) describe(generated, build, message);
  qn_generated_args_deinit(&actual);
  kernels_destroy(kernels);
  return is_right;
}

static bool check_seed(uint64_t seed, bool is_form) {
  qn_generate_options_t generate = {.size = options.size ? options.size : 1 + (uint32_t)(seed % 6),
                                    .allows_fast = true,
                                    .allows_threads = true,
                                    .allows_waits = true,
                                    .is_form = is_form};
  qn_generated_t generated;
  qn_status_t error = QN_OK;
  if (!qn_generate(seed, &generate, &generated, &error)) {
    (void)fprintf(stderr, "seed %llu: %s\n%s\n", (unsigned long long)seed, qn_status_message(error),
                  generated.text);
    qn_status_free(error);
    qn_generated_release(&generated);
    return false;
  }
  // Flushed, because LLVM may end the process.
  if (options.prints && printf("%s\n", generated.text) > 0) (void)fflush(stdout);
  current_seed = seed;
  qn_generated_args_t expected;
  qn_generated_args_init(&generated, &expected);
  qn__interpret_args_t args = {
      .params = expected.params, .symbols = generated.symbols, .warp_size = 32};
  qn_status_t status = qn__interpret(generated.module->functions[0], &args, qn_allocator_default());
  bool is_right = qn_ok(status);
  if (!is_right) describe(&generated, (build_t){.cpu = "interpreter"}, qn_status_message(status));
  qn_status_free(status);
  // Both tiers always, the others in turn.
  for (size_t i = 0; i < QN_COUNT_OF(builds) && is_right; ++i) {
    bool is_asked = i < 2 || options.count == 1 || i - 2 == seed % (QN_COUNT_OF(builds) - 2);
    if (options.has_tiers_only) is_asked = i < 2;
    if (is_asked && build_can_run(builds[i].cpu)) {
      is_right = check_build(&generated, &expected, builds[i]);
    }
  }
  qn_generated_args_deinit(&expected);
  qn_generated_release(&generated);
  return is_right;
}

static void test_random_modules(void** state) {
  (void)state;
  if (options.has_forms_only) skip();
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < options.count; ++i) wrong += !check_seed(options.seed + i, false);
  assert_int_equal(wrong, 0);
}

static void test_random_forms(void** state) {
  (void)state;
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < options.count; ++i) wrong += !check_seed(options.seed + i, true);
  assert_int_equal(wrong, 0);
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    bool has_value = i + 1 < argc;
    if (strcmp(argv[i], "--print") == 0) {
      options.prints = true;
    } else if (strcmp(argv[i], "--forms") == 0) {
      options.has_forms_only = true;
    } else if (strcmp(argv[i], "--tiers") == 0) {
      options.has_tiers_only = true;
    } else if (strcmp(argv[i], "--seed") == 0 && has_value) {
      options.seed = strtoull(argv[++i], NULL, 10);
    } else if (strcmp(argv[i], "--count") == 0 && has_value) {
      options.count = strtoull(argv[++i], NULL, 10);
    } else if (strcmp(argv[i], "--size") == 0 && has_value) {
      options.size = (uint32_t)strtoul(argv[++i], NULL, 10);
    } else {
      (void)fprintf(stderr,
                    "usage: %s [--seed N] [--count N] [--size N] [--forms] [--tiers] [--print]\n",
                    argv[0]);
      return 2;
    }
  }
  (void)signal(SIGSEGV, report_signal);
  (void)signal(SIGFPE, report_signal);
  (void)signal(SIGILL, report_signal);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_modules),
                                     cmocka_unit_test(test_random_forms)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
