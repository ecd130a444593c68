// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_shared.c: threads and processes on one directory, fork, exit, kill, wipes,
// hangs. ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/thread.h"
#include "quern/cache.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"

#define SAMPLE_COUNT 12u

// ThreadSanitizer does not support new threads in the child of a process with threads, and the
// memory allocators of the sanitizers are not safe to use in such a child.
#if defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#elif __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifndef HAS_TSAN
#define HAS_TSAN 0
#endif
#ifndef HAS_ASAN
#define HAS_ASAN 0
#endif

static sample_t samples[SAMPLE_COUNT];

static int set_up(void** state) {
  if (cache_set_up(state) != 0) return -1;
  for (unsigned i = 0; i < SAMPLE_COUNT; i++) sample_make(&samples[i], i, 100 + 900 * i);
  return 0;
}

static int tear_down(void** state) {
  for (unsigned i = 0; i < SAMPLE_COUNT; i++) sample_free(&samples[i]);
  return cache_tear_down(state);
}

// Gets and puts in an order of its own; true while every hit has the right bytes.
typedef struct worker {
  qn__disk_t* disk;
  uint32_t random;
  int rounds;
  bool has_wrong_bytes;
  int hits;
} worker_t;

static void* work(void* arg) {
  worker_t* worker = arg;
  for (int i = 0; i < worker->rounds; i++) {
    worker->random = worker->random * 1664525 + 1013904223;
    const sample_t* sample = &samples[(worker->random >> 16) % SAMPLE_COUNT];
    qn__hit_t hit;
    if (qn__disk_get(worker->disk, &sample->expected, &hit) == QN__GET_HIT) {
      worker->has_wrong_bytes |= !sample_equals(sample, &hit.entry);
      worker->hits++;
      qn__disk_hit_release(worker->disk, &hit);
    }
    qn__disk_claim_t* claim = NULL;
    if ((worker->random >> 12) % 4 == 0) {
      int64_t deadline_ns = qn__now_ns() + (int64_t)(worker->random >> 12) % 2000000;
      if (qn__disk_claim(worker->disk, &sample->expected, deadline_ns, &hit, &claim) ==
          QN__GET_HIT) {
        worker->has_wrong_bytes |= claim || !sample_equals(sample, &hit.entry);
        qn__disk_hit_release(worker->disk, &hit);
      }
    }
    if ((worker->random >> 8) % 4 == 0) {
      (void)qn__disk_put(worker->disk, &sample->entry, claim);
    } else {
      qn__disk_claim_release(claim);
    }
    if ((worker->random >> 8) % 64 == 1) (void)qn__disk_remove(worker->disk, sample->entry.key);
    if ((worker->random >> 8) % 128 == 2) (void)qn__disk_flush(worker->disk, 1000000);
  }
  return NULL;
}

// Two threads on one object of each of two, and two such processes.
static int work_in_process(uint32_t seed) {
  qn__disk_t* disks[2] = {open_cache(NULL), open_cache(NULL)};
  worker_t workers[4];
  pthread_t threads[4];
  if (!disks[0] || !disks[1]) return 10;
  for (uint32_t i = 0; i < 4; i++) {
    workers[i] = (worker_t){disks[i % 2], seed + i, 300, false, 0};
    qn_status_t status = qn__thread_start(&threads[i], "worker", 0, work, &workers[i]);
    if (qn_status_consume(status) != QN_STATUS_OK) return 11;
  }
  bool has_wrong_bytes = false;
  for (size_t i = 0; i < 4; i++) {
    (void)pthread_join(threads[i], NULL);
    has_wrong_bytes |= workers[i].has_wrong_bytes;
  }
  qn__disk_close(disks[0], FOREVER_NS);
  qn__disk_close(disks[1], FOREVER_NS);
  return has_wrong_bytes ? 12 : 0;
}

