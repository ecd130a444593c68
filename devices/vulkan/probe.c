// devices/vulkan/probe.c: finds the features of a physical device, and creates the logical device
// with these features.
//
// Each feature and extension is queried by name and enabled only if it exists. Code for the device
// may use only the features found here.
#include "base/alloc.h"
#include "devices/vulkan/context.h"

// The chain of feature structures, for a query or for vkCreateDevice.
typedef struct features {
  VkPhysicalDeviceFeatures2 core;
  VkPhysicalDeviceTimelineSemaphoreFeatures timeline;
  VkPhysicalDevice16BitStorageFeatures storage_16bit;
  VkPhysicalDevice8BitStorageFeatures storage_8bit;
  VkPhysicalDeviceShaderFloat16Int8Features small;
  VkPhysicalDeviceShaderAtomicFloatFeaturesEXT atomic_float;
  VkPhysicalDeviceShaderAtomicInt64Features atomic_int64;
  VkPhysicalDeviceShaderSubgroupExtendedTypesFeatures subgroup_types;
  VkPhysicalDeviceVulkanMemoryModelFeatures memory_model;
  VkPhysicalDeviceSubgroupSizeControlFeatures subgroup_size;
  VkPhysicalDeviceMaintenance4Features maintenance4;
} features_t;

typedef struct extension_list {
  VkExtensionProperties* items;
  uint32_t count;
} extension_list_t;

static bool has_extension(const extension_list_t* list, const char* name) {
  for (uint32_t i = 0; i < list->count; i++) {
    if (strcmp(list->items[i].extensionName, name) == 0) return true;
  }
  return false;
}

// Returns whether a feature exists: in Vulkan version `core` (0: none), or by extension, which is
// then enabled.
static bool offer(qn__vk_info_t* info, const extension_list_t* list, uint32_t core,
                  const char* name) {
  if (core != 0 && info->api_version >= core) return true;
  if (!has_extension(list, name)) return false;
  if (info->extension_count == QN_COUNT_OF(info->extensions)) return false;
  info->extensions[info->extension_count++] = name;
  return true;
}

static void link_struct(void*** tail, void* item, bool is_offered) {
  if (!is_offered) return;
  VkBaseOutStructure* base = item;
  **tail = base;
  *tail = (void**)&base->pNext;
}

// The structures that the device knows, besides those of Vulkan 1.1.
typedef struct offered {
  bool timeline, storage_8bit, small, atomic_float, atomic_int64, subgroup_types, memory_model,
      subgroup_size, maintenance4;
} offered_t;

static void chain(features_t* features, const offered_t* offered) {
  memset(features, 0, sizeof *features);
  features->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features->timeline.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES;
  features->storage_16bit.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES;
  features->storage_8bit.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES;
  features->small.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES;
  features->atomic_float.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT;
  features->atomic_int64.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_INT64_FEATURES;
  features->subgroup_types.sType =
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SUBGROUP_EXTENDED_TYPES_FEATURES;
  features->memory_model.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES;
  features->subgroup_size.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
  features->maintenance4.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES;
  void** tail = &features->core.pNext;
  link_struct(&tail, &features->timeline, offered->timeline);
  link_struct(&tail, &features->storage_16bit, true);
  link_struct(&tail, &features->storage_8bit, offered->storage_8bit);
  link_struct(&tail, &features->small, offered->small);
  link_struct(&tail, &features->atomic_float, offered->atomic_float);
  link_struct(&tail, &features->atomic_int64, offered->atomic_int64);
  link_struct(&tail, &features->subgroup_types, offered->subgroup_types);
  link_struct(&tail, &features->memory_model, offered->memory_model);
  link_struct(&tail, &features->subgroup_size, offered->subgroup_size);
  link_struct(&tail, &features->maintenance4, offered->maintenance4);
}

