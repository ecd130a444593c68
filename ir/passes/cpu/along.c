// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/along.c: writes a product of few rows, whose operands are contiguous in memory
// along the reduction.
//
//   parallel task in 0..batch * ceildiv(N, columns) {
//     alloc lanes: [height * columns, lanes] in local;
//     for tile in 0..high + low {                          // of three rows, then of two
//       alloc t: [height * columns, lanes] in local;       // registers: a sum for each lane
//       for block in 0..(K - 1) // lanes {
//         vector v { let a_u = A[row + u, p + v]; ... let b_c = B[column + c, p + v]; ...
//                    t[u, c, v] = fma(a_u, b_c, t[u, c, v]); ... }
//       }
//       vector v { ... }                                   // the last vector
//       vector v { lanes[u, c, v] = t[u, c, v]; } ...
//       for u { for c { vector v { turned[v, c] = lanes[u, c, v]; } }
//               vector c { joined[c] = turned[0, c] + turned[1, c] + ...; }
//               for c { if c >= done { C[row + u, column + c] = joined[c]; } } }
//     }
//   }
//
// 1. Neither operand is packed, and each element of B is read from memory once: the rows of all
//    tiles use it while caches hold it.
// 2. The last vector is moved back to end with the reduction. Its lanes that the vector before it
//    has added keep their sums.
// 3. The last columns are moved back to end with the last column, and only the new ones are stored.
// 4. The first tile of a task fetches the columns of the next one. They are short runs of memory,
//    too short for the processor to notice in time. The tile of a single row does not: loads are
//    all of its work, and fetching takes from them what it gains.
// 5. Each lane adds up its own steps, and the lanes are joined at the end: the order of a reduction
//    is not specified. jit/llvm/emit_transpose.c turns a tile in registers.
// 6. Compile time follows the count of instructions. So there are three kernels alone, whose sums
//    the same code joins: one row that is left makes two tiles of two with the tile before it, and
//    a product of one row has a tile of one. along_choose.c has the choice.
#include "ir/passes/cpu/along.h"

#include "ir/passes/products_write.h"

enum {
  height = 3,  // with all columns as many sums as 32 registers hold beside the operands
  low_height = 2
};

typedef struct along_writer {
  qn__product_t* product;
  qn__pass_builder_t* pb;
  const qn__along_shape_t* shape;
  qn__ir_buffer_t* lanes;  // [height * columns, lanes]: a tile's sums
  qn__ir_expr_t* rows;     // of the product
  qn__ir_expr_t* column;   // the first of the task
  qn__ir_expr_t* done;     // columns that the task before stores (NULL: none)
  qn__ir_expr_t* steps;    // of the reduction
  qn__ir_expr_t* blocks;   // vectors of steps before the last one
  qn__ir_expr_t* fresh;    // lanes of the last one before its own (NULL: no such vector)
  qn__ir_expr_t* places[qn__along_max_columns][qn__max_nest];  // values of the column loops
} along_writer_t;

// A tile of sums that registers hold.
typedef struct along_tile {
  int64_t height;
  qn__ir_buffer_t* sums;                        // [height * columns, lanes]
  qn__ir_expr_t* places[height][qn__max_nest];  // values of the row loops
} along_tile_t;

// ---- the kernel

// Appends a buffer of which every element is stored before it is loaded.
static qn__ir_buffer_t* alloc(const along_writer_t* w, qn__ir_block_t* out, const char* name,
                              int64_t rows, int64_t columns) {
  qn__ir_buffer_t* buffer =
      qn__pb_alloc(w->pb, out, QN__SCOPE_LOCAL, w->product->reduce->dtype, name, rows, columns);
  if (buffer) buffer->is_filled = true;
  return buffer;
}

static qn__ir_expr_t* copy(const along_writer_t* w, const qn__ir_expr_t* expr) {
  return qn__pb_copy(w->pb, expr);
}

