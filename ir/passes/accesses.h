// ir/passes/accesses.h: which memory a piece of a program reads and writes, as sets of buffers.
//
// Local buffers belong to one thread, and tables and `in` parameters are never written: neither is
// in a set. Views count as the buffer below them.
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

// Of the statement itself, without its blocks.
qn__ir_accesses_t qn__accesses_of_own(qn__arena_t* arena, qn__ir_stmt_t* stmt);
// Of the statement and its blocks, and of a block.
qn__ir_accesses_t qn__accesses_of_stmt(qn__arena_t* arena, qn__ir_stmt_t* stmt);
qn__ir_accesses_t qn__accesses_of_block(qn__arena_t* arena, qn__ir_block_t* block);

bool qn__buffer_sets_meet(const qn__ir_buffer_set_t* a, const qn__ir_buffer_set_t* b);
qn__ir_accesses_t qn__accesses_join(qn__arena_t* arena, qn__ir_accesses_t a, qn__ir_accesses_t b);
// Returns true if the two access one buffer and at least one of them writes it.
bool qn__accesses_conflict(qn__ir_accesses_t a, qn__ir_accesses_t b);

#endif  // QUERN_IR_PASSES_ACCESSES_H_
