// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks.h: the structures that the files of the pass `block` share.
//
// blocks.c         the pass: finds products, chooses sizes
// blocks_write.c   writes the tasks of one product
// blocks_pack.c    packs the operands of a task
// blocks_runs.c    loops over several loops of the program as one index space
// blocks_inside.c  runs without their padding
// blocks_masked.c  packs runs by masked vectors
// blocks_kernel.c  the innermost loops of a task
// blocks_dots.h    some steps at once, by operators of dots.inc
// blocks_tiles.c   the kernel in tile registers
#ifndef QUERN_IR_PASSES_CPU_BLOCKS_H_
#define QUERN_IR_PASSES_CPU_BLOCKS_H_

#include "ir/passes/products.h"

// How a kernel multiplies: a step of the reduction at a time, or some by an operator of dots.inc.
typedef struct qn__blocks_dot {
  int op;             // 0: none
  int64_t group;      // steps of a word; 1 without an operator
  bool takes_column;  // the operator's first word is the column's
  bool moves_rows;    // rows are packed as bytes of the other sign
  bool is_checked;    // the operator is right for some numbers only: else DOT_BF16
  bool has_tiles;     // in tile registers: the height and the width are those of ir/tiles.h
} qn__blocks_dot_t;

// The sizes of a task and of the tile that registers hold.
typedef struct qn__blocks_shape {
  int64_t height;        // rows of the tile in registers
  int64_t edge_height;   // rows of a smaller one: a divisor of `height`
  int64_t width;         // columns of both: some vectors
  int64_t edge_width;    // columns of a narrower one, for the last panel; 0: there is none
  int64_t depth;         // steps of the reduction that the packed operands hold at once
  int64_t words;         // of that many steps: depth / dot.group
  int64_t rows;          // of a task at most: a multiple of `height`
  int64_t columns;       // of a task at most: a multiple of `width`
  int64_t min_rows;      // of a product: fewer are not worth packing
  bool has_direct_rows;  // the kernel reads rows where they are in memory
  uint32_t row_ahead;    // steps that the kernel fetches such rows ahead; 0: it does not
  qn__blocks_dot_t dot;
} qn__blocks_shape_t;

typedef struct qn__blocks_writer {
  qn__product_t* product;
  qn__pass_builder_t* pb;
  const qn__blocks_shape_t* shape;
  qn__ir_expr_t* extent[qn__product_sides];  // of all lines: a literal or a variable
  qn__ir_expr_t* most[qn__product_sides];    // lines of a task: literals or variables
  qn__ir_expr_t* first[qn__product_sides];   // line of the task
  qn__ir_expr_t* count[qn__product_sides];   // lines of the task
  qn__ir_expr_t* steps;                      // of the reduction
  qn__ir_buffer_t* acc;  // [(rows + height) * columns]: sums of the task, and neutral values
  // Packed operands: [depth, height] or [height, depth] of one tile's rows; for columns
  // [columns / width * depth, width]. With an operator for some steps there are words instead of
  // steps, but in [height, depth].
  qn__ir_buffer_t* packed[qn__product_max_operands];
  int dot_op;              // of the kernel that is written; 0: none
  qn__ir_buffer_t* moved;  // dot.moves_rows: products of a packed row of zeros with each column
  qn__ir_buffer_t* least;  // dot.is_checked: of the sides' numbers so far
  // Lines and steps that are transposed at once; at most 1: none are.
  int64_t square[qn__product_max_operands];
  qn__ir_buffer_t* line_of;  // [1, width]: the lines of the panel that is being transposed
} qn__blocks_writer_t;

// The lines of a tile's rows, or of `width` columns.
typedef struct qn__blocks_panel {
  qn__product_side_t side;
  qn__ir_expr_t* line;    // the first, of the task
  int64_t lines;          // of the panel
  qn__ir_expr_t* number;  // for columns
} qn__blocks_panel_t;

// Writes the product as tasks to `out`. `kind` is that of the loop over tasks.
void qn__blocks_write(qn__product_t* product, const qn__blocks_shape_t* shape, qn_loop_kind_t kind,
                      qn__ir_block_t* out);
// Returns the rows of a task, at most `most`, where there are `tasks` without a split of the rows.
// Few tasks have fewer rows, so that there are more of them for the cores.
qn__ir_expr_t* qn__blocks_most_rows(qn__pass_builder_t* pb, qn__ir_block_t* out, int64_t most,
                                    const qn__ir_expr_t* tasks);

// ---- blocks_pack.c

// The steps of the reduction that the packed operands hold.
typedef struct qn__blocks_steps {
  qn__ir_expr_t* first;
  qn__ir_expr_t* count;
  qn__ir_expr_t* is_first;  // conditions; NULL: these are all steps
  qn__ir_expr_t* is_last;
} qn__blocks_steps_t;

// Returns true if the packed operand is contiguous along the steps, as it is in memory. The kernel
// reads it by scalars.
static inline bool qn__blocks_is_along(const qn__product_operand_t* operand) {
  return operand->side == QN__PRODUCT_ROW && operand->runs_along_step;
}

