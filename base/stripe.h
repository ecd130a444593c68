// base/stripe.h: which of several copies of a hot word a thread should use.
//
// Data that all threads write is kept once per stripe, so that threads that run at the same time do
// not fight for one cache line. The stripe is the CPU that the thread runs on: thread numbers would
// put two running threads on one stripe as soon as there are more threads than stripes. It may
// change at any moment, also between two calls: a stripe is a hint, never a guard.
//
// Thread rule: any thread. Read next: refcount.h.
#ifndef QUERN_BASE_STRIPE_H_
#define QUERN_BASE_STRIPE_H_

#include "base/base.h"

// glibc keeps the number of the CPU up to date beside each thread, for anyone to read.
#if defined(__linux__) && defined(__has_include) && defined(__has_builtin)
#if __has_include(<sys/rseq.h>) && __has_builtin(__builtin_thread_pointer)
#include <sys/rseq.h>
#define QN__HAS_RSEQ 1
#endif
#endif

// What stripes are apart in memory: a cache line.
#define QN__STRIPE_BYTES 64u
#define QN__MAX_STRIPES 16u

// The slow way: asks the system, or else numbers the threads in their order.
uint32_t qn__stripe_ask(void);
// Any number, equal for threads on one CPU; to be taken modulo the count of stripes. About a
// nanosecond.
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
// How many stripes this machine is worth: a power of two, at most QN__MAX_STRIPES.
uint32_t qn__stripe_count(void);

#endif  // QUERN_BASE_STRIPE_H_
