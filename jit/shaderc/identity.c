// jit/shaderc/identity.c: the build id of the mapped module.
//
// Thread rule: any thread. Read next: plugin.c.
#include "jit/shaderc/identity.h"

void qn__shaderc_identity(char out[QN__GENERATOR_IDENTITY_BYTES]) {
  // An address inside of the object: a function of this file.
  void (*own_function)(char*) = qn__shaderc_identity;
  const void* own_address;
  memcpy(&own_address, &own_function, sizeof own_address);
  qn__mapped_identity("shaderc", own_address, NULL, out);
}
