// SPDX-License-Identifier: Apache-2.0
// jit/nvrtc/library.h: opens libnvrtc at run time, and makes the generator's identity.
//
// quern is built without CUDA: the functions are declared here (nvrtc_symbols.inc) and found by
// name. The library is never closed, and constant once it is open.
#ifndef QUERN_JIT_NVRTC_LIBRARY_H_
#define QUERN_JIT_NVRTC_LIBRARY_H_

#include <limits.h>

#include "jit/identity/identity.h"

// The results of NVRTC that are handled.
enum {
  QN__NVRTC_OK = 0,
  QN__NVRTC_OUT_OF_MEMORY = 1,
  QN__NVRTC_INVALID_OPTION = 5,
  QN__NVRTC_BUILTIN_OPERATION_FAILURE = 7,
};

typedef struct qn__nvrtc_library {
#define QN_NVRTC(result, name, parameters) result(*name) parameters;
#include "jit/nvrtc/nvrtc_symbols.inc"
#undef QN_NVRTC
  int major;
  int minor;
  char path[PATH_MAX];
} qn__nvrtc_library_t;

// Finds and opens libnvrtc. Errors: UNAVAILABLE, naming the places searched or the loader's reason.
qn_status_t qn__nvrtc_open(qn_allocator_t allocator, qn__nvrtc_library_t* out_library);

// Writes the identity of this generator with that library.
void qn__nvrtc_identity(const qn__nvrtc_library_t* library, char out[QN_IDENTITY_BYTES]);

#endif  // QUERN_JIT_NVRTC_LIBRARY_H_
