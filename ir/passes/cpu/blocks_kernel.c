// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks_kernel.c: the innermost loops of a task.
//
//   alloc t: [height, width] in local;               // registers
//   let place = row * columns + panel * width;
//   vector v { t[u, v] = acc[place + u * columns + v]; }  // for each u
//   for p in 0..count {
//     let a_u = rows[u, p]; ...
//     vector v { let b = columns[panel * depth + p, v]; t[u, v] = fma(a_u, b, t[u, v]); ... }
//   }
//   vector v { acc[place + u * columns + v] = t[u, v]; }
//
// The rows are written out with constant indices, so that the code generator holds `t` in
// registers. `acc` has one index, so that places of a tile are constants apart.
#include "ir/passes/cpu/blocks_dots.h"

enum { max_height = 16 };

typedef struct kernel {
  qn__blocks_writer_t* w;
  const qn__blocks_tile_t* tile;
  qn__ir_buffer_t* sums;
  qn__ir_expr_t* rows[max_height][qn__max_nest];  // values of the row loops, if they are needed
  qn__ir_buffer_t* flat[qn__product_max_operands][max_height];  // rows over several steps' loops
} kernel_t;

static qn__ir_stmt_t* vector_loop(kernel_t* self, const char* name) {
  qn__pass_builder_t* pb = self->w->pb;
  return qn__pb_count_loop(pb, QN_LOOP_VECTOR, name, qn__pb_int(pb, self->tile->width));
}

// Returns row `u` of the tile, of the task.
static qn__ir_expr_t* row_of(const kernel_t* self, int64_t u) {
  qn__pass_builder_t* pb = self->w->pb;
  const qn__blocks_tile_t* tile = self->tile;
  qn__ir_expr_t* line = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_copy(pb, tile->line), u);
  return qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, tile->row), line);
}

// Returns lane `v` of the tile as a column of the panel, or of the task.
static qn__ir_expr_t* column_of_panel(const kernel_t* self, qn__ir_var_t* v) {
  qn__pass_builder_t* pb = self->w->pb;
  qn__ir_expr_t* lane = qn__pb_use(pb, v);
  if (!self->tile->column) return lane;
  return qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, self->tile->column), lane);
}
static qn__ir_expr_t* column_of(const kernel_t* self, qn__ir_var_t* v) {
  qn__pass_builder_t* pb = self->w->pb;
  qn__ir_expr_t* first =
      qn__pb_op_int(pb, QN_OP_MUL, qn__pb_copy(pb, self->tile->panel), self->w->shape->width);
  return qn__pb_op(pb, QN_OP_ADD, first, column_of_panel(self, v));
}

// Appends the place of the tile's first sum among those of the task.
static qn__ir_expr_t* write_place(kernel_t* self, qn__ir_block_t* out) {
  const qn__blocks_writer_t* w = self->w;
  qn__pass_builder_t* pb = w->pb;
  const qn__blocks_tile_t* tile = self->tile;
  qn__ir_expr_t* at = qn__pb_op_int(pb, QN_OP_MUL, row_of(self, 0), w->shape->columns);
  at = qn__pb_op(pb, QN_OP_ADD, at,
                 qn__pb_op_int(pb, QN_OP_MUL, qn__pb_copy(pb, tile->panel), w->shape->width));
  if (tile->column) at = qn__pb_op(pb, QN_OP_ADD, at, qn__pb_copy(pb, tile->column));
  return qn__pb_named(pb, out, "place", at);
}

