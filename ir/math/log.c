// SPDX-License-Identifier: Apache-2.0
// ir/math/log.c: logarithms, and inverse hyperbolic functions, which are made of them.
//
// x = 2^k m with m between 3/4 and 3/2, f = m - 1, which is exact; log(1 + f) is f - f^2/2 + …, so
// that the leading terms carry no error, and k ln 2 is added in two words. The form of the tail of
// f64 is that of FreeBSD's e_log.c. Not here: the logarithm inside pow, which needs more digits
// (pow.c).
#include <math.h>

#include "ir/math/builder.h"
#include "ir/math/tables.h"

qn__mval_t qn__mk_log_tail(qn__math_builder_t* k, qn__mval_t f) {
  if (!k->is_f64) {
    // f^2 (f P - 1/2)
    qn__mval_t square = kmul(k, f, f);
    return kmul(k, square, kmad(k, f, QN__POLY(k, f, log_f32), kf(k, -0.5)));
  }
  // With s = f / (2 + f): log(1 + f) = 2 atanh(s) = 2 s + s z P(z) and 2 s = f - s f, and s f goes
  // over into h - s h with h = f^2 / 2. A polynomial in f alone would be longer by more than the
  // division costs.
  qn__mval_t s = kdiv(k, f, kadd(k, f, kf(k, 2.0)));
  qn__mval_t z = kmul(k, s, s);
  qn__mval_t p = kmul(k, z, QN__POLY(k, z, log_f64));
  qn__mval_t half = kmul(k, f, kf(k, 0.5));
  // Where it is fused, the subtraction sees h before it is rounded.
  return kmsub(k, half, f, kmul(k, s, kadd(k, kmul(k, half, f), p)));
}

// The same for x <= 0, infinity and NaN, by comparing bits: a GPU's comparison may take a denormal
// number for zero.
static qn__mval_t with_special_bits(qn__math_builder_t* k, qn__mval_t x, qn__mval_t result) {
  qn__mval_t bits = k->is_f64 ? khigh(k, x) : kbits(k, x);
  qn__mval_t inf = ku32(k, k->is_f64 ? 0x7FF00000u : 0x7F800000u);
  qn__mval_t magnitude = kand(k, bits, ku32(k, 0x7FFFFFFFu));
  qn__mval_t is_inf = keq(k, bits, inf), is_zero;
  qn__mval_t is_special = kge(k, bits, inf);
  if (k->is_f64) {
    qn__mval_t low = klow(k, x), none = ku32(k, 0);
    is_inf = kand(k, is_inf, keq(k, low, none));
    is_zero = keq(k, kor(k, magnitude, low), none);
  } else {
    is_zero = keq(k, magnitude, ku32(k, 0));
  }
  qn__mval_t special = kselect(k, is_inf, kf(k, (double)INFINITY), kf(k, (double)NAN));
  special = kselect(k, is_zero, kf(k, -(double)INFINITY), special);
  return kselect(k, kor(k, is_special, is_zero), special, result);
}

// Returns `result` for x positive and finite, and the special results for other x.
static qn__mval_t with_all_special_cases(qn__math_builder_t* k, qn__mval_t x, qn__mval_t result) {
  if (k->is_gpu) return with_special_bits(k, x, result);
  qn__mval_t zero = kf(k, 0.0);
  result = kselect(k, klt(k, x, kf(k, (double)INFINITY)), result, x);
  // For x < 0 the comparison is all ones, which is a NaN; for zero the bits of -infinity are left.
  qn__mval_t ones = ksub(k, ku(k, 0), kto(k, k->u, klt(k, x, zero)));
  qn__mval_t special = kfrom_bits(k, kor(k, ones, kbits(k, kf(k, -(double)INFINITY))));
  return kselect(k, kle(k, x, zero), special, result);
}

// The same where `result` comes from qn__mk_split, which does that for AVX-512.
static qn__mval_t with_special_cases(qn__math_builder_t* k, qn__mval_t x, qn__mval_t result) {
  bool is_done = !k->is_gpu && (k->is_fast || k->has_avx512);
  return is_done ? result : with_all_special_cases(k, x, result);
}

qn__mval_t qn__mf_log(qn__math_builder_t* k, const qn__mval_t* args) {
  const double* ln2 = k->is_f64 ? ln2_f64 : ln2_f32;
  qn__msplit_t parts = qn__mk_split(k, args[0], !k->is_fast);
  qn__mval_t low = kmad(k, parts.k, kf(k, ln2[1]), qn__mk_log_tail(k, parts.f));
  qn__mval_t result = kmad(k, parts.k, kf(k, ln2[0]), kadd(k, parts.f, low));
  return with_special_cases(k, args[0], result);
}

// log2(1 + f) = (f + tail) / ln 2: the product of the short heads of f and 1 / ln 2 is exact.
qn__mval_t qn__mf_log2(qn__math_builder_t* k, const qn__mval_t* args) {
  const double* log2e = k->is_f64 ? log2e_f64 : log2e_f32;
  qn__msplit_t parts = qn__mk_split(k, args[0], !k->is_fast);
  qn__mval_t head = qn__mk_head(k, parts.f);
  qn__mval_t rest = kadd(k, ksub(k, parts.f, head), qn__mk_log_tail(k, parts.f));
  qn__mval_t low = kmul(k, rest, kf(k, log2e[0] + log2e[1]));
  low = kmad(k, head, kf(k, log2e[1]), low);
  // For k = -1 the sum is smaller than its parts: what it rounds off must not be lost.
  qn__mpair_t sum = qn__mk_fast_two_sum(k, parts.k, kmul(k, head, kf(k, log2e[0])));
  qn__mval_t result = kadd(k, sum.hi, kadd(k, sum.lo, low));
  if (k->has_avx512 && !k->is_fast) {
    // The two-word sum makes NaN of an infinite k.
    return kselect(k, kisinf(k, parts.k), kadd(k, parts.k, parts.f), result);
  }
  return with_special_cases(k, args[0], result);
}

