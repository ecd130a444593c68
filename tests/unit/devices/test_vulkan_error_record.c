// SPDX-License-Identifier: Apache-2.0
// Errors of a Vulkan stream: the record is cleared in stream order, read in place or by copies, and
// reports a failure once. After a failure each call runs as a whole or not at all. Every test runs
// with mapped device memory and without. ctest-labels: tsan
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/devices/support_vulkan.h"

#if QN_HAVE_VULKAN
#include "base/thread.h"
#include "devices/vulkan/context.h"
#include "devices/vulkan/stream.h"
#include "tests/support/must.h"

enum { COUNT = 100 };

static qn__vk_device_t* device;
static bool has_copies;  // the host does not see the record
static void* code;
static void *x, *out, *behind;  // x[i] = i + 1
static qn_stream_t *stream, *other;
static uint32_t numbers[COUNT], zeros[COUNT];

// ---------------------------------------------------------------------------------- the driver

static qn__vk_functions_t real;
static _Atomic int fill_count, copy_count;

static void VKAPI_CALL counting_fill(VkCommandBuffer commands, VkBuffer buffer, VkDeviceSize offset,
                                     VkDeviceSize size, uint32_t value) {
  if (size == sizeof(qn_gpu_record_t)) fill_count++;
  real.CmdFillBuffer(commands, buffer, offset, size, value);
}
static void VKAPI_CALL counting_copy(VkCommandBuffer commands, VkBuffer from, VkBuffer to,
                                     uint32_t count, const VkBufferCopy* regions) {
  if (regions[0].size == sizeof(qn_gpu_record_t)) copy_count++;
  real.CmdCopyBuffer(commands, from, to, count, regions);
}
static VkResult VKAPI_CALL failing_end(VkCommandBuffer commands) {
  (void)real.EndCommandBuffer(commands);
  return VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

// ---------------------------------------------------------------------------------- around a test

static int open(void** state) {
  (void)state;
  if (!test_vulkan_is_present()) return 0;
  device->vk.CmdFillBuffer = counting_fill;
  device->vk.CmdCopyBuffer = counting_copy;
  code = test_vulkan_load(NULL);
  x = test_vulkan_allocate(COUNT * 4);
  out = test_vulkan_allocate(COUNT * 4);
  behind = test_vulkan_allocate(COUNT * 4);
  for (uint32_t i = 0; i < COUNT; i++) numbers[i] = i + 1;
  must(test_vulkan_copy_to(x, 0, numbers, sizeof numbers, NULL));
  must(qn_stream_sync(test_vulkan, NULL));
  must(qn_stream_create(test_vulkan, &stream));
  must(qn_stream_create(test_vulkan, &other));
  fill_count = 0;
  copy_count = 0;
  return 0;
}
static int shut(void** state) {
  (void)state;
  if (!test_vulkan_is_present()) return 0;
  device->vk = real;
  qn_stream_destroy(stream);
  qn_stream_destroy(other);
  test_vulkan_free(x);
  test_vulkan_free(out);
  test_vulkan_free(behind);
  test_vulkan_unload(code);
  return 0;
}

static void clear(void* memory, qn_stream_t* on) {
  must(test_vulkan_copy_to(memory, 0, zeros, sizeof zeros, on));
}

static void expect_content(void* memory, qn_stream_t* on, const uint32_t* wanted) {
  uint32_t got[COUNT];
  must(test_vulkan_copy_from(got, memory, 0, sizeof got, on));
  assert_memory_equal(got, wanted, sizeof got);
}

// y = x; fails unless the limit is COUNT, at an element that is above it.
static qn_status_t check(qn_stream_t* on, test_owner_t* owner, void* y, uint64_t limit) {
  size_t sizes[] = {COUNT * 4, COUNT * 4};
  return test_vulkan_call(code, TEST_CHECK, on, owner, 2, (void*[]){x, y}, sizes, 2,
                          (uint64_t[]){COUNT, limit});
}

// Work that cannot fail.
static void step(qn_stream_t* on, void* y) {
  size_t sizes[] = {COUNT * 4, COUNT * 4};
  must(test_vulkan_call(code, TEST_STEP, on, NULL, 2, (void*[]){x, y}, sizes, 1,
                        (uint64_t[]){COUNT}));
}

// Expects that a sync reports one element above the limit, once.
static void expect_failure(qn_stream_t* on, uint64_t limit) {
  qn_status_t status = qn_stream_sync(test_vulkan, on);
  assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_BOUNDS);
  int site = 0, index = 0, extent = 0;
  const char* message = qn_status_message(status);
  if (sscanf(message, "site %d index %d extent %d", &site, &index, &extent) != 3 || site != 7 ||
      index < (int)limit || index >= COUNT || extent != (int)limit) {
    fail_msg("not the failure at limit %d: %s", (int)limit, message);
  }
  qn_status_free(status);
  must(qn_stream_sync(test_vulkan, on));
}

