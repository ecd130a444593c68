// SPDX-License-Identifier: Apache-2.0
// jit/engine/pool.c: see pool.h.
//
// Requirements:
//  1. At most max_running tasks of a queue run at once. Within a queue the highest priority goes
//     first, equals in the order in which they came.
//  2. A task that can run does run: each change of what can run wakes an idle thread or starts one.
//  3. A thread that cannot be started is no error while there are others.
//  4. A process that exits waits for IO and compute tasks that run, for a bounded time: a compiler
//     would crash if its library were torn down under it. It does not wait for tasks that are
//     queued, wait for the clock, or have lent their slot; these find the pool stopping.
//  5. A child of fork touches nothing of its parent's queues or threads. The owners of the tasks
//     forget them, too (in_flight.c).
#include "jit/engine/pool_inner.h"

#include "base/alloc.h"

// The default of most systems, so that a process with a smaller limit compiles deep programs, too.
// LLVM's recursion needs it; our own is bounded by QN__NESTING_LIMIT.
#define STACK_BYTES ((size_t)8 << 20)

static qn_status_t make_locks(qn__pool_t* pool) {
  QN_TRY(qn__mutex_init(&pool->mutex));
  QN_TRY(qn__cond_init(&pool->work));
  QN_TRY(qn__cond_init(&pool->slot));
  return qn__cond_init(&pool->ended);
}

// ---------------------------------------------------------------------------------------- fork

static void fork_child(void* self) {
  qn__pool_t* pool = self;
  qn_status_free(make_locks(pool));
  uint32_t lost_count = pool->thread_count;
  pool->thread_count = pool->idle_count = pool->lent_count = pool->returning_count = 0;
  for (int id = 0; id < QN__QUEUE_COUNT; id++) {
    qn__pool_queue_t* queue = &pool->queues[id];
    queue->first = queue->last = NULL;
    queue->queued_count = queue->running_count = 0;
  }
  pool->epoch++;
  // The parent's threads held references that no thread of this process releases.
  for (uint32_t i = 0; i < lost_count; i++) pool->owner.forget(pool->owner.self);
}

bool qn__pool_check(const qn__pool_t* pool) {
  for (int id = 0; id < QN__QUEUE_COUNT; id++) {
    const qn__pool_queue_t* queue = &pool->queues[id];
    uint32_t count = 0;
    const qn__task_t* last = NULL;
    for (const qn__task_t* task = queue->first; task; last = task, task = task->next, count++) {
      if (!task->is_queued || (int)task->queue != id) return false;
      if (last && last->priority < task->priority) return false;
    }
    if (count != queue->queued_count || last != queue->last) return false;
    if (queue->running_count > queue->max_running) return false;
  }
  return pool->idle_count <= pool->thread_count && pool->thread_count <= QN__POOL_MAX_THREADS &&
         pool->returning_count <= QN__POOL_MAX_LENT && pool->lent_count <= QN__POOL_MAX_LENT;
}

static uint32_t count_at_work(const qn__pool_t* pool) {
  return pool->queues[QN__QUEUE_IO].running_count + pool->queues[QN__QUEUE_COMPUTE].running_count;
}

static void at_exit(void* self, int64_t deadline_ns) {
  qn__pool_t* pool = self;
  qn__mutex_lock(&pool->mutex);
  // Idle threads stay: one that ended now would run its destructors beside those of the process.
  pool->is_exiting = true;
  qn__cond_broadcast(&pool->slot);
  // A callback that ends the process does not wait for itself.
  uint32_t own_count = 0;
  for (uint32_t i = 0; i < pool->thread_count; i++) {
    if (pthread_equal(pool->threads[i], pthread_self())) own_count = 1;
  }
  bool is_in_time = true;
  while (count_at_work(pool) > own_count && is_in_time) {
    is_in_time = qn__cond_wait_until(&pool->ended, &pool->mutex, deadline_ns) ||
                 qn__exit_prolong(&deadline_ns);
  }
  if (count_at_work(pool) > own_count) qn__exit_give_up();
  qn__mutex_unlock(&pool->mutex);
}

