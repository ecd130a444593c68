// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/columns.c: writes a product of few columns, whose rows are contiguous along the
// reduction.
//
//   parallel task in 0..batch * ceildiv(M, task_rows) {
//     alloc packed: [max_elements] in local;
//     for j in 0..N { for p in 0..K { packed[j * K + p] = B[p, j]; } }
//     for i in the task's rows {
//       for j in 0..N { C[i, j] = sum p in 0..K { A[i, p] * packed[j * K + p] }; }
//     }
//   }
//
// 1. Vectors along the columns would be nearly empty. Along the reduction they are full, once the
//    columns are contiguous there, too.
// 2. A row is read from memory once, and from the first cache for the other columns.
// 3. The sums stay reductions, which `vectorize` gives lanes.
// 4. Packing is short code: no lanes.
#include "ir/passes/cpu/columns.h"

#include "ir/passes/products_write.h"

enum {
  max_columns = 4,
  min_steps = 32,       // for each column: fewer do not pay for joining lanes
  max_elements = 8192,  // of the packed columns, on the stack of a task
  task_rows = 256,      // packing is a few hundredths of their time
};

bool qn__columns_choose(const qn__product_t* product) {
  int64_t columns = qn__product_trips(product, product->side_dims[QN__PRODUCT_COLUMN]);
  int64_t steps = qn__product_steps(product);
  if (columns > max_columns || product->step_count != 1 || product->operand_count != 2) {
    return false;
  }
  if (qn_dtype_size_bytes(product->reduce->dtype) < 4) return false;
  if (steps >= 0 && (steps < min_steps || steps > max_elements)) return false;
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    const qn__product_operand_t* operand = &product->operands[o];
    if (operand->side == QN__PRODUCT_ROW && !operand->runs_along_step) return false;
  }
  qn__ir_expr_t* test = qn__columns_test(product);
  int64_t is_few;
  return test && (!qn__expr_const_int(test, &is_few) || is_few);
}

qn__ir_expr_t* qn__columns_test(const qn__product_t* product) {
  qn__pass_builder_t* pb = product->pb;
  qn__ir_expr_t* steps = qn__product_common_steps(product);
  qn__ir_expr_t* columns = qn__product_extent(product, product->side_dims[QN__PRODUCT_COLUMN]);
  qn__ir_expr_t* least = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_copy(pb, columns), min_steps);
  qn__ir_expr_t* all = qn__pb_op(pb, QN_OP_MUL, qn__pb_copy(pb, steps), qn__pb_copy(pb, columns));
  qn__ir_expr_t* is_few = qn__pb_op_int(pb, QN_OP_LE, columns, max_columns);
  qn__ir_expr_t* is_long = qn__pb_op(pb, QN_OP_GE, steps, least);
  qn__ir_expr_t* fits = qn__pb_op_int(pb, QN_OP_LE, all, max_elements);
  return qn__pb_both(pb, is_few, qn__pb_both(pb, is_long, fits));
}

typedef struct columns_writer {
  qn__product_t* product;
  qn__pass_builder_t* pb;
  qn__ir_expr_t* columns;
  qn__ir_expr_t* steps;
  qn__ir_buffer_t* packed;
} columns_writer_t;

static qn__ir_expr_t* copy(const columns_writer_t* w, const qn__ir_expr_t* expr) {
  return qn__pb_copy(w->pb, expr);
}

// Returns the place of a step of column `j` among the packed ones.
static qn__ir_expr_t* place_of(const columns_writer_t* w, qn__ir_var_t* j, qn__ir_var_t* p) {
  qn__pass_builder_t* pb = w->pb;
  return qn__pb_op(pb, QN_OP_ADD, qn__pb_op(pb, QN_OP_MUL, qn__pb_use(pb, j), copy(w, w->steps)),
                   qn__pb_use(pb, p));
}

static const qn__product_operand_t* operand_of(const qn__product_t* product,
                                               qn__product_side_t side) {
  return &product->operands[product->operands[0].side == side ? 0 : 1];
}

