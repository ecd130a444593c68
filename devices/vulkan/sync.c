// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/sync.c: waits for streams, retires completed batches, makes one stream wait for
// another, creates fences of all streams.
//
// Requirements:
//  1. No thread waits for the device with a mutex held.
//  2. Owners are released without the mutex, because a release may unload code.
//  3. A wait for another stream happens on the device. The source's work is submitted first, so a
//     shared queue never waits for a batch that comes later in the same queue.
// Read next: error_record.c.
#include "base/alloc.h"
#include "devices/vulkan/executable.h"
#include "devices/vulkan/stream.h"

// ---------------------------------------------------------------------------------- retiring

// Raises `completed` to `value`; never lowers it, also when several threads ask the driver.
static void note_completed(qn__vk_stream_t* stream, uint64_t value) {
  uint64_t known = atomic_load_explicit(&stream->completed, memory_order_relaxed);
  while (known < value &&
         !atomic_compare_exchange_weak_explicit(&stream->completed, &known, value,
                                                memory_order_acq_rel, memory_order_relaxed)) {
  }
}

bool qn__vk_stream_has_completed(qn__vk_stream_t* stream, uint64_t value) {
  if (atomic_load_explicit(&stream->completed, memory_order_acquire) >= value) return true;
  qn__vk_device_t* device = stream->device;
  uint64_t now = 0;
  VkResult result = device->vk.GetSemaphoreCounterValue(device->handle, stream->timeline, &now);
  // A lost device completes no more work. Waiting calls get the error from qn__vk_use.
  if (result != VK_SUCCESS) {
    qn_status_free(qn__vk_status(device, result, "vkGetSemaphoreCounterValue"));
    return true;
  }
  note_completed(stream, now);
  return now >= value;
}

bool qn__vk_stream_poll(qn__vk_stream_t* stream) {
  // On a lost device all submitted work counts as completed: it will never run.
  if (qn__vk_stream_has_completed(stream, stream->submitted)) {
    note_completed(stream, stream->submitted);
  }
  // `enqueued` may be below `submitted`: a batch can hold only the resources of a failed call.
  return stream->pending_wait_count == 0 &&
         atomic_load_explicit(&stream->completed, memory_order_relaxed) >=
             atomic_load_explicit(&stream->enqueued, memory_order_relaxed);
}

static void release_batch(qn__vk_stream_t* stream, qn__vk_batch_t* batch) {
  qn__vk_device_t* device = stream->device;
  for (size_t i = 0; i < batch->owner_count; i++) {
    qn__vk_owner_t* owner = &batch->owners[i];
    if (owner->unsaved) qn__vk_executable_save(owner->unsaved);
    if (owner->release) owner->release(owner->owner);
  }
  for (size_t i = 0; i < batch->place_count; i++) {
    qn_status_free(qn__vk_memory_free(device, batch->places[i]));
  }
  for (uint32_t i = 0; i < batch->wait_count; i++) qn__vk_stream_release(batch->waits[i].from);
  batch->owner_count = 0;
  batch->place_count = 0;
  assert(atomic_load(&stream->staged_bytes) >= batch->staged_bytes);
  atomic_fetch_sub_explicit(&stream->staged_bytes, batch->staged_bytes, memory_order_relaxed);
  batch->staged_bytes = 0;
  batch->wait_count = 0;
  batch->parameters_left = 0;
}

void qn__vk_stream_retire(qn__vk_stream_t* stream) {
  qn__mutex_lock(&stream->mutex);
  (void)qn__vk_stream_poll(stream);
  uint64_t completed = atomic_load_explicit(&stream->completed, memory_order_relaxed);
  qn__vk_batch_t* done = stream->first;
  qn__vk_batch_t** end = &stream->first;
  qn__vk_batch_t* last = NULL;
  for (; *end && (*end)->value <= completed; end = &(*end)->next) {
    last = *end;
    qn__vk_error_record_check(stream, last);
  }
  if (last) {
    stream->first = last->next;
    if (!stream->first) stream->last = NULL;
    last->next = NULL;
  } else {
    done = NULL;
  }
  qn__mutex_unlock(&stream->mutex);
  if (!done) return;
  for (qn__vk_batch_t* batch = done; batch; batch = batch->next) release_batch(stream, batch);
  qn__mutex_lock(&stream->mutex);
  last->next = stream->spare;
  stream->spare = done;
  qn__mutex_unlock(&stream->mutex);
}

qn_status_t qn__vk_stream_wait_value(qn__vk_stream_t* stream, uint64_t value, uint64_t timeout_ns) {
  if (atomic_load_explicit(&stream->completed, memory_order_acquire) >= value) return QN_OK;
  qn__vk_device_t* device = stream->device;
  VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                              .semaphoreCount = 1,
                              .pSemaphores = &stream->timeline,
                              .pValues = &value};
  VkResult result = device->vk.WaitSemaphores(device->handle, &wait, timeout_ns);
  if (result == VK_TIMEOUT) {
    return qn_status_make(QN_STATUS_DEADLINE_EXCEEDED, "vulkan:%d: the work is not done",
                          device->id);
  }
  return qn__vk_status(device, result, "vkWaitSemaphores");
}

