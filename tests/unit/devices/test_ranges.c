// SPDX-License-Identifier: Apache-2.0
// Ranges of a block against a plain model: an array with the owner of each granule. Ranges never
// overlap, fit where a hole fits, and qn__ranges_check holds after each step.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "devices/ranges.h"
#include "tests/support/fault.h"

enum { GRANULE = 256, GRANULES = 512, STEPS = 4000, MAX_RANGES = 64 };

typedef struct model {
  uint8_t owners[GRANULES];  // 0: free, else the index of the range plus 1
  uint64_t offsets[MAX_RANGES];
  uint32_t sizes[MAX_RANGES];  // in granules; 0: not allocated
} model_t;

// Returns whether a free run of `size` granules starts at a multiple of `alignment`.
static bool has_room(const model_t* model, uint32_t size, uint32_t alignment) {
  for (uint32_t start = 0; start + size <= GRANULES; start += alignment) {
    uint32_t i = 0;
    while (i < size && model->owners[start + i] == 0) i++;
    if (i == size) return true;
  }
  return false;
}

static void step(model_t* model, qn__ranges_t* ranges, uint32_t random) {
  const uint32_t which = random % MAX_RANGES;
  uint8_t* owners = model->owners;
  if (model->sizes[which] == 0) {
    const uint32_t size = 1 + (random >> 8) % 40;
    const uint32_t alignment = 1u << (random >> 16) % 5;
    uint64_t offset = 0;
    const bool is_done = qn__ranges_allocate(ranges, (uint64_t)size * GRANULE - random % 2,
                                             (uint64_t)alignment * GRANULE, &offset);
    assert_int_equal(is_done, has_room(model, size, alignment));
    if (!is_done) return;
    const uint32_t start = (uint32_t)(offset / GRANULE);
    assert_int_equal(offset % ((uint64_t)alignment * GRANULE), 0);
    assert_true(start + size <= GRANULES);
    for (uint32_t i = 0; i < size; i++) {
      assert_int_equal(owners[start + i], 0);
      owners[start + i] = (uint8_t)(which + 1);
    }
    model->offsets[which] = offset;
    model->sizes[which] = size;
    return;
  }
  const uint64_t offset = model->offsets[which];
  assert_int_equal(qn__ranges_size(ranges, offset), (uint64_t)model->sizes[which] * GRANULE);
  assert_true(qn__ranges_free(ranges, offset));
  assert_false(qn__ranges_free(ranges, offset));
  memset(owners + offset / GRANULE, 0, model->sizes[which]);
  model->sizes[which] = 0;
}

static void test_random_steps(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  static model_t model;
  qn__ranges_t ranges;
  assert_true(qn__ranges_init(&ranges, qn_fault_heap_allocator(&heap), GRANULE,
                              (uint64_t)GRANULES * GRANULE));
  uint64_t random = 1;
  for (int i = 0; i < STEPS; i++) {
    random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    step(&model, &ranges, (uint32_t)(random >> 32));
    assert_true(qn__ranges_check(&ranges));
  }
  for (size_t i = 0; i < MAX_RANGES; i++) {
    if (model.sizes[i] != 0) assert_true(qn__ranges_free(&ranges, model.offsets[i]));
  }
  assert_int_equal(ranges.allocated_count, 0);
  // All holes were joined: the whole block is one range again.
  uint64_t offset;
  assert_true(qn__ranges_allocate(&ranges, (uint64_t)GRANULES * GRANULE, 1, &offset));
  qn__ranges_deinit(&ranges);
  assert_int_equal(heap.live_blocks, 0);
}

// Every allocation of the host fails in turn: the ranges stay consistent.
static void test_without_memory(void** state) {
  (void)state;
  for (long at = 1; at < 40; at++) {
    qn_fault_heap_t heap;
    qn_fault_heap_init(&heap);
    qn_fault_heap_arm(&heap, at, QN_FAULT_ONCE);
    qn__ranges_t ranges;
    const uint64_t size = (uint64_t)GRANULES * GRANULE;
    if (qn__ranges_init(&ranges, qn_fault_heap_allocator(&heap), GRANULE, size)) {
      for (int i = 0; i < 200; i++) {
        uint64_t offset;
        (void)qn__ranges_allocate(&ranges, 1, 1, &offset);
        assert_true(qn__ranges_check(&ranges));
      }
      assert_true(ranges.allocated_count >= 199);
      qn__ranges_deinit(&ranges);
    }
    assert_int_equal(heap.live_blocks, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_steps),
                                     cmocka_unit_test(test_without_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
