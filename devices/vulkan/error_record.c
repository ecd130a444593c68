// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/error_record.c: the error record of a stream. Kernels that can fail write it; the
// host reads it when their batch has completed.
//
// Requirements, and how each is met:
//  1. Every block of a kernel that can fail reads the record when it begins, so the record lies in
//     device memory. Where that memory is mapped, the host reads the record in place. Otherwise
//     each batch with such a kernel, and no other, ends with a copy to host memory.
//  2. The host reads no memory that the device may be writing. Each batch has its own place for its
//     copy. A record in place is believed only if its tag is of a completed batch: then the kernel
//     has written all fields, and no kernel writes the record again before it is cleared.
//  3. A failure finds its owner: a record is checked when its batch has completed, before
//     the batch's owners are released.
//  4. After a sync returned the failure, the device clears the record before the next kernel that
//     can fail. So all work queued before the sync is skipped, and later work runs. If the submit
//     of a clearing fails, the clearing is pending again.
//  5. A call runs as a whole, or stops at some launch; it never skips one and runs a later one.
//     `epoch` increases when an error is found and when it is returned, so it is odd while there is
//     an error. A launch is recorded only in the even epoch in which its call began, even if
//     another thread's sync returns the error in between.
// Thread rule: functions need the stream's mutex, except init and deinit.
#include "devices/vulkan/stream.h"

_Static_assert(sizeof(qn_gpu_record_t) % sizeof(uint32_t) == 0, "a record is cleared by words");

// ---------------------------------------------------------------------------------- life

qn_status_t qn__vk_error_record_init(qn__vk_stream_t* stream) {
  qn__vk_device_t* device = stream->device;
  QN_TRY(qn__vk_memory_allocate(device, QN__VK_POOL_DEVICE, sizeof(qn_gpu_record_t), 0,
                                &stream->error_record));
  // Fresh memory has undefined contents.
  stream->is_clear_pending = true;
  if (stream->error_record.block->mapped) return QN_OK;
  return qn__vk_memory_allocate(device, QN__VK_POOL_HOST,
                                QN__VK_MAX_BATCHES * sizeof(qn_gpu_record_t), 0,
                                &stream->record_copies);
}

void qn__vk_error_record_deinit(qn__vk_stream_t* stream) {
  qn__vk_device_t* device = stream->device;
  if (stream->error_record.block) qn_status_free(qn__vk_memory_free(device, stream->error_record));
  if (stream->record_copies.block)
    qn_status_free(qn__vk_memory_free(device, stream->record_copies));
  qn_status_free(stream->error);
}

// ---------------------------------------------------------------------------------- commands

static qn__vk_access_t access_of(qn__vk_place_t place, bool is_written) {
  return (qn__vk_access_t){atomic_load_explicit(&place.block->uid, memory_order_relaxed),
                           place.offset, place.offset + sizeof(qn_gpu_record_t), is_written};
}

// Returns the place of the batch's copy of the record.
static qn__vk_place_t copy_of(const qn__vk_stream_t* stream, const qn__vk_batch_t* batch) {
  assert(batch->number < QN__VK_MAX_BATCHES && !stream->error_record.block->mapped);
  return (qn__vk_place_t){stream->record_copies.block,
                          stream->record_copies.offset + batch->number * sizeof(qn_gpu_record_t)};
}

void qn__vk_error_record_clear(qn__vk_stream_t* stream) {
  const qn__vk_access_t access = access_of(stream->error_record, true);
  qn__vk_stream_order(stream, VK_PIPELINE_STAGE_TRANSFER_BIT, &access, 1);
  stream->device->vk.CmdFillBuffer(stream->open->commands, stream->error_record.block->buffer,
                                   stream->error_record.offset, sizeof(qn_gpu_record_t), 0);
  stream->open->has_clearing = true;
  stream->is_clear_pending = false;
}

void qn__vk_error_record_copy(qn__vk_stream_t* stream) {
  if (stream->error_record.block->mapped) return;
  const qn__vk_place_t to = copy_of(stream, stream->open);
  const qn__vk_access_t accesses[] = {access_of(stream->error_record, false), access_of(to, true)};
  qn__vk_stream_order(stream, VK_PIPELINE_STAGE_TRANSFER_BIT, accesses, QN_COUNT_OF(accesses));
  VkBufferCopy region = {.srcOffset = stream->error_record.offset,
                         .dstOffset = to.offset,
                         .size = sizeof(qn_gpu_record_t)};
  stream->device->vk.CmdCopyBuffer(stream->open->commands, stream->error_record.block->buffer,
                                   to.block->buffer, 1, &region);
}

// ---------------------------------------------------------------------------------- errors

void qn__vk_error_record_check(qn__vk_stream_t* stream, const qn__vk_batch_t* batch) {
  if (!batch->has_tags || stream->is_failed || atomic_load(&stream->device->is_lost)) return;
  qn__vk_place_t place = stream->error_record;
  if (!place.block->mapped) place = copy_of(stream, batch);
  const volatile qn_gpu_record_t* record =
      (const volatile qn_gpu_record_t*)(void*)(place.block->mapped + place.offset);
  const uint32_t tag = record->tag;
  if (tag == 0) return;
  for (size_t i = 0; i < batch->owner_count; i++) {
    const qn__vk_owner_t* owner = &batch->owners[i];
    if (tag - owner->first_tag >= owner->tag_count) continue;
    const qn_kernel_failure_t failure = {record->site, record->index, record->extent};
    stream->is_failed = true;
    qn__vk_stream_set_error(
        stream, owner->describe ? owner->describe(owner->owner, &failure)
                                : qn_status_make(QN_STATUS_DEVICE_ERROR, "a kernel failed"));
    return;
  }
}

// Increments the epoch, which is written under the mutex and read without it.
static void next_epoch(qn__vk_stream_t* stream) {
  const uint32_t epoch = atomic_load_explicit(&stream->epoch, memory_order_relaxed);
  atomic_store_explicit(&stream->epoch, epoch + 1, memory_order_relaxed);
}

void qn__vk_stream_set_error(qn__vk_stream_t* stream, qn_status_t status) {
  if (!qn_ok(stream->error)) {
    qn_status_free(status);
    return;
  }
  stream->error = status;
  next_epoch(stream);
  assert(atomic_load(&stream->epoch) % 2 == 1);
}

qn_status_t qn__vk_stream_take_error(qn__vk_stream_t* stream) {
  qn_status_t error = stream->error;
  if (qn_ok(error)) return QN_OK;
  stream->error = QN_OK;
  next_epoch(stream);
  assert(atomic_load(&stream->epoch) % 2 == 0);
  if (stream->is_failed) stream->is_clear_pending = true;
  stream->is_failed = false;
  return error;
}
