// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/launch.c: calls a function: runs its plan and records its launches.
//
// Steps that may wait, allocate much or compile happen before the stream's mutex is locked.
// Bindings stay: a launch with the same blocks as the one before costs a barrier, push constants
// and the dispatch. If kernel and buffers are the same too, no buffer is looked up (is_bound).
#include "base/alloc.h"
#include "devices/vulkan/executable.h"
#include "devices/vulkan/stream.h"

#define WINDOW_BYTES UINT64_C(65536)
#define SMALL_WINDOW_BYTES UINT64_C(256)
#define PARAMETERS_BYTES UINT64_C(65536)

typedef struct call {
  qn__vk_executable_t* executable;
  qn__vk_stream_t* stream;
  const qn_launch_t* launch;
  uint32_t epoch;  // the stream's, when the call began
} call_t;

static qn_status_t workspace_allocate(void* self, uint64_t size_bytes, uint64_t* out_address) {
  const call_t* call = self;
  return qn__vk_workspace_acquire(call->executable->device, call->stream, size_bytes, out_address);
}

static void workspace_free(void* self, uint64_t address) {
  const call_t* call = self;
  qn_status_t status = qn__vk_workspace_release(call->executable->device, call->stream, address);
  (void)QN_NEVER(!qn_ok(status));
  qn_status_free(status);
}

// Writes a value of the push constants, always as eight bytes. Values are written at rising
// offsets, so extra bytes are overwritten by the next value or are unused. So a copy has a fixed
// size.
static inline void put(qn__vk_bound_t* bound, uint32_t offset, uint64_t value) {
  memcpy(bound->push + offset, &value, sizeof value);
}

static inline void bind_whole(qn__vk_bound_t* bound, uint32_t index, const qn__vk_block_t* block) {
  bound->keys[index] =
      (qn__vk_binding_t){atomic_load_explicit(&block->uid, memory_order_relaxed), 0};
  bound->sources[index] = (qn__vk_binding_source_t){block->buffer, VK_WHOLE_SIZE};
}

// Binds a part of a block that is larger than the limit of a binding. Rounds its start down, so
// that few different parts occur and sets are reused. `*out_start`: the start of the part.
static __attribute__((noinline)) qn_status_t bind_window(const call_t* call, qn__vk_bound_t* bound,
                                                         uint32_t index, qn__vk_place_t place,
                                                         uint64_t size, uint64_t block_bytes,
                                                         uint64_t* out_start) {
  const qn__vk_device_t* device = call->executable->device;
  uint64_t limit = device->info.properties.limits.maxStorageBufferRange & ~(SMALL_WINDOW_BYTES - 1);
  uint64_t start = 0;
  if (place.offset + size > limit) start = place.offset & ~(WINDOW_BYTES - 1);
  if (place.offset + size - start > limit) start = place.offset & ~(SMALL_WINDOW_BYTES - 1);
  if (place.offset + size - start > limit) {
    return qn_status_make(QN_STATUS_VALUE_ERROR,
                          "vulkan:%d: a buffer or workspace of %" PRIu64
                          " bytes; kernels of this device reach at most %" PRIu64
                          " of one (maxStorageBufferRange); call with parts of it",
                          device->id, size, limit);
  }
  bound->keys[index].offset = start;
  bound->sources[index].range = block_bytes - start < limit ? block_bytes - start : limit;
  *out_start = start;
  return QN_OK;
}

static __attribute__((noinline, cold)) qn_status_t unaligned(const call_t* call, uint64_t address,
                                                             uint32_t size_bytes) {
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "vulkan:%d: a buffer at 0x%" PRIx64
                        " is not aligned to its elements of "
                        "%u bytes",
                        call->executable->device->id, address, size_bytes);
}

