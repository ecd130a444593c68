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

// What stripes are apart in memory: a cache line.
#define QN__STRIPE_BYTES 64u
#define QN__MAX_STRIPES 16u

// Any number, equal for threads on one CPU; to be taken modulo the count of stripes. Costs about a
// nanosecond: the C library keeps it up to date beside the thread (rseq).
uint32_t qn__stripe(void);
// How many stripes this machine is worth: a power of two, at most QN__MAX_STRIPES.
uint32_t qn__stripe_count(void);

#endif  // QUERN_BASE_STRIPE_H_
