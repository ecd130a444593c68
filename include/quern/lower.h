// SPDX-License-Identifier: Apache-2.0
// quern/lower.h: lowering a module by the passes that quern's own generators run, for code
// generators of others and for tools.
//
// The result is a module that read.h walks over and that prints as text. It keeps the rules of the
// language but for limits of sources, which say what people may write: local buffers may be larger
// (packed operands), nesting up to 4 * QN_MAX_NESTING levels, and fences and ordered atomics stand
// where thread loops were. If it keeps these as well, its text and its bytes can be read again.
//
// A generator lowers the canonical bytes of its request, and then meets only what the machine has:
//
//   qn_machine_t machine = {.struct_size = sizeof machine, .has_fma = true};
//   qn_lower_options_t options = {.struct_size = sizeof options, .machine = &machine};
//   QN_TRY(qn_module_decode(request->module_bytes, request->module_size, NULL, &module));
//   QN_TRY(qn_module_lower(module, "scalar", &options, &lowered));
//
// After the pipeline `scalar`:
//   - Loops are SERIAL, or PARALLEL. PARALLEL loops stand at the top of a function, or there inside
//     of serial loops, `while` and `if`: each is a launch, whose iterations may run in any order
//     and on any threads.
//   - No blocks, threads, barriers, exchanges or shared buffers. No `break`, `continue`, `return`,
//     and no statement of kind REDUCE. Reductions to one value are left.
//   - Buffers have dtypes of memory: elements of 4 bits are bytes. Views have strides, and the
//     dtype of their base.
//   - No function of mathematics but `fmod`, which every C library computes without error: what is
//     left of floats is arithmetic, fma, sqrt, rsqrt, rounding, min, max, copysign and tests. It
//     must be neither contracted nor reassociated, unless the function is marked `fast`.
//
// After `cpu`, which is what quern's generator for CPUs gets:
//   - The same, but functions of mathematics are left ("cpu,lower_math" replaces them).
//   - VECTOR loops are left, and loops and reductions may have a `lane_count` (read.h): they may
//     run in so many lanes, with a masked or a scalar tail. A mark is a permission. Marked loops do
//     not nest; in one there are only lets, stores, `if`, asserts, tables, views, and serial loops
//     and reductions without marks whose bounds do not depend on the lane.
//
// After `gpu`, which is what quern's generators for GPUs get:
//   - The host runs the statements at the top of a function: lets, asserts, `if` and serial loops
//     whose expressions hold only symbols, scalar parameters and such lets (integers and bools);
//     allocations in global memory, tables, views; and launches.
//   - A launch is a nest of BLOCK_* loops, each axis once. In the innermost one stand lets,
//     allocations in shared memory, tables and views, which all threads run, and last one nest of
//     THREAD_* loops. One that has barriers or exchanges needs exactly as many threads as it has
//     iterations; another one may be run by striding.
//   - UNROLL loops are hints. VECTOR loops of a thread, from 0 to 16 at most, have independent
//     iterations: load for all of them first, and store for all of them last.
//   - Exchanges are whole values of lets, and there are only those that the machine has.
//
// Any threads lower one module at once.
#ifndef QUERN_LOWER_H_
#define QUERN_LOWER_H_

#include "quern/read.h"
#include "quern/target.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------ passes

// A pass.
typedef struct qn_pass_info {
  size_t struct_size;  // sizeof(qn_pass_info_t)
  const char* name;    // "simplify". Static storage, as all texts here
  const char* doc;     // what it does: one line
  const char* post;    // what holds after it, one line; "": nothing new
  bool is_alone;       // qn_module_lower takes its name; others run in pipelines alone
} qn_pass_info_t;
// Returns how many passes there are.
QN_API size_t qn_pass_count(void);
// Describes a pass. Errors: INVALID_ARGUMENT (also an index beyond the count).
QN_API QN_MUST_USE qn_status_t qn_pass_info(size_t index, qn_pass_info_t* out_info);

