// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_separate.c: tests of the pass `separate`: which products leave a nest of
// several reductions. That results stay is for the tests of random forms (generate_products.c).
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_pass.h"
#include "tests/support/fault.h"

static const qn__pass_t* const passes[] = {&qn__pass_independent, &qn__pass_separate};

static void expect(const char* text, const char* expected) {
  qn_test_expect_all(passes, QN_COUNT_OF(passes), &qn_test_avx2, text, expected);
}

static void expect_none(const char* text, const qn__pass_options_t* options) {
  char* printed = qn_test_pass(text, options, passes, QN_COUNT_OF(passes));
  if (strstr(printed, "product")) fail_msg("%s", printed);
  free(printed);
}

static const char gated[] =
    "func f(a: f32[n, k], w: f32[m, k], v: f32[m, k], s: f32[m],\n"
    "       out c: f32[n, m]) {\n"
    "  parallel i in 0..n { parallel j in 1..m {\n"
    "    let x = s[j] * 2.0;\n"
    "    let y = s[j] + 1.0;\n"
    "    let g = y * (sum p in 0..k { a[i, p] * x * w[j, p] });\n"
    "    c[i, j] = x + max(g, 0.0) * (sum p in 0..k { a[i, p] * v[j, p] });\n"
    "  } }\n"
    "}";

static void a_gate_has_a_nest(void** state) {
  (void)state;
  expect(gated,
         "alloc product: f32[max(n, 0), max(m - 1, 0)] in global;\n"
         "parallel i in 0..n {\n"
         "parallel j in 1..m {\n"
         "let x = s[j] * 2.0;\n"
         "!let y\n"
         "product[i, j - 1] = sum p in 0..k { a[i, p] * x * w[j, p] };\n"
         "parallel i in 0..n {\n"
         "parallel j in 1..m {\n"
         "let g = y * product[i, j - 1];\n"
         "c[i, j] = x + max(g, 0.0) * (sum p in 0..k { a[i, p] * v[j, p] });\n");
}

static void all_but_one_move(void** state) {
  (void)state;
  // The second needs the first, so that it is no product.
  expect(
      "func f(a: f32[n, k], w: f32[4, k, m], inout c: f32[n, m]) {\n"
      "  for t in 0..3 { parallel i in 0..n { parallel j in 0..m {\n"
      "    let g = sum p in 0..k { a[i, p] * w[0, p, j] };\n"
      "    let h = sum p in 0..k { a[i, p] * w[1, p, j] * g };\n"
      "    let r = sum p in 0..k { a[i, p] * w[2, p, j] };\n"
      "    c[i, j] = c[i, j] + g + h + r + (sum p in 0..k { a[i, p] * w[3, p, j] });\n"
      "  } } }\n"
      "}",
      "alloc product_2: f32[max(n, 0), max(m, 0)] in global;\n"
      "for t in 0..3 {\n"
      "product[i, j] = sum p in 0..k { a[i, p] * w[0, p, j] };\n"
      "product_1[i, j] = sum p in 0..k { a[i, p] * w[2, p, j] };\n"
      "product_2[i, j] = sum p in 0..k { a[i, p] * w[3, p, j] };\n"
      "let g = product[i, j];\n"
      "let h = sum p in 0..k { a[i, p] * w[1, p, j] * g };\n"
      "let r = product_1[i, j];\n"
      "c[i, j] = c[i, j] + g + h + r + product_2[i, j];\n");
}

static void others_stay(void** state) {
  (void)state;
  expect_none(gated, &qn_test_checked);
  // One reduction; a sum of rows and one of columns; few results.
  expect_none(
      "func f(a: f32[n, k], b: f32[k, m], out c: f32[n, m]) {\n"
      "  parallel i in 0..n { parallel j in 0..m { c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; "
      "} }\n"
      "}",
      &qn_test_avx2);
  expect_none(
      "func f(a: f32[n, k], b: f32[k, m], out c: f32[n, m]) {\n"
      "  parallel i in 0..n { parallel j in 0..m {\n"
      "    c[i, j] = (sum p in 0..k { a[i, p] }) * (sum p in 0..k { b[p, j] });\n"
      "  } }\n"
      "}",
      &qn_test_avx2);
  expect_none(
      "func f(a: f32[8, k], b: f32[k, 8], d: f32[k, 8], out c: f32[8, 8]) {\n"
      "  parallel i in 0..8 { parallel j in 0..8 {\n"
      "    c[i, j] = (sum p in 0..k { a[i, p] * b[p, j] }) * (sum p in 0..k { a[i, p] * d[p, j] "
      "});\n"
      "  } }\n"
      "}",
      &qn_test_avx2);
  // An operand that the nest writes; extents that are known in the loop alone; a product that some
  // iterations compute.
  expect_none(
      "func f(inout a: f32[n, n], b: f32[n, n], d: f32[n, n]) {\n"
      "  parallel i in 0..1 { parallel j in 0..n {\n"
      "    let g = sum p in 0..n { a[i, p] * b[p, j] };\n"
      "    let h = sum p in 0..n { a[i, p] * d[p, j] };\n"
      "    a[i + 1, j] = g * h;\n"
      "  } }\n"
      "}",
      &qn_test_avx2);
  expect_none(
      "func f(a: f32[n, k], b: f32[k, m], d: f32[k, m], out c: f32[n, m]) {\n"
      "  for t in 1..m { parallel i in 0..n { parallel j in 0..t {\n"
      "    c[i, j] = (sum p in 0..k { a[i, p] * b[p, j] }) * (sum p in 0..k { a[i, p] * d[p, j] "
      "});\n"
      "  } } }\n"
      "}",
      &qn_test_avx2);
  expect_none(
      "func f(a: f32[n, k], b: f32[k, m], d: f32[k, m], out c: f32[n, m]) {\n"
      "  parallel i in 0..n { parallel j in 0..m {\n"
      "    let s = i < j ? sum p in 0..k { a[i, p] * b[p, j] } : 0.0;\n"
      "    if j < i { c[i, j] = s + (sum p in 0..k { a[i, p] * d[p, j] }); }\n"
      "  } }\n"
      "}",
      &qn_test_avx2);
}

static bool try_without_memory(qn_allocator_t allocator, void* user) {
  (void)user;
  char* text = NULL;
  qn_status_t status =
      qn_test_try(gated, allocator, &qn_test_avx2, passes, QN_COUNT_OF(passes), &text);
  bool is_fine = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  qn_status_free(status);
  free(text);
  return is_fine;
}

static void memory_runs_out(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(try_without_memory, NULL) > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_gate_has_a_nest),
      cmocka_unit_test(all_but_one_move),
      cmocka_unit_test(others_stay),
      cmocka_unit_test(memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
