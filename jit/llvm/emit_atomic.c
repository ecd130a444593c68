// jit/llvm/emit_atomic.c: atomic statements: relaxed, giving the old value.
//
// They stand in scalar code only. Floats are added by LLVM's own compare-and-swap loop, narrow
// floats by one of ours. Threads: as emit.h. Next: emit_stmt.c.
#include "emit_inner.h"

static LLVMAtomicRMWBinOp operation(qn_atomic_op_t op, qn_dtype_t dtype) {
  bool is_signed = qn__emit_is_signed(dtype);
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

static LLVMValueRef swap_if_equal(qn__emit_t* e, LLVMValueRef pointer, LLVMValueRef expected,
                                  LLVMValueRef wanted) {
  return LLVMBuildAtomicCmpXchg(e->fn->builder, pointer, expected, wanted,
                                LLVMAtomicOrderingMonotonic, LLVMAtomicOrderingMonotonic, false);
}

// Reads, computes and swaps until nobody came between. `step` makes the new bits of the old; it
// returns NULL in `out_stop` or when to stop without storing.
static LLVMValueRef swap_loop(qn__emit_t* e, LLVMValueRef pointer, LLVMTypeRef type,
                              qn_dtype_t dtype, const LLVMValueRef* operands, bool is_add) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef first = LLVMBuildLoad2(b, type, pointer, "");
  LLVMSetAlignment(first, qn__dtype_bits(dtype) / 8);
  LLVMSetOrdering(first, LLVMAtomicOrderingMonotonic);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b);
  LLVMBasicBlockRef again = qn__emit_block(e, "again");
  LLVMBasicBlockRef swap = is_add ? again : qn__emit_block(e, "swap");
  LLVMBasicBlockRef done = qn__emit_block(e, "swapped");
  LLVMBuildBr(b, again);
  qn__emit_at(e, again);
  LLVMValueRef old = LLVMBuildPhi(b, type, "");
  LLVMValueRef value =
      qn__emit_from_memory(e, dtype, LLVMBuildBitCast(b, old, qn__emit_memory_type(e, dtype), ""));
  LLVMValueRef wanted;
  if (is_add) {
    LLVMValueRef args[] = {value, operands[0]};
    wanted = qn__emit_float_op(e, QN_OP_ADD, dtype, args);
  } else {
    LLVMValueRef is_equal = qn__emit_compare(e, QN_OP_EQ, dtype, value, operands[0]);
    LLVMBuildCondBr(b, is_equal, swap, done);
    qn__emit_at(e, swap);
    wanted = operands[1];
  }
  LLVMValueRef bits = LLVMBuildBitCast(b, qn__emit_to_memory(e, dtype, wanted), type, "");
  LLVMValueRef pair = swap_if_equal(e, pointer, old, bits);
  LLVMValueRef found = LLVMBuildExtractValue(b, pair, 0, "");
  LLVMBasicBlockRef from = LLVMGetInsertBlock(b);
  LLVMBuildCondBr(b, LLVMBuildExtractValue(b, pair, 1, ""), done, again);
  LLVMValueRef values[] = {first, found};
  LLVMBasicBlockRef blocks[] = {before, from};
  LLVMAddIncoming(old, values, blocks, 2);
  qn__emit_at(e, done);
  return old;
}

void qn__emit_atomic(qn__emit_t* e, const qn__stmt_t* stmt) {
  LLVMBuilderRef b = e->fn->builder;
  const qn__buf_t* buffer = stmt->atomic.buffer;
  qn_dtype_t dtype = buffer->dtype;
  LLVMValueRef operands[2] = {qn__emit_scalar(e, stmt->atomic.operand), NULL};
  if (stmt->atomic.operand2) operands[1] = qn__emit_scalar(e, stmt->atomic.operand2);
  qn__address_t address = qn__emit_address(e, buffer, stmt->atomic.indices);
  bool is_float = qn__dtype_is_float(dtype);
  bool is_cas = stmt->atomic.op == QN_ATOMIC_CAS;
  bool is_add = stmt->atomic.op == QN_ATOMIC_ADD;
  LLVMTypeRef bits_type = LLVMIntTypeInContext(e->context, qn__dtype_bits(dtype));
  LLVMTypeRef memory_type = qn__emit_memory_type(e, dtype);
  LLVMValueRef old;
  if (is_float && (is_cas || (is_add && qn__emit_is_narrow_float(dtype)))) {
    old = swap_loop(e, address.pointer, bits_type, dtype, operands, is_add);
  } else if (is_cas) {
    LLVMValueRef pair = swap_if_equal(e, address.pointer, qn__emit_to_memory(e, dtype, operands[0]),
                                      qn__emit_to_memory(e, dtype, operands[1]));
    old = LLVMBuildExtractValue(b, pair, 0, "");
  } else {
    LLVMValueRef operand = qn__emit_to_memory(e, dtype, operands[0]);
    if (!is_add) operand = LLVMBuildBitCast(b, operand, bits_type, "");
    old = LLVMBuildAtomicRMW(b, operation(stmt->atomic.op, dtype), address.pointer, operand,
                             LLVMAtomicOrderingMonotonic, false);
  }
  if (!stmt->atomic.result) return;
  old = LLVMBuildBitCast(b, old, memory_type, "");
  qn__emit_bind(e, stmt->atomic.result,
                qn__emit_uniform(dtype, qn__emit_from_memory(e, dtype, old)));
}
