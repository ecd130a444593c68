// SPDX-License-Identifier: Apache-2.0
// ir/passes/passes.h: rewrites of a body, one file each. A pass keeps the body valid; in debug
// builds the verifier runs after each.
//
// A CPU code generator may rely on this after qn__passes_run_cpu:
//   - Loops are SERIAL, PARALLEL or VECTOR. PARALLEL loops stand at the top of a function, or there
//     inside of serial loops without lanes, `while` and `if`: each is a launch; their iterations
//     are independent and may run in any order on any thread.
//   - No barrier, no SHARED buffer, no LANE or GROUP operator.
//   - A loop with `lane_count` L != 0 may run in L lanes, from `begin` in steps of L with a masked
//     or scalar tail. (A mark is a permission: running such a loop one iteration at a time is right
//     too.) A VECTOR loop always has one. Marked loops do not nest, and what is in a marked loop is
//     limited to let, store, if, assert, const, view, and unmarked serial loops and reductions
//     whose bounds do not depend on the lane. There is no while, atomic, local allocation or
//     parallel loop in it. Stores to one element by two lanes of one statement do not happen in a
//     program without races.
//   - A reduction with `lane_count` L != 0 may keep L partial results. It is not inside a marked
//     loop.
//   - A view's `strides` are never NULL. Its `base` may be a view again: the address of its first
//     element is the address of the element `base_indices` of `base`; strides count elements in
//     memory. Views that could be replaced by accesses to their base are gone unless the build is
//     checked.
//   - Local buffers that were indexed by constants only stay buffers: they are meant to be
//     promoted by the code generator (a masked store to a local buffer may be load, select, store).
//
// A GPU code generator may rely on this after qn__passes_run_gpu:
//   - The host runs the statements at the top of a function: LET, ASSERT, IF and SERIAL loops whose
//     expressions hold only symbols, scalar parameters and such lets (integers and bools, no
//     loads), ALLOC in global, CONST, VIEW, and *launches*. A launch is a nest of BLOCK_* loops (at
//     least one; each axis once; perfectly nested; bounds as above, or, for one-block launches,
//     any) whose innermost body is the *block level*.
//   - At the block level stand LET without loads of what the launch writes, ALLOC in shared, CONST
//     and VIEW, and then one nest of THREAD_* loops, the last statement: perfectly nested, each
//     axis once, its extents constant or host expressions. All threads run the block level. (What a
//     program has there besides has moved into the nest, with barriers.) The mapping itself makes
//     only THREAD_X; programs may have others.
//   - A thread nest without BARRIER and LANE or GROUP operators may be run by striding. One with
//     them has the launch's count of threads exactly; a constant count is no more than
//     `max_threads`.
//   - No PARALLEL, VECTOR or UNROLL loop is left, except UNROLL loops that are a hint (a loop
//     worth unrolling by the compiler underneath), and VECTOR loops of a thread, from 0 to 16 at
//     most (with `access_bytes`): independent iterations, so that the generator may load for all of
//     them first and store for all of them last. No `lane_count`. Reductions are scalar.
//   - LANE operators and WARP_* are there only if the target has them (`has_shuffles`); GROUP
//     operators over the block (BLOCK_*) only if `has_block_reductions`. They stand only as the
//     whole value of a LET: what they exchange is an expression of any kind, their result a
//     variable.
//   - No LOCAL allocation outside of thread nests. Views are as on the CPU.
//   - TENSOR statements are there only if the target has them (`has_matrix_units`). All threads of
//   a
//     block come to a multiplication, as to a barrier.
//
// Thread rule: one thread per body. Read next: pipeline.c, then rewrite.h.
#ifndef QUERN_IR_PASSES_PASSES_H_
#define QUERN_IR_PASSES_PASSES_H_

#include "ir/ir.h"

