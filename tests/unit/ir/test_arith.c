// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_arith.c: tests the results of every operator and conversion: edge cases, and
// random values against the compiler's own f32 and against exact rounding.
//
// Elsewhere: integers (tests/unit/base/test_integer.c), operators among threads (test_interpret.c).
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdlib.h>

#include "ir/ir.h"
#include "tests/support/random.h"
#include "tests/support/rounding.h"

static uint64_t random_state = 0x2545F4914F6CDD1Du;

static int64_t int_op(qn_op_t op, qn_dtype_t dtype, int64_t a, int64_t b) {
  qn__ir_scalar_t out;
  assert_true(qn__scalar_op(op, dtype, (qn__ir_scalar_t[]){{.i = a}, {.i = b}}, &out));
  return out.i;
}

static double float_op(qn_op_t op, qn_dtype_t dtype, double a, double b, double c) {
  qn__ir_scalar_t out;
  assert_true(qn__scalar_op(op, dtype, (qn__ir_scalar_t[]){{.f = a}, {.f = b}, {.f = c}}, &out));
  return out.f;
}

static void assert_same_float(double a, double b) {
  if (isnan(a) && isnan(b)) return;
  if (a != b || signbit(a) != signbit(b)) fail_msg("%a, expected %a", a, b);
}

static int64_t cast_to_int(qn_dtype_t from, double value, qn_dtype_t to) {
  return qn__scalar_cast(from, (qn__ir_scalar_t){.f = value}, to).i;
}

// ------------------------------------------------------------------------------------ integers

// What integers compute is base/integer.c's, which has its own tests.
static void integers_are_computed_by_their_dtype(void** state) {
  (void)state;
  assert_int_equal(int_op(QN_OP_SUB, QN_DTYPE_U16, 0, 1), 65535);
  assert_int_equal(int_op(QN_OP_NEG, QN_DTYPE_U32, 1, 0), UINT32_MAX);
  assert_int_equal(int_op(QN_OP_GT, QN_DTYPE_U64, -1, 1), 1);
  assert_int_equal(int_op(QN_OP_GT, QN_DTYPE_I64, -1, 1), 0);
  assert_int_equal(int_op(QN_OP_LT, QN_DTYPE_BOOL, 0, 1), 1);
  qn__ir_scalar_t out = {.i = 5};
  assert_false(
      qn__scalar_op(QN_OP_FLOORMOD, QN_DTYPE_I32, (qn__ir_scalar_t[]){{.i = 3}, {.i = 0}}, &out));
  assert_int_equal(out.i, 0);
}

// ------------------------------------------------------------------------------------ rounding

// The nearest of all values of a 16-bit format, ties to the even pattern.
static double nearest(qn_dtype_t dtype, double value) {
  if (isnan(value)) return value;
  double best = 0;
  double best_error = (double)INFINITY;
  uint64_t best_bits = 0;
  // What is half a unit beyond the largest finite value becomes infinite.
  double beyond = dtype == QN_DTYPE_F16 ? 65520.0 : 0x1.FFp127;
  if (fabs(value) >= beyond) return copysign((double)INFINITY, value);
  for (uint64_t bits = 0; bits < 0x8000; bits++) {
    double candidate = qn__scalar_from_bits(dtype, bits).f;
    if (!isfinite(candidate)) break;
    double error = fabs(fabs(value) - candidate);
    if (error < best_error || (error == best_error && (best_bits & 1))) {
      best = candidate;
      best_error = error;
      best_bits = bits;
    }
  }
  return copysign(best, value);
}

