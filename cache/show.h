// cache/show.h: entries as tools see them (quern/cache.h), whichever tier they come from.
//
// Thread rule: pure, but for memory. Read next: show.c.
#ifndef QUERN_CACHE_SHOW_H_
#define QUERN_CACHE_SHOW_H_

#include "cache/hit.h"
#include "quern/cache.h"

static inline int64_t qn__to_seconds(int64_t time_ns) {
  return time_ns / 1000000000;
}
// Whether `key` may be the beginning of a key: INVALID_ARGUMENT unless it is 4 to 32 lower-case
// hexadecimal digits.
qn_status_t qn__key_prefix_check(const char* key);
// What a get that was no hit means for whoever asked for that entry. OK for a hit.
qn_status_t qn__get_status(qn_hash128_t key, qn__get_result_t result, const qn__hit_t* hit);
// A copy of the entry, section by section. Owned: qn_cache_entry_free. Errors: OUT_OF_MEMORY.
qn_status_t qn__show_entry(const qn__entry_t* entry, const qn_cache_entry_info_t* info,
                           qn_cache_entry_t** out_entry);

#endif  // QUERN_CACHE_SHOW_H_
