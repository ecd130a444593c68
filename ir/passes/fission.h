// ir/passes/fission.h: splits a thread loop at its barriers. Part of serialize_threads.
#ifndef QUERN_IR_PASSES_FISSION_H_
#define QUERN_IR_PASSES_FISSION_H_

#include "ir/passes/rewrite.h"

bool qn__block_has_barrier(qn__ir_block_t* block);

// Replaces `loop`, a thread loop that contains a barrier, by loops without barriers in `out`.
// `loop` is consumed. `user` must be NULL in all its variables and buffers. Errors: UNSUPPORTED,
// OUT_OF_MEMORY.
qn_status_t qn__fission(qn__arena_t* arena, const char* function_name, qn__ir_stmt_t* loop,
                        qn__ir_block_t* out);

#endif  // QUERN_IR_PASSES_FISSION_H_
