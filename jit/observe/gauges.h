// jit/observe/gauges.h: values of the moment, beside the counters: what is loaded, queued, switched
// off.
//
// Thread rule: any thread. Read next: gauges.c.
#ifndef QUERN_JIT_GAUGES_H_
#define QUERN_JIT_GAUGES_H_

#include "jit/engine/engine.h"

// Calls back for each gauge of gauges.inc whose tier the engine has.
void qn__gauges(qn_engine_t* engine,
                void (*on_gauge)(void* self, const char* name, uint64_t value, const char* doc),
                void* self);

#endif  // QUERN_JIT_GAUGES_H_
