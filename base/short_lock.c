// SPDX-License-Identifier: Apache-2.0
// base/short_lock.c: waits for a taken lock. See short_lock.h.
#include "base/short_lock.h"

#include <sched.h>
#include <time.h>

// After the spins the holder is probably not running: yields let it run, then short sleeps.
enum { SPINS = 200, YIELDS = 20, NAP_NS = 20000 };

static void pause_briefly(uint32_t turn) {
  if (turn < SPINS) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  } else if (turn < SPINS + YIELDS) {
    (void)sched_yield();
  } else {
    (void)nanosleep(&(struct timespec){0, NAP_NS}, NULL);
  }
}

void qn__short_lock_wait(qn__short_lock_t* lock) {
  for (uint32_t turn = 0;; turn = turn < SPINS + YIELDS ? turn + 1 : turn) {
    // Loads until it is free: an exchange would take the cache line from the holder.
    if (atomic_load_explicit(&lock->is_taken, memory_order_relaxed) == 0 &&
        atomic_exchange_explicit(&lock->is_taken, 1, memory_order_acquire) == 0) {
      return;
    }
    pause_briefly(turn);
  }
}
