// SPDX-License-Identifier: Apache-2.0
// cache/source.h: a directory or a bundle as a source of entries, for tools and exports.
#ifndef QUERN_CACHE_SOURCE_H_
#define QUERN_CACHE_SOURCE_H_

#include "cache/bundle.h"
#include "cache/disk.h"
#include "quern/cache.h"

// One of the two, borrowed.
typedef struct qn__source {
  qn__disk_t* disk;
  qn__bundle_t* bundle;
} qn__source_t;

// An entry of a source, by the name of its file or its row.
typedef struct qn__source_item {
  qn_hash128_t key;
  uint64_t size_bytes;
  int64_t used_ns;  // of a directory
  uint64_t index;   // of a bundle
} qn__source_item_t;

// Calls `on_item` for each entry until it returns false: a directory in no order, a bundle in the
// order of the keys. Errors: NOT_FOUND, PERMISSION_DENIED, IO.
qn_status_t qn__source_each(qn__source_t source,
                            bool (*on_item)(void* self, const qn__source_item_t* item), void* self);
// Reads and verifies an entry. Only HIT needs a release.
qn__get_result_t qn__source_read(qn__source_t source, const qn__source_item_t* item,
                                 qn__hit_t* out_hit);
void qn__source_release(qn__source_t source, qn__hit_t* hit);
// Calls `on_bad` (NULL is fine) with the reason why `result` is not a hit.
void qn__source_report(qn__source_t source, qn_hash128_t key, qn__get_result_t result,
                       const qn__hit_t* hit,
                       void (*on_bad)(void* self, qn_cache_key_t key, const char* reason),
                       void* self);

// The calls of quern/cache.h that directories and bundles share.
qn_status_t qn__source_list(qn__source_t source,
                            bool (*on_entry)(void* self, const qn_cache_entry_info_t* info),
                            void* self);
// Copies the entry whose key starts with `key_prefix`.
qn_status_t qn__source_copy(qn__source_t source, const char* key_prefix,
                            qn_cache_entry_t** out_entry);
// With `is_healing` it removes damaged files of a directory.
qn_status_t qn__source_verify(qn__source_t source, bool is_healing,
                              void (*on_bad)(void* self, qn_cache_key_t key, const char* reason),
                              void* self, qn_cache_verify_report_t* out_report);

#endif  // QUERN_CACHE_SOURCE_H_
