// SPDX-License-Identifier: Apache-2.0
// jit/plan/split.h: the state of making a program, shared by lower.c, split.c, launch.c and
// narrow.c.
#ifndef QUERN_JIT_PLAN_SPLIT_H_
#define QUERN_JIT_PLAN_SPLIT_H_

#include "jit/plan/host.h"
#include "jit/plan/program.h"

// A kernel in a list. lower.c moves the list into arrays.
typedef struct qn__gpu_draft {
  qn__gpu_kernel_t plan;
  qn__gpu_kernel_ir_t ir;
  struct qn__gpu_draft* next;
} qn__gpu_draft_t;

// A function that is being split.
typedef struct qn__gpu_split {
  qn__gpu_program_t* program;
  const qn__gpu_lower_options_t* options;
  qn__arena_t* arena;
  qn__ir_func_t* function;
  qn__gpu_function_ir_t* ir;
  qn__gpu_host_t host;
  uint32_t* words;   // by var->id
  uint32_t* locals;  // by var->id
  uint32_t* slots;   // by buffer->id: the workspace of a GLOBAL buffer
  uint32_t* params;  // by buffer->id: the word of a parameter
  // By var->id: the value of a local of the host; for a loop's variable, the begin of the loop.
  const qn__ir_expr_t** values;
  uint32_t local_count;      // in use here; slots are reused after their block
  uint32_t workspace_count;  // in use here
  uint32_t step_capacity;
  qn__gpu_step_t* steps;
  qn__gpu_function_t* plan;  // counts grow
  uint32_t kernel_number;    // of this function, for names
  bool has_other_arm;        // the other arm of a choice takes the calls that need 64 bits
  // Fields of the program.
  qn__gpu_draft_t** last;
  uint32_t* kernel_count;
  qn_status_t status;  // sticky
} qn__gpu_split_t;

// Keep the first failure. Return false, so that callers can return the result.
bool qn__gpu_split_fail(qn__gpu_split_t* split, qn_status_t status);
// Fails with UNSUPPORTED "function 'f': MESSAGE".
bool qn__gpu_split_unsupported(qn__gpu_split_t* split, const char* format, ...) QN_PRINTF(2, 3);
// Adds a step, valid until the next one is added. NULL: out of memory.
qn__gpu_step_t* qn__gpu_split_step(qn__gpu_split_t* split, qn__gpu_step_kind_t kind);
bool qn__gpu_split_finish(qn__gpu_split_t* split, const qn__gpu_ops_t* ops, qn__gpu_expr_t* out);

// split.c: splits a function into steps and launches.
qn_status_t qn__gpu_split_function(qn__gpu_split_t* split);

// launch.c: adds the kernels and the step of a nest of BLOCK_* loops.
bool qn__gpu_split_launch(qn__gpu_split_t* split, qn__ir_stmt_t* root);

// narrow.c: finds the widths of a kernel with 32-bit indices; NULL: there can be no such kernel.
// `out_guard` is the condition under which it is right; without operations it always is. Returns
// false if memory ran out.
bool qn__gpu_narrow(qn__gpu_split_t* split, qn__ir_stmt_t* root,
                    const qn__gpu_widths_t** out_widths, qn__gpu_ops_t* out_guard);

#endif  // QUERN_JIT_PLAN_SPLIT_H_
