// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/along_choose.c: chooses which products of few rows along.c writes.
#include "ir/passes/cpu/along.h"
#include "ir/passes/cpu/blocks_dots.h"
#include "ir/passes/products_write.h"

enum {
  columns_of_few_registers = 4,
  few_rows = 24,  // more are worth packing
  max_rows = 64,  // of at least `long_steps`, where joining lanes costs little
  // Where a core begins two multiplications a cycle, loads limit sums of lanes.
  few_rows_fast = 12,
  max_rows_fast = 18,
  long_steps = 256,
  max_steps_fast = 1024,  // of more rows: the first cache holds the columns of a task
  max_summand = 4         // instructions, as in blocks.c
};

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
  bool is_wide = options->vector_bytes >= 64;
  int64_t most = is_wide ? qn__along_max_columns : columns_of_few_registers;
  int64_t lanes = (int64_t)options->vector_bytes / size;
  bool is_fast = is_wide && options->wide_multiplies > 1;
  int64_t few = is_fast ? few_rows_fast : few_rows;
  *shape = (qn__along_shape_t){.lanes = lanes,
                               .columns = lanes < most ? lanes : most,
                               .few_rows = few,
                               .max_rows = is_fast   ? max_rows_fast
                                           : is_wide ? max_rows
                                                     : few,
                               .max_steps = is_fast ? max_steps_fast : INT64_MAX};
  int64_t steps = qn__product_steps(product);
  if (steps >= 0 && (steps < long_steps || steps > shape->max_steps)) shape->max_rows = few;
  // What packing computes once is computed for each tile.
  if (!are_plain) shape->few_rows = shape->max_rows = min_packed - 1;
  int64_t rows = qn__product_trips(product, product->side_dims[QN__PRODUCT_ROW]);
  int64_t columns = qn__product_trips(product, product->side_dims[QN__PRODUCT_COLUMN]);
  return lanes >= 2 && (columns < 0 || columns >= shape->columns) &&
         (steps < 0 || steps >= lanes) && rows <= shape->max_rows;
}

qn__ir_expr_t* qn__along_fits(const qn__product_t* product, const qn__along_shape_t* shape) {
  qn__pass_builder_t* pb = product->pb;
  qn__ir_expr_t* fits = NULL;
  const uint32_t columns = product->side_dims[QN__PRODUCT_COLUMN];
  if (qn__product_trips(product, columns) < 0) {
    fits = qn__pb_op_int(pb, QN_OP_GE, qn__product_extent(product, columns), shape->columns);
  }
  if (qn__product_steps(product) >= 0) return fits;
  const uint32_t dims = product->side_dims[QN__PRODUCT_ROW];
  qn__ir_expr_t* is_few =
      qn__pb_op_int(pb, QN_OP_LE, qn__product_extent(product, dims), shape->few_rows);
  qn__ir_expr_t* steps = qn__pb_reduce_extent(pb, product->steps[0].reduce);
  qn__ir_expr_t* is_long = qn__pb_op_int(pb, QN_OP_GE, steps, long_steps);
  if (shape->max_steps < INT64_MAX) {
    is_long = qn__pb_op(pb, QN_OP_AND, is_long,
                        qn__pb_op_int(pb, QN_OP_LE, qn__pb_copy(pb, steps), shape->max_steps));
  }
  qn__ir_expr_t* is_enough = qn__pb_op_int(pb, QN_OP_GE, qn__pb_copy(pb, steps), shape->lanes);
  int64_t known;
  if (shape->max_rows == shape->few_rows) {
    is_long = is_enough;
  } else if (!is_few || !qn__expr_const_int(is_few, &known)) {
    is_long = qn__pb_cond(pb, is_few, is_enough, is_long);
  } else if (known) {
    is_long = is_enough;
  }
  return fits ? qn__pb_op(pb, QN_OP_AND, fits, is_long) : is_long;
}
