// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu/test_plan.c: tests launch plans: encoding and decoding, invalid bytes, push
// constants, and requirements.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "devices/gpu/isa.h"
#include "devices/gpu/plan.h"
#include "devices/gpu/push.h"
#include "quern/target.h"
#include "tests/support/fault.h"

// ---- a plan with everything in it

enum { PAYLOAD = 100 };

typedef struct sample {
  qn__gpu_op_t ops[8];
  qn_gpu_arg_t args[5];
  qn__gpu_kernel_t kernels[2];
  qn__gpu_step_t steps[8];
  qn__gpu_function_t functions[2];
  qn__gpu_plan_t plan;
} sample_t;

static void make_sample(sample_t* s) {
  *s = (sample_t){
      .ops = {{.kind = QN__GPU_WORD, .dtype = QN_DTYPE_I64, .value = 2},
              {.kind = QN__GPU_CONST, .value = -77},
              {.kind = QN__GPU_APPLY, .op = QN_OP_ADD},
              {.kind = QN__GPU_WRAP, .dtype = QN_DTYPE_U8},
              {.kind = QN__GPU_LOCAL, .value = 1}},
      .args = {{QN_GPU_ARG_BUFFER, 1, 4, true},
               {QN_GPU_ARG_WORKSPACE, 0, 8, false},
               {QN_GPU_ARG_WORD, 2, 8, false},
               {QN_GPU_ARG_LOCAL, 1, 2, false}},
      .kernels = {{.name = "one",
                   .code_offset = 4,
                   .code_size_bytes = PAYLOAD - 4,
                   .thread_count = 64,
                   .shared_bytes = 12,
                   .dynamic_shared_bytes = 99,
                   .has_record = true,
                   .arg_count = 4},
                  {.name = "two", .code_size_bytes = PAYLOAD}},
  };
  qn__gpu_expr_t wrapped = {4, s->ops}, word = {1, s->ops}, local = {1, s->ops + 4};
  qn__gpu_step_t steps[] = {
      {.kind = QN__GPU_STEP_LET, .slot = 1, .a = wrapped},
      {.kind = QN__GPU_STEP_WORKSPACE, .a = local, .b = word, .site = 3, .memory_site = 4},
      {.kind = QN__GPU_STEP_LOOP, .slot = 0, .a = local, .b = word, .body_count = 3},
      {.kind = QN__GPU_STEP_IF, .a = word, .guard = local, .body_count = 1, .else_count = 1},
      {.kind = QN__GPU_STEP_LAUNCH,
       .a = word,
       .guard = local,
       .kernel = 0,
       .wide_kernel = 1,
       .b = word},
      {.kind = QN__GPU_STEP_ASSERT, .a = local, .site = 7},
      {.kind = QN__GPU_STEP_LAUNCH,
       .a = word,
       .b = word,
       .kernel = 1,
       .wide_kernel = QN__GPU_NO_KERNEL},
  };
  memcpy(s->steps, steps, sizeof steps);
  s->kernels[0].args = s->args;
  s->functions[0] = (qn__gpu_function_t){.word_count = 3,
                                         .param_count = 2,
                                         .local_count = 2,
                                         .workspace_count = 1,
                                         .step_count = QN_COUNT_OF(steps),
                                         .steps = s->steps};
  s->plan = (qn__gpu_plan_t){
      .function_count = 2, .functions = s->functions, .kernel_count = 2, .kernels = s->kernels};
}

static void encode(const qn__gpu_plan_t* plan, qn__buffer_t* out) {
  qn__buffer_init(out, qn_allocator_default());
  qn__gpu_plan_encode(plan, out);
  assert_false(out->has_failed);
}

