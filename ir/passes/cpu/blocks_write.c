// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks_write.c: writes a product as tasks that each compute a block of the result.
//
//   parallel task in 0..batch * ceildiv(M, rows) * ceildiv(N, columns) {
//     alloc acc: [(rows + height) * columns] in local;
//     for block in 0..ceildiv(K, depth) {
//       pack the columns' operands: panels of `width` columns, contiguous along the column
//       for i in 0..ceildiv(rows, height) {
//         pack the rows' operands of one tile, unless they are read where they are
//         for j in 0..ceildiv(columns, width) { the tile of registers (blocks_kernel.c) }
//         if this is the last block of steps {
//           for r in the tile's rows { for j { C[...] = acc[(row + r) * columns + j]; } }
//         }
//       }
//     }
//   }
//
// 1. A packed operand holds the value that the program computes from its loads, so that conversions
//    and gathers are done once for a task, not once for each product. The kernel reads it along the
//    line that its vectors have, or by a scalar for each row.
// 2. Lines beyond the edge are copies of the last line, or zeros where the kernel only multiplies:
//    the kernel computes them, and nothing stores the results. So no operation fails that the
//    program does not evaluate.
// 3. Each sum is added up in the order of the reduction, whatever the sizes. Between blocks of
//    steps it rests in `acc`.
// 4. All buffers of a task have constant sizes and lie on its stack: a product needs no workspace
//    that could be missing.
#include "ir/passes/cpu/blocks_dots.h"

enum {
  few_rows = 192,    // of a task if there are few tasks; a multiple of all heights
  rows_by_task = 66  // eight tasks have as many rows as fit
};

static qn__ir_expr_t* copy(const qn__blocks_writer_t* w, const qn__ir_expr_t* expr) {
  return qn__pb_copy(w->pb, expr);
}

// ---- the task's part of the result

// How the lines of a side are divided among tasks.
typedef struct division {
  qn__ir_expr_t* tasks;
  qn__ir_expr_t* lines;  // of a task, but the last one
} division_t;

// Appends the division of a side into tasks of nearly equal sizes. It stands before the loop over
// tasks, in the function that launches them.
static division_t write_division(qn__blocks_writer_t* w, qn__ir_block_t* out,
                                 qn__product_side_t side) {
  qn__pass_builder_t* pb = w->pb;
  bool is_row = side == QN__PRODUCT_ROW;
  int64_t tile = is_row ? w->shape->height : w->shape->width;
  qn__ir_expr_t* extent = w->extent[side];
  qn__ir_expr_t* tasks = qn__pb_op(pb, QN_OP_CEILDIV, copy(w, extent), copy(w, w->most[side]));
  tasks = qn__pb_named(pb, out, is_row ? "tasks_down" : "tasks_across",
                       qn__pb_op_int(pb, QN_OP_MAX, tasks, 1));
  qn__ir_expr_t* lines = qn__pb_op(pb, QN_OP_CEILDIV, copy(w, extent), copy(w, tasks));
  lines = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_op_int(pb, QN_OP_CEILDIV, lines, tile), tile);
  return (division_t){tasks, qn__pb_named(pb, out, is_row ? "rows" : "columns", lines)};
}

// Appends the first line and the number of lines of a task. `rest` is the task's number, from
// which this takes its part.
static void write_side(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                       division_t division, qn__ir_var_t** rest) {
  qn__pass_builder_t* pb = w->pb;
  bool is_row = side == QN__PRODUCT_ROW;
  qn__ir_expr_t* extent = w->extent[side];
  qn__ir_expr_t* tasks = division.tasks;
  qn__ir_expr_t* lines = division.lines;
  qn__ir_expr_t* own = qn__pb_op(pb, QN_OP_FLOORMOD, qn__pb_use(pb, *rest), copy(w, tasks));
  qn__ir_expr_t* quotient = qn__pb_op(pb, QN_OP_FLOORDIV, qn__pb_use(pb, *rest), tasks);
  *rest = qn__pb_let(pb, out, "rest", quotient);
  w->first[side] = qn__pb_named(pb, out, is_row ? "first_row" : "first_column",
                                qn__pb_op(pb, QN_OP_MUL, own, copy(w, lines)));
  qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, copy(w, extent), copy(w, w->first[side]));
  w->count[side] = qn__pb_named(pb, out, is_row ? "row_count" : "column_count",
                                qn__pb_op(pb, QN_OP_MIN, left, lines));
}

