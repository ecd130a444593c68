// SPDX-License-Identifier: Apache-2.0
// ir/op_rules.c: the operand dtypes that an operator takes, and the dtype of its result.
//
// Not here: the values (arith.c).
#include <assert.h>

#include "ir/ir.h"

static bool is_int(qn_dtype_t dtype) {
  return qn__dtype_is_int(dtype);
}
static bool is_float(qn_dtype_t dtype) {
  return qn__dtype_is_float(dtype);
}
static bool is_number(qn_dtype_t dtype) {
  return is_int(dtype) || is_float(dtype);
}
static bool is_bool(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_BOOL;
}
static bool is_bits(qn_dtype_t dtype) {
  return is_int(dtype) || is_bool(dtype);
}
static bool is_i32(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_I32;
}
static bool is_f32(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_F32;
}
static bool is_any(qn_dtype_t dtype) {
  return qn_dtype_size_bytes(dtype) > 0;
}
static bool is_computed(qn_dtype_t dtype) {
  return is_number(dtype) || is_bool(dtype);
}

const qn__ir_rule_info_t* qn__rule_info(qn__ir_op_rule_t rule) {
  static const qn__ir_rule_info_t rules[] = {
      [QN__RULE_NUMERIC] = {is_number, "an integer or a float", "integers or floats"},
      [QN__RULE_INTEGER] = {is_int, "an integer", "integers"},
      [QN__RULE_FLOAT] = {is_float, "a float", "floats"},
      [QN__RULE_BITWISE] = {is_bits, "an integer or bool", "integers or bool"},
      [QN__RULE_SHIFT] = {is_int, "an integer", "integers"},
      [QN__RULE_COMPARE] = {is_computed, "a number or bool", "numbers or bool"},
      [QN__RULE_LOGIC] = {is_bool, "bool", "bool"},
      [QN__RULE_TEST] = {is_float, "a float", "floats"},
      [QN__RULE_SELECT] = {is_any, "any dtype", "any dtype"},
      [QN__RULE_SCALE] = {is_float, "a float", "floats"},
      [QN__RULE_DOT_INT] = {is_i32, "i32", "i32"},
      [QN__RULE_DOT_FLOAT] = {is_f32, "f32", "f32"},
      [QN__RULE_LANE] = {is_computed, "a number or bool", "numbers or bool"},
      [QN__RULE_GROUP] = {is_number, "an integer or a float", "integers or floats"},
      [QN__RULE_AXES] = {is_number, "an integer or a float", "integers or floats"},
      [QN__RULE_TARGET] = {is_any, "nothing", "nothing"},
  };
  assert((size_t)rule < QN_COUNT_OF(rules));
  return &rules[rule];
}

static qn_dtype_t refuse(uint32_t index, const char* expected, uint32_t* out_index,
                         const char** out_expected) {
  *out_index = index;
  *out_expected = expected;
  return QN_DTYPE_NONE;
}

qn_dtype_t qn__op_result(qn_op_t op, const qn_dtype_t dtypes[3], uint32_t* out_index,
                         const char** out_expected) {
  const qn__ir_op_info_t* info = qn__op_info(op);
  if (info->rule == QN__RULE_TARGET) return QN_DTYPE_I64;
  uint32_t first = info->rule == QN__RULE_SELECT ? 1 : 0;
  qn_dtype_t dtype = dtypes[first];
  const qn__ir_rule_info_t* rule = qn__rule_info(info->rule);
  if (!rule->accepts(dtype)) return refuse(first, rule->one, out_index, out_expected);
  for (uint32_t i = 0; i < info->arity; i++) {
    qn_dtype_t own = qn__op_own_dtype(info->rule, i);
    qn_dtype_t wanted = own != QN_DTYPE_NONE ? own : dtype;
    if (dtypes[i] != wanted) return refuse(i, qn_dtype_text(wanted), out_index, out_expected);
  }
  return qn__rule_gives_bool(info->rule) ? QN_DTYPE_BOOL : dtype;
}
