// SPDX-License-Identifier: Apache-2.0
// ir/passes/lanes.h: how an expression varies over the iterations of one loop: not at all, by a
// constant step, or otherwise. Every decision of the pass `vectorize` uses this analysis.
//
// In `for i in 0..n { let a = 3; let b = 2 * i + 1; let c = x[i]; }` the value `a` is uniform, `b`
// is linear with step 2, and `c` varies.
#ifndef QUERN_IR_PASSES_LANES_H_
#define QUERN_IR_PASSES_LANES_H_

#include "ir/passes/passes.h"
#include "ir/passes/rewrite.h"

typedef struct qn__ir_lane {
  bool is_varying;  // not linear
  // Depends on the variable of a loop or reduction inside the one in question, or on a load: not a
  // function of the iteration alone.
  bool has_inner;
  int64_t step;  // change from one iteration to the next; 0: uniform (when not varying)
} qn__ir_lane_t;

static inline bool qn__lane_is_uniform(qn__ir_lane_t lane) {
  return !lane.is_varying && lane.step == 0;
}

// Facts about one candidate: a loop or a reduction.
typedef struct qn__lanes {
  qn__ir_lane_t* vars;  // by variable id
  bool* is_stored;      // by buffer id of the root: stored to inside the candidate
  bool* is_private;     // by buffer id of the root: a local buffer that each iteration declares
  uint32_t var_count;
  uint32_t buffer_count;
} qn__lanes_t;

// Allocates for a numbered function. Returns false without memory.
bool qn__lanes_init(qn__lanes_t* lanes, qn__arena_t* arena, const qn__ir_func_t* function);
// Classifies every let of the body; `var` counts the iterations. The body may be NULL (a
// reduction).
void qn__lanes_enter(qn__lanes_t* lanes, qn__ir_var_t* var, qn__ir_block_t* body);
// Classifies more of the body, after qn__lanes_enter.
void qn__lanes_add(qn__lanes_t* lanes, qn__ir_block_t* body);
// Classifies a let of a reduction.
void qn__lanes_let(qn__lanes_t* lanes, const qn__ir_stmt_t* let);
qn__ir_lane_t qn__lanes_of(const qn__lanes_t* lanes, qn__ir_expr_t* expr);

typedef enum qn__lanes_reach {
  QN__REACH_UNIFORM,     // one element for all lanes
  QN__REACH_CONTIGUOUS,  // lane i: element i
  QN__REACH_SCATTERED,
} qn__lanes_reach_t;
qn__lanes_reach_t qn__lanes_reach(const qn__lanes_t* lanes, const qn__ir_buffer_t* buffer,
                                  qn__ir_expr_t* const* indices);

// Returns true if `has_proof` holds for each store of the block to a buffer that iterations share.
// A proof compares a store with all accesses: `*inout_budget` limits their number.
bool qn__lanes_all_stores(const qn__lanes_t* lanes, qn__ir_block_t* block, int* inout_budget,
                          bool (*has_proof)(void* self, const qn__ir_stmt_t* store), void* self);
// Returns true if the iterations of a serial loop are proven to be independent of each other. Call
// after qn__lanes_enter.
bool qn__lanes_is_independent(const qn__lanes_t* lanes, qn__ir_block_t* body);
// The same by another proof: each iteration accesses a tile of its own (lanes_tile.c).
bool qn__lanes_is_tiled(const qn__lanes_t* lanes, qn__arena_t* arena, const qn__ir_var_t* iteration,
                        qn__ir_block_t* body);

#endif  // QUERN_IR_PASSES_LANES_H_
