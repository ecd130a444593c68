// SPDX-License-Identifier: Apache-2.0
// ir/passes/pass_builder.h: makes nodes for passes that write new code, and queries loops.
//
// A builder belongs to one run of a pass over one function. Functions that make a node return NULL
// for a NULL operand or without memory; the arena remembers that it ran out, so a pass may build a
// whole tree and test qn__pb_stopped() once. Not here: any decision (the passes), slots and lists
// (rewrite.h).
#ifndef QUERN_IR_PASSES_PASS_BUILDER_H_
#define QUERN_IR_PASSES_PASS_BUILDER_H_

#include "ir/passes/lanes.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewrite.h"

typedef struct qn__pass_builder {
  qn__arena_t* arena;
  const qn__pass_options_t* options;
  qn__ir_func_t* function;
  qn__ir_block_t globals;  // allocations that the pass adds at the top of the function
  qn_status_t status;      // the first construct that the pass cannot handle
  uint32_t warp_size;
  uint32_t threads;      // of a block, preferred
  uint32_t max_threads;  // of a block
  // Ids of new variables and buffers follow those of the function.
  uint32_t var_count;
  uint32_t buffer_count;
  qn__lanes_t lanes;  // by qn__pb_lanes
} qn__pass_builder_t;

// Runs a pass with a builder for each function of the numbered body, with the `user` of all
// declarations NULL. Then puts `globals` at the top of the function. Returns the first
// failure.
qn_status_t qn__pb_run(qn__ir_body_t* body, const qn__pass_options_t* options,
                       const qn__pass_t* pass);
static inline bool qn__pb_stopped(const qn__pass_builder_t* pb) {
  return pb->arena->is_exhausted || !qn_ok(pb->status);
}
// Makes the pass fail with UNSUPPORTED.
void qn__pb_refuse(qn__pass_builder_t* pb, const char* format, ...) QN_PRINTF(2, 3);

// ---- expressions

qn__ir_expr_t* qn__pb_int(qn__pass_builder_t* pb, int64_t value);
qn__ir_expr_t* qn__pb_use(qn__pass_builder_t* pb, qn__ir_var_t* var);
qn__ir_expr_t* qn__pb_copy(qn__pass_builder_t* pb, const qn__ir_expr_t* expr);
// Folds constants, and drops zeros of sums and ones of products.
qn__ir_expr_t* qn__pb_op(qn__pass_builder_t* pb, qn_op_t op, qn__ir_expr_t* a, qn__ir_expr_t* b);
// As qn__pb_op, with a literal on the right.
qn__ir_expr_t* qn__pb_op_int(qn__pass_builder_t* pb, qn_op_t op, qn__ir_expr_t* a, int64_t b);
qn__ir_expr_t* qn__pb_cond(qn__pass_builder_t* pb, qn__ir_expr_t* condition, qn__ir_expr_t* a,
                           qn__ir_expr_t* b);
// Returns the value converted to a dtype that it may have already.
qn__ir_expr_t* qn__pb_cast(qn__pass_builder_t* pb, qn_dtype_t dtype, qn__ir_expr_t* value);
qn__ir_expr_t* qn__pb_zero(qn__pass_builder_t* pb, qn_dtype_t dtype);
// Return `a && b` and `a || b`; if one is a literal, that or the other.
qn__ir_expr_t* qn__pb_both(qn__pass_builder_t* pb, qn__ir_expr_t* a, qn__ir_expr_t* b);
qn__ir_expr_t* qn__pb_either(qn__pass_builder_t* pb, qn__ir_expr_t* a, qn__ir_expr_t* b);
// Returns the value of a reduction over an empty range.
qn__ir_expr_t* qn__pb_neutral(qn__pass_builder_t* pb, qn_reduce_kind_t kind, qn_dtype_t dtype);
// Returns the operator that combines two partial results of a reduction.
qn_op_t qn__reduce_op(qn_reduce_kind_t kind);
// Returns element [i, j] of a buffer of rank 2, [i] of rank 1, [] of rank 0.
qn__ir_expr_t* qn__pb_load(qn__pass_builder_t* pb, qn__ir_buffer_t* buffer, qn__ir_expr_t* i,
                           qn__ir_expr_t* j);
// Returns `kind var in begin..end` with `var` as its variable. The caller sets the value, and lets
// if it needs any.
qn__ir_expr_t* qn__pb_reduce_over(qn__pass_builder_t* pb, qn_reduce_kind_t kind, qn_dtype_t dtype,
                                  qn__ir_var_t* var, qn__ir_expr_t* begin, qn__ir_expr_t* end);
// Returns the reduction of the elements `begin..end` of a buffer of rank 1.
qn__ir_expr_t* qn__pb_reduce(qn__pass_builder_t* pb, qn_reduce_kind_t kind, qn__ir_buffer_t* buffer,
                             qn__ir_expr_t* begin, qn__ir_expr_t* end);

