// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/attributes.c: attributes of a device, and properties for targets.
//
// An attribute that Vulkan does not have is left without a value. Only the free memory is asked of
// the driver at each call; all other values come from the probe.
#include "devices/attribute.h"
#include "devices/vulkan/executable.h"

static qn_status_t answer_version(qn_attribute_value_t* out, uint32_t version) {
  return qn__answer_text(out, "%u.%u", VK_API_VERSION_MAJOR(version),
                         VK_API_VERSION_MINOR(version));
}

static const char* spirv_version(const qn__vk_info_t* info) {
  if (info->api_version >= VK_API_VERSION_1_3) return "1.6";
  if (info->api_version >= VK_API_VERSION_1_2) return "1.5";
  return info->has_spirv_1_4 ? "1.4" : "1.3";
}

static qn_status_t answer_driver_version(const qn__vk_info_t* info, qn_attribute_value_t* out) {
  uint32_t version = info->properties.driverVersion;
  if (info->has_driver_properties && info->driver.driverInfo[0] != '\0') {
    return qn__answer_text(out, "%s %s", info->driver.driverName, info->driver.driverInfo);
  }
  return qn__answer_text(out, "%u.%u.%u", VK_API_VERSION_MAJOR(version),
                         VK_API_VERSION_MINOR(version), VK_API_VERSION_PATCH(version));
}

// Finds the heap of device memory: the largest device-local one.
static uint32_t heap_of(const VkPhysicalDeviceMemoryProperties* memory) {
  uint32_t best = UINT32_MAX;
  for (uint32_t i = 0; i < memory->memoryHeapCount; i++) {
    if (!(memory->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)) continue;
    if (best == UINT32_MAX || memory->memoryHeaps[i].size > memory->memoryHeaps[best].size) {
      best = i;
    }
  }
  return best;
}

static qn_status_t answer_total_memory(const qn__vk_info_t* info, qn_attribute_value_t* out) {
  uint32_t heap = heap_of(&info->memory);
  if (heap == UINT32_MAX) return QN_OK;
  return qn__answer_int(out, (int64_t)info->memory.memoryHeaps[heap].size);
}

static qn_status_t answer_available_memory(const qn__vk_info_t* info, qn_attribute_value_t* out) {
  uint32_t heap = heap_of(&info->memory);
  if (heap == UINT32_MAX || !info->has_memory_budget || !qn__vk_is_usable()) return QN_OK;
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 memory = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
  qn__vk_instance()->GetPhysicalDeviceMemoryProperties2(info->physical, &memory);
  VkDeviceSize left = budget.heapBudget[heap] > budget.heapUsage[heap]
                          ? budget.heapBudget[heap] - budget.heapUsage[heap]
                          : 0;
  return qn__answer_int(out, (int64_t)left);
}

static int64_t max_buffer_bytes(const qn__vk_info_t* info) {
  uint64_t limit = info->properties.limits.maxStorageBufferRange;
  if (info->max_buffer_bytes < limit) limit = info->max_buffer_bytes;
  if (info->max_allocation_bytes < limit) limit = info->max_allocation_bytes;
  return (int64_t)limit;
}

qn_status_t qn__vk_attribute(int32_t id, qn_attribute_t attribute, qn_attribute_value_t* out) {
  const qn__vk_device_t* device = qn__vk_find(id);
  if (!device) return qn_status_make(QN_STATUS_NOT_FOUND, "no device vulkan:%d", id);
  const qn__vk_info_t* info = &device->info;
  const VkPhysicalDeviceLimits* limits = &info->properties.limits;
  char text[256];
  switch (attribute) {
    case QN_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return qn__answer_int(out, info->max_threads);
    case QN_ATTRIBUTE_WARP_SIZE:
      return qn__answer_int(out, info->subgroup_size);
    case QN_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return qn__answer_int(out, limits->maxComputeSharedMemorySize);
    case QN_ATTRIBUTE_COMPUTE_VERSION:
      return qn__answer_text(out, "%s", spirv_version(info));
    case QN_ATTRIBUTE_DEVICE_NAME:
      return qn__answer_text(out, "%s", info->properties.deviceName);
    case QN_ATTRIBUTE_MAX_THREAD_DIMENSIONS:
      return qn__answer_text(out, "[%u, %u, %u]", limits->maxComputeWorkGroupSize[0],
                             limits->maxComputeWorkGroupSize[1],
                             limits->maxComputeWorkGroupSize[2]);
    case QN_ATTRIBUTE_API_VERSION:
      return qn__answer_int(out, info->api_version);
    case QN_ATTRIBUTE_DRIVER_VERSION:
      return answer_driver_version(info, out);
    case QN_ATTRIBUTE_TOTAL_GLOBAL_MEMORY:
      return answer_total_memory(info, out);
    case QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY:
      return answer_available_memory(info, out);
    case QN_ATTRIBUTE_POINTER_IS_ADDRESS:
      return qn__answer_bool(out, true);
    case QN_ATTRIBUTE_HOST_ACCESSIBLE:
      return qn__answer_bool(out, false);
    case QN_ATTRIBUTE_ALLOCATION_ALIGNMENT:
      return qn__answer_int(out, QN__VK_GRANULE);
    case QN_ATTRIBUTE_UUID:
      return qn__answer_uuid(out, "", info->uuid);
    case QN_ATTRIBUTE_MAX_GRID_BLOCKS:
      return qn__answer_int(out, limits->maxComputeWorkGroupCount[0]);
    case QN_ATTRIBUTE_DRIVER_IDENTITY:
      qn__vk_identity(info, text);
      return qn__answer_text(out, "%s", text);
    case QN_ATTRIBUTE_MAX_BUFFER_BYTES:
      return qn__answer_int(out, max_buffer_bytes(info));
    default:
      return QN_OK;  // no value: Vulkan reports no registers, clock, multiprocessors or caches
  }
}

