// SPDX-License-Identifier: Apache-2.0
// devices/cuda/stream.c: streams of ours (non-blocking), the legacy default stream, and streams of
// the host; waiting for them and between them.
//
// A sync waits in the driver without a lock. Then it retires the batches in flight and returns the
// first failure.
//
// Read next: in_flight.c, graph.c.
#include "base/alloc.h"
#include "devices/cuda/cuda.h"

static _Atomic uint64_t stream_count;

qn__cuda_stream_t* qn__cuda_stream(qn__cuda_device_t* device, void* stream) {
  return stream ? stream : device->default_stream;
}

// Asks the driver only about streams that the host can capture on: its own, those whose native
// stream it has, and those that wait for such a stream. Also about the legacy default stream: while
// the host captures on a blocking stream, the query fails, and a use of the default stream would
// end the capture.
qn_status_t qn__cuda_is_recorded_by_host(const qn__cuda_stream_t* stream, bool* out_is_recorded) {
  *out_is_recorded = false;
  if (!atomic_load_explicit(&stream->is_shared, memory_order_relaxed) ||
      atomic_load_explicit(&stream->capture, memory_order_relaxed)) {
    return QN_OK;
  }
  CUstreamCaptureStatus state = QN__CU_CAPTURE_STATUS_NONE;
  const CUresult result = qn__cuda()->is_capturing(stream->native, &state);
  if (__builtin_expect(result == QN__CU_CAPTURE_IMPLICIT, 0)) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "cuda:%d: the default stream cannot be used while the host records a "
                          "graph on a blocking stream: use another stream",
                          stream->device->id);
  }
  QN_TRY(qn__cuda_check(stream->device, result, "querying a stream"));
  *out_is_recorded = state != QN__CU_CAPTURE_STATUS_NONE;
  return QN_OK;
}

qn_status_t qn__cuda_not_capturing(const qn__cuda_stream_t* stream, const char* what) {
  bool is_recorded;
  QN_TRY(qn__cuda_is_recorded_by_host(stream, &is_recorded));
  if (!is_recorded && !atomic_load_explicit(&stream->capture, memory_order_relaxed)) return QN_OK;
  return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                        "cuda:%d: %s is not possible while %s records a graph", stream->device->id,
                        what, is_recorded ? "the host" : "the stream");
}

qn_status_t qn__cuda_stream_make(qn__cuda_device_t* device, CUstream native, bool is_owned,
                                 qn__cuda_stream_t** out_stream) {
  *out_stream = NULL;
  qn__cuda_stream_t* stream = qn__alloc_zero(qn_allocator_default(), 1, sizeof *stream);
  if (!stream) return qn__out_of_memory("a stream");
  stream->device = device;
  stream->native = native;
  stream->is_owned = is_owned;
  atomic_init(&stream->is_shared, !is_owned);
  qn__short_lock_init(&stream->lock);
  qn_status_t status = qn__mutex_init(&stream->retire_mutex);
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), stream, sizeof *stream);
    return status;
  }
  stream->number = native ? atomic_fetch_add(&stream_count, 1) + 1 : 0;
  status = qn__cuda_error_record_init(stream);
  if (qn_ok(status)) status = qn__cuda_readback_allocate(device, &stream->readback);
  for (size_t i = 0; qn_ok(status) && i < QN__CUDA_MARKS; i++) {
    status = qn__cuda_event_acquire(device, &stream->marks[i].event);
  }
  if (!qn_ok(status)) {
    // Freeing a record takes the lock that the caller holds.
    qn__mutex_unlock(&device->mutex);
    qn__cuda_stream_free(stream, true);
    qn__mutex_lock(&device->mutex);
    return status;
  }
  *out_stream = stream;
  return QN_OK;
}

