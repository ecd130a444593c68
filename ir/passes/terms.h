// SPDX-License-Identifier: Apache-2.0
// ir/passes/terms.h: ranges of integer expressions, and integer expressions as sums of terms.
//
// With i in 0..16, the range of `i * 4 + 3` is 3..63. The terms of `(i + j) * 4 - i` are 3 * i and
// 4 * j.
//
// `user` of a variable points to its facts (qn__ir_var_facts_t), or is NULL.
#ifndef QUERN_IR_PASSES_TERMS_H_
#define QUERN_IR_PASSES_TERMS_H_

#include "ir/passes/rewrite.h"

// Inclusive. Full (that of the dtype) if the value is unknown or the arithmetic might wrap.
typedef struct qn__ir_range {
  int64_t min;
  int64_t max;
} qn__ir_range_t;

typedef struct qn__ir_var_facts {
  qn__ir_range_t range;
  const qn__ir_expr_t* below;  // the variable is less than this (a loop's end), or NULL
  qn__ir_expr_t* replacement;  // a literal or variable to put in its place, or NULL
} qn__ir_var_facts_t;

qn__ir_range_t qn__range_full(qn_dtype_t dtype);
static inline bool qn__range_is_full(qn_dtype_t dtype, qn__ir_range_t range) {
  qn__ir_range_t full = qn__range_full(dtype);
  return range.min == full.min && range.max == full.max;
}
// Returns the range of an expression of an integer dtype or bool. That of u64 is always full.
qn__ir_range_t qn__range_of(const qn__ir_expr_t* expr);

enum { qn__terms_max = 12 };
// The sum of all factor * atom, plus `constant`, modulo the width of the dtype.
typedef struct qn__terms {
  qn_dtype_t dtype;
  size_t count;
  struct {
    qn__ir_expr_t* atom;  // not a literal, sum, difference, negation or product with a literal
    int64_t factor;       // never 0 after qn__terms_of
  } terms[qn__terms_max];
  int64_t constant;
  bool has_dropped_load;  // a term cancelled that held a load
  bool has_dropped_division;
} qn__terms_t;

// Collects the terms of an expression. Returns false if there are too many.
bool qn__terms_of(qn__ir_expr_t* expr, qn__terms_t* out_affine);
// Builds the sum. It contains the atoms themselves, so call this once. NULL without memory.
qn__ir_expr_t* qn__terms_build(qn__arena_t* arena, const qn__terms_t* affine);
// Counts the nodes that qn__terms_build makes, and the nodes of an expression. An atom counts one.
size_t qn__terms_size(const qn__terms_t* affine);
size_t qn__terms_size_of(const qn__ir_expr_t* expr);
qn__ir_range_t qn__terms_range(const qn__terms_t* affine);

#endif  // QUERN_IR_PASSES_TERMS_H_
