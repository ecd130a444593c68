// SPDX-License-Identifier: Apache-2.0
// base/short_lock.h: a lock for sections of a few nanoseconds with little contention: one word, one
// atomic exchange to lock, one store to unlock.
//
// A pthread mutex needs a second atomic operation to find out whether a thread sleeps on it; here
// no thread does. A thread that finds the lock taken spins, yields and then sleeps briefly, so that
// a holder of lower priority on the same CPU can run. Not for sections that wait.
//
// A child of fork initialises it again. Read next: jit/engine/table.c, its user.
#ifndef QUERN_BASE_SHORT_LOCK_H_
#define QUERN_BASE_SHORT_LOCK_H_

#include <stdatomic.h>

#include "base/base.h"

typedef struct qn__short_lock {
  _Atomic uint32_t is_taken;
} qn__short_lock_t;

static inline void qn__short_lock_init(qn__short_lock_t* lock) {
  atomic_init(&lock->is_taken, 0);
}
// Waits until the lock is free, and takes it.
void qn__short_lock_wait(qn__short_lock_t* lock);
static inline void qn__short_lock(qn__short_lock_t* lock) {
  if (__builtin_expect(atomic_exchange_explicit(&lock->is_taken, 1, memory_order_acquire), 0)) {
    qn__short_lock_wait(lock);
  }
}
static inline void qn__short_unlock(qn__short_lock_t* lock) {
  atomic_store_explicit(&lock->is_taken, 0, memory_order_release);
}

#endif  // QUERN_BASE_SHORT_LOCK_H_