// Sets the variables of a side's loops at `line`, which this consumes, and keeps them in `places`.
static void place(along_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                  qn__ir_expr_t* line, qn__ir_expr_t** places) {
  qn__product_t* product = w->product;
  qn__ir_var_t* at = qn__pb_let(w->pb, out, "at", line);
  if (!at) return;
  qn__product_place(product, out, product->side_dims[side], at);
  for (uint32_t d = 0; places && d < product->nest->count; ++d) places[d] = product->names[d].now;
}

static qn__ir_stmt_t* vector_loop(const along_writer_t* w, int64_t lanes) {
  return qn__pb_count_loop(w->pb, QN_LOOP_VECTOR, "v", qn__pb_int(w->pb, lanes));
}

// Appends the operands of a side for a vector of steps, at the line `places`. If `is_ahead`, those
// of the next task are fetched: it reads the same steps of the columns after those of this task.
static void write_operands(along_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                           bool is_ahead, qn__ir_expr_t* const* places, qn__ir_expr_t** values) {
  qn__product_t* product = w->product;
  const uint32_t dims = product->side_dims[side];
  qn__product_set(product, dims, places);
  is_ahead &= (dims & (dims - 1)) == 0;
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    if (product->operands[o].side != side) continue;
    values[o] = qn__pb_use(w->pb, qn__product_write_operand(product, out, &product->operands[o]));
    if (qn__pb_stopped(w->pb)) return;
    if (is_ahead) {
      qn__product_fetch_ahead(&product->operands[o], out->last->let.value,
                              qn__product_fastest(product, side)->loop.var,
                              (uint32_t)w->shape->columns, QN__FETCH_SECOND);
    }
  }
}

// Appends a vector of steps from `first`, of which the lanes from `fresh` (NULL: all) are added.
// Consumes `first`.
static void write_steps(along_writer_t* w, qn__ir_block_t* out, const along_tile_t* tile,
                        bool is_ahead, qn__ir_expr_t* first, const qn__ir_expr_t* fresh) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const uint32_t rows = product->side_dims[QN__PRODUCT_ROW];
  const uint32_t columns = product->side_dims[QN__PRODUCT_COLUMN];
  qn__ir_expr_t* elements[height][qn__product_max_operands] = {{NULL}};
  qn__ir_stmt_t* loop = vector_loop(w, w->shape->lanes);
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__product_set_step(product, body,
                       qn__pb_op(pb, QN_OP_ADD, first, qn__pb_use(pb, loop->loop.var)));
  qn__ir_expr_t* is_fresh = NULL;
  if (fresh) {
    is_fresh = qn__pb_op(pb, QN_OP_GE, qn__pb_use(pb, loop->loop.var), copy(w, fresh));
    is_fresh = qn__pb_named(pb, body, "is_fresh", is_fresh);
  }
  for (int64_t u = 0; u < tile->height; ++u) {
    write_operands(w, body, QN__PRODUCT_ROW, false, tile->places[u], elements[u]);
  }
  for (int64_t c = 0; c < w->shape->columns; ++c) {
    qn__ir_expr_t* own[qn__product_max_operands] = {NULL};
    write_operands(w, body, QN__PRODUCT_COLUMN, is_ahead, w->places[c], own);
    for (int64_t u = 0; u < tile->height; ++u) {
      qn__product_set(product, rows, tile->places[u]);
      for (uint32_t o = 0; o < product->operand_count; ++o) {
        const qn__product_operand_t* operand = &product->operands[o];
        qn__ir_expr_t* value = operand->side == QN__PRODUCT_ROW ? elements[u][o] : own[o];
        product->names[operand->name].now = copy(w, value);
      }
      qn__product_write_lets(product, body, product->is_needed, rows | columns | QN__PRODUCT_STEP,
                             0);
      qn__ir_expr_t* at = qn__pb_int(pb, u * w->shape->columns + c);
      qn__ir_expr_t* sum = qn__pb_load(pb, tile->sums, at, qn__pb_use(pb, loop->loop.var));
      qn__ir_expr_t* next = qn__product_add(
          product, copy(w, sum), qn__product_copy(product, product->reduce->reduce.value));
      if (is_fresh) next = qn__pb_cond(pb, copy(w, is_fresh), next, sum);
      qn__pb_append(
          body, qn__pb_store(pb, tile->sums, copy(w, at), qn__pb_use(pb, loop->loop.var), next));
    }
  }
  qn__block_append(out, loop);
}

