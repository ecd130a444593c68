// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_sweep.c: tests sweeps: free space on the file system, refusals for lack of
// space, changes between steps, forks and closes during a sweep. Bounds, ages and claims are in
// test_ages.c.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/thread.h"
#include "cache/disk_inner.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"

#define SAMPLE_COUNT 20u
#define BLOCK UINT64_C(4096)

static sample_t samples[SAMPLE_COUNT];

// ------------------------------------------------------------------- a file system with a size

static _Atomic int64_t free_bytes;
static int64_t total_bytes;
static _Atomic int refused;  // the errno of writes while there is no space; 0: there is

static int said_free(const char* path, uint64_t* out_free, uint64_t* out_total) {
  (void)path;
  *out_free = free_bytes > 0 ? (uint64_t)free_bytes : 0;
  *out_total = (uint64_t)total_bytes;
  return 0;
}
static ssize_t limited_write(int fd, const void* data, size_t size) {
  if (refused) {
    errno = refused;
    return -1;
  }
  return qn__fs_posix.write(fd, data, size);
}
static int freeing_unlink(const char* path) {
  int result = qn__fs_posix.unlink(path);
  if (result == 0 && strstr(path, ".k")) {
    free_bytes += (int64_t)BLOCK;
    refused = 0;
  }
  return result;
}

static qn__fs_t table;

static int set_up(void** state) {
  if (cache_set_up(state) != 0) return -1;
  for (unsigned i = 0; i < SAMPLE_COUNT; i++) sample_make(&samples[i], 4 * i + 1, 100);
  table = qn__fs_posix;
  table.statvfs_free = said_free;
  table.write = limited_write;
  table.unlink = freeing_unlink;
  free_bytes = INT64_C(1) << 40;
  total_bytes = INT64_C(1) << 42;
  refused = 0;
  (void)qn__fs_install(&table);
  return 0;
}

static int tear_down(void** state) {
  (void)qn__fs_install(NULL);
  for (unsigned i = 0; i < SAMPLE_COUNT; i++) sample_free(&samples[i]);
  return cache_tear_down(state);
}

// Sample i is i minutes old. They are aged when all are there, so that a slow put makes none older
// than it is meant to be.
static void fill(qn__disk_t* disk) {
  for (unsigned i = 0; i < SAMPLE_COUNT; i++) assert_true(put_and_wait(disk, &samples[i]));
  for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
    char path[QN_TEST_PATH_SIZE + 64];
    entry_path(&samples[i], path);
    set_age(path, i * 60);
  }
}

static unsigned count_kept(void) {
  unsigned count = 0;
  char path[QN_TEST_PATH_SIZE + 64];
  while (count < SAMPLE_COUNT) {
    entry_path(&samples[count], path);
    if (access(path, F_OK) != 0) break;
    count++;
  }
  for (unsigned i = count; i < SAMPLE_COUNT; i++) {  // what went are the oldest
    entry_path(&samples[i], path);
    assert_int_equal(access(path, F_OK), -1);
  }
  return count;
}

static void space_is_kept_free(void** state) {
  (void)state;
  static const struct {
    uint64_t min_free_bytes;  // as opened
    int64_t free_bytes, total_bytes;
    unsigned kept;
  } cases[] = {
      {1 << 20, 1 << 20, 1 << 30, SAMPLE_COUNT},
      {1 << 20, (1 << 20) - 1, 1 << 30, SAMPLE_COUNT - 1},
      {1 << 20, (1 << 20) - 4097, 1 << 30, SAMPLE_COUNT - 2},
      {1 << 20, (1 << 20) - 5 * 4096, 1 << 30, SAMPLE_COUNT - 5},
      {1 << 20, 0, 1 << 30, 0},  // all, and no more
      // The default is a twentieth, at most 1 GiB.
      {0, 50 << 20, 1000 << 20, SAMPLE_COUNT},
      {0, (50 << 20) - 1, 1000 << 20, SAMPLE_COUNT - 1},
      {0, INT64_C(1) << 30, INT64_C(1) << 42, SAMPLE_COUNT},
      {0, (INT64_C(1) << 30) - 1, INT64_C(1) << 42, SAMPLE_COUNT - 1},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn__disk_options_t options = {.min_free_bytes = cases[i].min_free_bytes, .sweep_period_ns = -1};
    qn__disk_t* disk = open_cache(&options);
    fill(disk);
    free_bytes = cases[i].free_bytes;
    total_bytes = cases[i].total_bytes;
    assert_true(qn__disk_sweep(disk));
    assert_int_equal(count_kept(), cases[i].kept);
    // A second one finds all in order, unless there was nothing left to give.
    assert_true(qn__disk_sweep(disk));
    assert_int_equal(count_kept(), cases[i].kept);
    qn__disk_close(disk, FOREVER_NS);
  }
}

