// ir/passes/fission_rewrite.c: builds the loops of the units of a split thread loop, and the
// arrays, lets and views for values that cross from one unit to another.
//
// Not here: where to split, and which values cross (fission.c, which explains the whole).
#include "ir/passes/fission_inner.h"

static qn__ir_expr_t* int_expr(qn__fission_t* self, int64_t value) {
  return qn__fission_check(self, qn__expr_int(self->arena, QN_DTYPE_I64, value));
}

static qn__ir_expr_t* copy(qn__fission_t* self, const qn__ir_expr_t* expr) {
  return qn__fission_check(self, qn__expr_replace(self->arena, expr, NULL, NULL));
}
typedef struct rewrite {
  qn__fission_t* self;
  qn__fission_unit_t* unit;
} rewrite_t;

static bool rewrite_slot(void* context, qn__ir_expr_t** slot);

static int64_t begin_of(const qn__ir_stmt_t* loop) {
  int64_t begin = 0;
  (void)qn__expr_const_int(loop->loop.begin, &begin);
  return begin;
}

// Returns the index of the current thread in dimension `level` of an array over the threads. A
// control unit runs as the first thread.
static qn__ir_expr_t* thread_index(rewrite_t* rewrite, uint32_t level) {
  qn__fission_t* self = rewrite->self;
  const qn__fission_unit_t* unit = rewrite->unit;
  if (unit->is_control) return int_expr(self, 0);
  qn__ir_expr_t* index = qn__fission_check(self, qn__expr_var(self->arena, unit->vars[level]));
  int64_t begin = begin_of(unit->levels[level]);
  if (begin == 0 || !index) return index;
  qn__ir_expr_t* offset = int_expr(self, begin);
  if (!offset) return NULL;
  return qn__fission_check(self, qn__expr_op(self->arena, QN_OP_SUB, index, offset, NULL));
}

// Returns the `rank` indices followed by `depth` indices of the thread.
static qn__ir_expr_t** with_threads(rewrite_t* rewrite, uint32_t depth, qn__ir_expr_t** indices,
                                    uint32_t rank) {
  qn__ir_expr_t** all = qn__fission_check(
      rewrite->self, qn__arena_alloc_array(rewrite->self->arena, depth + rank + 1U, sizeof *all));
  if (!all) return NULL;
  for (uint32_t i = 0; i < rank; ++i) all[i] = indices[i];
  for (uint32_t i = 0; i < depth; ++i) all[rank + i] = thread_index(rewrite, i);
  return all;
}

static void* find_alias(const qn__fission_unit_t* unit, const void* from) {
  for (const qn__fission_alias_t* alias = unit->aliases; alias; alias = alias->next) {
    if (alias->from == from) return alias->to;
  }
  return NULL;
}

static void add_alias(rewrite_t* rewrite, const void* from, void* to) {
  qn__fission_alias_t* alias =
      qn__fission_check(rewrite->self, QN__ARENA_NEW(rewrite->self->arena, qn__fission_alias_t));
  if (!alias) return;
  *alias = (qn__fission_alias_t){from, to, rewrite->unit->aliases};
  rewrite->unit->aliases = alias;
}

static qn__ir_expr_t* load_kept(rewrite_t* rewrite, const qn__fission_entity_t* entity) {
  qn__ir_buffer_t* array = entity->array;
  qn__ir_expr_t* load = qn__fission_check(
      rewrite->self,
      qn__expr_new(rewrite->self->arena, QN__EXPR_LOAD, array->dtype, entity->stmt->loc));
  if (!load) return NULL;
  load->load.buffer = array;
  load->load.indices = with_threads(rewrite, array->rank, NULL, 0);
  return load->load.indices ? load : NULL;
}

// Returns the value of another unit's variable as an expression of this unit.
static qn__ir_expr_t* value_here(rewrite_t* rewrite, const qn__fission_entity_t* entity) {
  if (entity->is_kept) return load_kept(rewrite, entity);
  // The original is still unchanged: qn__fission_rewrite visits a unit before the earlier units
  // that declare its values.
  qn__ir_expr_t* value = copy(rewrite->self, entity->stmt->let.value);
  if (value) (void)rewrite_slot(rewrite, &value);
  return value;
}

