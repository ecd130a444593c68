// SPDX-License-Identifier: Apache-2.0
// base/arena.h: memory that is released all at once. One arena per module.
//
// Thread rule: one thread at a time.
#ifndef QUERN_BASE_ARENA_H_
#define QUERN_BASE_ARENA_H_

#include "base/base.h"

typedef struct qn__arena_block qn__arena_block_t;

typedef struct qn__arena {
  qn_allocator_t allocator;
  qn__arena_block_t* blocks;
  size_t used_bytes;   // in the newest block
  size_t total_bytes;  // of all blocks, for accounting
  bool is_exhausted;   // sticky: an allocation failed
} qn__arena_t;

void qn__arena_init(qn__arena_t* arena, qn_allocator_t allocator);
void qn__arena_deinit(qn__arena_t* arena);
// Returns zeroed memory, aligned to 16 bytes; NULL without memory, which sets is_exhausted.
void* qn__arena_alloc(qn__arena_t* arena, size_t size_bytes);
void* qn__arena_alloc_array(qn__arena_t* arena, size_t count, size_t size_bytes);
// Makes room for one more item in an array of `count`: returns it, or a larger copy and its
// capacity. NULL without memory; the array is then unchanged.
void* qn__arena_grow(qn__arena_t* arena, void* items, uint32_t count, uint32_t* inout_capacity,
                     size_t item_bytes);
// Returns a terminated copy.
char* qn__arena_cstr(qn__arena_t* arena, qn_str_t text);

// Tests the sizes of the blocks. For tests and for debug builds.
bool qn__arena_check(const qn__arena_t* arena);

#define QN__ARENA_NEW(arena, type) ((type*)qn__arena_alloc((arena), sizeof(type)))

#endif  // QUERN_BASE_ARENA_H_
