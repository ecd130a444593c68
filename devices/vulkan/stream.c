// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/stream.c: creates streams, records into batches, submits them.
//
// Requirements, and why each holds:
//  1. Work of one stream runs as if in order. All its batches go to one queue in the order of their
//     values, because both are assigned under the stream's mutex. A barrier covers all commands
//     submitted to the queue before. A barrier comes before each command that conflicts with one
//     since the last barrier (one of the two writes the same memory); other commands may overlap.
//  2. Many launches need few submits, yet work starts soon. A batch is submitted at once if the
//     stream is known to be idle, and otherwise at SUBMIT_COMMANDS commands. At POLL_COMMANDS
//     commands the driver is asked whether it is idle.
//  3. The host sees the writes of a completed batch: each batch ends with a barrier to the host.
//  4. A launch allocates nothing once batches, lists and sets have grown to the program's needs:
//     batches are reused with their lists.
//  5. An error is kept: after a failed submit, launches are skipped until a sync returns the error.
//     The next batch takes over the waits of the failed one, and is submitted for them alone if
//     necessary, because later work must stay in stream order.
// Read next: sync.c, then launch.c and copy.c, which record.
#include "devices/vulkan/stream.h"

#include "base/alloc.h"

#define SUBMIT_COMMANDS 64u
#define POLL_COMMANDS 16u
#define FEW_BATCHES 4u
#define MAX_PENDING_PLACES 64u
#define BOTH_STAGES (VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT)

// ---------------------------------------------------------------------------------- life

static void destroy_batch(qn__vk_device_t* device, qn__vk_batch_t* batch) {
  if (batch->pool) {
    device->vk.DestroyCommandPool(device->handle, batch->pool, &batch->command_allocator.callbacks);
  }
  qn__vk_command_allocator_deinit(&batch->command_allocator);
  qn__free(device->allocator, batch->owners, batch->owner_capacity * sizeof *batch->owners);
  qn__free(device->allocator, batch->places, batch->place_capacity * sizeof *batch->places);
  qn__free(device->allocator, batch, sizeof *batch);
}

// Destroys a stream without unfinished work.
static void destroy(qn__vk_stream_t* stream) {
  qn__vk_device_t* device = stream->device;
  qn__mutex_lock(&device->streams_mutex);
  for (qn__vk_stream_t** at = &device->streams; *at; at = &(*at)->next) {
    if (*at != stream) continue;
    *at = stream->next;
    atomic_fetch_add(&device->launch_count, atomic_load(&stream->launch_count));
    atomic_fetch_add(&device->barrier_count, atomic_load(&stream->barrier_count));
    break;
  }
  qn__mutex_unlock(&device->streams_mutex);
  while (stream->spare) {
    qn__vk_batch_t* batch = stream->spare;
    stream->spare = batch->next;
    destroy_batch(device, batch);
  }
  if (stream->open) destroy_batch(device, stream->open);
  qn__vk_stream_drop_pending_waits(stream);
  if (stream->sets) qn__vk_sets_destroy(device, stream->sets);
  qn__vk_timeline_release(stream);
  qn__vk_error_record_deinit(stream);
  qn__mutex_deinit(&stream->mutex);
  qn__free(device->allocator, stream, sizeof *stream);
}

void qn__vk_stream_drop_pending_waits(qn__vk_stream_t* stream) {
  qn__vk_wait_t waits[QN__VK_MAX_WAITS];
  qn__mutex_lock(&stream->mutex);
  const uint32_t count = stream->pending_wait_count;
  for (uint32_t i = 0; i < count; i++) waits[i] = stream->pending_waits[i];
  stream->pending_wait_count = 0;
  qn__mutex_unlock(&stream->mutex);
  for (uint32_t i = 0; i < count; i++) qn__vk_stream_release(waits[i].from);
}

void qn__vk_stream_retain(qn__vk_stream_t* stream) {
  atomic_fetch_add_explicit(&stream->reference_count, 1, memory_order_relaxed);
}

void qn__vk_stream_release(qn__vk_stream_t* stream) {
  if (atomic_fetch_sub_explicit(&stream->reference_count, 1, memory_order_acq_rel) == 1) {
    destroy(stream);
  }
}

