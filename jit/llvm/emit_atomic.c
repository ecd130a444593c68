// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_atomic.c: emits atomic statements, with the old value as result.
//
// They occur in scalar code only. Loads acquire, stores release, the others are relaxed. Minima and
// maxima of floats, and sums of f16 and bf16, are a loop of compare-and-swap of ours, since those
// of LLVM ignore NaN or call functions.
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

// Emits a loop of compare-and-swap on the bits of a float. Returns the old value.
static LLVMValueRef swap_in_loop(qn__llvm_emit_t* e, qn_op_t op, qn_dtype_t dtype,
                                 LLVMValueRef pointer, LLVMValueRef operand) {
  LLVMBuilderRef b = e->fn->builder;
  uint32_t size_bits = qn__dtype_bits(dtype);
  LLVMTypeRef bits = LLVMIntTypeInContext(e->context, size_bits);
  LLVMTypeRef type = qn__emit_memory_type(e, dtype);
  LLVMValueRef first = LLVMBuildLoad2(b, bits, pointer, "");
  LLVMSetAlignment(first, size_bits / 8);
  LLVMSetOrdering(first, LLVMAtomicOrderingMonotonic);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b);
  LLVMBasicBlockRef again = qn__emit_block(e, "swap"), done = qn__emit_block(e, "swapped");
  e->fn->has_loop = true;
  LLVMBuildBr(b, again);
  qn__emit_at(e, again);
  LLVMValueRef expected = LLVMBuildPhi(b, bits, "");
  LLVMValueRef old = qn__emit_from_memory(e, dtype, LLVMBuildBitCast(b, expected, type, ""));
  LLVMValueRef next = qn__emit_float_op(e, op, dtype, (LLVMValueRef[]){old, operand});
  LLVMValueRef wanted = LLVMBuildBitCast(b, qn__emit_to_memory(e, dtype, next), bits, "");
  LLVMValueRef pair =
      LLVMBuildAtomicCmpXchg(b, pointer, expected, wanted, LLVMAtomicOrderingMonotonic,
                             LLVMAtomicOrderingMonotonic, false);
  LLVMValueRef found = LLVMBuildExtractValue(b, pair, 0, "");
  LLVMBasicBlockRef end = LLVMGetInsertBlock(b);
  LLVMAddIncoming(expected, (LLVMValueRef[]){first, found}, (LLVMBasicBlockRef[]){before, end}, 2);
  LLVMBuildCondBr(b, LLVMBuildExtractValue(b, pair, 1, ""), done, again);
  qn__emit_at(e, done);
  return old;
}

static LLVMValueRef change(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt, LLVMValueRef pointer,
                           LLVMValueRef operand, LLVMValueRef operand2) {
  LLVMBuilderRef b = e->fn->builder;
  qn_dtype_t dtype = stmt->atomic.buffer->dtype;
  qn_atomic_op_t op = stmt->atomic.op;
  if (operand2) {
    LLVMValueRef pair =
        LLVMBuildAtomicCmpXchg(b, pointer, operand, operand2, LLVMAtomicOrderingMonotonic,
                               LLVMAtomicOrderingMonotonic, false);
    return LLVMBuildExtractValue(b, pair, 0, "");
  }
  bool is_order = op == QN_ATOMIC_MIN || op == QN_ATOMIC_MAX;
  bool is_small = qn__dtype_bits(dtype) < 32;
  if (qn__dtype_is_float(dtype) && (is_order || (op == QN_ATOMIC_ADD && is_small))) {
    qn_op_t step = op == QN_ATOMIC_ADD ? QN_OP_ADD : op == QN_ATOMIC_MIN ? QN_OP_MIN : QN_OP_MAX;
    return swap_in_loop(e, step, dtype, pointer, operand);
  }
  LLVMValueRef old =
      LLVMBuildAtomicRMW(b, operation(op, dtype), pointer, qn__emit_to_memory(e, dtype, operand),
                         LLVMAtomicOrderingMonotonic, false);
  return qn__emit_from_memory(e, dtype, old);
}

void qn__emit_atomic(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  LLVMBuilderRef b = e->fn->builder;
  const qn__ir_expr_t *first = stmt->atomic.operand, *second = stmt->atomic.operand2;
  assert(e->fn->lanes == 0);
  LLVMValueRef operand = first ? qn__emit_scalar(e, first) : NULL;
  LLVMValueRef operand2 = second ? qn__emit_scalar(e, second) : NULL;
  const qn__ir_buffer_t* buffer = stmt->atomic.buffer;
  uint32_t size_bytes = qn__dtype_bits(buffer->dtype) / 8;
  LLVMValueRef pointer = qn__emit_address(e, buffer, stmt->atomic.indices).pointer;
  LLVMValueRef old = NULL;
  if (stmt->atomic.op == QN_ATOMIC_STORE) {
    LLVMValueRef store = LLVMBuildStore(b, qn__emit_to_memory(e, buffer->dtype, operand), pointer);
    LLVMSetAlignment(store, size_bytes);
    LLVMSetOrdering(store, LLVMAtomicOrderingRelease);
  } else if (stmt->atomic.op == QN_ATOMIC_LOAD) {
    LLVMValueRef load = LLVMBuildLoad2(b, qn__emit_memory_type(e, buffer->dtype), pointer, "");
    LLVMSetAlignment(load, size_bytes);
    LLVMSetOrdering(load, LLVMAtomicOrderingAcquire);
    old = qn__emit_from_memory(e, buffer->dtype, load);
  } else {
    old = change(e, stmt, pointer, operand, operand2);
  }
  if (stmt->atomic.result && old) {
    qn__emit_bind(e, stmt->atomic.result, qn__emit_uniform(buffer->dtype, old));
  }
}
