// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/tile.h: the structures that the files of the pass `tile` share.
//
// tile.c        the pass
// tile_size.c   chooses shapes
// tile_write.c  writes the launch of one shape
// tile_fill.c   a round: loads operands into shared memory
// tile_sums.c   a round: adds them up
// tensor.c      decides whether the matrix units compute a product, and by which shapes
// tensor_write.c, tensor_fill.c   the rounds of such a product
#ifndef QUERN_IR_PASSES_GPU_TILE_H_
#define QUERN_IR_PASSES_GPU_TILE_H_

#include "ir/passes/gpu/launch.h"
#include "ir/passes/products_write.h"
#include "ir/tensor.h"

enum {
  qn__tile_max_outputs = 8,  // of a thread, along one side
  qn__tile_max_places = 48,  // as above, for matrix units
  qn__tile_max_rounds = 16,  // elements of one operand that a thread loads in a round
  qn__tile_max_variants = 3,
  qn__tile_max_elements = 32,  // as qn__tile_max_rounds, for matrix units
};

// The sizes of a block's tile.
typedef struct qn__tile_shape {
  int64_t threads;
  int64_t lines[qn__product_sides];    // threads along a side
  int64_t outputs[qn__product_sides];  // elements of a thread along a side
  int64_t depth;                       // steps of the reduction that shared memory holds at once
  bool is_unrolled;                    // all of those steps are written out
  int64_t strip;                       // tiles that blocks take down before they go across
  bool runs_down;                      // neighbouring threads have neighbouring rows, not columns
  // Matrix units compute the sums: rounds that shared memory holds at once, and the warps along a
  // side. 0: the threads do.
  int64_t stages;
  int64_t warps[qn__product_sides];
  bool is_warpgroup;  // four warps multiply together
} qn__tile_shape_t;

// A shape that is faster where a side whose extent is not constant has few lines, or where the
// result has few tiles.
typedef struct qn__tile_variant {
  qn__tile_shape_t shape;
  qn__product_side_t side;
  int64_t max_lines;  // 0: any
  int64_t max_tiles;  // of the shape for all extents
} qn__tile_variant_t;

// How an operand comes to the matrix units.
typedef struct qn__tile_matrix {
  uint32_t operand;            // of the product
  const qn__ir_expr_t* value;  // before its conversion to the dtype of the sums
  const qn__ir_expr_t* load;   // is copied by chunks; NULL: elements are computed and stored
  bool is_across;              // in shared memory (ir/tensor.h)
} qn__tile_matrix_t;

typedef struct qn__tile {
  qn__product_t product;
  qn__tile_shape_t shape;  // the current shape; in the end the one for all extents
  qn__tile_variant_t variants[qn__tile_max_variants];  // the first that fits runs
  uint32_t variant_count;
  qn__tile_matrix_t matrices[qn__product_sides];  // where a shape has stages
} qn__tile_t;

static inline int64_t qn__tile_extent(const qn__tile_t* tile, qn__product_side_t side) {
  return tile->shape.lines[side] * tile->shape.outputs[side];
}
// Returns how many outputs of a thread are adjacent.
static inline int64_t qn__tile_group(const qn__tile_t* tile, qn__product_side_t side) {
  return tile->shape.outputs[side] < 4 ? tile->shape.outputs[side] : 4;
}
// Returns the offset of output `m`: its line within the block's tile is own + offset.
static inline int64_t qn__tile_offset(const qn__tile_t* tile, qn__product_side_t side, int64_t m) {
  assert(m >= 0 && m < tile->shape.outputs[side]);
  if (tile->shape.stages) {
    // The sums of a lane: two in each row, and rows that are 8 apart (ir/tensor.h).
    return m / 2 * (side == QN__PRODUCT_ROW ? QN__TENSOR_ROWS : QN__TENSOR_COLUMNS) +
           m % 2 * (side == QN__PRODUCT_ROW ? 8 : 1);
  }
  int64_t group = qn__tile_group(tile, side);
  return m / group * group * tile->shape.lines[side] + m % group;
}

// ---- tile_size.c

// Returns false if tiles would not be faster for so many rows and columns (-1: not constant).
bool qn__tile_has_lines(const int64_t* lines);
// Chooses shapes. Returns false if tiles would not be faster.
bool qn__tile_choose(qn__tile_t* tile);
// Returns the elements of a tile's line, with padding.
int64_t qn__tile_pitch(const qn__tile_t* tile, const qn__product_operand_t* operand);

// ---- tensor.c

// Chooses shapes for matrix units. Returns false if they cannot compute the product. `extents`: the
// lines of the sides, or -1.
bool qn__tensor_choose(qn__tile_t* tile, const int64_t* extents, int64_t batch);

