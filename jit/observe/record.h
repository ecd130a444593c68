// SPDX-License-Identifier: Apache-2.0
// jit/observe/record.h: QUERN_RECORD: lists the lookups of a running service, for `quern warm`.
//
// Each key is one line, appended by one write, so that many processes may record into one file.
// docs/warm.md has the format. Failures are logged once and not returned. A child of fork may
// continue to record.
#ifndef QUERN_JIT_RECORD_H_
#define QUERN_JIT_RECORD_H_

#include "base/buffer.h"
#include "quern/backend.h"

typedef struct qn__record qn__record_t;

// Opens a record. With `path` "", or if the file cannot be used (which is logged), *out_record is
// NULL and nothing is recorded. Errors: OUT_OF_MEMORY.
qn_status_t qn__record_open(qn_allocator_t allocator, const char* path, qn__record_t** out_record);
void qn__record_close(qn__record_t* record);  // NULL is fine
// Records a lookup, once for each key: the inputs of the key, and a readable name. `record` may be
// NULL.
void qn__record_note(qn__record_t* record, qn_hash128_t key, const qn_compile_request_t* request,
                     const char* name);

// Limits the keys that one process records. A service with more keys has no fixed set of kernels,
// so a list would not be useful.
#define QN__RECORD_MAX_KEYS 65536u

#define QN__RECORD_VERSION 1

// Appends one line with its newline (record_line.c).
void qn__record_format(qn_hash128_t key, const qn_compile_request_t* request, const char* name,
                       qn__buffer_t* buffer);

#endif  // QUERN_JIT_RECORD_H_
