// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_simplify.c: tests the text after the simplify pass.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support_pass.h"

static void expect(const char* text, const char* expected) {
  qn_test_expect(&qn__pass_simplify, &qn_test_avx2, text, expected);
}
static void expect_checked(const char* text, const char* expected) {
  qn_test_expect(&qn__pass_simplify, &qn_test_checked, text, expected);
}

static void folds_constants(void** state) {
  (void)state;
  expect("func f(out y: i32[n]) { parallel i in 0..n { y[i] = 2 + 3 * 4 - (7 // 2); } }",
         "y[i] = 11;");
  expect("func f(out y: f32[n]) { parallel i in 0..n { y[i] = sqrt(f32(2)) * f32(0.5); } }",
         "y[i] = 0.70710677;");
  expect("func f(out y: u8[n]) { parallel i in 0..n { y[i] = u8(200) + u8(100); } }", "y[i] = 44;");
  expect("func f(out y: i32[n]) { parallel i in 0..n { y[i] = bitcast(i32, f32(1)); } }",
         "y[i] = 1065353216;");
  // A division by zero is the program's, not the compiler's.
  expect("func f(out y: i32[n]) { parallel i in 0..n { y[i] = i32(1) // 0; } }", "y[i] = 1 // 0;");
}

static void keeps_floats_as_they_are(void** state) {
  (void)state;
  expect("func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] * 1.0 / 1.0; } }",
         "y[i] = x[i];");
  expect("func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] - 0.0; } }",
         "y[i] = x[i];");
  // -0 + 0 is +0, and 0 * x is not 0 for infinities, NaN and negative numbers.
  expect("func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] + 0.0; } }",
         "y[i] = x[i] + 0.0;");
  expect("func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] * 0.0; } }",
         "y[i] = x[i] * 0.0;");
  expect("func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] - x[i]; } }",
         "y[i] = x[i] - x[i];");
  expect("func f(x: f32[n], out y: f32[n]) fast { parallel i in 0..n { y[i] = x[i] + 0.0; } }",
         "y[i] = x[i];");
  expect("func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] / 8.0; } }",
         "y[i] = x[i] * 0.125;");
  expect("func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] / 3.0; } }",
         "y[i] = x[i] / 3.0;");
  // The inverse of 2^127 is no normal number.
  expect(
      "func f(x: f32[n], out y: f32[n]) { parallel i in 0..n {"
      " y[i] = x[i] / 170141183460469231731687303715884105728.0; } }",
      "y[i] = x[i] / 1.7014118e38;");
}

static void collects_terms(void** state) {
  (void)state;
  expect(
      "func f(x: f32[n], out y: f32[n]) { parallel i in 0..n {"
      " y[i] = x[i * 4 + 0 - i * 3 + 5 - 5]; } }",
      "y[i] = x[i];");
  expect("func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[(i + 3) - (1 + 2)]; } }",
         "y[i] = x[i];");
  expect(
      "func f(x: i8[n], out y: i8[n]) { parallel i in 0..n {"
      " y[i] = x[i] * 100 + x[i] * 100 + x[i] * 56; } }",
      "y[i] = 0;");
}

static void divides_by_ranges(void** state) {
  (void)state;
  static const char text[] =
      "func f(x: i64[n], out y: i64[n]) { parallel i in 0..ceildiv(n, 16) { for j in 0..16 {"
      "  if i * 16 + j < n { y[i * 16 + j] = x[(i * 16 + j) // 16] + (i * 16 + j) % 16; }"
      "} } }";
  expect(text, "y[i * 16 + j] = x[i] + j;");
  expect("func f(x: i64[n], out y: i64[n]) { parallel i in 0..n { y[i] = x[i % n] + i // n; } }",
         "y[i] = x[i % n] + i // n;");  // n may be larger than what is known of i
  expect("func f(x: i64[8], out y: i64[8]) { parallel i in 0..8 { y[i] = x[i % 8] + i // 8; } }",
         "y[i] = x[i];");
  expect("func f(x: i64[n], out y: i64[n]) { parallel i in 0..n { y[i] = x[i] // 8 + x[i] % 8; } }",
         "y[i] = (x[i] >> 3) + (x[i] & 7);");
  expect("func f(x: i64[n], out y: i64[n]) { parallel i in 0..n { y[i] = i // 3; } }",
         "y[i] = truncdiv(i, 3);");
  expect("func f(x: i64[n], out y: i64[n]) { parallel i in 0..n { y[i] = x[i] // 3; } }",
         "y[i] = x[i] // 3;");
  // (x + 16) // 16 is x // 16 + 1 only where the sum does not wrap.
  expect(
      "func f(x: i32[n], out y: i32[n]) { parallel i in 0..n {"
      " y[i] = (x[i] * 16 + 3) // 16; } }",
      "y[i] = x[i] * 16 + 3 >> 4;");
}

static void divides_what_is_negative(void** state) {
  (void)state;
  expect("func f(out y: i64[n]) { parallel i in 0..8 { y[i] = (i * 16 - 3) // 16; } }",
         "y[i] = i - 1;");
  expect("func f(out y: i64[n]) { parallel i in 0..8 { y[i] = (i * 16 - 3) % 16; } }",
         "y[i] = 13;");
  expect(
      "func f(x: i32[n], out y: bool[n]) { parallel i in 0..n {"
      " y[i] = x[i] % 5 < 5 && x[i] % 5 < 4; } }",
      "y[i] = x[i] % 5 < 4;");
  expect(
      "func f(x: i32[n], out y: bool[n]) { parallel i in 0..n {"
      " y[i] = x[i] % 5 >= 0 && x[i] % 5 > 0; } }",
      "y[i] = x[i] % 5 > 0;");
  expect(
      "func f(x: i32[n], out y: bool[n]) { parallel i in 0..n {"
      " y[i] = truncmod(x[i], 5) >= 0; } }",
      "y[i] = truncmod(x[i], 5) >= 0;");
}

