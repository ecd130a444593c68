// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // environ
// Failures of the Vulkan device: no loader, no driver, missing features, each allocation failing in
// turn, driver errors, forks, process exit, and damaged pipeline data. ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/devices/support_vulkan.h"

#if QN_HAVE_VULKAN
#include <dlfcn.h>

#include "devices/vulkan/context.h"
#include "devices/vulkan/executable.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"

// ---------------------------------------------------------------------------------- nothing there

static void test_without_a_loader(void** state) {
  (void)state;
  qn__vulkan_reset(qn_allocator_default());
  assert_int_equal(setenv("QUERN_VULKAN_LIBRARY", "/nonexistent/libvulkan.so", 1), 0);
  assert_int_equal(qn_device_count(QN_DEVICE_VULKAN), 0);
  must_fail(qn__vulkan_available(), QN_STATUS_UNAVAILABLE, "no loader: /nonexistent/libvulkan.so");
  void* pointer;
  must_fail(qn_device_allocate(test_vulkan, 64, 0, &pointer), QN_STATUS_NOT_FOUND,
            "/nonexistent/libvulkan.so");
  qn_attribute_value_t value;
  must(qn_device_attribute(test_vulkan, QN_ATTRIBUTE_EXIST, &value));
  assert_int_equal(value.int_value, 0);
  // A library that is no loader.
  qn__vulkan_reset(qn_allocator_default());
  assert_int_equal(setenv("QUERN_VULKAN_LIBRARY", "libm.so.6", 1), 0);
  must_fail(qn__vulkan_available(), QN_STATUS_UNAVAILABLE, "no vkGetInstanceProcAddr");
  assert_int_equal(unsetenv("QUERN_VULKAN_LIBRARY"), 0);
  qn__vulkan_reset(qn_allocator_default());
  // The CPU goes on.
  void* memory;
  must(qn_device_allocate((qn_device_t){QN_DEVICE_CPU, 0}, 64, 0, &memory));
  must(qn_device_free((qn_device_t){QN_DEVICE_CPU, 0}, memory));
}

static void test_without_a_driver(void** state) {
  (void)state;
  NEED_DEVICE();
  qn__vulkan_reset(qn_allocator_default());
  assert_int_equal(setenv("VK_ICD_FILENAMES", "/nonexistent/icd.json", 1), 0);
  assert_int_equal(setenv("VK_DRIVER_FILES", "/nonexistent/icd.json", 1), 0);
  must_fail(qn__vulkan_available(), QN_STATUS_UNAVAILABLE, "vulkan: ");
  assert_int_equal(qn_device_count(QN_DEVICE_VULKAN), 0);
  assert_int_equal(unsetenv("VK_ICD_FILENAMES"), 0);
  assert_int_equal(unsetenv("VK_DRIVER_FILES"), 0);
  qn__vulkan_reset(qn_allocator_default());
  must(qn__vulkan_available());
}

// ---------------------------------------------------------------------------------- lacking

static uint32_t fake_version;
static bool fake_has_timeline;
static VkQueueFlags fake_queue;

static void VKAPI_CALL fake_properties(VkPhysicalDevice device, VkPhysicalDeviceProperties* out) {
  (void)device;
  memset(out, 0, sizeof *out);
  out->apiVersion = fake_version;
  (void)snprintf(out->deviceName, sizeof out->deviceName, "a fake");
}
static void VKAPI_CALL fake_properties2(VkPhysicalDevice device, VkPhysicalDeviceProperties2* out) {
  fake_properties(device, &out->properties);
}
static void VKAPI_CALL fake_features2(VkPhysicalDevice device, VkPhysicalDeviceFeatures2* out) {
  (void)device;
  for (VkBaseOutStructure* at = out->pNext; at; at = at->pNext) {
    if (at->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES) continue;
    ((VkPhysicalDeviceTimelineSemaphoreFeatures*)(void*)at)->timelineSemaphore = fake_has_timeline;
  }
}
static void VKAPI_CALL fake_families(VkPhysicalDevice device, uint32_t* count,
                                     VkQueueFamilyProperties* out) {
  (void)device;
  *count = 1;
  out[0] = (VkQueueFamilyProperties){.queueFlags = fake_queue, .queueCount = 16};
}
static void VKAPI_CALL fake_memory(VkPhysicalDevice device,
                                   VkPhysicalDeviceMemoryProperties2* out) {
  (void)device;
  memset(&out->memoryProperties, 0, sizeof out->memoryProperties);
}
static VkResult VKAPI_CALL fake_extensions(VkPhysicalDevice device, const char* layer,
                                           uint32_t* count, VkExtensionProperties* out) {
  (void)device;
  (void)layer;
  *count = 1;
  if (out) {
    memset(out, 0, sizeof *out);
    (void)snprintf(out->extensionName, sizeof out->extensionName, "%s",
                   VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME);
  }
  return VK_SUCCESS;
}

