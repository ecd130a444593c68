// SPDX-License-Identifier: Apache-2.0
// ir/math/builder.h: the operations with which the functions of mathematics are written.
//
// A builder makes one function of one dtype. Each operation appends a LET statement and returns its
// variable. Operations never fail: if the arena is exhausted they return a dummy, and
// qn__math_build reports it. Read next: exp.c, the simplest user.
#ifndef QUERN_IR_MATH_BUILDER_H_
#define QUERN_IR_MATH_BUILDER_H_

#include "ir/math/math.h"

typedef const qn__ir_expr_t* qn__mval_t;  // a variable or a literal

typedef struct qn__math_builder {
  qn__arena_t* arena;
  qn__math_function_t* function;
  qn_dtype_t f;  // the dtype of the function
  qn_dtype_t u;  // unsigned integers of the same width
  qn_dtype_t w;  // unsigned integers for exponents: u, or U32 for the upper half of an f64
  bool is_f64;
  bool has_fma;
  bool is_gpu;
  bool has_avx512;
  bool has_avx512_wide;  // for f64 values in an f32 function
  bool is_fast;
  uint32_t mantissa_bits;   // stored ones: 23 or 52
  uint32_t exponent_shift;  // where the exponent starts in a word of dtype w
  int bias;                 // 127 or 1023
  bool has_failed;
} qn__math_builder_t;

// A value in two words: the rounded value and the rounding error. Their sum is the value.
typedef struct qn__mpair {
  qn__mval_t hi;
  qn__mval_t lo;
} qn__mpair_t;

// Appends `let v = op(a, b, c)`; operands that `op` does not have are NULL.
qn__mval_t qn__mk_op(qn__math_builder_t* k, uint32_t op, qn_dtype_t dtype, qn__mval_t a,
                     qn__mval_t b, qn__mval_t c);
// Appends a CAST or a BITCAST.
qn__mval_t qn__mk_cast(qn__math_builder_t* k, qn__ir_expr_kind_t kind, qn_dtype_t dtype,
                       qn__mval_t a);
qn__mval_t qn__mk_int(qn__math_builder_t* k, qn_dtype_t dtype, uint64_t value);
qn__mval_t qn__mk_float(qn__math_builder_t* k, qn_dtype_t dtype, double value);

// ---- literals: of the function's dtype, and of the integers of its width

static inline qn__mval_t kf(qn__math_builder_t* k, double value) {
  return qn__mk_float(k, k->f, value);
}
static inline qn__mval_t ku(qn__math_builder_t* k, uint64_t value) {
  return qn__mk_int(k, k->u, value);
}
static inline qn__mval_t ku32(qn__math_builder_t* k, uint32_t value) {
  return qn__mk_int(k, QN_DTYPE_U32, value);
}

// ---- operators. The result has the dtype of the first operand, or is bool.

#define QN__MATH_UNARY(name, op)                                       \
  static inline qn__mval_t name(qn__math_builder_t* k, qn__mval_t a) { \
    return qn__mk_op(k, op, a->dtype, a, NULL, NULL);                  \
  }
#define QN__MATH_BINARY(name, op)                                                    \
  static inline qn__mval_t name(qn__math_builder_t* k, qn__mval_t a, qn__mval_t b) { \
    return qn__mk_op(k, op, a->dtype, a, b, NULL);                                   \
  }
#define QN__MATH_TEST(name, op)                                        \
  static inline qn__mval_t name(qn__math_builder_t* k, qn__mval_t a) { \
    return qn__mk_op(k, op, QN_DTYPE_BOOL, a, NULL, NULL);             \
  }
#define QN__MATH_COMPARE(name, op)                                                   \
  static inline qn__mval_t name(qn__math_builder_t* k, qn__mval_t a, qn__mval_t b) { \
    return qn__mk_op(k, op, QN_DTYPE_BOOL, a, b, NULL);                              \
  }

