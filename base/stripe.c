#define _GNU_SOURCE
// base/stripe.c: see stripe.h.
#include "base/stripe.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

// Where the CPU cannot be asked: the threads in their order.
static uint32_t thread_number(void) {
  static _Atomic uint32_t counter;
  static _Thread_local uint32_t number;  // 0: not chosen yet
  if (number == 0) number = 1 + atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
  return number;
}

uint32_t qn__stripe_ask(void) {
  int cpu = sched_getcpu();
  return cpu >= 0 ? (uint32_t)cpu : thread_number();
}

uint32_t qn__stripe_count(void) {
  // All CPUs, not only those that the process may use: their numbers count, and may change.
  static _Atomic uint32_t known;
  uint32_t count = atomic_load_explicit(&known, memory_order_relaxed);
  if (count != 0) return count;
  long cpus = sysconf(_SC_NPROCESSORS_CONF);
  count = 1;
  while (count < QN__MAX_STRIPES && (long)count < cpus) count *= 2;
  atomic_store_explicit(&known, count, memory_order_relaxed);
  return count;
}
