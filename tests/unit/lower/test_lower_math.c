// SPDX-License-Identifier: Apache-2.0
// tests/unit/lower/test_lower_math.c: tests of the pass `lower_math`: its arithmetic keeps the
// error bounds of docs/math.md, for machines with and without fma and for GPUs, and it evaluates
// nothing that the program does not.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "ir/arith.h"
#include "ir/interpret.h"
#include "ir/math/math.h"
#include "quern/lower.h"
#include "tests/math_cases.c"
#include "tests/support/sanitized.h"

static void fail_unless(qn_status_t status) {
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
}

static qn_module_t* lower_text(const char* text, const char* passes, bool has_fma) {
  qn_module_t* module = NULL;
  qn_module_t* lowered = NULL;
  fail_unless(qn_module_parse(text, strlen(text), NULL, &module));
  qn_machine_t machine = {.struct_size = sizeof machine, .has_fma = has_fma};
  qn_lower_options_t options = {.struct_size = sizeof options, .machine = &machine};
  fail_unless(qn_module_lower(module, passes, &options, &lowered));
  qn_module_release(module);
  return lowered;
}

static void call(const qn_module_t* module, const int64_t* symbols, const uint64_t* params) {
  qn__interpret_args_t args = {.params = params, .symbols = symbols, .warp_size = 32};
  fail_unless(qn__interpret(module->functions[0], &args, qn_allocator_default()));
}

#define P(array) ((uint64_t)(uintptr_t)(array))

// ------------------------------------------------------------------------------------ error bounds

// Keeps the first arguments, which are edges, and a part of the others: the interpreter is slow.
static void thin(inputs_t* in, size_t first_count, size_t step) {
  size_t count = 0;
  for (size_t i = 0; i < in->count; i += i < first_count ? 1 : step, ++count) {
    for (int k = 0; k < 3; ++k) {
      in->value[k][count] = in->value[k][i];
      in->narrow[k][count] = in->narrow[k][i];
    }
    in->exact[count] = in->exact[i];
  }
  in->count = count;
}

// Arguments are those of the tests of quern's generators.
static void sweep(const case_t* c, bool is_f64, const char* passes, bool has_fma) {
  inputs_t in = make_inputs(c, is_f64, 1);
  thin(&in, 400, IS_SANITIZED ? 601 : 67);
  const char* dtype = is_f64 ? "f64" : "f32";
  const char* second = c->op == QN_OP_LDEXP ? ", i32(b[i])" : c->arity > 1 ? ", b[i]" : "";
  char text[512];
  (void)snprintf(text, sizeof text,
                 "func f(a: %s[n], b: %s[n], out y: %s[n]) {\n"
                 "  parallel i in 0..n { y[i] = %s(a[i]%s); }\n"
                 "}\n",
                 dtype, dtype, dtype, c->name, second);
  qn_module_t* module = lower_text(text, passes, has_fma);
  void* out = must(calloc(in.count, is_f64 ? sizeof(double) : sizeof(float)));
  uint64_t params[3] = {0, 0, P(out)};
  for (int i = 0; i < 2; ++i) params[i] = is_f64 ? P(in.value[i]) : P(in.narrow[i]);
  call(module, (int64_t[]){(int64_t)in.count}, params);
  result_t result = {.worst = 0};
  for (size_t i = 0; i < in.count; ++i) {
    const double arguments[3] = {in.value[0][i], in.value[1][i], 0};
    long double got = is_f64 ? (long double)((double*)out)[i] : (long double)((float*)out)[i];
    judge(c, is_f64, arguments, got, in.exact[i], &result);
  }
  double bound = is_f64 ? c->bound_f64 : c->bound_f32;
  if (!(result.worst <= bound)) {
    fail_msg("%s %s(%a, %a) after %s is %La: %g units of %g", dtype, c->name, result.argument[0],
             result.argument[1], passes, result.got, result.worst, bound);
  }
  free(out);
  free_inputs(&in);
  qn_module_release(module);
}

// Returns whether the operator is a function that the pass lowers, or fmod, which stays.
static bool is_function(const case_t* c) {
  qn__math_id_t id;
  return qn__math_find(c->op, QN_DTYPE_F32, &id);
}

static void bounds_are_kept(void** state) {
  (void)state;
  size_t count = 0;
  for (size_t i = 0; i < CASE_COUNT; ++i) {
    if (!is_function(&CASES[i])) continue;
    ++count;
    for (int f64 = 0; f64 < 2; ++f64) {
      sweep(&CASES[i], f64 != 0, "scalar", true);
      sweep(&CASES[i], f64 != 0, "scalar", false);
      sweep(&CASES[i], f64 != 0, "gpu,lower_math", true);
    }
  }
  assert_true(count >= 28);
}

