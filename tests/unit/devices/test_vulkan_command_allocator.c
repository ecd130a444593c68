// SPDX-License-Identifier: Apache-2.0
// Calls the allocator of command pools as a driver does: pieces are aligned and do not overlap,
// empty pages are reused, long-lived pieces stay valid, and allocations fail without memory.
//
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "quern/config.h"

#if QN_HAVE_VULKAN
#include "devices/vulkan/command_allocator.h"
#include "tests/support/fault.h"

enum { COUNT = 600, ROUNDS = 50 };

static void begin(qn_fault_heap_t* heap, qn__vk_command_allocator_t* allocator) {
  qn_fault_heap_init(heap);
  qn__vk_command_allocator_init(allocator, qn_fault_heap_allocator(heap));
}

// Checks that every block was freed.
static void end(qn_fault_heap_t* heap, qn__vk_command_allocator_t* allocator) {
  qn__vk_command_allocator_deinit(allocator);
  assert_int_equal(heap->live_blocks, 0);
  assert_int_equal(heap->size_errors, 0);
}

static void* allocate(qn__vk_command_allocator_t* allocator, size_t size, size_t alignment) {
  return allocator->callbacks.pfnAllocation(allocator->callbacks.pUserData, size, alignment,
                                            VK_SYSTEM_ALLOCATION_SCOPE_OBJECT);
}

static void release(qn__vk_command_allocator_t* allocator, void* memory) {
  allocator->callbacks.pfnFree(allocator->callbacks.pUserData, memory);
}

static void* reallocate(qn__vk_command_allocator_t* allocator, void* memory, size_t size) {
  return allocator->callbacks.pfnReallocation(allocator->callbacks.pUserData, memory, size, 8,
                                              VK_SYSTEM_ALLOCATION_SCOPE_OBJECT);
}

static size_t size_of(size_t index) {
  static const size_t sizes[] = {144, 0, 16, 48, 64, 144, 1, 144, 1024, 1025, 40000};
  return sizes[index % QN_COUNT_OF(sizes)];
}

// Fills COUNT pieces with a different byte each, then checks all of them.
static void allocate_all(qn__vk_command_allocator_t* allocator, uint8_t** pieces) {
  for (size_t i = 0; i < COUNT; i++) {
    size_t alignment = i % 37 == 0 ? 256 : i % 2 ? 8 : 16;
    pieces[i] = allocate(allocator, size_of(i), alignment);
    assert_non_null(pieces[i]);
    assert_int_equal((uintptr_t)pieces[i] % alignment, 0);
    memset(pieces[i], (int)(i & 255), size_of(i));
  }
  for (size_t i = 0; i < COUNT; i++) {
    for (size_t k = 0; k < size_of(i); k++) assert_int_equal(pieces[i][k], i & 255);
  }
}

static void test_empty_pages_are_reused(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn__vk_command_allocator_t allocator;
  begin(&heap, &allocator);
  // Lives as long as the pool, so it lies in no page.
  uint8_t* kept = allocate(&allocator, 100, 8);
  assert_int_equal(heap.live_blocks, 1);
  qn__vk_command_allocator_begin(&allocator);
  static uint8_t* pieces[COUNT];
  long blocks = 0;
  for (int round = 0; round < ROUNDS; round++) {
    allocate_all(&allocator, pieces);
    // Frees in different orders.
    for (size_t i = 0; i < COUNT; i++) {
      release(&allocator, pieces[round % 2 ? i : (i * 7 + 3) % COUNT]);
    }
    if (round == 0) blocks = heap.live_blocks;
    assert_int_equal(heap.live_blocks, blocks);
  }
  assert_true(blocks > 2);
  release(&allocator, NULL);
  release(&allocator, kept);
  end(&heap, &allocator);
}

// Long-lived pieces keep their own pages in use; no further pages are allocated.
static void test_long_lived_pieces(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn__vk_command_allocator_t allocator;
  begin(&heap, &allocator);
  qn__vk_command_allocator_begin(&allocator);
  static uint8_t* pieces[COUNT];
  uint8_t* kept[3];
  long most = 0;
  for (size_t round = 0; round < ROUNDS; round++) {
    if (round < QN_COUNT_OF(kept)) {
      kept[round] = allocate(&allocator, 200, 8);
      memset(kept[round], 0xA0 + (int)round, 200);
    }
    allocate_all(&allocator, pieces);
    for (size_t i = 0; i < COUNT; i++) release(&allocator, pieces[i]);
    if (round == 5) most = heap.live_blocks;
    if (round > 5) assert_int_equal(heap.live_blocks, most);
  }
  for (size_t i = 0; i < QN_COUNT_OF(kept); i++) {
    for (size_t k = 0; k < 200; k++) assert_int_equal(kept[i][k], 0xA0 + i);
    release(&allocator, kept[i]);
  }
  end(&heap, &allocator);
}

static void test_larger_and_smaller(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn__vk_command_allocator_t allocator;
  begin(&heap, &allocator);
  qn__vk_command_allocator_begin(&allocator);
  uint8_t* memory = reallocate(&allocator, NULL, 10);
  for (int i = 0; i < 10; i++) memory[i] = (uint8_t)i;
  static const size_t sizes[] = {100, 5000, 300, 10};
  for (size_t s = 0; s < QN_COUNT_OF(sizes); s++) {
    memory = reallocate(&allocator, memory, sizes[s]);
    for (int i = 0; i < 10; i++) assert_int_equal(memory[i], i);
  }
  assert_null(reallocate(&allocator, memory, 0));
  // A failed reallocation leaves the old piece valid.
  memory = allocate(&allocator, 10, 8);
  memory[9] = 7;
  qn_fault_heap_arm(&heap, 1, QN_FAULT_ALWAYS);
  assert_null(reallocate(&allocator, memory, 5000));
  assert_null(allocate(&allocator, SIZE_MAX - 8, 16));
  assert_int_equal(memory[9], 7);
  release(&allocator, memory);
  end(&heap, &allocator);
}

static void test_without_memory(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn__vk_command_allocator_t allocator;
  begin(&heap, &allocator);
  qn_fault_heap_arm(&heap, 1, QN_FAULT_ALWAYS);
  assert_null(allocate(&allocator, 64, 8));
  qn__vk_command_allocator_begin(&allocator);
  assert_null(allocate(&allocator, 64, 8));
  qn_fault_heap_arm(&heap, 0, QN_FAULT_ONCE);
  void* memory = allocate(&allocator, 64, 8);
  assert_non_null(memory);
  release(&allocator, memory);
  end(&heap, &allocator);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_empty_pages_are_reused),
      cmocka_unit_test(test_long_lived_pieces),
      cmocka_unit_test(test_larger_and_smaller),
      cmocka_unit_test(test_without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
  return 0;
}
#endif
