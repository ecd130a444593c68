// SPDX-License-Identifier: Apache-2.0
// ir/passes/nest.h: loops over independent iterations, one directly inside the other, as one index
// space of several dimensions.
#ifndef QUERN_IR_PASSES_NEST_H_
#define QUERN_IR_PASSES_NEST_H_

#include "ir/passes/pass_builder.h"

enum { qn__max_nest = 8 };

typedef struct qn__nest {
  uint32_t count;
  qn__ir_stmt_t* loops[qn__max_nest];  // outermost first
  uint32_t order[qn__max_nest];        // slowest first: indices into `loops`
  uint32_t let_counts[qn__max_nest];   // number of `lets` from each loop's body
  qn__ir_block_t lets;                 // from the bodies of all loops but the innermost, in order
  qn__ir_block_t body;                 // of the innermost loop
} qn__nest_t;

// Takes apart the largest perfect nest at `loop`, which is marked as independent. Moves the
// statements of its bodies to `lets` and `body`; the loops themselves only give their bounds.
void qn__nest_open(qn__pass_builder_t* pb, qn__ir_stmt_t* loop, qn__nest_t* out);
// Restores the loops and statements that qn__nest_open took apart.
void qn__nest_close(qn__nest_t* nest);

// Returns the loop that counts fastest: most accesses are contiguous along it.
static inline qn__ir_stmt_t* qn__nest_fastest(const qn__nest_t* nest) {
  return nest->loops[nest->order[nest->count - 1]];
}
// Returns the number of all iterations.
qn__ir_expr_t* qn__nest_extent(qn__pass_builder_t* pb, const qn__nest_t* nest);
// Returns the number if it is constant, else -1.
int64_t qn__nest_trips(const qn__nest_t* nest);
// Appends lets of the loops' variables for iteration `index` (a small expression, copied at each
// use), then the nest's own lets, which move.
void qn__nest_place(qn__pass_builder_t* pb, qn__nest_t* nest, const qn__ir_expr_t* index,
                    qn__ir_block_t* out);
// Appends lets of the loops' variables for lane `k` of group `at` (a small expression). A group has
// `count` iterations, adjacent along the fastest loop.
void qn__nest_place_lane(qn__pass_builder_t* pb, const qn__nest_t* nest, const qn__ir_expr_t* at,
                         qn__ir_var_t* k, int64_t count, qn__ir_block_t* out);

#endif  // QUERN_IR_PASSES_NEST_H_