// ---- declarations and statements

qn__ir_var_t* qn__pb_var(qn__pass_builder_t* pb, qn__ir_var_kind_t kind, qn_dtype_t dtype,
                         const char* name);
// Declares a buffer in `block`; an extent of -1 ends its shape.
qn__ir_buffer_t* qn__pb_alloc(qn__pass_builder_t* pb, qn__ir_block_t* block, qn__ir_scope_t scope,
                              qn_dtype_t dtype, const char* name, int64_t rows, int64_t columns);
// Appends `let var = value` for a new variable, and returns it.
qn__ir_var_t* qn__pb_let(qn__pass_builder_t* pb, qn__ir_block_t* block, const char* name,
                         qn__ir_expr_t* value);
// Appends a let of an existing variable, which becomes a LET variable.
void qn__pb_let_var(qn__pass_builder_t* pb, qn__ir_block_t* block, qn__ir_var_t* var,
                    qn__ir_expr_t* value);
qn__ir_stmt_t* qn__pb_loop(qn__pass_builder_t* pb, qn_loop_kind_t kind, qn__ir_var_t* var,
                           qn__ir_expr_t* begin, qn__ir_expr_t* end);
// Returns `for var in 0..count` of the kind, with a new variable.
qn__ir_stmt_t* qn__pb_count_loop(qn__pass_builder_t* pb, qn_loop_kind_t kind, const char* name,
                                 qn__ir_expr_t* count);
// Returns `if condition { body }`; the body is consumed, and may be empty.
qn__ir_stmt_t* qn__pb_if(qn__pass_builder_t* pb, qn__ir_expr_t* condition, qn__ir_block_t body);
// Returns a store; indices as in qn__pb_load.
qn__ir_stmt_t* qn__pb_store(qn__pass_builder_t* pb, qn__ir_buffer_t* buffer, qn__ir_expr_t* i,
                            qn__ir_expr_t* j, qn__ir_expr_t* value);
void qn__pb_barrier(qn__pass_builder_t* pb, qn__ir_block_t* block);
// Appends a statement that may be NULL.
void qn__pb_append(qn__ir_block_t* block, qn__ir_stmt_t* stmt);

// ---- counts of iterations

// Returns max(end, begin) - begin: 0 for every empty range, and without overflow for any other.
qn__ir_expr_t* qn__pb_range(qn__pass_builder_t* pb, const qn__ir_expr_t* begin,
                            const qn__ir_expr_t* end);
qn__ir_expr_t* qn__pb_extent(qn__pass_builder_t* pb, const qn__ir_stmt_t* loop);
// Returns the extent of a reduction. It may be negative for an empty range where that is harmless.
qn__ir_expr_t* qn__pb_reduce_extent(qn__pass_builder_t* pb, const qn__ir_expr_t* reduce);

// ---- questions

bool qn__block_has_barrier(qn__ir_block_t* block);
// Returns true if the block has a barrier, an exchange among threads, or a statement that orders
// memory: its threads may wait, so that the block must be as it is written.
bool qn__block_synchronizes(qn__ir_block_t* block);
// Returns true for arithmetic without loads, which may be computed anywhere and more than once.
bool qn__pb_is_pure(const qn__pass_builder_t* pb, qn__ir_expr_t* expr);
// Returns true for a statement that neither lanes nor products may have.
static inline bool qn__stmt_is_no_lane(const qn__ir_stmt_t* stmt) {
  return stmt->kind != QN__STMT_LET && stmt->kind != QN__STMT_STORE && stmt->kind != QN__STMT_IF;
}
// Returns true for all but lets, stores, branches, serial and parallel loops, and local buffers.
bool qn__stmt_is_not_plain(const qn__ir_stmt_t* stmt);
static inline bool qn__is_block_loop(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && qn__loop_is_block(stmt->loop.kind);
}
static inline bool qn__is_thread_loop(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && qn__loop_is_thread(stmt->loop.kind);
}
static inline bool qn__is_independent_loop(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && stmt->loop.is_independent;
}
static inline bool qn__is_cooperative_loop(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && stmt->loop.is_cooperative;
}
static inline bool qn__is_cooperative_reduce(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_REDUCE && expr->reduce.is_cooperative;
}
// Returns true for a thread loop that synchronizes, which needs exactly as many threads as
// iterations.
static inline bool qn__threads_synchronize(const qn__ir_stmt_t* stmt) {
  return qn__is_thread_loop(stmt) && !stmt->loop.is_independent;
}
// Returns facts about one loop, with room for all current declarations. NULL without memory.
qn__lanes_t* qn__pb_lanes(qn__pass_builder_t* pb);

// Makes every loop of one thread's code serial and removes the marks of the mapping.
void qn__block_serialize(qn__ir_block_t* block);

#endif  // QUERN_IR_PASSES_PASS_BUILDER_H_
