// SPDX-License-Identifier: Apache-2.0
// devices/cpu/pool.h: the thread pool of the process, which all callers and streams share.
#ifndef QUERN_DEVICES_CPU_POOL_H_
#define QUERN_DEVICES_CPU_POOL_H_

#include <stdatomic.h>

#include "base/base.h"
#include "devices/cpu/cpu.h"

// A task in the pool's list. Each worker that joins calls `run` once and does not touch the task
// afterwards.
typedef struct qn__cpu_task qn__cpu_task_t;
struct qn__cpu_task {
  void (*run)(qn__cpu_task_t* task);
  int32_t helper_limit;  // workers that may join; the last one takes the task off the list
  int32_t helper_count;  // workers that joined; guarded by the pool's lock
  qn__cpu_task_t* next;
};

// Returns the core budget of the calling thread, at least 1.
int32_t qn__cpu_core_budget(void);
// Allows the pool to have so many workers, if it has fewer. Returns false if there is no pool.
bool qn__cpu_pool_allow(int32_t worker_count);
// Queues a task for `helper_limit` workers and does not wait for them. Returns false when no worker
// can be started; the task is then not queued.
bool qn__cpu_pool_queue(qn__cpu_task_t* task);
// The same for one worker. Errors: UNAVAILABLE when no worker can be
// started; the task is then not queued.
qn_status_t qn__cpu_pool_post(qn__cpu_task_t* task);
// Takes a task off the list: no more workers join, and the caller may run it. Returns false when as
// many workers as the limit have it already.
bool qn__cpu_pool_take(qn__cpu_task_t* task);
// The pool's workers; those that are neither spinning nor sleeping run tasks.
typedef struct qn__cpu_workers {
  int32_t count;
  int32_t spinning_count;  // wait for a task without giving up their core
  int32_t sleeping_count;
} qn__cpu_workers_t;
qn__cpu_workers_t qn__cpu_pool_workers(void);
// Spins until the word differs from `old`, until a time (qn__now_ns), or until other threads want
// the core. Returns false if it is time to sleep.
bool qn__cpu_spin_while(const _Atomic uint32_t* word, uint32_t old, int64_t end_ns);
// Runs a parallel loop: the `parallel` of qn_cpu_env_t.
int32_t qn__cpu_parallel(const qn_cpu_env_t* env, qn_cpu_body_t body, void* closure, int64_t count,
                         int64_t grain);

#endif  // QUERN_DEVICES_CPU_POOL_H_