// Waits until the stream knows the failure, without returning it.
static void wait_until_known(qn_stream_t* on) {
  while (!qn_stream_is_idle(on)) (void)sched_yield();
}

// ---------------------------------------------------------------------------------- commands

// Work that cannot fail needs no copy and no clearing of the record. A batch with work that can
// fail needs at most one copy. Only a new record, or one whose failure was reported, is cleared.
static void test_commands(void** state) {
  (void)state;
  NEED_DEVICE();
  for (int i = 0; i < 40; i++) {
    step(i % 2 ? stream : other, out);
    if (i % 5 == 0) must(qn_stream_sync(test_vulkan, stream));
    if (i % 7 == 0) must(qn_stream_wait(test_vulkan, stream, other));
  }
  must(qn_stream_sync(test_vulkan, stream));
  must(qn_stream_sync(test_vulkan, other));
  assert_int_equal(fill_count + copy_count, 0);
  uint64_t submits = test_vulkan_stats().submit_count;
  for (int i = 0; i < 10; i++) must(check(stream, NULL, out, COUNT));
  must(qn_stream_sync(test_vulkan, stream));
  submits = test_vulkan_stats().submit_count - submits;
  assert_int_equal(fill_count, 1);
  assert_int_equal(copy_count, has_copies ? submits : 0);
  const int copies = copy_count;
  for (int i = 0; i < 10; i++) step(stream, out);
  must(qn_stream_sync(test_vulkan, stream));
  assert_int_equal(copy_count, copies);
  must(check(stream, NULL, out, 50));
  expect_failure(stream, 50);
  for (int i = 0; i < 10; i++) step(stream, out);
  must(qn_stream_sync(test_vulkan, stream));
  assert_int_equal(fill_count, 1);
  for (int i = 0; i < 10; i++) must(check(stream, NULL, out, COUNT));
  must(qn_stream_sync(test_vulkan, stream));
  assert_int_equal(fill_count, 2);
  expect_content(out, stream, numbers);
}

// Uses only the stream's own barriers, so that the layer checks the order of commands that clear,
// write and copy the record. All commands access the record, so the layer reports no other race.
static void test_order(void** state) {
  (void)state;
  NEED_DEVICE();
  qn__vulkan_order_everything(false);
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < 70; i++) must(check(stream, NULL, out, COUNT));
    must(check(stream, NULL, out, 30));
    for (int i = 0; i < 5; i++) must(check(stream, NULL, out, COUNT));
    expect_failure(stream, 30);
  }
  assert_int_equal(fill_count, 4);
  qn__vulkan_order_everything(true);
  test_vulkan_is_silent(state);
}

// ---------------------------------------------------------------------------------- failures