void qn__cuda_stream_free(qn__cuda_stream_t* stream, bool is_passed) {
  qn__cuda_in_flight_retire_all(stream, is_passed);
  for (size_t i = 0; i < QN__CUDA_MARKS; i++) {
    qn__cuda_event_release(stream->device, stream->marks[i].event);
  }
  qn__cuda_error_record_deinit(stream);
  qn__cuda_readback_free(stream->device, stream->readback);
  qn_status_free(stream->error);
  qn__mutex_deinit(&stream->retire_mutex);
  qn__free(qn_allocator_default(), stream, sizeof *stream);
}

// Creates the object of a native stream.
static qn_status_t make_around(qn__cuda_device_t* device, CUstream native, bool is_owned,
                               void** out_stream) {
  qn__cuda_stream_t* stream;
  qn__mutex_lock(&device->mutex);
  qn_status_t status = qn__cuda_stream_make(device, native, is_owned, &stream);
  qn__mutex_unlock(&device->mutex);
  *out_stream = stream;
  return status;
}

qn_status_t qn__cuda_stream_create(int32_t id, void** out_stream) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  *out_stream = NULL;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  CUstream native = NULL;
  qn_status_t status = qn__cuda_check(
      device, cu->stream_create(&native, QN__CU_STREAM_NON_BLOCKING), "creating a stream");
  if (qn_ok(status)) {
    status = make_around(device, native, true, out_stream);
    if (!qn_ok(status)) (void)cu->stream_destroy(native);
  }
  qn__cuda_leave(&scope);
  return status;
}

qn_status_t qn__cuda_stream_wrap(int32_t id, void* native, void** out_stream) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  *out_stream = NULL;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  CUcontext context = NULL;
  qn_status_t status = QN_OK;
  if ((uintptr_t)native == QN__CU_STREAM_PER_THREAD) {
    status = qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "cuda:%d: the default stream of each thread is another one in each, "
                            "and cannot be wrapped: make a stream",
                            id);
  }
  if (qn_ok(status)) {
    status = qn__cuda_check(device, qn__cuda()->stream_get_ctx(native, &context),
                            "querying a stream's context");
  }
  if (qn_ok(status) && context != atomic_load(&device->context)) {
    status = qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "cuda:%d: the stream to wrap is not one of the device's primary "
                            "context, in which quern works",
                            id);
  }
  if (qn_ok(status)) status = make_around(device, native, false, out_stream);
  qn__cuda_leave(&scope);
  return status;
}

void* qn__cuda_stream_native(int32_t id, void* stream) {
  (void)id;
  qn__cuda_stream_t* self = stream;
  if (!self) return NULL;
  atomic_store(&self->is_shared, true);
  return self->native;
}

// Waits for the stream. Returns false if work is in flight and a wait is not possible, because it
// would end the host's capture. `*out_is_passed`: the wait succeeded.
static bool is_finished(qn__cuda_stream_t* stream, bool* out_is_passed) {
  bool is_recorded;
  qn_status_t status = qn__cuda_is_recorded_by_host(stream, &is_recorded);
  *out_is_passed = false;
  if (qn_ok(status) && is_recorded) {
    qn__short_lock(&stream->lock);
    const bool is_empty = stream->first == stream->next;
    qn__short_unlock(&stream->lock);
    return is_empty;
  }
  if (qn_ok(status)) {
    status = qn__cuda_check(stream->device, qn__cuda()->stream_synchronize(stream->native),
                            "waiting for a stream");
    *out_is_passed = qn_ok(status);
  }
  qn_status_free(status);
  return true;
}

// Frees the stream. Does not call the driver for a device that has ended or a parent process. Leaks
// the stream if the host captures on it while launches are in flight: their end is unknown, and
// they use its memory.
void qn__cuda_stream_destroy(int32_t id, void* inner) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__cuda_stream_t* stream = inner;
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  if (qn__cuda_is_forked()) {
    // The parent may have held its locks at the fork.
    return;
  }
  qn_status_t status = qn__cuda_enter(id, &device, &scope);
  if (qn_ok(status)) {
    qn__cuda_capture_abandon(stream);
    bool is_passed;
    const bool is_done = is_finished(stream, &is_passed);
    if (stream->is_owned) (void)cu->stream_destroy(stream->native);
    if (is_done) qn__cuda_stream_free(stream, is_passed);
    qn__cuda_leave(&scope);
  } else {
    qn__cuda_capture_abandon(stream);  // releases the graph, even if the driver fails
    qn__cuda_stream_free(stream, false);
  }
  qn_status_free(status);
}

