// SPDX-License-Identifier: Apache-2.0
// bench/serve/quantile.h: quantiles of a sample with intervals from its own order.
//
// The interval of a quantile is a pair of order statistics whose ranks come from the binomial
// distribution: no assumption about the shape of the tail. It does assume that values are
// independent. Latencies of neighbours in a queue are not, so the interval is a lower bound of the
// doubt; compare-runs takes whole runs as the unit instead.
#ifndef BENCH_SERVE_QUANTILE_H_
#define BENCH_SERVE_QUANTILE_H_

#include <stddef.h>

typedef struct quantile {
  double value;  // the nearest rank; NaN for an empty sample
  double low;    // of the interval of 95 %; NaN: the sample is too small to bound it
  double high;
} quantile_t;

// Sorts in place.
void quantile_sort(double* values, size_t count);
// `sorted` ascending, may end with infinities. 0 < p < 1.
quantile_t quantile_of(const double* sorted, size_t count, double p);
// Returns the ranks, from 1, of the interval; *out_low 0 and *out_high count + 1: no such rank.
void quantile_ranks(size_t count, double p, size_t* out_low, size_t* out_high);

#endif  // BENCH_SERVE_QUANTILE_H_
