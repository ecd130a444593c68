// pow.
//
// What it is: |a|^b = e^(b log|a|), the sign from whether b is an odd integer, and the special
// cases of C99 annex F. The exponent may be as large as 745, which turns a relative error of the
// logarithm into one 745 times as large: f32 therefore works in f64 throughout, and f64 carries
// the logarithm in two words, to about 2^-64.
// What it is not: fast for f64; it is the price of the bound.
// Threads: as the builder.
// Next: math_fma.c.
#include "ir/math_tables.h"
#include "jit/llvm/math_kit.h"

// 2 atanh(f / (2 + f)) / ln 2 for f64 lanes that came from f32; 2^-40 is enough.
static qn__val_t log2_narrowly(const qn__kit_t* w, qn__val_t x) {
  qn__split_t parts = qn__kit_split(w, x, false);
  qn__val_t s = kdiv(w, parts.f, kadd(w, parts.f, kf(w, 2.0)));
  qn__val_t p = QN__POLY(w, kmul(w, s, s), log2_narrow);
  return kmad(w, s, p, parts.k);
}

static qn__val_t magnitude_f32(const qn__kit_t* k, qn__val_t base, qn__val_t y) {
  qn__kit_t w = qn__kit_with(k, true);
  double inf = __builtin_inf();
  qn__val_t x = LLVMBuildFPExt(k->builder, base, w.f, "");
  qn__val_t log2 = log2_narrowly(&w, x);
  log2 = kselect(&w, kcmp(&w, LLVMRealOLT, x, kf(&w, inf)), log2, x);
  log2 = kselect(&w, kcmp(&w, LLVMRealOEQ, x, kf(&w, 0.0)), kf(&w, -inf), log2);
  qn__val_t t = kmul(&w, log2, LLVMBuildFPExt(k->builder, y, w.f, ""));
  // Far beyond what an f32 can hold, well within what an f64 can.
  t = kmost(&w, kf(&w, -200.0), kleast(&w, kf(&w, 200.0), t));
  double magic = qn__kit_magic(&w, w.bias);
  qn__val_t shifted = kadd(&w, t, kf(&w, magic));
  qn__val_t r = ksub(&w, t, ksub(&w, shifted, kf(&w, magic)));
  qn__val_t p = kmad(&w, QN__POLY(&w, r, exp2_narrow), r, kf(&w, 1.0));
  qn__val_t scale = kfrom_bits(&w, kshl(&w, kbits(&w, shifted), 52));
  return LLVMBuildFPTrunc(k->builder, kmul(&w, p, scale), k->f, "");
}

// log x in two words, x positive and finite.
static qn__llvm_pair_t log_in_two_words(const qn__kit_t* k, qn__val_t x) {
  qn__split_t parts = qn__kit_split(k, x, true);
  // s = f / (2 + f). The quotient need not be rounded well: the remainder makes the second word.
  qn__llvm_pair_t d = qn__kit_fast_two_sum(k, kf(k, 2.0), parts.f);
  qn__val_t inverse = kdiv(k, kf(k, 1.0), d.hi);
  qn__val_t s = kmul(k, parts.f, inverse);
  qn__llvm_pair_t back = qn__kit_two_product(k, s, d.hi);
  qn__val_t rest = ksub(k, ksub(k, parts.f, back.hi), back.lo);
  rest = kmsub(k, s, d.lo, rest);
  qn__val_t s_lo = kmul(k, rest, inverse);

  // z = s^2, c = s^3.
  qn__llvm_pair_t z = qn__kit_two_product(k, s, s);
  z.lo = kmad(k, kadd(k, s, s), s_lo, z.lo);
  qn__llvm_pair_t c = qn__kit_two_product(k, s, z.hi);
  c.lo = kadd(k, c.lo, kmad(k, s, z.lo, kmul(k, s_lo, z.hi)));

  // 2 atanh(s) = 2 s + s^3 (2/3 + z P(z)): only the last product may be in one word.
  qn__val_t tail = kmul(k, z.hi, QN__POLY(k, z.hi, pow_log_f64));
  qn__llvm_pair_t q = qn__kit_fast_two_sum(k, kf(k, two_thirds[0]), tail);
  q.lo = kadd(k, q.lo, kf(k, two_thirds[1]));
  qn__llvm_pair_t u = qn__kit_two_product(k, c.hi, q.hi);
  u.lo = kadd(k, u.lo, kmad(k, c.hi, q.lo, kmul(k, c.lo, q.hi)));
  qn__llvm_pair_t log1p = qn__kit_fast_two_sum(k, kadd(k, s, s), u.hi);
  log1p.lo = kadd(k, log1p.lo, kadd(k, u.lo, kadd(k, s_lo, s_lo)));

  // k times the first word of ln 2 is exact.
  qn__llvm_pair_t sum = qn__kit_fast_two_sum(k, kmul(k, parts.k, kf(k, ln2_f64[0])), log1p.hi);
  qn__val_t lo = kadd(k, sum.lo, kmad(k, parts.k, kf(k, ln2_f64[1]), log1p.lo));
  return qn__kit_fast_two_sum(k, sum.hi, lo);
}

