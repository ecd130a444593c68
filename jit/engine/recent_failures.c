// SPDX-License-Identifier: Apache-2.0
// jit/engine/recent_failures.c: see recent_failures.h.
#include "jit/engine/recent_failures.h"

#include "base/thread.h"

static bool says_something(qn_status_t status) {
  switch (qn_status_code(status)) {
    case QN_STATUS_OUT_OF_MEMORY:
    case QN_STATUS_CANCELLED:
    case QN_STATUS_DEADLINE_EXCEEDED:
    case QN_STATUS_COMPILE_FORBIDDEN:
      return false;
    default:
      return true;
  }
}

static void clear(qn__recent_failures_t* failures, size_t slot) {
  qn_status_free(failures->items[slot].status);
  failures->items[slot].status = QN_OK;
}

// The slot of the key, or QN__FAILURE_COUNT.
static size_t find(const qn__recent_failures_t* failures, const qn__ident_t* ident) {
  size_t slot = 0;
  while (slot < QN__FAILURE_COUNT && (qn_ok(failures->items[slot].status) ||
                                      !qn__ident_equal(&failures->items[slot].ident, ident))) {
    slot++;
  }
  return slot;
}

void qn__failures_remember(qn__recent_failures_t* failures, const qn__ident_t* ident,
                           qn_status_t status) {
  assert(!qn_ok(status));
  if (!says_something(status)) return;
  qn_status_t copy = qn_status_clone(status);
  // Without memory for the copy nothing is remembered.
  if (qn_status_code(copy) != qn_status_code(status)) return;
  size_t slot = find(failures, ident);
  if (slot == QN__FAILURE_COUNT) {
    slot = failures->next;
    failures->next = (slot + 1) % QN__FAILURE_COUNT;
  }
  clear(failures, slot);
  failures->items[slot].status = copy;
  failures->items[slot].ident = *ident;
  failures->items[slot].until_ns = qn__after(qn__now_ns(), failures->period_ns);
}

qn_status_t qn__failures_recall(qn__recent_failures_t* failures, const qn__ident_t* ident) {
  size_t slot = find(failures, ident);
  if (slot == QN__FAILURE_COUNT) return QN_OK;
  if (qn__now_ns() < failures->items[slot].until_ns) {
    return qn_status_clone(failures->items[slot].status);
  }
  clear(failures, slot);
  return QN_OK;
}

void qn__failures_forget(qn__recent_failures_t* failures, const qn__ident_t* ident) {
  size_t slot = find(failures, ident);
  if (slot < QN__FAILURE_COUNT) clear(failures, slot);
}

void qn__failures_deinit(qn__recent_failures_t* failures) {
  for (size_t i = 0; i < QN__FAILURE_COUNT; i++) clear(failures, i);
}
