// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/executable.c: loads code: checks, shader modules, pipelines, the driver's pipeline
// data.
//
// Loading creates the pipelines of kernels with a fixed size. Wide kernels, which rarely run, and
// kernels whose block size the launch chooses get theirs at the first launch. Stored pipeline data
// is used only if its header matches the device and its length. Some drivers compile at the first
// dispatch, so changed data is stored again when the first dispatch has completed.
#include "devices/vulkan/executable.h"

#include <jansson.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "devices/gpu/isa.h"
#include "devices/gpu/push.h"
#include "devices/vulkan/stream.h"

#define FORMAT "vulkan-spirv-1"
#define SPIRV_MAGIC UINT32_C(0x07230203)
#define LEAST_PUSH_BYTES 128u
#define CACHE_HEADER_BYTES 32u

bool qn__vk_accepts(const char* format) {
  return strcmp(format, FORMAT) == 0;
}

// ------------------------------------------------------------------------------- pipeline data

void qn__vk_identity(const qn__vk_info_t* info, char out[256]) {
  const VkPhysicalDeviceProperties* properties = &info->properties;
  char uuid[2 * VK_UUID_SIZE + 1];
  for (size_t i = 0; i < VK_UUID_SIZE; i++) {
    (void)snprintf(uuid + 2 * i, 3, "%02x", properties->pipelineCacheUUID[i]);
  }
  (void)snprintf(out, 256,
                 "vulkan vendor=%04x device=%04x driver=%08x cache=%s name=%.64s info=%.64s",
                 properties->vendorID, properties->deviceID, properties->driverVersion, uuid,
                 info->has_driver_properties ? info->driver.driverName : "",
                 info->has_driver_properties ? info->driver.driverInfo : "");
}

static uint32_t read_u32(const uint8_t* bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
         (uint32_t)bytes[3] << 24;
}

// Returns whether `data` is of a pipeline cache of this device. See the specification, "Pipeline
// Cache Header".
static bool is_own_data(const qn__vk_info_t* info, const uint8_t* data, size_t size) {
  return size >= CACHE_HEADER_BYTES && read_u32(data) >= CACHE_HEADER_BYTES &&
         read_u32(data) <= size && read_u32(data + 4) == VK_PIPELINE_CACHE_HEADER_VERSION_ONE &&
         read_u32(data + 8) == info->properties.vendorID &&
         read_u32(data + 12) == info->properties.deviceID &&
         memcmp(data + 16, info->properties.pipelineCacheUUID, VK_UUID_SIZE) == 0;
}

typedef struct stored {
  qn_allocator_t allocator;
  uint8_t* data;
  size_t size;
  size_t capacity;
} stored_t;

static qn_status_t collect(void* self, const void* data, size_t size) {
  stored_t* stored = self;
  void* bytes = stored->data;
  if (!qn__grow(stored->allocator, &bytes, &stored->capacity, stored->size + size, 1)) {
    return qn__out_of_memory("pipeline data");
  }
  stored->data = bytes;
  memcpy(stored->data + stored->size, data, size);
  stored->size += size;
  return QN_OK;
}

static qn_status_t make_cache(qn__vk_executable_t* self) {
  qn__vk_device_t* device = self->device;
  stored_t stored = {.allocator = device->allocator};
  if (self->store.get) {
    self->store.get(self->store.self, self->identity, (qn_sink_t){&stored, collect});
  }
  bool is_own = is_own_data(&device->info, stored.data, stored.size);
  VkPipelineCacheCreateInfo create = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                      .initialDataSize = is_own ? stored.size : 0,
                                      .pInitialData = is_own ? stored.data : NULL};
  VkResult result = device->vk.CreatePipelineCache(device->handle, &create, NULL, &self->cache);
  if (result != VK_SUCCESS && is_own) {
    create.initialDataSize = 0;
    create.pInitialData = NULL;
    result = device->vk.CreatePipelineCache(device->handle, &create, NULL, &self->cache);
    is_own = false;
  }
  if (result != VK_SUCCESS) self->cache = VK_NULL_HANDLE;
  if (is_own) {
    self->saved_bytes = stored.size;
    self->saved_digest = qn__xxh128((qn_span_t){stored.data, stored.size}, 0);
  }
  qn__free(device->allocator, stored.data, stored.capacity);
  return qn__vk_status(device, result, "vkCreatePipelineCache");
}

