// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_reduce.c: emits reductions: a loop that carries partial results, one per lane.
//
// The order is unspecified, so each lane reduces its own elements, and a tree of shuffles combines
// the lanes. The tail is masked with the neutral element, or runs one by one. Narrow floats
// accumulate in f32 and are rounded once, at the end.
#include "jit/llvm/emit_inner.h"

static qn_dtype_t accumulator_dtype(qn_dtype_t dtype) {
  return qn__emit_is_narrow_float(dtype) ? QN_DTYPE_F32 : dtype;
}

static LLVMValueRef neutral(qn__llvm_emit_t* e, qn_reduce_kind_t kind, qn_dtype_t dtype) {
  qn__ir_scalar_t value = qn__reduce_neutral(kind, dtype);
  LLVMTypeRef type = qn__emit_type(e, dtype);
  return qn__dtype_is_float(dtype) ? LLVMConstReal(type, value.f)
                                   : LLVMConstInt(type, (uint64_t)value.i, true);
}

static LLVMValueRef step(qn__llvm_emit_t* e, qn_reduce_kind_t kind, qn_dtype_t dtype,
                         LLVMValueRef a, LLVMValueRef value) {
  static const qn_op_t ops[] = {[QN_REDUCE_SUM] = QN_OP_ADD,
                                [QN_REDUCE_PROD] = QN_OP_MUL,
                                [QN_REDUCE_MIN] = QN_OP_MIN,
                                [QN_REDUCE_MAX] = QN_OP_MAX};
  LLVMValueRef args[] = {a, value};
  if (qn__dtype_is_float(dtype)) return qn__emit_float_op(e, ops[kind], dtype, args);
  if (kind == QN_REDUCE_SUM || kind == QN_REDUCE_PROD) {
    return qn__llvm_binary(e->fn->builder, ops[kind], dtype, a, value);
  }
  return qn__emit_int_min_max(e, dtype, kind == QN_REDUCE_MIN, a, value);
}

// Emits the lets and the value of the current iterations.
static LLVMValueRef value_of(qn__llvm_emit_t* e, const qn__ir_expr_t* expr,
                             qn__llvm_value_t index) {
  qn__emit_bind_index(e, expr->reduce.reduce_var, expr->reduce.begin, index);
  qn__emit_block_of(e, &expr->reduce.lets);
  return qn__emit_widen(e, qn__emit_expr(e, expr->reduce.value));
}

// Emits a serial reduction: in scalar code, and if the surrounding code runs in lanes.
static LLVMValueRef run_serial(qn__llvm_emit_t* e, const qn__ir_expr_t* expr, LLVMValueRef begin,
                               LLVMValueRef end, LLVMValueRef start) {
  qn_dtype_t dtype = accumulator_dtype(expr->dtype);
  qn__llvm_counter_t counter = qn__emit_count_begin(e, begin, end, 1, start);
  LLVMValueRef value = value_of(e, expr, qn__emit_uniform(QN_DTYPE_I64, counter.index));
  value = step(e, expr->reduce.reduce_kind, dtype, counter.carried, value);
  return qn__emit_count_end(e, &counter, value);
}

// Combines the lanes of a vector by halves.
static LLVMValueRef join_lanes(qn__llvm_emit_t* e, qn_reduce_kind_t kind, qn_dtype_t dtype,
                               LLVMValueRef vector, uint32_t lanes) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef order[QN__EMIT_MAX_LANES];
  assert(lanes >= 2 && lanes <= QN__EMIT_MAX_LANES && (lanes & (lanes - 1)) == 0);
  for (uint32_t i = 0; i < lanes; ++i) order[i] = LLVMConstInt(e->i32, i, false);
  for (; lanes > 2; lanes /= 2) {
    LLVMValueRef poison = LLVMGetPoison(LLVMTypeOf(vector));
    LLVMValueRef low_mask = LLVMConstVector(order, lanes / 2);
    LLVMValueRef high_mask = LLVMConstVector(order + lanes / 2, lanes / 2);
    LLVMValueRef low = LLVMBuildShuffleVector(b, vector, poison, low_mask, "");
    LLVMValueRef high = LLVMBuildShuffleVector(b, vector, poison, high_mask, "");
    vector = step(e, kind, dtype, low, high);
  }
  LLVMValueRef first = LLVMBuildExtractElement(b, vector, qn__emit_i64(e, 0), "");
  return step(e, kind, dtype, first, LLVMBuildExtractElement(b, vector, qn__emit_i64(e, 1), ""));
}

