// SPDX-License-Identifier: Apache-2.0
// cache/bundle_inner.h: what bundle.c, bundle_open.c and bundle_scan.c share.
//
// Thread rule: everything but counters and buffers is constant after the open.
#ifndef QUERN_CACHE_BUNDLE_INNER_H_
#define QUERN_CACHE_BUNDLE_INNER_H_

#include "base/counter.h"
#include "base/fs.h"
#include "cache/bundle.h"
#include "cache/bundle_format.h"
#include "cache/scratch.h"

// The fan-out table, which finds rows by the first bits of a key, has at most 65,536 buckets.
#define QN__BUNDLE_MAX_FANOUT_BITS 16u

// The indices of the counters.
typedef enum qn__bundle_counter {
#define QN_COUNTER(name, doc) QN__BUNDLE_COUNTER_##name,
#include "cache/bundle_counters.inc"
#undef QN_COUNTER
  QN__BUNDLE_COUNTER_COUNT
} qn__bundle_counter_t;

struct qn__bundle {
  qn_allocator_t allocator;
  char* path;
  int fd;
  uint64_t base;       // where the bundle begins in its file; offsets below count from there
  uint64_t file_size;  // from there to the end, when it was opened

  // Rows sorted by key; they lie in `memory`: an index block, or the result of a scan.
  uint64_t count;
  size_t row_bytes;
  const uint8_t* rows;
  uint8_t* memory;  // owned
  size_t memory_size;
  // fanout[b] is the first row whose key starts with the bits b or greater ones.
  uint32_t* fanout;  // owned: (1 << fanout_bits) + 1 numbers
  unsigned fanout_bits;

  // Not NULL: every entry must have the hash of its row.
  const qn__crypto_t* crypto;
  bool is_truncated, is_signed;
  uint8_t signer[QN__PUBLIC_KEY_BYTES];
  qn__bundle_identities_t identities;

  qn__scratch_t scratch;
  _Atomic uint64_t counters[QN__BUNDLE_COUNTER_COUNT];
};

// Returns the first bits of a key as a number that sorts like the key.
static inline uint64_t qn__bundle_prefix(const uint8_t* key) {
  uint64_t prefix = 0;
  for (unsigned i = 0; i < 8; i++) prefix = prefix << 8 | key[i];
  return prefix;
}

// Reads bytes of the bundle. Results as those of qn__fs_pread_all.
static inline int qn__bundle_pread(const qn__bundle_t* bundle, void* out, size_t size,
                                   uint64_t offset) {
  return qn__fs_pread_all(bundle->fd, out, size, bundle->base + offset);
}

// Returns the row of a key, or NULL.
const uint8_t* qn__bundle_find_row(const qn__bundle_t* bundle, const qn_hash128_t* key);
// Tests that rows and fan-out table agree. For debug builds and tests, after the open.
bool qn__bundle_check(const qn__bundle_t* bundle);
// Finds the whole entries of a file without a good tail. Sets rows, count, memory, identities.
qn_status_t qn__bundle_scan(qn__bundle_t* bundle);

#endif  // QUERN_CACHE_BUNDLE_INNER_H_
