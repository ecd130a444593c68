// SPDX-License-Identifier: Apache-2.0
// base/refcount.h: a reference count for threads on different CPUs that do not share a cache line.
//
// One owner (the memory table) keeps an object alive for long, while many threads retain and
// release it. As long as the owner holds its reference, no thread needs to know whether the count
// is zero. So retain and release add to a counter per stripe (the count is open), and only the sum
// has a meaning. Before the owner releases, it closes the stripes and adds them to one central
// counter. From then on this is an ordinary reference count, whose last release returns true.
//
// Words: a count is *closed* after its creation (only the central counter is used) and *open*
// between qn__refcount_open and qn__refcount_close. An operation *counts* in the counter that its
// addition changes in effect.
//
// Requirements, and why each holds:
//  1. Every retain and release counts exactly once. It adds to its stripe with one atomic addition,
//     which returns the old value. If the old value is an open one, the operation counts there. If
//     it is a closed one (at or below CLOSED_LIMIT), no thread reads the stripe's value, and the
//     operation counts by a second addition, to the central counter. The two cases exclude each
//     other: closing is one atomic exchange of the stripe, so an addition comes before it, and is
//     in the sum that the exchange returned, or after it.
//  2. A closed value is never taken for an open one: closed stripes start at CLOSED = -2^62, and at
//     most 2^61 additions of one reach a stripe between two exchanges.
//  3. While stripes are open or being folded, no operation finds the central counter at zero. It is
//     raised by BIAS = 2^62 before the first stripe opens, and lowered by the fold, in the same
//     addition that brings in the sum of all stripes. A reference that was taken on an open stripe
//     but is released centrally finds it raised, too, because the retain acquired from the opening.
//  4. After the fold the central counter is the number of references whose release has not counted,
//     less those whose retain has not. A thread that retains holds a reference, or the owner's lock
//     protects the owner's reference, until its retain has counted. So the counter reaches zero
//     once only, by the last release, and exactly one operation sees that (its addition returns
//     one). That operation's thread destroys the object.
//  5. The destroying thread sees all that the holders did. Releases are release operations; the
//     exchange of a stripe acquires from all of them (each addition continues the release sequence
//     of those before); the fold releases to the central counter; the last release acquires from
//     it.
//  6. A closed count may be opened again. An operation that met the closed stripe before counts
//     centrally, which is right at any time (3).
//  7. Open and close of one count never run at the same time, and their caller holds a reference
//     until they return: the table calls both under its lock. A call that finds the state as wanted
//     changes nothing.
//  8. A fork between the two additions of an operation loses that operation in the child, which
//     does not have the thread: the object stays alive, like everything that such a thread held.
//     The owner's lock keeps forks away while stripes are folded.
//
// Close a count before the owner's own release, or no release sees zero. Closing a closed count is
// fine.
//
// Memory: a cache line per stripe, provided by the object. Read next: jit/engine/table.c, its user.
#ifndef QUERN_BASE_REFCOUNT_H_
#define QUERN_BASE_REFCOUNT_H_

#include <stdatomic.h>

#include "base/stripe.h"

#define QN__REFCOUNT_CLOSED (-((int64_t)1 << 62))
#define QN__REFCOUNT_CLOSED_LIMIT (-((int64_t)1 << 61))

typedef struct qn__refcount_stripe {
  _Atomic int64_t value;
  char padding[QN__STRIPE_BYTES - sizeof(int64_t)];
} qn__refcount_stripe_t;

typedef struct qn__refcount {
  qn__refcount_stripe_t* stripes;
  uint32_t mask;  // the number of stripes less one
  bool is_open;   // used by open and close only
  _Atomic int64_t central;
} qn__refcount_t;

// Returns the size of the stripes' memory, a multiple of 16 bytes.
size_t qn__refcount_bytes(void);
// Starts closed with one reference, the caller's. Borrows `memory` (qn__refcount_bytes, aligned to
// 16) until the object is destroyed.
void qn__refcount_init(qn__refcount_t* count, void* memory);
void qn__refcount_open(qn__refcount_t* count);
void qn__refcount_close(qn__refcount_t* count);
// Returns the number of references: exact when no operation runs, else off by at most the number of
// running operations.
int64_t qn__refcount_estimate(const qn__refcount_t* count);

// Tests that all stripes are open or all are closed, and that the central counter is positive. For
// tests and for debug builds; with a reference held, and not during an open or a close.
bool qn__refcount_check(const qn__refcount_t* count);

// `stripe` is qn__stripe(), for callers that have it already.
static inline void qn__refcount_retain(qn__refcount_t* count, uint32_t stripe) {
  int64_t old = atomic_fetch_add_explicit(&count->stripes[stripe & count->mask].value, 1,
                                          memory_order_acquire);
  if (__builtin_expect(old > QN__REFCOUNT_CLOSED_LIMIT, 1)) return;
  atomic_fetch_add_explicit(&count->central, 1, memory_order_relaxed);
}

// True: that was the last reference, and the caller destroys the object.
static inline bool qn__refcount_release(qn__refcount_t* count, uint32_t stripe) {
  int64_t old = atomic_fetch_sub_explicit(&count->stripes[stripe & count->mask].value, 1,
                                          memory_order_release);
  if (__builtin_expect(old > QN__REFCOUNT_CLOSED_LIMIT, 1)) return false;
  return atomic_fetch_sub_explicit(&count->central, 1, memory_order_acq_rel) == 1;
}

#endif  // QUERN_BASE_REFCOUNT_H_
