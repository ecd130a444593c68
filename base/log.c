// SPDX-License-Identifier: Apache-2.0
// base/log.c: see log.h.
//
// Each qn__log loads a level and a pointer and takes no lock, so that logging is safe in a child of
// fork and under any lock. A program that replaces its sink keeps the old one alive until calls in
// flight have left it.
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

// Longer messages are cut.
#define LONGEST_MESSAGE 2048

static _Atomic(int) level_in_force;
static _Atomic(void*) sink_self;
static _Atomic(qn_log_sink_fn_t) sink_in_force;

void qn_log_set_sink(qn_log_level_t level, qn_log_sink_fn_t sink, void* self) {
  if (level > QN_LOG_DEBUG) level = QN_LOG_DEBUG;
  // Off while the pair changes, so that a sink seldom gets the `self` of another one.
  atomic_store(&level_in_force, 0);
  atomic_store(&sink_in_force, NULL);
  atomic_store(&sink_self, self);
  atomic_store(&sink_in_force, sink);
  atomic_store(&level_in_force, sink ? (int)level : 0);
}

bool qn__log_is_on(qn_log_level_t level) {
  return (int)level <= atomic_load_explicit(&level_in_force, memory_order_relaxed);
}

void qn__log(qn_log_level_t level, const char* format, ...) {
  if (!qn__log_is_on(level)) return;
  qn_log_sink_fn_t sink = atomic_load(&sink_in_force);
  if (!sink) return;
  char message[LONGEST_MESSAGE];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  char shown[2 * LONGEST_MESSAGE];
  (void)qn_text_escape(message, strlen(message), true, shown, sizeof shown);
  sink(atomic_load(&sink_self), level, shown);
}
