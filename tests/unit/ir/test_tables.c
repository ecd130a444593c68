// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_tables.c: tests lookups in the tables, operand rules, and values that must
// never change.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "ir/ir.h"

static void dtypes_are_found_by_text(void** state) {
  (void)state;
  for (int i = QN_DTYPE_NONE + 1; i < QN_DTYPE_COUNT; i++) {
    qn_dtype_t dtype = (qn_dtype_t)i;
    assert_int_equal(qn_dtype_parse(qn_dtype_text(dtype)), dtype);
    assert_int_equal(qn_dtype_size_bits(dtype), qn__dtype_bits(dtype));
    assert_int_equal(qn_dtype_size_bytes(dtype), (qn__dtype_bits(dtype) + 7) / 8);
    assert_true(qn_dtype_size_bytes(dtype) > 0);
  }
  assert_int_equal(qn_dtype_parse("f33"), QN_DTYPE_NONE);
  assert_int_equal(qn_dtype_parse("none"), QN_DTYPE_NONE);
  assert_int_equal(qn_dtype_parse(""), QN_DTYPE_NONE);
  assert_string_equal(qn_dtype_text((qn_dtype_t)1000), "none");
  assert_string_equal(qn_dtype_text((qn_dtype_t)-1), "none");
  assert_int_equal(qn_dtype_size_bytes(QN_DTYPE_NONE), 0);
  assert_int_equal(qn_dtype_size_bytes(QN_DTYPE_BOOL), 1);
  assert_true(qn__dtype_is_int(QN_DTYPE_U64) && !qn__dtype_is_int(QN_DTYPE_BOOL));
  assert_true(qn__dtype_is_float(QN_DTYPE_BF16) && !qn__dtype_is_float(QN_DTYPE_NONE));
}

static void operators_have_entries(void** state) {
  (void)state;
  for (int i = 1; i < QN_OP_COUNT; i++) {
    const qn__ir_op_info_t* info = qn__op_info((qn_op_t)i);
    assert_non_null(info);
    assert_true(info->arity <= 3 && (info->arity > 0) == (info->rule != QN__RULE_TARGET) &&
                info->doc[0]);
  }
  assert_null(qn__op_info(QN_OP_NONE));
  assert_null(qn__op_info((qn_op_t)QN_OP_COUNT));
  assert_null(qn__op_info((qn_op_t)-1));
}

// The canonical bytes of every cache in the world hold these.
static void values_are_frozen(void** state) {
  (void)state;
  assert_int_equal(QN_DTYPE_F64, 13);
  assert_int_equal(QN_DTYPE_F8E5M2, 15);
  assert_int_equal(QN_DTYPE_F4E2M1FN, 18);
  assert_int_equal(QN_OP_ADD, 1);
  assert_int_equal(QN_OP_FMA, 32);
  assert_int_equal(QN_OP_BLOCK_MAX, 61);
  assert_int_equal(QN_OP_AXIS_MAX, 89);
  assert_int_equal(QN_LOOP_THREAD_Z, 10);
  assert_int_equal(QN__SCOPE_VIEW, 5);
  assert_int_equal(QN__EXPR_REDUCE, 9);
  assert_int_equal(QN__STMT_ASSERT, 9);
  assert_int_equal(QN__STMT_REDUCE, 11);
  assert_int_equal(QN__SEVERAL_ARGMAX, 3);
  assert_int_equal(QN__SEVERAL_EXCLUSIVE_SCAN, 5);
  assert_int_equal(QN_ATOMIC_CAS, 8);
  assert_int_equal(QN_ATOMIC_STORE, 10);
  assert_int_equal(QN__STMT_LEAVE, 12);
  assert_int_equal(QN__STMT_FENCE, 13);
  assert_int_equal(QN_REDUCE_MAX, 4);
}

static void small_tables_end(void** state) {
  (void)state;
  assert_string_equal(qn__loop_kind_text(QN_LOOP_BLOCK_X), "block.x");
  assert_null(qn__loop_kind_text((qn_loop_kind_t)0));
  assert_null(qn__loop_kind_text((qn_loop_kind_t)11));
  assert_string_equal(qn__scope_text(QN__SCOPE_SHARED), "shared");
  assert_null(qn__scope_text((qn__ir_scope_t)6));
  assert_string_equal(qn__access_text(QN_ACCESS_INOUT), "inout");
  assert_null(qn__access_text(QN_ACCESS_NONE));
  assert_null(qn__access_text((qn_access_t)4));
  assert_string_equal(qn__reduce_text(QN_REDUCE_PROD), "prod");
  assert_null(qn__reduce_text((qn_reduce_kind_t)0));
  assert_int_equal(qn__atomic_operand_count(QN_ATOMIC_CAS), 2);
  assert_int_equal(qn__atomic_operand_count(QN_ATOMIC_LOAD), 0);
  assert_int_equal(qn__atomic_operand_count((qn_atomic_op_t)11), 0);
  assert_null(qn__atomic_text((qn_atomic_op_t)11));
  assert_true(qn__atomic_takes(QN_ATOMIC_ADD, QN_DTYPE_BF16));
  assert_true(qn__atomic_takes(QN_ATOMIC_CAS, QN_DTYPE_I8));
  assert_false(qn__atomic_takes(QN_ATOMIC_CAS, QN_DTYPE_F32));
  assert_false(qn__atomic_takes(QN_ATOMIC_LOAD, QN_DTYPE_BOOL));
  assert_false(qn__atomic_takes(QN_ATOMIC_ADD, QN_DTYPE_F8E5M2));
  assert_true(qn__loop_is_block(QN_LOOP_BLOCK_Z) && !qn__loop_is_block(QN_LOOP_THREAD_X));
  assert_true(qn__loop_is_thread(QN_LOOP_THREAD_X) && !qn__loop_is_thread(QN_LOOP_SERIAL));
}

