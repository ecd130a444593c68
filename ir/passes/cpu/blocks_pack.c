// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks_pack.c: packs the operands of a product, for a tile of rows or for panels of
// columns.
//
// An operand is read in the direction in which it is contiguous in memory. Packed rows keep that
// direction, since the kernel reads them by scalars. Packed columns are contiguous across the
// columns: where memory is not, squares are transposed in registers.
#include "ir/passes/cpu/blocks_dots.h"

enum {
  max_square = 8,
  row_squares = 2  // side by side: two of eight f32 are a line of the cache
};

static qn__ir_expr_t* copy(const qn__blocks_writer_t* w, const qn__ir_expr_t* expr) {
  return qn__pb_copy(w->pb, expr);
}

// Returns the size of the squares that are transposed in registers.
static int64_t square_of(const qn__blocks_writer_t* w, const qn__product_operand_t* operand) {
  int64_t bytes = w->pb->options->vector_bytes < 32 ? 16 : 32;
  int64_t square = bytes / (int64_t)qn_dtype_size_bytes(operand->value->dtype);
  if (square > max_square) square = max_square;
  while (w->shape->width % square != 0) square /= 2;
  return square;
}

void qn__blocks_pack_buffers(qn__blocks_writer_t* w, qn__ir_block_t* out) {
  const qn__blocks_shape_t* shape = w->shape;
  for (uint32_t o = 0; o < w->product->operand_count; ++o) {
    const qn__product_operand_t* operand = &w->product->operands[o];
    int64_t lines = shape->width, steps = shape->columns / shape->width * shape->words;
    bool is_row = operand->side == QN__PRODUCT_ROW, is_along = qn__blocks_is_along(operand);
    if (is_row && shape->has_direct_rows) continue;
    if (is_row) {
      lines = shape->height;
      steps = is_along ? shape->depth : shape->words;
    }
    bool is_one_loop = w->product->step_count == 1;
    bool has_squares = operand->runs_along_step && !is_row && !shape->dot.op && is_one_loop;
    if (has_squares) w->square[o] = square_of(w, operand);
    if (has_squares || qn__blocks_dot_has_squares(w, o)) {
      if (!w->line_of) {
        w->line_of =
            qn__pb_alloc(w->pb, out, QN__SCOPE_LOCAL, QN_DTYPE_I64, "line_of", 1, shape->width);
      }
    }
    qn_dtype_t dtype = shape->dot.op ? qn__blocks_dot_dtype(w, is_along) : operand->value->dtype;
    w->packed[o] =
        qn__pb_alloc(w->pb, out, QN__SCOPE_LOCAL, dtype, is_row ? "packed_rows" : "packed_columns",
                     is_along ? lines : steps, is_along ? steps : lines);
    // Rows beyond the edge are copies, so that all that a kernel reads is packed.
    if (w->packed[o]) w->packed[o]->is_filled = is_row && !shape->dot.has_tiles;
  }
}

// Returns the indices of element (line, step) of the packed operand.
static void place_of(qn__blocks_writer_t* w, const qn__blocks_panel_t* panel,
                     const qn__product_operand_t* operand, qn__ir_expr_t* line, qn__ir_expr_t* step,
                     qn__ir_expr_t** out_indices) {
  qn__pass_builder_t* pb = w->pb;
  if (panel->side == QN__PRODUCT_COLUMN) {
    qn__ir_expr_t* base = qn__pb_op_int(pb, QN_OP_MUL, copy(w, panel->number), w->shape->depth);
    step = qn__pb_op(pb, QN_OP_ADD, base, step);
  }
  bool is_along = qn__blocks_is_along(operand);
  out_indices[0] = is_along ? line : step;
  out_indices[1] = is_along ? step : line;
}

// Sets the variable of the reduction to step `p` of those that are packed.
static void place_step(qn__blocks_writer_t* w, qn__ir_block_t* out, const qn__blocks_steps_t* steps,
                       qn__ir_expr_t* p) {
  qn__ir_expr_t* step = qn__pb_op(w->pb, QN_OP_ADD, copy(w, steps->first), p);
  qn__product_set_step(w->product, out, step);
}