// --------------------------------------------------------------------------------------- queue

void qn__pool_enqueue(qn__pool_t* pool, qn__task_t* task) {
  qn__pool_queue_t* queue = &pool->queues[task->queue];
  qn__task_t** at = &queue->first;
  if (queue->last && queue->last->priority >= task->priority) {
    at = &queue->last->next;
  } else {
    while (*at && (*at)->priority >= task->priority) at = &(*at)->next;
  }
  task->next = *at;
  *at = task;
  if (!task->next) queue->last = task;
  task->is_queued = true;
  queue->queued_count++;
}

void qn__pool_unlink(qn__pool_t* pool, qn__task_t* task) {
  qn__pool_queue_t* queue = &pool->queues[task->queue];
  assert(task->is_queued);
  qn__task_t* previous = NULL;
  qn__task_t** at = &queue->first;
  while (*at != task) {
    previous = *at;
    at = &previous->next;
  }
  *at = task->next;
  if (queue->last == task) queue->last = previous;
  task->next = NULL;
  task->is_queued = false;
  queue->queued_count--;
}

static uint32_t free_slots(const qn__pool_t* pool, int id) {
  const qn__pool_queue_t* queue = &pool->queues[id];
  uint32_t taken = queue->running_count + (id == QN__QUEUE_COMPUTE ? pool->returning_count : 0);
  return taken < queue->max_running ? queue->max_running - taken : 0;
}

// Takes the next task that may run. IO goes first: it is short, and a hit saves a compile. The
// timer goes last: its task only waits, and this could be the only thread.
static qn__task_t* take(qn__pool_t* pool) {
  if (pool->is_exiting) return NULL;
  for (int id = 0; id < QN__QUEUE_COUNT; id++) {
    qn__pool_queue_t* queue = &pool->queues[id];
    if (!queue->first || free_slots(pool, id) == 0) continue;
    qn__task_t* task = queue->first;
    qn__pool_unlink(pool, task);
    queue->running_count++;
    assert(qn__pool_check(pool));
    return task;
  }
  return NULL;
}

static void* work(void* arg);

void qn__pool_wake(qn__pool_t* pool) {
  uint32_t runnable = 0;
  for (int id = 0; id < QN__QUEUE_COUNT; id++) {
    uint32_t queued = pool->queues[id].queued_count;
    uint32_t slots = free_slots(pool, id);
    runnable += queued < slots ? queued : slots;
  }
  if (runnable == 0 || pool->is_exiting) return;
  if (runnable > pool->idle_count && pool->thread_count < QN__POOL_MAX_THREADS &&
      !pool->is_stopping) {
    pool->owner.retain(pool->owner.self);
    qn_status_t status = qn__thread_start(&pool->threads[pool->thread_count], "quern-compile",
                                          STACK_BYTES, work, pool);
    if (qn_ok(status)) {
      pool->thread_count++;
    } else {
      qn_status_free(status);
      pool->owner.release(pool->owner.self);
    }
  }
  qn__cond_signal(&pool->work);
}

// ------------------------------------------------------------------------------------- threads

static void* work(void* arg) {
  qn__pool_t* pool = arg;
  qn__mutex_lock(&pool->mutex);
  const uint32_t epoch = pool->epoch;
  while (!pool->is_stopping) {
    qn__task_t* task = take(pool);
    if (!task) {
      pool->idle_count++;
      qn__cond_wait(&pool->work, &pool->mutex);
      pool->idle_count--;
      continue;
    }
    qn__pool_wake(pool);
    qn__queue_id_t id = task->queue;
    qn__mutex_unlock(&pool->mutex);
    task->run(task);
    qn__mutex_lock(&pool->mutex);
    if (pool->epoch != epoch) {
      // A callback has forked on this thread, which the child's pool does not know.
      qn__mutex_unlock(&pool->mutex);
      return NULL;
    }
    assert(pool->queues[id].running_count > 0);
    pool->queues[id].running_count--;
    if (pool->returning_count) qn__cond_broadcast(&pool->slot);
    if (pool->is_exiting) qn__cond_broadcast(&pool->ended);
  }
  qn__pool_owner_t owner = pool->owner;
  if (--pool->thread_count == 0) qn__cond_broadcast(&pool->ended);
  qn__mutex_unlock(&pool->mutex);
  owner.release(owner.self);
  return NULL;
}

