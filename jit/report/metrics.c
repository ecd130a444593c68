// SPDX-License-Identifier: Apache-2.0
// jit/report/metrics.c: reports the stages of an engine as snapshots, and all its metrics in the
// text format of Prometheus (0.0.4).
//
// Names follow the rules of Prometheus: counters end in _total, durations are in seconds. A stage
// has one bucket for each power of two of nanoseconds, whose counts are exact. Reading resets
// nothing. docs/metrics.md lists all metrics.
#include "base/alloc.h"
#include "base/argument.h"
#include "jit/engine/engine.h"
#include "jit/observe/gauges.h"
#include "jit/observe/trace.h"
#include "quern/config.h"

// From 2^10 ns (about a microsecond) to 2^36 ns (69 s).
#define FIRST_POWER 10u
#define LAST_POWER 36u

void qn_engine_stages(qn_engine_t* engine,
                      void (*on_stage)(void* self, const qn_stage_info_t* stage), void* self) {
  if (!engine || !on_stage) return;
  for (qn__stage_t stage = 0; stage < QN__STAGE_COUNT; stage++) {
    qn__histogram_snapshot_t snapshot;
    qn__watch_read(engine->watch, stage, &snapshot);
    qn_stage_info_t info = {
        .struct_size = sizeof info,
        .name = qn__stage_name(stage),
        .doc = qn__stage_doc(stage),
        .count = snapshot.count,
        .total_ns = (int64_t)snapshot.total,
        .max_ns = (int64_t)snapshot.max,
        .p50_ns = (int64_t)qn__histogram_quantile(&snapshot, 500),
        .p90_ns = (int64_t)qn__histogram_quantile(&snapshot, 900),
        .p99_ns = (int64_t)qn__histogram_quantile(&snapshot, 990),
    };
    on_stage(self, &info);
  }
}

qn_status_t qn_engine_trace(qn_engine_t* engine, qn_sink_t sink) {
  QN_REQUIRE(engine, sink.write);
  if (!qn__watch_has_trace(engine->watch)) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "the engine keeps no spans; set the option 'trace' or QUERN_TRACE");
  }
  return qn__trace_put(engine->watch, engine->allocator, sink);
}

// ---------------------------------------------------------------------------------- the format

static void put_help_text(qn__buffer_t* out, const char* text) {
  for (; *text; text++) {
    if (*text == '\\') {
      qn__buffer_cstr(out, "\\\\");
    } else if (*text == '\n') {
      qn__buffer_cstr(out, "\\n");
    } else {
      qn__buffer_char(out, *text);
    }
  }
}

static void put_family(qn__buffer_t* out, qn_str_t name, const char* suffix, const char* type,
                       const char* doc) {
  qn__buffer_format(out, "# HELP quern_%.*s%s ", QN_STR_ARG(name), suffix);
  put_help_text(out, doc);
  qn__buffer_format(out, "\n# TYPE quern_%.*s%s %s\n", QN_STR_ARG(name), suffix, type);
}

// Writes nanoseconds as seconds, exactly, and with a dot in every locale.
static void put_seconds(qn__buffer_t* out, uint64_t ns) {
  char digits[10];
  uint64_t rest = ns % 1000000000u;
  for (int i = 8; i >= 0; i--, rest /= 10) digits[i] = (char)('0' + rest % 10);
  size_t size = 9;
  while (size > 1 && digits[size - 1] == '0') size--;
  digits[size] = '\0';
  qn__buffer_format(out, "%" PRIu64 ".%s", ns / 1000000000u, digits);
}

static bool cut_suffix(qn_str_t* inout_name, qn_str_t suffix) {
  qn_str_t name = *inout_name;
  if (name.size <= suffix.size ||
      memcmp(name.data + name.size - suffix.size, suffix.data, suffix.size) != 0) {
    return false;
  }
  inout_name->size -= suffix.size;
  return true;
}

static void put_value(qn__buffer_t* out, const char* name, const char* suffix, const char* type,
                      uint64_t value, const char* doc) {
  qn_str_t base = qn__str(name);
  bool is_time = cut_suffix(&base, QN_STR("_ns"));
  qn__buffer_t full;
  qn__buffer_init(&full, out->allocator);
  qn__buffer_str(&full, base);
  qn__buffer_cstr(&full, is_time ? "_seconds" : "");
  qn_str_t family = qn__buffer_as_str(&full);
  put_family(out, family, suffix, type, doc);
  qn__buffer_format(out, "quern_%.*s%s ", QN_STR_ARG(family), suffix);
  if (is_time) {
    put_seconds(out, value);
  } else {
    qn__buffer_format(out, "%" PRIu64, value);
  }
  qn__buffer_char(out, '\n');
  if (full.has_failed) out->has_failed = true;
  qn__buffer_deinit(&full);
}