// Narrow floats are computed as f32, and rounded once more.
static void narrow_floats_are_lowered(void** state) {
  (void)state;
  qn_module_t* module = lower_text(
      "func f(x: f32[n], out h: f16[n], out b: bf16[n], out e: f16[n]) {\n"
      "  for i in 0..n { h[i] = exp(f16(x[i])); b[i] = tanh(bf16(x[i]));\n"
      "    e[i] = nextafter(f16(x[i]), f16(10.0)); }\n"
      "}\n",
      "lower_math", true);
  enum { n = 5 };
  float x[n] = {0, 1, -2, 0.5F, 9};
  uint16_t h[n], b[n], e[n];
  call(module, (int64_t[]){n}, (uint64_t[]){P(x), P(h), P(b), P(e)});
  for (int i = 0; i < n; ++i) {
    double got = qn__scalar_from_bits(QN_DTYPE_F16, h[i]).f;
    assert_true(fabs(got - exp((double)x[i])) <= 1e-3 * exp((double)x[i]));
    got = qn__scalar_from_bits(QN_DTYPE_BF16, b[i]).f;
    assert_true(fabs(got - tanh((double)x[i])) <= 8e-3 * fabs(tanh((double)x[i])));
    got = qn__scalar_from_bits(QN_DTYPE_F16, e[i]).f;
    assert_true(got > (double)x[i] && got < (double)x[i] + 0.01);
  }
  qn_module_release(module);
}

// ------------------------------------------------------------------------------------ places

// Runs a function of x: f32[n] and out y: f32[n] as written and lowered.
static void keeps(const char* body) {
  char text[1024];
  (void)snprintf(text, sizeof text, "func f(x: f32[n], out y: f32[n]) {\n%s\n}\n", body);
  qn_module_t* plain = NULL;
  fail_unless(qn_module_parse(text, strlen(text), NULL, &plain));
  qn_module_t* lowered = lower_text(text, "lower_math", true);
  enum { n = 7 };
  float x[n] = {0.25F, -1, 2, 0.5F, 1e6F, -3, 0.75F};
  float want[n] = {0}, have[n] = {0};
  call(plain, (int64_t[]){n}, (uint64_t[]){P(x), P(want)});
  call(lowered, (int64_t[]){n}, (uint64_t[]){P(x), P(have)});
  for (int i = 0; i < n; ++i) {
    bool is_same = (isnan(want[i]) && isnan(have[i])) || want[i] == have[i] ||
                   fabsf(want[i] - have[i]) <= 1e-5F * fabsf(want[i]);
    if (!is_same) fail_msg("%s\ny[%d] is %a, not %a", body, i, (double)have[i], (double)want[i]);
  }
  char* printed = NULL;
  fail_unless(qn_module_print(lowered, &printed, NULL));
  static const char* const gone[] = {"exp(", "log(", "sin(", "cos(", "pow("};
  for (size_t i = 0; i < QN_COUNT_OF(gone); ++i) {
    if (strstr(printed, gone[i])) fail_msg("%s is left in\n%s", gone[i], printed);
  }
  qn_text_free(printed);
  qn_module_release(lowered);
  qn_module_release(plain);
}

// The interpreter traps loads outside of a buffer.
static void nothing_new_is_evaluated(void** state) {
  (void)state;
  keeps("for i in 0..n { y[i] = i + 1 < n ? exp(x[i + 1]) : sin(x[i]); }");
  keeps("for i in 0..n { y[i] = i + 1 < n && exp(x[i + 1]) > 1.0 ? 1.0 : 2.0; }");
  keeps("for i in 0..n { y[i] = i + 1 >= n || log(x[i + 1]) > 0.0 ? 1.0 : 2.0; }");
  keeps(
      "for i in 0..n { y[i] = i > 2 ? (i + 3 < n ? exp(x[i + 3]) : cos(x[i - 3])) : "
      "(i + 4 < n && pow(x[i + 4], 2.0) > 1.0 ? 3.0 : exp(exp(x[i]))); }");
  keeps(
      "for i in 0..n { y[i] = i < n - 1 ? (sum j in 0..n - i - 1 { exp(x[i + j + 1] * 1e-6) }) : "
      "0.0; }");
}

static void every_place_is_lowered(void** state) {
  (void)state;
  keeps("for i in 0..i64(exp(f32(1.9))) { y[i] = f32(i); }");
  keeps("if exp(x[0]) > 1.0 { y[0] = 1.0; } else { y[0] = sin(x[1]); }");
  keeps(
      "alloc s: f32[1] in local; s[0] = 4.0;\n"
      "while exp(s[0]) > 2.0 { s[0] = s[0] - 1.0; y[1] = y[1] + exp(s[0]); }\n"
      "y[0] = s[0];");
  keeps(
      "let t = sum j in 0..n { let u = exp(x[j] * 1e-6); u * sin(x[j]) };\n"
      "for i in 0..n { y[i] = t; }");
  keeps(
      "let t = max j in 0..i64(exp(f32(1.5))) { sum k in 0..j { cos(x[k]) } };\n"
      "for i in 0..n { y[i] = t; }");
  keeps(
      "let top, at = argmax j in 0..n { sin(x[j]) };\n"
      "for i in 0..n { y[i] = exp(top) + f32(at); }");
  keeps("assert exp(x[0]) > 1.0, \"small\";\ny[i64(exp(x[0]))] = exp(x[i64(exp(x[3]))]);");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bounds_are_kept),
      cmocka_unit_test(narrow_floats_are_lowered),
      cmocka_unit_test(nothing_new_is_evaluated),
      cmocka_unit_test(every_place_is_lowered),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
