// SPDX-License-Identifier: Apache-2.0
// bench/serve/summary.h: what a run comes to: percentiles with intervals, rates, lag, errors; as a
// table, as JSON, and one CSV line a request.
#ifndef BENCH_SERVE_SUMMARY_H_
#define BENCH_SERVE_SUMMARY_H_

#include <stdio.h>

#include "bench/serve/client.h"
#include "bench/serve/quantile.h"

// The percentiles that are reported.
#define SUMMARY_LEVELS(X) X(p50, 0.5) X(p90, 0.9) X(p95, 0.95) X(p99, 0.99) X(p99_9, 0.999)
enum {
#define SUMMARY_INDEX(name, p) SUMMARY_##name,
  SUMMARY_LEVELS(SUMMARY_INDEX)
#undef SUMMARY_INDEX
      SUMMARY_LEVEL_COUNT
};

// Milliseconds. Of failed requests the latency is infinite.
typedef struct summary_times {
  size_t count;
  quantile_t levels[SUMMARY_LEVEL_COUNT];
  double mean;
  double max;
} summary_times_t;

typedef struct summary {
  bool is_closed;
  size_t warm_up_count;  // left out of all that follows
  size_t count;          // sent or failed
  size_t outcomes[CLIENT_OUTCOME_COUNT];
  size_t waited_count;         // for a connection
  summary_times_t all;         // from the scheduled instant, failures as infinite
  summary_times_t answered;    // from the scheduled instant
  summary_times_t first_seen;  // of these, those that the server marked
  summary_times_t others;      // of these, those that it did not mark
  summary_times_t service;     // answered, from the instant of sending
  summary_times_t lag;         // scheduled to sent, of requests that did not wait
  summary_times_t unread;      // of answers: how long they lay unread, at most
  double lag_limit_ms;
  bool is_bottleneck;  // the p99 of `lag` or of `unread` is above the limit
  double seconds;      // from the first instant to the last answer
  double offered;      // requests/s of the schedule
  double answered_rate;
  double texts_rate;
  double tokens_rate;  // 0: the trace does not tell tokens
  double cpu_share;    // of one core, taken by the generator
} summary_t;

// `lag_limit_ms` 0: 1 ms or 5 % of the median latency, whichever is more.
summary_t summary_make(const client_run_t* run, const trace_t* trace, size_t warm_up_count,
                       bool is_closed, double lag_limit_ms);
void summary_print(const summary_t* summary, const client_run_t* run, FILE* out);
// These return false with errno set.
bool summary_write_json(const summary_t* summary, const client_run_t* run, const char* trace_path,
                        const char* path);
bool summary_write_records(const client_run_t* run, const trace_t* trace, size_t warm_up_count,
                           const char* path);
bool summary_write_embeddings(const client_run_t* run, const trace_t* trace, const char* path);

#endif  // BENCH_SERVE_SUMMARY_H_