typedef struct rule_case {
  qn_op_t op;
  qn_dtype_t operands[3];
  qn_dtype_t result;  // NONE: refused
  uint32_t index;     // of what is wrong
} rule_case_t;

static const rule_case_t rule_cases[] = {
    {QN_OP_ADD, {QN_DTYPE_F16, QN_DTYPE_F16}, QN_DTYPE_F16, 0},
    {QN_OP_ADD, {QN_DTYPE_BOOL, QN_DTYPE_BOOL}, QN_DTYPE_NONE, 0},
    {QN_OP_ADD, {QN_DTYPE_I32, QN_DTYPE_I64}, QN_DTYPE_NONE, 1},
    {QN_OP_DIV, {QN_DTYPE_I32, QN_DTYPE_I32}, QN_DTYPE_NONE, 0},
    {QN_OP_FLOORDIV, {QN_DTYPE_F32, QN_DTYPE_F32}, QN_DTYPE_NONE, 0},
    {QN_OP_AND, {QN_DTYPE_BOOL, QN_DTYPE_BOOL}, QN_DTYPE_BOOL, 0},
    {QN_OP_AND, {QN_DTYPE_F32, QN_DTYPE_F32}, QN_DTYPE_NONE, 0},
    {QN_OP_SHL, {QN_DTYPE_U8, QN_DTYPE_U8}, QN_DTYPE_U8, 0},
    {QN_OP_LT, {QN_DTYPE_F32, QN_DTYPE_F32}, QN_DTYPE_BOOL, 0},
    {QN_OP_EQ, {QN_DTYPE_BOOL, QN_DTYPE_BOOL}, QN_DTYPE_BOOL, 0},
    {QN_OP_LOGIC_AND, {QN_DTYPE_BOOL, QN_DTYPE_I32}, QN_DTYPE_NONE, 1},
    {QN_OP_LOGIC_NOT, {QN_DTYPE_I32}, QN_DTYPE_NONE, 0},
    {QN_OP_ISNAN, {QN_DTYPE_F64}, QN_DTYPE_BOOL, 0},
    {QN_OP_SELECT, {QN_DTYPE_BOOL, QN_DTYPE_I8, QN_DTYPE_I8}, QN_DTYPE_I8, 0},
    {QN_OP_SELECT, {QN_DTYPE_I8, QN_DTYPE_I8, QN_DTYPE_I8}, QN_DTYPE_NONE, 0},
    {QN_OP_SELECT, {QN_DTYPE_BOOL, QN_DTYPE_I8, QN_DTYPE_I16}, QN_DTYPE_NONE, 2},
    {QN_OP_FMA, {QN_DTYPE_F32, QN_DTYPE_F32, QN_DTYPE_F64}, QN_DTYPE_NONE, 2},
    {QN_OP_SHUFFLE, {QN_DTYPE_F32, QN_DTYPE_I64}, QN_DTYPE_F32, 0},
    {QN_OP_SHUFFLE, {QN_DTYPE_F32, QN_DTYPE_I32}, QN_DTYPE_NONE, 1},
    {QN_OP_WARP_SUM, {QN_DTYPE_BOOL}, QN_DTYPE_NONE, 0},
    {QN_OP_EXP, {QN_DTYPE_NONE}, QN_DTYPE_NONE, 0},
};

static void operand_rules(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(rule_cases); i++) {
    const rule_case_t* c = &rule_cases[i];
    uint32_t index = 9;
    const char* expected = NULL;
    qn_dtype_t result = qn__op_result(c->op, c->operands, &index, &expected);
    if (result != c->result) fail_msg("case %zu", i);
    if (result != QN_DTYPE_NONE) continue;
    if (index != c->index) fail_msg("case %zu: operand %u", i, (unsigned)index);
    assert_true(expected && expected[0]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dtypes_are_found_by_text),
      cmocka_unit_test(operators_have_entries),
      cmocka_unit_test(values_are_frozen),
      cmocka_unit_test(small_tables_end),
      cmocka_unit_test(operand_rules),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
