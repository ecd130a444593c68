// SPDX-License-Identifier: Apache-2.0
// tests/serve/test_number.c: numbers of JSON against strtof, strtod and printf.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/number.h"

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static const char* print(float value, char text[SERVE_F32_LENGTH + 1]) {
  const size_t size = serve_f32_print(value, text);
  assert_true(size <= SERVE_F32_LENGTH);
  text[size] = '\0';
  return text;
}

static void test_forms(void** state) {
  (void)state;
  static const struct {
    float value;
    const char* text;
  } cases[] = {
      {0.0f, "0"},
      {-0.0f, "-0"},
      {1.0f, "1"},
      {-2.5f, "-2.5"},
      {0.1f, "0.1"},
      {1e-4f, "0.0001"},
      {1e-5f, "1e-5"},
      {123456.79f, "123456.79"},
      {16777216.0f, "16777216"},
      {1e9f, "1e9"},
      {100000000.0f, "100000000"},
      {3.4028235e38f, "3.4028235e38"},
      {1e-45f, "1e-45"},
      {1.17549435e-38f, "1.1754944e-38"},
      {9007199254740992.0f, "9.007199e15"},
  };
  char text[SERVE_F32_LENGTH + 1];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    assert_string_equal(print(cases[i].value, text), cases[i].text);
  }
  assert_string_equal(print(from_bits(0x7fc00000), text), "null");
  assert_string_equal(print(from_bits(0xff800000), text), "null");
}

static int count_digits(const char* text) {
  char digits[24];
  int count = 0;
  for (; *text && *text != 'e'; ++text) {
    if (*text >= '0' && *text <= '9' && (count > 0 || *text != '0')) digits[count++] = *text;
  }
  while (count > 1 && digits[count - 1] == '0') --count;
  return count;
}

// No decimal of fewer digits reads back as the same number, and none of as many is nearer.
static void test_shortest(void** state) {
  (void)state;
  for (uint64_t bits = 1; bits < 0x7f800000; bits += 9973) {
    const float value = from_bits((uint32_t)bits);
    char text[SERVE_F32_LENGTH + 1];
    (void)print(value, text);
    assert_true(strtof(text, NULL) == value);
    char other[40];
    int digits = 1;
    for (; digits < 9; ++digits) {
      (void)snprintf(other, sizeof other, "%.*e", digits - 1, (double)value);
      if (strtof(other, NULL) == value) break;
    }
    assert_true(count_digits(text) <= digits);
    if (count_digits(text) == digits) {
      assert_true(fabs(strtod(text, NULL) - (double)value) <=
                  fabs(strtod(other, NULL) - (double)value));
    }
  }
}

static void test_powers_of_two(void** state) {
  (void)state;
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (int32_t step = -2; step <= 2; ++step) {
      const float value = from_bits((exponent << 23) + (uint32_t)step);
      if (!isfinite(value)) continue;
      char text[SERVE_F32_LENGTH + 1];
      assert_true(strtof(print(value, text), NULL) == value);
    }
  }
}

static void test_integers(void** state) {
  (void)state;
  static const int64_t values[] = {0, 7, -7, 10, 99, 30522, INT32_MIN, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; ++i) {
    char text[SERVE_I64_LENGTH + 1];
    char expected[32];
    const size_t size = serve_i64_print(values[i], text);
    text[size] = '\0';
    (void)snprintf(expected, sizeof expected, "%lld", (long long)values[i]);
    assert_string_equal(text, expected);
    int64_t value = 1;
    assert_int_equal(serve_i64_read(text, size, &value), size);
    assert_true(value == values[i]);
  }
}

static void test_refused(void** state) {
  (void)state;
  static const char* const none[] = {"",     "-",  "+1",  "01",  ".5",      "1.",
                                     "1.e5", "1e", "1e+", "abc", "- 1",     "--1",
                                     "-01",  "e5", "-.5", "NaN", "Infinity"};
  double real;
  int64_t integer;
  for (size_t i = 0; i < sizeof none / sizeof none[0]; ++i) {
    assert_int_equal(serve_f64_read(none[i], strlen(none[i]), &real), 0);
    if (none[i][0] != '1') assert_int_equal(serve_i64_read(none[i], strlen(none[i]), &integer), 0);
  }
  static const char* const no_integers[] = {
      "1.5", "1e5", "1.", "9223372036854775808", "-9223372036854775809", "18446744073709551617"};
  for (size_t i = 0; i < sizeof no_integers / sizeof no_integers[0]; ++i) {
    assert_int_equal(serve_i64_read(no_integers[i], strlen(no_integers[i]), &integer), 0);
  }
}

static void expect_real(const char* text) {
  double value = 0;
  assert_int_equal(serve_f64_read(text, strlen(text), &value), strlen(text));
  const double expected = strtod(text, NULL);
  assert_memory_equal(&value, &expected, sizeof value);
}

static void test_reals(void** state) {
  (void)state;
  static const char* const texts[] = {
      "0",
      "-0",
      "0.0",
      "1.5",
      "1e22",
      "1e23",
      "123456789012345678901234567890",
      "5e-324",
      "1e-400",
      "1e400",
      "-1e400",
      "0.1",
      "1E+5",
      "2.2250738585072011e-308",
      "0.00000000000000000000000000000000000000001",
      "9007199254740993",
      "9007199254740992.5",
      "1.7976931348623157e308",
      "1e99999999999999999999",
      "0.30000000000000004440892098500626161694526672363281250000000000000000000000000000001"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) expect_real(texts[i]);
  uint64_t seed = 1;
  for (int i = 0; i < 20000; ++i) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    double value;
    memcpy(&value, &seed, sizeof value);
    if (!isfinite(value)) continue;
    char text[64];
    (void)snprintf(text, sizeof text, "%.*g", 1 + i % 17, value);
    // printf writes an exponent as JSON does.
    expect_real(text);
    (void)snprintf(text, sizeof text, "%.3f", fmod(value, 1e6));
    if (!strstr(text, "nan")) expect_real(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_forms),         cmocka_unit_test(test_shortest),
      cmocka_unit_test(test_powers_of_two), cmocka_unit_test(test_integers),
      cmocka_unit_test(test_refused),       cmocka_unit_test(test_reals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
