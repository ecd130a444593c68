// cache/bundle.h: the bundle tier: one read-only file of many entries.
//
// docs/bundles.md has the format. Whatever is wrong with a bundle while it is used is a miss and a
// counter; whatever is wrong when it is opened is a status, so that a deployment can tell.
//
// Not here: making bundles (bundle_write.h). Thread rule: any thread once open; a child of fork may
// go on. Read next: bundle.c.
#ifndef QUERN_CACHE_BUNDLE_H_
#define QUERN_CACHE_BUNDLE_H_

#include <sys/types.h>

#include "cache/hit.h"

typedef struct qn__bundle qn__bundle_t;

typedef struct qn__bundle_options {
  qn_allocator_t allocator;  // zero: the default one
  const char* path;
  // Signatures: keys (QN__PUBLIC_KEY_BYTES each) of which one must have signed; 0: no signature is
  // asked for, and one that is there is not looked at.
  const uint8_t* public_keys;
  size_t public_key_count;
  const char* plugin_directory;  // for the cryptography; "" for the search
  // Users who may own the file besides this one and root; the file must not be writable by others.
  const uid_t* owners;
  size_t owner_count;
} qn__bundle_options_t;

// Reads header and index, no entry. Trust: a regular file and no symbolic link (folders on the way
// may be), of this user, root or `owners`, not writable by others, not in a directory that
// everybody may write; nothing for processes with borrowed rights. Errors: NOT_FOUND,
// PERMISSION_DENIED (rules of trust; not signed, or by another key), DATA_LOSS (not a bundle),
// UNAVAILABLE (no cryptography), IO, OUT_OF_MEMORY. A file whose tail is missing opens with the
// entries that are whole.
qn_status_t qn__bundle_open(const qn__bundle_options_t* options, qn__bundle_t** out_bundle);
void qn__bundle_close(qn__bundle_t* bundle);  // NULL is fine

// One search in memory, one pread, verify. Only HIT leaves something to release.
qn__get_result_t qn__bundle_get(qn__bundle_t* bundle, const qn__expectation_t* expected,
                                qn__hit_t* out_hit);
void qn__bundle_hit_release(qn__bundle_t* bundle, qn__hit_t* hit);

uint64_t qn__bundle_count(const qn__bundle_t* bundle);
const char* qn__bundle_path(const qn__bundle_t* bundle);
uint64_t qn__bundle_size(const qn__bundle_t* bundle);  // of the file, at the open
bool qn__bundle_is_truncated(const qn__bundle_t* bundle);
// The public key of a signed bundle (unverified unless keys were asked for), or NULL.
const uint8_t* qn__bundle_signer(const qn__bundle_t* bundle);

// The identities of the code generators that made the entries, rising. The key of an entry names
// its generator; where none is installed, these are the ones to try ("llvm 0.1.0, ...": the first
// word is the generator's name). A hint: an identity that is not here is only not tried.
uint32_t qn__bundle_identity_count(const qn__bundle_t* bundle);
const char* qn__bundle_identity(const qn__bundle_t* bundle, uint32_t index);

// The entries in the order of their keys.
qn_hash128_t qn__bundle_key(const qn__bundle_t* bundle, uint64_t index);
uint64_t qn__bundle_entry_size(const qn__bundle_t* bundle, uint64_t index);
// The time of creation in the header of the entry, unverified; 0 when it cannot be read.
int64_t qn__bundle_created_ns(const qn__bundle_t* bundle, uint64_t index);
// Reads and verifies the index-th entry, without counting it.
qn__get_result_t qn__bundle_read(qn__bundle_t* bundle, uint64_t index, qn__hit_t* out_hit);

// Calls back for every counter of bundle_counters.inc, in its order, with the sum over `count`
// bundles (which may be 0).
void qn__bundle_counters(const qn__bundle_t* const* bundles, size_t count,
                         void (*on_counter)(void* self, const char* name, uint64_t value,
                                            const char* doc),
                         void* self);

#endif  // QUERN_CACHE_BUNDLE_H_
