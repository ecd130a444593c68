// SPDX-License-Identifier: Apache-2.0
// jit/observe/watch.h: times an engine's stages: histograms, and spans for a trace.
//
// Recording takes no lock, allocates nothing and costs two reads of the clock. A memory hit is not
// timed. Not here: the output (metrics.c, trace.c).
#ifndef QUERN_JIT_WATCH_H_
#define QUERN_JIT_WATCH_H_

#include "base/histogram.h"
#include "base/thread.h"
#include "quern/backend.h"
#include "quern/observe.h"

typedef enum qn__stage {
#define QN_STAGE(name, doc) QN__STAGE_##name,
#include "jit/observe/stages.inc"
#undef QN_STAGE
  QN__STAGE_COUNT
} qn__stage_t;

typedef struct qn__watch qn__watch_t;

// Creates a watch. With `has_trace` it also keeps the latest spans, in a bounded ring. Errors:
// OUT_OF_MEMORY.
qn_status_t qn__watch_create(qn_allocator_t allocator, bool has_trace, qn__watch_t** out_watch);
void qn__watch_destroy(qn__watch_t* watch);  // NULL is fine
// Records that a stage ran from `start_ns` (qn__now_ns) until now, and returns the duration. `name`
// is the kernel and its key ("softmax@0123456789ab"); it is copied into the span. `watch` NULL
// records nothing.
int64_t qn__watch_end(qn__watch_t* watch, qn__stage_t stage, int64_t start_ns, const char* name);

// Return the name ("lookup") and the description of a stage. Static storage.
const char* qn__stage_name(qn__stage_t stage);
const char* qn__stage_doc(qn__stage_t stage);
void qn__watch_read(const qn__watch_t* watch, qn__stage_t stage,
                    qn__histogram_snapshot_t* out_snapshot);

#define QN__SPAN_NAME_BYTES 48u
#define QN__SPAN_THREAD_BYTES 16u
#define QN__SPAN_COUNT 16384u  // the size of the ring

typedef struct qn__span {
  qn__stage_t stage;
  uint32_t process;
  uint32_t thread;  // as the operating system numbers them
  int64_t start_ns;
  int64_t duration_ns;
  char thread_name[QN__SPAN_THREAD_BYTES];
  char name[QN__SPAN_NAME_BYTES];  // truncated if longer; terminated
} qn__span_t;

bool qn__watch_has_trace(const qn__watch_t* watch);
// Return the number of spans recorded, and the number of those that later spans overwrote.
uint64_t qn__watch_span_count(const qn__watch_t* watch);
uint64_t qn__watch_lost(const qn__watch_t* watch);
// Returns false in a child of fork that inherited the watch.
bool qn__watch_is_of_this_process(const qn__watch_t* watch);
// Calls back for each span in the ring, the oldest first. Skips spans that are being overwritten.
void qn__watch_spans(const qn__watch_t* watch, void (*on_span)(void* self, const qn__span_t* span),
                     void* self);

#endif  // QUERN_JIT_WATCH_H_
