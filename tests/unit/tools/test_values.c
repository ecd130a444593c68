// SPDX-License-Identifier: Apache-2.0
// tests/unit/tools/test_values.c: what --arg takes, and the elements of arrays of every dtype.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tools/cli/args.h"
#include "tools/cli/run/elements.h"
#include "tools/cli/run/values.h"

static value_spec_t parsed(const char* text) {
  value_spec_t spec;
  qn_status_t status = value_parse(text, &spec);
  if (!qn_ok(status)) fail_msg("%s: %s", text, qn_status_message(status));
  return spec;
}

static npy_array_t made(const char* text) {
  value_spec_t spec = parsed(text);
  npy_array_t array;
  qn_status_t status = value_make(&spec, QN_DTYPE_NONE, &array);
  if (!qn_ok(status)) fail_msg("%s: %s", text, qn_status_message(status));
  return array;
}

static void test_scalars(void** state) {
  (void)state;
  assert_int_equal(parsed("-12").kind, VALUE_INT);
  assert_int_equal(parsed("-12").int_value, -12);
  assert_int_equal(parsed("9223372036854775807").int_value, INT64_MAX);
  assert_int_equal(parsed("9223372036854775807").kind, VALUE_INT);
  assert_int_equal(parsed("9223372036854775808").kind, VALUE_UINT);
  assert_int_equal(parsed("+9223372036854775808").int_value, INT64_MIN);
  assert_int_equal(parsed("18446744073709551615").int_value, -1);
  assert_int_equal(parsed("-9223372036854775808").kind, VALUE_INT);
  assert_int_equal(parsed("1e3").kind, VALUE_FLOAT);
  assert_true(parsed("1e3").float_value == 1000.0);
  assert_true(parsed("-.5").float_value == -0.5);
  assert_true(isnan(parsed("nan").float_value));
  assert_true(isinf(parsed("-inf").float_value));
  assert_int_equal(parsed("true").kind, VALUE_BOOL);
  assert_int_equal(parsed("true").int_value, 1);
  assert_int_equal(parsed("false").int_value, 0);
  assert_int_equal(parsed("dir/x.npy").kind, VALUE_FILE);
}