// Arithmetic on floats or on integers, as the operands are.
QN__MATH_BINARY(kadd, QN_OP_ADD)
QN__MATH_BINARY(ksub, QN_OP_SUB)
QN__MATH_BINARY(kmul, QN_OP_MUL)
QN__MATH_BINARY(kdiv, QN_OP_DIV)
QN__MATH_BINARY(kratio, QN__MATH_OP_RATIO)  // a quotient that may be off by a few ulp
QN__MATH_UNARY(kneg, QN_OP_NEG)
QN__MATH_UNARY(kabs, QN_OP_ABS)
QN__MATH_UNARY(ksqrt, QN_OP_SQRT)
QN__MATH_UNARY(ktrunc, QN_OP_TRUNC)
QN__MATH_UNARY(kclz, QN_OP_CLZ)
QN__MATH_BINARY(kcopysign, QN_OP_COPYSIGN)  // of (magnitude, sign)
QN__MATH_BINARY(kmulhi, QN__MATH_OP_MULHI)
// Bits of integers and bools. Counts of shifts must be below the width.
QN__MATH_BINARY(kand, QN_OP_AND)
QN__MATH_BINARY(kor, QN_OP_OR)
QN__MATH_BINARY(kxor, QN_OP_XOR)
QN__MATH_UNARY(knot, QN_OP_NOT)
QN__MATH_BINARY(kshl_by, QN_OP_SHL)
QN__MATH_BINARY(kshr_by, QN_OP_SHR)
QN__MATH_COMPARE(klt, QN_OP_LT)
QN__MATH_COMPARE(kle, QN_OP_LE)
QN__MATH_COMPARE(kgt, QN_OP_GT)
QN__MATH_COMPARE(kge, QN_OP_GE)
QN__MATH_COMPARE(keq, QN_OP_EQ)
QN__MATH_COMPARE(kne, QN_OP_NE)
QN__MATH_TEST(kisnan, QN_OP_ISNAN)
QN__MATH_TEST(kisinf, QN_OP_ISINF)
QN__MATH_TEST(kisfinite, QN_OP_ISFINITE)

#undef QN__MATH_UNARY
#undef QN__MATH_BINARY
#undef QN__MATH_TEST
#undef QN__MATH_COMPARE

// a * b + c, fused where the target has an instruction for it. For sums that may be fused or not.
static inline qn__mval_t kmad(qn__math_builder_t* k, qn__mval_t a, qn__mval_t b, qn__mval_t c) {
  if (k->has_fma) return qn__mk_op(k, QN_OP_FMA, a->dtype, a, b, c);
  return kadd(k, kmul(k, a, b), c);
}
// c - a * b, likewise.
static inline qn__mval_t kmsub(qn__math_builder_t* k, qn__mval_t a, qn__mval_t b, qn__mval_t c) {
  if (k->has_fma) return qn__mk_op(k, QN_OP_FMA, a->dtype, kneg(k, a), b, c);
  return ksub(k, c, kmul(k, a, b));
}
static inline qn__mval_t kselect(qn__math_builder_t* k, qn__mval_t c, qn__mval_t a, qn__mval_t b) {
  return qn__mk_op(k, QN_OP_SELECT, a->dtype, c, a, b);
}
// Bounds x from above (from below) by `limit`; a NaN stays. One instruction on x86.
static inline qn__mval_t kat_most(qn__math_builder_t* k, double limit, qn__mval_t x) {
  qn__mval_t bound = kf(k, limit);
  return kselect(k, klt(k, bound, x), bound, x);
}
static inline qn__mval_t kat_least(qn__math_builder_t* k, double limit, qn__mval_t x) {
  qn__mval_t bound = kf(k, limit);
  return kselect(k, kgt(k, bound, x), bound, x);
}
static inline qn__mval_t kshl(qn__math_builder_t* k, qn__mval_t a, uint32_t count) {
  return kshl_by(k, a, qn__mk_int(k, a->dtype, count));
}
static inline qn__mval_t kshr(qn__math_builder_t* k, qn__mval_t a, uint32_t count) {
  return kshr_by(k, a, qn__mk_int(k, a->dtype, count));
}
static inline qn__mval_t kto(qn__math_builder_t* k, qn_dtype_t dtype, qn__mval_t a) {
  return qn__mk_cast(k, QN__EXPR_CAST, dtype, a);
}
// The bits of a float, and the float of these bits.
static inline qn__mval_t kbits(qn__math_builder_t* k, qn__mval_t a) {
  return qn__mk_cast(k, QN__EXPR_BITCAST, k->u, a);
}
static inline qn__mval_t kfrom_bits(qn__math_builder_t* k, qn__mval_t a) {
  return qn__mk_cast(k, QN__EXPR_BITCAST, k->f, a);
}
static inline qn__mval_t khigh(qn__math_builder_t* k, qn__mval_t a) {
  return qn__mk_op(k, QN__MATH_OP_HIGH, QN_DTYPE_U32, a, NULL, NULL);
}
static inline qn__mval_t klow(qn__math_builder_t* k, qn__mval_t a) {
  return qn__mk_op(k, QN__MATH_OP_LOW, QN_DTYPE_U32, a, NULL, NULL);
}
static inline qn__mval_t kjoin(qn__math_builder_t* k, qn__mval_t high, qn__mval_t low) {
  return qn__mk_op(k, QN__MATH_OP_JOIN, QN_DTYPE_F64, high, low, NULL);
}

// ---- functions

// `function` of `args`, evaluated where `condition` holds for some lane, else `otherwise`.
qn__mval_t qn__mk_call_if(qn__math_builder_t* k, qn__mval_t condition, qn__math_id_t function,
                          const qn__mval_t* args, qn__mval_t otherwise);
qn__mval_t qn__mk_call(qn__math_builder_t* k, qn__math_id_t function, qn_dtype_t dtype,
                       const qn__mval_t* args);
