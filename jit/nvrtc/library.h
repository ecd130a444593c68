// jit/nvrtc/library.h: libnvrtc, opened at run time, and what this generator is with it.
//
// quern is built without CUDA: the functions are declared here (nvrtc_symbols.inc) and found by
// name. The library is never closed. Thread rule: constant once it is open. Read next: library.c,
// jit/identity/nvrtc_place.h.
#ifndef QUERN_JIT_NVRTC_LIBRARY_H_
#define QUERN_JIT_NVRTC_LIBRARY_H_

#include <limits.h>

#include "jit/identity/identity.h"

// Results of NVRTC that mean something to us.
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

// Finds and opens it. Errors: UNAVAILABLE with what was tried, or why it cannot be opened.
qn_status_t qn__nvrtc_open(qn_allocator_t allocator, qn__nvrtc_library_t* out_library);

// The identity of this generator with that library.
void qn__nvrtc_identity(const qn__nvrtc_library_t* library, char out[QN_IDENTITY_BYTES]);

#endif  // QUERN_JIT_NVRTC_LIBRARY_H_
