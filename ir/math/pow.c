// SPDX-License-Identifier: Apache-2.0
// ir/math/pow.c: pow.
//
// |a|^b = e^(b log|a|). The sign depends on whether b is an odd integer. The special cases are
// those of C99 annex F. The exponent may be as large as 745, which makes a relative error of the
// logarithm 745 times as large. So the logarithm needs more digits than the result:
//   - f64 computes it in two words, to about 2^-64;
//   - f32 computes in f64 on a CPU;
//   - f32 computes in pairs of f32 on a GPU: not every device has doubles, and few have fast ones.
// For arithmetic with two words, see T. J. Dekker, A floating-point technique for extending the
// available precision, 1971.
#include <math.h>

#include "ir/math/builder.h"
#include "ir/math/tables.h"

static const double INF = (double)INFINITY;

// ------------------------------------------------------------------------------------ f32 by f64

// Returns log2 x = k + 2 atanh(f / (2 + f)) / ln 2 for an f64 converted from f32. An error of 2^-40
// is small enough.
static qn__mval_t log2_narrowly(qn__math_builder_t* w, qn__mval_t x) {
  qn__msplit_t parts = qn__mk_split(w, x, false);
  qn__mval_t s = kdiv(w, parts.f, kadd(w, parts.f, kf(w, 2.0)));
  qn__mval_t p = QN__POLY(w, kmul(w, s, s), log2_narrow);
  return kmad(w, s, p, parts.k);
}

static qn__mval_t magnitude_f32(qn__math_builder_t* k, qn__mval_t base, qn__mval_t y) {
  qn__math_builder_t wide = qn__mk_as(k, QN_DTYPE_F64);
  qn__math_builder_t* w = &wide;
  qn__mval_t x = kto(w, QN_DTYPE_F64, base);
  qn__mval_t log2 = log2_narrowly(w, x);
  log2 = kselect(w, klt(w, x, kf(w, INF)), log2, x);
  log2 = kselect(w, keq(w, x, kf(w, 0.0)), kf(w, -INF), log2);
  qn__mval_t t = kmul(w, log2, kto(w, QN_DTYPE_F64, y));
  // These bounds are far beyond the exponents of f32, and well within those of f64.
  t = kat_least(w, -200.0, kat_most(w, 200.0, t));
  qn__mval_t magic = kf(w, qn__mk_magic(w, w->bias));
  qn__mval_t shifted = kadd(w, t, magic);
  qn__mval_t r = ksub(w, t, ksub(w, shifted, magic));
  qn__mval_t p = kmad(w, QN__POLY(w, r, exp2_narrow), r, kf(w, 1.0));
  qn__mval_t result = kmul(w, p, qn__mk_power(w, qn__mk_word(w, shifted)));
  k->has_failed |= w->has_failed;
  return kto(k, QN_DTYPE_F32, result);
}

// ------------------------------------------------------------------------------------ pairs of f32

// Returns log2 x by log2(1 + f) = s (c0 + z (c1 + z Q(z))) with s = f / (2 + f) and z = s^2. With
// s, z, c0 and c1 in two words, the relative error is 2^-35. The quotient may be inexact, since the
// second word is computed from the remainder.
static qn__mpair_t log2_in_pairs(qn__math_builder_t* k, qn__mval_t x) {
  qn__msplit_t parts = qn__mk_split(k, x, true);
  qn__mpair_t d = qn__mk_fast_two_sum(k, kf(k, 2.0), parts.f);
  qn__mval_t inverse = kratio(k, kf(k, 1.0), d.hi);
  qn__mval_t s = kmul(k, parts.f, inverse);
  qn__mpair_t back = qn__mk_two_product(k, s, d.hi);
  qn__mval_t rest = ksub(k, ksub(k, parts.f, back.hi), back.lo);
  qn__mval_t s_lo = kmul(k, ksub(k, rest, kmul(k, s, d.lo)), inverse);
  qn__mpair_t z = qn__mk_two_product(k, s, s);
  z.lo = kmad(k, kadd(k, s, s), s_lo, z.lo);
  qn__mval_t tail = kmul(k, z.hi, QN__POLY(k, z.hi, pow_log2_f32));
  qn__mpair_t c = qn__mk_fast_two_sum(k, kf(k, pow_log2_second[0]), tail);
  c.lo = kadd(k, c.lo, kf(k, pow_log2_second[1]));
  qn__mpair_t v = qn__mk_two_product(k, z.hi, c.hi);
  v.lo = kadd(k, v.lo, kmad(k, z.hi, c.lo, kmul(k, z.lo, c.hi)));
  qn__mpair_t q = qn__mk_fast_two_sum(k, kf(k, pow_log2_first[0]), v.hi);
  q.lo = kadd(k, q.lo, kadd(k, v.lo, kf(k, pow_log2_first[1])));
  qn__mpair_t u = qn__mk_two_product(k, s, q.hi);
  u.lo = kadd(k, u.lo, kmad(k, s, q.lo, kmul(k, s_lo, q.hi)));
  qn__mpair_t sum = qn__mk_fast_two_sum(k, parts.k, u.hi);
  return qn__mk_fast_two_sum(k, sum.hi, kadd(k, sum.lo, u.lo));
}

