// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/tile_fill.c: loads the operands of a round into shared memory. Each thread loads
// some elements. Follows the rules 1, 3 and 4 of tile_write.c.
#include "ir/passes/gpu/tile.h"

qn__ir_expr_t* qn__tile_at_most(qn__pass_builder_t* pb, qn__ir_expr_t* value,
                                const qn__ir_expr_t* extent) {
  return qn__pb_op(pb, QN_OP_MIN, value, qn__pb_op_int(pb, QN_OP_ADD, qn__pb_copy(pb, extent), -1));
}

qn__tile_stride_t qn__tile_write_stride(qn__tile_writer_t* w, qn__ir_block_t* out,
                                        const qn__product_operand_t* operand) {
  qn__pass_builder_t* pb = w->pb;
  const qn__tile_t* tile = w->tile;
  bool is_along = operand->runs_along_step;
  int64_t fast = is_along ? tile->shape.depth : qn__tile_extent(tile, operand->side);
  qn__tile_stride_t stride = {NULL, NULL, 0, 0};
  qn__ir_expr_t* inner = qn__pb_op_int(pb, QN_OP_FLOORMOD, qn__pb_use(pb, w->t), fast);
  qn__ir_expr_t* outer = qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__pb_use(pb, w->t), fast);
  stride.step = qn__pb_let(pb, out, "step", is_along ? inner : outer);
  stride.line = qn__pb_let(pb, out, "line", is_along ? outer : inner);
  assert(tile->shape.threads % fast == 0);  // so one of the two stays the same
  *(is_along ? &stride.line_by : &stride.step_by) = tile->shape.threads / fast;
  return stride;
}

// Returns the operand's value for element `round` of this thread.
static qn__ir_var_t* write_element(qn__tile_writer_t* w, qn__ir_block_t* out,
                                   qn__product_operand_t* operand, const qn__tile_stride_t* stride,
                                   qn__ir_var_t* done, int64_t round) {
  qn__pass_builder_t* pb = w->pb;
  qn__product_side_t side = operand->side;
  // Either line or step changes; the other keeps its value from the previous element.
  if (round == 0 || stride->line_by != 0) {
    qn__ir_expr_t* line = qn__pb_op(
        pb, QN_OP_ADD, qn__pb_use(pb, w->first[side]),
        qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, stride->line), round * stride->line_by));
    if (!w->is_exact[side]) line = qn__tile_at_most(pb, line, w->extent[side]);
    qn__ir_var_t* at = qn__pb_let(pb, out, "at", line);
    if (!at) return NULL;
    qn__product_place(w->product, out, w->product->side_dims[side], at);
  }
  if (round == 0 || stride->step_by != 0) {
    qn__ir_expr_t* step = qn__pb_op(
        pb, QN_OP_ADD, qn__pb_use(pb, done),
        qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, stride->step), round * stride->step_by));
    if (!w->has_even_steps) step = qn__tile_at_most(pb, step, w->steps);
    qn__product_set_step(w->product, out, step);
  }
  if (qn__pb_stopped(pb)) return NULL;
  qn__product_write_lets(w->product, out, operand->is_needed,
                         qn__product_both(w->product) | QN__PRODUCT_STEP, 0);
  return qn__pb_let(pb, out, side == QN__PRODUCT_ROW ? "a" : "b",
                    qn__product_copy(w->product, operand->value));
}

void qn__tile_fill(qn__tile_writer_t* w, qn__ir_block_t* out, const qn__tile_stride_t* strides,
                   qn__ir_var_t* done) {
  qn__pass_builder_t* pb = w->pb;
  qn__tile_t* tile = w->tile;
  qn__ir_var_t* elements[qn__product_max_operands][qn__tile_max_rounds] = {{NULL}};
  int64_t rounds[qn__product_max_operands];
  for (uint32_t o = 0; o < w->product->operand_count; ++o) {
    qn__product_operand_t* operand = &w->product->operands[o];
    rounds[o] = tile->shape.depth * qn__tile_extent(tile, operand->side) / tile->shape.threads;
    assert(rounds[o] <= qn__tile_max_rounds);
    for (int64_t r = 0; r < rounds[o]; ++r) {
      elements[o][r] = write_element(w, out, operand, &strides[o], done, r);
    }
  }
  qn__pb_barrier(pb, out);
  for (uint32_t o = 0; o < w->product->operand_count; ++o) {
    for (int64_t r = 0; r < rounds[o]; ++r) {
      qn__ir_expr_t* step = qn__pb_use(pb, strides[o].step);
      qn__ir_expr_t* line = qn__pb_use(pb, strides[o].line);
      step = qn__pb_op_int(pb, QN_OP_ADD, step, r * strides[o].step_by);
      line = qn__pb_op_int(pb, QN_OP_ADD, line, r * strides[o].line_by);
      qn__pb_append(out,
                    qn__pb_store(pb, w->buffers[o], step, line, qn__pb_use(pb, elements[o][r])));
    }
  }
  qn__pb_barrier(pb, out);
}
