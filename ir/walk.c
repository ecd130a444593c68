// SPDX-License-Identifier: Apache-2.0
// ir/walk.c: visits every statement and expression in program order; compares expressions.
#include <assert.h>

#include "ir/ir.h"

static bool walk_exprs(qn__ir_walker_t* walker, qn__ir_expr_t* const* exprs, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (!qn__walk_expr(walker, exprs[i])) return false;
  }
  return true;
}

qn__ir_operands_t qn__expr_operands(const qn__ir_expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_LOAD:
      return (qn__ir_operands_t){expr->load.indices, expr->load.buffer->rank};
    case QN__EXPR_OP:
      return (qn__ir_operands_t){expr->args, qn__op_info(expr->op)->arity};
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      return (qn__ir_operands_t){expr->args, 1};
    case QN__EXPR_COND:
      return (qn__ir_operands_t){expr->args, 3};
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
    case QN__EXPR_VAR:
    case QN__EXPR_REDUCE:
      break;
  }
  return (qn__ir_operands_t){NULL, 0};
}

bool qn__walk_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  if (walker->on_expr && !walker->on_expr(walker, expr)) return false;
  if (expr->kind == QN__EXPR_REDUCE) {
    return qn__walk_expr(walker, expr->reduce.begin) && qn__walk_expr(walker, expr->reduce.end) &&
           qn__walk_block(walker, &expr->reduce.lets) && qn__walk_expr(walker, expr->reduce.value);
  }
  qn__ir_operands_t operands = qn__expr_operands(expr);
  return walk_exprs(walker, operands.items, operands.count);
}

static bool is_of_no_target(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  (void)walker;
  return expr->kind != QN__EXPR_OP || qn__op_info(expr->op)->rule != QN__RULE_TARGET;
}

bool qn__expr_has_target(qn__ir_expr_t* expr) {
  qn__ir_walker_t walker = {.on_expr = is_of_no_target};
  return !qn__walk_expr(&walker, expr);
}

static bool walk_shape(qn__ir_walker_t* walker, const qn__ir_buffer_t* buffer) {
  return walk_exprs(walker, buffer->shape, buffer->rank) &&
         (!buffer->strides || walk_exprs(walker, buffer->strides, buffer->rank));
}

bool qn__walk_extents(qn__ir_walker_t* walker, const qn__ir_func_t* function) {
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    if (buffer && !walk_shape(walker, buffer)) return false;
  }
  return true;
}

typedef struct symbol_list {
  qn__ir_func_t* function;
  size_t room;
} symbol_list_t;

static bool list_symbol(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  const symbol_list_t* list = walker->self;
  if (expr->kind != QN__EXPR_VAR || expr->var->kind != QN__VAR_SYMBOL) return true;
  if (expr->var->user) return true;
  if (list->function->symbol_count == list->room) return false;
  expr->var->user = list->function;
  list->function->symbols[list->function->symbol_count++] = expr->var;
  return true;
}

bool qn__function_list_symbols(qn__ir_func_t* function, size_t room) {
  function->symbol_count = 0;
  symbol_list_t list = {function, room};
  qn__ir_walker_t walker = {.on_expr = list_symbol, .self = &list};
  bool is_whole = qn__walk_extents(&walker, function);
  for (size_t i = 0; i < function->symbol_count; i++) function->symbols[i]->user = NULL;
  return is_whole;
}

static bool walk_buffer(qn__ir_walker_t* walker, const qn__ir_buffer_t* buffer) {
  return walk_shape(walker, buffer) &&
         (!buffer->elements || walk_exprs(walker, buffer->elements, buffer->element_count)) &&
         (!buffer->base || walk_exprs(walker, buffer->base_indices, buffer->base->rank));
}