// Binds the memory at [address, end), and pushes the index of its first element in the binding.
static inline qn_status_t bind(const call_t* call, qn__vk_bound_t* bound, uint32_t index,
                               uint64_t address, uint64_t end, const qn_gpu_arg_t* arg,
                               uint32_t push_offset) {
  qn__vk_device_t* device = call->executable->device;
  if (__builtin_expect(end <= address, 0)) {
    // The kernel accesses no element, so any buffer may be bound.
    bind_whole(bound, index, call->stream->error_record.block);
    put(bound, push_offset, 0);
    return QN_OK;
  }
  uint64_t size = end - address;
  qn__vk_place_t place;
  if (__builtin_expect(!qn__vk_decode(device, address, size, &place), 0)) {
    return qn__vk_bad_address(device, address, size);
  }
  uint64_t block_bytes = atomic_load_explicit(&place.block->size_bytes, memory_order_relaxed);
  bind_whole(bound, index, place.block);
  uint64_t start = 0;
  if (__builtin_expect(block_bytes > device->info.properties.limits.maxStorageBufferRange, 0)) {
    QN_TRY(bind_window(call, bound, index, place, size, block_bytes, &start));
  }
  bound->accesses[bound->access_count++] =
      (qn__vk_access_t){bound->keys[index].uid, place.offset, place.offset + size, arg->is_written};
  bound->has_write |= arg->is_written;
  // Elements have 1, 2, 4 or 8 bytes.
  uint32_t distance = (uint32_t)(place.offset - start);
  if (__builtin_expect((distance & (arg->size_bytes - 1)) != 0, 0)) {
    return unaligned(call, address, arg->size_bytes);
  }
  put(bound, push_offset, distance >> __builtin_ctz(arg->size_bytes));
  return QN_OK;
}

// Locks the stream's mutex with a batch open. The batch has room for parameters, if needed.
static qn_status_t begin(qn__vk_stream_t* stream, bool needs_parameters) {
  QN_TRY(qn__vk_stream_begin(stream));
  while (needs_parameters && stream->open->parameters_left < QN__VK_MAX_PARAMETER_BYTES) {
    qn__mutex_unlock(&stream->mutex);
    qn__vk_place_t place;
    QN_TRY(qn__vk_memory_allocate(stream->device, QN__VK_POOL_HOST, PARAMETERS_BYTES, 0, &place));
    qn_status_t status = qn__vk_stream_begin(stream);
    if (qn_ok(status) && !qn__vk_stream_defer_free(stream, place)) {
      qn__mutex_unlock(&stream->mutex);
      status = qn__out_of_memory("parameters of a kernel");
    }
    if (!qn_ok(status)) {
      qn_status_free(qn__vk_memory_free(stream->device, place));
      return status;
    }
    stream->open->parameters = place;
    stream->open->parameters_left = PARAMETERS_BYTES;
  }
  return QN_OK;
}

// Locked. Copies the parameters to the parameter buffer; returns their offset.
static uint32_t place_parameters(qn__vk_batch_t* batch, const uint8_t* bytes, uint32_t size) {
  const uint32_t step = QN__VK_GRANULE;  // at least the alignment of buffer offsets
  assert(size <= batch->parameters_left && batch->parameters_left <= PARAMETERS_BYTES);
  uint64_t offset = batch->parameters.offset + (PARAMETERS_BYTES - batch->parameters_left);
  memcpy(batch->parameters.block->mapped + offset, bytes, size);
  uint64_t used = ((uint64_t)size + step - 1) & ~(uint64_t)(step - 1);
  batch->parameters_left -= used < batch->parameters_left ? used : batch->parameters_left;
  return (uint32_t)offset;
}

