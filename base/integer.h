// SPDX-License-Identifier: Apache-2.0
// base/integer.h: operators on integers and bools. Constant folding, the interpreter and launch
// plans share this arithmetic, so that they always agree.
//
// A value takes 64 bits, sign- or zero-extended from its dtype; a u64 is its bit pattern.
// Everything wraps around, shift counts are modulo the width, and a division by zero gives 0.
//
// Not here: floats and conversions (ir/arith_float.c).
#ifndef QUERN_BASE_INTEGER_H_
#define QUERN_BASE_INTEGER_H_

#include "base/dtype.h"

// Casting a uint64_t above INT64_MAX is implementation-defined; gcc and clang wrap.
static inline int64_t qn__as_signed(uint64_t bits) {
  return (int64_t)bits;
}

// Returns a mask of the bits of an integer dtype or bool.
static inline uint64_t qn__width_mask(qn_dtype_t dtype) {
  uint32_t bits = qn__dtype_bits(dtype);
  return bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
}

// Wraps an integer to the width of `dtype` and extends it; bool to 0 or 1.
int64_t qn__wrap_int(qn_dtype_t dtype, int64_t value);

typedef enum qn__int_outcome {
  QN__INT_EXACT,
  // The result, or the quotient of a remainder, exceeds 64 bits.
  QN__INT_OVERFLOW,
  QN__INT_DIVIDED_BY_ZERO,
} qn__int_outcome_t;

// ---- i64, inline: launch plans compute with it in calls

static inline int64_t qn__u64_divide(qn_op_t op, uint64_t a, uint64_t b) {
  uint64_t quotient = a / b;
  uint64_t remainder = a - quotient * b;
  if (op == QN_OP_FLOORMOD || op == QN_OP_TRUNCMOD) return qn__as_signed(remainder);
  if (op == QN_OP_CEILDIV && remainder != 0) quotient++;
  return qn__as_signed(quotient);
}

static inline qn__int_outcome_t qn__i64_divide(qn_op_t op, int64_t a, int64_t b,
                                               int64_t* out_value) {
  *out_value = 0;
  if (b == 0) return QN__INT_DIVIDED_BY_ZERO;
  if (a == INT64_MIN && b == -1) {  // would trap
    if (op != QN_OP_FLOORMOD && op != QN_OP_TRUNCMOD) *out_value = a;
    return QN__INT_OVERFLOW;
  }
  // Neither is negative, as in guards: every rounding is simple.
  if (a >= 0 && b > 0) {
    *out_value = qn__u64_divide(op, (uint64_t)a, (uint64_t)b);
    return QN__INT_EXACT;
  }
  int64_t quotient = a / b, remainder = a % b;
  // The true quotient is below the truncated one.
  bool is_below = remainder != 0 && (remainder < 0) != (b < 0);
  switch (op) {
    case QN_OP_FLOORDIV:
      *out_value = quotient - is_below;
      break;
    case QN_OP_FLOORMOD:
      *out_value = is_below ? remainder + b : remainder;
      break;
    case QN_OP_CEILDIV:
      *out_value = quotient + (remainder != 0 && !is_below);
      break;
    case QN_OP_TRUNCDIV:
      *out_value = quotient;
      break;
    default:
      *out_value = remainder;
      break;
  }
  return QN__INT_EXACT;
}

static inline qn__int_outcome_t qn__int_exact(int64_t value, int64_t* out_value) {
  *out_value = value;
  return QN__INT_EXACT;
}

static inline qn__int_outcome_t qn__int_unless(bool has_overflown) {
  return has_overflown ? QN__INT_OVERFLOW : QN__INT_EXACT;
}

// Return the upper half of a product.
static inline uint64_t qn__u64_mulhi(uint64_t a, uint64_t b) {
  uint64_t a_low = a & UINT32_MAX, a_high = a >> 32, b_low = b & UINT32_MAX, b_high = b >> 32;
  uint64_t left = a_high * b_low + (a_low * b_low >> 32);
  uint64_t right = a_low * b_high + (left & UINT32_MAX);
  return a_high * b_high + (left >> 32) + (right >> 32);
}
static inline int64_t qn__i64_mulhi(int64_t a, int64_t b) {
  // As unsigned numbers, negative ones are 2^64 more.
  uint64_t high = qn__u64_mulhi((uint64_t)a, (uint64_t)b);
  return qn__as_signed(high - (a < 0 ? (uint64_t)b : 0) - (b < 0 ? (uint64_t)a : 0));
}

// Computes an operator of rule NUMERIC, INTEGER, BITWISE or SHIFT on i64. Ignores `b` for an
// operator with one operand.
static inline qn__int_outcome_t qn__i64_op(qn_op_t op, int64_t a, int64_t b, int64_t* out_value) {
  switch (op) {
    case QN_OP_ADD:
      return qn__int_unless(__builtin_add_overflow(a, b, out_value));
    case QN_OP_SUB:
      return qn__int_unless(__builtin_sub_overflow(a, b, out_value));
    case QN_OP_MUL:
      return qn__int_unless(__builtin_mul_overflow(a, b, out_value));
    case QN_OP_FLOORDIV:
    case QN_OP_FLOORMOD:
    case QN_OP_CEILDIV:
    case QN_OP_TRUNCDIV:
    case QN_OP_TRUNCMOD:
      return qn__i64_divide(op, a, b, out_value);
    case QN_OP_MIN:
      return qn__int_exact(a < b ? a : b, out_value);
    case QN_OP_MAX:
      return qn__int_exact(a > b ? a : b, out_value);
    case QN_OP_ABS:
      if (a >= 0) return qn__int_exact(a, out_value);
      return qn__int_unless(__builtin_sub_overflow(0, a, out_value));
    case QN_OP_NEG:
      return qn__int_unless(__builtin_sub_overflow(0, a, out_value));
    case QN_OP_AND:
      return qn__int_exact(a & b, out_value);
    case QN_OP_OR:
      return qn__int_exact(a | b, out_value);
    case QN_OP_XOR:
      return qn__int_exact(a ^ b, out_value);
    case QN_OP_NOT:
      return qn__int_exact(~a, out_value);
    case QN_OP_SHL:
      return qn__int_exact(qn__as_signed((uint64_t)a << (b & 63)), out_value);
    case QN_OP_SHR:
      return qn__int_exact(a >> (b & 63), out_value);  // gcc and clang extend the sign
    case QN_OP_POPCOUNT:
      return qn__int_exact(__builtin_popcountll((uint64_t)a), out_value);
    case QN_OP_CLZ:
      return qn__int_exact(a == 0 ? 64 : __builtin_clzll((uint64_t)a), out_value);
    case QN_OP_CTZ:
      return qn__int_exact(a == 0 ? 64 : __builtin_ctzll((uint64_t)a), out_value);
    case QN_OP_MULHI:
      return qn__int_exact(qn__i64_mulhi(a, b), out_value);
    case QN_OP_ROTL:
      return qn__int_exact(
          qn__as_signed((uint64_t)a << (b & 63) | (uint64_t)a >> (-(uint64_t)b & 63)), out_value);
    default:
      (void)QN_NEVER(true);
      return qn__int_exact(0, out_value);
  }
}

// ---- all dtypes

// Computes the same on any integer dtype, or bool where the operator takes it. False: a division by
// zero.
bool qn__int_op(qn_op_t op, qn_dtype_t dtype, int64_t a, int64_t b, int64_t* out_value);

// Computes an operator of rule COMPARE.
bool qn__int_compare(qn_op_t op, qn_dtype_t dtype, int64_t a, int64_t b);

#endif  // QUERN_BASE_INTEGER_H_
