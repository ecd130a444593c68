// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks_dots_measure.c: what kernels must know of packed words: the products of a
// row of zeros, and the smallest numbers (blocks_dots.h).
#include "ir/passes/cpu/blocks_dots.h"

enum {
  least_exponent = 1 << 7,  // of a bf16 that is not denormal, in its bits
  least_exponents = 142,    // biased; of two numbers whose products are multiples of 2^-126
};

// Appends a loop over the words of a panel that sets totals[line] = value(totals[line], word), and
// returns the buffer of totals.
static qn__ir_buffer_t* write_totals(qn__blocks_writer_t* w, qn__ir_block_t* out,
                                     const qn__blocks_panel_t* panel,
                                     const qn__blocks_steps_t* steps, uint32_t o, int64_t initial,
                                     qn__ir_expr_t* (*value)(const qn__blocks_writer_t* w,
                                                             qn__ir_expr_t* total,
                                                             qn__ir_expr_t* word)) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_buffer_t* totals =
      qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, QN_DTYPE_I32, "totals", panel->lines, -1);
  qn__ir_stmt_t* clear = qn__pb_count_loop(pb, QN_LOOP_VECTOR, "v", qn__pb_int(pb, panel->lines));
  qn__ir_stmt_t* words =
      qn__pb_count_loop(pb, QN_LOOP_SERIAL, "q", qn__blocks_dot_words(w, steps->count));
  qn__ir_stmt_t* lines = qn__pb_count_loop(pb, QN_LOOP_VECTOR, "v", qn__pb_int(pb, panel->lines));
  if (!totals || !clear || !words || !lines) return NULL;
  // So that LLVM holds the totals in registers: it does not freeze what it loads.
  totals->is_filled = true;
  qn__pb_append(&clear->loop.body, qn__pb_store(pb, totals, qn__pb_use(pb, clear->loop.var), NULL,
                                                qn__expr_int(w->pb->arena, QN_DTYPE_I32, initial)));
  qn__block_append(out, clear);
  qn__ir_expr_t* at = qn__blocks_dot_place(w, panel, qn__pb_use(pb, words->loop.var));
  qn__ir_block_t* body = &lines->loop.body;
  qn__ir_expr_t* word = qn__pb_load(pb, w->packed[o], at, qn__pb_use(pb, lines->loop.var));
  word = qn__pb_named(pb, body, "word", word);
  qn__ir_expr_t* total =
      value(w, qn__pb_load(pb, totals, qn__pb_use(pb, lines->loop.var), NULL), word);
  qn__pb_append(body, qn__pb_store(pb, totals, qn__pb_use(pb, lines->loop.var), NULL, total));
  qn__block_append(&words->loop.body, lines);
  qn__block_append(out, words);
  return totals;
}

static qn__ir_expr_t* add_moved(const qn__blocks_writer_t* w, qn__ir_expr_t* total,
                                qn__ir_expr_t* word) {
  return qn__blocks_dot_add(w, w->shape->dot.op, total,
                            qn__expr_int(w->pb->arena, QN_DTYPE_I32, qn__blocks_dot_zeros), word);
}

// Returns the least of both halves of `total` and of the bits of the numbers of a word without
// their signs, minus one: that of 0 is the largest u16.
static qn__ir_expr_t* take_least(const qn__blocks_writer_t* w, qn__ir_expr_t* total,
                                 qn__ir_expr_t* word) {
  return qn__expr_op(w->pb->arena, (qn_op_t)QN__OP_LEAST, total, word,
                     qn__expr_int(w->pb->arena, QN_DTYPE_I32, 0x7fff7fff));
}

// Appends a loop that replaces each total by the lesser half.
static void fold_halves(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__ir_buffer_t* totals,
                        int64_t lines) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_VECTOR, "v", qn__pb_int(pb, lines));
  if (!loop || !totals) return;
  qn__ir_expr_t* word = qn__pb_load(pb, totals, qn__pb_use(pb, loop->loop.var), NULL);
  word = qn__pb_named(pb, &loop->loop.body, "word", word);
  qn__ir_expr_t* high = qn__blocks_dot_op(
      w, QN_OP_AND, qn__blocks_dot_op(w, QN_OP_SHR, qn__pb_copy(pb, word), 16), 0xffff);
  qn__ir_expr_t* less =
      qn__pb_op(pb, QN_OP_MIN, high, qn__blocks_dot_op(w, QN_OP_AND, word, 0xffff));
  qn__pb_append(&loop->loop.body,
                qn__pb_store(pb, totals, qn__pb_use(pb, loop->loop.var), NULL, less));
  qn__block_append(out, loop);
}

void qn__blocks_dot_buffers(qn__blocks_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  if (w->shape->dot.moves_rows) {
    w->moved = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, QN_DTYPE_I32, "moved", w->shape->columns, -1);
  }
  if (!w->shape->dot.is_checked) return;
  w->least = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, QN_DTYPE_U32, "least", qn__product_sides, -1);
  for (int s = 0; s < qn__product_sides; ++s) {
    qn__pb_append(out, qn__pb_store(pb, w->least, qn__pb_int(pb, s), NULL,
                                    qn__expr_int(w->pb->arena, QN_DTYPE_U32, UINT32_MAX)));
  }
}

