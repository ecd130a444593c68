// ir/passes/passes.h: rewrites of a body, one file each. A pass keeps the body valid; in debug builds the
// verifier runs after each.
//
// Thread rule: one thread per body. Read next: pipeline.c.
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
// Replaces views by the buffers underneath and writes `unroll` loops of small constant extent out.
extern const qn__pass_t qn__pass_lower_views;
extern const qn__pass_t qn__pass_unroll;
// thread.* loops become serial (or vector) loops, split at barriers; values that live across a barrier
// become arrays over the threads; block.* loops become parallel; shared becomes local to the block.
extern const qn__pass_t qn__pass_serialize_threads;
// Marks innermost contiguous loops and reductions with a lane count.
extern const qn__pass_t qn__pass_vectorize;

// Runs `passes` in order, verifying after each in debug builds.
qn_status_t qn__passes_run(qn__body_t* body, const qn__pass_options_t* options,
                           const qn__pass_t* const* passes, size_t pass_count);
// The CPU pipeline: views, threads, unroll, simplify, hoist, vectorize.
qn_status_t qn__passes_run_cpu(qn__body_t* body, const qn__pass_options_t* options);

#endif  // QUERN_IR_PASSES_PASSES_H_
