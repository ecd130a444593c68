// SPDX-License-Identifier: Apache-2.0
// bench/serve/summary.c: the numbers of summary.h.
#include "bench/serve/summary.h"

#include <math.h>
#include <stdlib.h>

typedef double (*time_of_t)(const client_record_t* record);
typedef bool (*is_in_t)(const client_record_t* record);

static double latency_ms(const client_record_t* record) {
  if (record->outcome != CLIENT_OK) return INFINITY;
  return (double)(record->done_ns - record->scheduled_ns) / 1e6;
}
static double service_ms(const client_record_t* record) {
  return (double)(record->done_ns - record->sent_ns) / 1e6;
}
static double lag_ms(const client_record_t* record) {
  return (double)(record->sent_ns - record->scheduled_ns) / 1e6;
}

static double unread_ms(const client_record_t* record) {
  return (double)record->unread_ns / 1e6;
}

static bool was_due(const client_record_t* record) {
  return record->outcome != CLIENT_UNSENT;
}
static bool was_answered(const client_record_t* record) {
  return record->outcome == CLIENT_OK;
}
static bool was_first_seen(const client_record_t* record) {
  return was_answered(record) && record->is_first_seen;
}
static bool was_other(const client_record_t* record) {
  return was_answered(record) && !record->is_first_seen;
}
static bool has_lag(const client_record_t* record) {
  return record->sent_ns >= 0 && !record->waited;
}

static summary_times_t times_of(const client_run_t* run, size_t begin, time_of_t time_of,
                                is_in_t is_in) {
  static const double levels[] = {
#define SUMMARY_P(name, p) p,
      SUMMARY_LEVELS(SUMMARY_P)
#undef SUMMARY_P
  };
  summary_times_t times = {.mean = NAN, .max = NAN};
  double* values = malloc((run->count + 1) * sizeof *values);
  if (!values) abort();
  double sum = 0;
  for (size_t i = begin; i < run->count; i++) {
    if (!is_in(&run->records[i])) continue;
    values[times.count] = time_of(&run->records[i]);
    sum += values[times.count++];
  }
  quantile_sort(values, times.count);
  for (size_t l = 0; l < SUMMARY_LEVEL_COUNT; l++) {
    times.levels[l] = quantile_of(values, times.count, levels[l]);
  }
  if (times.count > 0) {
    times.mean = sum / (double)times.count;
    times.max = values[times.count - 1];
  }
  free(values);
  return times;
}

summary_t summary_make(const client_run_t* run, const trace_t* trace, size_t warm_up_count,
                       bool is_closed, double lag_limit_ms) {
  size_t begin = warm_up_count < run->count ? warm_up_count : run->count;
  summary_t summary = {.is_closed = is_closed, .warm_up_count = begin};
  int64_t first_ns = -1;
  int64_t last_ns = 0;
  int64_t end_ns = 0;
  double texts = 0;
  double tokens = 0;
  for (size_t i = begin; i < run->count; i++) {
    const client_record_t* record = &run->records[i];
    if (!was_due(record)) continue;
    summary.count++;
    summary.outcomes[record->outcome]++;
    summary.waited_count += record->waited;
    if (first_ns < 0) first_ns = record->scheduled_ns;
    last_ns = record->scheduled_ns;
    if (record->done_ns > end_ns) end_ns = record->done_ns;
    if (!was_answered(record)) continue;
    texts += trace->requests[i].text_count;
    tokens += (double)trace->requests[i].tokens;
  }
  summary.all = times_of(run, begin, latency_ms, was_due);
  summary.answered = times_of(run, begin, latency_ms, was_answered);
  summary.first_seen = times_of(run, begin, latency_ms, was_first_seen);
  summary.others = times_of(run, begin, latency_ms, was_other);
  summary.service = times_of(run, begin, service_ms, was_answered);
  summary.lag = times_of(run, begin, lag_ms, has_lag);
  summary.unread = times_of(run, begin, unread_ms, was_answered);
  summary.lag_limit_ms = lag_limit_ms;
  if (lag_limit_ms <= 0) {
    double of_median = 0.05 * summary.answered.levels[SUMMARY_p50].value;
    summary.lag_limit_ms = of_median > 1 ? of_median : 1;
  }
  // A closed loop has no schedule to lag behind.
  summary.is_bottleneck =
      !is_closed && (summary.lag.levels[SUMMARY_p99].value > summary.lag_limit_ms ||
                     summary.unread.levels[SUMMARY_p99].value > summary.lag_limit_ms);
  summary.seconds = (double)(end_ns - first_ns) / 1e9;
  if (summary.count > 1 && last_ns > first_ns) {
    summary.offered = (double)(summary.count - 1) / ((double)(last_ns - first_ns) / 1e9);
  }
  if (summary.seconds > 0) {
    summary.answered_rate = (double)summary.outcomes[CLIENT_OK] / summary.seconds;
    summary.texts_rate = texts / summary.seconds;
    summary.tokens_rate = tokens / summary.seconds;
  }
  if (run->wall_ns > 0) summary.cpu_share = (double)run->cpu_ns / (double)run->wall_ns;
  return summary;
}
