// SPDX-License-Identifier: Apache-2.0
// base/histogram.c: computes buckets, and adds to them with atomics.
//
// The index of a bucket consists of the exponent and the three bits after the leading one: a count
// of leading zeros and a shift.
#include "base/histogram.h"

#define SUB_BITS 3u
#define SUB_COUNT (1u << SUB_BITS)

size_t qn__histogram_index(uint64_t value) {
  // A bucket includes its upper end, as those of Prometheus do; hence one less.
  uint64_t below = value ? value - 1 : 0;
  if (below < SUB_COUNT) return (size_t)below;
  unsigned exponent = 63u - (unsigned)__builtin_clzll(below);
  unsigned shift = exponent - SUB_BITS;
  size_t index = (size_t)(shift + 1) * SUB_COUNT + (size_t)(below >> shift & (SUB_COUNT - 1));
  return index < QN__HISTOGRAM_BUCKETS ? index : QN__HISTOGRAM_BUCKETS - 1;
}

uint64_t qn__histogram_upper(size_t index) {
  if (index < SUB_COUNT) return index + 1;
  if (index >= QN__HISTOGRAM_BUCKETS - 1) return UINT64_MAX;
  unsigned shift = (unsigned)(index / SUB_COUNT) - 1;
  return (uint64_t)(SUB_COUNT + index % SUB_COUNT + 1) << shift;
}

void qn__histogram_add(qn__histogram_t* histogram, int64_t value) {
  uint64_t amount = value > 0 ? (uint64_t)value : 0;
  assert(amount <= qn__histogram_upper(qn__histogram_index(amount)));
  // Adds to the total, then updates the maximum, then the bucket, each released: a reader that
  // loads them in the opposite order never finds a value above the maximum, or a maximum above the
  // total.
  atomic_fetch_add_explicit(&histogram->total, amount, memory_order_relaxed);
  uint64_t max = atomic_load_explicit(&histogram->max, memory_order_relaxed);
  while (amount > max &&
         !atomic_compare_exchange_weak_explicit(&histogram->max, &max, amount, memory_order_release,
                                                memory_order_relaxed)) {
  }
  atomic_fetch_add_explicit(&histogram->buckets[qn__histogram_index(amount)], 1,
                            memory_order_release);
}

void qn__histogram_read(const qn__histogram_t* histogram, qn__histogram_snapshot_t* out_snapshot) {
  out_snapshot->count = 0;
  for (size_t i = 0; i < QN__HISTOGRAM_BUCKETS; i++) {
    out_snapshot->buckets[i] = atomic_load_explicit(&histogram->buckets[i], memory_order_acquire);
    out_snapshot->count += out_snapshot->buckets[i];
  }
  out_snapshot->max = atomic_load_explicit(&histogram->max, memory_order_acquire);
  out_snapshot->total = atomic_load_explicit(&histogram->total, memory_order_relaxed);
}

uint64_t qn__histogram_quantile(const qn__histogram_snapshot_t* snapshot, unsigned permille) {
  if (snapshot->count == 0) return 0;
  // The rank of the wanted value, counted from 1 and rounded up.
  uint64_t rank = snapshot->count / 1000 * permille;
  rank += (snapshot->count % 1000 * permille + 999) / 1000;
  if (rank == 0) rank = 1;
  uint64_t seen = 0;
  for (size_t i = 0; i < QN__HISTOGRAM_BUCKETS; i++) {
    seen += snapshot->buckets[i];
    if (seen < rank) continue;
    uint64_t upper = qn__histogram_upper(i);
    return upper < snapshot->max ? upper : snapshot->max;
  }
  return snapshot->max;
}

uint64_t qn__histogram_count_to(const qn__histogram_snapshot_t* snapshot, uint64_t limit) {
  uint64_t count = 0;
  for (size_t i = 0; i < QN__HISTOGRAM_BUCKETS && qn__histogram_upper(i) <= limit; i++) {
    count += snapshot->buckets[i];
  }
  return count;
}
