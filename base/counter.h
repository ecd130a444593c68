// SPDX-License-Identifier: Apache-2.0
// base/counter.h: counters that any thread raises: an array of numbers, and a table of their names.
//
// The table and an enumeration of the indices are made from one .inc file of QN_COUNTER lines.
#ifndef QUERN_BASE_COUNTER_H_
#define QUERN_BASE_COUNTER_H_

#include <stdatomic.h>
#include <string.h>

#include "base/base.h"

typedef struct qn__counter_row {
  const char* name;
  const char* doc;
} qn__counter_row_t;

// The counters of one object. Borrowed from it.
typedef struct qn__counter_set {
  const qn__counter_row_t* rows;
  const _Atomic uint64_t* values;
  size_t count;
} qn__counter_set_t;

static inline void qn__counter_add(_Atomic uint64_t* counter, uint64_t amount) {
  (void)atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

// Returns the counter of that name; 0 for a name that the table lacks.
static inline uint64_t qn__counter_find(qn__counter_set_t set, const char* name) {
  for (size_t i = 0; i < set.count; i++) {
    if (strcmp(set.rows[i].name, name) == 0) {
      return atomic_load_explicit(&set.values[i], memory_order_relaxed);
    }
  }
  return 0;
}

#endif  // QUERN_BASE_COUNTER_H_
