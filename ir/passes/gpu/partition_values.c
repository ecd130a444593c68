// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/partition_values.c: makes values that a unit uses, but does not compute, available
// in it.
//
// - Arithmetic on values of earlier units and views are declared again in the unit's prologue.
// - Any other value is stored into one element of global memory, its carrier, by the unit that
//   computes it. The prologue of the other unit loads it from there.
// - A local buffer at the host's level moves into the unit that uses it. It moves to global memory
//   if several units use it, or if its unit is in a loop and the buffer is not.
//
// A local buffer is never declared in the prologue. The prologue of a unit with guards becomes the
// head of the launch, whose declarations are the same for all threads, and the passes that create
// threads search for local buffers only in the content. Example:
//   if x[0] > 0.0 { alloc b in local;  for s in 0..3 { b[i] = ...;  z[i] = b[255 - i] } ... }
// `b` and its views are declared first in the unit's statements, inside the guard. There `share`
// finds that several threads use `b`, and moves it to shared memory.
#include "ir/passes/gpu/partition.h"

typedef struct import {
  qn__pass_builder_t* pb;
  qn__partition_unit_t* unit;
} import_t;

static bool import_slot(void* context, qn__ir_expr_t** slot);
static qn__ir_buffer_t* import_buffer(import_t* self, qn__ir_buffer_t* buffer);

// Returns the carrier of a value. The first call makes the unit that computes the value store it,
// directly after its declaration.
static qn__ir_buffer_t* carrier_of(import_t* self, qn__partition_value_t* device) {
  if (device->carrier) return device->carrier;
  qn__pass_builder_t* pb = self->pb;
  assert(device->unit && !device->is_repeated);
  qn__ir_var_t* var = qn__stmt_var(device->stmt);
  device->carrier = qn__pb_alloc(pb, &pb->globals, QN__SCOPE_GLOBAL, var->dtype, var->name, -1, -1);
  qn__ir_stmt_t* store = qn__pb_store(pb, device->carrier, NULL, NULL, qn__pb_use(pb, var));
  if (!store) return NULL;
  store->next = device->stmt->next;
  device->stmt->next = store;
  if (device->unit->stmts.last == device->stmt) device->unit->stmts.last = store;
  return device->carrier;
}

static qn__ir_var_t* import_var(import_t* self, qn__ir_var_t* var) {
  qn__pass_builder_t* pb = self->pb;
  qn__partition_value_t* device = var->user;
  qn__ir_var_t* here = qn__alias_find(self->unit->aliases, var);
  if (here) return here;
  qn__ir_expr_t* value;
  assert(device->unit != self->unit);  // its own values need no import
  if (device->is_repeated) {
    value = qn__pb_copy(pb, device->stmt->let.value);
    if (!value || !import_slot(self, &value)) return NULL;
  } else {
    value = qn__pb_load(pb, carrier_of(self, device), NULL, NULL);
  }
  here = qn__pb_let(pb, &self->unit->prologue, var->name, value);
  if (here) qn__alias_add(pb->arena, &self->unit->aliases, var, here);
  return here;
}

static qn__ir_buffer_t* import_view(import_t* self, const qn__partition_value_t* device) {
  qn__pass_builder_t* pb = self->pb;
  qn__partition_unit_t* unit = self->unit;
  const qn__ir_buffer_t* view = device->stmt->alloc.buffer;
  qn__ir_buffer_t* here = qn__alias_find(unit->aliases, view);
  if (here) return here;
  qn__ir_stmt_t* alloc = qn__stmt_copy(pb->arena, device->stmt);
  if (!alloc) return NULL;
  here = alloc->alloc.buffer;
  here->id = pb->buffer_count++;
  here->base = import_buffer(self, view->base);
  if (!here->base || !qn__stmt_each_expr(alloc, import_slot, self)) return NULL;
  bool is_local =
      unit->kind == QN__LAUNCH_STATEMENTS && qn__buf_root(here)->scope == QN__SCOPE_LOCAL;
  qn__block_append(is_local ? &unit->locals : &unit->prologue, alloc);
  qn__alias_add(pb->arena, &unit->aliases, view, here);
  return here;
}

