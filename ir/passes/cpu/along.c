// ir/passes/cpu/along.c: writes a product of few rows, whose operands are contiguous in memory
// along the reduction.
//
//   parallel task in 0..batch * ceildiv(N, columns) {
//     for tile in 0..M // height {
//       alloc t: [height * columns, lanes] in local;       // registers: a sum for each lane
//       for block in 0..K // lanes {
//         vector v { let a_u = A[row + u, p + v]; ... let b_c = B[column + c, p + v]; ...
//                    t[u, c, v] = fma(a_u, b_c, t[u, c, v]); ... }
//       }
//       vector v { ... }                                   // the last vector, if steps are left
//       for u { for c { vector v { turned[v, c] = t[u, c, v]; } }
//               vector c { joined[row + u, c] = turned[0, c] + turned[1, c] + ...; } }
//     }
//     ...                                                  // the rows that are left
//     for i { for c { C[i, column + c] = joined[i, c]; } }
//   }
//
// 1. Neither operand is packed, and each element of B is read from memory once: the rows of all
//    tiles use it while caches hold it.
// 2. The last vector is moved back to end with the reduction. Its lanes that the vector before it
//    has added keep their sums.
// 3. Columns beyond the last are copies of it, and nothing stores their results. Each number of
//    rows up to a tile's height has a kernel.
// 4. The first tile of a task fetches the columns of the next one. They are short runs of memory,
//    too short for the processor to notice in time.
// 5. Each lane adds up its own steps, and the lanes are joined at the end: the order of a reduction
//    is not specified. jit/llvm/emit_transpose.c turns a tile in registers.
#include "ir/passes/cpu/along.h"

#include "ir/passes/cpu/blocks_dots.h"
#include "ir/passes/products_write.h"

enum {
  height = 3,       // with `max_columns` as many sums as 32 registers hold beside the operands
  max_columns = 8,  // as many as there are streams that a core fetches ahead
  columns_of_few_registers = 4,
  max_rows = 24,          // more are worth packing
  max_rows_of_long = 64,  // of at least `long_steps`, where joining lanes costs little
  long_steps = 256,
  max_summand = 4  // instructions, as in blocks.c
};

typedef struct along_writer {
  qn__product_t* product;
  qn__pass_builder_t* pb;
  const qn__along_shape_t* shape;
  qn__ir_expr_t* columns;                            // of the product
  qn__ir_buffer_t* joined;                           // [max_rows, columns]: the sums of a task
  qn__ir_expr_t* column;                             // the first of the task
  qn__ir_expr_t* steps;                              // of the reduction
  qn__ir_expr_t* places[max_columns][qn__max_nest];  // values of the column loops
} along_writer_t;

// A tile of sums that registers hold.
typedef struct along_tile {
  int64_t height;
  bool is_first;                                // of its task
  qn__ir_buffer_t* sums;                        // [height * columns, lanes]
  qn__ir_expr_t* places[height][qn__max_nest];  // values of the row loops
} along_tile_t;

// ---- the choice

// Returns true for an operand that is a load, or a conversion of one.
static bool is_plain(const qn__product_operand_t* operand) {
  const qn__ir_expr_t* value = operand->value;
  if (value->kind == QN__EXPR_CAST) value = value->args[0];
  return value->kind == QN__EXPR_LOAD;
}