// Returns line `line` of the panel, of all lines of that side: the last one of the task if that is
// beyond the edge and `is_clamped`.
static qn__ir_expr_t* line_of(qn__blocks_writer_t* w, const qn__blocks_panel_t* panel,
                              qn__ir_expr_t* line, bool is_clamped) {
  qn__pass_builder_t* pb = w->pb;
  line = qn__pb_op(pb, QN_OP_ADD, copy(w, panel->line), line);
  if (is_clamped) {
    line = qn__pb_op(pb, QN_OP_MIN, line,
                     qn__pb_op_int(pb, QN_OP_ADD, copy(w, w->count[panel->side]), -1));
  }
  return qn__pb_op(pb, QN_OP_ADD, copy(w, w->first[panel->side]), line);
}

// Sets the loops of the panel's side to a line.
static void place_line(qn__blocks_writer_t* w, qn__ir_block_t* out, const qn__blocks_panel_t* panel,
                       qn__ir_expr_t* line) {
  qn__ir_var_t* at = qn__pb_let(w->pb, out, "at", line);
  if (at) qn__product_place(w->product, out, w->product->side_dims[panel->side], at);
}

qn__ir_stmt_t* qn__blocks_lines(qn__blocks_writer_t* w, const qn__blocks_panel_t* panel,
                                qn_loop_kind_t kind, bool is_clamped) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* lines = qn__pb_count_loop(pb, kind, "line", qn__blocks_dot_packed(w, panel));
  if (!lines) return NULL;
  if (lines->loop.end->kind != QN__EXPR_INT) is_clamped = false;
  place_line(w, &lines->loop.body, panel,
             line_of(w, panel, qn__pb_use(pb, lines->loop.var), is_clamped));
  return lines;
}

// Returns true if lanes beyond the last line of a panel may be zero: memory can be masked, nothing
// but the load depends on the line, and the kernel multiplies the number, so that it cannot fail.
static bool has_zeros_beyond(const qn__blocks_writer_t* w, const qn__product_operand_t* operand) {
  const qn__product_t* product = w->product;
  const qn__pass_options_t* options = w->pb->options;
  const qn__ir_expr_t* summand = *product->summand;
  bool is_word = qn_dtype_size_bytes(operand->value->dtype) >= 4;
  if (!options->has_masked_memory && !(options->has_masked_words && is_word)) return false;
  if (operand->value->kind != QN__EXPR_LOAD) return false;
  if (product->operand_count != 2 || summand->kind != QN__EXPR_OP || summand->op != QN_OP_MUL) {
    return false;
  }
  for (uint32_t i = 0; i < product->name_count; ++i) {
    const qn__product_name_t* name = &product->names[i];
    if (operand->is_needed[i] && name->let && (name->mask & product->side_dims[operand->side])) {
      return false;
    }
  }
  return !w->shape->dot.op && operand->runs_along_line;
}

// Appends `packed[line, p] = value` for the line and the step that are set, or 0 unless `exists`,
// which may be NULL.
static void write_value(qn__blocks_writer_t* w, qn__ir_block_t* out,
                        const qn__blocks_panel_t* panel, uint32_t o, qn__ir_expr_t* line,
                        qn__ir_expr_t* p, qn__ir_expr_t* exists) {
  qn__product_t* product = w->product;
  const qn__product_operand_t* operand = &product->operands[o];
  assert(operand->side == panel->side);
  qn__product_write_lets(product, out, operand->is_needed,
                         product->side_dims[panel->side] | QN__PRODUCT_STEP, 0);
  qn__ir_expr_t* place[2];
  place_of(w, panel, operand, line, p, place);
  qn__ir_expr_t* value = qn__product_copy(product, operand->value);
  if (w->shape->dot.op) value = qn__blocks_dot_number(w, value);
  if (exists) value = qn__pb_cond(w->pb, exists, value, qn__pb_zero(w->pb, operand->value->dtype));
  qn__pb_append(out, qn__pb_store(w->pb, w->packed[o], place[0], place[1], value));
}

