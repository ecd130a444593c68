// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// The pool of compile threads: order by priority, queues, lent slots, stopping with queued,
// running and hanging tasks, and a child of fork. ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "jit/engine/pool.h"
#include "tests/support/must.h"

typedef struct bench {
  qn__pool_t pool;
  _Atomic int reference_count;
  qn__mutex_t mutex;
  qn__cond_t moved;
  bool is_open;
  int order[64];
  int run_count, drop_count, running_count;
} bench_t;

typedef struct job {
  qn__task_t task;
  bench_t* bench;
  int number;
  bool is_gated;
  bool lends;
} job_t;

static void retain(void* self) {
  ((bench_t*)self)->reference_count++;
}
static void release(void* self) {
  ((bench_t*)self)->reference_count--;
}

static void begin(bench_t* bench, uint64_t max_compiles) {
  memset(bench, 0, sizeof *bench);
  bench->reference_count = 1;
  must(qn__mutex_init(&bench->mutex));
  must(qn__cond_init(&bench->moved));
  must(qn__pool_init(&bench->pool, max_compiles,
                     (qn__pool_owner_t){bench, retain, release, release}));
}
static void end(bench_t* bench) {
  assert_true(qn__pool_stop(&bench->pool, INT64_C(3600000000000)));
  assert_int_equal(bench->reference_count, 1);
  assert_true(qn__pool_check(&bench->pool));
  qn__pool_deinit(&bench->pool);
  qn__mutex_deinit(&bench->mutex);
  qn__cond_deinit(&bench->moved);
}

static void open_gate(bench_t* bench) {
  qn__mutex_lock(&bench->mutex);
  bench->is_open = true;
  qn__cond_broadcast(&bench->moved);
  qn__mutex_unlock(&bench->mutex);
}
static void await_run(bench_t* bench, int count) {
  qn__mutex_lock(&bench->mutex);
  while (bench->run_count < count) qn__cond_wait(&bench->moved, &bench->mutex);
  qn__mutex_unlock(&bench->mutex);
}
// Waits until so many jobs have ended.
static void await_end(bench_t* bench, int count) {
  qn__mutex_lock(&bench->mutex);
  while (bench->run_count - bench->running_count < count) {
    qn__cond_wait(&bench->moved, &bench->mutex);
  }
  qn__mutex_unlock(&bench->mutex);
}

static void run(qn__task_t* self) {
  job_t* job = (job_t*)(void*)self;
  bench_t* bench = job->bench;
  bool is_lent = job->lends && qn__pool_lend(&bench->pool);
  qn__mutex_lock(&bench->mutex);
  bench->order[bench->run_count++] = job->number;
  bench->running_count++;
  qn__cond_broadcast(&bench->moved);
  while (job->is_gated && !bench->is_open) qn__cond_wait(&bench->moved, &bench->mutex);
  qn__mutex_unlock(&bench->mutex);
  if (is_lent) qn__pool_take_back(&bench->pool);
  qn__mutex_lock(&bench->mutex);
  bench->running_count--;
  qn__cond_broadcast(&bench->moved);
  qn__mutex_unlock(&bench->mutex);
}
static void drop(qn__task_t* self) {
  ((job_t*)(void*)self)->bench->drop_count++;
}

static job_t make(bench_t* bench, int number, qn__queue_id_t queue, int32_t priority,
                  bool is_gated) {
  return (job_t){.task = {.run = run, .drop = drop, .queue = queue, .priority = priority},
                 .bench = bench,
                 .number = number,
                 .is_gated = is_gated};
}

static void test_priorities(void** state) {
  (void)state;
  static const int32_t priorities[] = {0, 5, 0, -3, 5, 9, 0};
  static const int expected[] = {99, 5, 1, 4, 0, 2, 6, 3};
  bench_t bench;
  begin(&bench, 1);
  job_t gated = make(&bench, 99, QN__QUEUE_COMPUTE, 0, true);
  assert_true(qn__pool_submit(&bench.pool, &gated.task));
  await_run(&bench, 1);
  job_t jobs[7];
  for (int i = 0; i < 7; i++) {
    jobs[i] = make(&bench, i, QN__QUEUE_COMPUTE, priorities[i], false);
    assert_true(qn__pool_submit(&bench.pool, &jobs[i].task));
  }
  open_gate(&bench);
  await_end(&bench, 8);
  assert_memory_equal(bench.order, expected, sizeof expected);
  end(&bench);
}

