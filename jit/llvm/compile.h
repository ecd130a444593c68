// SPDX-License-Identifier: Apache-2.0
// jit/llvm/compile.h: the functions behind the llvm generator's table (qn_codegen_t).
#ifndef QN_JIT_LLVM_COMPILE_H_
#define QN_JIT_LLVM_COMPILE_H_

#include "ir/passes/passes.h"
#include "jit/identity/identity.h"
#include "jit/llvm/worker.h"
#include "quern/backend.h"

typedef struct qn__llvm {
  qn_allocator_t allocator;
  qn__llvm_worker_pool_t pool;
  char identity[QN_IDENTITY_BYTES];
} qn__llvm_t;

qn_status_t qn__llvm_create(qn_allocator_t allocator, qn__llvm_t** out_llvm);
void qn__llvm_destroy(qn__llvm_t* llvm);

// Returns the options of the passes for a target, tier and checks.
qn__pass_options_t qn__llvm_pass_options(const qn_target_t* target,
                                         const qn_compile_request_t* request);
// These do what the members of qn_codegen_t say.
qn_status_t qn__llvm_compile(qn__llvm_t* llvm, const qn_compile_request_t* request,
                             qn_artifact_t** out_artifact);
qn_status_t qn__llvm_emit(qn__llvm_t* llvm, const qn_compile_request_t* request, const char* form,
                          qn_sink_t sink);

#endif  // QN_JIT_LLVM_COMPILE_H_
