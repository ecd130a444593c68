// sin and cos over the whole range.
//
// What it is: |x| = n pi/2 + r with |r| <= pi/4 and r in two words, then a polynomial in r for the
// sine and one for the cosine, chosen and signed by n mod 4. Three ways lead to r:
//
// 1. f32 with fused multiply-add, |x| <= 6000: pi/2 in three words. The first subtraction is exact
//    because both sides are multiples of 2^-24 and the rest is below 1. The second word has 12
//    bits, so that its product with n is exact, and what that subtraction rounds off is exact too.
// 2. f32 otherwise, |x| <= 1e6: the same in f64, with two words. f64, |x| <= 1e6: three words of
//    33 bits, whose products with n are exact, and one more.
// 3. Beyond: the product of the mantissa with the 192 bits of 2/pi that matter (Payne and Hanek),
//    in integers, one lane at a time.
//
// All lanes go the way that the largest needs; a branch that is not taken costs next to nothing.
// What it is not: fast for huge arguments; nobody means those.
// Threads: as the builder.
// Next: math_pow.c.
#include "ir/math_tables.h"
#include "jit/llvm/math_kit.h"

typedef struct {
  qn__llvm_pair_t r;
  qn__val_t n;  // integer lanes; the two lowest bits count
} reduced_t;

static const double TWO_OVER_PI = 0x1.45f306dc9c883p-1;
enum { SHORT_LIMIT = 6000, LIMIT = 1000000 };

static LLVMBasicBlockRef append(const qn__kit_t* k, const char* name) {
  LLVMValueRef function = LLVMGetBasicBlockParent(LLVMGetInsertBlock(k->builder));
  return LLVMAppendBasicBlockInContext(k->math->context, function, name);
}

static reduced_t reduce_f32(const qn__kit_t* k, qn__val_t magnitude) {
  qn__val_t magic = kf(k, qn__kit_magic(k, 0));
  qn__val_t shifted = kmad(k, magnitude, kf(k, TWO_OVER_PI), magic);
  qn__val_t n = ksub(k, shifted, magic);
  qn__val_t first = kmsub(k, n, kf(k, pio2_f32[0]), magnitude);
  qn__val_t hi = kmsub(k, n, kf(k, pio2_f32[1]), first);
  qn__val_t lo = kmsub(k, n, kf(k, pio2_f32[1]), ksub(k, first, hi));
  lo = kmsub(k, n, kf(k, pio2_f32[2]), lo);
  return (reduced_t){{hi, lo}, kbits(k, shifted)};
}

static reduced_t reduce_f32_wide(const qn__kit_t* k, qn__val_t magnitude) {
  qn__kit_t w = qn__kit_with(k, true);
  qn__val_t x = LLVMBuildFPExt(k->builder, magnitude, w.f, "");
  qn__val_t magic = kf(&w, qn__kit_magic(&w, 0));
  qn__val_t shifted = kadd(&w, kmul(&w, x, kf(&w, TWO_OVER_PI)), magic);
  qn__val_t n = ksub(&w, shifted, magic);
  qn__val_t r = ksub(&w, x, kmul(&w, n, kf(&w, pio2_f64[0])));
  r = ksub(&w, r, kmul(&w, n, kf(&w, pio2_f64[1] + pio2_f64[2])));
  qn__val_t hi = LLVMBuildFPTrunc(k->builder, r, k->f, "");
  qn__val_t rest = ksub(&w, r, LLVMBuildFPExt(k->builder, hi, w.f, ""));
  qn__val_t lo = LLVMBuildFPTrunc(k->builder, rest, k->f, "");
  return (reduced_t){{hi, lo}, LLVMBuildTrunc(k->builder, kbits(&w, shifted), k->i, "")};
}

static reduced_t reduce_f64(const qn__kit_t* k, qn__val_t magnitude) {
  qn__val_t magic = kf(k, qn__kit_magic(k, 0));
  qn__val_t shifted = kmad(k, magnitude, kf(k, TWO_OVER_PI), magic);
  qn__val_t n = ksub(k, shifted, magic);
  // Sterbenz: the first difference is exact, or large enough for its error not to matter.
  qn__val_t first = ksub(k, magnitude, kmul(k, n, kf(k, pio2_f64[0])));
  qn__llvm_pair_t second = qn__kit_two_sum(k, first, kneg(k, kmul(k, n, kf(k, pio2_f64[1]))));
  qn__llvm_pair_t third = qn__kit_two_sum(k, second.hi, kneg(k, kmul(k, n, kf(k, pio2_f64[2]))));
  qn__val_t lo = kmsub(k, n, kf(k, pio2_f64[3]), kadd(k, second.lo, third.lo));
  return (reduced_t){qn__kit_fast_two_sum(k, third.hi, lo), kbits(k, shifted)};
}

