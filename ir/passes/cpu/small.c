// ir/passes/cpu/small.c: writes products whose operands the kernel reads where they are.
//
//   parallel task in 0..batch * parts {
//     for panel in the task's panels of `wide` columns {
//       for tile in 0..rows // height { the tile of registers }
//       for tile in 0..ceildiv(rows % height, low_height) { a low one, whose last row may not exist
//       }
//     }
//     for panel in panels of `width` columns for the others { the same, masked }
//   }
//
// 1. Packing reads and writes an operand once more. Where caches hold the columns, or few rows use
//    them, that is much of the work.
// 2. Where a core begins two multiplications of 64 bytes a cycle, loads limit it: a tile of six
// rows
//    and four vectors has ten for 24 multiplications. A vector of memory that is not aligned lies
//    in two lines of the first cache. With one multiplication a cycle, eight rows of one vector are
//    better: the instruction that multiplies reads the row's element.
// 3. All rows use a panel before the next one: the first cache has its columns, or the second.
// 4. The last panel is masked, which costs nothing where memory can be masked at all. A panel of
//    one vector (AVX-512) is right for few columns, too.
// 5. A task has all rows of a panel if they are few, else all columns of some rows.
// 6. Tiny products cost as much as what comes before the first tile: there is no division in it.
// 7. Every product of unknown extents has this form: kernels without copies for edges.
#include "ir/passes/cpu/small.h"

#include "ir/passes/products_write.h"

enum {
  task_rows = 32,
  few_rows = 48,  // more are worth packing
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
  int64_t lanes = (int64_t)options->vector_bytes / size;
  if (options->vector_bytes < 64) {
    *shape = (qn__small_shape_t){.narrow = {4, 2, false, 2 * lanes}};
  } else {
    *shape = (qn__small_shape_t){.narrow = {8, 4, false, lanes}};
  }
  if (options->vector_bytes >= 64 && options->wide_multiplies > 1) {
    shape->wide = (qn__small_panel_t){6, 4, true, 4 * lanes};
    shape->min_wide = 2 * lanes + 1;
    shape->max_rows = few_rows;
  }
  qn__ir_expr_t* test = qn__small_test(product, shape);
  int64_t is_small;
  return test && (!qn__expr_const_int(test, &is_small) || is_small);
}

qn__ir_expr_t* qn__small_test(const qn__product_t* product, const qn__small_shape_t* shape) {
  qn__pass_builder_t* pb = product->pb;
  const qn__ir_expr_t* reduce = product->reduce;
  int64_t l2 = pb->options->l2_bytes ? pb->options->l2_bytes : 524288;
  int64_t most = l2 / 4 / (int64_t)qn_dtype_size_bytes(reduce->dtype);
  qn__ir_expr_t* steps = qn__product_common_steps(product);
  qn__ir_expr_t* columns = qn__product_extent(product, product->side_dims[QN__PRODUCT_COLUMN]);
  qn__ir_expr_t* rows = qn__product_extent(product, product->side_dims[QN__PRODUCT_ROW]);
  qn__ir_expr_t* elements = qn__pb_op(pb, QN_OP_MUL, steps, columns);
  qn__ir_expr_t* all = qn__pb_op(pb, QN_OP_MUL, qn__pb_copy(pb, rows), qn__pb_copy(pb, elements));
  qn__ir_expr_t* is_small = qn__pb_op_int(pb, QN_OP_LE, elements, most);
  if (shape->max_rows)
    is_small = qn__pb_either(pb, is_small, qn__pb_op_int(pb, QN_OP_LE, rows, shape->max_rows));
  return qn__pb_both(pb, is_small, qn__pb_op_int(pb, QN_OP_GE, all, min_work));
}

// ---- writing

static qn__ir_expr_t* copy(const qn__small_writer_t* w, const qn__ir_expr_t* expr) {
  return qn__pb_copy(w->pb, expr);
}

