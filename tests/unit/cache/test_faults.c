// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_faults.c: tests the cache directory with the n-th file call or allocation
// failing, once or from then on, for n = 1, 2, ... until a run reaches no failure.
//
// After each run: the right bytes or a miss, no leaked descriptor or memory, no temporary file
// unless an unlink failed, and a successful next run.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "quern/cache.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"

static const int errors[] = {ENOSPC, EDQUOT, EIO,    EACCES, EROFS,
                             ESTALE, EBUSY,  EMFILE, EINTR,  ENOENT};

static sample_t samples[3];

static int set_up(void** state) {
  if (cache_set_up(state) != 0) return -1;
  for (unsigned i = 0; i < QN_COUNT_OF(samples); i++) sample_make(&samples[i], i, 3000 * i + 50);
  return 0;
}

static int tear_down(void** state) {
  qn_fault_fs_remove();
  for (unsigned i = 0; i < QN_COUNT_OF(samples); i++) sample_free(&samples[i]);
  return cache_tear_down(state);
}

static qn__disk_t* try_open(qn_allocator_t allocator) {
  qn__disk_options_t options = {.allocator = allocator, .root = cache_root, .sweep_period_ns = -1};
  qn__disk_t* disk;
  qn_status_t status = qn__disk_open(&options, &disk);
  assert_int_equal(disk == NULL, !qn_ok(status));
  qn_status_free(status);
  return disk;
}

// The right bytes or a miss.
static void get_one(qn__disk_t* disk, const sample_t* sample) {
  qn__hit_t hit;
  if (qn__disk_get(disk, &sample->expected, &hit) == QN__GET_HIT) {
    assert_true(sample_equals(sample, &hit.entry));
  } else {
    assert_null(hit.bytes);
  }
  qn__disk_hit_release(disk, &hit);
}

static void work(qn_allocator_t allocator) {
  qn__disk_t* disk = try_open(allocator);
  if (!disk) return;
  for (size_t i = 0; i < QN_COUNT_OF(samples); i++) {
    get_one(disk, &samples[i]);
    qn__hit_t hit;
    qn__disk_claim_t* claim;
    if (qn__disk_claim(disk, &samples[i].expected, 0, &hit, &claim) == QN__GET_HIT) {
      assert_null(claim);
      assert_true(sample_equals(&samples[i], &hit.entry));
      qn__disk_hit_release(disk, &hit);
    }
    (void)qn__disk_put(disk, &samples[i].entry, claim);
    assert_true(qn__disk_flush(disk, FOREVER_NS));
    get_one(disk, &samples[i]);
  }
  qn__disk_close(disk, FOREVER_NS);
}

static bool count_file(void* self, const qn__disk_file_t* file) {
  (void)file;
  ++*(int*)self;
  return true;
}

// Housekeeping goes through all 256 shards, so it has a walk of its own.
static void care(qn_allocator_t allocator) {
  qn__disk_options_t options = {
      .allocator = allocator, .root = cache_root, .sweep_period_ns = -1, .max_entries = 1};
  qn__disk_t* disk;
  qn_status_t status = qn__disk_open(&options, &disk);
  if (qn_ok(status)) {
    uint64_t temporaries;
    int count = 0;
    (void)qn__disk_sweep(disk);
    (void)qn__disk_scan(disk, count_file, &count, &temporaries);
    assert_true(count <= (int)QN_COUNT_OF(samples));
    (void)qn__disk_clear(disk);
    qn__disk_close(disk, FOREVER_NS);
  }
  qn_status_free(status);
}

static void must_work(void) {
  qn__disk_t* disk = try_open(qn_allocator_default());
  assert_non_null(disk);
  for (size_t i = 0; i < QN_COUNT_OF(samples); i++) {
    assert_true(put_and_wait(disk, &samples[i]));
    qn__hit_t hit;
    assert_int_equal(qn__disk_get(disk, &samples[i].expected, &hit), QN__GET_HIT);
    assert_true(sample_equals(&samples[i], &hit.entry));
    qn__disk_hit_release(disk, &hit);
  }
  assert_int_equal(qn__disk_clear(disk), QN_COUNT_OF(samples));
  qn__disk_close(disk, FOREVER_NS);
}

// Walks all calls of `work` from a fresh directory, and from one that is there with a damaged
// entry.
static long walk(qn_fault_kind_t kind, int error) {
  long runs = 0;
  for (int is_fresh = 0; is_fresh <= 1; is_fresh++) {
    for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
      for (long n = 1;; n++) {
        if (is_fresh) {
          qn_test_tempdir_remove(cache_root);
        } else {
          char path[QN_TEST_PATH_SIZE + 64];
          if (n == 1) must_work();
          (void)qn__fs_mkdirs(cache_root, 0700);
          entry_path(&samples[1], path);
          *strrchr(path, '/') = '\0';
          (void)qn__fs_mkdirs(path, 0700);
          entry_path(&samples[1], path);
          assert_true(qn_test_write_file(path, "damaged", 7));
        }
        qn_fault_heap_t heap;
        qn_fault_heap_init(&heap);
        qn_fault_fs_install();
        qn_fault_fs_arm(n, (qn_fault_mode_t)mode, kind, error);
        work(qn_fault_heap_allocator(&heap));
        long failures = qn_fault_fs_failures();
        assert_int_equal(qn_fault_fs_open_count(), 0);
        qn_fault_fs_remove();
        assert_int_equal(heap.live_blocks, 0);
        assert_int_equal(heap.size_errors, 0);
        runs++;
        if (failures == 0) break;
      }
      must_work();
    }
  }
  return runs;
}

