// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/wide.h: gives a thread a few consecutive iterations, so that one wide access can
// move what they load and store. `distribute` and `cooperative` use it.
#ifndef QUERN_IR_PASSES_GPU_WIDE_H_
#define QUERN_IR_PASSES_GPU_WIDE_H_

#include "ir/passes/nest.h"

// ---- how many lanes: consecutive iterations of the fastest loop for a thread; 1: no more than one

// Returns the lanes for a nest of `extent` iterations (-1: not constant), each of `cost`.
int64_t qn__wide_nest_lanes(qn__pass_builder_t* pb, qn__nest_t* nest, int64_t extent, double cost);
// Return the lanes for a nest or a reduction that `threads` share.
int64_t qn__wide_shared_lanes(qn__pass_builder_t* pb, qn__nest_t* nest,
                              const qn__ir_expr_t* threads);
int64_t qn__wide_reduce_lanes(qn__pass_builder_t* pb, qn__ir_expr_t* reduce,
                              const qn__ir_expr_t* threads);

// ---- code for lanes

// Returns the condition that `length` is a multiple of the lanes. NULL: the length is constant.
qn__ir_expr_t* qn__wide_is_whole(qn__pass_builder_t* pb, const qn__ir_expr_t* length,
                                 int64_t count);
// Returns `vector k in 0..count { lets and body }`: the lanes of group `at`. Only reads the nest.
qn__ir_stmt_t* qn__wide_loop(qn__pass_builder_t* pb, qn__nest_t* nest, qn__ir_var_t* at,
                             int64_t count);
// Returns the code for group `position`. `*out_condition` must hold for it, and is the same for all
// threads; NULL: always. The nest is consumed only if it is NULL.
qn__ir_block_t qn__wide_body(qn__pass_builder_t* pb, qn__nest_t* nest, qn__ir_var_t* position,
                             const qn__ir_expr_t* extent, int64_t threads, int64_t count,
                             qn__ir_expr_t** out_condition);
// Returns `reduce k in 0..? { reduce lane in 0..count { ... } }` at group `position`, which uses
// `k`. The caller sets the end. Only reads `reduce`.
qn__ir_expr_t* qn__wide_reduce(qn__pass_builder_t* pb, const qn__ir_expr_t* reduce, qn__ir_var_t* k,
                               const qn__ir_expr_t* position, int64_t count);

#endif  // QUERN_IR_PASSES_GPU_WIDE_H_
