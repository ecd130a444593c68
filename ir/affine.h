// SPDX-License-Identifier: Apache-2.0
// ir/affine.h: index expressions as linear sums: constant + coefficient * atom + ...
//
// An atom is a variable, or an expression that is not a sum. `2 * i + x[j] - 3` has the constant -3
// and the terms 2 * i and 1 * x[j]. Two indices can then be subtracted, term by term, and their
// distance compared.
//
// Not here: the dependence of atoms on loops (verify_race.c).
#ifndef QUERN_IR_AFFINE_H_
#define QUERN_IR_AFFINE_H_

#include "ir/ir.h"

enum { QN__AFFINE_TERMS = 8 };

typedef struct qn__ir_affine {
  bool is_valid;  // false: overflow, or too many atoms
  int64_t constant;
  uint32_t count;
  struct {
    const qn__ir_expr_t* atom;  // VAR, or any other expression
    int64_t coefficient;        // never 0
  } terms[QN__AFFINE_TERMS];
} qn__ir_affine_t;

// Looks up lets: `value_of` returns the sum that a variable stands for, NULL for an atom.
typedef struct qn__ir_affine_lets {
  const qn__ir_affine_t* (*value_of)(const struct qn__ir_affine_lets* lets,
                                     const qn__ir_var_t* var);
  void* self;
} qn__ir_affine_lets_t;

// Checks what comparisons of sums rely on: no term is 0, and no two terms have one atom. For
// assertions and tests.
bool qn__affine_check(const qn__ir_affine_t* affine);
// Splits an i64 expression into a sum. `lets` may be NULL.
qn__ir_affine_t qn__affine_of(const qn__ir_expr_t* expr, const qn__ir_affine_lets_t* lets);
// Returns a + scale * b.
qn__ir_affine_t qn__affine_add(const qn__ir_affine_t* a, const qn__ir_affine_t* b, int64_t scale);
// Returns the coefficient of a variable, 0 if it has none.
int64_t qn__affine_coefficient(const qn__ir_affine_t* affine, const qn__ir_var_t* var);
static inline bool qn__affine_is_constant(const qn__ir_affine_t* affine) {
  return affine->is_valid && affine->count == 0;
}

#endif  // QUERN_IR_AFFINE_H_