// Locked, with a batch open. Records a launch. `is_same`: kernel and buffers are those of the last
// launch.
static qn_status_t record(const call_t* call, qn__vk_kernel_t* kernel, qn__vk_pipeline_t* pipeline,
                          const qn_gpu_launch_t* launch, qn__vk_bound_t* bound, bool is_same) {
  qn__vk_stream_t* stream = call->stream;
  qn__vk_device_t* device = stream->device;
  qn__vk_batch_t* batch = stream->open;
  const qn__vk_functions_t* vk = &device->vk;
  bool is_first = !atomic_load_explicit(&pipeline->was_launched, memory_order_relaxed) &&
                  !atomic_exchange_explicit(&pipeline->was_launched, true, memory_order_relaxed);
  bool has_record = kernel->info.has_record;
  uint32_t tag;
  if (has_record || is_first || !qn__vk_stream_owns(stream, call->launch)) {
    if (!qn__vk_stream_own(stream, call->launch, has_record, is_first ? call->executable : NULL,
                           &tag)) {
      return qn__out_of_memory("a launch");
    }
    if (has_record) put(bound, kernel->offsets[kernel->info.arg_count + 1], tag);
  }
  uint32_t count = kernel->binding_count;
  uint32_t dynamic_offset = 0;
  if (kernel->has_parameters) {
    bind_whole(bound, count, batch->parameters.block);
    bound->sources[count].range = QN__VK_MAX_PARAMETER_BYTES;
    dynamic_offset = place_parameters(batch, bound->push, kernel->push_bytes);
    count++;
  }
  VkDescriptorSet set;
  if (is_same && !kernel->has_parameters) {
    set = qn__vk_sets_reuse_last(stream);
  } else {
    QN_TRY(qn__vk_sets_find(stream, kernel->layout, count, kernel->has_parameters, bound->keys,
                            bound->sources, &set));
    bound->kernel_uid = kernel->uid;
  }
  if (!is_same || !bound->has_write || !qn__vk_stream_order_repeat(stream, bound->accesses)) {
    qn__vk_stream_order(stream, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, bound->accesses,
                        bound->access_count);
  }
  if (batch->pipeline != pipeline->handle) {
    vk->CmdBindPipeline(batch->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline->handle);
    batch->pipeline = pipeline->handle;
  }
  if (batch->set != set || batch->layout != kernel->layout->pipeline ||
      (kernel->has_parameters && batch->dynamic_offset != dynamic_offset)) {
    vk->CmdBindDescriptorSets(batch->commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                              kernel->layout->pipeline, 0, 1, &set, kernel->has_parameters ? 1 : 0,
                              &dynamic_offset);
    batch->set = set;
    batch->layout = kernel->layout->pipeline;
    batch->dynamic_offset = dynamic_offset;
  }
  if (!kernel->has_parameters && kernel->push_bytes > 0) {
    vk->CmdPushConstants(batch->commands, kernel->layout->pipeline, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                         kernel->push_bytes, bound->push);
  }
  assert(bound->access_count <= QN__VK_MAX_BINDINGS + 1);
  uint32_t limit = device->info.properties.limits.maxComputeWorkGroupCount[0];
  uint32_t blocks = launch->block_count < (int64_t)limit ? (uint32_t)launch->block_count : limit;
  vk->CmdDispatch(batch->commands, blocks, 1, 1);
  qn__vk_count(&stream->launch_count);
  return QN_OK;
}

// Locked. Returns whether kernel and buffers are those of the last launch, and no block was
// destroyed since.
static inline bool is_bound(const qn__vk_device_t* device, const qn__vk_bound_t* bound,
                            const qn__vk_kernel_t* kernel, const qn_gpu_launch_t* launch) {
  if (bound->kernel_uid != kernel->uid ||
      bound->generation != atomic_load_explicit(&device->memory.generation, memory_order_acquire)) {
    return false;
  }
  uint64_t difference = 0;
  for (uint32_t i = 0; i < kernel->info.buffer_count; i++) {
    difference |= (bound->values[i] ^ launch->values[i]) | (bound->ends[i] ^ launch->ends[i]);
  }
  return difference == 0;
}

