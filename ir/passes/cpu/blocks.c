// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks.c: the pass `block` computes products in blocks that caches and registers
// hold.
//
// A plain loop over a product reads two elements for each multiplication. Blocks read each element
// from memory once for many products. products.c recognises products, this file chooses the sizes,
// blocks_write.c writes the code.
//
// Few rows use each packed column too seldom, and small operands are in the caches anyway: rows.c
// and small.c read columns where they are, if those are contiguous, and along.c does if they are
// contiguous along the reduction. Few columns leave vectors empty: columns.c has reductions. What
// is known only at the call is tested there, to choose among these forms and the loops as they
// were. Sums of types below four bytes have no form.
//
// Postcondition: no loop changed but nests that compute a product.
#include "ir/passes/cpu/along.h"
#include "ir/passes/cpu/blocks_dots.h"
#include "ir/passes/cpu/columns.h"
#include "ir/passes/cpu/prepared.h"
#include "ir/passes/cpu/rows.h"
#include "ir/passes/cpu/small.h"
#include "ir/tiles.h"

enum {
  min_rows = 4,             // fewer are not worth packing
  min_rows_transposed = 8,  // of columns that are contiguous along the reduction
  min_columns = 8,          // fewer leave vectors empty
  min_steps = 4,
  min_window = 8,            // steps: fewer are not worth a vector
  max_summand = 4,           // instructions of a summand for the largest tile of registers
  max_rows = 516,            // of a task; a multiple of all heights
  max_rows_gathered = 264,   // of a task whose packed columns belong to several loops
  max_words = 256,           // of a packed line
  row_ahead = 32,            // steps
  min_panels = 4,            // of a task whose packed columns belong to several loops
  many_rows = 128,           // more have no tiles of few rows at the edge
  max_stack_bytes = 131072,  // of the packed columns of a task
  edge_height_tiles = 4,  // of the kernel for numbers that tile registers do not multiply exactly
  tile_words = 96,        // of a packed line in tile registers
  tile_column_bytes = 98304,
  max_tile_rows = 512,
  max_tile_bytes = 245760,  // of the operands and sums of a task in tile registers
  max_task_bytes = 229376,  // of these and of its sums
};

// Returns the largest multiple of `step` up to `value`, but at least `minimum`.
static int64_t at_least(int64_t value, int64_t minimum, int64_t step) {
  return value < minimum ? minimum : value / step * step;
}

static int64_t at_most(int64_t value, int64_t maximum) {
  return value < maximum ? value : maximum;
}

// Returns the least multiple of `step` that is at least `extent`, or the largest number if that is
// not known.
static int64_t round_up(int64_t extent, int64_t step) {
  if (extent < 0 || extent > INT64_MAX - step) return INT64_MAX;
  return extent < step ? step : (extent + step - 1) / step * step;
}

// Returns true if the kernel reads the rows where they are in memory: contiguous along the steps,
// and no value is computed from what is loaded.
static bool has_direct_rows(const qn__product_t* product) {
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    const qn__product_operand_t* operand = &product->operands[o];
    if (operand->side != QN__PRODUCT_ROW) continue;
    if (!operand->runs_along_step || operand->value->kind != QN__EXPR_LOAD) return false;
    if (product->step_count > 1 && !operand->is_flat) return false;
  }
  return true;
}

// Returns true if the set has more than one loop.
static bool is_several(uint32_t dims) {
  return (dims & (dims - 1)) != 0;
}

