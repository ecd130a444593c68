// ir/passes/fission.h: cuts a thread loop at its barriers. Part of serialize_threads.
#ifndef QUERN_IR_PASSES_FISSION_H_
#define QUERN_IR_PASSES_FISSION_H_

#include "ir/passes/rewrite.h"

bool qn__block_has_barrier(qn__ir_block_t* block);

// `loop` is a thread loop with a barrier in it, consumed. `user` of everything in it must be NULL.
// Appends loops without barriers to `out`. Errors: UNSUPPORTED, OUT_OF_MEMORY.
qn_status_t qn__fission(qn__arena_t* arena, const char* function_name, qn__ir_stmt_t* loop,
                        qn__ir_block_t* out);

#endif  // QUERN_IR_PASSES_FISSION_H_
