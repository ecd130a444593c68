// jit/observe/gauges.c: the gauges of an engine, by table.
//
// Each is read by itself, so two of them may be of slightly different moments. Thread rule: any
// thread. Read next: metrics.c.
#include "jit/observe/gauges.h"

static uint64_t bundle_entries(const qn_engine_t* engine) {
  uint64_t count = 0;
  for (size_t i = 0; i < engine->bundle_count; i++) count += qn__bundle_count(engine->bundles[i]);
  return count;
}

void qn__gauges(qn_engine_t* engine,
                void (*on_gauge)(void* self, const char* name, uint64_t value, const char* doc),
                void* self) {
  const qn__table_stats_t table = qn__table_stats(&engine->table);
  uint32_t queued, running;
  qn__pool_counts(&engine->pool, QN__TASK_COMPILE, &queued, &running);
#define QN_GAUGE(name, doc, has, value) \
  if (has) on_gauge(self, #name, (uint64_t)(value), doc);
#include "jit/observe/gauges.inc"
#undef QN_GAUGE
}
