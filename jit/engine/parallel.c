// SPDX-License-Identifier: Apache-2.0
// jit/engine/parallel.c: runs the items of a compile on several threads of the pool.
//
// Requirements:
//  1. The calling thread runs items until none is left, so that the compile goes on if no thread or
//     slot is free. It waits only for items that run: it takes its queued helpers out of the queue.
//  2. A helper is a compute task that runs one item and queues again while items are left. Both are
//     one step under the pool's mutex, so that no helper queues after the caller has taken them
//     out.
//  3. There are no more threads than slots: a compile on the pool has one, and a compile ahead, in
//     its caller's thread, does as if it had.
//  4. Items are begun in rising order and none after a failure. So all items before the first one
//     that failed have run, and its error does not depend on the number of threads.
//  5. After a fork in an item, the child has lost the other threads and their items. It touches no
//     queue and returns an error.
#include "jit/engine/pool_inner.h"

typedef struct parallel {
  qn__pool_t* pool;
  const qn__task_t* leader;
  size_t count;
  qn_status_t (*run)(void* arg, size_t index);
  void* arg;
  uint32_t epoch;
  // Under the pool's mutex.
  size_t next;            // the first item that is not begun
  size_t failed;          // the first item that failed; `count`: none
  qn_status_t status;     // its error
  uint32_t helper_count;  // that queue or run
} parallel_t;

typedef struct helper {
  qn__task_t task;  // first: the pool returns this pointer
  parallel_t* parallel;
} helper_t;

static bool has_items(const parallel_t* parallel) {
  return parallel->next < parallel->count && parallel->failed == parallel->count;
}

// Runs the next item. The caller holds the mutex, which is free meanwhile. False: the process is a
// child of fork.
static bool run_next(parallel_t* parallel) {
  qn__pool_t* pool = parallel->pool;
  assert(has_items(parallel));
  size_t index = parallel->next++;
  qn__mutex_unlock(&pool->mutex);
  qn_status_t status = parallel->run(parallel->arg, index);
  qn__mutex_lock(&pool->mutex);
  if (!qn_ok(status) && index < parallel->failed) {
    parallel->failed = index;
    qn_status_t later = parallel->status;
    parallel->status = status;
    status = later;
  }
  qn_status_free(status);
  return pool->epoch == parallel->epoch;
}

// ------------------------------------------------------------------------------------ helpers

static void leave(parallel_t* parallel) {
  assert(parallel->helper_count > 0);
  if (--parallel->helper_count == 0) qn__cond_broadcast(&parallel->pool->slot);
}

static void help(qn__task_t* task) {
  parallel_t* parallel = ((helper_t*)(void*)task)->parallel;
  qn__pool_t* pool = parallel->pool;
  qn__mutex_lock(&pool->mutex);
  if (!has_items(parallel)) {
    leave(parallel);
  } else if (run_next(parallel)) {
    if (has_items(parallel) && !pool->is_stopping && !pool->is_exiting) {
      task->priority = parallel->leader->priority;
      qn__pool_enqueue(pool, task);  // this thread or another one takes it
    } else {
      leave(parallel);
    }
  }
  qn__mutex_unlock(&pool->mutex);
}

static void drop(qn__task_t* task) {
  parallel_t* parallel = ((helper_t*)(void*)task)->parallel;
  qn__pool_t* pool = parallel->pool;
  qn__mutex_lock(&pool->mutex);
  leave(parallel);
  qn__mutex_unlock(&pool->mutex);
}

static void submit_helpers(parallel_t* parallel, helper_t* helpers, uint32_t count) {
  qn__pool_t* pool = parallel->pool;
  if (pool->is_stopping || pool->is_exiting) return;
  for (uint32_t i = 0; i < count; i++) {
    helpers[i] = (helper_t){
        .task = {.run = help,
                 .drop = drop,
                 .queue = QN__QUEUE_COMPUTE,
                 .priority = parallel->leader->priority,
                 .queued_ns = qn__now_ns()},
        .parallel = parallel,
    };
    parallel->helper_count++;
    qn__pool_enqueue(pool, &helpers[i].task);
    qn__pool_wake(pool);
  }
}

static void withdraw_helpers(parallel_t* parallel, helper_t* helpers, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (!helpers[i].task.is_queued) continue;
    qn__pool_unlink(parallel->pool, &helpers[i].task);
    leave(parallel);
  }
}

// ------------------------------------------------------------------------------------ the caller

qn_status_t qn__pool_run_parallel(qn__pool_t* pool, const qn__task_t* leader, size_t count,
                                  qn_status_t (*run)(void* arg, size_t index), void* arg) {
  helper_t helpers[QN__POOL_MAX_COMPILES];
  parallel_t parallel = {
      .pool = pool,
      .leader = leader,
      .count = count,
      .run = run,
      .arg = arg,
      .failed = count,
      .status = QN_OK,
  };
  qn__mutex_lock(&pool->mutex);
  parallel.epoch = pool->epoch;
  size_t helper_count = pool->queues[QN__QUEUE_COMPUTE].max_running - 1;
  if (helper_count + 1 > count) helper_count = count ? count - 1 : 0;
  memset(helpers, 0, helper_count * sizeof *helpers);
  submit_helpers(&parallel, helpers, (uint32_t)helper_count);
  bool is_same_process = true;
  while (is_same_process && has_items(&parallel)) is_same_process = run_next(&parallel);
  if (is_same_process) withdraw_helpers(&parallel, helpers, (uint32_t)helper_count);
  while (is_same_process && parallel.helper_count > 0) {
    qn__cond_wait(&pool->slot, &pool->mutex);
  }
  assert(qn__pool_check(pool));
  qn__mutex_unlock(&pool->mutex);
  if (is_same_process) return parallel.status;
  qn_status_free(parallel.status);
  return qn_status_make(QN_STATUS_CANCELLED,
                        "the process was forked in a compile, whose other threads it has lost");
}
