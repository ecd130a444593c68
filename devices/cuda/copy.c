// SPDX-License-Identifier: Apache-2.0
// devices/cuda/copy.c: copies between host and device, and between devices, on a stream.
//
// The caller may reuse pageable host memory when a copy returns. So small copies to the device go
// through pinned staging buffers and do not wait. Large copies, and copies to the host, wait for
// the stream. Between devices the driver copies, directly or through the host, or refuses.
#include "base/alloc.h"
#include "devices/cuda/cuda.h"

// The largest copy that is staged, and the most buffers. Other copies wait.
enum { STAGING_BYTES = 64 << 10, STAGING_LIMIT = 64 };

struct qn__cuda_staging {
  void* host;
  CUevent event;  // after its last use
  bool is_used;   // the event has been recorded
  qn__cuda_staging_t* next;
};

// ---------------------------------------------------------------------------------- staging

// Removes an idle buffer from the list; NULL if all are in use.
static qn__cuda_staging_t* acquire_idle(qn__cuda_device_t* device) {
  qn__cuda_staging_t* found = NULL;
  qn__mutex_lock(&device->mutex);
  for (qn__cuda_staging_t** at = &device->staging; *at; at = &(*at)->next) {
    if ((*at)->is_used && qn__cuda()->event_query((*at)->event) != QN__CU_OK) continue;
    found = *at;
    *at = found->next;
    break;
  }
  qn__mutex_unlock(&device->mutex);
  return found;
}

static void release_staging(qn__cuda_device_t* device, qn__cuda_staging_t* staging) {
  qn__mutex_lock(&device->mutex);
  staging->next = device->staging;
  device->staging = staging;
  qn__mutex_unlock(&device->mutex);
}

// Counts a new buffer; false at the limit.
static bool may_add(qn__cuda_device_t* device) {
  qn__mutex_lock(&device->mutex);
  const bool may = device->staging_count < STAGING_LIMIT;
  if (may) device->staging_count++;
  qn__mutex_unlock(&device->mutex);
  return may;
}

static void cancel_add(qn__cuda_device_t* device) {
  qn__mutex_lock(&device->mutex);
  device->staging_count--;
  qn__mutex_unlock(&device->mutex);
}

// Gets an idle or a new buffer; NULL at the limit or without memory: the copy then waits.
static qn__cuda_staging_t* acquire_staging(qn__cuda_device_t* device) {
  qn__cuda_staging_t* staging = acquire_idle(device);
  if (staging || !may_add(device)) return staging;
  const qn__cuda_driver_t* cu = qn__cuda();
  staging = qn__alloc_zero(qn_allocator_default(), 1, sizeof *staging);
  qn_status_t status = staging ? QN_OK : qn__out_of_memory("a staging buffer");
  if (qn_ok(status)) status = qn__cuda_event_acquire(device, &staging->event);
  if (qn_ok(status)) {
    status = qn__cuda_check(
        device, cu->mem_host_alloc(&staging->host, STAGING_BYTES, QN__CU_HOST_ALLOC_PORTABLE),
        "allocating a staging buffer");
  }
  if (qn_ok(status)) return staging;
  qn_status_free(status);
  if (staging) qn__cuda_event_release(device, staging->event);
  qn__free(qn_allocator_default(), staging, sizeof *staging);
  cancel_add(device);
  return NULL;
}

static qn_status_t copy_staged_to_device(qn__cuda_stream_t* stream, qn__cuda_staging_t* staging,
                                         CUdeviceptr to, const void* from, size_t size_bytes) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__cuda_device_t* device = stream->device;
  memcpy(staging->host, from, size_bytes);
  qn_status_t status = qn__cuda_check(
      device, cu->memcpy_host_to_device(to, staging->host, size_bytes, stream->native),
      "copying %zu bytes to the device", size_bytes);
  if (qn_ok(status)) {
    status = qn__cuda_check(device, cu->event_record(staging->event, stream->native),
                            "recording an event");
    // Without an event, only a wait shows that the buffer is free.
    if (!qn_ok(status)) (void)cu->stream_synchronize(stream->native);
    staging->is_used = qn_ok(status);
  }
  release_staging(device, staging);
  return status;
}

// --------------------------------------------------------------------------------- host and device

static qn_status_t wait_for(qn__cuda_stream_t* stream) {
  return qn__cuda_check(stream->device, qn__cuda()->stream_synchronize(stream->native),
                        "waiting for a copy");
}

