// ir/passes/cost.h: what a piece of code costs, scalar or in lanes, in units of one simple
// instruction.
//
// A rough model: it only has to order the few ways to vectorise one loop nest. Thread rule: pure
// over what it reads. Read next: cost.c.
#ifndef QUERN_IR_PASSES_COST_H_
#define QUERN_IR_PASSES_COST_H_

#include "ir/passes/lanes.h"

typedef struct qn__cost_model {
  const qn__pass_options_t* options;
  const qn__lanes_t* lanes;  // NULL: scalar
  uint32_t lane_count;       // of the candidate, when not scalar
  bool is_masked;            // inside an `if`, or in the arm of a lazy operator
} qn__cost_model_t;

// An expression without the reductions inside it being marked (they count as scalar loops).
double qn__cost_expr(const qn__cost_model_t* model, qn__ir_expr_t* expr);
// A store, without its value.
double qn__cost_store(const qn__cost_model_t* model, const qn__ir_stmt_t* store);
double qn__cost_block(const qn__cost_model_t* model, qn__ir_block_t* block);
// Iterations of a range: exact where constant, else a guess.
double qn__cost_trips(qn__ir_expr_t* begin, qn__ir_expr_t* end);

// The widest element that a body computes with, in bytes; 0 when it computes with none.
uint32_t qn__widest_in_block(qn__ir_block_t* block);
uint32_t qn__widest_in_expr(qn__ir_expr_t* expr);

#endif  // QUERN_IR_PASSES_COST_H_
