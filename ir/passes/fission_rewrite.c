// SPDX-License-Identifier: Apache-2.0
// ir/passes/fission_rewrite.c: builds the loops of the units of a split thread loop, and the
// arrays, lets and views for values that cross from one unit to another.
//
// Not here: where to split, and which values cross (fission.c, which explains the whole).
#include "ir/passes/fission_inner.h"

typedef struct rewrite {
  qn__pass_builder_t* pb;
  qn__fission_unit_t* unit;
} rewrite_t;

static bool rewrite_slot(void* context, qn__ir_expr_t** slot);

// Returns the index of the current thread in dimension `level` of an array over the threads. A
// control unit runs as the first thread.
static qn__ir_expr_t* thread_index(const rewrite_t* rewrite, uint32_t level) {
  qn__pass_builder_t* pb = rewrite->pb;
  const qn__fission_unit_t* unit = rewrite->unit;
  if (unit->is_control) return qn__pb_int(pb, 0);
  assert(level < unit->depth);
  qn__ir_expr_t* begin = qn__pb_copy(pb, unit->levels[level]->loop.begin);
  return qn__pb_op(pb, QN_OP_SUB, qn__pb_use(pb, unit->vars[level]), begin);
}

// Returns the `rank` indices followed by `depth` indices of the thread.
static qn__ir_expr_t** with_threads(const rewrite_t* rewrite, uint32_t depth,
                                    qn__ir_expr_t** indices, uint32_t rank) {
  qn__ir_expr_t** all = qn__arena_alloc_array(rewrite->pb->arena, depth + rank + 1U, sizeof *all);
  if (!all) return NULL;
  for (uint32_t i = 0; i < rank; ++i) all[i] = indices[i];
  for (uint32_t i = 0; i < depth; ++i) all[rank + i] = thread_index(rewrite, i);
  return all;
}

static qn__ir_expr_t* load_kept(const rewrite_t* rewrite, const qn__fission_entity_t* entity) {
  qn__ir_buffer_t* array = entity->array;
  qn__ir_expr_t* load =
      qn__expr_new(rewrite->pb->arena, QN__EXPR_LOAD, array->dtype, entity->stmt->loc);
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
  assert(entity->stmt->kind == QN__STMT_LET);
  qn__ir_expr_t* value = qn__pb_copy(rewrite->pb, entity->stmt->let.value);
  return value && rewrite_slot(rewrite, &value) ? value : NULL;
}

// Returns the number of the thread loop around the unit that declares `var`; `depth` if none does.
static uint32_t level_of(const qn__fission_unit_t* unit, const qn__ir_var_t* var) {
  uint32_t level = 0;
  while (level < unit->depth && unit->levels[level]->loop.var != var) ++level;
  return level;
}

static void rewrite_var(rewrite_t* rewrite, qn__ir_expr_t** slot) {
  qn__pass_builder_t* pb = rewrite->pb;
  qn__fission_unit_t* unit = rewrite->unit;
  qn__ir_var_t* var = (*slot)->var;
  uint32_t level = level_of(unit, var);
  if (level < unit->depth) {
    if (unit->is_control) {
      *slot = qn__pb_copy(pb, unit->levels[level]->loop.begin);
    } else {
      (*slot)->var = unit->vars[level];
    }
    return;
  }
  const qn__fission_entity_t* entity = var->user;
  if (!entity || entity->unit == unit) return;
  qn__ir_var_t* here = qn__alias_find(unit->aliases, var);
  if (!here) {
    qn__ir_expr_t* value = value_here(rewrite, entity);
    if (!value) return;
    if (unit->is_control) {  // a condition is evaluated repeatedly, so it gets no let
      *slot = value;
      return;
    }
    here = qn__pb_let(pb, &unit->prologue, var->name, value);
    if (!here) return;
    qn__alias_add(pb->arena, &unit->aliases, var, here);
  }
  (*slot)->var = here;
}

static bool rewrite_ref(rewrite_t* rewrite, const qn__ir_ref_t* ref);

