// SPDX-License-Identifier: Apache-2.0
// jit/identity/identity.h: the identity of a code generator, which keys name.
//
// The identity names everything that determines a generator's output: the build ids of the
// generator and of its compiler library. The engine predicts it from the files, so that a hit maps
// no compiler. The generator reports it from its mapped objects. Both use qn__generator_identity,
// so equal files give equal texts.
#ifndef QUERN_JIT_IDENTITY_H_
#define QUERN_JIT_IDENTITY_H_

#include "base/elf.h"
#include "quern/backend.h"

// Reads the build id of the compiler library of the generator `name`: the one it was linked with
// when quern was built, or the one it will open (nvrtc_place.h). False if the generator has none or
// the file is missing; *out_is_expected (may be NULL) is true only if the generator has one.
bool qn__compiler_library_id(const char* name, char out[QN__BUILD_ID_HEX_BYTES],
                             bool* out_is_expected);

// Writes one line: name, versions, the build id of the generator and that of its library (NULL for
// a generator without a library, or a library without an id).
void qn__generator_identity(const char* name, const char* build_id, const char* library_id,
                            char out[QN_IDENTITY_BYTES]);

// Writes the same line from mapped objects: the one that holds `own_address` is the generator, the
// one that holds `library_address` its library (NULL, or the generator itself, which is linked
// with the library statically: none). An object without a build id gets a text that is unique to
// this call, so that its cached code is never shared.
void qn__mapped_identity(const char* name, const void* own_address, const void* library_address,
                         char out[QN_IDENTITY_BYTES]);

#endif  // QUERN_JIT_IDENTITY_H_