static void rounding_is_to_nearest_even(void** state) {
  (void)state;
  const double values[] = {0.0,
                           -0.0,
                           1.0,
                           1.00048828125,
                           1.0009765625 + 0.00048828125,
                           65504.0,
                           65519.99,
                           65520.0,
                           -65520.0,
                           5.96e-8,
                           2.98e-8,
                           2.9802322387695312e-8,
                           2.99e-8,
                           6.1e-5,
                           6.097e-5,
                           0.1,
                           3.14159265,
                           1e-300,
                           1e300,
                           0x1.FEp127,
                           0x1.FEFFp127,
                           0x1.FFp127,
                           0x1p-133,
                           0x1p-134,
                           0x1.8p-134};
  for (size_t i = 0; i < QN_COUNT_OF(values); i++) {
    assert_same_float(qn__round_float(QN_DTYPE_F16, values[i]), nearest(QN_DTYPE_F16, values[i]));
    assert_same_float(qn__round_float(QN_DTYPE_BF16, values[i]), nearest(QN_DTYPE_BF16, values[i]));
  }
  for (int round = 0; round < 60; round++) {
    double value =
        ldexp((double)random_next(&random_state), -(int)(random_next(&random_state) % 100) - 10);
    assert_same_float(qn__round_float(QN_DTYPE_F16, value), nearest(QN_DTYPE_F16, value));
    assert_same_float(qn__round_float(QN_DTYPE_BF16, value), nearest(QN_DTYPE_BF16, value));
  }
  assert_same_float(qn__round_float(QN_DTYPE_F32, 0.1), (double)0.1f);
  assert_same_float(qn__round_float(QN_DTYPE_F32, 1e39), (double)INFINITY);
  assert_same_float(qn__round_float(QN_DTYPE_F64, 0.1), 0.1);
}

static void every_16_bit_pattern_survives(void** state) {
  (void)state;
  const qn_dtype_t dtypes[] = {QN_DTYPE_F16, QN_DTYPE_BF16, QN_DTYPE_I16, QN_DTYPE_U16};
  for (size_t k = 0; k < 4; k++) {
    for (uint64_t bits = 0; bits < 0x10000; bits++) {
      qn__ir_scalar_t value = qn__scalar_from_bits(dtypes[k], bits);
      if (qn__scalar_to_bits(dtypes[k], value) != bits) fail_msg("pattern %#x", (unsigned)bits);
      if (k < 2) assert_same_float(qn__round_float(dtypes[k], value.f), value.f);
    }
  }
}

static void f32_patterns_survive(void** state) {
  (void)state;
  for (int round = 0; round < 100000; round++) {
    uint32_t bits = (uint32_t)random_next(&random_state);
    if (round % 4 == 0) bits &= 0x807FFFFF;  // zero and subnormal
    if (round % 4 == 1) bits |= 0x7F800000;  // infinite and NaN, also signalling
    qn__ir_scalar_t value = qn__scalar_from_bits(QN_DTYPE_F32, bits);
    assert_int_equal(qn__scalar_to_bits(QN_DTYPE_F32, value), bits);
    float same;
    memcpy(&same, &bits, sizeof same);
    assert_same_float(value.f, (double)same);
  }
  uint64_t wide_bits = UINT64_C(0xFFF4000000000001);
  assert_true(qn__scalar_to_bits(QN_DTYPE_F64, qn__scalar_from_bits(QN_DTYPE_F64, wide_bits)) ==
              wide_bits);
}

// ------------------------------------------------------------------------------------ conversion

static void floats_become_integers_by_saturation(void** state) {
  (void)state;
  assert_int_equal(cast_to_int(QN_DTYPE_F32, 3.99, QN_DTYPE_I32), 3);
  assert_int_equal(cast_to_int(QN_DTYPE_F32, -3.99, QN_DTYPE_I32), -3);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, 1e10, QN_DTYPE_I32), INT32_MAX);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, -1e10, QN_DTYPE_I32), INT32_MIN);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, 300, QN_DTYPE_U8), 255);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, -1, QN_DTYPE_U8), 0);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, -0.9, QN_DTYPE_U64), 0);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, 0x1p63, QN_DTYPE_I64), INT64_MAX);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, -0x1p63, QN_DTYPE_I64), INT64_MIN);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, 0x1.FFFFFFFFFFFFFp62, QN_DTYPE_I64),
                   INT64_C(0x7FFFFFFFFFFFFC00));
  assert_int_equal(cast_to_int(QN_DTYPE_F64, 0x1p63, QN_DTYPE_U64), INT64_MIN);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, 0x1p64, QN_DTYPE_U64), -1);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, (double)NAN, QN_DTYPE_I64), 0);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, (double)INFINITY, QN_DTYPE_I8), 127);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, (double)NAN, QN_DTYPE_BOOL), 1);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, 0.25, QN_DTYPE_BOOL), 1);
  assert_int_equal(cast_to_int(QN_DTYPE_F64, -0.0, QN_DTYPE_BOOL), 0);
}

