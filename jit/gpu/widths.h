// jit/gpu/widths.h: which variables and expressions of a kernel are narrow: what narrow.c fills in
// while it looks at a kernel. Printers ask through program.h.
//
// Thread rule: one thread per kernel fills in; then it is read only. Read next: widths.c.
#ifndef QUERN_JIT_GPU_WIDTHS_H_
#define QUERN_JIT_GPU_WIDTHS_H_

#include "jit/gpu/program.h"

struct qn__gpu_widths {
  // A hash set of expressions, of a power of two of places.
  const qn__ir_expr_t** places;
  size_t capacity;
  size_t count;
  uint32_t var_count;
  bool* vars;  // by id
};

// Makes `expr` narrow. False without memory.
bool qn__gpu_widths_add(qn__gpu_widths_t* widths, qn__arena_t* arena, const qn__ir_expr_t* expr);

#endif  // QUERN_JIT_GPU_WIDTHS_H_
