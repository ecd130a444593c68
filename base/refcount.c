// SPDX-License-Identifier: Apache-2.0
// base/refcount.c: opens and closes counts. The requirements are in refcount.h.
#include "base/refcount.h"

#define BIAS ((int64_t)1 << 62)

size_t qn__refcount_bytes(void) {
  // Allocators align to 16 bytes; the spare bytes before and after keep the stripes on cache lines
  // of their own.
  return (size_t)(qn__stripe_count() + 1) * sizeof(qn__refcount_stripe_t);
}

void qn__refcount_init(qn__refcount_t* count, void* memory) {
  size_t misaligned = (uintptr_t)memory % QN__STRIPE_BYTES;
  size_t skipped = misaligned ? QN__STRIPE_BYTES - misaligned : 0;
  count->stripes = (qn__refcount_stripe_t*)(void*)((uint8_t*)memory + skipped);
  count->mask = qn__stripe_count() - 1;
  count->is_open = false;
  for (uint32_t i = 0; i <= count->mask; i++) {
    atomic_init(&count->stripes[i].value, QN__REFCOUNT_CLOSED);
  }
  atomic_init(&count->central, 1);
}

bool qn__refcount_check(const qn__refcount_t* count) {
  for (uint32_t i = 0; i <= count->mask; i++) {
    int64_t value = atomic_load_explicit(&count->stripes[i].value, memory_order_relaxed);
    if (QN_NEVER((value > QN__REFCOUNT_CLOSED_LIMIT) != count->is_open)) return false;
  }
  return !QN_NEVER(atomic_load_explicit(&count->central, memory_order_relaxed) <= 0);
}

void qn__refcount_open(qn__refcount_t* count) {
  if (count->is_open) return;
  count->is_open = true;
  atomic_fetch_add_explicit(&count->central, BIAS, memory_order_relaxed);
  for (uint32_t i = 0; i <= count->mask; i++) {
    // Release: an operation that counts here knows that the central counter was raised.
    atomic_store_explicit(&count->stripes[i].value, 0, memory_order_release);
  }
  assert(qn__refcount_check(count));
}

void qn__refcount_close(qn__refcount_t* count) {
  if (!count->is_open) return;
  count->is_open = false;
  int64_t sum = 0;
  for (uint32_t i = 0; i <= count->mask; i++) {
    sum += atomic_exchange_explicit(&count->stripes[i].value, QN__REFCOUNT_CLOSED,
                                    memory_order_acq_rel);
  }
  // The sum includes the owner's reference, so the result is not zero.
  atomic_fetch_add_explicit(&count->central, sum - BIAS, memory_order_acq_rel);
  assert(qn__refcount_check(count));
}

int64_t qn__refcount_estimate(const qn__refcount_t* count) {
  int64_t sum = 0;
  for (uint32_t i = 0; i <= count->mask; i++) {
    int64_t value = atomic_load_explicit(&count->stripes[i].value, memory_order_relaxed);
    if (value > QN__REFCOUNT_CLOSED_LIMIT) sum += value;
  }
  sum += atomic_load_explicit(&count->central, memory_order_relaxed);
  return count->is_open ? sum - BIAS : sum;
}
