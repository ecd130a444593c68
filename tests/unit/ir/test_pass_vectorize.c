// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_vectorize.c: which loops run in lanes, in how many, and which must not.
//
// The printer writes a mark as a comment: "// 8 lanes".
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support_pass.h"

static void expect(const char* text, const char* expected) {
  qn_test_expect(&qn__pass_vectorize, &qn_test_avx2, text, expected);
}

static void elementwise(void** state) {
  (void)state;
  expect("func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] + 1.0; } }",
         "parallel i in 0..n {  // 8 lanes");
  expect("func f(x: f64[n], out y: f64[n]) { parallel i in 0..n { y[i] = x[i] + 1.0; } }",
         "parallel i in 0..n {  // 4 lanes");
  expect("func f(x: u8[n], out y: u8[n]) { parallel i in 0..n { y[i] = x[i] + 1; } }",
         "parallel i in 0..n {  // 32 lanes");
  // Small floats are computed in f32, and a conversion counts with its wider side.
  expect("func f(x: f16[n], out y: f16[n]) { parallel i in 0..n { y[i] = x[i] + 1.0; } }",
         "parallel i in 0..n {  // 8 lanes");
  expect("func f(x: u8[n], out y: f32[n]) { parallel i in 0..n { y[i] = f32(x[i]); } }",
         "parallel i in 0..n {  // 8 lanes");
  // The innermost loop of two, for rows.
  expect(
      "func f(x: f32[n, m], out y: f32[n, m]) { parallel i in 0..n { for j in 0..m {"
      "  y[i, j] = x[i, j]; } } }",
      "parallel i in 0..n {\n for j in 0..m {  // 8 lanes");
  // An inner parallel loop is a loop like another afterwards.
  expect(
      "func f(x: f32[n, m], out y: f32[n, m]) { parallel i in 0..n { parallel j in 0..m {"
      "  y[i, j] = x[i, j]; } } }",
      "parallel i in 0..n {\n for j in 0..m {  // 8 lanes");
  // No more lanes than iterations.
  expect(
      "func f(x: f32[n, 4], out y: f32[n, 4]) { parallel i in 0..n { for j in 0..4 {"
      "  y[i, j] = exp(x[i, j]); } } }",
      "for j in 0..4 {  // 4 lanes");
}

static void widths(void** state) {
  (void)state;
  static const char text[] =
      "func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i]; } }";
  qn_test_expect(&qn__pass_vectorize, &(qn__pass_options_t){.vector_bytes = 16}, text,
                 "parallel i in 0..n {  // 4 lanes");
  qn_test_expect(&qn__pass_vectorize, &(qn__pass_options_t){.vector_bytes = 64}, text,
                 "parallel i in 0..n {  // 16 lanes");
}

static void several_vectors_where_tails_are_masked(void** state) {
  (void)state;
  static const qn__pass_options_t avx512 = {.vector_bytes = 32, .has_masked_memory = true};
  qn_test_expect(&qn__pass_vectorize, &avx512,
                 "func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i]; } }",
                 "parallel i in 0..n {  // 32 lanes");
  qn_test_expect(&qn__pass_vectorize, &avx512,
                 "func f(x: f32[n], out y: f32[n]) { parallel i in 0..n {"
                 "  y[i] = pow(x[i], 3.5); } }",
                 "parallel i in 0..n {  // 16 lanes");
  qn_test_expect(&qn__pass_vectorize, &avx512,
                 "func f(x: f32[n, 12], out y: f32[n, 12]) { parallel i in 0..n { for j in 0..12 {"
                 "  y[i, j] = x[i, j]; } } }",
                 "for j in 0..12 {  // 8 lanes");
}

static void reductions(void** state) {
  (void)state;
  // Along a row: lanes in the reduction; four vectors hide the latency of a short body.
  expect(
      "func f(x: f32[n, m], out y: f32[n]) { parallel i in 0..n {"
      "  y[i] = sum j in 0..m { x[i, j] }; } }",
      "parallel i in 0..n {\n y[i] = sum j in 0..m {  // 32 lanes");
  expect(
      "func f(x: f32[n, m], out y: f32[n]) { parallel i in 0..n {"
      "  y[i] = sum j in 0..m { exp(x[i, j]) }; } }",
      "y[i] = sum j in 0..m {  // 16 lanes");
  // Along a column: many columns at a time.
  expect(
      "func f(x: f32[n, m], out y: f32[m]) { parallel j in 0..m {"
      "  y[j] = sum i in 0..n { x[i, j] }; } }",
      "parallel j in 0..m {  // 8 lanes");
  // Of two reductions inside each other the contiguous one.
  expect(
      "func f(x: f32[n, m], out y: f32[1]) { for a in 0..1 {"
      "  y[a] = sum i in 0..n { sum j in 0..m { x[i, j] } }; } }",
      "y[a] = sum i in 0..n {\n sum j in 0..m {  // 32 lanes");
}