// Chooses the tile that registers hold.
static void choose_tile(const qn__product_t* product, int64_t columns, qn__blocks_shape_t* shape) {
  const qn__pass_options_t* options = product->pb->options;
  const int64_t lanes =
      (int64_t)options->vector_bytes / (int64_t)qn_dtype_size_bytes(product->reduce->dtype);
  bool has_many_registers = options->vector_bytes >= 64;
  bool has_dot = qn__blocks_find_dot(product, &shape->dot);
  if (shape->dot.has_tiles) {
    shape->height = QN__TILES_ROWS;
    shape->edge_height = edge_height_tiles;
    shape->width = QN__TILES_COLUMNS;
    shape->edge_width = 0;
    shape->has_direct_rows = false;
    shape->row_ahead = 0;
    return;
  }
  uint32_t factors = product->operand_count - product->is_guarded;
  bool is_large = qn__product_summand_size(product) > max_summand || factors > 2;
  // With 32 registers a tile of a convolution has twelve rows, whose addresses do not fit.
  bool is_gathered = product->step_count > 1 || is_several(product->side_dims[QN__PRODUCT_COLUMN]);
  shape->has_direct_rows = !is_large && !has_dot && !product->is_guarded &&
                           (!is_gathered || options->vector_bytes == 32) &&
                           has_direct_rows(product);
  shape->height = is_large ? 4 : has_many_registers ? 12 : 6;
  // Each product of a guarded row has a vector of its own for the row's value.
  if (product->is_guarded) shape->height = has_many_registers && !is_large ? 8 : 4;
  // Four rows of two vectors hide the latency of additions where there are 32 registers.
  shape->edge_height = shape->height > 8 ? shape->height / 3 : shape->height / 2;
  shape->width = 2 * lanes;
  shape->edge_width = 0;
  if (shape->has_direct_rows && has_many_registers && (columns < 0 || columns > 3 * lanes)) {
    // Few rows have their addresses in registers, and lie in the first cache whatever their
    // distance is.
    shape->height = 6;
    shape->edge_height = 2;
    shape->width = 4 * lanes;
    bool is_narrow = columns < 0 || (columns - 1) % shape->width < 3 * lanes;
    if (is_narrow) shape->edge_width = lanes;
  }
  // Parts of rows are too short for the processor's own prefetching.
  bool is_fetched = shape->has_direct_rows && has_many_registers && options->wide_multiplies > 1 &&
                    !is_gathered && product->operand_count == 2 &&
                    !qn__product_names_side(product, QN__PRODUCT_COLUMN);
  shape->row_ahead = is_fetched ? row_ahead : 0;
}

// Chooses the sizes of a task in tile registers. A tile reads a kibibyte of each operand for 16
// rows of 16 sums, so the second cache may hold the columns.
static void choose_tile_sizes(int64_t rows, int64_t columns, int64_t steps,
                              qn__blocks_shape_t* shape) {
  const int64_t group = shape->dot.group, size = 4;  // of a word, and of a sum
  int64_t words = steps < 0 ? tile_words : (steps + group - 1) / group;
  shape->words = at_most(round_up(words, QN__TILE_WORDS), tile_words);
  shape->depth = shape->words * group;
  shape->columns = at_least(tile_column_bytes / (size * shape->words), shape->width, shape->width);
  shape->columns = at_most(shape->columns, round_up(columns, shape->width));
  int64_t sums = max_tile_bytes - size * shape->words * (shape->columns + shape->height);
  shape->rows = sums / (size * shape->columns) - shape->height;
  shape->rows = at_most(at_least(shape->rows, shape->height, shape->height), max_tile_rows);
  shape->rows = at_most(shape->rows, round_up(rows, shape->height));
}

