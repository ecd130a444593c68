// SPDX-License-Identifier: Apache-2.0
// ir/equation.h: gives symbols that stand alone in no shape their values: solves linear extents.
//
//   func f(x: f32[2 * th + 2], y: f32[n], z: f32[n - w])     th from x, n from y, then w from z
//
// A call gives the symbols of a function their values in this order:
//
// 1. A symbol alone as an extent or stride has the value of the first one.
// 2. Then an extent gives a symbol its value that is linear in it, by a constant coefficient, and
//    whose other variables all have values: each time the first such one in the order of the
//    parameters, until there is none. The value must be an integer of at least 0.
// 3. At last all extents and strides are compared with their expressions.
//
// So each equation has one unknown: two equations in two symbols give neither. Strides give nothing
// but a symbol alone, since that of a dimension of one element may be any number.
//
// Not here: the evaluation of expressions, which each caller has.
#ifndef QUERN_IR_EQUATION_H_
#define QUERN_IR_EQUATION_H_

#include "base/buffer.h"
#include "ir/ir.h"

// Parameters and symbols of a function that equations are found in: no call takes more (plan.h).
enum { QN__EQUATION_WORDS = 128 };

// An extent that gives a symbol its value.
typedef struct qn__ir_equation {
  const qn__ir_var_t* symbol;
  const qn__ir_expr_t* extent;  // of the function
  uint32_t param, dim;          // where the extent is
  int64_t coefficient;          // of the symbol, not 0
} qn__ir_equation_t;

// Returns the position of a variable among the words of a call: first the parameters, then the
// symbols. UINT32_MAX: it is neither.
uint32_t qn__word_of(const qn__ir_func_t* function, const qn__ir_var_t* var);
// Finds the first equation of rule 2. `is_known` says by word which scalars and symbols have
// values, and which buffers have extents. False: there is none.
bool qn__equation_find(const qn__ir_func_t* function, const bool* is_known,
                       qn__ir_equation_t* out_equation);
// Solves an equation. `rest` is what the expression of the extent gives where the symbol is 0.
// False: no value fits.
bool qn__equation_solve(const qn__ir_equation_t* equation, int64_t extent, int64_t rest,
                        int64_t* out_value);
// Writes why no value fits: "7 is 2 * th + 2 for no th; expected 6 or 8".
void qn__equation_explain(const qn__ir_equation_t* equation, int64_t extent, int64_t rest,
                          qn__buffer_t* out);

#endif  // QUERN_IR_EQUATION_H_
