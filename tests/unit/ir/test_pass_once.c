// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_once.c: tests of the pass `once` (ir/passes/cpu/once.c).
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support_pass.h"

static const qn__pass_t* const passes[] = {&qn__pass_independent, &qn__pass_once};
static const qn__pass_options_t options = {.vector_bytes = 32, .has_blocks = true};

static void softmax(void** state) {
  (void)state;
  qn_test_expect_all(passes, QN_COUNT_OF(passes), &options,
                     "func f(x: f32[n, m], out y: f32[n, m]) {\n"
                     "  parallel i in 0..n {\n"
                     "    let top = max j in 0..m { x[i, j] };\n"
                     "    let total = sum j in 0..m { exp(x[i, j] - top) };\n"
                     "    let scale = 2.0 / total;\n"
                     "    for k in 0..m { let e = exp(x[i, k] - top); y[i, k] = e * scale; }\n"
                     "  }\n"
                     "}",
                     "alloc sum: f32[1] in local;\n"
                     "sum[0] = 0.0;\n"
                     "for chunk in 0..ceildiv(max(m, 0), 2048) {\n"
                     "let first = chunk * 2048;\n"
                     "let limit = min(first + 2048, m);\n"
                     "for j in first..limit {\n"
                     "y[i, j] = exp(x[i, j] - top);\n"
                     "sum[0] = sum[0] + (sum j in first..limit { y[i, j] });\n"
                     "let total = sum[0];\n"
                     "for k in 0..m {\n"
                     "let e = y[i, k];\n"
                     "y[i, k] = e * scale;\n");
}

// The body of a row `i` of x, whose result is y[i, ...].
static const char* const bodies[] = {
    // Cheap, of another range, of another dtype, and with the loop not next.
    "let s = sum j in 0..m { x[i, j] };\n for j in 0..m { y[i, j] = x[i, j] / s; }",
    "let s = sum j in 0..m - 1 { exp(x[i, j]) };\n for j in 0..m { y[i, j] = exp(x[i, j]) / s; }",
    "let s = sum j in 0..m { exp(x[i, j]) };\n for j in 0..m { w[i, j] = f64(exp(x[i, j]) / s); }",
    "let s = sum j in 0..m { exp(x[i, j]) };\n z[i, 0] = s;\n"
    "for j in 0..m { y[i, j] = exp(x[i, j]) / s; }",
    // Results that are not always stored, not along lines, loaded, or given by the caller.
    "let s = sum j in 0..m { exp(x[i, j]) };\n"
    "for j in 0..m { if j > 3 { y[i, j] = exp(x[i, j]) / s; } }",
    "let s = sum j in 0..m { exp(x[i, j]) };\n for j in 0..m { y[j, i] = exp(x[i, j]) / s; }",
    "let s = sum j in 0..m { exp(x[i, j]) };\n for j in 0..m { y[i, j] = exp(x[i, j]) / s; }\n"
    "z[i, 0] = y[i, 0];",
    "let s = sum j in 0..m { exp(x[i, j]) };\n for j in 0..m { z[i, j] = exp(x[i, j]) / s; }",
    // Of memory that the function stores to.
    "let s = sum j in 0..m { exp(z[i, j]) };\n for j in 0..m { y[i, j] = exp(z[i, j]) / s; }",
};

// The result holds a part of one of them.
static void two_reductions(void** state) {
  (void)state;
  qn_test_expect_all(passes, QN_COUNT_OF(passes), &options,
                     "func f(x: f32[n, m], out y: f32[n, m]) {\n"
                     "  parallel i in 0..n {\n"
                     "    let s = sum j in 0..m { exp(x[i, j]) };\n"
                     "    let t = sum j in 0..m { sin(x[i, j]) };\n"
                     "    for j in 0..m { y[i, j] = exp(x[i, j]) / s + sin(x[i, j]) / t; }\n"
                     "  }\n"
                     "}",
                     "y[i, j] = exp(x[i, j]);\n"
                     "let s = sum[0];\n"
                     "let t = sum j in 0..m { sin(x[i, j]) };\n"
                     "y[i, j] = y[i, j] / s + sin(x[i, j]) / t;\n");
}

static void others_stay(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(bodies); ++i) {
    char text[1024];
    (void)snprintf(
        text, sizeof text,
        "func f(x: f32[n, m], inout z: f32[n, m], out w: f64[n, m], out y: f32[n, m]) {\n"
        "  parallel i in 0..n { %s\n }\n}",
        bodies[i]);
    char* printed = qn_test_pass(text, &options, passes, QN_COUNT_OF(passes));
    if (strstr(printed, "chunk")) fail_msg("%s", printed);
    free(printed);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(softmax),
      cmocka_unit_test(two_reductions),
      cmocka_unit_test(others_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
