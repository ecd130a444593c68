// fma: a * b + c with one rounding, on any machine.
//
// What it is: the instruction where there is one. Else, for f32, the exact product and the sum in
// f64, rounded to odd so that the second rounding, to f32, cannot tell the difference (Boldo and
// Melquiond); for f64, one lane at a time, integer arithmetic on 128 bits.
// What it is not: a fast f64 path for machines without the instruction; those are from before 2013.
// Threads: as the builder.
// Next: math.c.
#include "jit/llvm/math_kit.h"

// A value and what rounding cut off it.
typedef struct {
  qn__val_t hi;
  qn__val_t lo;
} sum_t;

static sum_t two_sum(const qn__kit_t* k, qn__val_t a, qn__val_t b) {
  qn__val_t sum = kadd(k, a, b);
  qn__val_t b_part = ksub(k, sum, a);
  qn__val_t a_part = ksub(k, sum, b_part);
  return (sum_t){sum, kadd(k, ksub(k, a, a_part), ksub(k, b, b_part))};
}

static qn__val_t fma_f32(const qn__kit_t* k, const qn__val_t* args) {
  qn__kit_t w = qn__kit_with(k, true);
  qn__val_t a = LLVMBuildFPExt(k->builder, args[0], w.f, "");
  qn__val_t b = LLVMBuildFPExt(k->builder, args[1], w.f, "");
  qn__val_t c = LLVMBuildFPExt(k->builder, args[2], w.f, "");
  sum_t sum = two_sum(&w, kmul(&w, a, b), c);
  // If something was cut off and the last bit is even, go to the odd neighbour on the side of the
  // rest. With infinities the rest is NaN, and the comparisons are false.
  qn__val_t zero = kf(&w, 0.0);
  qn__val_t bits = kbits(&w, sum.hi);
  qn__val_t is_even = kicmp(&w, LLVMIntEQ, kand(&w, bits, ki(&w, 1)), ki(&w, 0));
  qn__val_t is_inexact = kcmp(&w, LLVMRealONE, sum.lo, zero);
  qn__val_t same_sign =
      kcmp(&w, LLVMRealOGT, kmul(&w, kcopysign(&w, kf(&w, 1.0), sum.lo), sum.hi), zero);
  qn__val_t step = kselect(&w, same_sign, ki(&w, 1), ki(&w, UINT64_MAX));
  qn__val_t odd = kselect(&w, kand(&w, is_even, is_inexact), kiadd(&w, bits, step), bits);
  return LLVMBuildFPTrunc(k->builder, kfrom_bits(&w, odd), k->f, "");
}

typedef struct {
  qn__val_t mantissa;  // i64, bit 52 set unless the number is zero
  qn__val_t exponent;  // i64, biased as if denormals went on downwards
} unpacked_t;

static qn__val_t count_zeros(const qn__kit_t* k, LLVMTypeRef type, qn__val_t value) {
  unsigned id = LLVMLookupIntrinsicID("llvm.ctlz", 9);
  LLVMValueRef ctlz = LLVMGetIntrinsicDeclaration(k->math->module, id, &type, 1);
  qn__val_t args[] = {value, LLVMConstInt(LLVMInt1TypeInContext(k->math->context), 0, false)};
  return LLVMBuildCall2(k->builder, LLVMGlobalGetValueType(ctlz), ctlz, args, 2, "");
}

static unpacked_t unpack(const qn__kit_t* k, qn__val_t x) {
  qn__val_t bits = kbits(k, x);
  qn__val_t exponent = kand(k, kshr(k, bits, 52), ki(k, 0x7FF));
  qn__val_t fraction = kand(k, bits, ki(k, (UINT64_C(1) << 52) - 1));
  qn__val_t is_denormal = kicmp(k, LLVMIntEQ, exponent, ki(k, 0));
  qn__val_t mantissa =
      kselect(k, is_denormal, fraction, kor(k, fraction, ki(k, UINT64_C(1) << 52)));
  exponent = kselect(k, is_denormal, ki(k, 1), exponent);
  // 11 zeros are the usual number; zero itself has 64 and stays zero.
  qn__val_t up = kisub(k, count_zeros(k, k->i, mantissa), ki(k, 11));
  return (unpacked_t){LLVMBuildShl(k->builder, mantissa, up, ""), kisub(k, exponent, up)};
}

