// SPDX-License-Identifier: Apache-2.0
// serve/metrics.h: counters and histograms of a model, printed for Prometheus.
//
// Any thread may count; a reader sees each number whole, and not all of one instant.
#ifndef SERVE_METRICS_H_
#define SERVE_METRICS_H_

#include <stdatomic.h>

#include "serve/buffer.h"

typedef enum serve_counter {
#define SERVE_COUNTER(id, name, labels, help) SERVE_COUNTER_##id,
#define SERVE_TIME(id, name, help) SERVE_COUNTER_##id,
#define SERVE_HISTOGRAM(id, name, unit, help)
#include "serve/metrics.inc"
#undef SERVE_COUNTER
#undef SERVE_TIME
#undef SERVE_HISTOGRAM
  SERVE_COUNTER_COUNT
} serve_counter_t;

typedef enum serve_histogram {
#define SERVE_COUNTER(id, name, labels, help)
#define SERVE_TIME(id, name, help)
#define SERVE_HISTOGRAM(id, name, unit, help) SERVE_HISTOGRAM_##id,
#include "serve/metrics.inc"
#undef SERVE_COUNTER
#undef SERVE_TIME
#undef SERVE_HISTOGRAM
  SERVE_HISTOGRAM_COUNT
} serve_histogram_t;

enum { SERVE_MAX_BUCKETS = 24 };

typedef struct serve_bins {
  atomic_uint_fast64_t counts[SERVE_MAX_BUCKETS];  // the last one: above all bounds
  atomic_uint_fast64_t sum;                        // nanoseconds, or units
} serve_bins_t;

// Zeroed metrics are valid.
typedef struct serve_metrics {
  atomic_uint_fast64_t counters[SERVE_COUNTER_COUNT];
  serve_bins_t histograms[SERVE_HISTOGRAM_COUNT];
  atomic_int_fast64_t pending;       // requests that wait for a batch
  atomic_int_fast64_t last_time_ms;  // of the last success, since 1970; 0: none
} serve_metrics_t;

void serve_metrics_add(serve_metrics_t* metrics, serve_counter_t counter, uint64_t value);
// `value` is in nanoseconds for a histogram of seconds.
void serve_metrics_note(serve_metrics_t* metrics, serve_histogram_t histogram, uint64_t value);
uint64_t serve_metrics_get(const serve_metrics_t* metrics, serve_counter_t counter);

// A model and its labels.
typedef struct serve_metrics_source {
  const serve_metrics_t* metrics;
  const char* model;
  const char* version;
} serve_metrics_source_t;

// Appends all families in Prometheus' text format, version 0.0.4.
void serve_metrics_print(const serve_metrics_source_t* sources, size_t count, serve_buffer_t* out);
// Appends a label's value, quoted and escaped.
void serve_metrics_print_label(const char* value, serve_buffer_t* out);

#endif  // SERVE_METRICS_H_