// Whether it decodes; then it must say the same when it is encoded again.
static bool decodes(const qn__buffer_t* bytes, size_t payload_size) {
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn__gpu_plan_t plan;
  qn_status_t status = qn__gpu_plan_decode(qn__buffer_as_span(bytes), payload_size, &arena, &plan);
  bool is_good = qn_ok(status);
  if (is_good) {
    qn__buffer_t again;
    encode(&plan, &again);
    assert_int_equal(again.size, bytes->size);
    assert_memory_equal(again.data, bytes->data, bytes->size);
    qn__buffer_deinit(&again);
  } else {
    assert_int_equal(qn_status_code(status), QN_STATUS_DATA_LOSS);
    assert_int_equal(plan.function_count, 0);
    qn_status_free(status);
  }
  qn__arena_deinit(&arena);
  return is_good;
}

static bool sample_decodes(const sample_t* s) {
  qn__buffer_t bytes;
  encode(&s->plan, &bytes);
  bool is_good = decodes(&bytes, PAYLOAD);
  qn__buffer_deinit(&bytes);
  return is_good;
}

static void round_trip(void** state) {
  (void)state;
  sample_t s;
  make_sample(&s);
  assert_true(sample_decodes(&s));
  // What the corpus of tests/fuzz begins with.
  const char* path = getenv("QN_TEST_PLAN_OUT");
  if (path) {
    qn__buffer_t bytes;
    encode(&s.plan, &bytes);
    FILE* file = fopen(path, "wb");
    assert_non_null(file);
    (void)fwrite(bytes.data, 1, bytes.size, file);
    (void)fclose(file);
    qn__buffer_deinit(&bytes);
  }
}

static void bytes_that_are_cut_or_grown(void** state) {
  (void)state;
  sample_t s;
  make_sample(&s);
  qn__buffer_t bytes;
  encode(&s.plan, &bytes);
  size_t size = bytes.size;
  for (bytes.size = 0; bytes.size < size; bytes.size++) assert_false(decodes(&bytes, PAYLOAD));
  qn__buffer_u8(&bytes, 0);
  assert_false(decodes(&bytes, PAYLOAD));
  bytes.size = size;
  assert_false(decodes(&bytes, PAYLOAD - 1));
  bytes.data[0]++;
  assert_false(decodes(&bytes, PAYLOAD));
  qn__buffer_deinit(&bytes);
}

static void any_changed_byte_is_safe(void** state) {
  (void)state;
  sample_t s;
  make_sample(&s);
  qn__buffer_t bytes;
  encode(&s.plan, &bytes);
  for (size_t i = 0; i < bytes.size; i++) {
    uint8_t was = bytes.data[i];
    for (unsigned value = 0; value < 256; value++) {
      bytes.data[i] = (uint8_t)value;
      (void)decodes(&bytes, PAYLOAD);
    }
    bytes.data[i] = was;
  }
  qn__buffer_deinit(&bytes);
}

// Each of these is one field wrong.
static void plans_that_reach_outside(void** state) {
  (void)state;
#define BAD(change)                   \
  do {                                \
    sample_t s;                       \
    make_sample(&s);                  \
    change;                           \
    assert_false(sample_decodes(&s)); \
  } while (0)
  BAD(s.ops[0].value = 3);
  BAD(s.ops[0].dtype = QN_DTYPE_F32);
  BAD(s.ops[4].value = 2);
  BAD(s.ops[4].value = 0);  // set behind where it is read
  BAD(s.ops[2].op = QN_OP_SQRT);
  BAD(s.ops[2].op = QN_OP_SELECT);
  BAD(s.ops[3].dtype = QN_DTYPE_F16);
  BAD(s.steps[0].a.op_count = 2);  // two values
  BAD(s.steps[0].a.op_count = 0);
  BAD(s.steps[0].slot = 2);
  BAD(s.steps[1].slot = 1);
  BAD(s.steps[2].slot = 9);
  BAD(s.steps[2].b.op_count = 0);
  BAD(s.steps[2].body_count = 5);
  BAD(s.steps[3].else_count = 2);
  BAD(s.steps[3].body_count = 3);
  BAD(s.steps[3].guard.op_count = 2);
  BAD(s.steps[4].kernel = 2);
  BAD(s.steps[4].wide_kernel = 2);
  BAD(s.steps[4].guard.op_count = 0);
  BAD(s.steps[6].b.op_count = 0);
  BAD(s.steps[6].kernel = QN__GPU_NO_KERNEL);
  BAD(s.steps[5].kind = 9);
  BAD(s.args[0].index = 2);
  BAD(s.args[1].index = 1);
  BAD(s.args[2].index = 3);
  BAD(s.args[3].index = 0xFFFF);
  BAD(s.args[0].size_bytes = 3);
  BAD(s.args[2].size_bytes = 16);
  BAD(s.args[2].is_written = true);
  BAD(s.args[0].kind = QN_GPU_ARG_WORD);  // a buffer behind it
  BAD(s.kernels[0].name = "");
  BAD(s.kernels[0].code_offset = PAYLOAD + 1);
  BAD(s.kernels[0].code_size_bytes = UINT64_MAX);
  BAD(s.functions[0].param_count = 4);
  BAD(s.functions[0].local_count = QN__GPU_MAX_LOCALS + 1);
  BAD(s.functions[0].workspace_count = QN__GPU_MAX_WORKSPACES + 1);
  // What the loop's body sets is unknown behind it.
  BAD((s.steps[2].body_count = 0, s.ops[4].value = 0, s.steps[0].slot = 0));
#undef BAD
}

