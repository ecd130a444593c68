// SPDX-License-Identifier: Apache-2.0
// ir/interpret_tensor.c: runs TENSOR statements (ir/tensor.h), each thread for itself: a thread's
// sums are what its warp's multiplication leaves in its registers. PRODUCT and TILES have one
// thread.
//
// A copy is complete at once. Sums are added up step by step, in order, each rounded to the dtype
// of the sums. The fake driver runs what is printed for them, with copies that take their time.
#include <assert.h>

#include "ir/arith.h"
#include "ir/interpreter.h"
#include "ir/tensor.h"
#include "ir/tiles.h"

static void copy(qn__interpret_machine_t* machine, const qn__ir_tensor_t* tensor, uint32_t thread) {
  const qn__ir_tensor_ref_t *to = &tensor->refs[0], *from = &tensor->refs[1];
  int64_t size = (int64_t)qn_dtype_size_bytes(to->buffer->dtype);
  int64_t valid = qn__machine_eval(machine, tensor->operand, thread).i;
  uint8_t* target = qn__machine_address(machine, to->buffer, to->indices, thread);
  if (!target) return;
  bool is_whole = (int64_t)tensor->count <= qn__machine_reach(machine, to->buffer, thread, target);
  memset(target, 0, is_whole ? QN__TENSOR_CHUNK_BYTES : 0);
  if (valid > (int64_t)tensor->count) valid = tensor->count;
  if (valid > 0) {
    const uint8_t* source = qn__machine_address(machine, from->buffer, from->indices, thread);
    if (!source) return;
    is_whole &= valid <= qn__machine_reach(machine, from->buffer, thread, source);
    if (is_whole) memcpy(target, source, (size_t)(valid * size));
  }
  if (is_whole) return;
  (void)qn__machine_fail(machine, QN_STATUS_OUT_OF_BOUNDS,
                         "a copy from '%s' to '%s' leaves their memory", from->buffer->name,
                         to->buffer->name);
}

// An operand of a multiplication, for one thread.
typedef struct operand {
  const qn__ir_buffer_t* buffer;
  const uint8_t* begin;  // of the buffer
  int64_t row;
  int64_t column;
  bool is_across;
  int64_t panel_rows;  // 0: it has no panels
} operand_t;

static bool find_operand(qn__interpret_machine_t* machine, const qn__ir_tensor_t* tensor, int side,
                         uint32_t thread, operand_t* out) {
  const qn__ir_tensor_ref_t* ref = &tensor->refs[side + 1];
  const uint8_t* at = qn__machine_address(machine, ref->buffer, ref->indices, thread);
  if (!at) return false;
  *out = (operand_t){.buffer = ref->buffer, .is_across = tensor->is_across[side]};
  out->row = qn__machine_eval(machine, ref->indices[0], thread).i;
  out->column = qn__machine_eval(machine, ref->indices[1], thread).i;
  int64_t pitch = ref->buffer->shape[1]->int_value;
  int64_t size = (int64_t)qn_dtype_size_bytes(ref->buffer->dtype);
  out->begin = at - (out->row * pitch + out->column) * size;
  int64_t lines = tensor->tiles[side] * (side == 0 ? QN__TENSOR_ROWS : QN__TENSOR_COLUMNS);
  if (tensor->is_warpgroup && side == 0) lines *= QN__TENSOR_WARPS;
  int64_t rows = out->is_across ? tensor->depth : lines;
  int64_t columns = out->is_across ? lines : tensor->depth;
  if (tensor->is_warpgroup && out->is_across) {
    out->panel_rows = tensor->depth;
    rows *= (lines + pitch - 1) / pitch;
    columns = pitch;
  }
  if (out->row % 8 == 0 && out->column * size % QN__TENSOR_CHUNK_BYTES == 0 &&
      out->row + rows <= ref->buffer->shape[0]->int_value && out->column + columns <= pitch) {
    return true;
  }
  (void)qn__machine_fail(machine, QN_STATUS_OUT_OF_BOUNDS,
                         "a matrix at '%s'[%" PRId64 ", %" PRId64
                         "] is outside of it or not aligned",
                         ref->buffer->name, out->row, out->column);
  return false;
}

static qn__ir_scalar_t element(const operand_t* operand, int64_t line, int64_t step) {
  int64_t size = (int64_t)qn_dtype_size_bytes(operand->buffer->dtype);
  int64_t pitch = operand->buffer->shape[1]->int_value;
  int64_t row = operand->row + (operand->is_across ? step : line);
  int64_t column = operand->column + (operand->is_across ? line : step);
  if (operand->panel_rows) {
    row += line / pitch * operand->panel_rows;
    column -= line / pitch * pitch;
  }
  int64_t chunk = QN__TENSOR_CHUNK_BYTES / size;
  column ^= qn__tensor_phase(row, pitch / chunk) * chunk;
  qn__ir_scalar_t value =
      qn__machine_read(operand->buffer, operand->begin + (row * pitch + column) * size);
  if (operand->buffer->dtype == QN_DTYPE_F32) value.f = qn__tensor_round((float)value.f);
  return value;
}

