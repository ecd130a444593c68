// SPDX-License-Identifier: Apache-2.0
// ir/passes/fission.c: splits a nest of thread loops at its barriers (loop fission).
//
//   thread t { A; barrier; for i { B; barrier; C } }   becomes
//   all t { A }  for i { all t { B }  all t { C } }
//
// The verifier ensures that either all threads or none reach a barrier inside `for`, `while` or
// `if`. The bounds and conditions around it are thus the same for all threads. They are evaluated
// once, with the values of the first thread. Where only the call knows how many threads there are,
// a test that there are any is around all.
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
  qn__fission_unit_t* unit = QN__ARENA_NEW(self->pb->arena, qn__fission_unit_t);
  if (!unit || !anchor) return NULL;
  unit->is_control = is_control;
  unit->depth = self->depth;
  memcpy(unit->levels, self->levels, sizeof self->levels);
  unit->home = home;
  unit->anchor = anchor;
  qn__block_append(home, anchor);
  if (self->last) {
    self->last->next = unit;
  } else {
    self->first = unit;
  }
  self->last = unit;
  return unit;
}

static void declare(qn__fission_t* self, qn__fission_unit_t* unit, qn__ir_stmt_t* stmt) {
  qn__fission_entity_t* entity = QN__ARENA_NEW(self->pb->arena, qn__fission_entity_t);
  if (!entity) return;
  entity->unit = unit;
  entity->stmt = stmt;
  qn__ir_var_t* var = qn__stmt_var(stmt);
  if (var && stmt->kind != QN__STMT_LOOP) var->user = entity;
  if (stmt->kind == QN__STMT_ALLOC) stmt->alloc.buffer->user = entity;
}

static void split(qn__fission_t* self, qn__ir_block_t* block, qn__ir_block_t* home);

// Stops at what is not one value for all threads, or is declared inside the loops.
static bool is_uniform(void* context, qn__ir_expr_t** slot) {
  const qn__fission_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_REDUCE) return false;
  if (expr->kind == QN__EXPR_VAR && expr->var->user) return false;
  for (uint32_t i = 0; expr->kind == QN__EXPR_VAR && i < self->depth; ++i) {
    if (self->levels[i]->loop.var == expr->var) return false;
  }
  return qn__expr_each_child(*slot, is_uniform, context);
}

// Returns the block that takes the parts of a thread loop: `home`, or where the bounds are not
// constant the body of a test that there are threads. NULL: the pass has failed.
static qn__ir_block_t* open_threads(qn__fission_t* self, qn__ir_stmt_t* loop,
                                    qn__ir_block_t* home) {
  qn__pass_builder_t* pb = self->pb;
  int64_t begin, end;
  if (qn__expr_const_int(loop->loop.begin, &begin) && qn__expr_const_int(loop->loop.end, &end)) {
    return home;
  }
  if (!is_uniform(self, &loop->loop.begin) || !is_uniform(self, &loop->loop.end)) {
    qn__pb_refuse(pb,
                  "the extent of thread loop '%s' must not depend on a let inside of another "
                  "thread loop for a barrier inside it on a cpu",
                  loop->loop.var->name);
    return NULL;
  }
  qn__ir_expr_t* has_threads =
      qn__pb_op(pb, QN_OP_LT, qn__pb_copy(pb, loop->loop.begin), qn__pb_copy(pb, loop->loop.end));
  qn__ir_stmt_t* test = qn__pb_if(pb, has_threads, (qn__ir_block_t){NULL, NULL});
  if (!test) return NULL;
  qn__block_append(home, test);
  return &test->if_.then_block;
}

// Splits a statement that contains a barrier.
static void split_around(qn__fission_t* self, qn__ir_stmt_t* stmt, qn__ir_block_t* home) {
  if (qn__is_thread_loop(stmt)) {
    if (self->depth == qn__fission_max_levels) {
      qn__pb_refuse(self->pb, "more than %d nested thread loops", qn__fission_max_levels);
      return;
    }
    qn__ir_block_t* inner = open_threads(self, stmt, home);
    if (!inner) return;
    self->levels[self->depth++] = stmt;
    split(self, &stmt->loop.body, inner);
    --self->depth;
    return;
  }
  (void)open_unit(self, home, true, stmt);
  QN__EACH_BLOCK(stmt, nested) {
    qn__ir_block_t inner = qn__block_take(nested);
    split(self, &inner, nested);
  }
}

typedef struct view_binder {
  qn__fission_t* self;
  qn__fission_unit_t* unit;
} view_binder_t;

