// SPDX-License-Identifier: Apache-2.0
// base/alloc.c: see alloc.h.
#include "base/alloc.h"

#include <stdlib.h>

// malloc aligns to max_align_t, which the contract of quern/status.h relies on.
static_assert(_Alignof(max_align_t) >= 16 || sizeof(void*) < 8, "malloc must align to 16 bytes");

static void* default_reallocate(void* self, void* pointer, size_t old_size_bytes,
                                size_t new_size_bytes) {
  (void)self;
  (void)old_size_bytes;
  if (new_size_bytes == 0) {
    free(pointer);
    return NULL;
  }
  return realloc(pointer, new_size_bytes);
}

qn_allocator_t qn_allocator_default(void) {
  return (qn_allocator_t){NULL, default_reallocate};
}

// Allocates at least one byte, so that NULL always means failure.
static size_t at_least_one(size_t size_bytes) {
  return size_bytes ? size_bytes : 1;
}

void* qn__alloc(qn_allocator_t allocator, size_t size_bytes) {
  return allocator.reallocate(allocator.self, NULL, 0, at_least_one(size_bytes));
}

void* qn__alloc_zero(qn_allocator_t allocator, size_t count, size_t size_bytes) {
  size_t total;
  if (!qn__size_mul(count, size_bytes, &total)) return NULL;
  void* pointer = qn__alloc(allocator, total);
  if (pointer) memset(pointer, 0, at_least_one(total));
  return pointer;
}

void qn__free(qn_allocator_t allocator, void* pointer, size_t size_bytes) {
  if (pointer) allocator.reallocate(allocator.self, pointer, at_least_one(size_bytes), 0);
}

char* qn__copy_cstr(qn_allocator_t allocator, qn_str_t text) {
  size_t size;
  if (!qn__size_add(text.size, 1, &size)) return NULL;
  char* copy = qn__alloc(allocator, size);
  if (!copy) return NULL;
  if (text.size) memcpy(copy, text.data, text.size);
  copy[text.size] = '\0';
  // A text with a zero byte would be freed with the wrong size, so the copy ends there.
  size_t length = strlen(copy);
  if (length == text.size) return copy;
  char* shorter = allocator.reallocate(allocator.self, copy, size, length + 1);
  if (!shorter) qn__free(allocator, copy, size);
  return shorter;
}

void qn__free_cstr(qn_allocator_t allocator, char* text) {
  if (text) qn__free(allocator, text, strlen(text) + 1);
}

bool qn__grow(qn_allocator_t allocator, void** inout_items, size_t* inout_capacity, size_t needed,
              size_t item_size_bytes) {
  if (needed <= *inout_capacity) return true;
  size_t capacity = *inout_capacity ? *inout_capacity : 4;
  while (capacity < needed) {
    if (!qn__size_mul(capacity, 2, &capacity)) capacity = needed;
  }
  size_t bytes;
  if (!qn__size_mul(capacity, item_size_bytes, &bytes)) return false;
  void* items = allocator.reallocate(allocator.self, *inout_items,
                                     *inout_capacity * item_size_bytes, at_least_one(bytes));
  if (!items) return false;
  *inout_items = items;
  *inout_capacity = capacity;
  return true;
}

qn_status_t qn__out_of_memory(const char* what) {
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "out of memory for %s", what);
}