static int wait_for(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status)     ? WEXITSTATUS(status)
         : WIFSIGNALED(status) ? 1000 + WTERMSIG(status)
                               : -1;
}

// Everything that is there is whole.
static uint64_t count_verified(void) {
  qn_cache_dir_t* dir;
  qn_cache_verify_report_t report = {.struct_size = sizeof report};
  assert_true(qn_ok(qn_cache_dir_open(cache_root, &dir)));
  assert_true(qn_ok(qn_cache_dir_verify(dir, false, NULL, NULL, &report)));
  assert_int_equal(report.bad_count, 0);
  assert_int_equal(report.unreadable_count, 0);
  qn_cache_dir_close(dir);
  return report.good_count;
}

static void threads_and_processes_share(void** state) {
  (void)state;
  pid_t children[2];
  for (uint32_t i = 0; i < 2; i++) {
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0) _exit(work_in_process(100 * i));
  }
  for (size_t i = 0; i < 2; i++) assert_int_equal(wait_for(children[i]), 0);
  assert_true(count_verified() > 0);
  assert_int_equal(work_in_process(7), 0);
}

static _Atomic bool is_wiping;

static void* wipe(void* arg) {
  (void)arg;
  char path[QN_TEST_PATH_SIZE + 8];
  (void)snprintf(path, sizeof path, "%s/c", cache_root);
  for (int i = 0; i < 200 || is_wiping; i++) {
    qn_test_tempdir_remove(path);
    struct timespec pause = {.tv_nsec = 200000};
    (void)nanosleep(&pause, NULL);
  }
  return NULL;
}

static void print_counters(qn__counter_set_t set) {
  for (size_t i = 0; i < set.count; i++) {
    if (set.values[i])
      print_error("%s %llu\n", set.rows[i].name, (unsigned long long)set.values[i]);
  }
}

static void wiped_while_in_use(void** state) {
  (void)state;
  char root[QN_TEST_PATH_SIZE + 8];
  (void)snprintf(root, sizeof root, "%s/c", cache_root);
  qn__disk_options_t options = {.root = root};
  qn__disk_t* disk = open_cache(&options);
  is_wiping = true;
  pthread_t wiper;
  assert_true(qn_ok(qn__thread_start(&wiper, "wiper", 0, wipe, NULL)));
  worker_t worker = {disk, 5, 800, false, 0};
  (void)work(&worker);
  assert_true(qn__disk_flush(disk, FOREVER_NS));
  is_wiping = false;
  assert_int_equal(pthread_join(wiper, NULL), 0);
  assert_false(worker.has_wrong_bytes);
  assert_int_equal(qn__disk_counter(disk, "publish_latched"), 0);
  if (!put_and_wait(disk, &samples[0])) {
    print_counters(qn__disk_counters(disk));
    fail_msg("a put after the wipes did not succeed");
  }
  worker = (worker_t){disk, 6, 200, false, 0};
  (void)work(&worker);
  assert_true(worker.hits > 0);
  qn__disk_close(disk, FOREVER_NS);
}

// ------------------------------------------------------------------- a writer that is held up

static qn__mutex_t gate_mutex;
static qn__cond_t gate_cond;
static bool is_gate_shut;
static int waiting_count;
static const char* gate_call;
static pid_t gate_pid;

static void gate(void* user, const char* call, const char* path) {
  (void)user;
  (void)path;
  if (strcmp(call, gate_call) != 0 || getpid() != gate_pid) return;
  qn__mutex_lock(&gate_mutex);
  waiting_count++;
  qn__cond_broadcast(&gate_cond);
  while (is_gate_shut) qn__cond_wait(&gate_cond, &gate_mutex);
  waiting_count--;
  qn__mutex_unlock(&gate_mutex);
}

static void shut_gate(const char* call) {
  if (!gate_pid) {
    assert_true(qn_ok(qn__mutex_init(&gate_mutex)));
    assert_true(qn_ok(qn__cond_init(&gate_cond)));
  }
  gate_pid = getpid();
  gate_call = call;
  is_gate_shut = true;
  qn_fault_fs_install();
  qn_fault_fs_hook(gate, NULL);
}