static void rewrite_var(rewrite_t* rewrite, qn__ir_expr_t** slot) {
  qn__fission_t* self = rewrite->self;
  qn__fission_unit_t* unit = rewrite->unit;
  qn__ir_var_t* var = (*slot)->var;
  for (uint32_t i = 0; i < unit->depth; ++i) {
    if (unit->levels[i]->loop.var != var) continue;
    if (unit->is_control) {
      *slot = int_expr(self, begin_of(unit->levels[i]));
    } else {
      (*slot)->var = unit->vars[i];
    }
    return;
  }
  const qn__fission_entity_t* entity = var->user;
  if (!entity || entity->unit == unit) return;
  qn__ir_var_t* here = find_alias(unit, var);
  if (!here) {
    qn__ir_expr_t* value = value_here(rewrite, entity);
    if (!value) return;
    if (unit->is_control) {  // a condition is evaluated repeatedly, so it gets no let
      *slot = value;
      return;
    }
    here = qn__fission_check(self, qn__var_new(self->arena, QN__VAR_LET, var->dtype, var->name));
    qn__ir_stmt_t* let = qn__fission_check(self, qn__stmt_new(self->arena, QN__STMT_LET, var->loc));
    if (!here || !let) return;
    let->let.var = here;
    let->let.value = value;
    qn__block_append(&unit->prologue, let);
    add_alias(rewrite, var, here);
  }
  (*slot)->var = here;
}

static void rewrite_access(rewrite_t* rewrite, qn__ir_buffer_t** inout_buffer,
                           qn__ir_expr_t*** inout_indices);

// Multiplies the strides of a view by the number of threads that its base buffer now holds.
static void widen_strides(rewrite_t* rewrite, qn__ir_buffer_t* view) {
  qn__fission_t* self = rewrite->self;
  const qn__fission_entity_t* root = qn__buf_root(view)->user;
  if (!root || root->thread_count <= 1) return;
  view->strides = qn__fission_check(self, qn__buf_strides(self->arena, view));
  for (uint32_t i = 0; view->strides && i < view->rank; ++i) {
    qn__ir_expr_t* factor = int_expr(self, root->thread_count);
    if (!factor) return;
    view->strides[i] = qn__fission_check(
        self, qn__expr_op(self->arena, QN_OP_MUL, view->strides[i], factor, NULL));
  }
}

// Declares another unit's view again in this unit.
static qn__ir_buffer_t* view_here(rewrite_t* rewrite, const qn__ir_buffer_t* view) {
  qn__fission_t* self = rewrite->self;
  qn__ir_buffer_t* here = qn__fission_check(self, QN__ARENA_NEW(self->arena, qn__ir_buffer_t));
  qn__ir_stmt_t* alloc =
      qn__fission_check(self, qn__stmt_new(self->arena, QN__STMT_ALLOC, view->loc));
  if (!here || !alloc) return NULL;
  *here = *view;
  here->user = NULL;
  here->shape =
      qn__fission_check(self, qn__arena_alloc_array(self->arena, view->rank + 1U, sizeof(void*)));
  here->base_indices = qn__fission_check(
      self, qn__arena_alloc_array(self->arena, view->base->rank + 1U, sizeof(void*)));
  if (view->strides) {
    here->strides =
        qn__fission_check(self, qn__arena_alloc_array(self->arena, view->rank + 1U, sizeof(void*)));
  }
  if (self->has_no_memory) return NULL;
  for (uint32_t i = 0; i < view->rank; ++i) {
    here->shape[i] = copy(self, view->shape[i]);
    if (here->strides) here->strides[i] = copy(self, view->strides[i]);
  }
  for (uint32_t i = 0; i < view->base->rank; ++i) {
    here->base_indices[i] = copy(self, view->base_indices[i]);
  }
  if (self->has_no_memory) return NULL;
  alloc->alloc.buffer = here;
  (void)qn__stmt_each_expr(alloc, rewrite_slot, rewrite);
  rewrite_access(rewrite, &here->base, &here->base_indices);
  widen_strides(rewrite, here);
  if (rewrite->unit->is_control) {
    qn__block_append(&rewrite->unit->before, alloc);
  } else {
    qn__block_append(&rewrite->unit->prologue, alloc);
  }
  return here;
}

// Redirects an access to the array or view of this unit. `*inout_indices` must be rewritten before.
static void rewrite_access(rewrite_t* rewrite, qn__ir_buffer_t** inout_buffer,
                           qn__ir_expr_t*** inout_indices) {
  qn__ir_buffer_t* buffer = *inout_buffer;
  const qn__fission_entity_t* entity = buffer->user;
  if (!entity) return;
  if (buffer->scope == QN__SCOPE_VIEW) {
    if (entity->unit == rewrite->unit) return;
    qn__ir_buffer_t* here = find_alias(rewrite->unit, buffer);
    if (!here) {
      here = view_here(rewrite, buffer);
      if (!here) return;
      add_alias(rewrite, buffer, here);
    }
    *inout_buffer = here;
  } else if (entity->array) {
    *inout_indices = with_threads(rewrite, entity->unit->depth, *inout_indices, buffer->rank);
    *inout_buffer = entity->array;
  }
}

