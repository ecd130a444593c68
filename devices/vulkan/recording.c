// devices/vulkan/recording.c: see recording.h.
//
// Requirements. (1) A driver may give back any piece at any time, and may keep some for good: a
// page begins anew when none of its own pieces is left, so what is kept holds its pages and no
// others. (2) Large pieces, and those taken before anything is recorded, are taken alone. (3)
// Without memory the driver is told so, and tells its caller. Thread rule: in the header. Read
// next: stream.c.
#include "devices/vulkan/recording.h"

#include "base/alloc.h"

#define ALIGNMENT ((size_t)16)
#define PAGE_BYTES ((size_t)16384)
#define MAX_BYTES ((size_t)1024)  // of a piece in a page

// In front of each piece.
typedef struct piece {
  struct qn__vk_page* page;  // NULL: taken alone
  size_t size;
} piece_t;

// In front of a piece that was taken alone.
typedef struct alone {
  void* base;
  size_t size;
  piece_t piece;
} alone_t;

typedef struct qn__vk_page {
  struct qn__vk_page* next;
  uint32_t used;  // bytes
  uint32_t piece_count;
  _Alignas(16) uint8_t bytes[];
} page_t;

static_assert(sizeof(piece_t) == 16 && sizeof(page_t) % 16 == 0 && sizeof(alone_t) % 16 == 0,
              "what follows them is aligned");

static piece_t* piece_of(void* memory) {
  return (piece_t*)memory - 1;
}

static __attribute__((noinline)) void* take_alone(const qn__vk_recording_t* self, size_t size,
                                                  size_t alignment) {
  if (alignment < ALIGNMENT) alignment = ALIGNMENT;
  size_t whole;
  if (__builtin_add_overflow(size, alignment + sizeof(alone_t), &whole)) return NULL;
  uint8_t* base = qn__alloc(self->allocator, whole);
  if (!base) return NULL;
  uint8_t* memory = base + sizeof(alone_t);
  memory += (alignment - (uintptr_t)memory % alignment) % alignment;
  alone_t* alone = (alone_t*)(void*)memory - 1;
  *alone = (alone_t){.base = base, .size = whole, .piece = {.page = NULL, .size = size}};
  return memory;
}

// A page that nothing is left of, or a new one. NULL without memory.
static __attribute__((noinline)) page_t* next_page(qn__vk_recording_t* self) {
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

static void* VKAPI_PTR take(void* recording, size_t size, size_t alignment,
                            VkSystemAllocationScope scope) {
  (void)scope;
  qn__vk_recording_t* self = recording;
  if (__builtin_expect(!self->is_begun || size > MAX_BYTES || alignment > ALIGNMENT, 0)) {
    return take_alone(self, size, alignment);
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

static void VKAPI_PTR give(void* recording, void* memory) {
  if (!memory) return;
  page_t* page = piece_of(memory)->page;
  if (__builtin_expect(page != NULL, 1)) {
    if (--page->piece_count == 0) page->used = 0;
    return;
  }
  const qn__vk_recording_t* self = recording;
  const alone_t* alone = (const alone_t*)memory - 1;
  qn__free(self->allocator, alone->base, alone->size);
}

static void* VKAPI_PTR take_again(void* recording, void* memory, size_t size, size_t alignment,
                                  VkSystemAllocationScope scope) {
  if (size == 0 && memory) {
    give(recording, memory);
    return NULL;
  }
  void* fresh = take(recording, size, alignment, scope);
  if (!fresh || !memory) return fresh;
  size_t old = piece_of(memory)->size;
  memcpy(fresh, memory, old < size ? old : size);
  give(recording, memory);
  return fresh;
}

void qn__vk_recording_init(qn__vk_recording_t* recording, qn_allocator_t allocator) {
  *recording = (qn__vk_recording_t){.allocator = allocator,
                                    .callbacks = {.pUserData = recording,
                                                  .pfnAllocation = take,
                                                  .pfnReallocation = take_again,
                                                  .pfnFree = give}};
}

void qn__vk_recording_begin(qn__vk_recording_t* recording) {
  recording->is_begun = true;
}

void qn__vk_recording_deinit(qn__vk_recording_t* recording) {
  while (recording->pages) {
    page_t* page = recording->pages;
    recording->pages = page->next;
    qn__free(recording->allocator, page, sizeof *page + PAGE_BYTES);
  }
  recording->current = NULL;
}
