// SPDX-License-Identifier: Apache-2.0
// jit/llvm/opaque.h: hides values that LLVM's code generator would compute again in loops.
#ifndef QN_JIT_LLVM_OPAQUE_H_
#define QN_JIT_LLVM_OPAQUE_H_

#include <llvm-c/Types.h>

// Freezes the addresses that loops of a single block step from, and in functions with tiles
// (QN__EMIT_HAS_TILES) the counters of other loops. Call it after LLVM's passes, which would move
// or drop the instructions.
void qn__llvm_make_loops_opaque(LLVMModuleRef module);
// Keeps masks of memory in vector registers, as AVX2 has them, if they are computed in another
// block than the access. Call it after LLVM's passes.
void qn__llvm_widen_masks(LLVMModuleRef module);

#endif  // QN_JIT_LLVM_OPAQUE_H_
