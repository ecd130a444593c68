// devices/vulkan/launch.c: a call of a function: its plan is run, and its launches are recorded.
//
// Everything that may wait, allocate much or compile happens before the stream's mutex is taken.
// What is bound stays bound: a launch that binds the same blocks as the one before it costs a
// barrier, push constants and the dispatch. Thread rule: any thread. Read next: stream.c.
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
} call_t;

static qn_status_t workspace_allocate(void* self, uint64_t size_bytes, uint64_t* out_address) {
  const call_t* call = self;
  return qn__vk_workspace_take(call->executable->device, call->stream, size_bytes, out_address);
}

static void workspace_free(void* self, uint64_t address) {
  const call_t* call = self;
  qn_status_t status = qn__vk_workspace_give(call->executable->device, call->stream, address);
  (void)QN_NEVER(!qn_ok(status));
  qn_status_free(status);
}

typedef struct bindings {
  qn__vk_binding_t keys[QN__VK_MAX_BINDINGS + 1];
  qn__vk_binding_source_t sources[QN__VK_MAX_BINDINGS + 1];
  uint32_t access_count;
  qn__vk_access_t accesses[QN__VK_MAX_BINDINGS + 1];
} bindings_t;

static void bind_whole(bindings_t* bindings, uint32_t index, const qn__vk_block_t* block) {
  bindings->keys[index] =
      (qn__vk_binding_t){atomic_load_explicit(&block->uid, memory_order_relaxed), 0};
  bindings->sources[index] = (qn__vk_binding_source_t){block->buffer, VK_WHOLE_SIZE};
}

// Binds what lies at [address, end); `*out_element` is the index of the first element in it.
static qn_status_t bind(const call_t* call, bindings_t* bindings, uint32_t index, uint64_t address,
                        uint64_t end, const qn__gpu_arg_t* arg, uint32_t* out_element) {
  qn__vk_device_t* device = call->executable->device;
  uint64_t size = end > address ? end - address : 0;
  qn__vk_place_t place;
  if (size == 0) {
    // Nothing is read or written: anything may be bound.
    bind_whole(bindings, index, call->stream->record.block);
    *out_element = 0;
    return QN_OK;
  }
  if (!qn__vk_decode(device, address, size, &place)) {
    return qn__vk_bad_address(device, address, size);
  }
  qn__vk_block_t* block = place.block;
  uint64_t limit = device->info.properties.limits.maxStorageBufferRange;
  uint64_t block_bytes = atomic_load_explicit(&block->size_bytes, memory_order_relaxed);
  bind_whole(bindings, index, block);
  uint64_t start = 0;
  if (block_bytes > limit) {
    // A window on the block; as few different ones as may be, so that sets are reused.
    limit &= ~(SMALL_WINDOW_BYTES - 1);
    if (place.offset + size > limit) start = place.offset & ~(WINDOW_BYTES - 1);
    if (place.offset + size - start > limit) start = place.offset & ~(SMALL_WINDOW_BYTES - 1);
    if (place.offset + size - start > limit) {
      return qn_status_make(QN_STATUS_VALUE_ERROR,
                            "vulkan:%d: a buffer or workspace of %" PRIu64
                            " bytes; kernels of this device reach at most %" PRIu64
                            " of one (maxStorageBufferRange); call with parts of it",
                            device->id, size, limit);
    }
    bindings->keys[index].offset = start;
    bindings->sources[index].range = block_bytes - start < limit ? block_bytes - start : limit;
  }
  bindings->accesses[bindings->access_count++] = (qn__vk_access_t){
      bindings->keys[index].uid, place.offset, place.offset + size, arg->is_written};
  // Within what is bound: 32 bits, which is less to divide.
  uint32_t distance = (uint32_t)(place.offset - start);
  if (__builtin_expect(distance % arg->size_bytes != 0, 0)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "vulkan:%d: a buffer at 0x%" PRIx64
                          " is not aligned to its elements of "
                          "%u bytes",
                          device->id, address, arg->size_bytes);
  }
  *out_element = distance / arg->size_bytes;
  return QN_OK;
}

// Takes the stream's mutex with a batch open that has room for parameters, if they are needed.
static qn_status_t begin(qn__vk_stream_t* stream, bool needs_parameters) {
  QN_TRY(qn__vk_stream_begin(stream));
  while (needs_parameters && stream->open->parameters_left < QN__VK_MAX_PARAMETER_BYTES) {
    qn__mutex_unlock(&stream->mutex);
    qn__vk_place_t place;
    QN_TRY(qn__vk_memory_take(stream->device, QN__VK_POOL_HOST, PARAMETERS_BYTES, 0, &place));
    qn_status_t status = qn__vk_stream_begin(stream);
    if (qn_ok(status) && !qn__vk_stream_keep(stream, place)) {
      qn__mutex_unlock(&stream->mutex);
      status = qn__out_of_memory("parameters of a kernel");
    }
    if (!qn_ok(status)) {
      qn_status_free(qn__vk_memory_give(stream->device, place));
      return status;
    }
    stream->open->parameters = place;
    stream->open->parameters_left = PARAMETERS_BYTES;
  }
  return QN_OK;
}

// Locked. Copies the parameters to where the kernel reads them; returns where that is.
static uint32_t place_parameters(qn__vk_batch_t* batch, const uint8_t* bytes, uint32_t size) {
  const uint32_t step = QN__RANGES_GRANULE;  // at least what offsets of buffers are aligned to
  uint64_t offset = batch->parameters.offset + (PARAMETERS_BYTES - batch->parameters_left);
  memcpy(batch->parameters.block->mapped + offset, bytes, size);
  uint64_t used = ((uint64_t)size + step - 1) & ~(uint64_t)(step - 1);
  batch->parameters_left -= used < batch->parameters_left ? used : batch->parameters_left;
  return (uint32_t)offset;
}

