// ir/passes/cpu/small.c: writes products whose columns caches hold.
//
//   parallel task in 0..batch * ceildiv(M, task_rows) {
//     for tile in 0..rows // height { for panel in 0..panels { the tile of registers } }
//     for tile in 0..ceildiv(rows % height, height / 2) {
//       for panel in 0..panels { a tile of half the height, whose last rows may not exist }
//     }
//   }
//
// 1. Packing reads and writes an operand once more. Here that is much of the work, and the caches
//    serve the kernel as well as packed operands would.
// 2. The last panel is masked, which costs nothing where memory can be masked at all. A panel of
// one
//    vector (AVX-512) is right for few columns, too.
// 3. Half a tile takes as long as one of fewer rows: as long as the latency of its additions.
// 4. Tiny products cost as much as what comes before the first tile: there is no division in it.
// 5. Every product of unknown extents has this form: two kernels without copies for edges.
#include "ir/passes/cpu/small.h"

#include "ir/passes/products_write.h"

enum {
  task_rows = 32,
  min_work = 64,  // multiplications: fewer are done before the form is chosen
};

// Returns true if the operand is a number in memory: to compute it anew for each tile costs more.
static bool is_plain(const qn__product_t* product, const qn__product_operand_t* operand) {
  return operand->value->kind == QN__EXPR_LOAD && operand->value->dtype == product->reduce->dtype &&
         (operand->side == QN__PRODUCT_ROW || operand->runs_along_line);
}

// Returns true if the summand is the product of two operands that are numbers in memory, and lanes
// beyond the last column can evaluate all but the load.
static bool is_simple(const qn__product_t* product) {
  const qn__ir_expr_t* summand = *product->summand;
  if (product->operand_count != 2 || product->slot_count != 2) return false;
  if (summand->kind != QN__EXPR_OP || summand->op != QN_OP_MUL) return false;
  for (uint32_t o = 0; o < 2; ++o) {
    const qn__product_operand_t* operand = &product->operands[o];
    if (summand->args[o]->kind != QN__EXPR_LOAD || !is_plain(product, operand)) return false;
    for (uint32_t i = 0; operand->side == QN__PRODUCT_COLUMN && i < product->name_count; ++i) {
      const qn__product_name_t* name = &product->names[i];
      bool is_of_column = name->mask & product->side_dims[QN__PRODUCT_COLUMN];
      if (operand->is_needed[i] && name->let && is_of_column) return false;
    }
  }
  return true;
}

bool qn__small_choose(const qn__product_t* product, qn__small_shape_t* shape) {
  const qn__pass_options_t* options = product->pb->options;
  int64_t size = (int64_t)qn_dtype_size_bytes(product->reduce->dtype);
  const uint32_t across = product->side_dims[QN__PRODUCT_COLUMN];
  const qn__nest_t* nest = product->nest;
  // Columns of several loops are contiguous within one only.
  if (across != 1U << nest->order[nest->count - 1] || product->step_count != 1) return false;
  if (size < 4 || !options->has_masked_memory || !is_simple(product)) return false;
  // AVX-512 reads a row's element in the instruction that uses it, and has narrow tiles for free.
  int64_t vectors = options->vector_bytes >= 64 ? 1 : 2;
  *shape = (qn__small_shape_t){.height = 8 / vectors,
                               .width = vectors * (int64_t)options->vector_bytes / size};
  qn__ir_expr_t* test = qn__small_test(product);
  int64_t is_small;
  return test && (!qn__expr_const_int(test, &is_small) || is_small);
}

qn__ir_expr_t* qn__small_test(const qn__product_t* product) {
  qn__pass_builder_t* pb = product->pb;
  const qn__ir_expr_t* reduce = product->reduce;
  int64_t l2 = pb->options->l2_bytes ? pb->options->l2_bytes : 524288;
  int64_t most = l2 / 4 / (int64_t)qn_dtype_size_bytes(reduce->dtype);
  qn__ir_expr_t* steps = qn__product_common_steps(product);
  qn__ir_expr_t* columns = qn__product_extent(product, product->side_dims[QN__PRODUCT_COLUMN]);
  qn__ir_expr_t* rows = qn__product_extent(product, product->side_dims[QN__PRODUCT_ROW]);
  qn__ir_expr_t* elements = qn__pb_op(pb, QN_OP_MUL, steps, columns);
  qn__ir_expr_t* all = qn__pb_op(pb, QN_OP_MUL, rows, qn__pb_copy(pb, elements));
  return qn__pb_both(pb, qn__pb_op_int(pb, QN_OP_LE, elements, most),
                     qn__pb_op_int(pb, QN_OP_GE, all, min_work));
}

