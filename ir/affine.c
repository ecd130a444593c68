// SPDX-License-Identifier: Apache-2.0
// ir/affine.c: see affine.h.
//
// Arithmetic of the language wraps around at 64 bits; a sum here never does. Where a constant or a
// coefficient would overflow, or there are more than QN__AFFINE_TERMS atoms, the sum is marked
// invalid, and callers treat the index as unknown.
#include "ir/affine.h"

#include <assert.h>

static bool same_atom(const qn__ir_expr_t* a, const qn__ir_expr_t* b) {
  if (a->kind == QN__EXPR_VAR && b->kind == QN__EXPR_VAR) return a->var == b->var;
  return qn__expr_equal(a, b);
}

bool qn__affine_check(const qn__ir_affine_t* sum) {
  if (!sum->is_valid) return true;
  if (QN_NEVER(sum->count > QN__AFFINE_TERMS)) return false;
  for (uint32_t i = 0; i < sum->count; i++) {
    if (QN_NEVER(sum->terms[i].coefficient == 0)) return false;
    for (uint32_t k = 0; k < i; k++) {
      if (QN_NEVER(same_atom(sum->terms[i].atom, sum->terms[k].atom))) return false;
    }
  }
  return true;
}

// Adds coefficient * atom. Terms with one atom are merged, and a term that becomes 0 is removed: so
// `i - i` has no terms, and equal sums compare as equal.
static void add_term(qn__ir_affine_t* sum, const qn__ir_expr_t* atom, int64_t coefficient) {
  for (uint32_t i = 0; i < sum->count; i++) {
    if (!same_atom(sum->terms[i].atom, atom)) continue;
    if (__builtin_add_overflow(sum->terms[i].coefficient, coefficient,
                               &sum->terms[i].coefficient)) {
      sum->is_valid = false;
    } else if (sum->terms[i].coefficient == 0) {
      sum->terms[i] = sum->terms[--sum->count];
    }
    return;
  }
  if (sum->count == QN__AFFINE_TERMS) {
    sum->is_valid = false;
    return;
  }
  sum->terms[sum->count].atom = atom;
  sum->terms[sum->count].coefficient = coefficient;
  sum->count++;
}

qn__ir_affine_t qn__affine_add(const qn__ir_affine_t* a, const qn__ir_affine_t* b, int64_t scale) {
  qn__ir_affine_t sum = *a;
  int64_t product;
  sum.is_valid = a->is_valid && b->is_valid &&
                 !__builtin_mul_overflow(b->constant, scale, &product) &&
                 !__builtin_add_overflow(sum.constant, product, &sum.constant);
  for (uint32_t i = 0; scale != 0 && sum.is_valid && i < b->count; i++) {
    if (__builtin_mul_overflow(b->terms[i].coefficient, scale, &product)) {
      sum.is_valid = false;
    } else {
      add_term(&sum, b->terms[i].atom, product);
    }
  }
  assert(qn__affine_check(&sum));
  return sum;
}

static qn__ir_affine_t constant_of(int64_t value) {
  return (qn__ir_affine_t){.is_valid = true, .constant = value};
}

static qn__ir_affine_t atom_of(const qn__ir_expr_t* expr) {
  qn__ir_affine_t sum = constant_of(0);
  add_term(&sum, expr, 1);
  return sum;
}

// A product is linear only if one side is a constant sum; any other product is an atom of its own.
qn__ir_affine_t qn__affine_of(const qn__ir_expr_t* expr, const qn__ir_affine_lets_t* lets) {
  if (expr->kind == QN__EXPR_INT) return constant_of(expr->int_value);
  if (expr->kind == QN__EXPR_VAR) {
    const qn__ir_affine_t* value = lets ? lets->value_of(lets, expr->var) : NULL;
    return value ? *value : atom_of(expr);
  }
  if (expr->kind != QN__EXPR_OP || expr->dtype != QN_DTYPE_I64) return atom_of(expr);
  qn__ir_affine_t zero = constant_of(0);
  switch (expr->op) {
    case QN_OP_ADD:
    case QN_OP_SUB: {
      qn__ir_affine_t a = qn__affine_of(expr->args[0], lets);
      qn__ir_affine_t b = qn__affine_of(expr->args[1], lets);
      return qn__affine_add(&a, &b, expr->op == QN_OP_ADD ? 1 : -1);
    }
    case QN_OP_NEG: {
      qn__ir_affine_t a = qn__affine_of(expr->args[0], lets);
      return qn__affine_add(&zero, &a, -1);
    }
    case QN_OP_MUL: {
      qn__ir_affine_t a = qn__affine_of(expr->args[0], lets);
      qn__ir_affine_t b = qn__affine_of(expr->args[1], lets);
      if (qn__affine_is_constant(&a)) return qn__affine_add(&zero, &b, a.constant);
      if (qn__affine_is_constant(&b)) return qn__affine_add(&zero, &a, b.constant);
      return atom_of(expr);
    }
    default: {
      qn__ir_scalar_t value;
      if (qn__expr_fold(expr, &value)) return constant_of(value.i);
      return atom_of(expr);
    }
  }
}

int64_t qn__affine_coefficient(const qn__ir_affine_t* affine, const qn__ir_var_t* var) {
  for (uint32_t i = 0; i < affine->count; i++) {
    const qn__ir_expr_t* atom = affine->terms[i].atom;
    if (atom->kind == QN__EXPR_VAR && atom->var == var) return affine->terms[i].coefficient;
  }
  return 0;
}
