// jit/gpu/print_wide.h: the runs of elements that the lanes of a loop reach, found by
// print_wide_find.c and moved by print_wide.c.
//
// Thread rule: one thread per printer. Read next: print_wide.c.
#ifndef QUERN_JIT_GPU_PRINT_WIDE_H_
#define QUERN_JIT_GPU_PRINT_WIDE_H_

#include "jit/gpu/print_inner.h"

enum { QN__KWIDE_RUNS = 12, QN__KWIDE_LANES = 16 };  // at most

typedef struct qn__krun {
  const qn__ir_buffer_t* buffer;
  qn__ir_expr_t* const* indices;
  const qn__ir_buffer_t* root;
  const char* pointer;
  const char* values;
  bool is_loaded;  // before the first lane
  bool is_stored;  // behind the last lane
  bool has_value;  // where the printer is: of the lane that runs
} qn__krun_t;

struct qn__kwide {
  uint32_t count;  // of lanes
  uint32_t run_count;
  qn__krun_t runs[QN__KWIDE_RUNS];
  const char* lane;     // name of the loop's variable
  const char* aligned;  // a bool
};

// The runs of a loop's body, or of a reduction's lets and value (NULL: of a loop), which is run for
// `var` from `first` to `last`. NULL: there is none; or there was no memory, which the printer has.
qn__kwide_t* qn__kwide_find(qn__kprint_t* p, qn__ir_var_t* var, const qn__ir_expr_t* first,
                            const qn__ir_expr_t* last, qn__ir_block_t* body,
                            const qn__ir_expr_t* value);
qn__krun_t* qn__kwide_run(qn__kwide_t* wide, const qn__ir_buffer_t* buffer,
                          qn__ir_expr_t* const* indices);

#endif  // QUERN_JIT_GPU_PRINT_WIDE_H_
