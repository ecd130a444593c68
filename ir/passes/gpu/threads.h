// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/threads.h: makes nests of thread loops perfect.
#ifndef QUERN_IR_PASSES_GPU_THREADS_H_
#define QUERN_IR_PASSES_GPU_THREADS_H_

#include "ir/passes/pass_builder.h"

// Makes the thread loops in `outermost` a perfect nest and returns the innermost one. NULL: a
// statement beside an inner loop cannot move into it; then nothing has changed, or the pass fails.
qn__ir_stmt_t* qn__threads_straighten(qn__pass_builder_t* pb, qn__ir_stmt_t* outermost);

#endif  // QUERN_IR_PASSES_GPU_THREADS_H_
