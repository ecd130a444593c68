// jit/llvm/identity.c: the build ids of this module and of the libLLVM that are mapped.
//
// Thread rule: any thread. Read next: plugin.c.
#include "jit/llvm/identity.h"

#include <llvm-c/Core.h>

void qn__llvm_identity(char out[QN__GENERATOR_IDENTITY_BYTES]) {
  // An address inside of each object: a function of this file, and one of LLVM's.
  void (*own_function)(char*) = qn__llvm_identity;
  LLVMContextRef (*library_function)(void) = LLVMContextCreate;
  const void *own_address, *library_address;
  memcpy(&own_address, &own_function, sizeof own_address);
  memcpy(&library_address, &library_function, sizeof library_address);
  qn__mapped_identity("llvm", own_address, library_address, out);
}
