// SPDX-License-Identifier: Apache-2.0
// quern/gpu.h: the launch plans of GPU code: what the host does at a call of a function. For
// authors of devices whose code runs in blocks of threads; quern's CUDA and Vulkan use the same.
//
// A function that was lowered by the pipeline `gpu` (lower.h) becomes kernels and a short program
// of the host. A plan holds that program, and what a launch must know of each kernel. It is the
// metadata of the artifact, whose payload is the code. A code generator makes both, a kernel at a
// time:
//
//   QN_TRY(qn_module_lower(module, "gpu", &options, &lowered));
//   QN_TRY(qn_gpu_program_create(lowered, NULL, &program));
//   for each kernel: qn_gpu_program_kernel; print its `root`; qn_gpu_program_set_code
//   QN_TRY(qn_gpu_program_artifact(program, "mine-1", isa, code, code_size, &artifact));
//
// A device loads the plan with the artifact and runs it at each call:
//
//   static const qn_gpu_runner_t runner = {QN_GPU_ABI_VERSION, sizeof runner,
//                                          .launch = launch_kernel, ...};
//   load:   QN_TRY(qn_gpu_plan_load(artifact, &runner, max_threads, &executable->plan));
//   launch: return qn_gpu_plan_run(executable->plan, index, launch, &my_state_of_the_call);
//   unload: qn_gpu_plan_destroy(executable->plan);
//
// The steps of a function, in order:
//
//   let        a local of the host takes the value of an expression
//   workspace  allocates bytes; freed after the last step, after an error, too
//   loop, if   run the steps within them
//   assert     fails at a site of the function, at once
//   launch     a kernel with a number of blocks and of threads, and with its arguments. A launch
//              may have two kernels: one with indices of 32 bits, for calls that a guard admits,
//              and one for all others
//
// Extents, sizes, conditions and guards are expressions over i64: of symbols, scalar parameters and
// locals of the host. qn_gpu_plan_write shows all of that as text.
//
// Grids and blocks have one dimension. A kernel strides over its blocks, so a device may launch
// fewer than the launch says. Kernels compute the indices of three dimensions themselves.
//
// Any threads run one plan at once.
#ifndef QUERN_GPU_H_
#define QUERN_GPU_H_

#include "quern/backend.h"
#include "quern/lower.h"

