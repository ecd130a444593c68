// SPDX-License-Identifier: Apache-2.0
// jit/engine/pool_inner.h: functions shared by the files of the worker pool. The caller holds the
// pool's mutex.
#ifndef QUERN_JIT_POOL_INNER_H_
#define QUERN_JIT_POOL_INNER_H_

#include "jit/engine/pool.h"

// Puts a task into its queue.
void qn__pool_enqueue(qn__pool_t* pool, qn__task_t* task);
// Takes a task out of the queue in which it is.
void qn__pool_unlink(qn__pool_t* pool, qn__task_t* task);
// Wakes or starts a thread if more tasks can run than threads are idle.
void qn__pool_wake(qn__pool_t* pool);

#endif  // QUERN_JIT_POOL_INNER_H_
