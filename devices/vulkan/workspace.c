// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/workspace.c: temporary memory in stream order, cached by ../workspace.h.
//
// A freed part records its stream and the stream's last enqueued value: its use has passed when the
// stream has completed that value. (The value of a failed submit is never completed, so a destroyed
// stream does not wait for it: qn__vk_workspace_forget.)
#include "devices/workspace.h"

#include "base/alloc.h"
#include "devices/vulkan/context.h"
#include "devices/vulkan/stream.h"

#define MAX_CACHED_BYTES (UINT64_C(512) << 20)

typedef struct workspace_part {
  qn__workspace_block_t block;  // must be first: `part_of` casts it back
  qn__vk_place_t place;
  qn__vk_stream_t* stream;  // while it is cached: that freed it, retained
  uint64_t completes_at;
} workspace_part_t;

static workspace_part_t* part_of(qn__workspace_block_t* block) {
  return (workspace_part_t*)(void*)block;
}

static bool is_passed(const qn__workspace_block_t* block) {
  const workspace_part_t* part = (const workspace_part_t*)(const void*)block;
  return qn__vk_stream_has_completed(part->stream, part->completes_at);
}

qn_status_t qn__vk_workspace_init(qn__vk_device_t* device) {
  return qn__workspace_init(&device->memory.workspace, MAX_CACHED_BYTES, is_passed);
}

qn_status_t qn__vk_workspace_acquire(qn__vk_device_t* device, qn__vk_stream_t* stream,
                                     uint64_t size_bytes, uint64_t* out_address) {
  qn__workspace_t* workspace = &device->memory.workspace;
  uint32_t size_class;
  if (!qn__workspace_class_of(size_bytes, &size_class)) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "vulkan:%d: no workspace of %" PRIu64 " bytes",
                          device->id, size_bytes);
  }
  qn__workspace_block_t* cached = qn__workspace_acquire(workspace, size_class, (uintptr_t)stream);
  if (cached) {
    *out_address = cached->address;
    qn__vk_stream_release(part_of(cached)->stream);
    return QN_OK;
  }
  workspace_part_t* part = qn__alloc_zero(device->allocator, 1, sizeof *part);
  if (!part) return qn__out_of_memory("workspace");
  qn_status_t status = qn__vk_memory_allocate(
      device, QN__VK_POOL_DEVICE, qn__workspace_class_bytes(size_class), 0, &part->place);
  if (!qn_ok(status)) {
    qn__free(device->allocator, part, sizeof *part);
    return qn_status_annotate(status, "workspace of %" PRIu64 " bytes", size_bytes);
  }
  *out_address = qn__vk_address(device, part->place);
  part->block = (qn__workspace_block_t){.address = *out_address, .size_class = size_class};
  qn__workspace_add(workspace, &part->block);
  return QN_OK;
}

static void free_parts(qn__vk_device_t* device, qn__workspace_block_t* list) {
  while (list) {
    workspace_part_t* part = part_of(list);
    list = list->next;
    qn_status_free(qn__vk_memory_free(device, part->place));
    qn__vk_stream_release(part->stream);
    qn__free(device->allocator, part, sizeof *part);
  }
}

qn_status_t qn__vk_workspace_release(qn__vk_device_t* device, qn__vk_stream_t* stream,
                                     uint64_t address) {
  qn__workspace_t* workspace = &device->memory.workspace;
  qn__workspace_block_t* block = qn__workspace_remove(workspace, address);
  if (!block) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "vulkan:%d: 0x%" PRIx64 " is not a workspace; freed twice?", device->id,
                          address);
  }
  qn__vk_stream_retain(stream);
  block->stream = (uintptr_t)stream;
  part_of(block)->stream = stream;
  part_of(block)->completes_at = atomic_load_explicit(&stream->enqueued, memory_order_acquire);
  free_parts(device, qn__workspace_release(workspace, block));
  return QN_OK;
}

void qn__vk_workspace_deinit(qn__vk_device_t* device) {
  free_parts(device, qn__workspace_deinit(&device->memory.workspace));
}

void qn__vk_workspace_trim(qn__vk_device_t* device) {
  free_parts(device, qn__workspace_trim(&device->memory.workspace, 0));
}

void qn__vk_workspace_forget(qn__vk_device_t* device, qn__vk_stream_t* stream) {
  free_parts(device, qn__workspace_forget(&device->memory.workspace, (uintptr_t)stream));
}

// ---------------------------------------------------------------------------------- the table's

qn_status_t qn__vk_workspace_allocate(int32_t id, void* stream, size_t size_bytes,
                                      void** out_pointer) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__vk_stream_t* own;
  QN_TRY(qn__vk_stream_of(device, stream, &own));
  uint64_t address;
  QN_TRY(qn__vk_workspace_acquire(device, own, size_bytes, &address));
  memcpy(out_pointer, &address, sizeof address);
  return QN_OK;
}

qn_status_t qn__vk_workspace_free(int32_t id, void* stream, void* pointer) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__vk_stream_t* own;
  QN_TRY(qn__vk_stream_of(device, stream, &own));
  return qn__vk_workspace_release(device, own, (uintptr_t)pointer);
}