// value >> count, at most 127, with a one in the last place if a one was shifted out.
static qn__val_t shift_jam(const qn__kit_t* k, LLVMTypeRef wide, qn__val_t value, qn__val_t count) {
  LLVMBuilderRef b = k->builder;
  qn__val_t most = ki(k, 127);
  count = kselect(k, kicmp(k, LLVMIntUGT, count, most), most, count);
  count = LLVMBuildZExt(b, count, wide, "");
  qn__val_t shifted = LLVMBuildLShr(b, value, count, "");
  qn__val_t lost = LLVMBuildICmp(b, LLVMIntNE, LLVMBuildShl(b, shifted, count, ""), value, "");
  return LLVMBuildOr(b, shifted, LLVMBuildZExt(b, lost, wide, ""), "");
}

// The sum for finite operands and a product that is not zero. The product has 106 bits, up to bit
// 125; c has its highest at 124. The one with the smaller exponent is shifted down. Bits are lost
// by that only if the shift is so long that the other one's leading bits survive the subtraction,
// and then the jammed bit stands for them.
static qn__val_t exact_sum(const qn__kit_t* k, const qn__val_t* args) {
  enum { PRODUCT_SHIFT = 20, ADDEND_SHIFT = 72, BIAS = 1075 };
  LLVMBuilderRef b = k->builder;
  LLVMTypeRef wide = LLVMInt128TypeInContext(k->math->context);
  unpacked_t x = unpack(k, args[0]), y = unpack(k, args[1]), z = unpack(k, args[2]);
  qn__val_t signs = kxor(k, kbits(k, args[0]), kbits(k, args[1]));

  qn__val_t product = LLVMBuildMul(b, LLVMBuildZExt(b, x.mantissa, wide, ""),
                                   LLVMBuildZExt(b, y.mantissa, wide, ""), "");
  product = LLVMBuildShl(b, product, LLVMConstInt(wide, PRODUCT_SHIFT, false), "");
  qn__val_t addend = LLVMBuildShl(b, LLVMBuildZExt(b, z.mantissa, wide, ""),
                                  LLVMConstInt(wide, ADDEND_SHIFT, false), "");
  // Of the last bit, both without the common bias.
  qn__val_t product_exponent =
      kisub(k, kiadd(k, x.exponent, y.exponent), ki(k, BIAS + PRODUCT_SHIFT));
  qn__val_t addend_exponent = kisub(k, z.exponent, ki(k, ADDEND_SHIFT));
  // A zero addend must not decide the exponent.
  qn__val_t is_zero = kicmp(k, LLVMIntEQ, z.mantissa, ki(k, 0));
  addend_exponent = kselect(k, is_zero, product_exponent, addend_exponent);

  qn__val_t ahead = kisub(k, product_exponent, addend_exponent);
  qn__val_t product_leads = kicmp(k, LLVMIntSGE, ahead, ki(k, 0));
  qn__val_t exponent = kselect(k, product_leads, product_exponent, addend_exponent);
  qn__val_t down = kselect(k, product_leads, ki(k, 0), LLVMBuildNeg(b, ahead, ""));
  product = shift_jam(k, wide, product, down);
  addend = shift_jam(k, wide, addend, kselect(k, product_leads, ahead, ki(k, 0)));

  qn__val_t product_negative = kicmp(k, LLVMIntSLT, signs, ki(k, 0));
  qn__val_t addend_negative = kicmp(k, LLVMIntSLT, kbits(k, args[2]), ki(k, 0));
  product = LLVMBuildSelect(b, product_negative, LLVMBuildNeg(b, product, ""), product, "");
  addend = LLVMBuildSelect(b, addend_negative, LLVMBuildNeg(b, addend, ""), addend, "");
  qn__val_t sum = LLVMBuildAdd(b, product, addend, "");
  qn__val_t is_negative = LLVMBuildICmp(b, LLVMIntSLT, sum, LLVMConstNull(wide), "");
  qn__val_t is_nothing = LLVMBuildICmp(b, LLVMIntEQ, sum, LLVMConstNull(wide), "");
  sum = LLVMBuildSelect(b, is_negative, LLVMBuildNeg(b, sum, ""), sum, "");

  // Highest bit to 127; the biased exponent of the result as if it were normal.
  qn__val_t zeros = LLVMBuildAnd(b, count_zeros(k, wide, sum), LLVMConstInt(wide, 127, false), "");
  sum = LLVMBuildShl(b, sum, zeros, "");
  exponent = kisub(k, exponent, LLVMBuildTrunc(b, zeros, k->i, ""));
  exponent = kiadd(k, exponent, ki(k, 127 + 1023 - BIAS));
  qn__val_t is_small = kicmp(k, LLVMIntSLT, exponent, ki(k, 1));
  qn__val_t extra = kselect(k, is_small, kisub(k, ki(k, 1), exponent), ki(k, 0));
  sum = shift_jam(k, wide, sum, extra);
  exponent = kselect(k, is_small, ki(k, 1), exponent);

  // 53 bits stay, 75 decide the rounding. A carry out of the mantissa rightly raises the exponent.
  qn__val_t kept =
      LLVMBuildTrunc(b, LLVMBuildLShr(b, sum, LLVMConstInt(wide, 75, false), ""), k->i, "");
  qn__val_t rest = LLVMBuildShl(b, sum, LLVMConstInt(wide, 53, false), "");
  qn__val_t half =
      LLVMBuildShl(b, LLVMConstInt(wide, 1, false), LLVMConstInt(wide, 127, false), "");
  qn__val_t is_odd = kicmp(k, LLVMIntNE, kand(k, kept, ki(k, 1)), ki(k, 0));
  qn__val_t is_above = LLVMBuildICmp(b, LLVMIntUGT, rest, half, "");
  qn__val_t is_half = LLVMBuildICmp(b, LLVMIntEQ, rest, half, "");
  qn__val_t up = kor(k, is_above, kand(k, is_half, is_odd));
  qn__val_t bits = kiadd(k, kshl(k, kisub(k, exponent, ki(k, 1)), 52), kept);
  bits = kiadd(k, bits, LLVMBuildZExt(b, up, k->i, ""));
  qn__val_t infinity = ki(k, UINT64_C(0x7FF0000000000000));
  bits = kselect(k, kicmp(k, LLVMIntSGE, exponent, ki(k, 0x7FF)), infinity, bits);
  bits = kor(k, bits, kselect(k, is_negative, ki(k, qn__kit_sign_bit(k)), ki(k, 0)));
  return kfrom_bits(k, kselect(k, is_nothing, ki(k, 0), bits));
}

