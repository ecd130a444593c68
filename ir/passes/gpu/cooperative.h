// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/cooperative.h: the structures that the files of the pass `cooperative` share.
//
// cooperative.c        the pass
// cooperative_axes.c   the thread loops of a block
// cooperative_split.c  divides marked loops and reductions among the threads
// cooperative_rows.c   the same for rows that threads hold in registers
#ifndef QUERN_IR_PASSES_GPU_COOPERATIVE_H_
#define QUERN_IR_PASSES_GPU_COOPERATIVE_H_

#include "ir/passes/gpu/launch.h"

// The threads of a block, or of a warp, that run one content together.
typedef struct qn__coop {
  qn__pass_builder_t* pb;
  bool is_warp;
  const qn__ir_stmt_t* axes[3];  // synchronized thread loops, x, y, z; all NULL: `count` along x
  qn__ir_var_t* axis_vars[3];
  qn__ir_expr_t* count;   // of threads; copied for each use
  qn__ir_var_t* thread;   // the number of the thread
  qn__ir_var_t* is_used;  // warps only: false in warps without an iteration; or NULL
  qn__ir_block_t head;    // shared buffers for the head of the launch
} qn__coop_t;

// ---- cooperative_axes.c

// Finds the synchronized thread loops of a block. Uses their numbers of threads, which must agree,
// or `threads` if there are none. Returns false if the pass fails.
bool qn__coop_init(qn__coop_t* coop, qn__pass_builder_t* pb, qn__ir_block_t* block,
                   int64_t threads);
// Appends a let of the thread's number, unless there is one: x counts fastest.
void qn__coop_number(qn__coop_t* coop, qn__ir_block_t* out);
// Returns the thread loops around `body`.
qn__ir_stmt_t* qn__coop_loops(qn__coop_t* coop, qn__ir_block_t* body);

// ---- cooperative_split.c

// Divides the marked reductions of the statement itself; appends the statements they need to `out`.
bool qn__coop_split_own(qn__coop_t* coop, qn__ir_stmt_t* stmt, qn__ir_block_t* out);
// Divides a nest of independent loops.
void qn__coop_split_loop(qn__coop_t* coop, qn__ir_block_t* out, qn__ir_stmt_t* loop);

// ---- cooperative_rows.c

// Returns the row (see qn_buffer.row_lanes) that a reduction, or else a loop body, uses; NULL:
// none.
const qn__ir_buffer_t* qn__coop_row(qn__ir_block_t* body, qn__ir_expr_t* reduce);
// Return a thread's part of a reduction over the row, and of a loop, which they only read.
qn__ir_expr_t* qn__coop_row_reduce(qn__coop_t* coop, const qn__ir_buffer_t* row,
                                   const qn__ir_expr_t* reduce);
qn__ir_stmt_t* qn__coop_row_loop(qn__coop_t* coop, const qn__ir_buffer_t* row, qn__nest_t* nest);
// Makes the buffer local, with the part of one thread.
void qn__coop_row_declare(qn__coop_t* coop, qn__ir_buffer_t* row);

#endif  // QUERN_IR_PASSES_GPU_COOPERATIVE_H_
