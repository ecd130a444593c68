// SPDX-License-Identifier: Apache-2.0
// ir/passes/fission.h: splits a thread loop at its barriers, for serialize_threads and jam.
#ifndef QUERN_IR_PASSES_FISSION_H_
#define QUERN_IR_PASSES_FISSION_H_

#include "ir/passes/pass_builder.h"

// Replaces `loop`, a thread loop that contains a barrier, by loops without barriers, which it
// appends to `out`. `loop` is consumed. The pass fails for a loop that cannot be split.
void qn__fission(qn__pass_builder_t* pb, qn__ir_stmt_t* loop, qn__ir_block_t* out);

#endif  // QUERN_IR_PASSES_FISSION_H_
