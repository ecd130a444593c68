// SPDX-License-Identifier: Apache-2.0
// The math operations with their error bounds, reference functions and arguments, shared by all
// sweeps. Included by those programs: every function here is static.
//
// Holds the table CASES, arguments of every exponent, at the edges of the ranges and at random, and
// the error of a result in units in the last place. The reference is libm: double for f32, long
// double for f64.
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quern/ir.h"

typedef struct {
  qn_op_t op;
  const char* name;
  unsigned arity;
  // 0 asks for the very value.
  double bound_f32, bound_f64;
  // For the range of f64 arguments that matter, besides those of every exponent.
  double low, high;
  double (*reference_f32)(double a, double b, double c);
  long double (*reference_f64)(long double a, long double b, long double c);
} case_t;

// Each reference twice: in double for f32, in long double for f64.
#define REFERENCE(name, expression, expression_l)                              \
  static double name##_f32(double a, double b, double c) {                     \
    (void)b, (void)c;                                                          \
    return (expression);                                                       \
  }                                                                            \
  static long double name##_f64(long double a, long double b, long double c) { \
    (void)b, (void)c;                                                          \
    return (expression_l);                                                     \
  }

REFERENCE(ref_exp, exp(a), expl(a))
REFERENCE(ref_exp2, exp2(a), exp2l(a))
REFERENCE(ref_log, log(a), logl(a))
REFERENCE(ref_log2, log2(a), log2l(a))
REFERENCE(ref_tanh, tanh(a), tanhl(a))
REFERENCE(ref_erf, erf(a), erfl(a))
REFERENCE(ref_sin, sin(a), sinl(a))
REFERENCE(ref_cos, cos(a), cosl(a))
REFERENCE(ref_pow, pow(a, b), powl(a, b))
REFERENCE(ref_sqrt, sqrt(a), (long double)sqrt((double)a))
REFERENCE(ref_rsqrt, 1.0 / sqrt(a), 1.0L / sqrtl(a))
REFERENCE(ref_abs, fabs(a), fabsl(a))
REFERENCE(ref_floor, floor(a), floorl(a))
REFERENCE(ref_ceil, ceil(a), ceill(a))
REFERENCE(ref_round, round(a), roundl(a))
REFERENCE(ref_trunc, trunc(a), truncl(a))
REFERENCE(ref_roundeven, nearbyint(a), nearbyintl(a))
REFERENCE(ref_exp10, (double)powl(10, (long double)a), powl(10, a))
REFERENCE(ref_expm1, expm1(a), expm1l(a))
REFERENCE(ref_sigmoid, 1 / (1 + exp(-a)), 1 / (1 + expl(-a)))
REFERENCE(ref_sinh, sinh(a), sinhl(a))
REFERENCE(ref_cosh, cosh(a), coshl(a))
REFERENCE(ref_log10, log10(a), log10l(a))
REFERENCE(ref_log1p, log1p(a), log1pl(a))
REFERENCE(ref_asinh, asinh(a), asinhl(a))
REFERENCE(ref_acosh, acosh(a), acoshl(a))
REFERENCE(ref_atanh, atanh(a), atanhl(a))
REFERENCE(ref_tan, tan(a), tanl(a))
REFERENCE(ref_asin, asin(a), asinl(a))
REFERENCE(ref_acos, acos(a), acosl(a))
REFERENCE(ref_atan, atan(a), atanl(a))
REFERENCE(ref_atan2, atan2(a, b), atan2l(a, b))
REFERENCE(ref_hypot, hypot(a, b), hypotl(a, b))
REFERENCE(ref_cbrt, cbrt(a), cbrtl(a))
REFERENCE(ref_fmod, fmod(a, b), fmodl(a, b))
REFERENCE(ref_nextafter, (double)nextafterf((float)a, (float)b),
          (long double)nextafter((double)a, (double)b))
REFERENCE(ref_copysign, copysign(a, b), copysignl(a, b))
REFERENCE(ref_fma, (double)fmaf((float)a, (float)b, (float)c),
          (long double)fma((double)a, (double)b, (double)c))