// Appends stores of the sums of a tile to `to`: those in `from`, or their first values (NULL).
static void write_sums(along_writer_t* w, qn__ir_block_t* out, int64_t count, qn__ir_buffer_t* to,
                       qn__ir_buffer_t* from) {
  qn__pass_builder_t* pb = w->pb;
  const qn__ir_expr_t* reduce = w->product->reduce;
  for (int64_t x = 0; x < count; ++x) {
    qn__ir_stmt_t* loop = vector_loop(w, w->shape->lanes);
    if (!loop) return;
    qn__ir_expr_t* v = qn__pb_use(pb, loop->loop.var);
    qn__ir_expr_t* sum = from ? qn__pb_load(pb, from, qn__pb_int(pb, x), copy(w, v))
                              : qn__pb_neutral(pb, reduce->reduce.reduce_kind, reduce->dtype);
    qn__pb_append(&loop->loop.body, qn__pb_store(pb, to, qn__pb_int(pb, x), v, sum));
    qn__block_append(out, loop);
  }
}

// Appends the whole vectors of steps before the last one.
static void write_blocks(along_writer_t* w, qn__ir_block_t* out, const along_tile_t* tile,
                         bool is_ahead) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "block", copy(w, w->blocks));
  if (!loop) return;
  qn__ir_expr_t* first =
      qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), w->shape->lanes);
  write_steps(w, &loop->loop.body, tile, is_ahead, first, NULL);
  qn__block_append(out, loop);
}

// Appends the sums of `lines` rows at `row` for all columns, as `lanes` of each. The columns of the
// next task are fetched if `is_ahead` (NULL: they are not).
static void write_kernel(along_writer_t* w, qn__ir_block_t* out, int64_t lines,
                         const qn__ir_expr_t* row, const qn__ir_expr_t* is_ahead) {
  qn__pass_builder_t* pb = w->pb;
  const int64_t lanes = w->shape->lanes;
  const int64_t sums = lines * w->shape->columns;
  along_tile_t tile = {.height = lines};
  assert(lines <= height);
  tile.sums = alloc(w, out, "tile", sums, lanes);
  for (int64_t u = 0; u < lines; ++u) {
    qn__ir_expr_t* line = qn__pb_op_int(pb, QN_OP_ADD, copy(w, row), u);
    place(w, out, QN__PRODUCT_ROW, line, tile.places[u]);
  }
  if (qn__pb_stopped(pb)) return;
  write_sums(w, out, sums, tile.sums, NULL);
  qn__ir_block_t blocks = {NULL, NULL};
  write_blocks(w, &blocks, &tile, false);
  if (is_ahead) {
    qn__ir_block_t fetching = {NULL, NULL};
    write_blocks(w, &fetching, &tile, true);
    qn__ir_stmt_t* test = qn__pb_if(pb, copy(w, is_ahead), fetching);
    if (!test || qn__pb_stopped(pb)) return;
    test->if_.else_block = blocks;
    blocks = (qn__ir_block_t){test, test};
  }
  qn__block_splice(out, &blocks);
  if (w->fresh) {
    write_steps(w, out, &tile, false, qn__pb_op_int(pb, QN_OP_SUB, copy(w, w->steps), lanes),
                w->fresh);
  }
  write_sums(w, out, sums, w->lanes, tile.sums);
}

// ---- the results

