// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu/test_run.c: tests running hand-written plans on a backend that records its calls.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>

#include "devices/gpu/plan.h"
#include "tests/unit/gpu/expr.h"

// ---- a backend that writes down

typedef struct record {
  char log[4096];
  size_t size;
  int live;  // workspaces taken and not freed
  int taken;
  int fail_at;  // the n-th call of the backend fails; 0: none
  qn_status_code_t fail_code;
  int calls;
  int described;
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

static bool is_failing(record_t* record) {
  return ++record->calls == record->fail_at;
}

static qn_status_t take(void* self, uint64_t size_bytes, uint64_t* out_address) {
  record_t* record = self;
  if (is_failing(record)) return qn_status_make(record->fail_code, "no workspace");
  record->live++;
  *out_address = 0x10000u * (uint64_t)++record->taken;
  note(record, "take %llu; ", (unsigned long long)size_bytes);
  return QN_OK;
}

static void give(void* self, uint64_t address) {
  record_t* record = self;
  record->live--;
  note(record, "give %llx; ", (unsigned long long)address);
}

static const qn__gpu_plan_t* current;

static qn_status_t launch_it(void* self, const qn_gpu_launch_t* launch) {
  record_t* record = self;
  if (is_failing(record)) return qn_status_make(record->fail_code, "no launch");
  note(record, "%s %lld x %u", current->kernels[launch->kernel].name,
       (long long)launch->block_count, launch->thread_count);
  for (uint32_t i = 0; i < current->kernels[launch->kernel].arg_count; i++) {
    note(record, " %llx", (unsigned long long)launch->values[i]);
    if (current->kernels[launch->kernel].args[i].kind <= QN_GPU_ARG_WORKSPACE) {
      note(record, "-%llx", (unsigned long long)launch->ends[i]);
    }
  }
  note(record, "; ");
  return QN_OK;
}

static void keep(void* owner) {
  (void)owner;
}

static qn_status_t describe(void* owner, const qn_kernel_failure_t* failure) {
  record_t* record = owner;
  record->described++;
  return qn_status_make(QN_STATUS_ASSERTION, "site %u extent %lld", failure->site,
                        (long long)failure->extent);
}

static qn_status_t run(const qn__gpu_plan_t* plan, record_t* record, const uint64_t* words,
                       uint32_t word_count) {
  current = plan;
  uint64_t ends[4] = {0x111, 0x222, 0, 0};
  qn_launch_t launch = {.words = words,
                        .word_count = word_count,
                        .ends = ends,
                        .owner = record,
                        .retain = keep,
                        .release = keep,
                        .describe = describe};
  const qn_gpu_plan_t loaded = {
      .decoded = *plan,
      .runner = {.launch = launch_it, .workspace_allocate = take, .workspace_free = give},
      .max_threads = 256};
  return qn_gpu_plan_run(&loaded, 0, &launch, record);
}

static void expect(qn_status_t status, qn_status_code_t code, const char* part) {
  assert_int_equal(qn_status_code(status), code);
  if (part) assert_non_null(strstr(qn_status_message(status), part));
  qn_status_free(status);
}

// ---- expressions and plans

static const qn_gpu_arg_t args[] = {
    {.kind = QN_GPU_ARG_BUFFER, .index = 0, .size_bytes = 4, .is_written = true},
    {.kind = QN_GPU_ARG_WORD, .index = 1, .size_bytes = 8},
};
static const qn__gpu_kernel_t kernels[] = {
    {.name = "narrow", .thread_count = 64, .arg_count = 2, .args = args},
    {.name = "wide", .thread_count = 64, .arg_count = 2, .args = args},
    {.name = "free", .thread_count = 0},
};

#define PLAN(name, ...)                                                                \
  const qn__gpu_step_t name##_steps[] = {__VA_ARGS__};                                 \
  const qn__gpu_function_t name##_function = {.word_count = 2,                         \
                                              .param_count = 1,                        \
                                              .local_count = 4,                        \
                                              .workspace_count = 2,                    \
                                              .step_count = QN_COUNT_OF(name##_steps), \
                                              .steps = name##_steps};                  \
  const qn__gpu_plan_t name = {                                                        \
      .function_count = 1, .functions = &name##_function, .kernel_count = 3, .kernels = kernels}

EXPR(zero, CONST(0));
EXPR(three, CONST(3));
EXPR(word, WORD(1));
EXPR(local, LOCAL(0));
EXPR(small, WORD(1), CONST(100), APPLY(LE));
EXPR(product, WORD(1), WORD(1), APPLY(MUL));

static void blocks_below_one_launch_nothing(void** state) {
  (void)state;
  PLAN(plan, {.kind = QN__GPU_STEP_LAUNCH, .a = word, .wide_kernel = QN__GPU_NO_KERNEL});
  static const int64_t counts[] = {0, -1, INT64_MIN};
  for (size_t i = 0; i < QN_COUNT_OF(counts); i++) {
    record_t record = {.size = 0};
    expect(run(&plan, &record, (uint64_t[]){0x100, (uint64_t)counts[i]}, 2), QN_STATUS_OK, NULL);
    assert_string_equal(record.log, "");
  }
  record_t record = {.size = 0};
  expect(run(&plan, &record, (uint64_t[]){0x100, (uint64_t)INT64_MAX}, 2), QN_STATUS_OK, NULL);
  assert_string_equal(record.log, "narrow 9223372036854775807 x 64 100-111 7fffffffffffffff; ");
}

static void a_count_that_overflows_is_refused(void** state) {
  (void)state;
  PLAN(plan, {.kind = QN__GPU_STEP_LAUNCH, .a = product, .wide_kernel = QN__GPU_NO_KERNEL});
  record_t record = {.size = 0};
  expect(run(&plan, &record, (uint64_t[]){0, UINT64_C(1) << 32}, 2), QN_STATUS_VALUE_ERROR,
         "too many blocks");
  assert_string_equal(record.log, "");
}

static void threads_come_from_kernel_or_step(void** state) {
  (void)state;
  PLAN(plan, {.kind = QN__GPU_STEP_LAUNCH,
              .a = three,
              .b = word,
              .kernel = 2,
              .wide_kernel = QN__GPU_NO_KERNEL});
  record_t record = {.size = 0};
  expect(run(&plan, &record, (uint64_t[]){0, 7}, 2), QN_STATUS_OK, NULL);
  assert_string_equal(record.log, "free 3 x 7; ");
  record = (record_t){.size = 0};
  expect(run(&plan, &record, (uint64_t[]){0, 0}, 2), QN_STATUS_OK, NULL);
  assert_string_equal(record.log, "");
  expect(run(&plan, &record, (uint64_t[]){0, 257}, 2), QN_STATUS_VALUE_ERROR,
         "a block of 257 threads; the device allows 256");
}

static void a_guard_chooses_the_kernel(void** state) {
  (void)state;
  PLAN(plan, {.kind = QN__GPU_STEP_LAUNCH, .a = three, .guard = small, .wide_kernel = 1});
  record_t record = {.size = 0};
  expect(run(&plan, &record, (uint64_t[]){0, 100}, 2), QN_STATUS_OK, NULL);
  expect(run(&plan, &record, (uint64_t[]){0, 101}, 2), QN_STATUS_OK, NULL);
  assert_string_equal(record.log, "narrow 3 x 64 0-111 64; wide 3 x 64 0-111 65; ");
  PLAN(alone,
       {.kind = QN__GPU_STEP_LAUNCH, .a = word, .guard = small, .wide_kernel = QN__GPU_NO_KERNEL});
  expect(run(&alone, &record, (uint64_t[]){0, 101}, 2), QN_STATUS_VALUE_ERROR, "32 bits");
  expect(run(&alone, &record, (uint64_t[]){0, 0}, 2), QN_STATUS_OK, NULL);
  // A guard that overflows does not hold.
  PLAN(over, {.kind = QN__GPU_STEP_LAUNCH, .a = three, .guard = product, .wide_kernel = 1});
  record = (record_t){.size = 0};
  expect(run(&over, &record, (uint64_t[]){0, (UINT64_C(1) << 32) + 1}, 2), QN_STATUS_OK, NULL);
  assert_non_null(strstr(record.log, "wide"));
}

static void loops_and_branches(void** state) {
  (void)state;
  EXPR(odd, LOCAL(0), CONST(2), APPLY(FLOORMOD));
  PLAN(plan, {.kind = QN__GPU_STEP_LOOP, .slot = 0, .a = zero, .b = three, .body_count = 3},
       {.kind = QN__GPU_STEP_IF, .a = odd, .body_count = 1, .else_count = 1},
       {.kind = QN__GPU_STEP_LAUNCH, .a = local, .kernel = 0, .wide_kernel = QN__GPU_NO_KERNEL},
       {.kind = QN__GPU_STEP_LAUNCH, .a = local, .kernel = 1, .wide_kernel = QN__GPU_NO_KERNEL},
       {.kind = QN__GPU_STEP_LAUNCH, .a = word, .kernel = 1, .wide_kernel = QN__GPU_NO_KERNEL});
  record_t record = {.size = 0};
  expect(run(&plan, &record, (uint64_t[]){0, 9}, 2), QN_STATUS_OK, NULL);
  assert_string_equal(record.log,
                      "narrow 1 x 64 0-111 9; wide 2 x 64 0-111 9; wide 9 x 64 0-111 9; ");
}

// A choice also asks whether the body's indices fit; the other arm is right for any call.
static void a_guard_chooses_the_arm(void** state) {
  (void)state;
  EXPR(few, WORD(0), CONST(16), APPLY(LE));
  PLAN(plan, {.kind = QN__GPU_STEP_IF, .a = few, .guard = small, .body_count = 1, .else_count = 1},
       {.kind = QN__GPU_STEP_LAUNCH, .a = three, .kernel = 0, .wide_kernel = QN__GPU_NO_KERNEL},
       {.kind = QN__GPU_STEP_LAUNCH, .a = three, .kernel = 1, .wide_kernel = QN__GPU_NO_KERNEL});
  record_t record = {.size = 0};
  expect(run(&plan, &record, (uint64_t[]){16, 100}, 2), QN_STATUS_OK, NULL);
  expect(run(&plan, &record, (uint64_t[]){17, 100}, 2), QN_STATUS_OK, NULL);
  expect(run(&plan, &record, (uint64_t[]){16, 101}, 2), QN_STATUS_OK, NULL);
  assert_string_equal(record.log,
                      "narrow 3 x 64 10-111 64; wide 3 x 64 11-111 64; wide 3 x 64 10-111 65; ");
  PLAN(over, {.kind = QN__GPU_STEP_IF, .a = three, .guard = product, .body_count = 1},
       {.kind = QN__GPU_STEP_LAUNCH, .a = three, .kernel = 0, .wide_kernel = QN__GPU_NO_KERNEL});
  record = (record_t){.size = 0};
  expect(run(&over, &record, (uint64_t[]){0, (UINT64_C(1) << 32) + 1}, 2), QN_STATUS_OK, NULL);
  assert_string_equal(record.log, "");
}

static void workspace_is_freed_on_every_path(void** state) {
  (void)state;
  PLAN(plan, {.kind = QN__GPU_STEP_WORKSPACE, .slot = 0, .a = word, .site = 4, .memory_site = 5},
       {.kind = QN__GPU_STEP_LOOP, .slot = 0, .a = zero, .b = three, .body_count = 2},
       {.kind = QN__GPU_STEP_WORKSPACE, .slot = 1, .a = local, .site = 6, .memory_site = 7},
       {.kind = QN__GPU_STEP_LAUNCH, .a = three, .wide_kernel = QN__GPU_NO_KERNEL},
       {.kind = QN__GPU_STEP_ASSERT, .a = word, .site = 8});
  record_t record = {.size = 0};
  expect(run(&plan, &record, (uint64_t[]){0, 40}, 2), QN_STATUS_OK, NULL);
  assert_int_equal(record.live, 0);
  assert_int_equal(record.taken, 4);
  int calls = record.calls;
  for (int n = 1; n <= calls; n++) {
    record = (record_t){.fail_at = n, .fail_code = QN_STATUS_DEVICE_ERROR};
    expect(run(&plan, &record, (uint64_t[]){0, 40}, 2), QN_STATUS_DEVICE_ERROR, "no ");
    assert_int_equal(record.live, 0);
    assert_int_equal(record.described, 0);
  }
  // A lack of memory is worded by the site.
  record = (record_t){.fail_at = 2, .fail_code = QN_STATUS_OUT_OF_MEMORY};
  expect(run(&plan, &record, (uint64_t[]){0, 40}, 2), QN_STATUS_ASSERTION, "site 7 extent 0");
  assert_int_equal(record.live, 0);
  record = (record_t){.size = 0};
  expect(run(&plan, &record, (uint64_t[]){0, 0}, 2), QN_STATUS_ASSERTION, "site 8");
  assert_int_equal(record.live, 0);
}

static void a_bad_size_is_told(void** state) {
  (void)state;
  PLAN(plan, {.kind = QN__GPU_STEP_WORKSPACE,
              .a = product,
              .b = word,
              .site = 4,
              .memory_site = QN__GPU_NO_SITE});
  record_t record = {.size = 0};
  expect(run(&plan, &record, (uint64_t[]){0, UINT64_C(1) << 40}, 2), QN_STATUS_ASSERTION,
         "site 4 extent 1099511627776");
  PLAN(negative, {.kind = QN__GPU_STEP_WORKSPACE,
                  .a = word,
                  .site = QN__GPU_NO_SITE,
                  .memory_site = QN__GPU_NO_SITE});
  expect(run(&negative, &record, (uint64_t[]){0, (uint64_t)-1}, 2), QN_STATUS_VALUE_ERROR,
         "negative");
  record = (record_t){.fail_at = 1, .fail_code = QN_STATUS_OUT_OF_MEMORY};
  expect(run(&negative, &record, (uint64_t[]){0, 8}, 2), QN_STATUS_OUT_OF_MEMORY, "no workspace");
}

static void calls_that_do_not_fit_the_plan(void** state) {
  (void)state;
  PLAN(plan, {.kind = QN__GPU_STEP_ASSERT, .a = word, .site = 0});
  record_t record = {.size = 0};
  expect(run(&plan, &record, (uint64_t[]){0, 1}, 1), QN_STATUS_INVALID_ARGUMENT, "2 words");
  const qn_gpu_plan_t loaded = {.decoded = plan};
  qn_launch_t launch = {.word_count = 2};
  expect(qn_gpu_plan_run(&loaded, 1, &launch, NULL), QN_STATUS_INVALID_ARGUMENT, "function 1");
}

// ---- expressions

static int64_t value_of(const qn__gpu_op_t* ops, uint32_t count, bool* is_exact) {
  qn__gpu_expr_t expr = {count, ops};
  int64_t value = 0;
  *is_exact = qn__gpu_eval(&expr, (uint64_t[]){0xFFFFFFFFFFFFFF80u}, NULL, &value);
  return value;
}

static void expressions_wrap_and_tell(void** state) {
  (void)state;
  static const struct {
    qn_op_t op;
    int64_t a, b, value;
    bool is_exact;
  } cases[] = {
      {QN_OP_ADD, INT64_MAX, 1, INT64_MIN, false},
      {QN_OP_SUB, INT64_MIN, 1, INT64_MAX, false},
      {QN_OP_MUL, INT64_MAX, 2, -2, false},
      {QN_OP_MUL, INT64_MIN, 0, 0, true},
      {QN_OP_FLOORDIV, -7, 2, -4, true},
      {QN_OP_FLOORMOD, -7, 2, 1, true},
      {QN_OP_TRUNCDIV, -7, 2, -3, true},
      {QN_OP_TRUNCMOD, -7, 2, -1, true},
      {QN_OP_CEILDIV, -7, 2, -3, true},
      {QN_OP_CEILDIV, 7, 2, 4, true},
      {QN_OP_CEILDIV, 7, -2, -3, true},
      {QN_OP_CEILDIV, -7, -2, 4, true},
      // The rounded quotient times the divisor is beyond the range.
      {QN_OP_CEILDIV, 2, INT64_MIN + 1, 0, true},
      {QN_OP_FLOORDIV, 2, INT64_MIN + 1, -1, true},
      {QN_OP_FLOORMOD, 2, INT64_MIN + 1, INT64_MIN + 3, true},
      {QN_OP_FLOORMOD, INT64_MIN, INT64_MAX, INT64_MAX - 1, true},
      {QN_OP_FLOORMOD, 7, -2, -1, true},
      {QN_OP_FLOORMOD, -6, 2, 0, true},
      {QN_OP_FLOORDIV, 7, 0, 0, false},
      {QN_OP_FLOORDIV, INT64_MIN, -1, INT64_MIN, false},
      {QN_OP_FLOORMOD, INT64_MIN, -1, 0, false},
      {QN_OP_MIN, -1, 1, -1, true},
      {QN_OP_SHR, -8, 1, -4, true},
      {QN_OP_SHL, 1, 65, 2, true},
      {QN_OP_LT, -1, 0, 1, true},
      {QN_OP_XOR, 5, 3, 6, true},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn__gpu_op_t ops[] = {
        CONST(cases[i].a), CONST(cases[i].b), {.kind = QN__GPU_APPLY, .op = cases[i].op}};
    bool is_exact;
    assert_true(value_of(ops, 3, &is_exact) == cases[i].value);
    assert_true(is_exact == cases[i].is_exact);
  }
  static const struct {
    qn_dtype_t dtype;
    int64_t value;
  } words[] = {{QN_DTYPE_I8, -128},  {QN_DTYPE_U8, 128},        {QN_DTYPE_I64, -128},
               {QN_DTYPE_BOOL, 1},   {QN_DTYPE_U16, 0xFF80},    {QN_DTYPE_I16, -128},
               {QN_DTYPE_I32, -128}, {QN_DTYPE_U32, 0xFFFFFF80}};
  for (size_t i = 0; i < QN_COUNT_OF(words); i++) {
    qn__gpu_op_t ops[] = {{.kind = QN__GPU_WORD, .dtype = words[i].dtype}};
    bool is_exact;
    assert_true(value_of(ops, 1, &is_exact) == words[i].value);
  }
  qn__gpu_op_t select[] = {CONST(0), CONST(5), CONST(6), APPLY(SELECT)};
  bool is_exact;
  assert_int_equal(value_of(select, 4, &is_exact), 6);
  qn__gpu_op_t bits[] = {CONST(-1), APPLY(POPCOUNT)};
  assert_int_equal(value_of(bits, 2, &is_exact), 64);
  qn__gpu_op_t zeros[] = {CONST(1), APPLY(CLZ)};
  assert_int_equal(value_of(zeros, 2, &is_exact), 63);
  qn__gpu_op_t trailing[] = {CONST(12), APPLY(CTZ)};
  assert_int_equal(value_of(trailing, 2, &is_exact), 2);
  qn__gpu_op_t high[] = {CONST(INT64_MIN), CONST(6), APPLY(MULHI)};
  assert_int_equal(value_of(high, 3, &is_exact), -3);
  qn__gpu_op_t rotated[] = {CONST(INT64_MIN), CONST(-62), APPLY(ROTL)};
  assert_int_equal(value_of(rotated, 3, &is_exact), 2);
  qn__gpu_op_t negated[] = {CONST(INT64_MIN), APPLY(NEG)};
  assert_true(value_of(negated, 2, &is_exact) == INT64_MIN && !is_exact);
}

static void counts_of_blocks_forgive_what_does_not_count(void** state) {
  (void)state;
  int64_t value = -1;
  // 0 != 0 ? 7 // 0 : 3
  static const qn__gpu_op_t chosen[] = {CONST(0),        CONST(7), CONST(0),
                                        APPLY(FLOORDIV), CONST(3), APPLY(SELECT)};
  assert_true(qn__gpu_eval_count(&(qn__gpu_expr_t){6, chosen}, NULL, NULL, &value));
  assert_int_equal(value, 3);
  static const qn__gpu_op_t other[] = {CONST(1),        CONST(7), CONST(0),
                                       APPLY(FLOORDIV), CONST(3), APPLY(SELECT)};
  assert_false(qn__gpu_eval_count(&(qn__gpu_expr_t){6, other}, NULL, NULL, &value));
  // Huge times huge, times nothing.
  static const qn__gpu_op_t none[] = {CONST(INT64_MAX), CONST(INT64_MAX), APPLY(MUL), CONST(0),
                                      APPLY(MUL)};
  assert_true(qn__gpu_eval_count(&(qn__gpu_expr_t){5, none}, NULL, NULL, &value));
  assert_int_equal(value, 0);
  static const qn__gpu_op_t many[] = {CONST(INT64_MAX), CONST(INT64_MAX), APPLY(MUL), CONST(1),
                                      APPLY(MUL)};
  assert_false(qn__gpu_eval_count(&(qn__gpu_expr_t){5, many}, NULL, NULL, &value));
  // A hash: u32 * u32 in i64, and a remainder of what wrapped.
  static const qn__gpu_op_t hash[] = {CONST(0xFFFFFFFF),
                                      CONST(0xFFFFFFFF),
                                      APPLY(MUL),
                                      {.kind = QN__GPU_WRAP, .dtype = QN_DTYPE_U32}};
  assert_true(qn__gpu_eval_count(&(qn__gpu_expr_t){4, hash}, NULL, NULL, &value));
  assert_int_equal(value, 1);
  static const qn__gpu_op_t rest[] = {CONST(INT64_MAX), CONST(3), APPLY(MUL), CONST(8),
                                      APPLY(FLOORMOD)};
  assert_true(qn__gpu_eval_count(&(qn__gpu_expr_t){5, rest}, NULL, NULL, &value));
  assert_int_equal(value, 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_of_blocks_forgive_what_does_not_count),
      cmocka_unit_test(blocks_below_one_launch_nothing),
      cmocka_unit_test(a_count_that_overflows_is_refused),
      cmocka_unit_test(threads_come_from_kernel_or_step),
      cmocka_unit_test(a_guard_chooses_the_kernel),
      cmocka_unit_test(a_guard_chooses_the_arm),
      cmocka_unit_test(loops_and_branches),
      cmocka_unit_test(workspace_is_freed_on_every_path),
      cmocka_unit_test(a_bad_size_is_told),
      cmocka_unit_test(calls_that_do_not_fit_the_plan),
      cmocka_unit_test(expressions_wrap_and_tell),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
