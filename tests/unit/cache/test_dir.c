// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_dir.c: tests the functions for tools on a cache directory (quern/cache.h):
// listing, reading, damage and removal.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quern/cache.h"
#include "tests/unit/cache/support.h"

typedef struct seen {
  int count;
  uint64_t bytes;
  int64_t created_s;
} seen_t;

static bool see(void* self, const qn_cache_entry_info_t* info) {
  seen_t* seen = self;
  seen->count++;
  seen->bytes += info->size_bytes;
  seen->created_s = info->created_s;
  assert_int_equal(strlen(info->key.hex), 32);
  return true;
}

static void hear(void* self, qn_cache_key_t key, const char* reason) {
  assert_int_equal(strlen(key.hex), 32);
  assert_string_equal(reason, "the checksum of the entry does not match its bytes");
  ++*(int*)self;
}

static void tools_look_at_a_directory(void** state) {
  (void)state;
  qn_cache_dir_t* dir;
  char absent[QN_TEST_PATH_SIZE + 8];
  (void)snprintf(absent, sizeof absent, "%s/absent", cache_root);
  assert_int_equal(qn_status_consume(qn_cache_dir_open(absent, &dir)), QN_STATUS_NOT_FOUND);
  assert_null(dir);
  assert_int_equal(qn_status_consume(qn_cache_dir_open(NULL, &dir)), QN_STATUS_INVALID_ARGUMENT);
  assert_true(qn_ok(qn_cache_dir_open(cache_root, &dir)));
  seen_t seen = {0};
  assert_true(qn_ok(qn_cache_dir_list(dir, see, &seen)));
  assert_int_equal(seen.count, 0);

  qn__disk_t* disk = open_cache(NULL);
  sample_t samples[5];
  for (unsigned i = 0; i < 5; i++) {
    sample_make(&samples[i], i, 100);
    assert_true(put_and_wait(disk, &samples[i]));
  }
  qn__disk_close(disk, FOREVER_NS);
  assert_true(qn_ok(qn_cache_dir_list(dir, see, &seen)));
  assert_int_equal(seen.count, 5);
  assert_int_equal(seen.created_s, 1700000000);
  qn_cache_usage_t usage = {.struct_size = sizeof usage};
  assert_true(qn_ok(qn_cache_dir_usage(dir, &usage)));
  assert_int_equal(usage.entry_count, 5);
  assert_true(usage.size_bytes == seen.bytes);
  assert_int_equal(usage.temporary_count, 0);

  char key[33];
  qn__hash128_hex(samples[3].entry.key, key);
  qn_cache_entry_t* entry;
  assert_true(qn_ok(qn_cache_dir_read(dir, key, &entry)));
  assert_string_equal(entry->info->key.hex, key);
  assert_int_equal(entry->compile_ns, 1003);
  assert_int_equal(entry->section_count, 7);
  assert_string_equal(entry->sections[0].name, "schema");
  assert_string_equal(entry->sections[0].text, "versions 1 1");
  assert_string_equal(entry->sections[1].name, "module");
  assert_memory_equal(entry->sections[1].text, "32 bytes, xxh3 ", 15);
  assert_string_equal(entry->sections[2].name, "target");
  assert_string_equal(entry->sections[2].text, "{\"kind\":\"cpu\",\"mcpu\":\"znver3\"}");
  assert_string_equal(entry->sections[4].name, "metadata");
  assert_null(entry->sections[4].text);
  assert_memory_equal(entry->sections[5].data, samples[3].module.data, 32);
  assert_string_equal(entry->sections[6].name, "payload");
  assert_int_equal(entry->sections[6].size_bytes, 100);
  assert_memory_equal(entry->sections[6].data, samples[3].payload.data, 100);
  qn_cache_entry_free(entry);
  qn_cache_entry_free(NULL);
  key[6] = '\0';
  assert_true(qn_ok(qn_cache_dir_read(dir, key, &entry)));
  qn_cache_entry_free(entry);
  assert_int_equal(qn_status_consume(qn_cache_dir_read(dir, "abc", &entry)),
                   QN_STATUS_INVALID_ARGUMENT);
  assert_int_equal(qn_status_consume(qn_cache_dir_read(dir, "xyzw", &entry)),
                   QN_STATUS_INVALID_ARGUMENT);
  assert_int_equal(qn_status_consume(qn_cache_dir_read(dir, "0000000000", &entry)),
                   QN_STATUS_NOT_FOUND);
  assert_null(entry);

  char path[QN_TEST_PATH_SIZE + 64];
  uint8_t bytes[2048];
  entry_path(&samples[3], path);
  long size = qn_test_read_file(path, bytes, sizeof bytes);
  bytes[size - 20] ^= 1;
  assert_true(qn_test_write_file(path, bytes, (size_t)size));
  qn_status_t status = qn_cache_dir_read(dir, key, &entry);
  assert_int_equal(qn_status_code(status), QN_STATUS_DATA_LOSS);
  assert_non_null(strstr(qn_status_message(status), "checksum"));
  qn_status_free(status);
  qn_cache_verify_report_t report = {.struct_size = sizeof report};
  int bad = 0;
  assert_true(qn_ok(qn_cache_dir_verify(dir, false, hear, &bad, &report)));
  assert_int_equal(bad, 1);
  assert_int_equal(report.good_count, 4);
  assert_int_equal(report.bad_count, 1);
  assert_int_equal(report.removed_count, 0);
  assert_int_equal(access(path, F_OK), 0);
  assert_true(qn_ok(qn_cache_dir_verify(dir, true, NULL, NULL, &report)));
  assert_int_equal(report.removed_count, 1);
  assert_int_equal(access(path, F_OK), -1);
  assert_true(qn_ok(qn_cache_dir_verify(dir, true, hear, &bad, &report)));
  assert_int_equal(report.good_count, 4);
  assert_int_equal(report.bad_count, 0);

  (void)snprintf(path, sizeof path, "%s/v1/keep.txt", cache_root);
  assert_true(qn_test_write_file(path, "mine", 4));
  uint64_t removed;
  assert_true(qn_ok(qn_cache_dir_clear(dir, &removed)));
  assert_int_equal(removed, 4);
  assert_int_equal(access(path, F_OK), 0);
  assert_true(qn_ok(qn_cache_dir_usage(dir, &usage)));
  assert_int_equal(usage.entry_count, 0);
  qn_cache_dir_close(dir);
  qn_cache_dir_close(NULL);
  for (unsigned i = 0; i < 5; i++) sample_free(&samples[i]);
}

