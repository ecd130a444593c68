// SPDX-License-Identifier: Apache-2.0
// tests/support/fault_alloc.c: the failing, counting allocator of fault.h.
#include <stdlib.h>

#include "tests/support/fault.h"

#define ALIVE UINT64_C(0x71756572616c6976)
#define DEAD UINT64_C(0x7175657264656164)

typedef struct block_header {
  uint64_t state;
  size_t size_bytes;
} block_header_t;
static_assert(sizeof(block_header_t) == 16, "blocks stay aligned to 16 bytes");

static bool is_failing(qn_fault_heap_t* heap) {
  long call = atomic_fetch_add(&heap->call_count, 1) + 1;
  long fail_at = atomic_load(&heap->fail_at);
  bool fails = fail_at > 0 &&
               (atomic_load(&heap->mode) == QN_FAULT_ALWAYS ? call >= fail_at : call == fail_at);
  if (fails) atomic_fetch_add(&heap->failure_count, 1);
  return fails;
}

static void check_size(qn_fault_heap_t* heap, const block_header_t* header, size_t said) {
  if (header->state != ALIVE) abort();  // a double free or a foreign pointer
  if (header->size_bytes != said) atomic_fetch_add(&heap->size_errors, 1);
}

static void* reallocate(void* self, void* pointer, size_t old_size_bytes, size_t new_size_bytes) {
  qn_fault_heap_t* heap = self;
  block_header_t* old = pointer ? (block_header_t*)pointer - 1 : NULL;
  if (old) check_size(heap, old, old_size_bytes);
  block_header_t* fresh = NULL;
  if (new_size_bytes > 0) {
    size_t total;
    if (is_failing(heap) || !qn__size_add(new_size_bytes, sizeof *fresh, &total)) return NULL;
    fresh = malloc(total);
    if (!fresh) return NULL;
    *fresh = (block_header_t){ALIVE, new_size_bytes};
    memset(fresh + 1, 0xA5, new_size_bytes);
    atomic_fetch_add(&heap->live_blocks, 1);
    atomic_fetch_add(&heap->live_bytes, (long)new_size_bytes);
  }
  if (old) {
    if (fresh) {
      size_t kept = old->size_bytes < new_size_bytes ? old->size_bytes : new_size_bytes;
      memcpy(fresh + 1, old + 1, kept);
    }
    const long old_bytes = (long)old->size_bytes;
    old->state = DEAD;
    memset(old + 1, 0xDF, old->size_bytes);
    free(old);
    // Decrease the count of blocks last. A test that waits for 0 may then reuse or discard the heap
    // while the thread of the last free still returns.
    atomic_fetch_sub(&heap->live_bytes, old_bytes);
    atomic_fetch_sub(&heap->live_blocks, 1);
  }
  return fresh ? fresh + 1 : NULL;
}

void qn_fault_heap_init(qn_fault_heap_t* heap) {
  memset(heap, 0, sizeof *heap);
}

qn_allocator_t qn_fault_heap_allocator(qn_fault_heap_t* heap) {
  return (qn_allocator_t){heap, reallocate};
}

void qn_fault_heap_arm(qn_fault_heap_t* heap, long fail_at, qn_fault_mode_t mode) {
  // Disarm first: other threads may allocate meanwhile and must not fail by the old count.
  atomic_store(&heap->fail_at, 0);
  atomic_store(&heap->mode, mode);
  atomic_store(&heap->call_count, 0);
  atomic_store(&heap->failure_count, 0);
  atomic_store(&heap->fail_at, fail_at);
}

long qn_fault_walk_alloc(bool (*work)(qn_allocator_t allocator, void* user), void* user) {
  for (long n = 1;; n++) {
    bool has_failed = false;
    for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
      qn_fault_heap_t heap;
      qn_fault_heap_init(&heap);
      qn_fault_heap_arm(&heap, n, (qn_fault_mode_t)mode);
      bool is_fine = work(qn_fault_heap_allocator(&heap), user);
      if (!is_fine || heap.live_blocks != 0 || heap.size_errors != 0) return -n;
      has_failed |= heap.failure_count > 0;
    }
    if (!has_failed) return n;
  }
}
