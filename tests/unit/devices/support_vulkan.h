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
#include "devices/vulkan/vulkan.h"

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
  TEST_TWICE,     // y, count, value: workspace = value + i; y = 3 y + workspace
  TEST_FUNCTION_COUNT,
} test_function_t;

// Turns the validation layer on where it is installed, its messages going into a file; with
// `checks_order` also that it looks for missing barriers, for which there is one in front of every
// command (qn__vulkan_order_everything). To be called once, before anything is asked of Vulkan.
// False when there is no device: `*out_why` says why.
bool test_vulkan_begin(bool checks_order, const char** out_why);
// Destroys devices and instance; what the layer has said since the beginning is the test's failure.
void test_vulkan_end(void);
// What the layer has said so far; "" for nothing.
const char* test_vulkan_messages(void);
bool test_vulkan_has_validation(void);

// Who is told of failures, as the engine would be.
typedef struct test_owner {
  _Atomic int reference_count;
  _Atomic int described_count;
} test_owner_t;

// Errors are the test's failure. `store` may be NULL.
void* test_vulkan_load(const qn_driver_store_t* store);
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
void test_must(qn_status_t status);
extern const qn_device_t test_vulkan;

#endif
#endif  // QUERN_TESTS_UNIT_DEVICES_SUPPORT_VULKAN_H_