static void test_devices_that_lack_something(void** state) {
  (void)state;
  qn__vk_instance_t instance = {.api_version = VK_API_VERSION_1_3,
                                .GetPhysicalDeviceProperties = fake_properties,
                                .GetPhysicalDeviceProperties2 = fake_properties2,
                                .GetPhysicalDeviceFeatures2 = fake_features2,
                                .GetPhysicalDeviceQueueFamilyProperties = fake_families,
                                .GetPhysicalDeviceMemoryProperties2 = fake_memory,
                                .EnumerateDeviceExtensionProperties = fake_extensions};
  qn__vk_info_t info;
  const struct {
    uint32_t version;
    bool has_timeline;
    VkQueueFlags queue;
    const char* message;
  } cases[] = {
      {VK_API_VERSION_1_0, true, VK_QUEUE_COMPUTE_BIT, "has no Vulkan 1.1"},
      {VK_API_VERSION_1_1, false, VK_QUEUE_COMPUTE_BIT, "has no timeline semaphores"},
      {VK_API_VERSION_1_2, true, VK_QUEUE_TRANSFER_BIT, "has no compute queue"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    fake_version = cases[i].version;
    fake_has_timeline = cases[i].has_timeline;
    fake_queue = cases[i].queue;
    must_fail(qn__vk_probe(&instance, VK_NULL_HANDLE, qn_allocator_default(), &info),
              QN_STATUS_UNAVAILABLE, cases[i].message);
  }
  // Vulkan 1.1 with the extension will do, which is then switched on.
  fake_version = VK_API_VERSION_1_1;
  fake_has_timeline = true;
  fake_queue = VK_QUEUE_COMPUTE_BIT;
  must(qn__vk_probe(&instance, VK_NULL_HANDLE, qn_allocator_default(), &info));
  assert_int_equal(info.extension_count, 1);
  assert_string_equal(info.extensions[0], VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME);
  assert_int_equal(info.queue_count, QN__VK_MAX_QUEUES);
  assert_false(info.has_int64 || info.has_float64 || info.has_memory_budget);
}

// ---------------------------------------------------------------------------------- no memory

// A little of everything; a failure is fine, a wrong result is not.
static bool use_everything(qn_allocator_t allocator, void* user) {
  (void)user;
  qn__vulkan_reset(allocator);
  const qn_device_table_t* table = qn__device_table(QN_DEVICE_VULKAN);
  qn_artifact_t artifact;
  test_vulkan_artifact("{\"kind\":\"vulkan\"}", &artifact);
  qn_load_options_t options = {.struct_size = sizeof options, .name = "test"};
  void* code = NULL;
  void* memory = NULL;
  void* large = NULL;
  qn_stream_t* stream = NULL;
  uint32_t got[64] = {0}, sent[64];
  for (uint32_t i = 0; i < 64; i++) sent[i] = i * 3;
  size_t sizes[] = {256, 256};
  test_owner_t owner = {0};
  qn_status_t status = table->load(0, &artifact, &options, &code);
  if (qn_ok(status)) status = qn_device_allocate(test_vulkan, 256, 0, &memory);
  if (qn_ok(status)) status = qn_device_allocate(test_vulkan, (size_t)70 << 20, 0, &large);
  if (qn_ok(status)) status = qn_stream_create(test_vulkan, &stream);
  if (qn_ok(status)) status = test_vulkan_copy_to(memory, 0, sent, 256, stream);
  if (qn_ok(status)) {
    status = test_vulkan_call(code, TEST_TWICE, stream, &owner, 1, &memory, sizes, 2,
                              (uint64_t[]){64, 5});
  }
  if (qn_ok(status)) {
    status = test_vulkan_call(code, TEST_CHECK, stream, &owner, 2, (void*[]){memory, large}, sizes,
                              2, (uint64_t[]){64, UINT32_MAX});
  }
  uint64_t numbers[40] = {1};
  if (qn_ok(status)) {
    status = test_vulkan_call(code, TEST_MANY, stream, &owner, 1, &large, sizes, 40, numbers);
  }
  if (qn_ok(status)) status = qn_stream_wait(test_vulkan, stream, NULL);
  if (qn_ok(status)) status = qn_stream_sync(test_vulkan, stream);
  if (qn_ok(status)) status = test_vulkan_copy_from(got, memory, 0, 256, NULL);
  bool is_right = true;
  if (qn_ok(status)) {
    for (uint32_t i = 0; i < 64; i++) is_right = is_right && got[i] == sent[i] * 3 + 5 + i;
  }
  bool is_clean = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY ||
                  qn_status_code(status) == QN_STATUS_NOT_FOUND;
  if (!is_clean) (void)fprintf(stderr, "%s\n", qn_status_message(status));
  qn_status_free(status);
  qn_stream_destroy(stream);
  if (memory) qn_status_free(qn_device_free(test_vulkan, memory));
  if (large) qn_status_free(qn_device_free(test_vulkan, large));
  if (code) table->unload(0, code);
  qn__vulkan_reset(qn_allocator_default());
  return is_right && is_clean && owner.reference_count == 0;
}

static void test_every_allocation_may_fail(void** state) {
  (void)state;
  NEED_DEVICE();
  long runs = qn_fault_walk_alloc(use_everything, NULL);
  if (runs < 30) fail_msg("the walk ended with %ld", runs);
}

// ---------------------------------------------------------------------------------- drivers fail

static PFN_vkQueueSubmit real_submit;
static PFN_vkAllocateMemory real_allocate;
static int allocate_failures;
static VkResult VKAPI_CALL failing_allocate(VkDevice device, const VkMemoryAllocateInfo* info,
                                            const VkAllocationCallbacks* callbacks,
                                            VkDeviceMemory* out) {
  if (allocate_failures-- > 0) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  return real_allocate(device, info, callbacks, out);
}

static int allocations_left;
static VkResult VKAPI_CALL scarce_allocate(VkDevice device, const VkMemoryAllocateInfo* info,
                                           const VkAllocationCallbacks* callbacks,
                                           VkDeviceMemory* out) {
  if (allocations_left-- <= 0) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  return real_allocate(device, info, callbacks, out);
}

// A stream without memory for its error record, or for the host's copies of it.
static void test_streams_without_memory(void** state) {
  (void)state;
  NEED_DEVICE();
  for (int is_mapped = 0; is_mapped < 2; is_mapped++) {
    for (int n = 0;; n++) {
      // A device that has no blocks yet.
      qn__vulkan_reset(qn_allocator_default());
      qn__vk_device_t* device;
      must(qn__vk_use(0, &device));
      if (!is_mapped) device->memory.is_mapped[QN__VK_POOL_DEVICE] = false;
      const int needed = device->memory.is_mapped[QN__VK_POOL_DEVICE] ? 1 : 2;
      real_allocate = device->vk.AllocateMemory;
      device->vk.AllocateMemory = scarce_allocate;
      allocations_left = n;
      qn_stream_t* stream = NULL;
      qn_status_t status = qn_stream_create(test_vulkan, &stream);
      device->vk.AllocateMemory = real_allocate;
      qn_stream_destroy(stream);
      assert_int_equal(test_vulkan_stats().used_bytes, 0);
      if (n == needed) {
        must(status);
        break;
      }
      must_fail(status, QN_STATUS_OUT_OF_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY");
    }
  }
  qn__vulkan_reset(qn_allocator_default());
  must(qn__vulkan_available());
}

static void test_submits_that_fail_stick(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  void* out = test_vulkan_allocate(256);
  size_t size = 256;
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  qn__vk_device_t* device = qn__vk_find(0);
  real_submit = device->vk.QueueSubmit;
  test_vulkan_submit_result = VK_ERROR_OUT_OF_HOST_MEMORY;
  device->vk.QueueSubmit = test_vulkan_failing_submit;
  test_owner_t owner = {0};
  for (int i = 0; i < 5; i++) {
    must(test_vulkan_call(code, TEST_FILL, stream, &owner, 1, &out, &size, 2, (uint64_t[]){64, 1}));
  }
  must_fail(qn_stream_sync(test_vulkan, stream), QN_STATUS_OUT_OF_MEMORY, "vkQueueSubmit");
  device->vk.QueueSubmit = real_submit;
  must(qn_stream_sync(test_vulkan, stream));
  assert_int_equal(owner.reference_count, 0);
  uint32_t got[64];
  must(test_vulkan_call(code, TEST_FILL, stream, &owner, 1, &out, &size, 2, (uint64_t[]){64, 9}));
  must(test_vulkan_copy_from(got, out, 0, size, stream));
  assert_int_equal(got[63], 9 + 63);
  // Memory that is not there: once, and for good.
  real_allocate = device->vk.AllocateMemory;
  device->vk.AllocateMemory = failing_allocate;
  void* large = NULL;
  allocate_failures = 1;
  must(qn_device_allocate(test_vulkan, (size_t)80 << 20, 0, &large));
  test_vulkan_free(large);
  allocate_failures = 1000;
  must_fail(qn_device_allocate(test_vulkan, (size_t)90 << 20, 0, &large), QN_STATUS_OUT_OF_MEMORY,
            "VK_ERROR_OUT_OF_DEVICE_MEMORY");
  device->vk.AllocateMemory = real_allocate;
  qn_stream_destroy(stream);
  test_vulkan_free(out);
  test_vulkan_unload(code);
}

// The barriers of a batch whose submit failed are lost, so later commands need a barrier again.
static void test_barriers_of_a_failed_submit_are_made_up_for(void** state) {
  (void)state;
  NEED_DEVICE();
  void* code = test_vulkan_load(NULL);
  void *a = test_vulkan_allocate(256), *b = test_vulkan_allocate(256);
  void* c = test_vulkan_allocate(256);
  size_t sizes[] = {256, 256};
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  must(test_vulkan_call(code, TEST_FILL, stream, NULL, 1, &a, sizes, 2, (uint64_t[]){64, 1}));
  qn__vk_device_t* device = qn__vk_find(0);
  real_submit = device->vk.QueueSubmit;
  test_vulkan_submit_result = VK_ERROR_OUT_OF_HOST_MEMORY;
  device->vk.QueueSubmit = test_vulkan_failing_submit;
  // It reads a, so a barrier comes first.
  must(test_vulkan_call(code, TEST_STEP, stream, NULL, 2, (void*[]){a, b}, sizes, 1,
                        (uint64_t[]){64}));
  must_fail(qn_stream_sync(test_vulkan, stream), QN_STATUS_OUT_OF_MEMORY, "vkQueueSubmit");
  device->vk.QueueSubmit = real_submit;
  // The next reader of a is the first that runs.
  const uint64_t before = test_vulkan_stats().barrier_count;
  must(test_vulkan_call(code, TEST_STEP, stream, NULL, 2, (void*[]){a, c}, sizes, 1,
                        (uint64_t[]){64}));
  assert_int_equal(test_vulkan_stats().barrier_count - before, 1);
  // And no barrier but that.
  must(test_vulkan_call(code, TEST_STEP, stream, NULL, 2, (void*[]){a, b}, sizes, 1,
                        (uint64_t[]){64}));
  assert_int_equal(test_vulkan_stats().barrier_count - before, 1);
  must(qn_stream_sync(test_vulkan, stream));
  qn_stream_destroy(stream);
  test_vulkan_free(a);
  test_vulkan_free(b);
  test_vulkan_free(c);
  test_vulkan_unload(code);
}

static void test_a_lost_device_stays_lost(void** state) {
  (void)state;
  NEED_DEVICE();
  qn__vulkan_reset(qn_allocator_default());
  void* code = test_vulkan_load(NULL);
  void* out = test_vulkan_allocate(256);
  size_t size = 256;
  qn_stream_t* stream;
  must(qn_stream_create(test_vulkan, &stream));
  qn__vk_device_t* device = qn__vk_find(0);
  real_submit = device->vk.QueueSubmit;
  test_vulkan_submit_result = VK_ERROR_DEVICE_LOST;
  device->vk.QueueSubmit = test_vulkan_failing_submit;
  qn_status_t status =
      test_vulkan_call(code, TEST_FILL, stream, NULL, 1, &out, &size, 2, (uint64_t[]){64, 1});
  qn_status_free(status);
  for (int i = 0; i < 2; i++) {
    must_fail(qn_stream_sync(test_vulkan, stream), QN_STATUS_DEVICE_ERROR, "VK_ERROR_DEVICE_LOST");
    must_fail(qn_device_allocate(test_vulkan, 64, 0, &(void*){NULL}), QN_STATUS_DEVICE_ERROR,
              "VK_ERROR_DEVICE_LOST");
  }
  device->vk.QueueSubmit = real_submit;
  qn_stream_destroy(stream);
  test_vulkan_unload(code);
  qn__vulkan_reset(qn_allocator_default());
  must(qn__vulkan_available());
}

// ---------------------------------------------------------------------------------- forks, exits

// Runs `body` in a child and returns its exit status.
static int in_child(int (*body)(void)) {
  (void)fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(body());
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void* inherited_code;
static void* inherited_memory;
static qn_stream_t* inherited_stream;

static bool is_refused(qn_status_t status) {
  bool is_clear = qn_status_code(status) == QN_STATUS_UNAVAILABLE &&
                  strstr(qn_status_message(status), "before fork");
  qn_status_free(status);
  return is_clear;
}

static int use_inherited(void) {
  void* pointer;
  uint32_t data[4] = {0};
  size_t size = 16;
  qn_attribute_value_t value;
  qn_status_t status = qn_device_attribute(test_vulkan, QN_ATTRIBUTE_DEVICE_NAME, &value);
  if (!qn_ok(status) || value.type != QN_ATTRIBUTE_TYPE_STRING) return 1;
  if (!is_refused(qn_device_allocate(test_vulkan, 64, 0, &pointer))) return 2;
  if (!is_refused(qn_stream_sync(test_vulkan, inherited_stream))) return 3;
  if (!is_refused(test_vulkan_copy_to(inherited_memory, 0, data, 16, NULL))) return 4;
  if (!is_refused(test_vulkan_call(inherited_code, TEST_FILL, inherited_stream, NULL, 1,
                                   &inherited_memory, &size, 2, (uint64_t[]){4, 1}))) {
    return 5;
  }
  if (!is_refused(qn_device_free(test_vulkan, inherited_memory))) return 6;
  if (!qn_stream_is_idle(inherited_stream)) return 7;
  qn_stream_destroy(inherited_stream);
  test_vulkan_unload(inherited_code);
  return 42;
}

static void test_a_child_of_fork_is_told(void** state) {
  (void)state;
  NEED_DEVICE();
  inherited_code = test_vulkan_load(NULL);
  inherited_memory = test_vulkan_allocate(256);
  must(qn_stream_create(test_vulkan, &inherited_stream));
  size_t size = 256;
  must(test_vulkan_call(inherited_code, TEST_FILL, inherited_stream, NULL, 1, &inherited_memory,
                        &size, 2, (uint64_t[]){64, 1}));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // A child inherits the locks of sanitizer heaps as they are, so no driver thread may be running.
  must(qn_stream_sync(test_vulkan, inherited_stream));
  qn__vk_device_t* device = qn__vk_find(0);
  assert_int_equal(device->vk.DeviceWaitIdle(device->handle), VK_SUCCESS);
#endif
  assert_int_equal(in_child(use_inherited), 42);
  // The parent goes on.
  uint32_t got[64];
  must(test_vulkan_copy_from(got, inherited_memory, 0, size, inherited_stream));
  assert_int_equal(got[63], 64);
  qn_stream_destroy(inherited_stream);
  test_vulkan_free(inherited_memory);
  test_vulkan_unload(inherited_code);
}

static int use_own(void) {
  qn_status_t status = qn__vulkan_available();
  if (!qn_ok(status)) return 1;
  void* code = test_vulkan_load(NULL);
  void* memory = test_vulkan_allocate(256);
  size_t size = 256;
  status = test_vulkan_call(code, TEST_FILL, NULL, NULL, 1, &memory, &size, 2, (uint64_t[]){64, 1});
  uint32_t got[64] = {0};
  if (qn_ok(status)) status = test_vulkan_copy_from(got, memory, 0, size, NULL);
  return qn_ok(status) && got[63] == 64 ? 42 : 2;
}

static int exit_with_work_queued(void) {
  void* code = test_vulkan_load(NULL);
  void* memory = test_vulkan_allocate(256);
  qn_stream_t* stream;
  if (!qn_ok(qn_stream_create(test_vulkan, &stream))) return 1;
  size_t size = 256;
  for (int i = 0; i < 300; i++) {
    uint64_t rounds = 60000;
    if (!qn_ok(test_vulkan_call(code, TEST_SPIN, stream, NULL, 1, &memory, &size, 1, &rounds))) {
      return 2;
    }
  }
  exit(42);  // with its handlers: nothing was destroyed
}

static void test_a_child_may_use_vulkan_alone(void** state) {
  (void)state;
  NEED_DEVICE();
  qn__vulkan_reset(qn_allocator_default());
  for (int i = 0; i < 3; i++) assert_int_equal(in_child(use_own), 42);
  for (int i = 0; i < 3; i++) assert_int_equal(in_child(exit_with_work_queued), 42);
}

// ---------------------------------------------------------------------------------- pipeline data

typedef struct store {
  uint8_t data[1 << 16];
  size_t size;
  int get_count, put_count;
  int reference_count;
  char identity[256];
} store_t;

static void store_get(void* self, const char* identity, qn_sink_t sink) {
  store_t* store = self;
  store->get_count++;
  (void)snprintf(store->identity, sizeof store->identity, "%s", identity);
  if (store->size > 0) qn_status_free(sink.write(sink.self, store->data, store->size));
}
static void store_put(void* self, const char* identity, const void* data, size_t size) {
  store_t* store = self;
  store->put_count++;
  (void)snprintf(store->identity, sizeof store->identity, "%s", identity);
  store->size = size < sizeof store->data ? size : 0;
  memcpy(store->data, data, store->size);
}
static void store_retain(void* self) {
  ((store_t*)self)->reference_count++;
}
static void store_release(void* self) {
  ((store_t*)self)->reference_count--;
}

// A driver with data of its own: that of the software driver is a header alone.
static PFN_vkGetPipelineCacheData real_data;
static PFN_vkCreatePipelineCache real_create;
static size_t given_bytes;
static uint8_t growing;
static VkResult VKAPI_CALL fake_data(VkDevice device, VkPipelineCache cache, size_t* size,
                                     void* out) {
  uint8_t header[64];
  size_t header_size = 32;
  (void)real_data(device, cache, &header_size, header);
  if (!out) {
    *size = 32 + 8;
    return VK_SUCCESS;
  }
  memcpy(out, header, 32);
  memset((uint8_t*)out + 32, growing, 8);
  *size = 32 + 8;
  return VK_SUCCESS;
}
static VkResult VKAPI_CALL fake_create(VkDevice device, const VkPipelineCacheCreateInfo* info,
                                       const VkAllocationCallbacks* callbacks,
                                       VkPipelineCache* out) {
  given_bytes = info->initialDataSize;
  VkPipelineCacheCreateInfo empty = *info;
  empty.initialDataSize = 0;
  empty.pInitialData = NULL;
  return real_create(device, &empty, callbacks, out);
}

static void test_pipeline_data_is_kept_and_checked(void** state) {
  (void)state;
  NEED_DEVICE();
  void* out = test_vulkan_allocate(256);
  size_t size = 256;
  qn__vk_device_t* device = qn__vk_find(0);
  real_data = device->vk.GetPipelineCacheData;
  real_create = device->vk.CreatePipelineCache;
  device->vk.GetPipelineCacheData = fake_data;
  device->vk.CreatePipelineCache = fake_create;
  static store_t store;
  qn_driver_cache_t members = {&store, store_get, store_put, store_retain, store_release};
  growing = 1;
  void* code = test_vulkan_load(&members);
  assert_int_equal(store.get_count, 1);
  assert_int_equal(given_bytes, 0);
  assert_int_equal(store.put_count, 1);  // pipelines were made
  assert_int_equal(store.reference_count, 1);
  assert_non_null(strstr(store.identity, "cache="));
  // The driver compiles at the first dispatch, so its data has grown when that has completed.
  growing = 2;
  must(test_vulkan_call(code, TEST_FILL, NULL, NULL, 1, &out, &size, 2, (uint64_t[]){64, 1}));
  must(qn_stream_sync(test_vulkan, NULL));
  assert_int_equal(store.put_count, 2);
  for (int i = 0; i < 10; i++) {
    must(test_vulkan_call(code, TEST_FILL, NULL, NULL, 1, &out, &size, 2, (uint64_t[]){64, 1}));
    must(qn_stream_sync(test_vulkan, NULL));
  }
  assert_int_equal(store.put_count, 2);
  test_vulkan_unload(code);
  assert_int_equal(store.reference_count, 0);
  // The next process: the data is given to the driver, and not stored again.
  code = test_vulkan_load(&members);
  assert_int_equal(given_bytes, 40);
  assert_int_equal(store.put_count, 2);
  test_vulkan_unload(code);
  // Damaged data is ignored.
  const size_t odd[] = {0, 4, 8, 12, 16, 31};
  for (size_t i = 0; i < QN_COUNT_OF(odd); i++) {
    store.data[odd[i]] ^= 0xff;
    given_bytes = 99;
    code = test_vulkan_load(&members);
    assert_int_equal(given_bytes, 0);
    test_vulkan_unload(code);
    assert_int_equal(store.size, 40);
  }
  store.size = 31;
  code = test_vulkan_load(&members);
  assert_int_equal(given_bytes, 0);
  test_vulkan_unload(code);
  device->vk.GetPipelineCacheData = real_data;
  device->vk.CreatePipelineCache = real_create;
  test_vulkan_free(out);
}

static void test_artifacts_that_are_damaged(void** state) {
  (void)state;
  NEED_DEVICE();
  const qn_device_table_t* table = qn__device_table(QN_DEVICE_VULKAN);
  qn_artifact_t artifact;
  void* code;
  qn_load_options_t options = {.struct_size = sizeof options};
  test_vulkan_artifact("{\"kind\":\"vulkan\"}", &artifact);
  assert_true(table->accepts("vulkan-spirv-1"));
  assert_false(table->accepts("cuda-cubin-1"));
  artifact.function_count--;
  must_fail(table->load(0, &artifact, &options, &code), QN_STATUS_DATA_LOSS, "number of functions");
  artifact.function_count++;
  uint8_t* payload = malloc(artifact.payload_size);
  assert_non_null(payload);
  memcpy(payload, artifact.payload, artifact.payload_size);
  payload[0] ^= 1;
  artifact.payload = payload;
  must_fail(table->load(0, &artifact, &options, &code), QN_STATUS_DATA_LOSS, "not SPIR-V");
  free(payload);
  test_vulkan_artifact("{\"kind\":\"vulkan\",\"max_threads_per_block\":1000000}", &artifact);
  must_fail(table->load(0, &artifact, &options, &code), QN_STATUS_INCOMPATIBLE,
            "max_threads_per_block");
}

// ---------------------------------------------------------------------------------- LLVM

// lavapipe brings an LLVM of its own into the process; none of its names may be found in ours.
static void test_the_driver_lends_no_symbols(void** state) {
  (void)state;
  NEED_DEVICE();
  test_vulkan_free(test_vulkan_allocate(64));
  assert_null(dlsym(RTLD_DEFAULT, "LLVMContextCreate"));
  assert_null(dlsym(RTLD_DEFAULT, "vkCreateInstance"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_child_may_use_vulkan_alone),
      cmocka_unit_test(test_without_a_loader),
      cmocka_unit_test(test_without_a_driver),
      cmocka_unit_test(test_devices_that_lack_something),
      cmocka_unit_test(test_every_allocation_may_fail),
      cmocka_unit_test(test_streams_without_memory),
      cmocka_unit_test(test_submits_that_fail_stick),
      cmocka_unit_test(test_barriers_of_a_failed_submit_are_made_up_for),
      cmocka_unit_test(test_a_lost_device_stays_lost),
      cmocka_unit_test(test_a_child_of_fork_is_told),
      cmocka_unit_test(test_pipeline_data_is_kept_and_checked),
      cmocka_unit_test(test_artifacts_that_are_damaged),
      cmocka_unit_test(test_the_driver_lends_no_symbols),
  };
  return cmocka_run_group_tests(tests, test_vulkan_begin, test_vulkan_end);
}
#else
int main(void) {
  return 0;
}
#endif