static void integers_become_floats_with_one_rounding(void** state) {
  (void)state;
  qn__ir_scalar_t big = {.i = INT64_C(0x4000004000000001)};  // above the middle of two f32 values
  assert_same_float(qn__scalar_cast(QN_DTYPE_I64, big, QN_DTYPE_F32).f, 0x1.000002p62);
  qn__ir_scalar_t all = {.i = -1};
  assert_same_float(qn__scalar_cast(QN_DTYPE_U64, all, QN_DTYPE_F64).f, 0x1p64);
  assert_same_float(qn__scalar_cast(QN_DTYPE_I64, all, QN_DTYPE_F16).f, -1);
  assert_same_float(qn__scalar_cast(QN_DTYPE_BOOL, (qn__ir_scalar_t){.i = 1}, QN_DTYPE_BF16).f, 1);
  assert_same_float(qn__scalar_cast(QN_DTYPE_I32, (qn__ir_scalar_t){.i = 70000}, QN_DTYPE_F16).f,
                    (double)INFINITY);
  assert_int_equal(qn__scalar_cast(QN_DTYPE_I64, (qn__ir_scalar_t){.i = 0x1FF}, QN_DTYPE_I8).i, -1);
}

// By way of f32 many of these would be a tie first.
static void conversions_to_16_bits_are_rounded_once(void** state) {
  (void)state;
  static const qn_dtype_t sources[] = {[QN_TEST_FROM_F64] = QN_DTYPE_F64,
                                       [QN_TEST_FROM_I32] = QN_DTYPE_I32,
                                       [QN_TEST_FROM_U32] = QN_DTYPE_U32,
                                       [QN_TEST_FROM_I64] = QN_DTYPE_I64,
                                       [QN_TEST_FROM_U64] = QN_DTYPE_U64};
  for (size_t s = 0; s < 2 * QN_COUNT_OF(sources); s++) {
    bool is_bf16 = s % 2 == 1;
    qn_dtype_t from = sources[s / 2], to = is_bf16 ? QN_DTYPE_BF16 : QN_DTYPE_F16;
    if (s / 2 != QN_TEST_FROM_F64 && !is_bf16) continue;
    size_t count = 0;
    qn_test_rounding_t* cases = qn_test_rounding_cases((qn_test_source_t)(s / 2), is_bf16, &count);
    assert_non_null(cases);
    assert_true(count > 10000);
    for (size_t i = 0; i < count; i++) {
      qn__ir_scalar_t value = qn__scalar_cast(from, qn__scalar_from_bits(from, cases[i].from), to);
      uint16_t have = (uint16_t)qn__scalar_to_bits(to, value);
      if (qn_test_rounding_is_right(&cases[i], is_bf16, have)) continue;
      fail_msg("%s of %s %#llx is %#x, not %#x", qn_dtype_text(to), qn_dtype_text(from),
               (unsigned long long)cases[i].from, have, cases[i].to);
    }
    free(cases);
  }
}

// ------------------------------------------------------------------------------------ floats

static double f32_value(void) {
  uint32_t bits = (uint32_t)random_next(&random_state);
  return qn__scalar_from_bits(QN_DTYPE_F32, bits).f;
}

// The compiler's f32 arithmetic is the hardware's.
static void f32_is_rounded_once(void** state) {
  (void)state;
  const qn_dtype_t d = QN_DTYPE_F32;
  for (int round = 0; round < 200000; round++) {
    double a = f32_value();
    double b = round % 3 ? f32_value() : qn__round_float(d, a * (1 + (double)(round % 7) / 8));
    double c = f32_value();
    volatile float x = (float)a;
    volatile float y = (float)b;
    assert_same_float(float_op(QN_OP_ADD, d, a, b, 0), (double)(x + y));
    assert_same_float(float_op(QN_OP_SUB, d, a, b, 0), (double)(x - y));
    assert_same_float(float_op(QN_OP_MUL, d, a, b, 0), (double)(x * y));
    assert_same_float(float_op(QN_OP_DIV, d, a, b, 0), (double)(x / y));
    assert_same_float(float_op(QN_OP_SQRT, d, a, 0, 0), (double)sqrtf(x));
    assert_same_float(float_op(QN_OP_FMA, d, a, b, c), (double)fmaf(x, y, (float)c));
  }
  // Rounding the exact product and sum to double and then to f32 would give the lower neighbour.
  double a = 1 + 0x1p-12;
  double product = 1 + 0x1p-11 + 0x1p-24;  // a * a
  assert_true(a * a == product);
  assert_same_float(float_op(QN_OP_FMA, d, a, a, 0x1p-60), 1 + 0x1p-11 + 0x1p-23);
  assert_same_float(qn__round_float(d, a * a + 0x1p-60), 1 + 0x1p-11);
}

