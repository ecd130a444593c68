// SPDX-License-Identifier: Apache-2.0
// ir/passes/fold.h: simplifies one expression. Part of the simplify pass.
#ifndef QUERN_IR_PASSES_FOLD_H_
#define QUERN_IR_PASSES_FOLD_H_

#include "ir/passes/terms.h"

typedef struct qn__fold {
  qn__arena_t* arena;
  bool is_checked;  // operations that may fail are kept
  bool is_fast;
} qn__fold_t;

// Simplifies in place, children first. `user` of a variable points to its facts.
void qn__fold_expr(qn__fold_t* fold, qn__ir_expr_t** slot);
// Returns true if the expression need not be evaluated.
bool qn__fold_can_drop(const qn__fold_t* fold, qn__ir_expr_t* expr);
// Returns the facts of a variable, creates them if missing. NULL without memory.
qn__ir_var_facts_t* qn__fold_facts(qn__fold_t* fold, qn__ir_var_t* var);
// Records facts about a variable from the value of its let. Returns true if the value replaces all
// uses, so that the let is not needed.
bool qn__fold_learn_let(qn__fold_t* fold, qn__ir_var_t* var, qn__ir_expr_t* value);
// Records facts about a variable from the range of its loop or reduction.
void qn__fold_learn_range(qn__fold_t* fold, qn__ir_var_t* var, qn__ir_expr_t* begin,
                          qn__ir_expr_t* end);

#endif  // QUERN_IR_PASSES_FOLD_H_
