// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_target_values.c: warp_size() becomes a literal, and requirements of it
// are decided when a function is compiled.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support_pass.h"

static const qn__pass_options_t eight = {.warp_size = 8};

static void test_literal(void** state) {
  (void)state;
  qn_test_expect(&qn__pass_target_values, &eight,
                 "func f(inout y: i64[n]) {\n"
                 "  block.x b in 0..n // warp_size() { thread.x t in 0..warp_size() {\n"
                 "    let s = warp_sum(y[b * warp_size() + t]);\n"
                 "    y[b * warp_size() + t] = s + (sum k in 0..warp_size() { k });\n"
                 "  } }\n"
                 "}\n",
                 "func f(inout y: i64[n]) {\n"
                 "  block.x b in 0..n // 8 {\n"
                 "    thread.x t in 0..8 {\n"
                 "      let s = warp_sum(y[b * 8 + t]);\n"
                 "      y[b * 8 + t] = s + (sum k in 0..8 { k });\n"
                 "    }\n"
                 "  }\n"
                 "}\n");
}

// What holds goes; what is not decided stays.
static void test_requirements_that_hold(void** state) {
  (void)state;
  qn_test_expect(&qn__pass_target_values, &eight,
                 "func f(inout y: i64[n]) {\n"
                 "  assert warp_size() == 8, \"eight\";\n"
                 "  assert warp_size() % 2 == 0 && warp_size() < 100;\n"
                 "  assert n % warp_size() == 0, \"whole warps\";\n"
                 "  assert 1 == 2;\n"
                 "}\n",
                 "func f(inout y: i64[n]) {\n"
                 "  assert n % 8 == 0, \"whole warps\";\n"
                 "  assert 1 == 2;\n"
                 "}\n");
}

// Only the variant for the target's width is asked.
static void test_variants(void** state) {
  (void)state;
  qn_test_expect(&qn__pass_target_values, &eight,
                 "func f(inout y: i64[n]) {\n"
                 "  if warp_size() == 32 {\n"
                 "    assert warp_size() == 32;\n"
                 "    y[0] = 1;\n"
                 "  } else {\n"
                 "    assert warp_size() < 32;\n"
                 "    y[0] = 2;\n"
                 "  }\n"
                 "}\n",
                 "func f(inout y: i64[n]) {\n"
                 "  if 8 == 32 {\n"
                 "  } else {\n"
                 "    y[0] = 2;\n"
                 "  }\n"
                 "}\n");
}

static void expect_refusal(const char* text, uint32_t warp_size, const char* message) {
  const qn__pass_t* pass = &qn__pass_target_values;
  qn__pass_options_t options = {.warp_size = warp_size};
  char* printed = NULL;
  qn_status_t status = qn_test_try(text, qn_allocator_default(), &options, &pass, 1, &printed);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNSUPPORTED);
  assert_string_equal(qn_status_message(status), message);
  qn_status_free(status);
}

static void test_refusals(void** state) {
  (void)state;
  expect_refusal("func f(inout y: i64[n]) { assert warp_size() == 32; }", 8,
                 "function 'f' requires warp_size() == 32, but the target has warps of 8 threads");
  expect_refusal(
      "func g(inout y: i64[n]) {\n"
      "  parallel i in 0..n { if i > 3 {\n"
      "    assert warp_size() >= 16, \"a tile is 16 lanes wide\"; } }\n"
      "}",
      1,
      "function 'g' requires warp_size() >= 16: a tile is 16 lanes wide, but the target "
      "has warps of 1 threads");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_literal),
      cmocka_unit_test(test_requirements_that_hold),
      cmocka_unit_test(test_variants),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
