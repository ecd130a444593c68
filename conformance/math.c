// conformance/math.c: operators with an error bound (docs/ir.md), against a reference of
// higher precision: the C library's, in double for case_dtypes up to f32 and in long double for
// f64.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "conformance/program.h"
#include "quern/ir.h"

typedef long double exact_t;

static exact_t exact_rsqrt(exact_t x, exact_t y) {
  (void)y;
  return 1.0L / sqrtl(x);
}
#define ONE(name, call)                       \
  static exact_t name(exact_t x, exact_t y) { \
    (void)y;                                  \
    return call(x);                           \
  }
ONE(exact_exp, expl)
ONE(exact_exp2, exp2l)
ONE(exact_log, logl)
ONE(exact_log2, log2l)
ONE(exact_tanh, tanhl)
ONE(exact_erf, erfl)
ONE(exact_sin, sinl)
ONE(exact_cos, cosl)
static exact_t exact_exp10(exact_t x, exact_t y) {
  (void)y;
  return powl(10.0L, x);
}
static exact_t exact_sigmoid(exact_t x, exact_t y) {
  (void)y;
  return 1.0L / (1.0L + expl(-x));
}
ONE(exact_expm1, expm1l)
ONE(exact_sinh, sinhl)
ONE(exact_cosh, coshl)
ONE(exact_log10, log10l)
ONE(exact_log1p, log1pl)
ONE(exact_asinh, asinhl)
ONE(exact_acosh, acoshl)
ONE(exact_atanh, atanhl)
ONE(exact_tan, tanl)
ONE(exact_asin, asinl)
ONE(exact_acos, acosl)
ONE(exact_atan, atanl)
ONE(exact_cbrt, cbrtl)
static exact_t exact_pow(exact_t x, exact_t y) {
  return powl(x, y);
}
static exact_t exact_atan2(exact_t y, exact_t x) {
  return atan2l(y, x);
}
static exact_t exact_hypot(exact_t x, exact_t y) {
  return hypotl(x, y);
}

// The bounds of docs/ir.md, "Error bounds".
static const struct {
  const char* text;
  exact_t (*exact)(exact_t x, exact_t y);
  double f32_bound;
  double f64_bound;
  bool is_binary;
  double scale;  // arguments of the interesting range are within it
} math_ops[] = {
    {"rsqrt", exact_rsqrt, 1.5, 1.5, false, 100.0},
    {"exp", exact_exp, 1.5, 1.5, false, 90.0},
    {"exp2", exact_exp2, 1.5, 1.5, false, 130.0},
    {"log", exact_log, 1.0, 1.5, false, 10.0},
    {"log2", exact_log2, 2.0, 2.0, false, 10.0},
    {"tanh", exact_tanh, 1.5, 2.0, false, 10.0},
    {"erf", exact_erf, 1.5, 2.0, false, 5.0},
    {"sin", exact_sin, 1.0, 1.0, false, 100.0},
    {"cos", exact_cos, 1.0, 1.0, false, 100.0},
    {"pow", exact_pow, 1.0, 2.0, true, 8.0},
    {"exp10", exact_exp10, 2.0, 2.0, false, 40.0},
    {"expm1", exact_expm1, 2.0, 2.5, false, 20.0},
    {"sigmoid", exact_sigmoid, 2.5, 2.5, false, 50.0},
    {"sinh", exact_sinh, 2.0, 2.0, false, 20.0},
    {"cosh", exact_cosh, 2.0, 2.0, false, 20.0},
    {"log10", exact_log10, 2.0, 2.0, false, 10.0},
    {"log1p", exact_log1p, 1.5, 1.5, false, 2.0},
    {"asinh", exact_asinh, 2.0, 2.0, false, 4.0},
    {"acosh", exact_acosh, 2.5, 2.5, false, 4.0},
    {"atanh", exact_atanh, 2.0, 2.0, false, 1.0},
    {"tan", exact_tan, 2.5, 2.5, false, 100.0},
    {"asin", exact_asin, 3.0, 2.5, false, 1.0},
    {"acos", exact_acos, 1.5, 1.5, false, 1.0},
    {"atan", exact_atan, 2.5, 2.5, false, 4.0},
    {"atan2", exact_atan2, 3.0, 3.0, true, 4.0},
    {"hypot", exact_hypot, 1.5, 1.5, true, 4.0},
    {"cbrt", exact_cbrt, 1.0, 1.0, false, 10.0},
};
static const qn_dtype_t case_dtypes[] = {QN_DTYPE_F16, QN_DTYPE_BF16, QN_DTYPE_F32, QN_DTYPE_F64};
enum { COUNT = 12000, TEXT_BYTES = 1024 };

static int precision_of(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_F64 ? 53 : dtype == QN_DTYPE_F32 ? 24 : dtype == QN_DTYPE_F16 ? 11 : 8;
}
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
  return (double)(fabsl(has - wants) / ldexpl(1.0L, exponent - precision_of(dtype) + 1));
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
  bool flushes = dtype == QN_DTYPE_F64 ? c->flushes_f64 : c->flushes_f32;
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
    double value = conf_element(dtype, data, i);
    if (flushes && dtype != QN_DTYPE_F16 && fabs(value) < ldexp(1.0, least_exponent(dtype))) {
      conf_element_set(dtype, data, i, 0.0);
    }
  }
}

