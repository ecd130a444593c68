// SPDX-License-Identifier: Apache-2.0
// tests/faults/test_manners.c: tests whole engines in difficult environments: forks at every stage
// of a lookup, exit with queued work, directories that are wiped, full, read-only, slow, on NFS, in
// an overlay, or shared by two PID namespaces.
//
// Every lookup must succeed, every call must give the right results, and nothing may hang. The time
// limit for a hang is long enough for slow machines. A test is skipped, with a message, where the
// machine forbids mount or unshare. Forks during operations of the directory alone:
// tests/unit/cache/test_shared.c.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/thread.h"
#include "quern/cache.h"
#include "tests/faults/kernels.h"
#include "tests/faults/nfs.h"
#include "tests/support/fault.h"
#include "tests/support/sanitized.h"
#include "tests/unit/cache/support.h"

#define PATIENCE_SECONDS 600
#define PATIENCE_NS (PATIENCE_SECONDS * INT64_C(1000000000))
#define MODULES 12u

// ---------------------------------------------------------------------------------------- helpers

static qn_engine_t* make_engine(const char* directory) {
  const qn_setting_t settings[] = {{"lock_timeout", "2s"}, {"cache_min_free", "1"}};
  return kernel_engine((qn_allocator_t){0}, directory, settings, QN_COUNT_OF(settings));
}

// Looks modules 0 to `count` up and calls them. Returns the number of failures.
static int look_up_many(qn_engine_t* engine, unsigned count) {
  int failures = 0;
  for (unsigned i = 0; i < count; i++) {
    qn_status_t status = kernel_look_up(engine, i, "interp", NULL, NULL);
    if (!qn_ok(status)) (void)fprintf(stderr, "module %u: %s\n", i, qn_status_message(status));
    failures += qn_status_consume(status) != QN_STATUS_OK;
  }
  return failures;
}

// Creates an engine, makes some lookups and destroys it. Returns 0 on success.
static int live(const char* directory) {
  qn_engine_t* engine = make_engine(directory);
  if (!engine) return 100;
  int failures = look_up_many(engine, MODULES);
  (void)qn_engine_flush(engine, PATIENCE_NS);
  failures += look_up_many(engine, MODULES);
  qn_engine_destroy(engine);
  return failures;
}

// Runs `work` in a child and kills it after a time limit. Returns its exit status, or 1000 plus the
// signal.
static int in_child(int (*work)(void* self), void* self) {
  (void)fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)alarm(PATIENCE_SECONDS);
    _exit(work(self));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void assert_all_whole(const char* directory, uint64_t at_least) {
  qn_cache_dir_t* dir;
  qn_cache_verify_report_t report = {.struct_size = sizeof report};
  assert_true(qn_ok(qn_cache_dir_open(directory, &dir)));
  assert_true(qn_ok(qn_cache_dir_verify(dir, false, NULL, NULL, &report)));
  assert_int_equal(report.bad_count, 0);
  assert_int_equal(report.unreadable_count, 0);
  assert_true(report.good_count >= at_least);
  qn_cache_dir_close(dir);
}

// ------------------------------------------------------------------------------ forks, by stages

// Blocks the first file call `call` on a path that contains `part` until the gate opens.
static struct {
  const char* call;
  const char* part;
  pid_t pid;
  _Atomic bool is_met, is_open;
} gate;

static void hold_at_gate(void* self, const char* call, const char* path) {
  (void)self;
  if (getpid() != gate.pid || strcmp(call, gate.call) != 0 || !strstr(path, gate.part)) return;
  if (atomic_exchange(&gate.is_met, true)) return;
  while (!gate.is_open) usleep(200);
}

typedef struct lookup {
  qn_engine_t* engine;
  unsigned number;
  qn_status_t status;
} lookup_t;

static void* look_up(void* arg) {
  lookup_t* lookup = arg;
  lookup->status = kernel_look_up(lookup->engine, lookup->number, "interp", NULL, NULL);
  return NULL;
}

static int use_in_child(void* self) {
  qn_engine_t* engine = self;
  // Three keys: one in flight in the parent, one that the parent has loaded, and a new one.
  static const unsigned numbers[] = {0, 7, 9};
  for (size_t i = 0; i < QN_COUNT_OF(numbers); i++) {
    qn_status_t status = kernel_look_up(engine, numbers[i], "interp", NULL, NULL);
    if (!qn_ok(status)) return 10 + (int)i;
  }
  if (!qn_engine_flush(engine, PATIENCE_NS)) return 20;
  qn_engine_destroy(engine);
  return 0;
}