// ---- writing

static qn__ir_expr_t* copy(const qn__small_writer_t* w, const qn__ir_expr_t* expr) {
  return qn__pb_copy(w->pb, expr);
}

// Appends the tiles of all panels for `height` rows from `row` on.
static void write_panels(qn__small_writer_t* w, qn__ir_block_t* out, int64_t height,
                         const qn__ir_expr_t* row, const qn__ir_expr_t* end) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* panels = qn__pb_op_int(pb, QN_OP_CEILDIV, copy(w, w->columns), w->shape->width);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "panel", panels);
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  w->column =
      qn__pb_named(pb, body, "column",
                   qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), w->shape->width));
  w->limit = qn__pb_op(pb, QN_OP_SUB, copy(w, w->columns), copy(w, w->column));
  w->limit = qn__pb_named(pb, body, "limit", w->limit);
  if (qn__pb_stopped(pb)) return;
  qn__small_write_tile(w, body, height, row, end);
  qn__block_append(out, loop);
}

// Appends a loop over tiles of `height` rows from `first` on; consumes `tiles`.
static void write_tiles(qn__small_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* tiles,
                        int64_t height, const qn__ir_expr_t* first, const qn__ir_expr_t* end) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "tile", tiles);
  if (!loop) return;
  qn__ir_expr_t* row = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), height);
  row = qn__pb_op(pb, QN_OP_ADD, row, copy(w, first));
  row = qn__pb_named(pb, &loop->loop.body, "row", row);
  if (!row) return;
  write_panels(w, &loop->loop.body, height, row, end);
  qn__block_append(out, loop);
}

// Returns true if lanes can do all that the nest does with a result.
static bool is_store(const qn__product_t* product) {
  const qn__ir_block_t* body = &product->nest->body;
  return body->first && body->first == body->last && body->first->kind == QN__STMT_STORE;
}

void qn__small_write(qn__product_t* product, const qn__small_shape_t* shape, qn_loop_kind_t kind,
                     qn__ir_block_t* out) {
  qn__pass_builder_t* pb = product->pb;
  qn__small_writer_t w = {.product = product, .pb = pb, .shape = shape};
  for (uint32_t i = 0; i < product->name_count; ++i) product->names[i].now = NULL;
  w.columns = qn__pb_named(pb, out, "all_columns",
                           qn__product_extent(product, product->side_dims[QN__PRODUCT_COLUMN]));
  qn__product_part_t part;
  qn__ir_stmt_t* loop = qn__product_write_tasks(product, out, kind, task_rows, &part);
  if (!loop || qn__pb_stopped(pb)) return;
  qn__ir_block_t* body = &loop->loop.body;
  w.steps = qn__product_write_bounds(product, body);
  if (!w.steps || qn__pb_stopped(pb)) return;
  w.is_store = is_store(product);
  w.sums = qn__pb_alloc(pb, body, QN__SCOPE_LOCAL, product->reduce->dtype, "results", shape->height,
                        shape->width);
  if (!w.sums) return;
  w.sums->is_filled = true;
  const int64_t height = shape->height;
  qn__ir_expr_t* count = qn__pb_op(pb, QN_OP_SUB, copy(&w, part.end), copy(&w, part.first));
  count = qn__pb_named(pb, body, "count", count);
  qn__ir_expr_t* rest = qn__pb_op_int(pb, QN_OP_FLOORMOD, copy(&w, count), height);
  rest = qn__pb_named(pb, body, "rest", rest);
  write_tiles(&w, body, qn__pb_op_int(pb, QN_OP_FLOORDIV, count, height), height, part.first, NULL);
  qn__ir_expr_t* last = qn__pb_op(pb, QN_OP_SUB, copy(&w, part.end), copy(&w, rest));
  last = qn__pb_named(pb, body, "last", last);
  rest = qn__pb_op_int(pb, QN_OP_CEILDIV, rest, height / 2);
  if (qn__pb_stopped(pb)) return;
  write_tiles(&w, body, rest, height / 2, last, part.end);
  if (!qn__pb_stopped(pb)) qn__block_append(out, loop);
}