bool qn__along_choose(const qn__product_t* product, int64_t min_packed, qn__along_shape_t* shape) {
  const qn__pass_options_t* options = product->pb->options;
  int64_t size = (int64_t)qn_dtype_size_bytes(product->reduce->dtype);
  if (size < 4 || product->step_count != 1 || product->operand_count > 2) return false;
  if (qn__product_summand_size(product) > max_summand || !qn__product_common_steps(product))
    return false;
  qn__blocks_dot_t dot;
  if (qn__blocks_find_dot(product, &dot)) return false;  // more products in an instruction
  bool are_plain = true;
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    const qn__product_operand_t* operand = &product->operands[o];
    if (!operand->runs_along_step) return false;
    are_plain &= is_plain(operand);
  }
  int64_t most = options->vector_bytes >= 64 ? max_columns : columns_of_few_registers;
  int64_t lanes = (int64_t)options->vector_bytes / size;
  // What packing computes once is computed for each tile.
  *shape = (qn__along_shape_t){
      .lanes = lanes, .columns = lanes < most ? lanes : most, .max_rows = max_rows_of_long};
  int64_t steps = qn__product_steps(product);
  if (steps >= 0 && steps < long_steps) shape->max_rows = max_rows;
  if (!are_plain) shape->max_rows = min_packed - 1;
  int64_t rows = qn__product_trips(product, product->side_dims[QN__PRODUCT_ROW]);
  return lanes >= 2 && (steps < 0 || steps >= lanes) && rows <= shape->max_rows;
}

qn__ir_expr_t* qn__along_is_long(const qn__product_t* product, const qn__along_shape_t* shape) {
  if (qn__product_steps(product) >= 0) return NULL;
  qn__pass_builder_t* pb = product->pb;
  const uint32_t dims = product->side_dims[QN__PRODUCT_ROW];
  int64_t rows = qn__product_trips(product, dims);
  qn__ir_expr_t* least = qn__pb_int(pb, rows > max_rows ? long_steps : shape->lanes);
  if (rows < 0 && shape->max_rows > max_rows) {
    qn__ir_expr_t* is_few =
        qn__pb_op_int(pb, QN_OP_LE, qn__product_extent(product, dims), max_rows);
    least = qn__pb_cond(pb, is_few, least, qn__pb_int(pb, long_steps));
  }
  return qn__pb_op(pb, QN_OP_GE, qn__pb_reduce_extent(pb, product->steps[0].reduce), least);
}

// ---- the kernel

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

// Marks the load of a column operand, whose copy `value` is: the next task reads the same steps of
// the columns after those of this task. Nothing else fetches many short rows in time.
static void fetch_ahead(const along_writer_t* w, const qn__product_operand_t* operand,
                        qn__ir_expr_t* value) {
  const qn__product_t* product = w->product;
  const uint32_t dims = product->side_dims[QN__PRODUCT_COLUMN];
  const qn__ir_expr_t* load = operand->value;
  for (; load->kind == QN__EXPR_CAST; load = load->args[0]) value = value->args[0];
  if (load->kind != QN__EXPR_LOAD || (dims & (dims - 1))) return;
  const qn__ir_var_t* var = qn__product_fastest(product, QN__PRODUCT_COLUMN)->loop.var;
  for (uint32_t d = 0; d < load->load.buffer->rank; ++d) {
    const qn__ir_expr_t* index = load->load.indices[d];
    if (index->kind != QN__EXPR_VAR || index->var != var) continue;
    value->load.ahead = (uint32_t)w->shape->columns;
    value->load.ahead_dim = d;
    return;
  }
}

// Appends the operands of a side for a vector of steps, at the line `places`. If `is_ahead`, those
// of the next task are fetched.
static void write_operands(along_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                           bool is_ahead, qn__ir_expr_t* const* places, qn__ir_expr_t** values) {
  qn__product_t* product = w->product;
  qn__product_set(product, product->side_dims[side], places);
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    if (product->operands[o].side != side) continue;
    values[o] = qn__pb_use(w->pb, qn__product_write_operand(product, out, &product->operands[o]));
    if (qn__pb_stopped(w->pb)) return;
    if (is_ahead) fetch_ahead(w, &product->operands[o], out->last->let.value);
  }
}

