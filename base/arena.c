// SPDX-License-Identifier: Apache-2.0
// base/arena.c: a list of blocks that are filled from the front and released together.
#include "base/arena.h"

#include <assert.h>

#include "base/alloc.h"

struct qn__arena_block {
  qn__arena_block_t* next;
  size_t size_bytes;  // of data
  _Alignas(16) uint8_t data[];
};

#define FIRST_BLOCK_BYTES ((size_t)4096 - sizeof(qn__arena_block_t))
#define LARGEST_BLOCK_BYTES ((size_t)256 * 1024 - sizeof(qn__arena_block_t))

void qn__arena_init(qn__arena_t* arena, qn_allocator_t allocator) {
  *arena = (qn__arena_t){.allocator = allocator};
}

void qn__arena_deinit(qn__arena_t* arena) {
  qn__arena_block_t* block = arena->blocks;
  while (block) {
    qn__arena_block_t* next = block->next;
    qn__free(arena->allocator, block, sizeof *block + block->size_bytes);
    block = next;
  }
  qn__arena_init(arena, arena->allocator);
}

bool qn__arena_check(const qn__arena_t* arena) {
  size_t total_bytes = 0;
  for (const qn__arena_block_t* block = arena->blocks; block; block = block->next) {
    total_bytes += sizeof *block + block->size_bytes;
  }
  if (QN_NEVER(total_bytes != arena->total_bytes)) return false;
  size_t size_bytes = arena->blocks ? arena->blocks->size_bytes : 0;
  return !QN_NEVER(arena->used_bytes > size_bytes || arena->used_bytes % 16 != 0);
}

static qn__arena_block_t* new_block(qn__arena_t* arena, size_t size_bytes) {
  size_t total;
  qn__arena_block_t* block = NULL;
  if (qn__size_add(size_bytes, sizeof *block, &total)) block = qn__alloc(arena->allocator, total);
  if (!block) {
    arena->is_exhausted = true;
    return NULL;
  }
  block->next = NULL;
  block->size_bytes = size_bytes;
  arena->total_bytes += total;
  return block;
}

void* qn__arena_alloc(qn__arena_t* arena, size_t size_bytes) {
  size_t rounded;
  if (!qn__size_add(size_bytes ? size_bytes : 1, 15, &rounded)) {
    arena->is_exhausted = true;
    return NULL;
  }
  rounded &= ~(size_t)15;
  qn__arena_block_t* newest = arena->blocks;
  if (!newest || newest->size_bytes - arena->used_bytes < rounded) {
    // Block sizes double, so that there are few blocks. A large request gets a block of its own,
    // after the newest in the list, whose rest stays in use.
    size_t wanted = newest ? newest->size_bytes * 2 + sizeof *newest : FIRST_BLOCK_BYTES;
    if (wanted > LARGEST_BLOCK_BYTES) wanted = LARGEST_BLOCK_BYTES;
    bool is_large = rounded > wanted / 2;
    qn__arena_block_t* block = new_block(arena, is_large ? rounded : wanted);
    if (!block) return NULL;
    if (is_large && newest) {
      block->next = newest->next;
      newest->next = block;
      return memset(block->data, 0, rounded);
    }
    block->next = newest;
    arena->blocks = newest = block;
    arena->used_bytes = 0;
    assert(qn__arena_check(arena));
  }
  assert(rounded <= newest->size_bytes - arena->used_bytes);
  uint8_t* result = newest->data + arena->used_bytes;
  arena->used_bytes += rounded;
  return memset(result, 0, rounded);
}

void* qn__arena_alloc_array(qn__arena_t* arena, size_t count, size_t size_bytes) {
  size_t total;
  if (!qn__size_mul(count, size_bytes, &total)) {
    arena->is_exhausted = true;
    return NULL;
  }
  return qn__arena_alloc(arena, total);
}

void* qn__arena_grow(qn__arena_t* arena, void* items, uint32_t count, uint32_t* inout_capacity,
                     size_t item_bytes) {
  assert(count <= *inout_capacity);
  if (count < *inout_capacity) return items;
  uint32_t capacity = 2 * count + 8;
  void* grown = qn__arena_alloc_array(arena, capacity, item_bytes);
  if (!grown) return NULL;
  if (count > 0) memcpy(grown, items, count * item_bytes);
  *inout_capacity = capacity;
  return grown;
}

char* qn__arena_cstr(qn__arena_t* arena, qn_str_t text) {
  size_t size;
  if (!qn__size_add(text.size, 1, &size)) {
    arena->is_exhausted = true;
    return NULL;
  }
  char* copy = qn__arena_alloc(arena, size);
  if (copy && text.size) memcpy(copy, text.data, text.size);
  return copy;
}