typedef struct qn__pass_options {
  uint32_t vector_bytes;   // width of the target's vectors: 16, 32, 64; 0: a GPU
  bool has_masked_memory;  // masked loads and stores are cheap (AVX-512)
  bool has_masked_words;   // those of 4 and 8 bytes are instructions (AVX2)
  bool is_checked;         // keep every check possible: no speculation of loads
  bool has_blocks;         // CPU: passes whose code is longer: blocks of products, strips
  uint32_t l1_bytes;       // caches of a core, for blocks of products; 0: unknown
  uint32_t l2_bytes;
  bool has_fma;              // `fma` is an instruction: reductions may use it
  uint32_t wide_multiplies;  // of vectors of 64 bytes that a core begins in a cycle; 0: unknown
  // Operators of dots.inc that are instructions (qn__dot_bit). `has_exact_dots`: DOT_BF16_FAST
  // differs from DOT_BF16 only where an operand or a sum is denormal.
  uint32_t dots;
  bool has_exact_dots;
  uint32_t tile_dots;  // those of tile registers (ir/tiles.h), with the sums of x86
  uint32_t prepared;   // bit i: the generator has kernel number i of ir/prepared.h
  int preparing;  // 1 + the kernel that the function is to be: one form, in one thread; 0: none
  // The rest is for GPUs, and `warp_size` (32 where it is 0) for the lowering of exchanges.
  uint32_t warp_size;
  uint32_t max_threads;        // of a block
  uint32_t preferred_threads;  // of a block that the mapping chooses: a power of two, 256
  uint32_t max_shared_bytes;   // of a block
  uint32_t access_bytes;       // a thread's widest load and store of global memory; 0: an element
  uint32_t multiprocessors;    // how many blocks make the device busy; 0: unknown
  bool has_shuffles;           // the generator emits LANE operators and WARP_* itself
  bool has_block_reductions;   // the generator emits BLOCK_* itself
  bool has_matrix_units;       // the generator emits TENSOR statements (ir/tensor.h)
  bool has_warpgroups;         // those of warpgroups, too
  uint32_t pass_count;         // of a pipeline: run the first so many alone; 0: all
} qn__pass_options_t;

struct qn__pass_builder;

typedef struct qn__pass {
  const char* name;
  const char* doc;
  // Rewrites a function with a builder (pass_builder.h).
  void (*run)(struct qn__pass_builder* pb);
  // The postcondition in words, and a test of it that debug builds run: it returns NULL, or the
  // problem. Both may be NULL.
  const char* post;
  const char* (*check)(qn__ir_func_t* function);
  // Returns false for a body that the pass has nothing to do with. NULL: it always runs.
  bool (*is_needed)(qn__ir_body_t* body);
  // It needs no other passes before it than those of qn__pipeline_first.
  bool is_alone;
} qn__pass_t;

// Replaces reductions of several values by loops.
extern const qn__pass_t qn__pass_lower_several;
// Replaces `break`, `continue` and `return` by conditions.
extern const qn__pass_t qn__pass_lower_leaves;
// Replaces numbers of the target by literals, and decides the asserts that require something of
// them. Errors: UNSUPPORTED names the function, the condition and the target's number.
extern const qn__pass_t qn__pass_target_values;
// Folds constants, identities and affine indices; then removes unused declarations.
extern const qn__pass_t qn__pass_simplify;
// Moves loop-invariant lets and subexpressions out of loops, but no loads past stores that may
// change them, and no operations that may fail.
extern const qn__pass_t qn__pass_hoist;
// Replaces elements of 4 bits by bytes, and views of another dtype by views of their buffer's
// dtype.
extern const qn__pass_t qn__pass_lower_dtypes;
// Replaces accesses through views by accesses to the buffers underneath where the dimensions match
// (not in checked builds, where the view's own bounds count), and gives the views that stay
// explicit strides.
extern const qn__pass_t qn__pass_lower_views;
// Unrolls `unroll` loops of small constant extent; larger ones become serial.
extern const qn__pass_t qn__pass_unroll;
// Makes thread.* loops loops over independent iterations, split at barriers. Values used on both
// sides of a barrier become arrays over the threads, block.* loops become parallel, shared buffers
// local to the block. Errors: UNSUPPORTED for thread extents that are not constant around a
// barrier.
extern const qn__pass_t qn__pass_serialize_threads;
// Marks contiguous loops and reductions with a lane count, then makes inner PARALLEL loops SERIAL.
extern const qn__pass_t qn__pass_vectorize;

