// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/small.c: writes products whose operands the kernel reads where they are.
//
//   parallel task in 0..batch * parts {
//     for panel in the task's panels of `wide` columns {
//       for tile in 0..rows // height { the tile of registers }
//       for tile in 0..ceildiv(rows % height, low_height) { a low one, whose last row may not exist
//       }
//     }
//     for panel in panels of fewer columns for the others { the same, masked }
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
// 4. The last panel is masked, which costs nothing where memory can be masked at all. Panels of two
//    vectors, and at last of one (AVX-512), compute fewer columns in vain than a wide one.
// 5. A task has all rows of a panel if they are few, else all columns of some rows.
// 6. Tiny products cost as much as what comes before the first tile: there is no division in it.
// 7. Every product of unknown extents has this form: kernels without copies for edges.
// 8. With AVX2 masked stores are slow on Zen. There, tiles at an edge are
//    moved back to be full, and columns and rows of the tile before are computed again: stored
//    again if the statement reads nothing that it writes, else left out. Only a product of fewer
//    columns than a vector has masks. One row has panels of eight vectors, as a panel of two reads
//    a line of each page: TLB misses limit it.
#include "ir/passes/cpu/small.h"

#include "ir/passes/products_write.h"

enum {
  task_rows = 32,
  task_columns = 64,  // of few rows
  few_rows = 48,      // more are worth packing
  min_work = 64,      // multiplications: fewer are done before the form is chosen
  middle_steps = 8,   // fewer: stores take the time, and those of two vectors take longer
  steps_ahead = 6,    // as long as the second cache takes, and half as long as the third
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
  bool has_masks = options->has_masked_memory || options->has_masked_words;
  if (size < 4 || !has_masks || !is_simple(product)) return false;
  int64_t lanes = (int64_t)options->vector_bytes / size;
  if (!options->has_masked_memory) {
    *shape = (qn__small_shape_t){
        .single = {1, 1, .is_whole = true, .width = task_columns, .ahead = 2 * steps_ahead},
        .wide = {6, 4, .is_whole = true, .width = 2 * lanes, .ahead = 2 * steps_ahead},
        .narrow = {8, 8, .width = lanes},
        .min_wide = 2 * lanes,
        .max_rows = few_rows,
        .overlaps = true,
    };
  } else if (options->vector_bytes < 64) {
    *shape = (qn__small_shape_t){.narrow = {4, 2, .width = 2 * lanes}};
  } else {
    *shape = (qn__small_shape_t){.narrow = {8, 4, .width = lanes}};
  }
  if (options->vector_bytes >= 64 && options->wide_multiplies > 1) {
    shape->wide = (qn__small_panel_t){6, 4, true, .width = 4 * lanes, .ahead = steps_ahead};
    shape->min_wide = 3 * lanes + 1;
    shape->middle = (qn__small_panel_t){8, 4, .width = 2 * lanes};
    shape->min_middle = lanes + 1;
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
  qn__ir_block_t* body = &loop->loop.body;
  qn__small_rows_t rows = {.height = height, .end = end};
  qn__ir_expr_t* row = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), height);
  row = qn__pb_op(pb, QN_OP_ADD, row, copy(w, first));
  row = qn__pb_named(pb, body, "row", row);
  rows.first = row;
  if (w->shape->overlaps) {
    qn__ir_expr_t* last = qn__pb_op_int(pb, QN_OP_ADD, copy(w, end), -height);
    qn__ir_expr_t* moved = qn__pb_op(pb, QN_OP_MIN, copy(w, row), last);
    moved = qn__pb_op(pb, QN_OP_MAX, moved, copy(w, w->first_row));
    rows.first = qn__pb_named(pb, body, "moved", moved);
    if (!w->is_store) rows.done = qn__pb_named(pb, body, "done", subtract(w, row, rows.first));
  }
  if (qn__pb_stopped(pb)) return;
  qn__small_write_tile(w, body, &rows);
  qn__block_append(out, loop);
}