// Sets the powers of zero and infinity, whose logarithms do not fit two words, to zero or infinity.
static qn__mval_t with_limits(qn__math_builder_t* k, qn__mval_t base, qn__mval_t y,
                              qn__mval_t result) {
  // Compare bits: a GPU's comparison may treat a denormal number as zero.
  bool by_bits = k->is_gpu && !k->is_f64;
  qn__mval_t x = by_bits ? kbits(k, base) : base;
  qn__mval_t none = by_bits ? ku(k, 0) : kf(k, 0.0);
  qn__mval_t is_zero = keq(k, x, none);
  qn__mval_t is_inf = keq(k, x, by_bits ? ku(k, 0x7F800000u) : kf(k, INF));
  qn__mval_t grows = kxor(k, is_inf, klt(k, y, kf(k, 0.0)));
  qn__mval_t limit = kselect(k, grows, kf(k, INF), kf(k, 0.0));
  return kselect(k, kor(k, is_zero, is_inf), limit, result);
}

// Returns base^y in pairs of f32. |log2 x| is at least 2^-24, so an exponent of 2^40 gives infinity
// or zero, as any larger one. 2^r = 1 + r (ln 2 + r P(r)), where the product of the heads of r and
// ln 2 is exact.
static qn__mval_t magnitude_in_pairs(qn__math_builder_t* k, qn__mval_t base, qn__mval_t y) {
  qn__mpair_t l = log2_in_pairs(k, base);
  y = kat_least(k, -0x1p40, kat_most(k, 0x1p40, y));
  qn__mpair_t t = qn__mk_two_product(k, y, l.hi);
  t.lo = kmad(k, y, l.lo, t.lo);
  qn__mval_t is_large = kgt(k, t.hi, kf(k, 130.0)), is_small = klt(k, t.hi, kf(k, -152.0));
  qn__mval_t is_beyond = kor(k, is_large, is_small);
  qn__mval_t hi = kselect(k, is_beyond, kf(k, 0.0), t.hi);
  qn__mval_t magic = kf(k, qn__mk_magic(k, 2 * k->bias));
  qn__mval_t shifted = kadd(k, hi, magic);
  qn__mpair_t r = qn__mk_two_sum(k, ksub(k, hi, ksub(k, shifted, magic)), t.lo);
  qn__mval_t head = qn__mk_head(k, r.hi);
  qn__mval_t low = kadd(k, ksub(k, r.hi, head), r.lo);
  low = kmad(k, r.hi, kf(k, pow_ln2_f32[1]), kmul(k, low, kf(k, pow_ln2_f32[0])));
  low = kmad(k, kmul(k, r.hi, r.hi), QN__POLY(k, r.hi, pow_exp2_f32), low);
  qn__mpair_t sum = qn__mk_fast_two_sum(k, kf(k, 1.0), kmul(k, head, kf(k, pow_ln2_f32[0])));
  qn__mval_t p = kadd(k, sum.hi, kadd(k, sum.lo, low));
  qn__mval_t word = qn__mk_word(k, shifted);
  qn__mval_t half = kshr(k, word, 1);
  p = kmul(k, p, qn__mk_power(k, half));
  p = kmul(k, p, qn__mk_power(k, ksub(k, word, half)));
  p = kselect(k, is_large, kf(k, INF), kselect(k, is_small, kf(k, 0.0), p));
  return with_limits(k, base, y, p);
}

// ------------------------------------------------------------------------------------ f64

