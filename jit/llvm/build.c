// SPDX-License-Identifier: Apache-2.0
// jit/llvm/build.c: tables from the operators of the IR to LLVM's instructions, and small helpers.
#include "jit/llvm/build.h"

unsigned qn__llvm_lane_count(LLVMTypeRef type) {
  return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetVectorSize(type) : 0;
}

LLVMTypeRef qn__llvm_element(LLVMTypeRef type) {
  return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetElementType(type) : type;
}

LLVMTypeRef qn__llvm_vector(LLVMTypeRef element, unsigned lanes) {
  return lanes == 0 ? element : LLVMVectorType(element, lanes);
}

LLVMTypeRef qn__llvm_like(LLVMTypeRef type, LLVMTypeRef element) {
  return qn__llvm_vector(element, qn__llvm_lane_count(type));
}

// ------------------------------------------------------------------------------------ constants

LLVMValueRef qn__llvm_splat(LLVMTypeRef type, LLVMValueRef constant) {
  assert(LLVMIsConstant(constant) && LLVMTypeOf(constant) == qn__llvm_element(type));
  unsigned lanes = qn__llvm_lane_count(type);
  if (lanes == 0) return constant;
  LLVMValueRef one = LLVMConstVector(&constant, 1);
  LLVMTypeRef index = LLVMInt32TypeInContext(LLVMGetTypeContext(type));
  return LLVMConstShuffleVector(one, one, LLVMConstNull(LLVMVectorType(index, lanes)));
}

LLVMValueRef qn__llvm_int(LLVMTypeRef type, uint64_t value) {
  return qn__llvm_splat(type, LLVMConstInt(qn__llvm_element(type), value, false));
}

LLVMValueRef qn__llvm_real(LLVMTypeRef type, double value) {
  return qn__llvm_splat(type, LLVMConstReal(qn__llvm_element(type), value));
}

// ------------------------------------------------------------------------------------ instructions

LLVMValueRef qn__llvm_intrinsic(LLVMBuilderRef b, const char* name, LLVMTypeRef* overloads,
                                unsigned overload_count, LLVMValueRef* args, unsigned count) {
  LLVMValueRef function = LLVMGetBasicBlockParent(LLVMGetInsertBlock(b));
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  assert(id != 0);
  LLVMValueRef callee =
      LLVMGetIntrinsicDeclaration(LLVMGetGlobalParent(function), id, overloads, overload_count);
  return LLVMBuildCall2(b, LLVMGlobalGetValueType(callee), callee, args, count, "");
}

LLVMValueRef qn__llvm_total(LLVMBuilderRef b, const char* name, LLVMValueRef value) {
  LLVMTypeRef type = LLVMTypeOf(value);
  LLVMTypeRef flag = LLVMInt1TypeInContext(LLVMGetTypeContext(type));
  LLVMValueRef args[] = {value, LLVMConstNull(flag)};  // the result is never poison
  return qn__llvm_intrinsic(b, name, &type, 1, args, 2);
}

LLVMValueRef qn__llvm_binary(LLVMBuilderRef b, qn_op_t op, qn_dtype_t dtype, LLVMValueRef x,
                             LLVMValueRef y) {
  static const struct {
    qn_op_t op;
    LLVMOpcode real, with_sign, without;  // 0: none
  } table[] = {
      {QN_OP_ADD, LLVMFAdd, LLVMAdd, LLVMAdd}, {QN_OP_SUB, LLVMFSub, LLVMSub, LLVMSub},
      {QN_OP_MUL, LLVMFMul, LLVMMul, LLVMMul}, {QN_OP_DIV, LLVMFDiv, 0, 0},
      {QN_OP_AND, 0, LLVMAnd, LLVMAnd},        {QN_OP_OR, 0, LLVMOr, LLVMOr},
      {QN_OP_XOR, 0, LLVMXor, LLVMXor},        {QN_OP_SHL, 0, LLVMShl, LLVMShl},
      {QN_OP_SHR, 0, LLVMAShr, LLVMLShr},
  };
  for (size_t i = 0; i < QN_COUNT_OF(table); ++i) {
    if (table[i].op != op) continue;
    LLVMOpcode opcode = qn__dtype_is_float(dtype)   ? table[i].real
                        : qn__llvm_is_signed(dtype) ? table[i].with_sign
                                                    : table[i].without;
    assert(opcode != 0);
    return LLVMBuildBinOp(b, opcode, x, y, "");
  }
  return NULL;
}

