// SPDX-License-Identifier: Apache-2.0
// ir/math/trig.c: sin, cos and tan over the whole range.
//
// |x| = n pi/2 + r with |r| <= pi/4 and r in two words, then a polynomial in r for the sine and one
// for the cosine, chosen and signed by n mod 4. Four ways lead to r:
//
// 1. f32 with fused multiply-add, |x| <= 6000: pi/2 in three words. The first subtraction is exact
//    because both sides are multiples of 2^-24 and the rest is below 1. The second word has 12
//    bits, so that its product with n is exact, and what that subtraction rounds off is exact too.
// 2. f32 otherwise on a CPU, |x| <= 1e6: the same in f64, with two words.
// 3. f64, |x| <= 1e6: three words of 33 bits, whose products with n are exact, and one more.
// 4. Beyond: the product of the mantissa with the bits of 2/pi that matter, in integers (M. H.
//    Payne and R. N. Hanek, Radian reduction for trigonometric functions, 1983).
//
// The last two ways of a dtype are functions that are called for the rare arguments that need them.
#include <math.h>

#include "ir/math/builder.h"
#include "ir/math/tables.h"

typedef struct angle {
  qn__mpair_t r;
  qn__mval_t n;  // an unsigned integer; the two lowest bits count
} angle_t;

static const double TWO_OVER_PI = 0x1.45f306dc9c883p-1;
enum { SHORT_LIMIT = 6000, LIMIT = 1000000 };

// ------------------------------------------------------------------------------------ |x| <= limit

static angle_t reduce_f32(qn__math_builder_t* k, qn__mval_t magnitude) {
  qn__mval_t magic = kf(k, qn__mk_magic(k, 0));
  qn__mval_t shifted = kmad(k, magnitude, kf(k, TWO_OVER_PI), magic);
  qn__mval_t n = ksub(k, shifted, magic);
  qn__mval_t first = kmsub(k, n, kf(k, pio2_f32[0]), magnitude);
  qn__mval_t hi = kmsub(k, n, kf(k, pio2_f32[1]), first);
  qn__mval_t lo = kmsub(k, n, kf(k, pio2_f32[1]), ksub(k, first, hi));
  lo = kmsub(k, n, kf(k, pio2_f32[2]), lo);
  return (angle_t){{hi, lo}, qn__mk_word(k, shifted)};
}

static angle_t reduce_f32_wide(qn__math_builder_t* k, qn__mval_t magnitude) {
  qn__math_builder_t wide = qn__mk_as(k, QN_DTYPE_F64);
  qn__math_builder_t* w = &wide;
  w->has_fma = false;
  qn__mval_t x = kto(w, QN_DTYPE_F64, magnitude);
  qn__mval_t magic = kf(w, qn__mk_magic(w, 0));
  qn__mval_t shifted = kmad(w, x, kf(w, TWO_OVER_PI), magic);
  qn__mval_t n = ksub(w, shifted, magic);
  qn__mval_t r = kmsub(w, n, kf(w, pio2_f64[0]), x);
  r = kmsub(w, n, kf(w, pio2_f64[1] + pio2_f64[2]), r);
  qn__mval_t hi = kto(k, QN_DTYPE_F32, r);
  qn__mval_t rest = ksub(w, r, kto(w, QN_DTYPE_F64, hi));
  qn__mval_t lo = kto(k, QN_DTYPE_F32, rest);
  k->has_failed |= w->has_failed;
  return (angle_t){{hi, lo}, kto(k, QN_DTYPE_U32, qn__mk_word(w, shifted))};
}

static angle_t reduce_f64(qn__math_builder_t* k, qn__mval_t magnitude) {
  qn__mval_t magic = kf(k, qn__mk_magic(k, 0));
  qn__mval_t shifted = kmad(k, magnitude, kf(k, TWO_OVER_PI), magic);
  qn__mval_t n = ksub(k, shifted, magic);
  // Sterbenz: the first difference is exact, or large enough for its error not to matter.
  qn__mval_t first = ksub(k, magnitude, kmul(k, n, kf(k, pio2_f64[0])));
  qn__mpair_t second = qn__mk_two_sum(k, first, kneg(k, kmul(k, n, kf(k, pio2_f64[1]))));
  qn__mpair_t third = qn__mk_two_sum(k, second.hi, kneg(k, kmul(k, n, kf(k, pio2_f64[2]))));
  qn__mval_t lo = kmsub(k, n, kf(k, pio2_f64[3]), kadd(k, second.lo, third.lo));
  return (angle_t){qn__mk_fast_two_sum(k, third.hi, lo), qn__mk_word(k, shifted)};
}

