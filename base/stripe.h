// SPDX-License-Identifier: Apache-2.0
// base/stripe.h: selects which of several copies of a hot word a thread uses.
//
// Data that all threads write has one copy per stripe, so that running threads do not share a cache
// line. The stripe is the number of the thread's CPU: thread numbers would put two running threads
// on one stripe as soon as there are more threads than stripes. It may change at any moment, even
// between two calls, so it is a hint and protects nothing.
#ifndef QUERN_BASE_STRIPE_H_
#define QUERN_BASE_STRIPE_H_

#include "base/base.h"

// glibc keeps the number of the CPU up to date in each thread's rseq area.
#if defined(__linux__) && defined(__has_include) && defined(__has_builtin)
#if __has_include(<sys/rseq.h>) && __has_builtin(__builtin_thread_pointer)
#include <sys/rseq.h>
#define QN__HAS_RSEQ 1
#endif
#endif

// The distance of stripes in memory: a cache line.
#define QN__STRIPE_BYTES 64u
#define QN__MAX_STRIPES 16u

// The slow way: asks the system, or numbers the threads in their order.
uint32_t qn__stripe_ask(void);
// Returns a number that is equal for threads on one CPU; take it modulo the number of stripes.
// Costs about a nanosecond.
static inline uint32_t qn__stripe(void) {
#ifdef QN__HAS_RSEQ
  const char* thread = (const char*)__builtin_thread_pointer();
  const volatile struct rseq* rseq =
      (const volatile struct rseq*)(const void*)(thread + __rseq_offset);
  const uint32_t cpu = rseq->cpu_id;
  if (__builtin_expect((int32_t)cpu >= 0, 1)) return cpu;  // negative: not kept
#endif
  return qn__stripe_ask();
}
// Returns the number of stripes for this machine: a power of two, at most QN__MAX_STRIPES.
uint32_t qn__stripe_count(void);

#endif  // QUERN_BASE_STRIPE_H_