static LLVMTypeRef reduced_type(const qn__kit_t* k) {
  LLVMTypeRef members[] = {k->f, k->f, k->i};
  return LLVMStructTypeInContext(k->math->context, members, 3, false);
}

static LLVMValueRef two_over_pi_global(const qn__kit_t* k) {
  enum { WORDS = sizeof(two_over_pi) / sizeof(two_over_pi[0]) };
  LLVMValueRef global = LLVMGetNamedGlobal(k->math->module, "qn.math.two_over_pi");
  if (global != NULL) return global;
  LLVMValueRef words[WORDS];
  for (size_t i = 0; i < WORDS; i++) words[i] = LLVMConstInt(k->i, two_over_pi[i], false);
  LLVMTypeRef type = LLVMArrayType2(k->i, WORDS);
  global = LLVMAddGlobal(k->math->module, type, "qn.math.two_over_pi");
  LLVMSetInitializer(global, LLVMConstArray2(k->i, words, WORDS));
  LLVMSetLinkage(global, LLVMPrivateLinkage);
  LLVMSetGlobalConstant(global, true);
  LLVMSetUnnamedAddress(global, LLVMGlobalUnnamedAddr);
  return global;
}

// The body of a function from a double above 2^12 to { hi, lo, n }; NaN for infinity and NaN.
//
// x = m 2^e. With W the bits of 2/pi from weight 2^(1-e) downwards, as a fixed-point number with
// two bits before the point, m W mod 4 is the quadrant and the position in it: higher bits of 2/pi
// only add whole turns. 192 bits of W leave 126 after the point, and no double comes closer to a
// multiple of pi/2 than 2^-61 of it.
static qn__val_t reduce_huge_body(const qn__kit_t* k, const qn__val_t* args) {
  LLVMBuilderRef b = k->builder;
  LLVMTypeRef wide = LLVMInt128TypeInContext(k->math->context);
  qn__val_t bits = kbits(k, args[0]);
  qn__val_t exponent = kshr(k, bits, 52);
  qn__val_t m = kor(k, kand(k, bits, ki(k, (UINT64_C(1) << 52) - 1)), ki(k, UINT64_C(1) << 52));

  // e is exponent - 1075; bit 0 of the table has weight 2^63.
  qn__val_t position = kisub(k, exponent, ki(k, 1075 - 62));
  qn__val_t index = kshr(k, position, 6);
  qn__val_t shift = kand(k, position, ki(k, 63));
  LLVMValueRef global = two_over_pi_global(k);
  qn__val_t word[4];
  for (unsigned i = 0; i < 4; i++) {
    qn__val_t at = kiadd(k, index, ki(k, i));
    LLVMValueRef address = LLVMBuildInBoundsGEP2(b, k->i, global, &at, 1, "");
    word[i] = LLVMBuildLoad2(b, k->i, address, "");
  }
  unsigned id = LLVMLookupIntrinsicID("llvm.fshl", 9);
  LLVMTypeRef overload = k->i;
  LLVMValueRef funnel = LLVMGetIntrinsicDeclaration(k->math->module, id, &overload, 1);
  qn__val_t window[3];
  for (unsigned i = 0; i < 3; i++) {
    qn__val_t operands[] = {word[i], word[i + 1], shift};
    window[i] = LLVMBuildCall2(b, LLVMGlobalGetValueType(funnel), funnel, operands, 3, "");
  }

  qn__val_t wide_64 = LLVMConstInt(wide, 64, false);
  qn__val_t wide_m = LLVMBuildZExt(b, m, wide, "");
  qn__val_t top =
      LLVMBuildShl(b, LLVMBuildZExt(b, LLVMBuildMul(b, m, window[0], ""), wide, ""), wide_64, "");
  qn__val_t middle = LLVMBuildMul(b, wide_m, LLVMBuildZExt(b, window[1], wide, ""), "");
  qn__val_t bottom = LLVMBuildMul(b, wide_m, LLVMBuildZExt(b, window[2], wide, ""), "");
  qn__val_t product = LLVMBuildAdd(b, top, middle, "");
  product = LLVMBuildAdd(b, product, LLVMBuildLShr(b, bottom, wide_64, ""), "");

  // To the nearest multiple: the bit behind the point decides, and the rest is read as signed.
  qn__val_t high = LLVMBuildTrunc(b, LLVMBuildLShr(b, product, wide_64, ""), k->i, "");
  qn__val_t n = kiadd(k, kshr(k, high, 62), kand(k, kshr(k, high, 61), ki(k, 1)));
  qn__val_t fraction = LLVMBuildShl(b, product, LLVMConstInt(wide, 2, false), "");
  qn__val_t is_negative = LLVMBuildICmp(b, LLVMIntSLT, fraction, LLVMConstNull(wide), "");
  fraction = LLVMBuildSelect(b, is_negative, LLVMBuildNeg(b, fraction, ""), fraction, "");

  id = LLVMLookupIntrinsicID("llvm.ctlz", 9);
  LLVMValueRef ctlz = LLVMGetIntrinsicDeclaration(k->math->module, id, &wide, 1);
  qn__val_t ctlz_args[] = {fraction,
                           LLVMConstInt(LLVMInt1TypeInContext(k->math->context), 0, false)};
  qn__val_t zeros = LLVMBuildCall2(b, LLVMGlobalGetValueType(ctlz), ctlz, ctlz_args, 2, "");
  // It is never zero, but a shift by the full width must not be possible.
  zeros = LLVMBuildAnd(b, zeros, LLVMConstInt(wide, 127, false), "");
  fraction = LLVMBuildShl(b, fraction, zeros, "");

  // The upper 106 bits as two doubles, scaled to below 1.
  qn__val_t mask = LLVMConstInt(wide, (UINT64_C(1) << 53) - 1, false);
  qn__val_t head = LLVMBuildLShr(b, fraction, LLVMConstInt(wide, 75, false), "");
  qn__val_t tail =
      LLVMBuildAnd(b, LLVMBuildLShr(b, fraction, LLVMConstInt(wide, 22, false), ""), mask, "");
  qn__val_t head_f = LLVMBuildSIToFP(b, LLVMBuildTrunc(b, head, k->i, ""), k->f, "");
  qn__val_t tail_f = LLVMBuildSIToFP(b, LLVMBuildTrunc(b, tail, k->i, ""), k->f, "");
  head_f = kmul(k, head_f, kf(k, 0x1p-53));
  tail_f = kmul(k, tail_f, kf(k, 0x1p-106));

  qn__llvm_pair_t r = qn__kit_two_product(k, head_f, kf(k, pio2_whole[0]));
  qn__val_t rest =
      kadd(k, kmul(k, head_f, kf(k, pio2_whole[1])), kmul(k, tail_f, kf(k, pio2_whole[0])));
  r = qn__kit_fast_two_sum(k, r.hi, kadd(k, r.lo, rest));
  qn__val_t scale_bits = kisub(k, ki(k, 1023), LLVMBuildTrunc(b, zeros, k->i, ""));
  qn__val_t scale = kfrom_bits(k, kshl(k, scale_bits, 52));
  scale = kselect(k, is_negative, kneg(k, scale), scale);
  scale = kselect(k, kcmp(k, LLVMRealOLT, args[0], kf(k, __builtin_inf())), scale,
                  kf(k, __builtin_nan("")));

  qn__val_t result = LLVMGetUndef(reduced_type(k));
  result = LLVMBuildInsertValue(b, result, kmul(k, r.hi, scale), 0, "");
  result = LLVMBuildInsertValue(b, result, kmul(k, r.lo, scale), 1, "");
  return LLVMBuildInsertValue(b, result, n, 2, "");
}

