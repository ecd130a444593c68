// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/launch.h: an unfinished launch, between the passes that map a function to a GPU.
//
// A launch is a nest of block loops at the level of the host. Its outermost loop has the record
// below. Inside the innermost block loop, at the *block level*, are in this order:
//   1. the head: `head_count` lets, tables, views and shared buffers, the same for all threads;
//   2. `guard_count` conditions, one inside the other, without an else branch;
//   3. in the innermost condition (or at the block level) the *content*, written for one thread.
// A launch thus means the same after every pass, and the verifier can check it. The pass that
// completes a launch removes the record: the launch is *finished*.
#ifndef QUERN_IR_PASSES_GPU_LAUNCH_H_
#define QUERN_IR_PASSES_GPU_LAUNCH_H_

#include "ir/passes/nest.h"

typedef enum qn__launch_kind {
  // Made by `partition`.
  QN__LAUNCH_STATEMENTS,  // one block, statements of one thread
  QN__LAUNCH_ITERATIONS,  // one block, its content is one loop over independent iterations
  QN__LAUNCH_LOOPS,       // block loops or thread loops of the program
  // Made by `distribute`; the threads of a block (or of a warp) run the content together.
  QN__LAUNCH_BLOCKS,  // a block for each iteration of the block loops
  QN__LAUNCH_WARPS,   // a warp for each iteration of the block loop
  // Made by `cooperative`.
  QN__LAUNCH_THREADS,  // has its thread loops, which lack barriers
} qn__launch_kind_t;

typedef struct qn__launch {
  qn__launch_kind_t kind;
  uint32_t head_count;
  uint32_t guard_count;
  // BLOCKS and WARPS.
  int64_t threads;  // of a block, unless the program's own thread loops define it
  bool has_steps;   // the content is one serial loop over the iterations of a block
  uint32_t
      lead_count;  // lets at the start of the content (or of that loop) that name the iteration
  bool is_warps;   // THREADS: each warp has its own iteration
} qn__launch_t;

// Calls `fn` for every unfinished launch of the function, in order, with the host's variables
// marked for qn__host_knows. `fn` may replace the statement by another.
void qn__launch_each(qn__pass_builder_t* pb,
                     void (*fn)(qn__pass_builder_t* pb, qn__ir_stmt_t* launch));
// Take the content out, and put a new one (consumed) in.
qn__ir_block_t qn__launch_take(qn__ir_stmt_t* launch);
void qn__launch_put(qn__ir_stmt_t* launch, qn__ir_block_t* content);
// Take and put the *region* of BLOCKS and WARPS: the part of the content, or of the body of its
// loop, after the `lead_count` lets. The threads run it together.
qn__ir_block_t qn__launch_take_region(qn__ir_stmt_t* launch);
void qn__launch_put_region(qn__ir_stmt_t* launch, qn__ir_block_t* region);
// Cuts a block in two after `count` statements; returns the second part.
qn__ir_block_t qn__block_cut(qn__ir_block_t* block, uint32_t count);
// Appends statements (consumed) to the head.
void qn__launch_add_head(qn__ir_stmt_t* launch, qn__ir_block_t* block);

// Adds the nest of thread loops to a launch whose content was taken. The guards move inside the
// innermost loop. The launch is then of kind THREADS.
void qn__launch_add_threads(qn__ir_stmt_t* launch, qn__ir_stmt_t* threads);
// Returns the innermost thread loop of a launch of kind THREADS.
qn__ir_stmt_t* qn__launch_threads(qn__ir_stmt_t* launch);
// As qn__launch_add_threads, but finishes the launch.
void qn__launch_finish(qn__ir_stmt_t* launch, qn__ir_stmt_t* threads);
// Finishes the launch with one loop `thread.x t in 0..count` around `body` (consumed).
void qn__launch_finish_x(qn__pass_builder_t* pb, qn__ir_stmt_t* launch, qn__ir_var_t* t,
                         int64_t count, qn__ir_block_t* body);

// ---- expressions that the host can compute

// Marks a variable that the host computes.
void qn__host_mark(qn__ir_var_t* var);
// Returns true if the host can compute the expression before a launch: it has integers and bools
// without loads, of symbols, scalar parameters and marked variables.
bool qn__host_knows(qn__ir_expr_t* expr);
// Returns true if the host can compute the bounds of all loops of the nest.
bool qn__host_knows_nest(const qn__nest_t* nest);

// ---- the size of the device

int64_t qn__cores(const qn__pass_builder_t* pb);
// Returns the number of threads that keep the device busy.
int64_t qn__busy_threads(const qn__pass_builder_t* pb);
// Returns the number of blocks of a grid that steps through a range known only to the device.
int64_t qn__fixed_grid(const qn__pass_builder_t* pb);
// Returns the bytes of shared memory of a block.
int64_t qn__shared_limit(const qn__pass_builder_t* pb);

#endif  // QUERN_IR_PASSES_GPU_LAUNCH_H_