// Copies the tile from the sums of the task at `place` (`is_begin`; NULL: from the neutral value),
// or to them.
static void write_transfer(kernel_t* self, qn__ir_block_t* out, const qn__ir_expr_t* place,
                           bool is_begin) {
  qn__blocks_writer_t* w = self->w;
  qn__pass_builder_t* pb = w->pb;
  const qn__ir_expr_t* reduce = w->product->reduce;
  for (int64_t u = 0; u < self->tile->height; ++u) {
    qn__ir_stmt_t* loop = vector_loop(self, "v");
    if (!loop) return;
    qn__ir_expr_t* own = qn__pb_use(pb, loop->loop.var);
    qn__ir_expr_t* at = NULL;
    if (place) {
      at = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_copy(pb, place), u * w->shape->columns);
      at = qn__pb_op(pb, QN_OP_ADD, at, qn__pb_copy(pb, own));
    }
    qn__ir_stmt_t* store = NULL;
    if (!is_begin) {
      store =
          qn__pb_store(pb, w->acc, at, NULL, qn__pb_load(pb, self->sums, qn__pb_int(pb, u), own));
    } else {
      qn__ir_expr_t* value = at ? qn__pb_load(pb, w->acc, at, NULL)
                                : qn__pb_neutral(pb, reduce->reduce.reduce_kind, reduce->dtype);
      if (w->moved) {
        value = qn__pb_op(pb, QN_OP_SUB, value,
                          qn__pb_load(pb, w->moved, column_of(self, loop->loop.var), NULL));
      }
      store = qn__pb_store(pb, self->sums, qn__pb_int(pb, u), own, value);
    }
    qn__pb_append(&loop->loop.body, store);
    qn__block_append(out, loop);
  }
}

// Appends the loop variables of `side` at line `line` of the task, or at the last line if it is
// beyond that, and sets them.
static void place_line(kernel_t* self, qn__ir_block_t* out, qn__product_side_t side,
                       qn__ir_expr_t* line) {
  qn__blocks_writer_t* w = self->w;
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* last = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_copy(pb, w->count[side]), -1);
  line = qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, w->first[side]),
                   qn__pb_op(pb, QN_OP_MIN, line, last));
  qn__ir_var_t* at = qn__pb_let(pb, out, "at", line);
  if (at) qn__product_place(product, out, product->side_dims[side], at);
}

// Returns `sum` with the products of a word of row `u` and a word of the columns.
static qn__ir_expr_t* write_dot(const kernel_t* self, qn__ir_expr_t* sum,
                                qn__ir_var_t* elements[][max_height], int64_t u) {
  const qn__blocks_writer_t* w = self->w;
  qn__ir_expr_t* words[qn__product_sides] = {NULL};
  for (uint32_t o = 0; o < w->product->operand_count; ++o) {
    qn__product_side_t side = w->product->operands[o].side;
    words[side] = qn__pb_use(w->pb, elements[o][side == QN__PRODUCT_ROW ? u : 0]);
  }
  return qn__blocks_dot_add(w, w->dot_op, sum, words[QN__PRODUCT_ROW], words[QN__PRODUCT_COLUMN]);
}

// Returns the value of an operand in row `u` of the tile at step `p`: from the packed rows, or from
// memory.
static qn__ir_expr_t* row_value(kernel_t* self, qn__ir_block_t* out, uint32_t o, int64_t u,
                                qn__ir_var_t* p) {
  qn__blocks_writer_t* w = self->w;
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const qn__product_operand_t* operand = &product->operands[o];
  if (self->flat[o][u]) {
    qn__ir_expr_t* first = qn__pb_copy(pb, self->tile->steps->first);
    return qn__pb_load(pb, self->flat[o][u], qn__pb_op(pb, QN_OP_ADD, first, qn__pb_use(pb, p)),
                       NULL);
  }
  if (w->shape->has_direct_rows) {
    const uint32_t rows = product->side_dims[QN__PRODUCT_ROW];
    qn__product_set(product, rows, self->rows[u]);
    qn__product_write_lets(product, out, operand->is_needed, rows | QN__PRODUCT_STEP, 0);
    return qn__product_copy(product, operand->value);
  }
  qn__ir_expr_t* line = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_copy(pb, self->tile->line), u);
  qn__ir_expr_t* step = qn__pb_use(pb, p);
  if (w->dot_op) return qn__blocks_dot_row(w, o, line, step);
  bool is_along = operand->runs_along_step;
  return qn__pb_load(pb, w->packed[o], is_along ? line : step, is_along ? step : line);
}

