// SPDX-License-Identifier: Apache-2.0
// base/dtype.h: the classes and widths of dtypes, from the public table.
//
// Not here: which operands an operator takes (ir/op_rules.c), DLPack's codes (jit/call/tensor.c).
#ifndef QUERN_BASE_DTYPE_H_
#define QUERN_BASE_DTYPE_H_

#include "base/base.h"
#include "quern/ir.h"

typedef enum qn__dtype_class {
  QN__CLASS_NONE,
  QN__CLASS_BOOL,
  QN__CLASS_SIGNED,
  QN__CLASS_UNSIGNED,
  QN__CLASS_FLOAT,
  // Only converted: no operator computes with these.
  QN__CLASS_STORED_SIGNED,
  QN__CLASS_STORED_UNSIGNED,
  QN__CLASS_STORED_FLOAT,
} qn__dtype_class_t;

// Returns NONE for a value that is no dtype.
qn__dtype_class_t qn__dtype_class(qn_dtype_t dtype);
static inline bool qn__dtype_is_int(qn_dtype_t dtype) {
  qn__dtype_class_t c = qn__dtype_class(dtype);
  return c == QN__CLASS_SIGNED || c == QN__CLASS_UNSIGNED;
}
static inline bool qn__dtype_is_float(qn_dtype_t dtype) {
  return qn__dtype_class(dtype) == QN__CLASS_FLOAT;
}
// Returns whether no operator computes with the dtype: it is converted first.
static inline bool qn__dtype_is_stored(qn_dtype_t dtype) {
  return qn__dtype_class(dtype) >= QN__CLASS_STORED_SIGNED;
}
// Returns whether values and literals of the dtype are integers.
static inline bool qn__dtype_is_whole(qn_dtype_t dtype) {
  qn__dtype_class_t c = qn__dtype_class(dtype);
  return qn__dtype_is_int(dtype) || c == QN__CLASS_STORED_SIGNED || c == QN__CLASS_STORED_UNSIGNED;
}
// Returns whether values and literals of the dtype are real numbers.
static inline bool qn__dtype_is_real(qn_dtype_t dtype) {
  return qn__dtype_is_float(dtype) || qn__dtype_class(dtype) == QN__CLASS_STORED_FLOAT;
}
static inline bool qn__dtype_is_signed(qn_dtype_t dtype) {
  qn__dtype_class_t c = qn__dtype_class(dtype);
  return c == QN__CLASS_SIGNED || c == QN__CLASS_STORED_SIGNED;
}
uint32_t qn__dtype_bits(qn_dtype_t dtype);  // in memory; 0 for NONE
// Returns whether two elements share a byte.
static inline bool qn__dtype_is_packed(qn_dtype_t dtype) {
  return qn__dtype_bits(dtype) == 4;
}
// Returns the bytes of `count` elements, an even number if they are packed.
static inline int64_t qn__dtype_bytes_of(qn_dtype_t dtype, int64_t count) {
  return qn__dtype_is_packed(dtype) ? count / 2 : count * (int64_t)qn_dtype_size_bytes(dtype);
}
qn_dtype_t qn__dtype_from_str(qn_str_t text);

#endif  // QUERN_BASE_DTYPE_H_
