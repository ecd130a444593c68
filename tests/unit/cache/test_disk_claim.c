// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_disk_claim.c: tests single compiles per key among processes: waits and
// their limits, holders that died or are stopped, forks, and places without locks.
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
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/thread.h"
#include "tests/support/fault.h"
#include "tests/support/sanitized.h"
#include "tests/unit/cache/support.h"

#define MS INT64_C(1000000)

static sample_t sample, other;

static int set_up(void** state) {
  if (cache_set_up(state) != 0) return -1;
  sample_make(&sample, 1, 500);
  sample_make(&other, 2, 500);
  return 0;
}

static int tear_down(void** state) {
  sample_free(&sample);
  sample_free(&other);
  return cache_tear_down(state);
}

static int wait_for(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status)     ? WEXITSTATUS(status)
         : WIFSIGNALED(status) ? 1000 + WTERMSIG(status)
                               : -1;
}

static void pause_ms(int64_t ms) {
  struct timespec pause = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
  (void)nanosleep(&pause, NULL);
}

// A claim of `key` that must not wait: whether it got the claim.
static qn__disk_claim_t* claim_now(qn__disk_t* disk, const sample_t* wanted) {
  qn__hit_t hit;
  qn__disk_claim_t* claim;
  qn__get_result_t result = qn__disk_claim(disk, &wanted->expected, 0, &hit, &claim);
  assert_int_not_equal(result, QN__GET_HIT);
  return claim;
}

static void one_has_it_and_the_other_finds_the_entry(void** state) {
  (void)state;
  // Two engines of one process.
  qn__disk_t* a = open_cache(NULL);
  qn__disk_t* b = open_cache(NULL);
  qn__disk_claim_t* claim = claim_now(a, &sample);
  assert_non_null(claim);
  assert_int_equal(qn__disk_counter(a, "claim_taken"), 1);
  assert_null(claim_now(b, &sample));
  assert_null(claim_now(a, &sample));
  assert_int_equal(qn__disk_counter(b, "claim_busy"), 1);
  // Another key is another matter.
  qn__disk_claim_t* second = claim_now(b, &other);
  assert_non_null(second);
  qn__disk_claim_release(second);
  qn__disk_claim_release(NULL);

  assert_true(qn__disk_put(a, &sample.entry, claim));
  qn__hit_t hit;
  assert_int_equal(qn__disk_claim(b, &sample.expected, qn__now_ns() + FOREVER_NS, &hit, &claim),
                   QN__GET_HIT);
  assert_null(claim);
  assert_true(sample_equals(&sample, &hit.entry));
  qn__disk_hit_release(b, &hit);
  assert_int_equal(qn__disk_counter(b, "claim_hits"), 1);
  assert_int_equal(qn__disk_counter(b, "disk_hits"), 0);
  // One that is given back without an entry is free for the next, at once.
  claim = claim_now(a, &other);
  assert_non_null(claim);
  qn__disk_claim_release(claim);
  claim = claim_now(b, &other);
  assert_non_null(claim);
  qn__disk_claim_release(claim);
  qn__disk_close(a, FOREVER_NS);
  qn__disk_close(b, FOREVER_NS);
}

// Two keys whose file names begin alike, and have equal second halves, are two keys.
static void keys_do_not_collide(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(NULL);
  qn__disk_claim_t* claims[200];
  qn__hit_t hit;
  for (size_t i = 0; i < QN_COUNT_OF(claims); i++) {
    qn__expectation_t expected = sample.expected;
    expected.key.bytes[4] = (uint8_t)i;
    assert_int_not_equal(qn__disk_claim(disk, &expected, 0, &hit, &claims[i]), QN__GET_HIT);
    assert_non_null(claims[i]);
  }
  assert_int_equal(qn__disk_counter(disk, "claim_busy"), 0);
  for (size_t i = 0; i < QN_COUNT_OF(claims); i++) qn__disk_claim_release(claims[i]);
  qn__disk_close(disk, FOREVER_NS);
}

