// jit/gpu/nest.h: nests of block or thread loops: their loops, how often they run, whether the
// threads in them meet.
//
// Thread rule: pure. Read next: launch.c, print_loop.c.
#ifndef QUERN_JIT_GPU_NEST_H_
#define QUERN_JIT_GPU_NEST_H_

#include "ir/ir.h"

// The next loop inwards of the same nest (all block loops, or all thread loops, nothing between
// them); NULL: this is the innermost.
const qn__ir_stmt_t* qn__gpu_nest_inner(const qn__ir_stmt_t* loop);
// The number of iterations of a loop when it is constant; -1: it is not.
int64_t qn__gpu_loop_extent(const qn__ir_stmt_t* loop);
// The product of the extents of the nest that begins with `loop`; -1: not constant, or too large.
int64_t qn__gpu_nest_count(const qn__ir_stmt_t* loop);
// Do the threads that run `block` meet or exchange values within it?
bool qn__gpu_is_together(const qn__ir_block_t* block);

#endif  // QUERN_JIT_GPU_NEST_H_
