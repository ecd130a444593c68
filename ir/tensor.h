// SPDX-License-Identifier: Apache-2.0
// ir/tensor.h: the layouts of TENSOR statements that the mapping to a GPU makes. (PRODUCT
// and TILES are of CPUs: ir/prepared.h, ir/tiles.h.)
//
// 1. A multiplication computes sums of products of two operands, of *rows* and of *columns*. It has
//    tiles of 16 rows by 8 columns. Lane l of the warp has four sums of each tile: element e is
//    that of row l / 4 + 8 * (e / 2), column l % 4 * 2 + e % 2. The sums of tile (i, j) begin at
//    element (i * tiles[1] + j) * 4 of the thread's buffer.
// 2. An operand is in shared memory, in a buffer of two dimensions whose rows hold 2 or more
//    *chunks* of 16 bytes, a power of two of them. Line m, step k is at [r + m, c + k], or at [r +
//    k, c + m] if the operand `is_across`, where [r, c] are the indices of the reference. r is a
//    multiple of 8, and c of a chunk.
// 3. The buffer is *swizzled*: chunk c of row r lies at chunk c ^ qn__tensor_phase(r, chunks). So
//    the same chunk of 8 adjacent rows, which a matrix load reads at once, is in 8 groups of banks,
//    which are all there are.
// 4. A *warpgroup* is four warps, each with 16 rows, of 64 in all. Its operands have rows of 8
//    chunks. If one is across, a row has no more lines, and those after them are `depth` rows
//    further: line m, step k is at [r + m / lines * depth + k, m % lines].
// 5. These layouts are those of PTX: ldmatrix and mma.sync.m16n8k16 (f16, bf16), m16n8k8 (tf32) and
//    m16n8k32 (i8, u8); of warpgroups wgmma.mma_async.m64nNk16 (f16, bf16) and m64nNk32 (i8, u8),
//    with a swizzle of 128 bytes. One instruction has 32 bytes of steps (qn__tensor_steps).
#ifndef QUERN_IR_TENSOR_H_
#define QUERN_IR_TENSOR_H_

#include "ir/ir.h"

enum {
  QN__TENSOR_CHUNK_BYTES = 16,
  QN__TENSOR_STEP_BYTES = 32,  // of an instruction
  QN__TENSOR_ROWS = 16,        // of a tile
  QN__TENSOR_COLUMNS = 8,
  QN__TENSOR_SUMS = 4,          // of a lane in a tile
  QN__TENSOR_WARPS = 4,         // of a warpgroup
  QN__TENSOR_GROUP_CHUNKS = 8,  // of a row of its operands
};

// Returns what the chunks of a row are exchanged by, for rows of `chunks` chunks. It only depends
// on row % 8.
static inline int64_t qn__tensor_phase(int64_t row, int64_t chunks) {
  return chunks >= 8 ? row % 8 : row / (8 / chunks) % chunks;
}

// Returns the row and the column, within its tile, of sum `e` of a lane.
static inline int64_t qn__tensor_row(int64_t lane, int64_t e) {
  return lane / 4 + 8 * (e / 2);
}
static inline int64_t qn__tensor_column(int64_t lane, int64_t e) {
  return lane % 4 * 2 + e % 2;
}

// Returns the steps of one instruction; 0: no matrix unit multiplies the dtype.
static inline uint32_t qn__tensor_steps(qn_dtype_t dtype) {
  bool has = dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16 || dtype == QN_DTYPE_F32 ||
             dtype == QN_DTYPE_I8 || dtype == QN_DTYPE_U8;
  return has ? (uint32_t)QN__TENSOR_STEP_BYTES / (uint32_t)qn_dtype_size_bytes(dtype) : 0;
}

// Returns the dtype of the sums of products of two operands; NONE: they cannot be multiplied. f32
// is rounded to tf32.
qn_dtype_t qn__tensor_sum_dtype(qn_dtype_t rows, qn_dtype_t columns);

// Returns f32 rounded to tf32: to 10 bits of fraction, to nearest, ties away from zero.
float qn__tensor_round(float value);

// Returns what is wrong with a statement, or NULL. References and types of expressions are the
// verifier's.
const char* qn__tensor_problem(const qn__ir_tensor_t* tensor);

#endif  // QUERN_IR_TENSOR_H_
