// ir/passes/exchange.h: what the two files that lower exchanges among threads share.
//
// Thread rule: one thread per body. Read next: lower_exchanges.c.
#ifndef QUERN_IR_PASSES_EXCHANGE_H_
#define QUERN_IR_PASSES_EXCHANGE_H_

#include "ir/passes/passes.h"
#include "ir/passes/rewrite.h"

enum { qn__exchange_dtypes = 16 };

typedef struct qn__exchange {
  qn__arena_t* arena;
  const qn__pass_options_t* options;
  int64_t warp_size;
  int64_t max_threads;
  uint32_t loops;                // around, of every kind
  uint32_t rounds;               // serial loops around, inside of a thread loop
  uint32_t depth;                // thread loops around
  const qn__ir_stmt_t* axes[3];  // x, y, z, or NULL
  qn__ir_var_t* linear;          // the thread's number in the innermost loop, once it is asked for
  qn__ir_block_t shared;         // allocations for the place before the outermost thread loop
  qn__ir_buffer_t* all[qn__exchange_dtypes];   // an element for each thread, by dtype
  qn__ir_buffer_t* sums[qn__exchange_dtypes];  // an element for each warp, by dtype
} qn__exchange_t;

// The walk enters and leaves a thread loop.
void qn__exchange_enter(qn__exchange_t* self, qn__ir_stmt_t* loop);
void qn__exchange_leave(qn__exchange_t* self, qn__ir_stmt_t* loop);
// Appends what computes the exchange `expr`; returns its value. NULL without memory.
qn__ir_expr_t* qn__exchange_lower(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_expr_t* expr);

// Declares a buffer; `count` -1: rank 0.
qn__ir_buffer_t* qn__exchange_buffer(qn__exchange_t* self, qn__ir_block_t* out,
                                     qn__ir_scope_t scope, qn_dtype_t dtype, const char* name,
                                     int64_t count);
// `index`: NULL for rank 0.
void qn__exchange_store(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_buffer_t* buffer,
                        qn__ir_expr_t* index, qn__ir_expr_t* value);
qn__ir_expr_t* qn__exchange_load(qn__exchange_t* self, qn__ir_buffer_t* buffer,
                                 qn__ir_expr_t* index);

#endif  // QUERN_IR_PASSES_EXCHANGE_H_
