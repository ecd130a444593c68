// SPDX-License-Identifier: Apache-2.0
// cache/entry_head.h: the head of an entry: the sections of its key, times and sizes. Statistics
// and `quern cache why` read the heads of thousands of entries, where reading all bytes would take
// too long.
//
// The preimage is known to be whole, because the key is its hash. The other fields are unverified:
// never run anything on the strength of a head.
#ifndef QUERN_CACHE_ENTRY_HEAD_H_
#define QUERN_CACHE_ENTRY_HEAD_H_

#include "cache/bundle.h"
#include "cache/disk.h"

// Bytes of header and preimage that are read; an entry with a longer preimage has no head.
#define QN__ENTRY_HEAD_BYTES 16384u

typedef struct qn__entry_head {
  qn__entry_header_t header;  // unverified, except the key
  qn_span_t preimage;         // into `bytes`
  _Alignas(16) uint8_t bytes[QN__ENTRY_HEAD_BYTES];
} qn__entry_head_t;

// Fills the fields from the first `size` bytes of an entry in head->bytes. False unless they start
// like an entry of this version and hold the whole preimage of `key`.
bool qn__entry_head_parse(qn__entry_head_t* head, size_t size, qn_hash128_t key);
// Reads the head of an entry's file: one open, one read, one close. Counts, touches and removes
// nothing. False when there is no file, it is not trusted, or it does not parse.
bool qn__disk_read_head(const qn__disk_t* disk, qn_hash128_t key, qn__entry_head_t* out_head);
// Returns the time of creation by the header of an entry's file, unverified; 0 when it cannot be
// read.
int64_t qn__disk_created_ns(const qn__disk_t* disk, qn_hash128_t key);
// Reads the head of the index-th entry of a bundle.
bool qn__bundle_read_head(const qn__bundle_t* bundle, uint64_t index, qn__entry_head_t* out_head);
// Finds the index of a key in a bundle; false when it is not there.
bool qn__bundle_find(const qn__bundle_t* bundle, qn_hash128_t key, uint64_t* out_index);

#endif  // QUERN_CACHE_ENTRY_HEAD_H_
