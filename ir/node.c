// SPDX-License-Identifier: Apache-2.0
// ir/node.c: making nodes in an arena, and numbering what a function declares.
//
// Checks nothing: the verifier does. Not here: copies of trees (clone.c), walks and comparison
// (walk.c).
#include <assert.h>

#include "ir/ir.h"

qn__ir_expr_t* qn__expr_new(qn__arena_t* arena, qn__ir_expr_kind_t kind, qn_dtype_t dtype,
                            qn__ir_loc_t loc) {
  qn__ir_expr_t* expr = QN__ARENA_NEW(arena, qn__ir_expr_t);
  if (!expr) return NULL;
  expr->kind = kind;
  expr->dtype = dtype;
  expr->loc = loc;
  return expr;
}

static const qn__ir_loc_t no_loc = {0, 0};

qn__ir_expr_t* qn__expr_int(qn__arena_t* arena, qn_dtype_t dtype, int64_t value) {
  qn__ir_expr_t* expr = qn__expr_new(arena, QN__EXPR_INT, dtype, no_loc);
  if (expr) expr->int_value = value;
  return expr;
}

qn__ir_expr_t* qn__expr_float(qn__arena_t* arena, qn_dtype_t dtype, double value) {
  qn__ir_expr_t* expr = qn__expr_new(arena, QN__EXPR_FLOAT, dtype, no_loc);
  if (expr) expr->float_value = value;
  return expr;
}

qn__ir_expr_t* qn__expr_var(qn__arena_t* arena, qn__ir_var_t* var) {
  qn__ir_expr_t* expr = qn__expr_new(arena, QN__EXPR_VAR, var->dtype, no_loc);
  if (expr) expr->var = var;
  return expr;
}

qn__ir_expr_t* qn__expr_op(qn__arena_t* arena, qn_op_t op, qn__ir_expr_t* a, qn__ir_expr_t* b,
                           qn__ir_expr_t* c) {
  const qn__ir_op_info_t* info = qn__op_info(op);
  // An operand is NULL after a failed allocation, which the arena remembers.
  if (QN_NEVER(!info) || (info->arity > 0 && !a) || (info->arity > 1 && !b) ||
      (info->arity > 2 && !c)) {
    return NULL;
  }
  qn_dtype_t dtype = a ? a->dtype : QN_DTYPE_I64;
  if (qn__rule_gives_bool(info->rule)) dtype = QN_DTYPE_BOOL;
  if (info->rule == QN__RULE_SELECT) dtype = b->dtype;
  qn__ir_expr_t* expr = qn__expr_new(arena, QN__EXPR_OP, dtype, no_loc);
  if (!expr) return NULL;
  expr->op = op;
  expr->args[0] = a;
  expr->args[1] = b;
  expr->args[2] = c;
  return expr;
}

qn__ir_stmt_t* qn__stmt_new(qn__arena_t* arena, qn__ir_stmt_kind_t kind, qn__ir_loc_t loc) {
  qn__ir_stmt_t* stmt = QN__ARENA_NEW(arena, qn__ir_stmt_t);
  if (!stmt) return NULL;
  stmt->kind = kind;
  stmt->loc = loc;
  return stmt;
}

qn__ir_var_t* qn__var_new(qn__arena_t* arena, qn__ir_var_kind_t kind, qn_dtype_t dtype,
                          const char* name) {
  qn__ir_var_t* var = QN__ARENA_NEW(arena, qn__ir_var_t);
  if (!var) return NULL;
  var->name = qn__arena_cstr(arena, qn__str(name));
  var->kind = kind;
  var->dtype = dtype;
  return var->name ? var : NULL;
}

qn__ir_buffer_t* qn__buf_new(qn__arena_t* arena, qn__ir_scope_t scope, qn_dtype_t dtype,
                             const char* name, uint32_t rank) {
  qn__ir_buffer_t* buffer = QN__ARENA_NEW(arena, qn__ir_buffer_t);
  if (!buffer) return NULL;
  buffer->name = qn__arena_cstr(arena, qn__str(name));
  buffer->scope = scope;
  buffer->dtype = dtype;
  buffer->rank = rank;
  buffer->origin_id = UINT32_MAX;
  buffer->align_bytes = (uint32_t)qn_dtype_size_bytes(dtype);
  buffer->shape = qn__arena_alloc_array(arena, rank, sizeof *buffer->shape);
  return buffer->name && buffer->shape ? buffer : NULL;
}

void qn__block_append(qn__ir_block_t* block, qn__ir_stmt_t* stmt) {
  assert(!block->first == !block->last && (!block->last || !block->last->next));
  stmt->next = NULL;
  *(block->last ? &block->last->next : &block->first) = stmt;
  block->last = stmt;
}

void qn__body_append(qn__ir_body_t* body, qn__ir_func_t* function) {
  assert(!body->first == !body->last && !body->first == (body->function_count == 0));
  function->next = NULL;
  *(body->last ? &body->last->next : &body->first) = function;
  body->last = function;
  body->function_count++;
}

// ------------------------------------------------------------------------------------ numbering

static void number_several(qn__ir_func_t* function, const qn__ir_several_t* several) {
  several->var->id = function->var_count++;
  for (uint32_t i = 0; i < several->merged_count; i++) {
    several->left[i]->id = function->var_count++;
    several->right[i]->id = function->var_count++;
  }
  for (uint32_t i = 0; i < several->result_count; i++) {
    several->results[i]->id = function->var_count++;
  }
}

static bool number_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  qn__ir_func_t* function = walker->self;
  switch (stmt->kind) {
    case QN__STMT_LET:
      stmt->let.var->id = function->var_count++;
      break;
    case QN__STMT_ATOMIC:
      if (stmt->atomic.result) stmt->atomic.result->id = function->var_count++;
      break;
    case QN__STMT_LOOP:
      stmt->loop.var->id = function->var_count++;
      break;
    case QN__STMT_ALLOC:
      stmt->alloc.buffer->id = function->buffer_count++;
      break;
    case QN__STMT_REDUCE:
      number_several(function, stmt->several);
      break;
    default:
      break;
  }
  return true;
}

static bool number_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  qn__ir_func_t* function = walker->self;
  if (expr->kind == QN__EXPR_REDUCE) expr->reduce.reduce_var->id = function->var_count++;
  return true;
}

// Numbers symbols, then scalar parameters, then the body. The canonical bytes rely on this order
// (encode.c).
void qn__function_number(qn__ir_func_t* function) {
  function->var_count = 0;
  function->buffer_count = 0;
  for (size_t i = 0; i < function->symbol_count; i++) {
    function->symbols[i]->id = function->var_count++;
  }
  for (size_t i = 0; i < function->param_count; i++) {
    qn__ir_param_t* param = &function->params[i];
    if (param->buffer) {
      param->buffer->id = function->buffer_count++;
    } else {
      param->scalar->id = function->var_count++;
    }
  }
  qn__ir_walker_t walker = {number_stmt, number_expr, function};
  (void)qn__walk_block(&walker, &function->body);
}