// `step`(… step(state, constant) …, constant), `count` times.
qn__mval_t qn__mk_repeat(qn__math_builder_t* k, qn__mval_t count, qn__math_id_t step,
                         qn__mval_t state, qn__mval_t constant);

// coefficients[0] + x * (coefficients[1] + x * (…)).
qn__mval_t qn__mk_poly(qn__math_builder_t* k, qn__mval_t x, const double* coefficients,
                       size_t count);
#define QN__POLY(k, x, table) qn__mk_poly(k, x, table, sizeof(table) / sizeof((table)[0]))
// The polynomial of `name`_f32 or `name`_f64.
#define QN__POLY_OF(k, x, name) \
  ((k)->is_f64 ? QN__POLY(k, x, name##_f64) : QN__POLY(k, x, name##_f32))

// Returns 1.5 * 2^mantissa_bits + bias. Adding it to a small x rounds x to an integer n. The low
// bits of the sum, which qn__mk_word returns, are then n + bias.
double qn__mk_magic(const qn__math_builder_t* k, int bias);
// The bits of a float, or where exponents are 32-bit words, their lower half.
qn__mval_t qn__mk_word(qn__math_builder_t* k, qn__mval_t x);
// 2^n for a word n + bias.
qn__mval_t qn__mk_power(qn__math_builder_t* k, qn__mval_t word);
// x with the lower half of its mantissa cleared: products of two such are exact.
qn__mval_t qn__mk_head(qn__math_builder_t* k, qn__mval_t x);

// Splits x = 2^k (1 + f) with 3/4 <= 1 + f < 3/2 and f exact, for x positive and finite, and not
// denormal unless `with_denormals`. With AVX-512 x may be any number: k is -infinity for zero and
// infinity for infinity, and f is NaN where x has no logarithm.
typedef struct qn__msplit {
  qn__mval_t k;  // as a float
  qn__mval_t f;
} qn__msplit_t;
qn__msplit_t qn__mk_split(qn__math_builder_t* k, qn__mval_t x, bool with_denormals);

// Tests that x is finite and not zero. On a GPU by its bits, as a comparison there may take a
// denormal number for zero.
qn__mval_t qn__mk_has_exponent(qn__math_builder_t* k, qn__mval_t x);

// Two-word arithmetic; exact unless it overflows or underflows. (The product of doubles without
// fused multiply-add misses by up to 2^-105 of its value.)
qn__mpair_t qn__mk_two_sum(qn__math_builder_t* k, qn__mval_t a, qn__mval_t b);
// For |a| >= |b|, or a == 0.
qn__mpair_t qn__mk_fast_two_sum(qn__math_builder_t* k, qn__mval_t a, qn__mval_t b);
qn__mpair_t qn__mk_two_product(qn__math_builder_t* k, qn__mval_t a, qn__mval_t b);

// The builder of the same function for values of F64, in an f32 function of a CPU.
qn__math_builder_t qn__mk_as(const qn__math_builder_t* k, qn_dtype_t f);

// ---- pieces that several families share

// How an exponential is multiplied by a power of two.
//
// NORMAL: n is added to the exponent of the factor. Only for results that are normal numbers; a NaN
// becomes another number.
//
// ANY: by two powers of two, of n / 2 and n - n / 2, as no single one reaches from the largest to
// the smallest result. The first product is exact, the second rounds once, if need be to a denormal
// number or to infinity. (Adding the first half to the exponent was tried: it is 1.5 % faster, but
// a NaN then needs a test.)
typedef enum qn__mscale { QN__MSCALE_NORMAL, QN__MSCALE_ANY } qn__mscale_t;
// e^x 2^more for x within the clamps of exp.
qn__mval_t qn__mk_exp(qn__math_builder_t* k, qn__mval_t x, int more, qn__mscale_t scale);
// e^(x.hi + x.lo) for f64 and |x.hi| <= 750.
qn__mval_t qn__mk_exp_pair(qn__math_builder_t* k, qn__mpair_t x);
// log(1 + f) - f for -1/4 <= f < 1/2.
qn__mval_t qn__mk_log_tail(qn__math_builder_t* k, qn__mval_t f);

// m 2^n for an integer n as a float, with one rounding at most, where 3/4 <= |m| < 3/2 or m is a
// shorter number; n is clamped to where the result is finite and not zero, or just beyond.
qn__mval_t qn__mk_ldexp(qn__math_builder_t* k, qn__mval_t m, qn__mval_t n);

// qn__mf_NAME returns the result of the function NAME for its parameters.
#define QN_MATH(name, op, arity, f32, f64, needs) \
  qn__mval_t qn__mf_##name(qn__math_builder_t* k, const qn__mval_t* args);
#include "ir/math/functions.inc"
#undef QN_MATH

#endif  // QUERN_IR_MATH_BUILDER_H_