static void forks_at_every_stage(void** state) {
  (void)state;
  if (IS_SANITIZED) skip();  // sanitizers: no threads or allocations in a threaded process's child
  static const struct {
    const char* call;
    const char* part;
  } stages[] = {
      {"open", ".k"},       // a lookup in the directory
      {"open", "lock"},     // a claim
      {"try_lock", ""},     // a claim before it is locked
      {"unlock", ""},       // a claim after its entry was published
      {"open", "/tmp/"},    // a publish
      {"write", ""},        //
      {"fdatasync", ""},    //
      {"rename", ".k"},     //
      {"opendir", "/v1/"},  // a sweep
      {"readdir", ""},      //
  };
  for (size_t i = 0; i < QN_COUNT_OF(stages); i++) {
    qn_test_tempdir_remove(cache_root);
    qn_engine_t* engine = make_engine(cache_root);
    assert_non_null(engine);
    assert_int_equal(qn_status_consume(kernel_look_up(engine, 7, "interp", NULL, NULL)), 0);
    assert_true(qn_engine_flush(engine, PATIENCE_NS));
    gate.call = stages[i].call;
    gate.part = stages[i].part;
    gate.pid = getpid();
    gate.is_met = gate.is_open = false;
    qn_fault_fs_install();
    qn_fault_fs_hook(hold_at_gate, NULL);
    lookup_t lookup = {.engine = engine};
    pthread_t thread;
    assert_true(qn_ok(qn__thread_start(&thread, "lookup", 0, look_up, &lookup)));
    // A sweep runs once an hour, so the last stages may not occur again. All others must.
    int64_t deadline_ns = qn__now_ns() + (i < 8 ? PATIENCE_NS : INT64_C(50000000));
    while (!gate.is_met && qn__now_ns() < deadline_ns) usleep(200);
    if (i < 8 && !gate.is_met) fail_msg("no %s of %s", stages[i].call, stages[i].part);
    int result = in_child(use_in_child, engine);
    if (result) fail_msg("at %s of '%s' the child ends with %d", gate.call, gate.part, result);
    gate.is_open = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (!qn_ok(lookup.status)) fail_msg("%s", qn_status_message(lookup.status));
    assert_true(qn_engine_flush(engine, PATIENCE_NS));
    qn_engine_destroy(engine);
    qn_fault_fs_remove();
    assert_all_whole(cache_root, 2);
  }
}

// Runs in the middle of a compile, because it is a callback of the generator.
static _Atomic int compiles_heard;
static void hold_compile(void* self, const qn_compile_event_t* event) {
  (void)self;
  (void)event;
  if (getpid() != gate.pid) return;
  compiles_heard++;
  gate.is_met = true;
  while (!gate.is_open) usleep(200);
}

static void forks_while_compiling(void** state) {
  (void)state;
  if (IS_SANITIZED) skip();
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = cache_root,
                                 .ignores_environment = true,
                                 .on_compile = hold_compile};
  qn_engine_t* engine;
  gate.pid = getpid();
  gate.is_met = gate.is_open = false;
  assert_true(qn_ok(qn_engine_create(&options, &engine)));
  lookup_t lookup = {.engine = engine};
  pthread_t thread;
  assert_true(qn_ok(qn__thread_start(&thread, "lookup", 0, look_up, &lookup)));
  while (!gate.is_met) usleep(200);
  assert_int_equal(in_child(use_in_child, engine), 0);
  gate.is_open = true;
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_true(qn_ok(lookup.status));
  qn_engine_destroy(engine);
  assert_int_equal(compiles_heard, 1);
}

// ------------------------------------------------------------------------------------ exit, pairs

static int leave_with_a_queue(void* self) {
  qn_engine_t* engine = make_engine(cache_root);
  if (!engine || look_up_many(engine, MODULES)) return 1;
  if (*(int*)self % 2) qn_engine_destroy(engine);
  exit(0);
}

static void exit_with_a_queue(void** state) {
  (void)state;
  for (int i = 0; i < 6; i++) {
    assert_int_equal(in_child(leave_with_a_queue, &i), 0);
    // qn_engine_destroy waits for the queue. An exit without it drops the queue.
    assert_all_whole(cache_root, i ? MODULES : 0);
    if (i % 2 == 0) assert_int_equal(live(cache_root), 0);
  }
}

