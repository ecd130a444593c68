// ir/arith.c: what every operator computes, once for constant folding and interpreter: integers,
// the choice by dtype, reductions.
//
// Not here: floats and conversions (arith_float.c), operators that exchange values among threads
// (interpret.c). Thread rule: pure functions. Read next: arith_float.c.
#include "ir/arith.h"

#include <math.h>

// ------------------------------------------------------------------------------------ integers

int64_t qn__wrap_int(qn_dtype_t dtype, int64_t value) {
  if (dtype == QN_DTYPE_BOOL) return value != 0;
  uint64_t mask = qn__width_mask(dtype);
  uint64_t bits = (uint64_t)value & mask;
  if (qn__is_signed(dtype) && bits > mask >> 1) bits |= ~mask;
  return qn__as_signed(bits);
}

static int64_t divide_unsigned(qn_op_t op, uint64_t a, uint64_t b) {
  uint64_t quotient = a / b;
  uint64_t remainder = a % b;
  if (op == QN_OP_FLOORMOD || op == QN_OP_TRUNCMOD) return qn__as_signed(remainder);
  if (op == QN_OP_CEILDIV && remainder != 0) quotient++;
  return qn__as_signed(quotient);
}

static int64_t divide_signed(qn_op_t op, int64_t a, int64_t b) {
  bool is_mod = op == QN_OP_FLOORMOD || op == QN_OP_TRUNCMOD;
  // INT64_MIN / -1 would trap.
  if (b == -1) return is_mod ? 0 : qn__as_signed(0 - (uint64_t)a);
  int64_t quotient = a / b;
  int64_t remainder = a % b;
  bool is_negative = (a < 0) != (b < 0);
  if (remainder == 0 || op == QN_OP_TRUNCDIV || op == QN_OP_TRUNCMOD) {
    return is_mod ? remainder : quotient;
  }
  if (op == QN_OP_CEILDIV) return is_negative ? quotient : quotient + 1;
  if (op == QN_OP_FLOORMOD) return is_negative ? remainder + b : remainder;
  return is_negative ? quotient - 1 : quotient;
}

static bool less_int(qn_dtype_t dtype, int64_t a, int64_t b) {
  return qn__is_signed(dtype) ? a < b : (uint64_t)a < (uint64_t)b;
}

static int64_t shift(qn_op_t op, qn_dtype_t dtype, int64_t a, int64_t count) {
  uint32_t n = (uint32_t)count & (qn__dtype_bits(dtype) - 1);
  if (op == QN_OP_SHL) return qn__as_signed((uint64_t)a << n);
  if (!qn__is_signed(dtype)) return qn__as_signed((uint64_t)a >> n);
  return a < 0 ? ~(~a >> n) : a >> n;
}

// False for a division by zero.
static bool int_op(qn_op_t op, qn_dtype_t dtype, int64_t a, int64_t b, int64_t* out) {
  uint64_t ua = (uint64_t)a;
  uint64_t ub = (uint64_t)b;
  uint64_t bits = ua & qn__width_mask(dtype);
  int64_t result = 0;
  switch (op) {
    case QN_OP_ADD:
      result = qn__as_signed(ua + ub);
      break;
    case QN_OP_SUB:
      result = qn__as_signed(ua - ub);
      break;
    case QN_OP_MUL:
      result = qn__as_signed(ua * ub);
      break;
    case QN_OP_FLOORDIV:
    case QN_OP_FLOORMOD:
    case QN_OP_TRUNCDIV:
    case QN_OP_TRUNCMOD:
    case QN_OP_CEILDIV:
      *out = 0;
      if (b == 0) return false;
      result = qn__is_signed(dtype) ? divide_signed(op, a, b) : divide_unsigned(op, ua, ub);
      break;
    case QN_OP_MIN:
      result = less_int(dtype, b, a) ? b : a;
      break;
    case QN_OP_MAX:
      result = less_int(dtype, a, b) ? b : a;
      break;
    case QN_OP_NEG:
      result = qn__as_signed(0 - ua);
      break;
    case QN_OP_ABS:
      result = qn__is_signed(dtype) && a < 0 ? qn__as_signed(0 - ua) : a;
      break;
    case QN_OP_AND:
      result = a & b;
      break;
    case QN_OP_OR:
      result = a | b;
      break;
    case QN_OP_XOR:
      result = a ^ b;
      break;
    case QN_OP_NOT:
      result = dtype == QN_DTYPE_BOOL ? !a : ~a;
      break;
    case QN_OP_SHL:
    case QN_OP_SHR:
      result = shift(op, dtype, a, b);
      break;
    case QN_OP_POPCOUNT:
      result = __builtin_popcountll(bits);
      break;
    case QN_OP_CLZ:
      result = bits == 0 ? (int64_t)qn__dtype_bits(dtype)
                         : __builtin_clzll(bits) - (int64_t)(64 - qn__dtype_bits(dtype));
      break;
    default:
      (void)QN_NEVER(true);
      break;
  }
  *out = qn__wrap_int(dtype, result);
  return true;
}

