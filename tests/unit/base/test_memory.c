// SPDX-License-Identifier: Apache-2.0
// tests/unit/base/test_memory.c: allocator helpers, arena, buffer, map, and their failures.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/buffer.h"
#include "base/map.h"
#include "tests/support/fault.h"

static void sizes_are_checked(void** state) {
  (void)state;
  qn_allocator_t allocator = qn_allocator_default();
  assert_null(qn__alloc_zero(allocator, SIZE_MAX / 2, 3));
  uint8_t* zeros = qn__alloc_zero(allocator, 3, 5);
  for (size_t i = 0; i < 15; i++) assert_int_equal(zeros[i], 0);
  qn__free(allocator, zeros, 15);
  void* items = NULL;
  size_t capacity = 0;
  assert_false(qn__grow(allocator, &items, &capacity, SIZE_MAX / 4, 8));
  assert_null(items);
  assert_int_equal(capacity, 0);
  assert_true(qn__grow(allocator, &items, &capacity, 5, 8));
  assert_true(capacity >= 5);
  qn__free(allocator, items, capacity * 8);
}

static void nothing_can_be_allocated_and_freed(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  qn_allocator_t allocator = qn_fault_heap_allocator(&heap);
  void* nothing = qn__alloc(allocator, 0);
  assert_non_null(nothing);
  qn__free(allocator, nothing, 0);
  qn__free(allocator, NULL, 12);
  nothing = qn__alloc_zero(allocator, 0, 8);
  assert_non_null(nothing);
  qn__free(allocator, nothing, 0);
  char* text = qn__copy_cstr(allocator, (qn_str_t){"ab\0cd", 5});
  assert_string_equal(text, "ab");
  qn__free_cstr(allocator, text);
  assert_int_equal(heap.live_blocks, 0);
  assert_int_equal(heap.size_errors, 0);
}

// The test's own tool: a wrong size and a leak are seen.
static void fault_heap_sees_mistakes(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  qn_allocator_t allocator = qn_fault_heap_allocator(&heap);
  void* block = qn__alloc(allocator, 10);
  assert_int_equal(heap.live_blocks, 1);
  assert_int_equal(heap.live_bytes, 10);
  qn__free(allocator, block, 11);
  assert_int_equal(heap.size_errors, 1);
  assert_int_equal(heap.live_blocks, 0);
  qn_fault_heap_arm(&heap, 2, QN_FAULT_ONCE);
  void* first = qn__alloc(allocator, 1);
  assert_non_null(first);
  assert_null(qn__alloc(allocator, 1));
  void* third = qn__alloc(allocator, 1);
  assert_non_null(third);
  assert_int_equal(heap.failure_count, 1);
  qn__free(allocator, first, 1);
  qn__free(allocator, third, 1);
}

static void arena_gives_aligned_zeroed_memory(void** state) {
  (void)state;
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  uint8_t* last = NULL;
  size_t sizes[] = {1, 16, 17, 4000, 5000, 100000, 3, 0, 300000, 40};
  for (size_t round = 0; round < 20; round++) {
    for (size_t i = 0; i < QN_COUNT_OF(sizes); i++) {
      uint8_t* bytes = qn__arena_alloc(&arena, sizes[i]);
      assert_non_null(bytes);
      assert_ptr_not_equal(bytes, last);
      assert_int_equal((uintptr_t)bytes % 16, 0);
      for (size_t j = 0; j < sizes[i]; j++) assert_int_equal(bytes[j], 0);
      memset(bytes, 0xEE, sizes[i]);
      last = bytes;
    }
  }
  assert_null(qn__arena_alloc_array(&arena, SIZE_MAX, 2));
  assert_true(arena.is_exhausted);
  assert_string_equal(qn__arena_cstr(&arena, QN_STR("name")), "name");
  qn__arena_deinit(&arena);
  assert_int_equal(arena.total_bytes, 0);
}

static bool arena_work(qn_allocator_t allocator, void* user) {
  (void)user;
  qn__arena_t arena;
  qn__arena_init(&arena, allocator);
  bool is_fine = true, has_failed = false;
  for (size_t i = 0; i < 40; i++) {
    has_failed |= qn__arena_alloc(&arena, 1000 * i) == NULL;
    is_fine &= arena.is_exhausted == has_failed;
  }
  qn__arena_deinit(&arena);
  return is_fine;
}

static bool buffer_work(qn_allocator_t allocator, void* user) {
  (void)user;
  qn__buffer_t buffer;
  qn__buffer_init(&buffer, allocator);
  for (int i = 0; i < 100; i++) {
    qn__buffer_format(&buffer, "%d,", i);
    qn__buffer_json_string(&buffer, QN_STR("x\"y\n"));
  }
  bool is_fine = true;
  qn_status_t status = qn__buffer_status(&buffer, "text");
  if (qn_ok(status)) {
    is_fine = buffer.size == 290 + 800 && buffer.data[buffer.size] == 0;
    size_t size, capacity;
    uint8_t* bytes = qn__buffer_take(&buffer, &size, &capacity);
    qn__free(allocator, bytes, capacity);
  } else {
    is_fine = qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY &&
              (buffer.data == NULL || buffer.data[buffer.size] == 0);
  }
  qn_status_free(status);
  qn__buffer_deinit(&buffer);
  return is_fine;
}

static bool map_work(qn_allocator_t allocator, void* user) {
  (void)user;
  static char names[200][8];
  qn__map_t map;
  qn__map_init(&map, allocator);
  bool is_fine = true;
  bool is_in[200] = {false};
  for (int i = 0; i < 200; i++) {
    int size = snprintf(names[i], sizeof names[i], "k%d", i);
    is_in[i] = qn__map_put(&map, (qn_str_t){names[i], (size_t)size}, names[i]);
  }
  for (int i = 0; i < 200; i++) {
    void* found = qn__map_get(&map, qn__str(names[i]));
    is_fine &= found == (is_in[i] ? names[i] : NULL);
  }
  qn__map_deinit(&map);
  return is_fine;
}