static qn_status_t copy_to_device(qn__cuda_stream_t* stream, CUdeviceptr to, const void* from,
                                  size_t size_bytes, bool is_pinned) {
  const qn__cuda_driver_t* cu = qn__cuda();
  if (!is_pinned && size_bytes <= STAGING_BYTES) {
    qn__cuda_staging_t* staging = acquire_staging(stream->device);
    if (staging) return copy_staged_to_device(stream, staging, to, from, size_bytes);
  }
  QN_TRY(qn__cuda_check(stream->device,
                        cu->memcpy_host_to_device(to, from, size_bytes, stream->native),
                        "copying %zu bytes to the device", size_bytes));
  return is_pinned ? QN_OK : wait_for(stream);
}

static qn_status_t copy_to_host(qn__cuda_stream_t* stream, void* to, CUdeviceptr from,
                                size_t size_bytes, bool is_pinned) {
  QN_TRY(qn__cuda_check(stream->device,
                        qn__cuda()->memcpy_device_to_host(to, from, size_bytes, stream->native),
                        "copying %zu bytes to the host", size_bytes));
  return is_pinned ? QN_OK : wait_for(stream);
}

// ---------------------------------------------------------------------------------- devices

// Enables direct access between two devices, once for each pair. Copies also work without it.
static void enable_peer(qn__cuda_device_t* device, qn__cuda_device_t* peer,
                        CUcontext peer_context) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__mutex_lock(&device->mutex);
  const bool is_tried = device->is_peer_tried[peer->id];
  device->is_peer_tried[peer->id] = true;
  qn__mutex_unlock(&device->mutex);
  int can_access = 0;
  if (is_tried ||
      cu->device_can_access_peer(&can_access, device->handle, peer->handle) != QN__CU_OK ||
      !can_access) {
    return;
  }
  const CUresult result = cu->ctx_enable_peer_access(peer_context, 0);
  if (result == QN__CU_PEER_ACCESS_ALREADY_ENABLED) return;
  qn_status_free(qn__cuda_check(device, result, "enabling peer access"));
}

static qn_status_t copy_to_peer(qn__cuda_stream_t* stream, int32_t to_id, CUdeviceptr to,
                                CUdeviceptr from, size_t size_bytes) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__cuda_device_t* device = stream->device;
  qn__cuda_device_t* peer;
  qn__cuda_scope_t scope;
  // Creates the peer's context, which need not be current.
  QN_TRY(qn__cuda_enter(to_id, &peer, &scope));
  qn__cuda_leave(&scope);
  CUcontext peer_context = atomic_load(&peer->context);
  enable_peer(device, peer, peer_context);
  const CUresult result = cu->memcpy_peer(to, peer_context, from, atomic_load(&device->context),
                                          size_bytes, stream->native);
  // UNSUPPORTED: then qn_device_copy goes through the host.
  return qn__cuda_check(device, result, "copying %zu bytes to cuda:%d", size_bytes, to_id);
}

static qn_status_t copy(qn__cuda_stream_t* stream, const qn_copy_t* copy) {
  const CUdeviceptr from = (CUdeviceptr)(uintptr_t)copy->from + copy->from_offset_bytes;
  const CUdeviceptr to = (CUdeviceptr)(uintptr_t)copy->to + copy->to_offset_bytes;
  const bool is_from_host = copy->from_device.type == QN_DEVICE_CPU;
  const bool is_to_host = copy->to_device.type == QN_DEVICE_CPU;
  bool is_recorded;
  if ((is_from_host || is_to_host) && !copy->is_host_pinned) {
    QN_TRY(qn__cuda_not_capturing(stream, "a copy of host memory that is not pinned"));
  } else {
    QN_TRY(qn__cuda_is_recorded_by_host(stream, &is_recorded));
  }
  if (is_from_host) {
    return copy_to_device(stream, to, (const char*)copy->from + copy->from_offset_bytes,
                          copy->size_bytes, copy->is_host_pinned);
  }
  if (is_to_host) {
    return copy_to_host(stream, (char*)copy->to + copy->to_offset_bytes, from, copy->size_bytes,
                        copy->is_host_pinned);
  }
  if (copy->from_device.id != copy->to_device.id) {
    return copy_to_peer(stream, copy->to_device.id, to, from, copy->size_bytes);
  }
  return qn__cuda_check(
      stream->device,
      qn__cuda()->memcpy_device_to_device(to, from, copy->size_bytes, stream->native),
      "copying %zu bytes on the device", copy->size_bytes);
}

qn_status_t qn__cuda_copy(int32_t id, void* inner, const qn_copy_t* what) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  qn_status_t status = copy(qn__cuda_stream(device, inner), what);
  qn__cuda_leave(&scope);
  return status;
}
