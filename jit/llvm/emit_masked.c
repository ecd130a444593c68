// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_masked.c: decides whether the target has the masked memory that a loop needs.
//
// Where the target has none, LLVM expands a masked access into a branch for each lane, which is
// slower and far longer than a scalar loop. AVX-512 masks every element, AVX2 those of 32 and 64
// bits, SSE2 none. Arrays on the stack need no mask.
#include "ir/passes/rewrite.h"
#include "jit/llvm/emit_inner.h"

static bool is_maskable(const qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer) {
  if (e->options->has_avx512) return true;
  return e->options->has_avx2 && qn__dtype_bits(buffer->dtype) >= 32;
}

// ------------------------------------------------------------------------------------ tails

static bool check_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  return expr->kind != QN__EXPR_LOAD || is_maskable(walker->self, expr->load.buffer);
}

static bool check_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  return stmt->kind != QN__STMT_STORE || is_maskable(walker->self, stmt->store.buffer);
}

// The walker's `self` is not const, but the walk only reads.
static bool walk(const qn__llvm_emit_t* e, const qn__ir_block_t* block, qn__ir_expr_t* expr) {
  if (e->options->has_avx512 || !e->options->has_avx2) return e->options->has_avx512;
  qn__llvm_emit_t copy = *e;
  qn__ir_walker_t walker = {check_stmt, check_expr, &copy};
  qn__ir_block_t all = *block;
  return qn__walk_block(&walker, &all) && (!expr || qn__walk_expr(&walker, expr));
}

bool qn__emit_can_mask_loop(const qn__llvm_emit_t* e, const qn__ir_block_t* body) {
  return walk(e, body, NULL);
}

bool qn__emit_can_mask_reduce(const qn__llvm_emit_t* e, const qn__ir_expr_t* expr) {
  return walk(e, &expr->reduce.lets, expr->reduce.value);
}

// ------------------------------------------------------------------------------------ conditions

typedef struct mask_search {
  const qn__llvm_emit_t* e;
  const qn__ir_var_t* lane;  // the variable of the loop
} mask_search_t;

static bool visit_uniform(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  const mask_search_t* search = walker->self;
  switch (expr->kind) {
    case QN__EXPR_VAR:
      return expr->var != search->lane &&
             (expr->var->kind == QN__VAR_SYMBOL || expr->var->kind == QN__VAR_SCALAR ||
              expr->var->kind == QN__VAR_LOOP);
    case QN__EXPR_LOAD:
    case QN__EXPR_COND:
    case QN__EXPR_REDUCE:
      return false;
    default:
      return true;
  }
}

// Returns whether the expression may differ between lanes. Assumes so for loads and variables.
static bool is_varying(mask_search_t* search, qn__ir_expr_t* expr) {
  qn__ir_walker_t walker = {.on_expr = visit_uniform, .self = search};
  return !qn__walk_expr(&walker, expr);
}

static bool is_fine(const mask_search_t* search, const qn__ir_buffer_t* buffer) {
  qn__ir_scope_t scope = qn__buf_root(buffer)->scope;
  return scope == QN__SCOPE_LOCAL || scope == QN__SCOPE_SHARED || is_maskable(search->e, buffer);
}

static bool block_is_fine(mask_search_t* search, const qn__ir_block_t* block, bool is_masked);

static bool expr_is_fine(mask_search_t* search, const qn__ir_expr_t* expr, bool is_masked);

static bool all_are_fine(mask_search_t* search, qn__ir_expr_t* const* exprs, uint32_t count,
                         bool is_masked) {
  for (uint32_t i = 0; i < count; ++i) {
    if (!expr_is_fine(search, exprs[i], is_masked)) return false;
  }
  return true;
}

static bool access_is_fine(mask_search_t* search, const qn__ir_buffer_t* buffer,
                           qn__ir_expr_t* const* indices, bool is_masked) {
  return (!is_masked || is_fine(search, buffer)) &&
         all_are_fine(search, indices, buffer->rank, is_masked);
}

static bool expr_is_fine(mask_search_t* search, const qn__ir_expr_t* expr, bool is_masked) {
  uint32_t count = 0;
  switch (expr->kind) {
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
    case QN__EXPR_VAR:
      return true;
    case QN__EXPR_LOAD:
      return access_is_fine(search, expr->load.buffer, expr->load.indices, is_masked);
    case QN__EXPR_REDUCE:
      return block_is_fine(search, &expr->reduce.lets, is_masked) &&
             expr_is_fine(search, expr->reduce.value, is_masked);
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      count = 1;
      break;
    case QN__EXPR_COND:
      count = 3;
      break;
    case QN__EXPR_OP:
      count = qn__op_info(expr->op)->arity;
      break;
  }
  if (!qn__expr_is_lazy(expr)) return all_are_fine(search, expr->args, count, is_masked);
  bool is_narrowed = is_masked || is_varying(search, expr->args[0]);
  return expr_is_fine(search, expr->args[0], is_masked) &&
         all_are_fine(search, expr->args + 1, count - 1, is_narrowed);
}

static bool stmt_is_fine(mask_search_t* search, const qn__ir_stmt_t* stmt, bool is_masked) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      return expr_is_fine(search, stmt->let.value, is_masked);
    case QN__STMT_STORE:
      return access_is_fine(search, stmt->store.buffer, stmt->store.indices, is_masked) &&
             expr_is_fine(search, stmt->store.value, is_masked);
    case QN__STMT_IF: {
      bool is_narrowed = is_masked || is_varying(search, stmt->if_.condition);
      return expr_is_fine(search, stmt->if_.condition, is_masked) &&
             block_is_fine(search, &stmt->if_.then_block, is_narrowed) &&
             block_is_fine(search, &stmt->if_.else_block, is_narrowed);
    }
    case QN__STMT_LOOP:
      return block_is_fine(search, &stmt->loop.body, is_masked);
    case QN__STMT_ASSERT:
      return expr_is_fine(search, stmt->assert_.condition, is_masked);
    default:
      return true;
  }
}

static bool block_is_fine(mask_search_t* search, const qn__ir_block_t* block, bool is_masked) {
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!stmt_is_fine(search, stmt, is_masked)) return false;
  }
  return true;
}

bool qn__emit_can_mask_conditions(const qn__llvm_emit_t* e, const qn__ir_stmt_t* loop) {
  if (e->options->has_avx512) return true;
  mask_search_t search = {e, loop->loop.var};
  return block_is_fine(&search, &loop->loop.body, false);
}
