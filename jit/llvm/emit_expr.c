// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_expr.c: emits expressions: chooses the file and the shape, and evaluates lazily.
//
// Sums, differences and products of linear values stay linear: indices remain scalars, and only
// values that differ irregularly between lanes become vectors.
// Not here: the operators themselves (emit_int.c, emit_float.c, emit_cast.c).
#include "jit/llvm/emit_inner.h"

// ------------------------------------------------------------------------------------ facts

static bool visit_speculable(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_REDUCE) return false;
  bool is_division =
      expr->kind == QN__EXPR_OP && expr->op >= QN_OP_FLOORDIV && expr->op <= QN_OP_CEILDIV;
  return !is_division || !qn__emit_checks(walker->self);
}

// Returns whether the expression can be evaluated speculatively, so that a choice needs no branch.
static bool is_speculable(qn__llvm_emit_t* e, qn__ir_expr_t* expr) {
  qn__ir_walker_t walker = {.on_expr = visit_speculable, .self = e};
  return qn__walk_expr(&walker, expr);
}

static bool visit_cheap(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  (void)walker;
  bool is_division =
      expr->kind == QN__EXPR_OP && expr->op >= QN_OP_FLOORDIV && expr->op <= QN_OP_CEILDIV;
  return !is_division || !qn__dtype_is_int(expr->dtype) || expr->args[1]->kind == QN__EXPR_INT;
}

// Returns whether the expression costs more than a branch: it divides integers by a variable.
static bool is_dear(qn__ir_expr_t* expr) {
  qn__ir_walker_t walker = {.on_expr = visit_cheap};
  return !qn__walk_expr(&walker, expr);
}

bool qn__emit_is_nonnegative(const qn__ir_expr_t* expr) {
  if (qn__dtype_class(expr->dtype) == QN__CLASS_UNSIGNED) return true;
  switch (expr->kind) {
    case QN__EXPR_INT:
      return expr->int_value >= 0;
    case QN__EXPR_VAR: {
      if (expr->var->kind == QN__VAR_SYMBOL) return true;
      const qn__llvm_var_slot_t* slot = expr->var->user;
      return slot && slot->is_nonnegative;
    }
    case QN__EXPR_CAST:
      // From a narrower unsigned type.
      return qn__dtype_is_int(expr->dtype) &&
             qn__dtype_class(expr->args[0]->dtype) == QN__CLASS_UNSIGNED &&
             qn__dtype_bits(expr->args[0]->dtype) < qn__dtype_bits(expr->dtype);
    case QN__EXPR_COND:
      return qn__emit_is_nonnegative(expr->args[1]) && qn__emit_is_nonnegative(expr->args[2]);
    case QN__EXPR_OP:
      break;
    default:
      return false;
  }
  bool is_a = qn__op_info(expr->op)->arity > 0 && qn__emit_is_nonnegative(expr->args[0]);
  bool is_b = qn__op_info(expr->op)->arity > 1 && qn__emit_is_nonnegative(expr->args[1]);
  switch (expr->op) {
    case QN_OP_FLOORDIV:
    case QN_OP_CEILDIV:
    case QN_OP_TRUNCDIV:
    case QN_OP_MIN:
    case QN_OP_FLOORMOD:
    case QN_OP_TRUNCMOD:
      return is_a && is_b;
    case QN_OP_MAX:
    case QN_OP_AND:
      return is_a || is_b;
    case QN_OP_POPCOUNT:
    case QN_OP_CLZ:
    case QN_OP_CTZ:
      return true;
    default:
      return false;
  }
}

// ------------------------------------------------------------------------------------ laziness

// Merges two values, from the ends of two blocks without terminators, in the block `done`. In a
// vector region the result is uniform if both values are.
static qn__llvm_value_t merge(qn__llvm_emit_t* e, qn__llvm_value_t a, LLVMBasicBlockRef at_a,
                              qn__llvm_value_t b, LLVMBasicBlockRef at_b, LLVMBasicBlockRef done) {
  LLVMBuilderRef builder = e->fn->builder;
  bool is_uniform = qn__emit_is_uniform(a) && qn__emit_is_uniform(b);
  qn__emit_at(e, at_a);
  LLVMValueRef value_a = qn__emit_operand(e, a, is_uniform);
  LLVMBuildBr(builder, done);
  qn__emit_at(e, at_b);
  LLVMValueRef value_b = qn__emit_operand(e, b, is_uniform);
  LLVMBuildBr(builder, done);
  qn__emit_at(e, done);
  LLVMValueRef v = qn__llvm_join(builder, value_a, at_a, value_b, at_b);
  return qn__emit_value(a.dtype, v, is_uniform);
}