qn_status_t qn__vk_stream_make(qn__vk_device_t* device, qn__vk_stream_t** out_stream) {
  qn__vk_stream_t* stream = qn__alloc_zero(device->allocator, 1, sizeof *stream);
  if (!stream) return qn__out_of_memory("a stream");
  stream->device = device;
  atomic_init(&stream->reference_count, 1);
  qn_status_t status = qn__mutex_init(&stream->mutex);
  if (!qn_ok(status)) {
    qn__free(device->allocator, stream, sizeof *stream);
    return status;
  }
  status = qn__vk_timeline_acquire(stream);
  if (qn_ok(status)) status = qn__vk_sets_make(device, &stream->sets);
  if (qn_ok(status)) status = qn__vk_error_record_init(stream);
  if (!qn_ok(status)) {
    destroy(stream);
    return status;
  }
  qn__mutex_lock(&device->streams_mutex);
  stream->queue = &device->queues[device->next_queue++ % device->queue_count];
  stream->next = device->streams;
  device->streams = stream;
  qn__mutex_unlock(&device->streams_mutex);
  *out_stream = stream;
  return QN_OK;
}

qn_status_t qn__vk_stream_of(qn__vk_device_t* device, void* stream, qn__vk_stream_t** out_stream) {
  *out_stream = stream;
  if (stream) return QN_OK;
  *out_stream = atomic_load_explicit(&device->default_stream, memory_order_acquire);
  if (*out_stream) return QN_OK;
  qn__vk_stream_t* fresh;
  QN_TRY(qn__vk_stream_make(device, &fresh));
  qn__vk_stream_t* expected = NULL;
  if (!atomic_compare_exchange_strong(&device->default_stream, &expected, fresh)) {
    qn__vk_stream_release(fresh);
    fresh = expected;
  }
  *out_stream = fresh;
  return QN_OK;
}

// ---------------------------------------------------------------------------------- recording

static qn_status_t make_batch(qn__vk_stream_t* stream, qn__vk_batch_t** out_batch) {
  qn__vk_device_t* device = stream->device;
  qn__vk_batch_t* batch = qn__alloc_zero(device->allocator, 1, sizeof *batch);
  if (!batch) return qn__out_of_memory("a batch of commands");
  VkCommandPoolCreateInfo create = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                                    .queueFamilyIndex = device->info.family};
  qn__vk_command_allocator_init(&batch->command_allocator, device->allocator);
  const VkAllocationCallbacks* callbacks = &batch->command_allocator.callbacks;
  VkResult result = device->vk.CreateCommandPool(device->handle, &create, callbacks, &batch->pool);
  if (result != VK_SUCCESS) batch->pool = VK_NULL_HANDLE;
  if (result == VK_SUCCESS) {
    VkCommandBufferAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = batch->pool,
                                            .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                            .commandBufferCount = 1};
    result = device->vk.AllocateCommandBuffers(device->handle, &allocate, &batch->commands);
  }
  if (result != VK_SUCCESS) {
    destroy_batch(device, batch);
    return qn__vk_status(device, result, "a command buffer");
  }
  qn__vk_command_allocator_begin(&batch->command_allocator);
  assert(stream->batch_count < QN__VK_MAX_BATCHES);
  batch->number = stream->batch_count++;
  *out_batch = batch;
  return QN_OK;
}