static void multiply(qn__interpret_machine_t* machine, const qn__ir_tensor_t* tensor,
                     uint32_t thread) {
  operand_t rows, columns;
  const qn__ir_tensor_ref_t* sums = &tensor->refs[0];
  uint8_t* sum = qn__machine_address(machine, sums->buffer, sums->indices, thread);
  int64_t lane = qn__machine_eval(machine, tensor->operand, thread).i;
  if (!sum || !find_operand(machine, tensor, 0, thread, &rows) ||
      !find_operand(machine, tensor, 1, thread, &columns)) {
    return;
  }
  int64_t first = 0;
  if (tensor->is_warpgroup) {
    first = lane / 32 * QN__TENSOR_ROWS;
    lane %= 32;
  }
  assert(lane >= 0 && lane < 32 && first < (int64_t)QN__TENSOR_WARPS * QN__TENSOR_ROWS);
  bool is_float = sums->buffer->dtype == QN_DTYPE_F32;
  for (int64_t i = 0; i < (int64_t)tensor->tiles[0] * tensor->tiles[1] * QN__TENSOR_SUMS; ++i) {
    int64_t e = i % QN__TENSOR_SUMS, tile = i / QN__TENSOR_SUMS;
    int64_t row = first + tile / tensor->tiles[1] * QN__TENSOR_ROWS + qn__tensor_row(lane, e);
    int64_t column = tile % tensor->tiles[1] * QN__TENSOR_COLUMNS + qn__tensor_column(lane, e);
    uint8_t* address = sum + i * 4;
    qn__ir_scalar_t total = qn__machine_read(sums->buffer, address);
    for (int64_t k = 0; k < (int64_t)tensor->depth; ++k) {
      qn__ir_scalar_t a = element(&rows, row, k), b = element(&columns, column, k);
      if (is_float) {
        total.f = (float)(total.f + (double)((float)a.f * (float)b.f));
      } else {
        total.i = (int32_t)((uint32_t)total.i + (uint32_t)(a.i * b.i));
      }
    }
    qn__machine_write(sums->buffer, address, total);
  }
}

// Returns the address of element [i, j] of an operand of a product, or NULL.
static uint8_t* product_address(qn__interpret_machine_t* machine, const qn__ir_tensor_t* tensor,
                                uint32_t ref, const int64_t* first, int64_t i, int64_t j,
                                uint32_t thread) {
  const qn__ir_buffer_t* buffer = tensor->refs[ref].buffer;
  qn__ir_expr_t at[QN__LARGEST_RANK];
  qn__ir_expr_t* indices[QN__LARGEST_RANK];
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    int64_t more = d + 1 == buffer->rank ? j : d == tensor->dims[ref] ? i : 0;
    at[d] = (qn__ir_expr_t){.kind = QN__EXPR_INT, .dtype = QN_DTYPE_I64};
    at[d].int_value = first[d] + more;
    indices[d] = &at[d];
  }
  return qn__machine_address(machine, buffer, indices, thread);
}

// Evaluates the indices of the references, and the extents.
static void find_first(qn__interpret_machine_t* machine, const qn__ir_tensor_t* tensor,
                       uint32_t thread, int64_t out_first[][QN__LARGEST_RANK],
                       int64_t* out_extents) {
  for (uint32_t r = 0; r < QN__TENSOR_REFS; ++r) {
    const qn__ir_tensor_ref_t* ref = &tensor->refs[r];
    for (uint32_t d = 0; d < ref->buffer->rank; ++d) {
      out_first[r][d] = qn__machine_eval(machine, ref->indices[d], thread).i;
    }
    out_extents[r] = qn__machine_eval(machine, tensor->extents[r], thread).i;
  }
}

static void product(qn__interpret_machine_t* machine, const qn__ir_tensor_t* tensor,
                    uint32_t thread) {
  int64_t first[QN__TENSOR_REFS][QN__LARGEST_RANK], extents[QN__TENSOR_REFS];
  find_first(machine, tensor, thread, first, extents);
  if (qn__machine_failed(machine)) return;
  for (int64_t n = 0; extents[1] > 0 && n < extents[0] * extents[1]; ++n) {
    int64_t i = n / extents[1], j = n % extents[1];
    qn__ir_scalar_t total = {.f = 0};
    for (int64_t p = 0; p < extents[2]; ++p) {
      bool is_across = tensor->is_across[1];
      const uint8_t* a = product_address(machine, tensor, 1, first[1], i, p, thread);
      const uint8_t* b = product_address(machine, tensor, 2, first[2], is_across ? p : j,
                                         is_across ? j : p, thread);
      if (!a || !b) return;
      float x = (float)qn__machine_read(tensor->refs[1].buffer, a).f;
      float y = (float)qn__machine_read(tensor->refs[2].buffer, b).f;
      total.f = (double)((float)total.f + x * y);
    }
    uint8_t* sum = product_address(machine, tensor, 0, first[0], i, j, thread);
    if (!sum) return;
    qn__machine_write(tensor->refs[0].buffer, sum, total);
  }
}

