// SPDX-License-Identifier: Apache-2.0
// jit/codegen/interp.h: the format of the `interp` target's artifacts, which builtin.c makes and
// jit/call/interp.c loads.
#ifndef QUERN_JIT_INTERP_H_
#define QUERN_JIT_INTERP_H_

// The payload is the module, for inspection only: calls interpret the module that the function
// holds, which has its names. The metadata is the target's warp_size in 32 bits.
#define QN__INTERP_FORMAT "interp-1"
// The default width of the interpreter's warps.
#define QN__INTERP_WARP_SIZE 32u

#endif  // QUERN_JIT_INTERP_H_
