// SPDX-License-Identifier: Apache-2.0
// jit/plan/widths.h: the sets of narrow variables and expressions of a kernel. narrow.c fills them;
// printers read them through program.h.
#ifndef QUERN_JIT_PLAN_WIDTHS_H_
#define QUERN_JIT_PLAN_WIDTHS_H_

#include "jit/plan/program.h"

struct qn__gpu_widths {
  // A hash set of expressions by address; its capacity is a power of two.
  const qn__ir_expr_t** places;
  size_t capacity;
  size_t count;
  uint32_t var_count;
  bool* vars;  // by id
};

// Checks the hash set: each expression is found, at most half of the places are taken. For
// assertions and tests.
bool qn__gpu_widths_check(const qn__gpu_widths_t* widths);
// Adds an expression. Returns false if memory ran out.
bool qn__gpu_widths_add(qn__gpu_widths_t* widths, qn__arena_t* arena, const qn__ir_expr_t* expr);

#endif  // QUERN_JIT_PLAN_WIDTHS_H_
