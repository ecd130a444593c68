// ir/arith.h: what the two files of arithmetic share. The interface is in ir.h.
#ifndef QUERN_IR_ARITH_H_
#define QUERN_IR_ARITH_H_

#include "ir/ir.h"

// The bounds of an integer dtype; that of u64 as its bit pattern.
static inline int64_t qn__int_min(qn_dtype_t dtype) {
  return qn__dtype_is_signed(dtype) ? qn__as_signed(~(qn__width_mask(dtype) >> 1)) : 0;
}
static inline int64_t qn__int_max(qn_dtype_t dtype) {
  uint64_t mask = qn__width_mask(dtype);
  return qn__as_signed(qn__dtype_is_signed(dtype) ? mask >> 1 : mask);
}

// The format of a float dtype.
typedef struct qn__float_format {
  uint32_t bits;
  int precision;     // significant bits, the hidden one included
  int max_exponent;  // of the largest number; also the bias
  int min_exponent;  // of the smallest normal number
} qn__float_format_t;
static inline qn__float_format_t qn__float_format(qn_dtype_t dtype) {
  if (dtype == QN_DTYPE_F16) return (qn__float_format_t){16, 11, 15, -14};
  if (dtype == QN_DTYPE_BF16) return (qn__float_format_t){16, 8, 127, -126};
  if (dtype == QN_DTYPE_F32) return (qn__float_format_t){32, 24, 127, -126};
  return (qn__float_format_t){64, 53, 1023, -1022};
}

// An operator of rule NUMERIC or FLOAT on floats, rounded to `dtype`.
double qn__float_op(qn_op_t op, qn_dtype_t dtype, double a, double b, double c);

#endif  // QUERN_IR_ARITH_H_
