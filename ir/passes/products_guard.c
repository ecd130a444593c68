// SPDX-License-Identifier: Apache-2.0
// ir/passes/products_guard.c: products that a condition on columns guards, as the padding of a
// convolution does.
//
//   sum p { c[p, j] ? x[p, j] * w[i, p] : 0 }
//
// This is not `(c ? x : 0) * w`, which is NaN where w is infinite. The condition is an operand,
// too: a tile holds it as a mask, and the sum of a masked column stays. What the condition guards
// is read for all steps. For columns the condition itself takes care of that; rows must exist.
#include "ir/passes/products_inner.h"

static bool is_zero(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_FLOAT ? expr->float_value == 0 : qn__expr_is_int(expr, 0);
}

// Returns true if `begin..end` is within `0..extent`.
static bool is_within(const qn__ir_expr_t* begin, const qn__ir_expr_t* end,
                      const qn__ir_expr_t* extent) {
  int64_t last, limit;
  if (!qn__expr_is_int(begin, 0)) return false;
  if (qn__expr_equal(end, extent)) return true;
  return qn__expr_const_int(end, &last) && qn__expr_const_int(extent, &limit) && last <= limit;
}

// Returns true if the index is a variable that counts no further than `extent`.
static bool index_exists(const qn__product_t* product, const qn__ir_expr_t* index,
                         const qn__ir_expr_t* extent) {
  if (qn__expr_is_int(index, 0)) return extent->kind == QN__EXPR_INT && !is_zero(extent);
  if (index->kind != QN__EXPR_VAR) return false;
  for (uint32_t k = 0; k < product->step_count; ++k) {
    const qn__ir_expr_t* reduce = product->steps[k].reduce;
    if (index->var != reduce->reduce.reduce_var) continue;
    return is_within(reduce->reduce.begin, reduce->reduce.end, extent);
  }
  for (uint32_t d = 0; d < product->nest->count; ++d) {
    const qn__ir_stmt_t* loop = product->nest->loops[d];
    if (index->var == loop->loop.var) return is_within(loop->loop.begin, loop->loop.end, extent);
  }
  return false;
}

// Returns true if the value is a load of an element that exists at each step of each line.
static bool exists(const qn__product_t* product, const qn__ir_expr_t* value) {
  while (value->kind == QN__EXPR_CAST) value = value->args[0];
  if (value->kind != QN__EXPR_LOAD) return false;
  const qn__ir_buffer_t* buffer = value->load.buffer;
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    if (!index_exists(product, value->load.indices[d], buffer->shape[d])) return false;
  }
  return true;
}

static bool is_of_side(const qn__product_t* product, uint32_t mask, qn__product_side_t side) {
  uint32_t other = qn__product_both(product) & ~product->side_dims[side];
  return (mask & product->side_dims[side]) && !(mask & (other | QN__PRODUCT_FIXED));
}

bool qn__product_note_guarded(qn__product_t* product, qn__ir_expr_t** slot) {
  qn__pass_builder_t* pb = product->pb;
  qn__ir_expr_t* choice = *slot;
  bool is_sum = product->reduce->reduce.reduce_kind == QN_REDUCE_SUM;
  bool is_all = slot == product->summand && pb->options->has_blocks;
  if (!is_all || !is_sum || choice->kind != QN__EXPR_COND || !is_zero(choice->args[2])) {
    return false;
  }
  qn__ir_expr_t* condition = choice->args[0];
  qn__ir_expr_t* term = choice->args[1];
  uint32_t mask = qn__product_mask_of(product, condition);
  if ((mask & QN__PRODUCT_LOADS) || !is_of_side(product, mask, QN__PRODUCT_COLUMN) ||
      term->kind != QN__EXPR_OP || term->op != QN_OP_MUL) {
    return false;
  }
  uint32_t masks[2];
  for (int i = 0; i < 2; ++i) masks[i] = qn__product_mask_of(product, term->args[i]);
  int column = is_of_side(product, masks[1], QN__PRODUCT_COLUMN);
  if (!is_of_side(product, masks[column], QN__PRODUCT_COLUMN) ||
      !is_of_side(product, masks[!column], QN__PRODUCT_ROW) ||
      !(masks[0] & masks[1] & QN__PRODUCT_LOADS) || !exists(product, term->args[!column])) {
    return false;
  }
  qn_dtype_t bit = QN_DTYPE_BOOL;
  qn__ir_expr_t* guard =
      qn__pb_cond(pb, condition, qn__expr_int(pb->arena, bit, 1), qn__expr_int(pb->arena, bit, 0));
  qn__ir_expr_t* value = qn__pb_cond(pb, condition, term->args[column], choice->args[2]);
  if (!guard || !value) return false;
  product->is_guarded = true;
  product->guarded_row = !column;
  return qn__product_note_operand(product, &choice->args[0], guard, QN__PRODUCT_COLUMN) &&
         qn__product_note_operand(product, &term->args[column], value, QN__PRODUCT_COLUMN) &&
         qn__product_note_operand(product, &term->args[!column], term->args[!column],
                                  QN__PRODUCT_ROW);
}