// Appends a vector of steps from `first`, of which the lanes from `fresh` (NULL: all) are added.
// Consumes both.
static void write_steps(along_writer_t* w, qn__ir_block_t* out, const along_tile_t* tile,
                        qn__ir_expr_t* first, qn__ir_expr_t* fresh) {
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
  if (fresh) {
    fresh = qn__pb_op(pb, QN_OP_GE, qn__pb_use(pb, loop->loop.var), fresh);
    fresh = qn__pb_named(pb, body, "is_fresh", fresh);
  }
  for (int64_t u = 0; u < tile->height; ++u) {
    write_operands(w, body, QN__PRODUCT_ROW, false, tile->places[u], elements[u]);
  }
  for (int64_t c = 0; c < w->shape->columns; ++c) {
    qn__ir_expr_t* own[qn__product_max_operands] = {NULL};
    write_operands(w, body, QN__PRODUCT_COLUMN, tile->is_first, w->places[c], own);
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
      if (fresh) next = qn__pb_cond(pb, copy(w, fresh), next, sum);
      qn__pb_append(
          body, qn__pb_store(pb, tile->sums, copy(w, at), qn__pb_use(pb, loop->loop.var), next));
    }
  }
  qn__block_append(out, loop);
}

// Appends the first values of a tile's sums.
static void write_begin(along_writer_t* w, qn__ir_block_t* out, const along_tile_t* tile) {
  qn__pass_builder_t* pb = w->pb;
  const qn__ir_expr_t* reduce = w->product->reduce;
  for (int64_t x = 0; x < tile->height * w->shape->columns; ++x) {
    qn__ir_stmt_t* loop = vector_loop(w, w->shape->lanes);
    if (!loop) return;
    qn__pb_append(&loop->loop.body,
                  qn__pb_store(pb, tile->sums, qn__pb_int(pb, x), qn__pb_use(pb, loop->loop.var),
                               qn__pb_neutral(pb, reduce->reduce.reduce_kind, reduce->dtype)));
    qn__block_append(out, loop);
  }
}

// Appends the sums over the lanes of row `u` of the tile at `row`, as a vector for the columns.
static void write_join(along_writer_t* w, qn__ir_block_t* out, const along_tile_t* tile, int64_t u,
                       qn__ir_expr_t* row) {
  qn__pass_builder_t* pb = w->pb;
  const int64_t columns = w->shape->columns;
  const qn_op_t op = qn__reduce_op(w->product->reduce->reduce.reduce_kind);
  qn__ir_buffer_t* turned =
      qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, w->product->reduce->dtype, "turned", columns, columns);
  qn__ir_stmt_t* lines = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "c", qn__pb_int(pb, columns));
  qn__ir_stmt_t* along = vector_loop(w, columns);
  qn__ir_stmt_t* across = vector_loop(w, columns);
  if (!turned || !lines || !along || !across) return;
  lines->loop.is_transposed = true;
  // Lanes are joined in groups first, so that a square is left.
  qn__ir_expr_t* sum = NULL;
  for (int64_t from = 0; from < w->shape->lanes; from += columns) {
    qn__ir_expr_t* line =
        qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, lines->loop.var), u * columns);
    qn__ir_expr_t* lane = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, along->loop.var), from);
    qn__ir_expr_t* part = qn__pb_load(pb, tile->sums, line, lane);
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
  row = qn__pb_op_int(pb, QN_OP_ADD, copy(w, row), u);
  qn__pb_append(&across->loop.body,
                qn__pb_store(pb, w->joined, row, qn__pb_use(pb, across->loop.var), sum));
  qn__block_append(out, across);
}

// Appends the statements of the nest for `columns` columns of all rows. Consumes `columns`.
static void write_results(along_writer_t* w, qn__ir_block_t* out, const qn__ir_expr_t* rows,
                          qn__ir_expr_t* columns) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* down = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "i", copy(w, rows));
  qn__ir_stmt_t* across = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "j", columns);
  if (!down || !across) return;
  place(w, &down->loop.body, QN__PRODUCT_ROW, qn__pb_use(pb, down->loop.var), NULL);
  place(w, &across->loop.body, QN__PRODUCT_COLUMN,
        qn__pb_op(pb, QN_OP_ADD, copy(w, w->column), qn__pb_use(pb, across->loop.var)), NULL);
  qn__product_write_body(
      w->product, &across->loop.body,
      qn__pb_load(pb, w->joined, qn__pb_use(pb, down->loop.var), qn__pb_use(pb, across->loop.var)));
  qn__block_append(&down->loop.body, across);
  qn__block_append(out, down);
}

