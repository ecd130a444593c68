// SPDX-License-Identifier: Apache-2.0
// Limits of the Vulkan device: buffers beyond a binding's limit, copies faster than the device,
// uncached memory, calls that fail halfway, work after a failure, semaphores of destroyed streams.
// ctest-labels: tsan
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/devices/support_vulkan.h"

#if QN_HAVE_VULKAN
#include "base/thread.h"
#include "devices/vulkan/context.h"
#include "devices/vulkan/stream.h"
#include "tests/support/must.h"

#define MEGABYTES(n) ((size_t)(n) << 20)

static qn__vk_device_t* open_device(void) {
  qn__vk_device_t* device;
  must(qn__vk_use(0, &device));
  return device;
}

static qn_status_t fill(void* code, qn_stream_t* stream, void* out, uint64_t count,
                        uint64_t value) {
  size_t size = count * 4;
  return test_vulkan_call(code, TEST_FILL, stream, NULL, 1, &out, &size, 2,
                          (uint64_t[]){count, value});
}

// Some milliseconds of work.
static void spin(void* code, qn_stream_t* stream, void* out) {
  size_t size = 4;
  uint64_t rounds = 60000;
  for (int i = 0; i < 300; i++) {
    must(test_vulkan_call(code, TEST_SPIN, stream, NULL, 1, &out, &size, 1, &rounds));
  }
}

// ---------------------------------------------------------------------------------- large buffers

// A tensor larger than a binding is refused, with the limit in the message. Any smaller part of it
// works, at any offset.
static void test_parts_of_a_buffer_beyond_the_binding(void** state) {
  (void)state;
  NEED_DEVICE();
  qn__vk_device_t* device = open_device();
  uint32_t* limit = &device->info.properties.limits.maxStorageBufferRange;
  uint32_t real = *limit;
  // As on a device with the smallest limit that Vulkan allows.
  if (*limit > MEGABYTES(128)) *limit = (uint32_t)MEGABYTES(128);
  void* code = test_vulkan_load(NULL);
  size_t size = MEGABYTES(200);
  char* large = test_vulkan_allocate(size);
  must_fail(fill(code, NULL, large, size / 4, 0), QN_STATUS_VALUE_ERROR, "maxStorageBufferRange");
  const size_t offsets[] = {
      0, 4, MEGABYTES(100), MEGABYTES(128) - 4, MEGABYTES(128), MEGABYTES(150) + 12, size - 4096};
  for (uint32_t i = 0; i < QN_COUNT_OF(offsets); i++) {
    uint32_t got[1024];
    must(fill(code, NULL, large + offsets[i], 1024, i * 100));
    must(test_vulkan_copy_from(got, large, offsets[i], sizeof got, NULL));
    for (uint32_t k = 0; k < 1024; k++) assert_int_equal(got[k], i * 100 + k);
  }
  // The full limit, at an offset that is not a multiple of the large step.
  size_t most = *limit - 4096;
  char* part = large + (size - most);
  uint32_t got[16];
  must(test_vulkan_call(code, TEST_FILL, NULL, NULL, 1, (void**)&part, &most, 2,
                        (uint64_t[]){16, 3}));
  must(test_vulkan_copy_from(got, part, 0, sizeof got, NULL));
  for (uint32_t k = 0; k < 16; k++) assert_int_equal(got[k], 3 + k);
  *limit = real;
  test_vulkan_free(large);
  test_vulkan_unload(code);
}

// ---------------------------------------------------------------------------------- copies