// Appends one step for all sums of a tile whose rows are in memory and fetched ahead. LLVM moves no
// load past a prefetch, and has no registers for all rows: a row is used before the next one.
static void write_fetching_step(kernel_t* self, qn__ir_block_t* out, qn__ir_var_t* p) {
  qn__blocks_writer_t* w = self->w;
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const bool is_swapped = product->operands[0].side == QN__PRODUCT_COLUMN;
  const uint32_t r = is_swapped, c = !is_swapped;
  qn__product_set_step(
      product, out,
      qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, self->tile->steps->first), qn__pb_use(pb, p)));
  qn__ir_buffer_t* line =
      qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, w->packed[c]->dtype, "line", 1, self->tile->width);
  qn__ir_stmt_t* load = vector_loop(self, "v");
  if (!line || !load) return;
  line->is_filled = true;
  qn__ir_expr_t* at =
      qn__pb_op_int(pb, QN_OP_MUL, qn__pb_copy(pb, self->tile->panel), w->shape->words);
  at = qn__pb_op(pb, QN_OP_ADD, at, qn__pb_use(pb, p));
  qn__ir_expr_t* column = qn__pb_load(pb, w->packed[c], at, column_of_panel(self, load->loop.var));
  qn__pb_append(&load->loop.body,
                qn__pb_store(pb, line, qn__pb_int(pb, 0), qn__pb_use(pb, load->loop.var), column));
  qn__block_append(out, load);
  for (int64_t u = 0; u < self->tile->height; ++u) {
    qn__ir_expr_t* value = row_value(self, out, r, u, p);
    if (!value) return;
    qn__product_fetch_ahead(&product->operands[r], value,
                            product->steps[0].reduce->reduce.reduce_var, w->shape->row_ahead,
                            QN__FETCH_FIRST);
    qn__ir_var_t* a = qn__pb_let(pb, out, "a", value);
    qn__ir_stmt_t* loop = vector_loop(self, "v");
    if (!a || !loop) return;
    qn__ir_expr_t* v = qn__pb_use(pb, loop->loop.var);
    product->names[product->operands[r].name].now = qn__pb_use(pb, a);
    product->names[product->operands[c].name].now =
        qn__pb_load(pb, line, qn__pb_int(pb, 0), qn__pb_copy(pb, v));
    qn__product_write_lets(product, &loop->loop.body, product->is_needed,
                           qn__product_both(product) | QN__PRODUCT_STEP, 0);
    qn__ir_expr_t* sum = qn__pb_load(pb, self->sums, qn__pb_int(pb, u), qn__pb_copy(pb, v));
    sum = qn__product_add(product, sum, qn__product_copy(product, *product->summand));
    qn__pb_append(&loop->loop.body, qn__pb_store(pb, self->sums, qn__pb_int(pb, u), v, sum));
    qn__block_append(out, loop);
  }
}

static void write_step(kernel_t* self, qn__ir_block_t* out, qn__ir_var_t* p) {
  qn__blocks_writer_t* w = self->w;
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const uint32_t rows = product->side_dims[QN__PRODUCT_ROW];
  bool is_flat = product->step_count > 1;
  if (qn__product_names_step(product) || (w->shape->has_direct_rows && !is_flat)) {
    qn__ir_expr_t* step =
        qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, self->tile->steps->first), qn__pb_use(pb, p));
    qn__product_set_step(product, out, step);
  }
  qn__ir_var_t* elements[qn__product_max_operands][max_height] = {{NULL}};
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    const qn__product_operand_t* operand = &product->operands[o];
    if (operand->side != QN__PRODUCT_ROW) continue;
    for (int64_t u = 0; u < self->tile->height; ++u) {
      elements[o][u] = qn__pb_let(pb, out, "a", row_value(self, out, o, u, p));
    }
  }
  qn__ir_stmt_t* loop = vector_loop(self, "v");
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  if (qn__product_names_side(product, QN__PRODUCT_COLUMN)) {
    place_line(self, body, QN__PRODUCT_COLUMN, column_of(self, loop->loop.var));
  }
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    const qn__product_operand_t* operand = &product->operands[o];
    if (operand->side != QN__PRODUCT_COLUMN) continue;
    qn__ir_expr_t* at =
        qn__pb_op_int(pb, QN_OP_MUL, qn__pb_copy(pb, self->tile->panel), w->shape->words);
    at = qn__pb_op(pb, QN_OP_ADD, at, qn__pb_use(pb, p));
    elements[o][0] = qn__pb_let(
        pb, body, "b", qn__pb_load(pb, w->packed[o], at, column_of_panel(self, loop->loop.var)));
  }
  // Lets that depend on no row are written once.
  uint32_t column_or_step = product->side_dims[QN__PRODUCT_COLUMN] | QN__PRODUCT_STEP;
  for (int64_t u = 0; u < self->tile->height; ++u) {
    qn__product_set(product, rows, self->rows[u]);
    for (uint32_t o = 0; o < product->operand_count; ++o) {
      const qn__product_operand_t* operand = &product->operands[o];
      product->names[operand->name].now =
          qn__pb_use(pb, elements[o][operand->side == QN__PRODUCT_ROW ? u : 0]);
    }
    qn__ir_expr_t* sum =
        qn__pb_load(pb, self->sums, qn__pb_int(pb, u), qn__pb_use(pb, loop->loop.var));
    if (w->dot_op) {
      sum = write_dot(self, sum, elements, u);
    } else {
      qn__product_write_lets(product, body, product->is_needed, rows | column_or_step, 0);
      sum = qn__product_add(product, sum, qn__product_copy(product, *product->summand));
    }
    qn__pb_append(
        body, qn__pb_store(pb, self->sums, qn__pb_int(pb, u), qn__pb_use(pb, loop->loop.var), sum));
  }
  qn__block_append(out, loop);
}

