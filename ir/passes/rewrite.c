// ir/passes/rewrite.c: visiting, joining and properties for all passes (rewrite.h).
//
// Requirements on the functions that visit:
// 1. They visit in the order of evaluation, so that a pass that moves code keeps that order.
// 2. They pass slots, not expressions, so that `fn` can replace an expression without its parent.
// 3. An optional operand that is NULL is skipped: `fn` never receives an empty slot.
// 4. They do not enter a reduction's lets as statements, but visit the values of the lets.
// 5. They stop at once when `fn` returns false, and return false then.
//
// Not here: any rewrite.
#include "ir/passes/rewrite.h"

static bool each(qn__ir_expr_t** slots, size_t count, qn__ir_slot_fn_t fn, void* self) {
  if (!slots) return true;
  for (size_t i = 0; i < count; ++i) {
    if (slots[i] && !fn(self, &slots[i])) return false;
  }
  return true;
}

bool qn__expr_each_child(qn__ir_expr_t* expr, qn__ir_slot_fn_t fn, void* self) {
  switch (expr->kind) {
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
    case QN__EXPR_VAR:
      return true;
    case QN__EXPR_LOAD:
      return each(expr->load.indices, expr->load.buffer->rank, fn, self);
    case QN__EXPR_OP:
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
    case QN__EXPR_COND:
      return each(expr->args, 3, fn, self);
    case QN__EXPR_REDUCE:
      if (!fn(self, &expr->reduce.begin) || !fn(self, &expr->reduce.end)) return false;
      for (qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
        if (!fn(self, &let->let.value)) return false;
      }
      return fn(self, &expr->reduce.value);
  }
  return true;
}

bool qn__stmt_each_expr(qn__ir_stmt_t* stmt, qn__ir_slot_fn_t fn, void* self) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      return fn(self, &stmt->let.value);
    case QN__STMT_STORE:
      return each(stmt->store.indices, stmt->store.buffer->rank, fn, self) &&
             fn(self, &stmt->store.value);
    case QN__STMT_ATOMIC:
      return each(stmt->atomic.indices, stmt->atomic.buffer->rank, fn, self) &&
             each(&stmt->atomic.operand, 1, fn, self) && each(&stmt->atomic.operand2, 1, fn, self);
    case QN__STMT_IF:
      return fn(self, &stmt->if_.condition);
    case QN__STMT_LOOP:
      return fn(self, &stmt->loop.begin) && fn(self, &stmt->loop.end);
    case QN__STMT_WHILE:
      return fn(self, &stmt->while_.condition);
    case QN__STMT_ALLOC: {
      qn__ir_buffer_t* buffer = stmt->alloc.buffer;
      return each(buffer->shape, buffer->rank, fn, self) &&
             each(buffer->strides, buffer->rank, fn, self) &&
             (buffer->scope != QN__SCOPE_VIEW ||
              each(buffer->base_indices, buffer->base->rank, fn, self));
    }
    case QN__STMT_BARRIER:
      return true;
    case QN__STMT_ASSERT:
      return fn(self, &stmt->assert_.condition);
  }
  return true;
}

qn__ir_block_t* qn__stmt_next_block(qn__ir_stmt_t* stmt, const qn__ir_block_t* block) {
  switch (stmt->kind) {
    case QN__STMT_IF:
      if (!block) return &stmt->if_.then_block;
      return block == &stmt->if_.then_block ? &stmt->if_.else_block : NULL;
    case QN__STMT_LOOP:
      return block ? NULL : &stmt->loop.body;
    case QN__STMT_WHILE:
      return block ? NULL : &stmt->while_.body;
    default:
      return NULL;
  }
}

void qn__block_splice(qn__ir_block_t* to, qn__ir_block_t* from) {
  if (!from->first) return;
  if (to->last) {
    to->last->next = from->first;
  } else {
    to->first = from->first;
  }
  to->last = from->last;
  *from = (qn__ir_block_t){NULL, NULL};
}

bool qn__expr_const_int(const qn__ir_expr_t* expr, int64_t* out_value) {
  if (expr->kind == QN__EXPR_INT) {
    *out_value = expr->int_value;
    return true;
  }
  if (expr->kind == QN__EXPR_CAST) {
    int64_t value;
    const qn__ir_expr_t* arg = expr->args[0];
    if (qn__dtype_is_float(expr->dtype) || qn__dtype_is_float(arg->dtype)) return false;
    if (!qn__expr_const_int(arg, &value)) return false;
    *out_value = qn__scalar_cast(arg->dtype, (qn__ir_scalar_t){.i = value}, expr->dtype).i;
    return true;
  }
  if (expr->kind != QN__EXPR_OP) return false;
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  if (!info || info->rule == QN__RULE_LANE || info->rule == QN__RULE_GROUP) return false;
  qn__ir_scalar_t args[3] = {{0}, {0}, {0}};
  for (uint32_t i = 0; i < info->arity; ++i) {
    if (qn__dtype_is_float(expr->args[i]->dtype)) return false;
    if (!qn__expr_const_int(expr->args[i], &args[i].i)) return false;
  }
  qn__ir_scalar_t result;
  if (!qn__scalar_op(expr->op, qn__expr_operand_dtype(expr), args, &result)) return false;
  *out_value = result.i;
  return true;
}

