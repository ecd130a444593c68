// SPDX-License-Identifier: Apache-2.0
// tests/unit/base/test_integer.c: tests the integer results of every operator: edge cases, random
// values against 128-bit integers, and every operator of every small dtype against i64.
//
// Elsewhere: floats and conversions (tests/unit/ir/test_arith.c).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "base/integer.h"
#include "tests/support/random.h"

static const qn_dtype_t int_dtypes[] = {QN_DTYPE_I8, QN_DTYPE_I16, QN_DTYPE_I32, QN_DTYPE_I64,
                                        QN_DTYPE_U8, QN_DTYPE_U16, QN_DTYPE_U32, QN_DTYPE_U64};

static uint64_t random_state = 0x2545F4914F6CDD1Du;

static int64_t int_op(qn_op_t op, qn_dtype_t dtype, int64_t a, int64_t b) {
  int64_t out;
  assert_true(qn__int_op(op, dtype, a, b, &out));
  return out;
}

static void integers_wrap(void** state) {
  (void)state;
  assert_int_equal(qn__wrap_int(QN_DTYPE_I8, 128), -128);
  assert_int_equal(qn__wrap_int(QN_DTYPE_U8, -1), 255);
  assert_int_equal(qn__wrap_int(QN_DTYPE_I32, INT64_C(0x180000000)), INT32_MIN);
  assert_int_equal(qn__wrap_int(QN_DTYPE_U64, -1), -1);
  assert_int_equal(qn__wrap_int(QN_DTYPE_BOOL, 6), 1);
  assert_int_equal(int_op(QN_OP_ADD, QN_DTYPE_I64, INT64_MAX, 1), INT64_MIN);
  assert_int_equal(int_op(QN_OP_MUL, QN_DTYPE_I8, -128, -128), 0);
  assert_int_equal(int_op(QN_OP_SUB, QN_DTYPE_U16, 0, 1), 65535);
  assert_int_equal(int_op(QN_OP_NEG, QN_DTYPE_U32, 1, 0), UINT32_MAX);
  assert_int_equal(int_op(QN_OP_ABS, QN_DTYPE_I8, -128, 0), -128);
  assert_int_equal(int_op(QN_OP_ABS, QN_DTYPE_U8, 200, 0), 200);
}

static void divisions_follow_their_names(void** state) {
  (void)state;
  qn_dtype_t d = QN_DTYPE_I32;
  assert_int_equal(int_op(QN_OP_FLOORDIV, d, -7, 2), -4);
  assert_int_equal(int_op(QN_OP_FLOORDIV, d, 7, -2), -4);
  assert_int_equal(int_op(QN_OP_FLOORMOD, d, -7, 2), 1);
  assert_int_equal(int_op(QN_OP_FLOORMOD, d, 7, -2), -1);
  assert_int_equal(int_op(QN_OP_TRUNCDIV, d, -7, 2), -3);
  assert_int_equal(int_op(QN_OP_TRUNCMOD, d, -7, 2), -1);
  assert_int_equal(int_op(QN_OP_CEILDIV, d, -7, 2), -3);
  assert_int_equal(int_op(QN_OP_CEILDIV, d, 7, 2), 4);
  assert_int_equal(int_op(QN_OP_CEILDIV, QN_DTYPE_U64, -1, 2), INT64_MIN);
  for (size_t i = 0; i < 4; i++) {
    int64_t smallest = (int64_t)(UINT64_MAX << (qn__dtype_bits(int_dtypes[i]) - 1));
    assert_int_equal(int_op(QN_OP_FLOORDIV, int_dtypes[i], smallest, -1), smallest);
    assert_int_equal(int_op(QN_OP_TRUNCDIV, int_dtypes[i], smallest, -1), smallest);
    assert_int_equal(int_op(QN_OP_CEILDIV, int_dtypes[i], smallest, -1), smallest);
    assert_int_equal(int_op(QN_OP_FLOORMOD, int_dtypes[i], smallest, -1), 0);
    assert_int_equal(int_op(QN_OP_TRUNCMOD, int_dtypes[i], smallest, -1), 0);
  }
  for (size_t i = 0; i < QN_COUNT_OF(int_dtypes); i++) {
    for (qn_op_t op = QN_OP_FLOORDIV; op <= QN_OP_CEILDIV; op++) {
      int64_t out = 5;
      assert_false(qn__int_op(op, int_dtypes[i], 3, 0, &out));
      assert_int_equal(out, 0);
    }
  }
}

