// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/columns.h: products of few columns, whose rows are contiguous along the reduction.
#ifndef QUERN_IR_PASSES_CPU_COLUMNS_H_
#define QUERN_IR_PASSES_CPU_COLUMNS_H_

#include "ir/passes/products.h"

// Returns false if this form would not be faster for any extents.
bool qn__columns_choose(const qn__product_t* product);
// Returns whether a call has few columns and many steps: a literal where that is known. NULL if the
// number of steps is not known before the loops.
qn__ir_expr_t* qn__columns_test(const qn__product_t* product);
// Writes the product to `out`. `kind` is that of the loop over tasks.
void qn__columns_write(qn__product_t* product, qn_loop_kind_t kind, qn__ir_block_t* out);

#endif  // QUERN_IR_PASSES_CPU_COLUMNS_H_
