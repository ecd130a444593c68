// SPDX-License-Identifier: Apache-2.0
// cache/scratch.c: see scratch.h.
#include "cache/scratch.h"

#include "base/alloc.h"

#define LARGEST_KEPT_BYTES ((size_t)1 << 20)
#define STEP_BYTES ((size_t)16384)

struct qn__scratch_buffer {
  size_t capacity;
  _Alignas(16) uint8_t bytes[];
};

static void free_buffer(qn__scratch_t* scratch, qn__scratch_buffer_t* buffer) {
  if (buffer) qn__free(scratch->allocator, buffer, sizeof *buffer + buffer->capacity);
}

void qn__scratch_init(qn__scratch_t* scratch, qn_allocator_t allocator) {
  scratch->allocator = allocator;
  for (size_t i = 0; i < QN__SCRATCH_SLOTS; i++) atomic_init(&scratch->slots[i], NULL);
}

void qn__scratch_deinit(qn__scratch_t* scratch) {
  for (size_t i = 0; i < QN__SCRATCH_SLOTS; i++) {
    free_buffer(scratch, atomic_exchange(&scratch->slots[i], NULL));
  }
}

uint8_t* qn__scratch_take(qn__scratch_t* scratch, size_t size) {
  for (size_t i = 0; i < QN__SCRATCH_SLOTS; i++) {
    if (!atomic_load_explicit(&scratch->slots[i], memory_order_relaxed)) continue;
    qn__scratch_buffer_t* buffer =
        atomic_exchange_explicit(&scratch->slots[i], NULL, memory_order_acquire);
    if (!buffer) continue;
    if (buffer->capacity >= size) return buffer->bytes;
    free_buffer(scratch, buffer);
  }
  // Rounds up, so that one buffer serves entries of similar sizes.
  size_t capacity, whole;
  if (!qn__size_add(size, STEP_BYTES, &capacity)) return NULL;
  capacity &= ~(STEP_BYTES - 1);
  if (!qn__size_add(capacity, sizeof(qn__scratch_buffer_t), &whole)) return NULL;
  qn__scratch_buffer_t* buffer = qn__alloc(scratch->allocator, whole);
  if (!buffer) return NULL;
  buffer->capacity = capacity;
  return buffer->bytes;
}

void qn__scratch_give(qn__scratch_t* scratch, uint8_t* bytes) {
  if (!bytes) return;
  uint8_t* begin = bytes - offsetof(qn__scratch_buffer_t, bytes);
  qn__scratch_buffer_t* buffer = (qn__scratch_buffer_t*)(void*)begin;
  assert(buffer->capacity > 0 && buffer->capacity % STEP_BYTES == 0);  // a buffer of take
  if (buffer->capacity <= LARGEST_KEPT_BYTES) {
    for (size_t i = 0; i < QN__SCRATCH_SLOTS; i++) {
      qn__scratch_buffer_t* none = NULL;
      if (atomic_compare_exchange_strong_explicit(&scratch->slots[i], &none, buffer,
                                                  memory_order_release, memory_order_relaxed)) {
        return;
      }
    }
  }
  free_buffer(scratch, buffer);
}