static void decides_comparisons(void** state) {
  (void)state;
  expect(
      "func f(out y: i32[n]) { parallel i in 0..n {"
      " if i >= 0 && i < n { y[i] = 1; } else { y[i] = 2; } } }",
      "parallel i in 0..n {\n y[i] = 1;\n ! y[i] = 2;");
  expect(
      "func f(out y: i32[n]) { parallel i in 0..n { for j in 0..4 {"
      " if j > 7 { y[i] = 1; } } } }",
      "func f(out y: i32[n]) {\n ! y[i] = 1;");
  expect("func f(out y: i32[n]) { parallel i in 0..n { y[i] = select(i < 0, 1, 2); } }",
         "y[i] = 2;");
  expect("func f(x: i32[n], out y: bool[n]) { parallel i in 0..n { y[i] = !(x[i] < 3); } }",
         "y[i] = x[i] >= 3;");
  expect("func f(x: f32[n], out y: bool[n]) { parallel i in 0..n { y[i] = !(x[i] < 3.0); } }",
         "y[i] = !(x[i] < 3.0);");  // NaN
}

// The end of a loop is taken once; what it was loaded from may change meanwhile.
static void loads_are_not_remembered(void** state) {
  (void)state;
  expect(
      "func f(out y: i64[n]) { parallel i in 0..n { alloc c: i64[] in local; c[] = 4;"
      " for k in 0..c[] { c[] = 2; if k < c[] { y[i] = k; } } } }",
      "for k in 0..c[] {\n c[] = 2;\n if k < c[] {");
}

static void removes_what_nothing_uses(void** state) {
  (void)state;
  static const char text[] =
      "func f(x: f32[n], out y: f32[n]) { parallel i in 0..n {"
      "  let a = x[i]; let b = a * 2.0; alloc t: f32[4] in local; let c = 1;"
      "  let e = i; if i > 3 { let d = b; } for k in 0..4 { let z = b; }"
      "  y[e] = x[i]; } }";
  expect(text, "parallel i in 0..n {\n ! let a = x[i];\n y[i] = x[i];\n ! let b = a * 2.0;");
  expect_checked(text, "let a = x[i];\n y[i] = x[i];");
  expect("func f(x: i32[n], out y: i32[n]) { parallel i in 0..n { y[i] = x[i] * 0; } }",
         "y[i] = 0;");
  expect_checked("func f(x: i32[n], out y: i32[n]) { parallel i in 0..n { y[i] = x[i] * 0; } }",
                 "y[i] = x[i] * 0;");
  expect(
      "func f(x: f32[n], out y: f32[n]) { parallel i in 0..n {"
      " y[i] = sum k in 0..n { let d = x[k]; let e = d + 1.0; d }; } }",
      "! let e = d + 1.0;\n d\n ! let e = d + 1.0;");
}

static void reads_tables(void** state) {
  (void)state;
  static const char text[] =
      "func f(x: i32[n], out y: i32[n]) { const t: i32[2, 2] = [1, 2, 3, 4]; parallel i in 0..n {"
      "  y[i] = x[i] * t[1, 0] + t[i, 1]; } }";
  expect(text, "const t: i32[2, 2] = [1, 2, 3, 4];\n y[i] = x[i] * 3 + t[i, 1];");
  expect(
      "func f(x: i32[n], out y: i32[n]) { const t: i32[2] = [1, 2]; parallel i in 0..n {"
      "  y[i] = t[1] - 2; } }",
      "! const t: i32[2] = [1, 2];\n y[i] = 0;");
}

static void takes_loops_apart(void** state) {
  (void)state;
  expect("func f(out y: i64[n]) { parallel i in 0..n { for j in 3..4 { y[i] = i + j; } } }",
         "! for j in 3..4 {\n y[i] = i + 3;");
  expect(
      "func f(out y: i64[n]) { parallel i in 0..n {"
      " y[i] = 7; for j in 4..4 { y[i] = i + j; } while false { y[i] = 1; } } }",
      "y[i] = 7;\n ! while false {");
  expect("func f(out y: i64[n]) { parallel i in 0..n { y[i] = sum k in 5..2 { k }; } }",
         "y[i] = 0;");
  expect("func f(out y: i64[n]) { parallel i in 0..n { assert 1 < 2; y[i] = 1; } }",
         "parallel i in 0..n {\n ! assert true;\n y[i] = 1;");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(folds_constants),
      cmocka_unit_test(keeps_floats_as_they_are),
      cmocka_unit_test(collects_terms),
      cmocka_unit_test(divides_by_ranges),
      cmocka_unit_test(divides_what_is_negative),
      cmocka_unit_test(decides_comparisons),
      cmocka_unit_test(loads_are_not_remembered),
      cmocka_unit_test(removes_what_nothing_uses),
      cmocka_unit_test(reads_tables),
      cmocka_unit_test(takes_loops_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