// Locked. Opens a spare batch or a new one. `*out_is_full`: all batches are in flight.
static qn_status_t open_batch(qn__vk_stream_t* stream, bool* out_is_full) {
  qn__vk_device_t* device = stream->device;
  qn__vk_batch_t* batch = stream->spare;
  *out_is_full = !batch && stream->batch_count >= QN__VK_MAX_BATCHES;
  if (*out_is_full) return QN_OK;
  if (batch) {
    stream->spare = batch->next;
    batch->next = NULL;
  } else {
    QN_TRY(make_batch(stream, &batch));
  }
  VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                    .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  VkResult result = device->vk.ResetCommandPool(device->handle, batch->pool, 0);
  if (result == VK_SUCCESS) result = device->vk.BeginCommandBuffer(batch->commands, &begin);
  if (result != VK_SUCCESS) {
    batch->next = stream->spare;
    stream->spare = batch;
    return qn__vk_status(device, result, "vkBeginCommandBuffer");
  }
  assert(batch->owner_count == 0 && batch->place_count == 0 && batch->wait_count == 0);
  batch->value = stream->submitted + 1;
  batch->wait_count = stream->pending_wait_count;
  for (uint32_t i = 0; i < stream->pending_wait_count; i++)
    batch->waits[i] = stream->pending_waits[i];
  stream->pending_wait_count = 0;
  // The stream is not idle until the batch has waited.
  if (batch->wait_count > 0) {
    atomic_store_explicit(&stream->enqueued, batch->value, memory_order_release);
  }
  batch->command_count = 0;
  batch->has_tags = false;
  batch->has_clearing = false;
  batch->pipeline = VK_NULL_HANDLE;
  batch->set = VK_NULL_HANDLE;
  batch->layout = VK_NULL_HANDLE;
  stream->open = batch;
  // Must come before the check of `is_armed` in qn__vk_submit_timer_arm (submit_timer.c).
  uint64_t tick = atomic_load_explicit(&device->submit_timer.tick, memory_order_relaxed);
  atomic_store(&stream->open_since, tick + 1);
  return QN_OK;
}

qn_status_t qn__vk_stream_begin(qn__vk_stream_t* stream) {
  qn__mutex_lock(&stream->mutex);
  for (;;) {
    if (__builtin_expect(stream->open != NULL, 1)) return QN_OK;
    // Reuses a completed batch before it makes a new one: its memory is still in the CPU's caches.
    if (!stream->spare && stream->first && stream->batch_count >= FEW_BATCHES &&
        qn__vk_stream_has_completed(stream, stream->first->value)) {
      qn__mutex_unlock(&stream->mutex);
      qn__vk_stream_retire(stream);
      qn__mutex_lock(&stream->mutex);
      continue;
    }
    bool is_full;
    qn_status_t status = open_batch(stream, &is_full);
    if (!qn_ok(status)) {
      qn__mutex_unlock(&stream->mutex);
      return status;
    }
    if (!is_full) return QN_OK;
    uint64_t oldest = stream->first ? stream->first->value : stream->submitted;
    qn__mutex_unlock(&stream->mutex);
    QN_TRY(qn__vk_stream_wait_value(stream, oldest, UINT64_MAX));
    qn__vk_stream_retire(stream);
    qn__mutex_lock(&stream->mutex);
  }
}

static VkAccessFlags writes_of(VkPipelineStageFlags stages) {
  VkAccessFlags access = 0;
  if (stages & VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT) access |= VK_ACCESS_SHADER_WRITE_BIT;
  if (stages & VK_PIPELINE_STAGE_TRANSFER_BIT) access |= VK_ACCESS_TRANSFER_WRITE_BIT;
  return access;
}

static _Atomic bool orders_everything;

void qn__vulkan_order_everything(bool is_on) {
  atomic_store(&orders_everything, is_on);
}

static bool is_conflict(const qn__vk_stream_t* stream, const qn__vk_access_t* access) {
  // Backwards: conflicts are mostly with the last command, whose written ranges come last.
  for (uint32_t i = stream->access_count; i-- > 0;) {
    const qn__vk_access_t* other = &stream->accesses[i];
    if (other->uid == access->uid && (other->is_written || access->is_written) &&
        other->start < access->end && access->start < other->end) {
      return true;
    }
  }
  return false;
}

static void put_barrier(qn__vk_stream_t* stream) {
  VkMemoryBarrier barrier = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
      .srcAccessMask = writes_of(stream->open_stages),
      .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                       VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
  // The destination is both stages: the access list starts empty after this barrier, so a later
  // command of either stage must be ordered after all commands before it.
  stream->device->vk.CmdPipelineBarrier(stream->open->commands, stream->open_stages, BOTH_STAGES, 0,
                                        1, &barrier, 0, NULL, 0, NULL);
  qn__vk_count(&stream->barrier_count);
}

// Fills the access list, so that the next command needs a barrier, whatever it accesses.
static void fill_accesses(qn__vk_stream_t* stream) {
  stream->access_count = QN__VK_MAX_ACCESSES;
  for (uint32_t i = 0; i < QN__VK_MAX_ACCESSES; i++) stream->accesses[i] = (qn__vk_access_t){0};
}

