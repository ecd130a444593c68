// SPDX-License-Identifier: Apache-2.0
// ir/passes/products_inner.h: what the files of the analysis of products share.
//
// products.c        recognises products
// products_guard.c  products that a condition guards
// products_order.c  the directions of operands, and the order of steps
#ifndef QUERN_IR_PASSES_PRODUCTS_INNER_H_
#define QUERN_IR_PASSES_PRODUCTS_INNER_H_

#include "ir/passes/products.h"

// Returns what the value depends on.
uint32_t qn__product_mask_of(const qn__product_t* product, qn__ir_expr_t* expr);
// Notes that the operand `value` takes the place `slot` of the summand. Returns false if there are
// too many.
bool qn__product_note_operand(qn__product_t* product, qn__ir_expr_t** slot, qn__ir_expr_t* value,
                              qn__product_side_t side);
// Notes the operands of `c ? x * w : 0`. Returns false, and notes nothing, if the expression at
// `slot` is another.
bool qn__product_note_guarded(qn__product_t* product, qn__ir_expr_t** slot);
// Sets along what an operand is contiguous. The steps are in their last order.
void qn__product_find_direction(qn__product_t* product, qn__product_operand_t* operand);
// Makes the step along which most operands are contiguous the fastest.
void qn__product_order_steps(qn__product_t* product);

#endif  // QUERN_IR_PASSES_PRODUCTS_INNER_H_