// Every way in which an entry does not come to lie in the directory ends its claim.
static void leases_end_with_the_put(void** state) {
  (void)state;
  qn__disk_t* watcher = open_cache(NULL);
  static const char* const ways[] = {"full",   "size",   "space", "latched",
                                     "memory", "closed", "done"};
  for (size_t i = 0; i < QN_COUNT_OF(ways); i++) {
    static qn_fault_heap_t heap;  // also used by a writer that the close abandoned
    qn_fault_heap_init(&heap);
    qn__disk_options_t options = {.allocator = qn_fault_heap_allocator(&heap),
                                  .max_queue_bytes = i == 0 ? 100 : 0,
                                  .sweep_period_ns = -1};
    qn__disk_t* disk = open_cache(&options);
    qn__disk_claim_t* claim = claim_now(disk, &sample);
    assert_non_null(claim);
    assert_null(claim_now(watcher, &sample));
    qn__entry_t entry = sample.entry;
    if (i == 1) entry.payload.size = (size_t)QN__ENTRY_MAX_PAYLOAD_BYTES + 1;
    if (i == 2 || i == 3) {
      // Off by the failure of the first; the second is refused before it is queued.
      qn_fault_fs_install();
      qn_fault_fs_arm(1, QN_FAULT_ALWAYS, QN_FAULT_ERRNO, ENOSPC);
    }
    if (i == 3) {
      assert_true(qn__disk_put(disk, &other.entry, NULL));
      assert_true(qn__disk_flush(disk, FOREVER_NS));
      assert_null(claim_now(disk, &other));
      assert_int_equal(qn__disk_counter(disk, "claim_off"), 1);
    }
    if (i == 4) qn_fault_heap_arm(&heap, 1, QN_FAULT_ALWAYS);
    (void)qn__disk_put(disk, &entry, claim);
    if (i != 5) assert_true(qn__disk_flush(disk, FOREVER_NS));
    // (A failing unlock does not matter: the close ends the lock as well.)
    if (i == 2 || i == 3) qn_fault_fs_remove();
    qn__disk_close(disk, i == 5 ? 0 : FOREVER_NS);
    while (i == 5 && heap.live_blocks > 0) pause_ms(1);
    assert_int_equal(heap.live_blocks, 0);
    qn__hit_t hit;
    qn__get_result_t result =
        qn__disk_claim(watcher, &sample.expected, qn__now_ns() + FOREVER_NS, &hit, &claim);
    if (result == QN__GET_HIT) {
      assert_null(claim);
      assert_true(i >= 5);
      qn__disk_hit_release(watcher, &hit);
      assert_true(qn__disk_remove(watcher, sample.entry.key));
    } else {
      assert_non_null(claim);
      assert_true(i <= 5);
      qn__disk_claim_release(claim);
    }
  }
  qn__disk_close(watcher, FOREVER_NS);
}

// A lock on a server that answers no more.
static _Atomic bool is_server_away;
static int hanging_unlock(int fd, int64_t offset) {
  while (atomic_load(&is_server_away)) pause_ms(1);
  return qn__fs_posix.unlock(fd, offset);
}

// Whether the writer is still asleep at the close, has begun, or drops its queue: the close
// returns.
static void a_lease_that_hangs_holds_no_close_up(void** state) {
  (void)state;
  qn__fs_t table = qn__fs_posix;
  table.unlock = hanging_unlock;
  (void)qn__fs_install(&table);
  static qn_fault_heap_t heap;  // used by the abandoned writers
  qn_fault_heap_init(&heap);
  for (int i = 0; i < 20; i++) {
    qn__disk_options_t options = {.allocator = qn_fault_heap_allocator(&heap),
                                  .sweep_period_ns = -1};
    qn__disk_t* disk = open_cache(&options);
    if (i % 2) assert_true(put_and_wait(disk, &other));  // its writer sleeps
    qn__disk_claim_t* claim = claim_now(disk, &sample);
    assert_non_null(claim);
    atomic_store(&is_server_away, true);
    assert_true(qn__disk_put(disk, &sample.entry, claim));
    qn__disk_close(disk, 0);
    assert_true(heap.live_blocks > 0);
    atomic_store(&is_server_away, false);
    while (heap.live_blocks > 0) pause_ms(1);
    assert_int_equal(heap.size_errors, 0);
    disk = open_cache(NULL);
    (void)qn__disk_remove(disk, sample.entry.key);
    qn__disk_close(disk, FOREVER_NS);
  }
  (void)qn__fs_install(NULL);
}

