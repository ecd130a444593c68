// SPDX-License-Identifier: Apache-2.0
// cache/scratch.h: buffers for reading entries, kept for the next read.
//
// Taking and giving a buffer costs one atomic exchange; a caller that finds no buffer allocates
// one. A child of fork keeps the buffers in the slots and loses those that other threads had taken.
// Any thread, no lock.
#ifndef QUERN_CACHE_SCRATCH_H_
#define QUERN_CACHE_SCRATCH_H_

#include <stdatomic.h>

#include "base/base.h"

#define QN__SCRATCH_SLOTS 4u

typedef struct qn__scratch_buffer qn__scratch_buffer_t;
typedef struct qn__scratch {
  qn_allocator_t allocator;
  _Atomic(qn__scratch_buffer_t*) slots[QN__SCRATCH_SLOTS];
} qn__scratch_t;

void qn__scratch_init(qn__scratch_t* scratch, qn_allocator_t allocator);
// No buffer may be taken at the same time or later.
void qn__scratch_deinit(qn__scratch_t* scratch);
// Returns at least `size` bytes, aligned to 16; NULL without memory.
uint8_t* qn__scratch_take(qn__scratch_t* scratch, size_t size);
// NULL is fine. Buffers above 1 MiB are freed, not kept.
void qn__scratch_give(qn__scratch_t* scratch, uint8_t* bytes);

#endif  // QUERN_CACHE_SCRATCH_H_
