// jit/observe/gauges.c: reads the gauges of an engine: its own here, those of each tier through the
// tier's table.
#include "jit/observe/gauges.h"

void qn__gauges(qn_engine_t* engine,
                void (*on_gauge)(void* self, const char* name, uint64_t value, const char* doc),
                void* self) {
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
    if (values.is_set[i]) on_gauge(self, names[i], values.values[i], docs[i]);
  }
}