// Appends the statements of the nest for all sums of a task. Its columns are a known number, which
// is a vector, but in the last task.
static void write_all_results(along_writer_t* w, qn__ir_block_t* out, const qn__ir_expr_t* rows) {
  qn__pass_builder_t* pb = w->pb;
  const int64_t columns = w->shape->columns;
  qn__ir_block_t whole = {NULL, NULL};
  write_results(w, &whole, rows, qn__pb_int(pb, columns));
  int64_t known = qn__product_trips(w->product, w->product->side_dims[QN__PRODUCT_COLUMN]);
  if (known >= 0 && known % columns == 0) {
    qn__block_splice(out, &whole);
    return;
  }
  qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, copy(w, w->columns), copy(w, w->column));
  left = qn__pb_named(pb, out, "left", left);
  qn__ir_stmt_t* test = qn__pb_if(pb, qn__pb_op_int(pb, QN_OP_GE, copy(w, left), columns), whole);
  if (!test || qn__pb_stopped(pb)) return;
  write_results(w, &test->if_.else_block, rows, left);
  qn__block_append(out, test);
}

// Appends all that `lines` rows at `row` need.
static void write_tile(along_writer_t* w, qn__ir_block_t* out, int64_t lines, bool is_first,
                       qn__ir_expr_t* row) {
  qn__pass_builder_t* pb = w->pb;
  const int64_t lanes = w->shape->lanes;
  const qn_dtype_t dtype = w->product->reduce->dtype;
  along_tile_t tile = {.height = lines, .is_first = is_first};
  assert(lines <= height);
  tile.sums =
      qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, dtype, "tile", lines * w->shape->columns, lanes);
  for (int64_t u = 0; u < lines; ++u) {
    place(w, out, QN__PRODUCT_ROW, qn__pb_op_int(pb, QN_OP_ADD, copy(w, row), u), tile.places[u]);
  }
  if (qn__pb_stopped(pb)) return;
  write_begin(w, out, &tile);
  qn__ir_stmt_t* loop = qn__pb_count_loop(
      pb, QN_LOOP_SERIAL, "block", qn__pb_op_int(pb, QN_OP_FLOORDIV, copy(w, w->steps), lanes));
  if (!loop) return;
  write_steps(w, &loop->loop.body, &tile,
              qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), lanes), NULL);
  qn__block_append(out, loop);
  int64_t known;
  qn__ir_expr_t* left =
      qn__pb_named(pb, out, "left", qn__pb_op_int(pb, QN_OP_FLOORMOD, copy(w, w->steps), lanes));
  if (!left) return;
  if (!qn__expr_const_int(left, &known) || known > 0) {
    qn__ir_block_t rest = {NULL, NULL};
    qn__ir_expr_t* fresh = qn__pb_op(pb, QN_OP_SUB, qn__pb_int(pb, lanes), copy(w, left));
    write_steps(w, &rest, &tile, qn__pb_op_int(pb, QN_OP_SUB, copy(w, w->steps), lanes), fresh);
    qn__pb_append(out, qn__pb_if(pb, qn__pb_op_int(pb, QN_OP_GT, left, 0), rest));
  }
  for (int64_t u = 0; u < lines; ++u) write_join(w, out, &tile, u, row);
}

// ---- all

