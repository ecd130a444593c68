// SPDX-License-Identifier: Apache-2.0
// jit/plan/host.h: expressions that the host evaluates at a call, as postfix (devices/gpu/plan.h).
//
// They consist of integer and bool operators, symbols, scalar parameters, and the lets and loop
// variables of the host, which have one local each. Floats and loads are not possible.
#ifndef QUERN_JIT_PLAN_HOST_H_
#define QUERN_JIT_PLAN_HOST_H_

#include "devices/gpu/plan.h"
#include "ir/ir.h"

// A growing list of postfix operations.
typedef struct qn__gpu_ops {
  qn__arena_t* arena;
  qn__gpu_op_t* items;
  uint32_t count;
  uint32_t capacity;
  uint32_t depth;      // of the stack after the last item
  uint32_t max_depth;  // the largest `depth` so far
  bool has_failed;     // sticky: out of memory
} qn__gpu_ops_t;

// Maps the variables of a function to the places of their values at a call. A variable that has
// QN__GPU_NO_PLACE in both tables is unknown to the host.
typedef struct qn__gpu_host {
  qn__arena_t* arena;
  const qn__ir_func_t* function;
  const uint32_t* words;   // by var->id: the word of a symbol or scalar parameter
  const uint32_t* locals;  // by var->id: the local of a let or loop variable
} qn__gpu_host_t;
#define QN__GPU_NO_PLACE UINT32_MAX

void qn__gpu_put_const(qn__gpu_ops_t* ops, int64_t value);
void qn__gpu_put_apply(qn__gpu_ops_t* ops, qn_op_t op);
// Appends a read of a variable that the host knows.
void qn__gpu_put_var(const qn__gpu_host_t* host, qn__gpu_ops_t* ops, const qn__ir_var_t* var);
// Appends an expression that the host knows; its value is extended to i64.
void qn__gpu_put_expr(const qn__gpu_host_t* host, qn__gpu_ops_t* ops, const qn__ir_expr_t* expr);
// Return whether the host can evaluate the variable or expression.
bool qn__gpu_host_knows_var(const qn__gpu_host_t* host, const qn__ir_var_t* var);
bool qn__gpu_host_knows(const qn__gpu_host_t* host, const qn__ir_expr_t* expr);
// Returns false if the expression needs too deep a stack for a plan, or if memory ran out
// (ops->has_failed).
bool qn__gpu_ops_finish(const qn__gpu_ops_t* ops, qn__gpu_expr_t* out);

#endif  // QUERN_JIT_PLAN_HOST_H_
