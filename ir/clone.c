// SPDX-License-Identifier: Apache-2.0
// ir/clone.c: deep copies of expressions, blocks and bodies, with substitution.
//
// Variables and buffers that the copied piece declares get new nodes; a map from old to new lasts
// for one copy. The original is only read, so several threads may copy one sealed module.
#include <assert.h>

#include "ir/call_place.h"
#include "ir/ptrmap.h"

typedef struct cloner {
  qn__ir_subst_t* subst;
  qn__arena_t* arena;
  qn__ptrmap_t map;        // variable -> variable, buffer -> buffer
  bool has_foreign_names;  // the copy outlives the original's arena: names are copied
} cloner_t;

static qn__ir_expr_t* clone_expr(cloner_t* cloner, const qn__ir_expr_t* expr);
static bool clone_block(cloner_t* cloner, const qn__ir_block_t* block, qn__ir_block_t* out_block);

static const char* clone_name(cloner_t* cloner, const char* name) {
  if (!cloner->has_foreign_names || !name) return name;
  return qn__arena_cstr(cloner->arena, qn__str(name));
}

static bool remember(cloner_t* cloner, const void* from, void* to) {
  assert(!qn__ptrmap_get(&cloner->map, from));  // a tree declares a thing once
  if (qn__ptrmap_put(&cloner->map, from, to)) return true;
  cloner->arena->is_exhausted = true;
  return false;
}

static qn__ir_var_t* declare_var(cloner_t* cloner, const qn__ir_var_t* var) {
  qn__ir_var_t* copy = QN__ARENA_NEW(cloner->arena, qn__ir_var_t);
  if (!copy) return NULL;
  *copy = *var;
  copy->user = NULL;
  copy->name = clone_name(cloner, var->name);
  if (var->name && !copy->name) return NULL;
  return remember(cloner, var, copy) ? copy : NULL;
}

static bool clone_exprs(cloner_t* cloner, qn__ir_expr_t* const* exprs, size_t count,
                        qn__ir_expr_t*** out_exprs) {
  *out_exprs = NULL;
  if (!exprs) return true;
  qn__ir_expr_t** copies = qn__arena_alloc_array(cloner->arena, count, sizeof(qn__ir_expr_t*));
  if (!copies) return false;
  for (size_t i = 0; i < count; i++) {
    if (!(copies[i] = clone_expr(cloner, exprs[i]))) return false;
  }
  *out_exprs = copies;
  return true;
}

static qn__ir_buffer_t* map_buffer(cloner_t* cloner, qn__ir_buffer_t* buffer) {
  qn__ir_buffer_t* mapped = qn__ptrmap_get(&cloner->map, buffer);
  if (mapped) return mapped;
  if (cloner->subst->on_buffer) return cloner->subst->on_buffer(cloner->subst, buffer);
  return buffer;
}

static qn__ir_buffer_t* declare_buffer(cloner_t* cloner, const qn__ir_buffer_t* buffer) {
  qn__ir_buffer_t* copy = QN__ARENA_NEW(cloner->arena, qn__ir_buffer_t);
  if (!copy) return NULL;
  *copy = *buffer;
  copy->user = NULL;
  copy->name = clone_name(cloner, buffer->name);
  if (buffer->name && !copy->name) return NULL;
  if (buffer->base && !(copy->base = map_buffer(cloner, buffer->base))) return NULL;
  if (!clone_exprs(cloner, buffer->shape, buffer->rank, &copy->shape) ||
      !clone_exprs(cloner, buffer->strides, buffer->rank, &copy->strides) ||
      !clone_exprs(cloner, buffer->elements, buffer->element_count, &copy->elements) ||
      !clone_exprs(cloner, buffer->base_indices, buffer->base ? buffer->base->rank : 0,
                   &copy->base_indices)) {
    return NULL;
  }
  return remember(cloner, buffer, copy) ? copy : NULL;
}

static qn__ir_expr_t* clone_var(cloner_t* cloner, const qn__ir_expr_t* expr, qn__ir_expr_t* copy) {
  qn__ir_var_t* mapped = qn__ptrmap_get(&cloner->map, expr->var);
  if (mapped) {
    copy->var = mapped;
    return copy;
  }
  qn__ir_subst_t* subst = cloner->subst;
  qn__ir_expr_t* replacement = subst->on_var ? subst->on_var(subst, expr->var) : NULL;
  if (!replacement) return copy;
  qn__ir_subst_t plain = {.arena = cloner->arena};
  return qn__expr_clone(&plain, replacement);
}

static qn__ir_expr_t* clone_reduce(cloner_t* cloner, const qn__ir_expr_t* expr,
                                   qn__ir_expr_t* copy) {
  bool is_done = (copy->reduce.begin = clone_expr(cloner, expr->reduce.begin)) &&
                 (copy->reduce.end = clone_expr(cloner, expr->reduce.end)) &&
                 (copy->reduce.reduce_var = declare_var(cloner, expr->reduce.reduce_var)) &&
                 clone_block(cloner, &expr->reduce.lets, &copy->reduce.lets) &&
                 (copy->reduce.value = clone_expr(cloner, expr->reduce.value));
  return is_done ? copy : NULL;
}