static void two_engines_on_one_directory(void** state) {
  (void)state;
  qn_engine_t* one = make_engine(cache_root);
  qn_engine_t* two = make_engine(cache_root);
  qn_source_t source;
  for (unsigned i = 0; i < MODULES; i++) {
    assert_true(qn_ok(kernel_look_up(i % 2 ? one : two, i, "interp", NULL, &source)));
    assert_int_equal(source, QN_SOURCE_COMPILED);
    assert_true(qn_engine_flush(i % 2 ? one : two, PATIENCE_NS));
    assert_true(qn_ok(kernel_look_up(i % 2 ? two : one, i, "interp", NULL, &source)));
    assert_int_equal(source, QN_SOURCE_DISK);
  }
  qn_engine_destroy(one);
  // Entries that one engine published and the other loaded stay valid after the first is destroyed.
  assert_int_equal(look_up_many(two, MODULES), 0);
  qn_engine_destroy(two);
  assert_all_whole(cache_root, MODULES);
}

static _Atomic bool is_wiping;
static void* wipe(void* arg) {
  (void)arg;
  while (is_wiping) {
    qn_test_tempdir_remove(cache_root);
    usleep(300);
  }
  return NULL;
}

static void wiped_while_in_use(void** state) {
  (void)state;
  is_wiping = true;
  pthread_t wiper;
  assert_true(qn_ok(qn__thread_start(&wiper, "wiper", 0, wipe, NULL)));
  int failures = 0;
  for (int i = 0; i < 12; i++) failures += live(cache_root);
  is_wiping = false;
  assert_int_equal(pthread_join(wiper, NULL), 0);
  assert_int_equal(failures, 0);
  assert_int_equal(live(cache_root), 0);
  assert_all_whole(cache_root, MODULES);
}

// ------------------------------------------------------------------------------------ limits, time

static int live_with_small_files(void* self) {
  (void)self;
  struct rlimit small = {100, 100};
  if (setrlimit(RLIMIT_FSIZE, &small) != 0) return 90;
  return live(cache_root);
}

// Checks that the cache does not cause SIGXFSZ: without a handler, this signal ends a process that
// writes beyond its limit.
static void files_may_not_grow(void** state) {
  (void)state;
  assert_int_equal(in_child(live_with_small_files, NULL), 0);
  assert_all_whole(cache_root, 0);
}

static int live_without_descriptors(void* self) {
  (void)self;
  struct rlimit none = {0, 0};
  int highest = open("/dev/null", O_RDONLY | O_CLOEXEC);
  none.rlim_cur = none.rlim_max = (rlim_t)highest;
  (void)close(highest);
  if (setrlimit(RLIMIT_NOFILE, &none) != 0) return 90;
  return live(cache_root);
}

static void no_descriptor_is_left(void** state) {
  (void)state;
  assert_int_equal(in_child(live_without_descriptors, NULL), 0);
}

static void be_slow(void* self, const char* call, const char* path) {
  (void)self;
  (void)call;
  (void)path;
  usleep(3000);
}

static void slow(void** state) {
  (void)state;
  qn_fault_fs_install();
  qn_fault_fs_hook(be_slow, NULL);
  assert_int_equal(live(cache_root), 0);
  qn_fault_fs_remove();
}

// Checks that a hanging file system does not block a lookup with a timeout, whether it begins to
// hang before or during the lookup.
static void hanging(void** state) {
  (void)state;
  qn_engine_t* engine = make_engine(cache_root);
  gate.call = "open";
  gate.part = ".k";
  gate.pid = getpid();
  gate.is_met = gate.is_open = false;
  qn_fault_fs_install();
  qn_fault_fs_hook(hold_at_gate, NULL);
  qn_lookup_options_t options = {.struct_size = sizeof options, .time_limit_ns = 20000000};
  // Each lookup returns although no file was opened. On a busy machine the first ones may return
  // before any thread reaches the file; the last one begins when the file hangs.
  for (bool is_met = false; !is_met;) {
    is_met = gate.is_met;
    qn_status_t status = kernel_look_up(engine, 0, "interp", &options, NULL);
    assert_int_equal(qn_status_consume(status), QN_STATUS_DEADLINE_EXCEEDED);
  }
  assert_false(gate.is_open);
  gate.is_open = true;
  assert_int_equal(look_up_many(engine, MODULES), 0);
  qn_engine_destroy(engine);
  qn_fault_fs_remove();
}

