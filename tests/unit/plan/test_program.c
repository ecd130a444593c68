// SPDX-License-Identifier: Apache-2.0
// tests/unit/plan/test_program.c: tests the public planner: a module becomes a program, an
// artifact, and a plan that runs; and what is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "quern/gpu.h"
#include "tests/support/must.h"

static qn_gpu_program_t* make(const char* text, const char* passes,
                              const qn_gpu_program_options_t* options) {
  qn_module_t *module, *lowered;
  must(qn_module_parse(text, strlen(text), NULL, &module));
  must(qn_module_lower(module, passes, NULL, &lowered));
  qn_gpu_program_t* program;
  must(qn_gpu_program_create(lowered, options, &program));
  qn_module_release(lowered);
  qn_module_release(module);
  return program;
}

// ---- a device that writes down

typedef struct record {
  char log[1024];
  size_t size;
} record_t;

static void note(record_t* record, const char* format, ...) QN_PRINTF(2, 3);
static void note(record_t* record, const char* format, ...) {
  va_list args;
  va_start(args, format);
  int more = vsnprintf(record->log + record->size, sizeof record->log - record->size, format, args);
  va_end(args);
  assert_true(more >= 0 && record->size + (size_t)more < sizeof record->log);
  record->size += (size_t)more;
}

static qn_status_t take(void* self, uint64_t size_bytes, uint64_t* out_address) {
  note(self, "take %llu; ", (unsigned long long)size_bytes);
  *out_address = 0x1000;
  return QN_OK;
}
static void give(void* self, uint64_t address) {
  note(self, "give %llx; ", (unsigned long long)address);
}
static qn_status_t launch_it(void* self, const qn_gpu_launch_t* launch) {
  note(self, "launch %u: %lld x %u; ", launch->kernel, (long long)launch->block_count,
       launch->thread_count);
  return QN_OK;
}
static qn_status_t append(void* self, const void* data, size_t size_bytes) {
  note(self, "%.*s", (int)size_bytes, (const char*)data);
  return QN_OK;
}
static void keep(void* owner) {
  (void)owner;
}
static qn_status_t describe(void* owner, const qn_kernel_failure_t* failure) {
  (void)owner;
  return qn_status_make(QN_STATUS_ASSERTION, "site %u", failure->site);
}

static const qn_gpu_runner_t runner = {.abi_version = QN_GPU_ABI_VERSION,
                                       .struct_size = sizeof runner,
                                       .workspace_allocate = take,
                                       .workspace_free = give,
                                       .launch = launch_it};

// ---- tests

static const char two_launches[] =
    "func f(x: f32[n], out y: f32[n]) {\n"
    "  assert n < 1000;\n"
    "  alloc t: f32[n] in global;\n"
    "  block.x b in 0..n { thread.x i in 0..8 { if i == 0 { t[b] = x[b]; } } }\n"
    "  block.x b in 0..n { thread.x i in 0..8 { if i == 0 { y[b] = t[b]; } } }\n"
    "}\n";

static void a_program_becomes_a_plan_that_runs(void** state) {
  (void)state;
  const qn_gpu_program_options_t options = {.struct_size = sizeof options, .index_bits = 64};
  qn_gpu_program_t* program = make(two_launches, "gpu", &options);
  assert_int_equal(qn_gpu_program_kernel_count(program), 2);
  for (uint32_t i = 0; i < 2; i++) {
    qn_gpu_kernel_source_t source = {.struct_size = sizeof source};
    must(qn_gpu_program_kernel(program, i, &source));
    assert_string_equal(source.name, i == 0 ? "f_0" : "f_1");
    assert_int_equal(source.buffer_count, 2);
    assert_non_null(source.operands[0].buffer);
    assert_false(source.is_narrow);
    assert_false(source.has_record);
    const qn_gpu_code_t code = {
        .struct_size = sizeof code, .offset = i, .size_bytes = 1, .shared_bytes = 7};
    must(qn_gpu_program_set_code(program, i, &code));
  }
  qn_artifact_t* artifact;
  must(qn_gpu_program_artifact(program, "mine-1", "{\"kind\":\"mine\"}", "ab", 2, &artifact));
  qn_gpu_program_destroy(program);
  assert_int_equal(artifact->function_count, 1);
  assert_int_equal(artifact->functions[0].launch_count, 2);
  qn_gpu_plan_t* plan;
  must(qn_gpu_plan_load(artifact, &runner, 64, &plan));
  artifact->release(artifact);
  qn_gpu_kernel_info_t info = {.struct_size = sizeof info};
  must(qn_gpu_plan_kernel(plan, 1, &info));
  assert_string_equal(info.name, "f_1");
  assert_int_equal(info.code_offset, 1);
  assert_int_equal(info.shared_bytes, 7);
  record_t text = {.size = 0}, calls = {.size = 0};
  must(qn_gpu_plan_write(plan, (qn_sink_t){&text, append}));
  assert_string_equal(text.log,
                      "function 0: 3 words, 5 steps\n"
                      "assert 0 (w2 < 1000)\n"
                      "assert 1 (w2 >= 0)\n"
                      "x0 = bytes (4 * w2)\n"
                      "launch f_0(b0 x0! w2) blocks w2 threads 8 guard -\n"
                      "launch f_1(b1! x0 w2) blocks w2 threads 8 guard -\n");
  uint64_t words[] = {0x100, 0x200, 5}, ends[] = {0x114, 0x214};
  const qn_launch_t launch = {.words = words,
                              .word_count = 3,
                              .ends = ends,
                              .retain = keep,
                              .release = keep,
                              .describe = describe};
  must(qn_gpu_plan_run(plan, 0, &launch, &calls));
  assert_string_equal(calls.log, "take 20; launch 0: 5 x 8; launch 1: 5 x 8; give 1000; ");
  words[2] = 1000;
  must_fail(qn_gpu_plan_run(plan, 0, &launch, &calls), QN_STATUS_ASSERTION, "site 0");
  qn_gpu_plan_destroy(plan);
}