static void test_staging_is_bounded(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  size_t size = MEGABYTES(400);
  uint32_t* host = malloc(size);
  assert_non_null(host);
  for (size_t i = 0; i < size / 4; i++) host[i] = (uint32_t)(i * 2654435761u);
  char* memory = test_vulkan_allocate(size);
  void* busy = test_vulkan_allocate(64);
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  uint64_t before = test_vulkan_stats().reserved_bytes;
  spin(code, stream, busy);
  must(test_vulkan_copy_to(memory, 0, host, size, stream));
  uint64_t grown = test_vulkan_stats().reserved_bytes - before;
  if (grown > MEGABYTES(136)) fail_msg("%zu MB of staging", (size_t)(grown >> 20));
  uint32_t* back = calloc(1, size);
  assert_non_null(back);
  must(test_vulkan_copy_from(back, memory, 0, size, stream));
  assert_memory_equal(back, host, size);
  qn_stream_destroy(stream);
  test_vulkan_free(memory);
  test_vulkan_free(busy);
  test_vulkan_unload(code);
  free(host);
  free(back);
}

// The device copies memory that is mapped but not cached.
static void test_uncached_memory_is_copied_by_the_device(void** state) {
  (void)state;
  NEED_DEVICE();
  qn__vk_device_t* device = open_device();
  bool was_cached = device->memory.is_cached[QN__VK_POOL_DEVICE];
  size_t size = MEGABYTES(9);
  uint8_t* data = malloc(size);
  uint8_t* back = calloc(1, size);
  assert_true(data && back);
  for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(i * 13 + (i >> 9));
  void* memory = test_vulkan_allocate(size);
  must(test_vulkan_copy_to(memory, 0, data, size, NULL));
  device->memory.is_cached[QN__VK_POOL_DEVICE] = false;
  uint64_t submits = test_vulkan_stats().submit_count;
  must(test_vulkan_copy_from(back, memory, 0, size, NULL));
  assert_true(test_vulkan_stats().submit_count >= submits + 2);
  assert_memory_equal(back, data, size);
  device->memory.is_cached[QN__VK_POOL_DEVICE] = was_cached;
  test_vulkan_free(memory);
  free(data);
  free(back);
}

// Mapped blocks may be adjacent: the end of one is not a place in it.
static void test_the_end_of_a_pinned_block_is_not_in_it(void** state) {
  (void)state;
  NEED_DEVICE();
  qn__vk_device_t* device = open_device();
  uint8_t* pinned;
  must(qn_device_host_allocate(test_vulkan, MEGABYTES(40), (void**)&pinned));
  qn__vk_place_t place, behind;
  assert_true(qn__vk_find_pinned(device, pinned + MEGABYTES(40) - 1, 1, &place));
  if (qn__vk_find_pinned(device, pinned + MEGABYTES(40), 0, &behind)) {
    assert_ptr_not_equal(behind.block, place.block);
  }
  must(qn_device_host_free(test_vulkan, pinned));
}

// ---------------------------------------------------------------------------------- failures

static VkResult VKAPI_CALL no_sets(VkDevice device, const VkDescriptorSetAllocateInfo* info,
                                   VkDescriptorSet* out) {
  (void)device;
  (void)info;
  (void)out;
  return VK_ERROR_OUT_OF_HOST_MEMORY;
}

static void test_a_stream_is_idle_behind_a_call_that_failed_halfway(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  qn__vk_device_t* device = open_device();
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  char* memory = test_vulkan_allocate(MEGABYTES(40));  // a block that no set has bound
  PFN_vkAllocateDescriptorSets real = device->vk.AllocateDescriptorSets;
  device->vk.AllocateDescriptorSets = no_sets;
  must_fail(fill(code, stream, memory, 64, 1), QN_STATUS_OUT_OF_MEMORY, "vkAllocateDescriptorSets");
  device->vk.AllocateDescriptorSets = real;
  while (!qn_stream_is_idle(stream)) (void)sched_yield();
  must(qn_stream_sync(test_vulkan, stream));
  assert_true(qn_stream_is_idle(stream));
  must(fill(code, stream, memory, 64, 1));
  must(qn_stream_sync(test_vulkan, stream));
  qn_stream_destroy(stream);
  test_vulkan_free(memory);
  test_vulkan_unload(code);
}