static qn__val_t magnitude_f64(const qn__kit_t* k, qn__val_t base, qn__val_t y) {
  double inf = __builtin_inf();
  qn__llvm_pair_t log = log_in_two_words(k, base);
  // |log| is at least 2^-53: an exponent of 2^70 gives infinity or zero as any larger one does.
  y = kmost(k, kf(k, -0x1p70), kleast(k, kf(k, 0x1p70), y));
  qn__llvm_pair_t t = qn__kit_two_product(k, y, log.hi);
  t.lo = kmad(k, y, log.lo, t.lo);
  qn__val_t in_range = kcmp(k, LLVMRealOLT, kabs(k, t.hi), kf(k, 750.0));
  t.lo = kselect(k, in_range, t.lo, kf(k, 0.0));
  t.hi = kmost(k, kf(k, -750.0), kleast(k, kf(k, 750.0), t.hi));
  qn__val_t result = qn__math_exp_pair(k, t);

  // Zero and infinity have no logarithm that two words could hold.
  qn__val_t zero = kf(k, 0.0), one = kf(k, 1.0);
  qn__val_t grows = kxor(k, kcmp(k, LLVMRealOGT, base, one), kcmp(k, LLVMRealOLT, y, zero));
  qn__val_t limit = kselect(k, grows, kf(k, inf), zero);
  qn__val_t is_limit =
      kor(k, kcmp(k, LLVMRealOEQ, base, zero), kcmp(k, LLVMRealOEQ, base, kf(k, inf)));
  return kselect(k, is_limit, limit, result);
}

qn__val_t qn__math_pow(const qn__kit_t* k, const qn__val_t* args) {
  qn__val_t x = args[0], y = args[1];
  qn__val_t zero = kf(k, 0.0), one = kf(k, 1.0), inf = kf(k, __builtin_inf());
  qn__val_t base = kabs(k, x);
  qn__val_t result = k->is_f64 ? magnitude_f64(k, base, y) : magnitude_f32(k, base, y);

  // Odd: an integer whose half is none. Infinity and every large number are even integers.
  qn__val_t half = kmul(k, y, kf(k, 0.5));
  qn__val_t is_integer = kcmp(k, LLVMRealOEQ, qn__kit_round(k, y, 'z'), y);
  qn__val_t is_odd = kand(k, is_integer, kcmp(k, LLVMRealONE, qn__kit_round(k, half, 'z'), half));
  qn__val_t sign = kand(k, kbits(k, x), ki(k, qn__kit_sign_bit(k)));
  result = kflip(k, result, kselect(k, is_odd, sign, ki(k, 0)));

  // A negative finite base with an exponent that is no integer; infinity and zero are no error.
  qn__val_t is_negative = kand(k, kcmp(k, LLVMRealOLT, x, zero), kcmp(k, LLVMRealOLT, base, inf));
  qn__val_t is_error = kand(k, is_negative, knot(k, is_integer));
  is_error = kor(k, is_error, kcmp(k, LLVMRealUNO, x, y));
  result = kselect(k, is_error, kf(k, __builtin_nan("")), result);

  // 1^y and x^0 are 1 even for NaN, and so is (-1)^(+-infinity).
  qn__val_t is_minus_one =
      kand(k, kcmp(k, LLVMRealOEQ, base, one), kcmp(k, LLVMRealOEQ, kabs(k, y), inf));
  qn__val_t is_one = kor(k, kcmp(k, LLVMRealOEQ, x, one), kcmp(k, LLVMRealOEQ, y, zero));
  return kselect(k, kor(k, is_one, is_minus_one), one, result);
}
