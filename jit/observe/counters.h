// SPDX-License-Identifier: Apache-2.0
// jit/observe/counters.h: names the counters of an engine.
//
// Not here: the counters of the tiers, which each tier keeps for itself (cache/*counters.inc).
#ifndef QUERN_JIT_COUNTERS_H_
#define QUERN_JIT_COUNTERS_H_

typedef enum qn__counter {
#define QN_COUNTER(name, doc) QN__COUNTER_##name,
#include "jit/observe/counters.inc"
#undef QN_COUNTER
  QN__COUNTER_COUNT
} qn__counter_t;

#endif  // QUERN_JIT_COUNTERS_H_
