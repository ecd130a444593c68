// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/context.h: the objects of the Vulkan device: loader functions, physical devices
// and their features, open devices.
//
// The instance is created by the first query of Vulkan devices, a logical device by its first use
// that is more than a query. Both live as long as the process. Lock order: a stream's mutex, then
// one of: the memory's, the layouts', the stream list's, a queue's. No thread holds a lock while it
// waits for the device. In a child of fork that inherited an instance, every call returns an error.
// Read next: loader.c, probe.c, device.c, memory.h, stream.h.
#ifndef QUERN_DEVICES_VULKAN_CONTEXT_H_
#define QUERN_DEVICES_VULKAN_CONTEXT_H_

#define VK_NO_PROTOTYPES
#include <stdatomic.h>
#include <vulkan/vulkan_core.h>

#include "base/thread.h"
#include "devices/vulkan/memory.h"
#include "devices/vulkan/vulkan.h"

enum {
  QN__VK_MAX_DEVICES = 16,  // four bits of a handle
  QN__VK_MAX_QUEUES = 4,
  QN__VK_MAX_BINDINGS = 160,  // descriptors of one kernel
};

// ---- functions of the loader and of the instance (loader.c)

typedef struct qn__vk_instance {
  PFN_vkGetInstanceProcAddr get;
  VkInstance handle;
  uint32_t api_version;
#define QN_VK_LOADER(name) PFN_vk##name name;
#define QN_VK_INSTANCE(name, suffix) PFN_vk##name name;
#include "devices/vulkan/vulkan_symbols.inc"
} qn__vk_instance_t;

// Opens the loader and creates an instance. Errors: UNAVAILABLE with the reason.
qn_status_t qn__vk_instance_open(qn__vk_instance_t* out_instance);
void qn__vk_instance_close(qn__vk_instance_t* instance);

typedef struct qn__vk_functions {
#define QN_VK_DEVICE(name, suffix) PFN_vk##name name;
#include "devices/vulkan/vulkan_symbols.inc"
} qn__vk_functions_t;

// ---- physical devices and their features (probe.c)

typedef struct qn__vk_info {
  VkPhysicalDevice physical;
  uint32_t api_version;  // in force: the lower of the device's and the instance's
  VkPhysicalDeviceProperties properties;
  VkPhysicalDeviceMemoryProperties memory;
  bool has_driver_properties;
  VkPhysicalDeviceDriverProperties driver;
  uint8_t uuid[VK_UUID_SIZE];
  uint32_t subgroup_size;
  VkSubgroupFeatureFlags subgroup_operations;  // in compute shaders
  uint64_t max_allocation_bytes;
  uint64_t max_buffer_bytes;
  uint32_t max_threads;  // of a block in one dimension, as generated kernels have it
  uint32_t family;
  uint32_t queue_count;
  bool is_unified;           // device memory is host memory
  uint32_t feature_structs;  // the structures of features that the device knows (probe.c)
  // Features that exist and are enabled (features.inc).
  bool has_timeline, has_maintenance4;
  bool has_robust_access;
  bool has_int64, has_int16, has_int8;
  bool has_float64, has_float16;
  bool has_storage_16bit, has_storage_8bit;
  bool has_atomic_float32, has_atomic_int64;
  bool has_subgroup_extended_types;
  // A pipeline can require full subgroups, and subgroups of `subgroup_size` threads.
  bool has_full_subgroups, has_subgroup_size;
  bool is_subgroup_size_fixed;
  uint64_t max_sized_threads;  // of a block, if a pipeline requires the size
  bool has_memory_model;
  bool has_float_controls;
  VkPhysicalDeviceFloatControlsProperties float_controls;
  bool has_spirv_1_4;
  bool has_push_descriptor;
  bool has_memory_budget;
  // Enabled extensions.
  const char* extensions[24];
  uint32_t extension_count;
} qn__vk_info_t;

// Collects the features and limits of a device. Errors: UNAVAILABLE with the reason why this device
// cannot be used.
qn_status_t qn__vk_probe(const qn__vk_instance_t* instance, VkPhysicalDevice physical,
                         qn_allocator_t allocator, qn__vk_info_t* out_info);
// Creates the logical device with all features that the probe found. Errors: DEVICE_ERROR,
// OUT_OF_MEMORY.
qn_status_t qn__vk_create_device(const qn__vk_instance_t* instance, const qn__vk_info_t* info,
                                 VkDevice* out_device);

// ---- devices (device.c)