// Evaluates `expr` with the mask narrowed to where `condition` holds.
static qn__llvm_value_t under(qn__llvm_emit_t* e, LLVMValueRef condition,
                              const qn__ir_expr_t* expr) {
  qn__llvm_mask_state_t state = qn__emit_narrow(e, condition);
  qn__llvm_value_t value = qn__emit_expr(e, expr);
  qn__emit_unmask(e, state);
  return value;
}

// Emits condition ? a : b with branches, for a uniform condition. NULL stands for the condition.
static qn__llvm_value_t branch(qn__llvm_emit_t* e, LLVMValueRef condition, const qn__ir_expr_t* a,
                               const qn__ir_expr_t* b) {
  LLVMBuilderRef builder = e->fn->builder;
  LLVMBasicBlockRef yes = qn__emit_block(e, "yes");
  LLVMBasicBlockRef no = qn__emit_block(e, "no");
  LLVMBasicBlockRef done = qn__emit_block(e, "done");
  LLVMBuildCondBr(builder, condition, yes, no);
  qn__emit_at(e, yes);
  qn__llvm_value_t itself = qn__emit_uniform(QN_DTYPE_BOOL, condition);
  qn__llvm_value_t value_a = a ? qn__emit_expr(e, a) : itself;
  LLVMBasicBlockRef at_a = LLVMGetInsertBlock(builder);
  qn__emit_at(e, no);
  qn__llvm_value_t value_b = b ? qn__emit_expr(e, b) : itself;
  LLVMBasicBlockRef at_b = LLVMGetInsertBlock(builder);
  return merge(e, value_a, at_a, value_b, at_b, done);
}

static qn__llvm_value_t choose(qn__llvm_emit_t* e, qn__llvm_value_t condition, qn__llvm_value_t a,
                               qn__llvm_value_t b) {
  bool is_uniform =
      qn__emit_is_uniform(condition) && qn__emit_is_uniform(a) && qn__emit_is_uniform(b);
  LLVMValueRef value_a = qn__emit_operand(e, a, is_uniform);
  LLVMValueRef value_b = qn__emit_operand(e, b, is_uniform);
  LLVMValueRef v = LLVMBuildSelect(e->fn->builder, condition.v, value_a, value_b, "");
  return qn__emit_value(a.dtype, v, is_uniform);
}

static qn__llvm_value_t emit_cond(qn__llvm_emit_t* e, const qn__ir_expr_t* expr) {
  qn__llvm_value_t condition = qn__emit_expr(e, expr->args[0]);
  bool is_plain = is_speculable(e, expr->args[1]) && is_speculable(e, expr->args[2]);
  bool is_dearer = is_plain && (is_dear(expr->args[1]) || is_dear(expr->args[2]));
  if (qn__emit_is_uniform(condition) && (!is_plain || is_dearer)) {
    return branch(e, condition.v, expr->args[1], expr->args[2]);
  }
  if (is_plain) {
    qn__llvm_value_t a = qn__emit_expr(e, expr->args[1]);
    return choose(e, condition, a, qn__emit_expr(e, expr->args[2]));
  }
  qn__llvm_value_t a = under(e, condition.v, expr->args[1]);
  LLVMValueRef otherwise = LLVMBuildNot(e->fn->builder, condition.v, "");
  return choose(e, condition, a, under(e, otherwise, expr->args[2]));
}

// Emits a && b or a || b.
static qn__llvm_value_t emit_logic(qn__llvm_emit_t* e, const qn__ir_expr_t* expr) {
  LLVMBuilderRef builder = e->fn->builder;
  bool is_and = expr->op == QN_OP_LOGIC_AND;
  qn__llvm_value_t a = qn__emit_expr(e, expr->args[0]);
  bool is_plain = is_speculable(e, expr->args[1]);
  if (!is_plain && qn__emit_is_uniform(a)) {
    return branch(e, a.v, is_and ? expr->args[1] : NULL, is_and ? NULL : expr->args[1]);
  }
  qn__llvm_value_t b;
  if (is_plain) {
    b = qn__emit_expr(e, expr->args[1]);
  } else {
    b = under(e, is_and ? a.v : LLVMBuildNot(builder, a.v, ""), expr->args[1]);
  }
  bool is_uniform = qn__emit_is_uniform(a) && qn__emit_is_uniform(b);
  LLVMValueRef x = qn__emit_operand(e, a, is_uniform);
  LLVMValueRef y = qn__emit_operand(e, b, is_uniform);
  LLVMValueRef value = is_and ? LLVMBuildAnd(builder, x, y, "") : LLVMBuildOr(builder, x, y, "");
  return qn__emit_value(QN_DTYPE_BOOL, value, is_uniform);
}

