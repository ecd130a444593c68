// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/timelines.c: timeline semaphores, which are reused by later streams.
//
// A semaphore may be destroyed when the batches that wait for it or signal it have completed. Where
// Mesa emulates timelines, as for its software driver, the host can see a batch completed before
// Mesa's own thread has released the semaphores that the batch waited for; that thread then writes
// into freed memory (seen with Mesa 22.3). So no semaphore is destroyed while the device is in use:
// a stream that is destroyed leaves its semaphore, with its value, to a later stream. The mutex of
// the stream list guards the free semaphores.
#include "base/alloc.h"
#include "devices/vulkan/stream.h"

struct qn__vk_timeline {
  qn__vk_timeline_t* next;
  VkSemaphore semaphore;
  uint64_t value;  // the last submitted value
};

static qn_status_t make(qn__vk_device_t* device, qn__vk_timeline_t** out_timeline) {
  qn__vk_timeline_t* timeline = qn__alloc_zero(device->allocator, 1, sizeof *timeline);
  if (!timeline) return qn__out_of_memory("a timeline");
  VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                    .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  VkSemaphoreCreateInfo create = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
  VkResult result = device->vk.CreateSemaphore(device->handle, &create, NULL, &timeline->semaphore);
  if (result != VK_SUCCESS) {
    qn__free(device->allocator, timeline, sizeof *timeline);
    return qn__vk_status(device, result, "vkCreateSemaphore");
  }
  *out_timeline = timeline;
  return QN_OK;
}

qn_status_t qn__vk_timeline_acquire(qn__vk_stream_t* stream) {
  qn__vk_device_t* device = stream->device;
  qn__mutex_lock(&device->streams_mutex);
  qn__vk_timeline_t* timeline = device->timelines;
  if (timeline) device->timelines = timeline->next;
  qn__mutex_unlock(&device->streams_mutex);
  if (!timeline) QN_TRY(make(device, &timeline));
  stream->timeline_entry = timeline;
  stream->timeline = timeline->semaphore;
  stream->submitted = timeline->value;
  atomic_store(&stream->enqueued, timeline->value);
  atomic_store(&stream->completed, timeline->value);
  return QN_OK;
}

void qn__vk_timeline_release(qn__vk_stream_t* stream) {
  qn__vk_timeline_t* timeline = stream->timeline_entry;
  if (!timeline) return;
  qn__vk_device_t* device = stream->device;
  timeline->value = stream->submitted;
  qn__mutex_lock(&device->streams_mutex);
  timeline->next = device->timelines;
  device->timelines = timeline;
  qn__mutex_unlock(&device->streams_mutex);
  stream->timeline_entry = NULL;
}

void qn__vk_timelines_deinit(qn__vk_device_t* device) {
  // Driver threads hold no more batches once the queues are idle.
  if (device->timelines) (void)device->vk.DeviceWaitIdle(device->handle);
  while (device->timelines) {
    qn__vk_timeline_t* timeline = device->timelines;
    device->timelines = timeline->next;
    device->vk.DestroySemaphore(device->handle, timeline->semaphore, NULL);
    qn__free(device->allocator, timeline, sizeof *timeline);
  }
}