typedef struct qn__vk_queue {
  VkQueue handle;
  qn__mutex_t mutex;  // held during vkQueueSubmit
} qn__vk_queue_t;

typedef struct qn__vk_layout {
  VkDescriptorSetLayout set;
  VkPipelineLayout pipeline;
} qn__vk_layout_t;

struct qn__vk_stream;
typedef struct qn__vk_timeline qn__vk_timeline_t;

// Submits batches that stayed open too long (submit_timer.c).
typedef struct qn__vk_submit_timer {
  qn__mutex_t mutex;
  qn__cond_t changed;
  pthread_t thread;
  bool has_thread, is_stopping;
  _Atomic bool is_armed;
  _Atomic uint64_t tick;  // how often it has checked the streams
} qn__vk_submit_timer_t;

typedef struct qn__vk_device {
  int32_t id;
  qn_allocator_t allocator;
  qn__vk_info_t info;
  qn__mutex_t open_mutex;
  _Atomic bool is_open;
  _Atomic bool is_lost;
  VkDevice handle;
  qn__vk_functions_t vk;
  qn__vk_queue_t queues[QN__VK_MAX_QUEUES];
  uint32_t queue_count;
  qn__vk_memory_t memory;
  // [1]: with the parameter buffer as the last binding.
  qn__mutex_t layouts_mutex;
  _Atomic(qn__vk_layout_t*) layouts[2][QN__VK_MAX_BINDINGS + 1];
  qn__mutex_t streams_mutex;
  struct qn__vk_stream* streams;  // all that exist
  qn__vk_timeline_t* timelines;   // free ones, for new streams
  uint32_t next_queue;
  _Atomic(struct qn__vk_stream*) default_stream;
  qn__vk_submit_timer_t submit_timer;
  _Atomic uint64_t last_kernel_uid;
  // Launches and barriers: of destroyed streams.
  _Atomic uint64_t submit_count, launch_count, barrier_count, set_count, pipeline_count;
} qn__vk_device_t;

// Finds the block of [address, address + size_bytes). False: the address is of no memory of this
// device, was freed, or the range ends beyond the block. In the header because every launch calls
// it for every buffer.
static inline bool qn__vk_decode(const qn__vk_device_t* device, uint64_t address,
                                 uint64_t size_bytes, qn__vk_place_t* out_place) {
  uint64_t wanted = QN__VK_ADDRESS_BIT >> QN__VK_DEVICE_SHIFT | (uint64_t)device->id;
  if (address >> QN__VK_DEVICE_SHIFT != wanted) return false;
  uint64_t index = address >> QN__VK_BLOCK_SHIFT & (QN__VK_MAX_BLOCKS - 1);
  uint64_t offset = address & QN__VK_OFFSET_MASK;
  qn__vk_block_t* block = atomic_load_explicit(&device->memory.table[index], memory_order_acquire);
  if (!block || atomic_load_explicit(&block->uid, memory_order_acquire) == 0) return false;
  uint64_t size = atomic_load_explicit(&block->size_bytes, memory_order_relaxed);
  if (block->pool != QN__VK_POOL_DEVICE || size_bytes > size || offset > size - size_bytes) {
    return false;
  }
  *out_place = (qn__vk_place_t){block, offset};
  return true;
}

// Opens a device at its first use. Errors: UNAVAILABLE (a child of fork, or the process is ending),
// DEVICE_ERROR (the device is lost or cannot be opened).
qn_status_t qn__vk_use(int32_t id, qn__vk_device_t** out_device);
// Returns a probed device, open or not; NULL: no device has this number.
qn__vk_device_t* qn__vk_find(int32_t id);
const qn__vk_instance_t* qn__vk_instance(void);
// Returns false in a child of fork that inherited the instance, and at process exit: then no driver
// function may be called.
bool qn__vk_is_usable(void);

// Converts a driver result to a status. Marks the device as lost if the result says so.
qn_status_t qn__vk_status(qn__vk_device_t* device, VkResult result, const char* call);
// Returns the name of a result, as "VK_ERROR_DEVICE_LOST".
const char* qn__vk_result_text(VkResult result);

// Device attributes and properties for targets (attributes.c).
qn_status_t qn__vk_attribute(int32_t id, qn_attribute_t attribute, qn_attribute_value_t* out);
qn_status_t qn__vk_target_property(int32_t id, const char* name, qn_attribute_value_t* out);
// Returns how many bytes of push constants the layouts have.
uint32_t qn__vk_push_bytes(const qn__vk_device_t* device);

#endif  // QUERN_DEVICES_VULKAN_CONTEXT_H_