static void write_pack(columns_writer_t* w, qn__ir_block_t* out) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const uint32_t columns = product->side_dims[QN__PRODUCT_COLUMN];
  const qn__product_operand_t* operand = operand_of(product, QN__PRODUCT_COLUMN);
  qn__ir_stmt_t* across = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "j", copy(w, w->columns));
  qn__ir_stmt_t* along = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "p", copy(w, w->steps));
  w->packed =
      qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, operand->value->dtype, "columns", max_elements, -1);
  if (!across || !along || !w->packed) return;
  w->packed->is_filled = true;
  along->loop.is_rare = true;
  qn__product_place(product, &across->loop.body, columns, across->loop.var);
  qn__ir_block_t* body = &along->loop.body;
  qn__product_set_step(product, body, qn__pb_use(pb, along->loop.var));
  qn__product_write_lets(product, body, operand->is_needed, columns | QN__PRODUCT_STEP, 0);
  qn__pb_append(body, qn__pb_store(pb, w->packed, place_of(w, across->loop.var, along->loop.var),
                                   NULL, qn__product_copy(product, operand->value)));
  qn__block_append(&across->loop.body, along);
  qn__block_append(out, across);
}

// Returns the sum for the row and column that are set; `j` is the column's number.
static qn__ir_expr_t* write_sum(columns_writer_t* w, qn__ir_var_t* j) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const qn__product_operand_t* row = operand_of(product, QN__PRODUCT_ROW);
  const uint32_t rows = product->side_dims[QN__PRODUCT_ROW];
  qn__ir_var_t* p = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "p");
  qn__ir_expr_t* sum =
      qn__pb_reduce_over(pb, product->reduce->reduce.reduce_kind, product->reduce->dtype, p,
                         qn__pb_int(pb, 0), copy(w, w->steps));
  if (!sum) return NULL;
  sum->loc = product->reduce->loc;
  qn__ir_block_t* lets = &sum->reduce.lets;
  qn__product_set_step(product, lets, qn__pb_use(pb, p));
  qn__product_write_lets(product, lets, row->is_needed, rows | QN__PRODUCT_STEP, 0);
  product->names[row->name].now = qn__product_copy(product, row->value);
  product->names[operand_of(product, QN__PRODUCT_COLUMN)->name].now =
      qn__pb_load(pb, w->packed, place_of(w, j, p), NULL);
  qn__product_write_lets(product, lets, product->is_needed,
                         qn__product_both(product) | QN__PRODUCT_STEP, 0);
  sum->reduce.value = qn__product_copy(product, *product->summand);
  return sum->reduce.value ? sum : NULL;
}

void qn__columns_write(qn__product_t* product, qn_loop_kind_t kind, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = product->pb;
  const uint32_t rows_of = product->side_dims[QN__PRODUCT_ROW];
  const uint32_t columns_of = product->side_dims[QN__PRODUCT_COLUMN];
  columns_writer_t w = {.product = product, .pb = pb};
  for (uint32_t i = 0; i < product->name_count; ++i) product->names[i].now = NULL;
  w.columns = qn__pb_named(pb, out, "all_columns", qn__product_extent(product, columns_of));
  qn__ir_expr_t* rows = qn__pb_named(pb, out, "all_rows", qn__product_extent(product, rows_of));
  qn__ir_expr_t* number;
  qn__ir_stmt_t* task = qn__product_write_tasks(
      product, out, kind, qn__pb_op_int(pb, QN_OP_CEILDIV, copy(&w, rows), task_rows), &number);
  if (!task || qn__pb_stopped(pb)) return;
  qn__ir_block_t* body = &task->loop.body;
  qn__product_part_t part = qn__product_write_part(pb, body, number, task_rows, rows);
  w.steps = qn__product_write_bounds(product, body);
  if (!w.steps || qn__pb_stopped(pb)) return;
  write_pack(&w, body);
  qn__ir_var_t* i = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "i");
  qn__ir_stmt_t* down = qn__pb_loop(pb, QN_LOOP_SERIAL, i, part.first, part.end);
  qn__ir_stmt_t* across = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "j", copy(&w, w.columns));
  if (!down || !across || qn__pb_stopped(pb)) return;
  qn__product_place(product, &down->loop.body, rows_of, i);
  qn__product_place(product, &across->loop.body, columns_of, across->loop.var);
  qn__ir_var_t* total =
      qn__pb_let(pb, &across->loop.body, "total", write_sum(&w, across->loop.var));
  qn__product_write_body(product, &across->loop.body, qn__pb_use(pb, total));
  qn__block_append(&down->loop.body, across);
  qn__block_append(body, down);
  if (!qn__pb_stopped(pb)) qn__block_append(out, task);
}