// ------------------------------------------------------------------------------- processes

enum { PROCESS_COUNT = IS_SANITIZED ? 12 : 64, KEY_COUNT = 50 };

// Makes each key once unless another process has: a compile is a file of its own.
static int make_all(const sample_t* keys, int number) {
  qn__disk_t* disk = open_cache(NULL);
  if (!disk) return 10;
  for (int i = 0; i < KEY_COUNT; i++) {
    const sample_t* key = &keys[(i + number % 5) % KEY_COUNT];
    qn__hit_t hit;
    qn__disk_claim_t* claim = NULL;
    qn__get_result_t result = qn__disk_get(disk, &key->expected, &hit);
    if (result != QN__GET_HIT) {
      result = qn__disk_claim(disk, &key->expected, INT64_MAX, &hit, &claim);
    }
    if (result == QN__GET_HIT) {
      if (!sample_equals(key, &hit.entry)) return 11;
      qn__disk_hit_release(disk, &hit);
      continue;
    }
    if (!claim) return 12;
    char path[QN_TEST_PATH_SIZE + 64];
    (void)snprintf(path, sizeof path, "%s/made/%u-%d", cache_root,
                   (unsigned)(key->entry.compile_ns), number);
    if (!qn_test_write_file(path, "", 0)) return 13;
    pause_ms(1);
    if (!qn__disk_put(disk, &key->entry, claim)) return 14;
  }
  qn__disk_close(disk, FOREVER_NS);
  return 0;
}

static void many_processes_make_each_entry_once(void** state) {
  (void)state;
  static sample_t keys[KEY_COUNT];
  for (unsigned i = 0; i < KEY_COUNT; i++) sample_make(&keys[i], i, 300);
  char made[QN_TEST_PATH_SIZE + 8];
  (void)snprintf(made, sizeof made, "%s/made", cache_root);
  assert_int_equal(mkdir(made, 0700), 0);
  pid_t children[PROCESS_COUNT];
  for (int i = 0; i < PROCESS_COUNT; i++) {
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0) _exit(make_all(keys, i));
  }
  for (int i = 0; i < PROCESS_COUNT; i++) assert_int_equal(wait_for(children[i]), 0);
  int count = 0;
  DIR* dir = opendir(made);
  assert_non_null(dir);
  for (struct dirent* item; (item = readdir(dir));) count += item->d_name[0] != '.';
  (void)closedir(dir);
  assert_int_equal(count, KEY_COUNT);
  for (unsigned i = 0; i < KEY_COUNT; i++) sample_free(&keys[i]);
}

// A process that holds the claim of `sample` until a signal comes.
static pid_t start_holder(const qn__disk_options_t* options) {
  int ready[2];
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    // Should the test fail before it sends one: ctest waits for all who have its output open.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) _exit(22);
    qn__disk_t* disk = open_cache(options);
    qn__hit_t hit;
    qn__disk_claim_t* claim;
    if (!disk || qn__disk_claim(disk, &sample.expected, 0, &hit, &claim) == QN__GET_HIT) _exit(20);
    if (!claim || write(ready[1], "r", 1) != 1) _exit(21);
    for (;;) (void)pause();
  }
  char byte;
  assert_int_equal(read(ready[0], &byte, 1), 1);
  (void)close(ready[0]);
  (void)close(ready[1]);
  return child;
}

