// SPDX-License-Identifier: Apache-2.0
// Build ids from real files, from damaged ones, and under faults; identities made of them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "jit/identity/identity.h"
#include "tests/support/fault.h"
#include "tests/support/tempdir.h"

// A little ELF file with one note segment, written by hand.
typedef struct image {
  uint8_t bytes[256];
  size_t size;
} image_t;

static void put(image_t* image, size_t at, uint64_t value, size_t size) {
  memcpy(image->bytes + at, &value, size);
}

static image_t make_image(void) {
  image_t image = {.size = 64 + 56 + 12 + 4 + 20};
  memcpy(image.bytes,
         "\x7f"
         "ELF\2\1\1",
         7);
  put(&image, 32, 64, 8);       // e_phoff
  put(&image, 54, 56, 2);       // e_phentsize
  put(&image, 56, 1, 2);        // e_phnum
  put(&image, 64, 4, 4);        // PT_NOTE
  put(&image, 72, 120, 8);      // p_offset
  put(&image, 64 + 32, 36, 8);  // p_filesz
  put(&image, 120, 4, 4);
  put(&image, 124, 20, 4);
  put(&image, 128, 3, 4);  // NT_GNU_BUILD_ID
  memcpy(image.bytes + 132, "GNU", 4);
  for (uint8_t i = 0; i < 20; ++i) image.bytes[136 + i] = (uint8_t)(0xa0 + i);
  return image;
}

static const char image_id[] = "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3";
static char directory[QN_TEST_PATH_SIZE];
static char path[QN_TEST_PATH_SIZE + 8];

static bool id_of(const image_t* image, size_t size, char out[QN__BUILD_ID_HEX_BYTES]) {
  assert_true(qn_test_write_file(path, image->bytes, size));
  return qn__elf_build_id(path, out);
}

static int set_up(void** state) {
  (void)state;
  if (!qn_test_tempdir_make(directory)) return -1;
  (void)snprintf(path, sizeof path, "%s/elf", directory);
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  qn_test_tempdir_remove(directory);
  return 0;
}

static void test_small_file(void** state) {
  (void)state;
  image_t image = make_image();
  char id[QN__BUILD_ID_HEX_BYTES];
  assert_true(id_of(&image, image.size, id));
  assert_string_equal(id, image_id);
}

static void test_damage(void** state) {
  (void)state;
  image_t image = make_image();
  char id[QN__BUILD_ID_HEX_BYTES];
  for (size_t size = 0; size < image.size; ++size) {
    assert_false(id_of(&image, size, id));
    assert_string_equal(id, "");
  }
  // No byte may lead outside of the file; those of the id itself only change the id.
  for (size_t i = 0; i < image.size; ++i) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      image_t bad = image;
      bad.bytes[i] = (uint8_t)(bad.bytes[i] ^ 1u << bit);
      if (!id_of(&bad, bad.size, id)) assert_string_equal(id, "");
    }
  }
  image_t bad = image;
  put(&bad, 32, UINT64_MAX - 8, 8);
  assert_false(id_of(&bad, bad.size, id));
  bad = image;
  put(&bad, 124, 33, 4);  // longer than any id
  assert_false(id_of(&bad, bad.size, id));
  bad = image;
  put(&bad, 120, UINT32_MAX, 4);
  assert_false(id_of(&bad, bad.size, id));
}

static void test_faults(void** state) {
  (void)state;
  image_t image = make_image();
  char id[QN__BUILD_ID_HEX_BYTES];
  assert_true(id_of(&image, image.size, id));
  qn_fault_fs_install();
  long n = 1;
  for (;; ++n) {
    qn_fault_fs_arm(n, QN_FAULT_ALWAYS, QN_FAULT_ERRNO, EIO);
    bool is_found = qn__elf_build_id(path, id);
    if (qn_fault_fs_failures() == 0) break;
    if (!is_found) assert_string_equal(id, "");
  }
  assert_true(n > 3);
  qn_fault_fs_arm(1, QN_FAULT_ALWAYS, QN_FAULT_SHORT_READ, 0);
  assert_true(qn__elf_build_id(path, id));
  assert_string_equal(id, image_id);
  assert_int_equal(qn_fault_fs_open_count(), 0);
  qn_fault_fs_remove();
}

static void test_names(void** state) {
  (void)state;
  char id[QN__BUILD_ID_HEX_BYTES];
  assert_false(qn__elf_build_id("/nonexistent", id));
  assert_false(qn__elf_build_id("/", id));
  assert_false(qn__compiler_library_id("interp", id, NULL));
  char one[QN_IDENTITY_BYTES], other[QN_IDENTITY_BYTES];
  qn__generator_identity("llvm", "aa", "bb", one);
  assert_non_null(strstr(one, "llvm "));
  assert_non_null(strstr(one, "build id aa, library bb"));
  qn__generator_identity("llvm", "aa", NULL, other);
  assert_string_not_equal(one, other);
}

// What has no build id must not be taken for anything else that has none.
static void test_mapped_identities(void** state) {
  (void)state;
  char one[QN_IDENTITY_BYTES], other[QN_IDENTITY_BYTES];
  char on_stack = 0, id[QN__BUILD_ID_HEX_BYTES];
  assert_false(qn__mapped_build_id(&on_stack, id));
  qn__mapped_identity("mine", &on_stack, NULL, one);
  qn__mapped_identity("mine", &on_stack, NULL, other);
  assert_non_null(strstr(one, "library none"));
  assert_string_not_equal(one, other);
  void (*own_function)(void**) = test_mapped_identities;
  const void* own_address;
  memcpy(&own_address, &own_function, sizeof own_address);
  qn__mapped_identity("mine", own_address, &on_stack, one);
  qn__mapped_identity("mine", own_address, &on_stack, other);
  assert_string_not_equal(one, other);
  if (!qn__mapped_build_id(own_address, id)) return;  // linked without one
  qn__mapped_identity("mine", own_address, NULL, one);
  qn__generator_identity("mine", id, NULL, other);
  assert_string_equal(one, other);
  // A library that is linked statically is in the same object.
  qn__mapped_identity("mine", own_address, own_address, one);
  assert_string_equal(one, other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_small_file),
      cmocka_unit_test(test_damage),
      cmocka_unit_test(test_faults),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_mapped_identities),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