// ------------------------------------------------------------------------------------ any x

// up.down shifted left by `count`, below the width.
static qn__mval_t funnel(qn__math_builder_t* k, qn__mval_t up, qn__mval_t down, qn__mval_t count,
                         qn__mval_t rest) {
  return kor(k, kshl_by(k, up, count), kshr_by(k, kshr(k, down, 1), rest));
}

// Returns 1 where the condition holds, else 0.
static qn__mval_t bit(qn__math_builder_t* k, qn__mval_t condition) {
  return kto(k, k->u, condition);
}

// Reads `count` words of 2/pi, beginning at the bit `position`.
static void window(qn__math_builder_t* k, qn__mval_t position, qn__mval_t* words, uint32_t count) {
  uint32_t width = k->is_f64 ? 64 : 32;
  qn__mval_t at = kshr(k, position, k->is_f64 ? 6 : 5);
  qn__mval_t up = kand(k, position, ku(k, width - 1));
  qn__mval_t down = ksub(k, ku(k, width - 1), up);
  qn__mval_t last = qn__mk_op(k, QN__MATH_OP_TWO_OVER_PI, k->u, at, NULL, NULL);
  for (uint32_t i = 0; i < count; i++) {
    qn__mval_t next =
        qn__mk_op(k, QN__MATH_OP_TWO_OVER_PI, k->u, kadd(k, at, ku(k, i + 1)), NULL, NULL);
    words[i] = funnel(k, last, next, up, down);
    last = next;
  }
}

// x = m 2^e. With W the bits of 2/pi from weight 2^(1-e) downwards, as a fixed-point number with
// two bits before the point, m W mod 4 is the quadrant and the position in it: higher bits only add
// whole turns. f32: of 96 bits 70 are right behind the point, and no float comes closer to a
// multiple of pi/2 than 2^-31 of it; f64: of 192 bits 126, and 2^-61. For x above 1/2; of infinity
// and NaN the result means nothing.
typedef struct turns {
  qn__mval_t n;
  qn__mval_t is_negative;  // the position is, read as a signed number
  qn__mval_t top;          // its magnitude: the first bit is set
  qn__mval_t next;
  qn__mval_t zeros;  // leading bits that were shifted out
} turns_t;

static turns_t turns_of(qn__math_builder_t* k, qn__mval_t x) {
  uint32_t width = k->is_f64 ? 64 : 32;
  qn__mval_t zero = ku(k, 0);
  qn__mval_t bits = kbits(k, x);
  uint64_t one = UINT64_C(1) << k->mantissa_bits;
  qn__mval_t m = kor(k, kand(k, bits, ku(k, one - 1)), ku(k, one));
  // Bit 0 of the table has weight 2^(width - 1). An exponent beyond the finite ones must not reach
  // beyond the table.
  qn__mval_t exponent = kshr(k, bits, k->mantissa_bits);
  uint64_t first = k->is_f64 ? 1075 - 62 : 120, all = k->is_f64 ? 0x7FE : 0xFE;
  exponent = kselect(k, kgt(k, exponent, ku(k, all)), ku(k, all), exponent);
  qn__mval_t position = ksub(k, exponent, ku(k, first));
  // Lanes with small arguments run along with those that need this.
  position = kselect(k, klt(k, exponent, ku(k, first)), zero, position);
  qn__mval_t w[3];
  window(k, position, w, 3);
  // The product, of which three words are kept (f64: two, and what the third carries).
  qn__mval_t carried = kmulhi(k, m, w[2]);
  qn__mval_t bottom = kmul(k, m, w[2]);
  qn__mval_t middle = kadd(k, kmul(k, m, w[1]), carried);
  qn__mval_t top = kadd(k, kmul(k, m, w[0]), kmulhi(k, m, w[1]));
  top = kadd(k, top, bit(k, klt(k, middle, carried)));
  // To the nearest multiple: the bit behind the point decides, and the rest is read as signed.
  qn__mval_t n = kadd(k, kshr(k, top, width - 2), kand(k, kshr(k, top, width - 3), ku(k, 1)));
  top = kor(k, kshl(k, top, 2), kshr(k, middle, width - 2));
  middle = kor(k, kshl(k, middle, 2), kshr(k, bottom, width - 2));
  bottom = kshl(k, bottom, 2);
  qn__mval_t is_negative = kge(k, top, ku(k, UINT64_C(1) << (width - 1)));
  // The magnitude, by complement.
  qn__mval_t no_bottom = keq(k, bottom, zero);
  qn__mval_t no_middle = kand(k, no_bottom, keq(k, middle, zero));
  top = kselect(k, is_negative, kadd(k, knot(k, top), bit(k, no_middle)), top);
  middle = kselect(k, is_negative, kadd(k, knot(k, middle), bit(k, no_bottom)), middle);
  bottom = kselect(k, is_negative, ksub(k, zero, bottom), bottom);
  // Up to the first bit that is set.
  qn__mval_t is_short = keq(k, top, zero);
  top = kselect(k, is_short, middle, top);
  middle = kselect(k, is_short, bottom, middle);
  bottom = kselect(k, is_short, zero, bottom);
  qn__mval_t zeros = kand(k, kclz(k, top), ku(k, width - 1));
  qn__mval_t rest = ksub(k, ku(k, width - 1), zeros);
  top = funnel(k, top, middle, zeros, rest);
  qn__mval_t next = funnel(k, middle, bottom, zeros, rest);
  zeros = kadd(k, zeros, kselect(k, is_short, ku(k, width), zero));
  return (turns_t){n, is_negative, top, next, zeros};
}