// Appends the tiles of the panel that is set, where tiles overlap. The last rows have low tiles if
// these compute fewer rows in vain: 7 rows are 4 and 4.
static void write_overlapping(qn__small_writer_t* w, qn__ir_block_t* out,
                              const qn__product_part_t* rows) {
  qn__pass_builder_t* pb = w->pb;
  const int64_t height = w->panel->height, low_height = w->panel->low_height;
  qn__ir_expr_t* count = qn__pb_named(pb, out, "count", subtract(w, rows->end, rows->first));
  qn__ir_expr_t* tiles = qn__pb_op_int(pb, QN_OP_CEILDIV, copy(w, count), height);
  w->first_row = rows->first;
  if (height == low_height) {
    write_tiles(w, out, tiles, height, rows->first, rows->end);
    return;
  }
  tiles = qn__pb_named(pb, out, "tiles", tiles);
  qn__ir_expr_t* low = qn__pb_op_int(pb, QN_OP_MUL, copy(w, tiles), height);
  low = qn__pb_op(pb, QN_OP_SUB, low, count);
  low = qn__pb_op_int(pb, QN_OP_FLOORDIV, low, height - low_height);
  low = qn__pb_named(pb, out, "low", qn__pb_op(pb, QN_OP_MIN, low, copy(w, tiles)));
  qn__ir_expr_t* high = qn__pb_named(pb, out, "high", subtract(w, tiles, low));
  if (qn__pb_stopped(pb)) return;
  write_tiles(w, out, copy(w, high), height, rows->first, rows->end);
  qn__ir_expr_t* first = qn__pb_op_int(pb, QN_OP_MUL, high, height);
  first = qn__pb_named(pb, out, "left", qn__pb_op(pb, QN_OP_ADD, first, copy(w, rows->first)));
  write_tiles(w, out, low, low_height, first, rows->end);
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
  w->done = NULL;
  if (w->shape->overlaps && !w->panel->is_whole) {
    qn__ir_expr_t* own = w->column;
    qn__ir_expr_t* last = qn__pb_op_int(pb, QN_OP_ADD, copy(w, end), -w->panel->width);
    qn__ir_expr_t* moved = qn__pb_op(pb, QN_OP_MIN, copy(w, own), last);
    moved = qn__pb_op_int(pb, QN_OP_MAX, moved, 0);
    w->column = qn__pb_named(pb, body, "moved", moved);
    if (!w->is_store) w->done = qn__pb_named(pb, body, "done", subtract(w, own, w->column));
  }
  w->limit = qn__pb_named(pb, body, "limit", subtract(w, end, w->column));
  if (w->shape->overlaps && !qn__pb_stopped(pb)) {
    write_overlapping(w, body, rows);
    qn__block_append(out, loop);
    return;
  }
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
    qn__ir_expr_t* panels = qn__pb_op_int(pb, QN_OP_CEILDIV, copy(w, columns), task_columns);
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
    *across = qn__product_write_part(pb, body, panel, task_columns, columns);
    across->end = qn__pb_cond(pb, is_few, across->end, columns);
    across->end = qn__pb_named(pb, body, "end", across->end);
  }
  *part = qn__product_write_part(pb, body, number, most, rows);
  return loop;
}

static bool is_other(void* buffer, const qn__ir_ref_t* ref) {
  return qn__buf_root(*ref->buffer) != qn__buf_root(buffer);
}

// Returns true if lanes can do all that the nest does with a result: again, if `is_repeated`.
static bool is_store(const qn__product_t* product, bool is_repeated) {
  const qn__ir_stmt_t* store = product->nest->body.first;
  if (!store || store != product->nest->body.last || store->kind != QN__STMT_STORE) return false;
  if (!is_repeated) return true;
  qn__ir_buffer_t* buffer = store->store.buffer;
  bool reads_other = qn__expr_each_ref(store->store.value, is_other, buffer);
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    reads_other = reads_other && qn__expr_each_ref(store->store.indices[d], is_other, buffer);
  }
  for (uint32_t i = 0; i < product->name_count; ++i) {
    const qn__ir_stmt_t* let = product->names[i].let;
    if (let) reads_other = reads_other && qn__expr_each_ref(let->let.value, is_other, buffer);
  }
  return reads_other;
}

