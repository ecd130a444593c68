// SPDX-License-Identifier: Apache-2.0
// devices/ranges.c: see ranges.h.
//
// Requirements; `qn__ranges_check` tests 1 to 4:
//  1. The nodes, sorted by address, cover the block without gaps.
//  2. No two neighbours are free.
//  3. Each free node is in the bin of its size, each allocated node in the bucket of its start.
//  4. The sums `allocated` and `allocated_count`, and the number of nodes, are right.
//  5. An operation reserves all nodes that it may need before it changes anything. So it happens as
//     a whole or not at all.
#include "devices/ranges.h"

#include "base/alloc.h"

#define NONE UINT32_MAX
#define FIRST_BUCKETS 64u
#define CHECKED_NODES 1024u  // debug builds check blocks with more nodes only when they are made

// Returns the bin of a size: four bins for each power of two.
static uint32_t bin_of(uint32_t size) {
  if (size < 4) return size;
  uint32_t log = 31u - (uint32_t)__builtin_clz(size);
  return log * 4 + ((size >> (log - 2)) & 3u) - 4;
}

static uint32_t bucket_of(const qn__ranges_t* ranges, uint32_t start) {
  return (start * UINT32_C(0x9E3779B1)) >> 7 & (ranges->bucket_count - 1);
}

static void bin_add(qn__ranges_t* ranges, uint32_t index) {
  qn__range_t* node = &ranges->nodes[index];
  uint32_t bin = bin_of(node->size);
  node->is_free = true;
  node->previous = NONE;
  node->next = ranges->bins[bin];
  if (node->next != NONE) ranges->nodes[node->next].previous = index;
  ranges->bins[bin] = index;
  ranges->bin_mask[bin / 64] |= UINT64_C(1) << (bin % 64);
}

static void bin_remove(qn__ranges_t* ranges, uint32_t index) {
  qn__range_t* node = &ranges->nodes[index];
  uint32_t bin = bin_of(node->size);
  if (node->previous != NONE) {
    ranges->nodes[node->previous].next = node->next;
  } else {
    ranges->bins[bin] = node->next;
    if (node->next == NONE) ranges->bin_mask[bin / 64] &= ~(UINT64_C(1) << (bin % 64));
  }
  if (node->next != NONE) ranges->nodes[node->next].previous = node->previous;
}

static void bucket_add(qn__ranges_t* ranges, uint32_t index) {
  qn__range_t* node = &ranges->nodes[index];
  uint32_t bucket = bucket_of(ranges, node->start);
  node->is_free = false;
  node->next = ranges->buckets[bucket];
  ranges->buckets[bucket] = index;
}

// Doubles the buckets. If memory is exhausted, the buckets stay: longer lists are slower, but
// right.
static void widen(qn__ranges_t* ranges) {
  uint32_t count = ranges->bucket_count * 2;
  uint32_t* buckets = qn__alloc(ranges->allocator, count * sizeof *buckets);
  if (!buckets) return;
  uint32_t* old = ranges->buckets;
  uint32_t old_count = ranges->bucket_count;
  for (uint32_t i = 0; i < count; i++) buckets[i] = NONE;
  ranges->buckets = buckets;
  ranges->bucket_count = count;
  for (uint32_t i = 0; i < old_count; i++) {
    for (uint32_t at = old[i]; at != NONE;) {
      uint32_t next = ranges->nodes[at].next;
      bucket_add(ranges, at);
      at = next;
    }
  }
  qn__free(ranges->allocator, old, old_count * sizeof *old);
}

static bool reserve_nodes(qn__ranges_t* ranges, uint32_t count) {
  if (ranges->spare_count >= count) return true;
  void* nodes = ranges->nodes;
  size_t needed = (size_t)ranges->node_count + count - ranges->spare_count;
  bool is_done =
      qn__grow(ranges->allocator, &nodes, &ranges->node_capacity, needed, sizeof *ranges->nodes);
  ranges->nodes = nodes;
  return is_done;
}

// Returns a node that was reserved before.
static uint32_t new_node(qn__ranges_t* ranges) {
  assert(ranges->spare_count > 0 || ranges->node_count < ranges->node_capacity);
  if (ranges->spare_count == 0) return ranges->node_count++;
  uint32_t index = ranges->first_spare;
  ranges->first_spare = ranges->nodes[index].next;
  ranges->spare_count--;
  return index;
}

static void drop_node(qn__ranges_t* ranges, uint32_t index) {
  ranges->nodes[index].next = ranges->first_spare;
  ranges->first_spare = index;
  ranges->spare_count++;
}