static void test_raise_and_withdraw(void** state) {
  (void)state;
  static const int expected[] = {99, 3, 0, 2};
  bench_t bench;
  begin(&bench, 1);
  job_t gated = make(&bench, 99, QN__QUEUE_COMPUTE, 0, true);
  assert_true(qn__pool_submit(&bench.pool, &gated.task));
  await_run(&bench, 1);
  job_t jobs[4];
  for (int i = 0; i < 4; i++) {
    jobs[i] = make(&bench, i, QN__QUEUE_COMPUTE, 0, false);
    assert_true(qn__pool_submit(&bench.pool, &jobs[i].task));
  }
  assert_true(qn__pool_withdraw(&bench.pool, &jobs[1].task));
  assert_false(qn__pool_withdraw(&bench.pool, &jobs[1].task));
  qn__pool_raise(&bench.pool, &jobs[3].task, 1);
  qn__pool_raise(&bench.pool, &jobs[2].task, -1);  // never lowers
  assert_false(qn__pool_withdraw(&bench.pool, &gated.task));
  open_gate(&bench);
  await_end(&bench, 4);
  assert_memory_equal(bench.order, expected, sizeof expected);
  end(&bench);
}

// Checks that reads do not wait for compiles, and that two compiles run at once where permitted.
static void test_queues(void** state) {
  (void)state;
  bench_t bench;
  begin(&bench, 2);
  job_t jobs[] = {
      make(&bench, 0, QN__QUEUE_COMPUTE, 0, true), make(&bench, 1, QN__QUEUE_COMPUTE, 0, true),
      make(&bench, 2, QN__QUEUE_COMPUTE, 9, true), make(&bench, 3, QN__QUEUE_IO, 0, false)};
  assert_true(qn__pool_submit(&bench.pool, &jobs[0].task));
  assert_true(qn__pool_submit(&bench.pool, &jobs[1].task));
  await_run(&bench, 2);
  assert_true(qn__pool_submit(&bench.pool, &jobs[2].task));
  assert_true(qn__pool_submit(&bench.pool, &jobs[3].task));
  await_end(&bench, 1);
  assert_int_equal(bench.order[2], 3);
  qn__mutex_lock(&bench.mutex);
  assert_int_equal(bench.run_count, 3);
  qn__mutex_unlock(&bench.mutex);
  open_gate(&bench);
  await_end(&bench, 4);
  end(&bench);
}

static void test_lent_slots(void** state) {
  (void)state;
  bench_t bench;
  begin(&bench, 1);
  job_t lender = make(&bench, 0, QN__QUEUE_COMPUTE, 0, true);
  lender.lends = true;
  job_t other = make(&bench, 1, QN__QUEUE_COMPUTE, 0, false);
  assert_true(qn__pool_submit(&bench.pool, &lender.task));
  await_run(&bench, 1);
  // The one slot is lent: another job runs in it to its end.
  assert_true(qn__pool_submit(&bench.pool, &other.task));
  await_end(&bench, 1);
  open_gate(&bench);
  await_end(&bench, 2);
  end(&bench);
}

// Keeps the slot until another task waits for its own slot, then lends it until that task has
// ended.
static void run_and_lend(qn__task_t* self) {
  bench_t* bench = ((job_t*)(void*)self)->bench;
  open_gate(bench);
  bool is_awaited = false;
  while (!is_awaited) {
    usleep(100);
    qn__mutex_lock(&bench->pool.mutex);
    is_awaited = bench->pool.returning_count == 1;
    qn__mutex_unlock(&bench->pool.mutex);
  }
  bool is_lent = qn__pool_lend(&bench->pool);
  await_end(bench, 1);
  if (is_lent) qn__pool_take_back(&bench->pool);
  qn__mutex_lock(&bench->mutex);
  bench->run_count++;
  qn__cond_broadcast(&bench->moved);
  qn__mutex_unlock(&bench->mutex);
}

// Checks that a lent slot goes to a task that waits to get its own slot back.
static void test_lent_to_a_lender(void** state) {
  (void)state;
  bench_t bench;
  begin(&bench, 1);
  job_t lender = make(&bench, 0, QN__QUEUE_COMPUTE, 0, true);
  lender.lends = true;
  job_t other = make(&bench, 1, QN__QUEUE_COMPUTE, 0, false);
  other.task.run = run_and_lend;
  assert_true(qn__pool_submit(&bench.pool, &lender.task));
  await_run(&bench, 1);
  assert_true(qn__pool_submit(&bench.pool, &other.task));
  await_end(&bench, 2);
  end(&bench);
}

