// SPDX-License-Identifier: Apache-2.0
// ir/interpret.h: the reference interpreter: runs one function on host memory, and checks every
// index, division, lane and assert. It favours clarity over speed. The target `interp` runs it.
//
// Only reads the body: several threads may interpret one body at once.
#ifndef QUERN_IR_INTERPRET_H_
#define QUERN_IR_INTERPRET_H_

#include "ir/place.h"

typedef struct qn__interpret_args {
  // Per parameter: for a buffer the address of its first element, for a scalar its bits
  // (qn__scalar_to_bits).
  const uint64_t* params;
  // Per symbol of the function.
  const int64_t* symbols;
  // Threads of a warp for shuffles and warp reductions.
  uint32_t warp_size;
  // Runs loops with a lane count in lock-step over their lanes, as generated code does. For tests
  // of the vectorise pass: results must not change. Marked reductions still run in order.
  bool runs_lanes;
  // Gets the innermost expression or statement that failed; none if none did. May be NULL.
  qn__ir_node_t* out_node;
} qn__interpret_args_t;

// Runs the function. Buffers must be as large as their shape and strides say: the caller checks
// this. Errors: ASSERTION, OUT_OF_BOUNDS ("function 'f': buffer 'x' dim 1: index 7 outside of
// extent 4"), DIVISION_BY_ZERO, VALUE_ERROR (negative or overflowing extents), OUT_OF_MEMORY.
qn_status_t qn__interpret(const qn__ir_func_t* function, const qn__interpret_args_t* args,
                          qn_allocator_t allocator);

#endif  // QUERN_IR_INTERPRET_H_
