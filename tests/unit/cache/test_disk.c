// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_disk.c: tests one process on a cache directory: trust, get, put,
// replacement of damaged entries, and refusals.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"

static void found_after_put(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(NULL);
  sample_t sample, other;
  sample_make(&sample, 1, 5000);
  sample_make(&other, 2, 10);
  qn__hit_t hit;
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_ABSENT);
  qn__disk_hit_release(disk, &hit);
  assert_true(put_and_wait(disk, &sample));
  for (int i = 0; i < 3; i++) {
    assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_HIT);
    assert_true(sample_equals(&sample, &hit.entry));
    assert_int_equal((uintptr_t)hit.entry.payload.data % 16, 0);
    qn__disk_hit_release(disk, &hit);
    qn__disk_hit_release(disk, &hit);
  }
  assert_int_equal(qn__disk_get(disk, &other.expected, &hit), QN__GET_ABSENT);
  // Three hits at once: more than the pool holds.
  qn__hit_t hits[3];
  for (int i = 0; i < 3; i++) {
    assert_int_equal(qn__disk_get(disk, &sample.expected, &hits[i]), QN__GET_HIT);
  }
  for (int i = 0; i < 3; i++) {
    assert_true(sample_equals(&sample, &hits[i].entry));
    qn__disk_hit_release(disk, &hits[i]);
  }
  assert_int_equal(qn__disk_counter(disk, "disk_hits"), 6);
  assert_int_equal(qn__disk_counter(disk, "disk_misses"), 2);
  assert_int_equal(qn__disk_counter(disk, "publish_done"), 1);
  assert_int_equal(qn__disk_counter(disk, "no such counter"), 0);
  qn__disk_close(disk, FOREVER_NS);
  // And by another one, later.
  disk = open_cache(NULL);
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_HIT);
  assert_true(sample_equals(&sample, &hit.entry));
  qn__disk_hit_release(disk, &hit);
  qn__disk_close(disk, FOREVER_NS);
  struct stat info;
  char path[QN_TEST_PATH_SIZE + 64];
  entry_path(&sample, path);
  assert_int_equal(lstat(path, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0600);
  (void)snprintf(path, sizeof path, "%s/v1/tmp", cache_root);
  assert_int_equal(lstat(path, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0700);
  assert_int_equal(rmdir(path), 0);  // and empty
  sample_free(&sample);
  sample_free(&other);
}

// The counted calls of a hit: no look before the open, nothing read twice.
static void a_hit_is_four_calls(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(NULL);
  sample_t sample;
  sample_make(&sample, 1, 65536);
  assert_true(put_and_wait(disk, &sample));
  qn__disk_close(disk, FOREVER_NS);  // the writer may still be looking for what to sweep
  disk = open_cache(NULL);
  qn_fault_fs_install();
  qn_fault_fs_arm(0, QN_FAULT_ONCE, QN_FAULT_ERRNO, 0);
  qn__hit_t hit;
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_HIT);
  qn__disk_hit_release(disk, &hit);
  assert_int_equal(qn_fault_fs_calls(), 4);
  sample_t other;
  sample_make(&other, 2, 1);
  qn_fault_fs_arm(0, QN_FAULT_ONCE, QN_FAULT_ERRNO, 0);
  assert_int_equal(qn__disk_get(disk, &other.expected, &hit), QN__GET_ABSENT);
  assert_int_equal(qn_fault_fs_calls(), 1);
  qn_fault_fs_remove();
  qn__disk_close(disk, FOREVER_NS);
  sample_free(&sample);
  sample_free(&other);
}

static void hits_allocate_once(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  qn__disk_options_t options = {.allocator = qn_fault_heap_allocator(&heap)};
  qn__disk_t* disk = open_cache(&options);
  sample_t sample;
  sample_make(&sample, 1, 65536);
  assert_true(put_and_wait(disk, &sample));
  qn__disk_close(disk, FOREVER_NS);
  disk = open_cache(&options);
  qn__hit_t hit;
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_HIT);
  qn__disk_hit_release(disk, &hit);
  qn_fault_heap_arm(&heap, 0, QN_FAULT_ONCE);
  for (int i = 0; i < 10; i++) {
    assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_HIT);
    qn__disk_hit_release(disk, &hit);
  }
  assert_int_equal(heap.call_count, 0);
  qn__disk_close(disk, FOREVER_NS);
  assert_int_equal(heap.live_blocks, 0);
  assert_int_equal(heap.size_errors, 0);
  sample_free(&sample);
}

