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

// An operator of rule NUMERIC or FLOAT on floats, rounded to `dtype`.
double qn__float_op(qn_op_t op, qn_dtype_t dtype, double a, double b, double c);

#endif  // QUERN_IR_ARITH_H_