// ------------------------------------------------------------------------------------ operators

// Emits an integer operation whose result is linear. Returns false if it is not.
static bool emit_linear_op(qn__llvm_emit_t* e, qn_op_t op, qn__llvm_value_t a, qn__llvm_value_t b,
                           qn__llvm_value_t* out) {
  if (!qn__dtype_is_int(a.dtype)) return false;
  if (a.shape == QN__LLVM_SHAPE_VARYING || b.shape == QN__LLVM_SHAPE_VARYING) return false;
  LLVMBuilderRef builder = e->fn->builder;
  LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(a.v));
  bool is_a_linear = a.shape == QN__LLVM_SHAPE_LINEAR;
  bool is_b_linear = b.shape == QN__LLVM_SHAPE_LINEAR;
  LLVMValueRef step_a = is_a_linear ? a.stride : zero;
  LLVMValueRef step_b = is_b_linear ? b.stride : zero;
  LLVMValueRef v, step;
  if (op == QN_OP_ADD || op == QN_OP_SUB) {
    v = qn__llvm_binary(builder, op, a.dtype, a.v, b.v);
    step = qn__llvm_binary(builder, op, a.dtype, step_a, step_b);
  } else if (op == QN_OP_NEG) {
    v = LLVMBuildNeg(builder, a.v, "");
    step = LLVMBuildNeg(builder, step_a, "");
  } else if (op == QN_OP_MUL && !(is_a_linear && is_b_linear)) {
    v = LLVMBuildMul(builder, a.v, b.v, "");
    step = is_a_linear ? LLVMBuildMul(builder, step_a, b.v, "")
                       : LLVMBuildMul(builder, step_b, a.v, "");
  } else {
    return false;
  }
  *out = qn__emit_linear(a.dtype, v, step);
  return true;
}

static LLVMValueRef emit_operator(qn__llvm_emit_t* e, const qn__ir_expr_t* expr,
                                  qn_dtype_t operand_dtype, LLVMValueRef* args) {
  LLVMBuilderRef builder = e->fn->builder;
  switch (qn__op_info(expr->op)->rule) {
    case QN__RULE_COMPARE:
      return qn__llvm_compare(builder, expr->op, operand_dtype, args[0], args[1]);
    case QN__RULE_LOGIC:
      return LLVMBuildNot(builder, args[0], "");
    case QN__RULE_SELECT:
      return LLVMBuildSelect(builder, args[0], args[1], args[2], "");
    case QN__RULE_DOT_INT:
    case QN__RULE_DOT_FLOAT:
      return qn__emit_dot(e, expr->op, args);
    default:
      break;
  }
  if (qn__dtype_is_float(operand_dtype)) {
    return qn__emit_float_op(e, expr->op, operand_dtype, args);
  }
  return qn__emit_int_op(e, expr, operand_dtype, args);
}

// Emits `a < b` for the numbers a = 0, 1, ... of the lanes as the lower bits of a word, which is
// what masks of AVX-512 are: LLVM compares vectors, again in each iteration of a loop around them.
// Returns false if it is something else.
static bool emit_first_lanes(qn__llvm_emit_t* e, qn_op_t op, qn__llvm_value_t a, qn__llvm_value_t b,
                             qn__llvm_value_t* out) {
  const uint32_t lanes = e->fn->lanes;
  if (op != QN_OP_LT || !e->options->has_avx512 || lanes < 8 || lanes > 32) return false;
  if (a.shape != QN__LLVM_SHAPE_LINEAR || !qn__emit_is_uniform(b)) return false;
  if (a.dtype != QN_DTYPE_I64 || b.dtype != QN_DTYPE_I64 || !LLVMIsNull(a.v)) return false;
  if (!LLVMIsAConstantInt(a.stride) || LLVMConstIntGetSExtValue(a.stride) != 1) return false;
  LLVMValueRef count = qn__emit_int_min_max(e, QN_DTYPE_I64, false, b.v, qn__emit_i64(e, 0));
  count = qn__emit_int_min_max(e, QN_DTYPE_I64, true, count, qn__emit_i64(e, lanes));
  LLVMBuilderRef builder = e->fn->builder;
  LLVMValueRef bits = LLVMBuildShl(builder, qn__emit_i64(e, -1), count, "");
  LLVMTypeRef word = LLVMIntTypeInContext(e->context, lanes);
  bits = LLVMBuildTrunc(builder, LLVMBuildNot(builder, bits, ""), word, "");
  bits = LLVMBuildBitCast(builder, bits, LLVMVectorType(e->i1, lanes), "");
  *out = qn__emit_value(QN_DTYPE_BOOL, bits, false);
  return true;
}

