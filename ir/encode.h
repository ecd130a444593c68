// SPDX-License-Identifier: Apache-2.0
// ir/encode.h: canonical bytes of a body, and back. The format is described at the top of encode.c.
//
// Names of parameters, symbols and functions and assert messages are in the bytes (they are part of
// the interface); names of locals, loop variables and allocations, comments and layout are not.
// Equal programs give equal bytes in every process.
#ifndef QUERN_IR_ENCODE_H_
#define QUERN_IR_ENCODE_H_

#include "base/buffer.h"
#include "ir/ir.h"

// The body must be numbered (qn__function_number). Failure is sticky in `out`.
void qn__body_encode(const qn__ir_body_t* body, qn__buffer_t* out);
// Decodes bytes, which may be untrusted. `*out_body` is initialised by the callee and must be
// verified by the caller; on failure it needs no deinit. Decoded locals get names from their ids:
// "v3", "b2". Nesting is limited to 256 levels. Errors: DATA_LOSS, OUT_OF_MEMORY.
qn_status_t qn__body_decode(qn_span_t bytes, qn_allocator_t allocator, qn__ir_body_t* out_body);

// Returns the bits of a literal in memory, zero-extended. All NaNs are one.
uint64_t qn__literal_bits(const qn__ir_expr_t* literal);

#endif  // QUERN_IR_ENCODE_H_
