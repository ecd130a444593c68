// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// tests/fake-cuda/stream.c: streams are threads, events are counters. See fake.h.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fake-cuda/fake.h"

static bool is_held;

EXPORT void fake_cuda_hold(int hold);
EXPORT void fake_cuda_hold(int hold) {
  (void)pthread_mutex_lock(&fake_lock);
  is_held = hold != 0;
  (void)pthread_cond_broadcast(&fake_changed);
  (void)pthread_mutex_unlock(&fake_lock);
}

// ---------------------------------------------------------------------------------- operations

op_t* fake_op(op_kind_t kind) {
  op_t* op = calloc(1, sizeof *op);
  op->kind = kind;
  return op;
}

void fake_event_release(CUevent event) {
  if (--event->use_count > 0 || !event->is_destroyed) return;
  free(event);
}

void fake_op_free(op_t* op) {
  if (op->event) fake_event_release(op->event);
  if (op->exec) fake_exec_release(op->exec);
  free(op->params);
  free(op);
}

static CUresult run_op(const op_t* op, uint64_t number);

static bool is_ready(const op_t* op, const uint64_t done[MAX_MEMBERS]) {
  for (int i = 0; i < MAX_MEMBERS; i++) {
    // A stream that joined has 1 from the start (capture.c).
    if (op->behind[i] > done[i] + (i > 0)) return false;
  }
  return true;
}

// Runs the operations of a graph one after another, each after its dependencies. With a seed it
// picks a random operation that is ready, else the first.
static CUresult run_graph(const struct CUgraph_st* graph, uint64_t number) {
  const op_t** left = calloc(graph->op_count + 1, sizeof *left);
  if (!left) return QN__CU_OUT_OF_MEMORY;
  size_t count = 0;
  for (const op_t* op = graph->first; op; op = op->next) left[count++] = op;
  uint64_t done[MAX_MEMBERS] = {0};
  CUresult result = QN__CU_OK;
  for (uint64_t step = 1; result == QN__CU_OK && count > 0; step++) {
    size_t at = 0;
    if (fake_settings.seed != 0) {
      const uint64_t random = (number * 31 + step + (uint64_t)fake_settings.seed);
      at = (size_t)((random * 0x9e3779b97f4a7c15u >> 33) % count);
    }
    while (!is_ready(left[at], done)) at = (at + 1) % count;
    done[left[at]->member]++;
    result = run_op(left[at], number + step);
    // In order of recording.
    memmove(left + at, left + at + 1, (--count - at) * sizeof *left);
  }
  free((void*)left);
  return result;
}

// Runs any operation except a wait. Called without the lock.
static CUresult run_op(const op_t* op, uint64_t number) {
  switch (op->kind) {
    case OP_KERNEL:
      return fake_run(op->function->kernel, op->function->module->exported, op->grid, op->block,
                      op->shared_bytes, op->params, number);
    case OP_COPY:
      memmove(op->to, op->from, op->size_bytes);
      return QN__CU_OK;
    case OP_FILL:
      for (size_t i = 0; i < op->size_bytes / sizeof op->value; i++) {
        ((unsigned*)op->to)[i] = op->value;
      }
      return QN__CU_OK;
    case OP_GRAPH:
      return run_graph(op->exec->graph, number);
    default:
      return QN__CU_OK;
  }
}

static uint64_t begin_record(CUevent event) {
  pending_t* pending = calloc(1, sizeof *pending);
  *pending = (pending_t){++event->recorded, event->pending};
  event->pending = pending;
  return event->recorded;
}

static void end_record(CUevent event, uint64_t sequence) {
  pending_t** at = &event->pending;
  while (*at && (*at)->sequence != sequence) at = &(*at)->next;
  pending_t* found = *at;
  if (!found) return;
  *at = found->next;
  free(found);
}

static bool is_pending(const struct CUevent_st* event, uint64_t sequence) {
  const pending_t* at = event->pending;
  while (at && at->sequence != sequence) at = at->next;
  return at != NULL;
}