LLVMValueRef qn__llvm_compare(LLVMBuilderRef b, qn_op_t op, qn_dtype_t dtype, LLVMValueRef x,
                              LLVMValueRef y) {
  static const struct {
    LLVMRealPredicate real;
    LLVMIntPredicate with_sign, without;
  } table[] = {
      [QN_OP_EQ - QN_OP_EQ] = {LLVMRealOEQ, LLVMIntEQ, LLVMIntEQ},
      [QN_OP_NE - QN_OP_EQ] = {LLVMRealUNE, LLVMIntNE, LLVMIntNE},
      [QN_OP_LT - QN_OP_EQ] = {LLVMRealOLT, LLVMIntSLT, LLVMIntULT},
      [QN_OP_LE - QN_OP_EQ] = {LLVMRealOLE, LLVMIntSLE, LLVMIntULE},
      [QN_OP_GT - QN_OP_EQ] = {LLVMRealOGT, LLVMIntSGT, LLVMIntUGT},
      [QN_OP_GE - QN_OP_EQ] = {LLVMRealOGE, LLVMIntSGE, LLVMIntUGE},
  };
  assert(op >= QN_OP_EQ && op <= QN_OP_GE);
  uint32_t at = (uint32_t)op - QN_OP_EQ;
  if (qn__dtype_is_float(dtype)) return LLVMBuildFCmp(b, table[at].real, x, y, "");
  bool is_signed = qn__llvm_is_signed(dtype);
  return LLVMBuildICmp(b, is_signed ? table[at].with_sign : table[at].without, x, y, "");
}

LLVMValueRef qn__llvm_convert(LLVMBuilderRef b, qn_dtype_t from, LLVMValueRef value,
                              LLVMTypeRef type) {
  assert(qn__llvm_lane_count(LLVMTypeOf(value)) == qn__llvm_lane_count(type));
  bool is_signed = qn__llvm_is_signed(from);
  bool is_to_int = LLVMGetTypeKind(qn__llvm_element(type)) == LLVMIntegerTypeKind;
  if (qn__dtype_is_float(from)) {
    assert(!is_to_int);  // would be undefined beyond the integer's range
    return LLVMBuildFPCast(b, value, type, "");
  }
  if (is_to_int) return LLVMBuildIntCast2(b, value, type, is_signed, "");
  return is_signed ? LLVMBuildSIToFP(b, value, type, "") : LLVMBuildUIToFP(b, value, type, "");
}

LLVMValueRef qn__llvm_any(LLVMBuilderRef b, LLVMValueRef mask) {
  unsigned lanes = qn__llvm_lane_count(LLVMTypeOf(mask));
  if (lanes == 0) return mask;
  LLVMTypeRef word = LLVMIntTypeInContext(LLVMGetTypeContext(LLVMTypeOf(mask)), lanes);
  LLVMValueRef bits = LLVMBuildBitCast(b, mask, word, "");
  return LLVMBuildICmp(b, LLVMIntNE, bits, LLVMConstNull(word), "");
}

LLVMValueRef qn__llvm_join(LLVMBuilderRef b, LLVMValueRef x, LLVMBasicBlockRef from_x,
                           LLVMValueRef y, LLVMBasicBlockRef from_y) {
  assert(LLVMTypeOf(x) == LLVMTypeOf(y));
  LLVMValueRef phi = LLVMBuildPhi(b, LLVMTypeOf(x), "");
  LLVMValueRef values[] = {x, y};
  LLVMBasicBlockRef blocks[] = {from_x, from_y};
  LLVMAddIncoming(phi, values, blocks, 2);
  return phi;
}

// ------------------------------------------------------------------------------------ attributes

LLVMAttributeRef qn__llvm_attribute(LLVMContextRef context, const char* name, uint64_t value) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  assert(kind != 0);
  return LLVMCreateEnumAttribute(context, kind, value);
}

static LLVMContextRef context_of(LLVMValueRef function) {
  return LLVMGetModuleContext(LLVMGetGlobalParent(function));
}

void qn__llvm_add_attribute(LLVMValueRef function, LLVMAttributeIndex index, const char* name) {
  LLVMAddAttributeAtIndex(function, index, qn__llvm_attribute(context_of(function), name, 0));
}

void qn__llvm_add_text_attribute(LLVMValueRef function, const char* key, const char* value) {
  LLVMAttributeRef attribute = LLVMCreateStringAttribute(
      context_of(function), key, (unsigned)strlen(key), value, (unsigned)strlen(value));
  LLVMAddAttributeAtIndex(function, QN__LLVM_OF_FUNCTION, attribute);
}
