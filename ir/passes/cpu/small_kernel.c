// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/small_kernel.c: tiles of registers over operands that are read where they are.
//
//   alloc t: [height, width] in local;                 // registers
//   for p in 0..K {
//     let a_u = A[row + u, p]; ...
//     vector v { let b = v < limit ? B[p, column + v] : 0; t[u, v] = fma(a_u, b, t[u, v]); ... }
//   }
//
// 1. Each sum is added up in the order of the reduction, as in blocks_write.c.
// 2. Only the columns and the results are masked: sums beyond `limit` are of no use and do no harm.
// 3. The last row is repeated in a tile that is not full, and not stored again.
// 4. Steps of a panel of several vectors are short runs of memory, a line of the matrix apart:
//    the kernel fetches those that it needs soon.
#include "ir/passes/cpu/small.h"

#include "ir/passes/products_write.h"

// A tile of sums that registers hold.
typedef struct small_tile {
  int64_t height;
  qn__ir_buffer_t* sums;
  qn__ir_expr_t* rows[qn__small_max_height][qn__max_nest];  // values of the row loops
} small_tile_t;

static qn__ir_expr_t* copy(const qn__small_writer_t* w, const qn__ir_expr_t* expr) {
  return qn__pb_copy(w->pb, expr);
}

// Sets the variables of a side's loops at `line`; consumes `line`.
static void place(qn__small_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                  qn__ir_expr_t* line) {
  qn__ir_var_t* at = qn__pb_let(w->pb, out, "at", line);
  if (at) qn__product_place(w->product, out, w->product->side_dims[side], at);
}

static qn__ir_stmt_t* vector_loop(const qn__small_writer_t* w) {
  return qn__pb_count_loop(w->pb, QN_LOOP_VECTOR, "v", qn__pb_int(w->pb, w->panel->width));
}

// Returns whether the column of a vector loop exists.
static qn__ir_expr_t* exists(const qn__small_writer_t* w, const qn__ir_stmt_t* loop) {
  return qn__pb_op(w->pb, QN_OP_LT, qn__pb_use(w->pb, loop->loop.var), copy(w, w->limit));
}

// Appends loads of the columns of a step to `line`, a buffer of registers.
static void write_columns(qn__small_writer_t* w, qn__ir_block_t* out,
                          const qn__product_operand_t* column, qn__ir_buffer_t* line) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* loop = vector_loop(w);
  if (!loop || !line) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_expr_t* v = qn__pb_use(pb, loop->loop.var);
  place(w, body, QN__PRODUCT_COLUMN, qn__pb_op(pb, QN_OP_ADD, copy(w, w->column), copy(w, v)));
  qn__ir_expr_t* value = qn__product_copy(product, column->value);
  if (!value) return;
  if (w->panel->ahead > 0) {
    qn__product_fetch_ahead(column, value, product->steps[0].reduce->reduce.reduce_var,
                            w->panel->ahead, QN__FETCH_FIRST);
  }
  if (!w->panel->is_whole)
    value = qn__pb_cond(pb, exists(w, loop), value, qn__pb_zero(pb, value->dtype));
  qn__pb_append(body, qn__pb_store(pb, line, qn__pb_int(pb, 0), v, value));
  qn__block_append(out, loop);
}

// Appends one step of the reduction for all sums of a tile.
static void write_step(qn__small_writer_t* w, qn__ir_block_t* out, small_tile_t* tile,
                       qn__ir_var_t* p) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const bool is_swapped = product->operands[0].side == QN__PRODUCT_COLUMN;
  const qn__product_operand_t* row = &product->operands[is_swapped];
  const qn__product_operand_t* column = &product->operands[!is_swapped];
  qn__ir_var_t* elements[qn__small_max_height] = {NULL};
  qn__product_set_step(product, out, qn__pb_use(pb, p));
  qn__product_write_lets(product, out, column->is_needed, QN__PRODUCT_STEP, 0);
  // Columns are before rows: LLVM moves no load past a prefetch, and has no registers for all rows.
  qn__ir_buffer_t* line =
      qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, column->value->dtype, "line", 1, w->panel->width);
  if (!line) return;
  line->is_filled = true;
  write_columns(w, out, column, line);
  for (int64_t u = 0; u < tile->height; ++u) {
    qn__product_set(product, product->side_dims[QN__PRODUCT_ROW], tile->rows[u]);
    elements[u] = qn__product_write_operand(product, out, row);
  }
  qn__ir_stmt_t* loop = vector_loop(w);
  if (!loop || qn__pb_stopped(pb)) return;
  qn__ir_block_t* body = &loop->loop.body;
  for (int64_t u = 0; u < tile->height; ++u) {
    qn__ir_expr_t* v = qn__pb_use(pb, loop->loop.var);
    product->names[row->name].now = qn__pb_use(pb, elements[u]);
    product->names[column->name].now = qn__pb_load(pb, line, qn__pb_int(pb, 0), copy(w, v));
    qn__ir_expr_t* sum = qn__pb_load(pb, tile->sums, qn__pb_int(pb, u), copy(w, v));
    sum = qn__product_add(product, sum, qn__product_copy(product, *product->summand));
    qn__pb_append(body, qn__pb_store(pb, tile->sums, qn__pb_int(pb, u), v, sum));
  }
  qn__block_append(out, loop);
}

