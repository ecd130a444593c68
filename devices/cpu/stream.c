// SPDX-License-Identifier: Apache-2.0
// devices/cpu/stream.c: a stream is a ring of tasks; at most one worker of the pool drains it.
//
// Requirements:
//  1. Tasks of a stream run one after another, in the order in which they were enqueued.
//  2. A stream that waits for another one holds no worker. It parks: it enters the list of the
//     other stream, which posts it again after enough of its tasks are completed. So any number of
//     streams progresses with one worker.
//  3. The first failure sticks. Later tasks are skipped, but waits still take place, so that
//     streams that depend on this one progress. The next sync returns the error and clears it.
//  4. A thread that waits for a stream whose tasks no worker has begun runs them itself.
//  5. Enqueueing blocks only while the ring is full, and allocates nothing.
//  6. completed <= enqueued <= completed + RING_SIZE; a stream with tasks is scheduled.
// Locks: a stream's own mutex only, never two at once.
#include "devices/cpu/stream.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "devices/cpu/pool.h"

#define RING_SIZE 64u

typedef enum task_kind { TASK_RUN, TASK_COPY, TASK_WAIT } task_kind_t;

typedef struct task {
  task_kind_t kind;
  union {
    struct {
      qn__cpu_run_fn_t run;
      void* self;
      qn_launch_t launch;  // its words are those below
      int32_t core_budget;
      uint64_t words[QN__CPU_MAX_WORDS];
    } run;
    struct {
      void* to;
      const void* from;
      size_t size_bytes;
    } copy;
    struct {
      qn__cpu_stream_t* from;  // retained
      uint64_t target;
    } wait;
  };
} task_t;

struct qn__cpu_stream {
  qn__cpu_task_t drainer;  // must be first: run() casts it back
  _Atomic uint32_t reference_count;
  qn__mutex_t mutex;
  qn__cond_t changed;  // a task was completed, so the ring has space
  uint64_t enqueued;   // tasks so far; the ring holds [completed, enqueued)
  uint64_t completed;
  bool is_scheduled;  // posted, draining or parked
  bool is_posted;     // a worker may not have begun yet, so a waiting thread may take the task
  qn_status_t error;  // the first failure since the last sync
  // Streams that are parked at this one, each until its `parked_target` is completed.
  qn__cpu_stream_t* parked;
  // Used while this stream is parked at another one.
  uint64_t parked_target;
  qn__cpu_stream_t* next_parked;
  task_t ring[RING_SIZE];
};

static void drain(qn__cpu_task_t* drainer);

#ifndef NDEBUG
// Tests requirement 6. Holds the lock.
static bool check_stream(const qn__cpu_stream_t* stream) {
  bool fits =
      stream->completed <= stream->enqueued && stream->enqueued - stream->completed <= RING_SIZE;
  bool is_served = stream->completed == stream->enqueued || stream->is_scheduled;
  return fits && is_served;
}
#endif

qn_status_t qn__cpu_stream_create(int32_t id, void** out_stream) {
  (void)id;
  *out_stream = NULL;
  qn__cpu_stream_t* stream = qn__alloc_zero(qn_allocator_default(), 1, sizeof *stream);
  if (!stream) return qn__out_of_memory("a stream");
  qn_status_t status = qn__mutex_init(&stream->mutex);
  if (qn_ok(status)) {
    status = qn__cond_init(&stream->changed);
    if (!qn_ok(status)) qn__mutex_deinit(&stream->mutex);
  }
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), stream, sizeof *stream);
    return status;
  }
  stream->drainer.run = drain;
  atomic_init(&stream->reference_count, 1);
  *out_stream = stream;
  return QN_OK;
}

void qn__cpu_stream_retain(qn__cpu_stream_t* stream) {
  atomic_fetch_add_explicit(&stream->reference_count, 1, memory_order_relaxed);
}

void qn__cpu_stream_release(qn__cpu_stream_t* stream) {
  if (atomic_fetch_sub_explicit(&stream->reference_count, 1, memory_order_acq_rel) != 1) return;
  assert(stream->completed == stream->enqueued && !stream->parked);
  qn_status_free(stream->error);
  qn__cond_deinit(&stream->changed);
  qn__mutex_deinit(&stream->mutex);
  qn__free(qn_allocator_default(), stream, sizeof *stream);
}

