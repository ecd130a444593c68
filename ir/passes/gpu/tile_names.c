// ir/passes/gpu/tile_names.c: copies of the program's expressions in which its variables have the
// values of one place of a tile.
#include "ir/passes/gpu/tile.h"

qn__ir_expr_t* qn__tile_named(qn__pass_builder_t* pb, qn__ir_block_t* out, const char* name,
                              qn__ir_expr_t* value) {
  if (!value || value->kind == QN__EXPR_INT) return value;
  return qn__pb_use(pb, qn__pb_let(pb, out, name, value));
}

qn__ir_expr_t* qn__tile_load_acc(const qn__tile_writer_t* w, int64_t m, int64_t n) {
  return qn__pb_load(w->pb, w->acc, qn__pb_int(w->pb, m), qn__pb_int(w->pb, n));
}

qn__ir_expr_t* qn__tile_at_most(qn__pass_builder_t* pb, qn__ir_expr_t* value,
                                const qn__ir_expr_t* extent) {
  return qn__pb_op(pb, QN_OP_MIN, value, qn__pb_op_int(pb, QN_OP_ADD, qn__pb_copy(pb, extent), -1));
}

qn__ir_expr_t* qn__tile_now_of(qn__ir_subst_t* subst, qn__ir_var_t* var) {
  const qn__product_t* product = subst->self;
  int name = qn__product_name(product, var);
  return name < 0 ? NULL : product->names[name].now;
}

qn__ir_expr_t* qn__tile_copy_now(const qn__tile_writer_t* w, const qn__ir_expr_t* expr) {
  qn__ir_subst_t subst = {.on_var = qn__tile_now_of, .arena = w->pb->arena, .self = w->product};
  return expr ? qn__expr_clone(&subst, expr) : NULL;
}

void qn__tile_write_let(qn__tile_writer_t* w, qn__ir_block_t* out, qn__product_name_t* name) {
  assert(name->let && !(name->mask & QN__PRODUCT_FIXED));
  qn__ir_expr_t* value = qn__tile_copy_now(w, name->let->let.value);
  name->now = qn__pb_use(w->pb, qn__pb_let(w->pb, out, name->var->name, value));
}

void qn__tile_write_lets(qn__tile_writer_t* w, qn__ir_block_t* out, const bool* is_needed,
                         uint32_t any, uint32_t none) {
  for (uint32_t i = 0; i < w->product->name_count; ++i) {
    qn__product_name_t* name = &w->product->names[i];
    if (!name->let || !is_needed[i] || (name->mask & none)) continue;
    if ((name->mask & any) || any == 0) qn__tile_write_let(w, out, name);
  }
}

void qn__tile_write_place(qn__tile_writer_t* w, qn__ir_block_t* out, uint32_t dims,
                          qn__ir_var_t* index, qn__ir_expr_t** out_now) {
  qn__pass_builder_t* pb = w->pb;
  qn__nest_t* nest = w->product->nest;
  uint32_t left = dims;
  qn__ir_expr_t* rest = qn__pb_use(pb, index);
  for (uint32_t p = nest->count; p-- > 0;) {
    uint32_t d = nest->order[p];
    if (!(dims >> d & 1)) continue;
    left &= ~(1U << d);
    const qn__ir_stmt_t* loop = nest->loops[d];
    qn__ir_expr_t* value = rest;
    if (left) {
      qn__ir_expr_t* extent = qn__pb_extent(pb, loop);
      value = qn__pb_op(pb, QN_OP_FLOORMOD, rest, extent);
      rest = qn__pb_op(pb, QN_OP_FLOORDIV, qn__pb_copy(pb, rest), qn__pb_copy(pb, extent));
      rest = qn__tile_named(pb, out, "rest", rest);
    }
    value = qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, loop->loop.begin), value);
    qn__ir_expr_t* use = qn__tile_named(pb, out, loop->loop.var->name, value);
    if (!use) return;
    out_now[d] = use;
  }
}

void qn__tile_set_now(qn__tile_writer_t* w, uint32_t dims, qn__ir_expr_t* const* now) {
  for (uint32_t d = 0; d < w->product->nest->count; ++d) {
    if (dims >> d & 1) w->product->names[d].now = now[d];
  }
}

void qn__tile_set_step(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* step) {
  qn__product_name_t* name = &w->product->names[w->product->step];
  step = qn__pb_op(w->pb, QN_OP_ADD, qn__pb_copy(w->pb, w->begin), step);
  name->now = qn__tile_named(w->pb, out, name->var->name, step);
}
