// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // usleep
// The items of one compile on several threads: each once, never more threads than allowed, with all
// threads busy, failing, behind other compiles, while the pool stops and in a child of fork; and
// the offer that a generator gets. ctest-labels: tsan
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "quern/cache.h"
#include "tests/support/must.h"
#include "tests/unit/jit/support_gate.h"

// How long an item waits for another thread before it reports that there is none.
#define PATIENCE_NS (600 * SECOND)

enum { MAX_ITEMS = 100 };

typedef struct work {
  qn__pool_t pool;
  qn__task_t leader;
  qn__mutex_t mutex;
  qn__cond_t moved;
  pthread_t caller;
  int begun[MAX_ITEMS];    // how often each item was begun
  int log[MAX_ITEMS + 8];  // items and jobs in the order in which they were begun
  int log_count;
  int running, max_running;
  int other_threads;            // items that another thread than the caller ran
  int meeting;                  // items wait until so many were begun; 0: none waits
  bool are_jobs_open;           // gated jobs may end
  bool are_items_open;          // and gated items of helpers
  _Atomic int reference_count;  // of the pool's threads
  // Item `slow` waits until item `fast` has been begun. Both fail.
  int slow, fast;
  pid_t child;  // of the item that forks
} work_t;

static void retain(void* self) {
  ((work_t*)self)->reference_count++;
}
static void release(void* self) {
  ((work_t*)self)->reference_count--;
}

static void begin(work_t* work, uint64_t threads) {
  memset(work, 0, sizeof *work);
  work->slow = work->fast = -1;
  work->caller = pthread_self();
  must(qn__mutex_init(&work->mutex));
  must(qn__cond_init(&work->moved));
  must(qn__pool_init(&work->pool, threads, (qn__pool_owner_t){work, retain, release, release}));
}

static void end(work_t* work) {
  (void)qn__pool_stop(&work->pool, GATE_PATIENCE_NS);
  while (work->reference_count > 0) usleep(100);
  assert_true(qn__pool_check(&work->pool));
  qn__pool_deinit(&work->pool);
  qn__mutex_deinit(&work->mutex);
  qn__cond_deinit(&work->moved);
}

// Returns whether `*number` reached `wanted` in time. The caller holds the mutex.
static bool reaches(work_t* work, const int* number, int wanted) {
  int64_t deadline_ns = qn__now_ns() + PATIENCE_NS;
  bool is_in_time = true;
  while (*number < wanted && is_in_time) {
    is_in_time = qn__cond_wait_until(&work->moved, &work->mutex, deadline_ns);
  }
  return *number >= wanted;
}

static void note(work_t* work, int number) {
  work->log[work->log_count++] = number;
  work->running++;
  if (work->running > work->max_running) work->max_running = work->running;
  qn__cond_broadcast(&work->moved);
}

static qn_status_t run_item(void* arg, size_t index) {
  work_t* work = arg;
  qn__mutex_lock(&work->mutex);
  note(work, (int)index);
  work->begun[index]++;
  if (!pthread_equal(work->caller, pthread_self())) work->other_threads++;
  bool is_right = reaches(work, &work->log_count, work->meeting);
  if ((int)index == work->slow) is_right &= reaches(work, &work->begun[work->fast], 1);
  work->running--;
  qn__mutex_unlock(&work->mutex);
  if (!is_right) return qn_status_make(QN_STATUS_INTERNAL, "item %zu met no other thread", index);
  if ((int)index != work->slow && (int)index != work->fast) return QN_OK;
  return qn_status_make(QN_STATUS_UNSUPPORTED, "item %zu fails", index);
}

static qn_status_t run_all(work_t* work, size_t count) {
  return qn__pool_run_parallel(&work->pool, &work->leader, count, run_item, work);
}

