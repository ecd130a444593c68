// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_hoist.c: tests which statements move out of loops and which stay.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support_pass.h"

static void expect(const char* text, const char* expected) {
  qn_test_expect(&qn__pass_hoist, &qn_test_avx2, text, expected);
}
static void expect_checked(const char* text, const char* expected) {
  qn_test_expect(&qn__pass_hoist, &qn_test_checked, text, expected);
}

static void lets_and_arithmetic_climb(void** state) {
  (void)state;
  expect(
      "func f(a: f32, x: f32[n, m], out y: f32[n, m]) { parallel i in 0..n { for j in 0..m {"
      "  let b = a * 2.0; y[i, j] = x[i, j] * (a + 1.0) + b; } } }",
      "parallel i in 0..n {\n let b = a * 2.0;\n let h = a + 1.0;\n for j in 0..m {\n"
      " y[i, j] = x[i, j] * h + b;");
  // From two levels, and shared by equal expressions.
  expect(
      "func f(a: f32, out y: f32[4, n, m]) { parallel q in 0..4 { for i in 0..n { for j in 0..m {"
      "  y[q, i, j] = (a + 1.0) * (a + 1.0); } } } }",
      "parallel q in 0..4 {\n let h = (a + 1.0) * (a + 1.0);\n for i in 0..n {\n"
      " for j in 0..m {\n y[q, i, j] = h;");
  // Never out of a launch.
  expect("func f(a: f32, out y: f32[n]) { parallel i in 0..n { y[i] = a * 2.0; } }",
         "func f(a: f32, out y: f32[n]) {\n parallel i in 0..n {\n y[i] = a * 2.0;");
  // Nor out of loops that launch, which the host runs.
  expect(
      "func f(a: f32, out y: f32[4, n, m]) { for q in 0..4 { for i in 0..n {"
      "  block.x b in 0..m { thread.x t in 0..1 { y[q, i, b] = a * 2.0; } } } } }",
      "for q in 0..4 {\n for i in 0..n {\n block.x b in 0..m {\n thread.x t in 0..1 {\n"
      " y[q, i, b] = a * 2.0;");
}

static void out_of_reductions(void** state) {
  (void)state;
  expect(
      "func f(a: f32, x: f32[n, m], out y: f32[n]) { parallel i in 0..n {"
      "  y[i] = sum j in 0..m { x[i, j] * (a / 3.0) }; } }",
      "let h = a / 3.0;\n y[i] = sum j in 0..m { x[i, j] * h };");
  // An inner reduction gives to the outer one.
  expect(
      "func f(x: f32[n, m], out y: f32[n]) { parallel i in 0..n {"
      "  y[i] = sum j in 0..m { max k in 0..m { x[i, k] * f32(j) } }; } }",
      "let h = f32(j);\n max k in 0..m { x[i, k] * h }");
}

static void loads_need_proof(void** state) {
  (void)state;
  // Guarded, because the loop may be empty.
  expect(
      "func f(x: f32[n], out y: f32[n, m]) { parallel i in 0..n { for j in 0..m {"
      "  y[i, j] = x[i]; } } }",
      "let h = 0 < m ? x[i] : 0.0;\n for j in 0..m {\n y[i, j] = h;");
  expect(
      "func f(x: f32[n], out y: f32[n, 8]) { parallel i in 0..n { for j in 0..8 {"
      "  y[i, j] = x[i]; } } }",
      "let h = x[i];\n for j in 0..8 {");
  expect_checked(
      "func f(x: f32[n], out y: f32[n, 8]) { parallel i in 0..n { for j in 0..8 {"
      "  y[i, j] = x[i]; } } }",
      "for j in 0..8 {\n y[i, j] = x[i];");
  // Stored to in the loop, also through a view.
  expect(
      "func f(inout y: f32[n, 8]) { parallel i in 0..n { for j in 1..8 {"
      "  y[i, j] = y[i, 0]; } } }",
      "for j in 1..8 {\n y[i, j] = y[i, 0];");
  expect(
      "func f(inout y: f32[n, 8]) { parallel i in 0..n { view v: f32[8] = y[i, 0];"
      "  for j in 1..8 { v[j] = y[i, 0]; } } }",
      "for j in 1..8 {\n v[j] = y[i, 0];");
  // Only where it is reached for certain: not under a condition, nor past an assert.
  expect(
      "func f(x: f32[n], out y: f32[n, 8]) { parallel i in 0..n { for j in 0..8 {"
      "  if j > 3 { y[i, j] = x[i]; } } } }",
      "for j in 0..8 {\n if j > 3 {\n y[i, j] = x[i];");
  expect(
      "func f(x: f32[n], out y: f32[n, 8]) { parallel i in 0..n { for j in 0..8 {"
      "  assert j < 7; y[i, j] = x[i + 1]; } } }",
      "for j in 0..8 {\n assert j < 7;\n y[i, j] = x[i + 1];");
  expect(
      "func f(x: f32[n], out y: f32[n, 8]) { parallel i in 0..n { for j in 0..8 {"
      "  y[i, j] = j > 0 ? x[i] : 1.0; } } }",
      "for j in 0..8 {\n y[i, j] = j > 0 ? x[i] : 1.0;");
}

static void divisions(void** state) {
  (void)state;
  static const char text[] =
      "func f(a: i64, out y: i64[n, m]) { parallel i in 0..n { for j in 0..m {"
      "  y[i, j] = 100 // a + j; } } }";
  expect(text, "let h = 100 // a;\n for j in 0..m {");
  expect_checked(text, "for j in 0..m {\n y[i, j] = 100 // a + j;");
}

static void exchanges_stay(void** state) {
  (void)state;
  expect(
      "func f(out y: i32[32, 4]) { block.x b in 0..1 { thread.x t in 0..32 { let v = i32(t);"
      "  for j in 0..4 { y[t, j] = warp_sum(v * 3); } } } }",
      "for j in 0..4 {\n y[t, j] = warp_sum(h);");
}

static void addresses_of_one_addition_stay(void** state) {
  (void)state;
  expect(
      "func f(x: f32[n], out y: f32[n, m]) { parallel i in 0..n { for j in 0..m {"
      "  y[i, j] = x[(i + 1) + j]; } } }",
      "parallel i in 0..n {\n for j in 0..m {\n y[i, j] = x[i + 1 + j];");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lets_and_arithmetic_climb),
      cmocka_unit_test(out_of_reductions),
      cmocka_unit_test(loads_need_proof),
      cmocka_unit_test(divisions),
      cmocka_unit_test(exchanges_stay),
      cmocka_unit_test(addresses_of_one_addition_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