static void deep_plans(void** state) {
  (void)state;
  qn__gpu_op_t one = {.kind = QN__GPU_CONST, .value = 1};
  qn__gpu_op_t ops[2 * QN__GPU_MAX_EXPR_DEPTH + 8];
  for (uint32_t depth = QN__GPU_MAX_EXPR_DEPTH; depth <= QN__GPU_MAX_EXPR_DEPTH + 1; depth++) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < depth; i++) ops[count++] = one;
    for (uint32_t i = 1; i < depth; i++) {
      ops[count++] = (qn__gpu_op_t){.kind = QN__GPU_APPLY, .op = QN_OP_ADD};
    }
    qn__gpu_step_t step = {.kind = QN__GPU_STEP_ASSERT, .a = {count, ops}};
    qn__gpu_function_t function = {.step_count = 1, .steps = &step};
    qn__gpu_plan_t plan = {.function_count = 1, .functions = &function};
    qn__buffer_t bytes;
    encode(&plan, &bytes);
    assert_true(decodes(&bytes, 0) == (depth <= QN__GPU_MAX_EXPR_DEPTH));
    qn__buffer_deinit(&bytes);
  }
  qn__gpu_step_t steps[QN__GPU_MAX_STEP_DEPTH + 4];
  for (uint32_t depth = QN__GPU_MAX_STEP_DEPTH; depth <= QN__GPU_MAX_STEP_DEPTH + 1; depth++) {
    for (uint32_t i = 0; i < depth; i++) {
      steps[i] =
          (qn__gpu_step_t){.kind = QN__GPU_STEP_IF, .a = {1, &one}, .body_count = depth - i - 1};
    }
    qn__gpu_function_t function = {.step_count = depth, .steps = steps};
    qn__gpu_plan_t plan = {.function_count = 1, .functions = &function};
    qn__buffer_t bytes;
    encode(&plan, &bytes);
    assert_true(decodes(&bytes, 0) == (depth <= QN__GPU_MAX_STEP_DEPTH));
    qn__buffer_deinit(&bytes);
  }
}

static bool decode_with(qn_allocator_t allocator, void* user) {
  const qn__buffer_t* bytes = user;
  qn__arena_t arena;
  qn__arena_init(&arena, allocator);
  qn__gpu_plan_t plan;
  qn_status_t status = qn__gpu_plan_decode(qn__buffer_as_span(bytes), PAYLOAD, &arena, &plan);
  qn_status_code_t code = qn_status_consume(status);
  qn__arena_deinit(&arena);
  return code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY;
}

static void memory_runs_out(void** state) {
  (void)state;
  sample_t s;
  make_sample(&s);
  qn__buffer_t bytes;
  encode(&s.plan, &bytes);
  assert_true(qn_fault_walk_alloc(decode_with, &bytes) > 1);
  qn__buffer_deinit(&bytes);
}

// ---- push constants