// Submits the open batch and returns the last submitted value. `*out_has_pending`: waits of a
// failed submit are still pending.
static uint64_t flush_now(qn__vk_stream_t* stream, bool* out_has_pending) {
  qn__mutex_lock(&stream->mutex);
  qn__vk_stream_flush(stream);
  uint64_t value = stream->submitted;
  *out_has_pending = stream->pending_wait_count > 0;
  qn__mutex_unlock(&stream->mutex);
  return value;
}

static qn_status_t drain(qn__vk_stream_t* stream, bool* out_has_pending) {
  uint64_t value = flush_now(stream, out_has_pending);
  qn_status_t status = qn__vk_stream_wait_value(stream, value, UINT64_MAX);
  qn__vk_stream_retire(stream);
  return status;
}

qn_status_t qn__vk_stream_drain(qn__vk_stream_t* stream) {
  bool has_pending;
  QN_TRY(drain(stream, &has_pending));
  // Submits again: a caller that waits for a stream must also wait for its pending waits.
  return has_pending ? drain(stream, &has_pending) : QN_OK;
}

// ---------------------------------------------------------------------------------- the table's

qn_status_t qn__vk_stream_create(int32_t id, void** out_stream) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__vk_stream_t* stream;
  QN_TRY(qn__vk_stream_make(device, &stream));
  *out_stream = stream;
  return QN_OK;
}

void qn__vk_stream_destroy(int32_t id, void* stream) {
  (void)id;
  // Streams are not destroyed in a child of fork or at process exit.
  if (!qn__vk_is_usable()) return;
  qn__vk_stream_t* self = stream;
  qn_status_free(qn__vk_stream_drain(self));
  // Streams that cannot submit may wait for each other.
  qn__vk_stream_drop_pending_waits(self);
  qn__vk_workspace_forget(self->device, self);
  qn__vk_stream_release(self);
}

qn_status_t qn__vk_stream_sync(int32_t id, void* stream) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__vk_stream_t* self = stream;
  // An unused default stream has no work.
  if (!self) self = atomic_load_explicit(&device->default_stream, memory_order_acquire);
  if (!self) return QN_OK;
  qn_status_t status = qn__vk_stream_drain(self);
  qn__mutex_lock(&self->mutex);
  qn_status_t error = qn__vk_stream_take_error(self);
  qn__mutex_unlock(&self->mutex);
  if (qn_ok(error)) return status;
  qn_status_free(status);
  return error;
}

bool qn__vk_stream_is_idle(int32_t id, void* stream) {
  qn__vk_device_t* device;
  qn_status_t status = qn__vk_use(id, &device);
  if (!qn_ok(status)) {
    qn_status_free(status);
    return true;
  }
  qn__vk_stream_t* self = stream;
  if (!self) self = atomic_load_explicit(&device->default_stream, memory_order_acquire);
  if (!self) return true;
  qn__mutex_lock(&self->mutex);
  qn__vk_stream_flush(self);
  bool is_idle = qn__vk_stream_poll(self);
  qn__mutex_unlock(&self->mutex);
  if (is_idle) qn__vk_stream_retire(self);
  return is_idle;
}

// Makes `to` wait for a submitted value of `from`.
static qn_status_t add_wait(qn__vk_stream_t* to, qn__vk_stream_t* from, uint64_t value) {
  QN_TRY(qn__vk_stream_begin(to));
  // Commands recorded before need not wait, and the number of waits of a batch is limited.
  if (to->open->command_count > 0 || to->open->wait_count == QN__VK_MAX_WAITS) {
    qn__vk_stream_flush(to);
    const bool is_full = to->pending_wait_count == QN__VK_MAX_WAITS;
    qn__mutex_unlock(&to->mutex);
    if (is_full) {
      return qn_status_make(QN_STATUS_DEVICE_ERROR,
                            "vulkan:%d: a stream cannot submit its %d waits, and can hold no more",
                            to->device->id, QN__VK_MAX_WAITS);
    }
    QN_TRY(qn__vk_stream_begin(to));
  }
  if (to->open->command_count > 0 || to->open->wait_count == QN__VK_MAX_WAITS) {
    qn__mutex_unlock(&to->mutex);
    return add_wait(to, from, value);  // another thread recorded meanwhile
  }
  qn__vk_batch_t* batch = to->open;
  qn__vk_stream_retain(from);
  batch->waits[batch->wait_count++] = (qn__vk_wait_t){from, value};
  atomic_store_explicit(&to->enqueued, batch->value, memory_order_release);
  qn__mutex_unlock(&to->mutex);
  // The wait counts as unfinished work, and freed memory waits for that. So it must be submitted.
  qn__vk_submit_timer_arm(to->device);
  return QN_OK;
}