static qn__ir_expr_t* clone_expr(cloner_t* cloner, const qn__ir_expr_t* expr) {
  qn__ir_expr_t* copy = QN__ARENA_NEW(cloner->arena, qn__ir_expr_t);
  if (!copy) return NULL;
  *copy = *expr;
  if (expr->kind == QN__EXPR_VAR) return clone_var(cloner, expr, copy);
  if (expr->kind == QN__EXPR_REDUCE) return clone_reduce(cloner, expr, copy);
  qn__ir_operands_t operands = qn__expr_operands(expr);
  if (expr->kind == QN__EXPR_LOAD) {
    bool is_done = (copy->load.buffer = map_buffer(cloner, expr->load.buffer)) &&
                   clone_exprs(cloner, operands.items, operands.count, &copy->load.indices);
    return is_done ? copy : NULL;
  }
  for (size_t i = 0; i < operands.count; i++) {
    if (!(copy->args[i] = clone_expr(cloner, operands.items[i]))) return NULL;
  }
  return copy;
}

static qn__ir_tensor_t* clone_tensor(cloner_t* cloner, const qn__ir_tensor_t* tensor) {
  qn__ir_tensor_t* copy = QN__ARENA_NEW(cloner->arena, qn__ir_tensor_t);
  if (!copy) return NULL;
  *copy = *tensor;
  for (uint32_t i = 0; i < tensor->ref_count; ++i) {
    const qn__ir_tensor_ref_t* ref = &tensor->refs[i];
    if (!(copy->refs[i].buffer = map_buffer(cloner, ref->buffer)) ||
        !clone_exprs(cloner, ref->indices, ref->buffer->rank, &copy->refs[i].indices)) {
      return NULL;
    }
  }
  if (tensor->operand && !(copy->operand = clone_expr(cloner, tensor->operand))) return NULL;
  for (uint32_t i = 0; i < qn__tensor_extents(tensor); ++i) {
    if (!(copy->extents[i] = clone_expr(cloner, tensor->extents[i]))) return NULL;
  }
  return copy;
}

static bool clone_list(cloner_t* cloner, qn__ir_expr_t** exprs, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (!(exprs[i] = clone_expr(cloner, exprs[i]))) return false;
  }
  return true;
}

static bool declare_list(cloner_t* cloner, qn__ir_var_t** vars, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (!(vars[i] = declare_var(cloner, vars[i]))) return false;
  }
  return true;
}

static qn__ir_several_t* clone_several(cloner_t* cloner, const qn__ir_several_t* several) {
  qn__ir_several_t* copy = QN__ARENA_NEW(cloner->arena, qn__ir_several_t);
  if (!copy) return NULL;
  *copy = *several;
  bool is_done = (copy->begin = clone_expr(cloner, several->begin)) &&
                 (copy->end = clone_expr(cloner, several->end)) &&
                 clone_list(cloner, copy->initial, copy->merged_count) &&
                 (copy->var = declare_var(cloner, several->var)) &&
                 clone_block(cloner, &several->lets, &copy->lets) &&
                 clone_list(cloner, copy->values, copy->count) &&
                 declare_list(cloner, copy->left, copy->merged_count) &&
                 declare_list(cloner, copy->right, copy->merged_count) &&
                 clone_block(cloner, &several->merge_lets, &copy->merge_lets) &&
                 clone_list(cloner, copy->merged, copy->merged_count) &&
                 declare_list(cloner, copy->results, copy->result_count) &&
                 clone_block(cloner, &several->body, &copy->body);
  return is_done ? copy : NULL;
}

static bool clone_stmt(cloner_t* cloner, const qn__ir_stmt_t* stmt, qn__ir_stmt_t* copy) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      return (copy->let.value = clone_expr(cloner, stmt->let.value)) &&
             (copy->let.var = declare_var(cloner, stmt->let.var));
    case QN__STMT_STORE:
      return (copy->store.buffer = map_buffer(cloner, stmt->store.buffer)) &&
             clone_exprs(cloner, stmt->store.indices, stmt->store.buffer->rank,
                         &copy->store.indices) &&
             (copy->store.value = clone_expr(cloner, stmt->store.value));
    case QN__STMT_ATOMIC:
      return (copy->atomic.buffer = map_buffer(cloner, stmt->atomic.buffer)) &&
             clone_exprs(cloner, stmt->atomic.indices, stmt->atomic.buffer->rank,
                         &copy->atomic.indices) &&
             (!stmt->atomic.operand ||
              (copy->atomic.operand = clone_expr(cloner, stmt->atomic.operand))) &&
             (!stmt->atomic.operand2 ||
              (copy->atomic.operand2 = clone_expr(cloner, stmt->atomic.operand2))) &&
             (!stmt->atomic.result ||
              (copy->atomic.result = declare_var(cloner, stmt->atomic.result)));
    case QN__STMT_IF:
      return (copy->if_.condition = clone_expr(cloner, stmt->if_.condition)) &&
             clone_block(cloner, &stmt->if_.then_block, &copy->if_.then_block) &&
             clone_block(cloner, &stmt->if_.else_block, &copy->if_.else_block);
    case QN__STMT_LOOP:
      return (copy->loop.begin = clone_expr(cloner, stmt->loop.begin)) &&
             (copy->loop.end = clone_expr(cloner, stmt->loop.end)) &&
             (copy->loop.var = declare_var(cloner, stmt->loop.var)) &&
             clone_block(cloner, &stmt->loop.body, &copy->loop.body);
    case QN__STMT_WHILE:
      return (copy->while_.condition = clone_expr(cloner, stmt->while_.condition)) &&
             clone_block(cloner, &stmt->while_.body, &copy->while_.body);
    case QN__STMT_ALLOC:
      return (copy->alloc.buffer = declare_buffer(cloner, stmt->alloc.buffer));
    case QN__STMT_LEAVE:
    case QN__STMT_BARRIER:
    case QN__STMT_FENCE:
      return true;
    case QN__STMT_ASSERT:
      copy->assert_.message = clone_name(cloner, stmt->assert_.message);
      return (copy->assert_.message || !stmt->assert_.message) &&
             (copy->assert_.condition = clone_expr(cloner, stmt->assert_.condition));
    case QN__STMT_TENSOR:
      return (copy->tensor = clone_tensor(cloner, stmt->tensor));
    case QN__STMT_REDUCE:
      return (copy->several = clone_several(cloner, stmt->several));
  }
  return true;
}