static void write_buffers(qn__blocks_writer_t* w, qn__ir_block_t* out) {
  qn__product_t* product = w->product;
  const qn__blocks_shape_t* shape = w->shape;
  qn__pass_builder_t* pb = w->pb;
  w->acc = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, product->reduce->dtype, "acc",
                        (shape->rows + shape->height) * shape->columns, -1);
  qn__blocks_pack_buffers(w, out);
  if (shape->dot.op) qn__blocks_dot_buffers(w, out);
  // Kernels of the exact form store fewer rows beyond the edge than others load.
  if (w->acc) w->acc->is_filled = !w->least;
}

// ---- results

// Appends the stores of the results of the tile at `row`, of which the task has `left` rows.
static void write_results(qn__blocks_writer_t* w, qn__ir_block_t* out, const qn__ir_expr_t* row,
                          const qn__ir_expr_t* left) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* down = qn__pb_count_loop(
      pb, QN_LOOP_SERIAL, "i", qn__pb_op_int(pb, QN_OP_MIN, copy(w, left), w->shape->height));
  if (!down) return;
  qn__ir_expr_t* own = qn__pb_op(pb, QN_OP_ADD, copy(w, row), qn__pb_use(pb, down->loop.var));
  own = qn__pb_named(pb, &down->loop.body, "own", own);
  qn__ir_var_t* at =
      qn__pb_let(pb, &down->loop.body, "at",
                 qn__pb_op(pb, QN_OP_ADD, copy(w, w->first[QN__PRODUCT_ROW]), copy(w, own)));
  if (!at) return;
  qn__product_place(product, &down->loop.body, product->side_dims[QN__PRODUCT_ROW], at);
  qn__blocks_loop_t across =
      qn__blocks_each_line(w, &down->loop.body, QN__PRODUCT_COLUMN, w->first[QN__PRODUCT_COLUMN],
                           w->count[QN__PRODUCT_COLUMN]);
  if (!across.body) return;
  own = qn__pb_op_int(pb, QN_OP_MUL, own, w->shape->columns);
  own = qn__pb_op(pb, QN_OP_ADD, own, across.line);
  qn__product_write_body(product, across.body, qn__pb_load(pb, w->acc, own, NULL));
  qn__block_append(out, down);
}

// ---- the loops over tiles

// Appends kernels of the narrow tile for the vectors of the last panel, if these are few. Returns
// the number of panels before it.
static qn__ir_expr_t* write_narrow(qn__blocks_writer_t* w, qn__ir_block_t* out,
                                   qn__blocks_tile_t tile) {
  qn__pass_builder_t* pb = w->pb;
  const qn__blocks_shape_t* shape = w->shape;
  qn__ir_expr_t* count = w->count[QN__PRODUCT_COLUMN];
  // A panel without one vector is whole.
  qn__ir_expr_t* whole = qn__pb_op_int(pb, QN_OP_ADD, copy(w, count), shape->edge_width - 1);
  whole = qn__pb_named(pb, out, "whole", qn__pb_op_int(pb, QN_OP_FLOORDIV, whole, shape->width));
  qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, copy(w, count),
                                  qn__pb_op_int(pb, QN_OP_MUL, copy(w, whole), shape->width));
  qn__ir_stmt_t* part = qn__pb_count_loop(
      pb, QN_LOOP_SERIAL, "part", qn__pb_op_int(pb, QN_OP_CEILDIV, left, shape->edge_width));
  if (!part) return NULL;
  tile.width = shape->edge_width;
  tile.panel = copy(w, whole);
  tile.column =
      qn__pb_named(pb, &part->loop.body, "column",
                   qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, part->loop.var), tile.width));
  qn__blocks_write_kernel(w, &part->loop.body, &tile);
  qn__block_append(out, part);
  return whole;
}

