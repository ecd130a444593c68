// SPDX-License-Identifier: Apache-2.0
// ir/math/arc.c: inverse trigonometric functions.
//
// Arguments are reduced as in S. L. Moshier's Cephes library. Constants that are added to a result
// are in two words.
#include <math.h>

#include "ir/math/builder.h"
#include "ir/math/tables.h"

// Returns whole * pi - y, with pi in two words.
static qn__mval_t from_pi(qn__math_builder_t* k, double whole, qn__mval_t y) {
  const double* pi = k->is_f64 ? pi_f64 : pi_f32;
  return ksub(k, kf(k, whole * pi[0]), ksub(k, y, kf(k, whole * pi[1])));
}

// For |x| <= 1/2, asin |x| = s + s z P(z) with s = |x| and z = x^2. Beyond, asin |x| is
// pi/2 - 2 asin(s) with s = sqrt(z) and z = (1 - |x|) / 2, which is exact; the result is asin(s).
typedef struct arc {
  qn__mval_t is_far;
  qn__mval_t sine;
} arc_t;

static arc_t arc_of(qn__math_builder_t* k, qn__mval_t x) {
  qn__mval_t magnitude = kabs(k, x), half = kf(k, 0.5);
  qn__mval_t is_far = kgt(k, magnitude, half);
  qn__mval_t z = kmul(k, ksub(k, kf(k, 1.0), magnitude), half);
  qn__mval_t s = kselect(k, is_far, ksqrt(k, z), magnitude);
  z = kselect(k, is_far, z, kmul(k, x, x));
  return (arc_t){is_far, kmad(k, kmul(k, s, z), QN__POLY_OF(k, z, asin), s)};
}

// Returns asin x; NaN for |x| > 1, from the root of a negative number.
qn__mval_t qn__mf_asin(qn__math_builder_t* k, const qn__mval_t* args) {
  arc_t arc = arc_of(k, args[0]);
  qn__mval_t far = from_pi(k, 0.5, kadd(k, arc.sine, arc.sine));
  return kcopysign(k, kselect(k, arc.is_far, far, arc.sine), args[0]);
}

qn__mval_t qn__mf_acos(qn__math_builder_t* k, const qn__mval_t* args) {
  arc_t arc = arc_of(k, args[0]);
  qn__mval_t near = from_pi(k, 0.5, kcopysign(k, arc.sine, args[0]));
  qn__mval_t twice = kadd(k, arc.sine, arc.sine);
  qn__mval_t is_negative = klt(k, args[0], kf(k, 0.0));
  qn__mval_t far = kselect(k, is_negative, from_pi(k, 1.0, twice), twice);
  return kselect(k, arc.is_far, far, near);
}

// Returns atan(y / x) for y and x not negative; one of them may be infinite or zero. The quotient
// t = smaller / larger is at most 1. Above tan(pi/8), atan t = pi/4 + atan u with
// u = (smaller - larger) / (smaller + larger).
static qn__mval_t atan_of(qn__math_builder_t* k, qn__mval_t y, qn__mval_t x) {
  const double* pi = k->is_f64 ? pi_f64 : pi_f32;
  qn__mval_t is_steep = kgt(k, y, x);
  qn__mval_t small = kselect(k, is_steep, x, y), large = kselect(k, is_steep, y, x);
  qn__mval_t is_far = kgt(k, small, kmul(k, large, kf(k, 0.41421356237309503)));
  qn__mval_t top = kselect(k, is_far, ksub(k, small, large), small);
  qn__mval_t t = kdiv(k, top, kselect(k, is_far, kadd(k, small, large), large));
  qn__mval_t z = kmul(k, t, t);
  qn__mval_t a = kmad(k, kmul(k, t, z), QN__POLY_OF(k, z, atan), t);
  qn__mval_t far = kadd(k, kf(k, 0.25 * pi[0]), kadd(k, a, kf(k, 0.25 * pi[1])));
  a = kselect(k, is_far, far, a);
  return kselect(k, is_steep, from_pi(k, 0.5, a), a);
}

qn__mval_t qn__mf_atan(qn__math_builder_t* k, const qn__mval_t* args) {
  return kcopysign(k, atan_of(k, kabs(k, args[0]), kf(k, 1.0)), args[0]);
}

qn__mval_t qn__mf_atan2(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t y = kabs(k, args[0]), x = kabs(k, args[1]);
  qn__mval_t one = kf(k, 1.0), zero = kf(k, 0.0);
  // The sum of two large numbers must not overflow.
  qn__mval_t limit = kf(k, k->is_f64 ? 0x1p1021 : 0x1p125);
  qn__mval_t is_large = kor(k, kgt(k, y, limit), kgt(k, x, limit));
  qn__mval_t scale = kselect(k, is_large, kf(k, 0.25), one);
  // Two infinities count as two ones, two zeros as zero and one.
  qn__mval_t are_inf = kand(k, kisinf(k, y), kisinf(k, x));
  qn__mval_t are_zero = kand(k, keq(k, y, zero), keq(k, x, zero));
  qn__mval_t top = kselect(k, are_inf, one, kmul(k, y, scale));
  qn__mval_t below = kselect(k, kor(k, are_inf, are_zero), one, kmul(k, x, scale));
  qn__mval_t a = atan_of(k, top, below);
  // -0 counts as negative.
  qn__mval_t is_left = klt(k, kcopysign(k, one, args[1]), zero);
  a = kcopysign(k, kselect(k, is_left, from_pi(k, 1.0, a), a), args[0]);
  qn__mval_t is_nan = kor(k, kisnan(k, args[0]), kisnan(k, args[1]));
  return kselect(k, is_nan, kf(k, (double)NAN), a);
}
