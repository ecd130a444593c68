// SPDX-License-Identifier: Apache-2.0
// base/alloc.h: allocates from a qn_allocator_t, with checked sizes.
//
// Not here: arenas (arena.h).
#ifndef QUERN_BASE_ALLOC_H_
#define QUERN_BASE_ALLOC_H_

#include "base/base.h"

// Returns zeroed memory; NULL without memory or when count * size overflows.
void* qn__alloc_zero(qn_allocator_t allocator, size_t count, size_t size_bytes);
// Returns memory that is not zeroed.
void* qn__alloc(qn_allocator_t allocator, size_t size_bytes);
// `size_bytes` is the size that was allocated. NULL is fine.
void qn__free(qn_allocator_t allocator, void* pointer, size_t size_bytes);
// Returns a terminated copy, to be freed with qn__free_cstr; NULL without memory.
char* qn__copy_cstr(qn_allocator_t allocator, qn_str_t text);
void qn__free_cstr(qn_allocator_t allocator, char* text);

// Grows an array to at least `needed` elements, by doubling. Changes `*inout_items` and
// `*inout_capacity` together. False without memory; then nothing has changed.
bool qn__grow(qn_allocator_t allocator, void** inout_items, size_t* inout_capacity, size_t needed,
              size_t item_size_bytes);

// Returns the status of a failed allocation of `what`.
qn_status_t qn__out_of_memory(const char* what);

#endif  // QUERN_BASE_ALLOC_H_
