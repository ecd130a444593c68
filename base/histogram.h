// SPDX-License-Identifier: Apache-2.0
// base/histogram.h: a log-linear histogram of durations; threads add to it without a lock.
//
// Each power of two of nanoseconds has eight buckets, so the upper end of a bucket is at most an
// eighth above its values. A zeroed histogram is empty. A snapshot taken while threads add contains
// each addition or not; its count is always the sum of its buckets.
//
// Not here: names of stages (jit/observe/watch.h).
#ifndef QUERN_BASE_HISTOGRAM_H_
#define QUERN_BASE_HISTOGRAM_H_

#include <stdatomic.h>

#include "base/base.h"

// Values up to 8 have a bucket each; then eight per power of two up to 2^40 ns (18 minutes); the
// last bucket takes longer ones. A bucket includes its upper end.
#define QN__HISTOGRAM_BUCKETS 305u

typedef struct qn__histogram {
  _Atomic uint64_t buckets[QN__HISTOGRAM_BUCKETS];
  _Atomic uint64_t total;
  _Atomic uint64_t max;
} qn__histogram_t;

typedef struct qn__histogram_snapshot {
  uint64_t buckets[QN__HISTOGRAM_BUCKETS];
  uint64_t count;
  uint64_t total;
  uint64_t max;
} qn__histogram_snapshot_t;

// Returns the bucket of a value; the largest value of a bucket (UINT64_MAX for the last one).
size_t qn__histogram_index(uint64_t value);
uint64_t qn__histogram_upper(size_t index);
// Negative values count as 0.
void qn__histogram_add(qn__histogram_t* histogram, int64_t value);
void qn__histogram_read(const qn__histogram_t* histogram, qn__histogram_snapshot_t* out_snapshot);
// Returns an upper bound for `permille` of a thousand values: never above the largest value added;
// 0 for an empty histogram.
uint64_t qn__histogram_quantile(const qn__histogram_snapshot_t* snapshot, unsigned permille);
// Returns the number of values that are certainly at most `limit`: whole buckets only.
uint64_t qn__histogram_count_to(const qn__histogram_snapshot_t* snapshot, uint64_t limit);

#endif  // QUERN_BASE_HISTOGRAM_H_
