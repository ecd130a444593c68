// SPDX-License-Identifier: Apache-2.0
// ir/arith.c: the values of operators and reductions, used by both constant folding and the
// interpreter, so that they cannot disagree.
//
// Not here: integers (base/integer.c), floats and conversions (arith_float.c), operators that
// exchange values among threads (interpret.c).
#include <assert.h>

#include "ir/arith.h"

#include <math.h>

// ------------------------------------------------------------------------------------ by dtype

static bool compare_float(qn_op_t op, double a, double b) {
  switch (op) {
    case QN_OP_EQ:
      return a == b;
    case QN_OP_NE:
      return a != b;
    case QN_OP_LT:
      return a < b;
    case QN_OP_LE:
      return a <= b;
    case QN_OP_GT:
      return a > b;
    default:
      return a >= b;
  }
}

static bool compare(qn_op_t op, qn_dtype_t dtype, qn__ir_scalar_t a, qn__ir_scalar_t b) {
  return qn__dtype_is_float(dtype) ? compare_float(op, a.f, b.f)
                                   : qn__int_compare(op, dtype, a.i, b.i);
}

static bool logic(qn_op_t op, const qn__ir_scalar_t* args) {
  if (op == QN_OP_LOGIC_NOT) return args[0].i == 0;
  if (op == QN_OP_LOGIC_AND) return args[0].i != 0 && args[1].i != 0;
  return args[0].i != 0 || args[1].i != 0;
}

static bool float_test(qn_op_t op, double value) {
  if (op == QN_OP_ISNAN) return isnan(value);
  return op == QN_OP_ISINF ? isinf(value) : isfinite(value);
}

// Returns number `i` of a word that holds numbers of `bits` bits.
static int64_t part(int64_t word, uint32_t i, uint32_t bits, bool is_signed) {
  uint64_t value = (uint64_t)word >> (i * bits) & ((UINT64_C(1) << bits) - 1);
  if (is_signed && value >> (bits - 1)) value -= UINT64_C(1) << bits;
  return (int64_t)value;
}

static int64_t dot_int(qn_op_t op, const qn__ir_scalar_t* args) {
  uint32_t bits = (int)op == QN__OP_DOT_WORDS ? 16 : 8;
  bool is_a_signed = (int)op == QN__OP_DOT_SS || (int)op == QN__OP_DOT_WORDS;
  bool is_b_signed = (int)op != QN__OP_DOT_UU;
  int64_t sum = args[0].i;  // of at most four products of 32 bits: no overflow
  for (uint32_t i = 0; i < 32 / bits; i++) {
    sum += part(args[1].i, i, bits, is_a_signed) * part(args[2].i, i, bits, is_b_signed);
  }
  return qn__wrap_int(QN_DTYPE_I32, sum);
}

static int64_t least(const qn__ir_scalar_t* args) {
  uint64_t word = 0;
  for (uint32_t i = 0; i < 2; i++) {
    int64_t sum = part(args[0].i, i, 16, false);
    int64_t number = part(part(args[1].i & args[2].i, i, 16, false) - 1, 0, 16, false);
    word |= (uint64_t)(number < sum ? number : sum) << (16 * i);
  }
  return qn__wrap_int(QN_DTYPE_I32, (int64_t)word);
}

static double dot_float(const qn__ir_scalar_t* args) {
  double sum = args[0].f;
  for (uint32_t i = 2; i-- > 0;) {
    double a = qn__scalar_from_bits(QN_DTYPE_BF16, (uint64_t)part(args[1].i, i, 16, false)).f;
    double b = qn__scalar_from_bits(QN_DTYPE_BF16, (uint64_t)part(args[2].i, i, 16, false)).f;
    sum = qn__float_op(QN_OP_FMA, QN_DTYPE_F32, a, b, sum);
  }
  return sum;
}

bool qn__scalar_op(qn_op_t op, qn_dtype_t dtype, const qn__ir_scalar_t* args,
                   qn__ir_scalar_t* out) {
  out->i = 0;
  const qn__ir_op_info_t* info = qn__op_info(op);
  if (QN_NEVER(!info)) return false;
  switch (info->rule) {
    case QN__RULE_COMPARE:
      out->i = compare(op, dtype, args[0], args[1]);
      return true;
    case QN__RULE_LOGIC:
      out->i = logic(op, args);
      return true;
    case QN__RULE_TEST:
      out->i = float_test(op, args[0].f);
      return true;
    case QN__RULE_SELECT:
      *out = args[0].i ? args[1] : args[2];
      return true;
    case QN__RULE_SCALE:
      out->f = qn__float_op(op, dtype, args[0].f, (double)args[1].i, 0);
      return true;
    case QN__RULE_DOT_INT:
      out->i = (int)op == QN__OP_LEAST ? least(args) : dot_int(op, args);
      return true;
    case QN__RULE_DOT_FLOAT:
      out->f = dot_float(args);
      return true;
    case QN__RULE_LANE:
    case QN__RULE_GROUP:
    case QN__RULE_AXES:
      return !QN_NEVER(true);
    default:
      break;
  }
  if (qn__dtype_is_float(dtype)) {
    out->f = qn__float_op(op, dtype, args[0].f, info->arity > 1 ? args[1].f : 0,
                          info->arity > 2 ? args[2].f : 0);
    return true;
  }
  return qn__int_op(op, dtype, args[0].i, info->arity > 1 ? args[1].i : 0, &out->i);
}

// ------------------------------------------------------------------------------------ reductions

qn__ir_scalar_t qn__reduce_step(qn_reduce_kind_t kind, qn_dtype_t dtype, qn__ir_scalar_t a,
                                qn__ir_scalar_t b) {
  static const qn_op_t steps[] = {
      [QN_REDUCE_SUM] = QN_OP_ADD,
      [QN_REDUCE_PROD] = QN_OP_MUL,
      [QN_REDUCE_MIN] = QN_OP_MIN,
      [QN_REDUCE_MAX] = QN_OP_MAX,
  };
  assert(qn__reduce_text(kind));
  qn__ir_scalar_t result;
  (void)qn__scalar_op(steps[kind], dtype, (qn__ir_scalar_t[3]){a, b}, &result);
  return result;
}

qn__ir_scalar_t qn__reduce_neutral(qn_reduce_kind_t kind, qn_dtype_t dtype) {
  bool is_float = qn__dtype_is_float(dtype);
  switch (kind) {
    case QN_REDUCE_SUM:
      break;
    case QN_REDUCE_PROD:
      return is_float ? (qn__ir_scalar_t){.f = 1} : (qn__ir_scalar_t){.i = 1};
    case QN_REDUCE_MIN:
      return is_float ? (qn__ir_scalar_t){.f = (double)INFINITY}
                      : (qn__ir_scalar_t){.i = qn__int_max(dtype)};
    case QN_REDUCE_MAX:
      return is_float ? (qn__ir_scalar_t){.f = -(double)INFINITY}
                      : (qn__ir_scalar_t){.i = qn__int_min(dtype)};
  }
  return is_float ? (qn__ir_scalar_t){.f = 0} : (qn__ir_scalar_t){.i = 0};
}