// Appends the tiles of a task.
static void write_tiles(along_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* rows = qn__pb_named(
      pb, out, "all_rows", qn__product_extent(w->product, w->product->side_dims[QN__PRODUCT_ROW]));
  qn__ir_expr_t* tiles =
      qn__pb_named(pb, out, "tiles", qn__pb_op_int(pb, QN_OP_FLOORDIV, copy(w, rows), height));
  if (!rows || !tiles) return;
  int64_t known;
  if (!qn__expr_const_int(tiles, &known) || known > 0) {
    qn__ir_stmt_t* down = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "tile", copy(w, tiles));
    if (!down) return;
    qn__ir_expr_t* row = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, down->loop.var), height);
    row = qn__pb_named(pb, &down->loop.body, "row", row);
    qn__ir_block_t first = {NULL, NULL};
    write_tile(w, &first, height, true, row);
    qn__ir_stmt_t* test =
        qn__pb_if(pb, qn__pb_op_int(pb, QN_OP_EQ, qn__pb_use(pb, down->loop.var), 0), first);
    if (!test || qn__pb_stopped(pb)) return;
    write_tile(w, &test->if_.else_block, height, false, row);
    qn__block_append(&down->loop.body, test);
    qn__block_append(out, down);
  }
  qn__ir_expr_t* row = qn__pb_named(pb, out, "row", qn__pb_op_int(pb, QN_OP_MUL, tiles, height));
  qn__ir_expr_t* left =
      qn__pb_named(pb, out, "rows", qn__pb_op(pb, QN_OP_SUB, copy(w, rows), copy(w, row)));
  for (int64_t lines = 1; lines < height && left; ++lines) {
    if (qn__expr_const_int(left, &known) && known != lines) continue;
    qn__ir_block_t rest = {NULL, NULL};
    write_tile(w, &rest, lines, true, row);
    qn__pb_append(out, qn__pb_if(pb, qn__pb_op_int(pb, QN_OP_EQ, copy(w, left), lines), rest));
  }
  if (!qn__pb_stopped(pb)) write_all_results(w, out, rows);
}

void qn__along_write(qn__product_t* product, const qn__along_shape_t* shape, qn_loop_kind_t kind,
                     qn__ir_block_t* out) {
  qn__pass_builder_t* pb = product->pb;
  along_writer_t w = {.product = product, .pb = pb, .shape = shape};
  for (uint32_t i = 0; i < product->name_count; ++i) product->names[i].now = NULL;
  w.columns = qn__pb_named(pb, out, "all_columns",
                           qn__product_extent(product, product->side_dims[QN__PRODUCT_COLUMN]));
  qn__ir_expr_t* panels = qn__pb_named(
      pb, out, "panels", qn__pb_op_int(pb, QN_OP_CEILDIV, copy(&w, w.columns), shape->columns));
  qn__ir_expr_t* tasks = qn__pb_op(pb, QN_OP_MUL, copy(&w, panels),
                                   qn__product_extent(product, qn__product_batch(product)));
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, kind, "task", tasks);
  if (!loop || qn__pb_stopped(pb)) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_expr_t* number =
      qn__pb_op(pb, QN_OP_FLOORMOD, qn__pb_use(pb, loop->loop.var), copy(&w, panels));
  w.column = qn__pb_named(pb, body, "column", qn__pb_op_int(pb, QN_OP_MUL, number, shape->columns));
  qn__ir_var_t* batch = qn__pb_let(
      pb, body, "rest", qn__pb_op(pb, QN_OP_FLOORDIV, qn__pb_use(pb, loop->loop.var), panels));
  if (!batch || qn__pb_stopped(pb)) return;
  qn__product_place(product, body, qn__product_batch(product), batch);
  w.steps = qn__product_write_bounds(product, body);
  if (!w.steps || qn__pb_stopped(pb)) return;
  w.joined = qn__pb_alloc(pb, body, QN__SCOPE_LOCAL, product->reduce->dtype, "joined",
                          shape->max_rows, shape->columns);
  for (int64_t c = 0; c < shape->columns; ++c) {
    qn__ir_expr_t* last = qn__pb_op_int(pb, QN_OP_ADD, copy(&w, w.columns), -1);
    qn__ir_expr_t* line = qn__pb_op_int(pb, QN_OP_ADD, copy(&w, w.column), c);
    place(&w, body, QN__PRODUCT_COLUMN, qn__pb_op(pb, QN_OP_MIN, line, last), w.places[c]);
  }
  write_tiles(&w, body);
  if (!qn__pb_stopped(pb)) qn__block_append(out, loop);
}
