// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/distribute.h: shared by the files of the pass `distribute`. distribute.c is the
// pass, distribute_flat.c assigns iterations to threads.
#ifndef QUERN_IR_PASSES_GPU_DISTRIBUTE_H_
#define QUERN_IR_PASSES_GPU_DISTRIBUTE_H_

#include "ir/passes/gpu/launch.h"

// Assigns one iteration or a few to each thread, and finishes the launch. Consumes the nest.
void qn__distribute_flat(qn__pass_builder_t* pb, qn__ir_stmt_t* launch, qn__nest_t* nest);

#endif  // QUERN_IR_PASSES_GPU_DISTRIBUTE_H_
