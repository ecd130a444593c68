// jit/llvm/identity.c: the build ids of this module and of the libLLVM that are mapped.
//
// Thread rule: any thread. Read next: plugin.c.
#include "jit/llvm/identity.h"

#include <llvm-c/Core.h>

bool qn__llvm_identity(char out[QN__GENERATOR_IDENTITY_BYTES]) {
  char own[QN__BUILD_ID_HEX_BYTES], library[QN__BUILD_ID_HEX_BYTES];
  // An address inside of each object: a function of this file, and one of LLVM's.
  bool (*own_function)(char*) = qn__llvm_identity;
  LLVMContextRef (*library_function)(void) = LLVMContextCreate;
  const void *own_address, *library_address;
  memcpy(&own_address, &own_function, sizeof own_address);
  memcpy(&library_address, &library_function, sizeof library_address);
  bool is_known = qn__mapped_build_id(own_address, own);
  bool is_library_known = qn__mapped_build_id(library_address, library);
  qn__generator_identity("llvm", is_known ? own : "unknown", is_library_known ? library : "unknown",
                         out);
  return is_known && is_library_known;
}
