// SPDX-License-Identifier: Apache-2.0
// jit/identity/identity.c: see identity.h.
#include "jit/identity/identity.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/thread.h"
#include "jit/identity/nvrtc_place.h"
#include "quern/config.h"

bool qn__compiler_library_id(const char* name, char out[QN__BUILD_ID_HEX_BYTES],
                             bool* out_is_expected) {
  out[0] = '\0';
  if (out_is_expected) *out_is_expected = false;
#ifdef QN_LLVM_LIBRARY_PATH
  if (strcmp(name, "llvm") == 0) {
    if (out_is_expected) *out_is_expected = true;
    return qn__elf_build_id(QN_LLVM_LIBRARY_PATH, out);
  }
#endif
  if (strcmp(name, "nvrtc") == 0) {
    if (out_is_expected) *out_is_expected = true;
    char path[PATH_MAX];
    return qn__nvrtc_find(path, NULL) && qn__elf_build_id(path, out);
  }
  return false;
}

void qn__generator_identity(const char* name, const char* build_id, const char* library_id,
                            char out[QN_IDENTITY_BYTES]) {
  (void)snprintf(out, QN_IDENTITY_BYTES, "%s %s, table %u, image %u, build id %s, library %s", name,
                 QN_VERSION_STRING, QN_CODEGEN_ABI_VERSION, QN_CPU_ABI_VERSION, build_id,
                 library_id ? library_id : "none");
}

void qn__mapped_identity(const char* name, const void* own_address, const void* library_address,
                         char out[QN_IDENTITY_BYTES]) {
  char own[QN__BUILD_ID_HEX_BYTES], library[QN__BUILD_ID_HEX_BYTES];
  char unique[QN__BUILD_ID_HEX_BYTES];
  (void)snprintf(unique, sizeof unique, "unknown of process %ld at %" PRId64, (long)getpid(),
                 qn__now_ns());
  bool is_known = qn__mapped_build_id(own_address, own);
  bool is_library_known = library_address && qn__mapped_build_id(library_address, library);
  // A library that is linked statically has no id of its own.
  if (is_known && is_library_known && strcmp(own, library) == 0) library_address = NULL;
  const char* library_id = is_library_known ? library : unique;
  qn__generator_identity(name, is_known ? own : unique, library_address ? library_id : NULL, out);
}
