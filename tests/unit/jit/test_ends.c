// SPDX-License-Identifier: Apache-2.0
// Tests engines that are destroyed, forked or unable to create threads during compiles.
// ctest-labels: tsan
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/sanitized.h"
#include "tests/unit/jit/support_gate.h"

static const qn_setting_t one_thread[] = {{"compile_threads", "1"}};

static void test_destroy_in_the_middle(void** state) {
  (void)state;
  gated_t gated;
  gated_begin_with(&gated, one_thread, 1);
  qn_module_t* modules[] = {module_of("runs", 1), module_of("waits", 2)};
  qn_future_t* running = gated_request(&gated, modules[0], "runs", 0);
  gate_await_started(&gated.gate, 1);
  qn_future_t* queued = gated_request(&gated, modules[1], "waits", 0);
  await_queued(gated.engine, 1);
  assert_false(qn_future_is_ready(running));
  gate_set(&gated.gate, true);
  qn_engine_destroy(gated.engine);
  // Destroying waits for the running compile. The queued one was cancelled, or compiled if it had
  // begun.
  qn_function_t* function = NULL;
  must(qn_future_wait(running, 0, NULL, &function));
  assert_int_equal(call(function), 1);
  qn_function_release(function);
  qn_status_t status = qn_future_wait(queued, 0, NULL, &function);
  if (qn_ok(status)) {
    qn_function_release(function);
  } else {
    must_fail(status, QN_STATUS_CANCELLED, "is being destroyed");
  }
  qn_future_release(running);
  qn_future_release(queued);
  // The result of the running compile was published to the cache.
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = gated.directory, .ignores_environment = true};
  must(qn_engine_create(&options, &gated.engine));
  gate_install(&gated.gate, gated.engine);
  qn_lookup_info_t info = {.struct_size = sizeof info};
  must(gated_look_up(&gated, modules[0], "runs", NULL, &info));
  assert_int_equal(info.source, QN_SOURCE_DISK);
  qn_module_release(modules[0]);
  qn_module_release(modules[1]);
  gated_end(&gated);
}

static void hear(void* self, const qn_compile_event_t* event) {
  (void)event;
  ++*(_Atomic int*)self;
}

// Checks that a hanging compile delays qn_engine_destroy by the grace period only.
static void test_destroy_with_a_hanging_compile(void** state) {
  (void)state;
  gated_t gated;
  _Atomic int heard_count = 0;
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .settings = one_thread,
                                 .setting_count = 1,
                                 .on_compile = hear,
                                 .on_compile_self = &heard_count};
  gated_begin(&gated, &options);
  gated.engine->compile_grace_ns = 1000000;
  qn_module_t* modules[] = {module_of("hangs", 1), module_of("waits", 2)};
  qn_future_t* hanging = gated_request(&gated, modules[0], "hangs", 0);
  gate_await_started(&gated.gate, 1);
  seeker_t seeker;
  seeker_start(&seeker, &gated, modules[1], "waits", NULL);
  await_queued(gated.engine, 1);
  qn_engine_t* left = gated.engine;
  qn__engine_retain(left);
  qn_engine_destroy(gated.engine);
  seeker_join(&seeker);
  must_fail(seeker.status, QN_STATUS_CANCELLED, "is being destroyed");
  qn_function_t* function;
  must_fail(qn_future_wait(hanging, 0, NULL, &function), QN_STATUS_DEADLINE_EXCEEDED, "not ready");
  gate_set(&gated.gate, true);
  must(qn_future_wait(hanging, -1, NULL, &function));
  assert_int_equal(heard_count, 0);  // the receiver of events may be gone together with the engine
  assert_int_equal(call(function), 1);
  qn_function_release(function);
  qn_future_release(hanging);
  qn_module_release(modules[0]);
  qn_module_release(modules[1]);
  // The abandoned thread frees the engine later. The fixture must live until then.
  gated_end_left(&gated, left);
}

static void test_fork_while_it_compiles(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip();  // ThreadSanitizer does not follow locks that the child re-initialised
#endif
  gated_t gated;
  // The child waits for the claim that its parent holds.
  static const qn_setting_t settings[] = {{"compile_threads", "1"}, {"lock_timeout", "200ms"}};
  gated_begin_with(&gated, settings, 2);
  qn_module_t* modules[] = {module_of("runs", 1), module_of("waits", 2)};
  qn_future_t* running = gated_request(&gated, modules[0], "runs", 0);
  gate_await_started(&gated.gate, 1);
  qn_future_t* queued = gated_request(&gated, modules[1], "waits", 0);
  await_queued(gated.engine, 1);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)alarm(600);
    // The parent's lookups never complete in the child. The child's own lookups of the same keys
    // do.
    qn_function_t* function;
    must_fail(qn_future_wait(running, -1, NULL, &function), QN_STATUS_CANCELLED, "forked");
    assert_true(qn_future_is_ready(queued));
    must_fail(qn_future_wait(queued, 0, NULL, &function), QN_STATUS_CANCELLED, "forked");
    qn_future_release(running);
    qn_future_cancel(queued);
    qn_future_release(queued);
    must(qn__mutex_init(&gated.gate.mutex));
    must(qn__cond_init(&gated.gate.moved));
    gated.gate.is_open = true;
    int started = gated.gate.started_count;
    await_value(gated_request(&gated, modules[0], "runs", 0), 1);
    must(gated_look_up(&gated, modules[1], "waits", NULL, NULL));
    assert_int_equal(gated.gate.started_count, started + 2);
    qn_engine_destroy(gated.engine);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  gate_set(&gated.gate, true);
  await_value(running, 1);
  await_value(queued, 2);
  qn_module_release(modules[0]);
  qn_module_release(modules[1]);
  gated_end(&gated);
}

// Checks that the caller compiles itself if no thread can be created and it may wait.
static void test_no_threads(void** state) {
  (void)state;
#if IS_SANITIZED
  skip();  // sanitizers reserve terabytes of address space
#endif
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    gated_t gated;
    gated_begin_with(&gated, one_thread, 1);
    gate_set(&gated.gate, true);
    qn_module_t* module = module_of("f", 1);
    qn_module_t* other = module_of("g", 2);
    FILE* file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (!file || fscanf(file, "%lu", &pages) != 1) _exit(9);
    (void)fclose(file);
    struct rlimit limit = {(pages + 1024) * 4096, (pages + 1024) * 4096};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(9);
    must(gated_look_up(&gated, module, "f", NULL, NULL));
    qn_lookup_options_t soon = lookup_with(QN_MISS_BLOCK, 3600 * SECOND, 0);
    must_fail(gated_look_up(&gated, other, "g", &soon, NULL), QN_STATUS_UNAVAILABLE,
              "no compile thread");
    qn_lookup_options_t fallback = lookup_with(QN_MISS_FALLBACK, 0, 0);
    must(gated_look_up(&gated, other, "g", &fallback, NULL));
    qn_module_t* third = module_of("h", 3);
    qn_future_t* future = gated_request(&gated, third, "h", 0);
    qn_function_t* function;
    must_fail(qn_future_wait(future, -1, NULL, &function), QN_STATUS_UNAVAILABLE, "thread");
    qn_future_release(future);
    _exit(counter_of(gated.engine, "compiles") == 2 ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      // Must run first: the C library caches the stacks of ended threads and would reuse one.
      cmocka_unit_test(test_no_threads),
      cmocka_unit_test(test_destroy_in_the_middle),
      cmocka_unit_test(test_destroy_with_a_hanging_compile),
      cmocka_unit_test(test_fork_while_it_compiles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
