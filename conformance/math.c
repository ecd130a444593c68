// SPDX-License-Identifier: Apache-2.0
// conformance/math.c: operators with an error bound (docs/ir.md), against a reference of
// higher precision: the C library's, in long double.
#include <float.h>
#include <math.h>
#include <string.h>

#include "conformance/program.h"
#include "quern/ir.h"

typedef long double exact_t;

static exact_t exact_rsqrt(exact_t x) {
  return 1.0L / sqrtl(x);
}
static exact_t exact_exp10(exact_t x) {
  return powl(10.0L, x);
}
static exact_t exact_sigmoid(exact_t x) {
  return 1.0L / (1.0L + expl(-x));
}

// The bounds of docs/ir.md, "Error bounds".
typedef struct math_op {
  const char* text;
  exact_t (*unary)(exact_t x);  // the exact result, or NULL
  exact_t (*binary)(exact_t x, exact_t y);
  double f32_bound;
  double f64_bound;
  double scale;  // arguments of the interesting range are within it
} math_op_t;
static const math_op_t math_ops[] = {
    {"rsqrt", exact_rsqrt, NULL, 1.5, 1.5, 100.0},
    {"exp", expl, NULL, 1.5, 1.5, 90.0},
    {"exp2", exp2l, NULL, 1.5, 1.5, 130.0},
    {"log", logl, NULL, 1.0, 1.5, 10.0},
    {"log2", log2l, NULL, 2.0, 2.0, 10.0},
    {"tanh", tanhl, NULL, 1.5, 2.0, 10.0},
    {"erf", erfl, NULL, 1.5, 2.0, 5.0},
    {"sin", sinl, NULL, 1.0, 1.0, 100.0},
    {"cos", cosl, NULL, 1.0, 1.0, 100.0},
    {"pow", NULL, powl, 1.0, 2.0, 8.0},
    {"exp10", exact_exp10, NULL, 2.0, 2.0, 40.0},
    {"expm1", expm1l, NULL, 2.0, 2.5, 20.0},
    {"sigmoid", exact_sigmoid, NULL, 2.5, 2.5, 50.0},
    {"sinh", sinhl, NULL, 2.0, 2.0, 20.0},
    {"cosh", coshl, NULL, 2.0, 2.0, 20.0},
    {"log10", log10l, NULL, 2.0, 2.0, 10.0},
    {"log1p", log1pl, NULL, 1.5, 1.5, 2.0},
    {"asinh", asinhl, NULL, 2.0, 2.0, 4.0},
    {"acosh", acoshl, NULL, 2.5, 2.5, 4.0},
    {"atanh", atanhl, NULL, 2.0, 2.0, 1.0},
    {"tan", tanl, NULL, 2.5, 2.5, 100.0},
    {"asin", asinl, NULL, 3.0, 2.5, 1.0},
    {"acos", acosl, NULL, 1.5, 1.5, 1.0},
    {"atan", atanl, NULL, 2.5, 2.5, 4.0},
    {"atan2", NULL, atan2l, 3.0, 3.0, 4.0},
    {"hypot", NULL, hypotl, 1.5, 1.5, 4.0},
    {"cbrt", cbrtl, NULL, 1.0, 1.0, 10.0},
};
static const qn_dtype_t case_dtypes[] = {QN_DTYPE_F16, QN_DTYPE_BF16, QN_DTYPE_F32, QN_DTYPE_F64};
enum { COUNT = 12000 };

static int least_exponent(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_F64 ? -1022 : dtype == QN_DTYPE_F16 ? -14 : -126;
}
static exact_t largest(qn_dtype_t dtype) {
  if (dtype == QN_DTYPE_F64) return (exact_t)DBL_MAX;
  if (dtype == QN_DTYPE_F32) return (exact_t)FLT_MAX;
  return dtype == QN_DTYPE_F16 ? 65504.0L : 0x1.fep127L;
}

// The error in units of the exact result's last place; infinite for a wrong kind of number.
static double error_of(qn_dtype_t dtype, exact_t exact, double got) {
  if (isnan(exact) || isnan(got)) return isnan(exact) && isnan(got) ? 0.0 : (double)INFINITY;
  exact_t limit = largest(dtype);
  // The power of two behind the largest number stands for whatever is beyond.
  exact_t behind = 2.0L * powl(2.0L, floorl(log2l(limit)));
  exact_t has = isinf(got) ? copysignl(behind, (exact_t)got) : (exact_t)got;
  exact_t wants = fabsl(exact) > limit ? copysignl(fminl(fabsl(exact), behind), exact) : exact;
  if (wants == 0.0L) return has == 0.0L ? 0.0 : (double)INFINITY;
  int exponent = ilogbl(wants);
  if (exponent < least_exponent(dtype)) exponent = least_exponent(dtype);
  return (double)(fabsl(has - wants) / ldexpl(1.0L, exponent - conf_precision(dtype) + 1));
}