// Returns false if blocks would not be faster.
static bool choose(const qn__product_t* product, qn__blocks_shape_t* shape) {
  const qn__pass_options_t* options = product->pb->options;
  qn_dtype_t dtype = product->reduce->dtype;
  int64_t rows = qn__product_trips(product, product->side_dims[QN__PRODUCT_ROW]);
  int64_t columns = qn__product_trips(product, product->side_dims[QN__PRODUCT_COLUMN]);
  int64_t steps = qn__product_steps(product);
  shape->min_rows = min_rows;
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    const qn__product_operand_t* operand = &product->operands[o];
    if (operand->side == QN__PRODUCT_COLUMN && operand->runs_along_step) {
      shape->min_rows = min_rows_transposed;
    }
  }
  if ((rows >= 0 && rows < shape->min_rows) || (columns >= 0 && columns < min_columns) ||
      (steps >= 0 && steps < min_steps)) {
    return false;
  }
  int64_t size = (int64_t)qn_dtype_size_bytes(dtype);
  if (size < 4) return false;  // sums of small types are added up in wider ones
  int64_t packed_size = 0;
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    bool is_mask = product->operands[o].value->dtype == QN_DTYPE_BOOL;  // small
    if (product->operands[o].side != QN__PRODUCT_COLUMN || is_mask) continue;
    packed_size += (int64_t)qn_dtype_size_bytes(product->operands[o].value->dtype);
  }
  assert(packed_size > 0);  // a product has an operand on either side, which is no mask
  choose_tile(product, columns, shape);
  if (shape->dot.has_tiles) {
    choose_tile_sizes(rows, columns, steps, shape);
    return true;
  }
  // A panel of two vectors fills the first cache at most: it is read in order, so the rows of a
  // tile stay there. The packed columns of a task fill an eighth of the second cache.
  int64_t l1 = options->l1_bytes ? options->l1_bytes : 32768;
  int64_t part = (options->l2_bytes ? options->l2_bytes : 524288) / 8;
  if (part > max_stack_bytes) part = max_stack_bytes;
  if (shape->dot.op) packed_size = 4 / shape->dot.group;
  // Columns of several loops cost more to pack: they serve more rows, in shorter blocks.
  bool is_gathered = is_several(product->side_dims[QN__PRODUCT_COLUMN]);
  int64_t share = is_gathered ? 2 : 1;
  shape->depth =
      at_most(at_least(l1 / share / (2 * options->vector_bytes / size * packed_size), 8, 8),
              max_words * shape->dot.group);
  if (steps > 0 && is_gathered) {
    // No block of steps is much smaller than the others.
    int64_t blocks = steps / shape->depth + (steps % shape->depth >= shape->depth / 2);
    int64_t even = blocks > 1 ? steps / blocks + (steps % blocks > 0) : steps;
    shape->depth = round_up(even, 8);
  }
  // Rows that are read where they are come from memory for each task.
  int64_t panels = is_gathered && shape->has_direct_rows ? min_panels : 1;
  shape->columns =
      at_least(part / share / (shape->depth * packed_size), panels * shape->width, shape->width);
  shape->columns = at_most(shape->columns, round_up(columns, shape->width));
  shape->depth = at_most(shape->depth, round_up(steps, 8));
  shape->words = shape->depth / shape->dot.group;
  // More rows use each packed column more often. The sums of a task take the rest of its stack.
  int64_t most = is_gathered ? max_rows_gathered : max_rows;
  int64_t sums = is_gathered && !shape->has_direct_rows
                     ? part
                     : max_task_bytes - shape->columns * shape->depth * packed_size;
  shape->rows = at_least(sums / (shape->columns * size), shape->height, shape->height);
  shape->rows = at_most(at_most(shape->rows, most), round_up(rows, shape->height));
  return true;
}

// Columns that are positions of an image with strides are contiguous along a window only, which is
// a few steps long: masked vectors pack them across.
static void turn_windows(qn__product_t* product) {
  const qn__ir_expr_t* last = product->steps[product->step_count - 1].reduce;
  int64_t window = qn__const_trips(last->reduce.begin, last->reduce.end);
  bool has_window = product->step_count > 1 && window >= 0 && window < min_window;
  bool has_image = is_several(product->side_dims[QN__PRODUCT_COLUMN]);
  if (!has_window || !has_image) return;
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    qn__product_operand_t* operand = &product->operands[o];
    bool is_small = qn_dtype_size_bytes(operand->value->dtype) < 4;
    if (operand->side == QN__PRODUCT_COLUMN && !operand->is_flat && !is_small &&
        qn__blocks_can_mask(product, operand)) {
      operand->runs_along_step = false;
    }
  }
}

// The forms that a product has beside its loops.
typedef struct forms {
  bool has[qn__product_forms];
  qn__blocks_shape_t blocks;
  qn__rows_shape_t rows;
  qn__along_shape_t along;
  qn__small_shape_t small;
} forms_t;

// Opens the nest at `loop` if it computes a product that has a form.
static bool open_product(qn__pass_builder_t* pb, qn__ir_stmt_t* loop, qn__nest_t* nest,
                         qn__product_t* product, forms_t* forms) {
  qn__nest_open(pb, loop, nest);
  if (!qn__pb_stopped(pb) && qn__product_find(pb, nest, product)) {
    *forms = (forms_t){.has = {false}};
    turn_windows(product);
    forms->has[QN__FORM_BLOCKS] = choose(product, &forms->blocks);
    if (forms->has[QN__FORM_BLOCKS] && forms->blocks.dot.op) {
      // Words of several steps are packed along one loop; the others of that side are a batch.
      product->side_dims[QN__PRODUCT_COLUMN] &= 1U << nest->order[nest->count - 1];
      forms->has[QN__FORM_BLOCKS] = choose(product, &forms->blocks);
    }
    forms->has[QN__FORM_ROWS] =
        qn__rows_choose(product, forms->blocks.min_rows, forms->blocks.dot.op != 0, &forms->rows);
    if (forms->has[QN__FORM_ROWS] && forms->rows.max_rows >= many_rows) {
      // A tile that is not full costs 4 % of the time of these rows at most.
      forms->blocks.edge_height = forms->blocks.height;
    }
    forms->has[QN__FORM_ALONG] = qn__along_choose(product, forms->blocks.min_rows, &forms->along);
    forms->has[QN__FORM_SMALL] = qn__small_choose(product, &forms->small);
    forms->has[QN__FORM_ROWS] &=
        !forms->has[QN__FORM_SMALL] || forms->small.max_rows < forms->rows.max_rows;
    forms->has[QN__FORM_COLUMNS] = qn__columns_choose(product);
    for (int form = QN__FORM_BLOCKS; form < qn__product_forms; ++form) {
      if (forms->has[form]) return true;
    }
  }
  qn__nest_close(nest);
  return false;
}

