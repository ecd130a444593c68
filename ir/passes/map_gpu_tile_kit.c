// ir/passes/map_gpu_tile_kit.c: the nodes that a tile's launch is made of, and copies of the
// program's own in which its variables have the values of one place. Thread rule: one thread per
// body. Read next: map_gpu_tile_write.c.
#include "ir/passes/map_gpu_tile_write.h"

// ---- nodes

qn__ir_expr_t* qn__tile_add(qn__gmap_t* map, qn__ir_expr_t* a, int64_t b) {
  return qn__gmap_op(map, QN_OP_ADD, a, qn__gmap_int(map, b));
}
qn__ir_expr_t* qn__tile_by(qn__gmap_t* map, qn_op_t op, qn__ir_var_t* var, int64_t b) {
  return qn__gmap_op(map, op, qn__gmap_use(map, var), qn__gmap_int(map, b));
}

// A value of a name, or a literal: cheap to copy.
qn__ir_expr_t* qn__tile_named(qn__gmap_t* map, qn__ir_block_t* out, const char* name,
                              qn__ir_expr_t* value) {
  if (!value || value->kind == QN__EXPR_INT) return value;
  return qn__gmap_use(map, qn__gmap_let(map, out, name, value));
}

qn__ir_buffer_t* qn__tile_allocate(qn__gmap_t* map, qn__ir_block_t* out, qn__ir_scope_t scope,
                                   qn_dtype_t dtype, const char* name, int64_t rows,
                                   int64_t columns) {
  qn__ir_buffer_t* buffer = qn__gmap_buffer(map, scope, dtype, name, 2);
  qn__ir_stmt_t* alloc = qn__stmt_new(map->arena, QN__STMT_ALLOC, (qn__ir_loc_t){0, 0});
  if (!buffer || !alloc) return NULL;
  buffer->shape[0] = qn__gmap_int(map, rows);
  buffer->shape[1] = qn__gmap_int(map, columns);
  alloc->alloc.buffer = buffer;
  if (!buffer->shape[0] || !buffer->shape[1]) return NULL;
  qn__block_append(out, alloc);
  return buffer;
}

static qn__ir_expr_t** two(qn__gmap_t* map, qn__ir_expr_t* a, qn__ir_expr_t* b) {
  qn__ir_expr_t** indices = qn__arena_alloc_array(map->arena, 2, sizeof *indices);
  if (!indices || !a || !b) return NULL;
  indices[0] = a;
  indices[1] = b;
  return indices;
}

void qn__tile_store(qn__gmap_t* map, qn__ir_block_t* out, qn__ir_buffer_t* buffer, qn__ir_expr_t* a,
                    qn__ir_expr_t* b, qn__ir_expr_t* value) {
  qn__ir_stmt_t* stmt = qn__stmt_new(map->arena, QN__STMT_STORE, (qn__ir_loc_t){0, 0});
  qn__ir_expr_t** indices = two(map, a, b);
  if (!stmt || !indices || !value) return;
  stmt->store.buffer = buffer;
  stmt->store.indices = indices;
  stmt->store.value = value;
  qn__block_append(out, stmt);
}

qn__ir_expr_t* qn__tile_load(qn__gmap_t* map, qn__ir_buffer_t* buffer, qn__ir_expr_t* a,
                             qn__ir_expr_t* b) {
  qn__ir_expr_t** indices = two(map, a, b);
  qn__ir_expr_t* expr = buffer && indices ? qn__expr_new(map->arena, QN__EXPR_LOAD, buffer->dtype,
                                                         (qn__ir_loc_t){0, 0})
                                          : NULL;
  if (!expr) return NULL;
  expr->load.buffer = buffer;
  expr->load.indices = indices;
  return expr;
}

qn__ir_expr_t* qn__tile_load_acc(const qn__tile_writer_t* w, int64_t m, int64_t n) {
  return qn__tile_load(w->map, w->acc, qn__gmap_int(w->map, m), qn__gmap_int(w->map, n));
}

