// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_decimal.c: decimals are rounded once when read, and printed as short as they
// can be to come back.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/decimal.h"

static void test_decimals_round_once(void** state) {
  (void)state;
  static const struct {
    qn_dtype_t dtype;
    const char* text;
    double value;
  } cases[] = {
      {QN_DTYPE_F64, "0.1", 0.1},
      {QN_DTYPE_F64, "1e308", 1e308},
      {QN_DTYPE_F64, "1.7976931348623157e308", 1.7976931348623157e308},
      {QN_DTYPE_F64, "1.7976931348623159e308", (double)INFINITY},
      {QN_DTYPE_F64, "4.9406564584124654e-324", 0x1p-1074},
      {QN_DTYPE_F64, "2.4703282292062327e-324", 0.0},
      {QN_DTYPE_F64, "2.4703282292062329e-324", 0x1p-1074},
      {QN_DTYPE_F64, "1e-400", 0.0},
      {QN_DTYPE_F64, "1e999999999999", (double)INFINITY},
      {QN_DTYPE_F64, "0e999999999999", 0.0},
      {QN_DTYPE_F64, "9007199254740993.0", 9007199254740992.0},
      {QN_DTYPE_F64, "9007199254740993.00000000000000000000000000001", 9007199254740994.0},
      {QN_DTYPE_F32, "0.1", 0x1.99999ap-4},
      {QN_DTYPE_F32, "16777217.0", 16777216.0},
      {QN_DTYPE_F32, "16777219.0", 16777220.0},
      // Through double this would land on the tie and go to even: down.
      {QN_DTYPE_F32, "1.000000059604644775390626", 0x1.000002p0},
      {QN_DTYPE_F32, "3.4028235677973367e38", (double)INFINITY},
      {QN_DTYPE_F32, "3.4028235677973362e38", 0x1.fffffep127},
      {QN_DTYPE_F32, "7.0064923216240854e-46", 0x1p-149},
      {QN_DTYPE_F32, "7.0064923216240853e-46", 0.0},
      {QN_DTYPE_F16, "65519.99999", 65504.0},
      {QN_DTYPE_F16, "65520.0", (double)INFINITY},
      {QN_DTYPE_F16, "0.1", 0x1.998p-4},
      {QN_DTYPE_F16, "5.9604644775390625e-8", 0x1p-24},
      {QN_DTYPE_F16, "2049.0", 2048.0},
      {QN_DTYPE_F16, "2051.0", 2052.0},
      {QN_DTYPE_BF16, "1.00390625", 1.0},
      {QN_DTYPE_BF16, "1.00390626", 1.0078125},
      {QN_DTYPE_BF16, "3.3e38", 0x1.fp127},
      {QN_DTYPE_F64, "1_0.2_5e1_0", 10.25e10},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    double value = qn__decimal_parse(cases[i].dtype, qn__str(cases[i].text));
    if (value != cases[i].value) fail_msg("%s: %a, not %a", cases[i].text, value, cases[i].value);
  }
}

static void assert_round_trip(qn_dtype_t dtype, double value, qn__buffer_t* out) {
  qn__buffer_clear(out);
  qn__decimal_print(dtype, value, out);
  const char* text = (const char*)out->data;
  bool is_negative = text[0] == '-';
  double again = qn__decimal_parse(dtype, qn__str(text + is_negative));
  if (is_negative) again = -again;
  if (again != value || signbit(again) != signbit(value)) {
    fail_msg("%a prints as %s, which is %a", value, text, again);
  }
  assert_non_null(strpbrk(text, ".e"));
}

static void test_floats_print_shortest_and_come_back(void** state) {
  (void)state;
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  // All values of the 16-bit dtypes.
  for (uint32_t bits = 0; bits < 65536; bits++) {
    double half = qn__scalar_from_bits(QN_DTYPE_F16, bits).f;
    if (isfinite(half)) assert_round_trip(QN_DTYPE_F16, half, &out);
    double brain = qn__scalar_from_bits(QN_DTYPE_BF16, bits).f;
    if (isfinite(brain)) assert_round_trip(QN_DTYPE_BF16, brain, &out);
  }
  uint64_t random = 88172645463325252u;
  for (int i = 0; i < 20000; i++) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    double wide = qn__scalar_from_bits(QN_DTYPE_F64, random).f;
    double narrow = qn__scalar_from_bits(QN_DTYPE_F32, random >> 32).f;
    if (isfinite(wide)) assert_round_trip(QN_DTYPE_F64, wide, &out);
    if (!isfinite(narrow)) continue;
    assert_round_trip(QN_DTYPE_F32, narrow, &out);
    // No text with fewer digits comes back: compare with the C library, digit by digit.
    char text[32];
    int digits = 1;
    for (; digits <= 9; digits++) {
      (void)snprintf(text, sizeof text, "%.*e", digits - 1, narrow);
      if ((double)strtof(text, NULL) == narrow) break;
    }
    int printed = 0;
    for (const char* c = (const char*)out.data; *c && *c != 'e'; c++) {
      if (*c >= '0' && *c <= '9' && (printed > 0 || *c != '0')) printed++;
    }
    const char* point = strchr((const char*)out.data, '.');
    bool is_padded = !strchr((const char*)out.data, 'e') && point && strcmp(point, ".0") == 0;
    if (!is_padded && printed > digits) fail_msg("%s has more than %d digits", out.data, digits);
  }
  static const struct {
    double value;
    const char* text;
  } cases[] = {{0.0, "0.0"},
               {-0.0, "-0.0"},
               {1.0, "1.0"},
               {0.1, "0.1"},
               {100.0, "100.0"},
               {1e15, "1000000000000000.0"},
               {1e16, "1e16"},
               {1.5e-5, "0.000015"},
               {1.5e-6, "1.5e-6"},
               {123.456, "123.456"},
               {1e-30, "1e-30"},
               {(double)INFINITY, "inf"},
               {-(double)INFINITY, "-inf"},
               {(double)NAN, "nan"}};
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn__buffer_clear(&out);
    qn__decimal_print(QN_DTYPE_F64, cases[i].value, &out);
    assert_string_equal((const char*)out.data, cases[i].text);
  }
  qn__buffer_deinit(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_decimals_round_once),
      cmocka_unit_test(test_floats_print_shortest_and_come_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
