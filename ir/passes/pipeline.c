// SPDX-License-Identifier: Apache-2.0
// ir/passes/pipeline.c: runs passes in order, checking the body after each in debug builds.
//
// A code generator may also pass its own list of passes.
#include "ir/passes/pass_builder.h"
#include "ir/passes/passes.h"
#include "ir/verify.h"

#ifndef NDEBUG
static qn_status_t check_post(const qn__ir_body_t* body, const qn__pass_t* pass) {
  for (qn__ir_func_t* function = body->first; function && pass->check; function = function->next) {
    const char* problem = pass->check(function);
    if (!problem) continue;
    return qn_status_make(QN_STATUS_INTERNAL, "pass '%s' left %s in '%s', although %s", pass->name,
                          problem, function->name, pass->post);
  }
  return QN_OK;
}
#endif

// Numbers the declarations: a pass relies on dense ids.
static void number(qn__ir_body_t* body) {
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    qn__function_number(function);
  }
}

qn_status_t qn__passes_run(qn__ir_body_t* body, const qn__pass_options_t* options,
                           const qn__pass_t* const* passes, size_t pass_count) {
  number(body);
  for (size_t i = 0; i < pass_count; ++i) {
    const qn__pass_t* pass = passes[i];
    QN_TRY(qn__pb_run(body, options, pass));
    number(body);
#ifndef NDEBUG
    QN_TRY(qn__body_verify_status(body, pass->name));
    QN_TRY(check_post(body, pass));
#endif
  }
  return QN_OK;
}

// Replaces what no other pass knows.
static qn_status_t lower_first(qn__ir_body_t* body, const qn__pass_options_t* options) {
  static const qn__pass_t* const leaves = &qn__pass_lower_leaves;
  static const qn__pass_t* const several = &qn__pass_lower_several;
  if (qn__body_has_leaves(body)) QN_TRY(qn__passes_run(body, options, &leaves, 1));
  if (!qn__body_has_several(body)) return QN_OK;
  return qn__passes_run(body, options, &several, 1);
}

qn_status_t qn__passes_run_cpu(qn__ir_body_t* body, const qn__pass_options_t* options) {
  // A CPU has no exchanges: they become barriers, at which thread loops are split. Unrolling comes
  // after that, so that a barrier in an unrolled loop is one barrier. Simplifying comes later, to
  // fold constants in the copies.
  static const qn__pass_t* const lower[] = {
      &qn__pass_target_values,   &qn__pass_lower_dtypes,      &qn__pass_lower_views,
      &qn__pass_lower_exchanges, &qn__pass_serialize_threads, &qn__pass_unroll,
      &qn__pass_simplify,
  };
  static const qn__pass_t* const block[] = {
      &qn__pass_independent, &qn__pass_separate, &qn__pass_jam,  &qn__pass_block,
      &qn__pass_permute,     &qn__pass_once,     &qn__pass_strip};
  static const qn__pass_t* const finish[] = {&qn__pass_hoist, &qn__pass_vectorize};
  qn__pass_options_t cpu = *options;
  cpu.has_shuffles = cpu.has_block_reductions = false;
  QN_TRY(lower_first(body, &cpu));
  QN_TRY(qn__passes_run(body, &cpu, lower, QN_COUNT_OF(lower)));
  // Checked builds have no blocks, so that an error names the iteration of an access.
  if (cpu.has_blocks && !cpu.is_checked) {
    QN_TRY(qn__passes_run(body, &cpu, block, QN_COUNT_OF(block)));
  }
  return qn__passes_run(body, &cpu, finish, QN_COUNT_OF(finish));
}

// The mapping reads index algebra: it comes after simplifying, and its result is simplified again.
const qn__pass_t* const qn__passes_gpu[QN__GPU_PASS_COUNT] = {
    &qn__pass_target_values, &qn__pass_lower_dtypes, &qn__pass_lower_views,     &qn__pass_unroll,
    &qn__pass_simplify,      &qn__pass_independent,  &qn__pass_separate,        &qn__pass_partition,
    &qn__pass_tile,          &qn__pass_distribute,   &qn__pass_share,           &qn__pass_reuse,
    &qn__pass_cooperative,   &qn__pass_barriers,     &qn__pass_lower_exchanges, &qn__pass_simplify,
    &qn__pass_hoist,
};

qn_status_t qn__passes_run_gpu(qn__ir_body_t* body, const qn__pass_options_t* options) {
  QN_TRY(lower_first(body, options));
  return qn__passes_run(body, options, qn__passes_gpu, QN__GPU_PASS_COUNT);
}