// sin(r + n pi/2); the sine of a negative x is flipped by the caller.
static qn__val_t of_quadrant(const qn__kit_t* k, reduced_t reduced) {
  qn__val_t hi = reduced.r.hi, lo = reduced.r.lo;
  qn__val_t one = kf(k, 1.0);
  qn__val_t z = kmul(k, hi, hi);
  qn__val_t half_z = kmul(k, z, kf(k, 0.5));

  qn__val_t p = k->is_f64 ? QN__POLY(k, z, sin_f64) : QN__POLY(k, z, sin_f32);
  qn__val_t low = kmsub(k, lo, half_z, lo);
  qn__val_t sine = kadd(k, hi, kmad(k, kmul(k, hi, z), p, low));

  qn__val_t q = k->is_f64 ? QN__POLY(k, z, cos_f64) : QN__POLY(k, z, cos_f32);
  qn__val_t head = ksub(k, one, half_z);
  qn__val_t lost = ksub(k, ksub(k, one, head), half_z);
  low = kmsub(k, hi, lo, lost);
  qn__val_t cosine = kadd(k, head, kmad(k, kmul(k, z, z), q, low));

  qn__val_t is_odd = kicmp(k, LLVMIntNE, kand(k, reduced.n, ki(k, 1)), ki(k, 0));
  qn__val_t sign = kshl(k, kand(k, reduced.n, ki(k, 2)), k->is_f64 ? 62 : 30);
  return kflip(k, kselect(k, is_odd, cosine, sine), sign);
}

