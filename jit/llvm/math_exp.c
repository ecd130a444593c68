// exp, exp2, and what is made of them: tanh and erf.
//
// What it is: x = n ln 2 + r with |r| <= ln 2 / 2; e^r is a polynomial, and 2^n is put together
// from bits. No tables, no branches: two clamps make the whole range one path.
// What it is not: pow, which comes here only for the last step (math_pow.c).
// Threads: as the builder.
// Next: math_log.c.
#include "ir/math_tables.h"
#include "jit/llvm/math_kit.h"

// How e^r and 2^n are put together.
//
// INSTRUCTION: one instruction of AVX-512 does it, right to the smallest denormal result.
//
// ONE_STEP: n is added to the exponent of the polynomial. For results that are normal numbers; a
// NaN does not survive it.
//
// TWO_STEPS: no single power of two reaches from the largest to the smallest result, so there are
// two, of n / 2 and n - n / 2. The first product is exact, the second rounds once, to a denormal
// or to infinity if need be. (Adding the first half to the exponent instead was tried: 1.5 %
// faster, but then a NaN has to be put back.)
typedef enum { INSTRUCTION, ONE_STEP, TWO_STEPS } scaling_t;

typedef struct {
  scaling_t scaling;
  qn__val_t n;     // as a float
  qn__val_t bits;  // an integer whose low bits are n, or n + 2 * bias for TWO_STEPS
} power_t;

// n = x * factor rounded to an integer.
static power_t round_to_power(const qn__kit_t* k, qn__val_t x, double factor, bool is_normal) {
  power_t power = {.scaling = qn__kit_has_avx512(k) ? INSTRUCTION
                              : is_normal           ? ONE_STEP
                                                    : TWO_STEPS};
  // Without the bias the halves could be negative, and a logical shift would not do.
  int offset = power.scaling == TWO_STEPS ? 2 * k->bias : 0;
  qn__val_t magic = kf(k, qn__kit_magic(k, offset));
  qn__val_t shifted = factor == 1.0 ? kadd(k, x, magic) : kmad(k, x, kf(k, factor), magic);
  power.n = ksub(k, shifted, magic);
  power.bits = kbits(k, shifted);
  return power;
}

// p * 2^n.
static qn__val_t scale_by(const qn__kit_t* k, qn__val_t p, const power_t* power) {
  if (power->scaling == INSTRUCTION) {
    return qn__kit_avx512(k, "scalef", (qn__val_t[]){p, power->n}, 2);
  }
  if (power->scaling == ONE_STEP) {
    return kfrom_bits(k, kiadd(k, kbits(k, p), kshl(k, power->bits, k->mantissa_bits)));
  }
  qn__val_t half = kshr(k, power->bits, 1);
  qn__val_t rest = kisub(k, power->bits, half);
  p = kmul(k, p, kfrom_bits(k, kshl(k, half, k->mantissa_bits)));
  return kmul(k, p, kfrom_bits(k, kshl(k, rest, k->mantissa_bits)));
}

// e^r * 2^n, by the polynomial of exp.
static qn__val_t exp_reduced(const qn__kit_t* k, qn__val_t r, const power_t* power) {
  qn__val_t p = k->is_f64 ? QN__POLY(k, r, exp_f64) : QN__POLY(k, r, exp_f32);
  p = kmad(k, p, r, kf(k, 1.0));
  return scale_by(k, kmad(k, p, r, kf(k, 1.0)), power);
}

static const double LOG2_E = 0x1.71547652b82fep+0;

// e^x for x within the clamps of qn__math_exp; is_normal promises a normal result, not from a NaN.
static qn__val_t exp_clamped(const qn__kit_t* k, qn__val_t x, bool is_normal) {
  const double* ln2 = k->is_f64 ? ln2_f64 : ln2_f32;
  power_t power = round_to_power(k, x, LOG2_E, is_normal);
  qn__val_t r = kmsub(k, power.n, kf(k, ln2[0]), x);
  r = kmsub(k, power.n, kf(k, ln2[1]), r);
  return exp_reduced(k, r, &power);
}

