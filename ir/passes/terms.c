// SPDX-License-Identifier: Apache-2.0
// ir/passes/terms.c: interval arithmetic and collection of terms.
//
// Integers wrap, therefore:
// 1. Terms are collected modulo the width of the dtype, which is exact.
// 2. Rules about order and division need a proof that nothing wraps.
// 3. Ranges are that proof: a bound beyond the dtype makes the range full, and no rule applies to a
//    full range.
// 4. A term that cancels may contain a load or a division, which checked builds must keep:
//    `has_dropped_load` and `has_dropped_division` say so.
#include "ir/passes/terms.h"

__extension__ typedef __int128 wide_t;  // sums and products of two i64

qn__ir_range_t qn__range_full(qn_dtype_t dtype) {
  if (dtype == QN_DTYPE_BOOL) return (qn__ir_range_t){0, 1};
  uint32_t bits = qn__dtype_bits(dtype);
  if (bits >= 64 || !qn__dtype_is_int(dtype)) return (qn__ir_range_t){INT64_MIN, INT64_MAX};
  int64_t span = (int64_t)1 << bits;
  if (qn__dtype_class(dtype) == QN__CLASS_UNSIGNED) return (qn__ir_range_t){0, span - 1};
  return (qn__ir_range_t){-(span / 2), span / 2 - 1};
}

static qn__ir_range_t within(qn_dtype_t dtype, wide_t min, wide_t max) {
  assert(min <= max);
  qn__ir_range_t full = qn__range_full(dtype);
  if (min < full.min || max > full.max) return full;
  return (qn__ir_range_t){(int64_t)min, (int64_t)max};
}

static qn__ir_range_t product(qn_dtype_t dtype, qn__ir_range_t a, qn__ir_range_t b) {
  wide_t corners[4] = {(wide_t)a.min * b.min, (wide_t)a.min * b.max, (wide_t)a.max * b.min,
                       (wide_t)a.max * b.max};
  wide_t min = corners[0], max = corners[0];
  for (int i = 1; i < 4; ++i) {
    if (corners[i] < min) min = corners[i];
    if (corners[i] > max) max = corners[i];
  }
  return within(dtype, min, max);
}

static int64_t floor_div(int64_t a, int64_t b) {
  int64_t quotient = a / b;
  return a % b < 0 ? quotient - 1 : quotient;
}

// Division by a positive divisor, rounded down or up.
static qn__ir_range_t quotient(qn__ir_range_t a, qn__ir_range_t b, bool is_up) {
  assert(b.min > 0 && b.min <= b.max);
  int64_t divisors[2] = {b.min, b.max};
  int64_t bounds[2] = {a.min, a.max};
  qn__ir_range_t range = {INT64_MAX, INT64_MIN};
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      int64_t value = floor_div(bounds[i], divisors[j]);
      if (is_up && bounds[i] % divisors[j] != 0) ++value;
      if (value < range.min) range.min = value;
      if (value > range.max) range.max = value;
    }
  }
  return range;
}

static qn__ir_range_t hull(qn__ir_range_t a, qn__ir_range_t b) {
  return (qn__ir_range_t){a.min < b.min ? a.min : b.min, a.max > b.max ? a.max : b.max};
}

static qn__ir_range_t range_of_op(const qn__ir_expr_t* expr) {
  qn_dtype_t dtype = expr->dtype;
  qn__ir_range_t full = qn__range_full(dtype);
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  if (!qn__dtype_is_int(dtype) || !expr->args[0]) return full;
  if (expr->op == QN_OP_SELECT) {
    qn__ir_range_t a = qn__range_of(expr->args[1]);
    qn__ir_range_t b = qn__range_of(expr->args[2]);
    return hull(a, b);
  }
  if (info->rule != QN__RULE_NUMERIC && info->rule != QN__RULE_INTEGER &&
      info->rule != QN__RULE_BITWISE && info->rule != QN__RULE_SHIFT) {
    return full;
  }
  qn__ir_range_t a = qn__range_of(expr->args[0]);
  qn__ir_range_t b = expr->args[1] ? qn__range_of(expr->args[1]) : (qn__ir_range_t){0, 0};
  switch (expr->op) {
    case QN_OP_ADD:
      return within(dtype, (wide_t)a.min + b.min, (wide_t)a.max + b.max);
    case QN_OP_SUB:
      return within(dtype, (wide_t)a.min - b.max, (wide_t)a.max - b.min);
    case QN_OP_NEG:
      return within(dtype, -(wide_t)a.max, -(wide_t)a.min);
    case QN_OP_MUL:
      return product(dtype, a, b);
    case QN_OP_MIN:
      return (qn__ir_range_t){a.min < b.min ? a.min : b.min, a.max < b.max ? a.max : b.max};
    case QN_OP_MAX:
      return (qn__ir_range_t){a.min > b.min ? a.min : b.min, a.max > b.max ? a.max : b.max};
    case QN_OP_ABS:
      if (a.min >= 0) return a;
      if (a.min == full.min) return full;
      return (qn__ir_range_t){0, -a.min > a.max ? -a.min : a.max};
    case QN_OP_FLOORDIV:
      return b.min > 0 ? quotient(a, b, false) : full;
    case QN_OP_CEILDIV:
      return b.min > 0 ? quotient(a, b, true) : full;
    case QN_OP_TRUNCDIV:
      return b.min > 0 && a.min >= 0 ? quotient(a, b, false) : full;
    case QN_OP_FLOORMOD:
      if (b.min <= 0) return full;
      if (a.min >= 0 && a.max < b.min) return a;
      return (qn__ir_range_t){0, b.max - 1};
    case QN_OP_TRUNCMOD:
      if (b.min <= 0 || a.min < 0) return full;
      return (qn__ir_range_t){0, a.max < b.max - 1 ? a.max : b.max - 1};
    case QN_OP_AND:
      if (b.min >= 0) return (qn__ir_range_t){0, b.max};
      return a.min >= 0 ? (qn__ir_range_t){0, a.max} : full;
    case QN_OP_SHR:
      if (b.min == b.max && b.min >= 0 && b.min < qn__dtype_bits(dtype)) {
        return (qn__ir_range_t){a.min >> b.min, a.max >> b.min};
      }
      return full;
    case QN_OP_POPCOUNT:
    case QN_OP_CLZ:
    case QN_OP_CTZ:
      return (qn__ir_range_t){0, qn__dtype_bits(dtype)};
    default:
      return full;
  }
}

