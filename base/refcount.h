// base/refcount.h: a reference count that threads on different CPUs share without sharing a cache
// line.
//
// One owner (the memory table) keeps an object alive for long, and many threads retain and release
// it meanwhile. As long as the owner holds on, nobody needs to know whether the count is zero: so
// retain and release go to a counter per stripe ("open"), and only the sum means anything. When the
// owner lets go it closes the stripes and folds them into one central counter; from then on it is
// an ordinary reference count that tells who was last.
//
// Words: a count is *closed* when it is made (central counter alone) and *open* between
// qn__refcount_open and qn__refcount_close. An operation *lands* where its change counts.
//
// Requirements, and why each holds:
//  1. Every retain and release lands exactly once. It adds to its stripe with one atomic addition
//     that gives the old value. If that value is an open one, it has landed. If it is a closed one
//     (at or below CLOSED_LIMIT), the addition fell on a value that nobody reads, and the operation
//     lands by adding to the central counter. The two cases exclude each other, because closing is
//     one atomic exchange of the stripe: an addition comes before it, and is in the sum that the
//     exchange gave, or after it.
//  2. Nobody takes a closed value for an open one: closed stripes begin at CLOSED = -2^62, and at
//     most 2^61 additions of one fall on a stripe between an exchange and the next.
//  3. While stripes are open or being folded, no operation finds the central counter at zero: it is
//     raised by BIAS = 2^62 before the first stripe opens, and lowered by the fold, in the same
//     addition that brings in the sum of all stripes. A reference that was taken on an open stripe
//     but is given back centrally finds it raised, too: the retain acquired from the opening.
//  4. After the fold the central counter is the number of references whose release has not landed,
//     less those whose retain has not. Whoever retains holds a reference himself, or is kept from
//     losing the owner's by the owner's lock, until his retain has landed; so the counter is zero
//     once only, after the last release, and exactly one operation sees that (its addition gives
//     the old value one). That one destroys the object.
//  5. Who destroys has seen all that holders did. Releases are release operations; the exchange of
//     a stripe acquires from all of them (each addition continues the release sequence of those
//     before); the fold releases to the central counter; the last release acquires from it.
//  6. Opening again after closing is allowed: an operation that met the closed stripe before lands
//     centrally, which is right at any time (3).
//  7. Open and close of one count do not run at once, and who calls them holds a reference until he
//     has returned: the table does both under its lock. Calls that find the state as they want it
//     change nothing.
//  8. A fork between an operation's two additions loses that operation in the child, whose thread
//     is gone and never releases anything: the object stays, as everything that such a thread held.
//     A fork while stripes are folded is kept away by the owner's lock.
// Never closed before the owner's own release: then nobody would see zero. Closed without being
// open: fine.
//
// Memory: a cache line per stripe, handed in by the object. Thread rule: in the requirements. Read
// next: jit/engine/table.c, its user.
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
  uint32_t mask;  // their number less one
  bool is_open;   // of the caller of open and close
  _Atomic int64_t central;
} qn__refcount_t;

// How much memory the stripes take, a multiple of 16 bytes.
size_t qn__refcount_bytes(void);
// One reference, the caller's; closed. `memory` (qn__refcount_bytes of it, aligned to 16) is
// borrowed until the object is destroyed.
void qn__refcount_init(qn__refcount_t* count, void* memory);
void qn__refcount_open(qn__refcount_t* count);
void qn__refcount_close(qn__refcount_t* count);
// The number of references, exact when no operation runs. While some do it may be off by as many.
int64_t qn__refcount_estimate(const qn__refcount_t* count);

// `stripe` is qn__stripe(), for callers that know it already.
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
