// SPDX-License-Identifier: Apache-2.0
// jit/llvm/math.c: the operations that are a few instructions each, and the entry to all others.
//
// Not here: fma (math_fma.c), functions of ir/math (math_shared.c).
#include "jit/llvm/math.h"

#include "jit/llvm/math_builder.h"

// Operations that are one intrinsic. llvm.minimum and llvm.maximum propagate NaN and order the
// zeros, as IEEE 754-2019 says; LLVM expands them inline.
static const struct {
  qn_op_t op;
  unsigned arity;
  const char* name;
} intrinsics[] = {
    {QN_OP_MIN, 2, "llvm.minimum"}, {QN_OP_MAX, 2, "llvm.maximum"},
    {QN_OP_ABS, 1, "llvm.fabs"},    {QN_OP_COPYSIGN, 2, "llvm.copysign"},
    {QN_OP_SQRT, 1, "llvm.sqrt"},
};

// Rounds to nearest, halves away from zero. Adds the largest number below one half: with one half
// itself, 0.49999997 would become 1.
static LLVMValueRef round_away(const qn__llvm_math_builder_t* k, LLVMValueRef x) {
  LLVMValueRef almost_half = kf(k, k->is_f64 ? 0x1.fffffffffffffp-2 : 0x1.fffffep-2);
  return qn__llvm_math_round(k, kadd(k, x, kcopysign(k, almost_half, x)), 'z');
}

// Emits the minimum or maximum of vectors that no constant is part of. The instructions of x86 give
// their second operand if one is NaN or both are zero. Both orders together have what IEEE 754-2019
// wants, for half the instructions that LLVM has for llvm.minimum without AVX-512: the bits of
// either are NaN, and the sign of either makes -0. For a maximum, -0 - (-0) is the +0 of different
// zeros.
static LLVMValueRef extreme(const qn__llvm_math_builder_t* k, bool is_min, LLVMValueRef a,
                            LLVMValueRef b) {
  LLVMRealPredicate how = is_min ? LLVMRealOLT : LLVMRealOGT;
  LLVMValueRef one = kbits(k, kselect(k, kcmp(k, how, a, b), a, b));
  LLVMValueRef other = kbits(k, kselect(k, kcmp(k, how, b, a), b, a));
  LLVMValueRef either = kfrom_bits(k, kor(k, one, other));
  if (is_min) return either;
  return ksub(k, either, kfrom_bits(k, LLVMBuildXor(k->builder, one, other, "")));
}

LLVMValueRef qn__llvm_math_emit(qn__llvm_math_t* math, qn_op_t op, qn_dtype_t dtype,
                                LLVMValueRef* args) {
  qn__llvm_math_builder_t builder;
  const qn__llvm_math_builder_t* k = &builder;
  LLVMValueRef x = args[0];
  if (!qn__llvm_math_builder_init(&builder, math, math->builder, LLVMTypeOf(x))) return NULL;
  bool is_extreme = op == QN_OP_MIN || op == QN_OP_MAX;
  if (is_extreme && math->has_avx2 && !math->has_avx512 && k->lanes > 1 && !LLVMIsConstant(x) &&
      !LLVMIsConstant(args[1])) {
    return extreme(k, op == QN_OP_MIN, x, args[1]);
  }
  for (size_t i = 0; i < QN_COUNT_OF(intrinsics); i++) {
    if (intrinsics[i].op != op) continue;
    return qn__llvm_math_intrinsic(k, intrinsics[i].name, args, intrinsics[i].arity);
  }
  switch (op) {
    case QN_OP_FMA:
      return qn__llvm_math_fma(k, args);
    case QN_OP_RSQRT: {
      LLVMValueRef root = qn__llvm_math_intrinsic(k, "llvm.sqrt", args, 1);
      return LLVMBuildFDiv(k->builder, kf(k, 1.0), root, "");
    }
    case QN_OP_FLOOR:
      return qn__llvm_math_round(k, x, 'd');
    case QN_OP_CEIL:
      return qn__llvm_math_round(k, x, 'u');
    case QN_OP_TRUNC:
      return qn__llvm_math_round(k, x, 'z');
    case QN_OP_ROUNDEVEN:
      return qn__llvm_math_round(k, x, 'e');
    case QN_OP_ROUND:
      return round_away(k, x);
    case QN_OP_ISNAN:
      return kcmp(k, LLVMRealUNO, x, x);
    case QN_OP_ISINF:
      return kcmp(k, LLVMRealOEQ, kabs(k, x), kf(k, __builtin_inf()));
    case QN_OP_ISFINITE:
      return kcmp(k, LLVMRealOLT, kabs(k, x), kf(k, __builtin_inf()));
    default:
      break;
  }
  qn__math_id_t id;
  return qn__math_find(op, dtype, &id) ? qn__llvm_math_shared(k, id, args) : NULL;
}