static bool walk_tensor(qn__ir_walker_t* walker, const qn__ir_tensor_t* tensor) {
  for (uint32_t i = 0; i < tensor->ref_count; ++i) {
    const qn__ir_tensor_ref_t* ref = &tensor->refs[i];
    if (!walk_exprs(walker, ref->indices, ref->buffer->rank)) return false;
  }
  if (tensor->operand && !qn__walk_expr(walker, tensor->operand)) return false;
  return walk_exprs(walker, tensor->extents, qn__tensor_extents(tensor));
}

static bool walk_several(qn__ir_walker_t* walker, qn__ir_several_t* several) {
  return qn__walk_expr(walker, several->begin) && qn__walk_expr(walker, several->end) &&
         walk_exprs(walker, several->initial, several->merged_count) &&
         qn__walk_block(walker, &several->lets) &&
         walk_exprs(walker, several->values, several->count) &&
         qn__walk_block(walker, &several->merge_lets) &&
         walk_exprs(walker, several->merged, several->merged_count) &&
         qn__walk_block(walker, &several->body);
}

static bool walk_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      return qn__walk_expr(walker, stmt->let.value);
    case QN__STMT_STORE:
      return walk_exprs(walker, stmt->store.indices, stmt->store.buffer->rank) &&
             qn__walk_expr(walker, stmt->store.value);
    case QN__STMT_ATOMIC:
      return walk_exprs(walker, stmt->atomic.indices, stmt->atomic.buffer->rank) &&
             (!stmt->atomic.operand || qn__walk_expr(walker, stmt->atomic.operand)) &&
             (!stmt->atomic.operand2 || qn__walk_expr(walker, stmt->atomic.operand2));
    case QN__STMT_IF:
      return qn__walk_expr(walker, stmt->if_.condition) &&
             qn__walk_block(walker, &stmt->if_.then_block) &&
             qn__walk_block(walker, &stmt->if_.else_block);
    case QN__STMT_LOOP:
      return qn__walk_expr(walker, stmt->loop.begin) && qn__walk_expr(walker, stmt->loop.end) &&
             qn__walk_block(walker, &stmt->loop.body);
    case QN__STMT_WHILE:
      return qn__walk_expr(walker, stmt->while_.condition) &&
             qn__walk_block(walker, &stmt->while_.body);
    case QN__STMT_ALLOC:
      return walk_buffer(walker, stmt->alloc.buffer);
    case QN__STMT_LEAVE:
    case QN__STMT_BARRIER:
    case QN__STMT_FENCE:
      return true;
    case QN__STMT_ASSERT:
      return qn__walk_expr(walker, stmt->assert_.condition);
    case QN__STMT_TENSOR:
      return walk_tensor(walker, stmt->tensor);
    case QN__STMT_REDUCE:
      return walk_several(walker, stmt->several);
  }
  return true;
}

bool qn__walk_block(qn__ir_walker_t* walker, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (walker->on_stmt && !walker->on_stmt(walker, stmt)) return false;
    if (!walk_stmt(walker, stmt)) return false;
  }
  return true;
}

// ------------------------------------------------------------------------------------ comparison

// The reductions that enclose the compared expressions, innermost first. Their declarations
// correspond by position.
typedef struct frame {
  const qn__ir_expr_t* a;
  const qn__ir_expr_t* b;
  const struct frame* outer;
} frame_t;

static bool var_equal(const frame_t* frame, const qn__ir_var_t* a, const qn__ir_var_t* b) {
  for (; frame; frame = frame->outer) {
    if (frame->a->reduce.reduce_var == a || frame->b->reduce.reduce_var == b) {
      return frame->a->reduce.reduce_var == a && frame->b->reduce.reduce_var == b;
    }
    const qn__ir_stmt_t* let_a = frame->a->reduce.lets.first;
    const qn__ir_stmt_t* let_b = frame->b->reduce.lets.first;
    for (; let_a && let_b; let_a = let_a->next, let_b = let_b->next) {
      if (let_a->let.var == a || let_b->let.var == b) {
        return let_a->let.var == a && let_b->let.var == b;
      }
    }
  }
  return a == b;
}

static bool equal(const frame_t* frame, const qn__ir_expr_t* a, const qn__ir_expr_t* b);

