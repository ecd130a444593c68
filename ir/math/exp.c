// SPDX-License-Identifier: Apache-2.0
// ir/math/exp.c: exponentials, and functions made of them: hyperbolic ones, sigmoid, erf, ldexp.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r is a polynomial, and 2^n is put together from bits. No
// tables, no branches: two clamps make the whole range one path (W. J. Cody and W. Waite, Software
// Manual for the Elementary Functions, 1980, chapter 6).
#include "ir/math/builder.h"
#include "ir/math/tables.h"

typedef struct power {
  qn__mscale_t scale;
  qn__mval_t n;     // as a float
  qn__mval_t word;  // its low bits are n, or n + 2 * bias for ANY
} power_t;

// n = x * factor rounded to an integer, plus `more`.
static power_t round_to_power(qn__math_builder_t* k, qn__mval_t x, double factor,
                              qn__mscale_t scale) {
  power_t power = {.scale = scale};
  // Without the bias the halves could be negative, and a logical shift would not do.
  int offset = scale == QN__MSCALE_ANY && !k->has_avx512 ? 2 * k->bias : 0;
  qn__mval_t magic = kf(k, qn__mk_magic(k, offset));
  qn__mval_t shifted = factor == 1.0 ? kadd(k, x, magic) : kmad(k, x, kf(k, factor), magic);
  power.n = ksub(k, shifted, magic);
  if (!k->has_avx512) power.word = qn__mk_word(k, shifted);
  return power;
}

// p * 2^(n + more).
static qn__mval_t scale_by(qn__math_builder_t* k, qn__mval_t p, const power_t* power, int more) {
  if (k->has_avx512) {
    // One instruction, right to the smallest denormal result.
    qn__mval_t n = more == 0 ? power->n : kadd(k, power->n, kf(k, more));
    return qn__mk_op(k, QN__MATH_OP_SCALEF, k->f, p, n, NULL);
  }
  qn__mval_t word = power->word;
  if (more != 0) word = kadd(k, word, qn__mk_int(k, k->w, (uint64_t)(int64_t)more));
  if (power->scale == QN__MSCALE_NORMAL) {
    qn__mval_t up = kshl(k, word, k->exponent_shift);
    if (k->w == k->u) return kfrom_bits(k, kadd(k, kbits(k, p), up));
    return kjoin(k, kadd(k, khigh(k, p), up), klow(k, p));
  }
  qn__mval_t half = kshr(k, word, 1);
  qn__mval_t rest = ksub(k, word, half);
  return kmul(k, kmul(k, p, qn__mk_power(k, half)), qn__mk_power(k, rest));
}

// e^r * 2^(n + more), by the polynomial of exp.
static qn__mval_t exp_reduced(qn__math_builder_t* k, qn__mval_t r, const power_t* power, int more) {
  qn__mval_t p = QN__POLY_OF(k, r, exp);
  p = kmad(k, p, r, kf(k, 1.0));
  return scale_by(k, kmad(k, p, r, kf(k, 1.0)), power, more);
}

static const double LOG2_E = 0x1.71547652b82fep+0;

qn__mval_t qn__mk_exp(qn__math_builder_t* k, qn__mval_t x, int more, qn__mscale_t scale) {
  const double* ln2 = k->is_f64 ? ln2_f64 : ln2_f32;
  power_t power = round_to_power(k, x, LOG2_E, scale);
  qn__mval_t r = kmsub(k, power.n, kf(k, ln2[0]), x);
  r = kmsub(k, power.n, kf(k, ln2[1]), r);
  return exp_reduced(k, r, &power, more);
}

// The second word is below the last bit of the first.
qn__mval_t qn__mk_exp_pair(qn__math_builder_t* k, qn__mpair_t x) {
  power_t power = round_to_power(k, x.hi, LOG2_E, QN__MSCALE_ANY);
  qn__mval_t r = kmsub(k, power.n, kf(k, ln2_f64[0]), x.hi);
  r = kadd(k, r, kmsub(k, power.n, kf(k, ln2_f64[1]), x.lo));
  return exp_reduced(k, r, &power, 0);
}

// Beyond the clamps the result is infinity or zero anyway, and n stays in reach of two powers.
static qn__mval_t clamp(qn__math_builder_t* k, qn__mval_t x) {
  return kat_least(k, k->is_f64 ? -746.0 : -104.0, kat_most(k, k->is_f64 ? 710.0 : 89.0, x));
}

qn__mval_t qn__mf_exp(qn__math_builder_t* k, const qn__mval_t* args) {
  return qn__mk_exp(k, clamp(k, args[0]), 0, QN__MSCALE_ANY);
}