static void test_each_item_once(void** state) {
  (void)state;
  static const uint64_t threads[] = {1, 2, 3, 8};
  static const size_t counts[] = {0, 1, 2, 7, MAX_ITEMS};
  for (size_t t = 0; t < QN_COUNT_OF(threads); t++) {
    for (size_t c = 0; c < QN_COUNT_OF(counts); c++) {
      work_t work;
      begin(&work, threads[t]);
      must(run_all(&work, counts[c]));
      for (size_t i = 0; i < MAX_ITEMS; i++) assert_int_equal(work.begun[i], i < counts[c]);
      assert_true(work.max_running <= (int)threads[t]);
      for (int i = 0; threads[t] == 1 && i < work.log_count; i++) {
        assert_int_equal(work.log[i], i);
      }
      if (threads[t] == 1) assert_int_equal(work.other_threads, 0);
      end(&work);
    }
  }
}

// Items that wait for each other: it ends well only if as many threads run them.
static void test_several_threads_run(void** state) {
  (void)state;
  for (int threads = 2; threads <= 4; threads++) {
    work_t work;
    begin(&work, (uint64_t)threads);
    work.meeting = threads;
    must(run_all(&work, 10));
    assert_int_equal(work.max_running, threads);
    assert_true(work.other_threads >= threads - 1);
    end(&work);
  }
}

// ------------------------------------------------------------------------------------ beside
// others

typedef struct job {
  qn__task_t task;
  work_t* work;
  int number;
  bool is_gated;
  size_t item_count;  // above 0: it runs items
} job_t;

static void run_job(qn__task_t* task) {
  job_t* job = (job_t*)(void*)task;
  work_t* work = job->work;
  if (job->item_count) must(run_all(work, job->item_count));
  qn__mutex_lock(&work->mutex);
  note(work, job->number);
  while (job->is_gated && !work->are_jobs_open) qn__cond_wait(&work->moved, &work->mutex);
  work->running--;
  qn__mutex_unlock(&work->mutex);
}

static void drop_job(qn__task_t* task) {
  (void)task;
  fail_msg("a job was dropped");
}

static void submit(job_t* job, work_t* work, int number, bool is_gated, size_t item_count) {
  *job = (job_t){.task = {.run = run_job, .drop = drop_job, .queue = QN__QUEUE_COMPUTE},
                 .work = work,
                 .number = number,
                 .is_gated = is_gated,
                 .item_count = item_count};
  assert_true(qn__pool_submit(&work->pool, &job->task));
}

static void open_gate(work_t* work, bool* gate) {
  qn__mutex_lock(&work->mutex);
  *gate = true;
  qn__cond_broadcast(&work->moved);
  qn__mutex_unlock(&work->mutex);
}

static void await_log(work_t* work, int count) {
  qn__mutex_lock(&work->mutex);
  bool is_in_time = reaches(work, &work->log_count, count);
  qn__mutex_unlock(&work->mutex);
  if (!is_in_time) fail_msg("%d items and jobs were not begun", count);
}

// No thread is free, so the caller runs all items, and its helpers are out of the queue afterwards.
static void test_all_threads_busy(void** state) {
  (void)state;
  work_t work;
  begin(&work, 2);
  job_t jobs[2];
  for (int i = 0; i < 2; i++) submit(&jobs[i], &work, 500 + i, true, 0);
  await_log(&work, 2);
  must(run_all(&work, 10));
  assert_int_equal(work.other_threads, 0);
  uint32_t queued, running;
  qn__pool_counts(&work.pool, QN__QUEUE_COMPUTE, &queued, &running);
  assert_int_equal(queued, 0);
  open_gate(&work, &work.are_jobs_open);
  end(&work);
  assert_int_equal(work.log_count, 12);
}

// Two compiles of the pool itself, each with items: none waits for the slot of the other one.
static void test_all_threads_have_items(void** state) {
  (void)state;
  for (int round = 0; round < 50; round++) {
    work_t work;
    begin(&work, 2);
    job_t jobs[3];
    for (int i = 0; i < 3; i++) submit(&jobs[i], &work, 500 + i, false, 20);
    await_log(&work, 63);
    for (int i = 0; i < 20; i++) assert_int_equal(work.begun[i], 3);
    assert_true(work.max_running <= 2);
    end(&work);
  }
}

