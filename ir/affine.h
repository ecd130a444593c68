// ir/affine.h: index expressions as sums: constant + coefficient * atom + ... An atom is a variable
// or an expression that is no sum.
//
// Not here: the dependence of atoms on loops (verify_race.c). Thread rule: pure. Read next:
// affine.c.
#ifndef QUERN_IR_AFFINE_H_
#define QUERN_IR_AFFINE_H_

#include "ir/ir.h"

enum { QN__AFFINE_TERMS = 8 };

typedef struct qn__affine {
  bool is_valid;  // false: overflow, or too many atoms
  int64_t constant;
  uint32_t count;
  struct {
    const qn__ir_expr_t* atom;  // VAR, or any other expression
    int64_t coefficient;        // never 0
  } terms[QN__AFFINE_TERMS];
} qn__affine_t;

// What a variable stands for (the value of a let), or NULL for itself. May be NULL.
typedef struct qn__affine_lets {
  const qn__affine_t* (*value_of)(const struct qn__affine_lets* lets, const qn__ir_var_t* var);
  void* self;
} qn__affine_lets_t;

qn__affine_t qn__affine_of(const qn__ir_expr_t* expr, const qn__affine_lets_t* lets);
// a + scale * b.
qn__affine_t qn__affine_add(const qn__affine_t* a, const qn__affine_t* b, int64_t scale);
// The coefficient of a variable.
int64_t qn__affine_coefficient(const qn__affine_t* affine, const qn__ir_var_t* var);
static inline bool qn__affine_is_constant(const qn__affine_t* affine) {
  return affine->is_valid && affine->count == 0;
}

#endif  // QUERN_IR_AFFINE_H_
