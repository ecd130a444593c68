// SPDX-License-Identifier: Apache-2.0
// jit/engine/background.h: the engine's thread of the lowest priority, which makes variants of
// adaptive functions within a budget.
//
// Not here: which variants (adaptive.h). Read next: background.c.
#ifndef QUERN_JIT_BACKGROUND_H_
#define QUERN_JIT_BACKGROUND_H_

#include <stdatomic.h>

#include "base/fork.h"
#include "jit/call/dispatch.h"
#include "quern/adaptive.h"

typedef struct qn__adaptive qn__adaptive_t;

typedef struct qn__background {
  qn_engine_t* engine;
  qn__mutex_t mutex;
  qn__cond_t changed;
  _Atomic uint32_t busy_count;
  _Atomic bool needs_thread;  // a child of fork has functions, and no thread
  uint64_t percent;           // of one core
  uint64_t max_variants;      // of the engine
  // Sources of time, and of the durations in samples. Tests replace them; `on_sample` may be NULL.
  int64_t (*now_ns)(void);
  int64_t (*cpu_ns)(void);
  void (*on_sample)(qn__dispatch_sample_t* sample);
  int64_t period_ns;  // between two looks at the samples
  bool is_manual;     // no thread is started: a test calls qn__background_step

  // Under the mutex.
  qn__adaptive_t* first;
  uint32_t variant_count;   // in trials or kept
  int64_t tokens_ns;        // processor time that may be spent; negative: was spent before its time
  int64_t refilled_ns;      // when tokens were added
  int64_t compile_cost_ns;  // what a compile is expected to need: a mean of those before
  pthread_t thread;
  bool has_thread, is_stopping, is_exiting;
  bool is_working;  // a variant is being made, without the mutex
  qn__fork_node_t fork_node;
} qn__background_t;

// The object must not move afterwards. Made after the engine's record.
qn_status_t qn__background_init(qn__background_t* background, qn_engine_t* engine);
// Releases the functions. After the stop.
void qn__background_deinit(qn__background_t* background);
// Ends the thread, and the trials of all functions. Waits at most `grace_ns` for a compile; false
// if the thread is left: it releases the engine when it ends.
bool qn__background_stop(qn__background_t* background, int64_t grace_ns);

// Takes over a function, and starts the thread. Errors: UNAVAILABLE; the function still is the
// caller's.
qn_status_t qn__background_add(qn__background_t* background, qn__adaptive_t* adaptive);
// Reads the samples, decides about trials, and makes at most one variant. True if it tried to make
// one. Called by one thread at a time.
bool qn__background_step(qn__background_t* background);

#endif  // QUERN_JIT_BACKGROUND_H_
