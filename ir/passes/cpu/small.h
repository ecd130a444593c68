// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/small.h: products whose operands the kernel reads where they are: caches hold the
// columns, or rows are few.
//
// small.c         chooses sizes, writes the loops over tiles
// small_kernel.c  the innermost loops
#ifndef QUERN_IR_PASSES_CPU_SMALL_H_
#define QUERN_IR_PASSES_CPU_SMALL_H_

#include "ir/passes/products.h"

enum { qn__small_max_height = 8 };

// Tiles that registers hold, in panels of columns.
typedef struct qn__small_panel {
  int64_t height;      // rows of a tile
  int64_t low_height;  // rows of the tile for the last ones
  bool has_single;     // a last row that is alone has a tile of its own
  bool is_whole;       // all columns exist: there are as many panels as are full
  int64_t width;       // columns, some vectors; 0: there is no such panel
  uint32_t ahead;      // steps before those that need them, columns are fetched; 0: they are not
} qn__small_panel_t;

typedef struct qn__small_shape {
  qn__small_panel_t single;  // for a product of one row
  qn__small_panel_t wide;
  qn__small_panel_t middle;  // for the columns that wide ones leave
  qn__small_panel_t narrow;  // for those that both leave
  int64_t min_wide;          // columns that are left: as many or more are a wide panel, too
  int64_t min_middle;        // the same
  int64_t max_rows;          // of a product with any columns; 0: only small ones
  bool overlaps;             // tiles at an edge are moved back, to be full: nothing is masked
} qn__small_shape_t;

// Chooses the sizes. Returns false if products of unknown extents are not worth it, or the form is
// not for this one.
bool qn__small_choose(const qn__product_t* product, qn__small_shape_t* shape);
// Returns whether a product is small enough: a literal where that is known. NULL if the number of
// steps is not known before the loops.
qn__ir_expr_t* qn__small_test(const qn__product_t* product, const qn__small_shape_t* shape);
// Writes the product to `out`. `kind` is that of the loop over tasks.
void qn__small_write(qn__product_t* product, const qn__small_shape_t* shape, qn_loop_kind_t kind,
                     qn__ir_block_t* out);

// ---- small_kernel.c

typedef struct qn__small_writer {
  qn__product_t* product;
  qn__pass_builder_t* pb;
  const qn__small_shape_t* shape;
  qn__ir_expr_t* steps;   // of the reduction
  qn__ir_buffer_t* sums;  // results of a tile on their way to memory
  bool is_store;          // lanes can do all that the nest does with a result
  const qn__small_panel_t* panel;
  qn__ir_expr_t* column;     // the first of the panel
  qn__ir_expr_t* first_row;  // of the task
  qn__ir_expr_t* limit;      // columns from `column` on: a panel's columns beyond it are masked
  qn__ir_expr_t* done;  // columns from `column` on that the panel before has stored; NULL: none
} qn__small_writer_t;

// The rows of a tile.
typedef struct qn__small_rows {
  int64_t height;
  const qn__ir_expr_t* first;
  const qn__ir_expr_t* end;   // rows from here on do not exist; NULL: all do
  const qn__ir_expr_t* done;  // rows from `first` on that the tile before has stored; NULL: none
} qn__small_rows_t;

// Appends the kernel of a tile, and what the nest does with the sums.
void qn__small_write_tile(qn__small_writer_t* w, qn__ir_block_t* out, const qn__small_rows_t* rows);

#endif  // QUERN_IR_PASSES_CPU_SMALL_H_