// Packs the lines of a panel for step `p`, in vectors across the lines.
static void write_across(qn__blocks_writer_t* w, qn__ir_block_t* out,
                         const qn__blocks_panel_t* panel, uint32_t o, qn__ir_var_t* p,
                         bool is_clamped) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* lines = qn__blocks_lines(w, panel, QN_LOOP_PARALLEL, is_clamped);
  if (!lines) return;
  write_value(w, &lines->loop.body, panel, o, qn__pb_use(pb, lines->loop.var), qn__pb_use(pb, p),
              NULL);
  qn__block_append(out, lines);
}

// The same with zeros beyond the edge.
static void write_masked(qn__blocks_writer_t* w, qn__ir_block_t* out,
                         const qn__blocks_panel_t* panel, uint32_t o, qn__ir_var_t* p) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* left =
      qn__pb_op(pb, QN_OP_SUB, copy(w, w->count[panel->side]), copy(w, panel->line));
  left = qn__pb_named(pb, out, "left", left);
  qn__ir_stmt_t* lines = qn__blocks_lines(w, panel, QN_LOOP_VECTOR, false);
  if (!left || !lines) return;
  qn__ir_var_t* line = lines->loop.var;
  write_value(w, &lines->loop.body, panel, o, qn__pb_use(pb, line), qn__pb_use(pb, p),
              qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, line), left));
  qn__block_append(out, lines);
}

// Packs the lines of a panel along the steps from `first` on, in vectors if `first` is 0.
static void write_along(qn__blocks_writer_t* w, qn__ir_block_t* out,
                        const qn__blocks_panel_t* panel, const qn__blocks_steps_t* steps,
                        uint32_t o, qn__ir_expr_t* first) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* lines = qn__blocks_lines(w, panel, QN_LOOP_SERIAL, true);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "p", copy(w, steps->count));
  if (!lines || !loop) return;
  bool is_rest = first && first->kind != QN__EXPR_INT;
  lines->loop.is_rare = loop->loop.is_rare = is_rest;
  loop->loop.begin = first;
  place_step(w, &loop->loop.body, steps, qn__pb_use(pb, loop->loop.var));
  write_value(w, &loop->loop.body, panel, o, qn__pb_use(pb, lines->loop.var),
              qn__pb_use(pb, loop->loop.var), NULL);
  qn__block_append(&lines->loop.body, loop);
  qn__block_append(out, lines);
}

void qn__blocks_write_line_table(qn__blocks_writer_t* w, qn__ir_block_t* out,
                                 const qn__blocks_panel_t* panel) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* lines =
      qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "line", qn__pb_int(pb, panel->lines));
  if (!lines) return;
  qn__ir_expr_t* at = line_of(w, panel, qn__pb_use(pb, lines->loop.var), true);
  qn__pb_append(&lines->loop.body, qn__pb_store(pb, w->line_of, qn__pb_int(pb, 0),
                                                qn__pb_use(pb, lines->loop.var), at));
  qn__block_append(out, lines);
}

