// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/copy.c: copies in stream order.
//
// A program may reuse host memory that is not pinned when the call returns. So an upload copies it
// to pinned memory first, and a download waits. Device memory that is mapped is read and written
// directly once the stream is idle.
#include "base/alloc.h"
#include "devices/vulkan/context.h"
#include "devices/vulkan/stream.h"

#define CHUNK_BYTES (UINT64_C(8) << 20)
// The limit of a stream's pinned memory for uploads in flight; beyond it, the next upload waits.
#define MAX_STAGED_BYTES (UINT64_C(64) << 20)
// The most that the host reads directly from mapped memory that it does not cache.
#define UNCACHED_BYTES UINT64_C(4096)

// Records a copy. `kept`: pinned memory to free when the copy has completed; NULL: none.
static qn_status_t record_copy(qn__vk_stream_t* stream, qn__vk_place_t from, qn__vk_place_t to,
                               uint64_t size_bytes, const qn__vk_place_t* kept) {
  QN_TRY(qn__vk_stream_begin(stream));
  if (kept && !qn__vk_stream_defer_free(stream, *kept)) {
    qn__mutex_unlock(&stream->mutex);
    return qn__out_of_memory("a copy");
  }
  if (kept) {
    stream->open->staged_bytes += size_bytes;
    atomic_fetch_add_explicit(&stream->staged_bytes, size_bytes, memory_order_relaxed);
  }
  const qn__vk_access_t accesses[] = {{atomic_load_explicit(&from.block->uid, memory_order_relaxed),
                                       from.offset, from.offset + size_bytes, false},
                                      {atomic_load_explicit(&to.block->uid, memory_order_relaxed),
                                       to.offset, to.offset + size_bytes, true}};
  qn__vk_stream_order(stream, VK_PIPELINE_STAGE_TRANSFER_BIT, accesses, 2);
  VkBufferCopy region = {.srcOffset = from.offset, .dstOffset = to.offset, .size = size_bytes};
  stream->device->vk.CmdCopyBuffer(stream->open->commands, from.block->buffer, to.block->buffer, 1,
                                   &region);
  qn__vk_stream_end(stream);
  return QN_OK;
}

static bool is_idle_now(qn__vk_stream_t* stream) {
  qn__mutex_lock(&stream->mutex);
  bool is_idle = qn__vk_stream_poll(stream);
  qn__mutex_unlock(&stream->mutex);
  return is_idle;
}

static qn_status_t upload(qn__vk_stream_t* stream, const uint8_t* from, qn__vk_place_t to,
                          uint64_t size_bytes) {
  if (to.block->mapped && is_idle_now(stream)) {
    memcpy(to.block->mapped + to.offset, from, size_bytes);
    return QN_OK;
  }
  for (uint64_t done = 0; done < size_bytes;) {
    uint64_t size = size_bytes - done < CHUNK_BYTES ? size_bytes - done : CHUNK_BYTES;
    uint64_t staged = atomic_load_explicit(&stream->staged_bytes, memory_order_relaxed);
    if (staged + size > MAX_STAGED_BYTES) QN_TRY(qn__vk_stream_drain(stream));
    qn__vk_place_t staging;
    QN_TRY(qn__vk_memory_allocate(stream->device, QN__VK_POOL_HOST, size, 0, &staging));
    memcpy(staging.block->mapped + staging.offset, from + done, size);
    qn_status_t status =
        record_copy(stream, staging, (qn__vk_place_t){to.block, to.offset + done}, size, &staging);
    if (!qn_ok(status)) {
      qn_status_free(qn__vk_memory_free(stream->device, staging));
      return status;
    }
    done += size;
  }
  return QN_OK;
}

static qn_status_t download(qn__vk_stream_t* stream, qn__vk_place_t from, uint8_t* to,
                            uint64_t size_bytes) {
  // The host reads uncached memory slowly, so the device copies all but small sizes.
  bool is_cached = stream->device->memory.is_cached[from.block->pool];
  if (from.block->mapped && (is_cached || size_bytes <= UNCACHED_BYTES)) {
    if (!is_idle_now(stream)) QN_TRY(qn__vk_stream_drain(stream));
    memcpy(to, from.block->mapped + from.offset, size_bytes);
    return QN_OK;
  }
  uint64_t chunk = size_bytes < CHUNK_BYTES ? size_bytes : CHUNK_BYTES;
  qn__vk_place_t staging;
  QN_TRY(qn__vk_memory_allocate(stream->device, QN__VK_POOL_HOST, chunk, 0, &staging));
  qn_status_t status = QN_OK;
  for (uint64_t done = 0; qn_ok(status) && done < size_bytes; done += chunk) {
    uint64_t size = size_bytes - done < chunk ? size_bytes - done : chunk;
    status =
        record_copy(stream, (qn__vk_place_t){from.block, from.offset + done}, staging, size, NULL);
    if (qn_ok(status)) status = qn__vk_stream_drain(stream);
    if (qn_ok(status)) memcpy(to + done, staging.block->mapped + staging.offset, size);
  }
  qn_status_free(qn__vk_memory_free(stream->device, staging));
  return status;
}

static qn_status_t place_of(qn__vk_device_t* device, const void* pointer, size_t offset_bytes,
                            size_t size_bytes, qn__vk_place_t* out_place) {
  uint64_t address = (uint64_t)(uintptr_t)pointer + offset_bytes;
  if (qn__vk_decode(device, address, size_bytes, out_place)) return QN_OK;
  return qn__vk_bad_address(device, address, size_bytes);
}

qn_status_t qn__vk_copy(int32_t id, void* stream, const qn_copy_t* copy) {
  bool is_from = copy->from_device.type == QN_DEVICE_VULKAN;
  bool is_to = copy->to_device.type == QN_DEVICE_VULKAN;
  if (is_from && is_to && copy->from_device.id != copy->to_device.id) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "vulkan:%d: no copy to another device", id);
  }
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__vk_stream_t* own;
  QN_TRY(qn__vk_stream_of(device, stream, &own));
  qn__vk_place_t from = {0}, to = {0};
  if (is_from) {
    QN_TRY(place_of(device, copy->from, copy->from_offset_bytes, copy->size_bytes, &from));
  }
  if (is_to) QN_TRY(place_of(device, copy->to, copy->to_offset_bytes, copy->size_bytes, &to));
  if (is_from && is_to) return record_copy(own, from, to, copy->size_bytes, NULL);
  uint8_t* host = is_from ? (uint8_t*)copy->to + copy->to_offset_bytes : NULL;
  const uint8_t* source = is_to ? (const uint8_t*)copy->from + copy->from_offset_bytes : NULL;
  const void* outside = is_from ? host : source;
  qn__vk_place_t pinned;
  if (copy->is_host_pinned && qn__vk_find_pinned(device, outside, copy->size_bytes, &pinned)) {
    return is_from ? record_copy(own, from, pinned, copy->size_bytes, NULL)
                   : record_copy(own, pinned, to, copy->size_bytes, NULL);
  }
  return is_from ? download(own, from, host, copy->size_bytes)
                 : upload(own, source, to, copy->size_bytes);
}