// Returns `a - b`.
static qn__ir_expr_t* subtract(const qn__small_writer_t* w, const qn__ir_expr_t* a,
                               const qn__ir_expr_t* b) {
  return qn__pb_op(w->pb, QN_OP_SUB, copy(w, a), copy(w, b));
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
  qn__small_write_tile(w, &loop->loop.body, height, row, end);
  qn__block_append(out, loop);
}

// Appends a loop over `panels` as `w->panel` from column `first` on, and over all their tiles.
// Columns from `end` on do not exist. Consumes `panels`.
static void write_panels(qn__small_writer_t* w, qn__ir_block_t* out, qn__ir_expr_t* panels,
                         const qn__ir_expr_t* first, const qn__ir_expr_t* end,
                         const qn__product_part_t* rows) {
  qn__pass_builder_t* pb = w->pb;
  const int64_t height = w->panel->height, low_height = w->panel->low_height;
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "panel", panels);
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_expr_t* column =
      qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), w->panel->width);
  w->column = qn__pb_named(pb, body, "column", qn__pb_op(pb, QN_OP_ADD, column, copy(w, first)));
  w->limit = qn__pb_named(pb, body, "limit", subtract(w, end, w->column));
  qn__ir_expr_t* count = qn__pb_named(pb, body, "count", subtract(w, rows->end, rows->first));
  qn__ir_expr_t* rest =
      qn__pb_named(pb, body, "rest", qn__pb_op_int(pb, QN_OP_FLOORMOD, copy(w, count), height));
  qn__ir_expr_t* last = qn__pb_named(pb, body, "last", subtract(w, rows->end, rest));
  if (qn__pb_stopped(pb)) return;
  write_tiles(w, body, qn__pb_op_int(pb, QN_OP_FLOORDIV, count, height), height, rows->first, NULL);
  qn__ir_expr_t* single = NULL;
  if (w->panel->has_single) {
    single = qn__pb_op_int(pb, QN_OP_FLOORMOD, copy(w, rest), low_height);
    single = qn__pb_op_int(pb, QN_OP_EQ, single, 1);
    single = qn__pb_cond(pb, single, qn__pb_int(pb, 1), qn__pb_int(pb, 0));
    single = qn__pb_named(pb, body, "single", single);
    rest = qn__pb_op(pb, QN_OP_SUB, rest, copy(w, single));
  }
  write_tiles(w, body, qn__pb_op_int(pb, QN_OP_CEILDIV, rest, low_height), low_height, last,
              rows->end);
  if (w->panel->has_single) {
    last = qn__pb_named(pb, body, "last", qn__pb_op_int(pb, QN_OP_ADD, copy(w, rows->end), -1));
    write_tiles(w, body, single, 1, last, NULL);
  }
  qn__block_append(out, loop);
}

// Returns a loop over tasks, with the variables of the batch set, and sets what a task computes.
static qn__ir_stmt_t* write_tasks(qn__small_writer_t* w, qn__ir_block_t* out, qn_loop_kind_t kind,
                                  qn__product_part_t* part, qn__product_part_t* across) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const int64_t few = w->shape->max_rows, most = few ? few : task_rows;
  qn__ir_expr_t* rows = qn__pb_named(
      pb, out, "all_rows", qn__product_extent(product, product->side_dims[QN__PRODUCT_ROW]));
  qn__ir_expr_t* columns = qn__pb_named(
      pb, out, "all_columns", qn__product_extent(product, product->side_dims[QN__PRODUCT_COLUMN]));
  qn__ir_expr_t* parts = qn__pb_op_int(pb, QN_OP_CEILDIV, copy(w, rows), most);
  qn__ir_expr_t* is_few = NULL;
  if (few) {
    is_few = qn__pb_named(pb, out, "is_few", qn__pb_op_int(pb, QN_OP_LE, copy(w, rows), few));
    qn__ir_expr_t* panels =
        qn__pb_op_int(pb, QN_OP_CEILDIV, copy(w, columns), w->shape->wide.width);
    parts = qn__pb_cond(pb, copy(w, is_few), panels, parts);
  }
  qn__ir_expr_t* number;
  qn__ir_stmt_t* loop = qn__product_write_tasks(product, out, kind, parts, &number);
  if (!loop) return NULL;
  qn__ir_block_t* body = &loop->loop.body;
  *across = (qn__product_part_t){qn__pb_int(pb, 0), columns};
  if (few) {
    qn__ir_expr_t* panel = qn__pb_cond(pb, copy(w, is_few), copy(w, number), qn__pb_int(pb, 0));
    number = qn__pb_cond(pb, copy(w, is_few), qn__pb_int(pb, 0), number);
    *across = qn__product_write_part(pb, body, panel, w->shape->wide.width, columns);
    across->end = qn__pb_cond(pb, is_few, across->end, columns);
    across->end = qn__pb_named(pb, body, "end", across->end);
  }
  *part = qn__product_write_part(pb, body, number, most, rows);
  return loop;
}