static void test_failures_and_more_work(void** state) {
  (void)state;
  NEED_DEVICE();
  test_owner_t fine = {0}, failing = {0}, skipped = {0};
  for (int round = 0; round < 6; round++) {
    const uint64_t limit = (uint64_t)(10 + round);
    clear(out, stream);
    clear(behind, stream);
    must(check(stream, &fine, out, COUNT));
    must(check(stream, &failing, out, limit));
    // The later failures are not reported: the first one counts.
    must(check(stream, &skipped, behind, COUNT));
    must(check(stream, &skipped, behind, 3));
    if (round % 2) {
      wait_until_known(stream);
      assert_int_equal(failing.described_count, round + 1);
      must(check(stream, &skipped, behind, COUNT));
      must(qn_stream_wait(test_vulkan, stream, other));
      must(qn_stream_sync(test_vulkan, other));
    }
    expect_failure(stream, limit);
    assert_int_equal(failing.described_count, round + 1);
    assert_int_equal(fine.described_count + skipped.described_count, 0);
    assert_int_equal(fine.reference_count + failing.reference_count + skipped.reference_count, 0);
    expect_content(out, stream, numbers);
    expect_content(behind, stream, zeros);
    // After the sync: a new failure, then work that succeeds.
    if (round % 3 == 0) {
      must(check(stream, &fine, behind, COUNT));
      must(qn_stream_sync(test_vulkan, stream));
      expect_content(behind, stream, numbers);
    }
  }
}

static void test_streams(void** state) {
  (void)state;
  NEED_DEVICE();
  for (int round = 0; round < 4; round++) {
    clear(out, stream);
    clear(behind, other);
    must(check(stream, NULL, out, 20));
    must(qn_stream_wait(test_vulkan, stream, other));
    // Work that waits for a failed stream is not skipped.
    must(check(other, NULL, behind, COUNT));
    if (round % 2) must(check(other, NULL, behind, 40));
    must(qn_stream_wait(test_vulkan, other, stream));
    must(check(stream, NULL, behind, 60));
    if (round % 2) {
      expect_failure(other, 40);
    } else {
      must(qn_stream_sync(test_vulkan, other));
    }
    expect_failure(stream, 20);
    expect_content(behind, other, numbers);
    must(check(stream, NULL, out, COUNT));
    must(check(other, NULL, out, COUNT));
    must(qn_stream_sync(test_vulkan, other));
    must(qn_stream_sync(test_vulkan, stream));
    expect_content(out, stream, numbers);
  }
}

// A stream is destroyed with a failure in its record. The next stream with this memory clears the
// record first.
static void test_unread(void** state) {
  (void)state;
  NEED_DEVICE();
  test_owner_t failing = {0}, fine = {0};
  const uint64_t used = test_vulkan_stats().used_bytes;
  for (int i = 0; i < 10; i++) {
    qn_stream_t* ending;
    must(qn_stream_create(test_vulkan, &ending));
    must(check(ending, &failing, out, 20));
    if (i % 2) wait_until_known(ending);
    qn_stream_destroy(ending);
    assert_int_equal(failing.reference_count, 0);
    clear(behind, stream);
    must(qn_stream_sync(test_vulkan, stream));
    must(qn_stream_create(test_vulkan, &ending));
    must(check(ending, &fine, behind, COUNT));
    must(qn_stream_sync(test_vulkan, ending));
    expect_content(behind, ending, numbers);
    qn_stream_destroy(ending);
  }
  assert_int_equal(fine.described_count, 0);
  test_vulkan_await_used(used);
}

// ---------------------------------------------------------------------------------- calls of two

static void (*between)(void);
static VkResult VKAPI_CALL interrupted_create(VkDevice handle, VkPipelineCache cache,
                                              uint32_t count,
                                              const VkComputePipelineCreateInfo* infos,
                                              const VkAllocationCallbacks* callbacks,
                                              VkPipeline* pipelines) {
  void (*then)(void) = between;
  between = NULL;
  if (then) then();
  return real.CreateComputePipelines(handle, cache, count, infos, callbacks, pipelines);
}

static qn_status_t call_pair(qn_stream_t* on, void* middle, void* last, uint32_t threads) {
  size_t sizes[] = {COUNT * 4, COUNT * 4, COUNT * 4};
  return test_vulkan_call(code, TEST_PAIR, on, NULL, 3, (void*[]){x, middle, last}, sizes, 3,
                          (uint64_t[]){COUNT, COUNT, threads});
}

// Acts as another thread: a sync returns the failure, and the next call runs.
static void sync_and_call(void) {
  expect_failure(stream, 20);
  must(check(stream, NULL, out, COUNT));
}