// Packs the lines of a panel, whose elements are neighbours along the steps in memory and along the
// lines when they are packed. Squares of elements are transposed in registers: some of each line,
// to read whole lines of the cache, then those of the next lines, to write them.
static void write_transposed(qn__blocks_writer_t* w, qn__ir_block_t* out,
                             const qn__blocks_panel_t* panel, const qn__blocks_steps_t* steps,
                             uint32_t o) {
  qn__pass_builder_t* pb = w->pb;
  int64_t size = w->square[o];
  assert(size > 1 && panel->lines % size == 0);
  qn__ir_expr_t* whole = qn__pb_named(
      pb, out, "whole", qn__pb_op_int(pb, QN_OP_FLOORDIV, copy(w, steps->count), size));
  int64_t count = panel->lines % (size * row_squares) == 0 ? row_squares : 1;
  qn__ir_stmt_t* rows =
      qn__pb_count_loop(pb, QN_LOOP_SERIAL, "row", qn__pb_int(pb, panel->lines / (size * count)));
  qn__ir_stmt_t* squares = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "square", copy(w, whole));
  qn__ir_stmt_t* groups = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "group", qn__pb_int(pb, count));
  qn__ir_stmt_t* lines = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "line", qn__pb_int(pb, size));
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_VECTOR, "p", qn__pb_int(pb, size));
  if (!rows || !squares || !groups || !lines || !loop) return;
  lines->loop.is_transposed = true;
  qn__ir_expr_t* group =
      qn__pb_op(pb, QN_OP_ADD, qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, rows->loop.var), count),
                qn__pb_use(pb, groups->loop.var));
  qn__ir_expr_t* line = qn__pb_op(pb, QN_OP_ADD, qn__pb_op_int(pb, QN_OP_MUL, group, size),
                                  qn__pb_use(pb, lines->loop.var));
  qn__ir_expr_t* p = qn__pb_op(
      pb, QN_OP_ADD, qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, squares->loop.var), size),
      qn__pb_use(pb, loop->loop.var));
  // The code generator would compute clamped lines again for each square.
  qn__blocks_write_line_table(w, out, panel);
  place_line(w, &lines->loop.body, panel,
             qn__pb_load(pb, w->line_of, qn__pb_int(pb, 0), copy(w, line)));
  place_step(w, &loop->loop.body, steps, copy(w, p));
  write_value(w, &loop->loop.body, panel, o, line, p, NULL);
  qn__block_append(&lines->loop.body, loop);
  qn__block_append(&groups->loop.body, lines);
  qn__block_append(&squares->loop.body, groups);
  qn__block_append(&rows->loop.body, squares);
  qn__block_append(out, rows);
  write_along(w, out, panel, steps, o, qn__pb_op_int(pb, QN_OP_MUL, copy(w, whole), size));
}

// Appends `packed[line, p] = value` for all steps of the line that is set, whose operand is
// contiguous along them.
static void write_line(qn__blocks_writer_t* w, qn__ir_block_t* out, const qn__blocks_panel_t* panel,
                       const qn__blocks_steps_t* steps, uint32_t o, qn__ir_var_t* line) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const qn__product_operand_t* operand = &product->operands[o];
  uint32_t own = product->side_dims[panel->side];
  qn__ir_expr_t* place[2];
  if (operand->is_flat) {
    qn__product_write_lets(product, out, operand->is_needed, own, QN__PRODUCT_STEP);
    qn__ir_buffer_t* view = qn__blocks_flat(w, out, operand);
    qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "p", copy(w, steps->count));
    if (!view || !loop) return;
    place_of(w, panel, operand, qn__pb_use(pb, line), qn__pb_use(pb, loop->loop.var), place);
    qn__ir_expr_t* step =
        qn__pb_op(pb, QN_OP_ADD, copy(w, steps->first), qn__pb_use(pb, loop->loop.var));
    qn__pb_append(&loop->loop.body, qn__pb_store(pb, w->packed[o], place[0], place[1],
                                                 qn__pb_load(pb, view, step, NULL)));
    qn__block_append(out, loop);
    return;
  }
  qn__blocks_loop_t loop = qn__blocks_each_step(w, out, steps);
  if (!loop.body) return;
  qn__product_write_lets(product, loop.body, operand->is_needed, own | QN__PRODUCT_STEP, 0);
  place_of(w, panel, operand, qn__pb_use(pb, line), loop.line, place);
  qn__pb_append(loop.body, qn__pb_store(pb, w->packed[o], place[0], place[1],
                                        qn__product_copy(product, operand->value)));
}

// Packs the lines of a panel for steps that belong to several loops.
static void write_each(qn__blocks_writer_t* w, qn__ir_block_t* out, const qn__blocks_panel_t* panel,
                       const qn__blocks_steps_t* steps, uint32_t o) {
  qn__ir_stmt_t* lines = qn__blocks_lines(w, panel, QN_LOOP_SERIAL, true);
  if (!lines) return;
  write_line(w, &lines->loop.body, panel, steps, o, lines->loop.var);
  qn__block_append(out, lines);
}