static uint64_t next_random(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

static void fill(const conf_t* c, qn_dtype_t dtype, double scale, uint64_t seed, uint8_t* data) {
  static const double odd[] = {0.0,  -0.0,  1.0,    -1.0,   2.0,   0.5,
                               -0.5, 3.0,   -3.0,   10.0,   1e-20, 1e20,
                               88.7, -88.7, 127.99, -126.0, 0.1,   1.5707963267948966};
  uint64_t state = seed;
  size_t size = qn_dtype_size_bytes(dtype);
  for (size_t i = 0; i < COUNT; i++) {
    uint64_t bits = next_random(&state);
    double unit = (double)(bits >> 11) * 0x1p-53;
    if (i < CONF_COUNT_OF(odd)) {
      conf_element_set(dtype, data, i, odd[i]);
    } else if (i < CONF_COUNT_OF(odd) + 3) {
      const double special[] = {(double)INFINITY, -(double)INFINITY, (double)NAN};
      conf_element_set(dtype, data, i, special[i - CONF_COUNT_OF(odd)]);
    } else if (i % 3 == 0) {
      memcpy(data + i * size, &bits, size);
    } else if (i % 3 == 1) {
      conf_element_set(dtype, data, i, (unit * 2.0 - 1.0) * scale);
    } else {
      double magnitude = ldexp(1.0 + unit, (int)(bits % 40) - 32);
      conf_element_set(dtype, data, i, bits >> 7 & 1 ? -magnitude : magnitude);
    }
    if (conf_is_flushed(c, dtype, conf_element(dtype, data, i))) {
      conf_element_set(dtype, data, i, 0.0);
    }
  }
}

static void check(conf_t* c, const math_op_t* op, qn_dtype_t dtype, const uint8_t* a,
                  const uint8_t* b, const uint8_t* y) {
  double bound = dtype == QN_DTYPE_F64   ? op->f64_bound
                 : dtype == QN_DTYPE_F32 ? op->f32_bound
                                         : 0.51;
  double worst = 0.0;
  size_t at = 0;
  for (size_t i = 0; i < COUNT; i++) {
    exact_t x = (exact_t)conf_element(dtype, a, i);
    exact_t exact = op->unary ? op->unary(x) : op->binary(x, (exact_t)conf_element(dtype, b, i));
    double got = conf_element(dtype, y, i);
    if (got == 0.0 && conf_is_flushed(c, dtype, (double)exact)) continue;
    double error = error_of(dtype, exact, got);
    if (error <= worst) continue;
    worst = error;
    at = i;
  }
  if (worst <= bound) return;
  conf_fail(c, "%.3g ulp, the bound is %.3g: %s(%.17g%s%.17g) gave %.17g", worst, bound, op->text,
            conf_element(dtype, a, at), op->binary ? ", " : "; ", conf_element(dtype, b, at),
            conf_element(dtype, y, at));
}

static void judge(conf_t* c, const conf_program_t* program, qn_function_t* function) {
  const math_op_t* op = program->self;
  qn_dtype_t dtype = qn_dtype_parse(program->variant);
  size_t size = COUNT * qn_dtype_size_bytes(dtype);
  int64_t shape[1] = {COUNT};
  uint8_t* host[3];
  void* memory[3];
  qn_tensor_t tensors[3];
  qn_value_t args[3];
  for (size_t k = 0; k < 3; k++) {
    host[k] = conf_host_memory(c, size);
    memory[k] = conf_device_memory(c, size);
    if (!host[k] || !memory[k]) return;
    fill(c, dtype, op->scale, 17 * k + 1, host[k]);
    if (!conf_upload(c, memory[k], 0, host[k], size)) return;
    tensors[k] = conf_tensor(c, memory[k], dtype, 1, shape);
    args[k] = qn_value_tensor(&tensors[k]);
  }
  CONF_TRY(c, conf_call(c, function, args, 3));
  if (!conf_download(c, host[2], memory[2], 0, size)) return;
  check(c, op, dtype, host[0], host[1], host[2]);
}

static void run(conf_t* c) {
  static conf_rows_t rows;
  for (size_t d = 0; d < CONF_COUNT_OF(case_dtypes); d++) {
    const char* t = qn_dtype_text(case_dtypes[d]);
    for (size_t i = 0; i < CONF_COUNT_OF(math_ops); i++) {
      const math_op_t* op = &math_ops[i];
      const char* text = conf_rows_text(&rows,
                                        "func ma_%s_%s(a: %s[n], b: %s[n], out y: %s[n]) {\n"
                                        "  parallel i in 0..n { y[i] = %s(a[i]%s); } }\n",
                                        op->text, t, t, t, t, op->text, op->binary ? ", b[i]" : "");
      conf_program_t* row = conf_rows_add(&rows, op->text, t, text, NULL);
      row->judge = judge;
      row->self = op;
    }
    conf_rows_run(c, &rows);
  }
}

const conf_area_t conf_area_math = {"math", NULL, 0, run};
