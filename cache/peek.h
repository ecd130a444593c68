// cache/peek.h: what the beginning of an entry says of it: key sections, times, sizes. For
// statistics and for finding the entry that is nearest to a miss, where reading all bytes of
// thousands of entries would take too long.
//
// A key is the hash of its preimage, so the preimage is known to be whole; the rest of the file is
// not looked at, and nothing here may lead to running it. Thread rule: pure, or as disk.h. Read
// next: entry.h.
#ifndef QUERN_CACHE_PEEK_H_
#define QUERN_CACHE_PEEK_H_

#include "cache/bundle.h"
#include "cache/disk.h"

// Header and preimage of an entry; longer preimages are not peeked at.
#define QN__PEEK_BYTES 16384u

typedef struct qn__peek {
  qn_hash128_t key;
  int64_t created_ns;  // as the file says, unverified, like the next two
  int64_t compile_ns;
  uint64_t payload_bytes;
  qn_span_t preimage;  // into `bytes`
  _Alignas(16) uint8_t bytes[QN__PEEK_BYTES];
} qn__peek_t;

// `size` bytes from the beginning of an entry are in peek->bytes: fills the rest. False unless they
// begin like an entry of this version and hold the whole preimage of `key`.
bool qn__peek_parse(qn__peek_t* peek, size_t size, qn_hash128_t key);
// Reads the beginning of an entry's file: one open, one read, one close. Nothing is counted,
// touched or removed. False for what is not there, is not ours or does not parse.
bool qn__disk_peek(const qn__disk_t* disk, qn_hash128_t key, qn__peek_t* out_peek);
// The same of the index-th entry of a bundle.
bool qn__bundle_peek(const qn__bundle_t* bundle, uint64_t index, qn__peek_t* out_peek);
// The number of a key in a bundle; false when it is not there.
bool qn__bundle_find(const qn__bundle_t* bundle, qn_hash128_t key, uint64_t* out_index);
// A section of a preimage by its tag; empty when it has none.
qn_span_t qn__preimage_section(qn_span_t preimage, uint32_t tag);

#endif  // QUERN_CACHE_PEEK_H_