#ifdef __cplusplus
extern "C" {
#endif

// The version of the structs below that have no struct_size (qn_gpu_arg_t, qn_gpu_launch_t,
// qn_gpu_record_t) and of qn_gpu_runner_t.
#define QN_GPU_ABI_VERSION 1u

// Limits of all plans, so that devices may use fixed arrays.
enum {
  QN_GPU_MAX_ARGS = 256,  // arguments of a kernel
};

// ------------------------------------------------------------------------------------ kernels

// What an argument of a kernel is.
typedef enum qn_gpu_arg_kind {
  QN_GPU_ARG_BUFFER = 1,     // the buffer behind word `index` of the call
  QN_GPU_ARG_WORKSPACE = 2,  // workspace `index`
  QN_GPU_ARG_WORD = 3,       // the scalar of word `index`: the low bytes of the word
  QN_GPU_ARG_LOCAL = 4,      // local `index` of the host: its low bytes
} qn_gpu_arg_kind_t;

// One argument of a kernel. All buffers and workspaces come first, then all scalars.
typedef struct qn_gpu_arg {
  qn_gpu_arg_kind_t kind;  // a value or memory, and where it comes from
  uint32_t index;          // of a word, workspace or local
  uint32_t size_bytes;     // BUFFER, WORKSPACE: of an element; WORD, LOCAL: 1, 2, 4 or 8
  bool is_written;         // BUFFER, WORKSPACE: the kernel may write it
} qn_gpu_arg_t;

// A kernel of a plan.
typedef struct qn_gpu_kernel_info {
  size_t struct_size;             // sizeof(qn_gpu_kernel_info_t)
  const char* name;               // its symbol in the code. Borrowed from the plan, as `args`
  uint64_t code_offset;           // in the payload; kernels may share their code
  uint64_t code_size_bytes;       // in the payload
  uint32_t thread_count;          // of a block; 0: each launch says how many
  uint32_t shared_bytes;          // of a block's shared memory, as the code declares it
  uint32_t dynamic_shared_bytes;  // of shared memory that the launch adds
  // An operation of its function can fail on the device: the kernel takes the error record and a
  // tag (qn_gpu_record_t).
  bool has_record;
  bool is_first_choice;      // a launch runs it unless its guard fails
  uint32_t buffer_count;     // the first arguments: BUFFER and WORKSPACE
  uint32_t arg_count;        // of `args`, at most QN_GPU_MAX_ARGS
  const qn_gpu_arg_t* args;  // in the order of the kernel's parameters
} qn_gpu_kernel_info_t;

// The error record in device memory, which a stream keeps for its kernels with `has_record`; 0 in
// the beginning. The first thread that fails swaps `tag`, by an atomic, from 0 to the tag of its
// launch, which is never 0, and then writes the rest. A kernel that finds another launch's tag when
// it begins does nothing. So work after a failure is skipped, and the device tells from the tag
// which call failed: qn_launch_t.describe makes its status.
typedef struct qn_gpu_record {
  uint32_t tag;    // of the launch that failed
  uint32_t site;   // of the function's sites
  int64_t index;   // as of qn_kernel_failure_t
  int64_t extent;  // as of qn_kernel_failure_t
} qn_gpu_record_t;

// ------------------------------------------------------------------------------------ running

// One launch. Borrowed for the call.
typedef struct qn_gpu_launch {
  uint32_t kernel;         // index in the plan
  int64_t block_count;     // at least 1, of any size: launch fewer where that is too many
  uint32_t thread_count;   // of a block, at least 1 and at most the plan's max_threads
  const uint64_t* values;  // of the kernel's arguments: the address of memory, or a scalar's bits
  const uint64_t* ends;    // of its buffers and workspaces: the address after the last byte
} qn_gpu_launch_t;

// What a device does for its plans. `self` is that of qn_gpu_plan_run. All members must be there.
typedef struct qn_gpu_runner {
  uint32_t abi_version;  // QN_GPU_ABI_VERSION
  size_t struct_size;    // sizeof(qn_gpu_runner_t)
  // Allocates memory in the order of the stream; `size_bytes` may be 0. Errors: any;
  // OUT_OF_MEMORY becomes the failure of the program's allocation, with its name.
  qn_status_t (*workspace_allocate)(void* self, uint64_t size_bytes, uint64_t* out_address);
  // Frees it in the order of the stream, after the launches so far.
  void (*workspace_free)(void* self, uint64_t address);
  // Enqueues a launch. Errors: any; the steps after it do not run.
  qn_status_t (*launch)(void* self, const qn_gpu_launch_t* launch);
} qn_gpu_runner_t;

// A launch plan.
typedef struct qn_gpu_plan qn_gpu_plan_t;

// Loads the plan of an artifact, which is borrowed for the call. Any bytes are safe: a plan that
// loads has words, locals, kernels and ranges of code that are there. `max_threads`: how many
// threads a block of the device may have. The runner is copied. The plan is owned. Errors:
// DATA_LOSS (malformed, or of another version of quern), INVALID_ARGUMENT (also a runner of another
// ABI version, or without a member), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_gpu_plan_load(const qn_artifact_t* artifact,
                                                const qn_gpu_runner_t* runner, uint32_t max_threads,
                                                qn_gpu_plan_t** out_plan);
// Destroys a plan that no call runs. NULL: does nothing.
QN_API void qn_gpu_plan_destroy(qn_gpu_plan_t* plan);

// Runs function `index` of the artifact: calls the runner for each workspace and launch, in order,
// on this thread. Allocates nothing itself. A call with the same shapes as one before evaluates no
// extents. Errors: what `launch->describe` makes of an assert, an extent or missing workspace;
// VALUE_ERROR (a block of too many threads, or indices beyond 32 bits in code that has no others);
// INVALID_ARGUMENT (no such function, or too few words); those of the runner.
QN_API QN_MUST_USE qn_status_t qn_gpu_plan_run(const qn_gpu_plan_t* plan, uint32_t index,
                                               const qn_launch_t* launch, void* self);

