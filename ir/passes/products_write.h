// SPDX-License-Identifier: Apache-2.0
// ir/passes/products_write.h: copies of a product's expressions in which its variables have the
// values of one place: `now` of each name.
#ifndef QUERN_IR_PASSES_PRODUCTS_WRITE_H_
#define QUERN_IR_PASSES_PRODUCTS_WRITE_H_

#include "ir/passes/products.h"

// Returns `value` if it is a literal, else a use of a new variable with that value. Both are cheap
// to copy.
qn__ir_expr_t* qn__pb_named(qn__pass_builder_t* pb, qn__ir_block_t* out, const char* name,
                            qn__ir_expr_t* value);
// Returns a copy with the values of this place.
qn__ir_expr_t* qn__product_copy(qn__product_t* product, const qn__ir_expr_t* expr);
bool qn__product_copy_block(qn__product_t* product, const qn__ir_block_t* block,
                            qn__ir_block_t* out);
// Sets the values of the loops in `dims`.
void qn__product_set(qn__product_t* product, uint32_t dims, qn__ir_expr_t* const* now);
// Appends lets for the loops in `dims` at `index`, a variable of their index space, and sets them.
void qn__product_place(qn__product_t* product, qn__ir_block_t* out, uint32_t dims,
                       qn__ir_var_t* index);
// Sets the variables of the reduction for step `step`, which this consumes.
void qn__product_set_step(qn__product_t* product, qn__ir_block_t* out, qn__ir_expr_t* step);
// Returns true if the summand, without its operands, uses a variable of the reduction.
bool qn__product_names_step(const qn__product_t* product);
// Appends a copy of the let of a name.
void qn__product_write_let(qn__product_t* product, qn__ir_block_t* out, qn__product_name_t* name);
// Appends copies of all lets among `is_needed` that depend on any of `any` (0: all lets) and on
// none of `none`.
void qn__product_write_lets(qn__product_t* product, qn__ir_block_t* out, const bool* is_needed,
                            uint32_t any, uint32_t none);
// Appends `let name = value` for an operand, after the lets that it needs. The places of its side
// and the step are set.
qn__ir_var_t* qn__product_write_operand(qn__product_t* product, qn__ir_block_t* out,
                                        const qn__product_operand_t* operand);
// Marks the load of an operand, whose copy `value` is: the loops come to the element that is
// `distance` on along `var` soon.
void qn__product_fetch_ahead(const qn__product_operand_t* operand, qn__ir_expr_t* value,
                             const qn__ir_var_t* var, uint32_t distance, qn__fetch_t cache);
// Returns true if the summand, without its operands, uses a loop of this side.
bool qn__product_names_side(const qn__product_t* product, qn__product_side_t side);
// Appends the lets that are the same for all rows, columns and steps, and the bounds of the
// reduction. Returns the number of steps; NULL without memory.
qn__ir_expr_t* qn__product_write_bounds(qn__product_t* product, qn__ir_block_t* out);
// The rows or the columns of a task.
typedef struct qn__product_part {
  qn__ir_expr_t* first;
  qn__ir_expr_t* end;
} qn__product_part_t;

// Returns a loop of `kind` over `parts` tasks for each iteration of the batch, whose variables are
// set, and sets `*number` to that of the task's part. What the loop needs is appended to `out`; the
// loop itself is not. Consumes `parts`.
qn__ir_stmt_t* qn__product_write_tasks(qn__product_t* product, qn__ir_block_t* out,
                                       qn_loop_kind_t kind, qn__ir_expr_t* parts,
                                       qn__ir_expr_t** number);
// Returns part `number` of `extent` lines, in parts of `most`. Consumes `number`.
qn__product_part_t qn__product_write_part(qn__pass_builder_t* pb, qn__ir_block_t* out,
                                          qn__ir_expr_t* number, int64_t most,
                                          const qn__ir_expr_t* extent);
// Appends the body of the nest, in which the reduction is `total`. Consumes `total`.
void qn__product_write_body(qn__product_t* product, qn__ir_block_t* out, qn__ir_expr_t* total);
// Returns a partial result and one more term, fused where the target can.
qn__ir_expr_t* qn__product_add(qn__product_t* product, qn__ir_expr_t* sum, qn__ir_expr_t* term);

#endif  // QUERN_IR_PASSES_PRODUCTS_WRITE_H_
