// jit/gpu/program.h: what both GPU code generators share between a mapped body and the compiler
// underneath: the host's steps, the kernels, and which integers are 32 bits wide.
//
// A generator calls qn__gpu_lower (decode, verify, passes, split, narrow), prints each kernel in
// its language (print.h), compiles, fills in where the code came to lie, and encodes the plan
// (devices/gpu/plan.h). Thread rule: one thread per program. Read next: lower.c, then print.h.
#ifndef QUERN_JIT_GPU_PROGRAM_H_
#define QUERN_JIT_GPU_PROGRAM_H_

#include "devices/gpu/plan.h"
#include "ir/ir.h"
#include "ir/passes/passes.h"
#include "target/target.h"

typedef struct qn__gpu_lower_options {
  qn__pass_options_t passes;
  // 0: a kernel with 32-bit indices and, where they might not suffice, a wide one beside it; 32:
  // only the first, calls beyond are refused; 64: only the wide one.
  uint32_t index_bits;
  // Entry names of kernels: "FUNCTION_0" ... if true, else all "main".
  bool has_names;
} qn__gpu_lower_options_t;

// What an argument of a kernel is in the IR. Exactly one is not NULL.
typedef struct qn__gpu_arg_node {
  qn__ir_buffer_t* buffer;  // a parameter, or a GLOBAL allocation
  qn__ir_var_t*
      var;  // a symbol, a scalar parameter, a let of the host, a loop variable of the host
} qn__gpu_arg_node_t;

// How wide an i64 variable or expression of a kernel is printed. Kept by the analysis of narrow.c;
// asked by the printer for i64 only.
typedef struct qn__gpu_widths qn__gpu_widths_t;

typedef struct qn__gpu_kernel_ir {
  qn__gpu_kernel_t*
      plan;  // name, arguments and threads are filled in; code and shared by the generator
  const qn__gpu_arg_node_t* nodes;  // as many as plan->arg_count
  qn__ir_func_t* function;
  qn__ir_stmt_t* root;  // the outermost BLOCK_* loop
  bool is_narrow;
  const qn__gpu_widths_t* widths;
  // Sites of the function: the printer appends the kernels' own (qn__gpu_site).
  struct qn__gpu_function_ir* owner;
} qn__gpu_kernel_ir_t;

typedef struct qn__gpu_function_ir {
  qn__ir_func_t* function;
  qn__gpu_function_t* plan;
  uint32_t launch_count;
  bool has_record;  // something in it can fail on the device
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

// Passes, split and narrow on a decoded, verified body (borrowed, rewritten; outlives the program).
// Errors: UNSUPPORTED names function and construct; OUT_OF_MEMORY.
qn_status_t qn__gpu_lower(qn__ir_body_t* body, const qn__gpu_lower_options_t* options,
                          qn__arena_t* arena, qn__gpu_program_t* out_program);

// Adds a site to a function; returns its index, the same for the same site. QN__GPU_NO_SITE without
// memory.
uint32_t qn__gpu_site(qn__gpu_program_t* program, qn__gpu_function_ir_t* function,
                      qn_artifact_site_t site);

// Is this i64 expression or variable of the kernel 32 bits wide? The rule that the analysis keeps:
// a narrow expression printed in 32-bit arithmetic of narrow operands (wider operands are cut) has
// the low 32 bits of the true value, and is the true value wherever it is compared, divided,
// converted, stored, passed to a wide operation or bounds a loop, as long as the step's guard
// holds.
bool qn__gpu_is_narrow_var(const qn__gpu_widths_t* widths, const qn__ir_var_t* var);
bool qn__gpu_is_narrow_expr(const qn__gpu_widths_t* widths, const qn__ir_expr_t* expr);
// Do the low bits of the operands (of SHL, the first) alone decide those of the result? `expr` is
// an operator on integers.
bool qn__gpu_is_low_bits_op(const qn__ir_expr_t* expr);

// The artifact of a finished program: functions, sites and the encoded plan, all copied. `payload`
// is consumed on success. `isa` is copied.
qn_status_t qn__gpu_artifact(const qn__gpu_program_t* program, const char* format, const char* isa,
                             qn__buffer_t* payload, qn_allocator_t allocator,
                             qn_artifact_t** out_artifact);

#endif  // QUERN_JIT_GPU_PROGRAM_H_