// Appends the sums over the lanes of row `u` of a tile, and returns them: a vector for the columns.
static qn__ir_buffer_t* write_join(along_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* u) {
  qn__pass_builder_t* pb = w->pb;
  const int64_t columns = w->shape->columns;
  const qn_op_t op = qn__reduce_op(w->product->reduce->reduce.reduce_kind);
  qn__ir_buffer_t* joined = alloc(w, out, "joined", 1, columns);
  qn__ir_buffer_t* turned = alloc(w, out, "turned", columns, columns);
  qn__ir_stmt_t* lines = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "c", qn__pb_int(pb, columns));
  qn__ir_stmt_t* along = vector_loop(w, columns);
  qn__ir_stmt_t* across = vector_loop(w, columns);
  if (!joined || !turned || !lines || !along || !across) return NULL;
  lines->loop.is_transposed = true;
  // Lanes are joined in groups first, so that a square is left.
  qn__ir_expr_t* sum = NULL;
  for (int64_t from = 0; from < w->shape->lanes; from += columns) {
    qn__ir_expr_t* line = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, u), columns);
    line = qn__pb_op(pb, QN_OP_ADD, line, qn__pb_use(pb, lines->loop.var));
    qn__ir_expr_t* lane = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, along->loop.var), from);
    qn__ir_expr_t* part = qn__pb_load(pb, w->lanes, line, lane);
    sum = from == 0 ? part : qn__pb_op(pb, op, sum, part);
  }
  qn__pb_append(&along->loop.body, qn__pb_store(pb, turned, qn__pb_use(pb, along->loop.var),
                                                qn__pb_use(pb, lines->loop.var), sum));
  qn__block_append(&lines->loop.body, along);
  qn__block_append(out, lines);
  sum = NULL;
  for (int64_t v = 0; v < columns; ++v) {
    qn__ir_expr_t* part =
        qn__pb_load(pb, turned, qn__pb_int(pb, v), qn__pb_use(pb, across->loop.var));
    sum = v == 0 ? part : qn__pb_op(pb, op, sum, part);
  }
  qn__pb_append(&across->loop.body,
                qn__pb_store(pb, joined, qn__pb_int(pb, 0), qn__pb_use(pb, across->loop.var), sum));
  qn__block_append(out, across);
  return joined;
}

// Appends the statements of the nest for row `u` of the tile at `row`.
static void write_row(along_writer_t* w, qn__ir_block_t* out, const qn__ir_expr_t* row,
                      qn__ir_var_t* u) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_buffer_t* joined = write_join(w, out, u);
  place(w, out, QN__PRODUCT_ROW, qn__pb_op(pb, QN_OP_ADD, copy(w, row), qn__pb_use(pb, u)), NULL);
  qn__ir_stmt_t* across =
      qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "j", qn__pb_int(pb, w->shape->columns));
  if (!joined || !across) return;
  qn__ir_block_t stores = {NULL, NULL};
  place(w, &stores, QN__PRODUCT_COLUMN,
        qn__pb_op(pb, QN_OP_ADD, copy(w, w->column), qn__pb_use(pb, across->loop.var)), NULL);
  qn__product_write_body(
      w->product, &stores,
      qn__pb_load(pb, joined, qn__pb_int(pb, 0), qn__pb_use(pb, across->loop.var)));
  if (w->done) {
    qn__ir_expr_t* is_new =
        qn__pb_op(pb, QN_OP_GE, qn__pb_use(pb, across->loop.var), copy(w, w->done));
    qn__pb_append(&across->loop.body, qn__pb_if(pb, is_new, stores));
  } else {
    qn__block_splice(&across->loop.body, &stores);
  }
  qn__block_append(out, across);
}

// ---- all

