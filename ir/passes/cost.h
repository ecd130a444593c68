// SPDX-License-Identifier: Apache-2.0
// ir/passes/cost.h: estimates the cost of code, scalar or in lanes, in simple instructions.
//
// A rough model: it only has to order the few ways to vectorise one loop nest.
#ifndef QUERN_IR_PASSES_COST_H_
#define QUERN_IR_PASSES_COST_H_

#include "ir/passes/lanes.h"

typedef struct qn__cost_model {
  const qn__pass_options_t* options;
  const qn__lanes_t* lanes;  // NULL: scalar
  uint32_t lane_count;       // of the candidate, when not scalar
  bool is_masked;            // inside an `if`, or in the arm of a lazy operator
} qn__cost_model_t;

// Returns the cost of an expression. Reductions inside of it count as scalar loops.
double qn__cost_expr(const qn__cost_model_t* model, qn__ir_expr_t* expr);
// Returns the cost of a store without its value.
double qn__cost_store(const qn__cost_model_t* model, const qn__ir_stmt_t* store);
double qn__cost_block(const qn__cost_model_t* model, qn__ir_block_t* block);
// Returns the iterations of a range: a guess if they are not constant.
double qn__cost_trips(const qn__ir_expr_t* begin, const qn__ir_expr_t* end);

// Returns the size in bytes of the widest element that the code computes with; 0: it has none.
uint32_t qn__widest_in_block(qn__ir_block_t* block);
uint32_t qn__widest_in_expr(qn__ir_expr_t* expr);

#endif  // QUERN_IR_PASSES_COST_H_
