// ir/passes/passes.h: rewrites of a body, one file each. A pass keeps the body valid; in debug
// builds the verifier runs after each.
//
// What a CPU code generator finds after qn__passes_run_cpu:
//   - Loops are SERIAL, PARALLEL or VECTOR. PARALLEL loops stand only at the top of a function,
//   each is a
//     launch; their iterations are independent and may run in any order on any thread.
//   - No barrier, no SHARED buffer. LANE and GROUP operators stay where the program has them: the
//   code
//     generator refuses those.
//   - A loop with `lane_count` L != 0 may run in L lanes, from `begin` in steps of L with a masked
//   or
//     scalar tail. (A mark is a permission: running such a loop one iteration at a time is right
//     too.) A VECTOR loop always has one. Marked loops do not nest, and what is in a marked loop is
//     limited to let, store, if, assert, const, view, and unmarked serial loops and reductions
//     whose bounds do not depend on the lane. There is no while, atomic, local allocation or
//     parallel loop in it. Stores to one element by two lanes of one statement do not happen in a
//     program without races.
//   - A reduction with `lane_count` L != 0 may keep L partial results. It is not inside a marked
//   loop.
//   - A view's `strides` are never NULL. Its `base` may be a view again: the address of its first
//     element is the address of the element `base_indices` of `base`; strides count elements in
//     memory. Views that could be replaced by accesses to their base are gone unless the build is
//     checked.
//   - Local buffers that were indexed by constants only stay buffers: they are meant to be
//     promoted by the code generator (a masked store to a local buffer may be load, select, store).
//
// Thread rule: one thread per body. Read next: pipeline.c, then rewrite.h.
#ifndef QUERN_IR_PASSES_PASSES_H_
#define QUERN_IR_PASSES_PASSES_H_

#include "ir/ir.h"

typedef struct qn__pass_options {
  uint32_t vector_bytes;   // width of the target's vectors: 16, 32, 64
  bool has_masked_memory;  // masked loads and stores are cheap (AVX-512)
  bool is_checked;         // keep every check possible: no speculation of loads
} qn__pass_options_t;

typedef struct qn__pass {
  const char* name;
  const char* doc;
  qn_status_t (*run)(qn__body_t* body, const qn__pass_options_t* options);
} qn__pass_t;

// Constants, identities, affine index algebra; then removes what is unused.
extern const qn__pass_t qn__pass_simplify;
// Moves loop-invariant lets and subexpressions (never loads past stores that may change them, never
// anything that could fail) out of loops.
extern const qn__pass_t qn__pass_hoist;
// Replaces accesses through views by accesses to the buffers underneath where the dimensions match
// (not in checked builds, where the view's own bounds count), and gives the views that stay
// explicit strides.
extern const qn__pass_t qn__pass_lower_views;
// Writes `unroll` loops of small constant extent out; larger ones become serial.
extern const qn__pass_t qn__pass_unroll;
// thread.* loops become loops over independent iterations, split at barriers; values that live
// across a barrier become arrays over the threads; block.* loops become parallel; shared becomes
// local to the block. Errors: UNSUPPORTED for thread extents that are not constant around a
// barrier.
extern const qn__pass_t qn__pass_serialize_threads;
// Marks contiguous loops and reductions with a lane count, then makes inner PARALLEL loops SERIAL.
extern const qn__pass_t qn__pass_vectorize;

// Runs `passes` in order, verifying after each in debug builds.
qn_status_t qn__passes_run(qn__body_t* body, const qn__pass_options_t* options,
                           const qn__pass_t* const* passes, size_t pass_count);
// The CPU pipeline: views, threads, unroll, simplify, hoist, vectorize.
qn_status_t qn__passes_run_cpu(qn__body_t* body, const qn__pass_options_t* options);

#endif  // QUERN_IR_PASSES_PASSES_H_
