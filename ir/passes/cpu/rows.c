// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/rows.c: writes a product of few rows, whose columns are contiguous in memory.
//
//   parallel task in 0..batch * ceildiv(N, width) {
//     let column = min(number * width, N - width);
//     sums[i, v] = 0;
//     for block in 0..ceildiv(K, depth) {
//       for tile in 0..ceildiv(M, height) {
//         alloc t: [height, width] in local;               // registers
//         t[u, v] = sums[row + u, v];
//         for p in the block's steps {
//           let a_u = A[row + u, p]; ...
//           vector v { let b = B[p, column + v]; t[u, v] = fma(a_u, b, t[u, v]); ... }
//         }
//         sums[row + u, v] = t[u, v];
//       }
//     }
//     for i in 0..M { for v { C[i, column + v] = sums[i, v]; } }
//   }
//
// 1. Few rows use a column too seldom to pay for packing it. The tiles of a block of steps find its
//    columns in the first cache.
// 2. The last panel of columns is moved back to end with the matrix, so that its vectors are whole.
//    Columns of the panel before it are computed twice and stored once.
// 3. Rows beyond the last are copies of it, and nothing stores their results.
// 4. Each sum is added up in the order of the reduction, as in blocks_write.c.
#include "ir/passes/cpu/rows.h"

#include "ir/passes/products_write.h"

enum {
  height = 4,  // with `vectors` as many sums as hide the latency of additions
  // More read the columns so often that packing is cheaper. Vectors of 64 bytes come with twice the
  // registers, and use whole lines of memory.
  max_rows = 16,
  max_rows_wide = 128,
  max_rows_fast = 48,  // where a core begins two multiplications a cycle: half the time to read
  depth = 128,         // of a block: the first cache holds its columns
  min_steps = 4,
  max_summand = 4  // instructions, as in blocks.c
};

typedef struct rows_writer {
  qn__product_t* product;
  qn__pass_builder_t* pb;
  const qn__rows_shape_t* shape;
  qn__ir_expr_t* rows;    // of the product, no more than `max_rows`
  qn__ir_expr_t* column;  // the first of the panel
  qn__ir_expr_t* fresh;   // columns at the panel's begin that the panel before has stored
  qn__ir_expr_t* done;    // steps of the blocks before
  qn__ir_expr_t* steps;   // of the block
  qn__ir_buffer_t* sums;  // [max_rows, width]: of all rows, between blocks of steps
} rows_writer_t;

// A tile of sums that registers hold.
typedef struct rows_tile {
  int64_t height;
  qn__ir_expr_t* row;  // the first
  qn__ir_buffer_t* sums;
  qn__ir_expr_t* rows[height][qn__max_nest];  // values of the row loops
} rows_tile_t;

bool qn__rows_choose(const qn__product_t* product, int64_t min_packed, bool has_dot,
                     qn__rows_shape_t* shape) {
  const qn__pass_options_t* options = product->pb->options;
  int64_t size = (int64_t)qn_dtype_size_bytes(product->reduce->dtype);
  const uint32_t across = product->side_dims[QN__PRODUCT_COLUMN];
  const qn__nest_t* nest = product->nest;
  // Columns of several loops are contiguous within one only.
  if (across != 1U << nest->order[nest->count - 1] || product->step_count != 1) return false;
  if (size < 4 || product->operand_count > 2) return false;
  const qn__ir_expr_t* reduce = product->steps[0].reduce;
  int64_t steps = qn__const_trips(reduce->reduce.begin, reduce->reduce.end);
  if (steps >= 0 && steps < min_steps) return false;
  if (qn__product_summand_size(product) > max_summand) return false;
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    const qn__product_operand_t* operand = &product->operands[o];
    if (operand->side == QN__PRODUCT_COLUMN && !operand->runs_along_line) return false;
  }
  bool is_wide = options->vector_bytes >= 64;
  bool is_fast = options->wide_multiplies > 1;
  int64_t vectors = is_wide ? 4 : 2;
  int64_t most = !is_wide ? max_rows : is_fast ? max_rows_fast : max_rows_wide;
  *shape = (qn__rows_shape_t){.height = height,
                              .width = vectors * (int64_t)options->vector_bytes / size,
                              .max_rows = has_dot ? min_packed - 1 : most};
  int64_t rows = qn__product_trips(product, product->side_dims[QN__PRODUCT_ROW]);
  int64_t columns = qn__product_trips(product, product->side_dims[QN__PRODUCT_COLUMN]);
  return rows <= shape->max_rows && (columns < 0 || columns >= shape->width);
}

