// base/alloc.h: memory from a qn_allocator_t, with checked sizes.
//
// Not here: arenas (arena.h). Thread rule: as the allocator, that is any thread. Read next:
// arena.h.
#ifndef QUERN_BASE_ALLOC_H_
#define QUERN_BASE_ALLOC_H_

#include "base/base.h"

// NULL when out of memory or when count * size overflows. Zeroed.
void* qn__alloc_zero(qn_allocator_t allocator, size_t count, size_t size_bytes);
// Not zeroed.
void* qn__alloc(qn_allocator_t allocator, size_t size_bytes);
// `size_bytes` is what was asked for. NULL is fine.
void qn__free(qn_allocator_t allocator, void* pointer, size_t size_bytes);
// A terminated copy, freed with qn__free_cstr. NULL when out of memory.
char* qn__copy_cstr(qn_allocator_t allocator, qn_str_t text);
void qn__free_cstr(qn_allocator_t allocator, char* text);

// Grows an array to hold at least `needed` elements, doubling. `*inout_items` and `*inout_capacity`
// are updated together; on failure nothing changes and false is returned.
bool qn__grow(qn_allocator_t allocator, void** inout_items, size_t* inout_capacity, size_t needed,
              size_t item_size_bytes);

// The status of a failed allocation of `what`.
qn_status_t qn__out_of_memory(const char* what);

#endif  // QUERN_BASE_ALLOC_H_
