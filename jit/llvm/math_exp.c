// exp, exp2, and what is made of them: tanh and erf.
//
// What it is: x = n ln 2 + r with |r| <= ln 2 / 2; e^r is a polynomial (Horner, pure f32 or f64),
// and 2^n is put together from bits. No tables, no branches: two clamps make the whole range one
// path. What it is not: pow, which has its own exponential (math_pow.c). Threads: as the builder.
// Next: math_log.c.
#include "jit/llvm/math_kit.h"
#include "jit/llvm/math_tables.h"

// n as a float, and the bits whose low part is n + 2 * bias.
typedef struct {
  qn__val_t n;
  qn__val_t bits;
} rounded_t;

static rounded_t round_scaled(const qn__kit_t* k, qn__val_t x, double scale) {
  double magic = qn__kit_magic(k, 2 * k->bias);
  qn__val_t shifted =
      scale == 1.0 ? kadd(k, x, kf(k, magic)) : kmad(k, x, kf(k, scale), kf(k, magic));
  return (rounded_t){ksub(k, shifted, kf(k, magic)), kbits(k, shifted)};
}

// x * 2^n. One power of two cannot reach from the largest to the smallest denormal result, so there
// are two, of n / 2 and n - n / 2; the first product is exact, the second rounds once.
static qn__val_t scale_by(const qn__kit_t* k, qn__val_t x, rounded_t by) {
  if (k->math->has_avx512 && k->lanes * (k->is_f64 ? 8 : 4) == 64) {
    LLVMContextRef context = k->math->context;
    const char* name =
        k->is_f64 ? "llvm.x86.avx512.mask.scalef.pd.512" : "llvm.x86.avx512.mask.scalef.ps.512";
    LLVMTypeRef mask = LLVMIntTypeInContext(context, k->lanes);
    LLVMTypeRef word = LLVMInt32TypeInContext(context);
    LLVMTypeRef parameters[] = {k->f, k->f, k->f, mask, word};
    LLVMTypeRef type = LLVMFunctionType(k->f, parameters, 5, false);
    LLVMValueRef callee = LLVMGetNamedFunction(k->math->module, name);
    if (callee == NULL) callee = LLVMAddFunction(k->math->module, name, type);
    enum { CURRENT_ROUNDING = 4 };
    qn__val_t args[] = {x, by.n, LLVMGetPoison(k->f), LLVMConstAllOnes(mask),
                        LLVMConstInt(word, CURRENT_ROUNDING, false)};
    return LLVMBuildCall2(k->builder, type, callee, args, 5, "");
  }
  qn__val_t half = kshr(k, by.bits, 1);
  qn__val_t rest = kisub(k, by.bits, half);
  x = kmul(k, x, kfrom_bits(k, kshl(k, half, k->mantissa_bits)));
  return kmul(k, x, kfrom_bits(k, kshl(k, rest, k->mantissa_bits)));
}

// e^x for x within the clamps of qn__math_exp (or NaN).
static qn__val_t exp_clamped(const qn__kit_t* k, qn__val_t x) {
  const double* ln2 = k->is_f64 ? ln2_f64 : ln2_f32;
  rounded_t by = round_scaled(k, x, 0x1.71547652b82fep+0);
  qn__val_t r = kmsub(k, by.n, kf(k, ln2[0]), x);
  r = kmsub(k, by.n, kf(k, ln2[1]), r);
  qn__val_t p = k->is_f64 ? QN__POLY(k, r, exp_f64) : QN__POLY(k, r, exp_f32);
  p = kmad(k, p, r, kf(k, 1.0));
  p = kmad(k, p, r, kf(k, 1.0));
  return scale_by(k, p, by);
}

// e^(x.hi + x.lo) for f64, where the second word is below the last bit of the first; |x.hi| <= 750.
qn__val_t qn__math_exp_pair(const qn__kit_t* k, qn__pair_t x) {
  rounded_t by = round_scaled(k, x.hi, 0x1.71547652b82fep+0);
  qn__val_t r = kmsub(k, by.n, kf(k, ln2_f64[0]), x.hi);
  r = kadd(k, r, kmsub(k, by.n, kf(k, ln2_f64[1]), x.lo));
  qn__val_t p = kmad(k, QN__POLY(k, r, exp_f64), r, kf(k, 1.0));
  return scale_by(k, kmad(k, p, r, kf(k, 1.0)), by);
}