// The disk is full, or the user's quota is: a sweep makes room, and writing goes on without waiting
// until the minute is over.
static void a_refusal_for_space_makes_room(void** state) {
  (void)state;
  static const int errors[] = {ENOSPC, EDQUOT};
  for (size_t i = 0; i < QN_COUNT_OF(errors); i++) {
    qn__disk_options_t options = {.min_free_bytes = BLOCK, .sweep_period_ns = -1};
    qn__disk_t* disk = open_cache(&options);
    fill(disk);
    qn__disk_close(disk, FOREVER_NS);
    options.sweep_period_ns = 0;
    disk = open_cache(&options);
    char stamp[QN_TEST_PATH_SIZE + 64];
    (void)snprintf(stamp, sizeof stamp, "%s/v1/stamp", cache_root);
    (void)unlink(stamp);
    free_bytes = i == 0 ? 0 : INT64_C(1) << 40;
    refused = errors[i];
    sample_t fresh;
    sample_make(&fresh, 1000, 100);
    assert_true(qn__disk_put(disk, &fresh.entry, NULL));
    int64_t deadline_ns = qn__now_ns() + FOREVER_NS;
    while (qn__disk_counter(disk, "sweep_runs") == 0 && qn__now_ns() < deadline_ns) {
      (void)sched_yield();
    }
    assert_int_equal(qn__disk_counter(disk, "publish_failed_space"), 1);
    assert_int_equal(qn__disk_counter(disk, "publish_latched"), 1);
    assert_int_equal(qn__disk_counter(disk, "sweep_evicted"), SAMPLE_COUNT / 5);
    while (!qn__disk_put(disk, &fresh.entry, NULL) && qn__now_ns() < deadline_ns) {
      (void)sched_yield();
    }
    assert_true(qn__disk_flush(disk, FOREVER_NS));
    assert_int_equal(qn__disk_counter(disk, "publish_done"), 1);
    assert_true(qn__disk_remove(disk, fresh.entry.key));
    sample_free(&fresh);
    qn__disk_close(disk, FOREVER_NS);
    assert_int_equal(count_kept(), SAMPLE_COUNT - SAMPLE_COUNT / 5);
  }
}

// ------------------------------------------------------------------------- in the middle of it

static qn__mutex_t gate_mutex;
static qn__cond_t gate_cond;
static bool is_gate_shut;
static int gate_visits, gate_stop;  // shut at the n-th visit
static pid_t gate_pid;

static DIR* gated_opendir(const char* path) {
  if (getpid() == gate_pid) {
    qn__mutex_lock(&gate_mutex);
    gate_visits++;
    qn__cond_broadcast(&gate_cond);
    while (is_gate_shut && gate_visits >= gate_stop) qn__cond_wait(&gate_cond, &gate_mutex);
    qn__mutex_unlock(&gate_mutex);
  }
  return qn__fs_posix.opendir(path);
}
static struct dirent* gated_readdir(DIR* dir) {
  if (getpid() == gate_pid) {
    qn__mutex_lock(&gate_mutex);
    gate_visits++;
    qn__cond_broadcast(&gate_cond);
    while (is_gate_shut && gate_visits >= gate_stop) qn__cond_wait(&gate_cond, &gate_mutex);
    qn__mutex_unlock(&gate_mutex);
  }
  return qn__fs_posix.readdir(dir);
}

static void shut_gate(int stop, bool is_in_directory) {
  if (!gate_pid) {
    assert_true(qn_ok(qn__mutex_init(&gate_mutex)));
    assert_true(qn_ok(qn__cond_init(&gate_cond)));
  }
  gate_pid = getpid();
  gate_visits = 0;
  gate_stop = stop;
  is_gate_shut = true;
  table.opendir = is_in_directory ? qn__fs_posix.opendir : gated_opendir;
  table.readdir = is_in_directory ? gated_readdir : qn__fs_posix.readdir;
}
static void wait_at_gate(void) {
  qn__mutex_lock(&gate_mutex);
  while (gate_visits < gate_stop) qn__cond_wait(&gate_cond, &gate_mutex);
  qn__mutex_unlock(&gate_mutex);
}
static void open_gate(void) {
  qn__mutex_lock(&gate_mutex);
  is_gate_shut = false;
  qn__cond_broadcast(&gate_cond);
  qn__mutex_unlock(&gate_mutex);
}

static const char* events[8];
static int event_count;
static void note(void* self, qn__disk_work_t work, int64_t start_ns, const qn_hash128_t* key) {
  (void)self;
  (void)start_ns;
  (void)key;
  if (event_count < 8) events[event_count++] = work == QN__DISK_WORK_SWEEP ? "sweep" : "write";
}

static void a_sweep_does_not_hold_entries_up(void** state) {
  (void)state;
  event_count = 0;
  qn__disk_options_t options = {.on_work = note};
  shut_gate(20, false);
  qn__disk_t* disk = open_cache(&options);
  assert_true(put_and_wait(disk, &samples[0]));
  wait_at_gate();  // the writer sweeps
  assert_true(qn__disk_put(disk, &samples[1].entry, NULL));
  assert_true(qn__disk_put(disk, &samples[2].entry, NULL));
  open_gate();
  assert_true(qn__disk_flush(disk, FOREVER_NS));
  while (qn__disk_counter(disk, "sweep_runs") == 0) (void)sched_yield();
  qn__disk_close(disk, FOREVER_NS);
  assert_int_equal(event_count, 4);
  for (int i = 0; i < 4; i++) assert_string_equal(events[i], i < 3 ? "write" : "sweep");
}