// Moves an expression of a view's declaration that loads from memory into a let, so that units that
// declare the view again use the same value.
static bool bind_loads(void* context, qn__ir_expr_t** slot) {
  const view_binder_t* binder = context;
  qn__pass_builder_t* pb = binder->self->pb;
  if (!qn__expr_facts(*slot).has_load) return true;
  qn__ir_block_t* stmts = &binder->unit->stmts;
  qn__ir_expr_t* use = qn__pb_use(pb, qn__pb_let(pb, stmts, "place", *slot));
  if (!use) return false;
  *slot = use;
  declare(binder->self, binder->unit, stmts->last);
  return true;
}

static void split(qn__fission_t* self, qn__ir_block_t* block, qn__ir_block_t* home) {
  qn__pass_builder_t* pb = self->pb;
  qn__fission_unit_t* unit = NULL;
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(block)) && !qn__pb_stopped(pb);) {
    qn__ir_block_t alone = qn__block_of(stmt);
    if (stmt->kind == QN__STMT_BARRIER) {
      unit = NULL;
    } else if (qn__block_has_barrier(&alone)) {
      split_around(self, stmt, home);
      unit = NULL;
    } else {
      if (!unit) {
        unit = open_unit(self, home, false, qn__stmt_new(pb->arena, QN__STMT_LOOP, stmt->loc));
      }
      if (!unit) return;
      if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_VIEW) {
        view_binder_t binder = {self, unit};
        (void)qn__stmt_each_expr(stmt, bind_loads, &binder);
      }
      declare(self, unit, stmt);
      qn__block_append(&unit->stmts, stmt);
    }
  }
}

// ---- mark

static bool mark_slot(void* unit, qn__ir_expr_t** slot);

// Returns true for a let of cheap arithmetic, without loads, reductions or exchanges.
static bool can_recompute(const qn__fission_entity_t* entity) {
  if (entity->stmt->kind != QN__STMT_LET) return false;
  qn__ir_expr_facts_t facts = qn__expr_facts(entity->stmt->let.value);
  qn__ir_stmt_t alone = *entity->stmt;
  qn__ir_block_t block = qn__block_of(&alone);
  return !facts.has_load && !facts.has_reduce && !facts.has_cross_lane &&
         qn__block_weight(&block) <= max_recomputed_weight;
}

static void mark_var(qn__fission_unit_t* unit, const qn__ir_var_t* var) {
  qn__fission_entity_t* entity = var->user;
  if (!entity || entity->unit == unit) return;
  if (can_recompute(entity)) {
    (void)mark_slot(unit, &entity->stmt->let.value);
  } else {
    entity->is_kept = true;
  }
}

static void mark_buffer(qn__fission_unit_t* unit, const qn__ir_buffer_t* buffer) {
  qn__fission_entity_t* entity = buffer->user;
  if (!entity) return;
  assert(entity->stmt && entity->stmt->kind == QN__STMT_ALLOC);
  if (buffer->scope == QN__SCOPE_VIEW) {
    if (entity->unit != unit) (void)qn__stmt_each_expr(entity->stmt, mark_slot, unit);
    mark_buffer(unit, buffer->base);
  } else if (entity->unit != unit || buffer->scope == QN__SCOPE_SHARED) {
    entity->is_kept = true;
  }
}

static bool mark_slot(void* unit, qn__ir_expr_t** slot) {
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR) mark_var(unit, expr->var);
  if (expr->kind == QN__EXPR_LOAD) mark_buffer(unit, expr->load.buffer);
  return qn__expr_each_child(expr, mark_slot, unit);
}

static void mark_block(qn__fission_unit_t* unit, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    qn__ir_ref_t ref;
    (void)qn__stmt_each_expr(stmt, mark_slot, unit);
    if (qn__stmt_ref(stmt, &ref)) mark_buffer(unit, *ref.buffer);
    QN__EACH_BLOCK(stmt, inner) mark_block(unit, inner);
  }
}

void qn__fission(qn__pass_builder_t* pb, qn__ir_stmt_t* loop, qn__ir_block_t* out) {
  qn__fission_t self = {.pb = pb};
  qn__ir_block_t home = {NULL, NULL};
  split_around(&self, loop, &home);
  assert(self.depth == 0);
  for (qn__fission_unit_t* unit = self.first; unit && !qn__pb_stopped(pb); unit = unit->next) {
    if (unit->is_control) {
      (void)qn__stmt_each_expr(unit->anchor, mark_slot, unit);
    } else {
      mark_block(unit, &unit->stmts);
    }
  }
  if (!qn__pb_stopped(pb)) qn__fission_rewrite(&self);
  qn__block_splice(out, &home);
}
