// SPDX-License-Identifier: Apache-2.0
// ir/work.h: counts the operations and bytes of one call from its module, without running it.
//
// It walks the function once. The body of a loop is counted once and multiplied, unless what it
// runs depends on the loop's variable: then each iteration is counted. Conditions and extents may
// depend on symbols, scalars, loop variables, tables, and elements of `in` buffers that the host
// can read. Not here: what a compiler makes of the function; shapes of parameters (shapes.c,
// infer_shapes.c). Read next: work.c.
#ifndef QUERN_IR_WORK_H_
#define QUERN_IR_WORK_H_

#include "ir/equation.h"
#include "ir/ir.h"

// What is known of an expression that decides which code runs.
typedef struct qn__work_value {
  qn__ir_scalar_t scalar;
  bool is_known;
  uint64_t loops;  // bit d: the value depends on the variable of the loop at depth d; 63: or deeper
} qn__work_value_t;

// The contents of a buffer parameter.
typedef struct qn__work_buffer {
  const uint8_t* data;  // NULL: unknown
  int64_t shape[QN__LARGEST_RANK];
  int64_t strides[QN__LARGEST_RANK];
} qn__work_buffer_t;

typedef struct qn__work_scope {
  const qn__ir_func_t* function;
  qn__work_value_t* vars;            // by id
  const qn__work_buffer_t* buffers;  // by parameter; NULL: all unknown
  int64_t warp_size;                 // 0: unknown
} qn__work_scope_t;

// Evaluates an expression as far as it is known before the call (work_value.c).
qn__work_value_t qn__work_eval(const qn__work_scope_t* scope, const qn__ir_expr_t* expr);
// Gives a scalar parameter the value of an argument, converted to its dtype.
void qn__work_bind_scalar(const qn__work_scope_t* scope, const qn__ir_var_t* scalar,
                          const qn_value_t* arg);
// Gives the symbol of an equation its value, from an extent. False: no value fits, which
// `out_why` then says: "7 is 2 * th + 2 for no th; expected 6 or 8".
bool qn__work_solve(const qn__work_scope_t* scope, const qn__ir_equation_t* equation,
                    int64_t extent, qn__buffer_t* out_why);
// Returns whether an extent or stride is a symbol alone.
bool qn__work_is_symbol(const qn__ir_expr_t* expr);
// Gives a symbol its value from an extent or stride, unless it has one. Returns whether it did.
bool qn__work_bind_symbol(const qn__work_scope_t* scope, const qn__ir_expr_t* expr, int64_t value);

#endif  // QUERN_IR_WORK_H_