static void f16_is_f32_rounded(void** state) {
  (void)state;
  const qn_dtype_t dtypes[] = {QN_DTYPE_F16, QN_DTYPE_BF16};
  for (int round = 0; round < 60000; round++) {
    qn_dtype_t d = dtypes[round % 2];
    double a = qn__scalar_from_bits(d, random_next(&random_state) & 0xFFFF).f;
    double b = qn__scalar_from_bits(d, random_next(&random_state) & 0xFFFF).f;
    double c = qn__scalar_from_bits(d, random_next(&random_state) & 0xFFFF).f;
    assert_same_float(float_op(QN_OP_MUL, d, a, b, 0),
                      qn__round_float(d, float_op(QN_OP_MUL, QN_DTYPE_F32, a, b, 0)));
    assert_same_float(float_op(QN_OP_FMA, d, a, b, c),
                      qn__round_float(d, float_op(QN_OP_FMA, QN_DTYPE_F32, a, b, c)));
    assert_same_float(float_op(QN_OP_EXP, d, a, 0, 0),
                      qn__round_float(d, float_op(QN_OP_EXP, QN_DTYPE_F32, a, 0, 0)));
  }
}

static void smaller_and_larger_know_nan_and_zero(void** state) {
  (void)state;
  const qn_dtype_t d = QN_DTYPE_F32;
  double nan = (double)NAN;
  assert_same_float(float_op(QN_OP_MIN, d, nan, 1, 0), nan);
  assert_same_float(float_op(QN_OP_MIN, d, 1, nan, 0), nan);
  assert_same_float(float_op(QN_OP_MAX, d, nan, 1, 0), nan);
  assert_same_float(float_op(QN_OP_MIN, d, 0.0, -0.0, 0), -0.0);
  assert_same_float(float_op(QN_OP_MIN, d, -0.0, 0.0, 0), -0.0);
  assert_same_float(float_op(QN_OP_MAX, d, 0.0, -0.0, 0), 0.0);
  assert_same_float(float_op(QN_OP_MAX, d, -0.0, 0.0, 0), 0.0);
  assert_same_float(float_op(QN_OP_MAX, d, -0.0, -0.0, 0), -0.0);
  assert_same_float(float_op(QN_OP_MAX, d, 2, 3, 0), 3);
  assert_same_float(float_op(QN_OP_NEG, d, 0.0, 0, 0), -0.0);
  assert_same_float(float_op(QN_OP_ABS, d, -0.0, 0, 0), 0.0);
  assert_same_float(float_op(QN_OP_COPYSIGN, d, 2, -0.0, 0), -2);
}