// Returns log x in two words, for x positive and finite.
static qn__mpair_t log_in_pairs(qn__math_builder_t* k, qn__mval_t x) {
  qn__msplit_t parts = qn__mk_split(k, x, true);
  // s = f / (2 + f). The quotient may be inexact: the remainder gives the second word.
  qn__mpair_t d = qn__mk_fast_two_sum(k, kf(k, 2.0), parts.f);
  qn__mval_t inverse = kratio(k, kf(k, 1.0), d.hi);
  qn__mval_t s = kmul(k, parts.f, inverse);
  qn__mpair_t back = qn__mk_two_product(k, s, d.hi);
  qn__mval_t rest = ksub(k, ksub(k, parts.f, back.hi), back.lo);
  rest = kmsub(k, s, d.lo, rest);
  qn__mval_t s_lo = kmul(k, rest, inverse);

  // z = s^2, c = s^3.
  qn__mpair_t z = qn__mk_two_product(k, s, s);
  z.lo = kmad(k, kadd(k, s, s), s_lo, z.lo);
  qn__mpair_t c = qn__mk_two_product(k, s, z.hi);
  c.lo = kadd(k, c.lo, kmad(k, s, z.lo, kmul(k, s_lo, z.hi)));

  // 2 atanh(s) = 2 s + s^3 (2/3 + z P(z)): only the last product may be in one word.
  qn__mval_t tail = kmul(k, z.hi, QN__POLY(k, z.hi, pow_log_f64));
  qn__mpair_t q = qn__mk_fast_two_sum(k, kf(k, two_thirds[0]), tail);
  q.lo = kadd(k, q.lo, kf(k, two_thirds[1]));
  qn__mpair_t u = qn__mk_two_product(k, c.hi, q.hi);
  u.lo = kadd(k, u.lo, kmad(k, c.hi, q.lo, kmul(k, c.lo, q.hi)));
  qn__mpair_t log1p = qn__mk_fast_two_sum(k, kadd(k, s, s), u.hi);
  log1p.lo = kadd(k, log1p.lo, kadd(k, u.lo, kadd(k, s_lo, s_lo)));

  // k times the first word of ln 2 is exact.
  qn__mpair_t sum = qn__mk_fast_two_sum(k, kmul(k, parts.k, kf(k, ln2_f64[0])), log1p.hi);
  qn__mval_t lo = kadd(k, sum.lo, kmad(k, parts.k, kf(k, ln2_f64[1]), log1p.lo));
  return qn__mk_fast_two_sum(k, sum.hi, lo);
}

static qn__mval_t magnitude_f64(qn__math_builder_t* k, qn__mval_t base, qn__mval_t y) {
  qn__mpair_t log = log_in_pairs(k, base);
  // |log| is at least 2^-53: an exponent of 2^70 gives infinity or zero, as any larger one.
  y = kat_least(k, -0x1p70, kat_most(k, 0x1p70, y));
  qn__mpair_t t = qn__mk_two_product(k, y, log.hi);
  t.lo = kmad(k, y, log.lo, t.lo);
  qn__mval_t in_range = klt(k, kabs(k, t.hi), kf(k, 750.0));
  t.lo = kselect(k, in_range, t.lo, kf(k, 0.0));
  t.hi = kat_least(k, -750.0, kat_most(k, 750.0, t.hi));
  return with_limits(k, base, y, qn__mk_exp_pair(k, t));
}

// ------------------------------------------------------------------------------------ signs

qn__mval_t qn__mf_pow(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t x = args[0], y = args[1];
  qn__mval_t zero = kf(k, 0.0), one = kf(k, 1.0), inf = kf(k, INF);
  qn__mval_t base = kabs(k, x);
  qn__mval_t result = k->is_f64   ? magnitude_f64(k, base, y)
                      : k->is_gpu ? magnitude_in_pairs(k, base, y)
                                  : magnitude_f32(k, base, y);

  // Odd: an integer whose half is not an integer. Infinity and all large numbers are even integers.
  qn__mval_t half = kmul(k, y, kf(k, 0.5));
  qn__mval_t is_integer = keq(k, ktrunc(k, y), y);
  qn__mval_t is_odd = kand(k, is_integer, kne(k, ktrunc(k, half), half));
  result = kselect(k, is_odd, kcopysign(k, result, x), result);

  // NaN for a negative finite base and an exponent that is not an integer, but not for -infinity or
  // -0.
  qn__mval_t is_negative = kand(k, klt(k, x, zero), klt(k, base, inf));
  qn__mval_t is_error = kand(k, is_negative, knot(k, is_integer));
  is_error = kor(k, is_error, kor(k, kisnan(k, x), kisnan(k, y)));
  result = kselect(k, is_error, kf(k, (double)NAN), result);

  // 1^y and x^0 are 1 even for NaN, and so is (-1)^(+-infinity).
  qn__mval_t is_minus_one = kand(k, keq(k, base, one), keq(k, kabs(k, y), inf));
  qn__mval_t is_one = kor(k, keq(k, x, one), keq(k, y, zero));
  return kselect(k, kor(k, is_one, is_minus_one), one, result);
}