static void nfs(void** state) {
  (void)state;
  static const char* const manners[] = {"negative", "silly", "stale", "repeated", "late"};
  for (uint64_t seed = 1; seed <= 12; seed++) {
    nfs_install(seed);
    for (int i = 0; i < 4; i++) {
      assert_int_equal(live(cache_root), 0);
      // Put over entries that another object of this client has open.
      qn__disk_t* disk = open_cache(&(qn__disk_options_t){.max_entries = 4});
      if (!disk) continue;
      for (unsigned j = 0; j < 8; j++) {
        sample_t sample;
        sample_make(&sample, j % 3, 5000);
        (void)qn__disk_put(disk, &sample.entry, NULL);
        for (int k = 0; k < 4; k++) {
          qn__hit_t hit;
          if (qn__disk_get(disk, &sample.expected, &hit) == QN__GET_HIT) {
            assert_true(sample_equals(&sample, &hit.entry));
          }
          qn__disk_hit_release(disk, &hit);
        }
        sample_free(&sample);
      }
      (void)qn__disk_flush(disk, PATIENCE_NS);
      (void)qn__disk_sweep(disk);
      qn__disk_close(disk, PATIENCE_NS);
    }
    nfs_remove();
    assert_int_equal(live(cache_root), 0);
    assert_all_whole(cache_root, 1);
  }
  nfs_print();
  for (size_t i = 0; i < QN_COUNT_OF(manners); i++) {
    if (strcmp(manners[i], "silly") != 0) assert_true(nfs_count(manners[i]) > 0);
  }
}

// ------------------------------------------------------------------------ mounts and namespaces

enum { CANNOT = 77 };