// ---------------------------------------------------------------------------------- check

// Returns whether the bucket list that starts at `at` contains `index`.
static bool is_listed(const qn__ranges_t* ranges, uint32_t at, uint32_t index) {
  while (at != NONE && at != index) at = ranges->nodes[at].next;
  return at == index;
}

bool qn__ranges_check(const qn__ranges_t* ranges) {
  uint64_t free_bins[2] = {0};
  uint32_t end = 0, previous = NONE, node_count = 0;
  uint32_t allocated = 0, allocated_count = 0;
  // Node 0 is the first of the block: `cut` shortens it in place, and `join` keeps the lower node.
  for (uint32_t at = 0; at != NONE; at = ranges->nodes[at].behind) {
    const qn__range_t* node = &ranges->nodes[at];
    if (QN_NEVER(node->start != end || node->size == 0 || node->before != previous)) return false;
    if (node->is_free) {
      const uint32_t bin = bin_of(node->size);
      if (QN_NEVER(previous != NONE && ranges->nodes[previous].is_free)) return false;
      const uint32_t link =
          node->previous == NONE ? ranges->bins[bin] : ranges->nodes[node->previous].next;
      if (QN_NEVER(link != at)) return false;
      free_bins[bin / 64] |= UINT64_C(1) << (bin % 64);
    } else {
      const uint32_t bucket = bucket_of(ranges, node->start);
      if (QN_NEVER(!is_listed(ranges, ranges->buckets[bucket], at))) return false;
      allocated += node->size;
      allocated_count++;
    }
    end = node->start + node->size;
    previous = at;
    node_count++;
  }
  return !QN_NEVER(end != ranges->size || allocated != ranges->allocated ||
                   allocated_count != ranges->allocated_count ||
                   node_count + ranges->spare_count != ranges->node_count ||
                   free_bins[0] != ranges->bin_mask[0] || free_bins[1] != ranges->bin_mask[1]);
}

// ---------------------------------------------------------------------------------- life

bool qn__ranges_init(qn__ranges_t* ranges, qn_allocator_t allocator, uint32_t granule,
                     uint64_t size_bytes) {
  assert(size_bytes % granule == 0 && size_bytes / granule < NONE);
  *ranges = (qn__ranges_t){.allocator = allocator,
                           .granule = granule,
                           .size = (uint32_t)(size_bytes / granule),
                           .first_spare = NONE,
                           .bucket_count = FIRST_BUCKETS};
  ranges->buckets = qn__alloc(allocator, FIRST_BUCKETS * sizeof *ranges->buckets);
  if (!ranges->buckets || !reserve_nodes(ranges, 1)) {
    qn__ranges_deinit(ranges);
    return false;
  }
  for (uint32_t i = 0; i < FIRST_BUCKETS; i++) ranges->buckets[i] = NONE;
  for (uint32_t i = 0; i < QN__RANGES_BINS; i++) ranges->bins[i] = NONE;
  uint32_t index = new_node(ranges);
  ranges->nodes[index] = (qn__range_t){.size = ranges->size, .before = NONE, .behind = NONE};
  bin_add(ranges, index);
  assert(qn__ranges_check(ranges));
  return true;
}

void qn__ranges_deinit(qn__ranges_t* ranges) {
  qn__free(ranges->allocator, ranges->nodes, ranges->node_capacity * sizeof *ranges->nodes);
  if (ranges->buckets) {
    qn__free(ranges->allocator, ranges->buckets, ranges->bucket_count * sizeof *ranges->buckets);
  }
  ranges->nodes = NULL;
  ranges->buckets = NULL;
}

// ---------------------------------------------------------------------------------- ranges

// Returns how many granules to skip so that the range starts at a multiple of `alignment`.
static uint32_t gap_of(const qn__range_t* node, uint32_t alignment) {
  return (alignment - node->start % alignment) % alignment;
}

static bool fits(const qn__range_t* node, uint32_t size, uint32_t alignment) {
  return node->size >= size && node->size - size >= gap_of(node, alignment);
}

static uint32_t find(const qn__ranges_t* ranges, uint32_t size, uint32_t alignment) {
  for (uint32_t bin = bin_of(size); bin < QN__RANGES_BINS; bin++) {
    uint64_t mask = ranges->bin_mask[bin / 64] >> (bin % 64);
    if (mask == 0) {
      bin |= 63u;  // skip this word: no later bin in it has a range
      continue;
    }
    bin += (uint32_t)__builtin_ctzll(mask);
    for (uint32_t at = ranges->bins[bin]; at != NONE; at = ranges->nodes[at].next) {
      if (fits(&ranges->nodes[at], size, alignment)) return at;
    }
  }
  return NONE;
}