// Called with the lock, which is released during the wait.
static void await_record(const struct CUevent_st* event, uint64_t sequence) {
  while (is_pending(event, sequence)) (void)pthread_cond_wait(&fake_changed, &fake_lock);
}

// Called with the lock, which is released while the operation runs.
static void perform(CUstream stream, op_t* op) {
  if (op->kind == OP_WAIT) {
    await_record(op->event, op->sequence);
    return;
  }
  while (is_held) (void)pthread_cond_wait(&fake_changed, &fake_lock);
  if (op->kind == OP_RECORD) {
    end_record(op->event, op->sequence);
  } else if (op->kind == OP_FREE) {
    (void)fake_memory_free(op->address, MEMORY_POOL);
  } else if (stream->context->error == QN__CU_OK) {
    const uint64_t number = (uint64_t)fake_counts.launches;
    if (op->kind == OP_KERNEL) fake_counts.launches++;
    (void)pthread_mutex_unlock(&fake_lock);
    CUresult result = run_op(op, number);
    (void)pthread_mutex_lock(&fake_lock);
    if (result != QN__CU_OK) stream->context->error = result;
  }
}

// Sometimes yields to other streams and the host. Called with the lock, which is released
// meanwhile.
static void dawdle(uint64_t step) {
  const uint64_t random = (step * 31 + (uint64_t)fake_settings.seed) * 0x9e3779b97f4a7c15u >> 40;
  if (random % 4 != 0) return;
  const struct timespec pause = {.tv_nsec = (long)(random / 4 % 100) * 1000};
  (void)pthread_mutex_unlock(&fake_lock);
  (void)nanosleep(&pause, NULL);
  (void)pthread_mutex_lock(&fake_lock);
}

static void* work(void* self) {
  CUstream stream = self;
  uint64_t step = 0;
  fake_run_init();
  (void)pthread_mutex_lock(&fake_lock);
  for (;;) {
    while (!stream->first && !stream->is_stopping) {
      (void)pthread_cond_wait(&fake_changed, &fake_lock);
    }
    op_t* op = stream->first;
    if (!op) break;
    stream->is_running = true;
    if (fake_settings.seed != 0) dawdle(++step);
    perform(stream, op);
    stream->is_running = false;
    stream->first = op->next;
    if (!stream->first) stream->last = NULL;
    fake_op_free(op);
    (void)pthread_cond_broadcast(&fake_changed);
  }
  (void)pthread_mutex_unlock(&fake_lock);
  return NULL;
}

static CUstream make_stream(CUcontext context, unsigned flags) {
  CUstream stream = calloc(1, sizeof *stream);
  stream->context = context;
  stream->flags = flags;
  if (pthread_create(&stream->thread, NULL, work, stream) != 0) {
    free(stream);
    return NULL;
  }
  fake_add(&stream->object, KIND_STREAM);
  return stream;
}

static CUresult find_stream(CUstream handle, bool is_asked, CUstream* out_stream) {
  CUcontext context = fake_current();
  if ((uintptr_t)handle <= 2) {
    if (!context->legacy) context->legacy = make_stream(context, 0);
    *out_stream = context->legacy;
    if (!context->legacy) return QN__CU_OUT_OF_MEMORY;
    return (uintptr_t)handle == 2 ? QN__CU_OK : fake_capture_check_legacy(context, is_asked);
  }
  if (!fake_is(handle, KIND_STREAM)) {
    fake_violation("a stream that does not exist");
    return FAKE_INVALID_HANDLE;
  }
  if (handle->context != context) {
    fake_violation("a stream of another context than the current one");
    return FAKE_INVALID_HANDLE;
  }
  *out_stream = handle;
  return QN__CU_OK;
}

CUresult fake_stream_find(CUstream handle, CUstream* out_stream) {
  return find_stream(handle, false, out_stream);
}