// Appends `packed[line, p] = value` for a part of a run.
static void write_elements(qn__blocks_writer_t* w, const qn__blocks_panel_t* panel, uint32_t o,
                           qn__ir_var_t* p, qn__ir_expr_t* value, const qn__blocks_run_t* run,
                           const qn__ir_expr_t* from, const qn__ir_expr_t* to) {
  qn__product_t* product = w->product;
  const qn__product_operand_t* operand = &product->operands[o];
  qn__blocks_loop_t loop = qn__blocks_elements(w, run, from, to);
  if (!loop.body) return;
  bool is_needed[qn__product_max_names] = {false};
  qn__product_needs(product, value, is_needed);
  qn__product_write_lets(product, loop.body, is_needed,
                         product->side_dims[panel->side] | QN__PRODUCT_STEP, 0);
  qn__ir_expr_t* place[2];
  place_of(w, panel, operand, loop.line, qn__pb_use(w->pb, p), place);
  qn__pb_append(loop.body, qn__pb_store(w->pb, w->packed[o], place[0], place[1],
                                        qn__product_copy(product, value)));
}

// Copies the last value of each step to the lines from `count` on.
static void write_beyond(qn__blocks_writer_t* w, qn__ir_block_t* out,
                         const qn__blocks_panel_t* panel, const qn__blocks_steps_t* steps,
                         uint32_t o, const qn__ir_expr_t* count) {
  qn__pass_builder_t* pb = w->pb;
  const qn__product_operand_t* operand = &w->product->operands[o];
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "p", copy(w, steps->count));
  qn__ir_var_t* line = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "line");
  qn__ir_stmt_t* lines =
      qn__pb_loop(pb, QN_LOOP_PARALLEL, line, copy(w, count), qn__pb_int(pb, panel->lines));
  if (!loop || !lines) return;
  qn__ir_expr_t* place[2];
  place_of(w, panel, operand, qn__pb_op_int(pb, QN_OP_ADD, copy(w, count), -1),
           qn__pb_use(pb, loop->loop.var), place);
  qn__ir_expr_t* last = qn__pb_load(pb, w->packed[o], place[0], place[1]);
  place_of(w, panel, operand, qn__pb_use(pb, line), qn__pb_use(pb, loop->loop.var), place);
  qn__pb_append(&lines->loop.body, qn__pb_store(pb, w->packed[o], place[0], place[1], last));
  qn__block_append(&loop->loop.body, lines);
  qn__ir_expr_t* is_edge = qn__pb_op_int(pb, QN_OP_LT, copy(w, count), panel->lines);
  qn__pb_append(out, qn__pb_if(pb, is_edge, qn__block_of(loop)));
}

// Packs the lines of a panel that belong to several loops: for each run, all steps. So what belongs
// to a run is computed once. Lines beyond the edge get the last value.
static void write_runs(qn__blocks_writer_t* w, qn__ir_block_t* out, const qn__blocks_panel_t* panel,
                       const qn__blocks_steps_t* steps, uint32_t o) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  qn__product_operand_t* operand = &product->operands[o];
  qn__ir_expr_t* left =
      qn__pb_op(pb, QN_OP_SUB, copy(w, w->count[panel->side]), copy(w, panel->line));
  qn__ir_expr_t* count =
      qn__pb_named(pb, out, "lines", qn__pb_op_int(pb, QN_OP_MIN, left, panel->lines));
  qn__ir_expr_t* first =
      qn__pb_op(pb, QN_OP_ADD, copy(w, w->first[panel->side]), copy(w, panel->line));
  first = qn__pb_named(pb, out, "first", first);
  qn__blocks_run_t run;
  if (!count || !first || !qn__blocks_open_run(w, out, panel->side, first, count, &run)) return;
  if (qn__blocks_can_mask(product, operand)) {
    qn__blocks_pack_masked(w, panel, steps, o, &run);
    write_beyond(w, out, panel, steps, o, count);
    return;
  }
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "p", copy(w, steps->count));
  if (!loop) return;
  place_step(w, &loop->loop.body, steps, qn__pb_use(pb, loop->loop.var));
  qn__block_append(run.body, loop);
  run.body = &loop->loop.body;
  qn__ir_var_t* p = loop->loop.var;
  qn__ir_expr_t* choice = qn__blocks_choice(product, operand->value);
  qn__ir_expr_t* from = NULL;
  qn__ir_expr_t* to = NULL;
  if (choice && qn__blocks_inside(w, run.body, panel->side, choice->args[0], &run, &from, &to)) {
    write_elements(w, panel, o, p, choice->args[2], &run, run.from, from);
    write_elements(w, panel, o, p, choice->args[1], &run, from, to);
    write_elements(w, panel, o, p, choice->args[2], &run, to, run.to);
  } else {
    write_elements(w, panel, o, p, operand->value, &run, run.from, run.to);
  }
  write_beyond(w, out, panel, steps, o, count);
}

