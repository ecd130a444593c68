// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/prepared.h: products by kernels that the generator has (ir/prepared.h).
#ifndef QUERN_IR_PASSES_CPU_PREPARED_H_
#define QUERN_IR_PASSES_CPU_PREPARED_H_

#include "ir/passes/cpu/blocks.h"
#include "ir/prepared.h"

typedef struct qn__prepared_plan {
  bool is_across;  // the columns are adjacent in memory
  bool is_store;   // the nest only stores its sums: the kernel does
  // Dimensions of the result and of the operands of rows and columns that count lines (steps, if
  // `is_across`).
  uint32_t dims[QN__TENSOR_REFS];
  // The choice among the forms: the last one that a product has and whose condition holds.
  bool has[qn__product_forms];
  qn__ir_expr_t* conditions[qn__product_forms];  // NULL: it always holds
  const qn__blocks_shape_t* blocks;
  int64_t few_rows;  // SMALL: of a product with any columns
} qn__prepared_plan_t;

// Returns false if the generator lacks a kernel for one of the forms in `has`, or the product is
// not one of matrices that the kernels take. Else sets `plan` but for the choice.
bool qn__prepared_choose(const qn__product_t* product, const bool* has, qn__prepared_plan_t* plan);
// Writes the product, whose nest is open and replaced, to `out`.
void qn__prepared_write(qn__product_t* product, const qn__prepared_plan_t* plan,
                        qn__ir_block_t* out);

#endif  // QUERN_IR_PASSES_CPU_PREPARED_H_
