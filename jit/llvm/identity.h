// jit/llvm/identity.h: what this generator is, from what is mapped into the process.
//
// Thread rule: any thread. Read next: base/elf.h.
#ifndef QN_JIT_LLVM_IDENTITY_H_
#define QN_JIT_LLVM_IDENTITY_H_

#include "base/elf.h"

// The identity of this generator with the libLLVM that is really mapped.
void qn__llvm_identity(char out[QN__GENERATOR_IDENTITY_BYTES]);

#endif  // QN_JIT_LLVM_IDENTITY_H_
