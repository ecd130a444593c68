// SPDX-License-Identifier: Apache-2.0
// jit/engine/pool.h: the worker pool: threads that run tasks from queues.
//
// There is a queue for tasks that compute, of which only so many may run at once, and one for tasks
// that read files and networks, which may hang and must not delay the others. Threads are started
// when there is work and stay until the pool is stopped. A task is the caller's memory.
//
// Not here: what the tasks do. A child of fork starts with empty queues and no threads.
#ifndef QUERN_JIT_POOL_H_
#define QUERN_JIT_POOL_H_

#include "base/fork.h"
#include "base/thread.h"

#define QN__POOL_MAX_COMPILES 64u
#define QN__POOL_MAX_READS 4u
// Compute tasks that have lent their slot while they wait for another process.
#define QN__POOL_MAX_LENT 8u
#define QN__POOL_MAX_THREADS (1 + QN__POOL_MAX_READS + QN__POOL_MAX_COMPILES + QN__POOL_MAX_LENT)

typedef enum qn__queue_id {
  QN__QUEUE_IO,       // may wait for files and networks
  QN__QUEUE_COMPUTE,  // compiles
  QN__QUEUE_TIMER,    // one task that only waits for the clock
  QN__QUEUE_COUNT
} qn__queue_id_t;

typedef struct qn__task qn__task_t;
struct qn__task {
  void (*run)(qn__task_t* task);   // may free the task or submit it again
  void (*drop)(qn__task_t* task);  // called instead if the pool is stopped first
  qn__queue_id_t queue;
  int32_t priority;   // higher first, equals in their order
  int64_t queued_ns;  // when it was submitted
  bool is_queued;     // the pool's
  qn__task_t* next;   // the pool's
};

typedef struct qn__pool_queue {
  qn__task_t* first;
  qn__task_t* last;
  uint32_t queued_count, running_count, max_running;
} qn__pool_queue_t;

// The object that the pool is part of. Threads that outlive the stop keep its memory.
typedef struct qn__pool_owner {
  void* self;
  void (*retain)(void* self);   // for each thread, before it starts
  void (*release)(void* self);  // by each thread, as the last thing
  void (*forget)(void* self);   // for each thread that a child of fork lost: frees nothing
} qn__pool_owner_t;

typedef struct qn__pool {
  qn__pool_owner_t owner;
  qn__mutex_t mutex;
  qn__cond_t work;   // for threads that are idle
  qn__cond_t slot;   // for tasks that want their slot back, wait for helpers, or sleep
  qn__cond_t ended;  // for the stop
  qn__pool_queue_t queues[QN__QUEUE_COUNT];
  pthread_t threads[QN__POOL_MAX_THREADS];
  uint32_t thread_count, idle_count, lent_count, returning_count;
  uint32_t epoch;  // number of forks that led to this process
  bool is_stopping;
  bool is_exiting;  // the process ends: no task is started any more
  qn__fork_node_t fork_node;
} qn__pool_t;

// `max_compiles` 0: half of the cores, at least 1 and at most 8. The pool must not move afterwards.
qn_status_t qn__pool_init(qn__pool_t* pool, uint64_t max_compiles, qn__pool_owner_t owner);
// After the stop.
void qn__pool_deinit(qn__pool_t* pool);

// Queues a task. False if the pool is stopped, or has no thread but that of the timer and can start
// none: the task then still is the caller's.
bool qn__pool_submit(qn__pool_t* pool, qn__task_t* task);
// Raises the priority of a task, also while it is queued. Never lowers it.
void qn__pool_raise(qn__pool_t* pool, qn__task_t* task, int32_t priority);
// Takes a task out of its queue; false if it is not in it.
bool qn__pool_withdraw(qn__pool_t* pool, qn__task_t* task);

// Lends the slot of the compute task that calls, while it waits for something else than a
// processor. False: too many are lent already. Taking it back goes before queued tasks.
bool qn__pool_lend(qn__pool_t* pool);
void qn__pool_take_back(qn__pool_t* pool);

// Runs `run(arg, i)` for each i below `count`, begun in rising order, and returns when all have
// ended. The calling thread takes part, and as many compute tasks as there are slots besides its
// own. They queue after others of the leader's priority, for one index each, so that they never
// delay another compile for longer. `leader` is the task of the calling compile. Errors: that of
// the least index that failed, after which none is begun; CANCELLED in a child of fork that `run`
// made. (parallel.c)
qn_status_t qn__pool_run_parallel(qn__pool_t* pool, const qn__task_t* leader, size_t count,
                                  qn_status_t (*run)(void* arg, size_t index), void* arg);

// Drops queued tasks and waits at most `grace_ns` for running ones. False if threads are left: each
// releases the owner when it ends.
bool qn__pool_stop(qn__pool_t* pool, int64_t grace_ns);
// Whether the pool is being stopped, or the process ends.
bool qn__pool_is_stopping(qn__pool_t* pool);
// Sleeps until `deadline_ns`, or returns false earlier if the pool is being stopped.
bool qn__pool_sleep(qn__pool_t* pool, int64_t deadline_ns);

// Counts the tasks of a queue that wait for a thread, and those that run.
void qn__pool_counts(qn__pool_t* pool, qn__queue_id_t id, uint32_t* out_queued,
                     uint32_t* out_running);
// Checks requirement 1 of pool.c and the counts. The caller holds the mutex.
bool qn__pool_check(const qn__pool_t* pool);

#endif  // QUERN_JIT_POOL_H_