// Multiplies the strides of a view by the number of threads that its base buffer now holds.
static void widen_strides(const rewrite_t* rewrite, qn__ir_buffer_t* view) {
  qn__pass_builder_t* pb = rewrite->pb;
  const qn__fission_entity_t* root = qn__buf_root(view)->user;
  if (!root || !root->thread_count) return;
  view->strides = qn__buf_strides(pb->arena, view);
  for (uint32_t i = 0; view->strides && i < view->rank; ++i) {
    qn__ir_expr_t* factor = qn__pb_copy(pb, root->thread_count);
    if (factor) {
      view->strides[i] = qn__expr_op(pb->arena, QN_OP_MUL, view->strides[i], factor, NULL);
    }
  }
}

// Declares another unit's view again in this unit.
static qn__ir_buffer_t* view_here(rewrite_t* rewrite, const qn__fission_entity_t* entity) {
  qn__fission_unit_t* unit = rewrite->unit;
  qn__ir_stmt_t* alloc = qn__stmt_copy(rewrite->pb->arena, entity->stmt);
  qn__ir_ref_t base;
  if (!alloc || !qn__stmt_ref(alloc, &base) || !qn__stmt_each_expr(alloc, rewrite_slot, rewrite) ||
      !rewrite_ref(rewrite, &base)) {
    return NULL;
  }
  widen_strides(rewrite, alloc->alloc.buffer);
  qn__block_append(unit->is_control ? &unit->before : &unit->prologue, alloc);
  qn__alias_add(rewrite->pb->arena, &unit->aliases, entity->stmt->alloc.buffer,
                alloc->alloc.buffer);
  return alloc->alloc.buffer;
}

// Redirects a reference to the array or view of this unit. Its indices must be rewritten before.
static bool rewrite_ref(rewrite_t* rewrite, const qn__ir_ref_t* ref) {
  const qn__ir_buffer_t* buffer = *ref->buffer;
  const qn__fission_entity_t* entity = buffer->user;
  if (!entity) return true;
  if (buffer->scope == QN__SCOPE_VIEW) {
    if (entity->unit == rewrite->unit) return true;
    qn__ir_buffer_t* here = qn__alias_find(rewrite->unit->aliases, buffer);
    if (!here) here = view_here(rewrite, entity);
    if (!here) return false;
    *ref->buffer = here;
  } else if (entity->array) {
    *ref->indices = with_threads(rewrite, entity->unit->depth, *ref->indices, buffer->rank);
    *ref->buffer = entity->array;
  }
  return !qn__pb_stopped(rewrite->pb);
}

static bool rewrite_slot(void* context, qn__ir_expr_t** slot) {
  rewrite_t* rewrite = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR) {
    rewrite_var(rewrite, slot);
    return !qn__pb_stopped(rewrite->pb);
  }
  if (!qn__expr_each_child(expr, rewrite_slot, rewrite)) return false;
  qn__ir_ref_t ref = {QN__REF_LOAD, &expr->load.buffer, &expr->load.indices};
  return expr->kind != QN__EXPR_LOAD || rewrite_ref(rewrite, &ref);
}

// Returns the entity that the statement declares, if its value crosses to other units.
static qn__fission_entity_t* kept_entity(const qn__ir_stmt_t* stmt) {
  const qn__ir_var_t* var = stmt->kind == QN__STMT_LOOP ? NULL : qn__stmt_var(stmt);
  qn__fission_entity_t* entity = var ? var->user : NULL;
  if (stmt->kind == QN__STMT_ALLOC) entity = stmt->alloc.buffer->user;
  return entity && entity->is_kept ? entity : NULL;
}

