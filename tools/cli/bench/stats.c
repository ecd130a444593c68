// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/stats.c: quantiles, histograms and intervals of samples.
#include "tools/cli/bench/stats.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/memory.h"

void samples_add(samples_t* samples, size_t round, double value) {
  assert(round < MAX_ROUNDS);
  round_samples_t* at = &samples->rounds[round];
  at->values = memory_room(at->values, &at->capacity, at->count, sizeof *at->values);
  at->values[at->count++] = value;
  if (round >= samples->round_count) samples->round_count = round + 1;
}

size_t samples_count(const samples_t* samples) {
  size_t count = 0;
  for (size_t r = 0; r < samples->round_count; r++) count += samples->rounds[r].count;
  return count;
}

void samples_free(samples_t* samples) {
  for (size_t r = 0; r < samples->round_count; r++) free(samples->rounds[r].values);
  *samples = (samples_t){.round_count = 0};
}

static int compare(const void* a, const void* b) {
  double x = 0, y = 0;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  return (x > y) - (x < y);
}

// Interpolates between neighbours.
static double quantile(const double* sorted, size_t count, double part) {
  double at = part * (double)(count - 1);
  size_t low = (size_t)at;
  if (low + 1 >= count) return sorted[count - 1];
  return sorted[low] + (at - (double)low) * (sorted[low + 1] - sorted[low]);
}

// Returns all samples, sorted; NULL if there are none. Owned: free.
static double* sorted_values(const samples_t* samples, size_t* out_count) {
  *out_count = samples_count(samples);
  if (*out_count == 0) return NULL;
  double* values = memory_zeroed(*out_count, sizeof *values);
  size_t at = 0;
  for (size_t r = 0; r < samples->round_count; r++) {
    const round_samples_t* round = &samples->rounds[r];
    if (round->count > 0) memcpy(values + at, round->values, round->count * sizeof *values);
    at += round->count;
  }
  qsort(values, *out_count, sizeof *values, compare);
  return values;
}

distribution_t samples_distribution(const samples_t* samples) {
  distribution_t d = {.count = 0};
  double* values = sorted_values(samples, &d.count);
  if (!values) return d;
  d.min = values[0];
  d.max = values[d.count - 1];
  d.median = quantile(values, d.count, 0.5);
  d.p90 = quantile(values, d.count, 0.9);
  d.p99 = quantile(values, d.count, 0.99);
  for (size_t i = 0; i < d.count; i++) d.mean += values[i] / (double)d.count;
  double middle = quantile(values, d.count, 0.75) - quantile(values, d.count, 0.25);
  d.spread = d.median > 0 ? middle / d.median : 0;
  free(values);
  return d;
}

void samples_histogram(const samples_t* samples, size_t* bins, size_t bin_count) {
  memset(bins, 0, bin_count * sizeof *bins);
  size_t count;
  double* values = sorted_values(samples, &count);
  if (!values) return;
  double low = values[0], width = quantile(values, count, 0.99) - low;
  for (size_t i = 0; i < count; i++) {
    double part = width > 0 ? (values[i] - low) / width * (double)bin_count : 0;
    bins[part < (double)bin_count ? (size_t)part : bin_count - 1]++;
  }
  free(values);
}

// ------------------------------------------------------------------------------------ intervals

enum { RESAMPLES = 500, MAX_DRAWN = 400 };

// SplitMix64.
static uint64_t next_random(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

static size_t draw(uint64_t* state, size_t count) {
  return (size_t)(next_random(state) % count);
}

// The median of samples of rounds that were drawn with replacement, each with as many samples drawn
// from it as it has, at most MAX_DRAWN in all.
static double resampled_median(const samples_t* samples, const size_t* filled, size_t filled_count,
                               uint64_t* state, double* scratch) {
  size_t count = 0;
  size_t share = MAX_DRAWN / filled_count;
  for (size_t r = 0; r < filled_count; r++) {
    const round_samples_t* round = &samples->rounds[filled[draw(state, filled_count)]];
    size_t wanted = round->count < share ? round->count : share;
    for (size_t i = 0; i < wanted; i++) scratch[count++] = round->values[draw(state, round->count)];
  }
  assert(count > 0 && count <= MAX_DRAWN);
  qsort(scratch, count, sizeof *scratch, compare);
  return quantile(scratch, count, 0.5);
}

static size_t list_filled(const samples_t* samples, size_t out[MAX_ROUNDS]) {
  size_t count = 0;
  for (size_t r = 0; r < samples->round_count; r++) {
    if (samples->rounds[r].count > 0) out[count++] = r;
  }
  return count;
}

ratio_t samples_ratio(const samples_t* a, const samples_t* b) {
  size_t filled_a[MAX_ROUNDS], filled_b[MAX_ROUNDS];
  size_t count_a = list_filled(a, filled_a), count_b = list_filled(b, filled_b);
  assert(count_a > 0 && count_b > 0);
  double ratios[RESAMPLES], scratch[MAX_DRAWN];
  uint64_t state = 1;
  for (size_t i = 0; i < RESAMPLES; i++) {
    double over = resampled_median(a, filled_a, count_a, &state, scratch);
    double under = resampled_median(b, filled_b, count_b, &state, scratch);
    ratios[i] = under > 0 ? over / under : 1;
  }
  qsort(ratios, RESAMPLES, sizeof *ratios, compare);
  double median_a = samples_distribution(a).median, median_b = samples_distribution(b).median;
  return (ratio_t){.ratio = median_b > 0 ? median_a / median_b : 1,
                   .low = quantile(ratios, RESAMPLES, 0.025),
                   .high = quantile(ratios, RESAMPLES, 0.975)};
}