// ---- tile_write.c

// Writes the launch of `tile->shape` and finishes it. The product can be written again.
void qn__tile_write(qn__tile_t* tile, qn__ir_stmt_t* launch);

// ---- the writer's state

// A line of a thread's result, or one that a thread loads: values of the side's loops.
typedef struct qn__tile_place {
  qn__ir_var_t* at;  // in the side's index space
  qn__ir_expr_t* now[qn__max_nest];
} qn__tile_place_t;

typedef struct qn__tile_writer {
  qn__tile_t* tile;
  qn__product_t* product;  // of the tile
  qn__pass_builder_t* pb;
  qn__ir_var_t* t;
  qn__ir_var_t* first[qn__product_sides];    // line of the block's tile
  qn__ir_expr_t* extent[qn__product_sides];  // of all lines: a literal or a variable
  qn__ir_var_t* own[qn__product_sides];      // of the thread's group, within the tile
  bool is_exact[qn__product_sides];          // no tile reaches beyond the matrix
  qn__tile_place_t places[qn__product_sides][qn__tile_max_places];
  qn__ir_expr_t* steps;  // of the reduction: a literal or a variable
  bool has_even_steps;
  qn__ir_var_t* lane;                           // matrix units only
  qn__ir_var_t* multiplier;                     // the lane, or the thread's index in its warpgroup
  qn__ir_var_t* warp_first[qn__product_sides];  // line of the warp, within the tile
  qn__ir_buffer_t* acc;
  // [depth, extent of the side's tile + padding], for each operand
  qn__ir_buffer_t* buffers[qn__product_max_operands];
  // Matrix units: by side. The thread's panel, if there are any, and its first row and column in
  // it, or in a stage's buffer.
  qn__ir_var_t* fill_panel[qn__product_sides];
  qn__ir_var_t* fill_row[qn__product_sides];
  qn__ir_var_t* fill_column[qn__product_sides];
} qn__tile_writer_t;

// ---- tile_fill.c, tile_sums.c: one round

// Returns min(value, extent - 1).
qn__ir_expr_t* qn__tile_at_most(qn__pass_builder_t* pb, qn__ir_expr_t* value,
                                const qn__ir_expr_t* extent);
// Returns element [m, n] of the thread's sums.
qn__ir_expr_t* qn__tile_load_acc(const qn__tile_writer_t* w, int64_t m, int64_t n);

// The positions of a thread's elements of an operand within the tile: the first `step` and `line`,
// and their distances from one element to the next.
typedef struct qn__tile_stride {
  qn__ir_var_t* step;
  qn__ir_var_t* line;
  int64_t step_by;
  int64_t line_by;
} qn__tile_stride_t;

qn__tile_stride_t qn__tile_write_stride(qn__tile_writer_t* w, qn__ir_block_t* out,
                                        const qn__product_operand_t* operand);
// Loads the operands of the round that begins at step `done` into shared memory.
void qn__tile_fill(qn__tile_writer_t* w, qn__ir_block_t* out, const qn__tile_stride_t* strides,
                   qn__ir_var_t* done);
// Adds up the steps in shared memory: all of them, or fewer in the last round.
void qn__tile_write_sums(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* done);

// ---- tensor_fill.c, tensor_write.c: the same for matrix units

// Appends the rounds of the tile.
void qn__tensor_write_rounds(qn__tile_writer_t* w, qn__ir_block_t* out);
// The values of a thread's elements of one round, between their loads and their stores.
typedef struct qn__tensor_elements {
  qn__ir_var_t* values[qn__product_sides][qn__tile_max_elements];
} qn__tensor_elements_t;
// Append the lets that are the same for all rounds; the copies of the round that begins at step
// `done` into the stage `slot`; and for operands that are not copied, loads and then stores.
void qn__tensor_fill_begin(qn__tile_writer_t* w, qn__ir_block_t* out);
void qn__tensor_fill_copy(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* done,
                          qn__ir_var_t* slot);
void qn__tensor_fill_load(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* done,
                          qn__tensor_elements_t* elements);
void qn__tensor_fill_store(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* slot,
                           const qn__tensor_elements_t* elements);
// Return the rows of an operand's buffer for one stage, and the elements of a row.
int64_t qn__tensor_stage_rows(const qn__tile_t* tile, qn__product_side_t side);
int64_t qn__tensor_pitch(const qn__tile_t* tile, qn__product_side_t side);
// Returns true if the lines of a stage are in panels, one behind the other: `depth` rows each, of
// as many lines as a row has (ir/tensor.h).
bool qn__tensor_has_panels(const qn__tile_t* tile, qn__product_side_t side);

#endif  // QUERN_IR_PASSES_GPU_TILE_H_