// Locked, with a batch open.
static qn_status_t record(const call_t* call, qn__vk_kernel_t* kernel, qn__vk_pipeline_t* pipeline,
                          const qn__gpu_launch_t* launch, bindings_t* bindings, uint8_t* push) {
  qn__vk_stream_t* stream = call->stream;
  qn__vk_device_t* device = stream->device;
  qn__vk_batch_t* batch = stream->open;
  const qn__vk_functions_t* vk = &device->vk;
  bool is_first = !atomic_load_explicit(&pipeline->was_launched, memory_order_relaxed) &&
                  !atomic_exchange_explicit(&pipeline->was_launched, true, memory_order_relaxed);
  uint32_t tag;
  if (!qn__vk_stream_own(stream, call->launch, kernel->plan->has_record,
                         is_first ? call->executable : NULL, &tag)) {
    return qn__out_of_memory("a launch");
  }
  uint32_t count = kernel->binding_count;
  if (kernel->plan->has_record) {
    memcpy(push + kernel->offsets[kernel->plan->arg_count + 1], &tag, sizeof tag);
  }
  uint32_t dynamic_offset = 0;
  if (kernel->has_parameters) {
    bind_whole(bindings, count, batch->parameters.block);
    bindings->sources[count].range = QN__VK_MAX_PARAMETER_BYTES;
    dynamic_offset = place_parameters(batch, push, kernel->push_bytes);
    count++;
  }
  VkDescriptorSet set;
  QN_TRY(qn__vk_sets_find(stream, kernel->layout, count, kernel->has_parameters, bindings->keys,
                          bindings->sources, &set));
  qn__vk_stream_order(stream, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, bindings->accesses,
                      bindings->access_count);
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
                         kernel->push_bytes, push);
  }
  uint32_t limit = device->info.properties.limits.maxComputeWorkGroupCount[0];
  uint32_t blocks = launch->block_count < (int64_t)limit ? (uint32_t)launch->block_count : limit;
  vk->CmdDispatch(batch->commands, blocks, 1, 1);
  qn__vk_count(&stream->launch_count);
  return QN_OK;
}

static qn_status_t launch_kernel(void* self, const qn__gpu_launch_t* launch) {
  const call_t* call = self;
  qn__vk_executable_t* executable = call->executable;
  qn__vk_kernel_t* kernel = &executable->kernels[launch->kernel];
  const qn__gpu_kernel_t* plan = kernel->plan;
  qn__vk_pipeline_t* pipeline;
  QN_TRY(qn__vk_pipeline_find(executable, kernel, launch->thread_count, &pipeline));
  bindings_t bindings;
  bindings.access_count = 0;
  uint8_t push[QN__VK_MAX_PARAMETER_BYTES];
  memset(push, 0, kernel->push_bytes);
  for (uint32_t i = 0; i < kernel->buffer_count; i++) {
    uint32_t element = 0;
    QN_TRY(bind(call, &bindings, i, launch->values[i], launch->ends[i], &plan->args[i], &element));
    memcpy(push + kernel->offsets[i], &element, sizeof element);
  }
  for (uint32_t i = kernel->buffer_count; i < plan->arg_count; i++) {
    memcpy(push + kernel->offsets[i], &launch->values[i], plan->args[i].size_bytes);
  }
  qn__vk_stream_t* stream = call->stream;
  if (plan->has_record) {
    uint32_t last = kernel->buffer_count;
    uint64_t start = stream->record.offset;
    bind_whole(&bindings, last, stream->record.block);
    bindings.accesses[bindings.access_count++] =
        (qn__vk_access_t){bindings.keys[last].uid, start, start + sizeof(qn__gpu_record_t), true};
    uint32_t word = (uint32_t)(stream->record.offset / 4);
    memcpy(push + kernel->offsets[plan->arg_count], &word, sizeof word);
  }
  QN_TRY(begin(stream, kernel->has_parameters));
  qn_status_t status = QN_OK;
  // Work behind a failed one is skipped, as far as the failure is known.
  if (__builtin_expect(!qn_ok(stream->error), 0)) {
    qn__mutex_unlock(&stream->mutex);
    return QN_OK;
  }
  status = record(call, kernel, pipeline, launch, &bindings, push);
  if (qn_ok(status)) {
    qn__vk_stream_end(stream);
  } else {
    qn__mutex_unlock(&stream->mutex);
  }
  return status;
}

qn_status_t qn__vk_launch(int32_t id, void* executable, uint32_t index, void* stream,
                          const qn_launch_t* launch) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  call_t call = {.executable = executable, .launch = launch};
  QN_TRY(qn__vk_stream_of(device, stream, &call.stream));
  const VkPhysicalDeviceLimits* limits = &device->info.properties.limits;
  uint32_t max_threads = limits->maxComputeWorkGroupInvocations;
  if (max_threads > limits->maxComputeWorkGroupSize[0]) {
    max_threads = limits->maxComputeWorkGroupSize[0];
  }
  qn__gpu_backend_t backend = {.self = &call,
                               .max_threads = max_threads,
                               .workspace_allocate = workspace_allocate,
                               .workspace_free = workspace_free,
                               .launch = launch_kernel};
  return qn__gpu_run(&call.executable->plan, index, launch, &backend);
}