static void* kill_soon(void* arg) {
  pause_ms(50);
  (void)kill(*(pid_t*)arg, SIGKILL);
  return NULL;
}

static void a_killed_holder_is_noticed(void** state) {
  (void)state;
  pid_t holder = start_holder(NULL);
  qn__disk_t* disk = open_cache(NULL);
  assert_null(claim_now(disk, &sample));
  pthread_t killer;
  assert_true(qn_ok(qn__thread_start(&killer, "killer", 0, kill_soon, &holder)));
  qn__hit_t hit;
  qn__disk_claim_t* claim;
  assert_int_equal(qn__disk_claim(disk, &sample.expected, qn__now_ns() + FOREVER_NS, &hit, &claim),
                   QN__GET_ABSENT);
  assert_non_null(claim);
  qn__disk_claim_release(claim);
  assert_int_equal(pthread_join(killer, NULL), 0);
  assert_int_equal(wait_for(holder), 1000 + SIGKILL);
  qn__disk_close(disk, FOREVER_NS);
}

static void a_stopped_holder_costs_the_bound(void** state) {
  (void)state;
  pid_t holder = start_holder(NULL);
  assert_int_equal(kill(holder, SIGSTOP), 0);
  qn__disk_options_t options = {.lock_timeout_ns = 50 * MS};
  qn__disk_t* disk = open_cache(&options);
  qn__hit_t hit;
  qn__disk_claim_t* claim;
  // By the directory's bound, and without a wait.
  const int64_t deadlines_ns[] = {INT64_MAX, 0, INT64_MIN};
  for (size_t i = 0; i < QN_COUNT_OF(deadlines_ns); i++) {
    assert_int_equal(qn__disk_claim(disk, &sample.expected, deadlines_ns[i], &hit, &claim),
                     QN__GET_ABSENT);
    assert_null(claim);
    assert_int_equal(qn__disk_counter(disk, "claim_timeouts"), 1);
    assert_int_equal(qn__disk_counter(disk, "claim_busy"), i);
  }
  // By the caller's deadline, which a busy machine may let pass before the wait begins.
  qn__disk_t* patient = open_cache(NULL);
  uint64_t busy_count = 0;
  for (int64_t wait_ns = 10 * MS; qn__disk_counter(patient, "claim_timeouts") == 0; wait_ns *= 2) {
    assert_int_equal(qn__disk_counter(patient, "claim_busy"), busy_count++);
    assert_int_equal(
        qn__disk_claim(patient, &sample.expected, qn__now_ns() + wait_ns, &hit, &claim),
        QN__GET_ABSENT);
    assert_null(claim);
  }
  qn__disk_close(patient, FOREVER_NS);
  assert_true(qn__disk_counter(disk, "claim_wait_ns") >= (uint64_t)(50 * MS));
  // It goes on without; what it puts is found by all.
  assert_true(put_and_wait(disk, &sample));
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_HIT);
  qn__disk_hit_release(disk, &hit);
  assert_int_equal(kill(holder, SIGKILL), 0);
  assert_int_equal(wait_for(holder), 1000 + SIGKILL);
  qn__disk_close(disk, FOREVER_NS);
}

static bool has_lock_open(void) {
  for (int fd = 0; fd < 64; fd++) {
    char link[64], target[QN_TEST_PATH_SIZE + 64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, target, sizeof target - 1);
    if (size <= 0) continue;
    target[size] = '\0';
    if (strstr(target, "/lock")) return true;
  }
  return false;
}

