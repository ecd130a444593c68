// SPDX-License-Identifier: Apache-2.0
// ir/math/algebra.c: hypot, cbrt, nextafter and fmod.
#include <math.h>

#include "ir/math/builder.h"
#include "ir/math/tables.h"

// Scales the larger of the two, so that squares neither overflow nor lose digits.
qn__mval_t qn__mf_hypot(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t x = kabs(k, args[0]), y = kabs(k, args[1]);
  qn__mval_t is_steep = kgt(k, y, x);
  qn__mval_t a = kselect(k, is_steep, y, x), b = kselect(k, is_steep, x, y);
  double most = k->is_f64 ? 0x1p500 : 0x1p60, step = k->is_f64 ? 0x1p600 : 0x1p100;
  qn__mval_t one = kf(k, 1.0);
  qn__mval_t is_large = kgt(k, a, kf(k, most)), is_small = klt(k, a, kf(k, 1 / most));
  qn__mval_t up = kselect(k, is_large, kf(k, 1 / step), kselect(k, is_small, kf(k, step), one));
  qn__mval_t back = kselect(k, is_large, kf(k, step), kselect(k, is_small, kf(k, 1 / step), one));
  a = kmul(k, a, up);
  b = kmul(k, b, up);
  qn__mval_t root = ksqrt(k, kmad(k, a, a, kmul(k, b, b)));
  qn__mval_t is_inf = kor(k, kisinf(k, x), kisinf(k, y));
  return kselect(k, is_inf, kf(k, (double)INFINITY), kmul(k, root, back));
}

// With x = 2^(3 n) m and m between 3/8 and 3, a polynomial approximates r = m^(-1/3). For f64, a
// step of Newton's iteration follows. y = m r^2 is corrected by a step with y^3 - m in two words.
qn__mval_t qn__mf_cbrt(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t x = args[0], one = kf(k, 1.0), third = kf(k, 1.0 / 3), zero = kf(k, 0.0);
  qn__msplit_t parts = qn__mk_split(k, kabs(k, x), true);
  qn__mval_t magic = kf(k, qn__mk_magic(k, k->bias));
  qn__mval_t shifted = kadd(k, kmul(k, parts.k, third), magic);
  qn__mval_t n = ksub(k, shifted, magic);
  qn__mval_t rest = ksub(k, parts.k, kmul(k, n, kf(k, 3.0)));  // -1, 0 or 1
  qn__mval_t is_up = kgt(k, rest, zero), is_down = klt(k, rest, zero);
  qn__mval_t factor = kselect(k, is_up, kf(k, 2.0), kselect(k, is_down, kf(k, 0.5), one));
  qn__mval_t m = kmul(k, kadd(k, parts.f, one), factor);
  const double root = 1.2599210498948732;
  factor = kselect(k, is_up, kf(k, 1 / root), kselect(k, is_down, kf(k, root), one));
  qn__mval_t r = kmul(k, QN__POLY(k, parts.f, cbrt_start), factor);
  if (k->is_f64) {
    qn__mval_t error = kmsub(k, kmul(k, m, r), kmul(k, r, r), one);
    r = kmad(k, kmul(k, r, error), third, r);
  }
  qn__mval_t square = kmul(k, r, r);
  qn__mval_t y = kmul(k, m, square);
  qn__mpair_t s = qn__mk_two_product(k, y, y);
  qn__mpair_t c = qn__mk_two_product(k, s.hi, y);
  qn__mval_t error = kadd(k, ksub(k, c.hi, m), kmad(k, s.lo, y, c.lo));
  y = kmsub(k, kmul(k, error, square), third, y);
  y = kmul(k, y, qn__mk_power(k, qn__mk_word(k, shifted)));
  return kselect(k, qn__mk_has_exponent(k, x), kcopysign(k, y, x), x);
}

// ------------------------------------------------------------------------------------ nextafter

// Returns the next float. The bits of floats are ordered as their magnitudes, so the neighbour is
// `step` away. Computes in integers, since a GPU may treat denormal numbers as zero.
static qn__mval_t next_after(qn__math_builder_t* k, const qn__mval_t* args, qn_dtype_t dtype) {
  bool is_f16 = dtype == QN_DTYPE_F16;
  qn__mval_t step = ku(k, is_f16 ? 1u << 13 : dtype == QN_DTYPE_BF16 ? 1u << 16 : 1u);
  uint64_t sign_bit = UINT64_C(1) << (k->is_f64 ? 63 : 31);
  qn__mval_t zero = ku(k, 0), sign = ku(k, sign_bit), rest = ku(k, sign_bit - 1);
  qn__mval_t x = kbits(k, args[0]), y = kbits(k, args[1]);
  qn__mval_t a = kand(k, x, rest), b = kand(k, y, rest);
  qn__mval_t is_equal = kor(k, keq(k, x, y), keq(k, kor(k, a, b), zero));
  qn__mval_t is_zero = keq(k, a, zero);
  qn__mval_t has_same_sign = keq(k, kand(k, kxor(k, x, y), sign), zero);
  qn__mval_t is_up = kor(k, is_zero, kand(k, has_same_sign, klt(k, a, b)));
  if (is_f16) {
    // The infinity of f16 follows 65504 as 2^16 does.
    qn__mval_t limit = ku(k, 0x47800000);
    a = kselect(k, kgt(k, a, limit), limit, a);
  }
  qn__mval_t next = kselect(k, is_up, kadd(k, a, step), ksub(k, a, step));
  if (is_f16) {
    // The denormal numbers of f16, which are normal ones of f32, are 2^-24 apart. They begin below
    // 2^-14.
    qn__mval_t is_small = klt(k, a, kselect(k, is_up, ku(k, 0x38800000), ku(k, 0x38800001)));
    qn__mval_t distance = kselect(k, is_up, kf(k, 0x1p-24), kf(k, -0x1p-24));
    next = kselect(k, is_small, kbits(k, kadd(k, kfrom_bits(k, a), distance)), next);
  }
  next = kor(k, next, kand(k, kselect(k, is_zero, y, x), sign));
  next = kfrom_bits(k, kselect(k, is_equal, y, next));
  return kselect(k, kor(k, kisnan(k, args[0]), kisnan(k, args[1])), kf(k, (double)NAN), next);
}