static bool rewrite_slot(void* context, qn__ir_expr_t** slot) {
  rewrite_t* rewrite = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR) {
    rewrite_var(rewrite, slot);
    return !qn__fission_failed(rewrite->self);
  }
  if (!qn__expr_each_child(expr, rewrite_slot, rewrite)) return false;
  if (expr->kind == QN__EXPR_LOAD) {
    rewrite_access(rewrite, &expr->load.buffer, &expr->load.indices);
  }
  return !qn__fission_failed(rewrite->self);
}

static void rewrite_block(rewrite_t* rewrite, qn__ir_block_t* block, bool is_top) {
  qn__fission_t* self = rewrite->self;
  qn__ir_block_t result = {NULL, NULL};
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt && !qn__fission_failed(self); stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    if (!qn__stmt_each_expr(stmt, rewrite_slot, rewrite)) return;
    if (stmt->kind == QN__STMT_STORE) {
      rewrite_access(rewrite, &stmt->store.buffer, &stmt->store.indices);
    } else if (stmt->kind == QN__STMT_ATOMIC) {
      rewrite_access(rewrite, &stmt->atomic.buffer, &stmt->atomic.indices);
    } else if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_VIEW) {
      rewrite_access(rewrite, &stmt->alloc.buffer->base, &stmt->alloc.buffer->base_indices);
      widen_strides(rewrite, stmt->alloc.buffer);
    }
    QN__EACH_BLOCK(stmt, inner) rewrite_block(rewrite, inner, false);
    if (qn__fission_failed(self)) return;
    bool is_moved = is_top && stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->user &&
                    ((const qn__fission_entity_t*)stmt->alloc.buffer->user)->is_kept;
    if (!is_moved) qn__block_append(&result, stmt);
    qn__ir_var_t* var = stmt->kind == QN__STMT_LET      ? stmt->let.var
                        : stmt->kind == QN__STMT_ATOMIC ? stmt->atomic.result
                                                        : NULL;
    const qn__fission_entity_t* entity = var ? var->user : NULL;
    if (is_top && entity && entity->is_kept) {
      qn__ir_stmt_t* store =
          qn__fission_check(self, qn__stmt_new(self->arena, QN__STMT_STORE, stmt->loc));
      if (!store) return;
      store->store.buffer = entity->array;
      store->store.indices = with_threads(rewrite, entity->array->rank, NULL, 0);
      store->store.value = qn__fission_check(self, qn__expr_var(self->arena, var));
      qn__block_append(&result, store);
    }
  }
  *block = result;
}

static bool is_plain(void* self, qn__ir_expr_t** slot) {
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_REDUCE) return false;
  if (expr->kind == QN__EXPR_VAR) {
    const qn__fission_unit_t* unit = self;
    if (expr->var->user) return false;
    for (uint32_t i = 0; i < unit->depth; ++i) {
      if (unit->levels[i]->loop.var == expr->var) return false;
    }
  }
  return qn__expr_each_child(expr, is_plain, self);
}

// Declares the array that holds an entity's values, before the unit that declares the entity.
static void keep(qn__fission_t* self, qn__fission_entity_t* entity) {
  qn__fission_unit_t* unit = entity->unit;
  const qn__ir_stmt_t* stmt = entity->stmt;
  qn__ir_stmt_t* alloc =
      qn__fission_check(self, qn__stmt_new(self->arena, QN__STMT_ALLOC, stmt->loc));
  if (!alloc) return;
  qn__ir_buffer_t* own = stmt->kind == QN__STMT_ALLOC ? stmt->alloc.buffer : NULL;
  for (uint32_t i = 0; own && i < own->rank; ++i) {
    if (!is_plain(unit, &own->shape[i])) {
      self->unsupported = own;
      return;
    }
  }
  if (own && own->scope != QN__SCOPE_LOCAL) {  // one for all threads
    if (own->scope == QN__SCOPE_SHARED) own->scope = QN__SCOPE_LOCAL;
    alloc->alloc.buffer = own;
    qn__block_append(&unit->before, alloc);
    return;
  }
  const qn__ir_var_t* var = stmt->kind == QN__STMT_LET ? stmt->let.var : NULL;
  if (stmt->kind == QN__STMT_ATOMIC) var = stmt->atomic.result;
  uint32_t rank = unit->depth + (own ? own->rank : 0);
  qn__ir_buffer_t* array = qn__fission_check(
      self, qn__buf_new(self->arena, QN__SCOPE_LOCAL, own ? own->dtype : var->dtype,
                        own ? own->name : var->name, rank));
  if (!array) return;
  array->shape =
      qn__fission_check(self, qn__arena_alloc_array(self->arena, rank + 1U, sizeof(void*)));
  qn__fission_entity_t* of_array =
      qn__fission_check(self, QN__ARENA_NEW(self->arena, qn__fission_entity_t));
  if (!array->shape || !of_array) return;
  array->origin_id = own ? own->origin_id : UINT32_MAX;
  entity->thread_count = 1;
  for (uint32_t i = 0; own && i < own->rank; ++i) array->shape[i] = copy(self, own->shape[i]);
  for (uint32_t i = 0; i < unit->depth; ++i) {
    int64_t end = 0;
    (void)qn__expr_const_int(unit->levels[i]->loop.end, &end);
    int64_t extent = end - begin_of(unit->levels[i]);
    if (extent < 0) extent = 0;
    array->shape[rank - unit->depth + i] = int_expr(self, extent);
    if (__builtin_mul_overflow(entity->thread_count, extent, &entity->thread_count)) {
      entity->thread_count = INT64_MAX;  // the verifier rejects such an array
    }
  }
  of_array->thread_count = entity->thread_count;
  array->user = of_array;
  alloc->alloc.buffer = array;
  entity->array = array;
  qn__block_append(&unit->before, alloc);
}

