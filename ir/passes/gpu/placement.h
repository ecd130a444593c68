// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/placement.h: chooses a thread, a block or a warp to run an iteration.
//
// The passes `tile` and `distribute` use it. marks.c marks the work that the threads of a block can
// share, placement.c compares the costs.
#ifndef QUERN_IR_PASSES_GPU_PLACEMENT_H_
#define QUERN_IR_PASSES_GPU_PLACEMENT_H_

#include "ir/passes/gpu/launch.h"

// Sets `is_cooperative` on the loops and reductions of a block that are worth sharing among
// threads, and clears it on all others. Returns whether threads have work to share. `is_warp`: for
// the threads of one warp. They may exchange values only where all warps of a block arrive, thus
// not in branches and loops.
bool qn__mark_cooperative(qn__pass_builder_t* pb, qn__ir_block_t* block, bool is_warp);

typedef enum qn__placement_kind {
  QN__PLACE_THREAD,
  QN__PLACE_BLOCK,
  QN__PLACE_WARP
} qn__placement_kind_t;
typedef struct qn__placement {
  qn__placement_kind_t place;  // of one iteration
  int64_t threads;             // of a block, for BLOCK and WARP (several warps)
} qn__placement_t;
// Chooses for the iterations of a nest, and marks its loops and reductions for that choice.
qn__placement_t qn__place_nest(qn__pass_builder_t* pb, qn__nest_t* nest);

#endif  // QUERN_IR_PASSES_GPU_PLACEMENT_H_
