// SPDX-License-Identifier: Apache-2.0
// tests/faults/walk.c: see walk.h.
#define _GNU_SOURCE
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
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/thread.h"
#include "tests/faults/walk.h"

// The number of calls above which the check tests a sample of the calls for each fault.
#define SAMPLE_CALLS 40
#define STORMS 25

typedef enum fault_class {
  CLASS_ERRNO = 0,
  CLASS_SHORT,
  CLASS_ALLOC,
  CLASS_KILL,
  CLASS_STORM,
  CLASS_COUNT,
} fault_class_t;
static const char* const class_names[CLASS_COUNT] = {"errno", "short", "memory", "kill", "storm"};

// The effect of one fault on the n-th call.
typedef struct fault {
  fault_class_t class;
  qn_fault_mode_t mode;
  qn_fault_kind_t kind;
  int error;
} fault_t;

sample_t walk_samples[WALK_SAMPLES];
bool walk_may_leave, walk_may_vanish, walk_is_memory;
static const walk_operation_t* current;
static struct {
  bool is_set;
  char text[512];
} trouble;
static struct {
  const char* operation;
  long runs[CLASS_COUNT];
  long calls;  // calls of a run without faults
} totals[64];
static size_t total_count;
static bool is_full;

void walk_check(bool is_fine, const char* condition, const char* file, int line) {
  if (is_fine || trouble.is_set) return;
  trouble.is_set = true;
  (void)snprintf(trouble.text, sizeof trouble.text, "%s:%d: %s", file, line, condition);
}

// ---------------------------------------------------------------------------------------- helpers

void walk_begin(void) {
  // Use a file system in memory: a walk makes thousands of fdatasync calls, and their effect on a
  // real disk is not tested here.
  if (access("/dev/shm", W_OK) == 0) (void)setenv("TMPDIR", "/dev/shm", 0);
  is_full = getenv("QUERN_FAULTS_FULL") != NULL;
  if (!qn_test_tempdir_make(cache_root)) abort();
  for (unsigned i = 0; i < WALK_SAMPLES; i++) sample_make(&walk_samples[i], i, 50 + 900 * i);
}

void walk_end(void) {
  for (unsigned i = 0; i < WALK_SAMPLES; i++) sample_free(&walk_samples[i]);
  qn_test_tempdir_remove(cache_root);
}

void walk_remove_root(void) {
  qn_test_tempdir_remove(cache_root);
}

qn__disk_t* walk_open(qn_allocator_t allocator, const qn__disk_options_t* changes) {
  qn__disk_options_t options = {.sweep_period_ns = -1};
  if (changes) options = *changes;
  options.root = cache_root;
  options.allocator = allocator;
  qn__disk_t* disk;
  qn_status_t status = qn__disk_open(&options, &disk);
  WALK_CHECK((disk == NULL) == !qn_ok(status));
  qn_status_free(status);
  return disk;
}

qn__get_result_t walk_get(qn__disk_t* disk, const sample_t* sample) {
  qn__hit_t hit;
  qn__get_result_t result = qn__disk_get(disk, &sample->expected, &hit);
  if (result == QN__GET_HIT) {
    WALK_CHECK(sample_equals(sample, &hit.entry));
  } else {
    WALK_CHECK(hit.bytes == NULL);
  }
  qn__disk_hit_release(disk, &hit);
  return result;
}

void walk_put_samples(unsigned count) {
  qn__disk_t* disk = walk_open(qn_allocator_default(), NULL);
  for (unsigned i = 0; disk && i < count; i++) WALK_CHECK(put_and_wait(disk, &walk_samples[i]));
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

void walk_damage(const sample_t* sample) {
  char path[QN_TEST_PATH_SIZE + 64];
  entry_path(sample, path);
  WALK_CHECK(qn_test_write_file(path, "damaged", 7));
}

void walk_set_age(const char* path, int64_t age_s) {
  struct timespec now;
  (void)clock_gettime(CLOCK_REALTIME, &now);
  const struct timespec times[2] = {{now.tv_sec - age_s, 0}, {now.tv_sec - age_s, 0}};
  WALK_CHECK(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) == 0);
}

// ------------------------------------------------------------------------------------- invariants

static bool stop_never(void* self, const qn__disk_file_t* file) {
  (void)self;
  (void)file;
  return true;
}

