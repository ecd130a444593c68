// The pages that drivers record in, asked as a driver would: pieces that do not overlap and are
// aligned, pages that begin anew when they are empty, pieces that are kept, no memory.
//
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "quern/config.h"

#if QN_HAVE_VULKAN
#include "devices/vulkan/recording.h"
#include "tests/support/fault.h"

enum { COUNT = 600, ROUNDS = 50 };

static void begin(qn_fault_heap_t* heap, qn__vk_recording_t* recording) {
  qn_fault_heap_init(heap);
  qn__vk_recording_init(recording, qn_fault_heap_allocator(heap));
}

// Nothing is left.
static void end(qn_fault_heap_t* heap, qn__vk_recording_t* recording) {
  qn__vk_recording_deinit(recording);
  assert_int_equal(heap->live_blocks, 0);
  assert_int_equal(heap->size_errors, 0);
}

static void* take(qn__vk_recording_t* recording, size_t size, size_t alignment) {
  return recording->callbacks.pfnAllocation(recording->callbacks.pUserData, size, alignment,
                                            VK_SYSTEM_ALLOCATION_SCOPE_OBJECT);
}

static void give(qn__vk_recording_t* recording, void* memory) {
  recording->callbacks.pfnFree(recording->callbacks.pUserData, memory);
}

static void* take_again(qn__vk_recording_t* recording, void* memory, size_t size) {
  return recording->callbacks.pfnReallocation(recording->callbacks.pUserData, memory, size, 8,
                                              VK_SYSTEM_ALLOCATION_SCOPE_OBJECT);
}

static size_t size_of(size_t index) {
  static const size_t sizes[] = {144, 0, 16, 48, 64, 144, 1, 144, 1024, 1025, 40000};
  return sizes[index % QN_COUNT_OF(sizes)];
}

// Fills COUNT pieces with a byte of their own each, and looks at all of them at the end.
static void take_all(qn__vk_recording_t* recording, uint8_t** pieces) {
  for (size_t i = 0; i < COUNT; i++) {
    size_t alignment = i % 37 == 0 ? 256 : i % 2 ? 8 : 16;
    pieces[i] = take(recording, size_of(i), alignment);
    assert_non_null(pieces[i]);
    assert_int_equal((uintptr_t)pieces[i] % alignment, 0);
    memset(pieces[i], (int)(i & 255), size_of(i));
  }
  for (size_t i = 0; i < COUNT; i++) {
    for (size_t k = 0; k < size_of(i); k++) assert_int_equal(pieces[i][k], i & 255);
  }
}

static void test_pages_begin_anew(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn__vk_recording_t recording;
  begin(&heap, &recording);
  // As long as the pool: not in a page.
  uint8_t* kept = take(&recording, 100, 8);
  assert_int_equal(heap.live_blocks, 1);
  qn__vk_recording_begin(&recording);
  static uint8_t* pieces[COUNT];
  long blocks = 0;
  for (int round = 0; round < ROUNDS; round++) {
    take_all(&recording, pieces);
    // In whatever order.
    for (size_t i = 0; i < COUNT; i++) {
      give(&recording, pieces[round % 2 ? i : (i * 7 + 3) % COUNT]);
    }
    if (round == 0) blocks = heap.live_blocks;
    assert_int_equal(heap.live_blocks, blocks);
  }
  assert_true(blocks > 2);
  give(&recording, NULL);
  give(&recording, kept);
  end(&heap, &recording);
}

// A driver keeps a few pieces: the pages that they lie in stay, and no more come.
static void test_kept_pieces(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn__vk_recording_t recording;
  begin(&heap, &recording);
  qn__vk_recording_begin(&recording);
  static uint8_t* pieces[COUNT];
  uint8_t* kept[3];
  long most = 0;
  for (size_t round = 0; round < ROUNDS; round++) {
    if (round < QN_COUNT_OF(kept)) {
      kept[round] = take(&recording, 200, 8);
      memset(kept[round], 0xA0 + (int)round, 200);
    }
    take_all(&recording, pieces);
    for (size_t i = 0; i < COUNT; i++) give(&recording, pieces[i]);
    if (round == 5) most = heap.live_blocks;
    if (round > 5) assert_int_equal(heap.live_blocks, most);
  }
  for (size_t i = 0; i < QN_COUNT_OF(kept); i++) {
    for (size_t k = 0; k < 200; k++) assert_int_equal(kept[i][k], 0xA0 + i);
    give(&recording, kept[i]);
  }
  end(&heap, &recording);
}

static void test_larger_and_smaller(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn__vk_recording_t recording;
  begin(&heap, &recording);
  qn__vk_recording_begin(&recording);
  uint8_t* memory = take_again(&recording, NULL, 10);
  for (int i = 0; i < 10; i++) memory[i] = (uint8_t)i;
  static const size_t sizes[] = {100, 5000, 300, 10};
  for (size_t s = 0; s < QN_COUNT_OF(sizes); s++) {
    memory = take_again(&recording, memory, sizes[s]);
    for (int i = 0; i < 10; i++) assert_int_equal(memory[i], i);
  }
  assert_null(take_again(&recording, memory, 0));
  // Without memory what was there stays.
  memory = take(&recording, 10, 8);
  memory[9] = 7;
  qn_fault_heap_arm(&heap, 1, QN_FAULT_ALWAYS);
  assert_null(take_again(&recording, memory, 5000));
  assert_null(take(&recording, SIZE_MAX - 8, 16));
  assert_int_equal(memory[9], 7);
  give(&recording, memory);
  end(&heap, &recording);
}

static void test_without_memory(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn__vk_recording_t recording;
  begin(&heap, &recording);
  qn_fault_heap_arm(&heap, 1, QN_FAULT_ALWAYS);
  assert_null(take(&recording, 64, 8));
  qn__vk_recording_begin(&recording);
  assert_null(take(&recording, 64, 8));
  qn_fault_heap_arm(&heap, 0, QN_FAULT_ONCE);
  void* memory = take(&recording, 64, 8);
  assert_non_null(memory);
  give(&recording, memory);
  end(&heap, &recording);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pages_begin_anew),
      cmocka_unit_test(test_kept_pieces),
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
