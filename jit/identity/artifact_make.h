// SPDX-License-Identifier: Apache-2.0
// jit/identity/artifact_make.h: makes the artifact that a generator returns; used by all
// generators, and by core for its copies.
#ifndef QUERN_JIT_ARTIFACT_MAKE_H_
#define QUERN_JIT_ARTIFACT_MAKE_H_

#include "base/arena.h"
#include "base/buffer.h"
#include "quern/backend.h"

typedef struct qn__artifact_parts {
  const char* format;
  const char* isa;
  size_t function_count;
  const qn_artifact_function_t* functions;
  qn__buffer_t* payload;   // consumed on success; NULL: none
  qn__buffer_t* metadata;  // likewise
} qn__artifact_parts_t;

// Copies strings, functions and sites, and moves the buffers. Owned: the artifact's own release.
// Errors: OUT_OF_MEMORY, also for a buffer that has failed.
qn_status_t qn__artifact_make(qn_allocator_t allocator, const qn__artifact_parts_t* parts,
                              qn_artifact_t** out_artifact);

// Copies functions with their names, sites and messages into `arena`. NULL: no memory.
const qn_artifact_function_t* qn__artifact_copy_functions(const qn_artifact_function_t* from,
                                                          size_t count, qn__arena_t* arena);

#endif  // QUERN_JIT_ARTIFACT_MAKE_H_