void qn__vk_executable_save(qn__vk_executable_t* self) {
  qn__vk_device_t* device = self->device;
  if (!self->store.put || !self->cache) return;
  qn__mutex_lock(&self->mutex);
  size_t size = 0;
  VkResult result = device->vk.GetPipelineCacheData(device->handle, self->cache, &size, NULL);
  uint8_t* data =
      result == VK_SUCCESS && size > CACHE_HEADER_BYTES ? qn__alloc(device->allocator, size) : NULL;
  size_t capacity = size;
  if (data) {
    result = device->vk.GetPipelineCacheData(device->handle, self->cache, &size, data);
    if (result == VK_SUCCESS && is_own_data(&device->info, data, size)) {
      qn_hash128_t digest = qn__xxh128((qn_span_t){data, size}, 0);
      if (size != self->saved_bytes || !qn__hash128_equal(digest, self->saved_digest)) {
        self->store.put(self->store.self, self->identity, data, size);
        self->saved_bytes = size;
        self->saved_digest = digest;
      }
    }
    qn__free(device->allocator, data, capacity);
  }
  qn__mutex_unlock(&self->mutex);
}

// ---------------------------------------------------------------------------------- pipelines

static qn__vk_pipeline_t* find_made(const qn__vk_kernel_t* kernel, uint32_t thread_count) {
  qn__vk_pipeline_t* at = atomic_load_explicit(&kernel->pipelines, memory_order_acquire);
  while (at && at->thread_count != thread_count) at = at->next;
  return at;
}

static qn_status_t make_pipeline(qn__vk_executable_t* self, qn__vk_kernel_t* kernel,
                                 uint32_t thread_count, qn__vk_pipeline_t** out_pipeline) {
  qn__vk_device_t* device = self->device;
  qn__vk_pipeline_t* pipeline = qn__alloc_zero(device->allocator, 1, sizeof *pipeline);
  if (!pipeline) return qn__out_of_memory("a pipeline");
  pipeline->thread_count = thread_count;
  // Constant 0 is the local size in x of kernels without a fixed size.
  VkSpecializationMapEntry entry = {0, 0, sizeof thread_count};
  VkSpecializationInfo specialization = {1, &entry, sizeof thread_count, &thread_count};
  // Requires full subgroups of the device's size if the block is a multiple of it: a target with
  // shuffles promises that.
  const qn__vk_info_t* info = &device->info;
  bool is_whole = info->has_full_subgroups && thread_count % info->subgroup_size == 0;
  bool is_sized = is_whole && info->has_subgroup_size && !info->is_subgroup_size_fixed &&
                  thread_count <= info->max_sized_threads;
  // If the size may vary, full subgroups are only valid if every possible size divides the block.
  bool is_full = is_whole && (is_sized || info->is_subgroup_size_fixed);
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
      .requiredSubgroupSize = info->subgroup_size};
  VkComputePipelineCreateInfo create = {
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .pNext = is_sized ? &size : NULL,
                .flags = is_full ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = kernel->module,
                .pName = "main",
                .pSpecializationInfo = kernel->info.thread_count == 0 ? &specialization : NULL},
      .layout = kernel->layout->pipeline,
      .basePipelineIndex = -1};
  VkResult result = device->vk.CreateComputePipelines(device->handle, self->cache, 1, &create, NULL,
                                                      &pipeline->handle);
  if (result != VK_SUCCESS) {
    qn__free(device->allocator, pipeline, sizeof *pipeline);
    return qn_status_annotate(qn__vk_status(device, result, "vkCreateComputePipelines"),
                              "kernel '%s'", kernel->info.name);
  }
  atomic_fetch_add_explicit(&device->pipeline_count, 1, memory_order_relaxed);
  *out_pipeline = pipeline;
  return QN_OK;
}

