// jit/identity/identity.h: the identity of a code generator, which keys name.
//
// The identity names everything that decides a generator's bytes: the build ids of the generator
// and of the compiler library under it. The engine predicts it from the files, so that a hit maps
// no compiler; the generator itself says it from what is mapped. Both use qn__generator_identity,
// so the texts are equal when the files are. Thread rule: any thread.
#ifndef QUERN_JIT_IDENTITY_H_
#define QUERN_JIT_IDENTITY_H_

#include "base/elf.h"
#include "quern/backend.h"

// Reads the build id of the compiler library that the generator `name` was linked with when quern
// was built, or that it will open (nvrtc_place.h). False for generators that have none or when the
// file is gone; *out_is_expected (may be NULL) tells the two apart.
bool qn__compiler_library_id(const char* name, char out[QN__BUILD_ID_HEX_BYTES],
                             bool* out_is_expected);

// Writes one line: name, versions, build id of the generator, and of its library (NULL: it has
// none, or it has no id, which no other library's id equals).
void qn__generator_identity(const char* name, const char* build_id, const char* library_id,
                            char out[QN_IDENTITY_BYTES]);

// Writes the same line, for the generator itself: of the mapped objects that hold an address of its
// own and one of its compiler library (NULL: it has none). An object without a build id gets a name
// that no other call gives it, so that nothing cached is ever shared through it.
void qn__mapped_identity(const char* name, const void* own_address, const void* library_address,
                         char out[QN_IDENTITY_BYTES]);

#endif  // QUERN_JIT_IDENTITY_H_