static void every_file_call_may_fail(void** state) {
  (void)state;
  int descriptors = qn_test_descriptor_count();
  for (size_t i = 0; i < QN_COUNT_OF(errors); i++) {
    assert_true(walk(QN_FAULT_ERRNO, errors[i]) > 60);
  }
  assert_int_equal(qn_test_descriptor_count(), descriptors);
}

static void every_call_of_care_may_fail(void** state) {
  (void)state;
  qn__disk_t* disk = try_open(qn_allocator_default());
  for (size_t i = 0; i < QN_COUNT_OF(samples); i++) assert_true(put_and_wait(disk, &samples[i]));
  for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
    for (long n = 1;; n++) {
      qn_fault_heap_t heap;
      qn_fault_heap_init(&heap);
      qn_fault_fs_install();
      qn_fault_fs_arm(n, (qn_fault_mode_t)mode, QN_FAULT_ERRNO, n % 2 ? EIO : ENOENT);
      care(qn_fault_heap_allocator(&heap));
      long failures = qn_fault_fs_failures();
      assert_int_equal(qn_fault_fs_open_count(), 0);
      qn_fault_fs_remove();
      assert_int_equal(heap.live_blocks, 0);
      if (failures == 0) break;
      if (n % 100 == 0) {
        for (size_t i = 0; i < QN_COUNT_OF(samples); i++) {
          assert_true(put_and_wait(disk, &samples[i]));
        }
      }
    }
  }
  qn__disk_close(disk, FOREVER_NS);
  must_work();
}

static void reads_and_writes_may_be_short(void** state) {
  (void)state;
  assert_true(walk(QN_FAULT_SHORT_READ, 0) > 4);
  assert_true(walk(QN_FAULT_SHORT_WRITE, 0) > 4);
}

static bool allocating_work(qn_allocator_t allocator, void* user) {
  (void)user;
  qn_test_tempdir_remove(cache_root);
  work(allocator);
  care(allocator);
  return true;
}

static void every_allocation_may_fail(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(allocating_work, NULL) > 5);
  must_work();
}

// A failing call of the tools is an error with a code, and nothing stays open.
static bool stop_never(void* self, const qn_cache_entry_info_t* info) {
  (void)self;
  (void)info;
  return true;
}

static void tools_report_failing_calls(void** state) {
  (void)state;
  qn__disk_t* disk = try_open(qn_allocator_default());
  for (size_t i = 0; i < QN_COUNT_OF(samples); i++) assert_true(put_and_wait(disk, &samples[i]));
  qn__disk_close(disk, FOREVER_NS);
  char key[33];
  qn__hash128_hex(samples[2].entry.key, key);
  qn_fault_fs_install();
  for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
    for (long n = 1;; n++) {
      qn_fault_fs_arm(n, (qn_fault_mode_t)mode, QN_FAULT_ERRNO, EIO);
      qn_cache_dir_t* dir;
      qn_status_t status = qn_cache_dir_open(cache_root, &dir);
      if (qn_ok(status)) {
        qn_cache_usage_t usage = {.struct_size = sizeof usage};
        qn_cache_verify_report_t report = {.struct_size = sizeof report};
        qn_cache_entry_t* entry;
        qn_status_free(qn_cache_dir_list(dir, stop_never, NULL));
        qn_status_free(qn_cache_dir_usage(dir, &usage));
        status = qn_cache_dir_verify(dir, true, NULL, NULL, &report);
        assert_int_equal(report.bad_count, 0);
        assert_int_equal(report.removed_count, 0);
        qn_status_free(status);
        status = qn_cache_dir_read(dir, key, &entry);
        assert_int_equal(entry == NULL, !qn_ok(status));
        qn_cache_entry_free(entry);
        qn_cache_dir_close(dir);
      }
      qn_status_code_t code = qn_status_consume(status);
      assert_true(code == QN_STATUS_OK || code == QN_STATUS_IO || code == QN_STATUS_NOT_FOUND);
      assert_int_equal(qn_fault_fs_open_count(), 0);
      if (qn_fault_fs_failures() == 0) break;
    }
  }
  qn_fault_fs_remove();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(every_file_call_may_fail),      TEST(every_call_of_care_may_fail),
      TEST(reads_and_writes_may_be_short), TEST(every_allocation_may_fail),
      TEST(tools_report_failing_calls),
  };
  // Use a file system in memory: the effect of thousands of fdatasync calls on a real disk is not
  // tested here.
  if (access("/dev/shm", W_OK) == 0) (void)setenv("TMPDIR", "/dev/shm", 0);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