qn_status_t qn__vk_pipeline_find(qn__vk_executable_t* self, qn__vk_kernel_t* kernel,
                                 uint32_t thread_count, qn__vk_pipeline_t** out_pipeline) {
  *out_pipeline = find_made(kernel, thread_count);
  if (__builtin_expect(*out_pipeline != NULL, 1)) return QN_OK;
  qn_status_t status = QN_OK;
  // Only launches of this executable that also need a new pipeline wait for this mutex.
  qn__mutex_lock(&self->mutex);
  *out_pipeline = find_made(kernel, thread_count);
  if (!*out_pipeline) {
    qn__vk_pipeline_t* fresh = NULL;
    status = make_pipeline(self, kernel, thread_count, &fresh);
    if (qn_ok(status)) {
      fresh->next = atomic_load_explicit(&kernel->pipelines, memory_order_relaxed);
      atomic_store_explicit(&kernel->pipelines, fresh, memory_order_release);
      *out_pipeline = fresh;
    }
  }
  qn__mutex_unlock(&self->mutex);
  return status;
}

// ---------------------------------------------------------------------------------- loading

// Returns the limit of push constants of the code's target. The code generator puts more parameters
// than that into a buffer.
static uint32_t push_limit(const char* isa_json) {
  uint32_t limit = LEAST_PUSH_BYTES;
  json_t* isa = isa_json ? json_loads(isa_json, 0, NULL) : NULL;
  const json_t* value = json_object_get(isa, "max_push_constants_bytes");
  if (json_is_integer(value)) {
    json_int_t bytes = json_integer_value(value);
    if (bytes >= LEAST_PUSH_BYTES && bytes <= UINT32_MAX) limit = (uint32_t)bytes;
  }
  json_decref(isa);
  return limit;
}

static qn_status_t damaged(const qn__vk_executable_t* self, const char* what) {
  return qn_status_make(QN_STATUS_DATA_LOSS, "vulkan:%d: artifact: %s", self->device->id, what);
}

static qn_status_t make_module(qn__vk_executable_t* self, qn__vk_kernel_t* kernel,
                               const qn_artifact_t* artifact) {
  qn__vk_device_t* device = self->device;
  const qn_gpu_kernel_info_t* plan = &kernel->info;
  const uint8_t* code = (const uint8_t*)artifact->payload + plan->code_offset;
  size_t size = (size_t)plan->code_size_bytes;
  if (size < 20 || size % 4 != 0 || read_u32(code) != SPIRV_MAGIC) {
    return damaged(self, "a kernel's code is not SPIR-V");
  }
  uint32_t* words = qn__alloc(device->allocator, size);
  if (!words) return qn__out_of_memory("SPIR-V");
  memcpy(words, code, size);
  VkShaderModuleCreateInfo create = {
      .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = size, .pCode = words};
  VkResult result = device->vk.CreateShaderModule(device->handle, &create, NULL, &kernel->module);
  if (result != VK_SUCCESS) kernel->module = VK_NULL_HANDLE;
  qn__free(device->allocator, words, size);
  return qn__vk_status(device, result, "vkCreateShaderModule");
}

static qn_status_t make_kernel(qn__vk_executable_t* self, qn__vk_kernel_t* kernel, uint32_t limit,
                               const qn_artifact_t* artifact) {
  const qn_gpu_kernel_info_t* plan = &kernel->info;
  kernel->uid =
      atomic_fetch_add_explicit(&self->device->last_kernel_uid, 1, memory_order_relaxed) + 1;
  kernel->offsets =
      qn__arena_alloc_array(&self->arena, plan->arg_count + 2u, sizeof *kernel->offsets);
  if (!kernel->offsets) return qn__out_of_memory("a kernel");
  kernel->push_bytes =
      qn__gpu_push_layout(plan->args, plan->arg_count, plan->has_record, kernel->offsets);
  kernel->binding_count = plan->buffer_count + (plan->has_record ? 1 : 0);
  kernel->has_parameters = kernel->push_bytes > limit;
  if (kernel->push_bytes > QN__VK_MAX_PARAMETER_BYTES) {
    return damaged(self, "a kernel has too many parameters");
  }
  if (!kernel->has_parameters && kernel->push_bytes > qn__vk_push_bytes(self->device)) {
    return qn_status_make(QN_STATUS_INCOMPATIBLE,
                          "vulkan:%d: a kernel pushes %u bytes, the device takes %u",
                          self->device->id, kernel->push_bytes, qn__vk_push_bytes(self->device));
  }
  QN_TRY(qn__vk_layout_find(self->device, kernel->binding_count, kernel->has_parameters,
                            &kernel->layout));
  return make_module(self, kernel, artifact);
}

