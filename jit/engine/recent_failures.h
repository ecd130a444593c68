// SPDX-License-Identifier: Apache-2.0
// jit/engine/recent_failures.h: remembers compiles that failed lately, so that a burst of lookups
// of one key fails once.
//
// Thread rule: one thread at a time; the lookups in flight call it under their lock.
#ifndef QUERN_JIT_RECENT_FAILURES_H_
#define QUERN_JIT_RECENT_FAILURES_H_

#include "jit/engine/table.h"

#define QN__FAILURE_COUNT 64u

typedef struct qn__recent_failures {
  struct {
    qn__ident_t ident;
    qn_status_t status;  // owned; ok: the slot is free
    int64_t until_ns;
  } items[QN__FAILURE_COUNT];
  size_t next;  // the slot to be replaced
  int64_t period_ns;
} qn__recent_failures_t;

void qn__failures_deinit(qn__recent_failures_t* failures);
// Keeps a copy of the status, unless it says nothing about the key (OUT_OF_MEMORY and its like).
void qn__failures_remember(qn__recent_failures_t* failures, const qn__ident_t* ident,
                           qn_status_t status);
// Returns a copy of the status of a key that failed lately, or ok.
qn_status_t qn__failures_recall(qn__recent_failures_t* failures, const qn__ident_t* ident);
void qn__failures_forget(qn__recent_failures_t* failures, const qn__ident_t* ident);

#endif  // QUERN_JIT_RECENT_FAILURES_H_
