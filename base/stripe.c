// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// base/stripe.c: see stripe.h.
#include "base/stripe.h"

#include <sched.h>
#include <stdatomic.h>

// Numbers the threads in their order, where the CPU is not known.
static uint32_t thread_number(void) {
  static _Atomic uint32_t counter;
  static _Thread_local uint32_t number;  // not set yet
  if (number == 0) number = 1 + atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
  return number;
}

uint32_t qn__stripe_ask(void) {
  int cpu = sched_getcpu();
  return cpu >= 0 ? (uint32_t)cpu : thread_number();
}

uint32_t qn__stripe_count(void) {
  static _Atomic uint32_t known;
  uint32_t count = atomic_load_explicit(&known, memory_order_relaxed);
  if (count != 0) return count;
  // The highest number of a usable CPU counts, not the number of CPUs. (sysconf would read a file.)
  cpu_set_t cpus;
  uint32_t highest = QN__MAX_STRIPES - 1;  // more CPUs than the set holds
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
    while (highest > 0 && !CPU_ISSET(highest, &cpus)) highest--;
    for (uint32_t cpu = QN__MAX_STRIPES; cpu < CPU_SETSIZE; cpu++) {
      if (CPU_ISSET(cpu, &cpus)) highest = QN__MAX_STRIPES - 1;
    }
  }
  count = 1;
  while (count <= highest) count *= 2;
  assert((count & (count - 1)) == 0 && count <= QN__MAX_STRIPES);
  // Never changes again, because objects rely on it.
  uint32_t expected = 0;
  if (!atomic_compare_exchange_strong(&known, &expected, count)) count = expected;
  return count;
}
