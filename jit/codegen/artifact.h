// jit/codegen/artifact.h: the metadata of an artifact as bytes, for entries.
//
// Thread rule: pure. Read next: executable.h.
#ifndef QUERN_JIT_ARTIFACT_H_
#define QUERN_JIT_ARTIFACT_H_

#include "base/arena.h"
#include "base/buffer.h"
#include "quern/backend.h"

// Everything but the payload. Failure is sticky in `out`.
void qn__artifact_encode(const qn_artifact_t* artifact, qn__buffer_t* out);
// The artifact of these bytes and this payload; everything points into `arena`, `metadata` and
// `payload`. Any bytes are safe. Errors: DATA_LOSS, OUT_OF_MEMORY.
qn_status_t qn__artifact_decode(qn_span_t metadata, qn_span_t payload, qn__arena_t* arena,
                                qn_artifact_t* out_artifact);
// Does the artifact keep what backend.h promises (offsets inside the payload, names, kinds)?
qn_status_t qn__artifact_check(const qn_artifact_t* artifact);

#endif  // QUERN_JIT_ARTIFACT_H_
