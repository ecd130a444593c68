// SPDX-License-Identifier: Apache-2.0
// serve/metrics.c: counting, and the text for Prometheus.
#include "serve/metrics.h"

typedef enum bound_unit { UNIT_SECONDS, UNIT_COUNT } bound_unit_t;

typedef struct family {
  const char* name;
  const char* labels;
  uint64_t divisor;  // of the value: 1000 for times
  const char* help;
} family_t;

static const family_t counter_families[] = {
#define SERVE_COUNTER(id, name, labels, help) {name, labels, 1, help},
#define SERVE_TIME(id, name, help) {name, "", 1000, help},
#define SERVE_HISTOGRAM(id, name, unit, help)
#include "serve/metrics.inc"
#undef SERVE_COUNTER
#undef SERVE_TIME
#undef SERVE_HISTOGRAM
};

static const struct {
  const char* name;
  bound_unit_t unit;
  const char* help;
} histogram_families[] = {
#define SERVE_COUNTER(id, name, labels, help)
#define SERVE_TIME(id, name, help)
#define SERVE_HISTOGRAM(id, name, unit, help) {name, UNIT_##unit, help},
#include "serve/metrics.inc"
#undef SERVE_COUNTER
#undef SERVE_TIME
#undef SERVE_HISTOGRAM
};

typedef struct bounds {
  size_t count;
  double scale;  // from the unit of the values to that of the text
  uint64_t upper[SERVE_MAX_BUCKETS - 1];
} bounds_t;

static const bounds_t all_bounds[] = {
    [UNIT_SECONDS] = {20, 1e-9, {50000,     100000,     250000,      500000,       1000000,
                                 2000000,   3000000,    5000000,     7500000,      10000000,
                                 15000000,  25000000,   50000000,    100000000,    250000000,
                                 500000000, 1000000000, 2500000000u, 10000000000u, 30000000000u}},
    [UNIT_COUNT] = {16,
                    1.0,
                    {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}},
};

void serve_metrics_add(serve_metrics_t* metrics, serve_counter_t counter, uint64_t value) {
  (void)atomic_fetch_add_explicit(&metrics->counters[counter], value, memory_order_relaxed);
}

uint64_t serve_metrics_get(const serve_metrics_t* metrics, serve_counter_t counter) {
  return atomic_load_explicit(&metrics->counters[counter], memory_order_relaxed);
}

void serve_metrics_note(serve_metrics_t* metrics, serve_histogram_t histogram, uint64_t value) {
  const bounds_t* bounds = &all_bounds[histogram_families[histogram].unit];
  size_t at = 0;
  while (at < bounds->count && value > bounds->upper[at]) ++at;
  serve_bins_t* bins = &metrics->histograms[histogram];
  (void)atomic_fetch_add_explicit(&bins->counts[at], 1, memory_order_relaxed);
  (void)atomic_fetch_add_explicit(&bins->sum, value, memory_order_relaxed);
}

void serve_metrics_print_label(const char* value, serve_buffer_t* out) {
  serve_buffer_text(out, "\"");
  for (; *value; ++value) {
    if (*value == '"' || *value == '\\') serve_buffer_text(out, "\\");
    if (*value == '\n') {
      serve_buffer_text(out, "\\n");
    } else {
      serve_buffer_append(out, value, 1);
    }
  }
  serve_buffer_text(out, "\"");
}

static void print_head(const char* name, const char* help, const char* type, serve_buffer_t* out) {
  serve_buffer_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

// Appends NAME{model="...",version="..." and leaves the brace open.
static void print_name(const char* name, const char* suffix, const serve_metrics_source_t* source,
                       serve_buffer_t* out) {
  serve_buffer_format(out, "%s%s{model=", name, suffix);
  serve_metrics_print_label(source->model, out);
  serve_buffer_text(out, ",version=");
  serve_metrics_print_label(source->version, out);
}

static void print_counter(const serve_metrics_source_t* sources, size_t count,
                          serve_counter_t counter, serve_buffer_t* out) {
  const family_t* family = &counter_families[counter];
  // Counters of one name with other labels are one family.
  if (counter == 0 || strcmp(family->name, family[-1].name) != 0) {
    print_head(family->name, family->help, "counter", out);
  }
  for (size_t i = 0; i < count; ++i) {
    print_name(family->name, "", &sources[i], out);
    const uint64_t value = serve_metrics_get(sources[i].metrics, counter) / family->divisor;
    serve_buffer_format(out, "%s} %llu\n", family->labels, (unsigned long long)value);
  }
}

static void print_bins(const serve_metrics_source_t* source, serve_histogram_t histogram,
                       serve_buffer_t* out) {
  const char* name = histogram_families[histogram].name;
  const bounds_t* bounds = &all_bounds[histogram_families[histogram].unit];
  const serve_bins_t* bins = &source->metrics->histograms[histogram];
  uint64_t total = 0;
  for (size_t i = 0; i <= bounds->count; ++i) {
    total += atomic_load_explicit(&bins->counts[i], memory_order_relaxed);
    print_name(name, "_bucket", source, out);
    if (i == bounds->count) {
      serve_buffer_text(out, ",le=\"+Inf\"");
    } else {
      serve_buffer_format(out, ",le=\"%g\"", (double)bounds->upper[i] * bounds->scale);
    }
    serve_buffer_format(out, "} %llu\n", (unsigned long long)total);
  }
  const uint64_t sum = atomic_load_explicit(&bins->sum, memory_order_relaxed);
  print_name(name, "_sum", source, out);
  serve_buffer_format(out, "} %.9g\n", (double)sum * bounds->scale);
  print_name(name, "_count", source, out);
  serve_buffer_format(out, "} %llu\n", (unsigned long long)total);
}

void serve_metrics_print(const serve_metrics_source_t* sources, size_t count, serve_buffer_t* out) {
  for (int i = 0; i < SERVE_COUNTER_COUNT; ++i) {
    print_counter(sources, count, (serve_counter_t)i, out);
  }
  static const char pending[] = "nv_inference_pending_request_count";
  print_head(pending, "Requests that wait for a batch", "gauge", out);
  for (size_t i = 0; i < count; ++i) {
    print_name(pending, "", &sources[i], out);
    serve_buffer_format(
        out, "} %lld\n",
        (long long)atomic_load_explicit(&sources[i].metrics->pending, memory_order_relaxed));
  }
  for (int i = 0; i < SERVE_HISTOGRAM_COUNT; ++i) {
    print_head(histogram_families[i].name, histogram_families[i].help, "histogram", out);
    for (size_t k = 0; k < count; ++k) print_bins(&sources[k], (serve_histogram_t)i, out);
  }
}