static qn__ir_expr_t* copy(const rows_writer_t* w, const qn__ir_expr_t* expr) {
  return qn__pb_copy(w->pb, expr);
}

// Sets the variables of a side's loops at `line`; consumes `line`.
static void place(rows_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                  qn__ir_expr_t* line) {
  qn__ir_var_t* at = qn__pb_let(w->pb, out, "at", line);
  if (at) qn__product_place(w->product, out, w->product->side_dims[side], at);
}

static qn__ir_stmt_t* vector_loop(const rows_writer_t* w) {
  return qn__pb_count_loop(w->pb, QN_LOOP_VECTOR, "v", qn__pb_int(w->pb, w->shape->width));
}

// Appends one step of the reduction for all sums of a tile.
static void write_step(rows_writer_t* w, qn__ir_block_t* out, rows_tile_t* tile, qn__ir_var_t* p) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const uint32_t rows = product->side_dims[QN__PRODUCT_ROW];
  const uint32_t columns = product->side_dims[QN__PRODUCT_COLUMN];
  qn__ir_var_t* elements[qn__product_max_operands][height] = {{NULL}};
  qn__product_set_step(product, out, qn__pb_op(pb, QN_OP_ADD, copy(w, w->done), qn__pb_use(pb, p)));
  for (int64_t u = 0; u < tile->height; ++u) {
    qn__product_set(product, rows, tile->rows[u]);
    for (uint32_t o = 0; o < product->operand_count; ++o) {
      const qn__product_operand_t* operand = &product->operands[o];
      if (operand->side == QN__PRODUCT_ROW) {
        elements[o][u] = qn__product_write_operand(product, out, operand);
      }
    }
  }
  qn__ir_stmt_t* loop = vector_loop(w);
  if (!loop || qn__pb_stopped(pb)) return;
  qn__ir_block_t* body = &loop->loop.body;
  place(w, body, QN__PRODUCT_COLUMN,
        qn__pb_op(pb, QN_OP_ADD, copy(w, w->column), qn__pb_use(pb, loop->loop.var)));
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    const qn__product_operand_t* operand = &product->operands[o];
    if (operand->side == QN__PRODUCT_COLUMN) {
      elements[o][0] = qn__product_write_operand(product, body, operand);
    }
  }
  if (qn__pb_stopped(pb)) return;
  for (int64_t u = 0; u < tile->height; ++u) {
    qn__product_set(product, rows, tile->rows[u]);
    for (uint32_t o = 0; o < product->operand_count; ++o) {
      const qn__product_operand_t* operand = &product->operands[o];
      product->names[operand->name].now =
          qn__pb_use(pb, elements[o][operand->side == QN__PRODUCT_ROW ? u : 0]);
    }
    qn__product_write_lets(product, body, product->is_needed, rows | columns | QN__PRODUCT_STEP, 0);
    qn__ir_expr_t* sum =
        qn__pb_load(pb, tile->sums, qn__pb_int(pb, u), qn__pb_use(pb, loop->loop.var));
    sum = qn__product_add(product, sum, qn__product_copy(product, product->reduce->reduce.value));
    qn__pb_append(
        body, qn__pb_store(pb, tile->sums, qn__pb_int(pb, u), qn__pb_use(pb, loop->loop.var), sum));
  }
  qn__block_append(out, loop);
}

// Appends copies of the sums of a tile from `w->sums` (`is_first`), or to there.
static void write_transfer(rows_writer_t* w, qn__ir_block_t* out, const rows_tile_t* tile,
                           bool is_first) {
  qn__pass_builder_t* pb = w->pb;
  for (int64_t u = 0; u < tile->height; ++u) {
    qn__ir_stmt_t* loop = vector_loop(w);
    if (!loop) return;
    qn__ir_buffer_t* buffers[] = {tile->sums, w->sums};
    qn__ir_expr_t* lines[] = {qn__pb_int(pb, u),
                              qn__pb_op_int(pb, QN_OP_ADD, copy(w, tile->row), u)};
    qn__ir_expr_t* value =
        qn__pb_load(pb, buffers[is_first], lines[is_first], qn__pb_use(pb, loop->loop.var));
    qn__pb_append(&loop->loop.body, qn__pb_store(pb, buffers[!is_first], lines[!is_first],
                                                 qn__pb_use(pb, loop->loop.var), value));
    qn__block_append(out, loop);
  }
}

