// tests/unit/devices/support_vulkan.h: what the tests of the Vulkan device share: the validation
// layer with an ear for what it says, an executable of small kernels, calls of them.
//
// Thread rule: begin and end are for one thread, calls for any. Read next: support_vulkan.c.
#ifndef QUERN_TESTS_UNIT_DEVICES_SUPPORT_VULKAN_H_
#define QUERN_TESTS_UNIT_DEVICES_SUPPORT_VULKAN_H_

#include <stdatomic.h>

#include "devices/device.h"
#include "quern/config.h"

#if QN_HAVE_VULKAN
#include "devices/vulkan/context.h"

// The functions of the test's executable; what they compute is told in kernels/*.comp. Buffers come
// first, then scalars, as words.
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

// The beginning and the end of a group of tests, for cmocka_run_group_tests. Turns the validation
// layer on where it is installed, its messages going into a file; the second also has it look for
// missing barriers, for which there is one in front of every command (qn__vulkan_order_everything).
// To be called before anything is asked of Vulkan. Without a device they say why.
int test_vulkan_begin(void** state);
int test_vulkan_begin_ordered(void** state);
// Destroys devices and instance; what the layer has said since the beginning is the test's failure.
int test_vulkan_end(void** state);
// Skips a test where there is no device.
bool test_vulkan_is_present(void);
#define NEED_DEVICE()              \
  if (!test_vulkan_is_present()) { \
    skip();                        \
  }
// A test: the layer has said nothing so far.
void test_vulkan_is_silent(void** state);
// What the layer has said so far; "" for nothing.
const char* test_vulkan_messages(void);
bool test_vulkan_has_validation(void);

// Who is told of failures, as the engine would be.
typedef struct test_owner {
  _Atomic int reference_count;
  _Atomic int described_count;
} test_owner_t;

// Errors are the test's failure. `store` may be NULL.
void* test_vulkan_load(const qn_driver_cache_t* store);
void test_vulkan_unload(void* executable);
// The artifact of the same functions.
void test_vulkan_artifact(const char* isa, qn_artifact_t* out_artifact);

// A call: `buffers` and the bytes behind each, then scalars.
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
// In the place of vk.QueueSubmit: submits nothing, and answers with the result.
extern VkResult test_vulkan_submit_result;
VkResult VKAPI_CALL test_vulkan_failing_submit(VkQueue queue, uint32_t count,
                                               const VkSubmitInfo* infos, VkFence fence);
// In the place of vk.GetSemaphoreCounterValue: nothing has passed, as far as anybody asks.
VkResult VKAPI_CALL test_vulkan_no_progress(VkDevice device, VkSemaphore semaphore, uint64_t* out);
// Ends the thread that submits what was left, and lets it come again: in between, work is submitted
// by who records it alone. Nothing may be left at the second call.
void test_vulkan_stop_submit_timer(void);
void test_vulkan_allow_submit_timer(void);
qn__vulkan_stats_t test_vulkan_stats(void);
// Waits until no more than this is in use: the thread that submits what was left may hold a stream
// that has ended, and so its memory, for a moment. What is lost is waited for until ctest's limit.
void test_vulkan_await_used(uint64_t bytes);
extern const qn_device_t test_vulkan;

#endif
#endif  // QUERN_TESTS_UNIT_DEVICES_SUPPORT_VULKAN_H_
