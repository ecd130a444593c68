// jit/gauges.c: the gauges of an engine, by table.
//
// Thread rule: any thread. Read next: metrics.c.
#include "jit/gauges.h"

void qn__gauges(qn_engine_t* engine,
                void (*on_gauge)(void* self, const char* name, uint64_t value, const char* doc),
                void* self) {
#define QN_GAUGE(name, doc, has, value) \
  if (has) on_gauge(self, #name, (uint64_t)(value), doc);
#include "jit/gauges.inc"
#undef QN_GAUGE
}