// Returns true if lanes can do all that the nest does with a result.
static bool is_store(const qn__product_t* product) {
  const qn__ir_block_t* body = &product->nest->body;
  return body->first && body->first == body->last && body->first->kind == QN__STMT_STORE;
}

// Appends the panels of a task.
static void write_columns(qn__small_writer_t* w, qn__ir_block_t* out,
                          const qn__product_part_t* part, const qn__product_part_t* across) {
  qn__pass_builder_t* pb = w->pb;
  const int64_t wide = w->shape->wide.width;
  qn__ir_expr_t* first = across->first;
  if (wide) {
    qn__ir_expr_t* count = subtract(w, across->end, first);
    count = qn__pb_op_int(pb, QN_OP_ADD, count, wide - w->shape->min_wide);
    qn__ir_expr_t* panels =
        qn__pb_named(pb, out, "panels", qn__pb_op_int(pb, QN_OP_FLOORDIV, count, wide));
    w->panel = &w->shape->wide;
    write_panels(w, out, copy(w, panels), first, across->end, part);
    qn__ir_expr_t* done = qn__pb_op_int(pb, QN_OP_MUL, panels, wide);
    first = qn__pb_named(pb, out, "left", qn__pb_op(pb, QN_OP_ADD, copy(w, first), done));
  }
  if (qn__pb_stopped(pb)) return;
  w->panel = &w->shape->narrow;
  qn__ir_expr_t* panels =
      qn__pb_op_int(pb, QN_OP_CEILDIV, subtract(w, across->end, first), w->panel->width);
  write_panels(w, out, panels, first, across->end, part);
}

void qn__small_write(qn__product_t* product, const qn__small_shape_t* shape, qn_loop_kind_t kind,
                     qn__ir_block_t* out) {
  qn__pass_builder_t* pb = product->pb;
  qn__small_writer_t w = {.product = product, .pb = pb, .shape = shape};
  for (uint32_t i = 0; i < product->name_count; ++i) product->names[i].now = NULL;
  qn__product_part_t part, across;
  qn__ir_stmt_t* loop = write_tasks(&w, out, kind, &part, &across);
  if (!loop || qn__pb_stopped(pb)) return;
  qn__ir_block_t* body = &loop->loop.body;
  w.steps = qn__product_write_bounds(product, body);
  if (!w.steps || qn__pb_stopped(pb)) return;
  w.is_store = is_store(product);
  w.sums = qn__pb_alloc(pb, body, QN__SCOPE_LOCAL, product->reduce->dtype, "results",
                        qn__small_max_height,
                        shape->wide.width ? shape->wide.width : shape->narrow.width);
  if (!w.sums) return;
  w.sums->is_filled = true;
  write_columns(&w, body, &part, &across);
  if (!qn__pb_stopped(pb)) qn__block_append(out, loop);
}