static qn__llvm_value_t emit_op(qn__llvm_emit_t* e, const qn__ir_expr_t* expr) {
  if (expr->op == QN_OP_LOGIC_AND || expr->op == QN_OP_LOGIC_OR) return emit_logic(e, expr);
  uint32_t arity = qn__op_info(expr->op)->arity;
  qn__llvm_value_t values[3] = {{NULL, NULL, QN_DTYPE_NONE, QN__LLVM_SHAPE_UNIFORM}};
  bool is_uniform = true;
  bool can_be_linear = true;
  for (uint32_t i = 0; i < arity; ++i) {
    values[i] = qn__emit_expr(e, expr->args[i]);
    is_uniform = is_uniform && qn__emit_is_uniform(values[i]);
    can_be_linear = can_be_linear && values[i].shape != QN__LLVM_SHAPE_VARYING;
  }
  qn__llvm_value_t result;
  if (!is_uniform && can_be_linear && arity <= 2 &&
      emit_linear_op(e, expr->op, values[0], arity == 2 ? values[1] : values[0], &result)) {
    return result;
  }
  if (emit_first_lanes(e, expr->op, values[0], values[1], &result)) return result;
  LLVMValueRef args[3] = {NULL};
  for (uint32_t i = 0; i < arity; ++i) args[i] = qn__emit_operand(e, values[i], is_uniform);
  LLVMValueRef v = emit_operator(e, expr, qn__expr_operand_dtype(expr), args);
  return qn__emit_value(expr->dtype, v, is_uniform);
}

static qn__llvm_value_t emit_conversion(qn__llvm_emit_t* e, const qn__ir_expr_t* expr) {
  qn__llvm_value_t value = qn__emit_expr(e, expr->args[0]);
  qn_dtype_t from = expr->args[0]->dtype;
  if (expr->kind == QN__EXPR_CAST && value.shape == QN__LLVM_SHAPE_LINEAR &&
      qn__dtype_is_int(expr->dtype) && qn__dtype_bits(expr->dtype) <= qn__dtype_bits(from)) {
    // Wrapping keeps linearity.
    LLVMTypeRef type = qn__emit_type(e, expr->dtype);
    LLVMBuilderRef b = e->fn->builder;
    if (type == LLVMTypeOf(value.v)) return qn__emit_linear(expr->dtype, value.v, value.stride);
    return qn__emit_linear(expr->dtype, LLVMBuildTrunc(b, value.v, type, ""),
                           LLVMBuildTrunc(b, value.stride, type, ""));
  }
  bool is_uniform = qn__emit_is_uniform(value);
  LLVMValueRef v = qn__emit_operand(e, value, is_uniform);
  v = expr->kind == QN__EXPR_CAST ? qn__emit_cast(e, from, expr->dtype, v)
                                  : qn__emit_bitcast(e, from, expr->dtype, v);
  return qn__emit_value(expr->dtype, v, is_uniform);
}

qn__llvm_value_t qn__emit_expr(qn__llvm_emit_t* e, const qn__ir_expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
      return qn__emit_uniform(expr->dtype, qn__emit_literal(e, expr));
    case QN__EXPR_VAR:
      return qn__emit_var(e, expr->var);
    case QN__EXPR_LOAD:
      return qn__emit_load(e, expr);
    case QN__EXPR_OP:
      return emit_op(e, expr);
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      return emit_conversion(e, expr);
    case QN__EXPR_COND:
      return emit_cond(e, expr);
    case QN__EXPR_REDUCE:
      return qn__emit_reduce(e, expr);
  }
  return qn__emit_uniform(expr->dtype, qn__emit_undefined(e, expr->dtype));
}

LLVMValueRef qn__emit_scalar(qn__llvm_emit_t* e, const qn__ir_expr_t* expr) {
  qn__llvm_value_t value = qn__emit_expr(e, expr);
  if (qn__emit_is_uniform(value)) return value.v;
  // Active lanes have equal values, so the first of them gives the result.
  LLVMValueRef wide = qn__emit_widen(e, value);
  LLVMValueRef lane = qn__emit_i64(e, 0);
  if (e->fn->mask) {
    lane = qn__emit_first_lane(e, e->fn->mask);
    lane = qn__emit_int_min_max(e, QN_DTYPE_U64, true, lane, qn__emit_i64(e, e->fn->lanes - 1));
  }
  return LLVMBuildExtractElement(e->fn->builder, wide, lane, "");
}
