// devices/vulkan/error_record.c: errors of a stream: its record, which kernels that can fail write,
// how the host comes to see it, and how the error is told.
//
// Requirements, and how each is met:
//  1. Every block of a kernel that can fail looks at the record when it begins, so that lies in the
//     device's own memory. Where the host sees that memory it reads the record in place, and
//     nothing is copied. Else a copy is made at the end of each batch that has such a kernel, and
//     of no other batch.
//  2. Nothing is read that the device may be writing. A copy lands in a place of the batch's own.
//     In place, a tag is believed only when it is one of a batch that has passed: whoever wrote it
//     has then written all, and nobody writes the record again before it is cleared.
//  3. A failure finds its owner: it is looked for when its batch has passed, in front of the
//     release of what that batch kept.
//  4. The record is cleared by the device, in front of the next kernel that can fail behind the
//     sync that told the failure: what was queued before is skipped, all of it, and what comes
//     behind is not. A clearing whose submit failed is due again.
//  5. A call is done as a whole or not from some launch on; never its later launches without the
//     earlier ones. `epoch` goes up when an error is found, and again when it is told: it is odd
//     while one sticks. A launch is recorded only in the even epoch in which its call began; so no
//     call of several launches has some skipped behind a failure and others recorded behind the
//     clearing, though another thread's sync came in between.
// Thread rule: functions want the stream's mutex, but for make and unmake. Read next: sync.c.
#include "devices/vulkan/stream.h"

_Static_assert(sizeof(qn__gpu_record_t) % sizeof(uint32_t) == 0, "a record is cleared by words");

// ---------------------------------------------------------------------------------- life

qn_status_t qn__vk_error_record_init(qn__vk_stream_t* stream) {
  qn__vk_device_t* device = stream->device;
  QN_TRY(qn__vk_memory_allocate(device, QN__VK_POOL_DEVICE, sizeof(qn__gpu_record_t), 0,
                                &stream->error_record));
  // What it holds is anybody's.
  stream->is_clear_pending = true;
  if (stream->error_record.block->mapped) return QN_OK;
  return qn__vk_memory_allocate(device, QN__VK_POOL_HOST,
                                QN__VK_MAX_BATCHES * sizeof(qn__gpu_record_t), 0,
                                &stream->record_copies);
}

void qn__vk_error_record_deinit(qn__vk_stream_t* stream) {
  qn__vk_device_t* device = stream->device;
  if (stream->error_record.block) qn_status_free(qn__vk_memory_free(device, stream->error_record));
  if (stream->record_copies.block)
    qn_status_free(qn__vk_memory_free(device, stream->record_copies));
  qn_status_free(stream->error);
}

// ---------------------------------------------------------------------------------- of the device

static qn__vk_access_t access_of(qn__vk_place_t place, bool is_written) {
  return (qn__vk_access_t){atomic_load_explicit(&place.block->uid, memory_order_relaxed),
                           place.offset, place.offset + sizeof(qn__gpu_record_t), is_written};
}

// Where the batch's copy lands.
static qn__vk_place_t copy_of(const qn__vk_stream_t* stream, const qn__vk_batch_t* batch) {
  return (qn__vk_place_t){stream->record_copies.block,
                          stream->record_copies.offset + batch->number * sizeof(qn__gpu_record_t)};
}

void qn__vk_error_record_clear(qn__vk_stream_t* stream) {
  const qn__vk_access_t access = access_of(stream->error_record, true);
  qn__vk_stream_order(stream, VK_PIPELINE_STAGE_TRANSFER_BIT, &access, 1);
  stream->device->vk.CmdFillBuffer(stream->open->commands, stream->error_record.block->buffer,
                                   stream->error_record.offset, sizeof(qn__gpu_record_t), 0);
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
                         .size = sizeof(qn__gpu_record_t)};
  stream->device->vk.CmdCopyBuffer(stream->open->commands, stream->error_record.block->buffer,
                                   to.block->buffer, 1, &region);
}

// ---------------------------------------------------------------------------------- of the host

void qn__vk_error_record_check(qn__vk_stream_t* stream, const qn__vk_batch_t* batch) {
  if (!batch->has_tags || stream->is_failed || atomic_load(&stream->device->is_lost)) return;
  qn__vk_place_t place = stream->error_record;
  if (!place.block->mapped) place = copy_of(stream, batch);
  const volatile qn__gpu_record_t* record =
      (const volatile qn__gpu_record_t*)(void*)(place.block->mapped + place.offset);
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

// Changed under the mutex alone, and read without it.
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
}

qn_status_t qn__vk_stream_take_error(qn__vk_stream_t* stream) {
  qn_status_t error = stream->error;
  if (qn_ok(error)) return QN_OK;
  stream->error = QN_OK;
  next_epoch(stream);
  if (stream->is_failed) stream->is_clear_pending = true;
  stream->is_failed = false;
  return error;
}
