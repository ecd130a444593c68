// SPDX-License-Identifier: Apache-2.0
// ir/build_several.c: reductions of several values and scans in the builder.
#include "ir/builder.h"

static qn__builder_frame_t* open_frame(qn_builder_t* builder, qn__builder_frame_kind_t kind,
                                       qn__ir_block_t* block, qn__ir_stmt_t* stmt) {
  qn__builder_frame_t* frame = QN__ARENA_NEW(&builder->body.arena, qn__builder_frame_t);
  if (!frame) return qn__build_out_of_memory(builder);
  *frame =
      (qn__builder_frame_t){.outer = builder->frame, .kind = kind, .block = block, .stmt = stmt};
  builder->frame = frame;
  return frame;
}

// Returns the innermost reduction of several values, of which that part is open.
static qn__ir_several_t* open_several(qn_builder_t* builder, const char* call,
                                      qn__builder_frame_kind_t kind) {
  if (!qn__build_is_ready(builder, call)) return NULL;
  if (builder->frame->kind == kind) return builder->frame->stmt->several;
  return qn__build_fail(builder,
                        kind == QN__FRAME_SEVERAL
                            ? "the innermost open block is not a reduction of several values"
                            : "no combiner is open; open it with qn_build_several_values");
}

static bool take_list(qn_builder_t* builder, const char* what, qn_expr_t* const* exprs,
                      uint32_t count, qn__ir_expr_t** out_exprs) {
  if (!exprs) return qn__build_fail(builder, "%s is NULL", what) != NULL;
  for (uint32_t i = 0; i < count; i++) {
    out_exprs[i] = qn__build_take(builder, what, exprs[i], NULL);
    if (!out_exprs[i]) return false;
  }
  return true;
}

// Appends the statement to the block around it, and gives its results.
static void finish(qn_builder_t* builder, qn_expr_t** out_results) {
  qn__ir_stmt_t* stmt = builder->frame->stmt;
  qn__ir_several_t* several = stmt->several;
  builder->frame = builder->frame->outer;
  qn__block_append(builder->frame->block, stmt);
  for (uint32_t i = 0; i < several->result_count; i++) {
    several->results[i] =
        qn__var_new(&builder->body.arena, QN__VAR_LET, qn__several_result_dtype(several, i), "v");
    out_results[i] = qn__build_give_var(builder, several->results[i]);
  }
}

qn_expr_t* qn_build_several(qn_builder_t* builder, const char* name, qn_expr_t* begin,
                            qn_expr_t* end) {
  if (!qn__build_takes_stmts(builder, __func__)) return NULL;
  const char* text = qn__build_name(builder, name, "i");
  qn__arena_t* arena = &builder->body.arena;
  qn__ir_several_t* several = QN__ARENA_NEW(arena, qn__ir_several_t);
  qn__ir_stmt_t* stmt = qn__stmt_new(arena, QN__STMT_REDUCE, (qn__ir_loc_t){0, 0});
  if (!several || !stmt) return qn__build_out_of_memory(builder);
  several->begin = qn__build_take_as(builder, "the begin", begin, QN_DTYPE_I64, NULL);
  several->end = qn__build_take_as(builder, "the end", end, QN_DTYPE_I64, NULL);
  if (!text || !several->begin || !several->end) return NULL;
  stmt->several = several;
  several->var = qn__var_new(arena, QN__VAR_REDUCE, QN_DTYPE_I64, text);
  if (!open_frame(builder, QN__FRAME_SEVERAL, &several->lets, stmt)) return NULL;
  return qn__build_give_var(builder, several->var);
}

void qn_build_several_values(qn_builder_t* builder, size_t count, qn_expr_t* const* values,
                             qn_expr_t* const* initial, qn_expr_t** out_left,
                             qn_expr_t** out_right) {
  qn__ir_several_t* several = open_several(builder, __func__, QN__FRAME_SEVERAL);
  if (!several) return;
  if (count == 0 || count > QN__LARGEST_VALUES || !out_left || !out_right) {
    (void)qn__build_fail(builder, "%zu values and their operands; from 1 to %d are possible", count,
                         QN__LARGEST_VALUES);
    return;
  }
  several->kind = QN__SEVERAL_COMBINE;
  several->count = several->merged_count = several->result_count = (uint32_t)count;
  if (!take_list(builder, "a value", values, several->count, several->values) ||
      !take_list(builder, "an initial value", initial, several->count, several->initial)) {
    return;
  }
  builder->frame->kind = QN__FRAME_COMBINER;
  builder->frame->block = &several->merge_lets;
  for (uint32_t i = 0; i < several->count; i++) {
    qn_dtype_t dtype = several->values[i]->dtype;
    several->left[i] = qn__var_new(&builder->body.arena, QN__VAR_LET, dtype, "a");
    several->right[i] = qn__var_new(&builder->body.arena, QN__VAR_LET, dtype, "b");
    out_left[i] = qn__build_give_var(builder, several->left[i]);
    out_right[i] = qn__build_give_var(builder, several->right[i]);
  }
}

void qn_build_several_end(qn_builder_t* builder, qn_expr_t* const* combined,
                          qn_expr_t** out_results) {
  qn__ir_several_t* several = open_several(builder, __func__, QN__FRAME_COMBINER);
  if (!several) return;
  if (!out_results) {
    (void)qn__build_fail(builder, "out_results is NULL");
    return;
  }
  if (take_list(builder, "a combined value", combined, several->count, several->merged)) {
    finish(builder, out_results);
  }
}

void qn_build_scan(qn_builder_t* builder, bool is_exclusive, qn_expr_t* const* combined,
                   qn_expr_t** out_running) {
  qn__ir_several_t* several = open_several(builder, __func__, QN__FRAME_COMBINER);
  if (!several) return;
  if (!out_running) {
    (void)qn__build_fail(builder, "out_running is NULL");
    return;
  }
  several->kind = is_exclusive ? QN__SEVERAL_EXCLUSIVE_SCAN : QN__SEVERAL_SCAN;
  if (!take_list(builder, "a combined value", combined, several->count, several->merged)) return;
  qn__ir_stmt_t* stmt = builder->frame->stmt;
  finish(builder, out_running);
  (void)open_frame(builder, QN__FRAME_LOOP, &several->body, stmt);
}

void qn_build_several_best(qn_builder_t* builder, qn_reduce_kind_t kind, qn_expr_t* value,
                           qn_expr_t** out_best, qn_expr_t** out_index) {
  qn__ir_several_t* several = open_several(builder, __func__, QN__FRAME_SEVERAL);
  if (!several) return;
  if ((kind != QN_REDUCE_MIN && kind != QN_REDUCE_MAX) || !out_best || !out_index) {
    (void)qn__build_fail(builder, "the best value is of kind MIN or MAX, and has an index");
    return;
  }
  several->kind = kind == QN_REDUCE_MAX ? QN__SEVERAL_ARGMAX : QN__SEVERAL_ARGMIN;
  several->count = 1;
  several->result_count = 2;
  qn_expr_t* results[2] = {NULL, NULL};
  if (take_list(builder, "the value", &value, 1, several->values)) finish(builder, results);
  *out_best = results[0];
  *out_index = results[1];
}
