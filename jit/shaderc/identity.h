// jit/shaderc/identity.h: what this generator is, from what is mapped into the process.
//
// shaderc and all that is under it are part of this module, so its own build id says everything.
// Thread rule: any thread. Read next: base/elf.h.
#ifndef QUERN_JIT_SHADERC_IDENTITY_H_
#define QUERN_JIT_SHADERC_IDENTITY_H_

#include "base/elf.h"

// The identity of this generator as it is mapped.
void qn__shaderc_identity(char out[QN__GENERATOR_IDENTITY_BYTES]);

#endif  // QUERN_JIT_SHADERC_IDENTITY_H_
