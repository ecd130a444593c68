// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/strips.h: the structures that the files of the pass `strip` share.
//
// strips.c          the pass: finds loops, chooses the width
// strips_write.c    writes the statements of a strip
// strips_reduce.c   writes its reductions
#ifndef QUERN_IR_PASSES_CPU_STRIPS_H_
#define QUERN_IR_PASSES_CPU_STRIPS_H_

#include "ir/passes/pass_builder.h"

enum {
  qn__strip_max_reductions = 8,
  qn__strip_short = 16,  // steps of a loop that registers hold
};

typedef struct qn__strip {
  qn__pass_builder_t* pb;
  const qn__lanes_t* lanes;  // facts about `loop`
  qn__ir_stmt_t* loop;       // over the columns
  qn__ir_var_t* first;       // column of the strip
  qn__ir_var_t* limit;       // the column after its last one
  int64_t width;             // columns of a strip at most
  qn__ir_block_t head;       // the strip's buffers
} qn__strip_t;

// A list of statements that is being written, and the loop over columns at its end.
typedef struct qn__strip_level {
  qn__strip_t* strip;
  qn__ir_block_t* out;
  qn__ir_stmt_t* group;  // not yet in the list; NULL: none is open
} qn__strip_level_t;

static inline bool qn__strip_is_uniform(const qn__strip_t* strip, qn__ir_expr_t* expr) {
  return qn__lane_is_uniform(qn__lanes_of(strip->lanes, expr));
}
// Returns true if all columns of a strip run the loop, or the reduction, the same number of times.
static inline bool qn__strip_spans(const qn__strip_t* strip, qn__ir_expr_t* begin,
                                   qn__ir_expr_t* end) {
  return qn__strip_is_uniform(strip, begin) && qn__strip_is_uniform(strip, end);
}

// ---- strips_write.c

// Writes the statements of `body`, which is consumed, for all columns of the strip.
void qn__strip_write(qn__strip_t* strip, qn__ir_block_t* body, qn__ir_block_t* out);
// Opens a new loop over the strip's columns, and appends it to the level.
void qn__strip_open(qn__strip_level_t* level);
void qn__strip_close(qn__strip_level_t* level);
// Replaces the column's variable and values of other groups in a statement by what the open group
// has.
void qn__strip_fix(qn__strip_level_t* level, qn__ir_stmt_t* stmt);
// Appends a statement to the open group, after qn__strip_fix.
void qn__strip_append(qn__strip_level_t* level, qn__ir_stmt_t* stmt);
// Declares a buffer with an element for each column of the strip.
qn__ir_buffer_t* qn__strip_buffer(qn__strip_t* strip, qn_dtype_t dtype, const char* name);
// Returns `column - first`.
qn__ir_expr_t* qn__strip_at(const qn__strip_t* strip, qn__ir_var_t* column);

// ---- strips_reduce.c

// Writes loops for the reductions of `stmt` that all columns run alike, and for those of the lets
// that follow it where the same loop can serve. Loads of the results replace them.
void qn__strip_reduce(qn__strip_level_t* level, qn__ir_stmt_t* stmt);

#endif  // QUERN_IR_PASSES_CPU_STRIPS_H_