// Appends views of row `u`, whose loops are set, where its steps belong to several loops.
static void write_flat(kernel_t* self, qn__ir_block_t* out, int64_t u) {
  qn__blocks_writer_t* w = self->w;
  qn__product_t* product = w->product;
  const uint32_t rows = product->side_dims[QN__PRODUCT_ROW];
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    const qn__product_operand_t* operand = &product->operands[o];
    bool is_direct = w->shape->has_direct_rows && product->step_count > 1;
    if (operand->side != QN__PRODUCT_ROW || !is_direct) continue;
    qn__product_write_lets(product, out, operand->is_needed, rows, QN__PRODUCT_STEP);
    self->flat[o][u] = qn__blocks_flat(w, out, operand);
  }
}

void qn__blocks_write_kernel(qn__blocks_writer_t* w, qn__ir_block_t* out,
                             const qn__blocks_tile_t* tile) {
  qn__pass_builder_t* pb = w->pb;
  assert(tile->height <= max_height && w->shape->height % tile->height == 0);
  kernel_t self = {.w = w, .tile = tile};
  self.sums = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, w->product->reduce->dtype, "tile",
                           tile->height, tile->width);
  if (self.sums) self.sums->is_filled = true;
  if (qn__product_names_side(w->product, QN__PRODUCT_ROW) || w->shape->has_direct_rows) {
    for (int64_t u = 0; u < tile->height; ++u) {
      place_line(&self, out, QN__PRODUCT_ROW, row_of(&self, u));
      for (uint32_t d = 0; d < w->product->nest->count; ++d) {
        self.rows[u][d] = w->product->names[d].now;
      }
      write_flat(&self, out, u);
    }
  }
  if (qn__pb_stopped(pb)) return;
  const qn__ir_expr_t* place = write_place(&self, out);
  qn__ir_expr_t* begin = NULL;
  if (tile->steps->is_first) {
    // In the first block of steps the tile begins with the neutral values that follow the sums.
    begin = qn__pb_cond(pb, qn__pb_copy(pb, tile->steps->is_first),
                        qn__pb_int(pb, w->shape->rows * w->shape->columns), qn__pb_copy(pb, place));
    begin = qn__pb_named(pb, out, "begin", begin);
  }
  if (qn__pb_stopped(pb)) return;
  write_transfer(&self, out, begin, true);
  const qn__ir_expr_t* count = tile->steps->count;
  qn__ir_stmt_t* loop = qn__pb_count_loop(
      pb, QN_LOOP_SERIAL, "p", w->dot_op ? qn__blocks_dot_words(w, count) : qn__pb_copy(pb, count));
  if (!loop) return;
  if (w->shape->row_ahead) {
    write_fetching_step(&self, &loop->loop.body, loop->loop.var);
  } else {
    write_step(&self, &loop->loop.body, loop->loop.var);
  }
  qn__block_append(out, loop);
  write_transfer(&self, out, place, false);
}
