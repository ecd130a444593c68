// devices/vulkan/attributes.c: attributes of a device, and properties for targets.
//
// An attribute that Vulkan does not have is left without a value. Only the free memory is asked of
// the driver at each call; all other values come from the probe.
#include <stdio.h>

#include "devices/vulkan/executable.h"

static void answer_int(qn_attribute_value_t* out, int64_t value) {
  out->type = QN_ATTRIBUTE_TYPE_INT;
  out->int_value = value;
}
static void answer_bool(qn_attribute_value_t* out, bool value) {
  out->type = QN_ATTRIBUTE_TYPE_BOOL;
  out->int_value = value ? 1 : 0;
}
static void answer_text(qn_attribute_value_t* out, const char* text) {
  out->type = QN_ATTRIBUTE_TYPE_STRING;
  (void)snprintf(out->string_value, sizeof out->string_value, "%.255s", text);
}

static void answer_version(qn_attribute_value_t* out, uint32_t version) {
  char text[32];
  (void)snprintf(text, sizeof text, "%u.%u", VK_API_VERSION_MAJOR(version),
                 VK_API_VERSION_MINOR(version));
  answer_text(out, text);
}

static const char* spirv_version(const qn__vk_info_t* info) {
  if (info->api_version >= VK_API_VERSION_1_3) return "1.6";
  if (info->api_version >= VK_API_VERSION_1_2) return "1.5";
  return info->has_spirv_1_4 ? "1.4" : "1.3";
}

static void answer_driver_version(const qn__vk_info_t* info, qn_attribute_value_t* out) {
  uint32_t version = info->properties.driverVersion;
  char text[VK_MAX_DRIVER_INFO_SIZE + VK_MAX_DRIVER_NAME_SIZE + 32];
  if (info->has_driver_properties && info->driver.driverInfo[0] != '\0') {
    (void)snprintf(text, sizeof text, "%s %s", info->driver.driverName, info->driver.driverInfo);
  } else {
    (void)snprintf(text, sizeof text, "%u.%u.%u", VK_API_VERSION_MAJOR(version),
                   VK_API_VERSION_MINOR(version), VK_API_VERSION_PATCH(version));
  }
  answer_text(out, text);
}

static void answer_uuid(const qn__vk_info_t* info, qn_attribute_value_t* out) {
  char text[40];
  size_t at = 0;
  for (size_t i = 0; i < VK_UUID_SIZE; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text[at++] = '-';
    (void)snprintf(text + at, sizeof text - at, "%02x", info->uuid[i]);
    at += 2;
  }
  answer_text(out, text);
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

static void answer_memory(const qn__vk_info_t* info, bool is_available, qn_attribute_value_t* out) {
  uint32_t heap = heap_of(&info->memory);
  if (heap == UINT32_MAX) return;
  if (!is_available) {
    answer_int(out, (int64_t)info->memory.memoryHeaps[heap].size);
    return;
  }
  if (!info->has_memory_budget || !qn__vk_is_usable()) return;
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 memory = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
  qn__vk_instance()->GetPhysicalDeviceMemoryProperties2(info->physical, &memory);
  VkDeviceSize left = budget.heapBudget[heap] > budget.heapUsage[heap]
                          ? budget.heapBudget[heap] - budget.heapUsage[heap]
                          : 0;
  answer_int(out, (int64_t)left);
}

// Returns the largest block. Generated kernels use one dimension only.
static uint32_t max_threads(const qn__vk_info_t* info) {
  const VkPhysicalDeviceLimits* limits = &info->properties.limits;
  return limits->maxComputeWorkGroupInvocations < limits->maxComputeWorkGroupSize[0]
             ? limits->maxComputeWorkGroupInvocations
             : limits->maxComputeWorkGroupSize[0];
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
      answer_int(out, max_threads(info));
      break;
    case QN_ATTRIBUTE_WARP_SIZE:
      answer_int(out, info->subgroup_size);
      break;
    case QN_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      answer_int(out, limits->maxComputeSharedMemorySize);
      break;
    case QN_ATTRIBUTE_COMPUTE_VERSION:
      answer_text(out, spirv_version(info));
      break;
    case QN_ATTRIBUTE_DEVICE_NAME:
      answer_text(out, info->properties.deviceName);
      break;
    case QN_ATTRIBUTE_MAX_THREAD_DIMENSIONS:
      (void)snprintf(text, sizeof text, "[%u, %u, %u]", limits->maxComputeWorkGroupSize[0],
                     limits->maxComputeWorkGroupSize[1], limits->maxComputeWorkGroupSize[2]);
      answer_text(out, text);
      break;
    case QN_ATTRIBUTE_API_VERSION:
      answer_int(out, info->api_version);
      break;
    case QN_ATTRIBUTE_DRIVER_VERSION:
      answer_driver_version(info, out);
      break;
    case QN_ATTRIBUTE_TOTAL_GLOBAL_MEMORY:
      answer_memory(info, false, out);
      break;
    case QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY:
      answer_memory(info, true, out);
      break;
    case QN_ATTRIBUTE_POINTER_IS_ADDRESS:
      answer_bool(out, true);
      break;
    case QN_ATTRIBUTE_HOST_ACCESSIBLE:
      answer_bool(out, false);
      break;
    case QN_ATTRIBUTE_ALLOCATION_ALIGNMENT:
      answer_int(out, QN__RANGES_GRANULE);
      break;
    case QN_ATTRIBUTE_UUID:
      answer_uuid(info, out);
      break;
    case QN_ATTRIBUTE_MAX_GRID_BLOCKS:
      answer_int(out, limits->maxComputeWorkGroupCount[0]);
      break;
    case QN_ATTRIBUTE_DRIVER_IDENTITY:
      qn__vk_identity(info, text);
      answer_text(out, text);
      break;
    case QN_ATTRIBUTE_MAX_BUFFER_BYTES:
      answer_int(out, max_buffer_bytes(info));
      break;
    default:
      break;  // no value: Vulkan reports no registers, clock, multiprocessors or caches
  }
  return QN_OK;
}