static void expect_refusal(const qn__disk_options_t* options, qn_status_code_t code,
                           const char* words) {
  qn__disk_t* disk = (qn__disk_t*)(uintptr_t)1;
  qn_status_t status = qn__disk_open(options, &disk);
  assert_null(disk);
  assert_int_equal(qn_status_code(status), code);
  if (!strstr(qn_status_message(status), words)) {
    fail_msg("'%s' does not say '%s'", qn_status_message(status), words);
  }
  qn_status_free(status);
}

static void untrusted_directories_are_refused(void** state) {
  (void)state;
  char path[QN_TEST_PATH_SIZE + 64];
  qn__disk_options_t options = {.root = path};
  (void)snprintf(path, sizeof path, "%s/deep/er/", cache_root);
  qn__disk_t* disk = open_cache(&options);
  assert_non_null(disk);
  assert_int_equal(path[strlen(path) - 1], '/');
  assert_int_equal(qn__disk_root(disk)[strlen(qn__disk_root(disk)) - 1], 'r');
  qn__disk_close(disk, FOREVER_NS);
  struct stat info;
  assert_int_equal(lstat(path, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0700);

  assert_int_equal(chmod(path, 0720), 0);
  expect_refusal(&options, QN_STATUS_PERMISSION_DENIED, "writable by others; chmod go-w");
  options.is_read_only = true;
  expect_refusal(&options, QN_STATUS_PERMISSION_DENIED, "writable by others");
  options.is_read_only = false;
  const uid_t friend = 1234;
  options.owners = &friend;
  options.owner_count = 1;
  disk = open_cache(&options);
  assert_non_null(disk);
  qn__disk_close(disk, FOREVER_NS);
  options.owner_count = 0;
  assert_int_equal(chmod(path, 0755), 0);
  disk = open_cache(&options);
  assert_non_null(disk);
  qn__disk_close(disk, FOREVER_NS);

  (void)snprintf(path, sizeof path, "%s/deep", cache_root);
  assert_int_equal(chmod(path, 0777), 0);
  (void)snprintf(path, sizeof path, "%s/deep/er", cache_root);
  expect_refusal(&options, QN_STATUS_PERMISSION_DENIED, "everybody may write");
  (void)snprintf(path, sizeof path, "%s/deep", cache_root);
  assert_int_equal(chmod(path, 01777), 0);
  (void)snprintf(path, sizeof path, "%s/deep/er", cache_root);
  disk = open_cache(&options);
  assert_non_null(disk);
  qn__disk_close(disk, FOREVER_NS);

  (void)snprintf(path, sizeof path, "%s/link", cache_root);
  assert_int_equal(symlink("deep/er", path), 0);
  expect_refusal(&options, QN_STATUS_PERMISSION_DENIED, "symbolic link");
  (void)snprintf(path, sizeof path, "%s/file", cache_root);
  assert_true(qn_test_write_file(path, "x", 1));
  expect_refusal(&options, QN_STATUS_PERMISSION_DENIED, "not a directory");
  (void)snprintf(path, sizeof path, "%s/file/below", cache_root);
  expect_refusal(&options, QN_STATUS_NOT_FOUND, "not a directory");
  (void)snprintf(path, sizeof path, "%s/absent", cache_root);
  options.must_exist = true;
  expect_refusal(&options, QN_STATUS_NOT_FOUND, "no such file");
  options.root = "";
  expect_refusal(&options, QN_STATUS_INVALID_ARGUMENT, "empty");
  char long_path[5000];
  memset(long_path, 'x', sizeof long_path);
  long_path[sizeof long_path - 1] = '\0';
  options.root = long_path;
  expect_refusal(&options, QN_STATUS_INVALID_ARGUMENT, "more than the limit");
  if (geteuid() == 0) {
    options = (qn__disk_options_t){.root = path};
    (void)snprintf(path, sizeof path, "%s/foreign", cache_root);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chown(path, 1234, 1234), 0);
    expect_refusal(&options, QN_STATUS_PERMISSION_DENIED, "another user");
  }
}

