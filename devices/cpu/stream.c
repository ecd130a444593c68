// devices/cpu/stream.c: a stream is a ring of tasks that one worker of the pool at a time drains.
//
// Requirements:
//  1. Tasks of a stream run one after another in the order of enqueueing.
//  2. A stream that must wait for another one does not hold a worker meanwhile: it leaves its name
//  with
//     the other stream, and is posted again when that one has got far enough. So any number of
//     streams works on one worker.
//  3. The first failure sticks; tasks behind it are skipped (waits and their successors still
//  progress);
//     the next sync hands the error over and clears it.
//  4. Who waits for a stream whose work no worker has begun does that work.
//  5. A full ring blocks the enqueuer, nothing else does. Nothing is allocated per task.
// Locks: a stream's own mutex only; never two at once. Thread rule: any thread. Read next: pool.c.
#include "devices/cpu/stream.h"

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
      void* owner;
      void (*release)(void* owner);
      qn_status_t (*describe)(void* owner, const qn_kernel_failure_t* failure);
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
  qn__pool_job_t job;  // first: run() gets this pointer back
  _Atomic uint32_t reference_count;
  qn__mutex_t mutex;
  qn__cond_t changed;  // completed or space
  uint64_t enqueued;   // tasks ever; the ring holds [completed, enqueued)
  uint64_t completed;
  bool is_scheduled;  // posted, draining or parked
  bool is_posted;     // perhaps no worker has begun yet: who waits may try to
  qn_status_t error;  // the one that sticks
  // Streams that are parked until this one has completed `parked_target` tasks.
  qn__cpu_stream_t* parked;
  // While this stream is parked at another one.
  uint64_t parked_target;
  qn__cpu_stream_t* next_parked;
  task_t ring[RING_SIZE];
};

static void drain(qn__pool_job_t* job);

qn_status_t qn__cpu_stream_create(qn__cpu_stream_t** out_stream) {
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
  stream->job.run = drain;
  atomic_init(&stream->reference_count, 1);
  *out_stream = stream;
  return QN_OK;
}

void qn__cpu_stream_retain(qn__cpu_stream_t* stream) {
  atomic_fetch_add_explicit(&stream->reference_count, 1, memory_order_relaxed);
}

void qn__cpu_stream_release(qn__cpu_stream_t* stream) {
  if (atomic_fetch_sub_explicit(&stream->reference_count, 1, memory_order_acq_rel) != 1) return;
  qn_status_free(stream->error);
  qn__cond_deinit(&stream->changed);
  qn__mutex_deinit(&stream->mutex);
  qn__free(qn_allocator_default(), stream, sizeof *stream);
}

// Waits with the lock held. Work that no worker has begun is done by the caller itself: it has
// nothing better to do, and all workers may be busy for long.
static void wait_until(qn__cpu_stream_t* stream, uint64_t target) {
  while (stream->completed < target) {
    if (!stream->is_posted) {
      qn__cond_wait(&stream->changed, &stream->mutex);
      continue;
    }
    stream->is_posted = false;
    qn__mutex_unlock(&stream->mutex);
    if (qn__pool_take(&stream->job)) drain(&stream->job);
    qn__mutex_lock(&stream->mutex);
  }
}

void qn__cpu_stream_destroy(qn__cpu_stream_t* stream) {
  qn__mutex_lock(&stream->mutex);
  wait_until(stream, stream->enqueued);
  // The drainer is past its last task, but may not have let go yet.
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

// ---------------------------------------------------------------------------------- enqueueing

// The next free task, with the lock held.
static task_t* reserve(qn__cpu_stream_t* stream) {
  qn__mutex_lock(&stream->mutex);
  while (stream->enqueued - stream->completed == RING_SIZE) {
    qn__cond_wait(&stream->changed, &stream->mutex);
  }
  return &stream->ring[stream->enqueued % RING_SIZE];
}

// Makes the reserved task part of the queue and releases the lock. On failure the task is not
// queued.
static qn_status_t commit(qn__cpu_stream_t* stream) {
  qn_status_t status = QN_OK;
  if (!stream->is_scheduled) {
    status = qn__pool_post(&stream->job);
    stream->is_scheduled = stream->is_posted = qn_ok(status);
  }
  if (qn_ok(status)) stream->enqueued++;
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
  task->run.owner = launch->owner;
  task->run.release = launch->release;
  task->run.describe = launch->describe;
  task->run.core_budget = qn__pool_core_budget();
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

qn_status_t qn__cpu_stream_wait(qn__cpu_stream_t* from, qn__cpu_stream_t* to) {
  uint64_t target = qn__cpu_stream_enqueued(from);
  if (!to) {
    qn__mutex_lock(&from->mutex);
    wait_until(from, target);
    qn__mutex_unlock(&from->mutex);
    return QN_OK;
  }
  qn__cpu_stream_retain(from);
  task_t* task = reserve(to);
  task->kind = TASK_WAIT;
  task->wait.from = from;
  task->wait.target = target;
  qn_status_t status = commit(to);
  if (!qn_ok(status)) qn__cpu_stream_release(from);
  return status;
}

qn_status_t qn__cpu_stream_sync(qn__cpu_stream_t* stream) {
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
    qn__cpu_call_t call = qn__cpu_call_template;
    int32_t old_budget = qn_cpu_set_core_budget(task->run.core_budget);
    if (task->run.run(task->run.self, &call, task->run.words) != 0) {
      status = task->run.describe(task->run.owner, &call.failure);
    }
    (void)qn_cpu_set_core_budget(old_budget);
  }
  task->run.release(task->run.owner);
  return status;
}

// True when `to` may go on; otherwise it is parked at `from`, which will post it.
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

// Takes the streams that need not wait any more out of the list. Holds the lock.
static qn__cpu_stream_t* take_ready(qn__cpu_stream_t* stream) {
  qn__cpu_stream_t* ready = NULL;
  for (qn__cpu_stream_t** at = &stream->parked; *at;) {
    qn__cpu_stream_t* other = *at;
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
    // Once posted, a stream may be drained, destroyed and gone.
    qn__cpu_stream_t* stream = ready;
    ready = stream->next_parked;
    qn__cpu_stream_retain(stream);
    qn_status_t status = qn__pool_post(&stream->job);
    // There is a worker, or a caller that drains: posting cannot fail.
    (void)QN_NEVER(!qn_ok(status));
    qn_status_free(status);
    qn__mutex_lock(&stream->mutex);
    stream->is_posted = true;
    qn__cond_broadcast(&stream->changed);
    qn__mutex_unlock(&stream->mutex);
    qn__cpu_stream_release(stream);
  }
}

static void drain(qn__pool_job_t* job) {
  qn__cpu_stream_t* stream = (qn__cpu_stream_t*)(void*)job;
  qn__cpu_stream_retain(stream);
  qn__mutex_lock(&stream->mutex);
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