static void test_stop(void** state) {
  (void)state;
  bench_t bench;
  begin(&bench, 1);
  job_t gated = make(&bench, 0, QN__QUEUE_COMPUTE, 0, true);
  job_t jobs[3];
  assert_true(qn__pool_submit(&bench.pool, &gated.task));
  await_run(&bench, 1);
  for (int i = 0; i < 3; i++) {
    jobs[i] = make(&bench, 1 + i, QN__QUEUE_COMPUTE, 0, false);
    assert_true(qn__pool_submit(&bench.pool, &jobs[i].task));
  }
  // The task hangs for longer than the stop waits. Queued tasks are dropped all the same.
  assert_false(qn__pool_stop(&bench.pool, 1000000));
  assert_int_equal(bench.drop_count, 3);
  assert_false(qn__pool_submit(&bench.pool, &jobs[0].task));
  assert_true(qn__pool_is_stopping(&bench.pool));
  assert_false(qn__pool_sleep(&bench.pool, INT64_MAX));
  open_gate(&bench);
  while (bench.reference_count > 1) usleep(100);
  assert_int_equal(bench.run_count, 1);
  qn__pool_deinit(&bench.pool);
  qn__mutex_deinit(&bench.mutex);
  qn__cond_deinit(&bench.moved);
}

static void test_fork(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip();  // ThreadSanitizer does not follow locks that the child made anew
#endif
  bench_t bench;
  begin(&bench, 1);
  job_t gated = make(&bench, 0, QN__QUEUE_COMPUTE, 0, true);
  job_t queued = make(&bench, 1, QN__QUEUE_COMPUTE, 0, false);
  assert_true(qn__pool_submit(&bench.pool, &gated.task));
  await_run(&bench, 1);
  assert_true(qn__pool_submit(&bench.pool, &queued.task));
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)alarm(600);
    // The child has threads of its own, and none of the parent's jobs.
    bench.run_count = bench.running_count = 0;
    must(qn__mutex_init(&bench.mutex));
    must(qn__cond_init(&bench.moved));
    job_t mine = make(&bench, 7, QN__QUEUE_COMPUTE, 0, false);
    bool is_right = qn__pool_submit(&bench.pool, &mine.task);
    await_end(&bench, 1);
    is_right = is_right && bench.order[0] == 7 && bench.run_count == 1;
    is_right = is_right && qn__pool_stop(&bench.pool, INT64_C(3600000000000));
    _exit(is_right && bench.drop_count == 0 && bench.reference_count == 1 ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  open_gate(&bench);
  await_end(&bench, 2);
  end(&bench);
}

// No more memory for stacks, or as much as before.
static void limit_memory(bool is_limited) {
  static struct rlimit old;
  unsigned long pages = 0;
  if (old.rlim_max == 0) assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
  FILE* file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%lu", &pages), 1);
  (void)fclose(file);
  struct rlimit limit = old;
  if (is_limited) limit.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)1 << 20);
  assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

// A thread that waits for the clock is none for anything else.
static void test_no_thread(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  skip();  // their memory has no such limit
#endif
  bench_t bench;
  begin(&bench, 1);
  job_t compile = make(&bench, 1, QN__QUEUE_COMPUTE, 0, false);
  job_t watcher = make(&bench, 2, QN__QUEUE_TIMER, 0, true);
  limit_memory(true);
  assert_false(qn__pool_submit(&bench.pool, &compile.task));
  assert_false(qn__pool_submit(&bench.pool, &watcher.task));
  limit_memory(false);
  assert_true(qn__pool_submit(&bench.pool, &watcher.task));
  await_run(&bench, 1);
  limit_memory(true);
  assert_false(qn__pool_submit(&bench.pool, &compile.task));
  limit_memory(false);
  assert_true(qn__pool_submit(&bench.pool, &compile.task));
  await_run(&bench, 2);
  open_gate(&bench);
  end(&bench);
}

// Checks that process exit waits for running tasks, once and for a bounded time, but not for tasks
// that only wait for the clock.
static bench_t* ending;
static bool is_hanging;
static int64_t deadlines_ns[4];
static int deadline_count;
static void open_at_exit(void) {
  open_gate(ending);
}
static void note_deadline(void* self, int64_t deadline_ns) {
  (void)self;
  if (deadline_count < 4) deadlines_ns[deadline_count++] = deadline_ns;
}
static void check_at_exit(void) {
  bool has_waited = ending->run_count - ending->running_count == (is_hanging ? 0 : 1);
  // The time is the whole of what hangs, however often the handlers are called.
  bool is_once = deadline_count == 2 && deadlines_ns[0] == deadlines_ns[1];
  _exit(has_waited && is_once ? 0 : 1);
}