// The value of such work is never completed; its memory is freed all the same.
static void test_workspace_of_work_that_never_ran_is_given_back(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  void* y = test_vulkan_allocate(4096);
  qn__vk_device_t* device = open_device();
  uint64_t used = test_vulkan_stats().used_bytes;
  PFN_vkQueueSubmit real = device->vk.QueueSubmit;
  for (int i = 0; i < 3; i++) {
    qn_stream_t* stream;
    must(qn_stream_create(test_vulkan, &stream));
    test_vulkan_submit_result = VK_ERROR_OUT_OF_HOST_MEMORY;
    device->vk.QueueSubmit = test_vulkan_failing_submit;
    size_t size = 4096;
    (void)qn_status_consume(
        test_vulkan_call(code, TEST_TWICE, stream, NULL, 1, &y, &size, 2, (uint64_t[]){1024, 5}));
    qn_stream_destroy(stream);
    device->vk.QueueSubmit = real;
  }
  test_vulkan_await_used(used);
  test_vulkan_free(y);
  test_vulkan_unload(code);
}

// Each launch of a function has its own tag: those after the failed one are skipped.
static void test_launches_of_one_owner_behind_a_failure_are_skipped(void** state) {
  (void)state;
  NEED_DEVICE();
  enum { COUNT = 500 };
  void* code = test_vulkan_load(NULL);
  void* x = test_vulkan_allocate(COUNT * 4);
  void* out = test_vulkan_allocate(COUNT * 4);
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  test_owner_t owner = {0};
  uint32_t zeros[COUNT] = {0}, got[COUNT];
  size_t sizes[] = {COUNT * 4, COUNT * 4};
  for (int round = 0; round < 3; round++) {
    must(test_vulkan_copy_to(out, 0, zeros, sizeof zeros, stream));
    spin(code, stream, x);  // so that all that follows is one batch
    must(fill(code, stream, x, COUNT, 0));
    for (int i = 0; i < 4; i++) {
      uint64_t limit = i == 1 ? 10 : COUNT;
      must(test_vulkan_call(code, TEST_CHECK, stream, &owner, 2,
                            (void*[]){x, i == 0 || i == 1 ? x : out}, sizes, 2,
                            (uint64_t[]){COUNT, limit}));
    }
    must_fail(qn_stream_sync(test_vulkan, stream), QN_STATUS_OUT_OF_BOUNDS, "extent 10");
    assert_int_equal(owner.described_count, round + 1);
    assert_int_equal(owner.reference_count, 0);
    must(test_vulkan_copy_from(got, out, 0, sizeof got, stream));
    assert_memory_equal(got, zeros, sizeof got);
  }
  // The tags wrap around and skip 0.
  qn__vk_stream_t* inner = qn__stream_inner(stream);
  inner->last_tag = UINT32_MAX - 2;
  for (int i = 0; i < 5; i++) {
    must(test_vulkan_call(code, TEST_CHECK, stream, &owner, 2, (void*[]){x, out}, sizes, 2,
                          (uint64_t[]){COUNT, i == 4 ? 10 : COUNT}));
  }
  must_fail(qn_stream_sync(test_vulkan, stream), QN_STATUS_OUT_OF_BOUNDS, "extent 10");
  qn_stream_destroy(stream);
  test_vulkan_free(x);
  test_vulkan_free(out);
  test_vulkan_unload(code);
}

// ---------------------------------------------------------------------------------- long runs

// Sets and memory do not grow while blocks are allocated and freed.
static void test_nothing_grows_in_a_long_run(void** state) {
  (void)state;
  NEED_DEVICE();
  enum { ROUNDS = 10000 };
  void* code = test_vulkan_load(NULL);
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  qn__vulkan_stats_t before = test_vulkan_stats();
  for (uint32_t i = 0; i < ROUNDS; i++) {
    // Every eighth is a block of its own, and so a new set.
    size_t size = i % 8 == 7 ? MEGABYTES(33) : 64 + i % 5000;
    char* memory = test_vulkan_allocate(size);
    if (i % 4 == 3) must(fill(code, stream, memory, 16, i));
    test_vulkan_free(memory);
  }
  must(qn_stream_sync(test_vulkan, stream));
  test_vulkan_free(test_vulkan_allocate(MEGABYTES(33)));  // destroys retired blocks
  qn__vulkan_stats_t after = test_vulkan_stats();
  assert_true(after.used_bytes <= before.used_bytes);
  assert_true(after.block_count <= before.block_count + 2);
  assert_true(after.set_count <= 1100);
  qn_stream_destroy(stream);
  test_vulkan_unload(code);
}