static void functions_have_their_special_values(void** state) {
  (void)state;
  double inf = (double)INFINITY;
  const qn_dtype_t dtypes[] = {QN_DTYPE_F16, QN_DTYPE_BF16, QN_DTYPE_F32, QN_DTYPE_F64};
  for (size_t i = 0; i < 4; i++) {
    qn_dtype_t d = dtypes[i];
    assert_same_float(float_op(QN_OP_EXP, d, -inf, 0, 0), 0.0);
    assert_same_float(float_op(QN_OP_EXP2, d, 3, 0, 0), 8);
    assert_same_float(float_op(QN_OP_LOG, d, 0, 0, 0), -inf);
    assert_same_float(float_op(QN_OP_LOG2, d, 8, 0, 0), 3);
    assert_true(isnan(float_op(QN_OP_SQRT, d, -1, 0, 0)));
    assert_same_float(float_op(QN_OP_SQRT, d, -0.0, 0, 0), -0.0);
    assert_same_float(float_op(QN_OP_RSQRT, d, 4, 0, 0), 0.5);
    assert_same_float(float_op(QN_OP_RSQRT, d, 0.0, 0, 0), inf);
    assert_same_float(float_op(QN_OP_TANH, d, inf, 0, 0), 1);
    assert_same_float(float_op(QN_OP_ERF, d, -inf, 0, 0), -1);
    assert_same_float(float_op(QN_OP_SIN, d, -0.0, 0, 0), -0.0);
    assert_same_float(float_op(QN_OP_COS, d, 0, 0, 0), 1);
    assert_same_float(float_op(QN_OP_POW, d, (double)NAN, 0, 0), 1);
    assert_same_float(float_op(QN_OP_POW, d, -2, 3, 0), -8);
    assert_same_float(float_op(QN_OP_FLOOR, d, -1.5, 0, 0), -2);
    assert_same_float(float_op(QN_OP_CEIL, d, -0.5, 0, 0), -0.0);
    assert_same_float(float_op(QN_OP_ROUND, d, 2.5, 0, 0), 3);
    assert_same_float(float_op(QN_OP_ROUND, d, -0.5, 0, 0), -1);
    assert_same_float(float_op(QN_OP_TRUNC, d, -1.5, 0, 0), -1);
    qn__ir_scalar_t out;
    assert_true(qn__scalar_op(QN_OP_ISINF, d, &(qn__ir_scalar_t){.f = -inf}, &out));
    assert_int_equal(out.i, 1);
    assert_true(qn__scalar_op(QN_OP_ISFINITE, d, &(qn__ir_scalar_t){.f = -inf}, &out));
    assert_int_equal(out.i, 0);
  }
  assert_same_float(float_op(QN_OP_EXP, QN_DTYPE_F32, 1, 0, 0), (double)2.7182818284590452f);
  assert_same_float(float_op(QN_OP_EXP, QN_DTYPE_F64, 1, 0, 0), 2.7182818284590452);
}

// ------------------------------------------------------------------------------------ choices

static void comparisons_with_nan_are_false(void** state) {
  (void)state;
  const qn_op_t ops[] = {QN_OP_EQ, QN_OP_LT, QN_OP_LE, QN_OP_GT, QN_OP_GE, QN_OP_NE};
  for (size_t i = 0; i < 6; i++) {
    qn__ir_scalar_t out;
    qn__ir_scalar_t args[2] = {{.f = (double)NAN}, {.f = 1}};
    assert_true(qn__scalar_op(ops[i], QN_DTYPE_F32, args, &out));
    assert_int_equal(out.i, ops[i] == QN_OP_NE);
  }
  qn__ir_scalar_t zeros[2] = {{.f = 0.0}, {.f = -0.0}};
  qn__ir_scalar_t out;
  assert_true(qn__scalar_op(QN_OP_EQ, QN_DTYPE_F32, zeros, &out));
  assert_int_equal(out.i, 1);
}

static void neighbours_are_those_of_the_dtype(void** state) {
  (void)state;
  static const struct {
    qn_dtype_t dtype;
    double a, b, wanted;
  } cases[] = {
      {QN_DTYPE_F16, 1, 2, 1 + 0x1p-10},
      {QN_DTYPE_F16, 1, 0, 1 - 0x1p-11},
      {QN_DTYPE_F16, 0, -1, -0x1p-24},
      {QN_DTYPE_F16, 0x1p-14, 0, 0x1p-14 - 0x1p-24},
      {QN_DTYPE_F16, -0x1p-24, 1, -0.0},
      {QN_DTYPE_F16, 65504, (double)INFINITY, (double)INFINITY},
      {QN_DTYPE_F16, (double)INFINITY, 0, 65504},
      {QN_DTYPE_BF16, 1, 2, 1 + 0x1p-7},
      {QN_DTYPE_BF16, 0, 1, 0x1p-133},
      {QN_DTYPE_F32, 1, 2, 1 + 0x1p-23},
      {QN_DTYPE_F32, -0x1p-149, 0, -0.0},
      {QN_DTYPE_F64, 1, (double)-INFINITY, 1 - 0x1p-53},
      {QN_DTYPE_F64, 0.0, -0.0, -0.0},
      {QN_DTYPE_F64, 1, (double)NAN, (double)NAN},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn__ir_scalar_t args[2] = {{.f = cases[i].a}, {.f = cases[i].b}};
    qn__ir_scalar_t out;
    assert_true(qn__scalar_op(QN_OP_NEXTAFTER, cases[i].dtype, args, &out));
    assert_same_float(out.f, cases[i].wanted);
  }
}

