// SPDX-License-Identifier: Apache-2.0
// ir/arith_float.c: floats: rounding, bit patterns, conversions, operators.
//
// Not here: integers (arith.c). A value is held exactly in a double. f32 is computed in C's float
// or, for the functions of libm, in double and then rounded; f64 functions are computed in long
// double and then rounded. f16 and bf16 have no arithmetic of their own: operands are widened to
// f32 and the f32 result is rounded once more. Conversions to them are rounded once, whatever they
// come from. So are those to the floats of 8 and 4 bits, which are converted only: one beyond their
// largest number becomes an infinity in f8e5m2, and NaN in f8e4m3fn, which has no infinities.
// f4e2m1fn has neither: its largest number stands for those beyond, and -0 for NaN.
#include <assert.h>
#include <math.h>

#include "ir/arith.h"

static_assert(sizeof(float) == 4 && sizeof(double) == 8, "IEEE binary32 and binary64");

// ------------------------------------------------------------------------------------ rounding

// Rounds to a narrow format. nearbyint rounds to even in the default rounding mode, which the
// library never changes.
static double round_narrow(qn_dtype_t dtype, double value) {
  qn__float_format_t format = qn__float_format(dtype);
  double beyond = qn__float_has_infinity(dtype) ? (double)INFINITY
                  : qn__float_has_nan(dtype)    ? (double)NAN
                                                : format.largest;
  if (isinf(value)) return copysign(beyond, value);
  if (isnan(value) && !qn__float_has_nan(dtype)) return -0.0;
  if (value == 0 || isnan(value)) return value;
  int exponent;
  (void)frexp(value, &exponent);  // value = m * 2^exponent, 0.5 <= |m| < 1
  if (exponent <= format.min_exponent) exponent = format.min_exponent + 1;  // denormal
  int unit = exponent - format.precision;
  double rounded = ldexp(nearbyint(ldexp(value, -unit)), unit);
  return fabs(rounded) > format.largest ? copysign(beyond, value) : rounded;
}

double qn__round_float(qn_dtype_t dtype, double value) {
  if (dtype == QN_DTYPE_F64) return value;
  if (dtype == QN_DTYPE_F32) return isnan(value) ? value : (double)(float)value;
  return round_narrow(dtype, value);
}

// Rounds the result of an operation, to f32 first where it is computed in f32.
static double round_result(qn_dtype_t dtype, double value) {
  if (dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16) value = qn__round_float(QN_DTYPE_F32, value);
  return qn__round_float(dtype, value);
}