static bool clone_block(cloner_t* cloner, const qn__ir_block_t* block, qn__ir_block_t* out_block) {
  *out_block = (qn__ir_block_t){NULL, NULL};
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    qn__ir_stmt_t* copy = QN__ARENA_NEW(cloner->arena, qn__ir_stmt_t);
    if (!copy) return false;
    *copy = *stmt;
    if (!clone_stmt(cloner, stmt, copy)) return false;
    qn__block_append(out_block, copy);
  }
  return true;
}

static cloner_t make_cloner(qn__ir_subst_t* subst) {
  cloner_t cloner = {.subst = subst, .arena = subst->arena};
  qn__ptrmap_init(&cloner.map, subst->arena->allocator);
  return cloner;
}

qn__ir_expr_t* qn__expr_clone(qn__ir_subst_t* subst, const qn__ir_expr_t* expr) {
  cloner_t cloner = make_cloner(subst);
  qn__ir_expr_t* copy = clone_expr(&cloner, expr);
  qn__ptrmap_deinit(&cloner.map);
  return copy;
}

bool qn__block_clone(qn__ir_subst_t* subst, const qn__ir_block_t* block,
                     qn__ir_block_t* out_block) {
  cloner_t cloner = make_cloner(subst);
  bool is_done = clone_block(&cloner, block, out_block);
  qn__ptrmap_deinit(&cloner.map);
  return is_done;
}

// ------------------------------------------------------------------------------------ bodies

// Symbols and scalars come first: any shape may mention them.
static bool clone_function(cloner_t* cloner, const qn__ir_func_t* from, qn__ir_func_t* to) {
  *to = *from;
  to->next = NULL;
  to->name = clone_name(cloner, from->name);
  to->signature = clone_name(cloner, from->signature);
  to->params = qn__arena_alloc_array(cloner->arena, from->param_count, sizeof *to->params);
  to->symbols = qn__arena_alloc_array(cloner->arena, from->symbol_count, sizeof *to->symbols);
  if (!to->name || !to->params || !to->symbols) return false;
  if (from->signature && !to->signature) return false;
  for (size_t i = 0; i < from->symbol_count; i++) {
    if (!(to->symbols[i] = declare_var(cloner, from->symbols[i]))) return false;
  }
  for (size_t i = 0; i < from->param_count; i++) {
    const qn__ir_var_t* scalar = from->params[i].scalar;
    if (scalar && !(to->params[i].scalar = declare_var(cloner, scalar))) return false;
  }
  for (size_t i = 0; i < from->param_count; i++) {
    const qn__ir_buffer_t* buffer = from->params[i].buffer;
    if (buffer && !(to->params[i].buffer = declare_buffer(cloner, buffer))) return false;
  }
  return clone_block(cloner, &from->body, &to->body);
}

qn_status_t qn__body_clone(const qn__ir_body_t* from, qn_allocator_t allocator,
                           qn__ir_body_t* out_body) {
  qn__body_init(out_body, allocator);
  qn__ir_subst_t subst = {.arena = &out_body->arena};
  cloner_t cloner = make_cloner(&subst);
  cloner.has_foreign_names = true;
  bool is_done = true;
  for (const qn__ir_func_t* function = from->first; function && is_done;
       function = function->next) {
    qn__ir_func_t* copy = QN__ARENA_NEW(&out_body->arena, qn__ir_func_t);
    is_done = copy && clone_function(&cloner, function, copy);
    if (is_done) qn__body_append(out_body, copy);
  }
  qn__ptrmap_deinit(&cloner.map);
  is_done = is_done && qn__places_copy(&from->places, &out_body->arena, &out_body->places);
  if (is_done) return QN_OK;
  qn__body_deinit(out_body);
  return qn__out_of_memory("a copy of a module");
}
