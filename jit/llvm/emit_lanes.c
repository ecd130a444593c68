// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_lanes.c: decides which loops and reductions run in lanes.
//
// The vectorise pass has proven which loops are safe. This file only decides whether the emitter
// supports them: a marked loop with an unexpected statement becomes a scalar loop.
#include "jit/llvm/emit_inner.h"

// ------------------------------------------------------------------------------------ abilities

static bool can_run(const qn__ir_block_t* block) {
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    switch (stmt->kind) {
      case QN__STMT_LET:
      case QN__STMT_STORE:
      case QN__STMT_ASSERT:
        break;
      case QN__STMT_IF:
        if (!can_run(&stmt->if_.then_block) || !can_run(&stmt->if_.else_block)) return false;
        break;
      case QN__STMT_LOOP:
        if (stmt->loop.lane_count > 0 || !can_run(&stmt->loop.body)) return false;
        break;
      case QN__STMT_ALLOC:
        if (stmt->alloc.buffer->scope != QN__SCOPE_CONST &&
            stmt->alloc.buffer->scope != QN__SCOPE_VIEW) {
          return false;
        }
        break;
      case QN__STMT_ATOMIC:
      case QN__STMT_WHILE:
      case QN__STMT_BARRIER:
      case QN__STMT_FENCE:
      case QN__STMT_TENSOR:
      case QN__STMT_REDUCE:
      case QN__STMT_LEAVE:
        return false;
    }
  }
  return true;
}

// Limits lanes to one register in the fast tier: more lanes make faster code and longer compiles.
static uint32_t in_tier(const qn__llvm_emit_t* e, uint32_t lanes) {
  uint32_t width = e->options->vector_bytes / 4;
  return e->options->is_fast_tier && lanes > width ? width : lanes;
}

uint32_t qn__emit_loop_lanes(const qn__llvm_emit_t* e, const qn__ir_stmt_t* loop) {
  uint32_t lanes = loop->loop.lane_count;
  if (e->options->is_scalar_only || e->fn->lanes > 0 || lanes > QN__EMIT_MAX_LANES) return 0;
  if (loop->loop.kind != QN_LOOP_VECTOR) {
    lanes = in_tier(e, lanes);
    if (!qn__emit_can_mask_conditions(e, loop)) return 0;
  }
  return lanes > 1 && can_run(&loop->loop.body) ? lanes : 0;
}

uint32_t qn__emit_reduce_lanes(const qn__llvm_emit_t* e, const qn__ir_expr_t* expr) {
  uint32_t lanes = expr->reduce.lane_count;
  if (e->options->is_scalar_only || e->fn->lanes > 0 || lanes > QN__EMIT_MAX_LANES) return 0;
  lanes = in_tier(e, lanes);
  // The final reduction adds halves, so the lane count must be a power of two.
  return lanes > 1 && (lanes & (lanes - 1)) == 0 ? lanes : 0;
}

// ------------------------------------------------------------------------------------ declarations

static void mark_var(qn__llvm_emit_t* e, const qn__ir_var_t* var) {
  if (!var) return;
  qn__llvm_var_slot_t* slot = var->user;
  slot->mark = e->mark_count;
}

static bool mark_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  if (stmt->kind == QN__STMT_LET) mark_var(walker->self, stmt->let.var);
  if (stmt->kind == QN__STMT_LOOP) mark_var(walker->self, stmt->loop.var);
  if (stmt->kind == QN__STMT_ATOMIC) mark_var(walker->self, stmt->atomic.result);
  return true;
}

static bool mark_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_REDUCE) mark_var(walker->self, expr->reduce.reduce_var);
  return true;
}

uint32_t qn__emit_mark(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop) {
  e->mark_count++;
  mark_var(e, loop->loop.var);
  qn__ir_walker_t walker = {mark_stmt, mark_expr, e};
  qn__ir_block_t body = loop->loop.body;
  (void)qn__walk_block(&walker, &body);
  return e->mark_count;
}
