// SPDX-License-Identifier: Apache-2.0
// base/integer.c: operators on integers of any dtype and on bools. They compute as i64 does and
// wrap to the width, except operators that count bits and unsigned 64-bit ones.
#include "base/integer.h"

int64_t qn__wrap_int(qn_dtype_t dtype, int64_t value) {
  if (dtype == QN_DTYPE_BOOL) return value != 0;
  uint64_t mask = qn__width_mask(dtype);
  uint64_t bits = (uint64_t)value & mask;
  if (qn__dtype_is_signed(dtype) && bits > mask >> 1) bits |= ~mask;
  return qn__as_signed(bits);
}

// Computes on an unsigned dtype or bool. False: a division by zero.
static bool unsigned_op(qn_op_t op, uint64_t a, uint64_t b, int64_t* out_value) {
  switch (op) {
    case QN_OP_MIN:
      *out_value = qn__as_signed(a < b ? a : b);
      return true;
    case QN_OP_MAX:
      *out_value = qn__as_signed(a > b ? a : b);
      return true;
    case QN_OP_ABS:
      *out_value = qn__as_signed(a);
      return true;
    case QN_OP_SHR:
      *out_value = qn__as_signed(a >> b);
      return true;
    case QN_OP_MULHI:
      *out_value = qn__as_signed(qn__u64_mulhi(a, b));
      return true;
    case QN_OP_FLOORDIV:
    case QN_OP_FLOORMOD:
    case QN_OP_CEILDIV:
    case QN_OP_TRUNCDIV:
    case QN_OP_TRUNCMOD:
      *out_value = b == 0 ? 0 : qn__u64_divide(op, a, b);
      return b != 0;
    default:
      return qn__i64_op(op, qn__as_signed(a), qn__as_signed(b), out_value) !=
             QN__INT_DIVIDED_BY_ZERO;
  }
}

// Computes an operator whose result depends on the width, on fewer than 64 bits. False: it is
// another operator.
static bool narrow_op(qn_op_t op, qn_dtype_t dtype, int64_t a, int64_t b, int64_t* out_value) {
  uint64_t bits = qn__dtype_bits(dtype), mask = qn__width_mask(dtype), count = (uint64_t)b;
  switch (op) {
    case QN_OP_CTZ:
      *out_value = __builtin_ctzll((uint64_t)a | (mask + 1));
      return true;
    case QN_OP_MULHI:
      *out_value = qn__as_signed((uint64_t)a * (uint64_t)b >> bits);
      return true;
    case QN_OP_ROTL:
      *out_value = qn__as_signed(((uint64_t)a & mask) << (count & (bits - 1)) |
                                 ((uint64_t)a & mask) >> (-count & (bits - 1)));
      return true;
    default:
      return false;
  }
}

bool qn__int_op(qn_op_t op, qn_dtype_t dtype, int64_t a, int64_t b, int64_t* out_value) {
  int64_t bits = qn__dtype_bits(dtype);
  if (bits < 64 && narrow_op(op, dtype, a, b, out_value)) {
    *out_value = qn__wrap_int(dtype, *out_value);
    return true;
  }
  if (op == QN_OP_SHL || op == QN_OP_SHR) b &= bits - 1;
  if (op == QN_OP_POPCOUNT || op == QN_OP_CLZ) {
    a = qn__as_signed((uint64_t)a & qn__width_mask(dtype));
  }
  bool is_ok = qn__dtype_is_signed(dtype)
                   ? qn__i64_op(op, a, b, out_value) != QN__INT_DIVIDED_BY_ZERO
                   : unsigned_op(op, (uint64_t)a, (uint64_t)b, out_value);
  if (op == QN_OP_CLZ) *out_value -= 64 - bits;
  if (op == QN_OP_NOT && dtype == QN_DTYPE_BOOL) *out_value = !a;
  *out_value = qn__wrap_int(dtype, *out_value);
  return is_ok;
}

bool qn__int_compare(qn_op_t op, qn_dtype_t dtype, int64_t a, int64_t b) {
  bool is_less = qn__dtype_is_signed(dtype) ? a < b : (uint64_t)a < (uint64_t)b;
  switch (op) {
    case QN_OP_EQ:
      return a == b;
    case QN_OP_NE:
      return a != b;
    case QN_OP_LT:
      return is_less;
    case QN_OP_LE:
      return is_less || a == b;
    case QN_OP_GT:
      return !is_less && a != b;
    case QN_OP_GE:
      return !is_less;
    default:
      return QN_NEVER(true);
  }
}
