// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/tile_sums.c: adds up the steps of the reduction whose operands are in shared
// memory.
#include "ir/passes/gpu/tile.h"

qn__ir_expr_t* qn__tile_load_acc(const qn__tile_writer_t* w, int64_t m, int64_t n) {
  if (w->tile->shape.stages) {
    int64_t tile = m / 2 * (w->tile->shape.outputs[QN__PRODUCT_COLUMN] / 2) + n / 2;
    int64_t at = tile * QN__TENSOR_SUMS + m % 2 * 2 + n % 2;
    return qn__pb_load(w->pb, w->acc, qn__pb_int(w->pb, at), NULL);
  }
  return qn__pb_load(w->pb, w->acc, qn__pb_int(w->pb, m), qn__pb_int(w->pb, n));
}

// Appends the sums of a thread for step `k` of the tile.
static void write_step(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* done,
                       qn__ir_var_t* k) {
  qn__pass_builder_t* pb = w->pb;
  qn__tile_t* tile = w->tile;
  qn__ir_var_t* elements[qn__product_max_operands][qn__tile_max_outputs] = {{NULL}};
  for (uint32_t o = 0; o < w->product->operand_count; ++o) {
    const qn__product_operand_t* operand = &w->product->operands[o];
    assert(tile->shape.outputs[operand->side] <= qn__tile_max_outputs);
    for (int64_t m = 0; m < tile->shape.outputs[operand->side]; ++m) {
      qn__ir_expr_t* line = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, w->own[operand->side]),
                                          qn__tile_offset(tile, operand->side, m));
      elements[o][m] = qn__pb_let(pb, out, operand->side == QN__PRODUCT_ROW ? "a" : "b",
                                  qn__pb_load(pb, w->buffers[o], qn__pb_use(pb, k), line));
    }
  }
  if (qn__product_names_step(w->product)) {
    qn__product_set_step(w->product, out,
                         qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, done), qn__pb_use(pb, k)));
  }
  uint32_t both = qn__product_both(w->product);
  // Copies the lets of the reduction in order, for each sum if they depend on its place. Operands
  // are no longer part of their masks, so all lets are copied.
  for (int64_t m = 0; m < tile->shape.outputs[QN__PRODUCT_ROW]; ++m) {
    qn__product_set(w->product, w->product->side_dims[QN__PRODUCT_ROW],
                    w->places[QN__PRODUCT_ROW][m].now);
    for (int64_t n = 0; n < tile->shape.outputs[QN__PRODUCT_COLUMN]; ++n) {
      qn__product_set(w->product, w->product->side_dims[QN__PRODUCT_COLUMN],
                      w->places[QN__PRODUCT_COLUMN][n].now);
      for (uint32_t o = 0; o < w->product->operand_count; ++o) {
        const qn__product_operand_t* operand = &w->product->operands[o];
        w->product->names[operand->name].now =
            qn__pb_use(pb, elements[o][operand->side == QN__PRODUCT_ROW ? m : n]);
      }
      qn__product_write_lets(w->product, out, w->product->is_needed, both | QN__PRODUCT_STEP, 0);
      qn__ir_expr_t* term = qn__product_copy(w->product, *w->product->summand);
      qn__ir_expr_t* sum = qn__product_add(w->product, qn__tile_load_acc(w, m, n), term);
      qn__pb_append(out, qn__pb_store(pb, w->acc, qn__pb_int(pb, m), qn__pb_int(pb, n), sum));
    }
  }
}

static void write_steps(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* done,
                        qn_loop_kind_t kind, qn__ir_expr_t* count) {
  qn__ir_stmt_t* loop = qn__pb_count_loop(w->pb, kind, "k", count);
  if (!loop) return;
  write_step(w, &loop->loop.body, done, loop->loop.var);
  qn__block_append(out, loop);
}

void qn__tile_write_sums(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* done) {
  qn__pass_builder_t* pb = w->pb;
  int64_t depth = w->tile->shape.depth;
  qn_loop_kind_t kind = w->tile->shape.is_unrolled ? QN_LOOP_UNROLL : QN_LOOP_SERIAL;
  if (w->has_even_steps) {
    write_steps(w, out, done, kind, qn__pb_int(pb, depth));
    return;
  }
  qn__ir_var_t* left = qn__pb_let(
      pb, out, "left", qn__pb_op(pb, QN_OP_SUB, qn__pb_copy(pb, w->steps), qn__pb_use(pb, done)));
  if (!w->tile->shape.is_unrolled) {
    write_steps(w, out, done, kind, qn__pb_op_int(pb, QN_OP_MIN, qn__pb_use(pb, left), depth));
    return;
  }
  qn__ir_expr_t* is_whole = qn__pb_op_int(pb, QN_OP_GE, qn__pb_use(pb, left), depth);
  qn__ir_stmt_t* test = qn__pb_if(pb, is_whole, (qn__ir_block_t){NULL, NULL});
  if (!test) return;
  write_steps(w, &test->if_.then_block, done, kind, qn__pb_int(pb, depth));
  write_steps(w, &test->if_.else_block, done, QN_LOOP_SERIAL, qn__pb_use(pb, left));
  qn__block_append(out, test);
}