// Packs one operand for a panel: for step `p`, or for all steps of an operand that is contiguous
// along them (`p` is NULL). A line beyond the edge is zero or a copy of the last one. Across the
// lines a whole panel needs no clamp, so that its vectors are contiguous, and no mask, which takes
// as long as the copy.
static void write_panel(qn__blocks_writer_t* w, qn__ir_block_t* out,
                        const qn__blocks_panel_t* panel, const qn__blocks_steps_t* steps,
                        uint32_t o, qn__ir_var_t* p) {
  qn__pass_builder_t* pb = w->pb;
  if (w->square[o] > 1) {
    write_transposed(w, out, panel, steps, o);
  } else if (!p && !w->product->operands[o].runs_along_step) {
    write_runs(w, out, panel, steps, o);
  } else if (!p && w->product->step_count > 1) {
    write_each(w, out, panel, steps, o);
  } else if (!p) {
    write_along(w, out, panel, steps, o, qn__pb_int(pb, 0));
  } else {
    qn__ir_expr_t* end = qn__pb_op_int(pb, QN_OP_ADD, copy(w, panel->line), panel->lines);
    qn__ir_expr_t* is_whole = qn__pb_op(pb, QN_OP_LE, end, copy(w, w->count[panel->side]));
    qn__ir_block_t whole = {NULL, NULL};
    write_across(w, &whole, panel, o, p, false);
    qn__ir_stmt_t* test = qn__pb_if(pb, is_whole, whole);
    if (!test) return;
    if (has_zeros_beyond(w, &w->product->operands[o])) {
      write_masked(w, &test->if_.else_block, panel, o, p);
    } else {
      write_across(w, &test->if_.else_block, panel, o, p, true);
    }
    qn__block_append(out, test);
  }
}

void qn__blocks_pack(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* row,
                     qn__ir_expr_t* panels, const qn__blocks_steps_t* steps) {
  bool has_dot = w->shape->dot.op != 0;
  qn__pass_builder_t* pb = w->pb;
  qn__product_side_t side = row ? QN__PRODUCT_ROW : QN__PRODUCT_COLUMN;
  for (uint32_t o = 0; o < w->product->operand_count; ++o) {
    const qn__product_operand_t* operand = &w->product->operands[o];
    if (operand->side != side || (row && w->shape->has_direct_rows)) continue;
    if (has_dot && !qn__blocks_is_along(operand)) {
      qn__blocks_dot_pack(w, out, row, panels, steps, o);
      qn__blocks_dot_measure(w, out, row, panels, steps, o);
      continue;
    }
    qn__ir_stmt_t* loop = NULL;
    if (!operand->runs_along_step && !qn__blocks_has_runs(w, side)) {
      loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "p", copy(w, steps->count));
      if (!loop) return;
      place_step(w, &loop->loop.body, steps, qn__pb_use(pb, loop->loop.var));
    }
    qn__ir_block_t* body = loop ? &loop->loop.body : out;
    qn__ir_var_t* p = loop ? loop->loop.var : NULL;
    qn__blocks_panel_t panel = {.side = side, .line = row, .lines = w->shape->height};
    if (side == QN__PRODUCT_ROW) {
      write_panel(w, body, &panel, steps, o, p);
    } else {
      qn__ir_stmt_t* across = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "panel", copy(w, panels));
      if (!across) return;
      panel.number = qn__pb_use(pb, across->loop.var);
      panel.line = qn__pb_op_int(pb, QN_OP_MUL, panel.number, w->shape->width);
      panel.lines = w->shape->width;
      write_panel(w, &across->loop.body, &panel, steps, o, p);
      qn__block_append(body, across);
    }
    if (loop) qn__block_append(out, loop);
    if (has_dot) {
      qn__blocks_dot_pad(w, out, row, steps, o);
      qn__blocks_dot_measure(w, out, row, panels, steps, o);
    }
  }
}
