// SPDX-License-Identifier: Apache-2.0
// ir/passes/fold_inner.h: shared by fold.c and fold_int.c. A rule returns the replacement of an
// expression, or NULL to leave it unchanged.
#ifndef QUERN_IR_PASSES_FOLD_INNER_H_
#define QUERN_IR_PASSES_FOLD_INNER_H_

#include "ir/passes/fold.h"

static inline qn__ir_expr_t* integer(qn__fold_t* fold, qn_dtype_t dtype, int64_t value) {
  return qn__expr_int(fold->arena, dtype, value);
}

static inline qn__ir_expr_t* binary(qn__fold_t* fold, qn_op_t op, qn__ir_expr_t* a,
                                    qn__ir_expr_t* b) {
  return a && b ? qn__expr_op(fold->arena, op, a, b, NULL) : NULL;
}

// Returns `value`, which replaces an expression that also evaluates `dropped`.
static inline qn__ir_expr_t* drop(qn__fold_t* fold, qn__ir_expr_t* dropped, qn__ir_expr_t* value) {
  return qn__fold_can_drop(fold, dropped) ? value : NULL;
}

// fold_int.c: arithmetic and bits of an integer dtype; a comparison of any two operands.
qn__ir_expr_t* qn__fold_integer(qn__fold_t* fold, qn__ir_expr_t* expr);
qn__ir_expr_t* qn__fold_comparison(qn__fold_t* fold, qn__ir_expr_t* expr);

#endif  // QUERN_IR_PASSES_FOLD_INNER_H_
