// SPDX-License-Identifier: Apache-2.0
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

bool qn__expr_each_child_lazily(qn__ir_expr_t* expr, qn__ir_slot_fn_t fn, void* self,
                                bool* inout_is_lazy) {
  if (!qn__expr_is_lazy(expr)) return qn__expr_each_child(expr, fn, self);
  if (!fn(self, &expr->args[0])) return false;
  bool was_lazy = *inout_is_lazy;
  *inout_is_lazy = true;
  bool is_done = each(&expr->args[1], 2, fn, self);
  *inout_is_lazy = was_lazy;
  return is_done;
}

static bool each_let(const qn__ir_block_t* lets, qn__ir_slot_fn_t fn, void* self) {
  for (qn__ir_stmt_t* let = lets->first; let; let = let->next) {
    if (!fn(self, &let->let.value)) return false;
  }
  return true;
}

static bool each_of_several(qn__ir_several_t* several, qn__ir_slot_fn_t fn, void* self) {
  return fn(self, &several->begin) && fn(self, &several->end) &&
         each(several->initial, several->merged_count, fn, self) &&
         each_let(&several->lets, fn, self) && each(several->values, several->count, fn, self) &&
         each_let(&several->merge_lets, fn, self) &&
         each(several->merged, several->merged_count, fn, self);
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
    case QN__STMT_LEAVE:
    case QN__STMT_BARRIER:
    case QN__STMT_FENCE:
      return true;
    case QN__STMT_ASSERT:
      return fn(self, &stmt->assert_.condition);
    case QN__STMT_TENSOR:
      for (uint32_t i = 0; i < stmt->tensor->ref_count; ++i) {
        const qn__ir_tensor_ref_t* ref = &stmt->tensor->refs[i];
        if (!each(ref->indices, ref->buffer->rank, fn, self)) return false;
      }
      return each(&stmt->tensor->operand, 1, fn, self) &&
             each(stmt->tensor->extents, qn__tensor_extents(stmt->tensor), fn, self);
    case QN__STMT_REDUCE:
      return each_of_several(stmt->several, fn, self);
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
    case QN__STMT_REDUCE:
      return block ? NULL : &stmt->several->body;
    default:
      return NULL;
  }
}

bool qn__block_each_expr(qn__ir_block_t* block, qn__ir_slot_fn_t fn, void* self) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!qn__stmt_each_expr(stmt, fn, self)) return false;
    QN__EACH_BLOCK(stmt, inner) {
      if (!qn__block_each_expr(inner, fn, self)) return false;
    }
  }
  return true;
}

// ---- references to buffers

typedef struct visitor {
  qn__ir_ref_fn_t fn;
  void* self;
} visitor_t;

static bool visit_loads(void* context, qn__ir_expr_t** slot) {
  visitor_t* visitor = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD) {
    qn__ir_ref_t ref = {QN__REF_LOAD, &expr->load.buffer, &expr->load.indices};
    if (!visitor->fn(visitor->self, &ref)) return false;
  }
  return qn__expr_each_child(expr, visit_loads, visitor);
}

bool qn__expr_each_ref(qn__ir_expr_t* expr, qn__ir_ref_fn_t fn, void* self) {
  visitor_t visitor = {fn, self};
  return visit_loads(&visitor, &expr);
}

bool qn__stmt_ref(qn__ir_stmt_t* stmt, qn__ir_ref_t* out_ref) {
  if (stmt->kind == QN__STMT_STORE) {
    *out_ref = (qn__ir_ref_t){QN__REF_STORE, &stmt->store.buffer, &stmt->store.indices};
    return true;
  }
  if (stmt->kind == QN__STMT_ATOMIC) {
    *out_ref = (qn__ir_ref_t){QN__REF_ATOMIC, &stmt->atomic.buffer, &stmt->atomic.indices};
    return true;
  }
  if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_VIEW) {
    qn__ir_buffer_t* view = stmt->alloc.buffer;
    *out_ref = (qn__ir_ref_t){QN__REF_BASE, &view->base, &view->base_indices};
    return true;
  }
  return false;
}

bool qn__stmt_each_ref(qn__ir_stmt_t* stmt, qn__ir_ref_fn_t fn, void* self) {
  visitor_t visitor = {fn, self};
  qn__ir_ref_t ref;
  if (!qn__stmt_each_expr(stmt, visit_loads, &visitor)) return false;
  for (uint32_t i = 0; stmt->kind == QN__STMT_TENSOR && i < stmt->tensor->ref_count; ++i) {
    ref = (qn__ir_ref_t){i == 0 ? QN__REF_STORE : QN__REF_LOAD, &stmt->tensor->refs[i].buffer,
                         &stmt->tensor->refs[i].indices};
    if (!fn(self, &ref)) return false;
  }
  return !qn__stmt_ref(stmt, &ref) || fn(self, &ref);
}