// Checks the invariants after a run, with faults off.
static void check_directory(bool may_have_temporaries) {
  qn__disk_t* disk = walk_open(qn_allocator_default(), NULL);
  WALK_CHECK(disk != NULL);
  if (!disk) return;
  uint64_t temporaries = 0;
  WALK_CHECK(qn__disk_scan(disk, stop_never, NULL, &temporaries) == 0);
  WALK_CHECK(may_have_temporaries || temporaries == 0);
  for (unsigned i = 0; i < WALK_SAMPLES; i++) {
    // Entries that were damaged before may still be damaged, but no others.
    qn__get_result_t result = walk_get(disk, &walk_samples[i]);
    WALK_CHECK(result == QN__GET_HIT || result == QN__GET_ABSENT || result == QN__GET_BAD);
    if (i == 0 && current->keeps_bystander) WALK_CHECK(result == QN__GET_HIT);
  }
  WALK_CHECK(put_and_wait(disk, &walk_samples[1]));
  WALK_CHECK(walk_get(disk, &walk_samples[1]) == QN__GET_HIT);
  qn__disk_close(disk, WALK_PATIENCE_NS);
  // Leftovers of this run must not affect the next one.
  char path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(path, sizeof path, "%s/v1/tmp", cache_root);
  qn_test_tempdir_remove(path);
}

static void describe(const fault_t* fault, long n, char out[160]) {
  const char* when = fault->mode == QN_FAULT_ALWAYS ? "from call" : "call";
  switch (fault->class) {
    case CLASS_ERRNO:
      (void)snprintf(out, 160, "%s %ld says %s", when, n, strerrorname_np(fault->error));
      break;
    case CLASS_SHORT:
      (void)snprintf(out, 160, "%s %ld is short (%s)", when, n,
                     fault->kind == QN_FAULT_SHORT_READ ? "read" : "write");
      break;
    case CLASS_ALLOC:
      (void)snprintf(out, 160, "%s %ld of the allocator fails", when, n);
      break;
    case CLASS_KILL:
      (void)snprintf(out, 160, "killed before call %ld", n);
      break;
    case CLASS_STORM:
      (void)snprintf(out, 160, "storm %ld", n);
      break;
    case CLASS_COUNT:
      break;
  }
}

static void fail_on_trouble(const fault_t* fault, long n) {
  if (!trouble.is_set) return;
  char what[160] = "without faults";
  if (fault) describe(fault, n, what);
  fail_msg("%s, %s: %s", current->name, what, trouble.text);
}

// -------------------------------------------------------------------------------------- one run

