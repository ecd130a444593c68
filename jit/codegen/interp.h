// jit/codegen/interp.h: the artifacts of the `interp` target: what builtin.c makes and
// jit/call/interp.c loads.
#ifndef QUERN_JIT_INTERP_H_
#define QUERN_JIT_INTERP_H_

// The payload is the module, for people; calls interpret the module that the function holds, which
// has its names. The metadata is the target's warp_size in 32 bits.
#define QN__INTERP_FORMAT "interp-1"
// The width of the interpreter's warps where an artifact does not say.
#define QN__INTERP_WARP_SIZE 32u

#endif  // QUERN_JIT_INTERP_H_