// Returns `a >= b` or `a <= b`, or NULL if that holds for the constant `known`, which is no less
// than 0 if it is known.
static qn__ir_expr_t* test(const qn__product_t* product, qn__product_side_t side, qn_op_t op,
                           int64_t b) {
  uint32_t dims = product->side_dims[side];
  int64_t known = qn__product_trips(product, dims);
  if (known >= 0 && (op == QN_OP_GE ? known >= b : known <= b)) return NULL;
  return qn__pb_op_int(product->pb, op, qn__product_extent(product, dims), b);
}

// Returns `a && b`, of which either may be NULL: it holds.
static qn__ir_expr_t* both(qn__pass_builder_t* pb, qn__ir_expr_t* a, qn__ir_expr_t* b) {
  return a && b ? qn__pb_op(pb, QN_OP_AND, a, b) : a ? a : b;
}

// Makes `*block` the first choice of the `if` in front of what `*rest` does, or all if there is no
// condition. Consumes both.
static void choose_first(qn__pass_builder_t* pb, qn__ir_expr_t* condition, qn__ir_block_t block,
                         qn__ir_block_t* rest) {
  if (condition) {
    qn__ir_stmt_t* choice = qn__pb_if(pb, condition, block);
    if (!choice) return;
    choice->if_.else_block = *rest;
    block = (qn__ir_block_t){choice, choice};
  }
  *rest = block;
}

// Returns the condition that a call must fulfil for a form, or NULL: every call does.
static qn__ir_expr_t* test_form(const qn__product_t* product, const forms_t* forms,
                                qn__product_form_t form) {
  qn__pass_builder_t* pb = product->pb;
  const qn__product_side_t row = QN__PRODUCT_ROW, column = QN__PRODUCT_COLUMN;
  qn__ir_expr_t* condition = NULL;
  int64_t known;
  switch (form) {
    case QN__FORM_BLOCKS:
      return test(product, row, QN_OP_GE, forms->blocks.min_rows);
    case QN__FORM_ROWS:
      return both(pb, test(product, row, QN_OP_LE, forms->rows.max_rows),
                  test(product, column, QN_OP_GE, forms->rows.width));
    case QN__FORM_ALONG:
      return both(pb, test(product, row, QN_OP_LE, forms->along.max_rows),
                  qn__along_fits(product, &forms->along));
    case QN__FORM_SMALL:
      condition = qn__small_test(product, &forms->small);
      break;
    case QN__FORM_COLUMNS:
      condition = qn__columns_test(product);
      break;
    case QN__FORM_LOOPS:
    case qn__product_forms:
      break;
  }
  // May be the literal true.
  return condition && !qn__expr_const_int(condition, &known) ? condition : NULL;
}

static void write_form(qn__product_t* product, const forms_t* forms, qn__product_form_t form,
                       qn_loop_kind_t kind, qn__ir_block_t* out) {
  switch (form) {
    case QN__FORM_BLOCKS:
      qn__blocks_write(product, &forms->blocks, kind, out);
      return;
    case QN__FORM_ROWS:
      qn__rows_write(product, &forms->rows, kind, out);
      return;
    case QN__FORM_ALONG:
      qn__along_write(product, &forms->along, kind, out);
      return;
    case QN__FORM_SMALL:
      qn__small_write(product, &forms->small, kind, out);
      return;
    case QN__FORM_COLUMNS:
      qn__columns_write(product, kind, out);
      return;
    case QN__FORM_LOOPS:
    case qn__product_forms:
      return;
  }
}

// Writes the product by kernels that the generator has. Returns false, having changed nothing, if
// it lacks one.
static bool write_prepared(qn__product_t* product, const forms_t* forms, qn__ir_block_t* out) {
  qn__prepared_plan_t plan;
  if (!qn__prepared_choose(product, forms->has, &plan)) return false;
  plan.blocks = &forms->blocks;
  plan.few_rows = forms->small.max_rows;
  for (int form = 0; form < qn__product_forms; ++form) {
    plan.conditions[form] =
        forms->has[form] ? test_form(product, forms, (qn__product_form_t)form) : NULL;
  }
  if (!qn__product_replace(product)) return false;
  qn__prepared_write(product, &plan, out);
  return true;
}