// Locked. Finds the bindings and accesses of a launch: its buffers and the error record.
static qn_status_t bind_all(const call_t* call, qn__vk_bound_t* bound,
                            const qn__vk_kernel_t* kernel, const qn_gpu_launch_t* launch) {
  const qn_gpu_kernel_info_t* plan = &kernel->info;
  const qn__vk_stream_t* stream = call->stream;
  // Read before the blocks: if one is destroyed meanwhile, the generation no longer matches.
  bound->kernel_uid = 0;
  bound->generation =
      atomic_load_explicit(&stream->device->memory.generation, memory_order_acquire);
  bound->access_count = 0;
  bound->has_write = plan->has_record;
  uint32_t i = 0;
  for (; i < plan->buffer_count; i++) {
    bound->values[i] = launch->values[i];
    bound->ends[i] = launch->ends[i];
    QN_TRY(bind(call, bound, i, launch->values[i], launch->ends[i], &plan->args[i],
                kernel->offsets[i]));
  }
  if (plan->has_record) {
    uint64_t start = stream->error_record.offset;
    bind_whole(bound, i, stream->error_record.block);
    bound->accesses[bound->access_count++] =
        (qn__vk_access_t){bound->keys[i].uid, start, start + sizeof(qn_gpu_record_t), true};
    put(bound, kernel->offsets[plan->arg_count], stream->error_record.offset / 4);
  }
  return QN_OK;
}

// Locked, with a batch open. Prepares bindings and push constants. `*out_is_same`: as in `record`.
static qn_status_t prepare(const call_t* call, const qn__vk_kernel_t* kernel,
                           const qn_gpu_launch_t* launch, bool* out_is_same) {
  const qn_gpu_kernel_info_t* plan = &kernel->info;
  qn__vk_bound_t* bound = &call->stream->bound;
  *out_is_same = is_bound(call->stream->device, bound, kernel, launch);
  if (!*out_is_same) QN_TRY(bind_all(call, bound, kernel, launch));
  for (uint32_t i = plan->buffer_count; i < plan->arg_count; i++) {
    put(bound, kernel->offsets[i], launch->values[i]);
  }
  return QN_OK;
}

static qn_status_t launch_kernel(void* self, const qn_gpu_launch_t* launch) {
  const call_t* call = self;
  qn__vk_stream_t* stream = call->stream;
  qn__vk_kernel_t* kernel = &call->executable->kernels[launch->kernel];
  qn__vk_pipeline_t* pipeline = atomic_load_explicit(&kernel->pipelines, memory_order_acquire);
  if (!pipeline || pipeline->thread_count != launch->thread_count) {
    QN_TRY(qn__vk_pipeline_find(call->executable, kernel, launch->thread_count, &pipeline));
  }
  QN_TRY(begin(stream, kernel->has_parameters));
  bool is_same;
  qn_status_t status = prepare(call, kernel, launch, &is_same);
  // Skips launches after a known failure.
  if (qn_ok(status) && __builtin_expect(qn__vk_stream_accepts(stream, call->epoch), 1)) {
    status = record(call, kernel, pipeline, launch, &stream->bound, is_same);
    if (qn_ok(status)) {
      qn__vk_stream_end(stream);
      return QN_OK;
    }
  }
  qn__mutex_unlock(&stream->mutex);
  return status;
}

const qn_gpu_runner_t qn__vk_runner = {.abi_version = QN_GPU_ABI_VERSION,
                                       .struct_size = sizeof qn__vk_runner,
                                       .workspace_allocate = workspace_allocate,
                                       .workspace_free = workspace_free,
                                       .launch = launch_kernel};

qn_status_t qn__vk_launch(int32_t id, void* executable, uint32_t index, void* stream,
                          const qn_launch_t* launch) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  call_t call = {.executable = executable, .launch = launch};
  QN_TRY(qn__vk_stream_of(device, stream, &call.stream));
  call.epoch = qn__vk_stream_epoch(call.stream);
  return qn_gpu_plan_run(call.executable->plan, index, launch, &call);
}
