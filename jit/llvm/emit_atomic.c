// jit/llvm/emit_atomic.c: emits atomic statements, in relaxed order, with the old value as result.
//
// They occur in scalar code only, on integers of 32 and 64 bits. f32 and f64 can be added, for
// which LLVM emits a loop of compare-and-swap.
#include "jit/llvm/emit_inner.h"

static LLVMAtomicRMWBinOp operation(qn_atomic_op_t op, qn_dtype_t dtype) {
  static const struct {
    LLVMAtomicRMWBinOp with_sign, without;
  } table[] = {
      [QN_ATOMIC_ADD] = {LLVMAtomicRMWBinOpAdd, LLVMAtomicRMWBinOpAdd},
      [QN_ATOMIC_MIN] = {LLVMAtomicRMWBinOpMin, LLVMAtomicRMWBinOpUMin},
      [QN_ATOMIC_MAX] = {LLVMAtomicRMWBinOpMax, LLVMAtomicRMWBinOpUMax},
      [QN_ATOMIC_AND] = {LLVMAtomicRMWBinOpAnd, LLVMAtomicRMWBinOpAnd},
      [QN_ATOMIC_OR] = {LLVMAtomicRMWBinOpOr, LLVMAtomicRMWBinOpOr},
      [QN_ATOMIC_XOR] = {LLVMAtomicRMWBinOpXor, LLVMAtomicRMWBinOpXor},
      [QN_ATOMIC_EXCHANGE] = {LLVMAtomicRMWBinOpXchg, LLVMAtomicRMWBinOpXchg},
  };
  if (op == QN_ATOMIC_ADD && qn__dtype_is_float(dtype)) return LLVMAtomicRMWBinOpFAdd;
  return qn__llvm_is_signed(dtype) ? table[op].with_sign : table[op].without;
}

void qn__emit_atomic(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  LLVMBuilderRef b = e->fn->builder;
  assert(e->fn->lanes == 0);
  LLVMValueRef operand = qn__emit_scalar(e, stmt->atomic.operand);
  LLVMValueRef operand2 = stmt->atomic.operand2 ? qn__emit_scalar(e, stmt->atomic.operand2) : NULL;
  const qn__ir_buffer_t* buffer = stmt->atomic.buffer;
  LLVMValueRef pointer = qn__emit_address(e, buffer, stmt->atomic.indices).pointer;
  LLVMValueRef old;
  if (operand2) {
    LLVMValueRef pair =
        LLVMBuildAtomicCmpXchg(b, pointer, operand, operand2, LLVMAtomicOrderingMonotonic,
                               LLVMAtomicOrderingMonotonic, false);
    old = LLVMBuildExtractValue(b, pair, 0, "");
  } else {
    old = LLVMBuildAtomicRMW(b, operation(stmt->atomic.op, buffer->dtype), pointer, operand,
                             LLVMAtomicOrderingMonotonic, false);
  }
  if (stmt->atomic.result) {
    qn__emit_bind(e, stmt->atomic.result, qn__emit_uniform(buffer->dtype, old));
  }
}