bool qn__block_each_ref(qn__ir_block_t* block, qn__ir_ref_fn_t fn, void* self) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!qn__stmt_each_ref(stmt, fn, self)) return false;
    QN__EACH_BLOCK(stmt, inner) {
      if (!qn__block_each_ref(inner, fn, self)) return false;
    }
  }
  return true;
}

// ---- questions

// Returns false, to stop the visit, if the test holds for a part.
static bool avoids(void* is_it, qn__ir_expr_t** slot) {
  return !(*(qn__ir_expr_test_t*)is_it)(*slot) && qn__expr_each_child(*slot, avoids, is_it);
}

bool qn__expr_any(qn__ir_expr_t* expr, qn__ir_expr_test_t is_it) {
  return !avoids(&is_it, &expr);
}

bool qn__stmt_any_expr(qn__ir_stmt_t* stmt, qn__ir_expr_test_t is_it) {
  return !qn__stmt_each_expr(stmt, avoids, &is_it);
}

bool qn__block_any_expr(qn__ir_block_t* block, qn__ir_expr_test_t is_it) {
  return !qn__block_each_expr(block, avoids, &is_it);
}

bool qn__block_any(qn__ir_block_t* block, bool (*is_it)(const qn__ir_stmt_t* stmt)) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (is_it(stmt)) return true;
    QN__EACH_BLOCK(stmt, inner) {
      if (qn__block_any(inner, is_it)) return true;
    }
  }
  return false;
}

bool qn__body_any(qn__ir_body_t* body, bool (*is_it)(const qn__ir_stmt_t* stmt)) {
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    if (qn__block_any(&function->body, is_it)) return true;
  }
  return false;
}

static bool avoids_var(void* var, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_VAR && (*slot)->var == var) return false;
  return qn__expr_each_child(*slot, avoids_var, var);
}

bool qn__expr_uses_var(qn__ir_expr_t* expr, const qn__ir_var_t* var) {
  return !avoids_var((void*)(uintptr_t)var, &expr);
}

// ---- declarations

qn__ir_var_t* qn__stmt_var(const qn__ir_stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      return stmt->let.var;
    case QN__STMT_LOOP:
      return stmt->loop.var;
    case QN__STMT_ATOMIC:
      return stmt->atomic.result;
    default:
      return NULL;
  }
}

static bool set_reductions(void* user, qn__ir_expr_t** slot) {
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) {
    expr->reduce.reduce_var->user = user;
    for (qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
      let->let.var->user = user;
    }
  }
  return qn__expr_each_child(expr, set_reductions, user);
}

void qn__expr_set_user(qn__ir_expr_t* expr, void* user) {
  (void)set_reductions(user, &expr);
}

static void set_several(const qn__ir_several_t* several, void* user) {
  several->var->user = user;
  for (uint32_t i = 0; i < several->merged_count; ++i) {
    several->left[i]->user = several->right[i]->user = user;
  }
  for (uint32_t i = 0; i < several->result_count; ++i) several->results[i]->user = user;
  const qn__ir_block_t* const blocks[] = {&several->lets, &several->merge_lets};
  for (size_t i = 0; i < QN_COUNT_OF(blocks); ++i) {
    for (qn__ir_stmt_t* let = blocks[i]->first; let; let = let->next) let->let.var->user = user;
  }
}

void qn__block_set_user(qn__ir_block_t* block, void* user) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, set_reductions, user);
    qn__ir_var_t* var = qn__stmt_var(stmt);
    if (var) var->user = user;
    if (stmt->kind == QN__STMT_ALLOC) stmt->alloc.buffer->user = user;
    if (stmt->kind == QN__STMT_REDUCE) set_several(stmt->several, user);
    QN__EACH_BLOCK(stmt, inner) qn__block_set_user(inner, user);
  }
}

// ---- lists

uint32_t qn__block_count(const qn__ir_block_t* block) {
  uint32_t count = 0;
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) ++count;
  return count;
}

void qn__block_splice(qn__ir_block_t* to, qn__ir_block_t* from) {
  if (!from->first) return;
  assert(!from->last->next && (!to->last || !to->last->next));
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
    if (qn__dtype_is_real(expr->dtype) || qn__dtype_is_real(arg->dtype)) return false;
    if (!qn__expr_const_int(arg, &value)) return false;
    *out_value = qn__scalar_cast(arg->dtype, (qn__ir_scalar_t){.i = value}, expr->dtype).i;
    return true;
  }
  if (expr->kind != QN__EXPR_OP) return false;
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  if (!info || info->rule >= QN__RULE_LANE) return false;
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