qn__ir_range_t qn__range_of(const qn__ir_expr_t* expr) {
  qn__ir_range_t full = qn__range_full(expr->dtype);
  if (expr->dtype == QN_DTYPE_U64) return full;
  switch (expr->kind) {
    case QN__EXPR_INT:
      return (qn__ir_range_t){expr->int_value, expr->int_value};
    case QN__EXPR_VAR: {
      const qn__ir_var_facts_t* facts = expr->var->user;
      return facts ? facts->range : full;
    }
    case QN__EXPR_OP:
      return range_of_op(expr);
    case QN__EXPR_COND: {
      qn__ir_range_t a = qn__range_of(expr->args[1]);
      qn__ir_range_t b = qn__range_of(expr->args[2]);
      return hull(a, b);
    }
    case QN__EXPR_CAST: {
      qn_dtype_t from = expr->args[0]->dtype;
      if (!qn__dtype_is_int(expr->dtype) || qn__dtype_is_real(from) || from == QN_DTYPE_U64) {
        return full;
      }
      qn__ir_range_t range = qn__range_of(expr->args[0]);
      return range.min >= full.min && range.max <= full.max ? range : full;
    }
    default:
      return full;
  }
}

// ---- terms

static void note_dropped(qn__terms_t* affine, qn__ir_expr_t* atom) {
  qn__ir_expr_facts_t facts = qn__expr_facts(atom);
  if (facts.has_load || facts.has_cross_lane) affine->has_dropped_load = true;
  if (facts.has_division) affine->has_dropped_division = true;
}

static int64_t wrap_mul(qn_dtype_t dtype, int64_t a, int64_t b) {
  return qn__wrap_int(dtype, (int64_t)((uint64_t)a * (uint64_t)b));
}
static int64_t wrap_add(qn_dtype_t dtype, int64_t a, int64_t b) {
  return qn__wrap_int(dtype, (int64_t)((uint64_t)a + (uint64_t)b));
}

static bool collect(qn__terms_t* affine, qn__ir_expr_t* expr, int64_t factor) {
  qn_dtype_t dtype = affine->dtype;
  if (factor == 0) {
    note_dropped(affine, expr);
    return true;
  }
  if (expr->kind == QN__EXPR_INT) {
    affine->constant = wrap_add(dtype, affine->constant, wrap_mul(dtype, factor, expr->int_value));
    return true;
  }
  if (expr->kind == QN__EXPR_OP) {
    switch (expr->op) {
      case QN_OP_ADD:
        return collect(affine, expr->args[0], factor) && collect(affine, expr->args[1], factor);
      case QN_OP_SUB:
        return collect(affine, expr->args[0], factor) &&
               collect(affine, expr->args[1], wrap_mul(dtype, factor, -1));
      case QN_OP_NEG:
        return collect(affine, expr->args[0], wrap_mul(dtype, factor, -1));
      case QN_OP_MUL:
        if (expr->args[1]->kind == QN__EXPR_INT) {
          return collect(affine, expr->args[0], wrap_mul(dtype, factor, expr->args[1]->int_value));
        }
        if (expr->args[0]->kind == QN__EXPR_INT) {
          return collect(affine, expr->args[1], wrap_mul(dtype, factor, expr->args[0]->int_value));
        }
        break;
      default:
        break;
    }
  }
  for (size_t i = 0; i < affine->count; ++i) {
    if (!qn__expr_equal(affine->terms[i].atom, expr)) continue;
    affine->terms[i].factor = wrap_add(dtype, affine->terms[i].factor, factor);
    return true;
  }
  assert(affine->count <= qn__terms_max && factor != 0);
  if (affine->count == qn__terms_max) return false;
  affine->terms[affine->count].atom = expr;
  affine->terms[affine->count].factor = factor;
  ++affine->count;
  return true;
}