static void an_ambiguous_prefix_is_refused(void** state) {
  (void)state;
  char path[QN_TEST_PATH_SIZE + 64];
  for (int i = 0; i < 2; i++) {
    (void)snprintf(path, sizeof path, "%s/v1", cache_root);
    (void)mkdir(path, 0700);
    (void)snprintf(path, sizeof path, "%s/v1/ab", cache_root);
    (void)mkdir(path, 0700);
    (void)snprintf(path, sizeof path, "%s/v1/ab/cdef0%d0000000000000000000000ee.k", cache_root, i);
    assert_true(qn_test_write_file(path, "x", 1));
  }
  qn_cache_dir_t* dir;
  assert_true(qn_ok(qn_cache_dir_open(cache_root, &dir)));
  qn_cache_entry_t* entry;
  assert_int_equal(qn_status_consume(qn_cache_dir_read(dir, NULL, &entry)),
                   QN_STATUS_INVALID_ARGUMENT);
  qn_status_t status = qn_cache_dir_read(dir, "abcdef", &entry);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  assert_non_null(strstr(qn_status_message(status), "more than one"));
  qn_status_free(status);
  assert_int_equal(qn_status_consume(qn_cache_dir_read(dir, "abcdef00", &entry)),
                   QN_STATUS_DATA_LOSS);
  qn_cache_dir_close(dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, cache_set_up, cache_tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(tools_look_at_a_directory),
      TEST(an_ambiguous_prefix_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
