// SPDX-License-Identifier: Apache-2.0
// jit/codegen/artifact.h: runs a generator, and encodes the metadata of its artifact for entries.
#ifndef QUERN_JIT_ARTIFACT_H_
#define QUERN_JIT_ARTIFACT_H_

#include "base/arena.h"
#include "base/buffer.h"
#include "quern/backend.h"

// Encodes all of an artifact but the payload. Failure is sticky in `out`.
void qn__artifact_encode(const qn_artifact_t* artifact, qn__buffer_t* out);
// Decodes an artifact, which borrows from `arena`, `metadata` and `payload`. Any bytes are safe.
// Errors: DATA_LOSS, OUT_OF_MEMORY.
qn_status_t qn__artifact_decode(qn_span_t metadata, qn_span_t payload, qn__arena_t* arena,
                                qn_artifact_t* out_artifact);
// The result of a generator. `artifact` is a copy with all members, even if a generator of an older
// version returned a shorter struct; its pointers are borrowed from `given`.
typedef struct qn__compiled {
  qn_artifact_t artifact;
  qn_artifact_t* given;  // owned; NULL: none
} qn__compiled_t;
// Runs a generator and checks the artifact. Owned: qn__compiled_release, also after an error.
// Errors: those of the generator, of struct_size and of qn__artifact_check.
qn_status_t qn__artifact_compile(const qn_codegen_t* codegen, void* self,
                                 const qn_compile_request_t* request, qn__compiled_t* out);
void qn__compiled_release(qn__compiled_t* compiled);
// Checks that the artifact keeps the rules of backend.h: offsets inside the payload, names, kinds.
// Errors: DATA_LOSS.
qn_status_t qn__artifact_check(const qn_artifact_t* artifact);

#endif  // QUERN_JIT_ARTIFACT_H_