// The position times pi/2 as a product of integers, whose two heads are the result.
static angle_t angle_of_f32(qn__math_builder_t* k, const turns_t* t) {
  qn__mval_t p = kmulhi(k, t->top, ku(k, 0x2168C235u));
  qn__mval_t q = kmulhi(k, t->next, ku(k, 0xC90FDAA2u));
  qn__mval_t r = kmul(k, t->top, ku(k, 0xC90FDAA2u));
  qn__mval_t high = kmulhi(k, t->top, ku(k, 0xC90FDAA2u));
  r = kadd(k, r, p);
  high = kadd(k, high, bit(k, klt(k, r, p)));
  r = kadd(k, r, q);
  high = kadd(k, high, bit(k, klt(k, r, q)));
  qn__mval_t low = kor(k, kshl(k, high, 24), kshr(k, r, 8));
  // high counts units of 2^(-31 - zeros).
  qn__mval_t scale = qn__mk_power(k, ksub(k, ku(k, 127 - 31), t->zeros));
  qn__mval_t hi = kmul(k, kto(k, k->f, kand(k, high, ku(k, 0xFFFFFF00u))), scale);
  scale = kmul(k, scale, kf(k, 0x1p-24));
  qn__mval_t lo = kmul(k, kto(k, k->f, low), scale);
  hi = kselect(k, t->is_negative, kneg(k, hi), hi);
  lo = kselect(k, t->is_negative, kneg(k, lo), lo);
  return (angle_t){{hi, lo}, t->n};
}

// The upper 106 bits as two doubles, and the product in two words.
static angle_t angle_of_f64(qn__math_builder_t* k, const turns_t* t) {
  qn__mval_t head = kto(k, k->f, kto(k, QN_DTYPE_I64, kshr(k, t->top, 11)));
  qn__mval_t tail = kshl(k, kand(k, t->top, ku(k, 0x7FF)), 42);
  tail = kto(k, k->f, kto(k, QN_DTYPE_I64, kor(k, tail, kshr(k, t->next, 22))));
  head = kmul(k, head, kf(k, 0x1p-53));
  tail = kmul(k, tail, kf(k, 0x1p-106));
  qn__mpair_t r = qn__mk_two_product(k, head, kf(k, pio2_whole[0]));
  qn__mval_t rest = kmul(k, head, kf(k, pio2_whole[1]));
  rest = kadd(k, rest, kmul(k, tail, kf(k, pio2_whole[0])));
  r = qn__mk_fast_two_sum(k, r.hi, kadd(k, r.lo, rest));
  qn__mval_t scale = kfrom_bits(k, kshl(k, ksub(k, ku(k, 1023), t->zeros), 52));
  scale = kselect(k, t->is_negative, kneg(k, scale), scale);
  return (angle_t){{kmul(k, r.hi, scale), kmul(k, r.lo, scale)}, kto(k, k->w, t->n)};
}