static void* open_gate_at_close(void* arg) {
  qn__disk_t* disk = arg;
  while (!atomic_load(&disk->is_closing)) (void)sched_yield();
  open_gate();
  return NULL;
}

static void a_close_ends_a_sweep(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(NULL);
  shut_gate(20, false);
  assert_true(put_and_wait(disk, &samples[0]));
  wait_at_gate();
  // The close waits for the call under way, and for no other.
  pthread_t opener;
  assert_true(qn_ok(qn__thread_start(&opener, "opener", 0, open_gate_at_close, disk)));
  qn__disk_close(disk, FOREVER_NS);
  assert_int_equal(pthread_join(opener, NULL), 0);
  assert_int_equal(gate_visits, 20);
}

static int count_directories_open(void) {
  int count = 0;
  for (int fd = 0; fd < 64; fd++) {
    char link[64], target[QN_TEST_PATH_SIZE + 64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, target, sizeof target - 1);
    if (size <= 0) continue;
    target[size] = '\0';
    count += strstr(target, "/v1") != NULL;
  }
  return count;
}

static void a_child_of_a_sweep_holds_no_directory(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(NULL);
  shut_gate(3, true);
  assert_true(put_and_wait(disk, &samples[0]));
  wait_at_gate();
  assert_int_equal(count_directories_open(), 1);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(count_directories_open());
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  open_gate();
  qn__disk_close(disk, FOREVER_NS);
  assert_int_equal(count_directories_open(), 0);
}

// A callback of a scan that forks: the child's scan ends, and closes nothing that is another's.
static pid_t forked = -1;
static bool fork_once(void* self, const qn__disk_file_t* file) {
  (void)file;
  ++*(int*)self;
  if (forked < 0) forked = fork();
  return true;
}

static void a_callback_may_fork(void** state) {
  (void)state;
  qn__disk_options_t options = {.sweep_period_ns = -1};
  qn__disk_t* disk = open_cache(&options);
  fill(disk);
  int count = 0;
  forked = -1;
  int error = qn__disk_scan(disk, fork_once, &count, NULL);
  if (forked == 0) {
    int is_wrong = error != ECANCELED || count_directories_open() != 0;
    count = 0;
    is_wrong |= qn__disk_scan(disk, fork_once, &count, NULL) != 0 || count != (int)SAMPLE_COUNT;
    _exit(is_wrong);
  }
  assert_int_equal(error, 0);
  assert_int_equal(count, SAMPLE_COUNT);
  int status;
  assert_int_equal(waitpid(forked, &status, 0), forked);
  assert_int_equal(status, 0);
  qn__disk_close(disk, FOREVER_NS);
}

// ------------------------------------------------------------------------------- any time at all

static int64_t told_s;
static void tell_time(struct stat* info) {
  if (S_ISREG(info->st_mode)) info->st_mtim.tv_sec = (time_t)told_s;
}
static int timed_fstat(int fd, struct stat* out) {
  int result = qn__fs_posix.fstat(fd, out);
  tell_time(out);
  return result;
}
static int timed_lstat(const char* path, struct stat* out) {
  int result = qn__fs_posix.lstat(path, out);
  tell_time(out);
  return result;
}

// File systems tell whatever lies on them: no arithmetic overflows, and nothing is kept for ever.
static void times_that_cannot_be(void** state) {
  (void)state;
  static const int64_t times_s[] = {INT64_MAX,           INT64_MIN,  INT64_C(1) << 40,
                                    -(INT64_C(1) << 40), 9300000000, -9300000000};
  for (size_t i = 0; i < QN_COUNT_OF(times_s); i++) {
    qn__disk_options_t options = {.max_entries = 5, .sweep_period_ns = -1};
    qn__disk_t* disk = open_cache(&options);
    fill(disk);
    told_s = times_s[i];
    table = qn__fs_posix;
    table.fstat = timed_fstat;
    table.lstat = timed_lstat;
    (void)qn__fs_install(&table);
    qn__hit_t hit;
    assert_int_equal(qn__disk_get(disk, &samples[0].expected, &hit), QN__GET_HIT);
    qn__disk_hit_release(disk, &hit);
    assert_int_equal(qn__disk_counter(disk, "disk_touched"), 1);
    assert_true(qn__disk_sweep(disk));
    assert_int_equal(qn__disk_counter(disk, "sweep_evicted"), SAMPLE_COUNT - 4);
    qn__disk_close(disk, FOREVER_NS);
    (void)qn__fs_install(NULL);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(space_is_kept_free),
      TEST(a_refusal_for_space_makes_room),
      TEST(a_sweep_does_not_hold_entries_up),
      TEST(a_close_ends_a_sweep),
      TEST(a_child_of_a_sweep_holds_no_directory),
      TEST(a_callback_may_fork),
      TEST(times_that_cannot_be),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