static uint64_t double_bits(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static double bits_double(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// `value` is representable. NaNs keep their sign and the leading bits of their payload.
static uint64_t narrow_to_bits(qn_dtype_t dtype, double value) {
  assert(isnan(value) || qn__round_float(dtype, value) == value);
  qn__float_format_t layout = qn__float_format(dtype);
  uint32_t m = (uint32_t)layout.precision - 1;
  uint64_t wide = double_bits(value);
  uint64_t sign = (wide >> 63) << (layout.bits - 1);
  uint64_t all_ones = (UINT64_C(1) << (layout.bits - 1 - m)) - 1;
  uint64_t mantissa = (wide & ((UINT64_C(1) << 52) - 1)) >> (52 - m);
  if (isnan(value)) {
    if (!qn__float_has_infinity(dtype)) return sign | ((UINT64_C(1) << (layout.bits - 1)) - 1);
    if (mantissa == 0) mantissa = UINT64_C(1) << (m - 1);
    return sign | all_ones << m | mantissa;
  }
  if (isinf(value)) return sign | all_ones << m;
  if (value == 0) return sign;
  int exponent;
  (void)frexp(value, &exponent);
  int biased = exponent - 1 + layout.bias;
  if (biased > 0) return sign | (uint64_t)biased << m | mantissa;
  return sign | (uint64_t)ldexp(fabs(value), layout.bias - 1 + (int)m);
}

static double narrow_from_bits(qn_dtype_t dtype, uint64_t bits) {
  qn__float_format_t layout = qn__float_format(dtype);
  uint32_t m = (uint32_t)layout.precision - 1;
  uint64_t all_ones = (UINT64_C(1) << (layout.bits - 1 - m)) - 1;
  uint64_t mantissa = bits & ((UINT64_C(1) << m) - 1);
  uint64_t exponent = bits >> m & all_ones;
  uint64_t sign = (bits >> (layout.bits - 1) & 1) << 63;
  bool is_last = mantissa == (UINT64_C(1) << m) - 1 && qn__float_has_nan(dtype);
  if (exponent == all_ones && (qn__float_has_infinity(dtype) || is_last)) {
    return bits_double(sign | UINT64_C(0x7FF) << 52 | mantissa << (52 - m));
  }
  if (exponent == 0) {
    double magnitude = ldexp((double)mantissa, 1 - layout.bias - (int)m);
    return sign ? -magnitude : magnitude;
  }
  uint64_t wide_exponent = exponent + 1023 - (uint64_t)layout.bias;
  return bits_double(sign | wide_exponent << 52 | mantissa << (52 - m));
}

uint64_t qn__scalar_to_bits(qn_dtype_t dtype, qn__ir_scalar_t value) {
  if (dtype == QN_DTYPE_F64) return double_bits(value.f);
  if (qn__dtype_is_real(dtype)) return narrow_to_bits(dtype, value.f);
  return (uint64_t)value.i & qn__width_mask(dtype);
}

qn__ir_scalar_t qn__scalar_from_bits(qn_dtype_t dtype, uint64_t bits) {
  if (dtype == QN_DTYPE_F64) return (qn__ir_scalar_t){.f = bits_double(bits)};
  if (qn__dtype_is_real(dtype)) return (qn__ir_scalar_t){.f = narrow_from_bits(dtype, bits)};
  return (qn__ir_scalar_t){.i = qn__wrap_int(dtype, qn__as_signed(bits & qn__width_mask(dtype)))};
}

// ------------------------------------------------------------------------------------ conversion

// Truncates; beyond the range gives the nearest bound; NaN gives 0.
static int64_t float_to_int(qn_dtype_t to, double value) {
  if (isnan(value)) return 0;
  double truncated = trunc(value);
  // 2^63 and 2^64 are exact in double, the largest integers are not.
  if (to == QN_DTYPE_U64) {
    if (truncated >= 0x1p64) return qn__as_signed(UINT64_MAX);
    return truncated <= 0 ? 0 : qn__as_signed((uint64_t)truncated);
  }
  if (truncated >= (to == QN_DTYPE_I64 ? 0x1p63 : (double)qn__int_max(to))) return qn__int_max(to);
  if (truncated <= (double)qn__int_min(to)) return qn__int_min(to);
  return (int64_t)truncated;
}

// Converts a magnitude to double by truncation, and sets the last bit if any bit was lost (a sticky
// bit). Rounding the result to fewer bits then equals rounding once.
static double jammed(uint64_t magnitude) {
  enum { CUT = 12 };
  const uint64_t rest = (UINT64_C(1) << CUT) - 1;
  if (magnitude >> 53 == 0 || (magnitude & rest) == 0) return (double)magnitude;
  return (double)((magnitude & ~rest) | UINT64_C(1) << (CUT - 1));
}

static double int_to_float(qn_dtype_t from, int64_t value, qn_dtype_t to) {
  bool is_wide = from == QN_DTYPE_U64;
  if (to == QN_DTYPE_F64) return is_wide ? (double)(uint64_t)value : (double)value;
  if (to == QN_DTYPE_F32) return (double)(is_wide ? (float)(uint64_t)value : (float)value);
  bool is_negative = !is_wide && value < 0;
  double magnitude = jammed(is_negative ? 0 - (uint64_t)value : (uint64_t)value);
  return qn__round_float(to, is_negative ? -magnitude : magnitude);
}

// A NaN becomes a quiet one, as by the conversions of every processor. That of an 8-bit float has
// no payload.
static double float_to_float(qn_dtype_t from, double value, qn_dtype_t to) {
  bool is_small = qn__dtype_is_stored(from) || qn__dtype_is_stored(to);
  if (isnan(value) && from != to && is_small && qn__float_has_nan(to))
    return copysign((double)NAN, value);
  if (isnan(value) && from != to && qn__float_has_nan(to)) {
    return bits_double(double_bits(value) | UINT64_C(1) << 51);
  }
  return qn__round_float(to, value);
}

qn__ir_scalar_t qn__scalar_cast(qn_dtype_t from, qn__ir_scalar_t value, qn_dtype_t to) {
  bool is_from_float = qn__dtype_is_real(from);
  if (to == QN_DTYPE_BOOL) {
    return (qn__ir_scalar_t){.i = is_from_float ? value.f != 0 : value.i != 0};
  }
  if (qn__dtype_is_real(to)) {
    return (qn__ir_scalar_t){.f = is_from_float ? float_to_float(from, value.f, to)
                                                : int_to_float(from, value.i, to)};
  }
  return (qn__ir_scalar_t){.i = is_from_float ? float_to_int(to, value.f)
                                              : qn__wrap_int(to, value.i)};
}

// ------------------------------------------------------------------------------------ operators

static double min_max(qn_op_t op, double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) ? a : b;
  if (a == b) return (op == QN_OP_MIN) == (signbit(a) != 0) ? a : b;
  return (op == QN_OP_MIN) == (a < b) ? a : b;
}

// Computes operators whose result is exact or correctly rounded in f64. False: not one of them.
static bool exact_op(qn_op_t op, double a, double b, double* out) {
  static double (*const functions[QN_OP_COUNT])(double) = {
      [QN_OP_ABS] = fabs,    [QN_OP_FLOOR] = floor, [QN_OP_CEIL] = ceil,
      [QN_OP_ROUND] = round, [QN_OP_TRUNC] = trunc, [QN_OP_ROUNDEVEN] = nearbyint,
  };
  if (functions[op]) {
    *out = functions[op](a);
  } else if (op == QN_OP_MIN || op == QN_OP_MAX) {
    *out = min_max(op, a, b);
  } else if (op == QN_OP_NEG) {
    *out = -a;
  } else if (op == QN_OP_FMOD) {
    *out = fmod(a, b);
  } else if (op == QN_OP_COPYSIGN) {
    *out = copysign(a, b);
  } else {
    return false;
  }
  return true;
}

// a * 2^n, exact or beyond every dtype: it is rounded once, by the conversion to the dtype.
static long double scaled(double a, double n) {
  return ldexpl((long double)a, (int)fmax(fmin(n, 6000), -6000));
}

// Steps through the bits of the dtype, which are ordered as the magnitudes.
static double next_after(qn_dtype_t dtype, double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) ? a : b;
  if (a == b) return b;
  uint64_t bits = qn__scalar_to_bits(dtype, (qn__ir_scalar_t){.f = a});
  if (a == 0) {
    bits = qn__scalar_to_bits(dtype, (qn__ir_scalar_t){.f = copysign(0.0, b)}) | 1;
  } else {
    bits += (a < b) == (a > 0) ? UINT64_C(1) : UINT64_MAX;
  }
  return qn__scalar_from_bits(dtype, bits).f;
}

