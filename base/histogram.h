// base/histogram.h: a log-linear histogram of durations that any thread adds to without a lock.
//
// Each power of two of nanoseconds is split into eight, so the upper end of a value's bucket is at
// most an eighth larger than the value. A zeroed histogram is an empty one.
//
// Not here: names of what is measured (jit/observe/watch.h). Thread rule: any thread; a snapshot
// taken while others add holds each addition or not, and its count is always the sum of its
// buckets. Read next: histogram.c.
#ifndef QUERN_BASE_HISTOGRAM_H_
#define QUERN_BASE_HISTOGRAM_H_

#include <stdatomic.h>

#include "base/base.h"

// Values up to 8 have a bucket each; then eight per power of two up to 2^40 ns (18 minutes); the
// last one takes what is longer. A bucket includes its upper end: powers of two are upper ends.
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

// The bucket of a value, and the largest value of a bucket (UINT64_MAX for the last one).
size_t qn__histogram_index(uint64_t value);
uint64_t qn__histogram_upper(size_t index);
// Negative values count as 0.
void qn__histogram_add(qn__histogram_t* histogram, int64_t value);
void qn__histogram_read(const qn__histogram_t* histogram, qn__histogram_snapshot_t* out_snapshot);
// An upper end for the value below or at which `permille` of a thousand lie; never above the
// largest value seen; 0 when nothing was added.
uint64_t qn__histogram_quantile(const qn__histogram_snapshot_t* snapshot, unsigned permille);
// How many values are surely at most `limit`: whole buckets only.
uint64_t qn__histogram_count_to(const qn__histogram_snapshot_t* snapshot, uint64_t limit);

#endif  // QUERN_BASE_HISTOGRAM_H_