static void out_of_memory_is_clean(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(arena_work, NULL) > 3);
  assert_true(qn_fault_walk_alloc(buffer_work, NULL) > 3);
  assert_true(qn_fault_walk_alloc(map_work, NULL) > 3);
}

static void buffer_formats_in_place_and_by_growth(void** state) {
  (void)state;
  qn__buffer_t buffer;
  qn__buffer_init(&buffer, qn_allocator_default());
  assert_true(qn__str_equal(qn__buffer_as_str(&buffer), QN_STR("")));
  qn__buffer_format(&buffer, "%s", "");
  for (int i = 0; i < 300; i++) qn__buffer_format(&buffer, "%03d", i);
  assert_int_equal(buffer.size, 900);
  assert_memory_equal(buffer.data + 897, "299", 4);
  qn__buffer_clear(&buffer);
  assert_int_equal(buffer.size, 0);
  qn__buffer_char(&buffer, 'a');
  qn__buffer_cstr(&buffer, "bc");
  qn__buffer_str(&buffer, QN_STR("de"));
  assert_string_equal((const char*)buffer.data, "abcde");
  qn__buffer_deinit(&buffer);
}

static void json_strings_are_escaped(void** state) {
  (void)state;
  static const struct {
    qn_str_t in;
    const char* out;
  } cases[] = {
      {QN_STR_INIT("plain"), "\"plain\""},
      {QN_STR_INIT("a\"b\\c/"), "\"a\\\"b\\\\c/\""},
      {QN_STR_INIT("\n\t\r\x01\x1f\x7f"), "\"\\n\\t\\r\\u0001\\u001f\\u007f\""},
      {QN_STR_INIT("\0"), "\"\\u0000\""},
      {QN_STR_INIT("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\xbe"),
       "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\xbe\""},
      {QN_STR_INIT("\xc0\xaf"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},                  // overlong
      {QN_STR_INIT("\xed\xa0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},  // a surrogate
      {QN_STR_INIT("x\xe2\x82"), "\"x\xEF\xBF\xBD\xEF\xBF\xBD\""},                // cut short
      {QN_STR_INIT("\xf4\x90\x80\x80y"),
       "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDy\""},  // beyond U+10FFFF
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn__buffer_t buffer;
    qn__buffer_init(&buffer, qn_allocator_default());
    qn__buffer_json_string(&buffer, cases[i].in);
    assert_string_equal((const char*)buffer.data, cases[i].out);
    qn__buffer_deinit(&buffer);
  }
}

// A model of the map: what is in it is known for each of 64 names, through 20,000 random steps.
static void map_agrees_with_a_model(void** state) {
  (void)state;
  static char names[64][8];
  static int marks[64][2];
  int* model[64] = {NULL};
  size_t count = 0;
  qn__map_t map;
  qn__map_init(&map, qn_allocator_default());
  assert_null(qn__map_get(&map, QN_STR("absent")));
  assert_false(qn__map_remove(&map, QN_STR("absent")));
  assert_true(qn__map_check(&map));
  uint32_t random = 12345;
  for (int step = 0; step < 20000; step++) {
    random = random * 1664525 + 1013904223;
    size_t i = (random >> 8) % 64;
    (void)snprintf(names[i], sizeof names[i], "n%zu", i);
    qn_str_t key = qn__str(names[i]);
    if (random >> 31) {
      int* value = &marks[i][(random >> 20) & 1];
      assert_true(qn__map_put(&map, key, value));
      count += model[i] == NULL;
      model[i] = value;
    } else {
      assert_int_equal(qn__map_remove(&map, key), model[i] != NULL);
      assert_true(qn__map_check(&map));
      count -= model[i] != NULL;
      model[i] = NULL;
    }
    assert_int_equal(map.count, count);
    for (size_t j = 0; j < 64 && step % 50 == 0; j++) {
      assert_ptr_equal(qn__map_get(&map, qn__str(names[j])), names[j][0] ? model[j] : NULL);
    }
  }
  qn__map_deinit(&map);
}

static void edit_distances(void** state) {
  (void)state;
  static const struct {
    const char *a, *b;
    size_t limit, expected;
  } cases[] = {
      {"", "", 2, 0},
      {"abc", "abc", 2, 0},
      {"abc", "abd", 2, 1},
      {"abc", "acb", 2, 1},
      {"kitten", "sitting", 3, 3},
      {"kitten", "sitting", 2, 3},
      {"", "ab", 2, 2},
      {"vector_widht", "vector_width", 2, 1},
      {"abcdef", "a", 2, 3},
      {"mcpu", "mpcu", 1, 1},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    size_t distance = qn__edit_distance(qn__str(cases[i].a), qn__str(cases[i].b), cases[i].limit);
    assert_int_equal(distance, cases[i].expected);
    distance = qn__edit_distance(qn__str(cases[i].b), qn__str(cases[i].a), cases[i].limit);
    assert_int_equal(distance, cases[i].expected);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes_are_checked),
      cmocka_unit_test(nothing_can_be_allocated_and_freed),
      cmocka_unit_test(fault_heap_sees_mistakes),
      cmocka_unit_test(arena_gives_aligned_zeroed_memory),
      cmocka_unit_test(out_of_memory_is_clean),
      cmocka_unit_test(buffer_formats_in_place_and_by_growth),
      cmocka_unit_test(json_strings_are_escaped),
      cmocka_unit_test(map_agrees_with_a_model),
      cmocka_unit_test(edit_distances),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
