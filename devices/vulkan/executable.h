// devices/vulkan/executable.h: loaded code: shader modules, pipelines by kernel and thread count,
// and the driver's own pipeline data, which is kept in the engine's cache.
//
// Thread rule: any thread. Read next: executable.c, launch.c.
#ifndef QUERN_DEVICES_VULKAN_EXECUTABLE_H_
#define QUERN_DEVICES_VULKAN_EXECUTABLE_H_

#include "base/arena.h"
#include "devices/gpu/plan.h"
#include "devices/gpu/run.h"
#include "devices/vulkan/context.h"

enum { QN__VK_MAX_PARAMETER_BYTES = 8 * QN__GPU_MAX_ARGS + 16 };

// One pipeline of a kernel.
typedef struct qn__vk_pipeline {
  uint32_t thread_count;
  VkPipeline handle;
  _Atomic bool was_launched;
  struct qn__vk_pipeline* next;
} qn__vk_pipeline_t;

typedef struct qn__vk_kernel {
  const qn__gpu_kernel_t* plan;
  uint64_t uid;            // of the device's kernels; never used twice
  uint32_t buffer_count;   // of the arguments
  uint32_t binding_count;  // those, and the record
  bool has_parameters;     // what would be pushed lies in a buffer, the binding behind
  uint32_t push_bytes;
  uint32_t* offsets;  // arg_count + 2, see qn__gpu_push_layout
  const qn__vk_layout_t* layout;
  VkShaderModule module;
  _Atomic(qn__vk_pipeline_t*) pipelines;
} qn__vk_kernel_t;

typedef struct qn__vk_executable {
  qn__vk_device_t* device;
  qn__arena_t arena;
  qn__gpu_plan_t plan;
  uint32_t kernel_count;
  qn__vk_kernel_t* kernels;
  qn__mutex_t mutex;  // while pipelines are made or saved
  VkPipelineCache cache;
  qn_driver_cache_t store;
  char identity[256];
  // Of the data that is stored.
  size_t saved_bytes;
  qn_hash128_t saved_digest;
} qn__vk_executable_t;

// The pipeline of a kernel with so many threads, made if there is none yet. Errors: OUT_OF_MEMORY,
// DEVICE_ERROR.
qn_status_t qn__vk_pipeline_find(qn__vk_executable_t* executable, qn__vk_kernel_t* kernel,
                                 uint32_t thread_count, qn__vk_pipeline_t** out_pipeline);
// Stores the driver's data if it has changed.
void qn__vk_executable_save(qn__vk_executable_t* executable);
// Who decides what a driver's data means: names, versions, identities.
void qn__vk_identity(const qn__vk_info_t* info, char out[256]);

// Layouts of kernels with so many bindings, made once (layouts.c).
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
