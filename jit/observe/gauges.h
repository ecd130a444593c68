// jit/observe/gauges.h: values of the moment, beside the counters: what is loaded, queued, switched
// off.
#ifndef QUERN_JIT_GAUGES_H_
#define QUERN_JIT_GAUGES_H_

#include "jit/engine/engine.h"

typedef enum qn__gauge {
#define QN_GAUGE(name, doc) QN__GAUGE_##name,
#include "jit/observe/gauges.inc"
#undef QN_GAUGE
  QN__GAUGE_COUNT
} qn__gauge_t;

struct qn__gauge_values {
  bool is_set[QN__GAUGE_COUNT];
  uint64_t values[QN__GAUGE_COUNT];
};

static inline void qn__gauge_set(qn__gauge_values_t* values, qn__gauge_t gauge, uint64_t value) {
  values->is_set[gauge] = true;
  values->values[gauge] = value;
}

// Calls back for each gauge that the engine has. Each is read by itself, so two of them may be of
// slightly different moments.
void qn__gauges(qn_engine_t* engine,
                void (*on_gauge)(void* self, const char* name, uint64_t value, const char* doc),
                void* self);

#endif  // QUERN_JIT_GAUGES_H_