static qn__val_t finish(const qn__kit_t* k, qn__val_t x, reduced_t reduced, bool is_cos) {
  if (is_cos) {
    reduced.n = kiadd(k, reduced.n, ki(k, 1));
    return of_quadrant(k, reduced);
  }
  qn__val_t sign = kand(k, kbits(k, x), ki(k, qn__kit_sign_bit(k)));
  return kflip(k, of_quadrant(k, reduced), sign);
}

// The body for one double: it branches to one way of reduction or the other.
static qn__val_t scalar_f64_body(const qn__kit_t* k, qn__val_t x, bool is_cos) {
  LLVMBuilderRef b = k->builder;
  qn__val_t magnitude = kabs(k, x);
  qn__val_t is_huge = kcmp(k, LLVMRealOGT, magnitude, kf(k, LIMIT));
  LLVMBasicBlockRef huge = append(k, "huge"), usual = append(k, "usual"), join = append(k, "join");
  LLVMBuildCondBr(b, is_huge, huge, usual);

  LLVMPositionBuilderAtEnd(b, huge);
  qn__val_t far =
      qn__kit_function(k, "qn.math.reduce_huge", reduce_huge_body, reduced_type(k), &magnitude, 1);
  qn__val_t far_part[3];
  for (unsigned i = 0; i < 3; i++) far_part[i] = LLVMBuildExtractValue(b, far, i, "");
  LLVMBuildBr(b, join);

  LLVMPositionBuilderAtEnd(b, usual);
  reduced_t near = reduce_f64(k, magnitude);
  qn__val_t near_part[3] = {near.r.hi, near.r.lo, near.n};
  LLVMBuildBr(b, join);

  LLVMPositionBuilderAtEnd(b, join);
  qn__val_t part[3];
  for (unsigned i = 0; i < 3; i++) {
    part[i] = LLVMBuildPhi(b, i < 2 ? k->f : k->i, "");
    LLVMAddIncoming(part[i], (LLVMValueRef[]){far_part[i], near_part[i]},
                    (LLVMBasicBlockRef[]){huge, usual}, 2);
  }
  return finish(k, x, (reduced_t){{part[0], part[1]}, part[2]}, is_cos);
}

static qn__val_t scalar_sin_body(const qn__kit_t* k, const qn__val_t* args) {
  return scalar_f64_body(k, args[0], false);
}

static qn__val_t scalar_cos_body(const qn__kit_t* k, const qn__val_t* args) {
  return scalar_f64_body(k, args[0], true);
}

// One lane, through the function for one double.
static qn__val_t one_lane(const qn__kit_t* k, qn__val_t x, bool is_cos) {
  qn__kit_t scalar = qn__kit_scalar(k);
  qn__kit_t f64 = qn__kit_with(&scalar, true);
  if (!k->is_f64) x = LLVMBuildFPExt(k->builder, x, f64.f, "");
  qn__val_t y = is_cos ? qn__kit_function(&f64, "qn.math.cos.f64", scalar_cos_body, f64.f, &x, 1)
                       : qn__kit_function(&f64, "qn.math.sin.f64", scalar_sin_body, f64.f, &x, 1);
  return k->is_f64 ? y : LLVMBuildFPTrunc(k->builder, y, scalar.f, "");
}

