// SPDX-License-Identifier: Apache-2.0
// cache/bundle.h: the bundle tier: one read-only file of many entries.
//
// docs/bundles.md has the format. A failure while opening is a status, so that a deployment sees
// it. A failure afterwards is a miss and a counter.
//
// Not here: writing bundles (bundle_write.h). A child of fork may use an open bundle. Read next:
// bundle.c.
#ifndef QUERN_CACHE_BUNDLE_H_
#define QUERN_CACHE_BUNDLE_H_

#include <sys/types.h>

#include "base/counter.h"
#include "cache/hit.h"

typedef struct qn__bundle qn__bundle_t;

typedef struct qn__bundle_options {
  qn_allocator_t allocator;  // zero: the default one
  const char* path;
  // Public keys (QN__PUBLIC_KEY_BYTES each): one of them must have signed the bundle. With a count
  // of 0 signatures are ignored.
  const uint8_t* public_keys;
  size_t public_key_count;
  const char* plugin_directory;  // of the cryptographic module; "" for the search
  // Users who may own the file besides this one and root.
  const uid_t* owners;
  size_t owner_count;
} qn__bundle_options_t;

// Opens a bundle: reads header and index, no entry. The file must be a regular one, not a symbolic
// link (folders on the way may be links); it must belong to this user, root or one of `owners`;
// others may not write it; its folder may not be writable by everybody. A process with borrowed
// rights opens none. A file without a whole tail opens with the entries that are whole. Errors:
// NOT_FOUND, PERMISSION_DENIED (one of these rules; not signed, or by another key), DATA_LOSS (not
// a bundle), UNAVAILABLE (no cryptographic module), IO, OUT_OF_MEMORY.
qn_status_t qn__bundle_open(const qn__bundle_options_t* options, qn__bundle_t** out_bundle);
void qn__bundle_close(qn__bundle_t* bundle);  // NULL is fine

// Gets an entry: one search in memory, one pread, verify. Only HIT needs a release.
qn__get_result_t qn__bundle_get(qn__bundle_t* bundle, const qn__expectation_t* expected,
                                qn__hit_t* out_hit);
void qn__bundle_hit_release(qn__bundle_t* bundle, qn__hit_t* hit);

uint64_t qn__bundle_count(const qn__bundle_t* bundle);
const char* qn__bundle_path(const qn__bundle_t* bundle);
uint64_t qn__bundle_size(const qn__bundle_t* bundle);  // of the file, when it was opened
bool qn__bundle_is_truncated(const qn__bundle_t* bundle);
// Returns the public key of a signed bundle, or NULL. Verified only if keys were required.
const uint8_t* qn__bundle_signer(const qn__bundle_t* bundle);

// Identities of the code generators that compiled the entries, sorted. An entry's key contains such
// an identity ("llvm 0.1.0, ...", the generator's name first). Where no generator is installed,
// lookups try these identities. A missing identity is only not tried.
uint32_t qn__bundle_identity_count(const qn__bundle_t* bundle);
const char* qn__bundle_identity(const qn__bundle_t* bundle, uint32_t index);

// Entries in the order of their keys.
qn_hash128_t qn__bundle_key(const qn__bundle_t* bundle, uint64_t index);
uint64_t qn__bundle_entry_size(const qn__bundle_t* bundle, uint64_t index);
// Returns the time of creation by the header of the entry, unverified; 0 when it cannot be read.
int64_t qn__bundle_created_ns(const qn__bundle_t* bundle, uint64_t index);
// Reads and verifies the index-th entry, without counting it.
qn__get_result_t qn__bundle_read(qn__bundle_t* bundle, uint64_t index, qn__hit_t* out_hit);

// The counters of bundle_counters.inc.
qn__counter_set_t qn__bundle_counters(const qn__bundle_t* bundle);

#endif  // QUERN_CACHE_BUNDLE_H_
