// SPDX-License-Identifier: Apache-2.0
// ir/passes/fold_int.c: rules for integers and their comparisons, by sums of terms and by ranges.
//
// The requirements are at the top of fold.c.
#include "ir/passes/fold_inner.h"

// ---- integers

static qn__ir_expr_t* fold_sum(qn__fold_t* fold, qn__ir_expr_t* expr) {
  qn__terms_t affine;
  if (!qn__terms_of(expr, &affine)) return NULL;
  if (fold->is_checked && (affine.has_dropped_load || affine.has_dropped_division)) return NULL;
  if (affine.has_dropped_load && !qn__fold_can_drop(fold, expr)) return NULL;
  if (qn__terms_size(&affine) >= qn__terms_size_of(expr)) return NULL;
  return qn__terms_build(fold->arena, &affine);
}

static bool is_power_of_two(int64_t value, int64_t* out_log) {
  if (value <= 0 || (value & (value - 1)) != 0) return false;
  *out_log = __builtin_ctzll((uint64_t)value);
  return true;
}

// Takes out the terms whose factors are multiples of `divisor`, divided by it; the rest stays in
// `affine`.
static qn__terms_t take_multiples(qn__terms_t* affine, int64_t divisor) {
  qn__terms_t quotient = {.dtype = affine->dtype};
  size_t kept = 0;
  for (size_t i = 0; i < affine->count; ++i) {
    if (affine->terms[i].factor % divisor == 0) {
      quotient.terms[quotient.count] = affine->terms[i];
      quotient.terms[quotient.count++].factor /= divisor;
    } else {
      affine->terms[kept++] = affine->terms[i];
    }
  }
  affine->count = kept;
  int64_t rest = affine->constant % divisor;
  if (rest < 0) rest += divisor;
  quotient.constant = (affine->constant - rest) / divisor;
  affine->constant = rest;
  assert(rest >= 0 && rest < divisor && quotient.count + kept <= qn__terms_max);
  return quotient;
}

// Folds a // b and a % b by a positive literal; for a >= 0 also their truncating forms.
static qn__ir_expr_t* fold_division(qn__fold_t* fold, qn__ir_expr_t* expr) {
  qn__ir_expr_t* a = expr->args[0];
  qn_dtype_t dtype = expr->dtype;
  int64_t divisor = expr->args[1]->kind == QN__EXPR_INT ? expr->args[1]->int_value : 0;
  qn__ir_range_t range = qn__range_of(a);
  bool is_signed = qn__dtype_class(dtype) == QN__CLASS_SIGNED;
  bool wants_rest = expr->op == QN_OP_FLOORMOD || expr->op == QN_OP_TRUNCMOD;
  bool truncates = expr->op == QN_OP_TRUNCDIV || expr->op == QN_OP_TRUNCMOD;
  bool is_floor = !truncates || range.min >= 0 || !is_signed;
  if (divisor == 1) return wants_rest ? drop(fold, a, integer(fold, dtype, 0)) : a;
  if (dtype == QN_DTYPE_U64 || !is_floor) return NULL;
  qn__ir_range_t divisors = qn__range_of(expr->args[1]);
  if (range.min >= 0 && range.max < divisors.min) {  // also if the divisor is not a literal
    if (wants_rest) return drop(fold, expr->args[1], a);
    return drop(fold, expr, integer(fold, dtype, 0));
  }
  if (divisor <= 0) {
    if (!truncates && range.min >= 0 && divisors.min > 0) {  // one instruction, no correction
      return binary(fold, wants_rest ? QN_OP_TRUNCMOD : QN_OP_TRUNCDIV, a, expr->args[1]);
    }
    return NULL;
  }
  // (16 * i + j) // 16 = i and (16 * i + j) % 16 = j for j in 0..16, unless the sum wraps.
  qn__terms_t affine;
  if (qn__terms_of(a, &affine) && !qn__range_is_full(dtype, qn__terms_range(&affine)) &&
      !affine.has_dropped_load && !affine.has_dropped_division) {
    qn__terms_t rest = affine;
    qn__terms_t quotient = take_multiples(&rest, divisor);
    qn__ir_range_t rest_range = qn__terms_range(&rest);
    bool has_quotient = quotient.count > 0 || quotient.constant != 0;
    if (has_quotient && rest_range.min >= 0 && rest_range.max < divisor) {
      const qn__terms_t* result = wants_rest ? &rest : &quotient;
      const qn__terms_t* dropped = wants_rest ? &quotient : &rest;
      for (size_t i = 0; i < dropped->count; ++i) {
        if (!qn__fold_can_drop(fold, dropped->terms[i].atom)) return NULL;
      }
      return qn__terms_build(fold->arena, result);
    }
    if (has_quotient && quotient.count > 0 && wants_rest) {  // (16 * i + x) % 16 = x % 16
      for (size_t i = 0; i < quotient.count; ++i) {
        if (!qn__fold_can_drop(fold, quotient.terms[i].atom)) return NULL;
      }
      qn__ir_range_t sum = qn__terms_range(&rest);
      if (!qn__range_is_full(dtype, sum)) {
        return binary(fold, QN_OP_FLOORMOD, qn__terms_build(fold->arena, &rest), expr->args[1]);
      }
    }
  }
  int64_t log;
  if (is_power_of_two(divisor, &log)) {
    if (wants_rest) return binary(fold, QN_OP_AND, a, integer(fold, dtype, divisor - 1));
    return binary(fold, QN_OP_SHR, a, integer(fold, dtype, log));
  }
  if (!truncates && range.min >= 0) {
    return binary(fold, wants_rest ? QN_OP_TRUNCMOD : QN_OP_TRUNCDIV, a, expr->args[1]);
  }
  return NULL;
}