static void damaged_files_heal(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(NULL);
  sample_t sample;
  sample_make(&sample, 1, 200);
  assert_true(put_and_wait(disk, &sample));
  char path[QN_TEST_PATH_SIZE + 64];
  entry_path(&sample, path);
  uint8_t bytes[2048];
  long size = qn_test_read_file(path, bytes, sizeof bytes);
  assert_int_equal(size, qn__entry_size(&sample.entry));
  uint64_t healed = 0;
  for (size_t cut = 0; cut < (size_t)size; cut++) {
    assert_int_equal(get_replaced(disk, &sample, bytes, cut), QN__GET_BAD);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(qn__disk_counter(disk, "disk_healed"), ++healed);
  }
  assert_int_equal(qn__disk_counter(disk, "disk_bad_truncated"), healed);
  for (size_t i = 0; i < (size_t)size; i++) {
    bytes[i] ^= 0x40;
    assert_int_equal(get_replaced(disk, &sample, bytes, (size_t)size), QN__GET_BAD);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(qn__disk_counter(disk, "disk_healed"), ++healed);
    bytes[i] ^= 0x40;
  }
  uint64_t trailing = qn__disk_counter(disk, "disk_bad_trailing");
  assert_int_equal(get_replaced(disk, &sample, bytes, (size_t)size + 1), QN__GET_BAD);
  assert_int_equal(qn__disk_counter(disk, "disk_bad_trailing"), trailing + 1);
  // Publishing again puts it right.
  assert_true(put_and_wait(disk, &sample));
  qn__hit_t hit;
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_HIT);
  assert_true(sample_equals(&sample, &hit.entry));
  qn__disk_hit_release(disk, &hit);
  // Also when nobody read the damaged one: a put always replaces.
  assert_true(qn_test_write_file(path, bytes, 10));
  assert_true(put_and_wait(disk, &sample));
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_HIT);
  qn__disk_hit_release(disk, &hit);
  qn__disk_close(disk, FOREVER_NS);
  sample_free(&sample);
}

static void a_good_entry_of_another_preimage_stays(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(NULL);
  sample_t sample, other;
  sample_make(&sample, 1, 200);
  sample_make(&other, 2, 200);
  assert_true(put_and_wait(disk, &sample));
  qn__expectation_t expected = {sample.entry.key, other.entry.preimage};
  qn__hit_t hit;
  assert_int_equal(qn__disk_get(disk, &expected, &hit), QN__GET_BAD);
  assert_int_equal(hit.reason, QN__REASON_COLLISION);
  assert_int_equal(qn__disk_counter(disk, "disk_bad_collision"), 1);
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_HIT);
  qn__disk_hit_release(disk, &hit);
  // Under another's name it is of no use to anybody.
  char from[QN_TEST_PATH_SIZE + 64], to[QN_TEST_PATH_SIZE + 64];
  entry_path(&sample, from);
  entry_path(&other, to);
  *strrchr(to, '/') = '\0';
  (void)mkdir(to, 0700);
  entry_path(&other, to);
  assert_int_equal(rename(from, to), 0);
  assert_int_equal(qn__disk_get(disk, &other.expected, &hit), QN__GET_BAD);
  assert_int_equal(hit.reason, QN__REASON_KEY);
  assert_int_equal(access(to, F_OK), -1);
  qn__disk_close(disk, FOREVER_NS);
  sample_free(&sample);
  sample_free(&other);
}

static void what_is_no_file_of_ours_is_left_alone(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(NULL);
  sample_t sample;
  sample_make(&sample, 1, 200);
  assert_true(put_and_wait(disk, &sample));
  char path[QN_TEST_PATH_SIZE + 64], moved[QN_TEST_PATH_SIZE + 64];
  entry_path(&sample, path);
  (void)snprintf(moved, sizeof moved, "%s/elsewhere", cache_root);
  assert_int_equal(rename(path, moved), 0);
  qn__hit_t hit;
  assert_int_equal(symlink(moved, path), 0);
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_UNTRUSTED);
  assert_int_equal(access(path, F_OK), 0);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkfifo(path, 0600), 0);
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_UNTRUSTED);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkdir(path, 0700), 0);
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_UNTRUSTED);
  assert_int_equal(qn__disk_counter(disk, "disk_not_regular"), 3);
  assert_int_equal(rmdir(path), 0);
  assert_int_equal(rename(moved, path), 0);
  if (geteuid() == 0) {
    assert_int_equal(chown(path, 1234, 1234), 0);
    assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_UNTRUSTED);
    assert_int_equal(qn__disk_counter(disk, "disk_untrusted"), 1);
    assert_int_equal(access(path, F_OK), 0);
  }
  qn__disk_close(disk, FOREVER_NS);
  sample_free(&sample);
}