static double inverse_root(double x) {
  return 1 / sqrt(x);
}
static long double inverse_rootl(long double x) {
  return 1 / sqrtl(x);
}
static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}
static long double sigmoidl(long double x) {
  return 1 / (1 + expl(-x));
}
static long double power_of_tenl(long double x) {
  return powl(10, x);
}
static double power_of_ten(double x) {
  return (double)powl(10, (long double)x);
}

// The functions of the C library that give the reference: for f32 in double, for f64 in long
// double.
typedef struct reference {
  double (*one)(double);
  long double (*one_l)(long double);
  double (*two)(double, double);
  long double (*two_l)(long double, long double);
} reference_t;

#define ONE(op, name) [QN_OP_##op] = {name, name##l, NULL, NULL}
#define TWO(op, name) [QN_OP_##op] = {NULL, NULL, name, name##l}
static const reference_t references[QN_OP_COUNT] = {
    ONE(RSQRT, inverse_root),
    ONE(EXP, exp),
    ONE(EXP2, exp2),
    ONE(LOG, log),
    ONE(LOG2, log2),
    ONE(TANH, tanh),
    ONE(ERF, erf),
    ONE(SIN, sin),
    ONE(COS, cos),
    ONE(EXPM1, expm1),
    ONE(SIGMOID, sigmoid),
    ONE(SINH, sinh),
    ONE(COSH, cosh),
    ONE(LOG10, log10),
    ONE(LOG1P, log1p),
    ONE(ASINH, asinh),
    ONE(ACOSH, acosh),
    ONE(ATANH, atanh),
    ONE(TAN, tan),
    ONE(ASIN, asin),
    ONE(ACOS, acos),
    ONE(ATAN, atan),
    ONE(CBRT, cbrt),
    ONE(EXP10, power_of_ten),
    TWO(POW, pow),
    TWO(ATAN2, atan2),
    TWO(HYPOT, hypot),
};
#undef ONE
#undef TWO

// Operators that are rounded once, with f32 operands in doubles. A sum, product, quotient or root
// of f32 values that is rounded to double (53 >= 2 * 24 + 2 bits) and then to f32 equals the value
// rounded once. A fused product does not, and is computed in float.
static double rounded_op(qn_op_t op, bool is_f64, double a, double b, double c) {
  switch (op) {
    case QN_OP_ADD:
      return a + b;
    case QN_OP_SUB:
      return a - b;
    case QN_OP_MUL:
      return a * b;
    case QN_OP_DIV:
      return a / b;
    case QN_OP_SQRT:
      return sqrt(a);
    case QN_OP_FMA:
      return is_f64 ? fma(a, b, c) : (double)fmaf((float)a, (float)b, (float)c);
    case QN_OP_LDEXP:
      return (double)scaled(a, b);
    default:
      (void)QN_NEVER(true);
      return 0;
  }
}

double qn__float_op(qn_op_t op, qn_dtype_t dtype, double a, double b, double c) {
  double result;
  if (exact_op(op, a, b, &result)) return result;
  if (op == QN_OP_NEXTAFTER) return next_after(dtype, a, b);
  assert(qn__dtype_is_float(dtype));
  bool is_f64 = dtype == QN_DTYPE_F64;
  const reference_t* reference = &references[op];
  if (reference->one) {
    result = is_f64 ? (double)reference->one_l((long double)a) : reference->one(a);
  } else if (reference->two) {
    result =
        is_f64 ? (double)reference->two_l((long double)a, (long double)b) : reference->two(a, b);
  } else {
    result = rounded_op(op, is_f64, a, b, c);
  }
  return is_f64 ? result : round_result(dtype, result);
}
