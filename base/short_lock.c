// base/short_lock.c: waiting for a lock that is taken. See short_lock.h.
#include "base/short_lock.h"

#include <sched.h>
#include <time.h>

// Then the holder is not running: a few turns for it to be scheduled, and then naps.
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
    // Only looks until it is free: an exchange would take the line from its holder.
    if (atomic_load_explicit(&lock->is_taken, memory_order_relaxed) == 0 &&
        atomic_exchange_explicit(&lock->is_taken, 1, memory_order_acquire) == 0) {
      return;
    }
    pause_briefly(turn);
  }
}