// Another machine has put a new file in the place of the one that is being read: one more look
// finds it. Any other error, and a second one, is a miss that deletes nothing.
static void a_stale_handle_is_looked_up_again(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(&(qn__disk_options_t){.sweep_period_ns = -1});
  sample_t sample;
  sample_make(&sample, 1, 200);
  assert_true(put_and_wait(disk, &sample));
  qn_fault_fs_install();
  for (long n = 1; n <= 3; n++) {  // open, fstat, read
    for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
      for (int is_stale = 0; is_stale <= 1; is_stale++) {
        qn_fault_fs_arm(n, (qn_fault_mode_t)mode, QN_FAULT_ERRNO, is_stale ? ESTALE : EIO);
        qn__hit_t hit;
        bool is_hit = is_stale && mode == QN_FAULT_ONCE;
        assert_int_equal(qn__disk_get(disk, &sample.expected, &hit),
                         is_hit ? QN__GET_HIT : QN__GET_ERROR);
        if (is_hit) assert_true(sample_equals(&sample, &hit.entry));
        qn__disk_hit_release(disk, &hit);
        assert_int_equal(qn_fault_fs_open_count(), 0);
      }
    }
  }
  qn_fault_fs_remove();
  assert_int_equal(qn__disk_counter(disk, "disk_hits"), 3);
  assert_int_equal(qn__disk_counter(disk, "disk_read_errors"), 9);
  qn__disk_close(disk, FOREVER_NS);
  sample_free(&sample);
}

static void a_full_queue_drops(void** state) {
  (void)state;
  qn__disk_options_t options = {.max_queue_bytes = 1000};
  qn__disk_t* disk = open_cache(&options);
  sample_t small, large;
  sample_make(&small, 1, 100);
  sample_make(&large, 2, 2000);
  assert_false(qn__disk_put(disk, &large.entry, NULL));
  assert_int_equal(qn__disk_counter(disk, "publish_dropped_full"), 1);
  assert_true(put_and_wait(disk, &small));
  assert_true(qn__disk_flush(disk, 0));
  qn__disk_close(disk, FOREVER_NS);
  sample_free(&small);
  sample_free(&large);
}

static char logged[256];
static int log_count;
static void remember(void* self, qn_log_level_t level, const char* message) {
  (void)self;
  (void)level;
  (void)snprintf(logged, sizeof logged, "%s", message);
  log_count++;
}

static void a_refusal_switches_writing_off_for_a_while(void** state) {
  (void)state;
  static const struct {
    int error;
    const char* counter;
    bool latches;
  } cases[] = {{ENOSPC, "publish_failed_space", true}, {EDQUOT, "publish_failed_space", true},
               {EROFS, "publish_failed_denied", true}, {EACCES, "publish_failed_denied", true},
               {EPERM, "publish_failed_denied", true}, {EIO, "publish_failed_io", false},
               {EMFILE, "publish_failed_io", false},   {ESTALE, "publish_failed_io", false}};
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn__disk_options_t options = {.latch_ns = 50000000, .sweep_period_ns = -1};
    qn__disk_t* disk = open_cache(&options);
    sample_t sample;
    sample_make(&sample, (unsigned)i, 100);
    assert_true(put_and_wait(disk, &sample));
    log_count = 0;
    qn_log_set_sink(QN_LOG_WARN, remember, NULL);
    qn_fault_fs_install();
    qn_fault_fs_arm(1, QN_FAULT_ALWAYS, QN_FAULT_ERRNO, cases[i].error);
    assert_true(qn__disk_put(disk, &sample.entry, NULL));
    assert_true(qn__disk_flush(disk, FOREVER_NS));
    qn_fault_fs_arm(0, QN_FAULT_ONCE, QN_FAULT_ERRNO, 0);
    qn_log_set_sink(QN_LOG_ERROR, NULL, NULL);
    assert_int_equal(qn__disk_counter(disk, cases[i].counter), 1);
    assert_int_equal(qn__disk_counter(disk, "publish_latched"), cases[i].latches);
    assert_int_equal(log_count, cases[i].latches);
    if (cases[i].latches) {
      assert_non_null(strstr(logged, "writing is off for 0 s"));
      // Off: until the latch has passed, nothing is queued and no call is made.
      while (!qn__disk_put(disk, &sample.entry, NULL)) {
        assert_int_equal(qn_fault_fs_calls(), 0);
        assert_true(qn__disk_counter(disk, "publish_dropped_latched") > 0);
        struct timespec pause = {.tv_nsec = 1000000};
        (void)nanosleep(&pause, NULL);
      }
      assert_true(qn__disk_flush(disk, FOREVER_NS));
      assert_int_equal(qn__disk_counter(disk, "publish_done"), 2);
    }
    qn_fault_fs_remove();
    qn__disk_close(disk, FOREVER_NS);
    sample_free(&sample);
  }
}