static void wait_at_gate(void) {
  qn__mutex_lock(&gate_mutex);
  while (waiting_count == 0) qn__cond_wait(&gate_cond, &gate_mutex);
  qn__mutex_unlock(&gate_mutex);
}

static void open_gate(void) {
  qn__mutex_lock(&gate_mutex);
  is_gate_shut = false;
  qn__cond_broadcast(&gate_cond);
  qn__mutex_unlock(&gate_mutex);
}

static void a_hanging_disk_holds_nobody(void** state) {
  (void)state;
  static qn_fault_heap_t heap;  // the writer outlives the close
  qn_fault_heap_init(&heap);
  qn__disk_options_t options = {.allocator = qn_fault_heap_allocator(&heap),
                                .max_queue_bytes = 2 * qn__entry_size(&samples[1].entry),
                                .sweep_period_ns = -1};
  qn__disk_t* disk = open_cache(&options);
  shut_gate("fdatasync");
  assert_true(qn__disk_put(disk, &samples[0].entry, NULL));
  wait_at_gate();
  // Neither puts, nor gets, nor a flush with a deadline wait for the writer.
  assert_true(qn__disk_put(disk, &samples[1].entry, NULL));
  assert_false(qn__disk_put(disk, &samples[1].entry, NULL));
  assert_int_equal(qn__disk_counter(disk, "publish_dropped_full"), 1);
  assert_false(qn__disk_flush(disk, 1000000));
  qn__hit_t hit;
  assert_int_equal(qn__disk_get(disk, &samples[0].expected, &hit), QN__GET_ABSENT);
  // Nor does the close; the writer frees everything when the disk comes back.
  qn__disk_close(disk, 1000000);
  assert_true(heap.live_blocks > 0);
  open_gate();
  int64_t deadline_ns = qn__now_ns() + FOREVER_NS;
  while (heap.live_blocks > 0 && qn__now_ns() < deadline_ns) (void)sched_yield();
  assert_int_equal(heap.live_blocks, 0);
  assert_int_equal(heap.size_errors, 0);
  assert_int_equal(qn_fault_fs_open_count(), 0);
  qn_fault_fs_remove();
  // The put in flight is complete; queued ones were dropped.
  assert_int_equal(count_verified(), 1);
}

static void* get_one(void* arg) {
  qn__disk_t* disk = arg;
  qn__hit_t hit;
  bool is_hit = qn__disk_get(disk, &samples[0].expected, &hit) == QN__GET_HIT;
  qn__disk_hit_release(disk, &hit);
  return is_hit ? disk : NULL;
}

static void* claim_one(void* arg) {
  qn__disk_t* disk = arg;
  qn__hit_t hit;
  qn__disk_claim_t* claim;
  bool is_hit = qn__disk_claim(disk, &samples[0].expected, 0, &hit, &claim) == QN__GET_HIT;
  qn__disk_hit_release(disk, &hit);
  qn__disk_claim_release(claim);
  return is_hit ? disk : NULL;
}