static void push_constants_are_laid_out(void** state) {
  (void)state;
  qn_gpu_arg_t args[] = {{QN_GPU_ARG_BUFFER, 0, 8, true},
                         {QN_GPU_ARG_WORKSPACE, 0, 1, false},
                         {QN_GPU_ARG_WORD, 1, 1, false},
                         {QN_GPU_ARG_WORD, 2, 8, false},
                         {QN_GPU_ARG_LOCAL, 0, 2, false}};
  uint32_t offsets[7];
  assert_int_equal(qn__gpu_push_layout(args, 5, true, offsets), 32);
  const uint32_t with[] = {0, 4, 12, 16, 24, 8, 28};
  assert_memory_equal(offsets, with, sizeof with);
  assert_int_equal(qn__gpu_push_layout(args, 5, false, offsets), 28);
  const uint32_t without[] = {0, 4, 8, 16, 24, UINT32_MAX, UINT32_MAX};
  assert_memory_equal(offsets, without, sizeof without);
  assert_int_equal(qn__gpu_push_layout(NULL, 0, false, offsets), 0);
}

// ---- needs of code

static const char* arch = "sm_90";
static int64_t threads = 1024;
static bool knows_warps = true;

static qn_status_t property(int32_t id, const char* name, qn_attribute_value_t* out) {
  assert_int_equal(id, 3);
  *out = (qn_attribute_value_t){.type = QN_ATTRIBUTE_TYPE_INT, .int_value = 1 << 24};
  if (strcmp(name, "arch") == 0) {
    out->type = QN_ATTRIBUTE_TYPE_STRING;
    (void)snprintf(out->string_value, sizeof out->string_value, "%s", arch);
  } else if (strcmp(name, "max_threads_per_block") == 0) {
    out->int_value = threads;
  } else if (strcmp(name, "warp_size") == 0) {
    out->int_value = 32;
    if (!knows_warps) out->type = QN_ATTRIBUTE_TYPE_NONE;
  }
  return QN_OK;
}

static void check_needs(const char* isa, qn_status_code_t code, const char* part) {
  qn_status_t status = qn__gpu_isa_check(isa, 3, property);
  assert_int_equal(qn_status_code(status), code);
  if (part) assert_non_null(strstr(qn_status_message(status), part));
  qn_status_free(status);
}

static void needs_are_held_against_the_device(void** state) {
  (void)state;
  static const char isa[] =
      "{\"arch\":\"sm_80\",\"kind\":\"cuda\",\"max_threads_per_block\":512,\"warp_size\":32}";
  arch = "sm_86";
  check_needs(isa, QN_STATUS_OK, NULL);
  arch = "sm_90";
  check_needs(isa, QN_STATUS_INCOMPATIBLE, "arch sm_80");
  arch = "sm_80";
  threads = 256;
  check_needs(isa, QN_STATUS_INCOMPATIBLE, "max_threads_per_block 512");
  threads = 512;
  check_needs(isa, QN_STATUS_OK, NULL);
  knows_warps = false;
  check_needs(isa, QN_STATUS_INCOMPATIBLE, "warp_size");
  knows_warps = true;
  check_needs("", QN_STATUS_INCOMPATIBLE, "cannot be read");
  check_needs(NULL, QN_STATUS_INCOMPATIBLE, "cannot be read");
  check_needs("{\"kind\":\"abacus\"}", QN_STATUS_INCOMPATIBLE, "cannot be read");
  check_needs("{\"kind\":\"cuda\",\"warp_size\":32,\"zeal\":1}", QN_STATUS_INCOMPATIBLE, NULL);
  check_needs("{\"kind\":\"cuda\"", QN_STATUS_INCOMPATIBLE, NULL);
  check_needs("{\"kind\":\"cu\\u0064a\"}", QN_STATUS_INCOMPATIBLE, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trip),
      cmocka_unit_test(bytes_that_are_cut_or_grown),
      cmocka_unit_test(any_changed_byte_is_safe),
      cmocka_unit_test(plans_that_reach_outside),
      cmocka_unit_test(deep_plans),
      cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(push_constants_are_laid_out),
      cmocka_unit_test(needs_are_held_against_the_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