static void forks_while_holding(void** state) {
  (void)state;
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  qn__disk_options_t options = {.allocator = qn_fault_heap_allocator(&heap)};
  qn__disk_t* disk = open_cache(&options);
  qn__disk_claim_t* claim = claim_now(disk, &sample);
  qn__disk_claim_t* second = claim_now(disk, &other);
  assert_non_null(claim);
  assert_non_null(second);
  assert_true(has_lock_open());
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    if (has_lock_open()) _exit(30);
    // The parent keeps its claims, whatever the child does with its copies.
    qn__disk_claim_release(claim);
    if (claim_now(disk, &sample)) _exit(31);
    qn__disk_close(disk, FOREVER_NS);
    _exit(heap.live_blocks ? 32 : 0);
  }
  assert_int_equal(wait_for(child), 0);
  qn__disk_t* watcher = open_cache(NULL);
  assert_null(claim_now(watcher, &sample));
  assert_null(claim_now(watcher, &other));
  // And it ends when the parent lets go, although a child lives on.
  child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) _exit(22);  // as in start_holder
    for (;;) (void)pause();
  }
  qn__disk_claim_release(claim);
  qn__disk_claim_release(second);
  claim = claim_now(watcher, &sample);
  assert_non_null(claim);
  qn__disk_claim_release(claim);
  assert_int_equal(kill(child, SIGKILL), 0);
  (void)wait_for(child);
  qn__disk_close(watcher, FOREVER_NS);
  qn__disk_close(disk, FOREVER_NS);
  assert_int_equal(heap.live_blocks, 0);
}

// ------------------------------------------------------------------------------- places

// A root that is on the network, as far as anybody can tell.
static int is_remote_root;
static int strange_type(const char* path, uint32_t* out_magic) {
  int result = qn__fs_posix.filesystem_type(path, out_magic);
  if (result == 0 && is_remote_root && strcmp(path, cache_root) == 0) *out_magic = 0x6969;  // NFS
  return result;
}

