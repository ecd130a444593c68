// devices/gpu/plan.h: the launch plan of a GPU artifact: what the host does at a call of a
// function.
//
// A function becomes a short program of the host (evaluate, allocate workspace, launch, loop, test)
// over the words of the call, and kernels. A code generator (jit/gpu) makes it and stores it,
// encoded, as the artifact's private metadata; a device decodes it on load and runs it at each call
// (run.h). Everything a kernel needs at its launch is here; the code itself is the artifact's
// payload.
//
// Grids and blocks have one dimension: a kernel gets a count of blocks, which it reaches by
// striding (a device launches as many as it likes), and a count of threads. Kernels compute
// block.y, thread.z and the like themselves.
//
// Expressions are postfix over i64. All arithmetic wraps as in the IR; evaluation also reports
// whether any step overflowed or divided by zero. Thread rule: immutable once made,
// but for the caches. Read next: run.h.
#ifndef QUERN_DEVICES_GPU_PLAN_H_
#define QUERN_DEVICES_GPU_PLAN_H_

#include "base/arena.h"
#include "base/buffer.h"
#include "base/reader.h"
#include "quern/backend.h"
#include "quern/ir.h"

#define QN__GPU_PLAN_VERSION 2u
#define QN__GPU_NO_KERNEL UINT32_MAX
#define QN__GPU_NO_SITE UINT32_MAX
// Limits that decoding enforces, so that readers may use fixed arrays.
enum {
  QN__GPU_MAX_ARGS = 256,
  QN__GPU_MAX_LOCALS = 256,
  QN__GPU_MAX_WORKSPACES = 64,
  QN__GPU_MAX_EXPR_DEPTH = 64,
  QN__GPU_MAX_STEP_DEPTH = 64,
};

