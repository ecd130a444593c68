// SPDX-License-Identifier: Apache-2.0
// jit/engine/cached.h: what an entry's preimage says about the lookup that made it.
#ifndef QUERN_JIT_CACHED_H_
#define QUERN_JIT_CACHED_H_

#include "jit/engine/engine.h"

// Borrowed from the entry.
typedef struct qn__origin {
  qn_str_t target_json;
  qn_str_t identity;  // of the generator
  qn_str_t name_space;
  qn_tier_t tier;
  bool is_checked;
} qn__origin_t;
// False for a preimage that this version does not write.
bool qn__origin_read(qn_span_t preimage, qn__origin_t* out_origin);
// Parses the target. Owned: qn_target_release. Errors: OUT_OF_MEMORY, those of qn_target_parse.
qn_status_t qn__origin_target(const qn__origin_t* origin, qn_allocator_t allocator,
                              qn_target_t** out_target);

#endif  // QUERN_JIT_CACHED_H_