static void scaling_rounds_once(void** state) {
  (void)state;
  static const struct {
    qn_dtype_t dtype;
    double x;
    int32_t n;
    double wanted;
  } cases[] = {
      {QN_DTYPE_F32, 1, -149, 0x1p-149},
      {QN_DTYPE_F32, 1, -150, 0},
      {QN_DTYPE_F32, 1.5, -150, 0x1p-149},
      {QN_DTYPE_F32, 0x1p-149, 276, 0x1p127},
      {QN_DTYPE_F32, -1, 128, (double)-INFINITY},
      {QN_DTYPE_F16, 1, 16, (double)INFINITY},
      {QN_DTYPE_F16, 3, -25, 0x1p-23},
      {QN_DTYPE_F64, 0x1.0000000000001p0, -1074, 0x1p-1074},
      {QN_DTYPE_F64, 0x1p-1074, INT32_MAX, (double)INFINITY},
      {QN_DTYPE_F64, -0x1p1023, INT32_MIN, -0.0},
      {QN_DTYPE_F64, (double)NAN, 1, (double)NAN},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn__ir_scalar_t args[2] = {{.f = cases[i].x}, {.i = cases[i].n}};
    qn__ir_scalar_t out;
    assert_true(qn__scalar_op(QN_OP_LDEXP, cases[i].dtype, args, &out));
    assert_same_float(out.f, cases[i].wanted);
  }
}

static void logic_and_select(void** state) {
  (void)state;
  assert_int_equal(int_op(QN_OP_LOGIC_AND, QN_DTYPE_BOOL, 1, 0), 0);
  assert_int_equal(int_op(QN_OP_LOGIC_OR, QN_DTYPE_BOOL, 1, 0), 1);
  assert_int_equal(int_op(QN_OP_LOGIC_NOT, QN_DTYPE_BOOL, 1, 0), 0);
  qn__ir_scalar_t args[3] = {{.i = 0}, {.f = 1.5}, {.f = 2.5}};
  qn__ir_scalar_t out;
  assert_true(qn__scalar_op(QN_OP_SELECT, QN_DTYPE_F32, args, &out));
  assert_same_float(out.f, 2.5);
}

static void reductions_begin_with_their_neutral_element(void** state) {
  (void)state;
  assert_int_equal(qn__reduce_neutral(QN_REDUCE_MIN, QN_DTYPE_I8).i, 127);
  assert_int_equal(qn__reduce_neutral(QN_REDUCE_MAX, QN_DTYPE_I8).i, -128);
  assert_int_equal(qn__reduce_neutral(QN_REDUCE_MIN, QN_DTYPE_U64).i, -1);
  assert_int_equal(qn__reduce_neutral(QN_REDUCE_MAX, QN_DTYPE_U64).i, 0);
  const qn_reduce_kind_t kinds[] = {QN_REDUCE_SUM, QN_REDUCE_PROD, QN_REDUCE_MIN, QN_REDUCE_MAX};
  for (size_t k = 0; k < 4; k++) {
    qn__ir_scalar_t neutral = qn__reduce_neutral(kinds[k], QN_DTYPE_F32);
    qn__ir_scalar_t value = {.f = -3.25};
    assert_same_float(qn__reduce_step(kinds[k], QN_DTYPE_F32, neutral, value).f, -3.25);
    neutral = qn__reduce_neutral(kinds[k], QN_DTYPE_I16);
    value.i = -7;
    assert_int_equal(qn__reduce_step(kinds[k], QN_DTYPE_I16, neutral, value).i, -7);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(integers_are_computed_by_their_dtype),
      cmocka_unit_test(rounding_is_to_nearest_even),
      cmocka_unit_test(every_16_bit_pattern_survives),
      cmocka_unit_test(f32_patterns_survive),
      cmocka_unit_test(floats_become_integers_by_saturation),
      cmocka_unit_test(integers_become_floats_with_one_rounding),
      cmocka_unit_test(conversions_to_16_bits_are_rounded_once),
      cmocka_unit_test(f32_is_rounded_once),
      cmocka_unit_test(f16_is_f32_rounded),
      cmocka_unit_test(smaller_and_larger_know_nan_and_zero),
      cmocka_unit_test(functions_have_their_special_values),
      cmocka_unit_test(comparisons_with_nan_are_false),
      cmocka_unit_test(neighbours_are_those_of_the_dtype),
      cmocka_unit_test(scaling_rounds_once),
      cmocka_unit_test(logic_and_select),
      cmocka_unit_test(reductions_begin_with_their_neutral_element),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
