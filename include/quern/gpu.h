// SPDX-License-Identifier: Apache-2.0
// quern/gpu.h: the launch plans of GPU code: what the host does at a call of a function. For
// authors of devices whose code runs in blocks of threads; quern's CUDA and Vulkan use the same.
//
// A function that was lowered by the pipeline `gpu` (lower.h) becomes kernels and a short program
// of the host. A plan holds that program, and what a launch must know of each kernel. A code
// generator makes the plan and stores it as the artifact's metadata; the code is the payload. A
// device loads the plan with the artifact and runs it at each call:
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

#ifdef __cplusplus
}
#endif

#endif  // QUERN_GPU_H_