qn_status_t qn__vk_stream_wait(int32_t id, void* from, void* to) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__vk_stream_t *source, *target;
  QN_TRY(qn__vk_stream_of(device, from, &source));
  QN_TRY(qn__vk_stream_of(device, to, &target));
  if (source == target) return QN_OK;
  qn__mutex_lock(&source->mutex);
  qn__vk_stream_flush(source);
  uint64_t value = source->submitted;
  (void)qn__vk_stream_poll(source);
  bool is_completed = atomic_load_explicit(&source->completed, memory_order_relaxed) >= value;
  qn__mutex_unlock(&source->mutex);
  return is_completed ? QN_OK : add_wait(target, source, value);
}

// ---------------------------------------------------------------------------------- fences

struct qn__vk_fence {
  qn_allocator_t allocator;
  size_t count;
  qn__vk_wait_t points[];
};

static size_t fence_bytes(size_t count) {
  return sizeof(qn__vk_fence_t) + count * sizeof(qn__vk_wait_t);
}

static bool is_busy(qn__vk_stream_t* stream, uint64_t* out_value) {
  *out_value = atomic_load_explicit(&stream->enqueued, memory_order_acquire);
  return !qn__vk_stream_has_completed(stream, *out_value);
}

bool qn__vk_fence_create(qn__vk_device_t* device, qn__vk_fence_t** out_fence) {
  *out_fence = NULL;
  size_t count = 0;
  uint64_t value;
  bool is_done = true;
  qn__mutex_lock(&device->streams_mutex);
  for (qn__vk_stream_t* at = device->streams; at; at = at->next) count += is_busy(at, &value);
  if (count > 0) {
    qn__vk_fence_t* fence = qn__alloc(device->allocator, fence_bytes(count));
    is_done = fence != NULL;
    if (fence) *fence = (qn__vk_fence_t){.allocator = device->allocator, .count = count};
    size_t filled = 0;
    for (qn__vk_stream_t* at = fence ? device->streams : NULL; at && filled < count;
         at = at->next) {
      if (!is_busy(at, &value)) continue;
      qn__vk_stream_retain(at);
      fence->points[filled++] = (qn__vk_wait_t){at, value};
    }
    for (; fence && filled < count; filled++) fence->points[filled] = (qn__vk_wait_t){NULL, 0};
    *out_fence = fence;
  }
  qn__mutex_unlock(&device->streams_mutex);
  return is_done;
}

bool qn__vk_fence_is_completed(qn__vk_fence_t* fence) {
  for (size_t i = 0; i < fence->count; i++) {
    const qn__vk_wait_t* point = &fence->points[i];
    if (point->from && !qn__vk_stream_has_completed(point->from, point->value)) return false;
  }
  return true;
}

void qn__vk_fence_release(qn__vk_fence_t* fence) {
  for (size_t i = 0; i < fence->count; i++) {
    if (fence->points[i].from) qn__vk_stream_release(fence->points[i].from);
  }
  qn__free(fence->allocator, fence, fence_bytes(fence->count));
}

// Returns the stream after `current` in the device's list, or the first one, retained; NULL: none.
// Releases `current`, which stayed in the list until now, so that no stream is skipped while others
// are destroyed.
static qn__vk_stream_t* next_stream(qn__vk_device_t* device, qn__vk_stream_t* current) {
  qn__vk_stream_t* found = NULL;
  qn__mutex_lock(&device->streams_mutex);
  for (qn__vk_stream_t* at = current ? current->next : device->streams; at && !found;
       at = at->next) {
    // A count of 0: the stream is being destroyed and waits for this mutex.
    uint32_t old = atomic_load(&at->reference_count);
    while (old != 0 && !atomic_compare_exchange_weak(&at->reference_count, &old, old + 1)) {
    }
    if (old != 0) found = at;
  }
  qn__mutex_unlock(&device->streams_mutex);
  if (current) qn__vk_stream_release(current);
  return found;
}

void qn__vk_drain_all(qn__vk_device_t* device, int64_t deadline_ns) {
  qn__vk_stream_t* stream = NULL;
  while ((stream = next_stream(device, stream)) != NULL) {
    bool has_pending;
    uint64_t value = flush_now(stream, &has_pending);
    int64_t now_ns = qn__now_ns();
    uint64_t left_ns = deadline_ns == INT64_MAX ? UINT64_MAX
                       : deadline_ns > now_ns   ? (uint64_t)(deadline_ns - now_ns)
                                                : 0;
    qn_status_free(qn__vk_stream_wait_value(stream, value, left_ns));
    qn__vk_stream_retire(stream);
  }
}

bool qn__vk_submit_old_batches(qn__vk_device_t* device, uint64_t tick) {
  qn__vk_stream_t* stream = NULL;
  bool is_left = false;
  while ((stream = next_stream(device, stream)) != NULL) {
    uint64_t since = atomic_load(&stream->open_since);
    bool is_young = since > tick + 1;
    if (since != 0 && !is_young) {
      qn__mutex_lock(&stream->mutex);
      // Another thread may have submitted the batch meanwhile and opened a new one.
      is_young = atomic_load_explicit(&stream->open_since, memory_order_relaxed) > since;
      if (!is_young) qn__vk_stream_flush(stream);
      qn__mutex_unlock(&stream->mutex);
    }
    is_left |= is_young;
  }
  return is_left;
}