// Waits until `target` tasks are completed. Runs the tasks itself if no worker has begun, because
// all workers may be busy for long. Holds the lock.
static void wait_until(qn__cpu_stream_t* stream, uint64_t target) {
  while (stream->completed < target) {
    if (!stream->is_posted) {
      qn__cond_wait(&stream->changed, &stream->mutex);
      continue;
    }
    stream->is_posted = false;
    qn__mutex_unlock(&stream->mutex);
    if (qn__cpu_pool_take(&stream->drainer)) drain(&stream->drainer);
    qn__mutex_lock(&stream->mutex);
  }
}

void qn__cpu_stream_destroy(int32_t id, void* self) {
  (void)id;
  qn__cpu_stream_t* stream = self;
  qn__mutex_lock(&stream->mutex);
  wait_until(stream, stream->enqueued);
  // The worker has completed the last task, but may still use the stream.
  while (stream->is_scheduled) qn__cond_wait(&stream->changed, &stream->mutex);
  qn__mutex_unlock(&stream->mutex);
  qn__cpu_stream_release(stream);
}

uint64_t qn__cpu_stream_enqueued(qn__cpu_stream_t* stream) {
  qn__mutex_lock(&stream->mutex);
  uint64_t count = stream->enqueued;
  qn__mutex_unlock(&stream->mutex);
  return count;
}

uint64_t qn__cpu_stream_completed(qn__cpu_stream_t* stream) {
  qn__mutex_lock(&stream->mutex);
  uint64_t count = stream->completed;
  qn__mutex_unlock(&stream->mutex);
  return count;
}

bool qn__cpu_stream_is_idle(int32_t id, void* stream) {
  (void)id;
  return !stream || qn__cpu_stream_completed(stream) == qn__cpu_stream_enqueued(stream);
}

void qn__cpu_stream_drain(qn__cpu_stream_t* stream) {
  qn__mutex_lock(&stream->mutex);
  wait_until(stream, stream->enqueued);
  qn__mutex_unlock(&stream->mutex);
}

// ---------------------------------------------------------------------------------- enqueueing

// Takes the lock and returns the next free task. Waits while the ring is full.
static task_t* reserve(qn__cpu_stream_t* stream) {
  qn__mutex_lock(&stream->mutex);
  while (stream->enqueued - stream->completed == RING_SIZE) {
    qn__cond_wait(&stream->changed, &stream->mutex);
  }
  return &stream->ring[stream->enqueued % RING_SIZE];
}

// Makes the reserved task part of the queue and releases the lock. If the stream cannot be posted,
// the task is not queued.
static qn_status_t commit(qn__cpu_stream_t* stream) {
  qn_status_t status = QN_OK;
  if (!stream->is_scheduled) {
    status = qn__cpu_pool_post(&stream->drainer);
    stream->is_scheduled = stream->is_posted = qn_ok(status);
  }
  if (qn_ok(status)) stream->enqueued++;
  assert(check_stream(stream));
  qn__mutex_unlock(&stream->mutex);
  return status;
}

qn_status_t qn__cpu_enqueue(void* inner, qn__cpu_run_fn_t run, void* self,
                            const qn_launch_t* launch) {
  qn__cpu_stream_t* stream = inner;
  if (launch->word_count > QN__CPU_MAX_WORDS) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "a launch has at most %u words, this one %u",
                          QN__CPU_MAX_WORDS, launch->word_count);
  }
  launch->retain(launch->owner);
  task_t* task = reserve(stream);
  task->kind = TASK_RUN;
  task->run.run = run;
  task->run.self = self;
  task->run.launch = *launch;
  task->run.launch.words = task->run.words;
  task->run.launch.ends = NULL;
  task->run.core_budget = qn__cpu_core_budget();
  memcpy(task->run.words, launch->words, launch->word_count * sizeof(uint64_t));
  qn_status_t status = commit(stream);
  if (!qn_ok(status)) launch->release(launch->owner);
  return status;
}

qn_status_t qn__cpu_stream_copy(qn__cpu_stream_t* stream, void* to, const void* from,
                                size_t size_bytes) {
  task_t* task = reserve(stream);
  task->kind = TASK_COPY;
  task->copy.to = to;
  task->copy.from = from;
  task->copy.size_bytes = size_bytes;
  return commit(stream);
}

qn_status_t qn__cpu_stream_wait(int32_t id, void* from, void* to) {
  (void)id;
  if (!from) return QN_OK;
  if (!to) {
    qn__cpu_stream_drain(from);
    return QN_OK;
  }
  uint64_t target = qn__cpu_stream_enqueued(from);
  qn__cpu_stream_retain(from);
  task_t* task = reserve(to);
  task->kind = TASK_WAIT;
  task->wait.from = from;
  task->wait.target = target;
  qn_status_t status = commit(to);
  if (!qn_ok(status)) qn__cpu_stream_release(from);
  return status;
}

