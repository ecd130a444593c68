// SPDX-License-Identifier: Apache-2.0
// ir/tensor.c: see tensor.h.
#include "ir/tensor.h"

#include <string.h>

#include "ir/tiles.h"

qn_dtype_t qn__tensor_sum_dtype(qn_dtype_t rows, qn_dtype_t columns) {
  if (!qn__tensor_steps(rows) || !qn__tensor_steps(columns)) return QN_DTYPE_NONE;
  bool is_int = qn__dtype_is_int(rows);
  if (is_int) return qn__dtype_is_int(columns) ? QN_DTYPE_I32 : QN_DTYPE_NONE;
  return rows == columns ? QN_DTYPE_F32 : QN_DTYPE_NONE;
}

float qn__tensor_round(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  bool is_finite = (bits & 0x7f800000u) != 0x7f800000u;
  if (is_finite) bits += 0x1000u;  // may become infinite, as an overflow does
  bool is_nan = !is_finite && (bits & 0x007fffffu) != 0;
  bits &= ~0x1fffu;
  if (is_nan) bits |= 0x00400000u;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Returns the chunks of a row of a swizzled buffer; 0: it is none.
static int64_t chunks_of(const qn__ir_buffer_t* buffer) {
  if (buffer->scope != QN__SCOPE_SHARED || buffer->rank != 2) return 0;
  const qn__ir_expr_t* extent = buffer->shape[1];
  if (extent->kind != QN__EXPR_INT || extent->int_value <= 0 || extent->int_value > 1 << 20) {
    return 0;
  }
  int64_t bytes = extent->int_value * (int64_t)qn_dtype_size_bytes(buffer->dtype);
  int64_t chunks = bytes / QN__TENSOR_CHUNK_BYTES;
  bool is_even = bytes % QN__TENSOR_CHUNK_BYTES == 0 && chunks >= 2 && (chunks & (chunks - 1)) == 0;
  return is_even ? chunks : 0;
}

static const char* copy_problem(const qn__ir_tensor_t* tensor) {
  const qn__ir_buffer_t* to = tensor->refs[0].buffer;
  const qn__ir_buffer_t* from = tensor->refs[1].buffer;
  if (tensor->ref_count != 2 || !to || !from || !tensor->operand) return "that copies nothing";
  qn__ir_scope_t scope = qn__buf_root(from)->scope;
  if (to->scope != QN__SCOPE_SHARED || to->rank != 2 || from->rank == 0 ||
      (scope != QN__SCOPE_PARAM && scope != QN__SCOPE_GLOBAL)) {
    return "that copies between other kinds of memory";
  }
  bool is_chunk = tensor->count * qn_dtype_size_bytes(to->dtype) == QN__TENSOR_CHUNK_BYTES;
  return to->dtype == from->dtype && is_chunk ? NULL : "that copies no 16 bytes";
}

static const char* multiply_problem(const qn__ir_tensor_t* tensor) {
  if (tensor->ref_count != 3 || !tensor->operand) return "that lacks an operand";
  const qn__ir_buffer_t* sums = tensor->refs[0].buffer;
  if (!sums || sums->scope != QN__SCOPE_LOCAL || sums->rank != 1) return "without sums";
  int64_t count = (int64_t)tensor->tiles[0] * tensor->tiles[1] * QN__TENSOR_SUMS;
  const qn__ir_expr_t* extent = sums->shape[0];
  if (count <= 0 || tensor->tiles[1] % 2 != 0 || extent->kind != QN__EXPR_INT ||
      extent->int_value != count) {
    return "with another number of sums than its tiles";
  }
  for (int s = 0; s < 2; ++s) {
    const qn__ir_buffer_t* operand = tensor->refs[s + 1].buffer;
    if (!operand || !chunks_of(operand)) return "whose operand is not in swizzled memory";
    uint32_t steps = qn__tensor_steps(operand->dtype);
    if (steps == 0 || tensor->depth == 0 || tensor->depth % steps != 0) return "of other steps";
    if (tensor->is_warpgroup &&
        (chunks_of(operand) != QN__TENSOR_GROUP_CHUNKS || operand->dtype == QN_DTYPE_F32)) {
      return "whose operand no warpgroup can read";
    }
    // Only matrices of 16-bit elements are transposed while they are loaded.
    if (tensor->is_across[s] && qn_dtype_size_bytes(operand->dtype) != 2) return "across";
  }
  if (tensor->is_warpgroup &&
      (tensor->tiles[0] != 1 || tensor->tiles[1] % 8 != 0 || tensor->tiles[1] > 32)) {
    return "of other tiles than a warpgroup has";
  }
  qn_dtype_t sum =
      qn__tensor_sum_dtype(tensor->refs[1].buffer->dtype, tensor->refs[2].buffer->dtype);
  return sum != QN_DTYPE_NONE && sum == sums->dtype ? NULL : "of dtypes that cannot be multiplied";
}

static const char* product_problem(const qn__ir_tensor_t* tensor) {
  if (tensor->ref_count != 3 || !tensor->operand) return "that lacks an operand";
  for (int i = 0; i < QN__TENSOR_REFS; ++i) {
    const qn__ir_buffer_t* buffer = tensor->refs[i].buffer;
    if (!tensor->extents[i]) return "without extents";
    if (!buffer || buffer->dtype != QN_DTYPE_F32) return "of dtypes that cannot be multiplied";
    if (buffer->rank < 2 || tensor->dims[i] + 1 >= buffer->rank) return "of no matrices";
  }
  return NULL;
}

const char* qn__tensor_problem(const qn__ir_tensor_t* tensor) {
  switch (tensor->kind) {
    case QN__TENSOR_COPY:
      return copy_problem(tensor);
    case QN__TENSOR_WAIT:
      return tensor->ref_count == 0 && !tensor->operand ? NULL : "that waits with operands";
    case QN__TENSOR_MULTIPLY:
      return multiply_problem(tensor);
    case QN__TENSOR_FINISH:
      return tensor->ref_count == 1 && tensor->refs[0].buffer ? NULL : "that finishes no sums";
    case QN__TENSOR_PRODUCT:
      return product_problem(tensor);
    case QN__TENSOR_TILES:
      return qn__tiles_problem(tensor);
  }
  return "of an unknown kind";
}
