// ir/passes/cpu/small.c: writes products whose columns caches hold.
//
//   parallel task in 0..batch * ceildiv(M, task_rows) {
//     for group in 0..groups {                            // of panels of columns
//       for tile in 0..rows // height {
//         for panel in the group { the tile of registers (small_kernel.c) }
//       }
//       if rows has a half of a tile more { for panel in the group { its tile } }    // and so on
//     }
//   }
//
// 1. Packing reads and writes an operand once more. Here that is much of the work, and the caches
//    serve the kernel as well as packed operands would.
// 2. The last panel is masked, which costs nothing where memory can be masked at all. The last rows
//    have tiles of half the height, a quarter, and so on.
// 3. If the first cache holds all columns, they are one group, so that whole lines of the result
// are
//    stored: with few steps that is most of the time. Else a group is one panel.
// 4. Tiny products cost as much as what comes before the first tile: there is no division in it.
#include "ir/passes/cpu/small.h"

#include "ir/passes/products_write.h"

enum {
  task_rows = 32,
  min_work = 64,    // multiplications: fewer are done before the form is chosen
  max_summand = 4,  // instructions, as in blocks.c
};

// Returns true if the operand is a number in memory: to compute it anew for each tile costs more.
static bool is_plain(const qn__product_t* product, const qn__product_operand_t* operand) {
  return operand->value->kind == QN__EXPR_LOAD && operand->value->dtype == product->reduce->dtype &&
         (operand->side == QN__PRODUCT_ROW || operand->runs_along_line);
}

bool qn__small_choose(const qn__product_t* product, qn__small_shape_t shapes[qn__small_kinds]) {
  const qn__pass_options_t* options = product->pb->options;
  int64_t size = (int64_t)qn_dtype_size_bytes(product->reduce->dtype);
  int64_t columns = qn__product_trips(product, product->side_dims[QN__PRODUCT_COLUMN]);
  const uint32_t across = product->side_dims[QN__PRODUCT_COLUMN];
  const qn__nest_t* nest = product->nest;
  for (int k = 0; k < qn__small_kinds; ++k) shapes[k] = (qn__small_shape_t){0, 0};
  // Columns of several loops are contiguous within one only.
  if (across != 1U << nest->order[nest->count - 1] || product->step_count != 1) return false;
  if (size < 4 || product->operand_count > 2 || !options->has_masked_memory) return false;
  if (qn__product_summand_size(product) > max_summand) return false;
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    if (!is_plain(product, &product->operands[o])) return false;
  }
  int64_t vector = (int64_t)options->vector_bytes / size;
  if (columns < 0 || columns <= vector) {
    shapes[qn__small_narrow] = (qn__small_shape_t){.height = 8, .width = vector};
  }
  if (columns < 0 || columns > vector) {
    shapes[qn__small_wide] = (qn__small_shape_t){.height = 4, .width = 2 * vector};
  }
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

// Panels of columns from `begin` to `end`.
typedef struct panels {
  qn__ir_expr_t* begin;
  qn__ir_expr_t* end;
} panels_t;

// Appends the tiles of a group for `height` rows from `row` on.
static void write_panels(qn__small_writer_t* w, qn__ir_block_t* out, const panels_t* group,
                         int64_t height, const qn__ir_expr_t* row) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_var_t* panel = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "panel");
  qn__ir_stmt_t* loop =
      qn__pb_loop(pb, QN_LOOP_SERIAL, panel, copy(w, group->begin), copy(w, group->end));
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  w->column = qn__pb_named(pb, body, "column",
                           qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, panel), w->shape->width));
  w->limit = qn__pb_op(pb, QN_OP_SUB, copy(w, w->columns), copy(w, w->column));
  w->limit = qn__pb_named(pb, body, "limit", w->limit);
  if (qn__pb_stopped(pb)) return;
  qn__small_write_tile(w, body, height, row);
  qn__block_append(out, loop);
}

// Appends the tiles of a group for the rows from `first` to `end`.
static void write_tiles(qn__small_writer_t* w, qn__ir_block_t* out, const panels_t* group,
                        const qn__ir_expr_t* first, const qn__ir_expr_t* end) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* count = qn__pb_op(pb, QN_OP_SUB, copy(w, end), copy(w, first));
  count = qn__pb_named(pb, out, "count", count);
  qn__ir_expr_t* tiles = qn__pb_op_int(pb, QN_OP_FLOORDIV, copy(w, count), w->shape->height);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "tile", tiles);
  if (!loop) return;
  qn__ir_expr_t* row =
      qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), w->shape->height);
  row = qn__pb_op(pb, QN_OP_ADD, row, copy(w, first));
  row = qn__pb_named(pb, &loop->loop.body, "row", row);
  write_panels(w, &loop->loop.body, group, w->shape->height, row);
  qn__block_append(out, loop);
  for (int64_t height = w->shape->height / 2; height > 0 && !qn__pb_stopped(pb); height /= 2) {
    qn__ir_expr_t* rest = qn__pb_op_int(pb, QN_OP_FLOORMOD, copy(w, count), 2 * height);
    qn__ir_block_t own = {NULL, NULL};
    row = qn__pb_op(pb, QN_OP_SUB, copy(w, end), copy(w, rest));
    row = qn__pb_named(pb, &own, "row", row);
    if (!row) return;
    write_panels(w, &own, group, height, row);
    qn__pb_append(out, qn__pb_if(pb, qn__pb_op_int(pb, QN_OP_GE, rest, height), own));
  }
}

static void write_groups(qn__small_writer_t* w, qn__ir_block_t* out, const qn__ir_expr_t* first,
                         const qn__ir_expr_t* end) {
  qn__pass_builder_t* pb = w->pb;
  int64_t l1 = pb->options->l1_bytes ? pb->options->l1_bytes : 32768;
  int64_t most = l1 / 2 / (int64_t)qn_dtype_size_bytes(w->product->reduce->dtype);
  qn__ir_expr_t* panels = qn__pb_op_int(pb, QN_OP_CEILDIV, copy(w, w->columns), w->shape->width);
  panels = qn__pb_named(pb, out, "panels", panels);
  qn__ir_expr_t* all = qn__pb_op(pb, QN_OP_MUL, copy(w, w->columns), copy(w, w->steps));
  qn__ir_expr_t* is_one = qn__pb_named(pb, out, "is_one", qn__pb_op_int(pb, QN_OP_LE, all, most));
  qn__ir_expr_t* groups = qn__pb_cond(pb, copy(w, is_one), qn__pb_int(pb, 1), copy(w, panels));
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "group", groups);
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_expr_t* next = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, loop->loop.var), 1);
  panels_t group = {.begin = qn__pb_use(pb, loop->loop.var)};
  group.end = qn__pb_named(pb, body, "end", qn__pb_cond(pb, is_one, panels, next));
  write_tiles(w, body, &group, first, end);
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
  if (!is_store(product)) {
    w.sums = qn__pb_alloc(pb, body, QN__SCOPE_LOCAL, product->reduce->dtype, "sums", shape->height,
                          shape->width);
  }
  write_groups(&w, body, part.first, part.end);
  if (!qn__pb_stopped(pb)) qn__block_append(out, loop);
}