typedef enum qn__gpu_op_kind {
  QN__GPU_CONST = 1,  // pushes `value`
  QN__GPU_WORD,       // pushes word `value` of the call, extended from `dtype` (integer or bool)
  QN__GPU_LOCAL,      // pushes local `value`
  QN__GPU_APPLY,      // applies `op` to as many as its arity, as i64 (comparisons give 0 or 1)
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

typedef enum qn__gpu_arg_kind {
  QN__GPU_ARG_BUFFER = 1,  // the buffer behind word `index`
  QN__GPU_ARG_WORKSPACE,   // workspace `index`
  QN__GPU_ARG_WORD,        // the scalar of word `index`: the low bytes of the word
  QN__GPU_ARG_LOCAL,       // local `index`: its low bytes
} qn__gpu_arg_kind_t;
// One argument of a kernel, in the order of the kernel's parameters: first all buffers and
// workspaces, then all scalars.
typedef struct qn__gpu_arg {
  qn__gpu_arg_kind_t kind;
  uint32_t index;
  uint32_t size_bytes;  // BUFFER, WORKSPACE: of an element; WORD, LOCAL: 1, 2, 4 or 8
  bool is_written;      // BUFFER, WORKSPACE
} qn__gpu_arg_t;

typedef struct qn__gpu_kernel {
  const char* name;  // its symbol in a cubin; "main" in SPIR-V; unique in the artifact for CUDA
  // Where its code is in the payload. CUDA: the cubin, the same for all.
  uint64_t code_offset;
  uint64_t code_size_bytes;
  // Threads of a block; 0: at each launch by the step's `threads` (SPIR-V: specialisation constant
  // 0 is the local size in x).
  uint32_t thread_count;
  uint32_t shared_bytes;          // static, as the code declares it
  uint32_t dynamic_shared_bytes;  // CUDA: `extern __shared__`
  // The kernel has sites, or belongs to a function that does: it takes the error record (a buffer
  // behind the buffers of `args`, see qn__gpu_record_t) and, behind the scalars, a 32-bit tag.
  bool has_record;
  uint32_t arg_count;
  const qn__gpu_arg_t* args;
  // Of decoding, not stored: every argument is a BUFFER or a WORD, and so many are buffers.
  bool takes_words_only;
  uint32_t buffer_count;
} qn__gpu_kernel_t;

// The error record in device memory: the first thread that fails writes it. `tag` is swapped from
// 0 to the launch's tag (never 0) by an atomic; the rest is then written by that thread. A kernel
// that finds a tag when it begins does nothing, so that work behind a failed one is skipped.
typedef struct qn__gpu_record {
  uint32_t tag;
  uint32_t site;
  int64_t index;
  int64_t extent;
} qn__gpu_record_t;

typedef struct qn__gpu_launch_cache qn__gpu_launch_cache_t;

typedef enum qn__gpu_step_kind {
  QN__GPU_STEP_LET = 1,    // local `slot` = a
  QN__GPU_STEP_WORKSPACE,  // workspace `slot` = a bytes; freed behind the function's last step.
                           // Overflow, or less than 0: `site`, which reports b as the extent;
                           // none to be had: `memory_site`
  QN__GPU_STEP_LOOP,       // for local `slot` from a to b (exclusive): the next `body_count` steps
  QN__GPU_STEP_IF,         // a, and the guard where there is one (not 0, no overflow): the next
                           // `body_count` steps, else the `else_count` steps behind them
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
  // LAUNCH: `kernel` has 32-bit indices where `guard` is there: it runs if the guard holds (not 0,
  // no overflow), else `wide_kernel` does; without one the call is refused (VALUE_ERROR). No guard:
  // `kernel`. IF: where the body is better for some calls and has 32-bit indices, and the other
  // arm is right for any.
  uint32_t kernel;
  uint32_t wide_kernel;
  qn__gpu_expr_t guard;
  // LAUNCH and IF, of decoding, not stored: what it came to before (launch_cache.h); NULL: none.
  // The one part of a plan that changes.
  qn__gpu_launch_cache_t* cache;
} qn__gpu_step_t;

typedef struct qn__gpu_function {
  uint32_t word_count;   // parameters and symbols
  uint32_t param_count;  // words before the symbols
  uint32_t local_count;
  uint32_t workspace_count;
  uint32_t step_count;
  const qn__gpu_step_t* steps;
} qn__gpu_function_t;

typedef struct qn__gpu_plan {
  uint32_t function_count;  // as many as the artifact's, in its order
  const qn__gpu_function_t* functions;
  uint32_t kernel_count;
  const qn__gpu_kernel_t* kernels;
} qn__gpu_plan_t;

// Failure is sticky in `out`.
void qn__gpu_plan_encode(const qn__gpu_plan_t* plan, qn__buffer_t* out);
// Everything is copied into `arena`. Any bytes are safe: indices, slots, depths, counts, code
// ranges (within `payload_size`) and expressions are checked. Errors: DATA_LOSS, OUT_OF_MEMORY.
qn_status_t qn__gpu_plan_decode(qn_span_t bytes, size_t payload_size, qn__arena_t* arena,
                                qn__gpu_plan_t* out_plan);
// The plan of an artifact; it has as many functions.
qn_status_t qn__gpu_plan_of_artifact(const qn_artifact_t* artifact, qn__arena_t* arena,
                                     qn__gpu_plan_t* out_plan);

// Operands of an operator that expressions may apply; 0 for any other.
uint32_t qn__gpu_op_arity(qn_op_t op);
// The value of an expression. False when a step overflowed or divided by zero; the value is then
// the wrapped one (0 for a division).
bool qn__gpu_eval(const qn__gpu_expr_t* expr, const uint64_t* words, const int64_t* locals,
                  int64_t* out_value);
// The same for a count of blocks: false only where the count itself is not to be had. An arm that
// is not chosen, a factor beside 0, and what the program wraps on purpose are not held against it.
bool qn__gpu_eval_count(const qn__gpu_expr_t* expr, const uint64_t* words, const int64_t* locals,
                        int64_t* out_value);

// ---- the push constants of a Vulkan kernel, laid out in one way by generator and device

// In this order, each at the next multiple of its size: for each BUFFER and WORKSPACE argument,
// then for the record if there is one, a u32: the index of the buffer's first element in what is
// bound (the record's in bytes / 4); the scalars; the u32 tag if there is a record; the u32 count
// of launched blocks (the stride) is not here: gl_NumWorkGroups.x has it. `offsets` has arg_count +
// 2 places: those of the arguments (for buffers, of their u32), of the record's u32 and of the tag
// (UINT32_MAX without a record). Returns the total size in bytes, a multiple of 4. When it is
// beyond the target's max_push_constants_bytes the same bytes lie in a storage buffer, the binding
// behind all others.
uint32_t qn__gpu_push_layout(const qn__gpu_kernel_t* kernel, uint32_t* offsets);

#endif  // QUERN_DEVICES_GPU_PLAN_H_
