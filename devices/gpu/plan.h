// SPDX-License-Identifier: Apache-2.0
// devices/gpu/plan.h: the launch plan of a GPU artifact: what the host does at a call of a
// function.
//
// A function becomes kernels and a short host program (evaluate, allocate workspace, launch, loop,
// test) over the words of the call. A code generator (jit/gpu) creates the plan and stores it,
// encoded, as the artifact's private metadata. A device decodes it on load and runs it at each call
// (quern/gpu.h, which says what steps and kernels mean to a device). The plan has everything that a
// launch of a kernel needs; the code is the artifact's payload.
//
// Expressions are postfix over i64. All arithmetic wraps as in the IR; evaluation also reports
// whether a step overflowed or divided by zero.
//
// Thread rule: immutable after decoding, except the launch caches. Read next: plan.c, run.c.
#ifndef QUERN_DEVICES_GPU_PLAN_H_
#define QUERN_DEVICES_GPU_PLAN_H_

#include "base/arena.h"
#include "base/buffer.h"
#include "base/reader.h"
#include "quern/gpu.h"
#include "quern/ir.h"

#define QN__GPU_PLAN_VERSION 2u
#define QN__GPU_NO_KERNEL UINT32_MAX
#define QN__GPU_NO_SITE UINT32_MAX
// Limits that decoding enforces, so that a run may use fixed arrays.
enum {
  QN__GPU_MAX_LOCALS = 256,
  QN__GPU_MAX_WORKSPACES = 64,
  QN__GPU_MAX_EXPR_DEPTH = 64,
  QN__GPU_MAX_STEP_DEPTH = 64,
};

typedef enum qn__gpu_op_kind {
  QN__GPU_CONST = 1,  // pushes `value`
  QN__GPU_WORD,       // pushes word `value` of the call, extended from `dtype` (integer or bool)
  QN__GPU_LOCAL,      // pushes local `value`
  QN__GPU_APPLY,      // applies `op` to its operands, as i64 (comparisons give 0 or 1)
  QN__GPU_WRAP,       // wraps the top to `dtype` (integer or bool)
} qn__gpu_op_kind_t;
typedef struct qn__gpu_op {
  qn__gpu_op_kind_t kind;
  qn_op_t op;
  qn_dtype_t dtype;
  int64_t value;
} qn__gpu_op_t;
typedef struct qn__gpu_expr {
  uint32_t op_count;  // 0: no expression
  const qn__gpu_op_t* ops;
} qn__gpu_expr_t;

typedef struct qn__gpu_kernel {
  const char* name;  // its symbol in a cubin; "main" in SPIR-V; unique in the artifact for CUDA
  // The code in the payload. CUDA: the cubin, the same for all kernels.
  uint64_t code_offset;
  uint64_t code_size_bytes;
  // Threads of a block; 0: at each launch by the step's `threads` (SPIR-V: specialisation constant
  // 0 is the local size in x).
  uint32_t thread_count;
  uint32_t shared_bytes;          // static, as the code declares it
  uint32_t dynamic_shared_bytes;  // CUDA: `extern __shared__`
  // The kernel or its function has sites: it takes the error record (a buffer
  // after the buffers of `args`, see qn_gpu_record_t) and, after the scalars, a 32-bit tag.
  bool has_record;
  uint32_t arg_count;
  const qn_gpu_arg_t* args;
  // Set by decoding.
  uint32_t buffer_count;  // BUFFER and WORKSPACE arguments
  bool takes_words_only;  // every argument is a BUFFER or a WORD
  bool is_first_choice;   // a launch uses it unless it needs its wide kernel
} qn__gpu_kernel_t;

typedef struct qn__gpu_launch_cache qn__gpu_launch_cache_t;