// Appends `panels` as `panel` from column `first` on. Returns the first column after them.
static qn__ir_expr_t* write_full(qn__small_writer_t* w, qn__ir_block_t* out,
                                 const qn__small_panel_t* panel, qn__ir_expr_t* panels,
                                 const qn__ir_expr_t* first, const qn__ir_expr_t* end,
                                 const qn__product_part_t* rows) {
  qn__pass_builder_t* pb = w->pb;
  w->panel = panel;
  write_panels(w, out, copy(w, panels), first, end, rows);
  qn__ir_expr_t* done = qn__pb_op_int(pb, QN_OP_MUL, panels, panel->width);
  return qn__pb_named(pb, out, "left", qn__pb_op(pb, QN_OP_ADD, copy(w, first), done));
}

// Appends the panels of a task.
static void write_columns(qn__small_writer_t* w, qn__ir_block_t* out,
                          const qn__product_part_t* part, const qn__product_part_t* across) {
  qn__pass_builder_t* pb = w->pb;
  const int64_t single = w->shape->single.width;
  qn__ir_expr_t* first = across->first;
  if (single) {
    qn__ir_expr_t* panels =
        qn__pb_op_int(pb, QN_OP_FLOORDIV, subtract(w, across->end, first), single);
    qn__ir_expr_t* is_single = qn__pb_op_int(pb, QN_OP_EQ, subtract(w, part->end, part->first), 1);
    panels = qn__pb_named(pb, out, "panels", qn__pb_cond(pb, is_single, panels, qn__pb_int(pb, 0)));
    first = write_full(w, out, &w->shape->single, panels, first, across->end, part);
  }
  const struct {
    const qn__small_panel_t* panel;
    int64_t least;
  } wider[] = {{&w->shape->wide, w->shape->min_wide}, {&w->shape->middle, w->shape->min_middle}};
  for (size_t i = 0; i < QN_COUNT_OF(wider); ++i) {
    const int64_t width = wider[i].panel->width;
    if (!width || qn__pb_stopped(pb)) continue;
    qn__ir_expr_t* count = subtract(w, across->end, first);
    count = qn__pb_op_int(pb, QN_OP_ADD, count, width - wider[i].least);
    qn__ir_expr_t* panels = qn__pb_op_int(pb, QN_OP_FLOORDIV, count, width);
    if (wider[i].panel == &w->shape->middle) {
      qn__ir_expr_t* is_long = qn__pb_op_int(pb, QN_OP_GE, copy(w, w->steps), middle_steps);
      panels = qn__pb_cond(pb, is_long, panels, qn__pb_int(pb, 0));
    }
    panels = qn__pb_named(pb, out, "panels", panels);
    first = write_full(w, out, wider[i].panel, panels, first, across->end, part);
  }
  if (qn__pb_stopped(pb)) return;
  w->panel = &w->shape->narrow;
  qn__ir_expr_t* panels =
      qn__pb_op_int(pb, QN_OP_CEILDIV, subtract(w, across->end, first), w->panel->width);
  write_panels(w, out, panels, first, across->end, part);
}

static int64_t widest(const qn__small_shape_t* shape) {
  return shape->single.width ? shape->single.width
         : shape->wide.width ? shape->wide.width
                             : shape->narrow.width;
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
  w.is_store = is_store(product, shape->overlaps);
  w.sums = qn__pb_alloc(pb, body, QN__SCOPE_LOCAL, product->reduce->dtype, "results",
                        qn__small_max_height, widest(shape));
  if (!w.sums) return;
  w.sums->is_filled = true;
  write_columns(&w, body, &part, &across);
  if (!qn__pb_stopped(pb)) qn__block_append(out, loop);
}