// Emits one step in lanes, of which the first `count` (NULL: all) are active.
static LLVMValueRef step_lanes(qn__llvm_emit_t* e, const qn__ir_expr_t* expr, LLVMValueRef index,
                               LLVMValueRef count, LLVMValueRef partial) {
  qn__llvm_function_t* fn = e->fn;
  qn_dtype_t dtype = accumulator_dtype(expr->dtype);
  qn_reduce_kind_t kind = expr->reduce.reduce_kind;
  qn__emit_region_begin(e, qn__llvm_lane_count(LLVMTypeOf(partial)), count);
  LLVMValueRef value = value_of(e, expr, qn__emit_lanes_from(e, index));
  if (fn->mask) {
    LLVMValueRef idle = qn__emit_splat(e, neutral(e, kind, dtype), fn->lanes);
    value = LLVMBuildSelect(fn->builder, fn->mask, value, idle, "");
  }
  qn__emit_region_end(e);
  return step(e, kind, dtype, partial, value);
}

// Emits the last, incomplete vector.
static LLVMValueRef run_tail(qn__llvm_emit_t* e, const qn__ir_expr_t* expr, LLVMValueRef begin,
                             LLVMValueRef end, LLVMValueRef start) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef is_left = LLVMBuildICmp(b, LLVMIntSLT, begin, end, "");
  qn__llvm_when_t when = qn__emit_when_begin(e, is_left, "tail", "endtail");
  LLVMValueRef value = step_lanes(e, expr, begin, LLVMBuildSub(b, end, begin, ""), start);
  return qn__emit_when_end(e, when, value, start);
}

static LLVMValueRef run_lanes(qn__llvm_emit_t* e, const qn__ir_expr_t* expr, LLVMValueRef begin,
                              LLVMValueRef end, uint32_t lanes) {
  qn_dtype_t dtype = accumulator_dtype(expr->dtype);
  qn_reduce_kind_t kind = expr->reduce.reduce_kind;
  bool is_masked = qn__emit_can_mask_reduce(e, expr);
  bool is_one_loop = is_masked && e->options->is_fast_tier;
  LLVMValueRef main_end = is_one_loop ? end : qn__emit_main_end(e, begin, end, lanes);
  LLVMValueRef start = qn__emit_splat(e, neutral(e, kind, dtype), lanes);
  qn__llvm_counter_t counter = qn__emit_count_begin(e, begin, main_end, (int64_t)lanes, start);
  counter.can_overrun = is_one_loop;
  LLVMValueRef count = is_one_loop ? qn__emit_left(e, counter.index, end, lanes) : NULL;
  LLVMValueRef partial = step_lanes(e, expr, counter.index, count, counter.carried);
  partial = qn__emit_count_end(e, &counter, partial);
  if (is_masked && !is_one_loop) partial = run_tail(e, expr, main_end, end, partial);
  LLVMValueRef total = join_lanes(e, kind, dtype, partial, lanes);
  return is_masked ? total : run_serial(e, expr, main_end, end, total);
}

qn__llvm_value_t qn__emit_reduce(qn__llvm_emit_t* e, const qn__ir_expr_t* expr) {
  qn_dtype_t dtype = accumulator_dtype(expr->dtype);
  LLVMValueRef begin = qn__emit_scalar(e, expr->reduce.begin);
  LLVMValueRef end = qn__emit_scalar(e, expr->reduce.end);
  uint32_t lanes = qn__emit_reduce_lanes(e, expr);
  LLVMValueRef total;
  if (lanes > 0) {
    total = run_lanes(e, expr, begin, end, lanes);
  } else {
    LLVMValueRef start = neutral(e, expr->reduce.reduce_kind, dtype);
    if (e->fn->lanes > 0) start = qn__emit_splat(e, start, e->fn->lanes);
    total = run_serial(e, expr, begin, end, start);
  }
  total = qn__emit_round(e, expr->dtype, total);
  return qn__emit_value(expr->dtype, total, e->fn->lanes == 0);
}
