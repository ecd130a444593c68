// SPDX-License-Identifier: Apache-2.0
// tests/unit/devices/support_vulkan.h: shared by the tests of the Vulkan device: the validation
// layer and its messages, an executable of small kernels, and calls of them.
//
// Thread rule: begin and end are for one thread, calls for any.
#ifndef QUERN_TESTS_UNIT_DEVICES_SUPPORT_VULKAN_H_
#define QUERN_TESTS_UNIT_DEVICES_SUPPORT_VULKAN_H_

#include <stdatomic.h>

#include "devices/device.h"
#include "quern/config.h"

#if QN_HAVE_VULKAN
#include "devices/vulkan/context.h"

// The functions of the test's executable; see kernels/*.comp. Buffers come first, then scalars, as
// words.
typedef enum test_function {
  TEST_FILL = 0,  // out, count, value
  TEST_STEP,      // x, y, count
  TEST_SPIN,      // out, rounds
  TEST_CHECK,     // x, out, count, limit: fails where x > limit
  TEST_SIZE,      // out, threads: of a block chosen at the launch
  TEST_MANY,      // out, 40 numbers
  TEST_BYTES,     // out, count, value
  TEST_LATE,      // x, out, count, threads: out = x + 1, unless something has failed
  TEST_TWICE,     // y, count, value: workspace = value + i; y = 3 y + workspace
  TEST_PAIR,      // x, middle, out, count, limit, threads: TEST_CHECK to middle, TEST_LATE to out
  TEST_FUNCTION_COUNT,
} test_function_t;

// Set up a group of tests, for cmocka_run_group_tests, before any use of Vulkan. They enable the
// validation layer if it is installed, with its messages in a file. The second one also enables the
// layer's search for missing barriers, with a barrier before every command
// (qn__vulkan_order_everything). Without a device they print why.
int test_vulkan_begin(void** state);
int test_vulkan_begin_ordered(void** state);
// Destroys devices and instance. Fails the test if the layer reported anything.
int test_vulkan_end(void** state);
// Skips a test where there is no device.
bool test_vulkan_is_present(void);
#define NEED_DEVICE()              \
  if (!test_vulkan_is_present()) { \
    skip();                        \
  }
// Fails the test if the layer has reported anything so far.
void test_vulkan_is_silent(void** state);
// Returns the messages of the layer so far; "" if there are none.
const char* test_vulkan_messages(void);
bool test_vulkan_has_validation(void);

// An owner of launches, which counts failures as the engine does.
typedef struct test_owner {
  _Atomic int reference_count;
  _Atomic int described_count;
} test_owner_t;

// Loads the executable; fails the test on errors. `store` may be NULL.
void* test_vulkan_load(const qn_driver_cache_t* store);
void test_vulkan_unload(void* executable);
// Returns the artifact of these functions.
void test_vulkan_artifact(const char* isa, qn_artifact_t* out_artifact);

// A call: `buffers` with their sizes in bytes, then scalars.
qn_status_t test_vulkan_call(void* executable, test_function_t function, qn_stream_t* stream,
                             test_owner_t* owner, size_t buffer_count, void* const* buffers,
                             const size_t* sizes, size_t scalar_count, const uint64_t* scalars);

void* test_vulkan_allocate(size_t size_bytes);
void test_vulkan_free(void* pointer);
qn_status_t test_vulkan_copy_to(void* to, size_t offset, const void* from, size_t size,
                                qn_stream_t* stream);
qn_status_t test_vulkan_copy_from(void* to, const void* from, size_t offset, size_t size,
                                  qn_stream_t* stream);
qn_status_t test_vulkan_copy(void* to, size_t to_offset, const void* from, size_t from_offset,
                             size_t size, qn_stream_t* stream);
// Replaces vk.QueueSubmit: submits nothing and returns the chosen result.
extern VkResult test_vulkan_submit_result;
VkResult VKAPI_CALL test_vulkan_failing_submit(VkQueue queue, uint32_t count,
                                               const VkSubmitInfo* infos, VkFence fence);
// Replaces vk.GetSemaphoreCounterValue: no work ever completes.
VkResult VKAPI_CALL test_vulkan_no_progress(VkDevice device, VkSemaphore semaphore, uint64_t* out);
// Stop the submit timer, and allow it to start again. In between, only the recording threads
// submit. No batch may be open at the second call.
void test_vulkan_stop_submit_timer(void);
void test_vulkan_allow_submit_timer(void);
qn__vulkan_stats_t test_vulkan_stats(void);
// Waits until no more than this is in use: the submit timer may hold a destroyed stream, and its
// memory, for a moment. A leak makes the test run into its time limit.
void test_vulkan_await_used(uint64_t bytes);
extern const qn_device_t test_vulkan;

#endif
#endif  // QUERN_TESTS_UNIT_DEVICES_SUPPORT_VULKAN_H_