// A sync returns an earlier failure between the two launches of a call. The first launch was
// skipped, so the second one must be skipped too, although the record is cleared.
static void test_a_call_is_done_whole(void** state) {
  (void)state;
  NEED_DEVICE();
  device->vk.CreateComputePipelines = interrupted_create;
  void* last = test_vulkan_allocate(COUNT * 4);
  // A different number of threads each time, so that a pipeline is created in between.
  for (uint32_t threads = 3; threads < 7; threads++) {
    clear(out, stream);
    clear(behind, stream);
    clear(last, stream);
    must(check(stream, NULL, out, 20));
    if (threads % 2) wait_until_known(stream);
    between = sync_and_call;
    must(call_pair(stream, behind, last, threads));
    assert_null(between);
    must(qn_stream_sync(test_vulkan, stream));
    expect_content(out, stream, numbers);
    expect_content(behind, stream, zeros);
    expect_content(last, stream, zeros);
    must(call_pair(stream, behind, last, threads));
    must(qn_stream_sync(test_vulkan, stream));
    expect_content(behind, stream, numbers);
    uint32_t wanted[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) wanted[i] = numbers[i] + 1;
    expect_content(last, stream, wanted);
  }
  test_vulkan_free(last);
}

enum { THREADS = 3, ROUNDS = 40 };

typedef struct worker {
  pthread_t thread;
  uint32_t number;
  uint32_t* middle;  // COUNT for each round
  uint32_t* last;
  bool is_fine;
} worker_t;

static bool is_expected(qn_status_t status) {
  const qn_status_code_t status_code = qn_status_consume(status);
  return status_code == QN_STATUS_OK || status_code == QN_STATUS_OUT_OF_BOUNDS;
}

static void* work(void* arg) {
  worker_t* worker = arg;
  uint32_t random = worker->number * 7919 + 1;
  worker->is_fine = true;
  for (uint32_t i = 0; i < ROUNDS; i++) {
    random = random * 1664525u + 1013904223u;
    if ((random >> 20) % 4 == 0) {
      worker->is_fine &= qn_ok(check(stream, NULL, out, 10 + worker->number));
    }
    worker->is_fine &= qn_ok(call_pair(stream, worker->middle + (size_t)i * COUNT,
                                       worker->last + (size_t)i * COUNT, 1 + (random >> 10) % 40));
    if ((random >> 24) % 5 == 0)
      worker->is_fine &= is_expected(qn_stream_sync(test_vulkan, stream));
  }
  return NULL;
}

// Threads call, fail and sync on one stream: no call's second launch runs without its first.
static void test_threads(void** state) {
  (void)state;
  NEED_DEVICE();
  const size_t size = (size_t)ROUNDS * COUNT * 4;
  uint32_t* nothing = calloc(1, size);
  uint32_t* middle = malloc(size);
  uint32_t* last = malloc(size);
  assert_true(nothing && middle && last);
  worker_t workers[THREADS];
  for (uint32_t t = 0; t < THREADS; t++) {
    workers[t] = (worker_t){
        .number = t, .middle = test_vulkan_allocate(size), .last = test_vulkan_allocate(size)};
    must(test_vulkan_copy_to(workers[t].middle, 0, nothing, size, stream));
    must(test_vulkan_copy_to(workers[t].last, 0, nothing, size, stream));
  }
  for (uint32_t t = 0; t < THREADS; t++) {
    assert_int_equal(pthread_create(&workers[t].thread, NULL, work, &workers[t]), 0);
  }
  for (uint32_t t = 0; t < THREADS; t++) {
    assert_int_equal(pthread_join(workers[t].thread, NULL), 0);
    assert_true(workers[t].is_fine);
  }
  assert_true(is_expected(qn_stream_sync(test_vulkan, stream)));
  must(qn_stream_sync(test_vulkan, stream));
  for (uint32_t t = 0; t < THREADS; t++) {
    must(test_vulkan_copy_from(middle, workers[t].middle, 0, size, stream));
    must(test_vulkan_copy_from(last, workers[t].last, 0, size, stream));
    for (size_t i = 0; i < (size_t)ROUNDS * COUNT; i++) {
      const uint32_t wanted = numbers[i % COUNT];
      assert_true(middle[i] == 0 || middle[i] == wanted);
      assert_true(last[i] == 0 || (last[i] == wanted + 1 && middle[i] == wanted));
    }
  }
  // Afterwards all calls run again.
  must(call_pair(stream, workers[0].middle, workers[0].last, 8));
  must(qn_stream_sync(test_vulkan, stream));
  expect_content(workers[0].middle, stream, numbers);
  for (uint32_t t = 0; t < THREADS; t++) {
    test_vulkan_free(workers[t].middle);
    test_vulkan_free(workers[t].last);
  }
  free(nothing);
  free(middle);
  free(last);
}

