// ir/passes/exchange.h: the structures that the two files of the pass `lower_exchanges` share.
#ifndef QUERN_IR_PASSES_EXCHANGE_H_
#define QUERN_IR_PASSES_EXCHANGE_H_

#include "ir/passes/pass_builder.h"

enum { qn__exchange_dtypes = 16 };

typedef struct qn__exchange {
  qn__pass_builder_t* pb;
  uint32_t loops;                              // enclosing loops of every kind
  uint32_t rounds;                             // enclosing serial loops inside the thread loop
  uint32_t depth;                              // enclosing thread loops
  const qn__ir_stmt_t* axes[3];                // x, y, z, or NULL
  qn__ir_var_t* linear;                        // the thread's number, declared at its first use
  qn__ir_block_t shared;                       // allocations for the block level
  qn__ir_buffer_t* all[qn__exchange_dtypes];   // an element for each thread, by dtype
  qn__ir_buffer_t* sums[qn__exchange_dtypes];  // an element for each warp, by dtype
} qn__exchange_t;

// Record that the walk enters and leaves a thread loop.
void qn__exchange_enter(qn__exchange_t* self, qn__ir_stmt_t* loop);
void qn__exchange_leave(qn__exchange_t* self, qn__ir_stmt_t* loop);
// Appends code for the exchange `expr` and returns its value. NULL without memory.
qn__ir_expr_t* qn__exchange_lower(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_expr_t* expr);

#endif  // QUERN_IR_PASSES_EXCHANGE_H_