// The clamps: beyond them the result is infinity or zero anyway, and n stays in the range of two
// powers.
qn__val_t qn__math_exp(const qn__kit_t* k, const qn__val_t* args) {
  qn__val_t x = kleast(k, kf(k, k->is_f64 ? 710.0 : 89.0), args[0]);
  x = kmost(k, kf(k, k->is_f64 ? -746.0 : -104.0), x);
  return exp_clamped(k, x);
}

qn__val_t qn__math_exp2(const qn__kit_t* k, const qn__val_t* args) {
  qn__val_t x = kleast(k, kf(k, k->is_f64 ? 1024.0 : 128.0), args[0]);
  x = kmost(k, kf(k, k->is_f64 ? -1076.0 : -151.0), x);
  rounded_t by = round_scaled(k, x, 1.0);
  qn__val_t r = ksub(k, x, by.n);
  qn__val_t p = k->is_f64 ? QN__POLY(k, r, exp2_f64) : QN__POLY(k, r, exp2_f32);
  return scale_by(k, kmad(k, p, r, kf(k, 1.0)), by);
}

// |x| < 0.65: x + x^3 P(x^2). Beyond: 1 - 2 / (e^2|x| + 1), where the quotient is below 0.43 and
// its error counts for as little; from 20 on (10 for f32) the result is 1.
qn__val_t qn__math_tanh(const qn__kit_t* k, const qn__val_t* args) {
  qn__val_t x = args[0];
  qn__val_t magnitude = kabs(k, x);
  qn__val_t z = kmul(k, x, x);
  qn__val_t p = k->is_f64 ? QN__POLY(k, z, tanh_f64) : QN__POLY(k, z, tanh_f32);
  qn__val_t near_zero = kmad(k, kmul(k, magnitude, z), p, magnitude);

  qn__val_t bounded = kleast(k, kf(k, k->is_f64 ? 20.0 : 10.0), magnitude);
  qn__val_t power = exp_clamped(k, kadd(k, bounded, bounded));
  qn__val_t quotient = kdiv(k, kf(k, 2.0), kadd(k, power, kf(k, 1.0)));
  qn__val_t far = ksub(k, kf(k, 1.0), quotient);

  qn__val_t is_near = kcmp(k, LLVMRealOLT, magnitude, kf(k, 0.65));
  return kcopysign(k, kselect(k, is_near, near_zero, far), x);
}

// |x| < 1: x + x P(x^2). Beyond: 1 - e^(|x| Q(|x|)), Q fitted to log(erfc x) / x; the power is
// below 0.16, and from 6 on (4 for f32) the result is 1.
qn__val_t qn__math_erf(const qn__kit_t* k, const qn__val_t* args) {
  qn__val_t x = args[0];
  qn__val_t magnitude = kabs(k, x);
  qn__val_t z = kmul(k, x, x);
  qn__val_t p = k->is_f64 ? QN__POLY(k, z, erf_f64) : QN__POLY(k, z, erf_f32);
  qn__val_t near_zero = kmad(k, magnitude, p, magnitude);

  qn__val_t bounded = kleast(k, kf(k, k->is_f64 ? 6.0 : 4.0), magnitude);
  qn__val_t q = k->is_f64 ? QN__POLY(k, bounded, erfc_f64) : QN__POLY(k, bounded, erfc_f32);
  // For |x| < 1, where the fit means nothing, the argument is still within the clamps of exp.
  qn__val_t far = ksub(k, kf(k, 1.0), exp_clamped(k, kmul(k, bounded, q)));

  qn__val_t is_near = kcmp(k, LLVMRealOLT, magnitude, kf(k, 1.0));
  return kcopysign(k, kselect(k, is_near, near_zero, far), x);
}