// Appends the kernel of a tile of `lines` rows at `row`.
static void write_kernel(rows_writer_t* w, qn__ir_block_t* out, int64_t lines, qn__ir_expr_t* row) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  rows_tile_t tile = {.height = lines, .row = row};
  assert(lines <= height);
  tile.sums = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, product->reduce->dtype, "tile", lines,
                           w->shape->width);
  for (int64_t u = 0; u < lines; ++u) {
    qn__ir_expr_t* last = qn__pb_op_int(pb, QN_OP_ADD, copy(w, w->rows), -1);
    qn__ir_expr_t* line = qn__pb_op_int(pb, QN_OP_ADD, copy(w, row), u);
    place(w, out, QN__PRODUCT_ROW, qn__pb_op(pb, QN_OP_MIN, line, last));
    for (uint32_t d = 0; d < product->nest->count; ++d) tile.rows[u][d] = product->names[d].now;
  }
  if (qn__pb_stopped(pb)) return;
  write_transfer(w, out, &tile, true);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "p", copy(w, w->steps));
  if (!loop) return;
  write_step(w, &loop->loop.body, &tile, loop->loop.var);
  qn__block_append(out, loop);
  write_transfer(w, out, &tile, false);
}

// Appends the first values of all sums, to the end of the last tile.
static void write_begin(rows_writer_t* w, qn__ir_block_t* out, const qn__ir_expr_t* tiles) {
  qn__pass_builder_t* pb = w->pb;
  const qn__ir_expr_t* reduce = w->product->reduce;
  qn__ir_expr_t* lines = qn__pb_op_int(pb, QN_OP_MUL, copy(w, tiles), w->shape->height);
  qn__ir_stmt_t* down = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "i", lines);
  qn__ir_stmt_t* across = vector_loop(w);
  if (!down || !across) return;
  qn__pb_append(
      &across->loop.body,
      qn__pb_store(pb, w->sums, qn__pb_use(pb, down->loop.var), qn__pb_use(pb, across->loop.var),
                   qn__pb_neutral(pb, reduce->reduce.reduce_kind, reduce->dtype)));
  qn__block_append(&down->loop.body, across);
  qn__block_append(out, down);
}

// Appends the statements of the nest for all sums.
static void write_results(rows_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* down = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "i", copy(w, w->rows));
  qn__ir_expr_t* count =
      qn__pb_op(pb, QN_OP_SUB, qn__pb_int(pb, w->shape->width), copy(w, w->fresh));
  qn__ir_stmt_t* across = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "j", count);
  if (!down || !across) return;
  place(w, &down->loop.body, QN__PRODUCT_ROW, qn__pb_use(pb, down->loop.var));
  qn__ir_expr_t* at = qn__pb_op(pb, QN_OP_ADD, copy(w, w->fresh), qn__pb_use(pb, across->loop.var));
  at = qn__pb_named(pb, &across->loop.body, "own", at);
  place(w, &across->loop.body, QN__PRODUCT_COLUMN,
        qn__pb_op(pb, QN_OP_ADD, copy(w, w->column), copy(w, at)));
  qn__product_write_body(w->product, &across->loop.body,
                         qn__pb_load(pb, w->sums, qn__pb_use(pb, down->loop.var), at));
  qn__block_append(&down->loop.body, across);
  qn__block_append(out, down);
}

// Appends a loop over `tiles` for the steps of a block.
static void write_tiles(rows_writer_t* w, qn__ir_block_t* out, const qn__ir_expr_t* tiles) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* down = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "tile", copy(w, tiles));
  if (!down) return;
  qn__ir_block_t* body = &down->loop.body;
  qn__ir_expr_t* row =
      qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, down->loop.var), w->shape->height);
  row = qn__pb_named(pb, body, "row", row);
  qn__ir_expr_t* left =
      qn__pb_named(pb, body, "left", qn__pb_op(pb, QN_OP_SUB, copy(w, w->rows), copy(w, row)));
  qn__ir_block_t whole = {NULL, NULL};
  write_kernel(w, &whole, w->shape->height, row);
  // Memory bounds a single row.
  qn__ir_stmt_t* test = qn__pb_if(pb, qn__pb_op_int(pb, QN_OP_GT, left, 1), whole);
  if (!test || qn__pb_stopped(pb)) return;
  write_kernel(w, &test->if_.else_block, 1, row);
  qn__block_append(body, test);
  qn__block_append(out, down);
}

