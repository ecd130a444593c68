// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/stats.h: samples of a time, in rounds, and what they say.
//
// A round is a stretch of samples that were taken one after the other. Samples of one round
// resemble each other more than those of different rounds do, because frequencies and neighbours
// on the machine change slowly: intervals resample whole rounds.
#ifndef QUERN_TOOLS_CLI_BENCH_STATS_H_
#define QUERN_TOOLS_CLI_BENCH_STATS_H_

#include <stdbool.h>
#include <stddef.h>

typedef struct round_samples {
  double* values;  // owned; nanoseconds
  size_t count, capacity;
} round_samples_t;

enum { MAX_ROUNDS = 64 };
// Zero-initialised: none.
typedef struct samples {
  round_samples_t rounds[MAX_ROUNDS];
  size_t round_count;
} samples_t;

void samples_add(samples_t* samples, size_t round, double value);
size_t samples_count(const samples_t* samples);
void samples_free(samples_t* samples);

typedef struct distribution {
  size_t count;
  double min, median, p90, p99, max, mean;
  double spread;  // of the middle half, as a part of the median
} distribution_t;
// All zero without samples.
distribution_t samples_distribution(const samples_t* samples);

// Counts samples in `bin_count` bins of equal width between the smallest and the 99th of a hundred;
// larger ones are in the last bin.
void samples_histogram(const samples_t* samples, size_t* bins, size_t bin_count);

// How much longer `a` takes than `b`.
typedef struct ratio {
  double ratio;      // of the medians
  double low, high;  // a 95 % interval, by resampling rounds and the samples within them
} ratio_t;
// Both must have samples. Gives the same interval for the same samples.
ratio_t samples_ratio(const samples_t* a, const samples_t* b);

#endif  // QUERN_TOOLS_CLI_BENCH_STATS_H_
