// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// Tests qn_warm in a program with its own threads and children: outcomes, cancelling, invalid
// workers, and cleanup. The worker is this program itself; WARM_TEST_WORKER selects its behaviour.
// tests/cli/test_warm.sh tests the command.
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "quern/quern.h"
#include "quern/warm.h"
#include "tests/support/engine.h"
#include "tests/support/fault.h"
#include "tests/support/tempdir.h"
#include "warm/message.h"

// ------------------------------------------------------------------------------------ the worker

static void say(const qn__warm_message_t* message) {
  qn__warm_bytes_t frame = {.allocator = qn_allocator_default()};
  qn__warm_message_encode(message, &frame);
  (void)!write(STDIN_FILENO, frame.data, frame.size);
  qn__warm_bytes_deinit(&frame);
}

static void say_ready(void) {
  qn__warm_message_t ready = {.kind = QN__WARM_READY,
                              .protocol = QN__WARM_PROTOCOL,
                              .version = qn__warm_span(qn_version())};
  say(&ready);
}

// Reads what is there, so that the coordinator's job has come.
static void hear(void) {
  char data[1 << 16];
  (void)!read(STDIN_FILENO, data, sizeof data);
}

static int run_worker(void) {
  const char* how = getenv("WARM_TEST_WORKER");
  if (!how || strcmp(how, "good") == 0) {
    return qn_status_consume(qn_warm_worker(STDIN_FILENO)) == QN_STATUS_OK ? 0 : 1;
  }
  if (strcmp(how, "exit") == 0) {
    fprintf(stderr, "error while loading shared libraries\n");
    return 127;
  }
  if (strcmp(how, "noise") == 0) {
    (void)!write(STDIN_FILENO, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    (void)poll(NULL, 0, 20000);
    return 0;
  }
  hear();
  if (strcmp(how, "broken") == 0) {
    qn__warm_message_t broken = {.kind = QN__WARM_BROKEN,
                                 .code = QN_STATUS_PERMISSION_DENIED,
                                 .text = qn__warm_span("no room here")};
    say(&broken);
    return 1;
  }
  if (strcmp(how, "leave") == 0) {
    while (access(getenv("WARM_TEST_GO"), F_OK) != 0) (void)poll(NULL, 0, 1);
  }
  say_ready();
  if (strcmp(how, "leave") == 0) return 0;
  if (strcmp(how, "flood") == 0) {
    static const char noise[1 << 16] = "noise";
    for (;;) (void)!write(STDERR_FILENO, noise, sizeof noise);
  }
  if (strcmp(how, "deaf") == 0) {
    for (;;) (void)poll(NULL, 0, 1000);
  }
  hear();
  if (strcmp(how, "die") == 0) (void)raise(SIGKILL);
  if (strcmp(how, "close") == 0) {
    (void)close(STDIN_FILENO);
    for (;;) (void)poll(NULL, 0, 1000);
  }
  if (strcmp(how, "other") == 0) {
    qn__warm_message_t result = {.kind = QN__WARM_RESULT, .id = 12345, .outcome = QN_WARM_COMPILED};
    say(&result);
    for (;;) (void)poll(NULL, 0, 1000);
  }
  return 0;
}

// ------------------------------------------------------------------------------------ the program

typedef struct fixture {
  char directory[QN_TEST_PATH_SIZE];
  qn_engine_t* engine;
  qn_warm_list_t* list;
} fixture_t;

static void add_function(qn_warm_list_t* list, unsigned number) {
  char text[128];
  int size =
      snprintf(text, sizeof text, "func f_%u(out y: i32[n]) { for i in 0..n { y[i] = %u; } }\n",
               number, number);
  qn_module_t* module;
  qn_target_t* target;
  must(qn_module_parse(text, (size_t)size, NULL, &module));
  must(qn_target_parse("interp", &target));
  must(qn_warm_list_add(list, module, target, NULL));
  qn_target_release(target);
  qn_module_release(module);
}

static qn_engine_t* make_engine(const char* directory, qn_cache_mode_t mode) {
  return must_engine((qn_engine_options_t){.cache_dir = directory, .cache_mode = mode});
}

static int set_up(void** state) {
  fixture_t* f = calloc(1, sizeof *f);
  assert_non_null(f);
  assert_true(qn_test_tempdir_make(f->directory));
  f->engine = make_engine(f->directory, QN_CACHE_RW);
  must(qn_warm_list_create(&f->list));
  (void)unsetenv("WARM_TEST_WORKER");
  *state = f;
  return 0;
}
static int tear_down(void** state) {
  fixture_t* f = *state;
  qn_warm_list_destroy(f->list);
  qn_engine_destroy(f->engine);
  qn_test_tempdir_remove(f->directory);
  free(f);
  return 0;
}

typedef struct heard {
  size_t items;
  size_t outcomes[QN_WARM_OUTCOME_COUNT];
  size_t stop_after;  // items; 0: never
  bool is_lax;        // without memory there may be no key
  const char* go;     // the callback makes this file until the worker, if there is one, is gone
  char error[256];
} heard_t;

static bool on_progress(void* self, const qn_warm_result_t* progress, const qn_warm_item_t* item) {
  heard_t* heard = self;
  assert_true(progress->done <= progress->total);
  if (item) {
    heard->items++;
    heard->outcomes[item->outcome]++;
    if (!heard->is_lax) {
      assert_int_equal(strlen(item->key.hex), 32);
      assert_non_null(strstr(item->name, "f_"));
    }
    if (item->error[0]) (void)snprintf(heard->error, sizeof heard->error, "%s", item->error);
  } else if (heard->go) {
    assert_true(qn_test_write_file(heard->go, "", 0));
    siginfo_t info;
    (void)waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
    assert_int_equal(unlink(heard->go), 0);
  }
  return heard->stop_after == 0 || heard->items < heard->stop_after;
}

static qn_warm_options_t options_with(heard_t* heard) {
  return (qn_warm_options_t){.struct_size = sizeof(qn_warm_options_t),
                             .jobs = 3,
                             .command = "/proc/self/exe",
                             .on_progress = on_progress,
                             .on_progress_self = heard};
}

// Checks that no child is left, and no more descriptors than before.
static void check_nothing_left(int descriptor_count) {
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(qn_test_descriptor_count(), descriptor_count);
}

static void test_all_become_warm(void** state) {
  fixture_t* f = *state;
  for (unsigned i = 0; i < 60; i++) add_function(f->list, i % 50);  // ten of them twice
  assert_int_equal(qn_warm_list_count(f->list), 50);
  int descriptor_count = qn_test_descriptor_count();
  heard_t heard = {0};
  qn_warm_options_t options = options_with(&heard);
  qn_warm_result_t result = {.struct_size = sizeof result};
  must(qn_warm(f->engine, f->list, &options, &result));
  assert_true(result.is_warm);
  assert_int_equal(heard.items, 50);
  assert_int_equal(result.counts[QN_WARM_COMPILED], 50);
  assert_int_equal(result.worker_count, 3);
  assert_true(result.rate_per_s > 0 && result.eta_ns == 0);
  check_nothing_left(descriptor_count);
  // The entries are those that the engine finds.
  must(qn_warm(f->engine, f->list, NULL, &result));
  assert_int_equal(result.counts[QN_WARM_CACHED], 50);
  assert_int_equal(result.worker_count, 0);
}

static void test_dry_run_and_modes(void** state) {
  fixture_t* f = *state;
  add_function(f->list, 1);
  heard_t heard = {0};
  qn_warm_options_t options = options_with(&heard);
  options.is_dry_run = true;
  qn_warm_result_t result = {.struct_size = sizeof result};
  must(qn_warm(f->engine, f->list, &options, &result));
  assert_int_equal(heard.outcomes[QN_WARM_SKIPPED], 1);
  assert_false(result.is_warm);
  assert_int_equal(result.worker_count, 0);
  options.is_dry_run = false;
  qn_engine_t* reader = make_engine(f->directory, QN_CACHE_RO);
  qn_engine_t* off = make_engine(f->directory, QN_CACHE_OFF);
  assert_int_equal(qn_status_consume(qn_warm(reader, f->list, &options, &result)),
                   QN_STATUS_FAILED_PRECONDITION);
  assert_int_equal(qn_status_consume(qn_warm(off, f->list, &options, &result)),
                   QN_STATUS_FAILED_PRECONDITION);
  assert_int_equal(qn_status_consume(qn_warm(f->engine, NULL, &options, &result)),
                   QN_STATUS_INVALID_ARGUMENT);
  options.struct_size = 0;
  assert_int_equal(qn_status_consume(qn_warm(f->engine, f->list, &options, NULL)),
                   QN_STATUS_INVALID_ARGUMENT);
  qn_engine_destroy(reader);
  qn_engine_destroy(off);
  // What is there is made again when the mode says so.
  qn_engine_t* refresh = make_engine(f->directory, QN_CACHE_REFRESH);
  options = options_with(&heard);
  options.time_limit_ns = INT64_MAX;
  for (int i = 0; i < 2; i++) {
    must(qn_warm(refresh, f->list, &options, &result));
    assert_int_equal(result.counts[QN_WARM_COMPILED], 1);
  }
  qn_engine_destroy(refresh);
}

// Checks that no item is done and each callback gets the reason.
static void check_no_worker(fixture_t* f, const char* command, const char* how,
                            qn_status_code_t code, const char* text) {
  (void)setenv("WARM_TEST_WORKER", how, 1);
  int descriptor_count = qn_test_descriptor_count();
  char go[QN_TEST_PATH_SIZE + 8];
  (void)snprintf(go, sizeof go, "%s/go", f->directory);
  bool leaves = strcmp(how, "leave") == 0;
  (void)setenv("WARM_TEST_GO", go, 1);
  heard_t heard = {.go = leaves ? go : NULL};
  qn_warm_options_t options = options_with(&heard);
  if (leaves) options.jobs = 1;
  options.command = command;
  qn_warm_result_t result = {.struct_size = sizeof result};
  qn_status_t status = qn_warm(f->engine, f->list, &options, &result);
  if (!strstr(qn_status_message(status), text)) {
    fail_msg("'%s' is not in '%s'", text, qn_status_message(status));
  }
  assert_int_equal(qn_status_consume(status), code);
  assert_int_equal(heard.outcomes[QN_WARM_SKIPPED], 4);
  assert_non_null(strstr(heard.error, text));
  check_nothing_left(descriptor_count);
}

static void test_commands_that_are_no_worker(void** state) {
  fixture_t* f = *state;
  for (unsigned i = 0; i < 4; i++) add_function(f->list, i);
  check_no_worker(f, "/nowhere/quern", "good", QN_STATUS_NOT_FOUND, "/nowhere/quern");
  check_no_worker(f, "/etc/passwd", "good", QN_STATUS_PERMISSION_DENIED, "/etc/passwd");
  check_no_worker(f, "/bin/true", "good", QN_STATUS_UNAVAILABLE, "exited with code 0");
  check_no_worker(f, "/proc/self/exe", "exit", QN_STATUS_UNAVAILABLE,
                  "exited with code 127; it said: error while loading shared libraries");
  check_no_worker(f, "/proc/self/exe", "noise", QN_STATUS_UNAVAILABLE, "does not work");
  check_no_worker(f, "/proc/self/exe", "broken", QN_STATUS_PERMISSION_DENIED, "no room here");
  // One that is ready, and gone before it can be given a key.
  check_no_worker(f, "/proc/self/exe", "leave", QN_STATUS_UNAVAILABLE, "exited with code 0");
}

static void check_outcome(fixture_t* f, const char* how, int64_t timeout_ns,
                          qn_warm_outcome_t outcome, uint32_t workers) {
  (void)setenv("WARM_TEST_WORKER", how, 1);
  int descriptor_count = qn_test_descriptor_count();
  heard_t heard = {0};
  qn_warm_options_t options = options_with(&heard);
  options.time_limit_ns = timeout_ns;
  qn_warm_result_t result = {.struct_size = sizeof result};
  must(qn_warm(f->engine, f->list, &options, &result));
  assert_int_equal(heard.outcomes[outcome], 2);
  assert_int_equal(result.worker_count, workers);
  assert_false(result.is_warm);
  check_nothing_left(descriptor_count);
}

static void test_workers_that_misbehave(void** state) {
  fixture_t* f = *state;
  for (unsigned i = 0; i < 2; i++) add_function(f->list, i);
  check_outcome(f, "die", 0, QN_WARM_CRASHED, 4);
  check_outcome(f, "other", 0, QN_WARM_CRASHED, 4);
  check_outcome(f, "close", 0, QN_WARM_CRASHED, 4);
  check_outcome(f, "deaf", 300000000, QN_WARM_TIMED_OUT, 2);
  check_outcome(f, "flood", 300000000, QN_WARM_TIMED_OUT, 2);
}

static void test_cancelling(void** state) {
  fixture_t* f = *state;
  for (unsigned i = 0; i < 200; i++) add_function(f->list, i);
  int descriptor_count = qn_test_descriptor_count();
  heard_t heard = {.stop_after = 5};
  qn_warm_options_t options = options_with(&heard);
  qn_warm_result_t result = {.struct_size = sizeof result};
  must(qn_warm(f->engine, f->list, &options, &result));
  assert_true(result.is_cancelled);
  assert_false(result.is_warm);
  assert_int_equal(heard.items, 200);  // each is told once
  assert_true(heard.outcomes[QN_WARM_SKIPPED] > 150);
  assert_int_equal(result.done, 200);
  check_nothing_left(descriptor_count);
}

// Checks that with any allocation of the coordinator failing the call ends, reports each key at
// most once, and leaves nothing behind.
static void test_any_allocation_may_fail(void** state) {
  fixture_t* f = *state;
  for (unsigned i = 0; i < 2; i++) add_function(f->list, i);
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  qn_engine_options_t wanted = {.struct_size = sizeof wanted,
                                .allocator = qn_fault_heap_allocator(&heap),
                                .cache_dir = f->directory,
                                .cache_mode = QN_CACHE_REFRESH,
                                .ignores_environment = true};
  qn_engine_t* engine;
  must(qn_engine_create(&wanted, &engine));
  long live_blocks = heap.live_blocks;
  int descriptor_count = qn_test_descriptor_count();
  size_t good_count = 0, bad_count = 0;
  for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
    for (long n = 1;; n++) {
      heard_t heard = {.is_lax = true};
      qn_warm_options_t options = options_with(&heard);
      options.jobs = 2;
      options.allocator = qn_fault_heap_allocator(&heap);
      qn_warm_result_t result = {.struct_size = sizeof result};
      qn_fault_heap_arm(&heap, n, (qn_fault_mode_t)mode);
      qn_status_t status = qn_warm(engine, f->list, &options, &result);
      bool was_reached = heap.failure_count > 0;
      qn_fault_heap_arm(&heap, 0, QN_FAULT_ONCE);
      assert_true(heard.items <= 2);
      assert_int_equal(heap.live_blocks, live_blocks);
      check_nothing_left(descriptor_count);
      *(result.is_warm ? &good_count : &bad_count) += 1;
      if (!qn_ok(status)) assert_false(result.is_warm);
      qn_status_free(status);
      if (!was_reached) break;
      assert_true(n < 1000);
    }
  }
  assert_int_equal(heap.size_errors, 0);
  assert_true(good_count >= 2 && bad_count > 5);
  qn_engine_destroy(engine);
}

