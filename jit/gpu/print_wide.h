// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_wide.h: runs: consecutive elements that the iterations of a short loop access.
// print_wide_find.c finds them, print_wide.c prints the wide accesses.
#ifndef QUERN_JIT_GPU_PRINT_WIDE_H_
#define QUERN_JIT_GPU_PRINT_WIDE_H_

#include "jit/gpu/print_inner.h"

enum { QN__KWIDE_RUNS = 12, QN__KWIDE_LANES = 16 };  // at most

typedef struct qn__gpu_run {
  const qn__ir_buffer_t* buffer;
  qn__ir_expr_t* const* indices;
  const qn__ir_buffer_t* root;
  const char* pointer;
  const char* values;
  bool is_loaded;  // before the first lane
  bool is_stored;  // after the last lane
  bool has_value;  // at the current statement, the array has the lane's element
} qn__gpu_run_t;

struct qn__gpu_wide {
  uint32_t count;  // of lanes
  uint32_t run_count;
  qn__gpu_run_t runs[QN__KWIDE_RUNS];
  const char* lane;     // name of the loop's variable
  const char* aligned;  // a bool
};

// Finds the runs of a loop over `var` in [first, last), or of a reduction whose lets are `body` and
// whose value is `value` (NULL: a loop). `first` must be 0, and `last` a constant power of two of
// at most QN__KWIDE_LANES. Returns NULL if there are no runs. If memory ran out, returns NULL and
// sets the status.
qn__gpu_wide_t* qn__kwide_find(qn__gpu_printer_t* p, qn__ir_var_t* var, const qn__ir_expr_t* first,
                               const qn__ir_expr_t* last, qn__ir_block_t* body,
                               const qn__ir_expr_t* value);
qn__gpu_run_t* qn__kwide_run(qn__gpu_wide_t* wide, const qn__ir_buffer_t* buffer,
                             qn__ir_expr_t* const* indices);

#endif  // QUERN_JIT_GPU_PRINT_WIDE_H_