static void check_exit(qn__queue_id_t queue, bool hangs) {
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)alarm(600);
    bench_t bench;
    ending = &bench;
    begin(&bench, 1);
    qn__fork_node_t noter = {.at_exit = note_deadline};
    if (!qn__fork_register(&noter)) _exit(2);
    // In the inverse order: opened (unless it hangs), waited for (twice), looked at.
    (void)atexit(check_at_exit);
    qn__fork_watch_exit();
    qn__fork_watch_exit();
    if (!hangs) (void)atexit(open_at_exit);
    job_t job = make(&bench, 0, queue, 0, true);
    bool is_queued = qn__pool_submit(&bench.pool, &job.task);
    await_run(&bench, 1);
    is_hanging = hangs;
    exit(is_queued ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

// A task that computes when the time of the exit is over: the process ends with its status and its
// output, without the handlers that remain.
static void compute_forever(qn__task_t* task) {
  bench_t* bench = ((job_t*)task)->bench;
  qn__mutex_lock(&bench->mutex);
  bench->run_count++;
  qn__cond_broadcast(&bench->moved);
  qn__mutex_unlock(&bench->mutex);
  _Atomic uint64_t turns = 0;
  for (;;) (void)atomic_fetch_add(&turns, 1);
}
static void not_reached(void) {
  _exit(9);
}

static void test_exit_that_gives_up(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip();
#endif
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)alarm(600);
    bench_t bench;
    begin(&bench, 1);
    (void)atexit(not_reached);
    qn__fork_watch_exit();
    job_t job = make(&bench, 0, QN__QUEUE_COMPUTE, 0, false);
    job.task.run = compute_forever;
    FILE* out = fdopen(ends[1], "w");
    if (!out || !qn__pool_submit(&bench.pool, &job.task)) _exit(2);
    (void)fputs("flushed", out);
    await_run(&bench, 1);
    exit(7);
  }
  (void)close(ends[1]);
  char text[16] = "";
  assert_int_equal(read(ends[0], text, sizeof text - 1), 7);
  assert_string_equal(text, "flushed");
  (void)close(ends[0]);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 7);
}

// The same without an exit: a deadline that never comes shows which tasks are waited for.
static void test_what_an_exit_waits_for(void** state) {
  (void)state;
  bench_t bench;
  begin(&bench, 1);
  const qn__fork_node_t* node = &bench.pool.fork_node;
  node->at_exit(node->self, INT64_MAX);  // nothing
  bench.pool.is_exiting = false;
  job_t watcher = make(&bench, 0, QN__QUEUE_TIMER, 0, true);
  assert_true(qn__pool_submit(&bench.pool, &watcher.task));
  await_run(&bench, 1);
  node->at_exit(node->self, INT64_MAX);  // not for the clock
  bench.pool.is_exiting = false;
  job_t compile = make(&bench, 1, QN__QUEUE_COMPUTE, 0, true);
  assert_true(qn__pool_submit(&bench.pool, &compile.task));
  await_run(&bench, 2);
  int64_t deadline_ns = qn__now_ns() + 1000000;
  node->at_exit(node->self, deadline_ns);  // a compile, until then
  assert_true(qn__now_ns() >= deadline_ns);
  open_gate(&bench);
  node->at_exit(node->self, INT64_MAX);  // and to its end
  assert_true(qn__pool_is_stopping(&bench.pool));
  end(&bench);
}

static void test_exit(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip();
#endif
  check_exit(QN__QUEUE_TIMER, true);
  check_exit(QN__QUEUE_COMPUTE, false);
  check_exit(QN__QUEUE_COMPUTE, true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_thread),  // first: later there are stacks of threads that ended
      cmocka_unit_test(test_priorities),
      cmocka_unit_test(test_raise_and_withdraw),
      cmocka_unit_test(test_queues),
      cmocka_unit_test(test_lent_slots),
      cmocka_unit_test(test_lent_to_a_lender),
      cmocka_unit_test(test_stop),
      cmocka_unit_test(test_fork),
      cmocka_unit_test(test_what_an_exit_waits_for),
      cmocka_unit_test(test_exit),
      cmocka_unit_test(test_exit_that_gives_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
