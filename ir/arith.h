// SPDX-License-Identifier: Apache-2.0
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

// The format of a dtype of real numbers.
typedef struct qn__float_format {
  uint32_t bits;
  int precision;     // significant bits, the hidden one included
  int bias;          // of the exponent
  int min_exponent;  // of the smallest normal number
  double largest;    // finite
} qn__float_format_t;
static inline qn__float_format_t qn__float_format(qn_dtype_t dtype) {
  if (dtype == QN_DTYPE_F16) return (qn__float_format_t){16, 11, 15, -14, 0x1.ffcp15};
  if (dtype == QN_DTYPE_BF16) return (qn__float_format_t){16, 8, 127, -126, 0x1.fep127};
  if (dtype == QN_DTYPE_F32) return (qn__float_format_t){32, 24, 127, -126, 0x1.fffffep127};
  if (dtype == QN_DTYPE_F8E4M3FN) return (qn__float_format_t){8, 4, 7, -6, 448};
  if (dtype == QN_DTYPE_F8E5M2) return (qn__float_format_t){8, 3, 15, -14, 57344};
  if (dtype == QN_DTYPE_F4E2M1FN) return (qn__float_format_t){4, 2, 1, 0, 6};
  return (qn__float_format_t){64, 53, 1023, -1022, 0x1.fffffffffffffp1023};
}
// Return whether the format has infinities and NaN. f8e4m3fn uses their exponent for numbers, and
// the last of these codes for NaN; f4e2m1fn has numbers only.
static inline bool qn__float_has_infinity(qn_dtype_t dtype) {
  return dtype != QN_DTYPE_F8E4M3FN && dtype != QN_DTYPE_F4E2M1FN;
}
static inline bool qn__float_has_nan(qn_dtype_t dtype) {
  return dtype != QN_DTYPE_F4E2M1FN;
}

// An operator of rule NUMERIC or FLOAT on floats, rounded to `dtype`.
double qn__float_op(qn_op_t op, qn_dtype_t dtype, double a, double b, double c);

#endif  // QUERN_IR_ARITH_H_
