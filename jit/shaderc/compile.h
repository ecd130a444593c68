// SPDX-License-Identifier: Apache-2.0
// jit/shaderc/compile.h: the functions of the shaderc generator. Many threads may use one state.
#ifndef QUERN_JIT_SHADERC_COMPILE_H_
#define QUERN_JIT_SHADERC_COMPILE_H_

#include "jit/identity/identity.h"
#include "jit/shaderc/compiler.h"
#include "quern/backend.h"

typedef struct qn__shaderc {
  qn_allocator_t allocator;
  qn__shaderc_compiler_t* compiler;
  char identity[QN_IDENTITY_BYTES];
} qn__shaderc_t;

qn_status_t qn__shaderc_create(qn_allocator_t allocator, qn__shaderc_t** out_shaderc);
void qn__shaderc_destroy(qn__shaderc_t* shaderc);
// Implement the members of qn_codegen_t.
qn_status_t qn__shaderc_compile(qn__shaderc_t* shaderc, const qn_compile_request_t* request,
                                qn_artifact_t** out_artifact);
qn_status_t qn__shaderc_emit(qn__shaderc_t* shaderc, const qn_compile_request_t* request,
                             const char* form, qn_sink_t sink);

#endif  // QUERN_JIT_SHADERC_COMPILE_H_
