// The math functions of the IR as inline LLVM code.
//
// What it is: one entry, qn__math_emit, that appends the instructions of a floating-point
// operation to the block where the caller's builder stands. What is emitted calls nothing outside
// the module, needs no relocation, and is exact to the bound of docs/ir.md.
// What it is not: integer operations, f16 and bf16 (the caller widens to f32 first), fast-math
// flags.
// Threads: no state; a context and its builder belong to one thread at a time, as LLVM says.
// Next: math_kit.h (the vocabulary the functions are written in), math.c (the table).
#ifndef QN_JIT_LLVM_MATH_H_
#define QN_JIT_LLVM_MATH_H_

#include <llvm-c/Core.h>
#include <stdbool.h>

#include "base/arena.h"
#include "quern/ir.h"

typedef struct {
  LLVMContextRef context;  // borrowed
  LLVMModuleRef module;    // borrowed; larger functions are added to it once, with internal linkage
  LLVMBuilderRef builder;  // borrowed; stands at the end of a block, and does so afterwards
  qn__arena_t* arena;      // borrowed; exhausted when memory was, and then the code is not right
  // What the target machine has. False is always right, and slower.
  bool has_fma;     // llvm.fma is an instruction (x86: FMA; every AArch64)
  bool has_round;   // llvm.floor, ceil and trunc are instructions (x86: SSE4.1; every AArch64)
  bool has_avx512;  // AVX-512 F, VL and DQ, and 512-bit registers may be used
  // Leaves out what only NaN, infinities, zeros and denormal arguments need, where that is faster:
  // log and log2 may then give anything for them.
  bool fast;
} qn__math_t;

// Emits `op` for operands of `dtype`. `args` are as many as the operation's arity in ops.inc and
// all of one type: float, double or a vector of these with any number of lanes; float for F16 and
// BF16; i32 for the exponent of ldexp. Returns a value of that type, or of i1 with the same lanes
// for isnan, isinf and isfinite; NULL when the operation or the type is none of these.
//
// Never adds a basic block to the caller's function: what needs branches lives in functions of its
// own (internal, fastcc, memory(none)), which take over the string attributes ("target-cpu" and the
// like) of the function where the builder stands. A module may hold functions for one set of has_
// flags only.
LLVMValueRef qn__math_emit(qn__math_t* math, qn_op_t op, qn_dtype_t dtype,
                           const LLVMValueRef* args);

#endif  // QN_JIT_LLVM_MATH_H_
