// SPDX-License-Identifier: Apache-2.0
// jit/llvm/math_fma.c: emits fma, a * b + c with one rounding, for any machine.
//
//  1. If the machine has the instruction, that is used.
//  2. f32: the product is exact in f64. The sum in f64 is rounded to odd, so that the second
//     rounding, to f32, gives the right result (Boldo and Melquiond).
//  3. f64: integer arithmetic on 128 bits, one lane at a time. It is slow, but machines without the
//     instruction are from before 2013.
#include "jit/llvm/math_builder.h"

// A rounded sum, and its rounding error.
typedef struct sum {
  LLVMValueRef hi;
  LLVMValueRef lo;
} sum_t;

static sum_t two_sum(const qn__llvm_math_builder_t* k, LLVMValueRef a, LLVMValueRef b) {
  LLVMValueRef sum = kadd(k, a, b);
  LLVMValueRef b_part = ksub(k, sum, a);
  LLVMValueRef a_part = ksub(k, sum, b_part);
  return (sum_t){sum, kadd(k, ksub(k, a, a_part), ksub(k, b, b_part))};
}

static LLVMValueRef fma_f32(const qn__llvm_math_builder_t* k, LLVMValueRef* args) {
  qn__llvm_math_builder_t w = qn__llvm_math_with(k, true);
  LLVMValueRef a = LLVMBuildFPExt(k->builder, args[0], w.f, "");
  LLVMValueRef b = LLVMBuildFPExt(k->builder, args[1], w.f, "");
  LLVMValueRef c = LLVMBuildFPExt(k->builder, args[2], w.f, "");
  sum_t sum = two_sum(&w, LLVMBuildFMul(k->builder, a, b, ""), c);
  // Rounding to odd: an inexact sum with an even last bit moves one step towards its error. With
  // infinities the error is NaN, and the comparisons are false.
  LLVMValueRef zero = kf(&w, 0.0);
  LLVMValueRef bits = kbits(&w, sum.hi);
  LLVMValueRef is_even = kicmp(&w, LLVMIntEQ, kand(&w, bits, ki(&w, 1)), ki(&w, 0));
  LLVMValueRef is_inexact = kcmp(&w, LLVMRealONE, sum.lo, zero);
  LLVMValueRef same_sign =
      kcmp(&w, LLVMRealOGT,
           LLVMBuildFMul(k->builder, kcopysign(&w, kf(&w, 1.0), sum.lo), sum.hi, ""), zero);
  LLVMValueRef step = kselect(&w, same_sign, ki(&w, 1), ki(&w, UINT64_MAX));
  LLVMValueRef odd = kselect(&w, kand(&w, is_even, is_inexact), kiadd(&w, bits, step), bits);
  return LLVMBuildFPTrunc(k->builder, kfrom_bits(&w, odd), k->f, "");
}

typedef struct unpacked {
  LLVMValueRef mantissa;  // i64; bit 52 is set unless the number is zero
  LLVMValueRef exponent;  // i64, biased; denormal numbers have exponents below 1
} unpacked_t;

static unpacked_t unpack(const qn__llvm_math_builder_t* k, LLVMValueRef x) {
  LLVMValueRef bits = kbits(k, x);
  LLVMValueRef exponent = kand(k, LLVMBuildLShr(k->builder, bits, ki(k, 52), ""), ki(k, 0x7FF));
  LLVMValueRef fraction = kand(k, bits, ki(k, (UINT64_C(1) << 52) - 1));
  LLVMValueRef is_denormal = kicmp(k, LLVMIntEQ, exponent, ki(k, 0));
  LLVMValueRef mantissa =
      kselect(k, is_denormal, fraction, kor(k, fraction, ki(k, UINT64_C(1) << 52)));
  exponent = kselect(k, is_denormal, ki(k, 1), exponent);
  // 11 zeros are the usual number; zero itself has 64 and stays zero.
  LLVMValueRef up = kisub(k, qn__llvm_total(k->builder, "llvm.ctlz", mantissa), ki(k, 11));
  return (unpacked_t){LLVMBuildShl(k->builder, mantissa, up, ""), kisub(k, exponent, up)};
}

