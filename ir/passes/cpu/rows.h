// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/rows.h: products of few rows, whose columns are read where they are in memory.
#ifndef QUERN_IR_PASSES_CPU_ROWS_H_
#define QUERN_IR_PASSES_CPU_ROWS_H_

#include "ir/passes/products.h"

typedef struct qn__rows_shape {
  int64_t height;    // rows of the tile in registers
  int64_t width;     // columns of it, some vectors; the least columns of a product
  int64_t max_rows;  // of a product: more are worth packing
} qn__rows_shape_t;

// Chooses sizes. `min_packed` is the least number of rows that are packed otherwise, and
// `has_dot` says that those use the target's dot products. Returns false if this form would not be
// faster for any number of rows and columns.
bool qn__rows_choose(const qn__product_t* product, int64_t min_packed, bool has_dot,
                     qn__rows_shape_t* shape);

// Writes the product to `out`, for at least `width` columns. `kind` is that of the loop over tasks.
void qn__rows_write(qn__product_t* product, const qn__rows_shape_t* shape, qn_loop_kind_t kind,
                    qn__ir_block_t* out);

#endif  // QUERN_IR_PASSES_CPU_ROWS_H_