static qn__ir_buffer_t* import_buffer(import_t* self, qn__ir_buffer_t* buffer) {
  qn__partition_value_t* device = buffer->user;
  if (!device) return buffer;
  if (device->is_repeated) return import_view(self, device);
  assert(buffer->scope == QN__SCOPE_LOCAL || buffer->scope == QN__SCOPE_SHARED);
  if (!device->unit) device->unit = self->unit;
  bool is_here = self->unit->kind == QN__LAUNCH_STATEMENTS && self->unit->home == device->home;
  if (device->unit != self->unit || !is_here) device->is_shared_between_units = true;
  return buffer;
}

static bool import_slot(void* context, qn__ir_expr_t** slot) {
  import_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR && expr->var->kind != QN__VAR_SYMBOL && expr->var->user) {
    // `user` is a device value or the mark of the host.
    const qn__partition_value_t* device = expr->var->user;
    if (!qn__host_knows(expr) && device->unit != self->unit) {
      expr->var = import_var(self, expr->var);
      if (!expr->var) return false;
    }
  }
  if (expr->kind == QN__EXPR_LOAD) {
    expr->load.buffer = import_buffer(self, expr->load.buffer);
    if (!expr->load.buffer) return false;
  }
  return qn__expr_each_child(expr, import_slot, self);
}

static void import_block(import_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt && !qn__pb_stopped(self->pb); stmt = stmt->next) {
    qn__ir_ref_t ref;
    if (!qn__stmt_each_expr(stmt, import_slot, self)) return;
    if (qn__stmt_ref(stmt, &ref)) *ref.buffer = import_buffer(self, *ref.buffer);
    QN__EACH_BLOCK(stmt, inner) import_block(self, inner);
  }
}

// ---- local buffers at the host's level

static bool place_buffer(void* context, const qn__ir_ref_t* ref) {
  const import_t* self = context;
  qn__partition_unit_t* unit = self->unit;
  qn__ir_buffer_t* buffer = qn__buf_root_mutable(*ref->buffer);
  const qn__partition_value_t* device = buffer->user;
  if (!device || buffer->scope != QN__SCOPE_LOCAL || !device->unit) return true;
  qn__ir_stmt_t* stmt = device->stmt;
  buffer->user = NULL;
  if (device->is_shared_between_units) {
    buffer->scope = QN__SCOPE_GLOBAL;
    qn__block_append(&self->pb->globals, stmt);
    return true;
  }
  assert(device->unit == unit && unit->kind == QN__LAUNCH_STATEMENTS && unit->home == device->home);
  // Views of the buffer must follow it.
  qn__ir_block_t views = unit->locals;
  unit->locals = qn__block_of(stmt);
  qn__block_splice(&unit->locals, &views);
  return true;
}

void qn__partition_import(qn__partition_t* partition) {
  qn__pass_builder_t* pb = partition->pb;
  for (qn__partition_unit_t* unit = partition->first; unit && !qn__pb_stopped(pb);
       unit = unit->next) {
    import_t self = {pb, unit};
    for (const qn__partition_guard_t* guard = unit->guards; guard; guard = guard->outer) {
      (void)import_var(&self, guard->var);
    }
    import_block(&self, &unit->stmts);
  }
  for (qn__partition_unit_t* unit = partition->first; unit && !qn__pb_stopped(pb);
       unit = unit->next) {
    import_t self = {pb, unit};
    (void)qn__block_each_ref(&unit->prologue, place_buffer, &self);
    (void)qn__block_each_ref(&unit->locals, place_buffer, &self);
    (void)qn__block_each_ref(&unit->stmts, place_buffer, &self);
    qn__block_splice(&unit->locals, &unit->stmts);
    unit->stmts = unit->locals;
  }
}
