// SPDX-License-Identifier: Apache-2.0
// bench/stages.h: times the way from canonical bytes to an image, stage by stage, for our tiers
// and for
// their floor.
//
// The floor is a program without its own vector code: the same body (after the same passes)
// emitted as
// scalar loops, then LLVM's default<O2>, then the same processor. Additions of sums carry
// `reassoc`,
// the licence that a reduction gives, so that O2 may vectorise them. Calls of memset and memcpy are
// switched off, as in our own code, so that its images link.
#ifndef QUERN_BENCH_STAGES_H_
#define QUERN_BENCH_STAGES_H_

#include "jit/llvm/worker.h"
#include "quern/quern.h"

typedef enum stage {
  STAGE_DECODE,  // bytes to body, verified
  STAGE_PASSES,  // ours, on the body
  STAGE_EMIT,    // to LLVM's code
  STAGE_LLVM,    // LLVM's passes
  STAGE_CODE,    // LLVM's code generator, to an object in memory
  STAGE_LINK,    // the checks, and the two links
  STAGE_COUNT,
} stage_t;
extern const char* const stage_texts[STAGE_COUNT];

typedef enum way { WAY_FULL, WAY_FAST, WAY_SCALAR_O2 } way_t;

typedef struct stages {
  double ns[STAGE_COUNT];
  uint8_t* image;  // owned: free
  size_t image_size;
  size_t entry_offset;  // of the first function
} stages_t;

// Errors: those of the stages.
qn_status_t stages_run(qn__llvm_worker_pool_t* pool, const qn_module_t* module,
                       const qn_target_t* target, way_t way, stages_t* out);

#endif  // QUERN_BENCH_STAGES_H_
