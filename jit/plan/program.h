// SPDX-License-Identifier: Apache-2.0
// jit/plan/program.h: a module after the passes, split into steps of the host and kernels. Both GPU
// code generators use it; program.c offers it to those of others (quern/gpu.h).
//
// A generator goes through these stages:
//
//   qn__gpu_lower       passes, split into steps and kernels, widths of integers
//   qn__print_kernels   the text of the kernels in its language (print.h)
//   its compiler        code; the generator enters its place in the kernels' plans
//   qn__gpu_artifact    encodes the plan (devices/gpu/plan.h)
//
// Thread rule: one thread at a time for each program. Read next: lower.c, split.c, launch.c,
// narrow.c, then print.h.
#ifndef QUERN_JIT_PLAN_PROGRAM_H_
#define QUERN_JIT_PLAN_PROGRAM_H_

#include "devices/gpu/plan.h"
#include "ir/ir.h"
#include "ir/passes/passes.h"
#include "target/target.h"

typedef struct qn__gpu_lower_options {
  qn__pass_options_t passes;
  // 0: a kernel with 32-bit indices, and a wide one for the calls that need it. 32: only the
  // former; calls beyond 32 bits are refused. 64: only the wide one.
  uint32_t index_bits;
  // Names of the entry points: "FUNCTION_0", "FUNCTION_1", ... if true, else all "main".
  bool has_names;
} qn__gpu_lower_options_t;

// The i64 variables and expressions of a kernel that are printed in 32 bits. narrow.c computes the
// set, and the printer reads it.
typedef struct qn__gpu_widths qn__gpu_widths_t;

typedef struct qn__gpu_kernel_ir {
  qn__gpu_kernel_t*
      plan;  // name, arguments and threads are filled in; code and shared by the generator
  const qn_gpu_operand_t* nodes;  // as many as plan->arg_count
  qn__ir_func_t* function;
  qn__ir_stmt_t* root;  // the outermost BLOCK_* loop
  bool is_narrow;
  const qn__gpu_widths_t* widths;
  // Has the list of sites, to which the printer appends those of the kernel (qn__gpu_site).
  struct qn__gpu_function_ir* owner;
} qn__gpu_kernel_ir_t;

typedef struct qn__gpu_function_ir {
  qn__ir_func_t* function;
  qn__gpu_function_t* plan;
  uint32_t launch_count;
  bool has_record;  // an operation in it can fail on the device
  uint32_t site_count;
  uint32_t site_capacity;
  qn_artifact_site_t* sites;
} qn__gpu_function_ir_t;

typedef struct qn__gpu_program {
  qn__arena_t* arena;
  qn__ir_body_t* body;
  bool is_checked;
  qn__gpu_plan_t plan;
  uint32_t function_count;
  qn__gpu_function_ir_t* functions;
  uint32_t kernel_count;
  qn__gpu_kernel_ir_t* kernels;  // in the order of plan.kernels
} qn__gpu_program_t;

// Makes a program of a decoded and verified body: runs the passes, splits, and finds the widths.
// Rewrites the body, which is borrowed until the end of the program. Errors: UNSUPPORTED names the
// function and the construct; OUT_OF_MEMORY.
qn_status_t qn__gpu_lower(qn__ir_body_t* body, const qn__gpu_lower_options_t* options,
                          qn__arena_t* arena, qn__gpu_program_t* out_program);

// Does so for a body after the passes, which it only reads.
qn_status_t qn__gpu_split(qn__ir_body_t* body, const qn__gpu_lower_options_t* options,
                          qn__arena_t* arena, qn__gpu_program_t* out_program);

// Adds a site to a function and returns its index; an equal site gets the same index. Returns
// QN__GPU_NO_SITE if memory ran out.
uint32_t qn__gpu_site(qn__gpu_program_t* program, qn__gpu_function_ir_t* function,
                      qn_artifact_site_t site);

// Return whether an i64 variable or expression of the kernel is printed in 32 bits. Such an
// expression is computed in 32-bit arithmetic, and wider operands are cut. While the step's guard
// holds, the result has these properties:
//
//  1. It has the low 32 bits of the true value.
//  2. It is the true value where more than the low bits count: in comparisons, divisions,
//     conversions, stores, bounds of loops, and operands of 64-bit operators.
bool qn__gpu_is_narrow_var(const qn__gpu_widths_t* widths, const qn__ir_var_t* var);
bool qn__gpu_is_narrow_expr(const qn__gpu_widths_t* widths, const qn__ir_expr_t* expr);
// Returns whether the low 32 bits of the result depend only on the low 32 bits of the operands (for
// SHL, of the first one). `expr` is an operator on integers.
bool qn__gpu_is_low_bits_op(const qn__ir_expr_t* expr);

// Makes the artifact of a finished program: functions, sites and the encoded plan, all copied.
// `payload` is consumed on success. `isa` is copied.
qn_status_t qn__gpu_artifact(const qn__gpu_program_t* program, const char* format, const char* isa,
                             qn__buffer_t* payload, qn_allocator_t allocator,
                             qn_artifact_t** out_artifact);

#endif  // QUERN_JIT_PLAN_PROGRAM_H_
