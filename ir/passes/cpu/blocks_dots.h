// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks_dots.h: products of small numbers by the operators of dots.inc, which
// multiply some steps of the reduction at once.
//
// blocks_dots.c          finds the operator
// blocks_dots_pack.c     packs words
// blocks_dots_measure.c  what kernels must know of packed words
// blocks_tiles.c         the kernel in tile registers
//
// 1. A word (i32) holds `group` steps of one line. Steps beyond the last are 0 in the columns'
//    words, which adds nothing, whatever the rows' words hold. (A float there must be finite: these
//    are 0 in both.)
// 2. What fits into a byte, 16 bits or a bf16 is decided by the range of the operand's value, not
//    by its form: `i32(a[i, p])`, `i32(w >> 4 & 15) - 8` and `i32(a[i, p]) - i32(zero)` are alike.
// 3. If the target has no operator for the signs of both operands, rows are packed as bytes of the
//    other sign: x ^ 0x80 is x + 128 or x - 128. A packed row of zeros has a product with each
//    column, too, which is computed once for a packed panel and subtracted from the sums (`moved`).
//    Integers wrap, so this is exact.
// 4. An instruction that takes denormal numbers for 0 gives the bits of two fma while no operand is
//    denormal and every product is a multiple of 2^-126, the smallest normal number: then all sums
//    are such multiples, so none is denormal. The smallest numbers of rows and columns (`least`)
//    tell whether that holds. If not, the tile is computed by fma. Functions marked `fast` do not
//    ask. That holds for any order of the additions, so for tile registers, too.
// 5. Tile registers (ir/tiles.h) multiply 16 words of a line at once: those beyond the last are 0
//    in rows and columns. They need no rows beyond the edge, and pack and measure none.
#ifndef QUERN_IR_PASSES_CPU_BLOCKS_DOTS_H_
#define QUERN_IR_PASSES_CPU_BLOCKS_DOTS_H_

#include "ir/passes/cpu/blocks.h"
#include "ir/passes/products_write.h"

enum { qn__blocks_dot_zeros = -2139062144 };  // 0x80808080: zeros as bytes of the other sign

// ---- blocks_dots.c

// Finds the operator for a product. Returns false, and a group of 1, if there is none.
bool qn__blocks_find_dot(const qn__product_t* product, qn__blocks_dot_t* out);

// ---- blocks_dots_pack.c

// Returns the dtype of a packed operand: of numbers if `is_along`, else of words.
qn_dtype_t qn__blocks_dot_dtype(const qn__blocks_writer_t* w, bool is_along);
// Returns the number to pack for an operand's value, and the number of words for some steps.
qn__ir_expr_t* qn__blocks_dot_number(const qn__blocks_writer_t* w, qn__ir_expr_t* value);
qn__ir_expr_t* qn__blocks_dot_words(const qn__blocks_writer_t* w, const qn__ir_expr_t* steps);
// Returns the number of words that a kernel multiplies for some steps.
qn__ir_expr_t* qn__blocks_dot_padded(const qn__blocks_writer_t* w, const qn__ir_expr_t* steps);
// Packs an operand as words: of the tile at line `row`, or of all panels of columns (`row` NULL).
void qn__blocks_dot_pack(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* row,
                         qn__ir_expr_t* panels, const qn__blocks_steps_t* steps, uint32_t o);
// Returns true if an operand's words are transposed in registers, as columns along the steps are
// whose numbers are in memory as they are.
bool qn__blocks_dot_has_squares(const qn__blocks_writer_t* w, uint32_t o);
// Appends zeros after the last step of rows that are packed as numbers, to fill words.
void qn__blocks_dot_pad(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* row,
                        const qn__blocks_steps_t* steps, uint32_t o);
// Return a word of a packed row, and a sum with the products of two words.
qn__ir_expr_t* qn__blocks_dot_row(const qn__blocks_writer_t* w, uint32_t o, qn__ir_expr_t* line,
                                  qn__ir_expr_t* word);
qn__ir_expr_t* qn__blocks_dot_add(const qn__blocks_writer_t* w, int op, qn__ir_expr_t* sum,
                                  qn__ir_expr_t* row, qn__ir_expr_t* column);

// ---- blocks_dots_measure.c

// Declares `moved` and `least`, if the operator needs them.
void qn__blocks_dot_buffers(qn__blocks_writer_t* w, qn__ir_block_t* out);
// Appends `moved` and `least` of what was packed.
void qn__blocks_dot_measure(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* row,
                            qn__ir_expr_t* panels, const qn__blocks_steps_t* steps, uint32_t o);
// Returns whether the operator is right for all numbers so far.
qn__ir_expr_t* qn__blocks_dot_is_exact(const qn__blocks_writer_t* w);

// ---- shared by these files

// Returns `a op b` for a literal of a's dtype, and a conversion (CAST or BITCAST).
static inline qn__ir_expr_t* qn__blocks_dot_op(const qn__blocks_writer_t* w, qn_op_t op,
                                               qn__ir_expr_t* a, int64_t b) {
  return a ? qn__pb_op(w->pb, op, a, qn__expr_int(w->pb->arena, a->dtype, b)) : NULL;
}
static inline qn__ir_expr_t* qn__blocks_dot_convert(const qn__blocks_writer_t* w,
                                                    qn__ir_expr_kind_t kind, qn_dtype_t dtype,
                                                    qn__ir_expr_t* value) {
  qn__ir_expr_t* expr = value ? qn__expr_new(w->pb->arena, kind, dtype, value->loc) : NULL;
  if (expr) expr->args[0] = value;
  return expr;
}
// Returns the first index of a word in a buffer of words.
qn__ir_expr_t* qn__blocks_dot_place(const qn__blocks_writer_t* w, const qn__blocks_panel_t* panel,
                                    qn__ir_expr_t* word);
// Returns how many lines of a panel exist.
qn__ir_expr_t* qn__blocks_dot_lines(const qn__blocks_writer_t* w, const qn__blocks_panel_t* panel);
// Returns how many of them are packed: all, but those of rows in tiles end at the edge.
qn__ir_expr_t* qn__blocks_dot_packed(const qn__blocks_writer_t* w, const qn__blocks_panel_t* panel);
// Makes a loop over the panels of columns, which `out` then describes.
qn__ir_stmt_t* qn__blocks_dot_panels(qn__blocks_writer_t* w, qn__ir_expr_t* panels,
                                     qn__blocks_panel_t* out);

#endif  // QUERN_IR_PASSES_CPU_BLOCKS_DOTS_H_
