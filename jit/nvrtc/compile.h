// SPDX-License-Identifier: Apache-2.0
// jit/nvrtc/compile.h: the functions of the nvrtc generator. Many threads may use one state.
#ifndef QUERN_JIT_NVRTC_COMPILE_H_
#define QUERN_JIT_NVRTC_COMPILE_H_

#include "jit/nvrtc/compiler.h"
#include "quern/backend.h"

typedef struct qn__nvrtc {
  qn_allocator_t allocator;
  qn__nvrtc_library_t library;
  qn__nvrtc_compiler_t* compiler;
  char identity[QN_IDENTITY_BYTES];
} qn__nvrtc_t;

// Errors: UNAVAILABLE without libnvrtc, naming the places searched; OUT_OF_MEMORY.
qn_status_t qn__nvrtc_create(qn_allocator_t allocator, qn__nvrtc_t** out_nvrtc);
void qn__nvrtc_destroy(qn__nvrtc_t* nvrtc);
// Implement the members of qn_codegen_t.
qn_status_t qn__nvrtc_compile(qn__nvrtc_t* nvrtc, const qn_compile_request_t* request,
                              qn_artifact_t** out_artifact);
qn_status_t qn__nvrtc_emit(qn__nvrtc_t* nvrtc, const qn_compile_request_t* request,
                           const char* form, qn_sink_t sink);

#endif  // QUERN_JIT_NVRTC_COMPILE_H_
