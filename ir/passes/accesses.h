// SPDX-License-Identifier: Apache-2.0
// ir/passes/accesses.h: sets of the buffers that code reads and writes.
//
// Sets do not contain local buffers, which belong to one thread, nor tables and `in` parameters,
// which are never written. A view counts as its base buffer.
#ifndef QUERN_IR_PASSES_ACCESSES_H_
#define QUERN_IR_PASSES_ACCESSES_H_

#include "ir/passes/rewrite.h"

// A set as a list whose nodes never change, so that sets may share them.
typedef struct qn__ir_buffer_set qn__ir_buffer_set_t;
struct qn__ir_buffer_set {
  const qn__ir_buffer_t* root;
  const qn__ir_buffer_set_t* next;
};
typedef struct qn__ir_accesses {
  const qn__ir_buffer_set_t* reads;
  const qn__ir_buffer_set_t* writes;
} qn__ir_accesses_t;

// Returns the accesses of the statement itself, without its blocks.
qn__ir_accesses_t qn__accesses_of_own(qn__arena_t* arena, qn__ir_stmt_t* stmt);
// Return the accesses of the statement and its blocks, and of a block.
qn__ir_accesses_t qn__accesses_of_stmt(qn__arena_t* arena, qn__ir_stmt_t* stmt);
qn__ir_accesses_t qn__accesses_of_block(qn__arena_t* arena, qn__ir_block_t* block);

bool qn__buffer_sets_meet(const qn__ir_buffer_set_t* a, const qn__ir_buffer_set_t* b);
qn__ir_accesses_t qn__accesses_join(qn__arena_t* arena, qn__ir_accesses_t a, qn__ir_accesses_t b);
// Returns true if the two access one buffer and at least one of them writes it.
bool qn__accesses_conflict(qn__ir_accesses_t a, qn__ir_accesses_t b);

#endif  // QUERN_IR_PASSES_ACCESSES_H_
