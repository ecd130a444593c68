// jit/llvm/emit_atomic.c: emits atomic statements, in relaxed order, with the old value as result.
//
// They occur in scalar code only, on integers of 32 and 64 bits. f32 and f64 can be added, for
// which LLVM emits a loop of compare-and-swap.
#include "jit/llvm/emit_inner.h"

static LLVMAtomicRMWBinOp operation(qn_atomic_op_t op, qn_dtype_t dtype) {
  bool is_signed = qn__llvm_is_signed(dtype);
  switch (op) {
    case QN_ATOMIC_ADD:
      return qn__dtype_is_float(dtype) ? LLVMAtomicRMWBinOpFAdd : LLVMAtomicRMWBinOpAdd;
    case QN_ATOMIC_MIN:
      return is_signed ? LLVMAtomicRMWBinOpMin : LLVMAtomicRMWBinOpUMin;
    case QN_ATOMIC_MAX:
      return is_signed ? LLVMAtomicRMWBinOpMax : LLVMAtomicRMWBinOpUMax;
    case QN_ATOMIC_AND:
      return LLVMAtomicRMWBinOpAnd;
    case QN_ATOMIC_OR:
      return LLVMAtomicRMWBinOpOr;
    case QN_ATOMIC_XOR:
      return LLVMAtomicRMWBinOpXor;
    default:
      return LLVMAtomicRMWBinOpXchg;
  }
}

void qn__emit_atomic(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  LLVMBuilderRef b = e->fn->builder;
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
