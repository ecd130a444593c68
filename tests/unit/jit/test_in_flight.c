// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// Tests concurrent lookups of one engine: a lookup that may not compile must not spoil one that
// may, and a child of fork must not inherit a locked generator lock.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "quern/quern.h"
#include "tests/support/fault.h"
#include "tests/unit/jit/support_gate.h"

static const char text[] = "func one(out y: i32[n]) { for i in 0..n { y[i] = 1; } }\n";

// Blocks the first file call `call` on a path that contains `part` until the other thread or
// process has started.
static struct {
  const char* call;
  const char* part;
  _Atomic bool is_met;
  _Atomic bool is_other_there;
} gate;

static void set_gate(const char* call, const char* part) {
  gate.call = call;
  gate.part = part;
  gate.is_met = gate.is_other_there = false;
}
static void hold_at_gate(void* self, const char* call, const char* path) {
  (void)self;
  if (strcmp(call, gate.call) != 0 || !strstr(path, gate.part)) return;
  if (atomic_exchange(&gate.is_met, true)) return;
  // The second sleep lets the other thread reach its lock, which cannot be observed from here. If
  // it is too short, the test covers less but never fails.
  for (int i = 0; i < 10000 && !gate.is_other_there; i++) usleep(1000);
  usleep(200000);
}
static void await_gate(void) {
  while (!gate.is_met) usleep(100);
}

typedef struct lookup {
  pthread_t thread;
  qn_engine_t* engine;
  qn_module_t* module;
  const char* target;
  qn_miss_policy_t miss;
  bool is_other;
  qn_status_t status;
} lookup_t;

static void* look_up(void* arg) {
  lookup_t* lookup = arg;
  qn_target_t* target;
  lookup->status = qn_target_parse(lookup->target, &target);
  if (!qn_ok(lookup->status)) return NULL;
  if (lookup->is_other) gate.is_other_there = true;
  qn_lookup_options_t options = {.struct_size = sizeof options, .miss = lookup->miss};
  qn_executable_t* executable;
  lookup->status =
      qn_engine_executable(lookup->engine, lookup->module, target, &options, NULL, &executable);
  qn_executable_release(executable);
  qn_target_release(target);
  return NULL;
}
static void start(lookup_t* lookup) {
  must(qn__thread_start(&lookup->thread, "lookup", 0, look_up, lookup));
}
static void join(lookup_t* lookup) {
  assert_int_equal(pthread_join(lookup->thread, NULL), 0);
}

typedef struct fixture {
  char directory[QN_TEST_PATH_SIZE];
  qn_engine_t* engine;
  qn_module_t* module;
} fixture_t;

static int set_up(void** state) {
  fixture_t* f = calloc(1, sizeof *f);
  assert_non_null(f);
  assert_true(qn_test_tempdir_make(f->directory));
  // A folder that is searched, and holds no generator.
  char generators[QN_TEST_PATH_SIZE + 8];
  (void)snprintf(generators, sizeof generators, "%s:none", f->directory);
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = f->directory,
                                 .generator_dir = generators,
                                 .ignores_environment = true};
  must(qn_engine_create(&options, &f->engine));
  must(qn_module_parse(text, sizeof text - 1, NULL, &f->module));
  qn_fault_fs_install();
  qn_fault_fs_hook(hold_at_gate, NULL);
  *state = f;
  return 0;
}
static int tear_down(void** state) {
  fixture_t* f = *state;
  qn_module_release(f->module);
  qn_engine_destroy(f->engine);  // joins the writer thread, which calls the hook
  qn_fault_fs_hook(NULL, NULL);
  qn_fault_fs_remove();
  qn_test_tempdir_remove(f->directory);
  free(f);
  return 0;
}

static void test_forbidden_beside_allowed(void** state) {
  fixture_t* f = *state;
  lookup_t forbidden = {
      .engine = f->engine, .module = f->module, .target = "interp", .miss = QN_MISS_FAIL};
  lookup_t allowed = {
      .engine = f->engine, .module = f->module, .target = "interp", .is_other = true};
  // The compile blocks until the forbidden lookup has returned. Otherwise that lookup could find
  // the compiled code.
  gate_t compiles = {.is_open = false};
  must(qn__mutex_init(&compiles.mutex));
  must(qn__cond_init(&compiles.moved));
  gate_install(&compiles, f->engine);
  set_gate("open", ".k");
  start(&forbidden);
  await_gate();
  start(&allowed);
  join(&forbidden);
  gate_set(&compiles, true);
  join(&allowed);
  qn__mutex_deinit(&compiles.mutex);
  qn__cond_deinit(&compiles.moved);
  assert_int_equal(qn_status_consume(forbidden.status), QN_STATUS_COMPILE_FORBIDDEN);
  must(allowed.status);
}

static void test_fork_while_a_generator_is_looked_for(void** state) {
#if defined(__SANITIZE_THREAD__)
  skip();  // ThreadSanitizer treats a lock that the child re-initialised as still held
#endif
  fixture_t* f = *state;
  lookup_t missing = {.engine = f->engine, .module = f->module, .target = "cpu"};
  lookup_t in_child = {.engine = f->engine, .module = f->module, .target = "interp"};
  set_gate("lstat", "libquern-");
  start(&missing);
  await_gate();
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)alarm(600);  // ends a child that hangs on a lock inherited from the parent
    (void)look_up(&in_child);
    _exit(qn_ok(in_child.status) ? 0 : 1);
  }
  gate.is_other_there = true;
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  join(&missing);
  assert_int_equal(qn_status_consume(missing.status), QN_STATUS_UNAVAILABLE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_forbidden_beside_allowed, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_fork_while_a_generator_is_looked_for, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