static void check(conf_t* c, size_t op, qn_dtype_t dtype, const uint8_t* a, const uint8_t* b,
                  const uint8_t* y) {
  double bound = dtype == QN_DTYPE_F64   ? math_ops[op].f64_bound
                 : dtype == QN_DTYPE_F32 ? math_ops[op].f32_bound
                                         : 0.51;
  bool flushes = dtype == QN_DTYPE_F64 ? c->flushes_f64 : c->flushes_f32;
  double worst = 0.0;
  size_t at = 0;
  for (size_t i = 0; i < COUNT; i++) {
    exact_t x = (exact_t)conf_element(dtype, a, i);
    exact_t exact = math_ops[op].exact(x, (exact_t)conf_element(dtype, b, i));
    double got = conf_element(dtype, y, i);
    bool is_denormal = fabsl(exact) < ldexpl(1.0L, least_exponent(dtype));
    if (flushes && is_denormal && got == 0.0) continue;
    double error = error_of(dtype, exact, got);
    if (error <= worst) continue;
    worst = error;
    at = i;
  }
  if (worst <= bound) return;
  conf_fail(c, "%.3g ulp, the bound is %.3g: %s(%.17g%s%.17g) gave %.17g", worst, bound,
            math_ops[op].text, conf_element(dtype, a, at), math_ops[op].is_binary ? ", " : "; ",
            conf_element(dtype, b, at), conf_element(dtype, y, at));
}

static void run_case(conf_t* c, qn_executable_t* executable, qn_module_t* module, const char* text,
                     const char* name, size_t op, qn_dtype_t dtype) {
  qn_function_t* function = NULL;
  if (executable) {
    CONF_TRY(c, qn_executable_function(executable, module, name, &function));
    conf_keep(c, CONF_KEPT_FUNCTION, function, c->device);
  } else {
    function = conf_function(c, text, name, false);
    if (!function) return;
  }
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
    fill(c, dtype, math_ops[op].scale, 17 * k + 1, host[k]);
    if (!conf_upload(c, memory[k], 0, host[k], size)) return;
    tensors[k] = conf_tensor(c, memory[k], dtype, 1, shape);
    args[k] = qn_value_tensor(&tensors[k]);
  }
  CONF_TRY(c, qn_function_call(function, args, 3, NULL));
  CONF_TRY(c, qn_stream_sync(c->device, NULL));
  if (!conf_download(c, host[2], memory[2], 0, size)) return;
  check(c, op, dtype, host[0], host[1], host[2]);
}

static void run_dtype(conf_t* c, qn_dtype_t dtype, bool is_listing) {
  static char all[CONF_COUNT_OF(math_ops) * TEXT_BYTES];
  char texts[CONF_COUNT_OF(math_ops)][TEXT_BYTES];
  char names[CONF_COUNT_OF(math_ops)][32];
  const char* t = qn_dtype_text(dtype);
  all[0] = '\0';
  bool is_wanted = false;
  for (size_t i = 0; i < CONF_COUNT_OF(math_ops); i++) {
    is_wanted |= !is_listing && conf_wants(c, conf_area_math.name, math_ops[i].text, t);
    (void)snprintf(names[i], sizeof names[i], "ma_%s_%s", math_ops[i].text, t);
    (void)snprintf(texts[i], TEXT_BYTES,
                   "func %s(a: %s[n], b: %s[n], out y: %s[n]) {\n"
                   "  parallel i in 0..n { y[i] = %s(a[i]%s); } }\n",
                   names[i], t, t, t, math_ops[i].text, math_ops[i].is_binary ? ", b[i]" : "");
    strcat(all, texts[i]);
  }
  qn_executable_t* executable = NULL;
  qn_module_t* module = NULL;
  bool is_emitted =
      is_wanted && c->options.form && qn_status_consume(conf_emit(c, all, false)) == QN_STATUS_OK;
  if (is_wanted && !c->options.form) {
    qn_status_t status = qn_module_parse(all, strlen(all), NULL, &module);
    if (qn_ok(status)) {
      status = qn_engine_executable(c->engine, module, c->target, NULL, NULL, &executable);
    }
    // Whatever is wrong is told by the rows, each compiled alone.
    qn_status_free(status);
  }
  for (size_t i = 0; i < CONF_COUNT_OF(math_ops); i++) {
    if (!conf_begin(c, conf_area_math.name, math_ops[i].text, t)) continue;
    if (!c->options.form) {
      run_case(c, executable, module, texts[i], names[i], i, dtype);
    } else if (!is_emitted) {
      conf_ok(c, conf_emit(c, texts[i], false));
    }
    conf_end(c);
  }
  qn_executable_release(executable);
  qn_module_release(module);
}

static void run(conf_t* c, bool is_listing) {
  for (size_t d = 0; d < CONF_COUNT_OF(case_dtypes); d++) run_dtype(c, case_dtypes[d], is_listing);
}

const conf_area_t conf_area_math = {"math", NULL, 0, run};
