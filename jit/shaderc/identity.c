// jit/shaderc/identity.c: the build id of the mapped module.
//
// Thread rule: any thread. Read next: plugin.c.
#include "jit/shaderc/identity.h"

bool qn__shaderc_identity(char out[QN__GENERATOR_IDENTITY_BYTES]) {
  char id[QN__BUILD_ID_HEX_BYTES];
  // An address inside of the object: a function of this file.
  bool (*own_function)(char*) = qn__shaderc_identity;
  const void* own_address;
  memcpy(&own_address, &own_function, sizeof own_address);
  bool is_known = qn__mapped_build_id(own_address, id);
  qn__generator_identity("shaderc", is_known ? id : "unknown", NULL, out);
  return is_known;
}