static _Atomic bool is_over;
static void* make_noise(void* arg) {
  (void)arg;
  while (!is_over) {
    free(malloc(1000));
    FILE* file = fopen("/dev/null", "r");
    if (file) (void)fclose(file);
  }
  return NULL;
}

static _Atomic int sigchld_count;
static void count_sigchld(int number) {
  (void)number;
  sigchld_count++;
}

// Runs in a program like a server: other threads, a child, a SIGCHLD handler, default SIGPIPE.
static void test_manners(void** state) {
  fixture_t* f = *state;
  for (unsigned i = 0; i < 30; i++) add_function(f->list, i);
  pthread_t threads[3];
  is_over = false;
  for (size_t i = 0; i < 3; i++) {
    must(qn__thread_start(&threads[i], "noise", 0, make_noise, NULL));
  }
  (void)signal(SIGCHLD, count_sigchld);
  (void)signal(SIGPIPE, SIG_DFL);
  pid_t own = fork();
  assert_true(own >= 0);
  if (own == 0) _exit(42);
  heard_t heard = {0};
  qn_warm_options_t options = options_with(&heard);
  qn_warm_result_t result = {.struct_size = sizeof result};
  must(qn_warm(f->engine, f->list, &options, &result));
  assert_true(result.is_warm);
  int status;
  assert_int_equal(waitpid(own, &status, 0), own);  // nobody else has waited for it
  assert_int_equal(WEXITSTATUS(status), 42);
  struct sigaction action;
  assert_int_equal(sigaction(SIGCHLD, NULL, &action), 0);
  assert_true(action.sa_handler == count_sigchld);
  assert_true(sigchld_count > 0);
  is_over = true;
  for (size_t i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  // A program that lets the system reap its children learns less, but nothing breaks.
  (void)signal(SIGCHLD, SIG_IGN);
  (void)setenv("WARM_TEST_WORKER", "die", 1);
  add_function(f->list, 1000);
  must(qn_warm(f->engine, f->list, &options, &result));
  assert_int_equal(result.counts[QN_WARM_CRASHED], 1);
  (void)signal(SIGCHLD, SIG_DFL);
}

static void test_recompile(void** state) {
  fixture_t* f = *state;
  for (unsigned i = 0; i < 20; i++) add_function(f->list, i);
  heard_t heard = {0};
  qn_warm_options_t options = options_with(&heard);
  must(qn_warm(f->engine, f->list, &options, NULL));
  qn_recompile_report_t report = {.struct_size = sizeof report};
  must(qn_engine_recompile(f->engine, NULL, &report));
  assert_int_equal(report.same_count, 20);
  assert_int_equal(report.different_count + report.failed_count + report.bad_count, 0);
  qn_recompile_options_t some = {.struct_size = sizeof some, .count = 7, .seed = 3};
  must(qn_engine_recompile(f->engine, &some, &report));
  assert_int_equal(report.same_count, 7);
  assert_int_equal(report.entry_count, 20);
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "warm") == 0) return run_worker();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_all_become_warm, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_dry_run_and_modes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_commands_that_are_no_worker, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_workers_that_misbehave, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_cancelling, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_any_allocation_may_fail, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_manners, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_recompile, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
