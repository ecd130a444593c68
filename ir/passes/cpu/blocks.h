// ir/passes/cpu/blocks.h: the structures that the files of the pass `block` share.
//
// blocks.c         the pass: finds products, chooses sizes
// blocks_write.c   writes the tasks of one product
// blocks_kernel.c  the innermost loops of a task
#ifndef QUERN_IR_PASSES_CPU_BLOCKS_H_
#define QUERN_IR_PASSES_CPU_BLOCKS_H_

#include "ir/passes/products.h"

// The sizes of a task and of the tile that registers hold.
typedef struct qn__blocks_shape {
  int64_t height;       // rows of the tile in registers
  int64_t edge_height;  // rows of a smaller one: a divisor of `height`
  int64_t width;        // columns of both: some vectors
  int64_t depth;        // steps of the reduction that the packed operands hold at once
  int64_t rows;         // of a task at most: a multiple of `height`
  int64_t columns;      // of a task at most: a multiple of `width`
  int64_t min_rows;     // of a product: fewer are not worth packing
} qn__blocks_shape_t;

typedef struct qn__blocks_writer {
  qn__product_t* product;
  qn__pass_builder_t* pb;
  const qn__blocks_shape_t* shape;
  qn__ir_expr_t* extent[qn__product_sides];  // of all lines: a literal or a variable
  qn__ir_expr_t* first[qn__product_sides];   // line of the task
  qn__ir_expr_t* count[qn__product_sides];   // lines of the task
  qn__ir_expr_t* begin;                      // of the reduction
  qn__ir_expr_t* steps;                      // of the reduction
  qn__ir_buffer_t* acc;                      // [rows, columns] of the task
  // Packed operands: [depth, height] or [height, depth] of one tile's rows; for columns
  // [columns / width * depth, width].
  qn__ir_buffer_t* packed[qn__product_max_operands];
} qn__blocks_writer_t;

// Writes the product as tasks to `out`. `kind` is that of the loop over tasks.
void qn__blocks_write(qn__product_t* product, const qn__blocks_shape_t* shape, qn_loop_kind_t kind,
                      qn__ir_block_t* out);

// ---- blocks_kernel.c

// The steps of the reduction that the packed operands hold.
typedef struct qn__blocks_steps {
  qn__ir_expr_t* first;
  qn__ir_expr_t* count;
} qn__blocks_steps_t;

// A tile of sums that registers hold.
typedef struct qn__blocks_tile {
  int64_t height;
  qn__ir_expr_t* row;    // where the packed rows begin, of the task
  qn__ir_expr_t* line;   // the first row of this tile, of the packed rows
  qn__ir_expr_t* panel;  // of columns
  const qn__blocks_steps_t* steps;
} qn__blocks_tile_t;

// Adds up the steps for a tile. A row beyond the task's last is a copy of that.
void qn__blocks_write_kernel(qn__blocks_writer_t* w, qn__ir_block_t* out,
                             const qn__blocks_tile_t* tile);

#endif  // QUERN_IR_PASSES_CPU_BLOCKS_H_