// ------------------------------------------------------------------------------------ reading

// Returns how many kernels a plan has; 0 for NULL.
QN_API uint32_t qn_gpu_plan_kernel_count(const qn_gpu_plan_t* plan);
// Describes a kernel. Errors: INVALID_ARGUMENT (also an index beyond the count).
QN_API QN_MUST_USE qn_status_t qn_gpu_plan_kernel(const qn_gpu_plan_t* plan, uint32_t index,
                                                  qn_gpu_kernel_info_t* out_info);

// A function of a plan.
typedef struct qn_gpu_function_info {
  size_t struct_size;        // sizeof(qn_gpu_function_info_t)
  uint32_t step_count;       // steps, those within loops and branches included
  uint32_t workspace_count;  // how many workspaces are in use at once at most
  bool has_record;           // one of its kernels has
} qn_gpu_function_info_t;
// Returns how many functions a plan has: those of the artifact, in its order; 0 for NULL.
QN_API uint32_t qn_gpu_plan_function_count(const qn_gpu_plan_t* plan);
// Describes a function. Errors: INVALID_ARGUMENT (also an index beyond the count).
QN_API QN_MUST_USE qn_status_t qn_gpu_plan_function(const qn_gpu_plan_t* plan, uint32_t index,
                                                    qn_gpu_function_info_t* out_info);

// Writes a plan as text, one line for each function and step, for people and tests: words are w0,
// w1, ..., locals l0, workspaces x0, buffers b0 (`!`: written). The text may change with any
// version. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, those of the sink.
QN_API QN_MUST_USE qn_status_t qn_gpu_plan_write(const qn_gpu_plan_t* plan, qn_sink_t sink);

// ------------------------------------------------------------------------------------ making

// A lowered module, split into the steps of its plan and kernels. One thread at a time.
typedef struct qn_gpu_program qn_gpu_program_t;

// How a module is split.
typedef struct qn_gpu_program_options {
  size_t struct_size;           // sizeof(qn_gpu_program_options_t)
  const qn_machine_t* machine;  // that the module was lowered for. NULL: one that has nothing
  bool is_checked;              // as of the qn_lower_options_t
  // 64: indices have 64 bits. 32: they have 32 where that is proven for each call that the guard
  // admits; calls beyond that are refused. 0: both, as two kernels of a launch. A generator that
  // takes 0 or 32 asks qn_gpu_program_is_narrow_expr and qn_gpu_program_is_narrow_var.
  uint32_t index_bits;
} qn_gpu_program_options_t;

// Splits a module that was lowered by all of the pipeline `gpu`, perhaps with single passes before
// or after it. Retains the module. The program is owned. Errors: INVALID_ARGUMENT (also a module
// that was not lowered so), UNSUPPORTED names the function and what a plan cannot hold (more than
// 256 arguments, 256 values of the host or 64 workspaces at once, nesting of more than 64 loops and
// conditions of the host), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_gpu_program_create(const qn_module_t* module,
                                                     const qn_gpu_program_options_t* options,
                                                     qn_gpu_program_t** out_program);
// Destroys a program. NULL: does nothing. Artifacts that were made of it stay.
QN_API void qn_gpu_program_destroy(qn_gpu_program_t* program);

// What an argument of a kernel is in the module. One member is not NULL.
typedef struct qn_gpu_operand {
  const qn_buffer_t* buffer;  // a parameter or a GLOBAL allocation
  const qn_var_t* var;        // a symbol, a scalar parameter, a let or loop variable of the host
} qn_gpu_operand_t;

