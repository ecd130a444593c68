// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_special.c: loop unswitching: tests the invariant conditions of a loop once, before
// it.
//
// In a register tile the innermost loop tests the tile's edges in each iteration. Inside the matrix
// all these conditions hold, so one copy of the loop has no tests. The other copy keeps them.
#include "jit/llvm/emit_inner.h"

enum { MAX_CONDITIONS = 64, MAX_COPIED_STATEMENTS = 256 };

typedef struct special_search {
  qn__llvm_emit_t* e;
  const qn__ir_stmt_t* found[MAX_CONDITIONS];    // the `if` statements
  const qn__ir_stmt_t* vectors[MAX_CONDITIONS];  // the vector loop around each of them, or NULL
  uint32_t count;
  uint32_t statements;
  const qn__ir_stmt_t* vector;  // the vector loop that is being searched, or NULL
  uint32_t mark;                // of the variables that the loop declares
  bool is_hopeless;             // the loop is too large or has inner loops
} special_search_t;

static bool visit_invariant(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  const special_search_t* search = walker->self;
  switch (expr->kind) {
    case QN__EXPR_INT:
      return true;
    case QN__EXPR_VAR: {
      const qn__llvm_var_slot_t* slot = expr->var->user;
      return slot->mark != search->mark ||
             (search->vector && expr->var == search->vector->loop.var);
    }
    case QN__EXPR_CAST:
      return qn__dtype_is_int(expr->dtype);
    case QN__EXPR_OP: {
      qn__ir_op_rule_t rule = qn__op_info(expr->op)->rule;
      return rule == QN__RULE_NUMERIC || rule == QN__RULE_COMPARE || rule == QN__RULE_LOGIC;
    }
    default:
      return false;
  }
}

// Returns whether the condition is invariant and can be evaluated before the loop, without a load
// or a failure.
static bool is_invariant(special_search_t* search, qn__ir_expr_t* expr) {
  qn__ir_walker_t walker = {.on_expr = visit_invariant, .self = search};
  return qn__walk_expr(&walker, expr);
}

// Returns whether all iterations of a loop fit into one vector.
static bool is_short_vector(const qn__llvm_emit_t* e, const qn__ir_stmt_t* loop) {
  const qn__ir_expr_t* begin = loop->loop.begin;
  const qn__ir_expr_t* end = loop->loop.end;
  if (begin->kind != QN__EXPR_INT || end->kind != QN__EXPR_INT) return false;
  int64_t count;
  return !__builtin_sub_overflow(end->int_value, begin->int_value, &count) && count > 0 &&
         count <= QN__EMIT_MAX_LANES && qn__emit_loop_lanes(e, loop) > 1;
}

static void collect(special_search_t* search, const qn__ir_block_t* block) {
  for (const qn__ir_stmt_t* stmt = block->first; stmt && !search->is_hopeless; stmt = stmt->next) {
    if (++search->statements > MAX_COPIED_STATEMENTS) search->is_hopeless = true;
    if (stmt->kind == QN__STMT_WHILE) search->is_hopeless = true;
    if (stmt->kind == QN__STMT_LOOP) {
      if (!is_short_vector(search->e, stmt) || search->vector) search->is_hopeless = true;
      search->vector = stmt;
      collect(search, &stmt->loop.body);
      search->vector = NULL;
    }
    if (stmt->kind != QN__STMT_IF) continue;
    if (!stmt->if_.else_block.first && search->count < MAX_CONDITIONS &&
        is_invariant(search, stmt->if_.condition)) {
      search->vectors[search->count] = search->vector;
      search->found[search->count++] = stmt;
    }
    collect(search, &stmt->if_.then_block);
    collect(search, &stmt->if_.else_block);
  }
}

// Emits whether the condition is true in all lanes of the vector loop. `loop` is it, or NULL.
static LLVMValueRef holds(qn__llvm_emit_t* e, const qn__ir_expr_t* condition,
                          const qn__ir_stmt_t* loop) {
  if (!loop) return qn__emit_scalar(e, condition);
  int64_t first = loop->loop.begin->int_value;
  int64_t count = loop->loop.end->int_value - first;
  qn__emit_region_begin(e, (uint32_t)count, NULL);
  qn__emit_bind(e, loop->loop.var, qn__emit_lanes_from(e, qn__emit_i64(e, first)));
  qn__llvm_value_t value = qn__emit_expr(e, condition);
  LLVMValueRef result =
      value.shape == QN__LLVM_SHAPE_UNIFORM ? value.v : qn__emit_all(e, qn__emit_widen(e, value));
  qn__emit_region_end(e);
  return result;
}

bool qn__emit_is_known(const qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  for (uint32_t i = 0; i < e->fn->known_count; ++i) {
    if (e->fn->known[i] == stmt) return true;
  }
  return false;
}

bool qn__emit_specialised(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, LLVMValueRef begin,
                          LLVMValueRef end) {
  qn__llvm_function_t* fn = e->fn;
  LLVMBuilderRef b = fn->builder;
  if (e->options->is_scalar_only || fn->lanes > 0 || fn->known_count > 0) return false;
  int64_t first, trips;
  if (qn__emit_const_trips(begin, end, &first, &trips) && trips <= 1) return false;
  special_search_t* search = QN__ARENA_NEW(e->arena, special_search_t);
  if (!search) {
    e->has_failed = true;
    return false;
  }
  search->e = e;
  search->mark = qn__emit_mark(e, loop);
  collect(search, &loop->loop.body);
  if (search->is_hopeless || search->count == 0) return false;
  LLVMValueRef holds_everywhere = NULL;
  for (uint32_t i = 0; i < search->count; ++i) {
    LLVMValueRef one = holds(e, search->found[i]->if_.condition, search->vectors[i]);
    holds_everywhere = i == 0 ? one : LLVMBuildAnd(b, holds_everywhere, one, "");
  }
  LLVMBasicBlockRef inside = qn__emit_block(e, "inside");
  LLVMBasicBlockRef edge = qn__emit_block(e, "edge");
  LLVMBasicBlockRef done = qn__emit_block(e, "endtile");
  LLVMBuildCondBr(b, holds_everywhere, inside, edge);
  qn__emit_at(e, inside);
  assert(fn->known_count == 0 && search->count <= MAX_CONDITIONS);
  fn->known = search->found;
  fn->known_count = search->count;
  qn__emit_scalar_range(e, loop, begin, end);
  fn->known_count = 0;
  LLVMBuildBr(b, done);
  qn__emit_at(e, edge);
  qn__emit_scalar_range(e, loop, begin, end);
  LLVMBuildBr(b, done);
  qn__emit_at(e, done);
  return true;
}
