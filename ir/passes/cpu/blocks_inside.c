// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks_inside.c: the part of a run on which the padding of an operand does not
// apply.
//
//   r >= 0 && r < h && s >= 0 && s < w ? x[c, r, s] : 0.0      with s = 2 * i + q - 1
//
// Comparisons of values that are linear along the run hold on one interval of it. So a run needs no
// condition for each element: it has up to three parts, two of them padding.
#include "ir/passes/cpu/blocks.h"
#include "ir/passes/products_write.h"

typedef struct inside {
  qn__blocks_writer_t* w;
  qn__lanes_t* lanes;
  qn__ir_block_t* out;  // NULL: only test
  const qn__blocks_run_t* run;
  qn__ir_expr_t* from;
  qn__ir_expr_t* to;
} inside_t;

qn__ir_expr_t* qn__blocks_choice(const qn__product_t* product, qn__ir_expr_t* value) {
  for (uint32_t i = product->name_count; i-- > 0 && value->kind == QN__EXPR_VAR;) {
    if (product->names[i].var != value->var) continue;
    if (!product->names[i].let) return NULL;
    value = product->names[i].let->let.value;
  }
  return value->kind == QN__EXPR_COND ? value : NULL;
}

// Narrows the part to `distance >= 0`, where the distance is `at_first` + `step` * i.
static void narrow(inside_t* self, qn__ir_expr_t* at_first, int64_t step) {
  qn__pass_builder_t* pb = self->w->pb;
  at_first = qn__pb_named(pb, self->out, "distance", at_first);
  if (step > 0) {
    qn__ir_expr_t* back = qn__pb_op(pb, QN_OP_SUB, qn__pb_int(pb, 0), at_first);
    self->from = qn__pb_op(pb, QN_OP_MAX, self->from, qn__pb_op_int(pb, QN_OP_CEILDIV, back, step));
  } else if (step < 0) {
    qn__ir_expr_t* last = qn__pb_op_int(pb, QN_OP_FLOORDIV, at_first, -step);
    self->to = qn__pb_op(pb, QN_OP_MIN, self->to, qn__pb_op_int(pb, QN_OP_ADD, last, 1));
  } else {
    qn__ir_expr_t* holds = qn__pb_op_int(pb, QN_OP_GE, at_first, 0);
    self->to = qn__pb_cond(pb, holds, self->to, qn__pb_copy(pb, self->run->from));
  }
}

// Narrows the part to where `condition` holds. Returns false if that is not one interval.
static bool visit(inside_t* self, qn__ir_expr_t* condition) {
  if (condition->kind != QN__EXPR_OP) return false;
  qn_op_t op = condition->op;
  if (op == QN_OP_LOGIC_AND) {
    return visit(self, condition->args[0]) && visit(self, condition->args[1]);
  }
  bool is_less = op == QN_OP_LT || op == QN_OP_LE;
  bool is_greater = op == QN_OP_GT || op == QN_OP_GE;
  if (!is_less && !is_greater) return false;
  qn__ir_expr_t* large = condition->args[is_less];
  qn__ir_expr_t* small = condition->args[is_greater];
  qn__pass_builder_t* pb = self->w->pb;
  if (large->dtype != QN_DTYPE_I64 || !qn__pb_is_pure(pb, large) || !qn__pb_is_pure(pb, small)) {
    return false;
  }
  qn__ir_lane_t up = qn__lanes_of(self->lanes, large);
  qn__ir_lane_t down = qn__lanes_of(self->lanes, small);
  int64_t step;
  if (up.is_varying || down.is_varying || __builtin_sub_overflow(up.step, down.step, &step) ||
      step == INT64_MIN) {
    return false;
  }
  if (!self->out) return true;
  qn__product_t* product = self->w->product;
  qn__ir_expr_t* distance =
      qn__pb_op(pb, QN_OP_SUB, qn__product_copy(product, large), qn__product_copy(product, small));
  bool is_strict = op == QN_OP_LT || op == QN_OP_GT;
  narrow(self, is_strict ? qn__pb_op_int(pb, QN_OP_ADD, distance, -1) : distance, step);
  return true;
}

// Returns facts about the variable of the fastest loop and what depends on it.
static qn__lanes_t* facts_along(qn__blocks_writer_t* w, const bool* is_needed, qn__ir_var_t* var) {
  qn__lanes_t* lanes = qn__pb_lanes(w->pb);
  if (!lanes) return NULL;
  qn__lanes_enter(lanes, var, NULL);
  for (uint32_t i = 0; i < w->product->name_count; ++i) {
    qn__ir_stmt_t* let = w->product->names[i].let;
    if (let && is_needed[i]) qn__lanes_let(lanes, let);
  }
  return lanes;
}

bool qn__blocks_inside(qn__blocks_writer_t* w, qn__ir_block_t* out, qn__product_side_t side,
                       qn__ir_expr_t* condition, const qn__blocks_run_t* run,
                       qn__ir_expr_t** out_from, qn__ir_expr_t** out_to) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  const qn__ir_stmt_t* along = product->nest->loops[run->fastest];
  bool is_needed[qn__product_max_names] = {false};
  qn__product_needs(product, condition, is_needed);
  for (uint32_t i = 0; i < product->name_count; ++i) {
    const qn__ir_stmt_t* let = product->names[i].let;
    if (is_needed[i] && let && !qn__pb_is_pure(pb, let->let.value)) return false;
  }
  inside_t self = {.w = w, .run = run};
  self.lanes = facts_along(w, is_needed, along->loop.var);
  if (!self.lanes || !visit(&self, condition)) return false;
  // The first element of the loop, from which distances count.
  self.out = out;
  self.from = qn__pb_copy(pb, run->from);
  self.to = qn__pb_copy(pb, run->to);
  product->names[run->fastest].now = qn__pb_copy(pb, along->loop.begin);
  qn__product_write_lets(product, out, is_needed, product->side_dims[side] | QN__PRODUCT_STEP, 0);
  if (!visit(&self, condition)) return false;
  qn__ir_expr_t* from = qn__pb_op(pb, QN_OP_MIN, self.from, qn__pb_copy(pb, run->to));
  *out_from = qn__pb_named(pb, out, "inside", from);
  qn__ir_expr_t* to = qn__pb_op(pb, QN_OP_MAX, self.to, qn__pb_copy(pb, *out_from));
  *out_to = qn__pb_named(pb, out, "outside", to);
  return *out_from && *out_to;
}