REFERENCE(ref_isnan, isnan(a) ? 1 : 0, isnan(a) ? 1 : 0)
REFERENCE(ref_isinf, isinf(a) ? 1 : 0, isinf(a) ? 1 : 0)
REFERENCE(ref_isfinite, isfinite(a) ? 1 : 0, isfinite(a) ? 1 : 0)

static long double smaller(long double a, long double b) {
  if (isnan(a) || isnan(b)) return (long double)NAN;
  if (a == b) return signbit(a) ? a : b;
  return a < b ? a : b;
}
REFERENCE(ref_min, (double)smaller(a, b), smaller(a, b))
REFERENCE(ref_max, (double)-smaller(-a, -b), -smaller(-a, -b))

// The exponent is i32(b): rounded towards zero, and 0 for NaN.
static long double scaled(long double a, long double b) {
  return ldexpl(a, isnan(b) ? 0 : (int)fmaxl(-6000, fminl(6000, b)));
}
REFERENCE(ref_ldexp, (double)scaled(a, b), scaled(a, b))

#define CASE(OP, name, arity, bound_f32, bound_f64, low, high) \
  {QN_OP_##OP, #name, arity, bound_f32, bound_f64, low, high, ref_##name##_f32, ref_##name##_f64}

static const case_t CASES[] = {
    CASE(EXP, exp, 1, 1.5, 1.5, -750, 715),
    CASE(EXP2, exp2, 1, 1.5, 1.5, -1080, 1030),
    CASE(LOG, log, 1, 1.0, 1.5, 0.25, 4),
    CASE(LOG2, log2, 1, 2.0, 2.0, 0.25, 4),
    CASE(TANH, tanh, 1, 1.5, 2.0, -22, 22),
    CASE(ERF, erf, 1, 1.5, 2.0, -6.5, 6.5),
    CASE(SIN, sin, 1, 1.0, 1.0, -100, 100),
    CASE(COS, cos, 1, 1.0, 1.0, -100, 100),
    CASE(POW, pow, 2, 1.0, 2.0, 0, 4),
    CASE(SQRT, sqrt, 1, 0, 0, 0, 4),
    CASE(RSQRT, rsqrt, 1, 1.5, 1.5, 0, 4),
    CASE(FMA, fma, 3, 0, 0, -2, 2),
    CASE(ABS, abs, 1, 0, 0, -2, 2),
    CASE(FLOOR, floor, 1, 0, 0, -100, 100),
    CASE(CEIL, ceil, 1, 0, 0, -100, 100),
    CASE(ROUND, round, 1, 0, 0, -100, 100),
    CASE(TRUNC, trunc, 1, 0, 0, -100, 100),
    CASE(MIN, min, 2, 0, 0, -2, 2),
    CASE(MAX, max, 2, 0, 0, -2, 2),
    CASE(COPYSIGN, copysign, 2, 0, 0, -2, 2),
    CASE(ISNAN, isnan, 1, 0, 0, -2, 2),
    CASE(ISINF, isinf, 1, 0, 0, -2, 2),
    CASE(ISFINITE, isfinite, 1, 0, 0, -2, 2),
    CASE(ROUNDEVEN, roundeven, 1, 0, 0, -100, 100),
    CASE(EXP10, exp10, 1, 2.0, 2.0, -330, 310),
    CASE(EXPM1, expm1, 1, 2.0, 2.5, -40, 40),
    CASE(SIGMOID, sigmoid, 1, 2.5, 2.5, -110, 110),
    CASE(SINH, sinh, 1, 2.0, 2.0, -20, 20),
    CASE(COSH, cosh, 1, 2.0, 2.0, -20, 20),
    CASE(LOG10, log10, 1, 2.0, 2.0, 0.25, 4),
    CASE(LOG1P, log1p, 1, 1.5, 1.5, -1, 4),
    CASE(ASINH, asinh, 1, 2.0, 2.0, -4, 4),
    CASE(ACOSH, acosh, 1, 2.5, 2.5, 1, 4),
    CASE(ATANH, atanh, 1, 2.0, 2.0, -1, 1),
    CASE(TAN, tan, 1, 2.5, 2.5, -100, 100),
    CASE(ASIN, asin, 1, 3.0, 2.5, -1, 1),
    CASE(ACOS, acos, 1, 1.5, 1.5, -1, 1),
    CASE(ATAN, atan, 1, 2.5, 2.5, -4, 4),
    CASE(ATAN2, atan2, 2, 3.0, 3.0, -4, 4),
    CASE(HYPOT, hypot, 2, 1.5, 1.5, -4, 4),
    CASE(CBRT, cbrt, 1, 1.0, 1.0, -10, 10),
    CASE(FMOD, fmod, 2, 0, 0, -100, 100),
    CASE(LDEXP, ldexp, 2, 0.5, 0.5, -4, 4),
    CASE(NEXTAFTER, nextafter, 2, 0, 0, -4, 4),
};
enum { CASE_COUNT = sizeof(CASES) / sizeof(CASES[0]) };

// -------------------------------------------------------------------------------------- errors

// The distance of a result from the exact value in units of the last place of the exact value;
// infinity for another kind of result (NaN or not, the sign of zero). A result that overflows
// counts as the power of two behind the largest number.
static double ulp_error(bool is_f64, long double got, long double exact) {
  int digits = is_f64 ? DBL_MANT_DIG : FLT_MANT_DIG;
  int lowest = is_f64 ? DBL_MIN_EXP : FLT_MIN_EXP;
  long double beyond = ldexpl(1, is_f64 ? DBL_MAX_EXP : FLT_MAX_EXP);
  if (isnan(exact) || isnan(got)) return isnan(exact) && isnan(got) ? 0 : (double)INFINITY;
  if (signbit(exact) != signbit(got)) return (double)INFINITY;
  if (isinf(exact) && isinf(got)) return 0;
  if (isinf(got) || fabsl(got) > beyond) got = copysignl(beyond, got);
  if (fabsl(exact) > beyond) exact = copysignl(beyond, exact);
  int exponent = 0;
  frexpl(exact, &exponent);
  if (exact == 0 || exponent < lowest) exponent = lowest;
  return (double)(fabsl(got - exact) / ldexpl(1, exponent - digits));
}

// -------------------------------------------------------------------------------------- inputs

static uint64_t random_state;

static uint64_t random_bits(void) {
  uint64_t z = (random_state += UINT64_C(0x9E3779B97F4A7C15));
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

static double random_unit(void) {
  return (double)(random_bits() >> 11) * 0x1p-53;
}

// Three columns of arguments of one type. Both forms are kept: f32 arguments are exact as doubles.
typedef struct {
  bool is_f64;
  size_t count, capacity;
  double* value[3];
  float* narrow[3];
  long double* exact;
} inputs_t;

static void* must(void* memory) {
  if (memory == NULL) {
    fprintf(stderr, "out of memory\n");
    exit(1);
  }
  return memory;
}

static void add(inputs_t* in, double a, double b, double c) {
  if (in->count == in->capacity) {
    in->capacity = in->capacity == 0 ? 4096 : in->capacity * 2;
    for (int i = 0; i < 3; i++) {
      in->value[i] = must(realloc(in->value[i], in->capacity * sizeof(double)));
      in->narrow[i] = must(realloc(in->narrow[i], in->capacity * sizeof(float)));
    }
  }
  double row[3] = {a, b, c};
  for (int i = 0; i < 3; i++) {
    in->narrow[i][in->count] = (float)row[i];
    in->value[i][in->count] = in->is_f64 ? row[i] : (double)(float)row[i];
  }
  in->count++;
}

static void free_inputs(inputs_t* in) {
  for (int i = 0; i < 3; i++) {
    free(in->value[i]);
    free(in->narrow[i]);
  }
  free(in->exact);
}

static double from_bits(bool is_f64, uint64_t bits) {
  if (is_f64) {
    double value = 0;
    memcpy(&value, &bits, sizeof(value));
    return value;
  }
  uint32_t narrow = (uint32_t)bits;
  float value = 0;
  memcpy(&value, &narrow, sizeof(value));
  return (double)value;
}

// A number of any sign and exponent, NaN and infinity among them.
static double random_any(bool is_f64) {
  return from_bits(is_f64, random_bits());
}

static const double EDGES[] = {0.0,
                               1.0,
                               0.5,
                               1.5,
                               2.0,
                               2.5,
                               3.0,
                               3.5,
                               0.25,
                               10.0,
                               0.65,
                               4.0,
                               6.0,
                               88.72283,
                               88.72284,
                               89.0,
                               103.97,
                               104.0,
                               709.782712893384,
                               709.7827128933841,
                               745.13321910194122,
                               745.2,
                               1022.0,
                               1023.5,
                               1024.0,
                               1074.0,
                               1074.5,
                               1075.0,
                               126.0,
                               127.5,
                               128.0,
                               149.0,
                               149.5,
                               150.0,
                               0.49999997,
                               0.49999999999999994,
                               8388607.5,
                               8388609.0,
                               4503599627370495.5,
                               4503599627370497.0,
                               16777215.0,
                               16777217.0,
                               9007199254740991.0,
                               9007199254740993.0,
                               1e5,
                               1e6,
                               100000.01,
                               1000000.1,
                               1e22,
                               1e30,
                               0x1p-149,
                               0x1p-126,
                               0x1.fffffcp-127,
                               0x1.fffffep127,
                               0x1p-1074,
                               0x1p-1022,
                               0x1.ffffffffffffep-1023,
                               0x1.fffffffffffffp1023,
                               0x1.6ac5b262ca1ffp849,
                               0x1.921fb54442d18p+0,
                               0x1.921fb6p+0,
                               0x1.921fb54442d18p+1,
                               0.9999999,
                               1.0000001,
                               0.99999999999999989,
                               1.0000000000000002,
                               (double)INFINITY,
                               (double)NAN};
enum { EDGE_COUNT = sizeof(EDGES) / sizeof(EDGES[0]) };

static void add_edges(const case_t* c, inputs_t* in) {
  for (size_t i = 0; i < 2 * EDGE_COUNT; i++) {
    double a = i % 2 == 0 ? EDGES[i / 2] : -EDGES[i / 2];
    if (c->arity == 1) {
      add(in, a, 0, 0);
      double narrow = (double)(float)a;
      double near = in->is_f64 ? nextafter(a, 0) : (double)nextafterf((float)narrow, 0);
      add(in, near, 0, 0);
      near = in->is_f64 ? nextafter(a, 1e300) : (double)nextafterf((float)narrow, 1e38F);
      add(in, near, 0, 0);
      continue;
    }
    for (size_t j = 0; j < 2 * EDGE_COUNT; j++) {
      double b = j % 2 == 0 ? EDGES[j / 2] : -EDGES[j / 2];
      double third = EDGES[random_bits() % EDGE_COUNT];
      add(in, a, b, random_bits() % 2 == 0 ? third : -third);
    }
  }
}

// Every sign and exponent, with random mantissas.
static void add_all_exponents(inputs_t* in, size_t each) {
  unsigned bits = in->is_f64 ? 52 : 23;
  uint64_t exponents = in->is_f64 ? 4096 : 512;
  for (uint64_t e = 0; e < exponents; e++) {
    for (size_t i = 0; i < each; i++) {
      uint64_t mantissa = random_bits() >> (64 - bits);
      add(in, from_bits(in->is_f64, (e << bits) | mantissa), random_any(in->is_f64),
          random_any(in->is_f64));
    }
  }
}

static void add_pow(inputs_t* in, size_t count) {
  double reach = in->is_f64 ? 1085 : 152;
  for (size_t i = 0; i < count; i++) {
    // Bases of every size and close to 1, exponents for which the result is in the range.
    double base = i % 2 == 0 ? exp2(reach * (2 * random_unit() - 1))
                             : 1 + ldexp(random_unit() - 0.5, -(int)(random_bits() % 50));
    double limit = fabs(log2((double)(float)base));
    double y = limit > 0 ? (2 * random_unit() - 1) * reach / limit : random_unit();
    if (i % 8 == 3) y = trunc(y);
    add(in, i % 8 == 3 && i % 16 < 8 ? -base : base, y, 0);
  }
}

// Products that nearly cancel the addend, that underflow, and that are far from it on either side.
static void add_fma(inputs_t* in, size_t count) {
  int most = in->is_f64 ? 1070 : 140;
  for (size_t i = 0; i < count; i++) {
    int ea = (int)(random_bits() % (unsigned)(2 * most)) - most;
    int eb = (int)(random_bits() % (unsigned)(2 * most)) - most;
    if (i % 2 == 0) eb = (int)(random_bits() % 120) - 60 - ea;
    if (i % 8 == 1) eb = -(in->is_f64 ? 1074 : 149) - ea + (int)(random_bits() % 120) - 10;
    double a = ldexp(1 + random_unit(), ea), b = ldexp(1 + random_unit(), eb);
    if (i % 16 == 5) a = ldexp(1 + (double)(random_bits() % 64) / 64, ea);
    if (!in->is_f64) a = (double)(float)a, b = (double)(float)b;
    double c = -(a * b);
    if (i % 4 == 1) c = ldexp(1 + random_unit(), ea + eb - (int)(random_bits() % 130) + 65);
    if (i % 4 == 2) c = in->is_f64 ? nextafter(c, 0) : (double)nextafterf((float)c, 0);
    if (i % 4 == 3) c = ldexp(1.0, ea + eb - (in->is_f64 ? 53 : 24) + (int)(random_bits() % 4));
    add(in, random_bits() % 2 == 0 ? a : -a, b, random_bits() % 2 == 0 ? c : -c);
  }
}

// Operands of like size, and second operands that are small.
static void add_pairs(inputs_t* in, size_t count) {
  int most = in->is_f64 ? 1000 : 120;
  for (size_t i = 0; i < count; i++) {
    int e = (int)(random_bits() % (unsigned)(2 * most)) - most;
    double a = ldexp(1 + random_unit(), e);
    double b = ldexp(1 + random_unit(), e - (int)(random_bits() % 60) + (i % 4 == 0 ? 30 : 0));
    if (i % 4 == 1) b = trunc((random_unit() - 0.5) * 4 * most);
    if (i % 8 == 3) b = a * (double)(1 + random_bits() % 3);
    add(in, random_bits() % 2 == 0 ? a : -a, random_bits() % 2 == 0 ? b : -b, 0);
  }
}

static inputs_t make_inputs(const case_t* c, bool is_f64, size_t scale) {
  inputs_t in = {.is_f64 = is_f64};
  random_state = 42;
  add_edges(c, &in);
  add_all_exponents(&in, (is_f64 ? 32 : 400) * scale);
  if (c->op == QN_OP_POW) add_pow(&in, 30000 * scale);
  if (c->arity == 2) add_pairs(&in, 30000 * scale);
  if (c->op == QN_OP_FMA) add_fma(&in, 60000 * scale);
  if (c->arity == 1) {
    for (size_t i = 0; i < 30000 * scale; i++) {
      add(&in, c->low + (c->high - c->low) * random_unit(), 0, 0);
    }
  }
  if (c->op == QN_OP_SIN || c->op == QN_OP_COS || c->op == QN_OP_TAN) {
    // The neighbours of the multiples of pi/2, where the reduction cancels most.
    for (size_t i = 0; i < 20000 * scale; i++) {
      double n = i < 10000 ? (double)i : (double)(random_bits() >> (random_bits() % 50 + 12));
      add(&in, (double)((long double)n * 1.57079632679489661923132169163975144L), 0, 0);
    }
  }
  while (in.count % 128 != 0) add(&in, 1, 1, 1);
  in.exact = must(calloc(in.count, sizeof(long double)));
  for (size_t i = 0; i < in.count; i++) {
    double a = in.value[0][i], b = in.value[1][i], third = in.value[2][i];
    in.exact[i] =
        is_f64 ? c->reference_f64(a, b, third) : (long double)c->reference_f32(a, b, third);
  }
  return in;
}

typedef struct {
  double worst;
  double argument[3];
  long double got, exact;
} result_t;

static void judge(const case_t* c, bool is_f64, const double* arguments, long double got,
                  long double exact, result_t* result) {
  if (!is_f64) {
    // This one is asked for as the rounded value.
    if (c->op == QN_OP_SQRT) exact = (float)exact;
    // The nearest number, sign of zero included: no more than half a unit off, and the common case.
    float nearest = (float)exact, narrow = (float)got;
    if (result->worst >= 0.5 && memcmp(&nearest, &narrow, sizeof(narrow)) == 0) return;
  }
  double error = ulp_error(is_f64, got, exact);
  if (error > result->worst) {
    *result = (result_t){error, {arguments[0], arguments[1], arguments[2]}, got, exact};
  }
}