CUresult fake_stream_ask(CUstream handle, CUstream* out_stream) {
  return find_stream(handle, true, out_stream);
}

CUresult fake_enqueue(CUstream stream, op_t* op) {
  if (stream->capture) {
    if (stream->capture->is_invalid) {
      fake_op_free(op);
      return FAKE_CAPTURE_INVALIDATED;
    }
    fake_capture_append(stream, op);
    return QN__CU_OK;
  }
  if (stream->last) {
    stream->last->next = op;
  } else {
    stream->first = op;
  }
  stream->last = op;
  (void)pthread_cond_broadcast(&fake_changed);
  return QN__CU_OK;
}

// Waits for the operations queued so far by adding one of its own. Later operations are not waited
// for.
void fake_stream_drain(CUstream stream) {
  if (!stream->first) return;
  struct CUevent_st done = {.use_count = 1};
  op_t* op = fake_op(OP_RECORD);
  op->event = &done;
  op->sequence = begin_record(&done);
  if (stream->last) {
    stream->last->next = op;
  } else {
    stream->first = op;
  }
  stream->last = op;
  (void)pthread_cond_broadcast(&fake_changed);
  while (done.use_count > 0) (void)pthread_cond_wait(&fake_changed, &fake_lock);
}

// ---------------------------------------------------------------------------------- streams

EXPORT CUresult cuStreamCreate(CUstream* out_stream, unsigned flags);
EXPORT CUresult cuStreamCreate(CUstream* out_stream, unsigned flags) {
  ENTER(NEEDS_CONTEXT);
  if (flags > 1) return fake_leave(QN__CU_INVALID_VALUE);
  *out_stream = make_stream(fake_current(), flags);
  if (!*out_stream) return fake_leave(QN__CU_OUT_OF_MEMORY);
  fake_counts.streams++;
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream);
EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  ENTER(NEEDS_CONTEXT);
  CUstream found;
  CUresult result = fake_stream_find(stream, &found);
  if (result != QN__CU_OK) return fake_leave(result);
  if (stream->capture) fake_violation("a stream is destroyed while it captures");
  fake_remove(&stream->object);
  fake_counts.streams--;
  stream->is_stopping = true;
  (void)pthread_cond_broadcast(&fake_changed);
  const pthread_t thread = stream->thread;
  (void)pthread_mutex_unlock(&fake_lock);
  (void)pthread_join(thread, NULL);
  free(stream);
  return QN__CU_OK;
}

// Rejects a call that is forbidden during a capture, and invalidates the capture.
static CUresult refuse_capturing(const struct CUstream_st* stream) {
  if (!stream->capture) return QN__CU_OK;
  fake_capture_invalidate(stream->capture);
  return FAKE_CAPTURE_UNSUPPORTED;
}

EXPORT CUresult cuStreamSynchronize(CUstream handle);
EXPORT CUresult cuStreamSynchronize(CUstream handle) {
  ENTER(NEEDS_CONTEXT);
  CUstream stream;
  CUresult result = fake_stream_find(handle, &stream);
  if (result == QN__CU_OK) result = refuse_capturing(stream);
  if (result != QN__CU_OK) return fake_leave(result);
  fake_stream_drain(stream);
  return fake_leave(stream->context->error);
}

EXPORT CUresult cuStreamQuery(CUstream handle);
EXPORT CUresult cuStreamQuery(CUstream handle) {
  ENTER(NEEDS_CONTEXT);
  CUstream stream;
  CUresult result = fake_stream_find(handle, &stream);
  if (result == QN__CU_OK) result = refuse_capturing(stream);
  if (result == QN__CU_OK) result = stream->first ? QN__CU_NOT_READY : stream->context->error;
  return fake_leave(result);
}

EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext* out_context);
EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext* out_context) {
  ENTER(NEEDS_CONTEXT);
  if ((uintptr_t)handle <= 2) {
    *out_context = fake_current();
    return fake_leave(QN__CU_OK);
  }
  if (!fake_is(handle, KIND_STREAM)) return fake_leave(FAKE_INVALID_HANDLE);
  *out_context = handle->context;
  return fake_leave(QN__CU_OK);
}

