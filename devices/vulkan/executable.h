// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/executable.h: loaded code: shader modules, pipelines by kernel and thread count,
// and the driver's own pipeline data, which the engine's cache stores.
//
// Read next: executable.c, launch.c.
#ifndef QUERN_DEVICES_VULKAN_EXECUTABLE_H_
#define QUERN_DEVICES_VULKAN_EXECUTABLE_H_

#include "base/arena.h"
#include "devices/vulkan/context.h"
#include "quern/gpu.h"

enum { QN__VK_MAX_PARAMETER_BYTES = 8 * QN_GPU_MAX_ARGS + 16 };

// One pipeline of a kernel.
typedef struct qn__vk_pipeline {
  uint32_t thread_count;
  VkPipeline handle;
  _Atomic bool was_launched;
  struct qn__vk_pipeline* next;
} qn__vk_pipeline_t;

typedef struct qn__vk_kernel {
  qn_gpu_kernel_info_t info;
  uint64_t uid;            // among the device's kernels; never used twice
  uint32_t binding_count;  // the buffers, and the error record if there is one
  bool has_parameters;     // the last binding holds the parameters, not push constants
  uint32_t push_bytes;
  uint32_t* offsets;  // arg_count + 2, see qn__gpu_push_layout
  const qn__vk_layout_t* layout;
  VkShaderModule module;
  _Atomic(qn__vk_pipeline_t*) pipelines;
} qn__vk_kernel_t;

typedef struct qn__vk_executable {
  qn__vk_device_t* device;
  qn__arena_t arena;
  qn_gpu_plan_t* plan;
  uint32_t kernel_count;
  qn__vk_kernel_t* kernels;
  qn__mutex_t mutex;  // held while pipelines are created or saved
  VkPipelineCache cache;
  qn_driver_cache_t store;
  char identity[256];
  // Of the stored data.
  size_t saved_bytes;
  qn_hash128_t saved_digest;
} qn__vk_executable_t;

// How plans launch kernels; `self` of a run is launch.c's.
extern const qn_gpu_runner_t qn__vk_runner;

// Finds or creates the pipeline of a kernel for a thread count. Errors: OUT_OF_MEMORY,
// DEVICE_ERROR.
qn_status_t qn__vk_pipeline_find(qn__vk_executable_t* executable, qn__vk_kernel_t* kernel,
                                 uint32_t thread_count, qn__vk_pipeline_t** out_pipeline);
// Stores the driver's pipeline data if it has changed.
void qn__vk_executable_save(qn__vk_executable_t* executable);
// Writes the identity of device and driver. Pipeline data is valid only for an equal identity.
void qn__vk_identity(const qn__vk_info_t* info, char out[256]);

// Finds or creates the layouts for a number of bindings (layouts.c). Errors: INCOMPATIBLE (more
// than the device allows), OUT_OF_MEMORY, DEVICE_ERROR.
qn_status_t qn__vk_layout_find(qn__vk_device_t* device, uint32_t binding_count, bool has_parameters,
                               const qn__vk_layout_t** out_layout);
void qn__vk_layouts_deinit(qn__vk_device_t* device);

// ---- members of the device's table
bool qn__vk_accepts(const char* format);
qn_status_t qn__vk_load(int32_t id, const qn_artifact_t* artifact, const qn_load_options_t* options,
                        void** out_executable);
void qn__vk_unload(int32_t id, void* executable);
qn_status_t qn__vk_launch(int32_t id, void* executable, uint32_t index, void* stream,
                          const qn_launch_t* launch);

#endif  // QUERN_DEVICES_VULKAN_EXECUTABLE_H_
