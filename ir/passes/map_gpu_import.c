// ir/passes/map_gpu_import.c: what a unit uses of the host's level that is not the host's.
//
// A sunk let or view is declared again in the unit's prologue. Any other value is stored by the
// unit that computes it into one element of global memory (its carrier), from which the prologue
// loads it. A local buffer at the host's level moves into the unit that uses it, or to global
// memory if there are several, or if the unit is in a loop that the buffer is not in. Thread rule:
// one thread per body. Read next: map_gpu_launch.c.
#include "ir/passes/map_gpu.h"

typedef struct import {
  qn__gmap_t* map;
  qn__gmap_unit_t* unit;
} import_t;

static bool import_slot(void* context, qn__ir_expr_t** slot);
static qn__ir_buffer_t* import_buffer(import_t* self, qn__ir_buffer_t* buffer);

static void* find_alias(const qn__gmap_unit_t* unit, const void* from) {
  for (const qn__gmap_alias_t* alias = unit->aliases; alias; alias = alias->next) {
    if (alias->from == from) return alias->to;
  }
  return NULL;
}

static void add_alias(import_t* self, const void* from, void* to) {
  qn__gmap_alias_t* alias = QN__ARENA_NEW(self->map->arena, qn__gmap_alias_t);
  if (!alias) return;
  *alias = (qn__gmap_alias_t){from, to, self->unit->aliases};
  self->unit->aliases = alias;
}

// Makes the unit that computes the value store it, right behind its declaration.
static qn__ir_buffer_t* carrier_of(import_t* self, qn__gmap_entity_t* entity) {
  if (entity->carrier) return entity->carrier;
  qn__gmap_t* map = self->map;
  qn__ir_var_t* var =
      entity->stmt->kind == QN__STMT_LET ? entity->stmt->let.var : entity->stmt->atomic.result;
  entity->carrier = qn__gmap_cell(map, &map->globals, QN__SCOPE_GLOBAL, var->dtype, var->name);
  qn__ir_stmt_t* store = qn__gmap_store(map, entity->carrier, qn__gmap_use(map, var));
  if (!store) return NULL;
  store->next = entity->stmt->next;
  entity->stmt->next = store;
  if (entity->unit->stmts.last == entity->stmt) entity->unit->stmts.last = store;
  return entity->carrier;
}

static qn__ir_var_t* import_var(import_t* self, qn__ir_var_t* var) {
  qn__gmap_t* map = self->map;
  qn__gmap_entity_t* entity = var->user;
  qn__ir_var_t* here = find_alias(self->unit, var);
  if (here) return here;
  qn__ir_expr_t* value;
  if (entity->is_sunk) {
    value = qn__gmap_copy(map, entity->stmt->let.value);
    if (!value || !import_slot(self, &value)) return NULL;
  } else {
    value = qn__gmap_load(map, carrier_of(self, entity));
  }
  here = qn__gmap_let(map, &self->unit->prologue, var->name, value);
  if (here) add_alias(self, var, here);
  return here;
}

static bool copy_exprs(import_t* self, qn__ir_expr_t*** inout_exprs, uint32_t count) {
  if (!*inout_exprs) return true;
  qn__ir_expr_t** copies = qn__arena_alloc_array(self->map->arena, count + 1U, sizeof *copies);
  if (!copies) return false;
  for (uint32_t i = 0; i < count; ++i) {
    copies[i] = qn__gmap_copy(self->map, (*inout_exprs)[i]);
    if (!copies[i] || !import_slot(self, &copies[i])) return false;
  }
  *inout_exprs = copies;
  return true;
}

static qn__ir_buffer_t* import_view(import_t* self, qn__ir_buffer_t* view) {
  qn__ir_buffer_t* here = find_alias(self->unit, view);
  if (here) return here;
  here = QN__ARENA_NEW(self->map->arena, qn__ir_buffer_t);
  qn__ir_stmt_t* alloc = qn__stmt_new(self->map->arena, QN__STMT_ALLOC, view->loc);
  if (!here || !alloc) return NULL;
  *here = *view;
  here->user = NULL;
  here->id = self->map->buffer_count++;
  here->base = import_buffer(self, view->base);
  if (!here->base || !copy_exprs(self, &here->shape, view->rank) ||
      !copy_exprs(self, &here->strides, view->rank) ||
      !copy_exprs(self, &here->base_indices, here->base->rank)) {
    return NULL;
  }
  alloc->alloc.buffer = here;
  qn__block_append(&self->unit->prologue, alloc);
  add_alias(self, view, here);
  return here;
}

