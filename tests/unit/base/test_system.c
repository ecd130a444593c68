// SPDX-License-Identifier: Apache-2.0
// tests/unit/base/test_system.c: files through the seam, threads, clocks, log, environment.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "tests/support/fault.h"
#include "tests/support/tempdir.h"

static char root[QN_TEST_PATH_SIZE];

static const char* in_root(const char* name) {
  static char path[QN_TEST_PATH_SIZE * 2];
  (void)snprintf(path, sizeof path, "%s/%s", root, name);
  return path;
}

static void reads_whole_files(void** state) {
  (void)state;
  qn_allocator_t allocator = qn_allocator_default();
  uint8_t bytes[10000];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 13);
  size_t sizes[] = {0, 1, 2, 4095, 4096, 4097, sizeof bytes};
  for (size_t i = 0; i < QN_COUNT_OF(sizes); i++) {
    assert_true(qn_test_write_file(in_root("f"), bytes, sizes[i]));
    uint8_t* data;
    size_t size;
    qn_status_t status = qn__fs_read_file(allocator, in_root("f"), sizes[i], &data, &size);
    assert_true(qn_ok(status));
    assert_int_equal(size, sizes[i]);
    assert_memory_equal(data, bytes, size);
    assert_int_equal(data[size], 0);
    qn__free(allocator, data, size + 1);
  }
  uint8_t* data = bytes;
  size_t size = 1;
  qn_status_t status = qn__fs_read_file(allocator, in_root("f"), sizeof bytes - 1, &data, &size);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  assert_null(data);
  assert_int_equal(size, 0);
  qn_status_free(status);
  // A pseudo file says that its size is 0.
  status = qn__fs_read_file(allocator, "/proc/self/status", 1 << 20, &data, &size);
  assert_true(qn_ok(status));
  assert_true(size > 100);
  assert_memory_equal(data, "Name:", 5);
  qn__free(allocator, data, size + 1);
  status = qn__fs_read_file(allocator, "/proc/self/status", 10, &data, &size);
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
}

static void names_what_cannot_be_read(void** state) {
  (void)state;
  uint8_t* data;
  size_t size;
  char expected[QN_TEST_PATH_SIZE * 2 + 64];
  qn_status_t status =
      qn__fs_read_file(qn_allocator_default(), in_root("absent"), 100, &data, &size);
  assert_int_equal(qn_status_code(status), QN_STATUS_NOT_FOUND);
  (void)snprintf(expected, sizeof expected, "cannot open '%s': no such file or directory",
                 in_root("absent"));
  assert_string_equal(qn_status_message(status), expected);
  qn_status_free(status);
  status = qn__fs_read_file(qn_allocator_default(), root, 100, &data, &size);
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
  assert_int_equal(mkfifo(in_root("fifo"), 0600), 0);
  status = qn__fs_read_file(qn_allocator_default(), in_root("fifo"), 100, &data, &size);
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
  assert_int_equal(qn_status_consume(qn__fs_status(EACCES, "open", "x")),
                   QN_STATUS_PERMISSION_DENIED);
  assert_int_equal(qn_status_consume(qn__fs_status(ENOSPC, "write", "x")), QN_STATUS_IO);
}

static bool read_work(qn_allocator_t allocator, void* user) {
  uint8_t* data;
  size_t size;
  qn_status_t status = qn__fs_read_file(allocator, user, 1 << 20, &data, &size);
  if (qn_ok(status)) {
    bool is_fine = size == 9000 && data[0] == 'x' && data[8999] == 'x';
    qn__free(allocator, data, size + 1);
    return is_fine;
  }
  return qn_status_consume(status) != QN_STATUS_INTERNAL && data == NULL;
}

static void file_faults_are_clean(void** state) {
  (void)state;
  char bytes[9000];
  memset(bytes, 'x', sizeof bytes);
  char path[QN_TEST_PATH_SIZE * 2];
  (void)snprintf(path, sizeof path, "%s", in_root("g"));
  assert_true(qn_test_write_file(path, bytes, sizeof bytes));
  assert_true(qn_fault_walk_alloc(read_work, path) > 2);
  static const int errors[] = {EIO, EINTR, EMFILE, ESTALE, EACCES};
  qn_fault_fs_install();
  for (size_t e = 0; e < QN_COUNT_OF(errors); e++) {
    for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
      for (long n = 1;; n++) {
        qn_fault_fs_arm(n, (qn_fault_mode_t)mode, QN_FAULT_ERRNO, errors[e]);
        assert_true(read_work(qn_allocator_default(), path));
        assert_int_equal(qn_fault_fs_open_count(), 0);
        if (qn_fault_fs_failures() == 0) break;
      }
    }
  }
  qn_fault_fs_arm(1, QN_FAULT_ALWAYS, QN_FAULT_SHORT_READ, 0);
  assert_true(read_work(qn_allocator_default(), path));
  assert_true(qn_fault_fs_calls_of("read") >= 9000);
  qn_fault_fs_remove();
}