static void put_counter(void* self, const char* name, uint64_t value, const char* doc) {
  put_value(self, name, "_total", "counter", value, doc);
}

// Writes the gauges: the engine's own, and those of each tier through the tier's table. They are
// read one after the other, so they are not one consistent snapshot.
static void put_gauges(qn__buffer_t* out, qn_engine_t* engine) {
  static const char* const names[] = {
#define QN_GAUGE(name, doc) #name,
#include "jit/observe/gauges.inc"
#undef QN_GAUGE
  };
  static const char* const docs[] = {
#define QN_GAUGE(name, doc) doc,
#include "jit/observe/gauges.inc"
#undef QN_GAUGE
  };
  qn__gauge_values_t values = {.is_set = {false}};
  const qn__table_stats_t table = qn__table_stats(&engine->table);
  uint32_t queued, running;
  qn__pool_counts(&engine->pool, QN__QUEUE_COMPUTE, &queued, &running);
  qn__gauge_set(&values, QN__GAUGE_memory_bytes, table.bytes);
  qn__gauge_set(&values, QN__GAUGE_memory_entries, table.entry_count);
  qn__gauge_set(&values, QN__GAUGE_compile_queue, queued);
  qn__gauge_set(&values, QN__GAUGE_compile_running, running);
  for (qn__tier_t* tier = qn__tier_first(engine); tier; tier = qn__tier_next(tier)) {
    tier->table->gauges(tier, &values);
  }
  for (size_t i = 0; i < QN__GAUGE_COUNT; i++) {
    if (values.is_set[i]) put_value(out, names[i], "", "gauge", values.values[i], docs[i]);
  }
}

static void put_stage(qn__buffer_t* out, const char* stage, const qn__histogram_snapshot_t* now) {
  for (unsigned power = FIRST_POWER; power <= LAST_POWER; power++) {
    uint64_t limit = (uint64_t)1 << power;
    qn__buffer_format(out, "quern_stage_seconds_bucket{stage=\"%s\",le=\"", stage);
    put_seconds(out, limit);
    qn__buffer_format(out, "\"} %" PRIu64 "\n", qn__histogram_count_to(now, limit));
  }
  qn__buffer_format(out, "quern_stage_seconds_bucket{stage=\"%s\",le=\"+Inf\"} %" PRIu64 "\n",
                    stage, now->count);
  qn__buffer_format(out, "quern_stage_seconds_sum{stage=\"%s\"} ", stage);
  put_seconds(out, now->total);
  qn__buffer_format(out, "\nquern_stage_seconds_count{stage=\"%s\"} %" PRIu64 "\n", stage,
                    now->count);
}

static void put_stages(qn__buffer_t* out, const qn_engine_t* engine) {
  put_family(out, QN_STR("stage_seconds"), "", "histogram",
             "how long the stages of lookups took; hits of the memory table are not timed");
  for (qn__stage_t stage = 0; stage < QN__STAGE_COUNT; stage++) {
    qn__histogram_snapshot_t snapshot;
    qn__watch_read(engine->watch, stage, &snapshot);
    put_stage(out, qn__stage_name(stage), &snapshot);
  }
}

qn_status_t qn_engine_metrics(qn_engine_t* engine, qn_sink_t sink) {
  QN_REQUIRE(engine, sink.write);
  qn__buffer_t out;
  qn__buffer_init(&out, engine->allocator);
  put_family(&out, QN_STR("build_info"), "", "gauge", "the version of the library, as a label");
  qn__buffer_cstr(&out, "quern_build_info{version=\"" QN_VERSION_STRING "\"} 1\n");
  qn_engine_counters(engine, put_counter, &out);
  put_gauges(&out, engine);
  put_stages(&out, engine);
  qn_status_t status = qn__buffer_status(&out, "the metrics of an engine");
  if (qn_ok(status)) status = sink.write(sink.self, out.data, out.size);
  qn__buffer_deinit(&out);
  return status;
}
