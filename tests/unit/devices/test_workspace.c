// SPDX-License-Identifier: Apache-2.0
// Cached workspace without a device: classes of sizes, who may reuse a block, the limit, and the
// blocks of a stream that ends.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "devices/workspace.h"
#include "tests/support/must.h"

typedef struct block {
  qn__workspace_block_t base;  // must be first
  bool is_passed;
} block_t;

static bool is_passed(const qn__workspace_block_t* block) {
  return ((const block_t*)(const void*)block)->is_passed;
}

static void test_classes(void** state) {
  (void)state;
  uint32_t size_class, previous = 0;
  for (uint64_t size = 0; size < UINT64_C(1) << 45; size += 1 + size / 37) {
    assert_true(qn__workspace_class_of(size, &size_class));
    assert_true(qn__workspace_class_bytes(size_class) >= size);
    assert_true(size_class == 0 || qn__workspace_class_bytes(size_class - 1) < size);
    assert_true(size_class >= previous);
    previous = size_class;
  }
  for (uint32_t c = 0; c < QN__WORKSPACE_CLASSES; c++) {
    assert_true(qn__workspace_class_of(qn__workspace_class_bytes(c), &size_class));
    assert_int_equal(size_class, c);
  }
  assert_false(qn__workspace_class_of(UINT64_MAX, &size_class));
}

static void test_reuse(void** state) {
  (void)state;
  qn__workspace_t workspace;
  must(qn__workspace_init(&workspace, 1 << 20, is_passed));
  block_t busy = {.base = {.address = 0x1000, .stream = 1}};
  block_t done = {.base = {.address = 0x2000, .stream = 2}, .is_passed = true};
  qn__workspace_add(&workspace, &busy.base);
  qn__workspace_add(&workspace, &done.base);
  assert_null(qn__workspace_remove(&workspace, 0x3000));
  assert_ptr_equal(qn__workspace_remove(&workspace, 0x1000), &busy);
  assert_null(qn__workspace_remove(&workspace, 0x1000));
  assert_ptr_equal(qn__workspace_remove(&workspace, 0x2000), &done);
  assert_null(qn__workspace_release(&workspace, &done.base));
  assert_null(qn__workspace_release(&workspace, &busy.base));
  // Its own block first, though another one has passed; then that; then none.
  assert_ptr_equal(qn__workspace_acquire(&workspace, 0, 1), &busy);
  assert_ptr_equal(qn__workspace_remove(&workspace, 0x1000), &busy);
  assert_null(qn__workspace_release(&workspace, &busy.base));
  assert_ptr_equal(qn__workspace_acquire(&workspace, 0, 3), &done);
  assert_null(qn__workspace_acquire(&workspace, 0, 3));
  assert_null(qn__workspace_acquire(&workspace, 1, 1));
  assert_ptr_equal(qn__workspace_deinit(&workspace), &busy);
}

static void test_limit(void** state) {
  (void)state;
  qn__workspace_t workspace;
  const uint64_t limit = qn__workspace_class_bytes(8);
  must(qn__workspace_init(&workspace, limit, is_passed));
  block_t large = {.base = {.size_class = 8, .stream = 1}, .is_passed = true};
  block_t small = {.base = {.size_class = 0, .stream = 2}};
  assert_null(qn__workspace_release(&workspace, &large.base));
  assert_ptr_equal(qn__workspace_release(&workspace, &small.base), &large);
  // Work that has not passed stays, unless its stream has ended.
  assert_null(qn__workspace_trim(&workspace, 0));
  assert_null(qn__workspace_forget(&workspace, 1));
  assert_ptr_equal(qn__workspace_forget(&workspace, 2), &small);
  assert_int_equal(workspace.cached_bytes, 0);
  assert_null(qn__workspace_deinit(&workspace));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_classes), cmocka_unit_test(test_reuse),
                                     cmocka_unit_test(test_limit)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