static angle_t reduce_any(qn__math_builder_t* k, qn__mval_t magnitude) {
  turns_t turns = turns_of(k, magnitude);
  return k->is_f64 ? angle_of_f64(k, &turns) : angle_of_f32(k, &turns);
}

// ------------------------------------------------------------------------------------ results

typedef struct circle {
  qn__mval_t sine;
  qn__mval_t cosine;
} circle_t;

// Of r alone, between -pi/4 and pi/4.
static circle_t circle_of(qn__math_builder_t* k, qn__mpair_t r) {
  qn__mval_t hi = r.hi, lo = r.lo;
  qn__mval_t z = kmul(k, hi, hi);
  qn__mval_t half_z = kmul(k, z, kf(k, 0.5));
  qn__mval_t p = QN__POLY_OF(k, z, sin);
  qn__mval_t low = kmsub(k, lo, half_z, lo);
  qn__mval_t sine = kadd(k, hi, kmad(k, kmul(k, hi, z), p, low));

  qn__mval_t q = QN__POLY_OF(k, z, cos);
  qn__mval_t head = ksub(k, kf(k, 1.0), half_z);
  qn__mval_t lost = ksub(k, ksub(k, kf(k, 1.0), head), half_z);
  low = kmsub(k, hi, lo, lost);
  return (circle_t){sine, kadd(k, head, kmad(k, kmul(k, z, z), q, low))};
}

// sin(r + n pi/2).
static qn__mval_t sine_of(qn__math_builder_t* k, angle_t angle) {
  circle_t circle = circle_of(k, angle.r);
  qn__mval_t one = qn__mk_int(k, angle.n->dtype, 1), two = qn__mk_int(k, angle.n->dtype, 2);
  qn__mval_t is_odd = kne(k, kand(k, angle.n, one), qn__mk_int(k, angle.n->dtype, 0));
  qn__mval_t y = kselect(k, is_odd, circle.cosine, circle.sine);
  // Bit 1 of n is the sign.
  if (angle.n->dtype == k->u) {
    qn__mval_t sign = kshl(k, kand(k, angle.n, two), k->is_f64 ? 62 : 30);
    return kfrom_bits(k, kxor(k, kbits(k, y), sign));
  }
  qn__mval_t is_negative = kne(k, kand(k, angle.n, two), qn__mk_int(k, angle.n->dtype, 0));
  return kselect(k, is_negative, kneg(k, y), y);
}

// tan(r + n pi/2): sin r / cos r, or -cos r / sin r.
static qn__mval_t tangent_of(qn__math_builder_t* k, angle_t angle) {
  circle_t circle = circle_of(k, angle.r);
  qn__mval_t one = qn__mk_int(k, angle.n->dtype, 1);
  qn__mval_t is_odd = keq(k, kand(k, angle.n, one), one);
  qn__mval_t top = kselect(k, is_odd, kneg(k, circle.cosine), circle.sine);
  return kdiv(k, top, kselect(k, is_odd, circle.sine, circle.cosine));
}

// The function of |x|.
typedef enum part { SINE, COSINE, TANGENT } part_t;

static qn__mval_t part_of(qn__math_builder_t* k, angle_t angle, part_t part) {
  if (part == TANGENT) return tangent_of(k, angle);
  if (part == COSINE) angle.n = kadd(k, angle.n, qn__mk_int(k, angle.n->dtype, 1));
  return sine_of(k, angle);
}
// SINE or COSINE, as the second argument says.
static qn__mval_t sine_by(qn__math_builder_t* k, angle_t angle, const qn__mval_t* args) {
  angle.n = kadd(k, angle.n, kto(k, angle.n->dtype, kne(k, args[1], kf(k, SINE))));
  return sine_of(k, angle);
}

