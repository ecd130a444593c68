// SPDX-License-Identifier: Apache-2.0
// ir/passes/exchange.h: the structures that the files of the pass `lower_exchanges` share.
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
// As qn__exchange_lower, for an AXES operator (lower_exchanges_axes.c).
qn__ir_expr_t* qn__exchange_lower_axes(qn__exchange_t* self, qn__ir_block_t* out,
                                       qn__ir_expr_t* expr);

// The operators of a reduction over threads.
typedef struct qn__exchange_group {
  qn_op_t block, warp, axes;
  qn_reduce_kind_t kind;
} qn__exchange_group_t;
// Returns those of which `op` is one.
const qn__exchange_group_t* qn__exchange_group(qn_op_t op);

// Returns the threads along an axis. Only threads that exist evaluate it, so the range is not
// empty.
qn__ir_expr_t* qn__exchange_extent(qn__exchange_t* self, const qn__ir_stmt_t* loop);
// Returns a use of the thread's number.
qn__ir_expr_t* qn__exchange_linear(qn__exchange_t* self);
// Returns the number of threads of the block. `*out_most` is an upper bound.
qn__ir_expr_t* qn__exchange_count(qn__exchange_t* self, int64_t* out_most);
// Returns shared memory for an exchange, after a barrier if an earlier exchange may still be read.
qn__ir_buffer_t* qn__exchange_memory(qn__exchange_t* self, qn__ir_block_t* out,
                                     qn__ir_buffer_t** table, qn_dtype_t dtype, const char* name,
                                     int64_t count);
// Appends `all[t] = x; barrier`, and returns `all`.
qn__ir_buffer_t* qn__exchange_publish(qn__exchange_t* self, qn__ir_block_t* out,
                                      qn__ir_expr_t* value);
// Makes the first lane of each warp store its `value`.
void qn__exchange_store_by_leader(qn__exchange_t* self, qn__ir_block_t* out, qn__ir_buffer_t* sums,
                                  qn__ir_expr_t* value);

#endif  // QUERN_IR_PASSES_EXCHANGE_H_