// ------------------------------------------------------------------------------------ by dtype

static bool less_scalar(qn_dtype_t dtype, qn__scalar_t a, qn__scalar_t b) {
  return qn__dtype_is_float(dtype) ? a.f < b.f : less_int(dtype, a.i, b.i);
}

static bool equal_scalar(qn_dtype_t dtype, qn__scalar_t a, qn__scalar_t b) {
  return qn__dtype_is_float(dtype) ? a.f == b.f : a.i == b.i;
}

static bool compare(qn_op_t op, qn_dtype_t dtype, qn__scalar_t a, qn__scalar_t b) {
  switch (op) {
    case QN_OP_EQ:
      return equal_scalar(dtype, a, b);
    case QN_OP_NE:
      return !equal_scalar(dtype, a, b);
    case QN_OP_LT:
      return less_scalar(dtype, a, b);
    case QN_OP_LE:
      return less_scalar(dtype, a, b) || equal_scalar(dtype, a, b);
    case QN_OP_GT:
      return less_scalar(dtype, b, a);
    default:
      return less_scalar(dtype, b, a) || equal_scalar(dtype, a, b);
  }
}

static bool logic(qn_op_t op, const qn__scalar_t* args) {
  if (op == QN_OP_LOGIC_NOT) return args[0].i == 0;
  if (op == QN_OP_LOGIC_AND) return args[0].i != 0 && args[1].i != 0;
  return args[0].i != 0 || args[1].i != 0;
}

static bool float_test(qn_op_t op, double value) {
  if (op == QN_OP_ISNAN) return isnan(value);
  return op == QN_OP_ISINF ? isinf(value) : isfinite(value);
}

bool qn__scalar_op(qn_op_t op, qn_dtype_t dtype, const qn__scalar_t* args, qn__scalar_t* out) {
  out->i = 0;
  const qn__op_info_t* info = qn__op_info(op);
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
    case QN__RULE_LANE:
    case QN__RULE_GROUP:
      return !QN_NEVER(true);
    default:
      break;
  }
  if (qn__dtype_is_float(dtype)) {
    out->f = qn__float_op(op, dtype, args[0].f, info->arity > 1 ? args[1].f : 0,
                          info->arity > 2 ? args[2].f : 0);
    return true;
  }
  return int_op(op, dtype, args[0].i, info->arity > 1 ? args[1].i : 0, &out->i);
}

// ------------------------------------------------------------------------------------ reductions

qn__scalar_t qn__reduce_step(qn_reduce_kind_t kind, qn_dtype_t dtype, qn__scalar_t a,
                             qn__scalar_t b) {
  static const qn_op_t steps[] = {
      [QN_REDUCE_SUM] = QN_OP_ADD,
      [QN_REDUCE_PROD] = QN_OP_MUL,
      [QN_REDUCE_MIN] = QN_OP_MIN,
      [QN_REDUCE_MAX] = QN_OP_MAX,
  };
  qn__scalar_t result;
  (void)qn__scalar_op(steps[kind], dtype, (qn__scalar_t[]){a, b}, &result);
  return result;
}

qn__scalar_t qn__reduce_neutral(qn_reduce_kind_t kind, qn_dtype_t dtype) {
  bool is_float = qn__dtype_is_float(dtype);
  switch (kind) {
    case QN_REDUCE_SUM:
      break;
    case QN_REDUCE_PROD:
      return is_float ? (qn__scalar_t){.f = 1} : (qn__scalar_t){.i = 1};
    case QN_REDUCE_MIN:
      return is_float ? (qn__scalar_t){.f = (double)INFINITY}
                      : (qn__scalar_t){.i = qn__int_max(dtype)};
    case QN_REDUCE_MAX:
      return is_float ? (qn__scalar_t){.f = -(double)INFINITY}
                      : (qn__scalar_t){.i = qn__int_min(dtype)};
  }
  return is_float ? (qn__scalar_t){.f = 0} : (qn__scalar_t){.i = 0};
}
