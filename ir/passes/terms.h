// ir/passes/terms.h: ranges of integer expressions and sums of terms: the algebra of indices.
//
// What is known about a variable is behind its `user` (qn__var_facts_t or NULL). Thread rule: one
// thread per body. Read next: terms.c, then fold.c.
#ifndef QUERN_IR_PASSES_TERMS_H_
#define QUERN_IR_PASSES_TERMS_H_

#include "ir/passes/rewrite.h"

// Inclusive. The full range of the dtype when nothing is known or when arithmetic might wrap.
typedef struct qn__range {
  int64_t min;
  int64_t max;
} qn__ir_range_t;

typedef struct qn__var_facts {
  qn__ir_range_t range;
  const qn__ir_expr_t* below;  // the variable is less than this (a loop's end), or NULL
  qn__ir_expr_t* replacement;  // a literal or variable to put in its place, or NULL
  size_t use_count;
} qn__var_facts_t;

qn__ir_range_t qn__range_full(qn_dtype_t dtype);
static inline bool qn__range_is_full(qn_dtype_t dtype, qn__ir_range_t range) {
  qn__ir_range_t full = qn__range_full(dtype);
  return range.min == full.min && range.max == full.max;
}
// Of an expression of an integer dtype (u64: always full) or bool.
qn__ir_range_t qn__range_of(const qn__ir_expr_t* expr);

enum { qn__terms_max = 12 };
// sum of factor * atom, plus constant, modulo the width of the dtype.
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

// False when there are too many terms.
bool qn__terms_of(qn__ir_expr_t* expr, qn__terms_t* out_affine);
// Builds the sum; atoms are used as they are, so an affine is built once. NULL without memory.
qn__ir_expr_t* qn__terms_build(qn__arena_t* arena, const qn__terms_t* affine);
// Nodes that qn__terms_build would make, and nodes of an expression, atoms counting one.
size_t qn__terms_size(const qn__terms_t* affine);
size_t qn__terms_size_of(const qn__ir_expr_t* expr);
qn__ir_range_t qn__terms_range(const qn__terms_t* affine);

#endif  // QUERN_IR_PASSES_TERMS_H_
