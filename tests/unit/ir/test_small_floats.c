// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_small_floats.c: tests conversions of the floats of 8 and 4 bits against those
// of ml_dtypes.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "ir/ir.h"

typedef struct row {
  qn_dtype_t dtype;
  uint32_t code;
  uint32_t f32;
} row_t;

static const row_t decoded[] = {
#define QN_DECODED(dtype, code, bits) {QN_DTYPE_##dtype, code, bits},
#define QN_ENCODED(dtype, bits, code)
#include "tests/unit/ir/small_floats.inc"
#undef QN_DECODED
#undef QN_ENCODED
};

static const row_t encoded[] = {
#define QN_DECODED(dtype, code, bits)
#define QN_ENCODED(dtype, bits, code) {QN_DTYPE_##dtype, code, bits},
#include "tests/unit/ir/small_floats.inc"
#undef QN_DECODED
#undef QN_ENCODED
};

static uint32_t converted(qn_dtype_t from, uint64_t bits, qn_dtype_t to) {
  qn__ir_scalar_t value = qn__scalar_cast(from, qn__scalar_from_bits(from, bits), to);
  return (uint32_t)qn__scalar_to_bits(to, value);
}

static void every_code_is_decoded(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(decoded); i++) {
    const row_t* row = &decoded[i];
    assert_int_equal(converted(row->dtype, row->code, QN_DTYPE_F32), row->f32);
    // As bits, each code stays what it is: a signalling NaN, too.
    qn__ir_scalar_t value = qn__scalar_from_bits(row->dtype, row->code);
    assert_int_equal(qn__scalar_to_bits(row->dtype, value), row->code);
    if (!isnan(value.f)) {
      assert_int_equal(converted(QN_DTYPE_F64, qn__scalar_to_bits(QN_DTYPE_F64, value), row->dtype),
                       row->code);
    }
  }
}

static void values_are_rounded_to_even(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(encoded); i++) {
    const row_t* row = &encoded[i];
    uint32_t code = converted(QN_DTYPE_F32, row->f32, row->dtype);
    if (code != row->code) {
      fail_msg("0x%08x to %s: 0x%02x, expected 0x%02x", row->f32, qn_dtype_text(row->dtype), code,
               row->code);
    }
  }
}

// A value just above a middle, by less than f32 can tell, is rounded once.
static void f64_and_integers_are_rounded_once(void** state) {
  (void)state;
  qn__ir_scalar_t value = {.f = 1.0625 + 0x1p-50};  // between 1 and 1.125
  assert_true(qn__scalar_cast(QN_DTYPE_F64, value, QN_DTYPE_F8E4M3FN).f == 1.125);
  value.f = 1.125 + 0x1p-50;  // between 1 and 1.25
  assert_true(qn__scalar_cast(QN_DTYPE_F64, value, QN_DTYPE_F8E5M2).f == 1.25);
  value.i = 57344;
  assert_true(qn__scalar_cast(QN_DTYPE_I64, value, QN_DTYPE_F8E5M2).f == 57344);
  value.i = INT64_MIN;
  assert_true(isinf(qn__scalar_cast(QN_DTYPE_I64, value, QN_DTYPE_F8E5M2).f));
  assert_true(isnan(qn__scalar_cast(QN_DTYPE_I64, value, QN_DTYPE_F8E4M3FN).f));
  value.f = qn__scalar_from_bits(QN_DTYPE_F8E5M2, 0x7C).f;
  assert_int_equal(qn__scalar_cast(QN_DTYPE_F8E5M2, value, QN_DTYPE_I32).i, INT32_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_code_is_decoded),
      cmocka_unit_test(values_are_rounded_to_even),
      cmocka_unit_test(f64_and_integers_are_rounded_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
