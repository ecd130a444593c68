// ir/passes/map_gpu_tile_fill.c: a round of a tile brings its operands to shared memory, each
// thread some elements. The rules 1, 3 and 4 of map_gpu_tile_write.c are kept here. Thread rule:
// one thread per body. Read next: map_gpu_tile_sums.c.
#include "ir/passes/map_gpu_tile_write.h"

qn__tile_stride_t qn__tile_write_stride(qn__tile_writer_t* w, qn__ir_block_t* out,
                                        const qn__tile_operand_t* operand) {
  qn__gmap_t* map = w->map;
  const qn__tile_t* tile = w->tile;
  bool is_along = operand->runs_along_step;
  int64_t fast = is_along ? tile->shape.depth : qn__tile_extent(tile, operand->side);
  qn__tile_stride_t stride = {NULL, NULL, 0, 0};
  qn__ir_expr_t* inner = qn__tile_by(map, QN_OP_FLOORMOD, w->t, fast);
  qn__ir_expr_t* outer = qn__tile_by(map, QN_OP_FLOORDIV, w->t, fast);
  stride.step = qn__gmap_let(map, out, "step", is_along ? inner : outer);
  stride.line = qn__gmap_let(map, out, "line", is_along ? outer : inner);
  *(is_along ? &stride.line_by : &stride.step_by) = tile->shape.threads / fast;
  return stride;
}

// The operand's value for element `round` of this thread.
static qn__ir_var_t* write_element(qn__tile_writer_t* w, qn__ir_block_t* out,
                                   qn__tile_operand_t* operand, const qn__tile_stride_t* stride,
                                   qn__ir_var_t* done, int64_t round) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  qn__tile_side_t side = operand->side;
  // Of line and step one moves; the other is what it was for the element before.
  if (round == 0 || stride->line_by != 0) {
    qn__ir_expr_t* line =
        qn__gmap_op(map, QN_OP_ADD, qn__gmap_use(map, w->first[side]),
                    qn__tile_add(map, qn__gmap_use(map, stride->line), round * stride->line_by));
    if (!w->is_exact[side]) line = qn__tile_at_most(map, line, w->extent[side]);
    qn__ir_var_t* at = qn__gmap_let(map, out, "at", line);
    if (!at) return NULL;
    qn__ir_expr_t* now[qn__gmap_max_nest] = {NULL};
    qn__tile_write_place(w, out, tile->side_dims[side], at, now);
    qn__tile_set_now(w, tile->side_dims[side], now);
  }
  if (round == 0 || stride->step_by != 0) {
    qn__ir_expr_t* step =
        qn__gmap_op(map, QN_OP_ADD, qn__gmap_use(map, done),
                    qn__tile_add(map, qn__gmap_use(map, stride->step), round * stride->step_by));
    if (!w->has_even_steps) step = qn__tile_at_most(map, step, w->steps);
    step = qn__gmap_op(map, QN_OP_ADD, qn__gmap_copy(map, w->begin), step);
    tile->names[tile->step].now = qn__tile_named(map, out, tile->names[tile->step].var->name, step);
  }
  if (qn__gmap_stopped(map)) return NULL;
  qn__tile_write_lets(w, out, operand->is_needed, qn__tile_inner_mask(tile), 0);
  return qn__gmap_let(map, out, side == QN__TILE_ROW ? "a" : "b",
                      qn__tile_copy_now(w, operand->value));
}

static void write_barrier(qn__gmap_t* map, qn__ir_block_t* out) {
  qn__gmap_append(out, qn__stmt_new(map->arena, QN__STMT_BARRIER, (qn__ir_loc_t){0, 0}));
}

void qn__tile_fill(qn__tile_writer_t* w, qn__ir_block_t* out, const qn__tile_stride_t* strides,
                   qn__ir_var_t* done) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  qn__ir_var_t* elements[qn__tile_max_operands][qn__tile_max_rounds] = {{NULL}};
  int64_t rounds[qn__tile_max_operands];
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    qn__tile_operand_t* operand = &tile->operands[o];
    rounds[o] = tile->shape.depth * qn__tile_extent(tile, operand->side) / tile->shape.threads;
    for (int64_t r = 0; r < rounds[o]; ++r) {
      elements[o][r] = write_element(w, out, operand, &strides[o], done, r);
    }
  }
  write_barrier(map, out);
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    for (int64_t r = 0; r < rounds[o]; ++r) {
      qn__tile_store(map, out, tile->operands[o].tile,
                     qn__tile_add(map, qn__gmap_use(map, strides[o].step), r * strides[o].step_by),
                     qn__tile_add(map, qn__gmap_use(map, strides[o].line), r * strides[o].line_by),
                     qn__gmap_use(map, elements[o][r]));
    }
  }
  write_barrier(map, out);
}
