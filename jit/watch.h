// jit/watch.h: timing of an engine's stages: histograms, and spans for a trace.
//
// Recording takes no lock, allocates nothing and costs two reads of the clock; nothing of it is on
// the path of a memory hit. Thread rule: any thread. Read next: watch.c.
#ifndef QUERN_JIT_WATCH_H_
#define QUERN_JIT_WATCH_H_

#include "base/thread.h"
#include "quern/engine.h"

typedef enum qn__stage {
#define QN_STAGE(name, doc) QN__STAGE_##name,
#include "jit/stages.inc"
#undef QN_STAGE
  QN__STAGE_COUNT
} qn__stage_t;

typedef struct qn__watch qn__watch_t;

// `has_trace`: spans are kept, the latest ones in a bounded ring. Errors: OUT_OF_MEMORY.
qn_status_t qn__watch_create(qn_allocator_t allocator, bool has_trace, qn__watch_t** out_watch);
void qn__watch_destroy(qn__watch_t* watch);  // NULL is fine
// Records that a stage ran from `start_ns` (qn__now_ns) until now. `name` says for what ("softmax@
// 0123456789ab"); it is copied into a span. Returns the duration.
int64_t qn__watch_end(qn__watch_t* watch, qn__stage_t stage, int64_t start_ns, const char* name);

#endif  // QUERN_JIT_WATCH_H_