void qn__vk_stream_order(qn__vk_stream_t* stream, VkPipelineStageFlags stage,
                         const qn__vk_access_t* accesses, uint32_t count) {
  bool needs_barrier =
      stream->open_stages != 0 && (stream->access_count + count > QN__VK_MAX_ACCESSES ||
                                   atomic_load_explicit(&orders_everything, memory_order_relaxed));
  for (uint32_t i = count; i-- > 0 && !needs_barrier;) {
    needs_barrier = is_conflict(stream, &accesses[i]);
  }
  if (needs_barrier) {
    put_barrier(stream);
    stream->access_count = 0;
    stream->open_stages = 0;
  }
  stream->alone = stream->open_stages == 0 ? accesses : NULL;
  // After a command with more accesses than the list holds, a barrier always follows.
  stream->open_stages |= stage;
  if (count > QN__VK_MAX_ACCESSES) {
    fill_accesses(stream);
    return;
  }
  qn__vk_access_t* next = stream->accesses + stream->access_count;
  for (uint32_t i = 0; i < count; i++) next[i] = accesses[i];
  stream->access_count += count;
}

bool qn__vk_stream_order_repeat(qn__vk_stream_t* stream, const qn__vk_access_t* accesses) {
  if (stream->alone != accesses) return false;
  assert(stream->open_stages != 0 && stream->access_count > 0);
  put_barrier(stream);
  return true;
}

bool qn__vk_stream_defer_free(qn__vk_stream_t* stream, qn__vk_place_t place) {
  qn__vk_batch_t* batch = stream->open;
  void* places = batch->places;
  if (!qn__grow(stream->device->allocator, &places, &batch->place_capacity, batch->place_count + 1,
                sizeof *batch->places)) {
    return false;
  }
  batch->places = places;
  batch->places[batch->place_count++] = place;
  return true;
}

bool qn__vk_stream_own(qn__vk_stream_t* stream, const qn_launch_t* launch, bool has_record,
                       struct qn__vk_executable* unsaved, uint32_t* out_tag) {
  qn__vk_batch_t* batch = stream->open;
  *out_tag = 0;
  // Often the owner is the last one: a function of several launches, or called in a loop.
  qn__vk_owner_t* owner = batch->owner_count > 0 ? &batch->owners[batch->owner_count - 1] : NULL;
  if (!owner || owner->owner != launch->owner) {
    void* owners = batch->owners;
    if (!qn__grow(stream->device->allocator, &owners, &batch->owner_capacity,
                  batch->owner_count + 1, sizeof *batch->owners)) {
      return false;
    }
    batch->owners = owners;
    owner = &batch->owners[batch->owner_count++];
    *owner = (qn__vk_owner_t){
        .owner = launch->owner, .release = launch->release, .describe = launch->describe};
    if (launch->retain) launch->retain(launch->owner);
  }
  if (has_record) {
    if (__builtin_expect(stream->is_clear_pending, 0)) qn__vk_error_record_clear(stream);
    batch->has_tags = true;
    // Each launch has a tag, so that launches after a failure in the same function are skipped too.
    // Tag 0 is never used.
    if (++stream->last_tag == 0) {
      stream->last_tag = 1;
      if (owner->tag_count > 0) owner->tag_count++;
    }
    if (owner->tag_count++ == 0) owner->first_tag = stream->last_tag;
    *out_tag = stream->last_tag;
  }
  if (unsaved) owner->unsaved = unsaved;
  return true;
}

// ---------------------------------------------------------------------------------- submitting