static void makes_directories(void** state) {
  (void)state;
  assert_int_equal(qn__fs_mkdirs(in_root("a/b//c/"), 0700), 0);
  assert_int_equal(qn__fs_mkdirs(in_root("a/b/c"), 0700), 0);
  struct stat info;
  assert_int_equal(lstat(in_root("a/b/c"), &info), 0);
  assert_int_equal(info.st_mode & 0777, 0700);
  assert_true(qn_test_write_file(in_root("a/file"), "", 0));
  assert_int_equal(qn__fs_mkdirs(in_root("a/file"), 0700), -1);
  assert_int_equal(errno, ENOTDIR);
  assert_int_equal(qn__fs_mkdirs(in_root("a/file/d"), 0700), -1);
  assert_int_equal(errno, ENOTDIR);
  assert_int_equal(qn__fs_mkdirs("", 0700), -1);
  assert_int_equal(qn__fs_mkdirs("/", 0700), 0);
  char long_path[5000];
  memset(long_path, 'x', sizeof long_path);
  long_path[sizeof long_path - 1] = '\0';
  assert_int_equal(qn__fs_mkdirs(long_path, 0700), -1);
  assert_int_equal(errno, ENAMETOOLONG);
}

typedef struct meeting {
  qn__mutex_t mutex;
  qn__cond_t cond;
  int count;
  bool has_signals;
} meeting_t;

static void* attend(void* arg) {
  meeting_t* meeting = arg;
  sigset_t blocked;
  (void)pthread_sigmask(SIG_SETMASK, NULL, &blocked);
  for (int i = 0; i < 1000; i++) {
    qn__mutex_lock(&meeting->mutex);
    meeting->count++;
    meeting->has_signals |= !sigismember(&blocked, SIGINT);
    qn__cond_signal(&meeting->cond);
    qn__mutex_unlock(&meeting->mutex);
  }
  return NULL;
}

static void threads_meet(void** state) {
  (void)state;
  meeting_t meeting = {.count = 0};
  assert_true(qn_ok(qn__mutex_init(&meeting.mutex)));
  assert_true(qn_ok(qn__cond_init(&meeting.cond)));
  pthread_t threads[4];
  for (size_t i = 0; i < 4; i++) {
    assert_true(qn_ok(qn__thread_start(&threads[i], "attendant", 0, attend, &meeting)));
  }
  qn__mutex_lock(&meeting.mutex);
  while (meeting.count < 4000) {
    assert_true(qn__cond_wait_until(&meeting.cond, &meeting.mutex, qn__now_ns() + 3600000000000));
  }
  qn__mutex_unlock(&meeting.mutex);
  for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(meeting.count, 4000);
  assert_false(meeting.has_signals);
  // Deadlines in the past return at once.
  qn__mutex_lock(&meeting.mutex);
  assert_false(qn__cond_wait_until(&meeting.cond, &meeting.mutex, qn__now_ns() - 1));
  assert_false(qn__cond_wait_until(&meeting.cond, &meeting.mutex, INT64_MIN));
  qn__mutex_unlock(&meeting.mutex);
  qn__cond_deinit(&meeting.cond);
  qn__mutex_deinit(&meeting.mutex);
  assert_true(qn__available_cores() >= 1);
  assert_true(qn__wall_ns() > INT64_C(1600000000000000000));
}

static void* await_post(void* sem) {
  qn__sem_wait(sem);
  return qn__affinity_cores() == 1 ? sem : NULL;
}

static void threads_keep_away(void** state) {
  (void)state;
  qn__cores_t cores, one = {{0}}, two = {{0}};
  if (!qn__cores_read(&cores) || qn__affinity_cores() < 2) skip();
  int found = 0;
  for (size_t i = 0; found < 2; i++) {
    uint64_t bit = cores.bits[i / 64] & UINT64_C(1) << i % 64;
    if (found == 0) one.bits[i / 64] |= bit;
    two.bits[i / 64] |= bit;
    found += bit != 0;
  }
  assert_true(qn__cores_use(&two));
  for (int round = 0; round < 2; round++) {
    pthread_t thread;
    qn__sem_t sem;
    qn__sem_init(&sem);
    assert_true(qn_ok(qn__thread_start(&thread, "test", 0, await_post, &sem)));
    // There is another core of two, but none of one.
    if (round == 1) assert_true(qn__cores_use(&one));
    assert_int_equal(qn__cores_keep_away(thread, round == 0 ? &two : &one), round == 0);
    assert_true(qn__cores_use(&two));
    qn__sem_post(&sem);
    void* result;
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal(result != NULL, round == 0);
  }
  assert_true(qn__cores_use(&cores));
}

