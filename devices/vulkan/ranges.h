// devices/vulkan/ranges.h: which parts of a block of device memory are taken. It manages numbers
// alone: the memory itself is never touched, as the host may not see it.
//
// Parts begin at multiples of the granule. Free ones are kept in bins by size, four to a power of
// two; neighbours are joined at once. All operations take constant time but for the walk through
// one bin. Thread rule: one thread at a time. Read next: ranges.c, then memory.c.
#ifndef QUERN_DEVICES_VULKAN_RANGES_H_
#define QUERN_DEVICES_VULKAN_RANGES_H_

#include "base/base.h"

#define QN__RANGES_GRANULE 256u
#define QN__RANGES_BINS 128u

typedef struct qn__vk_range {
  uint32_t start;  // in granules, as all below
  uint32_t size;
  uint32_t before;  // neighbours by address; QN__RANGES_NONE at the ends
  uint32_t behind;
  uint32_t previous;  // free: in its bin; taken: `next` is in its bucket
  uint32_t next;
  bool is_free;
} qn__vk_range_t;

typedef struct qn__ranges {
  qn_allocator_t allocator;
  uint32_t size;
  uint32_t allocated;  // in granules
  uint32_t allocated_count;
  qn__vk_range_t* nodes;
  size_t node_capacity;
  uint32_t node_count;   // ever used
  uint32_t first_spare;  // list through `next`
  uint32_t spare_count;
  uint32_t* buckets;      // of taken ranges, by start
  uint32_t bucket_count;  // a power of two
  uint64_t bin_mask[2];
  uint32_t bins[QN__RANGES_BINS];
} qn__ranges_t;

// `size_bytes`: a multiple of the granule, at most 2^40 - 256. False without memory.
bool qn__ranges_init(qn__ranges_t* ranges, qn_allocator_t allocator, uint64_t size_bytes);
void qn__ranges_deinit(qn__ranges_t* ranges);
// `alignment_bytes`: a power of two. False when there is no such part or no memory to note it.
bool qn__ranges_allocate(qn__ranges_t* ranges, uint64_t size_bytes, uint64_t alignment_bytes,
                         uint64_t* out_offset);
// The size of the taken part that begins at `offset`; 0: none begins there.
uint64_t qn__ranges_size(const qn__ranges_t* ranges, uint64_t offset);
// False: no taken part begins there.
bool qn__ranges_free(qn__ranges_t* ranges, uint64_t offset);

#endif  // QUERN_DEVICES_VULKAN_RANGES_H_