// All lanes, one after the other, in a loop that ends in the block where the builder then stands.
static qn__val_t each_lane(const qn__kit_t* k, qn__val_t x, bool is_cos) {
  if (k->lanes == 0) return one_lane(k, x, is_cos);
  LLVMBuilderRef b = k->builder;
  LLVMTypeRef counter = LLVMInt32TypeInContext(k->math->context);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b);
  LLVMBasicBlockRef loop = append(k, "lane"), done = append(k, "done");
  LLVMBuildBr(b, loop);
  LLVMPositionBuilderAtEnd(b, loop);
  qn__val_t i = LLVMBuildPhi(b, counter, "");
  qn__val_t so_far = LLVMBuildPhi(b, k->f, "");
  qn__val_t y = one_lane(k, LLVMBuildExtractElement(b, x, i, ""), is_cos);
  qn__val_t now = LLVMBuildInsertElement(b, so_far, y, i, "");
  qn__val_t next = LLVMBuildAdd(b, i, LLVMConstInt(counter, 1, false), "");
  qn__val_t more = LLVMBuildICmp(b, LLVMIntULT, next, LLVMConstInt(counter, k->lanes, false), "");
  LLVMBuildCondBr(b, more, loop, done);
  LLVMAddIncoming(i, (LLVMValueRef[]){LLVMConstNull(counter), next},
                  (LLVMBasicBlockRef[]){before, loop}, 2);
  LLVMAddIncoming(so_far, (LLVMValueRef[]){x, now}, (LLVMBasicBlockRef[]){before, loop}, 2);
  LLVMPositionBuilderAtEnd(b, done);
  return now;
}

typedef struct {
  double limit;  // of |x|
  reduced_t (*reduce)(const qn__kit_t* kit, qn__val_t magnitude);
} way_t;

// The first of `count` ways if no lane is beyond its limit, else the others, at last lane by lane.
static qn__val_t by_ways(const qn__kit_t* k, qn__val_t x, bool is_cos, const way_t* ways,
                         unsigned count) {
  if (count == 0) return each_lane(k, x, is_cos);
  LLVMBuilderRef b = k->builder;
  qn__val_t magnitude = kabs(k, x);
  qn__val_t is_beyond = kcmp(k, LLVMRealOGT, magnitude, kf(k, ways->limit));
  LLVMBasicBlockRef beyond = append(k, "beyond"), within = append(k, "within"),
                    join = append(k, "join");
  LLVMBuildCondBr(b, qn__kit_any(k, is_beyond), beyond, within);

  LLVMPositionBuilderAtEnd(b, within);
  qn__val_t near = finish(k, x, ways->reduce(k, magnitude), is_cos);
  LLVMBuildBr(b, join);

  LLVMPositionBuilderAtEnd(b, beyond);
  qn__val_t far = by_ways(k, x, is_cos, ways + 1, count - 1);
  LLVMBasicBlockRef far_end = LLVMGetInsertBlock(b);
  LLVMBuildBr(b, join);

  LLVMPositionBuilderAtEnd(b, join);
  qn__val_t result = LLVMBuildPhi(b, k->f, "");
  LLVMAddIncoming(result, (LLVMValueRef[]){near, far}, (LLVMBasicBlockRef[]){within, far_end}, 2);
  return result;
}

static qn__val_t body(const qn__kit_t* k, qn__val_t x, bool is_cos) {
  static const way_t F64[] = {{LIMIT, reduce_f64}};
  static const way_t F32[] = {{SHORT_LIMIT, reduce_f32}, {LIMIT, reduce_f32_wide}};
  if (k->is_f64 && k->lanes == 0) return scalar_f64_body(k, x, is_cos);
  if (k->is_f64) return by_ways(k, x, is_cos, F64, 1);
  // Without fused multiply-add the first way would need more and shorter words.
  return k->math->has_fma ? by_ways(k, x, is_cos, F32, 2) : by_ways(k, x, is_cos, F32 + 1, 1);
}

qn__val_t qn__math_sin(const qn__kit_t* k, const qn__val_t* args) {
  return body(k, args[0], false);
}

qn__val_t qn__math_cos(const qn__kit_t* k, const qn__val_t* args) {
  return body(k, args[0], true);
}
