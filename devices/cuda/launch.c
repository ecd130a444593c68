// SPDX-License-Identifier: Apache-2.0
// devices/cuda/launch.c: runs the plan of a function, with launches and workspace of the driver.
//
// Only the driver allocates, and a launch waits for no lock (see in_flight.c). A grid has at most a
// few blocks for each multiprocessor; kernels stride over the rest.
//
// Read next: in_flight.c, graph.c.
#include "devices/cuda/cuda.h"

typedef struct run {
  const qn__cuda_executable_t* executable;
  qn__cuda_stream_t* stream;
  qn__cuda_graph_t* graph;  // that the stream records; NULL: the call runs now
  const qn_launch_t* launch;
  uint64_t position;                       // of the batch, without a graph
  bool has_batch;                          // only without a graph
  qn__cuda_error_record_t* stream_record;  // from the first kernel that can fail
  CUdeviceptr record;                      // of `stream_record` or of the graph
  qn__cuda_tags_t tags;
  int64_t max_blocks;
} run_t;

static qn_status_t allocate(void* self, uint64_t size_bytes, uint64_t* out_address) {
  run_t* run = self;
  CUdeviceptr address;
  qn_status_t status = qn__cuda_stream_workspace_allocate(run->stream, size_bytes, &address);
  *out_address = address;
  return status;
}

// Frees workspace. A failure is one of the stream, which its next sync returns.
static void release(void* self, uint64_t address) {
  run_t* run = self;
  qn_status_free(qn__cuda_stream_workspace_free(run->stream, address));
}

// Gets the record before the first kernel of a call that can fail. Later kernels use the same one:
// a call whose first kernel was skipped must not continue after another thread clears the record.
static qn_status_t prepare_record(run_t* run) {
  if (run->record) return QN_OK;
  if (run->graph) {
    qn__cuda_graph_may_fail(run->graph);
    run->record = qn__cuda_graph_record(run->graph);
    return QN_OK;
  }
  QN_TRY(qn__cuda_error_record_acquire(run->stream, &run->stream_record));
  run->record = run->stream_record->address;
  qn__cuda_batch_may_fail(run->stream, run->position);
  return QN_OK;
}

// Gets new tags for the rest of a call: from a new batch, or as another owner of the graph. Ends
// the old batch first: waiting for a slot while this batch is open could deadlock. The caller keeps
// the owner alive.
static __attribute__((noinline)) qn_status_t renew_tags(run_t* run) {
  if (run->graph) return qn__cuda_graph_retain_owner(run->graph, run->launch, &run->tags);
  run->has_batch = false;
  qn__cuda_batch_end(run->stream, run->position);
  QN_TRY(qn__cuda_batch_begin(run->stream, run->launch, NULL, run->stream_record, &run->position,
                              &run->tags));
  run->has_batch = true;
  qn__cuda_batch_may_fail(run->stream, run->position);
  return QN_OK;
}

// Returns a tag that no other kernel has.
static qn_status_t next_tag(run_t* run, uint32_t* out_tag) {
  for (;;) {
    const uint32_t number =
        run->graph ? qn__cuda_graph_next_kernel(run->graph)
                   : atomic_fetch_add_explicit(&run->stream->kernel_count, 1, memory_order_relaxed);
    if (__builtin_expect(number - run->tags.first < QN__CUDA_TAGS, 1)) {
      *out_tag = run->tags.upper | (number & (QN__CUDA_TAGS - 1));
      return QN_OK;
    }
    QN_TRY(renew_tags(run));
  }
}