// ---------------------------------------------------------------------------------- semaphores

static PFN_vkCreateSemaphore real_create;
static PFN_vkDestroySemaphore real_destroy;
static PFN_vkDeviceWaitIdle real_wait_idle;
static int created, destroyed, destroyed_while_busy;
static bool is_device_idle;

static VkResult VKAPI_CALL count_create(VkDevice device, const VkSemaphoreCreateInfo* info,
                                        const VkAllocationCallbacks* callbacks, VkSemaphore* out) {
  created++;
  return real_create(device, info, callbacks, out);
}
static void VKAPI_CALL count_destroy(VkDevice device, VkSemaphore semaphore,
                                     const VkAllocationCallbacks* callbacks) {
  destroyed++;
  if (!is_device_idle) destroyed_while_busy++;
  real_destroy(device, semaphore, callbacks);
}
static VkResult VKAPI_CALL note_wait_idle(VkDevice device) {
  VkResult result = real_wait_idle(device);
  is_device_idle = result == VK_SUCCESS;
  return result;
}

// Streams that wait for each other and end: their semaphores are used again, values going on, and
// none is destroyed before the queues are idle (the driver may still hold one that a completed
// batch waited for).
static void test_semaphores_outlive_streams(void** state) {
  (void)state;
  NEED_DEVICE();
  qn__vulkan_reset(qn_allocator_default());
  void* code = test_vulkan_load(NULL);
  qn__vk_device_t* device = open_device();
  real_create = device->vk.CreateSemaphore;
  real_destroy = device->vk.DestroySemaphore;
  real_wait_idle = device->vk.DeviceWaitIdle;
  device->vk.CreateSemaphore = count_create;
  device->vk.DestroySemaphore = count_destroy;
  device->vk.DeviceWaitIdle = note_wait_idle;
  uint32_t* memory = test_vulkan_allocate(256);
  enum { STREAMS = 3, ROUNDS = 200 };
  for (uint32_t round = 0; round < ROUNDS; round++) {
    qn_stream_t* streams[STREAMS];
    for (size_t i = 0; i < STREAMS; i++) must(qn_stream_create(test_vulkan, &streams[i]));
    for (size_t i = 0; i < STREAMS; i++) {
      if (i > 0) must(qn_stream_wait(test_vulkan, streams[i - 1], streams[i]));
      must(fill(code, streams[i], memory, 64, round * STREAMS + i));
    }
    uint32_t got;
    must(test_vulkan_copy_from(&got, memory, 0, sizeof got, streams[STREAMS - 1]));
    assert_int_equal(got, round * STREAMS + STREAMS - 1);
    // A different order each time, so that each semaphore waits and is waited for.
    for (size_t i = 0; i < STREAMS; i++) qn_stream_destroy(streams[(i + round) % STREAMS]);
  }
  // Two more: the submit timer's thread may hold two streams, the one that it checks and the one
  // before, for long if the machine is busy.
  assert_true(created <= STREAMS + 2);
  assert_int_equal(destroyed, 0);
  // A retired block holds a destroyed stream: its semaphore is returned last.
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  char* block = test_vulkan_allocate(MEGABYTES(40));
  must(test_vulkan_call(code, TEST_SPIN, stream, NULL, 1, (void*[]){memory}, (size_t[]){256}, 1,
                        (uint64_t[]){60000}));
  test_vulkan_free(block);
  qn_stream_destroy(stream);
  test_vulkan_free(memory);
  test_vulkan_unload(code);
  qn__vulkan_reset(qn_allocator_default());
  assert_int_equal(destroyed, created);
  assert_int_equal(destroyed_while_busy, 0);
}