qn_status_t qn__cpu_stream_sync(int32_t id, void* self) {
  (void)id;
  qn__cpu_stream_t* stream = self;
  if (!stream) return QN_OK;
  qn__mutex_lock(&stream->mutex);
  wait_until(stream, stream->enqueued);
  qn_status_t error = stream->error;
  stream->error = QN_OK;
  qn__mutex_unlock(&stream->mutex);
  return error;
}

// ---------------------------------------------------------------------------------- draining

static qn_status_t run_task(task_t* task, bool is_skipped) {
  qn_status_t status = QN_OK;
  if (!is_skipped) {
    int32_t old_budget = qn_cpu_set_core_budget(task->run.core_budget);
    status = task->run.run(task->run.self, &task->run.launch);
    (void)qn_cpu_set_core_budget(old_budget);
  }
  task->run.launch.release(task->run.launch.owner);
  return status;
}

// Returns true if the wait of `to` is over. Otherwise parks `to` at `from`, which will post it.
static bool pass_or_park(qn__cpu_stream_t* to, const task_t* task) {
  qn__cpu_stream_t* from = task->wait.from;
  qn__mutex_lock(&from->mutex);
  bool may_pass = from->completed >= task->wait.target;
  if (!may_pass) {
    to->parked_target = task->wait.target;
    to->next_parked = from->parked;
    from->parked = to;
  }
  qn__mutex_unlock(&from->mutex);
  return may_pass;
}

// Unlinks the parked streams whose wait is over and returns them as a list. Holds the lock.
static qn__cpu_stream_t* take_ready(qn__cpu_stream_t* stream) {
  qn__cpu_stream_t* ready = NULL;
  for (qn__cpu_stream_t** at = &stream->parked; *at;) {
    qn__cpu_stream_t* other = *at;
    assert(other != stream && other->parked_target <= stream->enqueued);
    if (other->parked_target > stream->completed) {
      at = &other->next_parked;
      continue;
    }
    *at = other->next_parked;
    other->next_parked = ready;
    ready = other;
  }
  return ready;
}

static void post_all(qn__cpu_stream_t* ready) {
  while (ready) {
    // After the post another thread may drain and destroy the stream.
    qn__cpu_stream_t* stream = ready;
    ready = stream->next_parked;
    qn__cpu_stream_retain(stream);
    qn_status_t status = qn__cpu_pool_post(&stream->drainer);
    // Cannot fail: a worker exists, or a caller that drains.
    (void)QN_NEVER(!qn_ok(status));
    qn_status_free(status);
    qn__mutex_lock(&stream->mutex);
    stream->is_posted = true;
    qn__cond_broadcast(&stream->changed);
    qn__mutex_unlock(&stream->mutex);
    qn__cpu_stream_release(stream);
  }
}

static void drain(qn__cpu_task_t* drainer) {
  qn__cpu_stream_t* stream = (qn__cpu_stream_t*)(void*)drainer;
  qn__cpu_stream_retain(stream);
  qn__mutex_lock(&stream->mutex);
  assert(stream->is_scheduled);
  while (stream->completed < stream->enqueued) {
    task_t* task = &stream->ring[stream->completed % RING_SIZE];
    bool is_skipped = stream->error != QN_OK;
    qn__mutex_unlock(&stream->mutex);
    qn_status_t status = QN_OK;
    if (task->kind == TASK_WAIT) {
      if (!pass_or_park(stream, task)) {
        qn__cpu_stream_release(stream);
        return;
      }
      qn__cpu_stream_release(task->wait.from);
    } else if (task->kind == TASK_RUN) {
      status = run_task(task, is_skipped);
    } else if (!is_skipped) {
      memcpy(task->copy.to, task->copy.from, task->copy.size_bytes);
    }
    qn__mutex_lock(&stream->mutex);
    if (!qn_ok(status)) stream->error = status;
    stream->completed++;
    assert(check_stream(stream));
    qn__cpu_stream_t* ready = take_ready(stream);
    qn__cond_broadcast(&stream->changed);
    if (ready) {
      qn__mutex_unlock(&stream->mutex);
      post_all(ready);
      qn__mutex_lock(&stream->mutex);
    }
  }
  stream->is_scheduled = false;
  qn__cond_broadcast(&stream->changed);
  qn__mutex_unlock(&stream->mutex);
  qn__cpu_stream_release(stream);
}
