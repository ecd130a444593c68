// jit/shaderc/identity.h: what this generator is, from what is mapped into the process.
//
// shaderc and all that is under it are part of this module, so its own build id says everything.
// Thread rule: any thread. Read next: base/elf.h.
#ifndef QUERN_JIT_SHADERC_IDENTITY_H_
#define QUERN_JIT_SHADERC_IDENTITY_H_

#include "base/elf.h"

// An object without a build id gets a name that no other process gives it, so that nothing cached
// is ever shared through it: false then.
bool qn__shaderc_identity(char out[QN__GENERATOR_IDENTITY_BYTES]);

#endif  // QUERN_JIT_SHADERC_IDENTITY_H_