qn_status_t qn__pool_init(qn__pool_t* pool, uint64_t max_compiles, qn__pool_owner_t owner) {
  memset(pool, 0, sizeof *pool);
  pool->owner = owner;
  if (max_compiles == 0) {
    int cores = qn__available_cores();
    max_compiles = cores < 4 ? 1 : cores > 16 ? 8 : (uint64_t)cores / 2;
  }
  if (max_compiles > QN__POOL_MAX_COMPILES) max_compiles = QN__POOL_MAX_COMPILES;
  pool->queues[QN__QUEUE_COMPUTE].max_running = (uint32_t)max_compiles;
  pool->queues[QN__QUEUE_TIMER].max_running = 1;
  pool->queues[QN__QUEUE_IO].max_running = QN__POOL_MAX_READS;
  QN_TRY(make_locks(pool));
  pool->fork_node = (qn__fork_node_t){
      .self = pool,
      .mutex = &pool->mutex,
      .child = fork_child,
      .at_exit = at_exit,
  };
  if (qn__fork_register(&pool->fork_node)) return QN_OK;
  pool->fork_node.self = NULL;
  return qn__out_of_memory("a fork handler");
}

void qn__pool_deinit(qn__pool_t* pool) {
  if (!pool->fork_node.self) return;
  qn__fork_unregister(&pool->fork_node);
  qn__mutex_deinit(&pool->mutex);
  qn__cond_deinit(&pool->work);
  qn__cond_deinit(&pool->slot);
  qn__cond_deinit(&pool->ended);
}

// ---------------------------------------------------------------------------------------- tasks

bool qn__pool_submit(qn__pool_t* pool, qn__task_t* task) {
  task->queued_ns = qn__now_ns();
  qn__mutex_lock(&pool->mutex);
  bool is_queued = !pool->is_stopping && !pool->is_exiting;
  assert(!task->is_queued);
  if (is_queued) {
    qn__pool_enqueue(pool, task);
    qn__pool_wake(pool);
    assert(qn__pool_check(pool));
    uint32_t watching = pool->queues[QN__QUEUE_TIMER].running_count;
    if (pool->thread_count == (task->queue == QN__QUEUE_TIMER ? 0 : watching)) {
      qn__pool_unlink(pool, task);
      is_queued = false;
    }
  }
  qn__mutex_unlock(&pool->mutex);
  return is_queued;
}

void qn__pool_raise(qn__pool_t* pool, qn__task_t* task, int32_t priority) {
  qn__mutex_lock(&pool->mutex);
  if (task->priority < priority) {
    bool is_queued = task->is_queued;
    if (is_queued) qn__pool_unlink(pool, task);
    task->priority = priority;
    if (is_queued) qn__pool_enqueue(pool, task);
    assert(qn__pool_check(pool));
  }
  qn__mutex_unlock(&pool->mutex);
}

bool qn__pool_withdraw(qn__pool_t* pool, qn__task_t* task) {
  qn__mutex_lock(&pool->mutex);
  bool was_queued = task->is_queued;
  if (was_queued) qn__pool_unlink(pool, task);
  assert(qn__pool_check(pool));
  qn__mutex_unlock(&pool->mutex);
  return was_queued;
}

