// ir/passes/fission.c: splits a nest of thread loops at its barriers (loop fission).
//
//   thread t { A; barrier; for i { B; barrier; C } }   becomes
//   all t { A }  for i { all t { B }  all t { C } }
//
// The verifier ensures that either all threads or none reach a barrier inside `for`, `while` or
// `if`. The bounds and conditions around it are thus the same for all threads. They are evaluated
// once, with the values of the first thread.
//
// The parts between barriers are *units*. A value that one unit declares and another uses crosses:
//   - a let of cheap arithmetic is computed again in each unit that uses it;
//   - any other value is held in an array with one element for each thread;
//   - a local buffer gets the threads as trailing dimensions, so that elements of neighbouring
//     threads are adjacent in memory; the strides of its views are multiplied by their number;
//   - a view is declared again in each unit that uses it;
//   - a constant table or shared buffer moves out of the loops.
//
// Steps: 1. split distributes the statements to units. 2. mark finds the values that cross.
// 3. rewrite (fission_rewrite.c) builds the loops of each unit.
#include "ir/passes/fission_inner.h"

enum { max_recomputed_weight = 24 };

// ---- split

static qn__fission_unit_t* open_unit(qn__fission_t* self, qn__ir_block_t* home, bool is_control,
                                     qn__ir_stmt_t* anchor) {
  qn__fission_unit_t* unit =
      qn__fission_check(self, QN__ARENA_NEW(self->arena, qn__fission_unit_t));
  if (!unit) return NULL;
  unit->is_control = is_control;
  unit->depth = self->depth;
  memcpy(unit->levels, self->levels, sizeof self->levels);
  unit->home = home;
  unit->anchor = anchor;
  if (self->last) {
    self->last->next = unit;
  } else {
    self->first = unit;
  }
  self->last = unit;
  return unit;
}

static void declare(qn__fission_t* self, qn__fission_unit_t* unit, qn__ir_stmt_t* stmt) {
  qn__fission_entity_t* entity =
      qn__fission_check(self, QN__ARENA_NEW(self->arena, qn__fission_entity_t));
  if (!entity) return;
  entity->unit = unit;
  entity->stmt = stmt;
  if (stmt->kind == QN__STMT_LET) stmt->let.var->user = entity;
  if (stmt->kind == QN__STMT_ATOMIC && stmt->atomic.result) stmt->atomic.result->user = entity;
  if (stmt->kind == QN__STMT_ALLOC) stmt->alloc.buffer->user = entity;
}

static void split(qn__fission_t* self, qn__ir_block_t* block, qn__ir_block_t* home);

// Splits a statement that contains a barrier.
static void split_around(qn__fission_t* self, qn__ir_stmt_t* stmt, qn__ir_block_t* home) {
  if (stmt->kind == QN__STMT_LOOP && qn__loop_is_thread(stmt->loop.kind)) {
    if (self->depth == qn__fission_max_levels) {
      self->is_too_deep = true;
      return;
    }
    self->levels[self->depth++] = stmt;
    split(self, &stmt->loop.body, home);
    --self->depth;
    return;
  }
  (void)open_unit(self, home, true, stmt);
  qn__block_append(home, stmt);
  QN__EACH_BLOCK(stmt, nested) {
    if (qn__fission_failed(self)) break;
    qn__ir_block_t inner = *nested;
    *nested = (qn__ir_block_t){NULL, NULL};
    split(self, &inner, nested);
  }
}

typedef struct fission_binder {
  qn__fission_t* self;
  qn__fission_unit_t* unit;
} fission_binder_t;

// Moves an expression of a view's declaration that loads from memory into a let, so that units that
// declare the view again use the same value.
static bool bind_loads(void* context, qn__ir_expr_t** slot) {
  fission_binder_t* binder = context;
  qn__arena_t* arena = binder->self->arena;
  if (!qn__expr_facts(*slot).has_load) return true;
  qn__ir_stmt_t* let =
      qn__fission_check(binder->self, qn__stmt_new(arena, QN__STMT_LET, (*slot)->loc));
  qn__ir_var_t* var =
      qn__fission_check(binder->self, qn__var_new(arena, QN__VAR_LET, (*slot)->dtype, "place"));
  qn__ir_expr_t* use = var ? qn__fission_check(binder->self, qn__expr_var(arena, var)) : NULL;
  if (!let || !use) return false;
  let->let.var = var;
  let->let.value = *slot;
  *slot = use;
  declare(binder->self, binder->unit, let);
  qn__block_append(&binder->unit->stmts, let);
  return true;
}

