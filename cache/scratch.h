// cache/scratch.h: the buffers that entries are read into, kept for the next read.
//
// A slot is taken and given with one atomic exchange each; who finds none allocates. A child of
// fork has what is in the slots; what another thread of the parent had taken is lost to it.
//
// Thread rule: any thread, no lock. Read next: scratch.c.
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
// Nothing may be taken any more.
void qn__scratch_deinit(qn__scratch_t* scratch);
// At least `size` bytes, aligned to 16; NULL without memory.
uint8_t* qn__scratch_take(qn__scratch_t* scratch, size_t size);
// NULL is fine. Buffers beyond a mebibyte are not kept.
void qn__scratch_give(qn__scratch_t* scratch, uint8_t* bytes);

#endif  // QUERN_CACHE_SCRATCH_H_