static void rewrite_block(rewrite_t* rewrite, qn__ir_block_t* block, bool is_top) {
  qn__pass_builder_t* pb = rewrite->pb;
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) != NULL;) {
    qn__ir_ref_t ref;
    if (!qn__stmt_each_expr(stmt, rewrite_slot, rewrite)) return;
    if (qn__stmt_ref(stmt, &ref)) {
      if (!rewrite_ref(rewrite, &ref)) return;
      if (ref.kind == QN__REF_BASE) widen_strides(rewrite, stmt->alloc.buffer);
    }
    QN__EACH_BLOCK(stmt, inner) rewrite_block(rewrite, inner, false);
    if (qn__pb_stopped(pb)) return;
    const qn__fission_entity_t* entity = is_top ? kept_entity(stmt) : NULL;
    bool is_moved = entity && stmt->kind == QN__STMT_ALLOC;
    if (!is_moved) qn__block_append(block, stmt);
    if (!entity || is_moved) continue;
    qn__ir_stmt_t* store = qn__stmt_new(pb->arena, QN__STMT_STORE, stmt->loc);
    if (!store) return;
    store->store.buffer = entity->array;
    store->store.indices = with_threads(rewrite, entity->array->rank, NULL, 0);
    store->store.value = qn__pb_use(pb, qn__stmt_var(stmt));
    qn__block_append(block, store);
  }
}

static bool is_plain(void* self, qn__ir_expr_t** slot) {
  const qn__fission_unit_t* unit = self;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_REDUCE) return false;
  if (expr->kind == QN__EXPR_VAR && (expr->var->user || level_of(unit, expr->var) < unit->depth)) {
    return false;
  }
  return qn__expr_each_child(expr, is_plain, self);
}

// Sets the last dimensions of an array, one for each thread loop. An extent that only the call
// knows is at least 1, since qn__fission tests that there are threads.
static void add_threads(qn__pass_builder_t* pb, const qn__fission_unit_t* unit,
                        qn__ir_buffer_t* array, qn__fission_entity_t* entity) {
  int64_t constant = 1;
  qn__ir_expr_t* product = NULL;
  for (uint32_t i = 0; i < unit->depth; ++i) {
    const qn__ir_stmt_t* level = unit->levels[i];
    qn__ir_expr_t** extent = &array->shape[array->rank - unit->depth + i];
    int64_t begin, end;
    if (!qn__expr_const_int(level->loop.begin, &begin) ||
        !qn__expr_const_int(level->loop.end, &end)) {
      *extent = qn__pb_op(pb, QN_OP_SUB, qn__pb_copy(pb, level->loop.end),
                          qn__pb_copy(pb, level->loop.begin));
      qn__ir_expr_t* factor = qn__pb_copy(pb, *extent);
      product = product ? qn__pb_op(pb, QN_OP_MUL, product, factor) : factor;
      continue;
    }
    int64_t count = qn__const_trips(level->loop.begin, level->loop.end);
    if (count < 0) count = INT64_MAX;  // their difference overflows
    *extent = qn__pb_int(pb, count);
    // The verifier rejects an array of INT64_MAX elements.
    if (__builtin_mul_overflow(constant, count, &constant)) constant = INT64_MAX;
  }
  if (product) {
    entity->thread_count =
        constant == 1 ? product : qn__pb_op_int(pb, QN_OP_MUL, product, constant);
  } else if (constant > 1) {
    entity->thread_count = qn__pb_int(pb, constant);
  }
}