// ---------------------------------------------------------------------------------- for targets

// Returns whether code may use shuffles. It relies on full subgroups of one size.
static bool has_shuffle(const qn__vk_info_t* info) {
  bool is_sized = info->has_subgroup_size && info->max_sized_threads >= max_threads(info);
  if (!info->has_full_subgroups || !(info->is_subgroup_size_fixed || is_sized)) return false;
  const VkSubgroupFeatureFlags wanted =
      VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
  return (info->subgroup_operations & wanted) == wanted;
}

// Finds a target option that is true or false.
static bool find_flag(const qn__vk_info_t* info, const char* name, bool* out_flag) {
  const VkPhysicalDeviceFloatControlsProperties* controls = &info->float_controls;
  const struct {
    const char* name;
    bool value;
  } flags[] = {
      {"supports_atomic_float32", info->has_atomic_float32},
      {"supports_atomic_int64", info->has_atomic_int64},
      {"supports_denorm_preserve_float32", controls->shaderDenormPreserveFloat32 != 0},
      {"supports_denorm_preserve_float64", controls->shaderDenormPreserveFloat64 != 0},
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
  for (size_t i = 0; i < QN_COUNT_OF(flags); i++) {
    if (strcmp(flags[i].name, name) != 0) continue;
    *out_flag = flags[i].value;
    return true;
  }
  return false;
}

static bool find_number(const qn__vk_info_t* info, const char* name, int64_t* out_number) {
  const VkPhysicalDeviceLimits* limits = &info->properties.limits;
  uint32_t push = limits->maxPushConstantsSize;
  if (push > QN__VK_MAX_PARAMETER_BYTES) push = QN__VK_MAX_PARAMETER_BYTES;
  const struct {
    const char* name;
    int64_t value;
  } numbers[] = {
      {"max_block_size_x", limits->maxComputeWorkGroupSize[0]},
      {"max_block_size_y", limits->maxComputeWorkGroupSize[1]},
      {"max_block_size_z", limits->maxComputeWorkGroupSize[2]},
      {"max_push_constants_bytes", push & ~3u},
      {"max_shared_memory_per_block", limits->maxComputeSharedMemorySize},
      {"max_threads_per_block", max_threads(info)},
      {"warp_size", info->subgroup_size},
  };
  for (size_t i = 0; i < QN_COUNT_OF(numbers); i++) {
    if (strcmp(numbers[i].name, name) != 0) continue;
    *out_number = numbers[i].value;
    return true;
  }
  return false;
}

qn_status_t qn__vk_target_property(int32_t id, const char* name, qn_attribute_value_t* out) {
  const qn__vk_device_t* device = qn__vk_find(id);
  if (!device) return qn_status_make(QN_STATUS_NOT_FOUND, "no device vulkan:%d", id);
  const qn__vk_info_t* info = &device->info;
  memset(out, 0, sizeof *out);
  bool flag;
  int64_t number;
  if (find_flag(info, name, &flag)) {
    answer_bool(out, flag);
  } else if (find_number(info, name, &number)) {
    answer_int(out, number);
  } else if (strcmp(name, "api_version") == 0) {
    answer_version(out, info->api_version);
  } else if (strcmp(name, "spirv_version") == 0) {
    answer_text(out, spirv_version(info));
  }
  return QN_OK;
}