static void keep_all(qn__fission_t* self, qn__fission_unit_t* unit) {
  for (qn__ir_stmt_t* stmt = unit->stmts.first; stmt && !qn__fission_failed(self);
       stmt = stmt->next) {
    qn__fission_entity_t* entity = NULL;
    if (stmt->kind == QN__STMT_LET) entity = stmt->let.var->user;
    if (stmt->kind == QN__STMT_ATOMIC && stmt->atomic.result) entity = stmt->atomic.result->user;
    if (stmt->kind == QN__STMT_ALLOC) entity = stmt->alloc.buffer->user;
    if (entity && entity->is_kept) keep(self, entity);
  }
}

// Builds the loops of a unit around its prologue and statements, with the anchor outermost.
static void close_unit(qn__fission_t* self, qn__fission_unit_t* unit) {
  qn__ir_block_t body = unit->prologue;
  qn__block_splice(&body, &unit->stmts);
  for (uint32_t i = unit->depth; i-- > 0;) {
    qn__ir_stmt_t* loop =
        i == 0
            ? unit->anchor
            : qn__fission_check(self, qn__stmt_new(self->arena, QN__STMT_LOOP, unit->anchor->loc));
    if (!loop) return;
    loop->loop.kind = QN_LOOP_PARALLEL;
    loop->loop.var = unit->vars[i];
    loop->loop.begin = copy(self, unit->levels[i]->loop.begin);
    loop->loop.end = copy(self, unit->levels[i]->loop.end);
    loop->loop.body = body;
    if (i > 0) body = qn__block_of(loop);
  }
}

static void insert_before(qn__fission_unit_t* unit) {
  if (!unit->before.first) return;
  qn__ir_stmt_t** link = &unit->home->first;
  while (*link != unit->anchor) link = &(*link)->next;
  unit->before.last->next = unit->anchor;
  *link = unit->before.first;
}

void qn__fission_rewrite(qn__fission_t* self) {
  for (qn__fission_unit_t* unit = self->first; unit && !qn__fission_failed(self);
       unit = unit->next) {
    for (uint32_t i = 0; i < unit->depth && !unit->is_control; ++i) {
      const qn__ir_var_t* var = unit->levels[i]->loop.var;
      unit->vars[i] =
          qn__fission_check(self, qn__var_new(self->arena, QN__VAR_LOOP, QN_DTYPE_I64, var->name));
    }
    keep_all(self, unit);
  }
  // Rewrites uses before declarations, so that a recomputed let is copied while it is unchanged.
  // Units are in program order, so the reverse order visits every use first.
  qn__fission_unit_t* reversed = NULL;
  for (qn__fission_unit_t *unit = self->first, *next; unit; unit = next) {
    next = unit->next;
    unit->next = reversed;
    reversed = unit;
  }
  for (qn__fission_unit_t* unit = reversed; unit && !qn__fission_failed(self); unit = unit->next) {
    rewrite_t rewrite = {self, unit};
    if (unit->is_control) {
      (void)qn__stmt_each_expr(unit->anchor, rewrite_slot, &rewrite);
    } else {
      rewrite_block(&rewrite, &unit->stmts, true);
      if (!qn__fission_failed(self)) close_unit(self, unit);
    }
  }
  for (qn__fission_unit_t* unit = reversed; unit && !qn__fission_failed(self); unit = unit->next)
    insert_before(unit);
}