// Moves the child into a new mount namespace. Returns false where the machine forbids that.
static bool enter_mount_namespace(void) {
  if (unshare(CLONE_NEWNS) != 0) return false;
  return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static void run_or_skip(int (*work)(void* self), const char* what) {
  int result = in_child(work, NULL);
  if (result == CANNOT) {
    (void)printf("skipped: this machine does not let a test mount (%s)\n", what);
    skip();
  }
  assert_int_equal(result, 0);
}

static int live_on_full_file_system(void* self) {
  (void)self;
  if (!enter_mount_namespace()) return CANNOT;
  if (mount("none", cache_root, "tmpfs", MS_NOSUID, "size=64k,mode=700") != 0) return CANNOT;
  char path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(path, sizeof path, "%s/filler", cache_root);
  static uint8_t bytes[64 << 10];
  for (size_t size = sizeof bytes; size >= 4096; size -= 4096) {
    if (qn_test_write_file(path, bytes, size)) break;
    (void)unlink(path);
  }
  int failures = live(cache_root);
  // There is room again, so the next process writes.
  (void)unlink(path);
  failures += live(cache_root);
  qn_engine_t* engine = make_engine(cache_root);
  qn_source_t source = QN_SOURCE_COMPILED;
  failures += qn_status_consume(kernel_look_up(engine, 0, "interp", NULL, &source)) != QN_STATUS_OK;
  failures += source != QN_SOURCE_DISK;
  qn_engine_destroy(engine);
  return failures;
}

static void full(void** state) {
  (void)state;
  run_or_skip(live_on_full_file_system, "a tmpfs");
}

static int live_on_read_only_file_system(void* self) {
  (void)self;
  if (!enter_mount_namespace()) return CANNOT;
  if (mount("none", cache_root, "tmpfs", MS_NOSUID, "mode=700") != 0) return CANNOT;
  if (live(cache_root) != 0) return 1;
  if (mount("none", cache_root, NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0) return CANNOT;
  int failures = live(cache_root);
  // Existing entries are found; missing ones are compiled.
  qn_engine_t* engine = make_engine(cache_root);
  qn_source_t source = QN_SOURCE_COMPILED;
  failures += qn_status_consume(kernel_look_up(engine, 0, "interp", NULL, &source)) != QN_STATUS_OK;
  failures += source != QN_SOURCE_DISK;
  failures += look_up_many(engine, MODULES + 4);
  qn_engine_destroy(engine);
  return failures;
}

static void read_only(void** state) {
  (void)state;
  run_or_skip(live_on_read_only_file_system, "a read-only tmpfs");
}

// A container image ships a filled directory as the lower layer. New entries go to the upper layer,
// if there is one.
static int live_on_overlay(void* self) {
  (void)self;
  static const char* const names[] = {"lower", "upper", "work", "merged"};
  char paths[4][QN_TEST_PATH_SIZE + 16], options[3 * QN_TEST_PATH_SIZE + 100];
  if (!enter_mount_namespace()) return CANNOT;
  if (mount("none", cache_root, "tmpfs", MS_NOSUID, "mode=700") != 0) return CANNOT;
  for (size_t i = 0; i < QN_COUNT_OF(names); i++) {
    (void)snprintf(paths[i], sizeof paths[i], "%s/%s", cache_root, names[i]);
    if (mkdir(paths[i], 0700) != 0) return 2;
  }
  if (live(paths[0]) != 0) return 3;
  (void)snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s", paths[0], paths[1],
                 paths[2]);
  if (mount("overlay", paths[3], "overlay", 0, options) != 0) return CANNOT;
  int failures = 0;
  for (int is_read_only = 0; is_read_only <= 1; is_read_only++) {
    qn_engine_t* engine = make_engine(paths[3]);
    qn_source_t source = QN_SOURCE_COMPILED;
    failures +=
        qn_status_consume(kernel_look_up(engine, 0, "interp", NULL, &source)) != QN_STATUS_OK;
    failures += source != QN_SOURCE_DISK;
    // New entries, and entries of the lower layer that are replaced, copied up, swept and removed.
    failures += look_up_many(engine, MODULES + 3);
    (void)qn_engine_flush(engine, PATIENCE_NS);
    qn_engine_destroy(engine);
    qn__disk_t* disk;
    qn_status_t status = qn__disk_open(
        &(qn__disk_options_t){.root = paths[3], .max_entries = 5, .sweep_period_ns = -1}, &disk);
    failures += !qn_ok(status);
    qn_status_free(status);
    if (disk) (void)qn__disk_sweep(disk);
    qn__disk_close(disk, PATIENCE_NS);
    failures += live(paths[3]);
    if (!is_read_only && mount("none", paths[3], NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0) break;
  }
  // The lower layer is unchanged.
  qn_engine_t* engine = make_engine(paths[0]);
  qn_source_t source = QN_SOURCE_COMPILED;
  failures += qn_status_consume(kernel_look_up(engine, 0, "interp", NULL, &source)) != QN_STATUS_OK;
  failures += source != QN_SOURCE_DISK;
  qn_engine_destroy(engine);
  return failures;
}

static void overlay(void** state) {
  (void)state;
  run_or_skip(live_on_overlay, "an overlay");
}

static int work_as_first_process(void* self) {
  (void)self;
  if (getpid() != 1) return CANNOT;
  int failures = 0;
  for (int i = 0; i < 20; i++) {
    failures += live(cache_root);
    qn__disk_t* disk = open_cache(&(qn__disk_options_t){.sweep_period_ns = -1});
    if (disk && i % 5 == 0) (void)qn__disk_clear(disk);
    qn__disk_close(disk, PATIENCE_NS);
  }
  return failures;
}

static int work_in_pid_namespace(void* self) {
  if (unshare(CLONE_NEWPID) != 0) return CANNOT;
  return in_child(work_as_first_process, self);
}

// Two containers on one volume: every process in them has the process id 1.
static void two_pid_namespaces(void** state) {
  (void)state;
  pid_t children[2];
  for (size_t i = 0; i < 2; i++) {
    (void)fflush(NULL);
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0) {
      (void)alarm(PATIENCE_SECONDS);
      _exit(work_in_pid_namespace(NULL));
    }
  }
  int results[2];
  for (size_t i = 0; i < 2; i++) {
    int status = 0;
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    results[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
  }
  if (results[0] == CANNOT || results[1] == CANNOT) {
    (void)printf("skipped: this machine does not let a test make a PID namespace\n");
    skip();
  }
  assert_int_equal(results[0], 0);
  assert_int_equal(results[1], 0);
  assert_all_whole(cache_root, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, cache_set_up, cache_tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(forks_at_every_stage),
      TEST(forks_while_compiling),
      TEST(exit_with_a_queue),
      TEST(two_engines_on_one_directory),
      TEST(wiped_while_in_use),
      TEST(files_may_not_grow),
      TEST(no_descriptor_is_left),
      TEST(slow),
      TEST(hanging),
      TEST(nfs),
      TEST(full),
      TEST(read_only),
      TEST(overlay),
      TEST(two_pid_namespaces),
  };
  if (access("/dev/shm", W_OK) == 0) (void)setenv("TMPDIR", "/dev/shm", 0);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