// A server that is gone: who is in the call stays there, nobody follows, and all is well when it is
// back.
static void leave_alone_who_hangs(void* (*visit)(void* disk), const char* call) {
  qn__disk_options_t options = {.sweep_period_ns = -1, .hang_ns = 20000000};
  qn__disk_t* disk = open_cache(&options);
  assert_true(put_and_wait(disk, &samples[0]));
  shut_gate(call);
  pthread_t visitor;
  assert_true(qn_ok(qn__thread_start(&visitor, "visitor", 0, visit, disk)));
  wait_at_gate();
  struct timespec pause = {.tv_nsec = 40000000};
  (void)nanosleep(&pause, NULL);
  qn__hit_t hit;
  for (int i = 0; i < 100; i++) {
    assert_int_equal(qn__disk_get(disk, &samples[0].expected, &hit), QN__GET_OFF);
    assert_null(hit.bytes);
  }
  assert_int_equal(qn__disk_counter(disk, "disk_off"), 100);
  assert_int_equal(qn__disk_counter(disk, "disk_misses"), 0);
  qn__disk_claim_t* claim;
  assert_int_equal(qn__disk_claim(disk, &samples[1].expected, INT64_MAX, &hit, &claim),
                   QN__GET_OFF);
  assert_null(claim);
  assert_int_equal(qn__disk_counter(disk, "claim_off"), 1);
  if (!HAS_TSAN) {  // a child has not inherited the trouble
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(get_one(disk) ? 0 : 60);
    assert_int_equal(wait_for(child), 0);
  }
  open_gate();
  void* has_hit;
  assert_int_equal(pthread_join(visitor, &has_hit), 0);
  assert_non_null(has_hit);
  assert_non_null(get_one(disk));
  qn_fault_fs_remove();
  qn__disk_close(disk, FOREVER_NS);
}

static void a_hanging_reader_is_left_alone(void** state) {
  (void)state;
  leave_alone_who_hangs(get_one, "fstat");
}

static void a_hanging_claim_is_left_alone(void** state) {
  (void)state;
  leave_alone_who_hangs(claim_one, "filesystem_type");
}

static bool has_temporary_open(void) {
  for (int fd = 0; fd < 64; fd++) {
    char link[64], target[QN_TEST_PATH_SIZE + 64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, target, sizeof target - 1);
    if (size <= 0) continue;
    target[size] = '\0';
    if (strstr(target, "/v1/tmp/")) return true;
  }
  return false;
}

static int use_in_child(qn__disk_t* disk) {
  if (has_temporary_open()) return 20;
  if (!qn__disk_flush(disk, 0)) return 21;  // the queue is empty here
  qn__hit_t hit;
  if (qn__disk_get(disk, &samples[0].expected, &hit) != QN__GET_HIT) return 22;
  if (!sample_equals(&samples[0], &hit.entry)) return 23;
  qn__disk_hit_release(disk, &hit);
  if (!HAS_TSAN) {
    if (!put_and_wait(disk, &samples[3])) return 24;
    if (qn__disk_get(disk, &samples[3].expected, &hit) != QN__GET_HIT) return 25;
    qn__disk_hit_release(disk, &hit);
  }
  qn__disk_close(disk, FOREVER_NS);
  return 0;
}

// The moments: the writer asleep, in the middle of a file (with more in the queue), in a sweep.
static void a_child_goes_on(void** state) {
  (void)state;
  static const char* const moments[] = {"nothing", "write", "fdatasync", "rename", "readdir"};
  for (size_t i = 0; i < QN_COUNT_OF(moments); i++) {
    qn_test_tempdir_remove(cache_root);
    qn_fault_heap_t heap;
    qn_fault_heap_init(&heap);
    qn__disk_options_t options = {.allocator = qn_fault_heap_allocator(&heap),
                                  .sweep_period_ns = i == 4 ? 0 : -1};
    qn__disk_t* disk = open_cache(&options);
    if (i < 4) assert_true(put_and_wait(disk, &samples[0]));
    shut_gate(moments[i]);
    if (i == 4) assert_true(put_and_wait(disk, &samples[0]));
    if (i > 0 && i < 4) {
      for (unsigned j = 1; j < 3; j++) assert_true(qn__disk_put(disk, &samples[j].entry, NULL));
    }
    if (i > 0) wait_at_gate();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      int result = use_in_child(disk);
      _exit(result ? result : heap.live_blocks ? 30 : 0);
    }
    assert_int_equal(wait_for(child), 0);
    open_gate();
    assert_true(qn__disk_flush(disk, FOREVER_NS));
    qn__disk_close(disk, FOREVER_NS);
    assert_int_equal(heap.live_blocks, 0);
    qn_fault_fs_remove();
    assert_int_equal(count_verified(), (i > 0 && i < 4 ? 3 : 1) + !HAS_TSAN);
  }
}