// Writes the statements that replace `loop`, which is in no list, to `out`. Returns false if the
// loop stays.
static bool write_product(qn__pass_builder_t* pb, qn__ir_stmt_t* loop, bool is_parallel,
                          qn__ir_block_t* out) {
  qn__nest_t nest;
  forms_t forms;
  qn__ir_block_t all = {NULL, NULL};
  qn__product_t* product = QN__ARENA_NEW(pb->arena, qn__product_t);
  if (!product || !open_product(pb, loop, &nest, product, &forms)) return false;
  if (!is_parallel && write_prepared(product, &forms, out)) return !qn__pb_stopped(pb);
  bool is_covered = false;
  for (int form = QN__FORM_BLOCKS; form < QN__FORM_SMALL; ++form) {
    is_covered |= forms.has[form] && !test_form(product, &forms, (qn__product_form_t)form);
  }
  if (!is_covered) {
    // The loop as it was is for all other calls.
    qn__nest_close(&nest);
    const qn__ir_block_t alone = {loop, loop};
    qn__ir_subst_t subst = {.arena = pb->arena};
    if (!qn__block_clone(&subst, &alone, &all) || !open_product(pb, loop, &nest, product, &forms)) {
      return false;
    }
  }
  if (!qn__product_replace(product)) return false;
  const qn_loop_kind_t kind = is_parallel ? QN_LOOP_SERIAL : QN_LOOP_PARALLEL;
  for (int form = QN__FORM_BLOCKS; form < qn__product_forms; ++form) {
    if (!forms.has[form] || qn__pb_stopped(pb)) continue;
    qn__ir_block_t block = {NULL, NULL};
    write_form(product, &forms, (qn__product_form_t)form, kind, &block);
    choose_first(pb, test_form(product, &forms, (qn__product_form_t)form), block, &all);
  }
  *out = all;
  pb->function->has_tiles = true;
  return !qn__pb_stopped(pb);
}

// Writes the product that the function is as the one form that it shall have.
static bool write_kernel(qn__pass_builder_t* pb, qn__ir_stmt_t* loop, qn__product_form_t form,
                         qn__ir_block_t* out) {
  qn__nest_t nest;
  forms_t forms;
  qn__product_t* product = QN__ARENA_NEW(pb->arena, qn__product_t);
  if (!product || form == QN__FORM_LOOPS || !open_product(pb, loop, &nest, product, &forms)) {
    return false;
  }
  if (!forms.has[form]) {
    qn__pb_refuse(pb, "the product has no such form");
    qn__nest_close(&nest);
    return false;
  }
  if (!qn__product_replace(product)) return false;
  write_form(product, &forms, form, QN_LOOP_SERIAL, out);
  pb->function->has_tiles = true;
  return !qn__pb_stopped(pb);
}

static void visit(qn__pass_builder_t* pb, qn__ir_block_t* block, bool is_parallel) {
  qn__ir_block_t out = {NULL, NULL};
  qn__ir_stmt_t* stmt;
  while ((stmt = qn__block_pop(block)) != NULL) {
    qn__ir_block_t blocks = {NULL, NULL};
    const int kernel = pb->options->preparing;
    if (qn__is_independent_loop(stmt) &&
        (kernel ? write_kernel(pb, stmt, (qn__product_form_t)((kernel - 1) % qn__product_forms),
                               &blocks)
                : write_product(pb, stmt, is_parallel, &blocks))) {
      qn__block_splice(&out, &blocks);
      continue;
    }
    if (qn__pb_stopped(pb)) return;
    bool is_loop = stmt->kind == QN__STMT_LOOP;
    bool is_launch = is_loop && stmt->loop.kind == QN_LOOP_PARALLEL;
    bool has_lanes = is_loop && stmt->loop.kind == QN_LOOP_VECTOR;
    QN__EACH_BLOCK(stmt, inner) {
      if (!has_lanes) visit(pb, inner, is_parallel || is_launch);
    }
    qn__block_append(&out, stmt);
  }
  *block = out;
}

static void run(qn__pass_builder_t* pb) {
  visit(pb, &pb->function->body, false);
}

const qn__pass_t qn__pass_block = {
    .name = "block",
    .doc = "computes products in blocks that caches and registers hold",
    .run = run,
    .post = "no loop changed but nests that compute a product",
};