// Appends the tiles of a task: of `height` rows, then of `low_height`.
static void write_tiles(along_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* rows = qn__pb_named(
      pb, out, "all_rows", qn__product_extent(w->product, w->product->side_dims[QN__PRODUCT_ROW]));
  w->rows = rows;
  if (!rows) return;
  // One row that is left makes two tiles of two rows with the tile before it.
  qn__ir_expr_t* low = qn__pb_op_int(pb, QN_OP_MUL, copy(w, rows), low_height);
  low = qn__pb_op_int(pb, QN_OP_FLOORMOD, low, height);
  qn__ir_expr_t* high =
      qn__pb_op(pb, QN_OP_SUB, copy(w, rows), qn__pb_op_int(pb, QN_OP_MUL, low, low_height));
  high = qn__pb_op_int(pb, QN_OP_MAX, qn__pb_op_int(pb, QN_OP_FLOORDIV, high, height), 0);
  high = qn__pb_named(pb, out, "high", high);
  // Without its last row, each high tile is a low one.
  qn__ir_expr_t* tiles = qn__pb_op(pb, QN_OP_SUB, copy(w, rows), copy(w, high));
  qn__ir_stmt_t* down = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "tile",
                                          qn__pb_op_int(pb, QN_OP_CEILDIV, tiles, low_height));
  if (!down) return;
  qn__ir_block_t* body = &down->loop.body;
  qn__ir_expr_t* row = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, down->loop.var), low_height);
  row = qn__pb_op(pb, QN_OP_ADD, row,
                  qn__pb_op(pb, QN_OP_MIN, qn__pb_use(pb, down->loop.var), copy(w, high)));
  row = qn__pb_named(pb, body, "row", row);
  qn__ir_expr_t* is_high = qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, down->loop.var), copy(w, high));
  is_high = qn__pb_named(pb, body, "is_high", is_high);
  qn__ir_expr_t* is_first = qn__pb_op_int(pb, QN_OP_EQ, qn__pb_use(pb, down->loop.var), 0);
  is_first = qn__pb_named(pb, body, "is_first", is_first);
  int64_t known;
  bool is_known = qn__expr_const_int(rows, &known);
  if (is_known && (known < height || known % height == 0 || known == low_height * 2)) {
    const int64_t own = known % height == 0 ? height : known == 1 ? 1 : low_height;
    write_kernel(w, body, own, row, known == 1 ? NULL : is_first);
  } else {
    qn__ir_block_t high_kernel = {NULL, NULL}, single_kernel = {NULL, NULL};
    write_kernel(w, &high_kernel, height, row, is_first);
    qn__ir_stmt_t* test = qn__pb_if(pb, copy(w, is_high), high_kernel);
    qn__ir_block_t* rest = test ? &test->if_.else_block : NULL;
    if (test && !is_known) {
      write_kernel(w, &single_kernel, 1, row, NULL);
      qn__ir_expr_t* is_single = qn__pb_op_int(pb, QN_OP_EQ, copy(w, rows), 1);
      qn__ir_stmt_t* choice = qn__pb_if(pb, is_single, single_kernel);
      qn__pb_append(rest, choice);
      rest = choice ? &choice->if_.else_block : NULL;
    }
    if (!rest || qn__pb_stopped(pb)) return;
    write_kernel(w, rest, low_height, row, is_first);
    qn__block_append(body, test);
  }
  if (qn__pb_stopped(pb)) return;
  qn__ir_expr_t* lines =
      qn__pb_cond(pb, is_high, qn__pb_int(pb, height), qn__pb_int(pb, low_height));
  lines = qn__pb_op(pb, QN_OP_MIN, lines, qn__pb_op(pb, QN_OP_SUB, copy(w, w->rows), copy(w, row)));
  qn__ir_stmt_t* each = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "u", lines);
  if (!each) return;
  write_row(w, &each->loop.body, row, each->loop.var);
  qn__block_append(body, each);
  qn__block_append(out, down);
}