// Forks at random moments of busy threads: no child hangs or inherits a lock.
static void forks_in_the_middle_of_everything(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(NULL);
  worker_t workers[2];
  pthread_t threads[2];
  for (uint32_t i = 0; i < 2; i++) {
    workers[i] = (worker_t){disk, i, 400, false, 0};
    assert_true(qn_ok(qn__thread_start(&threads[i], "worker", 0, work, &workers[i])));
  }
  for (int i = 0; i < 30; i++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      (void)alarm(600);  // a child that hangs is killed, and seen
      bool is_flushed = qn__disk_flush(disk, FOREVER_NS);
      if (HAS_TSAN || HAS_ASAN) _exit(is_flushed ? 0 : 41);
      worker_t worker = {disk, 77, 20, false, 0};
      (void)work(&worker);
      is_flushed &= qn__disk_flush(disk, FOREVER_NS);
      qn__disk_close(disk, FOREVER_NS);
      _exit(worker.has_wrong_bytes ? 40 : is_flushed ? 0 : 41);
    }
    assert_int_equal(wait_for(child), 0);
  }
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_false(workers[i].has_wrong_bytes);
  }
  qn__disk_close(disk, FOREVER_NS);
  (void)count_verified();
}

static void exit_with_a_queue(void** state) {
  (void)state;
  for (int i = 0; i < 10; i++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      qn__disk_t* disk = open_cache(NULL);
      for (unsigned j = 0; j < SAMPLE_COUNT; j++) {
        if (!qn__disk_put(disk, &samples[j].entry, NULL)) _exit(50);
      }
      if (i % 2) qn__disk_close(disk, 0);
      exit(0);
    }
    assert_int_equal(wait_for(child), 0);
    (void)count_verified();
  }
}

// The process is killed before its n-th file call, n = 1, 2, ...: what is there is whole, and the
// next process works.
static void killed_at_every_call(void** state) {
  (void)state;
  for (long n = 1;; n++) {
    qn_test_tempdir_remove(cache_root);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      qn_fault_fs_install();
      qn_fault_fs_arm(n, QN_FAULT_ONCE, QN_FAULT_KILL, 0);
      qn__disk_options_t options = {.sweep_period_ns = -1};
      qn__disk_t* disk = open_cache(&options);
      for (unsigned j = 0; j < 2; j++) (void)put_and_wait(disk, &samples[j]);
      qn__disk_close(disk, FOREVER_NS);
      _exit(0);
    }
    int result = wait_for(child);
    assert_true(result == 0 || result == 1000 + SIGKILL);
    qn__disk_t* disk = open_cache(NULL);
    for (unsigned j = 0; j < 2; j++) {
      qn__hit_t hit;
      qn__get_result_t got = qn__disk_get(disk, &samples[j].expected, &hit);
      assert_true(got == QN__GET_ABSENT || got == QN__GET_HIT);
      if (got == QN__GET_HIT) assert_true(sample_equals(&samples[j], &hit.entry));
      qn__disk_hit_release(disk, &hit);
      assert_true(put_and_wait(disk, &samples[j]));
    }
    qn__disk_close(disk, FOREVER_NS);
    assert_int_equal(count_verified(), 2);
    if (result == 0) break;
    assert_true(n < 1000);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(threads_and_processes_share),
      TEST(exit_with_a_queue),
      TEST(killed_at_every_call),
      TEST(wiped_while_in_use),
      TEST(a_hanging_disk_holds_nobody),
      TEST(a_hanging_reader_is_left_alone),
      TEST(a_hanging_claim_is_left_alone),
      TEST(a_child_goes_on),
      TEST(forks_in_the_middle_of_everything),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