// ---------------------------------------------------------------------------------- the list

// Records one command without effect. The second in a row stays in the open batch.
static void record_nothing(qn__vk_stream_t* stream) {
  must(qn__vk_stream_begin(stream));
  qn__vk_stream_end(stream);
}

static void* flush_all(void* device) {
  (void)qn__vk_submit_old_batches(device, UINT64_MAX - 1);
  return NULL;
}

// A stream is destroyed while the others are visited: none of them is skipped.
static void test_no_stream_is_skipped(void** state) {
  (void)state;
  NEED_DEVICE();
  qn__vk_device_t* device = open_device();
  test_vulkan_stop_submit_timer();  // it would submit the open batches
  qn__vk_stream_t *left, *held, *ended;
  must(qn__vk_stream_make(device, &left));
  must(qn__vk_stream_make(device, &held));
  must(qn__vk_stream_make(device, &ended));
  for (int i = 0; i < 2; i++) {
    record_nothing(left);
    record_nothing(held);
  }
  assert_true(left->open && held->open && left->open->command_count == 1);
  qn__mutex_lock(&held->mutex);
  pthread_t thread;
  must(qn__thread_start(&thread, "flush", 0, flush_all, device));
  // The thread has reached the second stream, and waits for its mutex.
  while (atomic_load(&held->reference_count) < 2) (void)sched_yield();
  qn__vk_stream_destroy(0, ended);
  qn__mutex_unlock(&held->mutex);
  (void)pthread_join(thread, NULL);
  assert_null(held->open);
  assert_null(left->open);
  qn__vk_stream_destroy(0, held);
  qn__vk_stream_destroy(0, left);
  test_vulkan_allow_submit_timer();
}

// A stream waits for another and is not used again: the wait is submitted all the same. Otherwise
// memory freed meanwhile would never be destroyed.
static void test_a_wait_alone_is_submitted(void** state) {
  (void)state;
  NEED_DEVICE();
  qn__vk_device_t* device = open_device();
  while (atomic_load(&device->submit_timer.is_armed)) (void)sched_yield();
  qn__vk_stream_t *from, *to;
  must(qn__vk_stream_make(device, &from));
  must(qn__vk_stream_make(device, &to));
  record_nothing(from);
  assert_null(from->open);
  const uint64_t before = atomic_load(&to->enqueued);
  PFN_vkGetSemaphoreCounterValue real = device->vk.GetSemaphoreCounterValue;
  device->vk.GetSemaphoreCounterValue = test_vulkan_no_progress;
  must(qn__vk_stream_wait(0, from, to));
  device->vk.GetSemaphoreCounterValue = real;
  assert_int_equal(atomic_load(&to->enqueued), before + 1);
  while (atomic_load(&to->open_since) != 0) (void)sched_yield();
  qn__vk_stream_destroy(0, to);
  qn__vk_stream_destroy(0, from);
}

// ---------------------------------------------------------------------------------- failed submits

// Replaces vk.QueueSubmit: fails some submits, and records the waits of the others.
static PFN_vkQueueSubmit real_submit;
static int submits_to_fail;
static uint32_t waits_seen;
static uint64_t values_seen;  // the sum of the values waited for

static VkResult VKAPI_CALL submit_later(VkQueue queue, uint32_t count, const VkSubmitInfo* infos,
                                        VkFence fence) {
  if (submits_to_fail > 0) {
    submits_to_fail--;
    return VK_ERROR_OUT_OF_HOST_MEMORY;
  }
  const VkTimelineSemaphoreSubmitInfo* timeline = infos->pNext;
  waits_seen += infos->waitSemaphoreCount;
  for (uint32_t i = 0; i < infos->waitSemaphoreCount; i++) {
    values_seen += timeline->pWaitSemaphoreValues[i];
  }
  return real_submit(queue, count, infos, fence);
}