static void dependences(void** state) {
  (void)state;
  expect(
      "func f(inout y: i32[n, m]) { parallel i in 0..n { for j in 1..m {"
      "  y[i, j] = y[i, j - 1] + 1; } } }",
      "parallel i in 0..n {\n for j in 1..m {");
  expect(
      "func f(inout y: i32[n, m]) { parallel i in 0..n { for j in 1..m {"
      "  y[i, j] = y[i, j] + 1; } } }",
      "for j in 1..m {  // 8 lanes");
  // Through a view of the same memory.
  expect(
      "func f(inout y: i32[n, m]) { parallel i in 0..n { view v: i32[m] = y[i, 0];"
      "  for j in 1..m { y[i, j] = v[j - 1] + 1; } } }",
      "for j in 1..m {");
  // One element for all iterations; an index that nothing is known about.
  expect(
      "func f(x: i32[n, m], inout y: i32[n, m]) { parallel i in 0..n { for j in 0..m {"
      "  y[i, 0] = y[i, 0] + x[i, j]; } } }",
      "for j in 0..m {");
  expect(
      "func f(x: i32[n, m], inout y: i32[n, m]) { parallel i in 0..n { for j in 0..m {"
      "  y[i, x[i, j]] = 1; } } }",
      "for j in 0..m {");
  // Iteration j and an inner iteration of another j meet.
  expect(
      "func f(x: i32[m], inout y: i32[n, m]) { for j in 0..8 { for k in 0..4 {"
      "  y[0, j + k] = y[0, j + k] + x[j]; } } }",
      "for j in 0..8 {");
  // Strides that the caller chooses may overlap.
  expect(
      "func f(inout y: i32[n, m] strides [s, t]) { for i in 0..n { for j in 0..m {"
      "  y[i, j] = y[i, j] + 1; } } }",
      "for i in 0..n {\n for j in 0..m {");
  expect(
      "func f(inout y: i32[n, m] strides [s, 1]) { for i in 0..n { for j in 0..m {"
      "  y[i, j] = y[i, j] + 1; } } }",
      "for i in 0..n {\n for j in 0..m {  // 8 lanes");
}

static void what_no_lane_can_do(void** state) {
  (void)state;
  expect(
      "func f(x: f32[n], out y: f32[n]) { parallel i in 0..n {"
      "  alloc t: f32[1] in local; t[0] = x[i]; y[i] = t[0]; } }",
      "parallel i in 0..n {");
  expect("func f(x: i32[n], inout y: i32[n]) { parallel i in 0..n { atomic_add(y[0], x[i]); } }",
         "parallel i in 0..n {");
  expect(
      "func f(x: i64[n], out y: i64[n]) { parallel i in 0..n {"
      "  y[i] = sum k in 0..x[i] { k }; } }",
      "parallel i in 0..n {");  // a bound that depends on the lane
}

static void vector_loops(void** state) {
  (void)state;
  expect(
      "func f(x: f32[n, 16], out y: f32[n, 16]) { parallel i in 0..n { vector j in 0..16 {"
      "  if x[i, j] > 0.0 { y[i, j] = x[i, j]; } else { y[i, j] = 0.0; } } } }",
      "vector j in 0..16 {  // 16 lanes");
  expect(
      "func f(x: f32[n, 200], out y: f32[n, 200]) { parallel i in 0..n { vector j in 0..200 {"
      "  y[i, j] = x[i, j]; } } }",
      "vector j in 0..200 {  // 8 lanes");
  // A vector loop that cannot run in lanes becomes serial.
  expect(
      "func f(x: i32[n, 16], out y: i32[n, 16]) { parallel i in 0..n { vector j in 0..16 {"
      "  alloc c: i32[] in local; c[] = 0; while c[] < x[i, j] { c[] = c[] + 1; }"
      "  y[i, j] = c[]; } } }",
      "for j in 0..16 {");
}

static void masks_cost(void** state) {
  (void)state;
  // Without masked memory a guarded copy is not worth lanes, but guarded arithmetic is.
  static const char text[] =
      "func f(x: u8[n], out y: u8[n]) { parallel i in 0..n { if x[i] > 3 { y[i] = 1; } } }";
  qn_test_expect(&qn__pass_vectorize, &(qn__pass_options_t){.vector_bytes = 16}, text,
                 "parallel i in 0..n {");
  qn_test_expect(&qn__pass_vectorize,
                 &(qn__pass_options_t){.vector_bytes = 64, .has_masked_memory = true}, text,
                 "parallel i in 0..n {  // 64 lanes");
  expect(
      "func f(x: f32[n], out y: f32[n]) { parallel i in 0..n {"
      "  if x[i] > 3.0 { y[i] = exp(x[i]); } } }",
      "parallel i in 0..n {  // 8 lanes");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elementwise),  cmocka_unit_test(widths),
      cmocka_unit_test(reductions),   cmocka_unit_test(several_vectors_where_tails_are_masked),
      cmocka_unit_test(dependences),  cmocka_unit_test(what_no_lane_can_do),
      cmocka_unit_test(vector_loops), cmocka_unit_test(masks_cost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