static void locks_go_where_they_work(void** state) {
  (void)state;
  qn__fs_t table = qn__fs_posix;
  table.filesystem_type = strange_type;
  (void)qn__fs_install(&table);
  is_remote_root = 1;
  char runtime[QN_TEST_PATH_SIZE + 16], path[QN_TEST_PATH_SIZE + 64];
  (void)snprintf(runtime, sizeof runtime, "%s/run", cache_root);
  (void)snprintf(path, sizeof path, "%s/quern/lock", runtime);

  qn__disk_t* disk = open_cache(NULL);
  assert_null(claim_now(disk, &sample));  // nowhere
  assert_int_equal(qn__disk_counter(disk, "claim_unavailable"), 1);
  qn__disk_close(disk, FOREVER_NS);

  qn__disk_options_t options = {.runtime_dir = runtime};
  disk = open_cache(&options);
  assert_null(claim_now(disk, &sample));  // it does not exist
  assert_int_equal(mkdir(runtime, 0700), 0);
  assert_int_equal(chmod(runtime, 0750), 0);
  assert_null(claim_now(disk, &sample));  // it is not private
  assert_int_equal(chmod(runtime, 0700), 0);
  qn__disk_claim_t* claim = claim_now(disk, &sample);
  assert_non_null(claim);
  assert_int_equal(access(path, F_OK), 0);
  qn__disk_t* second = open_cache(&options);
  assert_null(claim_now(second, &sample));
  // Another directory with the same place for its locks, and the same key.
  char elsewhere[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", cache_root);
  qn__disk_options_t others = {.root = elsewhere, .runtime_dir = runtime};
  qn__disk_t* third = open_cache(&others);
  is_remote_root = 0;
  qn__disk_claim_t* its = claim_now(third, &sample);
  assert_non_null(its);
  qn__disk_claim_release(its);
  qn__disk_claim_release(claim);
  qn__disk_close(third, FOREVER_NS);
  qn__disk_close(second, FOREVER_NS);
  qn__disk_close(disk, FOREVER_NS);
  (void)qn__fs_install(NULL);

  disk = open_cache(NULL);
  claim = claim_now(disk, &sample);
  assert_non_null(claim);
  (void)snprintf(path, sizeof path, "%s/v1/lock", cache_root);
  struct stat info;
  assert_int_equal(lstat(path, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0600);
  assert_int_equal(info.st_size, 0);
  // Wiped in use: whoever holds it may end as usual, and the next one starts anew.
  assert_int_equal(unlink(path), 0);
  its = claim_now(disk, &sample);
  assert_non_null(its);
  qn__disk_claim_release(claim);
  assert_null(claim_now(disk, &sample));
  qn__disk_claim_release(its);
  qn__disk_close(disk, FOREVER_NS);

  options = (qn__disk_options_t){.is_read_only = true};
  disk = open_cache(&options);
  assert_null(claim_now(disk, &sample));
  assert_int_equal(qn__disk_counter(disk, "claim_off"), 1);
  qn__disk_close(disk, FOREVER_NS);
}

// Checks that any obstacle to a lock gives no claim, no error and no wait.
static void no_lock_is_no_error(void** state) {
  (void)state;
  static const int errors[] = {ENOSPC, EDQUOT, EIO,   EACCES, EROFS,  ESTALE,
                               EBUSY,  EMFILE, EINTR, ENOLCK, ENOENT, EINVAL};
  int descriptors = qn_test_descriptor_count();
  char v1[QN_TEST_PATH_SIZE + 8];
  (void)snprintf(v1, sizeof v1, "%s/v1", cache_root);
  for (size_t i = 0; i < QN_COUNT_OF(errors); i++) {
    for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
      for (long n = 1;; n++) {
        qn_test_tempdir_remove(v1);
        qn__disk_options_t options = {.lock_timeout_ns = 2 * MS};
        qn__disk_t* disk = open_cache(&options);
        qn_fault_fs_install();
        qn_fault_fs_arm(n, (qn_fault_mode_t)mode, QN_FAULT_ERRNO, errors[i]);
        qn__hit_t hit;
        qn__disk_claim_t* claim;
        assert_int_not_equal(qn__disk_claim(disk, &sample.expected, INT64_MAX, &hit, &claim),
                             QN__GET_HIT);
        assert_null(hit.bytes);
        qn__disk_claim_release(claim);
        long failures = qn_fault_fs_failures();
        assert_int_equal(qn_fault_fs_open_count(), 0);
        qn_fault_fs_remove();
        // Afterwards all is well.
        claim = claim_now(disk, &sample);
        assert_non_null(claim);
        qn__disk_claim_release(claim);
        qn__disk_close(disk, FOREVER_NS);
        if (failures == 0) break;
        assert_true(n < 100);
      }
    }
  }
  assert_int_equal(qn_test_descriptor_count(), descriptors);
}

static bool claim_without_memory(qn_allocator_t allocator, void* user) {
  (void)user;
  qn__disk_options_t options = {.allocator = allocator, .root = cache_root};
  qn__disk_t* disk;
  if (qn_status_consume(qn__disk_open(&options, &disk)) != QN_STATUS_OK) return true;
  qn__hit_t hit;
  qn__disk_claim_t* claim;
  bool is_fine = qn__disk_claim(disk, &sample.expected, 0, &hit, &claim) == QN__GET_ABSENT;
  qn__disk_claim_release(claim);
  qn__disk_close(disk, FOREVER_NS);
  return is_fine;
}

static void no_memory_is_no_error(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(claim_without_memory, NULL) > 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(one_has_it_and_the_other_finds_the_entry),
      TEST(keys_do_not_collide),
      // Before a writer is left behind, however soon it ends: ThreadSanitizer lets no child of a
      // process with a second thread start threads.
      TEST(many_processes_make_each_entry_once),
      TEST(leases_end_with_the_put),
      TEST(a_lease_that_hangs_holds_no_close_up),
      TEST(a_killed_holder_is_noticed),
      TEST(a_stopped_holder_costs_the_bound),
      TEST(forks_while_holding),
      TEST(locks_go_where_they_work),
      TEST(no_lock_is_no_error),
      TEST(no_memory_is_no_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