// e^(x.hi + x.lo) for f64, where the second word is below the last bit of the first; |x.hi| <= 750.
qn__val_t qn__math_exp_pair(const qn__kit_t* k, qn__llvm_pair_t x) {
  power_t power = round_to_power(k, x.hi, LOG2_E, false);
  qn__val_t r = kmsub(k, power.n, kf(k, ln2_f64[0]), x.hi);
  r = kadd(k, r, kmsub(k, power.n, kf(k, ln2_f64[1]), x.lo));
  return exp_reduced(k, r, &power);
}

// Beyond the clamps the result is infinity or zero anyway, and n stays in reach of two powers.
qn__val_t qn__math_exp(const qn__kit_t* k, const qn__val_t* args) {
  qn__val_t x = kleast(k, kf(k, k->is_f64 ? 710.0 : 89.0), args[0]);
  x = kmost(k, kf(k, k->is_f64 ? -746.0 : -104.0), x);
  return exp_clamped(k, x, false);
}

qn__val_t qn__math_exp2(const qn__kit_t* k, const qn__val_t* args) {
  qn__val_t x = kleast(k, kf(k, k->is_f64 ? 1024.0 : 128.0), args[0]);
  x = kmost(k, kf(k, k->is_f64 ? -1076.0 : -151.0), x);
  power_t power = round_to_power(k, x, 1.0, false);
  qn__val_t r = ksub(k, x, power.n);
  qn__val_t p = k->is_f64 ? QN__POLY(k, r, exp2_f64) : QN__POLY(k, r, exp2_f32);
  return scale_by(k, kmad(k, p, r, kf(k, 1.0)), &power);
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
  qn__val_t power = exp_clamped(k, kadd(k, bounded, bounded), true);
  qn__val_t quotient = kdiv(k, kf(k, 2.0), kadd(k, power, kf(k, 1.0)));
  qn__val_t far = ksub(k, kf(k, 1.0), quotient);

  // A NaN is not far, and so comes out of the polynomial.
  qn__val_t is_far = kcmp(k, LLVMRealOGE, magnitude, kf(k, 0.65));
  return kcopysign(k, kselect(k, is_far, far, near_zero), x);
}

// |x| < 1: x + x P(x^2). Beyond: 1 - 2^(|x| Q(|x|)), Q fitted to log2(erfc x) / x; the power is
// below 0.16, so that in f32 a shorter polynomial does; from 6 on (4 for f32) the result is 1.
qn__val_t qn__math_erf(const qn__kit_t* k, const qn__val_t* args) {
  qn__val_t x = args[0];
  qn__val_t magnitude = kabs(k, x);
  qn__val_t z = kmul(k, x, x);
  qn__val_t p = k->is_f64 ? QN__POLY(k, z, erf_f64) : QN__POLY(k, z, erf_f32);
  qn__val_t near_zero = kmad(k, magnitude, p, magnitude);

  qn__val_t bounded = kleast(k, kf(k, k->is_f64 ? 6.0 : 4.0), magnitude);
  qn__val_t q = k->is_f64 ? QN__POLY(k, bounded, erfc_f64) : QN__POLY(k, bounded, erfc_f32);
  // For |x| < 1, where the fit means nothing, this is still between -60 and 0.
  qn__val_t exponent = kmul(k, bounded, q);
  power_t power = round_to_power(k, exponent, 1.0, true);
  qn__val_t r = ksub(k, exponent, power.n);
  q = k->is_f64 ? QN__POLY(k, r, exp2_f64) : QN__POLY(k, r, erfc_exp2_f32);
  q = scale_by(k, kmad(k, q, r, kf(k, 1.0)), &power);
  qn__val_t far = ksub(k, kf(k, 1.0), q);

  qn__val_t is_far = kcmp(k, LLVMRealOGE, magnitude, kf(k, 1.0));
  return kcopysign(k, kselect(k, is_far, far, near_zero), x);
}