typedef enum way {
  BY_SYNC,
  BY_COPY,
  BY_UPLOAD,
  BY_DOWNLOAD,
  BY_WAIT,
  BY_QUESTION,
  BY_CALL,
  BY_END,
  WAY_COUNT,
} way_t;

enum { SOURCES = QN__VK_MAX_WAITS + 1 };
typedef struct waiting {
  void* code;
  void* out;
  qn_stream_t* stream;
  qn__vk_stream_t *to, *last;
  qn__vk_stream_t* from[SOURCES];
  uint64_t values;
} waiting_t;

// Makes the stream wait for the first of the others, which have work, in a batch whose submit
// fails.
static void wait_in_vain(waiting_t* self, int count) {
  qn__vk_device_t* device = self->to->device;
  PFN_vkGetSemaphoreCounterValue real = device->vk.GetSemaphoreCounterValue;
  self->values = 0;
  submits_to_fail = 1;
  for (int i = 0; i < count; i++) {
    device->vk.GetSemaphoreCounterValue = test_vulkan_no_progress;
    atomic_store(&self->from[i]->completed, 0);
    qn_status_t status = qn__vk_stream_wait(0, self->from[i], self->to);
    device->vk.GetSemaphoreCounterValue = real;
    if (i < QN__VK_MAX_WAITS) {
      self->values += self->from[i]->submitted;
      must(status);
    } else {
      must_fail(status, QN_STATUS_DEVICE_ERROR, "submit its 16 waits");
    }
  }
  qn__mutex_lock(&self->to->mutex);
  if (submits_to_fail > 0) qn__vk_stream_flush(self->to);
  const bool is_done = qn__vk_stream_poll(self->to);
  qn__mutex_unlock(&self->to->mutex);
  assert_false(is_done);
  assert_int_equal(self->to->pending_wait_count,
                   count < QN__VK_MAX_WAITS ? count : QN__VK_MAX_WAITS);
  assert_int_equal(submits_to_fail, 0);
  waits_seen = 0;
  values_seen = 0;
}

static void expect_waited(const waiting_t* self, uint32_t count) {
  assert_int_equal(waits_seen, count);
  assert_int_equal(values_seen, self->values);
  assert_int_equal(self->to->pending_wait_count, 0);
}

static void expect_told(const waiting_t* self) {
  must_fail(qn_stream_sync(test_vulkan, self->stream), QN_STATUS_OUT_OF_MEMORY, "vkQueueSubmit");
}

static void go_on(waiting_t* self, way_t way) {
  uint32_t host[64] = {0};
  size_t size = sizeof host;
  switch (way) {
    case BY_SYNC:
      expect_told(self);
      break;
    case BY_COPY:
      must(test_vulkan_copy(self->out, 0, self->out, 128, 128, self->stream));
      expect_told(self);
      break;
    case BY_UPLOAD:
      must(test_vulkan_copy_to(self->out, 0, host, size, self->stream));
      expect_told(self);
      break;
    case BY_DOWNLOAD:
      must(test_vulkan_copy_from(host, self->out, 0, size, self->stream));
      break;
    case BY_WAIT:
      must(qn__vk_stream_wait(0, self->to, self->last));
      break;
    case BY_QUESTION:
      (void)qn__vk_stream_is_idle(0, self->to);
      break;
    case BY_CALL:
      // The sync tries twice.
      submits_to_fail = 2;
      expect_told(self);
      assert_int_equal(waits_seen, 0);
      must(test_vulkan_call(self->code, TEST_FILL, self->stream, NULL, 1, &self->out, &size, 2,
                            (uint64_t[]){64, 1}));
      must(qn_stream_sync(test_vulkan, self->stream));
      break;
    case BY_END:
    case WAY_COUNT:
      break;
  }
}