static qn__mval_t far_from_zero(qn__math_builder_t* k, const qn__mval_t* args, bool is_tan) {
  if (!k->is_f64 && !k->is_gpu) {
    qn__mval_t wide[] = {kto(k, QN_DTYPE_F64, args[0]), NULL};
    if (!is_tan) wide[1] = kto(k, QN_DTYPE_F64, args[1]);
    qn__math_id_t id = is_tan ? QN__MATH_ID_tan_far : QN__MATH_ID_sin_far;
    return kto(k, QN_DTYPE_F32, qn__mk_call(k, id, QN_DTYPE_F64, wide));
  }
  angle_t angle = reduce_any(k, args[0]);
  qn__mval_t y = is_tan ? tangent_of(k, angle) : sine_by(k, angle, args);
  return kselect(k, klt(k, args[0], kf(k, (double)INFINITY)), y, kf(k, (double)NAN));
}

qn__mval_t qn__mf_sin_wide(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t y = sine_by(k, reduce_f32_wide(k, args[0]), args);
  qn__mval_t is_far = kgt(k, args[0], kf(k, LIMIT));
  return qn__mk_call_if(k, is_far, QN__MATH_ID_sin_far, args, y);
}

qn__mval_t qn__mf_sin_far(qn__math_builder_t* k, const qn__mval_t* args) {
  return far_from_zero(k, args, false);
}

qn__mval_t qn__mf_tan_far(qn__math_builder_t* k, const qn__mval_t* args) {
  return far_from_zero(k, args, true);
}

qn__mval_t qn__mf_tan_wide(qn__math_builder_t* k, const qn__mval_t* args) {
  qn__mval_t y = tangent_of(k, reduce_f32_wide(k, args[0]));
  return qn__mk_call_if(k, kgt(k, args[0], kf(k, LIMIT)), QN__MATH_ID_tan_far, args, y);
}

static qn__mval_t of_magnitude(qn__math_builder_t* k, qn__mval_t magnitude, part_t part) {
  qn__mval_t args[] = {magnitude, kf(k, part == COSINE ? 1 : 0)};
  // Without fused multiply-add the first way of f32 would need more and shorter words.
  bool is_wide = !k->is_f64 && !k->is_gpu && !k->has_fma;
  bool is_short = !k->is_f64 && !is_wide;
  double limit = is_short && !k->has_fma ? 0.785 : is_short ? SHORT_LIMIT : LIMIT;
  angle_t angle = is_wide      ? reduce_f32_wide(k, magnitude)
                  : k->is_f64  ? reduce_f64(k, magnitude)
                  : k->has_fma ? reduce_f32(k, magnitude)
                               : (angle_t){{magnitude, kf(k, 0.0)}, ku(k, 0)};
  static const qn__math_id_t sine[] = {QN__MATH_ID_sin_far, QN__MATH_ID_sin_wide};
  static const qn__math_id_t tangent[] = {QN__MATH_ID_tan_far, QN__MATH_ID_tan_wide};
  bool has_wide = is_short && !k->is_gpu;
  qn__math_id_t far = (part == TANGENT ? tangent : sine)[has_wide ? 1 : 0];
  qn__mval_t is_far = kgt(k, magnitude, kf(k, limit));
  qn__mval_t y = qn__mk_call_if(k, is_far, far, args, part_of(k, angle, part));
  if (!k->is_gpu) return y;
  // A GPU's comparison with the limit may go either way for a NaN.
  qn__mval_t is_finite = kisfinite(k, magnitude);
  return kselect(k, is_finite, y, kf(k, (double)NAN));
}

// Returns the odd function of x whose value for |x| is y.
static qn__mval_t with_sign(qn__math_builder_t* k, qn__mval_t x, qn__mval_t y) {
  qn__mval_t sign = kand(k, kbits(k, x), ku(k, UINT64_C(1) << (k->is_f64 ? 63 : 31)));
  return kfrom_bits(k, kxor(k, kbits(k, y), sign));
}

qn__mval_t qn__mf_sin(qn__math_builder_t* k, const qn__mval_t* args) {
  return with_sign(k, args[0], of_magnitude(k, kabs(k, args[0]), SINE));
}

qn__mval_t qn__mf_cos(qn__math_builder_t* k, const qn__mval_t* args) {
  return of_magnitude(k, kabs(k, args[0]), COSINE);
}

qn__mval_t qn__mf_tan(qn__math_builder_t* k, const qn__mval_t* args) {
  return with_sign(k, args[0], of_magnitude(k, kabs(k, args[0]), TANGENT));
}
