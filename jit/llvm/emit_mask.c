// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_mask.c: masks of active lanes in a vector region.
//
// A mask is a vector of i1, or NULL if all lanes are active, for which the fast paths test. If some
// lane is known to be active, uniform accesses need no test of the mask.
#include "jit/llvm/emit_inner.h"

static LLVMValueRef mask_bits(qn__llvm_emit_t* e, LLVMValueRef mask) {
  LLVMTypeRef word = LLVMIntTypeInContext(e->context, qn__llvm_lane_count(LLVMTypeOf(mask)));
  return LLVMBuildBitCast(e->fn->builder, mask, word, "");
}

LLVMValueRef qn__emit_all(qn__llvm_emit_t* e, LLVMValueRef mask) {
  if (qn__llvm_lane_count(LLVMTypeOf(mask)) == 0) return mask;
  LLVMValueRef bits = mask_bits(e, mask);
  return LLVMBuildICmp(e->fn->builder, LLVMIntEQ, bits, LLVMConstAllOnes(LLVMTypeOf(bits)), "");
}

static LLVMValueRef as_i64(qn__llvm_emit_t* e, LLVMValueRef value) {
  unsigned width = LLVMGetIntTypeWidth(LLVMTypeOf(value));
  if (width < 64) return LLVMBuildZExt(e->fn->builder, value, e->i64, "");
  return width > 64 ? LLVMBuildTrunc(e->fn->builder, value, e->i64, "") : value;
}

static LLVMValueRef count_zeros(qn__llvm_emit_t* e, const char* name, LLVMValueRef mask) {
  return as_i64(e, qn__llvm_total(e->fn->builder, name, mask_bits(e, mask)));
}

LLVMValueRef qn__emit_first_lane(qn__llvm_emit_t* e, LLVMValueRef mask) {
  return count_zeros(e, "llvm.cttz", mask);
}

LLVMValueRef qn__emit_last_lane(qn__llvm_emit_t* e, LLVMValueRef mask) {
  int64_t last = (int64_t)qn__llvm_lane_count(LLVMTypeOf(mask)) - 1;
  return LLVMBuildSub(e->fn->builder, qn__emit_i64(e, last), count_zeros(e, "llvm.ctlz", mask), "");
}

LLVMValueRef qn__emit_prefix_mask(qn__llvm_emit_t* e, LLVMValueRef count) {
  LLVMBuilderRef b = e->fn->builder;
  uint32_t lanes = e->fn->lanes;
  assert(lanes > 1);  // a shift by 64 would be undefined
  if (e->options->has_avx512 && lanes <= 64) {
    // AVX-512 has masks in integer registers: the lower `count` bits of a word.
    LLVMValueRef shift = LLVMBuildSub(b, qn__emit_i64(e, 64), count, "");
    LLVMValueRef bits = LLVMBuildLShr(b, qn__emit_i64(e, -1), shift, "");
    if (lanes < 64) bits = LLVMBuildTrunc(b, bits, LLVMIntTypeInContext(e->context, lanes), "");
    return LLVMBuildBitCast(b, bits, LLVMVectorType(e->i1, lanes), "");
  }
  LLVMValueRef limit = LLVMBuildTrunc(b, count, e->i32, "");
  LLVMValueRef lane =
      qn__emit_widen(e, qn__emit_linear(QN_DTYPE_I32, LLVMConstInt(e->i32, 0, false),
                                        LLVMConstInt(e->i32, 1, false)));
  return LLVMBuildICmp(b, LLVMIntSLT, lane, qn__emit_splat(e, limit, lanes), "");
}

void qn__emit_region_begin(qn__llvm_emit_t* e, uint32_t lanes, LLVMValueRef count) {
  qn__llvm_function_t* fn = e->fn;
  assert(fn->lanes == 0 && !fn->mask);  // regions do not nest
  assert(lanes > 0 && lanes <= QN__EMIT_MAX_LANES);
  fn->lanes = lanes;
  fn->mask = count ? qn__emit_prefix_mask(e, count) : NULL;
  fn->can_mask_be_empty = false;
}

void qn__emit_region_end(qn__llvm_emit_t* e) {
  e->fn->lanes = 0;
  e->fn->mask = NULL;
}

LLVMValueRef qn__emit_mask(qn__llvm_emit_t* e) {
  if (e->fn->mask) return e->fn->mask;
  return LLVMConstAllOnes(qn__emit_wide(e, e->i1));
}

qn__llvm_mask_state_t qn__emit_narrow(qn__llvm_emit_t* e, LLVMValueRef condition) {
  qn__llvm_function_t* fn = e->fn;
  assert(fn->lanes > 0 && qn__llvm_lane_count(LLVMTypeOf(condition)) == fn->lanes);
  qn__llvm_mask_state_t state = {fn->mask, fn->can_mask_be_empty};
  fn->mask = fn->mask ? LLVMBuildAnd(fn->builder, fn->mask, condition, "") : condition;
  fn->can_mask_be_empty = true;
  return state;
}

void qn__emit_unmask(qn__llvm_emit_t* e, qn__llvm_mask_state_t state) {
  e->fn->mask = state.mask;
  e->fn->can_mask_be_empty = state.can_be_empty;
}