static qn__ir_expr_t* fold_bits(qn__fold_t* fold, const qn__ir_expr_t* expr) {
  qn__ir_expr_t* a = expr->args[0];
  qn__ir_expr_t* b = expr->args[1];
  if (b->kind != QN__EXPR_INT) return NULL;
  bool is_zero = b->int_value == 0;
  bool is_ones = b->int_value == qn__wrap_int(expr->dtype, -1);
  switch (expr->op) {
    case QN_OP_AND:
      if (is_zero) return drop(fold, a, b);
      return is_ones ? a : NULL;
    case QN_OP_OR:
      if (is_ones) return drop(fold, a, b);
      return is_zero ? a : NULL;
    case QN_OP_XOR:
    case QN_OP_SHL:
    case QN_OP_SHR:
      return is_zero ? a : NULL;
    default:
      return NULL;
  }
}

qn__ir_expr_t* qn__fold_integer(qn__fold_t* fold, qn__ir_expr_t* expr) {
  switch (expr->op) {
    case QN_OP_ADD:
    case QN_OP_SUB:
    case QN_OP_NEG:
    case QN_OP_MUL:
      return fold_sum(fold, expr);
    case QN_OP_FLOORDIV:
    case QN_OP_FLOORMOD:
    case QN_OP_TRUNCDIV:
    case QN_OP_TRUNCMOD:
      return fold_division(fold, expr);
    case QN_OP_CEILDIV:
      return qn__expr_is_int(expr->args[1], 1) ? expr->args[0] : NULL;
    case QN_OP_MIN:
    case QN_OP_MAX: {
      if (expr->dtype == QN_DTYPE_U64) return NULL;
      qn__ir_range_t a = qn__range_of(expr->args[0]);
      qn__ir_range_t b = qn__range_of(expr->args[1]);
      bool is_min = expr->op == QN_OP_MIN;
      bool is_first_less = a.max <= b.min;
      if (!is_first_less && b.max > a.min) return NULL;
      bool takes_first = is_min == is_first_less;
      return drop(fold, expr->args[takes_first ? 1 : 0], expr->args[takes_first ? 0 : 1]);
    }
    case QN_OP_ABS:
      return expr->dtype != QN_DTYPE_U64 && qn__range_of(expr->args[0]).min >= 0 ? expr->args[0]
                                                                                 : NULL;
    case QN_OP_AND:
    case QN_OP_OR:
    case QN_OP_XOR:
    case QN_OP_SHL:
    case QN_OP_SHR:
      return fold_bits(fold, expr);
    default:
      return NULL;
  }
}

// ---- comparisons

static bool is_below_end(const qn__ir_expr_t* var, const qn__ir_expr_t* end) {
  if (var->kind != QN__EXPR_VAR || !var->var->user) return false;
  const qn__ir_var_facts_t* facts = var->var->user;
  return facts->below && qn__expr_equal(facts->below, end);
}

// Decides a comparison: -1: false, 1: true, 0: unknown.
static int decide(qn_op_t op, qn__ir_expr_t* left, qn__ir_expr_t* right) {
  qn__ir_range_t a = qn__range_of(left);
  qn__ir_range_t b = qn__range_of(right);
  switch (op) {
    case QN_OP_LT:
      if (a.max < b.min || is_below_end(left, right)) return 1;
      return a.min >= b.max ? -1 : 0;
    case QN_OP_LE:
      if (a.max <= b.min || is_below_end(left, right)) return 1;
      return a.min > b.max ? -1 : 0;
    case QN_OP_GT:
      return decide(QN_OP_LT, right, left);
    case QN_OP_GE:
      return decide(QN_OP_LE, right, left);
    case QN_OP_EQ:
      if (a.min == a.max && b.min == b.max && a.min == b.min) return 1;
      return a.max < b.min || b.max < a.min || is_below_end(left, right) ? -1 : 0;
    case QN_OP_NE:
      return -decide(QN_OP_EQ, left, right);
    default:
      return 0;
  }
}

qn__ir_expr_t* qn__fold_comparison(qn__fold_t* fold, qn__ir_expr_t* expr) {
  qn__ir_expr_t* a = expr->args[0];
  if (!qn__dtype_is_int(a->dtype) || a->dtype == QN_DTYPE_U64) return NULL;
  int decision = decide(expr->op, a, expr->args[1]);
  if (decision == 0) return NULL;
  return drop(fold, expr, integer(fold, QN_DTYPE_BOOL, decision > 0));
}