typedef enum qn__gpu_step_kind {
  QN__GPU_STEP_LET = 1,    // local `slot` = a
  QN__GPU_STEP_WORKSPACE,  // workspace `slot` = a bytes; freed after the function's last step.
                           // Overflow, or less than 0: `site`, which reports b as the extent;
                           // no memory: `memory_site`
  QN__GPU_STEP_LOOP,       // for local `slot` from a to b (exclusive): the next `body_count` steps
  QN__GPU_STEP_IF,         // a, and the guard where there is one (not 0, no overflow): the next
                           // `body_count` steps, else the `else_count` steps after them
  QN__GPU_STEP_LAUNCH,     // a blocks of b threads (b only when the kernel's count is 0); a <= 0:
                           // nothing
  QN__GPU_STEP_ASSERT,  // !a: fails at `site`, at once; b, where it is there, is reported as extent
} qn__gpu_step_kind_t;
typedef struct qn__gpu_step {
  qn__gpu_step_kind_t kind;
  uint32_t slot;
  qn__gpu_expr_t a;
  qn__gpu_expr_t b;
  uint32_t body_count;
  uint32_t else_count;
  uint32_t site;
  uint32_t memory_site;
  // LAUNCH: without a guard, `kernel` runs. With one, `kernel` has 32-bit indices and runs if the
  // guard holds (not 0, no overflow), else `wide_kernel`; without that the call fails
  // (VALUE_ERROR). IF: the guard tells whether the body, which is faster and has 32-bit indices, is
  // valid. The other arm is always valid.
  uint32_t kernel;
  uint32_t wide_kernel;
  qn__gpu_expr_t guard;
  // LAUNCH and IF: earlier results (launch_cache.h); NULL: none. Created by decoding, not encoded.
  // The only part of a plan that changes.
  qn__gpu_launch_cache_t* cache;
} qn__gpu_step_t;

typedef struct qn__gpu_function {
  uint32_t word_count;   // parameters and symbols
  uint32_t param_count;  // words before the symbols
  uint32_t local_count;
  uint32_t workspace_count;
  uint32_t step_count;
  const qn__gpu_step_t* steps;
  bool has_record;  // set by decoding: one of its kernels has
} qn__gpu_function_t;

typedef struct qn__gpu_plan {
  uint32_t function_count;  // those of the artifact, in its order
  const qn__gpu_function_t* functions;
  uint32_t kernel_count;
  const qn__gpu_kernel_t* kernels;
} qn__gpu_plan_t;

// A plan that a device loaded (load.c).
struct qn_gpu_plan {
  qn__gpu_plan_t decoded;
  qn_gpu_runner_t runner;
  uint32_t max_threads;  // of a block: larger launches fail with a clear status
  qn__arena_t arena;     // of `decoded`
};

// Encodes a plan. A failure stays in `out`.
void qn__gpu_plan_encode(const qn__gpu_plan_t* plan, qn__buffer_t* out);
// Decodes a plan into `arena`. Any bytes are safe: it checks indices, slots, depths, counts, code
// ranges (within `payload_size`) and expressions. Errors: DATA_LOSS, OUT_OF_MEMORY.
qn_status_t qn__gpu_plan_decode(qn_span_t bytes, size_t payload_size, qn__arena_t* arena,
                                qn__gpu_plan_t* out_plan);
// Appends the steps of a function as text, a line each (plan_text.c). A failure stays in `out`.
void qn__gpu_plan_text(const qn__gpu_plan_t* plan, uint32_t function, qn__buffer_t* out);

// Returns the number of operands of an operator that expressions may apply; 0 for any other.
uint32_t qn__gpu_op_arity(qn_op_t op);
// Evaluates an expression. False if a step overflowed or divided by zero; the value is then
// the wrapped one (0 for a division).
bool qn__gpu_eval(const qn__gpu_expr_t* expr, const uint64_t* words, const int64_t* locals,
                  int64_t* out_value);
// Evaluates a number of blocks: false only if the number itself is wrong. Ignores overflows in an
// arm that is not chosen, in a factor that is multiplied by 0, and where the program wraps on
// purpose.
bool qn__gpu_eval_count(const qn__gpu_expr_t* expr, const uint64_t* words, const int64_t* locals,
                        int64_t* out_value);

#endif  // QUERN_DEVICES_GPU_PLAN_H_