// Appends a loop over panels with kernels of `height` rows: one at `line` of the tile that begins
// at `row`, or as many as `left` rows need; at most one if `left` is NULL.
static void write_kernels(qn__blocks_writer_t* w, qn__ir_block_t* out, int64_t height,
                          qn__ir_expr_t* row, qn__ir_expr_t* panels, qn__ir_expr_t* left,
                          const qn__blocks_steps_t* steps) {
  qn__pass_builder_t* pb = w->pb;
  qn__blocks_tile_t tile = {.height = height, .width = w->shape->width, .row = row, .steps = steps};
  bool is_whole = height == w->shape->height;
  if (is_whole || !left) tile.line = qn__pb_int(pb, 0);
  if (is_whole && w->shape->edge_width) panels = write_narrow(w, out, tile);
  qn__ir_stmt_t* across = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "panel", copy(w, panels));
  if (!across) return;
  tile.panel = qn__pb_use(pb, across->loop.var);
  if (tile.line) {
    qn__blocks_write_kernel(w, &across->loop.body, &tile);
  } else {
    qn__ir_stmt_t* down = qn__pb_count_loop(
        pb, QN_LOOP_SERIAL, "part", qn__pb_op_int(pb, QN_OP_CEILDIV, copy(w, left), height));
    if (!down) return;
    tile.line = qn__pb_named(pb, &down->loop.body, "line",
                             qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, down->loop.var), height));
    qn__blocks_write_kernel(w, &down->loop.body, &tile);
    qn__block_append(&across->loop.body, down);
  }
  qn__block_append(out, across);
}

static void write_tiles(qn__blocks_writer_t* w, qn__ir_block_t* out,
                        const qn__blocks_steps_t* steps) {
  qn__pass_builder_t* pb = w->pb;
  const qn__blocks_shape_t* shape = w->shape;
  qn__ir_expr_t* panels = qn__pb_named(
      pb, out, "panels",
      qn__pb_op_int(pb, QN_OP_CEILDIV, copy(w, w->count[QN__PRODUCT_COLUMN]), shape->width));
  if (!panels) return;
  qn__blocks_pack(w, out, NULL, panels, steps);
  qn__ir_expr_t* tiles =
      qn__pb_op_int(pb, QN_OP_CEILDIV, copy(w, w->count[QN__PRODUCT_ROW]), shape->height);
  qn__ir_stmt_t* down = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "tile", tiles);
  if (!down) return;
  qn__ir_block_t* body = &down->loop.body;
  qn__ir_expr_t* row = qn__pb_named(
      pb, body, "row", qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, down->loop.var), shape->height));
  qn__ir_expr_t* left = qn__pb_named(
      pb, body, "left", qn__pb_op(pb, QN_OP_SUB, copy(w, w->count[QN__PRODUCT_ROW]), copy(w, row)));
  if (!row || !left) return;
  const qn__ir_expr_t* left_rows = left;
  qn__blocks_pack(w, body, row, NULL, steps);
  // Few rows at the edge are done by kernels of few rows.
  qn__ir_block_t kernels = {NULL, NULL};
  if (shape->dot.has_tiles) {
    qn__blocks_write_tiles(w, &kernels, row, left, panels, steps);
  } else {
    write_kernels(w, &kernels, shape->height, row, panels, left, steps);
  }
  int64_t few = shape->height - shape->edge_height;
  if (few > 0 && !shape->dot.has_tiles) {
    qn__ir_stmt_t* test = qn__pb_if(pb, qn__pb_op_int(pb, QN_OP_GT, copy(w, left), few), kernels);
    if (!test) return;
    write_kernels(w, &test->if_.else_block, shape->edge_height, row, panels,
                  few > shape->edge_height ? left : NULL, steps);
    kernels = (qn__ir_block_t){test, test};
  }
  if (w->least) {
    // Numbers that the operator does not multiply exactly are rare: their kernel is small.
    qn__ir_stmt_t* test = qn__pb_if(pb, qn__blocks_dot_is_exact(w), kernels);
    if (!test) return;
    w->dot_op = QN__OP_DOT_BF16;
    left = qn__pb_op_int(pb, QN_OP_MIN, copy(w, left), shape->height);
    write_kernels(w, &test->if_.else_block, shape->edge_height, row, panels, left, steps);
    w->dot_op = shape->dot.op;
    kernels = (qn__ir_block_t){test, test};
  }
  qn__block_splice(body, &kernels);
  // The stores overlap with the next tile's work.
  if (!steps->is_last) {
    write_results(w, body, row, left_rows);
  } else {
    qn__ir_block_t results = {NULL, NULL};
    write_results(w, &results, row, left_rows);
    qn__pb_append(body, qn__pb_if(pb, copy(w, steps->is_last), results));
  }
  qn__block_append(out, down);
}

// Appends a loop that sets the values that follow the sums to the neutral one: the tiles of the
// first block of steps begin with these, so that all blocks have the same code.
static void write_neutral(qn__blocks_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  const qn__ir_expr_t* reduce = w->product->reduce;
  int64_t columns = w->shape->columns;
  qn__ir_stmt_t* loop =
      qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "j", qn__pb_int(pb, w->shape->height * columns));
  if (!loop) return;
  qn__ir_expr_t* at =
      qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, loop->loop.var), w->shape->rows * columns);
  qn__pb_append(&loop->loop.body,
                qn__pb_store(pb, w->acc, at, NULL,
                             qn__pb_neutral(pb, reduce->reduce.reduce_kind, reduce->dtype)));
  qn__block_append(out, loop);
}