// A helper runs one item and then lets other compiles of its priority go first.
static qn_status_t run_gated_item(void* arg, size_t index) {
  work_t* work = arg;
  qn__mutex_lock(&work->mutex);
  note(work, (int)index);
  // The caller's item lasts until the end, that of the helper until the job is queued.
  bool is_callers = pthread_equal(work->caller, pthread_self()) != 0;
  while (is_callers ? work->log_count < work->meeting : !work->are_items_open) {
    qn__cond_wait(&work->moved, &work->mutex);
  }
  work->running--;
  qn__mutex_unlock(&work->mutex);
  return QN_OK;
}

typedef struct runner {
  pthread_t thread;
  work_t* work;
  size_t count;
  qn_status_t status;
} runner_t;

static void* run_gated_items(void* self) {
  runner_t* runner = self;
  work_t* work = runner->work;
  qn__mutex_lock(&work->mutex);
  work->caller = pthread_self();
  qn__mutex_unlock(&work->mutex);
  runner->status =
      qn__pool_run_parallel(&work->pool, &work->leader, runner->count, run_gated_item, work);
  return NULL;
}

static void start(runner_t* runner, work_t* work, size_t count) {
  *runner = (runner_t){.work = work, .count = count};
  must(qn__thread_start(&runner->thread, "runner", 0, run_gated_items, runner));
}

static void test_other_compiles_go_first(void** state) {
  (void)state;
  work_t work;
  begin(&work, 2);
  work.meeting = 6;
  job_t held, waiting;
  submit(&held, &work, 500, true, 0);
  await_log(&work, 1);
  runner_t runner;
  start(&runner, &work, 4);
  await_log(&work, 3);  // the caller has an item, and its helper the second slot
  submit(&waiting, &work, 501, false, 0);
  open_gate(&work, &work.are_items_open);
  (void)pthread_join(runner.thread, NULL);
  must(runner.status);
  open_gate(&work, &work.are_jobs_open);
  end(&work);
  // The job that is held; items 0 and 1 in either order; then the job that waits.
  assert_int_equal(work.log_count, 6);
  assert_int_equal(work.log[3], 501);
  assert_int_equal(work.log[4], 2);
  assert_int_equal(work.log[5], 3);
}

// ------------------------------------------------------------------------------------ ends

// The error of the first item that failed counts, also if a later one failed before it.
static void test_failures(void** state) {
  (void)state;
  for (int threads = 1; threads <= 2; threads++) {
    work_t work;
    begin(&work, (uint64_t)threads);
    work.slow = 3;
    work.fast = threads == 1 ? 3 : 5;
    must_fail(run_all(&work, 50), QN_STATUS_UNSUPPORTED, "item 3 fails");
    for (int i = 0; i < MAX_ITEMS; i++) {
      assert_int_equal(work.begun[i], i <= work.fast);  // none is begun after a failure
    }
    end(&work);
  }
}

// The pool stops while a helper waits for a slot: the caller runs the items that are left.
static void test_stop(void** state) {
  (void)state;
  work_t work;
  begin(&work, 2);
  work.meeting = INT_MAX;
  job_t jobs[2];
  for (int i = 0; i < 2; i++) submit(&jobs[i], &work, 500 + i, true, 0);
  await_log(&work, 2);
  runner_t runner;
  start(&runner, &work, 5);
  await_log(&work, 3);  // the caller is in its first item
  assert_false(qn__pool_stop(&work.pool, 0));
  qn__mutex_lock(&work.mutex);
  work.meeting = 0;
  qn__cond_broadcast(&work.moved);
  qn__mutex_unlock(&work.mutex);
  (void)pthread_join(runner.thread, NULL);
  must(runner.status);
  assert_int_equal(work.log_count, 7);
  // A pool that has stopped lends no threads.
  work.caller = pthread_self();
  must(run_all(&work, 3));
  assert_int_equal(work.log_count, 10);
  open_gate(&work, &work.are_jobs_open);
  end(&work);
}