// ---------------------------------------------------------------------------------- events

static CUresult find_event(CUevent event) {
  if (fake_is(event, KIND_EVENT) && event->context == fake_current()) return QN__CU_OK;
  fake_violation("an event that does not exist, or of another context");
  return FAKE_INVALID_HANDLE;
}

EXPORT CUresult cuEventCreate(CUevent* out_event, unsigned flags);
EXPORT CUresult cuEventCreate(CUevent* out_event, unsigned flags) {
  ENTER(NEEDS_CONTEXT);
  if (flags > 7) return fake_leave(QN__CU_INVALID_VALUE);
  CUevent event = calloc(1, sizeof *event);
  event->context = fake_current();
  fake_add(&event->object, KIND_EVENT);
  fake_counts.events++;
  *out_event = event;
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuEventDestroy_v2(CUevent event);
EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  ENTER(NEEDS_CONTEXT);
  CUresult result = find_event(event);
  if (result != QN__CU_OK) return fake_leave(result);
  fake_remove(&event->object);
  fake_counts.events--;
  event->is_destroyed = true;
  if (event->use_count == 0) free(event);
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream handle);
EXPORT CUresult cuEventRecord(CUevent event, CUstream handle) {
  ENTER(NEEDS_CONTEXT);
  CUstream stream;
  CUresult result = find_event(event);
  if (result == QN__CU_OK) result = fake_stream_find(handle, &stream);
  if (result != QN__CU_OK) return fake_leave(result);
  if (stream->capture) {
    if (stream->capture->is_invalid) return fake_leave(FAKE_CAPTURE_INVALIDATED);
    event->capture = stream->capture;
    memcpy(event->clock, stream->capture->clock[stream->member], sizeof event->clock);
    return fake_leave(QN__CU_OK);
  }
  event->capture = NULL;
  op_t* op = fake_op(OP_RECORD);
  op->event = event;
  op->sequence = begin_record(event);
  event->use_count++;
  return fake_leave(fake_enqueue(stream, op));
}

EXPORT CUresult cuEventQuery(CUevent event);
EXPORT CUresult cuEventQuery(CUevent event) {
  ENTER(NEEDS_CONTEXT | UNSAFE);
  CUresult result = find_event(event);
  if (result == QN__CU_OK && event->capture) {
    fake_capture_invalidate(event->capture);
    result = FAKE_CAPTURED_EVENT;
  }
  if (result == QN__CU_OK && is_pending(event, event->recorded)) result = QN__CU_NOT_READY;
  return fake_leave(result);
}

EXPORT CUresult cuEventSynchronize(CUevent event);
EXPORT CUresult cuEventSynchronize(CUevent event) {
  ENTER(NEEDS_CONTEXT | UNSAFE);
  CUresult result = find_event(event);
  if (result == QN__CU_OK && event->capture) {
    fake_capture_invalidate(event->capture);
    result = FAKE_CAPTURED_EVENT;
  }
  if (result != QN__CU_OK) return fake_leave(result);
  const uint64_t sequence = event->recorded;
  event->use_count++;
  await_record(event, sequence);
  result = event->context->error;
  fake_event_release(event);
  return fake_leave(result);
}

EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags);
EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  ENTER(NEEDS_CONTEXT);
  CUstream stream;
  CUresult result = flags == 0 ? find_event(event) : QN__CU_INVALID_VALUE;
  if (result == QN__CU_OK) result = fake_stream_find(handle, &stream);
  if (result != QN__CU_OK) return fake_leave(result);
  if (event->capture || stream->capture) return fake_leave(fake_capture_wait(stream, event));
  op_t* op = fake_op(OP_WAIT);
  op->event = event;
  op->sequence = event->recorded;
  event->use_count++;
  return fake_leave(fake_enqueue(stream, op));
}