static void narrow_nodes_are_told(void** state) {
  (void)state;
  qn_gpu_program_t* program = make(two_launches, "gpu", NULL);
  assert_int_equal(qn_gpu_program_kernel_count(program), 4);
  uint32_t narrow_count = 0;
  for (uint32_t i = 0; i < 4; i++) {
    qn_gpu_kernel_source_t source = {.struct_size = sizeof source};
    must(qn_gpu_program_kernel(program, i, &source));
    narrow_count += source.is_narrow;
    for (uint32_t j = source.buffer_count; j < source.arg_count; j++) {
      assert_int_equal(qn_gpu_program_is_narrow_var(program, i, source.operands[j].var),
                       source.is_narrow);
    }
  }
  assert_int_equal(narrow_count, 2);
  assert_false(qn_gpu_program_is_narrow_var(program, 4, NULL));
  assert_false(qn_gpu_program_is_narrow_expr(program, 4, NULL));
  qn_gpu_program_destroy(program);
}

static void sites_of_kernels(void** state) {
  (void)state;
  static const char text[] =
      "func f(x: f32[n]) {\n  parallel i in 0..n { assert x[i] < 1.0, \"small\"; }\n}\n"
      "func g(x: f32[n], out y: f32[n]) {\n  parallel i in 0..n { y[i] = x[i]; }\n}\n";
  const qn_gpu_program_options_t options = {.struct_size = sizeof options, .index_bits = 64};
  qn_gpu_program_t* program = make(text, "gpu", &options);
  char message[] = "small";
  const qn_artifact_site_t site = {
      .kind = QN_SITE_ASSERT, .buffer_id = UINT32_MAX, .message = message};
  uint32_t first, again;
  must(qn_gpu_program_add_site(program, 0, &site, &first));
  must(qn_gpu_program_add_site(program, 0, &site, &again));
  assert_int_equal(first, again);
  memset(message, 'x', sizeof message - 1);
  must_fail(qn_gpu_program_add_site(program, 1, &site, &again), QN_STATUS_INVALID_ARGUMENT, "g_0");
  must_fail(qn_gpu_program_add_site(program, 2, &site, &again), QN_STATUS_INVALID_ARGUMENT,
            "kernel 2");
  qn_artifact_t* artifact;
  must(qn_gpu_program_artifact(program, "mine-1", "{}", NULL, 0, &artifact));
  assert_int_equal(artifact->functions[0].site_count, 1);
  assert_string_equal(artifact->functions[0].sites[0].message, "small");
  artifact->release(artifact);
  const qn_gpu_code_t code = {.struct_size = sizeof code, .offset = 1, .size_bytes = UINT64_MAX};
  must(qn_gpu_program_set_code(program, 1, &code));
  must_fail(qn_gpu_program_artifact(program, "mine-1", "{}", "a", 1, &artifact),
            QN_STATUS_INVALID_ARGUMENT, "payload");
  qn_gpu_program_destroy(program);
}

static void modules_that_are_not_lowered_are_refused(void** state) {
  (void)state;
  qn_module_t* module;
  must(qn_module_parse(two_launches, sizeof two_launches - 1, NULL, &module));
  qn_gpu_program_t* program;
  must_fail(qn_gpu_program_create(module, NULL, &program), QN_STATUS_INVALID_ARGUMENT, "'gpu'");
  static const struct {
    const char *passes, *until;
    bool is_taken;
  } cases[] = {{"scalar", NULL, false},       {"gpu", "unroll", false},
               {"gpu,cpu", NULL, false},      {"simplify", NULL, false},
               {"gpu", NULL, true},           {"simplify,gpu", NULL, true},
               {"gpu,lower_math", NULL, true}};
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    const qn_lower_options_t options = {.struct_size = sizeof options, .until = cases[i].until};
    qn_module_t* lowered;
    must(qn_module_lower(module, cases[i].passes, &options, &lowered));
    qn_status_t status = qn_gpu_program_create(lowered, NULL, &program);
    assert_int_equal(qn_ok(status), cases[i].is_taken);
    qn_status_free(status);
    qn_gpu_program_destroy(program);
    qn_module_release(lowered);
  }
  const qn_gpu_program_options_t options = {.struct_size = sizeof options, .index_bits = 16};
  must_fail(qn_gpu_program_create(module, &options, &program), QN_STATUS_INVALID_ARGUMENT,
            "index_bits");
  qn_module_release(module);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_program_becomes_a_plan_that_runs),
      cmocka_unit_test(narrow_nodes_are_told),
      cmocka_unit_test(sites_of_kernels),
      cmocka_unit_test(modules_that_are_not_lowered_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
