// jit/call/executable.h: loaded code, shared by reference; and the function cells made of it.
//
// Thread rule: references are counted by stripes (base/refcount.h); everything else is immutable
// after it was made, but for the cell's variant. Read next: executable.c, function.c.
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
  // What unloading it gives back, about: the payload, the metadata and this object.
  size_t size_bytes;
  qn_executable_t* next_dropped;  // of the table, once it has let go
  qn_allocator_t allocator;
  qn__arena_t arena;  // the functions' metadata
  qn_device_t device;
  const qn_device_table_t* device_table;  // that loads and launches: the device's, or interp.c's
  void* inner;                            // that table's own
  qn_hash128_t module_digest;
  qn__sha256_t module_second_digest;
  qn_cache_key_t key;
  size_t function_count;
  const qn_artifact_function_t* functions;
};

// The interpreter's load, unload and launch (interp.c): the other members are those of the CPU,
// whose memory and streams it uses.
extern const qn_device_table_t qn__interp_device_table;

// Loads an artifact (borrowed for the call) onto a device. Errors: those of the device's load;
// UNSUPPORTED when the device takes no such format.
qn_status_t qn__executable_load(const qn_artifact_t* artifact, qn_device_t device,
                                const qn_module_t* module, qn_hash128_t key,
                                const qn_load_options_t* options, qn_allocator_t allocator,
                                qn_executable_t** out_executable);

// How good a variant is. A cell never goes back to a lower one, whichever lands last.
typedef enum qn__rank {
  QN__RANK_GENERIC_FAST = 1,  // another module's function, fast tier
  QN__RANK_GENERIC = 2,       // another module's function, full tier
  QN__RANK_FAST = 3,          // the function itself, fast tier where the full one was asked for
  QN__RANK_ASKED = 4,         // what was asked for, or the full tier where the fast one was
} qn__rank_t;

// One way to run a function. Variants live as long as their cell.
typedef struct qn__variant qn__variant_t;
struct qn__variant {
  qn_function_t* function;      // the cell
  qn_executable_t* executable;  // retained
  qn_module_t* module;          // retained: what the executable was made of
  const qn__ir_func_t* ir;      // the function in that module
  uint32_t index;               // of the function in the executable
  qn__rank_t rank;
  // 0: nothing but `plan` is to be checked before `entry` is called: there are arguments, no guard,
  // no expressions, and the executable is a CPU image. As wide as a pointer, so that call.c tests
  // both at once.
  uintptr_t needs_more;
  qn_cpu_kernel_t entry;  // CPU images: the kernel itself
  qn__plan_t* plan;       // owned; of `ir`
  // Owned; of the cell's own function, checked before `plan`. NULL when they are one function.
  qn__plan_t* guard;
  qn__variant_t* next;  // older variants, which calls in flight may still use
};

// A function cell: an atomic pointer to the current variant, so that a better one is published by
// one store. The current variant may be of another module than the cell (one with free symbols
// where the cell's own has fixed extents). The cell's signature is the contract all the same: a
// call is checked against it first, with its messages, and then against the variant's own.
struct qn_function {
  _Atomic uint32_t reference_count;
  qn_allocator_t allocator;
  qn_module_t* module;  // retained: names in messages
  const qn__ir_func_t* ir;
  qn_device_t device;
  _Atomic(qn__variant_t*) variant;
};

// A cell for function `name` of `module`, with `executable`'s version of it, which was made of
// `variant_module` (the same module, or a generic one), as its first variant. Everything is
// borrowed and retained. Owned: qn_function_release. Errors: NOT_FOUND with the nearest name, in
// either module; those of qn__function_publish.
qn_status_t qn__function_create(qn_module_t* module, const char* name, qn_executable_t* executable,
                                qn_module_t* variant_module, qn__rank_t rank,
                                qn_function_t** out_function);
// Makes `executable`'s version of the function the one that calls use from now on, unless the cell
// has one of this rank or a higher one already, which is no error. Any thread, also while calls and
// other publishes run; what was current stays as long as the cell does. Errors: INVALID_ARGUMENT
// when the executable was made of another module than `variant_module`, is on another device, or
// its function does not take the cell's arguments (the first parameter that differs is named);
// NOT_FOUND, OUT_OF_MEMORY.
qn_status_t qn__function_publish(qn_function_t* function, qn_executable_t* executable,
                                 qn_module_t* variant_module, qn__rank_t rank);
// The rank of the variant that calls use now.
qn__rank_t qn__function_rank(const qn_function_t* function);

// Queues the kernel on a stream, or runs it on a device's default stream. The words and, per
// parameter, the ends (qn_launch_t) are copied.
qn_status_t qn__variant_launch(qn__variant_t* variant, qn_stream_t* stream, const uint64_t* words,
                               const uint64_t* ends);
// The status of a kernel's failure; `variant` is a qn__variant_t.
qn_status_t qn__variant_describe(void* variant, const qn_kernel_failure_t* failure);

#endif  // QUERN_JIT_EXECUTABLE_H_
