// jit/llvm/emit_special.c: loop unswitching: tests the invariant conditions of a loop once, before
// it.
//
// In a register tile the innermost loop tests the tile's edges in each iteration. Inside the matrix
// all these conditions hold, so one copy of the loop has no tests. The other copy keeps them.
#include "jit/llvm/emit_inner.h"

enum { MAX_CONDITIONS = 64, MAX_COPIED_STATEMENTS = 256, MAX_LANES = 256 };

typedef struct special_search {
  qn__llvm_emit_t* e;
  const qn__ir_stmt_t* found[MAX_CONDITIONS];
  uint32_t count;
  uint32_t statements;
  uint32_t mark;     // of the variables that the loop declares
  bool is_hopeless;  // the loop is too large or has inner loops
} special_search_t;

// Returns whether the condition is invariant and can be evaluated before the loop, without a load
// or a failure. `inner` is the variable of the vector loop around the condition, if any.
static bool is_invariant(const special_search_t* search, const qn__ir_expr_t* expr,
                         const qn__ir_var_t* inner) {
  switch (expr->kind) {
    case QN__EXPR_INT:
      return true;
    case QN__EXPR_VAR: {
      const qn__llvm_var_slot_t* slot = expr->var->user;
      return expr->var == inner || slot->mark != search->mark;
    }
    case QN__EXPR_CAST:
      return qn__dtype_is_int(expr->dtype) && is_invariant(search, expr->args[0], inner);
    case QN__EXPR_OP:
      break;
    default:
      return false;
  }
  switch (qn__op_info(expr->op)->rule) {
    case QN__RULE_NUMERIC:
    case QN__RULE_COMPARE:
    case QN__RULE_LOGIC:
      break;
    default:
      return false;
  }
  for (uint32_t i = 0; i < qn__op_info(expr->op)->arity; ++i) {
    if (!is_invariant(search, expr->args[i], inner)) return false;
  }
  return true;
}

static void collect(special_search_t* search, const qn__ir_block_t* block,
                    const qn__ir_stmt_t* vector) {
  for (const qn__ir_stmt_t* stmt = block->first; stmt && !search->is_hopeless; stmt = stmt->next) {
    if (++search->statements > MAX_COPIED_STATEMENTS) search->is_hopeless = true;
    if (stmt->kind == QN__STMT_WHILE) search->is_hopeless = true;
    if (stmt->kind == QN__STMT_LOOP) {
      bool is_vector = qn__emit_loop_lanes(search->e, stmt) > 1 &&
                       stmt->loop.begin->kind == QN__EXPR_INT &&
                       stmt->loop.end->kind == QN__EXPR_INT &&
                       stmt->loop.end->int_value - stmt->loop.begin->int_value <= MAX_LANES;
      if (!is_vector || vector) search->is_hopeless = true;
      collect(search, &stmt->loop.body, stmt);
    }
    if (stmt->kind != QN__STMT_IF) continue;
    const qn__ir_var_t* inner = vector ? vector->loop.var : NULL;
    if (!stmt->if_.else_block.first && search->count < MAX_CONDITIONS &&
        is_invariant(search, stmt->if_.condition, inner)) {
      search->found[search->count++] = stmt;
    }
    collect(search, &stmt->if_.then_block, vector);
    collect(search, &stmt->if_.else_block, vector);
  }
}

// Emits whether the condition is true in all lanes of the vector loop. `loop` is it, or NULL.
static LLVMValueRef holds(qn__llvm_emit_t* e, const qn__ir_expr_t* condition,
                          const qn__ir_stmt_t* loop) {
  if (!loop) return qn__emit_scalar(e, condition);
  qn__llvm_function_t* fn = e->fn;
  int64_t first = loop->loop.begin->int_value;
  int64_t count = loop->loop.end->int_value - first;
  fn->lanes = (uint32_t)count;
  fn->mask = NULL;
  qn__emit_bind(e, loop->loop.var,
                qn__emit_linear(QN_DTYPE_I64, qn__emit_i64(e, first), qn__emit_i64(e, 1)));
  qn__llvm_value_t value = qn__emit_expr(e, condition);
  LLVMValueRef result =
      value.shape == QN__LLVM_SHAPE_UNIFORM ? value.v : qn__emit_all(e, qn__emit_widen(e, value));
  fn->lanes = 0;
  return result;
}

// Emits the conjunction of all conditions. Equal ones are evaluated once.
static LLVMValueRef all_hold(special_search_t* search, const qn__ir_block_t* block,
                             const qn__ir_stmt_t* vector, LLVMValueRef so_far) {
  qn__llvm_emit_t* e = search->e;
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LOOP) {
      so_far = all_hold(search, &stmt->loop.body, stmt, so_far);
    }
    if (stmt->kind != QN__STMT_IF) continue;
    bool is_found = false;
    for (uint32_t i = 0; i < search->count; ++i) is_found |= search->found[i] == stmt;
    if (is_found) {
      LLVMValueRef one = holds(e, stmt->if_.condition, vector);
      so_far = so_far ? LLVMBuildAnd(e->fn->builder, so_far, one, "") : one;
    }
    so_far = all_hold(search, &stmt->if_.then_block, vector, so_far);
    so_far = all_hold(search, &stmt->if_.else_block, vector, so_far);
  }
  return so_far;
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
  int64_t first, last;
  if (qn__emit_const_int(begin, &first) && qn__emit_const_int(end, &last) && last - first <= 1) {
    return false;
  }
  special_search_t* search = QN__ARENA_NEW(e->arena, special_search_t);
  if (!search) {
    e->has_failed = true;
    return false;
  }
  search->e = e;
  search->mark = qn__emit_mark(e, loop);
  collect(search, &loop->loop.body, NULL);
  if (search->is_hopeless || search->count == 0) return false;
  LLVMValueRef holds_everywhere = all_hold(search, &loop->loop.body, NULL, NULL);
  LLVMBasicBlockRef inside = qn__emit_block(e, "inside");
  LLVMBasicBlockRef edge = qn__emit_block(e, "edge");
  LLVMBasicBlockRef done = qn__emit_block(e, "endtile");
  LLVMBuildCondBr(b, holds_everywhere, inside, edge);
  qn__emit_at(e, inside);
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
