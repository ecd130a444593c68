// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/command_allocator.c: see command_allocator.h.
//
// Requirements:
//  1. A driver may free any piece at any time, and may keep some forever. A page is reused once all
//     its pieces are free, so a piece that stays allocated holds its own page only.
//  2. Large pieces, and pieces allocated before recording begins, get an allocation of their own.
//  3. Out of memory, the callback returns NULL and the driver reports the error to its caller.
#include "devices/vulkan/command_allocator.h"

#include "base/alloc.h"

#define ALIGNMENT ((size_t)16)
#define PAGE_BYTES ((size_t)16384)
#define MAX_BYTES ((size_t)1024)  // of a piece in a page

// The header before each piece.
typedef struct piece {
  struct qn__vk_page* page;  // NULL: an allocation of its own
  size_t size;
} piece_t;

// The header before a piece with an allocation of its own.
typedef struct large {
  void* base;
  size_t size;
  piece_t piece;
} large_t;

typedef struct qn__vk_page {
  struct qn__vk_page* next;
  uint32_t used;  // bytes
  uint32_t piece_count;
  _Alignas(16) uint8_t bytes[];
} page_t;

static_assert(sizeof(piece_t) == 16 && sizeof(page_t) % 16 == 0 && sizeof(large_t) % 16 == 0,
              "the memory after each header is aligned");

static piece_t* piece_of(void* memory) {
  return (piece_t*)memory - 1;
}

static __attribute__((noinline)) void* allocate_large(const qn__vk_command_allocator_t* self,
                                                      size_t size, size_t alignment) {
  if (alignment < ALIGNMENT) alignment = ALIGNMENT;
  size_t whole;
  if (__builtin_add_overflow(size, alignment + sizeof(large_t), &whole)) return NULL;
  uint8_t* base = qn__alloc(self->allocator, whole);
  if (!base) return NULL;
  uint8_t* memory = base + sizeof(large_t);
  memory += (alignment - (uintptr_t)memory % alignment) % alignment;
  large_t* large = (large_t*)(void*)memory - 1;
  *large = (large_t){.base = base, .size = whole, .piece = {.page = NULL, .size = size}};
  return memory;
}

// Returns an empty page, or a new one; NULL if memory is exhausted.
static __attribute__((noinline)) page_t* next_page(qn__vk_command_allocator_t* self) {
  page_t* page = self->pages;
  while (page && page->piece_count > 0) page = page->next;
  if (!page) {
    page = qn__alloc(self->allocator, sizeof *page + PAGE_BYTES);
    if (!page) return NULL;
    *page = (page_t){.next = self->pages};
    self->pages = page;
  }
  self->current = page;
  return page;
}

static void* VKAPI_PTR allocate_piece(void* user_data, size_t size, size_t alignment,
                                      VkSystemAllocationScope scope) {
  (void)scope;
  qn__vk_command_allocator_t* self = user_data;
  if (__builtin_expect(!self->is_begun || size > MAX_BYTES || alignment > ALIGNMENT, 0)) {
    return allocate_large(self, size, alignment);
  }
  uint32_t whole = (uint32_t)(sizeof(piece_t) + ((size + ALIGNMENT - 1) & ~(ALIGNMENT - 1)));
  page_t* page = self->current;
  if (__builtin_expect(!page || PAGE_BYTES - page->used < whole, 0)) {
    page = next_page(self);
    if (!page) return NULL;
  }
  piece_t* piece = (piece_t*)(void*)(page->bytes + page->used);
  piece->page = page;
  piece->size = size;
  page->used += whole;
  page->piece_count++;
  return piece + 1;
}

static void VKAPI_PTR free_piece(void* user_data, void* memory) {
  if (!memory) return;
  page_t* page = piece_of(memory)->page;
  if (__builtin_expect(page != NULL, 1)) {
    assert(page->piece_count > 0 && page->used <= PAGE_BYTES);
    if (--page->piece_count == 0) page->used = 0;
    return;
  }
  const qn__vk_command_allocator_t* self = user_data;
  const large_t* large = (const large_t*)memory - 1;
  qn__free(self->allocator, large->base, large->size);
}

static void* VKAPI_PTR reallocate_piece(void* user_data, void* memory, size_t size,
                                        size_t alignment, VkSystemAllocationScope scope) {
  if (size == 0 && memory) {
    free_piece(user_data, memory);
    return NULL;
  }
  void* fresh = allocate_piece(user_data, size, alignment, scope);
  if (!fresh || !memory) return fresh;
  size_t old = piece_of(memory)->size;
  memcpy(fresh, memory, old < size ? old : size);
  free_piece(user_data, memory);
  return fresh;
}

void qn__vk_command_allocator_init(qn__vk_command_allocator_t* self, qn_allocator_t allocator) {
  *self = (qn__vk_command_allocator_t){.allocator = allocator,
                                       .callbacks = {.pUserData = self,
                                                     .pfnAllocation = allocate_piece,
                                                     .pfnReallocation = reallocate_piece,
                                                     .pfnFree = free_piece}};
}

void qn__vk_command_allocator_begin(qn__vk_command_allocator_t* self) {
  self->is_begun = true;
}

void qn__vk_command_allocator_deinit(qn__vk_command_allocator_t* self) {
  while (self->pages) {
    page_t* page = self->pages;
    self->pages = page->next;
    qn__free(self->allocator, page, sizeof *page + PAGE_BYTES);
  }
  self->current = NULL;
}