bool qn__pool_lend(qn__pool_t* pool) {
  qn__mutex_lock(&pool->mutex);
  qn__pool_queue_t* queue = &pool->queues[QN__QUEUE_COMPUTE];
  bool is_lent = pool->lent_count < QN__POOL_MAX_LENT && queue->running_count > 0;
  if (is_lent) {
    pool->lent_count++;
    queue->running_count--;
    if (pool->returning_count) qn__cond_broadcast(&pool->slot);
    qn__pool_wake(pool);
  }
  qn__mutex_unlock(&pool->mutex);
  return is_lent;
}

void qn__pool_take_back(qn__pool_t* pool) {
  qn__mutex_lock(&pool->mutex);
  const uint32_t epoch = pool->epoch;
  qn__pool_queue_t* queue = &pool->queues[QN__QUEUE_COMPUTE];
  pool->returning_count++;
  while (queue->running_count >= queue->max_running && pool->epoch == epoch) {
    qn__cond_wait(&pool->slot, &pool->mutex);
  }
  if (pool->returning_count) pool->returning_count--;
  if (pool->lent_count) pool->lent_count--;
  queue->running_count++;
  qn__mutex_unlock(&pool->mutex);
}

// ---------------------------------------------------------------------------------------- stop

bool qn__pool_stop(qn__pool_t* pool, int64_t grace_ns) {
  if (!pool->fork_node.self) return true;
  int64_t deadline_ns = qn__now_ns() + grace_ns;
  qn__task_t* dropped = NULL;
  qn__mutex_lock(&pool->mutex);
  pool->is_stopping = true;
  for (int id = 0; id < QN__QUEUE_COUNT; id++) {
    while (pool->queues[id].last) {
      qn__task_t* task = pool->queues[id].first;
      qn__pool_unlink(pool, task);
      task->next = dropped;
      dropped = task;
    }
  }
  uint32_t started_count = pool->thread_count;
  qn__cond_broadcast(&pool->work);
  qn__cond_broadcast(&pool->slot);
  qn__mutex_unlock(&pool->mutex);
  while (dropped) {
    qn__task_t* task = dropped;
    dropped = task->next;
    task->next = NULL;
    task->drop(task);
  }
  qn__mutex_lock(&pool->mutex);
  bool is_in_time = true;
  while (pool->thread_count && is_in_time) {
    is_in_time = qn__cond_wait_until(&pool->ended, &pool->mutex, deadline_ns);
  }
  bool have_all_ended = pool->thread_count == 0;
  assert(!have_all_ended || pool->idle_count == 0);
  qn__mutex_unlock(&pool->mutex);
  for (uint32_t i = 0; i < started_count; i++) {
    if (have_all_ended) {
      (void)pthread_join(pool->threads[i], NULL);
    } else {
      (void)pthread_detach(pool->threads[i]);
    }
  }
  return have_all_ended;
}

bool qn__pool_is_stopping(qn__pool_t* pool) {
  qn__mutex_lock(&pool->mutex);
  bool is_stopping = pool->is_stopping || pool->is_exiting;
  qn__mutex_unlock(&pool->mutex);
  return is_stopping;
}

bool qn__pool_sleep(qn__pool_t* pool, int64_t deadline_ns) {
  qn__mutex_lock(&pool->mutex);
  bool is_in_time = true;
  while (!pool->is_stopping && !pool->is_exiting && is_in_time) {
    is_in_time = qn__cond_wait_until(&pool->slot, &pool->mutex, deadline_ns);
  }
  bool is_stopping = pool->is_stopping || pool->is_exiting;
  qn__mutex_unlock(&pool->mutex);
  return !is_stopping;
}

void qn__pool_counts(qn__pool_t* pool, qn__queue_id_t id, uint32_t* out_queued,
                     uint32_t* out_running) {
  qn__mutex_lock(&pool->mutex);
  *out_queued = pool->queues[id].queued_count;
  *out_running = pool->queues[id].running_count;
  qn__mutex_unlock(&pool->mutex);
}
