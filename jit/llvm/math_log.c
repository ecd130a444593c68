// log and log2.
//
// What it is: x = 2^k m with m between 3/4 and 3/2, f = m - 1, which is exact; log(1 + f)
// is f - f^2/2 + …, so that the leading terms carry no error, and k ln 2 is added in two words.
// What it is not: the logarithm inside pow, which needs more digits (math_pow.c).
// Threads: as the builder.
// Next: math_trig.c.
#include "ir/math_tables.h"
#include "jit/llvm/math_kit.h"

// log(1 + f) - f.
static qn__val_t log1p_tail(const qn__kit_t* k, qn__val_t f) {
  if (!k->is_f64) {
    qn__val_t square = kmul(k, f, f);
    qn__val_t p = QN__POLY(k, f, log_f32);
    // f^2 (f P - 1/2)
    return kmul(k, square, kmad(k, f, p, kf(k, -0.5)));
  }
  // With s = f / (2 + f): log(1 + f) = 2 atanh(s) = 2 s + s z P(z) and 2 s = f - s f, and s f goes
  // over into h - s h with h = f^2 / 2. A polynomial in f alone would be longer by more than the
  // division costs.
  qn__val_t s = kdiv(k, f, kadd(k, f, kf(k, 2.0)));
  qn__val_t z = kmul(k, s, s);
  qn__val_t p = kmul(k, z, QN__POLY(k, z, log_f64));
  qn__val_t half = kmul(k, f, kf(k, 0.5));
  // Where it is fused, the subtraction sees h before it is rounded.
  return kmsub(k, half, f, kmul(k, s, kadd(k, kmul(k, half, f), p)));
}

// What comes out of x <= 0, infinity and NaN.
static qn__val_t with_special_cases(const qn__kit_t* k, qn__val_t x, qn__val_t result) {
  if (k->math->fast || qn__kit_has_avx512(k)) return result;
  qn__val_t zero = kf(k, 0.0);
  result = kselect(k, kcmp(k, LLVMRealOLT, x, kf(k, __builtin_inf())), result, x);
  // For x < 0 the comparison is all ones, which is a NaN; for zero the bits of -infinity are left.
  qn__val_t ones = LLVMBuildSExt(k->builder, kcmp(k, LLVMRealOLT, x, zero), k->i, "");
  qn__val_t special = kfrom_bits(k, kor(k, ones, kbits(k, kf(k, -__builtin_inf()))));
  return kselect(k, kcmp(k, LLVMRealOLE, x, zero), special, result);
}

qn__val_t qn__math_log(const qn__kit_t* k, const qn__val_t* args) {
  const double* ln2 = k->is_f64 ? ln2_f64 : ln2_f32;
  qn__split_t parts = qn__kit_split(k, args[0], !k->math->fast);
  qn__val_t low = kmad(k, parts.k, kf(k, ln2[1]), log1p_tail(k, parts.f));
  qn__val_t result = kmad(k, parts.k, kf(k, ln2[0]), kadd(k, parts.f, low));
  return with_special_cases(k, args[0], result);
}

// log2(1 + f) = (f + tail) / ln 2: the product of the short heads of f and 1 / ln 2 is exact.
qn__val_t qn__math_log2(const qn__kit_t* k, const qn__val_t* args) {
  const double* log2e = k->is_f64 ? log2e_f64 : log2e_f32;
  qn__split_t parts = qn__kit_split(k, args[0], !k->math->fast);
  uint64_t mask = k->is_f64 ? ~UINT64_C(0x7FFFFFF) : (uint32_t)~UINT32_C(0xFFF);
  qn__val_t head = kfrom_bits(k, kand(k, kbits(k, parts.f), ki(k, mask)));
  qn__val_t rest = kadd(k, ksub(k, parts.f, head), log1p_tail(k, parts.f));
  qn__val_t low = kmul(k, rest, kf(k, log2e[0] + log2e[1]));
  low = kmad(k, head, kf(k, log2e[1]), low);
  // For k = -1 the sum is smaller than its parts: what it rounds off must not be lost.
  qn__llvm_pair_t sum = qn__kit_fast_two_sum(k, parts.k, kmul(k, head, kf(k, log2e[0])));
  qn__val_t result = kadd(k, sum.hi, kadd(k, sum.lo, low));
  if (qn__kit_has_avx512(k) && !k->math->fast) {
    // The two-word sum makes NaN of an infinite k.
    qn__val_t is_infinite = kcmp(k, LLVMRealOEQ, kabs(k, parts.k), kf(k, __builtin_inf()));
    return kselect(k, is_infinite, kadd(k, parts.k, parts.f), result);
  }
  return with_special_cases(k, args[0], result);
}