// Appends all that a task does for `steps` of the reduction.
static void write_blocks(rows_writer_t* w, qn__ir_block_t* out, const qn__ir_expr_t* steps) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* tiles = qn__pb_named(
      pb, out, "tiles", qn__pb_op_int(pb, QN_OP_CEILDIV, copy(w, w->rows), w->shape->height));
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "block",
                                          qn__pb_op_int(pb, QN_OP_CEILDIV, copy(w, steps), depth));
  if (!tiles || !loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  w->done = qn__pb_named(pb, body, "done",
                         qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), depth));
  qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, copy(w, steps), copy(w, w->done));
  w->steps = qn__pb_named(pb, body, "count", qn__pb_op_int(pb, QN_OP_MIN, left, depth));
  if (!w->steps) return;
  write_begin(w, out, tiles);
  write_tiles(w, body, tiles);
  qn__block_append(out, loop);
  write_results(w, out);
}

void qn__rows_write(qn__product_t* product, const qn__rows_shape_t* shape, qn_loop_kind_t kind,
                    qn__ir_block_t* out) {
  qn__pass_builder_t* pb = product->pb;
  rows_writer_t w = {.product = product, .pb = pb, .shape = shape};
  for (uint32_t i = 0; i < product->name_count; ++i) product->names[i].now = NULL;
  w.rows = qn__pb_named(pb, out, "all_rows",
                        qn__product_extent(product, product->side_dims[QN__PRODUCT_ROW]));
  qn__ir_expr_t* columns = qn__pb_named(
      pb, out, "all_columns", qn__product_extent(product, product->side_dims[QN__PRODUCT_COLUMN]));
  qn__ir_expr_t* panels = qn__pb_named(
      pb, out, "panels", qn__pb_op_int(pb, QN_OP_CEILDIV, qn__pb_copy(pb, columns), shape->width));
  qn__ir_expr_t* tasks = qn__pb_op(pb, QN_OP_MUL, qn__pb_copy(pb, panels),
                                   qn__product_extent(product, qn__product_batch(product)));
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, kind, "task", tasks);
  if (!loop || qn__pb_stopped(pb)) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_expr_t* number =
      qn__pb_op(pb, QN_OP_FLOORMOD, qn__pb_use(pb, loop->loop.var), qn__pb_copy(pb, panels));
  qn__ir_expr_t* own =
      qn__pb_named(pb, body, "own_column", qn__pb_op_int(pb, QN_OP_MUL, number, shape->width));
  qn__ir_expr_t* last = qn__pb_op_int(pb, QN_OP_ADD, columns, -shape->width);
  w.column = qn__pb_named(pb, body, "column", qn__pb_op(pb, QN_OP_MIN, qn__pb_copy(pb, own), last));
  w.fresh = qn__pb_named(pb, body, "fresh", qn__pb_op(pb, QN_OP_SUB, own, copy(&w, w.column)));
  qn__ir_var_t* batch = qn__pb_let(
      pb, body, "rest", qn__pb_op(pb, QN_OP_FLOORDIV, qn__pb_use(pb, loop->loop.var), panels));
  if (!batch || qn__pb_stopped(pb)) return;
  qn__product_place(product, body, qn__product_batch(product), batch);
  const qn__ir_expr_t* steps = qn__product_write_bounds(product, body);
  if (!steps || qn__pb_stopped(pb)) return;
  w.sums = qn__pb_alloc(pb, body, QN__SCOPE_LOCAL, product->reduce->dtype, "sums",
                        (shape->max_rows + height - 1) / height * height, shape->width);
  if (w.sums) w.sums->is_filled = true;
  write_blocks(&w, body, steps);
  if (!qn__pb_stopped(pb)) qn__block_append(out, loop);
}
