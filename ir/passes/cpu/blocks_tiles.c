// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks_tiles.c: the kernel of products of small numbers in tile registers
// (ir/tiles.h).
#include "ir/passes/cpu/blocks_dots.h"
#include "ir/tiles.h"

static bool set_ref(qn__pass_builder_t* pb, qn__ir_tensor_ref_t* ref, qn__ir_buffer_t* buffer,
                    qn__ir_expr_t* first) {
  if (!buffer || !first) return false;
  qn__ir_expr_t** at = qn__arena_alloc_array(pb->arena, buffer->rank, sizeof *at);
  if (!at) return false;
  at[0] = first;
  for (uint32_t d = 1; d < buffer->rank; ++d) at[d] = qn__pb_int(pb, 0);
  *ref = (qn__ir_tensor_ref_t){buffer, at};
  return true;
}

void qn__blocks_write_tiles(qn__blocks_writer_t* w, qn__ir_block_t* out, const qn__ir_expr_t* row,
                            const qn__ir_expr_t* left, const qn__ir_expr_t* panels,
                            const qn__blocks_steps_t* steps) {
  qn__pass_builder_t* pb = w->pb;
  const qn__blocks_shape_t* shape = w->shape;
  qn__ir_tensor_t* tensor = QN__ARENA_NEW(pb->arena, qn__ir_tensor_t);
  qn__ir_stmt_t* stmt = qn__stmt_new(pb->arena, QN__STMT_TENSOR, (qn__ir_loc_t){0, 0});
  if (!tensor || !stmt) return;
  *tensor = (qn__ir_tensor_t){.kind = QN__TENSOR_TILES,
                              .ref_count = QN__TENSOR_REFS,
                              .count = (uint32_t)shape->columns,
                              .depth = (uint32_t)shape->words,
                              .dot = shape->dot.op,
                              .takes_column = shape->dot.takes_column};
  bool is_row_first = w->product->operands[0].side == QN__PRODUCT_ROW;
  qn__ir_expr_t* place = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_copy(pb, row), shape->columns);
  if (!set_ref(pb, &tensor->refs[0], w->acc, place) ||
      !set_ref(pb, &tensor->refs[1], w->packed[!is_row_first], qn__pb_int(pb, 0)) ||
      !set_ref(pb, &tensor->refs[2], w->packed[is_row_first], qn__pb_int(pb, 0))) {
    return;
  }
  tensor->extents[0] = qn__pb_copy(pb, left);
  tensor->extents[1] = qn__pb_copy(pb, panels);
  tensor->extents[2] = qn__blocks_dot_padded(w, steps->count);
  // The steps before this block.
  tensor->operand = qn__pb_copy(pb, steps->first);
  if (!tensor->extents[0] || !tensor->extents[1] || !tensor->extents[2] || !tensor->operand) return;
  stmt->tensor = tensor;
  qn__block_append(out, stmt);
}
