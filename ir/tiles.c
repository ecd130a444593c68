// SPDX-License-Identifier: Apache-2.0
// ir/tiles.c: see tiles.h.
#include "ir/tiles.h"

// Returns true if the buffer is a local one with two dimensions of which one is `extent`.
static bool is_packed(const qn__ir_buffer_t* buffer, uint32_t dim, int64_t extent) {
  return buffer && buffer->scope == QN__SCOPE_LOCAL && buffer->rank == 2 &&
         buffer->shape[dim]->kind == QN__EXPR_INT && buffer->shape[dim]->int_value == extent;
}

const char* qn__tiles_problem(const qn__ir_tensor_t* tensor) {
  if (tensor->ref_count != QN__TENSOR_REFS || !tensor->operand) return "that lacks an operand";
  const qn__ir_buffer_t* sums = tensor->refs[0].buffer;
  const qn__ir_buffer_t* rows = tensor->refs[1].buffer;
  const qn__ir_buffer_t* columns = tensor->refs[2].buffer;
  for (int i = 0; i < QN__TENSOR_REFS; ++i) {
    if (!tensor->extents[i]) return "without extents";
  }
  if (!sums || sums->scope != QN__SCOPE_LOCAL || sums->rank != 1) return "without sums";
  if (!is_packed(rows, 0, QN__TILES_ROWS) || !is_packed(columns, 1, QN__TILES_COLUMNS)) {
    return "whose operand is not packed";
  }
  bool is_float = tensor->dot == QN__OP_DOT_BF16_FAST;
  bool is_int =
      tensor->dot == QN__OP_DOT_SS || tensor->dot == QN__OP_DOT_UU || tensor->dot == QN__OP_DOT_US;
  if (!is_float && !is_int) return "of an operator that tiles do not have";
  bool fits = sums->dtype == (is_float ? QN_DTYPE_F32 : QN_DTYPE_I32) &&
              rows->dtype == (is_float ? QN_DTYPE_I16 : QN_DTYPE_I8) &&
              columns->dtype == QN_DTYPE_I32;
  return fits ? NULL : "of dtypes that cannot be multiplied";
}
