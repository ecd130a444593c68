// SPDX-License-Identifier: Apache-2.0
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
#define QN_VK_FEATURES(member, Type, TYPE, core, extension) VkPhysicalDevice##Type member;
#include "devices/vulkan/features.inc"
} features_t;

// The bits of qn__vk_info_t.feature_structs.
enum {
#define QN_VK_FEATURES(member, Type, TYPE, core, extension) STRUCT_##member,
#include "devices/vulkan/features.inc"
};

typedef struct extension_list {
  VkExtensionProperties* items;
  uint32_t count;
} extension_list_t;

static bool has_extension(const extension_list_t* list, const char* name) {
  for (uint32_t i = 0; name && i < list->count; i++) {
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

// Links the structures that the device knows.
static void chain(const qn__vk_info_t* info, features_t* features) {
  memset(features, 0, sizeof *features);
  features->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  void** tail = &features->core.pNext;
#define QN_VK_FEATURES(member, Type, TYPE, core, extension)          \
  features->member.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_##TYPE; \
  link_struct(&tail, &features->member, (info->feature_structs >> STRUCT_##member & 1) != 0);
#include "devices/vulkan/features.inc"
}

static void probe_features(const qn__vk_instance_t* instance, const extension_list_t* list,
                           qn__vk_info_t* info) {
#define QN_VK_FEATURES(member, Type, TYPE, core, extension) \
  info->feature_structs |= (uint32_t)offer(info, list, core, extension) << STRUCT_##member;
#include "devices/vulkan/features.inc"
  info->has_float_controls =
      offer(info, list, VK_API_VERSION_1_2, VK_KHR_SHADER_FLOAT_CONTROLS_EXTENSION_NAME);
  info->has_spirv_1_4 = info->has_float_controls &&
                        offer(info, list, VK_API_VERSION_1_2, VK_KHR_SPIRV_1_4_EXTENSION_NAME);
  info->has_memory_budget = offer(info, list, 0, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  info->has_push_descriptor = has_extension(list, VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
  // If a device offers this extension, the specification requires that it is enabled.
  (void)offer(info, list, 0, "VK_KHR_portability_subset");
  features_t found;
  chain(info, &found);
  instance->GetPhysicalDeviceFeatures2(info->physical, &found.core);
#define QN_VK_FEATURE(flag, field) info->flag = true;
#include "devices/vulkan/features.inc"
#define QN_VK_FEATURE(flag, field) info->flag &= found.field != 0;
#include "devices/vulkan/features.inc"
}

static void probe_properties(const qn__vk_instance_t* instance, const extension_list_t* list,
                             qn__vk_info_t* info) {
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
  link_struct(&tail, &maintenance4, info->has_maintenance4);
  link_struct(&tail, &info->driver, info->has_driver_properties);
  link_struct(&tail, &info->float_controls, info->has_float_controls);
  link_struct(&tail, &size, info->has_full_subgroups);
  instance->GetPhysicalDeviceProperties2(info->physical, &all);
  info->driver.pNext = NULL;
  info->float_controls.pNext = NULL;
  memcpy(info->uuid, id.deviceUUID, sizeof info->uuid);
  if (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) {
    info->subgroup_operations = subgroup.supportedOperations;
  }
  info->subgroup_size = subgroup.subgroupSize;
  info->is_subgroup_size_fixed =
      info->has_full_subgroups && size.minSubgroupSize == size.maxSubgroupSize;
  info->max_sized_threads = (uint64_t)size.maxComputeWorkgroupSubgroups * info->subgroup_size;
  // Compute shaders must be able to require a size.
  info->has_subgroup_size = info->has_full_subgroups &&
                            (size.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
  const VkPhysicalDeviceLimits* limits = &info->properties.limits;
  info->max_threads = limits->maxComputeWorkGroupInvocations < limits->maxComputeWorkGroupSize[0]
                          ? limits->maxComputeWorkGroupInvocations
                          : limits->maxComputeWorkGroupSize[0];
  info->max_allocation_bytes = maintenance3.maxMemoryAllocationSize;
  info->max_buffer_bytes =
      info->has_maintenance4 ? maintenance4.maxBufferSize : maintenance3.maxMemoryAllocationSize;
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
  probe_features(instance, list, info);
  if (!info->has_timeline) return lacking(info, "timeline semaphores");
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
  chain(info, &features);
#define QN_VK_FEATURE(flag, field) features.field = info->flag;
#include "devices/vulkan/features.inc"
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