// ---------------------------------------------------------------------------------- for targets

// Returns whether code may use shuffles. It relies on full subgroups of one size.
static bool has_shuffle(const qn__vk_info_t* info) {
  bool is_sized = info->has_subgroup_size && info->max_sized_threads >= info->max_threads;
  if (!info->has_full_subgroups || !(info->is_subgroup_size_fixed || is_sized)) return false;
  const VkSubgroupFeatureFlags wanted =
      VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
  return (info->subgroup_operations & wanted) == wanted;
}

qn_status_t qn__vk_target_property(int32_t id, const char* name, qn_attribute_value_t* out) {
  const qn__vk_device_t* device = qn__vk_find(id);
  if (!device) return qn_status_make(QN_STATUS_NOT_FOUND, "no device vulkan:%d", id);
  memset(out, 0, sizeof *out);
  const qn__vk_info_t* info = &device->info;
  const VkPhysicalDeviceLimits* limits = &info->properties.limits;
  const VkPhysicalDeviceFloatControlsProperties* controls = &info->float_controls;
  const struct {
    const char* name;
    bool value;
  } flags[] = {
      {"supports_atomic_float32", info->has_atomic_float32},
      {"supports_atomic_int64", info->has_atomic_int64},
      {"supports_denorm_preserve_float32", controls->shaderDenormPreserveFloat32 != 0},
      {"supports_denorm_preserve_float64", controls->shaderDenormPreserveFloat64 != 0},
      {"supports_fence_by_atomic",
       info->has_driver_properties && info->driver.driverID == VK_DRIVER_ID_MESA_LLVMPIPE},
      {"supports_float16", info->has_float16},
      {"supports_float64", info->has_float64},
      // Vulkan does not tell whether the instruction rounds once or twice.
      {"supports_fused_multiply_add", false},
      {"supports_int16", info->has_int16},
      {"supports_int64", info->has_int64},
      {"supports_int8", info->has_int8},
      {"supports_push_descriptor", info->has_push_descriptor},
      {"supports_rounding_rte_float32", controls->shaderRoundingModeRTEFloat32 != 0},
      {"supports_rounding_rte_float64", controls->shaderRoundingModeRTEFloat64 != 0},
      {"supports_signed_zero_inf_nan_preserve_float32",
       controls->shaderSignedZeroInfNanPreserveFloat32 != 0},
      {"supports_signed_zero_inf_nan_preserve_float64",
       controls->shaderSignedZeroInfNanPreserveFloat64 != 0},
      {"supports_storage_16bit", info->has_storage_16bit},
      {"supports_storage_8bit", info->has_storage_8bit},
      {"supports_subgroup_shuffle", has_shuffle(info)},
  };
  const struct {
    const char* name;
    int64_t value;
  } numbers[] = {
      {"max_block_size_x", limits->maxComputeWorkGroupSize[0]},
      {"max_block_size_y", limits->maxComputeWorkGroupSize[1]},
      {"max_block_size_z", limits->maxComputeWorkGroupSize[2]},
      {"max_push_constants_bytes", qn__vk_push_bytes(device)},
      {"max_shared_memory_per_block", limits->maxComputeSharedMemorySize},
      {"max_threads_per_block", info->max_threads},
      {"warp_size", info->subgroup_size},
  };
  for (size_t i = 0; i < QN_COUNT_OF(flags); i++) {
    if (strcmp(flags[i].name, name) == 0) return qn__answer_bool(out, flags[i].value);
  }
  for (size_t i = 0; i < QN_COUNT_OF(numbers); i++) {
    if (strcmp(numbers[i].name, name) == 0) return qn__answer_int(out, numbers[i].value);
  }
  if (strcmp(name, "api_version") == 0) return answer_version(out, info->api_version);
  if (strcmp(name, "spirv_version") == 0) return qn__answer_text(out, "%s", spirv_version(info));
  return QN_OK;
}