static VkResult submit(qn__vk_stream_t* stream, qn__vk_batch_t* batch) {
  qn__vk_device_t* device = stream->device;
  VkSemaphore waits[QN__VK_MAX_WAITS];
  uint64_t values[QN__VK_MAX_WAITS];
  VkPipelineStageFlags stages[QN__VK_MAX_WAITS];
  for (uint32_t i = 0; i < batch->wait_count; i++) {
    waits[i] = batch->waits[i].from->timeline;
    values[i] = batch->waits[i].value;
    stages[i] = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  }
  VkTimelineSemaphoreSubmitInfo timeline = {
      .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
      .waitSemaphoreValueCount = batch->wait_count,
      .pWaitSemaphoreValues = values,
      .signalSemaphoreValueCount = 1,
      .pSignalSemaphoreValues = &batch->value};
  VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                       .pNext = &timeline,
                       .waitSemaphoreCount = batch->wait_count,
                       .pWaitSemaphores = waits,
                       .pWaitDstStageMask = stages,
                       .commandBufferCount = 1,
                       .pCommandBuffers = &batch->commands,
                       .signalSemaphoreCount = 1,
                       .pSignalSemaphores = &stream->timeline};
  qn__mutex_lock(&stream->queue->mutex);
  VkResult result = device->vk.QueueSubmit(stream->queue->handle, 1, &info, VK_NULL_HANDLE);
  qn__mutex_unlock(&stream->queue->mutex);
  atomic_fetch_add_explicit(&device->submit_count, 1, memory_order_relaxed);
  return result;
}

void qn__vk_stream_flush(qn__vk_stream_t* stream) {
  if (!stream->open && stream->pending_wait_count > 0) {
    bool is_full;
    qn_status_t status = open_batch(stream, &is_full);
    if (!qn_ok(status)) qn__vk_stream_set_error(stream, status);
  }
  qn__vk_batch_t* batch = stream->open;
  if (!batch) return;
  if (batch->command_count == 0 && batch->wait_count == 0 && batch->owner_count == 0 &&
      batch->place_count == 0) {
    return;
  }
  qn__vk_device_t* device = stream->device;
  if (batch->has_tags) qn__vk_error_record_copy(stream);
  if (stream->open_stages != 0) {
    VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                               .srcAccessMask = writes_of(BOTH_STAGES),
                               .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    // Covers all commands of the batch, also those before its last barrier.
    device->vk.CmdPipelineBarrier(batch->commands, BOTH_STAGES, VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                                  &barrier, 0, NULL, 0, NULL);
  }
  VkResult result = device->vk.EndCommandBuffer(batch->commands);
  if (result == VK_SUCCESS) result = submit(stream, batch);
  stream->open = NULL;
  atomic_store_explicit(&stream->open_since, 0, memory_order_relaxed);
  batch->next = NULL;
  if (result != VK_SUCCESS) {
    qn__vk_stream_set_error(stream, qn__vk_status(device, result, "vkQueueSubmit"));
    if (batch->has_clearing) stream->is_clear_pending = true;
    batch->has_tags = false;
    stream->pending_wait_count = batch->wait_count;
    for (uint32_t i = 0; i < batch->wait_count; i++) stream->pending_waits[i] = batch->waits[i];
    batch->wait_count = 0;
    // Its barriers are lost too: commands of earlier batches still need one.
    stream->open_stages = BOTH_STAGES;
    stream->alone = NULL;
    fill_accesses(stream);
    // None of its commands run. It is queued after the batches in flight, with the value of the
    // last, so that its resources are released in order.
    batch->value = stream->submitted;
    atomic_store_explicit(&stream->enqueued, stream->submitted, memory_order_release);
  } else {
    assert(batch->value == stream->submitted + 1);
    stream->submitted = batch->value;
  }
  // Batches are retired in the order of their values.
  assert(!stream->last || stream->last->value <= batch->value);
  if (stream->last) {
    stream->last->next = batch;
  } else {
    stream->first = batch;
  }
  stream->last = batch;
}

void qn__vk_stream_end(qn__vk_stream_t* stream) {
  qn__vk_batch_t* batch = stream->open;
  uint32_t count = ++batch->command_count;
  assert(count <= SUBMIT_COMMANDS);
  atomic_store_explicit(&stream->enqueued, batch->value, memory_order_release);
  bool must_submit = count >= SUBMIT_COMMANDS || batch->place_count >= MAX_PENDING_PLACES;
  if (!must_submit &&
      atomic_load_explicit(&stream->completed, memory_order_relaxed) == stream->submitted) {
    must_submit = true;
  }
  if (!must_submit && count == POLL_COMMANDS) {
    (void)qn__vk_stream_poll(stream);
    must_submit =
        atomic_load_explicit(&stream->completed, memory_order_relaxed) == stream->submitted;
  }
  if (must_submit) qn__vk_stream_flush(stream);
  qn__mutex_unlock(&stream->mutex);
  if (!must_submit) qn__vk_submit_timer_arm(stream->device);
}