// As log2, with k log10(2) in two words.
qn__mval_t qn__mf_log10(qn__math_builder_t* k, const qn__mval_t* args) {
  const double* log10e = k->is_f64 ? log10e_f64 : log10e_f32;
  const double* log10_2 = k->is_f64 ? log10_2_f64 : log10_2_f32;
  qn__msplit_t parts = qn__mk_split(k, args[0], true);
  qn__mval_t head = qn__mk_head(k, parts.f);
  qn__mval_t rest = kadd(k, ksub(k, parts.f, head), qn__mk_log_tail(k, parts.f));
  qn__mval_t low = kmul(k, rest, kf(k, log10e[0] + log10e[1]));
  low = kmad(k, head, kf(k, log10e[1]), low);
  low = kmad(k, parts.k, kf(k, log10_2[1]), low);
  qn__mval_t whole = kmul(k, parts.k, kf(k, log10_2[0]));
  qn__mpair_t sum = qn__mk_fast_two_sum(k, whole, kmul(k, head, kf(k, log10e[0])));
  return with_all_special_cases(k, args[0], kadd(k, sum.hi, kadd(k, sum.lo, low)));
}

// log(1 + x.hi + x.lo) with u = 1 + x.hi and what that rounds off, divided by u, in the low word
// (as in FreeBSD's s_log1p.c). For u positive and finite.
static qn__mval_t log1p_pair(qn__math_builder_t* k, qn__mpair_t x) {
  const double* ln2 = k->is_f64 ? ln2_f64 : ln2_f32;
  qn__mpair_t u = qn__mk_two_sum(k, kf(k, 1.0), x.hi);
  qn__msplit_t parts = qn__mk_split(k, u.hi, false);
  qn__mval_t rest = kratio(k, kadd(k, u.lo, x.lo), u.hi);
  qn__mval_t low = kadd(k, rest, qn__mk_log_tail(k, parts.f));
  low = kmad(k, parts.k, kf(k, ln2[1]), low);
  return kmad(k, parts.k, kf(k, ln2[0]), kadd(k, parts.f, low));
}

qn__mval_t qn__mf_log1p(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t x = args[0], zero = kf(k, 0.0);
  qn__mval_t y = log1p_pair(k, (qn__mpair_t){x, zero});
  y = with_all_special_cases(k, kadd(k, x, kf(k, 1.0)), y);
  return kselect(k, keq(k, x, zero), x, y);
}

// log(a + b) for a >= 0 where is_huge says that a^2 overflows or nearly, and then b is left out.
static qn__mval_t log1p_or_huge(qn__math_builder_t* k, qn__mval_t huge, qn__mval_t is_huge,
                                qn__mpair_t x) {
  qn__mval_t zero = kf(k, 0.0);
  x.hi = kselect(k, is_huge, huge, x.hi);
  x.lo = kselect(k, is_huge, zero, x.lo);
  qn__mval_t more = kselect(k, is_huge, kf(k, 0.69314718055994531), zero);
  return kadd(k, log1p_pair(k, x), more);
}

static qn__mval_t is_huge(qn__math_builder_t* k, qn__mval_t magnitude) {
  return kgt(k, magnitude, kf(k, k->is_f64 ? 0x1p500 : 0x1p60));
}

// log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))); log |x| + ln 2 where x^2 would overflow.
qn__mval_t qn__mf_asinh(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t magnitude = kabs(k, args[0]), one = kf(k, 1.0);
  qn__mval_t huge = is_huge(k, magnitude);
  qn__mval_t a = kselect(k, huge, one, magnitude);
  qn__mval_t square = kmul(k, a, a);
  qn__mval_t below = kadd(k, one, ksqrt(k, kadd(k, square, one)));
  qn__mpair_t sum = qn__mk_two_sum(k, a, kdiv(k, square, below));
  qn__mval_t y = kcopysign(k, log1p_or_huge(k, magnitude, huge, sum), args[0]);
  return kselect(k, qn__mk_has_exponent(k, args[0]), y, args[0]);
}

// log1p(t + sqrt(t (x + 1))) with t = x - 1.
qn__mval_t qn__mf_acosh(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t x = args[0], one = kf(k, 1.0);
  qn__mval_t huge = is_huge(k, x);
  qn__mval_t a = kselect(k, huge, one, x);
  qn__mval_t t = ksub(k, a, one);
  qn__mval_t root = ksqrt(k, kmul(k, t, kadd(k, a, one)));
  qn__mval_t y = log1p_or_huge(k, x, huge, qn__mk_two_sum(k, t, root));
  y = kselect(k, qn__mk_has_exponent(k, x), y, x);
  return kselect(k, klt(k, x, one), kf(k, (double)NAN), y);
}

// log1p(2 a + 2 a^2 / (1 - a)) / 2 with a = |x|.
qn__mval_t qn__mf_atanh(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t a = kabs(k, args[0]), one = kf(k, 1.0);
  qn__mval_t twice = kadd(k, a, a);
  qn__mval_t rest = kdiv(k, kmul(k, twice, a), ksub(k, one, a));
  qn__mval_t y = kmul(k, log1p_pair(k, qn__mk_two_sum(k, twice, rest)), kf(k, 0.5));
  y = kselect(k, keq(k, a, one), kf(k, (double)INFINITY), y);
  y = kselect(k, kgt(k, a, one), kf(k, (double)NAN), y);
  return kselect(k, keq(k, a, kf(k, 0.0)), args[0], kcopysign(k, y, args[0]));
}
