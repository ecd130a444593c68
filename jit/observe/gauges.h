// SPDX-License-Identifier: Apache-2.0
// jit/observe/gauges.h: names the gauges of an engine, which give its present state: loaded bytes,
// queue lengths, tiers that are switched off.
#ifndef QUERN_JIT_GAUGES_H_
#define QUERN_JIT_GAUGES_H_

#include <stdbool.h>
#include <stdint.h>

typedef enum qn__gauge {
#define QN_GAUGE(name, doc) QN__GAUGE_##name,
#include "jit/observe/gauges.inc"
#undef QN_GAUGE
  QN__GAUGE_COUNT
} qn__gauge_t;

typedef struct qn__gauge_values {
  bool is_set[QN__GAUGE_COUNT];
  uint64_t values[QN__GAUGE_COUNT];
} qn__gauge_values_t;

static inline void qn__gauge_set(qn__gauge_values_t* values, qn__gauge_t gauge, uint64_t value) {
  values->is_set[gauge] = true;
  values->values[gauge] = value;
}

#endif  // QUERN_JIT_GAUGES_H_