static void note_least(qn__blocks_writer_t* w, qn__ir_block_t* out, const qn__blocks_panel_t* panel,
                       qn__ir_expr_t* least) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* before = qn__pb_load(pb, w->least, qn__pb_int(pb, panel->side), NULL);
  least = qn__pb_op(pb, QN_OP_MIN, before, least);
  qn__pb_append(out, qn__pb_store(pb, w->least, qn__pb_int(pb, panel->side), NULL, least));
}

// The same for rows that are packed as numbers: `min p { u16(packed[line, p]) & 0x7fff - 1 }`
// for each line, in lanes of 16 bits.
static void measure_numbers(qn__blocks_writer_t* w, qn__ir_block_t* out,
                            const qn__blocks_panel_t* panel, const qn__blocks_steps_t* steps,
                            uint32_t o) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* lines =
      qn__pb_count_loop(pb, QN_LOOP_SERIAL, "line", qn__blocks_dot_packed(w, panel));
  qn__ir_var_t* p = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "p");
  qn__ir_expr_t* least = qn__pb_reduce_over(pb, QN_REDUCE_MIN, QN_DTYPE_U16, p, qn__pb_int(pb, 0),
                                            qn__pb_copy(pb, steps->count));
  if (!lines || !least) return;
  qn__ir_expr_t* bits =
      qn__pb_load(pb, w->packed[o], qn__pb_use(pb, lines->loop.var), qn__pb_use(pb, p));
  bits = qn__blocks_dot_op(w, QN_OP_AND,
                           qn__blocks_dot_convert(w, QN__EXPR_CAST, QN_DTYPE_U16, bits), 0x7fff);
  least->reduce.value = qn__blocks_dot_op(w, QN_OP_SUB, bits, 1);
  if (!least->reduce.value) return;
  note_least(w, &lines->loop.body, panel,
             qn__blocks_dot_convert(w, QN__EXPR_CAST, QN_DTYPE_U32, least));
  qn__block_append(out, lines);
}

// Appends the totals of one packed panel.
static void measure_panel(qn__blocks_writer_t* w, qn__ir_block_t* out,
                          const qn__blocks_panel_t* panel, const qn__blocks_steps_t* steps,
                          uint32_t o) {
  qn__pass_builder_t* pb = w->pb;
  bool is_column = panel->side == QN__PRODUCT_COLUMN;
  if (w->moved && is_column) {
    qn__ir_buffer_t* totals = write_totals(w, out, panel, steps, o, 0, add_moved);
    qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_VECTOR, "v", qn__pb_int(pb, panel->lines));
    if (!totals || !loop) return;
    qn__ir_expr_t* v = qn__pb_use(pb, loop->loop.var);
    qn__ir_expr_t* at =
        qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(w->pb, panel->line), qn__pb_copy(w->pb, v));
    qn__pb_append(&loop->loop.body,
                  qn__pb_store(pb, w->moved, at, NULL, qn__pb_load(pb, totals, v, NULL)));
    qn__block_append(out, loop);
  }
  if (!w->least) return;
  if (!is_column && w->product->operands[o].runs_along_step) {
    measure_numbers(w, out, panel, steps, o);
    return;
  }
  qn__ir_buffer_t* totals = write_totals(w, out, panel, steps, o, -1, take_least);
  fold_halves(w, out, totals, panel->lines);
  // Columns that are packed across have no words beyond the edge.
  bool has_all = !is_column || w->product->operands[o].runs_along_step;
  qn__ir_expr_t* lines = has_all ? qn__pb_int(pb, panel->lines) : qn__blocks_dot_lines(w, panel);
  qn__ir_expr_t* least = qn__pb_reduce(pb, QN_REDUCE_MIN, totals, qn__pb_int(pb, 0), lines);
  note_least(w, out, panel, qn__blocks_dot_convert(w, QN__EXPR_CAST, QN_DTYPE_U32, least));
}

void qn__blocks_dot_measure(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* row,
                            qn__ir_expr_t* panels, const qn__blocks_steps_t* steps, uint32_t o) {
  if (!w->least && !(w->moved && !row)) return;
  qn__blocks_panel_t panel = {.side = QN__PRODUCT_ROW, .line = row, .lines = w->shape->height};
  if (row) {
    measure_panel(w, out, &panel, steps, o);
    return;
  }
  qn__ir_stmt_t* across = qn__blocks_dot_panels(w, panels, &panel);
  if (!across) return;
  measure_panel(w, &across->loop.body, &panel, steps, o);
  qn__block_append(out, across);
}

qn__ir_expr_t* qn__blocks_dot_is_exact(const qn__blocks_writer_t* w) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* both = NULL;
  qn__ir_expr_t* exponents = NULL;
  for (int s = 0; s < qn__product_sides; ++s) {
    qn__ir_expr_t* least = qn__pb_load(pb, w->least, qn__pb_int(pb, s), NULL);
    qn__ir_expr_t* exponent = qn__blocks_dot_op(w, QN_OP_SHR, qn__pb_copy(w->pb, least), 7);
    exponents = exponents ? qn__pb_op(pb, QN_OP_ADD, exponents, exponent) : exponent;
    qn__ir_expr_t* is_normal = qn__blocks_dot_op(w, QN_OP_GE, least, least_exponent);
    both = both ? qn__pb_op(pb, QN_OP_LOGIC_AND, both, is_normal) : is_normal;
  }
  return qn__pb_op(pb, QN_OP_LOGIC_AND, both,
                   qn__blocks_dot_op(w, QN_OP_GE, exponents, least_exponents));
}
