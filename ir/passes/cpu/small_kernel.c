// ir/passes/cpu/small_kernel.c: tiles of registers over operands that are read where they are.
//
//   alloc t: [height, width] in local;                 // registers
//   for p in 0..K {
//     let a_u = A[row + u, p]; ...
//     vector v { let b = B[p, column + v]; t[u, v] = fma(a_u, b, t[u, v]); ... }
//   }
//
// 1. Each sum is added up in the order of the reduction, as in blocks_write.c.
// 2. Columns beyond `limit` are masked: nothing of them is evaluated.
#include "ir/passes/cpu/small.h"

#include "ir/passes/products_write.h"

enum { max_height = 16 };

// A tile of sums that registers hold.
typedef struct small_tile {
  int64_t height;
  qn__ir_buffer_t* sums;
  qn__ir_expr_t* rows[max_height][qn__max_nest];  // values of the row loops
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

// Returns a loop over the columns of a panel, and at `body` the list of what is done for those that
// exist. Nothing may follow in the loop.
static qn__ir_stmt_t* vector_loop(const qn__small_writer_t* w, qn__ir_block_t** body) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_VECTOR, "v", qn__pb_int(pb, w->shape->width));
  if (!loop) return NULL;
  *body = &loop->loop.body;
  qn__ir_expr_t* exists =
      qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, loop->loop.var), copy(w, w->limit));
  qn__ir_stmt_t* test = qn__pb_if(pb, exists, (qn__ir_block_t){NULL, NULL});
  if (!test) return NULL;
  qn__block_append(*body, test);
  *body = &test->if_.then_block;
  return loop;
}

// Appends one step of the reduction for all sums of a tile.
static void write_step(qn__small_writer_t* w, qn__ir_block_t* out, small_tile_t* tile,
                       qn__ir_var_t* p) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const uint32_t rows = product->side_dims[QN__PRODUCT_ROW];
  const uint32_t columns = product->side_dims[QN__PRODUCT_COLUMN];
  qn__ir_var_t* elements[qn__product_max_operands][max_height] = {{NULL}};
  qn__product_set_step(product, out, qn__pb_use(pb, p));
  for (int64_t u = 0; u < tile->height; ++u) {
    qn__product_set(product, rows, tile->rows[u]);
    for (uint32_t o = 0; o < product->operand_count; ++o) {
      const qn__product_operand_t* operand = &product->operands[o];
      if (operand->side == QN__PRODUCT_ROW)
        elements[o][u] = qn__product_write_operand(product, out, operand);
    }
  }
  qn__ir_block_t* body = NULL;
  qn__ir_stmt_t* loop = vector_loop(w, &body);
  if (!loop || qn__pb_stopped(pb)) return;
  place(w, body, QN__PRODUCT_COLUMN,
        qn__pb_op(pb, QN_OP_ADD, copy(w, w->column), qn__pb_use(pb, loop->loop.var)));
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    const qn__product_operand_t* operand = &product->operands[o];
    if (operand->side == QN__PRODUCT_COLUMN)
      elements[o][0] = qn__product_write_operand(product, body, operand);
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

// Appends the first values of a tile's sums (`is_first`), or copies the sums to `w->sums`.
static void write_transfer(qn__small_writer_t* w, qn__ir_block_t* out, const small_tile_t* tile,
                           bool is_first) {
  qn__pass_builder_t* pb = w->pb;
  const qn__ir_expr_t* reduce = w->product->reduce;
  for (int64_t u = 0; u < tile->height; ++u) {
    qn__ir_stmt_t* loop =
        qn__pb_count_loop(pb, QN_LOOP_VECTOR, "v", qn__pb_int(pb, w->shape->width));
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

// Appends the statements of the nest for a tile, whose sums are still in registers.
static void write_lines(qn__small_writer_t* w, qn__ir_block_t* out, const small_tile_t* tile) {
  qn__pass_builder_t* pb = w->pb;
  for (int64_t u = 0; u < tile->height; ++u) {
    qn__ir_block_t* body = NULL;
    qn__ir_stmt_t* loop = vector_loop(w, &body);
    if (!loop || qn__pb_stopped(pb)) return;
    qn__product_set(w->product, w->product->side_dims[QN__PRODUCT_ROW], tile->rows[u]);
    qn__ir_expr_t* v = qn__pb_use(pb, loop->loop.var);
    place(w, body, QN__PRODUCT_COLUMN,
          qn__pb_op(pb, QN_OP_ADD, copy(w, w->column), qn__pb_copy(pb, v)));
    qn__product_write_body(w->product, body, qn__pb_load(pb, tile->sums, qn__pb_int(pb, u), v));
    qn__block_append(out, loop);
  }
}

// Appends the statements of the nest for the `lines` rows of `w->sums`.
static void write_results(qn__small_writer_t* w, qn__ir_block_t* out, int64_t lines,
                          const qn__ir_expr_t* row) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* down = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "i", qn__pb_int(pb, lines));
  qn__ir_expr_t* count = qn__pb_op_int(pb, QN_OP_MIN, copy(w, w->limit), w->shape->width);
  qn__ir_stmt_t* across = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "j", count);
  if (!down || !across) return;
  place(w, &down->loop.body, QN__PRODUCT_ROW,
        qn__pb_op(pb, QN_OP_ADD, copy(w, row), qn__pb_use(pb, down->loop.var)));
  place(w, &across->loop.body, QN__PRODUCT_COLUMN,
        qn__pb_op(pb, QN_OP_ADD, copy(w, w->column), qn__pb_use(pb, across->loop.var)));
  qn__product_write_body(
      w->product, &across->loop.body,
      qn__pb_load(pb, w->sums, qn__pb_use(pb, down->loop.var), qn__pb_use(pb, across->loop.var)));
  qn__block_append(&down->loop.body, across);
  qn__block_append(out, down);
}

void qn__small_write_tile(qn__small_writer_t* w, qn__ir_block_t* out, int64_t lines,
                          const qn__ir_expr_t* row) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  small_tile_t tile = {.height = lines};
  assert(lines <= max_height);
  tile.sums = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, product->reduce->dtype, "tile", lines,
                           w->shape->width);
  for (int64_t u = 0; u < lines; ++u) {
    qn__ir_expr_t* line = qn__pb_op_int(pb, QN_OP_ADD, copy(w, row), u);
    place(w, out, QN__PRODUCT_ROW, line);
    for (uint32_t d = 0; d < product->nest->count; ++d) tile.rows[u][d] = product->names[d].now;
  }
  if (qn__pb_stopped(pb)) return;
  write_transfer(w, out, &tile, true);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "p", copy(w, w->steps));
  if (!loop) return;
  write_step(w, &loop->loop.body, &tile, loop->loop.var);
  qn__block_append(out, loop);
  if (w->sums) {
    write_transfer(w, out, &tile, false);
    write_results(w, out, lines, row);
  } else {
    write_lines(w, out, &tile);
  }
}
