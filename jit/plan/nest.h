// SPDX-License-Identifier: Apache-2.0
// jit/plan/nest.h: questions about nests of block or thread loops.
#ifndef QUERN_JIT_PLAN_NEST_H_
#define QUERN_JIT_PLAN_NEST_H_

#include "ir/ir.h"

// Make a node that is only read an argument of a walk, whose callbacks might change nodes.
static inline qn__ir_expr_t* qn__gpu_walked_expr(const qn__ir_expr_t* expr) {
  return (qn__ir_expr_t*)(uintptr_t)expr;
}
static inline qn__ir_block_t* qn__gpu_walked_block(const qn__ir_block_t* block) {
  return (qn__ir_block_t*)(uintptr_t)block;
}

// Returns the next inner loop of the same nest: all block loops, or all thread loops, with no
// statement between them. NULL: this is the innermost one.
const qn__ir_stmt_t* qn__gpu_nest_inner(const qn__ir_stmt_t* loop);
// Returns the product of the extents of the nest from `loop` on; -1: not constant, or too large.
int64_t qn__gpu_nest_count(const qn__ir_stmt_t* loop);
// Returns whether the block has a barrier or an exchange.
bool qn__gpu_is_together(const qn__ir_block_t* block);

#endif  // QUERN_JIT_PLAN_NEST_H_