int64_t qn__const_trips(const qn__ir_expr_t* begin, const qn__ir_expr_t* end) {
  int64_t first, last, extent;
  if (!qn__expr_const_int(begin, &first) || !qn__expr_const_int(end, &last)) return -1;
  if (__builtin_sub_overflow(last, first, &extent)) return -1;
  return extent > 0 ? extent : 0;
}

static bool collect_facts(void* self, qn__ir_expr_t** slot) {
  qn__ir_expr_facts_t* facts = self;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD) facts->has_load = true;
  if (expr->kind == QN__EXPR_REDUCE) facts->has_reduce = true;
  if (qn__expr_is_exchange(expr)) facts->has_cross_lane = true;
  if (expr->kind == QN__EXPR_OP && qn__op_is_division(expr->op) &&
      (expr->args[1]->kind != QN__EXPR_INT || expr->args[1]->int_value == 0)) {
    facts->has_division = true;
  }
  return qn__expr_each_child(expr, collect_facts, self);
}

qn__ir_expr_facts_t qn__expr_facts(qn__ir_expr_t* expr) {
  qn__ir_expr_facts_t facts = {0};
  (void)collect_facts(&facts, &expr);
  return facts;
}

bool qn__store_is_along(const qn__ir_stmt_t* loop, const qn__ir_stmt_t* store) {
  const qn__ir_buffer_t* buffer = store->store.buffer;
  if (buffer->scope == QN__SCOPE_VIEW || buffer->strides || buffer->rank == 0) return false;
  for (uint32_t d = 0; d + 1 < buffer->rank; ++d) {
    qn__ir_expr_t* index = store->store.indices[d];
    if (qn__expr_facts(index).has_load || qn__expr_uses_var(index, loop->loop.var)) return false;
    for (const qn__ir_stmt_t* s = loop->loop.body.first; s; s = s->next) {
      if (s->kind == QN__STMT_LET && qn__expr_uses_var(index, s->let.var)) return false;
    }
  }
  const qn__ir_expr_t* last = store->store.indices[buffer->rank - 1];
  return last->kind == QN__EXPR_VAR && last->var == loop->loop.var;
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

bool qn__blocks_replace(qn__arena_t* arena, const qn__ir_block_t* const* blocks, size_t count,
                        qn__ir_var_t* var, qn__ir_expr_t* value, qn__ir_block_t* out_block) {
  // Links the blocks meanwhile, so that the copy of one uses what the copy of another declares.
  qn__ir_block_t all = {NULL, NULL};
  for (size_t i = 0; i < count; ++i) {
    qn__ir_block_t block = *blocks[i];
    qn__block_splice(&all, &block);
  }
  bool is_done = qn__block_replace(arena, &all, var, value, out_block);
  for (size_t i = 0; i < count; ++i) {
    if (blocks[i]->last) blocks[i]->last->next = NULL;
  }
  return is_done;
}

qn__ir_stmt_t* qn__stmt_copy(qn__arena_t* arena, const qn__ir_stmt_t* stmt) {
  qn__ir_stmt_t alone = *stmt;
  qn__ir_block_t block = qn__block_of(&alone), copy;
  return qn__block_replace(arena, &block, NULL, NULL, &copy) ? copy.first : NULL;
}

void* qn__alias_find(const qn__ir_alias_t* list, const void* from) {
  while (list && list->from != from) list = list->next;
  return list ? list->to : NULL;
}

void qn__alias_add(qn__arena_t* arena, qn__ir_alias_t** inout_list, const void* from, void* to) {
  assert(!qn__alias_find(*inout_list, from));
  qn__ir_alias_t* alias = QN__ARENA_NEW(arena, qn__ir_alias_t);
  if (!alias) return;
  *alias = (qn__ir_alias_t){from, to, *inout_list};
  *inout_list = alias;
}

void qn__function_clear_user(qn__ir_func_t* function) {
  for (size_t i = 0; i < function->param_count; ++i) {
    if (function->params[i].buffer) function->params[i].buffer->user = NULL;
    if (function->params[i].scalar) function->params[i].scalar->user = NULL;
  }
  for (size_t i = 0; i < function->symbol_count; ++i) function->symbols[i]->user = NULL;
  qn__block_set_user(&function->body, NULL);
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