// Shifts right by at most 127 bits. The last bit of the result is 1 if a 1 was shifted out.
static LLVMValueRef shift_jam(const qn__llvm_math_builder_t* k, LLVMTypeRef wide,
                              LLVMValueRef value, LLVMValueRef count) {
  LLVMBuilderRef b = k->builder;
  LLVMValueRef max = ki(k, 127);
  count = kselect(k, kicmp(k, LLVMIntUGT, count, max), max, count);
  count = LLVMBuildZExt(b, count, wide, "");
  LLVMValueRef shifted = LLVMBuildLShr(b, value, count, "");
  LLVMValueRef lost = LLVMBuildICmp(b, LLVMIntNE, LLVMBuildShl(b, shifted, count, ""), value, "");
  return LLVMBuildOr(b, shifted, LLVMBuildZExt(b, lost, wide, ""), "");
}

// Adds for finite operands and a product that is not zero. The product has 106 bits and ends at bit
// 125, the addend at bit 124. The one with the smaller exponent is shifted down. The shift loses
// bits only if it is so long that the leading bits of the other one survive a subtraction. Then the
// last bit of shift_jam stands for the lost ones.
static LLVMValueRef exact_sum(const qn__llvm_math_builder_t* k, LLVMValueRef* args) {
  enum { PRODUCT_SHIFT = 20, ADDEND_SHIFT = 72, BIAS = 1075 };
  LLVMBuilderRef b = k->builder;
  LLVMTypeRef wide = LLVMInt128TypeInContext(k->math->context);
  unpacked_t x = unpack(k, args[0]), y = unpack(k, args[1]), z = unpack(k, args[2]);
  LLVMValueRef signs = LLVMBuildXor(b, kbits(k, args[0]), kbits(k, args[1]), "");

  LLVMValueRef product = LLVMBuildMul(b, LLVMBuildZExt(b, x.mantissa, wide, ""),
                                      LLVMBuildZExt(b, y.mantissa, wide, ""), "");
  product = LLVMBuildShl(b, product, LLVMConstInt(wide, PRODUCT_SHIFT, false), "");
  LLVMValueRef addend = LLVMBuildShl(b, LLVMBuildZExt(b, z.mantissa, wide, ""),
                                     LLVMConstInt(wide, ADDEND_SHIFT, false), "");
  // Exponents of the last bits, without the common bias.
  LLVMValueRef product_exponent =
      kisub(k, kiadd(k, x.exponent, y.exponent), ki(k, BIAS + PRODUCT_SHIFT));
  LLVMValueRef addend_exponent = kisub(k, z.exponent, ki(k, ADDEND_SHIFT));
  // A zero addend must not decide the exponent.
  LLVMValueRef is_zero = kicmp(k, LLVMIntEQ, z.mantissa, ki(k, 0));
  addend_exponent = kselect(k, is_zero, product_exponent, addend_exponent);

  LLVMValueRef ahead = kisub(k, product_exponent, addend_exponent);
  LLVMValueRef product_leads = kicmp(k, LLVMIntSGE, ahead, ki(k, 0));
  LLVMValueRef exponent = kselect(k, product_leads, product_exponent, addend_exponent);
  LLVMValueRef down = kselect(k, product_leads, ki(k, 0), LLVMBuildNeg(b, ahead, ""));
  product = shift_jam(k, wide, product, down);
  addend = shift_jam(k, wide, addend, kselect(k, product_leads, ahead, ki(k, 0)));

  LLVMValueRef product_negative = kicmp(k, LLVMIntSLT, signs, ki(k, 0));
  LLVMValueRef addend_negative = kicmp(k, LLVMIntSLT, kbits(k, args[2]), ki(k, 0));
  product = LLVMBuildSelect(b, product_negative, LLVMBuildNeg(b, product, ""), product, "");
  addend = LLVMBuildSelect(b, addend_negative, LLVMBuildNeg(b, addend, ""), addend, "");
  LLVMValueRef sum = LLVMBuildAdd(b, product, addend, "");
  LLVMValueRef is_negative = LLVMBuildICmp(b, LLVMIntSLT, sum, LLVMConstNull(wide), "");
  LLVMValueRef is_nothing = LLVMBuildICmp(b, LLVMIntEQ, sum, LLVMConstNull(wide), "");
  sum = LLVMBuildSelect(b, is_negative, LLVMBuildNeg(b, sum, ""), sum, "");

  // Moves the highest bit to 127. The exponent is biased, as of a normal number.
  LLVMValueRef zeros =
      LLVMBuildAnd(b, qn__llvm_total(b, "llvm.ctlz", sum), LLVMConstInt(wide, 127, false), "");
  sum = LLVMBuildShl(b, sum, zeros, "");
  exponent = kisub(k, exponent, LLVMBuildTrunc(b, zeros, k->i, ""));
  exponent = kiadd(k, exponent, ki(k, 127 + 1023 - BIAS));
  LLVMValueRef is_small = kicmp(k, LLVMIntSLT, exponent, ki(k, 1));
  LLVMValueRef extra = kselect(k, is_small, kisub(k, ki(k, 1), exponent), ki(k, 0));
  sum = shift_jam(k, wide, sum, extra);
  exponent = kselect(k, is_small, ki(k, 1), exponent);

  // 53 bits stay, 75 decide the rounding. A carry out of the mantissa raises the exponent, which is
  // right.
  LLVMValueRef kept =
      LLVMBuildTrunc(b, LLVMBuildLShr(b, sum, LLVMConstInt(wide, 75, false), ""), k->i, "");
  LLVMValueRef rest = LLVMBuildShl(b, sum, LLVMConstInt(wide, 53, false), "");
  LLVMValueRef half =
      LLVMBuildShl(b, LLVMConstInt(wide, 1, false), LLVMConstInt(wide, 127, false), "");
  LLVMValueRef is_odd = kicmp(k, LLVMIntNE, kand(k, kept, ki(k, 1)), ki(k, 0));
  LLVMValueRef is_above = LLVMBuildICmp(b, LLVMIntUGT, rest, half, "");
  LLVMValueRef is_half = LLVMBuildICmp(b, LLVMIntEQ, rest, half, "");
  LLVMValueRef up = kor(k, is_above, kand(k, is_half, is_odd));
  LLVMValueRef bits = kiadd(k, LLVMBuildShl(b, kisub(k, exponent, ki(k, 1)), ki(k, 52), ""), kept);
  bits = kiadd(k, bits, LLVMBuildZExt(b, up, k->i, ""));
  LLVMValueRef infinity = ki(k, UINT64_C(0x7FF0000000000000));
  bits = kselect(k, kicmp(k, LLVMIntSGE, exponent, ki(k, 0x7FF)), infinity, bits);
  bits = kor(k, bits, kselect(k, is_negative, ki(k, UINT64_C(1) << 63), ki(k, 0)));
  return kfrom_bits(k, kselect(k, is_nothing, ki(k, 0), bits));
}