static void write_steps(qn__blocks_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  int64_t depth = w->shape->depth, all = qn__product_steps(w->product);
  qn__ir_expr_t* blocks = qn__pb_op_int(pb, QN_OP_CEILDIV, copy(w, w->steps), depth);
  // Without steps there are results.
  if (all <= 0) blocks = qn__pb_op_int(pb, QN_OP_MAX, blocks, 1);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "block", blocks);
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__blocks_steps_t steps = {.first = NULL};
  steps.first = qn__pb_named(pb, body, "done",
                             qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), depth));
  qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, copy(w, w->steps), copy(w, steps.first));
  steps.count = qn__pb_named(pb, body, "count", qn__pb_op_int(pb, QN_OP_MIN, left, depth));
  if (!steps.count || !steps.first) return;
  if (all < 0 || all > depth) {
    write_neutral(w, out);
    qn__ir_expr_t* end = qn__pb_op(pb, QN_OP_ADD, copy(w, steps.first), copy(w, steps.count));
    steps.is_first = qn__pb_op_int(pb, QN_OP_EQ, copy(w, steps.first), 0);
    steps.is_last =
        qn__pb_named(pb, body, "is_last", qn__pb_op(pb, QN_OP_EQ, end, copy(w, w->steps)));
    if (!steps.is_first || !steps.is_last) return;
  }
  write_tiles(w, body, &steps);
  qn__block_append(out, loop);
}

// ---- all

qn__ir_expr_t* qn__blocks_most_rows(qn__pass_builder_t* pb, qn__ir_block_t* out, int64_t most,
                                    const qn__ir_expr_t* tasks) {
  if (most <= few_rows) return qn__pb_int(pb, most);
  qn__ir_expr_t* rows = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_copy(pb, tasks), rows_by_task);
  rows = qn__pb_op_int(pb, QN_OP_MAX, qn__pb_op_int(pb, QN_OP_MIN, rows, most), few_rows);
  return qn__pb_named(pb, out, "most_rows", rows);
}

void qn__blocks_write(qn__product_t* product, const qn__blocks_shape_t* shape, qn_loop_kind_t kind,
                      qn__ir_block_t* out) {
  qn__pass_builder_t* pb = product->pb;
  qn__blocks_writer_t* w = QN__ARENA_NEW(pb->arena, qn__blocks_writer_t);
  if (!w) return;
  *w = (qn__blocks_writer_t){.product = product, .pb = pb, .shape = shape, .dot_op = shape->dot.op};
  for (uint32_t i = 0; i < product->name_count; ++i) product->names[i].now = NULL;
  qn__ir_expr_t* tasks = qn__product_extent(product, qn__product_batch(product));
  for (int s = qn__product_sides; s-- > 0;) {
    bool is_row = s == QN__PRODUCT_ROW;
    w->extent[s] = qn__pb_named(pb, out, is_row ? "all_rows" : "all_columns",
                                qn__product_extent(product, product->side_dims[s]));
    w->most[s] = !is_row || kind == QN_LOOP_SERIAL
                     ? qn__pb_int(pb, is_row ? shape->rows : shape->columns)
                     : qn__blocks_most_rows(pb, out, shape->rows, tasks);
    tasks = qn__pb_op(pb, QN_OP_MUL, tasks,
                      qn__pb_op(pb, QN_OP_CEILDIV, copy(w, w->extent[s]), copy(w, w->most[s])));
  }
  division_t across = write_division(w, out, QN__PRODUCT_COLUMN);
  division_t down = write_division(w, out, QN__PRODUCT_ROW);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, kind, "task", tasks);
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_var_t* rest = loop->loop.var;
  write_side(w, body, QN__PRODUCT_COLUMN, across, &rest);
  write_side(w, body, QN__PRODUCT_ROW, down, &rest);
  if (!rest || qn__pb_stopped(pb)) return;
  qn__product_place(product, body, qn__product_batch(product), rest);
  w->steps = qn__product_write_bounds(product, body);
  if (!w->steps || qn__pb_stopped(pb)) return;
  write_buffers(w, body);
  write_steps(w, body);
  if (qn__pb_stopped(pb)) return;
  qn__block_append(out, loop);
}