bool qn__terms_of(qn__ir_expr_t* expr, qn__terms_t* out_affine) {
  *out_affine = (qn__terms_t){.dtype = expr->dtype};
  if (!collect(out_affine, expr, 1)) return false;
  size_t kept = 0;
  for (size_t i = 0; i < out_affine->count; ++i) {
    if (out_affine->terms[i].factor == 0) {
      note_dropped(out_affine, out_affine->terms[i].atom);
    } else {
      out_affine->terms[kept++] = out_affine->terms[i];
    }
  }
  out_affine->count = kept;
  return true;
}

static bool is_minus(qn_dtype_t dtype, int64_t factor) {
  return factor < 0 && factor > qn__range_full(dtype).min &&
         qn__dtype_class(dtype) == QN__CLASS_SIGNED;
}

size_t qn__terms_size(const qn__terms_t* affine) {
  size_t size = 0;
  for (size_t i = 0; i < affine->count; ++i) {
    int64_t factor = affine->terms[i].factor;
    size += factor == 1 || factor == -1 ? 2 : 4;
  }
  if (affine->constant != 0 || affine->count == 0) size += 2;
  return size - 1;
}

size_t qn__terms_size_of(const qn__ir_expr_t* expr) {
  if (expr->kind != QN__EXPR_OP) return 1;
  bool is_scaled = expr->op == QN_OP_MUL &&
                   (expr->args[0]->kind == QN__EXPR_INT || expr->args[1]->kind == QN__EXPR_INT);
  bool is_sum = expr->op == QN_OP_ADD || expr->op == QN_OP_SUB || expr->op == QN_OP_NEG;
  if (!is_scaled && !is_sum) return 1;
  size_t first = qn__terms_size_of(expr->args[0]);
  return 1 + first + (expr->args[1] ? qn__terms_size_of(expr->args[1]) : 0);
}

qn__ir_expr_t* qn__terms_build(qn__arena_t* arena, const qn__terms_t* affine) {
  qn__ir_expr_t* sum = NULL;
  // Terms to add first, so that the sum does not begin with a negation.
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t i = 0; i < affine->count; ++i) {
      int64_t factor = affine->terms[i].factor;
      assert(factor != 0);
      bool is_subtracted = is_minus(affine->dtype, factor);
      if (is_subtracted != (pass == 1)) continue;
      if (is_subtracted) factor = -factor;
      qn__ir_expr_t* term = affine->terms[i].atom;
      if (factor != 1) {
        qn__ir_expr_t* literal = qn__expr_int(arena, affine->dtype, factor);
        if (!literal) return NULL;
        term = qn__expr_op(arena, QN_OP_MUL, term, literal, NULL);
      }
      if (!sum) {
        sum = is_subtracted ? qn__expr_op(arena, QN_OP_NEG, term, NULL, NULL) : term;
      } else {
        sum = qn__expr_op(arena, is_subtracted ? QN_OP_SUB : QN_OP_ADD, sum, term, NULL);
      }
      if (!sum) return NULL;
    }
  }
  if (!sum) return qn__expr_int(arena, affine->dtype, affine->constant);
  if (affine->constant == 0) return sum;
  bool is_subtracted = is_minus(affine->dtype, affine->constant);
  qn__ir_expr_t* literal =
      qn__expr_int(arena, affine->dtype, is_subtracted ? -affine->constant : affine->constant);
  if (!literal) return NULL;
  return qn__expr_op(arena, is_subtracted ? QN_OP_SUB : QN_OP_ADD, sum, literal, NULL);
}

qn__ir_range_t qn__terms_range(const qn__terms_t* affine) {
  qn__ir_range_t full = qn__range_full(affine->dtype);
  if (affine->dtype == QN_DTYPE_U64) return full;
  wide_t min = affine->constant, max = affine->constant;
  for (size_t i = 0; i < affine->count; ++i) {
    qn__ir_range_t atom = qn__range_of(affine->terms[i].atom);
    qn__ir_range_t factor = {affine->terms[i].factor, affine->terms[i].factor};
    qn__ir_range_t term = product(affine->dtype, atom, factor);
    if (qn__range_is_full(affine->dtype, term)) return full;
    min += term.min;
    max += term.max;
  }
  return within(affine->dtype, min, max);
}