// Waits until threads that a destroy abandoned on a slow machine have released their memory and
// files.
static void await_leftovers(const qn_fault_heap_t* heap) {
  for (int64_t end_ns = qn__now_ns() + WALK_PATIENCE_NS;
       (atomic_load(&heap->live_blocks) > 0 || qn_fault_fs_open_count() > 0) &&
       qn__now_ns() < end_ns;) {
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

// Runs the work with the fault in this process. Returns true if the fault occurred.
static bool run_here(const fault_t* fault, long n) {
  static qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  walk_is_memory = false;
  current->prepare();
  walk_is_memory = fault->class == CLASS_ALLOC;
  int descriptors = qn_test_descriptor_count();
  qn_fault_fs_install();
  if (fault->class == CLASS_ALLOC) {
    qn_fault_heap_arm(&heap, n, fault->mode);
  } else if (fault->class == CLASS_STORM) {
    qn_fault_fs_arm_storm((uint64_t)n, 3 + (uint32_t)n % 17);
  } else {
    qn_fault_fs_arm(n, fault->mode, fault->kind, fault->error);
  }
  current->work(qn_fault_heap_allocator(&heap));
  await_leftovers(&heap);
  bool has_struck = qn_fault_fs_failures() > 0 || heap.failure_count > 0;
  // A temporary file may stay only if its unlink failed.
  walk_may_leave = current->begins_with_leftover || qn_fault_fs_failures_of("unlink") > 0;
  WALK_CHECK(qn_fault_fs_open_count() == 0);
  WALK_CHECK(qn_fault_fs_calls_of("rmdir") == 0);  // other processes may use the folder
  qn_fault_fs_remove();
  WALK_CHECK(qn_test_descriptor_count() == descriptors);
  WALK_CHECK(heap.live_blocks == 0);
  WALK_CHECK(heap.size_errors == 0);
  walk_is_memory = false;
  check_directory(walk_may_leave);
  if (current->after) current->after();
  return has_struck;
}

// Runs the work in a child that is killed before its n-th call. Returns true if it was killed.
static bool run_in_child(long n) {
  walk_is_memory = false;
  current->prepare();
  (void)fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    qn_fault_fs_install();
    qn_fault_fs_arm(n, QN_FAULT_ONCE, QN_FAULT_KILL, 0);
    current->work(qn_allocator_default());
    if (trouble.is_set) (void)fprintf(stderr, "%s\n", trouble.text);
    _exit(trouble.is_set ? 1 : 0);
  }
  int status = 0;
  WALK_CHECK(child > 0 && waitpid(child, &status, 0) == child);
  bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  WALK_CHECK(is_killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
  walk_may_leave = true;
  check_directory(walk_may_leave);
  if (current->after) current->after();
  return is_killed;
}

static bool run(const fault_t* fault, long n) {
  walk_may_vanish =
      fault->class == CLASS_STORM || (fault->class == CLASS_ERRNO && fault->error == ENOENT);
  bool has_struck = fault->class == CLASS_KILL ? run_in_child(n) : run_here(fault, n);
  fail_on_trouble(fault, n);
  totals[total_count].runs[fault->class]++;
  return has_struck;
}

// Runs one fault at each call, or at a sample of the calls. `phase` shifts the sample, so that
// different faults hit different calls.
static void walk_fault(const fault_t* fault, long calls, long phase) {
  long stride = is_full || calls <= SAMPLE_CALLS ? 1 : calls / SAMPLE_CALLS;
  // The first calls, which open files, are always tested.
  for (long n = 1;; n += n < 8 ? 1 : stride) {
    long at = n <= 8 || stride == 1 ? n : n + phase % stride;
    if (!run(fault, at)) break;
    if (n > 20 * calls + 1000) fail_msg("%s calls without end", current->name);
  }
}

static long count_calls(void) {
  walk_is_memory = false;
  current->prepare();
  qn_fault_fs_install();
  qn_fault_fs_arm(0, QN_FAULT_ONCE, QN_FAULT_ERRNO, 0);
  current->work(qn_allocator_default());
  long calls = qn_fault_fs_calls();
  WALK_CHECK(qn_fault_fs_open_count() == 0);
  qn_fault_fs_remove();
  walk_may_leave = current->begins_with_leftover;
  check_directory(walk_may_leave);
  if (current->after) current->after();
  fail_on_trouble(NULL, 0);
  return calls;
}

void walk(const walk_operation_t* operation) {
  current = operation;
  trouble.is_set = false;
  totals[total_count].operation = operation->name;
  long calls = totals[total_count].calls = count_calls();
  size_t errno_count;
  const int* errnos = qn_fault_errnos(&errno_count);
  long phase = 0;
  for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
    for (size_t i = 0; i < errno_count; i++) {
      // For faults from the n-th call on, the check uses two errnos: ENOSPC switches writing off,
      // EIO does not.
      if (mode == QN_FAULT_ALWAYS && !is_full && errnos[i] != ENOSPC && errnos[i] != EIO) continue;
      walk_fault(&(fault_t){CLASS_ERRNO, (qn_fault_mode_t)mode, QN_FAULT_ERRNO, errnos[i]}, calls,
                 phase++);
    }
    walk_fault(&(fault_t){CLASS_SHORT, (qn_fault_mode_t)mode, QN_FAULT_SHORT_READ, 0}, 0, 0);
    walk_fault(&(fault_t){CLASS_SHORT, (qn_fault_mode_t)mode, QN_FAULT_SHORT_WRITE, 0}, 0, 0);
    walk_fault(&(fault_t){CLASS_ALLOC, (qn_fault_mode_t)mode, QN_FAULT_ERRNO, 0}, calls, phase++);
  }
  walk_fault(&(fault_t){CLASS_KILL, QN_FAULT_ONCE, QN_FAULT_KILL, 0}, calls, phase++);
  for (long seed = 1; seed <= STORMS * (is_full ? 40 : 1); seed++) {
    (void)run(&(fault_t){CLASS_STORM, QN_FAULT_ONCE, QN_FAULT_ERRNO, 0}, seed);
  }
  total_count++;
}

void walk_print_totals(void) {
  long sums[CLASS_COUNT] = {0}, all = 0;
  (void)printf("%-22s %6s", "operation", "calls");
  for (int i = 0; i < CLASS_COUNT; i++) (void)printf(" %8s", class_names[i]);
  (void)printf("\n");
  for (size_t t = 0; t < total_count; t++) {
    (void)printf("%-22s %6ld", totals[t].operation, totals[t].calls);
    for (int i = 0; i < CLASS_COUNT; i++) {
      (void)printf(" %8ld", totals[t].runs[i]);
      sums[i] += totals[t].runs[i];
      all += totals[t].runs[i];
    }
    (void)printf("\n");
  }
  (void)printf("%-22s %6s", "all", "");
  for (int i = 0; i < CLASS_COUNT; i++) (void)printf(" %8ld", sums[i]);
  (void)printf("\n%ld runs with a fault\n", all);
}
