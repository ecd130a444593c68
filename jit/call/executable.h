// SPDX-License-Identifier: Apache-2.0
// jit/call/executable.h: loaded code, shared by reference, and the function cells that run it.
//
// Thread rule: references are counted by stripes (base/refcount.h). All other members are
// immutable, except a cell's variant. Read next: executable.c, function.c.
#ifndef QUERN_JIT_EXECUTABLE_H_
#define QUERN_JIT_EXECUTABLE_H_

#include <stdatomic.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/refcount.h"
#include "devices/device.h"
#include "jit/call/plan.h"
#include "quern/backend.h"

struct qn_executable {
  qn__refcount_t references;  // open while the engine's table holds one
  size_t object_bytes;        // of this object and its stripes
  // About the memory that unloading frees: the payload, the metadata and this object.
  size_t size_bytes;
  qn_executable_t* next_dropped;  // the table's list of executables to release
  qn_allocator_t allocator;
  qn__arena_t arena;  // the functions' metadata
  qn_device_t device;
  const qn_device_table_t* device_table;  // loads and launches: the device's, or interp.c's
  void* inner;                            // the state of that table
  qn_hash128_t module_digest;
  qn__sha256_t module_second_digest;
  qn_cache_key_t key;
  size_t function_count;
  const qn_artifact_function_t* functions;
};

// Loads, unloads and launches with the interpreter (interp.c). The other members are those of the
// CPU device, whose memory and streams it uses.
extern const qn_device_table_t qn__interp_device_table;

// Loads an artifact (borrowed for the call) onto a device. Errors: those of the device's load;
// UNSUPPORTED if the device does not load this format.
qn_status_t qn__executable_load(const qn_artifact_t* artifact, qn_device_t device,
                                const qn_module_t* module, qn_hash128_t key,
                                const qn_load_options_t* options, qn_allocator_t allocator,
                                qn_executable_t** out_executable);

// The quality of a variant. A cell never changes to a variant of lower rank, in whatever order
// variants are published.
typedef enum qn__rank {
  QN__RANK_GENERIC_FAST = 1,  // another module's function, fast tier
  QN__RANK_GENERIC = 2,       // another module's function, full tier
  QN__RANK_FAST = 3,          // the function itself, fast tier where full was requested
  QN__RANK_ASKED = 4,         // the requested variant, or the full tier where fast was requested
} qn__rank_t;

// One way to run a function. Variants live as long as their cell.
typedef struct qn__dispatch qn__dispatch_t;
typedef struct qn__variant qn__variant_t;
struct qn__variant {
  qn_function_t* function;      // the cell
  qn_executable_t* executable;  // retained; NULL if there is a dispatch
  qn_module_t* module;          // retained: the module of the executable
  const qn__ir_func_t* ir;      // the function in that module
  uint32_t index;               // of the function in the executable
  qn__rank_t rank;
  // 0: a call needs to check only `plan` before it calls `entry`: there are arguments, no guard, no
  // expressions, and the executable is a CPU image. As wide as a pointer, so that call.c tests both
  // at once.
  uintptr_t needs_more;
  qn_cpu_kernel_t entry;  // CPU images: the kernel itself
  qn__plan_t* plan;       // owned; of `ir`
  // Owned: the plan of the cell's own function, checked before `plan`. NULL if both are the same
  // function.
  qn__plan_t* guard;
  // Owned: chooses among functions that are special for values (dispatch.h), instead of an
  // executable. Such a variant has a guard, so that plain functions need no test of their own, and
  // no plan.
  qn__dispatch_t* dispatch;
  qn__variant_t* next;  // older variants, which calls in flight may still use
};

// A function cell: an atomic pointer to the current variant, so that one store publishes a better
// one. The variant may be of another module than the cell's, for example of one with free symbols
// instead of fixed extents. A call is still checked against the cell's signature first, with its
// messages, and then against the variant's.
struct qn_function {
  _Atomic uint32_t reference_count;
  qn_allocator_t allocator;
  qn_module_t* module;  // retained: names in messages
  const qn__ir_func_t* ir;
  qn_device_t device;
  _Atomic(qn__variant_t*) variant;
};

// Makes a cell for function `name` of `module`. Its first variant is the function in `executable`,
// which was made from `variant_module` (the same module, or a generic one). All arguments are
// retained. Owned: qn_function_release. Errors: NOT_FOUND with the nearest name, in either module;
// those of qn__function_publish.
qn_status_t qn__function_create(qn_module_t* module, const char* name, qn_executable_t* executable,
                                qn_module_t* variant_module, qn__rank_t rank,
                                qn_function_t** out_function);
// Makes the function of `executable` the cell's current variant. Does nothing, without an error, if
// the current one has this rank or a higher one. Calls and other publishes may run meanwhile; older
// variants live as long as the cell. Errors: INVALID_ARGUMENT if the executable was made from
// another module than `variant_module`, is on another device, or its function does not take the
// cell's arguments (names the first parameter that differs); NOT_FOUND, OUT_OF_MEMORY.
qn_status_t qn__function_publish(qn_function_t* function, qn_executable_t* executable,
                                 qn_module_t* variant_module, qn__rank_t rank);
// Returns the rank of the current variant.
qn__rank_t qn__function_rank(const qn_function_t* function);

// Makes a cell for the function of `dispatch`, which it takes over, also after an error. The plan
// of its guard is that of the generic function. Owned: qn_function_release. Errors: OUT_OF_MEMORY,
// those of qn__plan_create.
qn_status_t qn__function_create_adaptive(qn__dispatch_t* dispatch, qn_function_t** out_function);
// Returns the cell's dispatch; NULL if the function is not adaptive.
qn__dispatch_t* qn__function_dispatch(const qn_function_t* function);

// Checks and makes any call of a variant (call.c).
qn_status_t qn__variant_call(qn__variant_t* variant, qn_stream_t* stream, const qn_value_t* args,
                             size_t count);
// Queues the kernel on a stream, or runs it on a device's default stream. The words and, per
// parameter, the ends (qn_launch_t) are copied.
qn_status_t qn__variant_launch(qn__variant_t* variant, qn_stream_t* stream, const uint64_t* words,
                               const uint64_t* ends);
// Returns the status of a kernel's failure; `variant` is a qn__variant_t.
qn_status_t qn__variant_describe(void* variant, const qn_kernel_failure_t* failure);

#endif  // QUERN_JIT_EXECUTABLE_H_