static void a_wiped_directory_is_made_again(void** state) {
  (void)state;
  char root[QN_TEST_PATH_SIZE + 8], command[QN_TEST_PATH_SIZE + 8];
  (void)snprintf(root, sizeof root, "%s/c", cache_root);
  qn__disk_options_t options = {.root = root, .sweep_period_ns = -1};
  qn__disk_t* disk = open_cache(&options);
  sample_t samples[2];
  sample_make(&samples[0], 1, 100);
  sample_make(&samples[1], 2, 100);
  static const char* const wiped[] = {"", "/v1", "/v1/tmp"};
  for (size_t i = 0; i < QN_COUNT_OF(wiped); i++) {
    assert_true(put_and_wait(disk, &samples[0]));
    (void)snprintf(command, sizeof command, "%s%s", root, wiped[i]);
    qn_test_tempdir_remove(command);
    assert_int_equal(access(command, F_OK), -1);
    qn__hit_t hit;
    assert_int_equal(qn__disk_get(disk, &samples[1].expected, &hit), QN__GET_ABSENT);
    assert_true(put_and_wait(disk, &samples[1]));
    assert_int_equal(qn__disk_get(disk, &samples[1].expected, &hit), QN__GET_HIT);
    qn__disk_hit_release(disk, &hit);
    qn_test_tempdir_remove(root);
  }
  // What would not have been trusted is not written to when it lies there instead.
  assert_int_equal(mkdir(root, 0700), 0);
  assert_int_equal(chmod(root, 0777), 0);
  assert_true(qn__disk_put(disk, &samples[0].entry, NULL));
  assert_true(qn__disk_flush(disk, FOREVER_NS));
  assert_int_equal(qn__disk_counter(disk, "publish_failed_denied"), 1);
  assert_int_equal(qn__disk_counter(disk, "publish_latched"), 1);
  assert_int_equal(rmdir(root), 0);  // it is empty
  qn__disk_close(disk, FOREVER_NS);
  sample_free(&samples[0]);
  sample_free(&samples[1]);
}

static void a_relative_path_stays_where_it_was(void** state) {
  (void)state;
  char here[4096], elsewhere[QN_TEST_PATH_SIZE + 64];
  assert_non_null(getcwd(here, sizeof here));
  (void)snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", cache_root);
  assert_int_equal(mkdir(elsewhere, 0700), 0);
  assert_int_equal(chdir(cache_root), 0);
  qn__disk_t* disk = open_cache(&(qn__disk_options_t){.root = "relative/cache"});
  assert_int_equal(chdir(elsewhere), 0);
  sample_t sample;
  sample_make(&sample, 1, 100);
  bool is_put = put_and_wait(disk, &sample);
  qn__hit_t hit;
  qn__get_result_t result = qn__disk_get(disk, &sample.expected, &hit);
  qn__disk_hit_release(disk, &hit);
  qn__disk_close(disk, FOREVER_NS);
  sample_free(&sample);
  int is_astray = access("relative", F_OK);
  assert_int_equal(chdir(here), 0);
  assert_true(is_put);
  assert_int_equal(result, QN__GET_HIT);
  assert_int_equal(is_astray, -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, cache_set_up, cache_tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(found_after_put),
      TEST(a_hit_is_four_calls),
      TEST(hits_allocate_once),
      TEST(untrusted_directories_are_refused),
      TEST(damaged_files_heal),
      TEST(a_good_entry_of_another_preimage_stays),
      TEST(what_is_no_file_of_ours_is_left_alone),
      TEST(a_stale_handle_is_looked_up_again),
      TEST(a_full_queue_drops),
      TEST(a_refusal_switches_writing_off_for_a_while),
      TEST(a_wiped_directory_is_made_again),
      TEST(a_relative_path_stays_where_it_was),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