qn__mval_t qn__mf_nextafter(qn__math_builder_t* k, const qn__mval_t* args) {
  return next_after(k, args, k->f);
}
qn__mval_t qn__mf_nextafter_f16(qn__math_builder_t* k, const qn__mval_t* args) {
  return next_after(k, args, QN_DTYPE_F16);
}
qn__mval_t qn__mf_nextafter_bf16(qn__math_builder_t* k, const qn__mval_t* args) {
  return next_after(k, args, QN_DTYPE_BF16);
}

// ------------------------------------------------------------------------------------ fmod

// Returns the number of quotient bits in one step, with a quotient that may be off by a few ulp.
static int bits_of_step(const qn__math_builder_t* k) {
  if (k->has_fma) return k->is_f64 ? 46 : 18;
  return k->is_f64 ? 24 : 10;
}

// Returns a - q b, exact if it is a multiple of the last bit of b and not longer than b.
static qn__mval_t remainder_of(qn__math_builder_t* k, qn__mval_t a, qn__mval_t q, qn__mval_t b) {
  if (k->has_fma) return kmsub(k, q, b, a);
  // Products of a short quotient with either half of b are exact.
  qn__mval_t head = qn__mk_head(k, b);
  return ksub(k, ksub(k, a, kmul(k, q, head)), kmul(k, q, ksub(k, b, head)));
}

// Returns a mod b for positive a and b with a quotient below 2^bits_of_step. Makes the quotient
// slightly too small, so that it or the next integer is correct. The remainder between 0 and b is
// exact.
static qn__mval_t mod_step(qn__math_builder_t* k, qn__mval_t a, qn__mval_t b, qn__mval_t quotient) {
  double less = 1 - (k->is_f64 ? 0x1p-49 : 0x1p-20);
  qn__mval_t q = ktrunc(k, kmul(k, quotient, kf(k, less)));
  qn__mval_t first = remainder_of(k, a, q, b);
  qn__mval_t second = remainder_of(k, a, kadd(k, q, kf(k, 1.0)), b);
  return kselect(k, kge(k, second, kf(k, 0.0)), second, first);
}

// Returns r 2^(bits_of_step - 1) mod b, for r below b.
qn__mval_t qn__mf_fmod_step(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t r = kmul(k, args[0], kf(k, ldexp(1, bits_of_step(k) - 1)));
  return mod_step(k, r, args[1], kratio(k, r, args[1]));
}

// Returns fmod for any quotient, by long division of the mantissas. Each repetition divides
// bits_of_step - 1 bits of the quotient, the first step the rest of the bits.
qn__mval_t qn__mf_fmod_far(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__msplit_t a = qn__mk_split(k, kabs(k, args[0]), true);
  qn__msplit_t b = qn__mk_split(k, kabs(k, args[1]), true);
  qn__mval_t one = kf(k, 1.0);
  double bits = bits_of_step(k) - 1;
  qn__mval_t divisor = kadd(k, b.f, one);
  // Bound the count in lanes that do not need this function, too: they run it along with others.
  qn__mval_t left = kat_most(k, k->is_f64 ? 2100 : 280, ksub(k, a.k, b.k));
  qn__mval_t count = ktrunc(k, kmul(k, left, kf(k, 1 / bits)));
  qn__mval_t first = ksub(k, left, kmul(k, count, kf(k, bits)));
  qn__mval_t shifted = kadd(k, first, kf(k, qn__mk_magic(k, k->bias)));
  qn__mval_t r = kmul(k, kadd(k, a.f, one), qn__mk_power(k, qn__mk_word(k, shifted)));
  r = mod_step(k, r, divisor, kratio(k, r, divisor));
  r = qn__mk_repeat(k, count, QN__MATH_ID_fmod_step, r, divisor);
  return kcopysign(k, qn__mk_ldexp(k, r, b.k), args[0]);
}

// Handles special cases before the rare call, so that few values are live across it.
qn__mval_t qn__mf_fmod(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t a = kabs(k, args[0]), b = kabs(k, args[1]);
  qn__mval_t quotient = kratio(k, a, b);
  qn__mval_t is_far = kge(k, quotient, kf(k, ldexp(1, bits_of_step(k))));
  is_far = kand(k, is_far, kand(k, qn__mk_has_exponent(k, a), qn__mk_has_exponent(k, b)));
  qn__mval_t near = kselect(k, kisinf(k, b), a, mod_step(k, a, b, quotient));
  // NaN for a infinite or b zero.
  qn__mval_t has_none = kor(k, kisinf(k, a), keq(k, b, kf(k, 0.0)));
  has_none = kor(k, has_none, kor(k, kisnan(k, a), kisnan(k, b)));
  near = kselect(k, has_none, kf(k, (double)NAN), kcopysign(k, near, args[0]));
  return qn__mk_call_if(k, is_far, QN__MATH_ID_fmod_far, args, near);
}