qn__ir_expr_t* qn__tile_at_most(qn__gmap_t* map, qn__ir_expr_t* value,
                                const qn__ir_expr_t* extent) {
  return qn__gmap_op(map, QN_OP_MIN, value, qn__tile_add(map, qn__gmap_copy(map, extent), -1));
}

// ---- what names stand for

qn__ir_expr_t* qn__tile_now_of(qn__ir_subst_t* subst, qn__ir_var_t* var) {
  const qn__tile_t* tile = subst->self;
  int name = qn__tile_find(tile, var);
  return name < 0 ? NULL : tile->names[name].now;
}

qn__ir_expr_t* qn__tile_copy_now(const qn__tile_writer_t* w, const qn__ir_expr_t* expr) {
  qn__ir_subst_t subst = {.on_var = qn__tile_now_of, .arena = w->map->arena, .self = w->tile};
  return expr ? qn__expr_clone(&subst, expr) : NULL;
}

void qn__tile_write_let(qn__tile_writer_t* w, qn__ir_block_t* out, qn__tile_name_t* name) {
  qn__ir_expr_t* value = qn__tile_copy_now(w, name->let->let.value);
  name->now = qn__gmap_use(w->map, qn__gmap_let(w->map, out, name->var->name, value));
}

// Copies of the lets among `is_needed` that depend on something in `any`, and on nothing in `none`.
void qn__tile_write_lets(qn__tile_writer_t* w, qn__ir_block_t* out, const bool* is_needed,
                         uint32_t any, uint32_t none) {
  qn__tile_t* tile = w->tile;
  for (uint32_t i = 0; i < tile->name_count; ++i) {
    qn__tile_name_t* name = &tile->names[i];
    if (!name->let || !is_needed[i] || (name->mask & none)) continue;
    if ((name->mask & any) || any == 0) qn__tile_write_let(w, out, name);
  }
}

uint32_t qn__tile_inner_mask(const qn__tile_t* tile) {
  return tile->side_dims[QN__TILE_ROW] | tile->side_dims[QN__TILE_COLUMN] | QN__TILE_STEP;
}

// The loops in `dims` at `index`, a variable of their index space.
void qn__tile_write_place(qn__tile_writer_t* w, qn__ir_block_t* out, uint32_t dims,
                          qn__ir_var_t* index, qn__ir_expr_t** out_now) {
  qn__gmap_t* map = w->map;
  qn__gmap_nest_t* nest = w->tile->nest;
  uint32_t left = dims;
  qn__ir_expr_t* rest = qn__gmap_use(map, index);
  for (uint32_t p = nest->count; p-- > 0;) {
    uint32_t d = nest->order[p];
    if (!(dims >> d & 1)) continue;
    left &= ~(1U << d);
    const qn__ir_stmt_t* loop = nest->loops[d];
    qn__ir_expr_t* value = rest;
    if (left) {
      qn__ir_expr_t* extent = qn__gmap_extent(map, loop);
      value = qn__gmap_op(map, QN_OP_FLOORMOD, rest, extent);
      qn__ir_expr_t* quotient =
          qn__gmap_op(map, QN_OP_FLOORDIV, qn__gmap_copy(map, rest), qn__gmap_copy(map, extent));
      rest = qn__tile_named(map, out, "rest", quotient);
    }
    value = qn__gmap_op(map, QN_OP_ADD, qn__gmap_copy(map, loop->loop.begin), value);
    qn__ir_expr_t* use = qn__tile_named(map, out, loop->loop.var->name, value);
    if (!use) return;
    out_now[d] = use;
  }
}

void qn__tile_set_now(qn__tile_writer_t* w, uint32_t dims, qn__ir_expr_t* const* now) {
  for (uint32_t d = 0; d < w->tile->nest->count; ++d) {
    if (dims >> d & 1) w->tile->names[d].now = now[d];
  }
}