// Forks on the calling thread while a helper is in another item.
static qn_status_t run_forking_item(void* arg, size_t index) {
  work_t* work = arg;
  (void)index;
  qn__mutex_lock(&work->mutex);
  note(work, 0);
  bool have_met = reaches(work, &work->log_count, 2);
  bool is_callers = pthread_equal(work->caller, pthread_self()) != 0;
  if (have_met && is_callers) work->child = fork();
  qn__mutex_unlock(&work->mutex);
  return have_met ? QN_OK : qn_status_make(QN_STATUS_INTERNAL, "met no other thread");
}

static void test_fork(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip();  // ThreadSanitizer does not follow locks that the child made anew
#endif
  work_t work;
  begin(&work, 2);
  qn_status_t status = qn__pool_run_parallel(&work.pool, &work.leader, 2, run_forking_item, &work);
  if (work.child == 0) {
    // The helper's item never ends here.
    _exit(qn_status_consume(status) == QN_STATUS_CANCELLED ? 0 : 1);
  }
  must(status);
  int result;
  assert_int_equal(waitpid(work.child, &result, 0), work.child);
  assert_true(WIFEXITED(result));
  assert_int_equal(WEXITSTATUS(result), 0);
  end(&work);
}

// ------------------------------------------------------------------------------------ generators

// A generator that makes a module of two items, which wait for each other if they should.
typedef struct maker {
  work_t work;
  bool fails;
} maker_t;

static qn_status_t compile(void* self, const qn_compile_request_t* request,
                           qn_artifact_t** out_artifact) {
  maker_t* maker = self;
  *out_artifact = NULL;
  qn__mutex_lock(&maker->work.mutex);
  maker->work.caller = pthread_self();
  if (maker->fails) maker->work.slow = maker->work.fast = 1;
  qn__mutex_unlock(&maker->work.mutex);
  QN_TRY(request->run_parallel(request->run_parallel_self, 2, run_item, &maker->work));
  return qn__interp_codegen.compile(NULL, request, out_artifact);
}

static void test_generators(void** state) {
  (void)state;
  static const qn_setting_t settings[][1] = {{{"compile_threads", "1"}},
                                             {{"compile_threads", "2"}}};
  for (int threads = 1; threads <= 2; threads++) {
    gated_t gated;
    gated_begin_with(&gated, settings[threads - 1], 1);
    maker_t maker = {.fails = false};
    begin(&maker.work, 1);
    maker.work.meeting = threads;
    qn_codegen_t codegen = *gated.engine->generators.items[0].table;
    codegen.compile = compile;
    gated.engine->generators.items[0].table = &codegen;
    gated.engine->generators.items[0].self = &maker;
    qn_module_t* module = module_of("f", 5);
    must(gated_look_up(&gated, module, "f", NULL, NULL));
    // On a thread of its own as well, which counts as one of the compile threads.
    qn_module_t* ahead = module_of("g", 6);
    maker.work.log_count = 0;
    must(qn_engine_compile(gated.engine, ahead, gated.target, NULL, NULL));
    assert_int_equal(maker.work.max_running, threads);
    assert_int_equal(maker.work.begun[0] + maker.work.begun[1], 4);
    qn_module_t* bad = module_of("h", 7);
    maker.fails = true;
    must_fail(gated_look_up(&gated, bad, "h", NULL, NULL), QN_STATUS_UNSUPPORTED, "item 1 fails");
    qn_module_release(bad);
    qn_module_release(ahead);
    qn_module_release(module);
    gated_end(&gated);
    end(&maker.work);
  }
}

int main(int argc, char** argv) {
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_item_once),
      cmocka_unit_test(test_several_threads_run),
      cmocka_unit_test(test_all_threads_busy),
      cmocka_unit_test(test_all_threads_have_items),
      cmocka_unit_test(test_other_compiles_go_first),
      cmocka_unit_test(test_failures),
      cmocka_unit_test(test_stop),
      cmocka_unit_test(test_fork),
      cmocka_unit_test(test_generators),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