// Sets the columns of task number `panel` of a row of tasks. Consumes both.
static void place_columns(along_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* panel,
                          qn__ir_expr_t* last_panel) {
  qn__pass_builder_t* pb = w->pb;
  const int64_t count = w->shape->columns;
  qn__ir_expr_t* columns =
      qn__product_extent(w->product, w->product->side_dims[QN__PRODUCT_COLUMN]);
  int64_t known;
  bool is_whole = qn__expr_const_int(columns, &known) && known % count == 0;
  qn__ir_expr_t* first =
      qn__pb_named(pb, out, "first", qn__pb_op_int(pb, QN_OP_MUL, copy(w, panel), count));
  w->column = first;
  if (!is_whole) {
    // LLVM would compute a minimum again for each address, in the innermost loop.
    w->column = qn__pb_cond(pb, qn__pb_op(pb, QN_OP_EQ, panel, last_panel),
                            qn__pb_op_int(pb, QN_OP_SUB, columns, count), copy(w, first));
    w->column = qn__pb_named(pb, out, "column", w->column);
    w->done = qn__pb_named(pb, out, "done", qn__pb_op(pb, QN_OP_SUB, first, copy(w, w->column)));
  }
  for (int64_t c = 0; c < count; ++c) {
    place(w, out, QN__PRODUCT_COLUMN, qn__pb_op_int(pb, QN_OP_ADD, copy(w, w->column), c),
          w->places[c]);
  }
}

// Sets the vectors of the reduction. The last one that may be in part has at least one step, so
// that no test is needed.
static void place_steps(along_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  const int64_t lanes = w->shape->lanes;
  int64_t known;
  if (qn__expr_const_int(w->steps, &known) && known % lanes == 0) {
    w->blocks = qn__pb_int(pb, known / lanes);
    return;
  }
  qn__ir_expr_t* before = qn__pb_op_int(pb, QN_OP_ADD, copy(w, w->steps), -1);
  before = qn__pb_named(pb, out, "before", before);
  w->blocks = qn__pb_op_int(pb, QN_OP_FLOORDIV, copy(w, before), lanes);
  w->blocks = qn__pb_named(pb, out, "blocks", w->blocks);
  w->fresh = qn__pb_op(pb, QN_OP_SUB, qn__pb_int(pb, lanes - 1),
                       qn__pb_op_int(pb, QN_OP_FLOORMOD, before, lanes));
  w->fresh = qn__pb_named(pb, out, "fresh", w->fresh);
}

void qn__along_write(qn__product_t* product, const qn__along_shape_t* shape, qn_loop_kind_t kind,
                     qn__ir_block_t* out) {
  qn__pass_builder_t* pb = product->pb;
  along_writer_t w = {.product = product, .pb = pb, .shape = shape};
  for (uint32_t i = 0; i < product->name_count; ++i) product->names[i].now = NULL;
  qn__ir_expr_t* panels = qn__pb_op_int(
      pb, QN_OP_CEILDIV, qn__product_extent(product, product->side_dims[QN__PRODUCT_COLUMN]),
      shape->columns);
  panels = qn__pb_named(pb, out, "panels", panels);
  qn__ir_expr_t* tasks = qn__pb_op(pb, QN_OP_MUL, copy(&w, panels),
                                   qn__product_extent(product, qn__product_batch(product)));
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, kind, "task", tasks);
  if (!loop || qn__pb_stopped(pb)) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_expr_t* panel =
      qn__pb_op(pb, QN_OP_FLOORMOD, qn__pb_use(pb, loop->loop.var), copy(&w, panels));
  panel = qn__pb_named(pb, body, "panel", panel);
  qn__ir_var_t* batch =
      qn__pb_let(pb, body, "rest",
                 qn__pb_op(pb, QN_OP_FLOORDIV, qn__pb_use(pb, loop->loop.var), copy(&w, panels)));
  if (!batch || qn__pb_stopped(pb)) return;
  qn__product_place(product, body, qn__product_batch(product), batch);
  w.steps = qn__product_write_bounds(product, body);
  if (!w.steps || qn__pb_stopped(pb)) return;
  w.lanes = alloc(&w, body, "lanes", height * shape->columns, shape->lanes);
  place_columns(&w, body, panel, qn__pb_op_int(pb, QN_OP_ADD, panels, -1));
  if (qn__pb_stopped(pb)) return;
  place_steps(&w, body);
  write_tiles(&w, body);
  if (!qn__pb_stopped(pb)) qn__block_append(out, loop);
}