static LLVMValueRef fma_f64_body(const qn__llvm_math_builder_t* k, unsigned id,
                                 LLVMValueRef* args) {
  (void)id;
  LLVMValueRef infinity = kf(k, __builtin_inf()), zero = kf(k, 0.0);
  LLVMValueRef finite = kand(k, kcmp(k, LLVMRealOLT, kabs(k, args[0]), infinity),
                             kcmp(k, LLVMRealOLT, kabs(k, args[1]), infinity));
  LLVMValueRef addend_finite = kcmp(k, LLVMRealOLT, kabs(k, args[2]), infinity);
  LLVMValueRef has_zero =
      kor(k, kcmp(k, LLVMRealOEQ, args[0], zero), kcmp(k, LLVMRealOEQ, args[1], zero));
  // With a zero, an infinity or NaN two roundings are right, unless a finite product overflows.
  LLVMValueRef product = LLVMBuildFMul(k->builder, args[0], args[1], "");
  product = kselect(k, kand(k, finite, LLVMBuildNot(k->builder, addend_finite, "")), zero, product);
  LLVMValueRef simple = kadd(k, product, args[2]);
  LLVMValueRef is_general =
      kand(k, kand(k, finite, addend_finite), LLVMBuildNot(k->builder, has_zero, ""));
  return kselect(k, is_general, exact_sum(k, args), simple);
}

LLVMValueRef qn__llvm_math_fma(const qn__llvm_math_builder_t* k, LLVMValueRef* args) {
  if (k->math->has_fma) return qn__llvm_math_intrinsic(k, "llvm.fma", args, 3);
  if (!k->is_f64) return fma_f32(k, args);
  qn__llvm_math_builder_t one = qn__llvm_math_scalar(k);
  if (k->lanes == 0) return qn__llvm_math_call(&one, "qn.math.fma.f64", fma_f64_body, 0, args, 3);
  LLVMTypeRef counter = LLVMInt32TypeInContext(k->math->context);
  LLVMValueRef result = LLVMGetPoison(k->f);
  for (unsigned i = 0; i < k->lanes; i++) {
    LLVMValueRef at = LLVMConstInt(counter, i, false);
    LLVMValueRef lane[3];
    for (unsigned j = 0; j < 3; j++) lane[j] = LLVMBuildExtractElement(k->builder, args[j], at, "");
    LLVMValueRef y = qn__llvm_math_call(&one, "qn.math.fma.f64", fma_f64_body, 0, lane, 3);
    result = LLVMBuildInsertElement(k->builder, result, y, at, "");
  }
  return result;
}