// Returns word `w` of line `line` of an operand of tiles, which has numbers or words. 0: a failure.
static int64_t tiles_word(qn__interpret_machine_t* machine, const qn__ir_tensor_t* tensor,
                          uint32_t ref, const int64_t* first, int64_t line, int64_t w,
                          uint32_t thread) {
  const qn__ir_buffer_t* buffer = tensor->refs[ref].buffer;
  int64_t group = 4 / (int64_t)qn_dtype_size_bytes(buffer->dtype);
  uint64_t word = 0;
  for (int64_t g = 0; g < group; ++g) {
    const uint8_t* at =
        ref == 1 ? product_address(machine, tensor, ref, first, line, w * group + g, thread)
                 : product_address(machine, tensor, ref, first, w, line, thread);
    if (!at) return 0;
    uint64_t bits = qn__scalar_to_bits(buffer->dtype, qn__machine_read(buffer, at));
    word |= bits << (g * 32 / group);
  }
  return qn__wrap_int(QN_DTYPE_I32, (int64_t)word);
}

// Returns `sum` with the products of 16 words (rule 5 of tiles.h).
static double tiles_float(const int64_t* rows, const int64_t* columns, double sum) {
  float parts[2] = {0, 0};
  for (int w = 0; w < QN__TILE_WORDS; ++w) {
    for (int is_high = 0; is_high < 2; ++is_high) {
      uint64_t a = (uint64_t)rows[w] >> (16 * is_high), b = (uint64_t)columns[w] >> (16 * is_high);
      parts[is_high] = (float)qn__float_op(
          QN_OP_FMA, QN_DTYPE_F32, qn__scalar_from_bits(QN_DTYPE_BF16, a & 0xffff).f,
          qn__scalar_from_bits(QN_DTYPE_BF16, b & 0xffff).f, parts[is_high]);
    }
  }
  return (double)((float)sum + (parts[0] + parts[1]));
}

static void tiles(qn__interpret_machine_t* machine, const qn__ir_tensor_t* tensor,
                  uint32_t thread) {
  int64_t first[QN__TENSOR_REFS][QN__LARGEST_RANK], extents[QN__TENSOR_REFS];
  bool adds = qn__machine_eval(machine, tensor->operand, thread).i != 0;
  find_first(machine, tensor, thread, first, extents);
  if (extents[0] > QN__TILES_ROWS) extents[0] = QN__TILES_ROWS;
  for (int64_t n = 0; n < extents[0] * extents[1] * QN__TILES_COLUMNS; ++n) {
    int64_t r = n % extents[0], c = n / extents[0];
    int64_t panel = c / QN__TILES_COLUMNS, line = c % QN__TILES_COLUMNS;
    uint8_t* sum = product_address(machine, tensor, 0, first[0], 0, r * tensor->count + c, thread);
    if (!sum) return;
    qn__ir_scalar_t total = {.i = 0};
    if (tensor->dot == QN__OP_DOT_BF16_FAST) total.f = 0;
    if (adds) total = qn__machine_read(tensor->refs[0].buffer, sum);
    for (int64_t w = 0; w < extents[2]; w += QN__TILE_WORDS) {
      int64_t rows[QN__TILE_WORDS], columns[QN__TILE_WORDS];
      for (int64_t v = 0; v < QN__TILE_WORDS; ++v) {
        rows[v] = tiles_word(machine, tensor, 1, first[1], r, w + v, thread);
        columns[v] =
            tiles_word(machine, tensor, 2, first[2], line, panel * tensor->depth + w + v, thread);
        bool is_swapped = tensor->takes_column;
        qn__ir_scalar_t args[] = {total,
                                  {.i = is_swapped ? columns[v] : rows[v]},
                                  {.i = is_swapped ? rows[v] : columns[v]}};
        if (tensor->dot != QN__OP_DOT_BF16_FAST) {
          (void)qn__scalar_op((qn_op_t)tensor->dot, QN_DTYPE_I32, args, &total);
        }
      }
      if (tensor->dot == QN__OP_DOT_BF16_FAST) total.f = tiles_float(rows, columns, total.f);
      if (qn__machine_failed(machine)) return;
    }
    qn__machine_write(tensor->refs[0].buffer, sum, total);
  }
}

void qn__machine_tensor(qn__interpret_machine_t* machine, const qn__ir_tensor_t* tensor) {
  const qn__interpret_set_t* active = machine->active;
  for (uint32_t i = 0; i < active->count && !qn__machine_failed(machine); ++i) {
    if (tensor->kind == QN__TENSOR_COPY) copy(machine, tensor, active->threads[i]);
    if (tensor->kind == QN__TENSOR_MULTIPLY) multiply(machine, tensor, active->threads[i]);
    if (tensor->kind == QN__TENSOR_PRODUCT) product(machine, tensor, active->threads[i]);
    if (tensor->kind == QN__TENSOR_TILES) tiles(machine, tensor, active->threads[i]);
  }
}