qn__mval_t qn__mf_exp2(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t x = kat_most(k, k->is_f64 ? 1024.0 : 128.0, args[0]);
  x = kat_least(k, k->is_f64 ? -1076.0 : -151.0, x);
  power_t power = round_to_power(k, x, 1.0, QN__MSCALE_ANY);
  qn__mval_t r = ksub(k, x, power.n);
  qn__mval_t p = QN__POLY_OF(k, r, exp2);
  return scale_by(k, kmad(k, p, r, kf(k, 1.0)), &power, 0);
}

// 10^x = 2^n e^(r ln 10) with r = x - n log10(2) in two steps.
qn__mval_t qn__mf_exp10(qn__math_builder_t* k, const qn__mval_t* args) {
  const double* log10_2 = k->is_f64 ? log10_2_f64 : log10_2_f32;
  qn__mval_t x = kat_most(k, k->is_f64 ? 309.0 : 39.0, args[0]);
  x = kat_least(k, k->is_f64 ? -325.0 : -46.0, x);
  power_t power = round_to_power(k, x, 3.3219280948873623, QN__MSCALE_ANY);
  qn__mval_t r = kmsub(k, power.n, kf(k, log10_2[0]), x);
  r = kmsub(k, power.n, kf(k, log10_2[1]), r);
  return exp_reduced(k, kmul(k, r, kf(k, 2.302585092994046)), &power, 0);
}

// With q = e^r - 1 = r + r^2 P(r): e^x - 1 = 2 (s q + (s - 1/2)), s = 2^(n-1), which does not
// overflow before the result does. For n = 0 it is q, of which the halves would lose a bit.
qn__mval_t qn__mf_expm1(qn__math_builder_t* k, const qn__mval_t* args) {
  const double* ln2 = k->is_f64 ? ln2_f64 : ln2_f32;
  qn__mval_t x = kat_most(k, k->is_f64 ? 710.0 : 89.0, args[0]);
  x = kat_least(k, k->is_f64 ? -38.0 : -18.0, x);
  qn__mval_t magic = kf(k, qn__mk_magic(k, k->bias - 1));
  qn__mval_t shifted = kmad(k, x, kf(k, LOG2_E), magic);
  qn__mval_t n = ksub(k, shifted, magic);
  qn__mval_t r = kmsub(k, n, kf(k, ln2[0]), x);
  r = kmsub(k, n, kf(k, ln2[1]), r);
  qn__mval_t q = kmad(k, kmul(k, r, r), QN__POLY_OF(k, r, exp), r);
  qn__mval_t s = qn__mk_power(k, qn__mk_word(k, shifted));
  qn__mval_t half = kmad(k, s, q, ksub(k, s, kf(k, 0.5)));
  qn__mval_t result = kselect(k, keq(k, n, kf(k, 0.0)), q, kadd(k, half, half));
  return kcopysign(k, result, args[0]);
}

// 1 / (1 + e^-x), from e^-|x|, which does not overflow.
qn__mval_t qn__mf_sigmoid(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t x = args[0], one = kf(k, 1.0);
  qn__mval_t e = qn__mk_exp(k, clamp(k, kneg(k, kabs(k, x))), 0, QN__MSCALE_ANY);
  qn__mval_t top = kselect(k, klt(k, x, kf(k, 0.0)), e, one);
  return kdiv(k, top, kadd(k, one, e));
}

// e^|x| / 2; beyond the clamp it is infinity.
static qn__mval_t half_exp(qn__math_builder_t* k, qn__mval_t magnitude) {
  qn__mval_t bounded = kat_most(k, k->is_f64 ? 711.0 : 90.0, magnitude);
  return qn__mk_exp(k, bounded, -1, QN__MSCALE_ANY);
}

// |x| < 1: x + x^3 P(x^2). Beyond: y - 1 / (4 y) with y = e^|x| / 2.
qn__mval_t qn__mf_sinh(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t magnitude = kabs(k, args[0]);
  qn__mval_t z = kmul(k, magnitude, magnitude);
  qn__mval_t near_zero = kmad(k, kmul(k, magnitude, z), QN__POLY_OF(k, z, sinh), magnitude);
  qn__mval_t y = half_exp(k, magnitude);
  qn__mval_t far = ksub(k, y, kdiv(k, kf(k, 0.25), y));
  qn__mval_t is_far = kge(k, magnitude, kf(k, 1.0));
  return kcopysign(k, kselect(k, is_far, far, near_zero), args[0]);
}