// Returns the stream's error once. Later work runs again, after a clear of the record.
static qn_status_t take_error(qn__cuda_stream_t* stream) {
  qn__mutex_lock(&stream->retire_mutex);
  qn_status_t error = stream->error;
  stream->error = QN_OK;
  if (stream->is_failed) {
    stream->is_failed = false;
    qn__short_lock(&stream->lock);
    stream->is_clear_due = true;
    qn__short_unlock(&stream->lock);
  }
  qn__mutex_unlock(&stream->retire_mutex);
  return error;
}

qn_status_t qn__cuda_stream_sync(int32_t id, void* inner) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  qn__cuda_stream_t* stream = qn__cuda_stream(device, inner);
  qn_status_t status = qn__cuda_not_capturing(stream, "a sync");
  if (qn_ok(status)) {
    status = qn__cuda_in_flight_wait(stream, "work of the stream");
    // A failure of the driver comes first; the next sync then returns that of the kernel.
    if (qn_ok(status)) status = take_error(stream);
    qn__cuda_host_graph_release_owners();
  }
  qn__cuda_leave(&scope);
  return status;
}

qn_status_t qn__cuda_stream_wait(int32_t id, void* from_inner, void* to_inner) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  qn__cuda_stream_t* from = qn__cuda_stream(device, from_inner);
  qn__cuda_stream_t* to = qn__cuda_stream(device, to_inner);
  qn__cuda_graph_t* recorded = atomic_load(&from->capture);
  qn__cuda_graph_t* recording = atomic_load(&to->capture);
  bool is_from_host = false, is_to_host = false;
  qn_status_t status = qn__cuda_is_recorded_by_host(from, &is_from_host);
  if (qn_ok(status)) status = qn__cuda_is_recorded_by_host(to, &is_to_host);
  if (qn_ok(status) && ((recording && recorded != recording) || (is_to_host && !is_from_host))) {
    status = qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                            "cuda:%d: a stream that records cannot wait for one that does not "
                            "record the same graph",
                            id);
  }
  if (qn_ok(status) && (recorded || is_from_host) && !to->native) {
    status = qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                            "cuda:%d: the default stream cannot wait for one that records", id);
  }
  CUevent event = NULL;
  if (qn_ok(status)) status = qn__cuda_event_acquire(device, &event);
  if (qn_ok(status)) {
    status = qn__cuda_check(device, cu->event_record(event, from->native), "recording an event");
  }
  if (qn_ok(status)) {
    status =
        qn__cuda_check(device, cu->stream_wait_event(to->native, event, 0), "making a stream wait");
  }
  if (qn_ok(status) && recorded && !recording) qn__cuda_capture_join(from, to);
  if (qn_ok(status) && is_from_host) atomic_store(&to->is_shared, true);
  qn__cuda_event_release(device, event);
  qn__cuda_leave(&scope);
  return status;
}

// Reports idle for a stream that records, and for a device that has ended: neither runs anything.
bool qn__cuda_stream_is_idle(int32_t id, void* inner) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  qn_status_t status = qn__cuda_enter(id, &device, &scope);
  if (!qn_ok(status)) {
    qn_status_free(status);
    return true;
  }
  qn__cuda_stream_t* stream = qn__cuda_stream(device, inner);
  bool is_idle = true;
  status = qn__cuda_not_capturing(stream, "a query");
  if (qn_ok(status)) {
    const CUresult result = qn__cuda()->stream_query(stream->native);
    is_idle = result != QN__CU_NOT_READY;
    if (is_idle) status = qn__cuda_check(device, result, "querying a stream");
  }
  qn_status_free(status);
  qn__cuda_leave(&scope);
  return is_idle;
}