static bool is_integer_division(qn_op_t op) {
  return op == QN_OP_FLOORDIV || op == QN_OP_FLOORMOD || op == QN_OP_TRUNCDIV ||
         op == QN_OP_TRUNCMOD || op == QN_OP_CEILDIV;
}

static bool collect_facts(void* self, qn__ir_expr_t** slot) {
  qn__ir_expr_facts_t* facts = self;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD) facts->has_load = true;
  if (expr->kind == QN__EXPR_REDUCE) facts->has_reduce = true;
  if (expr->kind == QN__EXPR_OP) {
    qn__ir_op_rule_t rule = qn__op_info(expr->op)->rule;
    if (rule == QN__RULE_LANE || rule == QN__RULE_GROUP) facts->has_cross_lane = true;
    if (is_integer_division(expr->op) &&
        (expr->args[1]->kind != QN__EXPR_INT || expr->args[1]->int_value == 0)) {
      facts->has_division = true;
    }
  }
  return qn__expr_each_child(expr, collect_facts, self);
}

qn__ir_expr_facts_t qn__expr_facts(qn__ir_expr_t* expr) {
  qn__ir_expr_facts_t facts = {0};
  (void)collect_facts(&facts, &expr);
  return facts;
}

static qn__ir_expr_t* times(qn__arena_t* arena, qn__ir_expr_t* a, qn__ir_expr_t* b) {
  if (!a || !b) return NULL;
  if (qn__expr_is_int(a, 1)) return b;
  return qn__expr_is_int(b, 1) ? a : qn__expr_op(arena, QN_OP_MUL, a, b, NULL);
}

qn__ir_expr_t** qn__buf_strides(qn__arena_t* arena, const qn__ir_buffer_t* buffer) {
  qn__ir_expr_t** strides = qn__arena_alloc_array(arena, buffer->rank + 1U, sizeof *strides);
  if (!strides) return NULL;
  qn__ir_expr_t* stride = qn__expr_int(arena, QN_DTYPE_I64, 1);
  for (uint32_t i = buffer->rank; i-- > 0;) {
    const qn__ir_expr_t* own = buffer->strides ? buffer->strides[i] : stride;
    if (!own || !(strides[i] = qn__expr_replace(arena, own, NULL, NULL))) return NULL;
    if (i > 0 && !buffer->strides) {
      stride = times(arena, qn__expr_replace(arena, buffer->shape[i], NULL, NULL), stride);
    }
  }
  return strides;
}

typedef struct replacement {
  qn__ir_var_t* var;
  qn__ir_expr_t* value;
} replacement_t;

static qn__ir_expr_t* replace_var(qn__ir_subst_t* subst, qn__ir_var_t* var) {
  replacement_t* replacement = subst->self;
  return replacement->var && replacement->var == var ? replacement->value : NULL;
}

qn__ir_expr_t* qn__expr_replace(qn__arena_t* arena, const qn__ir_expr_t* expr, qn__ir_var_t* var,
                                qn__ir_expr_t* value) {
  replacement_t replacement = {var, value};
  qn__ir_subst_t subst = {.on_var = replace_var, .arena = arena, .self = &replacement};
  return qn__expr_clone(&subst, expr);
}

bool qn__block_replace(qn__arena_t* arena, const qn__ir_block_t* block, qn__ir_var_t* var,
                       qn__ir_expr_t* value, qn__ir_block_t* out_block) {
  replacement_t replacement = {var, value};
  qn__ir_subst_t subst = {.on_var = replace_var, .arena = arena, .self = &replacement};
  return qn__block_clone(&subst, block, out_block);
}

static bool clear_reductions(void* self, qn__ir_expr_t** slot) {
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) {
    expr->reduce.reduce_var->user = NULL;
    for (qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
      let->let.var->user = NULL;
    }
  }
  return qn__expr_each_child(expr, clear_reductions, self);
}

static void clear_block(qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, clear_reductions, NULL);
    if (stmt->kind == QN__STMT_LET) stmt->let.var->user = NULL;
    if (stmt->kind == QN__STMT_LOOP) stmt->loop.var->user = NULL;
    if (stmt->kind == QN__STMT_ALLOC) stmt->alloc.buffer->user = NULL;
    if (stmt->kind == QN__STMT_ATOMIC && stmt->atomic.result) stmt->atomic.result->user = NULL;
    QN__EACH_BLOCK(stmt, inner) clear_block(inner);
  }
}

void qn__function_clear_user(qn__ir_func_t* function) {
  for (size_t i = 0; i < function->param_count; ++i) {
    if (function->params[i].buffer) function->params[i].buffer->user = NULL;
    if (function->params[i].scalar) function->params[i].scalar->user = NULL;
  }
  for (size_t i = 0; i < function->symbol_count; ++i) function->symbols[i]->user = NULL;
  clear_block(&function->body);
}

static bool count_expr(void* self, qn__ir_expr_t** slot) {
  ++*(size_t*)self;
  return qn__expr_each_child(*slot, count_expr, self);
}

size_t qn__block_weight(qn__ir_block_t* block) {
  size_t weight = 0;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    ++weight;
    (void)qn__stmt_each_expr(stmt, count_expr, &weight);
    QN__EACH_BLOCK(stmt, inner) weight += qn__block_weight(inner);
  }
  return weight;
}

qn_status_t qn__pass_status(const qn__ir_body_t* body, const char* pass_name) {
  if (body->arena.is_exhausted) return qn__out_of_memory(pass_name);
  return QN_OK;
}