void qn__blocks_pack_buffers(qn__blocks_writer_t* w, qn__ir_block_t* out);
// Packs the operands of a side: for the tile of rows at line `row`, or for all panels of columns.
// Memory is read in the order in which it is contiguous, as far as a block goes.
void qn__blocks_pack(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* row,
                     qn__ir_expr_t* panels, const qn__blocks_steps_t* steps);
// Appends a loop that sets `line_of[0, line]` for each line of the panel: its number among all.
void qn__blocks_write_line_table(qn__blocks_writer_t* w, qn__ir_block_t* out,
                                 const qn__blocks_panel_t* panel);
// Returns a loop over the lines of a panel that sets the variables of its side. A line beyond the
// edge is a copy of the last one if `is_clamped`.
qn__ir_stmt_t* qn__blocks_lines(qn__blocks_writer_t* w, const qn__blocks_panel_t* panel,
                                qn_loop_kind_t kind, bool is_clamped);

// ---- blocks_runs.c

// A loop that was written.
typedef struct qn__blocks_loop {
  qn__ir_block_t* body;  // NULL without memory
  qn__ir_expr_t* line;   // its line or step, from 0: copied at each use
} qn__blocks_loop_t;

// Returns true if the lines of a side belong to several loops.
bool qn__blocks_has_runs(const qn__blocks_writer_t* w, qn__product_side_t side);
// Appends a loop over `count` lines from `first` on, of all lines, and sets the variables of the
// side in it. Its iterations are independent.
qn__blocks_loop_t qn__blocks_each_line(qn__blocks_writer_t* w, qn__ir_block_t* out,
                                       qn__product_side_t side, const qn__ir_expr_t* first,
                                       const qn__ir_expr_t* count);

// A run: iterations of the fastest loop of a side while the others stay.
typedef struct qn__blocks_run {
  qn__ir_block_t* body;  // of the loop over runs
  qn__ir_var_t* number;
  uint32_t fastest;     // loop of the nest
  qn__ir_expr_t* from;  // its iterations, from 0: literals or variables
  qn__ir_expr_t* to;
  qn__ir_expr_t* shift;  // from an iteration to its line
} qn__blocks_run_t;

// The same in two steps, for a side of several loops: a loop over runs, then loops over a part of
// each.
bool qn__blocks_open_run(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                         const qn__ir_expr_t* first, const qn__ir_expr_t* count,
                         qn__blocks_run_t* run);
qn__blocks_loop_t qn__blocks_elements(qn__blocks_writer_t* w, const qn__blocks_run_t* run,
                                      const qn__ir_expr_t* from, const qn__ir_expr_t* to);
// Appends a loop over steps, whose iterations are independent, and sets the variables of the
// reduction in it.
qn__blocks_loop_t qn__blocks_each_step(qn__blocks_writer_t* w, qn__ir_block_t* out,
                                       const qn__blocks_steps_t* steps);
// Appends a view of all steps of a flat operand, for the line that is set.
qn__ir_buffer_t* qn__blocks_flat(qn__blocks_writer_t* w, qn__ir_block_t* out,
                                 const qn__product_operand_t* operand);

// ---- blocks_inside.c

// Returns the expression `c ? a : b` that `value` is, or that the let of `value` is; else NULL.
qn__ir_expr_t* qn__blocks_choice(const qn__product_t* product, qn__ir_expr_t* value);
// Finds the part of a run on which `condition` holds, and appends lets for it to `out`. Returns
// false, and appends nothing, if the condition does not hold on one interval; or without memory.
bool qn__blocks_inside(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                       qn__ir_expr_t* condition, const qn__blocks_run_t* run,
                       qn__ir_expr_t** out_from, qn__ir_expr_t** out_to);

// ---- blocks_masked.c

// Returns true if the target has the masked loads and stores for that.
bool qn__blocks_can_mask(const qn__product_t* product, const qn__product_operand_t* operand);
// Packs the part of a panel that belongs to a run, for all steps.
void qn__blocks_pack_masked(qn__blocks_writer_t* w, const qn__blocks_panel_t* panel,
                            const qn__blocks_steps_t* steps, uint32_t o,
                            const qn__blocks_run_t* run);

// ---- blocks_kernel.c

// A tile of sums that registers hold.
typedef struct qn__blocks_tile {
  int64_t height;
  qn__ir_expr_t* row;   // where the packed rows begin, of the task
  qn__ir_expr_t* line;  // the first row of this tile, of the packed rows
  int64_t width;
  qn__ir_expr_t* panel;   // of columns
  qn__ir_expr_t* column;  // the first of this tile, of the panel; NULL: 0
  const qn__blocks_steps_t* steps;
} qn__blocks_tile_t;

// Adds up the steps for a tile. A row beyond the task's last is a copy of that.
void qn__blocks_write_kernel(qn__blocks_writer_t* w, qn__ir_block_t* out,
                             const qn__blocks_tile_t* tile);

// ---- blocks_tiles.c

// Adds up the steps for the packed rows at `row`, of which the task has `left`, and all panels.
void qn__blocks_write_tiles(qn__blocks_writer_t* w, qn__ir_block_t* out, const qn__ir_expr_t* row,
                            const qn__ir_expr_t* left, const qn__ir_expr_t* panels,
                            const qn__blocks_steps_t* steps);

#endif  // QUERN_IR_PASSES_CPU_BLOCKS_H_