// ---------------------------------------------------------------------------------- drivers fail

// The batch with the clearing never runs: a later batch clears the record, and work that did not
// run reports no failure.
static void test_clearing_that_is_not_submitted(void** state) {
  (void)state;
  NEED_DEVICE();
  test_owner_t failing = {0}, lost = {0};
  const qn__vk_stream_t* inner = qn__stream_inner(stream);
  for (int i = 0; i < 4; i++) {
    must(check(stream, &failing, out, 20));
    expect_failure(stream, 20);
    const int fills = fill_count;
    if (i % 2) {
      test_vulkan_submit_result = VK_ERROR_OUT_OF_HOST_MEMORY;
      device->vk.QueueSubmit = test_vulkan_failing_submit;
    } else {
      device->vk.EndCommandBuffer = failing_end;
    }
    // The memory that the host reads has random contents, even a tag of this launch.
    const qn__vk_place_t* seen = has_copies ? &inner->record_copies : &inner->error_record;
    const size_t records = has_copies ? QN__VK_MAX_BATCHES : 1;
    for (size_t r = 0; r < records; r++) {
      const uint32_t tag = inner->last_tag + 1;
      memcpy(seen->block->mapped + seen->offset + r * sizeof(qn_gpu_record_t), &tag, sizeof tag);
    }
    must(check(stream, &lost, out, 30));
    must_fail(qn_stream_sync(test_vulkan, stream), QN_STATUS_OUT_OF_MEMORY, "vkQueueSubmit");
    device->vk.QueueSubmit = real.QueueSubmit;
    device->vk.EndCommandBuffer = real.EndCommandBuffer;
    assert_int_equal(fill_count, fills + 1);
    must(qn_stream_sync(test_vulkan, stream));
    clear(behind, stream);
    must(check(stream, &lost, behind, COUNT));
    must(qn_stream_sync(test_vulkan, stream));
    assert_int_equal(fill_count, fills + 2);
    expect_content(behind, stream, numbers);
    assert_int_equal(lost.reference_count + lost.described_count, 0);
  }
  assert_int_equal(failing.described_count, 4);
}

// Turns a device without blocks into one whose memory is not mapped.
static int begin(void** state) {
  (void)test_vulkan_begin_ordered(state);
  if (!test_vulkan_is_present()) return 0;
  must(qn__vk_use(0, &device));
  if (has_copies) device->memory.is_mapped[QN__VK_POOL_DEVICE] = false;
  has_copies = !device->memory.is_mapped[QN__VK_POOL_DEVICE];
  real = device->vk;
  return 0;
}

static int run(bool copies) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open, shut)
  const struct CMUnitTest tests[] = {
      TEST(test_commands),
      TEST(test_order),
      TEST(test_failures_and_more_work),
      TEST(test_streams),
      TEST(test_unread),
      TEST(test_a_call_is_done_whole),
      TEST(test_threads),
      TEST(test_clearing_that_is_not_submitted),
      cmocka_unit_test(test_vulkan_is_silent),
  };
  has_copies = copies;
  return cmocka_run_group_tests_name(copies ? "with copies" : "in place", tests, begin,
                                     test_vulkan_end);
}

// Each variant runs in its own process: sanitizers report errors when drivers are opened again.
int main(void) {
  (void)fflush(NULL);
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) return run(true);
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return 1;
  }
  return run(false);
}
#else
int main(void) {
  return 0;
}
#endif
