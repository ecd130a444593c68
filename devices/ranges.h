// SPDX-License-Identifier: Apache-2.0
// devices/ranges.h: allocates ranges of a block of memory. It only computes with numbers: the host
// may not see the memory itself.
//
// Ranges start at multiples of the granule. Free ranges lie in bins by size, four bins for each
// power of two; free neighbours are joined at once. All operations take constant time, but for the
// search in one bin. Thread rule: one thread at a time.
#ifndef QUERN_DEVICES_RANGES_H_
#define QUERN_DEVICES_RANGES_H_

#include "base/base.h"

#define QN__RANGES_BINS 128u

typedef struct qn__range {
  uint32_t start;  // in granules, as all below
  uint32_t size;
  uint32_t before;  // neighbours by address; UINT32_MAX at the ends
  uint32_t behind;
  uint32_t
      previous;  // a free range: the list of its bin; an allocated one uses only `next`, its bucket
  uint32_t next;
  bool is_free;
} qn__range_t;

typedef struct qn__ranges {
  qn_allocator_t allocator;
  uint32_t granule;  // in bytes
  uint32_t size;     // in granules, as all below
  uint32_t allocated;
  uint32_t allocated_count;
  qn__range_t* nodes;
  size_t node_capacity;
  uint32_t node_count;   // ever used
  uint32_t first_spare;  // list through `next`
  uint32_t spare_count;
  uint32_t* buckets;      // of allocated ranges, by start
  uint32_t bucket_count;  // a power of two
  uint64_t bin_mask[2];
  uint32_t bins[QN__RANGES_BINS];
} qn__ranges_t;

// Makes one free range. `size_bytes`: a multiple of `granule`, less than 2^32 of them. False if
// memory is exhausted.
bool qn__ranges_init(qn__ranges_t* ranges, qn_allocator_t allocator, uint32_t granule,
                     uint64_t size_bytes);
void qn__ranges_deinit(qn__ranges_t* ranges);
// Allocates the first range that fits. `alignment_bytes`: a power of two. False if no range fits or
// the host has no memory for the nodes; nothing has changed then.
bool qn__ranges_allocate(qn__ranges_t* ranges, uint64_t size_bytes, uint64_t alignment_bytes,
                         uint64_t* out_offset);
// Returns the size of the range allocated at `offset`, rounded up to granules; 0: no range starts
// there.
uint64_t qn__ranges_size(const qn__ranges_t* ranges, uint64_t offset);
// Frees the range allocated at `offset`, and joins it with free neighbours. False if no range
// starts there.
bool qn__ranges_free(qn__ranges_t* ranges, uint64_t offset);

// Returns how many bytes are allocated.
uint64_t qn__ranges_used_bytes(const qn__ranges_t* ranges);
// Checks the requirements in ranges.c (debug builds, after each step on a block of few ranges).
bool qn__ranges_check(const qn__ranges_t* ranges);

#endif  // QUERN_DEVICES_RANGES_H_