// A list of passes. quern's generators run the lists that are described here.
typedef struct qn_pipeline_info {
  size_t struct_size;  // sizeof(qn_pipeline_info_t)
  const char* name;    // "cpu"
  const char* doc;     // one line
  size_t pass_count;   // of qn_pipeline_pass
  // Passes [full_begin, full_end) run with QN_TIER_FULL alone, and not in checked builds.
  size_t full_begin;
  size_t full_end;
} qn_pipeline_info_t;
// Returns how many pipelines there are.
QN_API size_t qn_pipeline_count(void);
// Describes a pipeline. Errors: INVALID_ARGUMENT (also an index beyond the count).
QN_API QN_MUST_USE qn_status_t qn_pipeline_info(size_t index, qn_pipeline_info_t* out_info);
// Returns the name of a pass of a pipeline, in the order in which they run; one may run twice. NULL
// beyond the last. Static storage.
QN_API const char* qn_pipeline_pass(size_t pipeline_index, size_t index);

// ------------------------------------------------------------------------------------ lowering

// What a machine has, as far as passes must know. 0 and false are right for every machine, and
// slower for some.
typedef struct qn_machine {
  size_t struct_size;         // sizeof(qn_machine_t)
  bool has_fma;               // fused multiply-add is an instruction
  uint32_t vector_bytes;      // of a vector: 16, 32 or 64; 0: 16
  bool has_masked_memory;     // masked loads and stores of all sizes are instructions
  bool has_masked_words;      // those of 4 and 8 bytes are
  uint32_t wide_multiplies;   // of vectors of 64 bytes that a core begins in a cycle; 0: unknown
  uint32_t l1_cache_bytes;    // of a core's first data cache; 0: unknown
  uint32_t l2_cache_bytes;    // of a core's second cache; 0: unknown
  uint32_t warp_size;         // threads of a warp; 0: 32
  uint32_t max_threads;       // of a block; 0: 1024
  uint32_t max_shared_bytes;  // of a block
  uint32_t access_bytes;      // a thread's widest load of global memory; 0: an element
  uint32_t multiprocessors;   // how many blocks make the device busy; 0: unknown
  bool has_shuffles;          // the generator emits shuffles and warp_*; else: shared memory
  bool has_block_reductions;  // the generator emits block_* itself
} qn_machine_t;
// Describes the machine of a target: of the kinds cpu, cuda and vulkan what quern's own generators
// use. Of another kind it takes the options that have the name of a member. Errors:
// INVALID_ARGUMENT.
QN_API QN_MUST_USE qn_status_t qn_target_machine(const qn_target_t* target,
                                                 qn_machine_t* out_machine);

// How a module is lowered.
typedef struct qn_lower_options {
  size_t struct_size;           // sizeof(qn_lower_options_t)
  const qn_machine_t* machine;  // NULL: one that has nothing
  qn_tier_t tier;               // 0: QN_TIER_FULL. FAST leaves out what makes code long
  // Out-of-bounds accesses and divisions by zero will be trapped: no access moves to where it was
  // not, and views keep their own bounds.
  bool is_checked;
  // Stops after this pass, "NAME" or "NAME:2" for its second run. NULL: runs all.
  const char* until;
} qn_lower_options_t;

// Lowers a module. `passes` is a name of a pipeline or of a pass that runs alone, or several with
// commas between: "scalar", "cpu,lower_math", "simplify". Before a pass that is named alone, what
// no other pass knows is replaced, as the first four passes of pipelines do.
//
// The result depends on the module's canonical bytes and on the arguments alone. Its nodes keep
// their places and its buffers their `origin_id` (read.h): those of the module. Marks that passes
// leave for the next ones are kept within one call only. `options` may be NULL. The result is
// owned.
//
// Errors: NOT_FOUND (no such name, or `until` is none of these passes; lists what there is),
// INVALID_ARGUMENT (also a machine whose vectors have another size), UNSUPPORTED (a construct that
// a pass cannot handle, by name), INVALID_MODULE (passes in an order that makes no module, such as
// serialize_threads before lower_exchanges), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_module_lower(const qn_module_t* module, const char* passes,
                                               const qn_lower_options_t* options,
                                               qn_module_t** out_module);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_LOWER_H_