static void test_bad_values_say_why(void** state) {
  (void)state;
  static const struct {
    const char* text;
    const char* part;
  } cases[] = {
      {"", "not understood"},
      {"two", "not understood"},
      {"1x", "not understood"},
      {"18446744073709551616", "beyond 64-bit"},
      {"-9223372036854775809", "beyond 64-bit"},
      {"zero:f32[2]", "did you mean 'zeros:'"},
      {"gauss:f32[2]", "unknown generator"},
      {"zeros:", "a dtype is missing"},
      {"zeros:f31[2]", "unknown dtype 'f31'"},
      {"zeros:[2]", "a dtype is missing"},
      {"zeros:f32[2", "',' or ']'"},
      {"zeros:f32[-1]", "0 or more"},
      {"zeros:f32[a]", "0 or more"},
      {"zeros:f32[2]x", "more after"},
      {"zeros:f32[2]:1", "more after"},
      {"zeros:f32[99999999999999999999]", "2^63"},
      {"rand:f32[2]:x", "the seed"},
      {"rand:f32[2]:-1", "the seed"},
      {"rand:f32[2]:1.5", "more after"},
      {"ones:f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "at most 32"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    value_spec_t spec;
    qn_status_t status = value_parse(cases[i].text, &spec);
    assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
    if (!strstr(qn_status_message(status), cases[i].part)) {
      fail_msg("'%s': expected '%s' in: %s", cases[i].text, cases[i].part,
               qn_status_message(status));
    }
    qn_status_free(status);
  }
}

static void test_generated_arrays(void** state) {
  (void)state;
  for (int dtype = 1; dtype < QN_DTYPE_COUNT; dtype++) {
    if (conf_is_packed((qn_dtype_t)dtype)) continue;
    char text[64];
    (void)snprintf(text, sizeof text, "iota:%s[2, 3]", qn_dtype_text((qn_dtype_t)dtype));
    npy_array_t array = made(text);
    assert_int_equal(array.dtype, dtype);
    assert_int_equal(array.rank, 2);
    for (size_t i = 0; i < 6; i++) {
      size_t expected = dtype == QN_DTYPE_BOOL ? i % 2 : i;
      assert_true(conf_element(array.dtype, array.data, i) == (double)expected);
    }
    npy_free(&array);
    (void)snprintf(text, sizeof text, "ones:%s[3]", qn_dtype_text((qn_dtype_t)dtype));
    array = made(text);
    for (size_t i = 0; i < 3; i++) assert_true(conf_element(array.dtype, array.data, i) == 1.0);
    npy_free(&array);
    (void)snprintf(text, sizeof text, "rand:%s[1000]:9", qn_dtype_text((qn_dtype_t)dtype));
    array = made(text);
    double limit = dtype == QN_DTYPE_BOOL ? 2 : conf_is_float((qn_dtype_t)dtype) ? 1 : 10;
    double sum = 0;
    for (size_t i = 0; i < 1000; i++) {
      double value = conf_element(array.dtype, array.data, i);
      assert_true(value >= 0 && value < limit);
      sum += value;
    }
    double mean = sum / 1000;
    int precision = conf_precision((qn_dtype_t)dtype);
    double expected = precision > 0 ? (1 - ldexp(1, -precision)) / 2 : (limit - 1) / 2;
    assert_true(fabs(mean - expected) < 0.05 * limit);
    npy_free(&array);
  }
  npy_array_t packed = made("iota:u4[2, 8]");
  assert_int_equal(packed.size_bytes, 8);
  assert_int_equal(((const uint8_t*)packed.data)[1], 0x32);
  npy_free(&packed);
  packed = made("rand:i4[100]:3");
  for (size_t i = 0; i < 100; i++) assert_true(conf_integer(packed.dtype, packed.data, i) >= 0);
  npy_free(&packed);
  npy_array_t scalar = made("iota:f32[]");
  assert_int_equal(scalar.rank, 0);
  assert_int_equal(array_count(&scalar), 1);
  npy_free(&scalar);
  npy_array_t empty = made("ones:f32[3,0]");
  assert_int_equal(empty.size_bytes, 0);
  npy_free(&empty);
}

// The published outputs of SplitMix64, as the file says.
static void test_random_numbers_are_splitmix64(void** state) {
  (void)state;
  npy_array_t array = made("rand:f64[2]:0");
  assert_true(conf_element(array.dtype, array.data, 0) ==
              ldexp((double)(0xE220A8397B1DCDAFu >> 11), -53));
  assert_true(conf_element(array.dtype, array.data, 1) ==
              ldexp((double)(0x6E789E6AA1B965F4u >> 11), -53));
  npy_free(&array);
  array = made("rand:f32[1]:0");
  assert_true(conf_element(array.dtype, array.data, 0) ==
              ldexp((double)(0xE220A8397B1DCDAFu >> 40), -24));
  npy_free(&array);
  array = made("rand:i32[1]:0");
  assert_int_equal((int)conf_element(array.dtype, array.data, 0), 0xE220A839u % 10);
  npy_free(&array);
}

static void test_memory_that_is_not_there(void** state) {
  (void)state;
  value_spec_t spec = parsed("zeros:f32[1000000,1000000,1000]");
  npy_array_t array;
  assert_int_equal(qn_status_consume(value_make(&spec, QN_DTYPE_F32, &array)),
                   QN_STATUS_OUT_OF_MEMORY);
  assert_null(array.data);
}

static void test_small_floats_round_trip(void** state) {
  (void)state;
  static const qn_dtype_t dtypes[] = {QN_DTYPE_F16, QN_DTYPE_BF16};
  for (int d = 0; d < 2; d++) {
    uint16_t bits = 0;
    npy_array_t one = {.dtype = dtypes[d], .data = &bits};
    for (uint32_t i = 0; i < 65536; i++) {
      bits = (uint16_t)i;
      double value = conf_element(one.dtype, one.data, 0);
      conf_element_set(one.dtype, one.data, 0, value);
      if (isnan(value)) {
        assert_true(isnan(conf_element(one.dtype, one.data, 0)));
      } else {
        assert_int_equal(bits, i);
      }
    }
  }
}

static void test_small_floats_round_to_even(void** state) {
  (void)state;
  uint16_t bits = 0;
  npy_array_t half = {.dtype = QN_DTYPE_F16, .data = &bits};
  static const struct {
    double value;
    uint16_t bits;
  } cases[] = {
      {1.0 + 0x1p-11, 0x3C00}, {1.0 + 0x1.8p-10, 0x3C02},   {65519.0, 0x7BFF},   {65520.0, 0x7C00},
      {-1e9, 0xFC00},          {0x1p-25, 0x0000},           {0x1.8p-25, 0x0001}, {0x1p-14, 0x0400},
      {-0.0, 0x8000},          {0x1p-14 - 0x1p-26, 0x0400},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    conf_element_set(half.dtype, half.data, 0, cases[i].value);
    assert_int_equal(bits, cases[i].bits);
  }
  npy_array_t brain = {.dtype = QN_DTYPE_BF16, .data = &bits};
  conf_element_set(brain.dtype, brain.data, 0, 1.0 + 0x1p-8);
  assert_int_equal(bits, 0x3F80);
  conf_element_set(brain.dtype, brain.data, 0, 1.0 + 0x1.8p-7);
  assert_int_equal(bits, 0x3F82);
}

static void expect_text(npy_array_t array, const char* expected) {
  char text[40];
  assert_string_equal(element_text(&array, 0, text), expected);
}

static void test_texts_are_short_and_exact(void** state) {
  (void)state;
  float f32 = 0.1f;
  expect_text((npy_array_t){.dtype = QN_DTYPE_F32, .data = &f32}, "0.1");
  f32 = 10.0f;
  expect_text((npy_array_t){.dtype = QN_DTYPE_F32, .data = &f32}, "10");
  f32 = 1e30f;
  expect_text((npy_array_t){.dtype = QN_DTYPE_F32, .data = &f32}, "1e+30");
  f32 = (float)NAN;
  expect_text((npy_array_t){.dtype = QN_DTYPE_F32, .data = &f32}, "nan");
  f32 = -(float)INFINITY;
  expect_text((npy_array_t){.dtype = QN_DTYPE_F32, .data = &f32}, "-inf");
  double f64 = 0.1 + 0.2;
  expect_text((npy_array_t){.dtype = QN_DTYPE_F64, .data = &f64}, "0.30000000000000004");
  uint64_t u64 = UINT64_MAX;
  expect_text((npy_array_t){.dtype = QN_DTYPE_U64, .data = &u64}, "18446744073709551615");
  int64_t i64 = INT64_MIN;
  expect_text((npy_array_t){.dtype = QN_DTYPE_I64, .data = &i64}, "-9223372036854775808");
  uint16_t small = 0x3C00;
  expect_text((npy_array_t){.dtype = QN_DTYPE_F16, .data = &small}, "1");
  small = 0x3DCD;
  expect_text((npy_array_t){.dtype = QN_DTYPE_BF16, .data = &small}, "0.1");
  uint8_t flag = 1;
  expect_text((npy_array_t){.dtype = QN_DTYPE_BOOL, .data = &flag}, "true");
}

static void test_nearest_names(void** state) {
  (void)state;
  static const char* const names[] = {"run", "check", "fmt", "compile"};
  const size_t count = sizeof names / sizeof names[0];
  assert_string_equal(nearest_name("rnu", names, sizeof names[0], count), "run");
  assert_string_equal(nearest_name("chekc", names, sizeof names[0], count), "check");
  assert_string_equal(nearest_name("compiel", names, sizeof names[0], count), "compile");
  assert_null(nearest_name("zzz", names, sizeof names[0], count));
  assert_null(nearest_name("", names, sizeof names[0], count));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_scalars),
      cmocka_unit_test(test_bad_values_say_why),
      cmocka_unit_test(test_generated_arrays),
      cmocka_unit_test(test_random_numbers_are_splitmix64),
      cmocka_unit_test(test_memory_that_is_not_there),
      cmocka_unit_test(test_small_floats_round_trip),
      cmocka_unit_test(test_small_floats_round_to_even),
      cmocka_unit_test(test_texts_are_short_and_exact),
      cmocka_unit_test(test_nearest_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