static qn__ir_buffer_t* import_buffer(import_t* self, qn__ir_buffer_t* buffer) {
  if (!buffer) return NULL;
  qn__gmap_entity_t* entity = buffer->user;
  if (!entity) return buffer;
  if (entity->is_sunk) return import_view(self, buffer);
  if (!entity->unit) entity->unit = self->unit;
  bool is_here = self->unit->kind == QN__GMAP_GROUP && self->unit->home == entity->home;
  if (entity->unit != self->unit || !is_here) entity->is_wide = true;
  return buffer;
}

static bool import_slot(void* context, qn__ir_expr_t** slot) {
  import_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (!expr) return true;
  if (expr->kind == QN__EXPR_VAR && expr->var->kind != QN__VAR_SYMBOL && expr->var->user) {
    // An entity, or what the host computes.
    qn__ir_expr_t* probe = expr;
    const qn__gmap_entity_t* entity = expr->var->user;
    if (!qn__gmap_is_host(probe) && entity->unit != self->unit) {
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
  for (qn__ir_stmt_t* stmt = block->first; stmt && !qn__gmap_stopped(self->map);
       stmt = stmt->next) {
    if (!qn__stmt_each_expr(stmt, import_slot, self)) return;
    if (stmt->kind == QN__STMT_STORE) {
      stmt->store.buffer = import_buffer(self, stmt->store.buffer);
    }
    if (stmt->kind == QN__STMT_ATOMIC) {
      stmt->atomic.buffer = import_buffer(self, stmt->atomic.buffer);
    }
    if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_VIEW) {
      stmt->alloc.buffer->base = import_buffer(self, stmt->alloc.buffer->base);
    }
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) import_block(self, blocks[i]);
  }
}

// ---- local buffers at the host's level

typedef struct place {
  qn__gmap_t* map;
  qn__gmap_unit_t* unit;
} place_t;

static void place_buffer(place_t* self, qn__ir_buffer_t* buffer) {
  buffer = qn__buf_root_mutable(buffer);
  qn__gmap_entity_t* entity = buffer->user;
  if (!entity || buffer->scope != QN__SCOPE_LOCAL || !entity->unit) return;
  qn__ir_stmt_t* stmt = entity->stmt;
  buffer->user = NULL;
  if (entity->is_wide) {
    buffer->scope = QN__SCOPE_GLOBAL;
    qn__block_append(&self->map->globals, stmt);
    return;
  }
  qn__ir_block_t stmts = self->unit->prologue;
  // Views of it in the prologue stand behind it.
  self->unit->prologue = qn__block_of(stmt);
  qn__block_splice(&self->unit->prologue, &stmts);
}

static bool place_slot(void* self, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_LOAD) place_buffer(self, (*slot)->load.buffer);
  return qn__expr_each_child(*slot, place_slot, self);
}

static void place_block(place_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, place_slot, self);
    if (stmt->kind == QN__STMT_STORE) place_buffer(self, stmt->store.buffer);
    if (stmt->kind == QN__STMT_ATOMIC) place_buffer(self, stmt->atomic.buffer);
    if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_VIEW) {
      place_buffer(self, stmt->alloc.buffer->base);
    }
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) place_block(self, blocks[i]);
  }
}

void qn__gmap_import(qn__gmap_t* map) {
  for (qn__gmap_unit_t* unit = map->first; unit && !qn__gmap_stopped(map); unit = unit->next) {
    import_t self = {map, unit};
    for (const qn__gmap_guard_t* guard = unit->guards; guard; guard = guard->outer) {
      (void)import_var(&self, guard->var);
    }
    import_block(&self, &unit->stmts);
  }
  for (qn__gmap_unit_t* unit = map->first; unit && !qn__gmap_stopped(map); unit = unit->next) {
    place_t self = {map, unit};
    place_block(&self, &unit->prologue);
    place_block(&self, &unit->stmts);
  }
}