static qn__val_t fma_f64_body(const qn__kit_t* k, unsigned id, const qn__val_t* args) {
  (void)id;
  qn__val_t infinity = kf(k, __builtin_inf()), zero = kf(k, 0.0);
  qn__val_t finite = kand(k, kcmp(k, LLVMRealOLT, kabs(k, args[0]), infinity),
                          kcmp(k, LLVMRealOLT, kabs(k, args[1]), infinity));
  qn__val_t addend_finite = kcmp(k, LLVMRealOLT, kabs(k, args[2]), infinity);
  qn__val_t has_zero =
      kor(k, kcmp(k, LLVMRealOEQ, args[0], zero), kcmp(k, LLVMRealOEQ, args[1], zero));
  // With a zero, infinity or NaN two roundings do, unless a finite product overflows.
  qn__val_t product = kmul(k, args[0], args[1]);
  product = kselect(k, kand(k, finite, knot(k, addend_finite)), zero, product);
  qn__val_t simple = kadd(k, product, args[2]);
  qn__val_t is_general = kand(k, kand(k, finite, addend_finite), knot(k, has_zero));
  return kselect(k, is_general, exact_sum(k, args), simple);
}

qn__val_t qn__math_fma(const qn__kit_t* k, const qn__val_t* args) {
  if (k->math->has_fma) return qn__kit_call(k, "llvm.fma", args, 3);
  if (!k->is_f64) return fma_f32(k, args);
  qn__kit_t one = qn__kit_scalar(k);
  if (k->lanes == 0) return qn__kit_function(&one, "qn.math.fma.f64", fma_f64_body, 0, args, 3);
  LLVMTypeRef counter = LLVMInt32TypeInContext(k->math->context);
  qn__val_t result = LLVMGetPoison(k->f);
  for (unsigned i = 0; i < k->lanes; i++) {
    qn__val_t at = LLVMConstInt(counter, i, false);
    qn__val_t lane[3];
    for (unsigned j = 0; j < 3; j++) lane[j] = LLVMBuildExtractElement(k->builder, args[j], at, "");
    qn__val_t y = qn__kit_function(&one, "qn.math.fma.f64", fma_f64_body, 0, lane, 3);
    result = LLVMBuildInsertElement(k->builder, result, y, at, "");
  }
  return result;
}