__extension__ typedef __int128 wide_t;
__extension__ typedef unsigned __int128 unsigned_wide_t;

// The value of an integer of `dtype`, which 64 bits of sign cannot hold for u64.
static wide_t wide(qn_dtype_t dtype, int64_t value) {
  return dtype == QN_DTYPE_U64 ? (wide_t)(uint64_t)value : (wide_t)value;
}

static wide_t floor_divide(wide_t a, wide_t b) {
  wide_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static void random_integers_agree_with_wide_ones(void** state) {
  (void)state;
  for (int round = 0; round < 40000; round++) {
    qn_dtype_t d = int_dtypes[random_next(&random_state) % 8];
    // Small values are as interesting as large ones.
    int64_t a =
        qn__wrap_int(d, (int64_t)(random_next(&random_state) >> (random_next(&random_state) % 64)));
    int64_t b =
        qn__wrap_int(d, (int64_t)(random_next(&random_state) >> (random_next(&random_state) % 64)));
    if (random_next(&random_state) % 2) b = qn__wrap_int(d, -b);
    wide_t wa = wide(d, a);
    wide_t wb = wide(d, b);
    assert_int_equal(int_op(QN_OP_ADD, d, a, b), qn__wrap_int(d, (int64_t)(wa + wb)));
    assert_int_equal(int_op(QN_OP_SUB, d, a, b), qn__wrap_int(d, (int64_t)(wa - wb)));
    uint64_t product = (uint64_t)a * (uint64_t)b;
    assert_int_equal(int_op(QN_OP_MUL, d, a, b), qn__wrap_int(d, (int64_t)product));
    wide_t high = d == QN_DTYPE_U64 ? (wide_t)((unsigned_wide_t)wa * (unsigned_wide_t)wb >> 64)
                                    : wa * wb >> qn__dtype_bits(d);
    assert_int_equal(int_op(QN_OP_MULHI, d, a, b), qn__wrap_int(d, (int64_t)high));
    assert_int_equal(int_op(QN_OP_MIN, d, a, b), wa < wb ? a : b);
    assert_int_equal(int_op(QN_OP_MAX, d, a, b), wa < wb ? b : a);
    assert_int_equal(qn__int_compare(QN_OP_EQ, d, a, b), wa == wb);
    assert_int_equal(qn__int_compare(QN_OP_NE, d, a, b), wa != wb);
    assert_int_equal(qn__int_compare(QN_OP_LT, d, a, b), wa < wb);
    assert_int_equal(qn__int_compare(QN_OP_LE, d, a, b), wa <= wb);
    assert_int_equal(qn__int_compare(QN_OP_GT, d, a, b), wa > wb);
    assert_int_equal(qn__int_compare(QN_OP_GE, d, a, b), wa >= wb);
    if (b == 0) continue;
    wide_t q = floor_divide(wa, wb);
    assert_int_equal(int_op(QN_OP_FLOORDIV, d, a, b), qn__wrap_int(d, (int64_t)q));
    assert_int_equal(int_op(QN_OP_FLOORMOD, d, a, b), qn__wrap_int(d, (int64_t)(wa - q * wb)));
    assert_int_equal(int_op(QN_OP_TRUNCDIV, d, a, b), qn__wrap_int(d, (int64_t)(wa / wb)));
    assert_int_equal(int_op(QN_OP_TRUNCMOD, d, a, b), qn__wrap_int(d, (int64_t)(wa % wb)));
    assert_int_equal(int_op(QN_OP_CEILDIV, d, a, b),
                     qn__wrap_int(d, (int64_t)-floor_divide(-wa, wb)));
  }
}

static void bits_are_those_of_the_width(void** state) {
  (void)state;
  assert_int_equal(int_op(QN_OP_SHL, QN_DTYPE_I8, 1, 7), -128);
  assert_int_equal(int_op(QN_OP_SHL, QN_DTYPE_U8, 1, 9), 2);  // modulo 8
  assert_int_equal(int_op(QN_OP_SHR, QN_DTYPE_I8, -128, 15), -1);
  assert_int_equal(int_op(QN_OP_SHR, QN_DTYPE_U8, 255, -1), 1);  // -1 is 7 modulo 8
  assert_int_equal(int_op(QN_OP_SHR, QN_DTYPE_I64, INT64_MIN, 63), -1);
  assert_int_equal(int_op(QN_OP_SHR, QN_DTYPE_U64, -1, 63), 1);
  assert_int_equal(int_op(QN_OP_NOT, QN_DTYPE_U8, 1, 0), 254);
  assert_int_equal(int_op(QN_OP_NOT, QN_DTYPE_I32, 0, 0), -1);
  assert_int_equal(int_op(QN_OP_NOT, QN_DTYPE_BOOL, 1, 0), 0);
  assert_int_equal(int_op(QN_OP_XOR, QN_DTYPE_BOOL, 1, 1), 0);
  assert_int_equal(int_op(QN_OP_POPCOUNT, QN_DTYPE_I8, -1, 0), 8);
  assert_int_equal(int_op(QN_OP_POPCOUNT, QN_DTYPE_I64, -1, 0), 64);
  assert_int_equal(int_op(QN_OP_CLZ, QN_DTYPE_I16, 0, 0), 16);
  assert_int_equal(int_op(QN_OP_CLZ, QN_DTYPE_I16, -1, 0), 0);
  assert_int_equal(int_op(QN_OP_CLZ, QN_DTYPE_U32, 1, 0), 31);
  assert_int_equal(int_op(QN_OP_CLZ, QN_DTYPE_U64, 1, 0), 63);
  assert_int_equal(int_op(QN_OP_CTZ, QN_DTYPE_I8, 0, 0), 8);
  assert_int_equal(int_op(QN_OP_CTZ, QN_DTYPE_I8, -128, 0), 7);
  assert_int_equal(int_op(QN_OP_CTZ, QN_DTYPE_U64, 0, 0), 64);
  assert_int_equal(int_op(QN_OP_CTZ, QN_DTYPE_I64, INT64_MIN, 0), 63);
  assert_int_equal(int_op(QN_OP_ROTL, QN_DTYPE_I8, -128, 1), 1);
  assert_int_equal(int_op(QN_OP_ROTL, QN_DTYPE_U8, 0x81, -4), 0x18);
  assert_int_equal(int_op(QN_OP_ROTL, QN_DTYPE_I32, 5, 32), 5);
  assert_int_equal(int_op(QN_OP_ROTL, QN_DTYPE_U64, 3, -1), INT64_MIN + 1);
  assert_int_equal(int_op(QN_OP_ROTL, QN_DTYPE_I64, INT64_MIN, 64), INT64_MIN);
  assert_int_equal(qn__int_compare(QN_OP_LT, QN_DTYPE_BOOL, 0, 1), 1);
}

// ------------------------------------------------------------------------------------ outcomes

static void expect_i64(qn_op_t op, int64_t a, int64_t b, int64_t value, qn__int_outcome_t outcome) {
  int64_t out = 77;
  assert_int_equal(qn__i64_op(op, a, b, &out), outcome);
  assert_int_equal(out, value);
}

static void i64_tells_what_left_its_range(void** state) {
  (void)state;
  expect_i64(QN_OP_ADD, INT64_MAX, 0, INT64_MAX, QN__INT_EXACT);
  expect_i64(QN_OP_ADD, INT64_MAX, 1, INT64_MIN, QN__INT_OVERFLOW);
  expect_i64(QN_OP_SUB, INT64_MIN, 1, INT64_MAX, QN__INT_OVERFLOW);
  expect_i64(QN_OP_MUL, INT64_MIN, -1, INT64_MIN, QN__INT_OVERFLOW);
  expect_i64(QN_OP_MUL, INT64_MIN, 0, 0, QN__INT_EXACT);
  expect_i64(QN_OP_NEG, INT64_MIN, 0, INT64_MIN, QN__INT_OVERFLOW);
  expect_i64(QN_OP_NEG, INT64_MAX, 0, -INT64_MAX, QN__INT_EXACT);
  expect_i64(QN_OP_ABS, INT64_MIN, 0, INT64_MIN, QN__INT_OVERFLOW);
  expect_i64(QN_OP_ABS, INT64_MIN + 1, 0, INT64_MAX, QN__INT_EXACT);
  // Bits that are shifted out are no overflow.
  expect_i64(QN_OP_SHL, INT64_MAX, 1, -2, QN__INT_EXACT);
  for (qn_op_t op = QN_OP_FLOORDIV; op <= QN_OP_CEILDIV; op++) {
    bool is_rest = op == QN_OP_FLOORMOD || op == QN_OP_TRUNCMOD;
    expect_i64(op, INT64_MIN, -1, is_rest ? 0 : INT64_MIN, QN__INT_OVERFLOW);
    expect_i64(op, INT64_MIN + 1, -1, is_rest ? 0 : INT64_MAX, QN__INT_EXACT);
    expect_i64(op, INT64_MIN, 1, is_rest ? 0 : INT64_MIN, QN__INT_EXACT);
    expect_i64(op, INT64_MIN, 0, 0, QN__INT_DIVIDED_BY_ZERO);
    expect_i64(op, 0, 0, 0, QN__INT_DIVIDED_BY_ZERO);
  }
  // The rounded quotient times the divisor is beyond the range.
  expect_i64(QN_OP_CEILDIV, 2, INT64_MIN + 1, 0, QN__INT_EXACT);
  expect_i64(QN_OP_FLOORDIV, 2, INT64_MIN + 1, -1, QN__INT_EXACT);
  expect_i64(QN_OP_FLOORMOD, 2, INT64_MIN + 1, INT64_MIN + 3, QN__INT_EXACT);
  expect_i64(QN_OP_FLOORMOD, INT64_MIN, INT64_MAX, INT64_MAX - 1, QN__INT_EXACT);
}

static void random_sums_tell_what_left_the_range(void** state) {
  (void)state;
  for (int round = 0; round < 40000; round++) {
    int64_t a = (int64_t)(random_next(&random_state) >> (random_next(&random_state) % 64));
    int64_t b = (int64_t)(random_next(&random_state) >> (random_next(&random_state) % 64));
    wide_t sum = (wide_t)a + b, difference = (wide_t)a - b, product = (wide_t)a * b;
    expect_i64(QN_OP_ADD, a, b, (int64_t)sum,
               sum == (int64_t)sum ? QN__INT_EXACT : QN__INT_OVERFLOW);
    expect_i64(QN_OP_SUB, a, b, (int64_t)difference,
               difference == (int64_t)difference ? QN__INT_EXACT : QN__INT_OVERFLOW);
    expect_i64(QN_OP_MUL, a, b, (int64_t)product,
               product == (int64_t)product ? QN__INT_EXACT : QN__INT_OVERFLOW);
  }
}

// ------------------------------------------------------------------------------------ dtypes

// 8 bits, all pairs: what i64 computes, wrapped, except where the width itself counts.
static void small_dtypes_are_i64_wrapped(void** state) {
  (void)state;
  static const qn_op_t ops[] = {QN_OP_ADD,      QN_OP_SUB,      QN_OP_MUL,      QN_OP_FLOORDIV,
                                QN_OP_FLOORMOD, QN_OP_TRUNCDIV, QN_OP_TRUNCMOD, QN_OP_CEILDIV,
                                QN_OP_MIN,      QN_OP_MAX,      QN_OP_NEG,      QN_OP_ABS,
                                QN_OP_AND,      QN_OP_OR,       QN_OP_XOR,      QN_OP_NOT};
  static const qn_dtype_t dtypes[] = {QN_DTYPE_I8, QN_DTYPE_U8};
  for (size_t d = 0; d < 2; d++) {
    for (int i = 0; i < 65536; i++) {
      int64_t a = qn__wrap_int(dtypes[d], i), b = qn__wrap_int(dtypes[d], i >> 8);
      for (size_t o = 0; o < QN_COUNT_OF(ops); o++) {
        int64_t wide_value, value;
        bool is_ok = qn__i64_op(ops[o], a, b, &wide_value) != QN__INT_DIVIDED_BY_ZERO;
        assert_int_equal(qn__int_op(ops[o], dtypes[d], a, b, &value), is_ok);
        assert_int_equal(value, qn__wrap_int(dtypes[d], wide_value));
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(integers_wrap),
      cmocka_unit_test(divisions_follow_their_names),
      cmocka_unit_test(random_integers_agree_with_wide_ones),
      cmocka_unit_test(bits_are_those_of_the_width),
      cmocka_unit_test(i64_tells_what_left_its_range),
      cmocka_unit_test(random_sums_tell_what_left_the_range),
      cmocka_unit_test(small_dtypes_are_i64_wrapped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
