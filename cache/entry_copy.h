// SPDX-License-Identifier: Apache-2.0
// cache/entry_copy.h: copies of entries for tools (quern/cache.h), whatever their tier.
#ifndef QUERN_CACHE_ENTRY_COPY_H_
#define QUERN_CACHE_ENTRY_COPY_H_

#include "cache/hit.h"
#include "quern/cache.h"

static inline int64_t qn__to_seconds(int64_t time_ns) {
  return time_ns / 1000000000;
}
// Translates the result of a get into a status for the caller who named the entry. OK for a hit.
qn_status_t qn__get_status(qn_hash128_t key, qn__get_result_t result, const qn__hit_t* hit);
// Copies the entry, section by section. Owned: qn_cache_entry_free. Errors: OUT_OF_MEMORY.
qn_status_t qn__entry_copy(const qn__entry_t* entry, const qn_cache_entry_info_t* info,
                           qn_cache_entry_t** out_entry);

#endif  // QUERN_CACHE_ENTRY_COPY_H_