qn__mval_t qn__mf_cosh(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t y = half_exp(k, kabs(k, args[0]));
  return kadd(k, y, kdiv(k, kf(k, 0.25), y));
}

// 2^(x * factor) for results that are normal numbers, with fused multiply-add: the product is exact
// where its integer is subtracted.
static qn__mval_t exp2_of_product(qn__math_builder_t* k, qn__mval_t x, double factor) {
  power_t power = round_to_power(k, x, factor, QN__MSCALE_NORMAL);
  qn__mval_t r = kmad(k, x, kf(k, factor), kneg(k, power.n));
  qn__mval_t p = QN__POLY_OF(k, r, exp2);
  return scale_by(k, kmad(k, p, r, kf(k, 1.0)), &power, 0);
}

// |x| < 0.65: x + x^3 P(x^2). Beyond: 1 - 2 / (e^2|x| + 1), where the quotient is below 0.43 and
// its error counts for as little; from 20 on (10 for f32) the result is 1.
qn__mval_t qn__mf_tanh(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t x = args[0];
  qn__mval_t magnitude = kabs(k, x);
  qn__mval_t z = kmul(k, x, x);
  qn__mval_t p = QN__POLY_OF(k, z, tanh);
  qn__mval_t near_zero = kmad(k, kmul(k, magnitude, z), p, magnitude);

  qn__mval_t bounded = kat_most(k, k->is_f64 ? 20.0 : 10.0, magnitude);
  qn__mval_t power = k->has_fma && !k->is_gpu
                         ? exp2_of_product(k, bounded, 2 * LOG2_E)
                         : qn__mk_exp(k, kadd(k, bounded, bounded), 0, QN__MSCALE_NORMAL);
  qn__mval_t quotient = kdiv(k, kf(k, 2.0), kadd(k, power, kf(k, 1.0)));
  qn__mval_t far = ksub(k, kf(k, 1.0), quotient);

  // A NaN is not far, and so comes out of the polynomial.
  qn__mval_t is_far = kge(k, magnitude, kf(k, 0.65));
  return kcopysign(k, kselect(k, is_far, far, near_zero), x);
}

// |x| < 1: x + x P(x^2). Beyond: 1 - 2^(|x| Q(|x|)), Q fitted to log2(erfc x) / x; the power is
// below 0.16, so that in f32 a shorter polynomial does; from 6 on (4 for f32) the result is 1.
qn__mval_t qn__mf_erf(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t x = args[0];
  qn__mval_t magnitude = kabs(k, x);
  qn__mval_t p = QN__POLY_OF(k, kmul(k, x, x), erf);
  qn__mval_t near_zero = kmad(k, magnitude, p, magnitude);

  qn__mval_t bounded = kat_most(k, k->is_f64 ? 6.0 : 4.0, magnitude);
  qn__mval_t q = QN__POLY_OF(k, bounded, erfc);
  // For |x| < 1, where the fit means nothing, this is still between -60 and 0.
  qn__mval_t exponent = kmul(k, bounded, q);
  power_t power = round_to_power(k, exponent, 1.0, QN__MSCALE_NORMAL);
  qn__mval_t r = ksub(k, exponent, power.n);
  q = k->is_f64 ? QN__POLY(k, r, exp2_f64) : QN__POLY(k, r, erfc_exp2_f32);
  q = scale_by(k, kmad(k, q, r, kf(k, 1.0)), &power, 0);
  qn__mval_t far = ksub(k, kf(k, 1.0), q);

  qn__mval_t is_far = kge(k, magnitude, kf(k, 1.0));
  return kcopysign(k, kselect(k, is_far, far, near_zero), x);
}

qn__mval_t qn__mk_ldexp(qn__math_builder_t* k, qn__mval_t m, qn__mval_t n) {
  n = kat_most(k, k->is_f64 ? 1026.0 : 130.0, n);
  n = kat_least(k, k->is_f64 ? -1078.0 : -153.0, n);
  power_t power = round_to_power(k, n, 1.0, QN__MSCALE_ANY);
  return scale_by(k, m, &power, 0);
}

qn__mval_t qn__mf_ldexp(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t x = args[0];
  double most = k->is_f64 ? 5000.0 : 600.0;
  qn__mval_t n = kat_least(k, -most, kat_most(k, most, kto(k, k->f, args[1])));
  qn__msplit_t parts = qn__mk_split(k, kabs(k, x), true);
  qn__mval_t y = qn__mk_ldexp(k, kadd(k, parts.f, kf(k, 1.0)), kadd(k, n, parts.k));
  return kselect(k, qn__mk_has_exponent(k, x), kcopysign(k, y, x), x);
}