// Appends the first values of a tile's sums (`is_first`), or copies the sums to `w->sums`.
static void write_transfer(qn__small_writer_t* w, qn__ir_block_t* out, const small_tile_t* tile,
                           bool is_first) {
  qn__pass_builder_t* pb = w->pb;
  const qn__ir_expr_t* reduce = w->product->reduce;
  for (int64_t u = 0; u < tile->height; ++u) {
    qn__ir_stmt_t* loop = vector_loop(w);
    if (!loop) return;
    qn__ir_expr_t* v = qn__pb_use(pb, loop->loop.var);
    qn__ir_expr_t* value = is_first
                               ? qn__pb_neutral(pb, reduce->reduce.reduce_kind, reduce->dtype)
                               : qn__pb_load(pb, tile->sums, qn__pb_int(pb, u), qn__pb_copy(pb, v));
    qn__pb_append(&loop->loop.body,
                  qn__pb_store(pb, is_first ? tile->sums : w->sums, qn__pb_int(pb, u), v, value));
    qn__block_append(out, loop);
  }
}

// Appends the nest's statement for the columns of row `u` of a tile, of which all exist if
// `is_whole`.
static void write_line(qn__small_writer_t* w, qn__ir_block_t* out, const small_tile_t* tile,
                       int64_t u, bool is_whole) {
  qn__pass_builder_t* pb = w->pb;
  qn__product_set(w->product, w->product->side_dims[QN__PRODUCT_ROW], tile->rows[u]);
  qn__ir_stmt_t* loop = vector_loop(w);
  qn__ir_block_t line = {NULL, NULL};
  if (!loop) return;
  qn__ir_expr_t* v = qn__pb_use(pb, loop->loop.var);
  place(w, &line, QN__PRODUCT_COLUMN,
        qn__pb_op(pb, QN_OP_ADD, copy(w, w->column), qn__pb_copy(pb, v)));
  qn__product_write_body(w->product, &line, qn__pb_load(pb, tile->sums, qn__pb_int(pb, u), v));
  if (!is_whole) {
    qn__ir_stmt_t* test = qn__pb_if(pb, exists(w, loop), line);
    line = (qn__ir_block_t){test, test};
  }
  if (qn__pb_stopped(pb)) return;
  qn__block_splice(&loop->loop.body, &line);
  qn__block_append(out, loop);
}

// Appends the nest's statement for a tile. Rows from `end` on do not exist; where tiles overlap
// they are copies of the last one.
static void write_lines(qn__small_writer_t* w, qn__ir_block_t* out, const small_tile_t* tile,
                        const qn__small_rows_t* rows, bool is_whole) {
  qn__pass_builder_t* pb = w->pb;
  for (int64_t u = 0; u < tile->height; ++u) {
    qn__ir_block_t line = {NULL, NULL};
    write_line(w, &line, tile, u, is_whole);
    if (rows->end && u > 0 && !w->shape->overlaps) {
      qn__ir_expr_t* at = qn__pb_op_int(pb, QN_OP_ADD, copy(w, rows->first), u);
      qn__ir_stmt_t* test = qn__pb_if(pb, qn__pb_op(pb, QN_OP_LT, at, copy(w, rows->end)), line);
      line = (qn__ir_block_t){test, test};
    }
    if (qn__pb_stopped(pb)) return;
    qn__block_splice(out, &line);
  }
}