static char last_message[64];
static int message_count;
static void remember(void* self, qn_log_level_t level, const char* message) {
  assert_ptr_equal(self, &message_count);
  assert_int_equal(level, QN_LOG_WARN);
  (void)snprintf(last_message, sizeof last_message, "%s", message);
  message_count++;
}

static void the_log_is_off_by_default(void** state) {
  (void)state;
  assert_false(qn__log_is_on(QN_LOG_ERROR));
  qn__log(QN_LOG_ERROR, "nobody hears %d", 1);
  qn_log_set_sink(QN_LOG_WARN, remember, &message_count);
  assert_true(qn__log_is_on(QN_LOG_ERROR));
  assert_false(qn__log_is_on(QN_LOG_INFO));
  qn__log(QN_LOG_INFO, "too fine");
  assert_int_equal(message_count, 0);
  qn__log(QN_LOG_WARN, "entry %d", 5);
  assert_string_equal(last_message, "entry 5");
  for (int i = 0; i < 3; i++) QN__LOG_ONCE(QN_LOG_WARN, "once");
  assert_int_equal(message_count, 2);
  qn_log_set_sink(QN_LOG_DEBUG, NULL, NULL);
  assert_false(qn__log_is_on(QN_LOG_ERROR));
}

static void empty_variables_are_unset(void** state) {
  (void)state;
  assert_int_equal(setenv("QUERN_TEST_VALUE", "x", 1), 0);
  assert_string_equal(qn__env_get("QUERN_TEST_VALUE"), "x");
  assert_int_equal(setenv("QUERN_TEST_VALUE", "", 1), 0);
  assert_null(qn__env_get("QUERN_TEST_VALUE"));
  assert_int_equal(unsetenv("QUERN_TEST_VALUE"), 0);
  assert_null(qn__env_get("QUERN_TEST_VALUE"));
}

static int set_up(void** state) {
  (void)state;
  return qn_test_tempdir_make(root) ? 0 : -1;
}
static int tear_down(void** state) {
  (void)state;
  qn_test_tempdir_remove(root);
  return access(root, F_OK) == 0 ? -1 : 0;
}

static int write_beyond_a_limit(void) {
  static const char bytes[4096];
  const struct rlimit limit = {100, 100};
  int fd = qn__fs()->open(in_root("limited"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
  if (qn__fs()->write(fd, bytes, sizeof bytes) != 100) return 2;
  if (qn__fs()->write(fd, bytes, sizeof bytes) != -1 || errno != EFBIG) return 3;
  return qn__fs()->close(fd) == 0 ? 0 : 4;
}

static int write_to_nobody(void) {
  int ends[2];
  if (pipe(ends) != 0 || close(ends[0]) != 0) return 1;
  if (qn__fs()->write(ends[1], "x", 1) != -1 || errno != EPIPE) return 2;
  return close(ends[1]) == 0 ? 0 : 3;
}

// What a write raises ends no process: not at once, and not when the host lets signals in again.
static void writes_raise_no_signal(void** state) {
  (void)state;
  static int (*const works[])(void) = {write_beyond_a_limit, write_to_nobody};
  for (size_t i = 0; i < QN_COUNT_OF(works); i++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      sigset_t all, none;
      (void)sigfillset(&all);
      (void)sigemptyset(&none);
      int result = works[i]();
      if (result == 0 && pthread_sigmask(SIG_SETMASK, &none, &all) != 0) result = 5;
      if (sigismember(&all, SIGXFSZ) || sigismember(&all, SIGPIPE)) result = 6;
      _exit(result);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_whole_files),         cmocka_unit_test(names_what_cannot_be_read),
      cmocka_unit_test(file_faults_are_clean),     cmocka_unit_test(writes_raise_no_signal),
      cmocka_unit_test(makes_directories),         cmocka_unit_test(threads_meet),
      cmocka_unit_test(threads_keep_away),         cmocka_unit_test(the_log_is_off_by_default),
      cmocka_unit_test(empty_variables_are_unset),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