static bool all_equal(const frame_t* frame, qn__ir_expr_t* const* a, qn__ir_expr_t* const* b,
                      size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (!equal(frame, a[i], b[i])) return false;
  }
  return true;
}

static bool reduce_equal(const frame_t* outer, const qn__ir_expr_t* a, const qn__ir_expr_t* b) {
  if (a->reduce.reduce_kind != b->reduce.reduce_kind ||
      a->reduce.lane_count != b->reduce.lane_count ||
      !equal(outer, a->reduce.begin, b->reduce.begin) ||
      !equal(outer, a->reduce.end, b->reduce.end)) {
    return false;
  }
  frame_t frame = {a, b, outer};
  const qn__ir_stmt_t* let_a = a->reduce.lets.first;
  const qn__ir_stmt_t* let_b = b->reduce.lets.first;
  for (; let_a && let_b; let_a = let_a->next, let_b = let_b->next) {
    if (!equal(&frame, let_a->let.value, let_b->let.value)) return false;
  }
  return !let_a && !let_b && equal(&frame, a->reduce.value, b->reduce.value);
}

static bool equal(const frame_t* frame, const qn__ir_expr_t* a, const qn__ir_expr_t* b) {
  if (a->kind != b->kind || a->dtype != b->dtype) return false;
  switch (a->kind) {
    case QN__EXPR_INT:
      return a->int_value == b->int_value;
    case QN__EXPR_FLOAT:
      // Compare bits: 0.0 and -0.0 differ, and a NaN equals itself.
      return memcmp(&a->float_value, &b->float_value, sizeof a->float_value) == 0;
    case QN__EXPR_VAR:
      return var_equal(frame, a->var, b->var);
    case QN__EXPR_REDUCE:
      return reduce_equal(frame, a, b);
    case QN__EXPR_LOAD:
      if (a->load.buffer != b->load.buffer) return false;
      break;
    case QN__EXPR_OP:
      if (a->op != b->op) return false;
      break;
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
    case QN__EXPR_COND:
      break;
  }
  qn__ir_operands_t operands = qn__expr_operands(a);
  qn__ir_operands_t others = qn__expr_operands(b);
  assert(operands.count == others.count);
  return all_equal(frame, operands.items, others.items, operands.count);
}

bool qn__expr_equal(const qn__ir_expr_t* a, const qn__ir_expr_t* b) {
  return equal(NULL, a, b);
}

// ------------------------------------------------------------------------------------ leaving

static bool stmt_has_leave(const qn__ir_stmt_t* stmt, qn_leave_t kind) {
  switch (stmt->kind) {
    case QN__STMT_LEAVE:
      return stmt->leave == kind;
    case QN__STMT_IF:
      return qn__block_has_leave(&stmt->if_.then_block, kind) ||
             qn__block_has_leave(&stmt->if_.else_block, kind);
    case QN__STMT_LOOP:
      return kind == QN_LEAVE_RETURN && qn__block_has_leave(&stmt->loop.body, kind);
    case QN__STMT_WHILE:
      return kind == QN_LEAVE_RETURN && qn__block_has_leave(&stmt->while_.body, kind);
    case QN__STMT_REDUCE:
      return kind == QN_LEAVE_RETURN && qn__block_has_leave(&stmt->several->body, kind);
    default:
      return false;
  }
}

bool qn__block_has_leave(const qn__ir_block_t* block, qn_leave_t kind) {
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt_has_leave(stmt, kind)) return true;
  }
  return false;
}

bool qn__stmt_leaves(const qn__ir_stmt_t* stmt) {
  return stmt_has_leave(stmt, QN_LEAVE_BREAK) || stmt_has_leave(stmt, QN_LEAVE_CONTINUE) ||
         stmt_has_leave(stmt, QN_LEAVE_RETURN);
}

bool qn__block_leaves(const qn__ir_block_t* block) {
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (qn__stmt_leaves(stmt)) return true;
  }
  return false;
}