static qn_status_t launch_kernel(void* self, const qn_gpu_launch_t* launch) {
  run_t* run = self;
  const qn__cuda_kernel_t* kernel = &run->executable->kernels[launch->kernel];
  const qn_gpu_kernel_info_t* plan = &kernel->info;
  if (__builtin_expect(launch->thread_count > kernel->max_threads, 0)) {
    return qn_status_make(QN_STATUS_VALUE_ERROR,
                          "kernel '%s' with blocks of %u threads: with its registers the device "
                          "runs at most %u",
                          plan->name, launch->thread_count, kernel->max_threads);
  }
  // The order: buffers, the record, scalars, the tag.
  uint64_t values[QN_GPU_MAX_ARGS + 2];
  void* params[QN_GPU_MAX_ARGS + 2];
  size_t count = 0;
  if (plan->has_record) QN_TRY(prepare_record(run));
  for (uint32_t i = 0; i < plan->buffer_count; i++) values[count++] = launch->values[i];
  if (plan->has_record) values[count++] = run->record;
  for (uint32_t i = plan->buffer_count; i < plan->arg_count; i++) {
    values[count++] = launch->values[i];
  }
  if (plan->has_record) {
    uint32_t tag;
    QN_TRY(next_tag(run, &tag));
    values[count++] = tag;
  }
  assert(count <= QN_COUNT_OF(values));
  for (size_t i = 0; i < count; i++) params[i] = &values[i];
  const int64_t blocks =
      launch->block_count < run->max_blocks ? launch->block_count : run->max_blocks;
  return qn__cuda_check(
      run->stream->device,
      qn__cuda()->launch_kernel(kernel->function, (unsigned)blocks, 1, 1, launch->thread_count, 1,
                                1, plan->dynamic_shared_bytes, run->stream->native, params, NULL),
      "launching kernel '%s'", plan->name);
}

const qn_gpu_runner_t qn__cuda_runner = {.abi_version = QN_GPU_ABI_VERSION,
                                         .struct_size = sizeof qn__cuda_runner,
                                         .workspace_allocate = allocate,
                                         .workspace_free = release,
                                         .launch = launch_kernel};

// Retains the owner in a graph of the host. Refuses functions that can fail, whose error record
// could not be read, and workspace that would not belong to the graph.
static qn_status_t prepare_host_graph(const run_t* run, uint32_t index, const qn_launch_t* launch) {
  const qn__cuda_device_t* device = run->stream->device;
  qn_gpu_function_info_t info = {.struct_size = sizeof info};
  QN_TRY(qn_gpu_plan_function(run->executable->plan, index, &info));
  if (info.has_record) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "cuda:%d: a function that can fail on the device cannot be recorded into "
                          "a graph of the host: record it with qn_stream_capture_begin",
                          device->id);
  }
  if (info.workspace_count > 0 && !device->pool) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "cuda:%d: a function with workspace cannot be recorded into a graph of "
                          "the host where the driver has no memory pools: record it with "
                          "qn_stream_capture_begin",
                          device->id);
  }
  return qn__cuda_host_graph_retain_owner(run->stream, launch);
}

static qn_status_t run_on(run_t* run, uint32_t index, const qn_launch_t* launch) {
  qn__cuda_stream_t* stream = run->stream;
  qn__cuda_graph_t* graph = atomic_load_explicit(&stream->capture, memory_order_acquire);
  if (graph) {
    QN_TRY(qn__cuda_graph_retain_owner(graph, launch, &run->tags));
    run->graph = graph;
    return qn_gpu_plan_run(run->executable->plan, index, launch, run);
  }
  bool is_recorded;
  QN_TRY(qn__cuda_is_recorded_by_host(stream, &is_recorded));
  if (is_recorded) {
    QN_TRY(prepare_host_graph(run, index, launch));
    return qn_gpu_plan_run(run->executable->plan, index, launch, run);
  }
  QN_TRY(qn__cuda_batch_begin(stream, launch, NULL, NULL, &run->position, &run->tags));
  run->has_batch = true;
  qn_status_t status = qn_gpu_plan_run(run->executable->plan, index, launch, run);
  if (run->stream_record) qn__cuda_error_record_release(run->stream_record);
  if (run->has_batch) qn__cuda_batch_end(stream, run->position);
  return status;
}

qn_status_t qn__cuda_launch(int32_t id, void* self, uint32_t index, void* inner,
                            const qn_launch_t* launch) {
  const qn__cuda_executable_t* executable = self;
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_enter_fast(id, &device, &scope));
  int64_t max_blocks = (int64_t)device->multiprocessor_count * QN__CUDA_BLOCKS_PER_MULTIPROCESSOR;
  if (max_blocks > device->max_grid) max_blocks = device->max_grid;
  run_t run = {.executable = executable,
               .launch = launch,
               .stream = qn__cuda_stream(device, inner),
               .max_blocks = max_blocks};
  qn_status_t status = run_on(&run, index, launch);
  qn__cuda_leave(&scope);
  return status;
}