static void split(qn__fission_t* self, qn__ir_block_t* block, qn__ir_block_t* home) {
  qn__fission_unit_t* unit = NULL;
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt && !qn__fission_failed(self); stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    qn__ir_block_t alone = {stmt, stmt};
    if (stmt->kind == QN__STMT_BARRIER) {
      unit = NULL;
    } else if (qn__block_has_barrier(&alone)) {
      split_around(self, stmt, home);
      unit = NULL;
    } else {
      if (!unit) {
        qn__ir_stmt_t* anchor =
            qn__fission_check(self, qn__stmt_new(self->arena, QN__STMT_LOOP, stmt->loc));
        unit = open_unit(self, home, false, anchor);
        if (qn__fission_failed(self)) return;
        qn__block_append(home, anchor);
      }
      if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_VIEW) {
        fission_binder_t binder = {self, unit};
        (void)qn__stmt_each_expr(stmt, bind_loads, &binder);
        if (qn__fission_failed(self)) return;
      }
      declare(self, unit, stmt);
      qn__block_append(&unit->stmts, stmt);
    }
  }
}

// ---- mark

typedef struct mark {
  qn__fission_t* self;
  qn__fission_unit_t* unit;
} mark_t;

static bool mark_slot(void* context, qn__ir_expr_t** slot);

// Returns true for a let of cheap arithmetic, without loads, reductions or exchanges.
static bool can_recompute(const qn__fission_entity_t* entity) {
  if (entity->stmt->kind != QN__STMT_LET) return false;
  qn__ir_expr_facts_t facts = qn__expr_facts(entity->stmt->let.value);
  qn__ir_block_t alone = {entity->stmt, entity->stmt};
  qn__ir_stmt_t* next = entity->stmt->next;
  entity->stmt->next = NULL;
  size_t weight = qn__block_weight(&alone);
  entity->stmt->next = next;
  return !facts.has_load && !facts.has_reduce && !facts.has_cross_lane &&
         weight <= max_recomputed_weight;
}

static void mark_var(mark_t* mark, qn__ir_var_t* var) {
  qn__fission_entity_t* entity = var->user;
  if (!entity || entity->unit == mark->unit) return;
  if (can_recompute(entity)) {
    (void)mark_slot(mark, &entity->stmt->let.value);
  } else {
    entity->is_kept = true;
  }
}

static void mark_buffer(mark_t* mark, qn__ir_buffer_t* buffer) {
  qn__fission_entity_t* entity = buffer->user;
  if (!entity) return;
  if (buffer->scope == QN__SCOPE_VIEW) {
    if (entity->unit != mark->unit) (void)qn__stmt_each_expr(entity->stmt, mark_slot, mark);
    mark_buffer(mark, buffer->base);
  } else if (entity->unit != mark->unit || buffer->scope == QN__SCOPE_SHARED) {
    entity->is_kept = true;
  }
}

static bool mark_slot(void* context, qn__ir_expr_t** slot) {
  mark_t* mark = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR) mark_var(mark, expr->var);
  if (expr->kind == QN__EXPR_LOAD) mark_buffer(mark, expr->load.buffer);
  return qn__expr_each_child(expr, mark_slot, mark);
}

static void mark_block(mark_t* mark, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, mark_slot, mark);
    if (stmt->kind == QN__STMT_STORE) mark_buffer(mark, stmt->store.buffer);
    if (stmt->kind == QN__STMT_ATOMIC) mark_buffer(mark, stmt->atomic.buffer);
    if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_VIEW) {
      mark_buffer(mark, stmt->alloc.buffer->base);
    }
    QN__EACH_BLOCK(stmt, inner) mark_block(mark, inner);
  }
}

qn_status_t qn__fission(qn__arena_t* arena, const char* function_name, qn__ir_stmt_t* loop,
                        qn__ir_block_t* out) {
  qn__fission_t self = {.arena = arena, .depth = 0};
  qn__ir_block_t home = {NULL, NULL};
  split_around(&self, loop, &home);
  for (qn__fission_unit_t* unit = self.first; unit && !qn__fission_failed(&self);
       unit = unit->next) {
    for (uint32_t i = 0; i < unit->depth; ++i) {
      int64_t begin, end;
      if (qn__expr_const_int(unit->levels[i]->loop.begin, &begin) &&
          qn__expr_const_int(unit->levels[i]->loop.end, &end)) {
        continue;
      }
      return qn_status_make(QN_STATUS_UNSUPPORTED,
                            "function '%s': the extent of thread loop '%s' must be constant for a "
                            "barrier inside it on a cpu",
                            function_name, unit->levels[i]->loop.var->name);
    }
    mark_t mark = {&self, unit};
    if (unit->is_control) {
      (void)qn__stmt_each_expr(unit->anchor, mark_slot, &mark);
    } else {
      mark_block(&mark, &unit->stmts);
    }
  }
  if (!qn__fission_failed(&self)) qn__fission_rewrite(&self);
  if (self.has_no_memory) return qn__out_of_memory("serialising threads");
  if (self.is_too_deep) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "function '%s': more than %d nested thread loops",
                          function_name, qn__fission_max_levels);
  }
  if (self.unsupported) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "function '%s': buffer '%s' lives across a barrier; its shape must not "
                          "depend on the thread on a cpu",
                          function_name, self.unsupported->name);
  }
  *out = home;
  return QN_OK;
}