// Declares the array that holds an entity's values, before the unit that declares the entity.
static void keep(qn__pass_builder_t* pb, qn__fission_entity_t* entity) {
  qn__fission_unit_t* unit = entity->unit;
  qn__ir_stmt_t* alloc = qn__stmt_new(pb->arena, QN__STMT_ALLOC, entity->stmt->loc);
  if (!alloc) return;
  const qn__ir_var_t* var = qn__stmt_var(entity->stmt);
  qn__ir_buffer_t* own = var ? NULL : entity->stmt->alloc.buffer;
  uint32_t own_rank = own ? own->rank : 0;
  for (uint32_t i = 0; i < own_rank; ++i) {
    if (is_plain(unit, &own->shape[i])) continue;
    qn__pb_refuse(pb,
                  "buffer '%s' lives across a barrier; its shape must not depend on the thread on "
                  "a cpu",
                  own->name);
    return;
  }
  qn__block_append(&unit->before, alloc);
  alloc->alloc.buffer = own;
  if (own && own->scope != QN__SCOPE_LOCAL) {  // one for all threads
    if (own->scope == QN__SCOPE_SHARED) own->scope = QN__SCOPE_LOCAL;
    return;
  }
  uint32_t rank = unit->depth + own_rank;
  qn__ir_buffer_t* array = qn__buf_new(pb->arena, QN__SCOPE_LOCAL, own ? own->dtype : var->dtype,
                                       own ? own->name : var->name, rank);
  qn__fission_entity_t* of_array = QN__ARENA_NEW(pb->arena, qn__fission_entity_t);
  if (!array || !of_array) return;
  array->origin_id = own ? own->origin_id : UINT32_MAX;
  for (uint32_t i = 0; i < own_rank; ++i) array->shape[i] = qn__pb_copy(pb, own->shape[i]);
  add_threads(pb, unit, array, of_array);
  array->user = of_array;
  alloc->alloc.buffer = array;
  entity->array = array;
}

// Builds the loops of a unit around its prologue and statements, with the anchor outermost.
static void close_unit(qn__pass_builder_t* pb, qn__fission_unit_t* unit) {
  qn__ir_block_t body = unit->prologue;
  qn__block_splice(&body, &unit->stmts);
  for (uint32_t i = unit->depth; i-- > 0;) {
    qn__ir_stmt_t* loop =
        i == 0 ? unit->anchor : qn__stmt_new(pb->arena, QN__STMT_LOOP, unit->anchor->loc);
    if (!loop) return;
    loop->loop.kind = QN_LOOP_PARALLEL;
    loop->loop.is_independent = true;
    loop->loop.var = unit->vars[i];
    loop->loop.begin = qn__pb_copy(pb, unit->levels[i]->loop.begin);
    loop->loop.end = qn__pb_copy(pb, unit->levels[i]->loop.end);
    loop->loop.body = body;
    if (i > 0) body = qn__block_of(loop);
  }
}

static void insert_before(qn__fission_unit_t* unit) {
  if (!unit->before.first) return;
  qn__ir_stmt_t** link = &unit->home->first;
  while (*link != unit->anchor) {
    assert(*link);  // the anchor is in its home
    link = &(*link)->next;
  }
  unit->before.last->next = unit->anchor;
  *link = unit->before.first;
}

void qn__fission_rewrite(qn__fission_t* self) {
  qn__pass_builder_t* pb = self->pb;
  for (qn__fission_unit_t* unit = self->first; unit; unit = unit->next) {
    assert(unit->depth > 0 && (!unit->is_control || !unit->stmts.first));
    for (uint32_t i = 0; i < unit->depth && !unit->is_control; ++i) {
      unit->vars[i] = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, unit->levels[i]->loop.var->name);
    }
    for (const qn__ir_stmt_t* stmt = unit->stmts.first; stmt; stmt = stmt->next) {
      qn__fission_entity_t* entity = kept_entity(stmt);
      if (entity) keep(pb, entity);
    }
  }
  // Rewrites uses before declarations, so that a recomputed let is copied while it is unchanged.
  // Units are in program order, so the reverse order visits every use first.
  qn__fission_unit_t* reversed = NULL;
  for (qn__fission_unit_t *unit = self->first, *next; unit; unit = next) {
    next = unit->next;
    unit->next = reversed;
    reversed = unit;
  }
  for (qn__fission_unit_t* unit = reversed; unit && !qn__pb_stopped(pb); unit = unit->next) {
    rewrite_t rewrite = {pb, unit};
    if (unit->is_control) {
      (void)qn__stmt_each_expr(unit->anchor, rewrite_slot, &rewrite);
    } else {
      rewrite_block(&rewrite, &unit->stmts, true);
      close_unit(pb, unit);
    }
  }
  for (qn__fission_unit_t* unit = reversed; unit && !qn__pb_stopped(pb); unit = unit->next) {
    insert_before(unit);
  }
}
