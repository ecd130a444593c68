// ir/math/log.c: log and log2.
//
// x = 2^k m with m between 3/4 and 3/2, f = m - 1, which is exact; log(1 + f) is f - f^2/2 + …, so
// that the leading terms carry no error, and k ln 2 is added in two words. The form of the tail of
// f64 is that of FreeBSD's e_log.c. Not here: the logarithm inside pow, which needs more digits
// (pow.c). Read next: trig.c.
#include <math.h>

#include "ir/math/kit.h"
#include "ir/math/tables.h"

qn__mval_t qn__mk_log_tail(qn__mkit_t* k, qn__mval_t f) {
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
static qn__mval_t with_special_bits(qn__mkit_t* k, qn__mval_t x, qn__mval_t result) {
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

// What comes out of x <= 0, infinity and NaN.
static qn__mval_t with_special_cases(qn__mkit_t* k, qn__mval_t x, qn__mval_t result) {
  if (k->is_gpu) return with_special_bits(k, x, result);
  if (k->is_fast || k->has_avx512) return result;
  qn__mval_t zero = kf(k, 0.0);
  result = kselect(k, klt(k, x, kf(k, (double)INFINITY)), result, x);
  // For x < 0 the comparison is all ones, which is a NaN; for zero the bits of -infinity are left.
  qn__mval_t ones = ksub(k, ku(k, 0), kto(k, k->u, klt(k, x, zero)));
  qn__mval_t special = kfrom_bits(k, kor(k, ones, kbits(k, kf(k, -(double)INFINITY))));
  return kselect(k, kcmp(k, QN_OP_LE, x, zero), special, result);
}

qn__mval_t qn__mf_log(qn__mkit_t* k, const qn__mval_t* args) {
  const double* ln2 = k->is_f64 ? ln2_f64 : ln2_f32;
  qn__msplit_t parts = qn__mk_split(k, args[0], !k->is_fast);
  qn__mval_t low = kmad(k, parts.k, kf(k, ln2[1]), qn__mk_log_tail(k, parts.f));
  qn__mval_t result = kmad(k, parts.k, kf(k, ln2[0]), kadd(k, parts.f, low));
  return with_special_cases(k, args[0], result);
}

// log2(1 + f) = (f + tail) / ln 2: the product of the short heads of f and 1 / ln 2 is exact.
qn__mval_t qn__mf_log2(qn__mkit_t* k, const qn__mval_t* args) {
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