// Shortens a node that is in no list to `size` granules; returns a new node with the rest.
static uint32_t cut(qn__ranges_t* ranges, uint32_t index, uint32_t size) {
  assert(size > 0 && size < ranges->nodes[index].size);
  uint32_t rest_index = new_node(ranges);
  qn__range_t* node = &ranges->nodes[index];
  qn__range_t* rest = &ranges->nodes[rest_index];
  *rest = (qn__range_t){.start = node->start + size,
                        .size = node->size - size,
                        .before = index,
                        .behind = node->behind};
  if (rest->behind != NONE) ranges->nodes[rest->behind].before = rest_index;
  node->behind = rest_index;
  node->size = size;
  return rest_index;
}

bool qn__ranges_allocate(qn__ranges_t* ranges, uint64_t size_bytes, uint64_t alignment_bytes,
                         uint64_t* out_offset) {
  uint64_t granules = size_bytes / ranges->granule + (size_bytes % ranges->granule != 0 ? 1 : 0);
  if (granules == 0) granules = 1;
  uint64_t alignment = alignment_bytes / ranges->granule;
  if (alignment == 0) alignment = 1;
  if (granules > ranges->size || alignment > ranges->size) return false;
  uint32_t size = (uint32_t)granules;
  if (!reserve_nodes(ranges, 2)) return false;
  uint32_t index = find(ranges, size, (uint32_t)alignment);
  if (index == NONE) return false;
  bin_remove(ranges, index);
  uint32_t gap = gap_of(&ranges->nodes[index], (uint32_t)alignment);
  if (gap != 0) {
    uint32_t rest = cut(ranges, index, gap);
    bin_add(ranges, index);
    index = rest;
  }
  if (ranges->nodes[index].size > size) bin_add(ranges, cut(ranges, index, size));
  if (ranges->allocated_count >= ranges->bucket_count) widen(ranges);
  bucket_add(ranges, index);
  ranges->allocated += size;
  ranges->allocated_count++;
  *out_offset = (uint64_t)ranges->nodes[index].start * ranges->granule;
  assert(ranges->node_count > CHECKED_NODES || qn__ranges_check(ranges));
  return true;
}

// Returns the link to the node allocated at `offset`; NULL: no node starts there.
static uint32_t* find_allocated(const qn__ranges_t* ranges, uint64_t offset) {
  uint64_t start = offset / ranges->granule;
  if (offset % ranges->granule != 0 || start >= ranges->size) return NULL;
  uint32_t* at = &ranges->buckets[bucket_of(ranges, (uint32_t)start)];
  while (*at != NONE && ranges->nodes[*at].start != start) at = &ranges->nodes[*at].next;
  return *at == NONE ? NULL : at;
}

uint64_t qn__ranges_size(const qn__ranges_t* ranges, uint64_t offset) {
  const uint32_t* at = find_allocated(ranges, offset);
  return at ? (uint64_t)ranges->nodes[*at].size * ranges->granule : 0;
}

uint64_t qn__ranges_used_bytes(const qn__ranges_t* ranges) {
  return (uint64_t)ranges->allocated * ranges->granule;
}

// Joins `index` with its next neighbour by address, which must be in no list.
static void join(qn__ranges_t* ranges, uint32_t index) {
  qn__range_t* node = &ranges->nodes[index];
  uint32_t gone = node->behind;
  assert(ranges->nodes[gone].start == node->start + node->size);
  node->size += ranges->nodes[gone].size;
  node->behind = ranges->nodes[gone].behind;
  if (node->behind != NONE) ranges->nodes[node->behind].before = index;
  drop_node(ranges, gone);
}

bool qn__ranges_free(qn__ranges_t* ranges, uint64_t offset) {
  uint32_t* at = find_allocated(ranges, offset);
  if (!at) return false;
  uint32_t index = *at;
  qn__range_t* node = &ranges->nodes[index];
  *at = node->next;
  ranges->allocated -= node->size;
  ranges->allocated_count--;
  if (node->behind != NONE && ranges->nodes[node->behind].is_free) {
    bin_remove(ranges, node->behind);
    join(ranges, index);
  }
  if (node->before != NONE && ranges->nodes[node->before].is_free) {
    index = node->before;
    bin_remove(ranges, index);
    join(ranges, index);
  }
  bin_add(ranges, index);
  assert(ranges->node_count > CHECKED_NODES || qn__ranges_check(ranges));
  return true;
}