// If the submit of a batch fails, the next work of the stream takes over its waits, also after
// several failures. More waits than a batch can hold are refused then. No stream stays retained
// afterwards.
static void test_waits_of_a_failed_submit_are_made_up_for(void** state) {
  (void)state;
  NEED_DEVICE();
  waiting_t self = {.code = test_vulkan_load(NULL), .out = test_vulkan_allocate(256)};
  qn__vk_device_t* device = open_device();
  qn__vk_submit_timer_stop(device);  // it would submit the open batches
  real_submit = device->vk.QueueSubmit;
  for (int i = 0; i < 2 * WAY_COUNT; i++) {
    const way_t way = (way_t)(i % WAY_COUNT);
    const uint32_t count = i < WAY_COUNT ? 2 : QN__VK_MAX_WAITS;
    must(qn_stream_create(test_vulkan, &self.stream));
    self.to = qn__stream_inner(self.stream);
    must(qn__vk_stream_make(device, &self.last));
    for (int k = 0; k < SOURCES; k++) {
      must(qn__vk_stream_make(device, &self.from[k]));
      record_nothing(self.from[k]);
    }
    device->vk.QueueSubmit = submit_later;
    wait_in_vain(&self, count == 2 ? 2 : SOURCES);
    go_on(&self, way);
    if (way == BY_END) {
      submits_to_fail = INT32_MAX;
    } else {
      expect_waited(&self, count);
      qn_status_free(qn_stream_sync(test_vulkan, self.stream));
    }
    qn_stream_destroy(self.stream);
    submits_to_fail = 0;
    device->vk.QueueSubmit = real_submit;
    qn__vk_stream_destroy(0, self.last);
    for (int k = 0; k < SOURCES; k++) {
      assert_int_equal(atomic_load(&self.from[k]->reference_count), 1);
      qn__vk_stream_destroy(0, self.from[k]);
    }
  }
  // Streams that wait for each other, with failing submits.
  qn__vk_stream_t* pair[2];
  for (int k = 0; k < 2; k++) {
    must(qn__vk_stream_make(device, &pair[k]));
    record_nothing(pair[k]);
  }
  PFN_vkGetSemaphoreCounterValue real = device->vk.GetSemaphoreCounterValue;
  device->vk.GetSemaphoreCounterValue = test_vulkan_no_progress;
  device->vk.QueueSubmit = submit_later;
  submits_to_fail = INT32_MAX;
  for (int k = 0; k < 2; k++) {
    atomic_store(&pair[1 - k]->completed, 0);
    must(qn__vk_stream_wait(0, pair[1 - k], pair[k]));
    (void)qn__vk_submit_old_batches(device, UINT64_MAX - 1);
    assert_int_equal(pair[k]->pending_wait_count, 1);
  }
  device->vk.GetSemaphoreCounterValue = real;
  for (int k = 0; k < 2; k++) qn__vk_stream_destroy(0, pair[k]);
  device->vk.QueueSubmit = real_submit;
  device->submit_timer.is_stopping = false;
  atomic_store(&device->submit_timer.is_armed, false);
  test_vulkan_free(self.out);
  test_vulkan_unload(self.code);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parts_of_a_buffer_beyond_the_binding),
      cmocka_unit_test(test_staging_is_bounded),
      cmocka_unit_test(test_uncached_memory_is_copied_by_the_device),
      cmocka_unit_test(test_the_end_of_a_pinned_block_is_not_in_it),
      cmocka_unit_test(test_a_stream_is_idle_behind_a_call_that_failed_halfway),
      cmocka_unit_test(test_workspace_of_work_that_never_ran_is_given_back),
      cmocka_unit_test(test_launches_of_one_owner_behind_a_failure_are_skipped),
      cmocka_unit_test(test_nothing_grows_in_a_long_run),
      cmocka_unit_test(test_semaphores_outlive_streams),
      cmocka_unit_test(test_no_stream_is_skipped),
      cmocka_unit_test(test_a_wait_alone_is_submitted),
      cmocka_unit_test(test_waits_of_a_failed_submit_are_made_up_for),
      cmocka_unit_test(test_vulkan_is_silent),
  };
  return cmocka_run_group_tests(tests, test_vulkan_begin, test_vulkan_end);
}
#else
int main(void) {
  return 0;
}
#endif
