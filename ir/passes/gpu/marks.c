// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/marks.c: marks the loops and reductions that the threads of a block share
// (placement.h). One thread runs everything inside an iteration of a marked loop or reduction.
#include "ir/passes/gpu/placement.h"

enum {
  shortest_reduction = 16,  // that threads share
  shortest_outer = 32,      // of a loop that threads share although its body has loops to share
};

typedef struct marker {
  qn__pass_builder_t* pb;
  bool is_warp;
  bool has_work;
  uint32_t depth;  // of control flow
} marker_t;

static bool mark_slot(void* context, qn__ir_expr_t** slot) {
  marker_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) {
    int64_t count = qn__const_trips(expr->reduce.begin, expr->reduce.end);
    bool is_shared = expr->reduce.reduce_kind != QN_REDUCE_PROD &&
                     (count < 0 || count >= shortest_reduction) &&
                     !(self->is_warp && self->depth > 0);
    expr->reduce.is_cooperative = is_shared;
    self->has_work = self->has_work || is_shared;
    return true;
  }
  if (qn__expr_is_lazy(expr)) return mark_slot(self, &expr->args[0]);
  return qn__expr_each_child(expr, mark_slot, self);
}

static bool is_reduce(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_REDUCE;
}

// Returns true if the block has loops or reductions that threads can share.
static bool has_inner_work(qn__ir_block_t* block) {
  return qn__block_any_expr(block, is_reduce) || qn__block_any(block, qn__is_independent_loop);
}

static bool is_shared_loop(const qn__ir_stmt_t* stmt, qn__ir_block_t* body) {
  if (!qn__is_independent_loop(stmt) || qn__block_any(body, qn__threads_synchronize)) return false;
  int64_t count = qn__const_trips(stmt->loop.begin, stmt->loop.end);
  if (count < 0 || count >= shortest_outer) return true;
  // Threads share a perfect nest as a whole.
  const qn__ir_stmt_t* only = body->first;
  bool is_perfect = only && !only->next && qn__is_independent_loop(only);
  return is_perfect || !has_inner_work(body);
}

static void mark_block(marker_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind != QN__STMT_WHILE && stmt->kind != QN__STMT_ALLOC) {
      (void)qn__stmt_each_expr(stmt, mark_slot, self);
    }
    if (stmt->kind == QN__STMT_LOOP) {
      stmt->loop.is_cooperative = is_shared_loop(stmt, &stmt->loop.body);
      self->has_work |= stmt->loop.is_cooperative;
      if (stmt->loop.is_cooperative) continue;
    }
    if (qn__threads_synchronize(stmt)) {
      self->has_work = true;
      continue;
    }
    ++self->depth;
    QN__EACH_BLOCK(stmt, inner) mark_block(self, inner);
    --self->depth;
  }
}

bool qn__mark_cooperative(qn__pass_builder_t* pb, qn__ir_block_t* block, bool is_warp) {
  marker_t self = {pb, is_warp, false, 0};
  mark_block(&self, block);
  return self.has_work;
}