// Appends the nest's statement for a tile, as vectors. Where masks are vectors, stores under them
// are slow on some processors: only panels that are not full have such.
static void write_stores(qn__small_writer_t* w, qn__ir_block_t* out, const small_tile_t* tile,
                         const qn__small_rows_t* rows) {
  qn__pass_builder_t* pb = w->pb;
  if (w->panel->is_whole || !w->shape->overlaps) {
    write_lines(w, out, tile, rows, w->panel->is_whole);
    return;
  }
  qn__ir_block_t whole = {NULL, NULL};
  write_lines(w, &whole, tile, rows, true);
  qn__ir_expr_t* is_full = qn__pb_op_int(pb, QN_OP_GE, copy(w, w->limit), w->panel->width);
  qn__ir_stmt_t* test = qn__pb_if(pb, is_full, whole);
  if (!test || qn__pb_stopped(pb)) return;
  write_lines(w, &test->if_.else_block, tile, rows, false);
  qn__block_append(out, test);
}

// Appends the statements of the nest for the columns of a row, where lanes cannot do them.
static void write_elements(qn__small_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* i) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_var_t* var = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "j");
  qn__ir_expr_t* first = w->done ? copy(w, w->done) : qn__pb_int(pb, 0);
  qn__ir_expr_t* end = qn__pb_op_int(pb, QN_OP_MIN, copy(w, w->limit), w->panel->width);
  qn__ir_stmt_t* across = qn__pb_loop(pb, QN_LOOP_PARALLEL, var, first, end);
  if (!across) return;
  qn__ir_expr_t* j = qn__pb_use(pb, across->loop.var);
  place(w, &across->loop.body, QN__PRODUCT_COLUMN,
        qn__pb_op(pb, QN_OP_ADD, copy(w, w->column), qn__pb_copy(pb, j)));
  qn__product_write_body(w->product, &across->loop.body, qn__pb_load(pb, w->sums, i, j));
  qn__block_append(out, across);
}

// Appends what the nest does with the rows of `w->sums` that exist.
static void write_results(qn__small_writer_t* w, qn__ir_block_t* out,
                          const qn__small_rows_t* rows) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_var_t* var = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "i");
  qn__ir_expr_t* first = rows->done ? copy(w, rows->done) : qn__pb_int(pb, 0);
  qn__ir_expr_t* end = qn__pb_int(pb, rows->height);
  if (rows->end) {
    qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, copy(w, rows->end), copy(w, rows->first));
    end = qn__pb_op(pb, QN_OP_MIN, end, left);
  }
  qn__ir_stmt_t* down = qn__pb_loop(pb, QN_LOOP_SERIAL, var, first, end);
  if (!down) return;
  qn__ir_expr_t* i = qn__pb_use(pb, down->loop.var);
  place(w, &down->loop.body, QN__PRODUCT_ROW,
        qn__pb_op(pb, QN_OP_ADD, copy(w, rows->first), qn__pb_copy(pb, i)));
  write_elements(w, &down->loop.body, i);
  qn__block_append(out, down);
}

void qn__small_write_tile(qn__small_writer_t* w, qn__ir_block_t* out,
                          const qn__small_rows_t* rows) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  small_tile_t tile = {.height = rows->height};
  assert(rows->height <= qn__small_max_height);
  tile.sums = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, product->reduce->dtype, "tile", rows->height,
                           w->panel->width);
  for (int64_t u = 0; u < rows->height; ++u) {
    qn__ir_expr_t* line = qn__pb_op_int(pb, QN_OP_ADD, copy(w, rows->first), u);
    if (rows->end && u > 0) {
      line = qn__pb_op(pb, QN_OP_MIN, line, qn__pb_op_int(pb, QN_OP_ADD, copy(w, rows->end), -1));
    }
    place(w, out, QN__PRODUCT_ROW, line);
    for (uint32_t d = 0; d < product->nest->count; ++d) tile.rows[u][d] = product->names[d].now;
  }
  if (qn__pb_stopped(pb)) return;
  write_transfer(w, out, &tile, true);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "p", copy(w, w->steps));
  if (!loop) return;
  write_step(w, &loop->loop.body, &tile, loop->loop.var);
  qn__block_append(out, loop);
  if (w->is_store) {
    write_stores(w, out, &tile, rows);
  } else {
    write_transfer(w, out, &tile, false);
    write_results(w, out, rows);
  }
}