static void probe_features(const qn__vk_instance_t* instance, const extension_list_t* list,
                           qn__vk_info_t* info, bool* out_has_timeline) {
  const uint32_t core_1_2 = VK_API_VERSION_1_2;
  offered_t offered = {
      .timeline = offer(info, list, core_1_2, VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME),
      .storage_8bit = offer(info, list, core_1_2, VK_KHR_8BIT_STORAGE_EXTENSION_NAME),
      .small = offer(info, list, core_1_2, VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME),
      .atomic_float = offer(info, list, 0, VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME),
      .atomic_int64 = offer(info, list, core_1_2, VK_KHR_SHADER_ATOMIC_INT64_EXTENSION_NAME),
      .subgroup_types =
          offer(info, list, core_1_2, VK_KHR_SHADER_SUBGROUP_EXTENDED_TYPES_EXTENSION_NAME),
      .memory_model = offer(info, list, core_1_2, VK_KHR_VULKAN_MEMORY_MODEL_EXTENSION_NAME),
      .subgroup_size =
          offer(info, list, VK_API_VERSION_1_3, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)};
  info->has_float_controls =
      offer(info, list, VK_API_VERSION_1_2, VK_KHR_SHADER_FLOAT_CONTROLS_EXTENSION_NAME);
  info->has_spirv_1_4 = info->has_float_controls &&
                        offer(info, list, VK_API_VERSION_1_2, VK_KHR_SPIRV_1_4_EXTENSION_NAME);
  info->has_memory_budget = offer(info, list, 0, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  info->has_push_descriptor = has_extension(list, VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
  // If a device offers this extension, the specification requires that it is enabled.
  (void)offer(info, list, 0, "VK_KHR_portability_subset");
  features_t found;
  chain(&found, &offered);
  instance->GetPhysicalDeviceFeatures2(info->physical, &found.core);
  const VkPhysicalDeviceFeatures* core = &found.core.features;
  info->has_robust_access = core->robustBufferAccess != 0;
  info->has_int64 = core->shaderInt64 != 0;
  info->has_int16 = core->shaderInt16 != 0;
  info->has_float64 = core->shaderFloat64 != 0;
  info->has_float16 = found.small.shaderFloat16 != 0;
  info->has_int8 = found.small.shaderInt8 != 0;
  info->has_storage_16bit = found.storage_16bit.storageBuffer16BitAccess != 0;
  info->has_storage_8bit = found.storage_8bit.storageBuffer8BitAccess != 0;
  info->has_atomic_float32 = found.atomic_float.shaderBufferFloat32Atomics != 0 &&
                             found.atomic_float.shaderBufferFloat32AtomicAdd != 0;
  info->has_atomic_int64 = found.atomic_int64.shaderBufferInt64Atomics != 0 &&
                           found.atomic_int64.shaderSharedInt64Atomics != 0;
  info->has_subgroup_extended_types = found.subgroup_types.shaderSubgroupExtendedTypes != 0;
  info->has_memory_model = found.memory_model.vulkanMemoryModel != 0 &&
                           found.memory_model.vulkanMemoryModelDeviceScope != 0;
  info->has_subgroup_size = found.subgroup_size.subgroupSizeControl != 0;
  info->has_full_subgroups =
      info->has_subgroup_size && found.subgroup_size.computeFullSubgroups != 0;
  *out_has_timeline = found.timeline.timelineSemaphore != 0;
}

static void probe_properties(const qn__vk_instance_t* instance, const extension_list_t* list,
                             qn__vk_info_t* info) {
  bool has_maintenance4 = info->api_version >= VK_API_VERSION_1_3;
  info->has_driver_properties = info->api_version >= VK_API_VERSION_1_2 ||
                                has_extension(list, VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME);
  VkPhysicalDeviceSubgroupProperties subgroup = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
  VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
  VkPhysicalDeviceMaintenance3Properties maintenance3 = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
  VkPhysicalDeviceMaintenance4Properties maintenance4 = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
  VkPhysicalDeviceSubgroupSizeControlProperties size = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
  info->driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
  info->float_controls.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES;
  VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  void** tail = &all.pNext;
  link_struct(&tail, &subgroup, true);
  link_struct(&tail, &id, true);
  link_struct(&tail, &maintenance3, true);
  link_struct(&tail, &maintenance4, has_maintenance4);
  link_struct(&tail, &info->driver, info->has_driver_properties);
  link_struct(&tail, &info->float_controls, info->has_float_controls);
  link_struct(&tail, &size, info->has_subgroup_size);
  instance->GetPhysicalDeviceProperties2(info->physical, &all);
  info->driver.pNext = NULL;
  info->float_controls.pNext = NULL;
  memcpy(info->uuid, id.deviceUUID, sizeof info->uuid);
  if (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) {
    info->subgroup_operations = subgroup.supportedOperations;
  }
  info->subgroup_size = subgroup.subgroupSize;
  info->is_subgroup_size_fixed =
      info->has_subgroup_size && size.minSubgroupSize == size.maxSubgroupSize;
  info->max_sized_threads = (uint64_t)size.maxComputeWorkgroupSubgroups * info->subgroup_size;
  // Compute shaders must be able to require a size.
  info->has_subgroup_size = info->has_subgroup_size &&
                            (size.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
  info->max_allocation_bytes = maintenance3.maxMemoryAllocationSize;
  info->max_buffer_bytes =
      has_maintenance4 ? maintenance4.maxBufferSize : maintenance3.maxMemoryAllocationSize;
}

// Finds a queue family for compute: preferably without graphics, as it runs beside graphics work.
static bool find_family(const qn__vk_instance_t* instance, qn__vk_info_t* info) {
  VkQueueFamilyProperties families[32];
  uint32_t count = QN_COUNT_OF(families);
  instance->GetPhysicalDeviceQueueFamilyProperties(info->physical, &count, families);
  for (int wants_pure = 1; wants_pure >= 0; wants_pure--) {
    for (uint32_t i = 0; i < count; i++) {
      VkQueueFlags flags = families[i].queueFlags;
      if (!(flags & VK_QUEUE_COMPUTE_BIT) || families[i].queueCount == 0) continue;
      if (wants_pure && (flags & VK_QUEUE_GRAPHICS_BIT)) continue;
      info->family = i;
      info->queue_count =
          families[i].queueCount < QN__VK_MAX_QUEUES ? families[i].queueCount : QN__VK_MAX_QUEUES;
      return true;
    }
  }
  return false;
}

static bool is_unified(const qn__vk_info_t* info) {
  // Mapped memory of a discrete GPU is a window over the bus; virtual GPUs are mostly discrete.
  if (info->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU ||
      info->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU) {
    return false;
  }
  const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                       VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                       VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  for (uint32_t i = 0; i < info->memory.memoryTypeCount; i++) {
    if ((info->memory.memoryTypes[i].propertyFlags & wanted) == wanted) return true;
  }
  return false;
}

static qn_status_t lacking(const qn__vk_info_t* info, const char* what) {
  return qn_status_make(QN_STATUS_UNAVAILABLE, "vulkan: '%s' has no %s",
                        info->properties.deviceName, what);
}

static qn_status_t probe_with(const qn__vk_instance_t* instance, const extension_list_t* list,
                              qn__vk_info_t* info) {
  bool has_timeline;
  probe_features(instance, list, info, &has_timeline);
  if (!has_timeline) return lacking(info, "timeline semaphores");
  if (!find_family(instance, info)) return lacking(info, "compute queue");
  probe_properties(instance, list, info);
  VkPhysicalDeviceMemoryProperties2 memory = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  instance->GetPhysicalDeviceMemoryProperties2(info->physical, &memory);
  info->memory = memory.memoryProperties;
  info->is_unified = is_unified(info);
  return QN_OK;
}

qn_status_t qn__vk_probe(const qn__vk_instance_t* instance, VkPhysicalDevice physical,
                         qn_allocator_t allocator, qn__vk_info_t* out_info) {
  qn__vk_info_t* info = out_info;
  *info = (qn__vk_info_t){.physical = physical};
  instance->GetPhysicalDeviceProperties(physical, &info->properties);
  uint32_t version = info->properties.apiVersion;
  info->api_version = version < instance->api_version ? version : instance->api_version;
  if (info->api_version < VK_API_VERSION_1_1) return lacking(info, "Vulkan 1.1");
  uint32_t count = 0;
  VkResult result = instance->EnumerateDeviceExtensionProperties(physical, NULL, &count, NULL);
  if (result != VK_SUCCESS) return lacking(info, "list of extensions");
  uint32_t capacity = count;
  VkExtensionProperties* items = qn__alloc_zero(allocator, capacity, sizeof *items);
  if (!items) return qn__out_of_memory("the extensions of a device");
  result = instance->EnumerateDeviceExtensionProperties(physical, NULL, &count, items);
  qn_status_t status = result == VK_SUCCESS
                           ? probe_with(instance, &(extension_list_t){items, count}, info)
                           : lacking(info, "list of extensions");
  qn__free(allocator, items, capacity * sizeof *items);
  return status;
}

qn_status_t qn__vk_create_device(const qn__vk_instance_t* instance, const qn__vk_info_t* info,
                                 VkDevice* out_device) {
  features_t features;
  chain(&features, &(offered_t){.timeline = true,
                                .storage_8bit = info->has_storage_8bit,
                                .small = info->has_float16 || info->has_int8,
                                .atomic_float = info->has_atomic_float32,
                                .atomic_int64 = info->has_atomic_int64,
                                .subgroup_types = info->has_subgroup_extended_types,
                                .memory_model = info->has_memory_model,
                                .subgroup_size = info->has_full_subgroups,
                                .maintenance4 = info->api_version >= VK_API_VERSION_1_3});
  VkPhysicalDeviceFeatures* core = &features.core.features;
  core->robustBufferAccess = info->has_robust_access;
  core->shaderInt64 = info->has_int64;
  core->shaderInt16 = info->has_int16;
  core->shaderFloat64 = info->has_float64;
  features.timeline.timelineSemaphore = VK_TRUE;
  features.storage_16bit.storageBuffer16BitAccess = info->has_storage_16bit;
  features.storage_8bit.storageBuffer8BitAccess = info->has_storage_8bit;
  features.small.shaderFloat16 = info->has_float16;
  features.small.shaderInt8 = info->has_int8;
  features.atomic_float.shaderBufferFloat32Atomics = info->has_atomic_float32;
  features.atomic_float.shaderBufferFloat32AtomicAdd = info->has_atomic_float32;
  features.atomic_int64.shaderBufferInt64Atomics = info->has_atomic_int64;
  features.atomic_int64.shaderSharedInt64Atomics = info->has_atomic_int64;
  features.subgroup_types.shaderSubgroupExtendedTypes = info->has_subgroup_extended_types;
  features.subgroup_size.subgroupSizeControl = info->has_full_subgroups;
  features.subgroup_size.computeFullSubgroups = info->has_full_subgroups;
  features.memory_model.vulkanMemoryModel = info->has_memory_model;
  features.memory_model.vulkanMemoryModelDeviceScope = info->has_memory_model;
  // Every Vulkan 1.3 device has it. SPIR-V 1.6 needs it for kernels without a fixed block size.
  features.maintenance4.maintenance4 = info->api_version >= VK_API_VERSION_1_3;
  const float priorities[QN__VK_MAX_QUEUES] = {1.0f, 1.0f, 1.0f, 1.0f};
  VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                   .queueFamilyIndex = info->family,
                                   .queueCount = info->queue_count,
                                   .pQueuePriorities = priorities};
  VkDeviceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &features.core,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue,
                               .enabledExtensionCount = info->extension_count,
                               .ppEnabledExtensionNames = info->extensions};
  VkResult result = instance->CreateDevice(info->physical, &create, NULL, out_device);
  if (result == VK_SUCCESS) return QN_OK;
  bool is_memory = result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY;
  return qn_status_make(is_memory ? QN_STATUS_OUT_OF_MEMORY : QN_STATUS_DEVICE_ERROR,
                        "vulkan: vkCreateDevice for '%s': %s", info->properties.deviceName,
                        qn__vk_result_text(result));
}