static qn_status_t load_into(qn__vk_executable_t* self, const qn_artifact_t* artifact) {
  QN_TRY(qn_gpu_plan_load(artifact, &qn__vk_runner, self->device->info.max_threads, &self->plan));
  const uint32_t count = qn_gpu_plan_kernel_count(self->plan);
  self->kernels = qn__arena_alloc_array(&self->arena, count, sizeof *self->kernels);
  if (!self->kernels) return qn__out_of_memory("kernels");
  uint32_t limit = push_limit(artifact->isa);
  for (uint32_t i = 0; i < count; i++) {
    qn__vk_kernel_t* kernel = &self->kernels[i];
    self->kernel_count = i + 1;
    kernel->info.struct_size = sizeof kernel->info;
    QN_TRY(qn_gpu_plan_kernel(self->plan, i, &kernel->info));
    QN_TRY(make_kernel(self, kernel, limit, artifact));
  }
  QN_TRY(make_cache(self));
  for (uint32_t i = 0; i < self->kernel_count; i++) {
    const qn_gpu_kernel_info_t* plan = &self->kernels[i].info;
    qn__vk_pipeline_t* pipeline;
    if (plan->is_first_choice && plan->thread_count != 0) {
      QN_TRY(qn__vk_pipeline_find(self, &self->kernels[i], plan->thread_count, &pipeline));
    }
  }
  qn__vk_executable_save(self);
  return QN_OK;
}

static void destroy(qn__vk_executable_t* self) {
  qn__vk_device_t* device = self->device;
  bool is_usable = qn__vk_is_usable();
  for (uint32_t i = 0; i < self->kernel_count; i++) {
    qn__vk_kernel_t* kernel = &self->kernels[i];
    qn__vk_pipeline_t* pipeline = atomic_load(&kernel->pipelines);
    while (pipeline) {
      qn__vk_pipeline_t* next = pipeline->next;
      if (is_usable) device->vk.DestroyPipeline(device->handle, pipeline->handle, NULL);
      qn__free(device->allocator, pipeline, sizeof *pipeline);
      pipeline = next;
    }
    if (kernel->module && is_usable) {
      device->vk.DestroyShaderModule(device->handle, kernel->module, NULL);
    }
  }
  if (self->cache && is_usable) {
    device->vk.DestroyPipelineCache(device->handle, self->cache, NULL);
  }
  if (self->store.release) self->store.release(self->store.self);
  qn_gpu_plan_destroy(self->plan);
  qn__arena_deinit(&self->arena);
  qn__mutex_deinit(&self->mutex);
  qn__free(device->allocator, self, sizeof *self);
}

qn_status_t qn__vk_load(int32_t id, const qn_artifact_t* artifact, const qn_load_options_t* options,
                        void** out_executable) {
  *out_executable = NULL;
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  QN_TRY(qn__gpu_isa_check(artifact->isa, id, qn__vk_target_property));
  qn__vk_executable_t* self = qn__alloc_zero(device->allocator, 1, sizeof *self);
  if (!self) return qn__out_of_memory("an executable");
  qn_status_t status = qn__mutex_init(&self->mutex);
  if (!qn_ok(status)) {
    qn__free(device->allocator, self, sizeof *self);
    return status;
  }
  self->device = device;
  qn__arena_init(&self->arena, device->allocator);
  qn__vk_identity(&device->info, self->identity);
  if (options) self->store = options->driver_cache;
  if (self->store.retain) self->store.retain(self->store.self);
  status = load_into(self, artifact);
  if (!qn_ok(status)) {
    destroy(self);
    return status;
  }
  *out_executable = self;
  return QN_OK;
}

void qn__vk_unload(int32_t id, void* executable) {
  (void)id;
  if (executable) destroy(executable);
}
