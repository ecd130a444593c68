// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/layouts.c: layouts of descriptor sets and pipelines.
//
// Layouts differ only in the number of buffers. So kernels with the same number share one layout,
// and a bound set stays bound from one kernel to the next. Layouts are found without a lock.
#include "base/alloc.h"
#include "devices/vulkan/executable.h"

uint32_t qn__vk_push_bytes(const qn__vk_device_t* device) {
  uint32_t limit = device->info.properties.limits.maxPushConstantsSize;
  return limit < QN__VK_MAX_PARAMETER_BYTES ? limit & ~3u : QN__VK_MAX_PARAMETER_BYTES & ~3u;
}

static void destroy(qn__vk_device_t* device, qn__vk_layout_t* layout) {
  if (layout->pipeline) {
    device->vk.DestroyPipelineLayout(device->handle, layout->pipeline, NULL);
  }
  if (layout->set) device->vk.DestroyDescriptorSetLayout(device->handle, layout->set, NULL);
  qn__free(device->allocator, layout, sizeof *layout);
}

static qn_status_t make(qn__vk_device_t* device, uint32_t binding_count, bool has_parameters,
                        qn__vk_layout_t** out_layout) {
  VkDescriptorSetLayoutBinding bindings[QN__VK_MAX_BINDINGS + 1];
  uint32_t count = binding_count + (has_parameters ? 1 : 0);
  for (uint32_t i = 0; i < count; i++) {
    bindings[i] = (VkDescriptorSetLayoutBinding){
        .binding = i,
        .descriptorType = i == binding_count ? VK_DESCRIPTOR_TYPE_STORAGE_BUFFER_DYNAMIC
                                             : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
        .descriptorCount = 1,
        .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
  }
  qn__vk_layout_t* layout = qn__alloc_zero(device->allocator, 1, sizeof *layout);
  if (!layout) return qn__out_of_memory("a pipeline layout");
  VkDescriptorSetLayoutCreateInfo set = {
      .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
      .bindingCount = count,
      .pBindings = bindings};
  VkResult result = device->vk.CreateDescriptorSetLayout(device->handle, &set, NULL, &layout->set);
  if (result == VK_SUCCESS) {
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, qn__vk_push_bytes(device)};
    VkPipelineLayoutCreateInfo create = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                         .setLayoutCount = 1,
                                         .pSetLayouts = &layout->set,
                                         .pushConstantRangeCount = 1,
                                         .pPushConstantRanges = &range};
    result = device->vk.CreatePipelineLayout(device->handle, &create, NULL, &layout->pipeline);
    if (result != VK_SUCCESS) layout->pipeline = VK_NULL_HANDLE;
  } else {
    layout->set = VK_NULL_HANDLE;
  }
  if (result != VK_SUCCESS) {
    destroy(device, layout);
    return qn__vk_status(device, result, "vkCreatePipelineLayout");
  }
  *out_layout = layout;
  return QN_OK;
}

qn_status_t qn__vk_layout_find(qn__vk_device_t* device, uint32_t binding_count, bool has_parameters,
                               const qn__vk_layout_t** out_layout) {
  const VkPhysicalDeviceLimits* limits = &device->info.properties.limits;
  uint32_t count = binding_count + (has_parameters ? 1 : 0);
  uint32_t limit = limits->maxPerStageDescriptorStorageBuffers;
  if (limit > limits->maxDescriptorSetStorageBuffers) {
    limit = limits->maxDescriptorSetStorageBuffers;
  }
  if (limit > QN__VK_MAX_BINDINGS) limit = QN__VK_MAX_BINDINGS;
  if (count > limit) {
    return qn_status_make(QN_STATUS_INCOMPATIBLE,
                          "vulkan:%d: a kernel binds %u buffers, the device at most %u", device->id,
                          count, limit);
  }
  _Atomic(qn__vk_layout_t*)* place = &device->layouts[has_parameters ? 1 : 0][binding_count];
  qn__vk_layout_t* layout = atomic_load_explicit(place, memory_order_acquire);
  qn_status_t status = QN_OK;
  if (!layout) {
    qn__mutex_lock(&device->layouts_mutex);
    layout = atomic_load_explicit(place, memory_order_relaxed);
    if (!layout) {
      status = make(device, binding_count, has_parameters, &layout);
      if (qn_ok(status)) atomic_store_explicit(place, layout, memory_order_release);
    }
    qn__mutex_unlock(&device->layouts_mutex);
  }
  *out_layout = layout;
  return status;
}

void qn__vk_layouts_deinit(qn__vk_device_t* device) {
  for (size_t kind = 0; kind < 2; kind++) {
    for (size_t i = 0; i <= QN__VK_MAX_BINDINGS; i++) {
      qn__vk_layout_t* layout = atomic_exchange(&device->layouts[kind][i], NULL);
      if (layout) destroy(device, layout);
    }
  }
}