// A kernel to be printed. It gets, in this order: the buffers of `args`; with `has_record` the
// address of a qn_gpu_record_t; the scalars of `args`; with `has_record` a tag of 32 bits.
typedef struct qn_gpu_kernel_source {
  size_t struct_size;     // sizeof(qn_gpu_kernel_source_t)
  const char* name;       // "softmax_0": unique in the program. Borrowed from it, as all here
  size_t function_index;  // of the module's functions
  uint32_t thread_count;  // of a block; 0: the extents of its THREAD_* loops, which launches have
  bool has_record;        // it takes the error record, and does nothing if it finds a failure
  bool is_narrow;         // indices and the nodes of qn_gpu_program_is_narrow_expr have 32 bits
  uint32_t buffer_count;  // the first arguments
  uint32_t arg_count;     // of `args` and `operands`
  const qn_gpu_arg_t* args;          // as of qn_gpu_kernel_info_t
  const qn_gpu_operand_t* operands;  // the nodes of the module behind `args`
  // `args` and `operands` have what the nest uses and does not declare: the buffers below all
  // views, and the variables in its expressions, in strides, and in extents but the first of
  // row-major buffers.
  //
  // The outermost BLOCK_* loop of the launch. Statements after it are not the kernel's. Its body
  // may use tables and views that are declared before it, at the top of the function: the kernel
  // declares them itself (qn_module_buffer_info has their elements, or their base and its indices).
  const qn_stmt_t* root;
} qn_gpu_kernel_source_t;
// Returns how many kernels a program has; 0 for NULL.
QN_API uint32_t qn_gpu_program_kernel_count(const qn_gpu_program_t* program);
// Describes a kernel. Errors: INVALID_ARGUMENT (also an index beyond the count).
QN_API QN_MUST_USE qn_status_t qn_gpu_program_kernel(const qn_gpu_program_t* program,
                                                     uint32_t index,
                                                     qn_gpu_kernel_source_t* out_source);

// Return whether an expression or a variable of dtype i64 has 32 bits in a kernel: it is computed
// in 32-bit arithmetic that wraps, from the low 32 bits of its operands. While the guard holds, the
// result is the low 32 bits of the true value; and it is the true value where more than the low
// bits count: in comparisons, divisions, conversions, stores, bounds of loops, and operands of
// 64-bit operators. False for wide kernels, an index beyond the count, and NULL.
QN_API bool qn_gpu_program_is_narrow_expr(const qn_gpu_program_t* program, uint32_t kernel,
                                          const qn_expr_t* expr);
// See qn_gpu_program_is_narrow_expr.
QN_API bool qn_gpu_program_is_narrow_var(const qn_gpu_program_t* program, uint32_t kernel,
                                         const qn_var_t* var);

// Adds a place at which a kernel may fail to the sites of its function: `buffer_id` is the
// `origin_id` of a buffer, `place` that of the walk; `message` is copied. `*out_site` is what the
// kernel writes into the error record; an equal site has the same number. Errors:
// INVALID_ARGUMENT (also a kernel without a record), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_gpu_program_add_site(qn_gpu_program_t* program, uint32_t kernel,
                                                       const qn_artifact_site_t* site,
                                                       uint32_t* out_site);

// Where the code of a kernel is, and what it needs of a block.
typedef struct qn_gpu_code {
  size_t struct_size;             // sizeof(qn_gpu_code_t)
  uint64_t offset;                // in the payload; kernels may share their code
  uint64_t size_bytes;            // in the payload
  uint32_t shared_bytes;          // as of qn_gpu_kernel_info_t
  uint32_t dynamic_shared_bytes;  // likewise
} qn_gpu_code_t;
// Says where the code of a kernel is. Errors: INVALID_ARGUMENT (also an index beyond the count).
QN_API QN_MUST_USE qn_status_t qn_gpu_program_set_code(qn_gpu_program_t* program, uint32_t kernel,
                                                       const qn_gpu_code_t* code);

// Makes the artifact of a program: its functions with their sites, the plan, and a copy of the
// payload. `isa` is canonical JSON, as of qn_artifact_t. The artifact is owned: its `release`.
// Errors: INVALID_ARGUMENT (also code outside of the payload), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_gpu_program_artifact(const qn_gpu_program_t* program,
                                                       const char* format, const char* isa,
                                                       const void* payload, size_t payload_size,
                                                       qn_artifact_t** out_artifact);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_GPU_H_