// Replaces LANE and GROUP operators that the target lacks by stores to shared memory, barriers and
// loads. Others become the whole value of a let. In the CPU pipeline, none is left.
extern const qn__pass_t qn__pass_lower_exchanges;

// ---- the mapping to a GPU (gpu/), in this order. The head of each file has the postcondition.

// Marks the loops whose iterations may run in any order and at once.
extern const qn__pass_t qn__pass_independent;
// Splits a function into what the host does and launches (gpu/launch.h), still of one thread each.
// Errors: UNSUPPORTED names a construct that no mapping is right for; so does `cooperative`.
extern const qn__pass_t qn__pass_partition;
// Gives blocks a tile of the result of a product (products.h).
extern const qn__pass_t qn__pass_tile;
// Assigns iterations to threads, warps or blocks, and marks the work that the threads of a block
// share.
extern const qn__pass_t qn__pass_distribute;
// Moves local buffers that several threads use to shared memory.
extern const qn__pass_t qn__pass_share;
// Keeps rows that are read or computed again in registers (register reuse).
extern const qn__pass_t qn__pass_reuse;
// Adds the thread loops of blocks, and divides shared work among the threads.
extern const qn__pass_t qn__pass_cooperative;
// Separates accesses of different threads to one buffer by barriers.
extern const qn__pass_t qn__pass_barriers;

// Gives each product of a nest with several reductions a nest of its own. (Both pipelines.)
extern const qn__pass_t qn__pass_separate;
// Runs some rows of a program at once, so that what they multiply by one matrix is a product.
extern const qn__pass_t qn__pass_jam;
// Computes products in blocks that the caches and registers of a CPU hold (products.h).
extern const qn__pass_t qn__pass_block;
// Orders the loops of copies, and transposes in tiles.
extern const qn__pass_t qn__pass_permute;
// Computes once what a reduction and a later loop share.
extern const qn__pass_t qn__pass_once;
// Turns loops over columns inside out, so that rows are read from begin to end.
extern const qn__pass_t qn__pass_strip;

// ---- for generators that have neither lanes nor functions of mathematics

// Makes loops with lanes and parallel loops inside of others serial.
extern const qn__pass_t qn__pass_lower_lanes;
// Replaces functions of mathematics by arithmetic (ir/math), but for `fmod`, which is exact.
extern const qn__pass_t qn__pass_lower_math;

// Runs `passes` in order, verifying after each in debug builds.
qn_status_t qn__passes_run(qn__ir_body_t* body, const qn__pass_options_t* options,
                           const qn__pass_t* const* passes, size_t pass_count);

// ---- pipelines (pipeline.c). Those that the generators run are those that are listed.

typedef struct qn__pipeline {
  const char* name;
  const char* doc;
  size_t pass_count;
  const qn__pass_t* const* passes;
  // Passes [blocks_begin, blocks_end) run with `has_blocks` alone, and not in checked builds, which
  // name the iteration of an access in errors.
  size_t blocks_begin;
  size_t blocks_end;
  bool is_gpu;  // has_shuffles and has_block_reductions count; vectors and blocks do not
} qn__pipeline_t;

// For CPUs: the form that is described at the top.
extern const qn__pipeline_t qn__pipeline_cpu;
// The same for generators that have neither lanes nor functions of mathematics.
extern const qn__pipeline_t qn__pipeline_scalar;
// For GPUs: the form that is described at the top.
extern const qn__pipeline_t qn__pipeline_gpu;
// Returns a pipeline, or NULL beyond the last.
const qn__pipeline_t* qn__pipeline_at(size_t index);
// What replaces constructs that no other pass knows.
extern const qn__pipeline_t qn__pipeline_first;
// Returns a pass of the pipelines, each one once, or NULL beyond the last.
const qn__pass_t* qn__pass_at(size_t index);

qn_status_t qn__pipeline_run(const qn__pipeline_t* pipeline, qn__ir_body_t* body,
                             const qn__pass_options_t* options);
qn_status_t qn__passes_run_cpu(qn__ir_body_t* body, const qn__pass_options_t* options);
qn_status_t qn__passes_run_gpu(qn__ir_body_t* body, const qn__pass_options_t* options);

#endif  // QUERN_IR_PASSES_PASSES_H_
