// SPDX-License-Identifier: Apache-2.0
// ir/passes/products_order.c: the directions in which a product's operands are contiguous, and the
// order of its steps that follows from them.
#include "ir/passes/products_inner.h"

typedef struct reach {
  const qn__lanes_t* lanes;
  uint32_t contiguous;
} reach_t;

static bool count_contiguous(void* context, const qn__ir_ref_t* ref) {
  reach_t* self = context;
  self->contiguous +=
      qn__lanes_reach(self->lanes, *ref->buffer, *ref->indices) == QN__REACH_CONTIGUOUS;
  return true;
}

bool qn__product_is_contiguous(qn__product_t* product, const qn__product_operand_t* operand,
                               const qn__ir_expr_t* load, qn__ir_var_t* var) {
  qn__lanes_t* lanes = qn__pb_lanes(product->pb);
  if (!lanes) return false;
  qn__lanes_enter(lanes, var, NULL);
  for (uint32_t i = 0; i < product->name_count; ++i) {
    qn__ir_stmt_t* let = product->names[i].let;
    if (let && operand->is_needed[i]) qn__lanes_let(lanes, let);
  }
  assert(load->kind == QN__EXPR_LOAD);
  return qn__lanes_reach(lanes, load->load.buffer, load->load.indices) == QN__REACH_CONTIGUOUS;
}

static uint32_t contiguous_along(qn__product_t* product, qn__product_operand_t* operand,
                                 qn__ir_var_t* var) {
  qn__lanes_t* lanes = qn__pb_lanes(product->pb);
  if (!lanes) return 0;
  qn__lanes_enter(lanes, var, NULL);
  reach_t reach = {lanes, 0};
  for (uint32_t i = 0; i < product->name_count; ++i) {
    qn__ir_stmt_t* let = product->names[i].let;
    if (!let || !operand->is_needed[i]) continue;
    qn__lanes_let(lanes, let);
    (void)qn__expr_each_ref(let->let.value, count_contiguous, &reach);
  }
  (void)qn__expr_each_ref(operand->value, count_contiguous, &reach);
  return reach.contiguous;
}

const qn__ir_stmt_t* qn__product_fastest(const qn__product_t* product, qn__product_side_t side) {
  const qn__nest_t* nest = product->nest;
  uint32_t p = nest->count - 1;
  while (p > 0 && !(product->side_dims[side] >> nest->order[p] & 1)) --p;
  return nest->loops[nest->order[p]];
}

void qn__product_find_direction(qn__product_t* product, qn__product_operand_t* operand) {
  const qn__ir_stmt_t* fastest = qn__product_fastest(product, operand->side);
  uint32_t across = contiguous_along(product, operand, fastest->loop.var);
  qn__ir_var_t* step = product->names[product->steps[product->step_count - 1].name].var;
  uint32_t along = contiguous_along(product, operand, step);
  operand->runs_along_step = along > across;
  operand->runs_along_line = across > 0 && along == 0;
}

// Returns the place of the step whose variable is `expr`, or -1. It must count from 0 to `extent`.
static int full_step(const qn__product_t* product, const qn__ir_expr_t* expr,
                     const qn__ir_expr_t* extent) {
  for (uint32_t k = 0; k < product->step_count; ++k) {
    const qn__ir_expr_t* reduce = product->steps[k].reduce;
    if (expr->kind != QN__EXPR_VAR || expr->var != reduce->reduce.reduce_var) continue;
    int64_t begin;
    bool is_full = qn__expr_const_int(reduce->reduce.begin, &begin) && begin == 0 &&
                   qn__expr_equal(reduce->reduce.end, extent);
    return is_full ? (int)k : -1;
  }
  return -1;
}

// Orders the steps as an operand has them in memory, one after the other, as w[o, c, p, q] in
// a convolution. Returns false if it has others.
static bool order_flat(qn__product_t* product, qn__product_operand_t* operand) {
  const qn__ir_expr_t* load = operand->value;
  if (load->kind != QN__EXPR_LOAD) return false;
  const qn__ir_buffer_t* buffer = load->load.buffer;
  if (buffer->strides || buffer->base || buffer->rank <= product->step_count) return false;
  qn__product_step_t steps[qn__product_max_steps];
  uint32_t first = buffer->rank - product->step_count;
  uint32_t found = 0;
  for (uint32_t k = 0; k < product->step_count; ++k) {
    int step = full_step(product, load->load.indices[first + k], buffer->shape[first + k]);
    if (step < 0 || (found >> step & 1)) return false;
    found |= 1U << step;
    steps[k] = product->steps[step];
  }
  for (uint32_t d = 0; d < first; ++d) {
    if (qn__product_mask_of(product, load->load.indices[d]) & QN__PRODUCT_STEP) return false;
  }
  memcpy(product->steps, steps, product->step_count * sizeof *steps);
  operand->is_flat = true;
  return true;
}

void qn__product_order_steps(qn__product_t* product) {
  for (uint32_t o = 0; o < product->operand_count; ++o) {
    if (order_flat(product, &product->operands[o])) return;
  }
  uint32_t fastest = product->step_count - 1;
  uint32_t best = 0;
  for (uint32_t k = product->step_count; k-- > 0;) {
    uint32_t count = 0;
    qn__ir_var_t* var = product->names[product->steps[k].name].var;
    for (uint32_t o = 0; o < product->operand_count; ++o) {
      count += contiguous_along(product, &product->operands[o], var);
    }
    if (count <= best) continue;
    best = count;
    fastest = k;
  }
  qn__product_step_t step = product->steps[fastest];
  for (uint32_t k = fastest; k + 1 < product->step_count; ++k) {
    product->steps[k] = product->steps[k + 1];
  }
  product->steps[product->step_count - 1] = step;
}
