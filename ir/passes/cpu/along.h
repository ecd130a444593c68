// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/along.h: products of few rows, whose operands are contiguous along the reduction.
#ifndef QUERN_IR_PASSES_CPU_ALONG_H_
#define QUERN_IR_PASSES_CPU_ALONG_H_

#include "ir/passes/products.h"

enum { qn__along_max_columns = 8 };  // as many as there are streams that a core fetches ahead

typedef struct qn__along_shape {
  int64_t lanes;      // steps of a vector; the least steps of a product
  int64_t columns;    // of the tile in registers: a power of two, no more than `lanes`
  int64_t few_rows;   // of a product with any number of steps: more are worth packing
  int64_t max_rows;   // of one with many steps,
  int64_t max_steps;  // but not more than these
} qn__along_shape_t;

// Chooses sizes. `min_packed` is the least number of rows that are packed otherwise.
// Returns false if this form would not be faster for any number of rows and steps.
bool qn__along_choose(const qn__product_t* product, int64_t min_packed, qn__along_shape_t* shape);

// Returns the condition that a call has enough columns and steps, or NULL if that is known.
qn__ir_expr_t* qn__along_fits(const qn__product_t* product, const qn__along_shape_t* shape);

// Writes the product to `out`, for at least `columns` columns and `lanes` steps. `kind` is that of
// the loop over tasks.
void qn__along_write(qn__product_t* product, const qn__along_shape_t* shape, qn_loop_kind_t kind,
                     qn__ir_block_t* out);

#endif  // QUERN_IR_PASSES_CPU_ALONG_H_
