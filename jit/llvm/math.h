// SPDX-License-Identifier: Apache-2.0
// jit/llvm/math.h: the floating-point operations of the IR as LLVM code.
//
// The code calls nothing outside the module, needs no relocation, and keeps the bounds of
// docs/ir.md. Not here: integers, f16 and bf16 (the caller widens to f32 first), fast-math flags.
// Thread rule: a context and its builder belong to one thread at a time, as LLVM says.
#ifndef QN_JIT_LLVM_MATH_H_
#define QN_JIT_LLVM_MATH_H_

#include <llvm-c/Core.h>
#include <stdbool.h>

#include "base/arena.h"
#include "quern/ir.h"

typedef struct qn__llvm_math {
  LLVMContextRef context;  // borrowed
  LLVMModuleRef module;    // borrowed; larger functions are added to it once, with internal linkage
  LLVMBuilderRef builder;  // borrowed; at the end of a block, also after the call
  qn__arena_t* arena;      // borrowed; if it is exhausted afterwards, the code is not valid
  // Instructions of the target. False is always right, and slower.
  bool has_fma;     // llvm.fma is an instruction (x86: FMA; every AArch64)
  bool has_round;   // llvm.floor, ceil and trunc are instructions (x86: SSE4.1; every AArch64)
  bool has_avx2;    // with its vectors of 16 and 32 bytes
  bool has_avx512;  // AVX-512 F, VL and DQ, and 512-bit registers may be used
  // Does not handle NaN, infinities, zeros and denormal arguments where that is faster: log and
  // log2 may give any result for them.
  bool fast;
} qn__llvm_math_t;

// Emits `op` for operands of `dtype`. `args` are as many as the operation's arity in ops.inc and
// all of one type: float, double or a vector of these with any number of lanes; float for F16 and
// BF16; i32 for the exponent of ldexp. Returns a value of that type, or of i1 with the same lanes
// for isnan, isinf and isfinite; NULL when the operation or the type is none of these.
//
// Never adds a basic block to the caller's function: what needs branches lives in functions of its
// own (internal, fastcc, memory(none)), which take over the string attributes ("target-cpu" and the
// like) of the function where the builder stands. A module may hold functions for one set of has_
// flags only.
LLVMValueRef qn__llvm_math_emit(qn__llvm_math_t* math, qn_op_t op, qn_dtype_t dtype,
                                LLVMValueRef* args);

#endif  // QN_JIT_LLVM_MATH_H_
