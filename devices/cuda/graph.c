// SPDX-License-Identifier: Apache-2.0
// devices/cuda/graph.c: graphs that a stream records, to be launched many times.
//
// Requirements:
//  1. Everything that recorded kernels use lives as long as the graph: the owners of their
//  functions,
//     the workspace of their calls, and an error record of the graph, whose tags are the owners'
//     positions.
//  2. A launch of a graph is a batch in flight, which retains the graph. If the graph can fail, its
//     record is copied after each launch to a slot of that launch alone. A failure that several
//     copies contain is reported once; then the record is cleared before the next launch. A launch
//     that follows one whose copy was not read yet first poisons the record. So all work between a
//     failure and its report is skipped, also if the graph that failed is launched again. None of
//     this is recorded in the graph.
//  3. Captures are relaxed: any thread may end one, and calls that are not recorded (loading a
//     module, allocating) do not end it.
//  4. A stream that waits for a recording stream joins the capture, and leaves it when it ends.
//  5. A graph that the host captures on a stream of its own retains the owners with a user object
//  of
//     the driver. The driver destroys it on a thread that must not call the driver, so the owner
//     goes on a list, which the next sync releases.
//
// Thread rule: any thread; only one thread at a time launches a graph. Read next: in_flight.c.
#include "base/alloc.h"
#include "devices/cuda/cuda.h"

typedef struct graph_block {
  CUdeviceptr address;
  size_t size_bytes;
  bool is_free;
  struct graph_block* next;
} graph_block_t;

struct qn__cuda_graph {
  _Atomic uint32_t reference_count;
  qn__cuda_device_t* device;
  CUgraphExec exec;
  CUdeviceptr record;
  _Atomic bool may_fail;          // it has a kernel that uses the record
  _Atomic bool is_clear_due;      // before the next launch
  _Atomic uint32_t report_count;  // reported failures
  _Atomic uint32_t unread_count;  // launches whose copy of the record was not read yet
  uint64_t stream_number;         // of the last launch
  qn__cuda_stream_t* origin;
  qn__cuda_stream_t* members;     // streams that record it (the device's lock)
  qn__mutex_t mutex;              // of the members below, and of reporting failures
  _Atomic uint32_t kernel_count;  // kernels that have a tag
  uint32_t first_kernel;          // the number of the newest owner's first tag
  qn__cuda_owner_t* owners;
  size_t owner_count;
  size_t owner_capacity;
  graph_block_t* blocks;
};

static qn_status_t make(qn__cuda_device_t* device, qn__cuda_graph_t** out_graph) {
  *out_graph = NULL;
  qn__cuda_graph_t* graph = qn__alloc_zero(qn_allocator_default(), 1, sizeof *graph);
  if (!graph) return qn__out_of_memory("a graph");
  atomic_init(&graph->reference_count, 1);
  atomic_init(&graph->is_clear_due, true);
  graph->device = device;
  qn_status_t status = qn__mutex_init(&graph->mutex);
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), graph, sizeof *graph);
    return status;
  }
  qn__mutex_lock(&device->mutex);
  status = qn__cuda_error_record_allocate(device, &graph->record);
  qn__mutex_unlock(&device->mutex);
  if (!qn_ok(status)) {
    qn__cuda_graph_release(graph);
    return status;
  }
  *out_graph = graph;
  return QN_OK;
}

void qn__cuda_graph_retain(qn__cuda_graph_t* graph) {
  atomic_fetch_add_explicit(&graph->reference_count, 1, memory_order_relaxed);
}

// Ignores failures of the driver: a device that has ended holds no resources.
void qn__cuda_graph_release(qn__cuda_graph_t* graph) {
  if (atomic_fetch_sub_explicit(&graph->reference_count, 1, memory_order_acq_rel) != 1) return;
  assert(!graph->members && !graph->origin);
  const qn__cuda_driver_t* cu = qn__cuda();
  if (graph->exec) (void)cu->graph_exec_destroy(graph->exec);
  for (graph_block_t* block = graph->blocks; block;) {
    graph_block_t* next = block->next;
    (void)cu->mem_free(block->address);
    qn__free(qn_allocator_default(), block, sizeof *block);
    block = next;
  }
  for (size_t i = 0; i < graph->owner_count; i++) {
    graph->owners[i].release(graph->owners[i].owner);
  }
  qn__free(qn_allocator_default(), graph->owners, graph->owner_capacity * sizeof *graph->owners);
  qn__cuda_error_record_free(graph->device, graph->record);
  qn__mutex_deinit(&graph->mutex);
  qn__free(qn_allocator_default(), graph, sizeof *graph);
}

CUdeviceptr qn__cuda_graph_record(const qn__cuda_graph_t* graph) {
  return graph->record;
}

void qn__cuda_graph_may_fail(qn__cuda_graph_t* graph) {
  atomic_store_explicit(&graph->may_fail, true, memory_order_relaxed);
}

qn_status_t qn__cuda_graph_failure(qn__cuda_graph_t* graph, const qn_gpu_record_t* record,
                                   uint32_t report_count) {
  assert(atomic_load(&graph->unread_count) > 0);
  atomic_fetch_sub(&graph->unread_count, 1);
  if (record->tag == 0) return QN_OK;
  qn__cuda_owner_t owner = {0};
  qn__mutex_lock(&graph->mutex);
  const uint32_t number = (record->tag & ~QN__CUDA_GRAPH_TAG) >> QN__CUDA_TAG_SHIFT;
  if (report_count == atomic_load(&graph->report_count) && number != 0 &&
      number <= graph->owner_count) {
    owner = graph->owners[number - 1];
    atomic_fetch_add(&graph->report_count, 1);
    atomic_store(&graph->is_clear_due, true);
  }
  qn__mutex_unlock(&graph->mutex);
  const qn_kernel_failure_t failure = {record->site, record->index, record->extent};
  return owner.owner ? owner.describe(owner.owner, &failure) : QN_OK;
}

// ---------------------------------------------------------------------------------- recording

// Returns the number of kernel `count`, which skips the bit that is clear in all tags of a graph.
static uint32_t number_of(uint32_t count) {
  const uint32_t upper = count >> QN__CUDA_GRAPH_SHIFT;
  return (upper << QN__CUDA_GRAPH_SHIFT) + count;
}

qn_status_t qn__cuda_graph_retain_owner(qn__cuda_graph_t* graph, const qn_launch_t* launch,
                                        qn__cuda_tags_t* out_tags) {
  qn_status_t status = QN_OK;
  qn__mutex_lock(&graph->mutex);
  const size_t count = graph->owner_count;
  const uint32_t number = number_of(atomic_load(&graph->kernel_count));
  if (count == 0 || graph->owners[count - 1].owner != launch->owner ||
      number - graph->first_kernel >= QN__CUDA_TAGS) {
    void* items = graph->owners;
    if (count >= QN__CUDA_MAX_GRAPH_OWNERS ||
        !qn__grow(qn_allocator_default(), &items, &graph->owner_capacity, count + 1,
                  sizeof *graph->owners)) {
      status = qn__out_of_memory("a recorded call");
    } else {
      graph->owners = items;
      launch->retain(launch->owner);
      graph->owners[graph->owner_count++] =
          (qn__cuda_owner_t){launch->owner, launch->release, launch->describe};
      graph->first_kernel = number;
    }
  }
  *out_tags = (qn__cuda_tags_t){
      QN__CUDA_GRAPH_TAG | (uint32_t)graph->owner_count << QN__CUDA_TAG_SHIFT, graph->first_kernel};
  qn__mutex_unlock(&graph->mutex);
  return status;
}

uint32_t qn__cuda_graph_next_kernel(qn__cuda_graph_t* graph) {
  return number_of(atomic_fetch_add_explicit(&graph->kernel_count, 1, memory_order_relaxed));
}

// Reuses the smallest free block that is large enough, or allocates one. A block is free when the
// recorded call that used it has ended.
qn_status_t qn__cuda_graph_workspace_allocate(qn__cuda_graph_t* graph, size_t size_bytes,
                                              CUdeviceptr* out_address) {
  graph_block_t* best = NULL;
  qn__mutex_lock(&graph->mutex);
  // Kernels of several streams run in no order, so they do not share blocks.
  const bool may_reuse = graph->members && !graph->members->next_captured;
  for (graph_block_t* block = graph->blocks; block && may_reuse; block = block->next) {
    if (!block->is_free || block->size_bytes < size_bytes) continue;
    if (!best || block->size_bytes < best->size_bytes) best = block;
  }
  if (best) best->is_free = false;
  qn__mutex_unlock(&graph->mutex);
  if (best) {
    *out_address = best->address;
    return QN_OK;
  }
  best = qn__alloc_zero(qn_allocator_default(), 1, sizeof *best);
  if (!best) return qn__out_of_memory("workspace of a graph");
  best->size_bytes = size_bytes;
  qn__cuda_scope_t scope;
  qn_status_t status = qn__cuda_relax(graph->device, &scope);
  if (qn_ok(status)) {
    status = qn__cuda_memory_allocate(graph->device, size_bytes, &best->address);
    qn__cuda_leave(&scope);
  }
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), best, sizeof *best);
    return status;
  }
  *out_address = best->address;
  qn__mutex_lock(&graph->mutex);
  best->next = graph->blocks;
  graph->blocks = best;
  qn__mutex_unlock(&graph->mutex);
  return QN_OK;
}

bool qn__cuda_graph_workspace_free(qn__cuda_graph_t* graph, CUdeviceptr address) {
  bool is_ours = false;
  qn__mutex_lock(&graph->mutex);
  for (graph_block_t* block = graph->blocks; block && !is_ours; block = block->next) {
    is_ours = block->address == address;
    if (is_ours) block->is_free = true;
  }
  qn__mutex_unlock(&graph->mutex);
  return is_ours;
}

void qn__cuda_capture_join(qn__cuda_stream_t* from, qn__cuda_stream_t* to) {
  qn__cuda_graph_t* graph = atomic_load(&from->capture);
  if (!graph || atomic_load(&to->capture)) return;
  qn__mutex_lock(&graph->device->mutex);
  qn__mutex_lock(&graph->mutex);
  to->next_captured = graph->members;
  graph->members = to;
  qn__mutex_unlock(&graph->mutex);
  atomic_store(&to->capture, graph);
  qn__mutex_unlock(&graph->device->mutex);
}

// Removes all streams from the capture, and runs deferred unloads.
static void stop(qn__cuda_graph_t* graph) {
  qn__cuda_device_t* device = graph->device;
  qn__mutex_lock(&device->mutex);
  for (qn__cuda_stream_t* stream = graph->members; stream;) {
    qn__cuda_stream_t* next = stream->next_captured;
    stream->next_captured = NULL;
    atomic_store(&stream->capture, NULL);
    stream = next;
  }
  graph->members = NULL;
  graph->origin = NULL;
  assert(device->capture_count > 0);
  device->capture_count--;
  qn__mutex_unlock(&device->mutex);
  qn__cuda_unload_deferred(device);
}

static qn_status_t begin(qn__cuda_device_t* device, qn__cuda_stream_t* stream) {
  if (!stream->native) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "cuda:%d: the default stream cannot record a graph: make a stream for it",
                          device->id);
  }
  QN_TRY(qn__cuda_not_capturing(stream, "another recording"));
  qn__cuda_graph_t* graph;
  QN_TRY(make(device, &graph));
  qn_status_t status =
      qn__cuda_check(device, qn__cuda()->capture_begin(stream->native, QN__CU_CAPTURE_MODE_RELAXED),
                     "beginning to record");
  if (!qn_ok(status)) {
    qn__cuda_graph_release(graph);
    return status;
  }
  qn__mutex_lock(&device->mutex);
  device->capture_count++;
  graph->origin = stream;
  graph->members = stream;
  stream->next_captured = NULL;
  atomic_store(&stream->capture, graph);
  qn__mutex_unlock(&device->mutex);
  return QN_OK;
}

qn_status_t qn__cuda_capture_begin(int32_t id, void* inner) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  qn_status_t status = begin(device, qn__cuda_stream(device, inner));
  qn__cuda_leave(&scope);
  return status;
}

// Ends the driver's capture and instantiates the graph, or releases it after a failure.
static qn_status_t end(qn__cuda_stream_t* stream, qn__cuda_graph_t* graph) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__cuda_device_t* device = stream->device;
  CUgraph recorded = NULL;
  qn_status_t status =
      qn__cuda_check(device, cu->capture_end(stream->native, &recorded), "ending the recording");
  // A failure usually ends the capture, too. Make sure: the stream must not stay in it.
  CUstreamCaptureStatus state = QN__CU_CAPTURE_STATUS_NONE;
  if (!qn_ok(status) && cu->is_capturing(stream->native, &state) == QN__CU_OK &&
      state != QN__CU_CAPTURE_STATUS_NONE) {
    (void)cu->capture_end(stream->native, &recorded);
  }
  stop(graph);
  if (qn_ok(status)) {
    status = qn__cuda_check(device, cu->graph_instantiate(&graph->exec, recorded, 0),
                            "instantiating a recorded graph");
  }
  if (recorded) (void)cu->graph_destroy(recorded);
  if (!qn_ok(status)) qn__cuda_graph_release(graph);
  return status;
}

qn_status_t qn__cuda_capture_end(int32_t id, void* inner, void** out_graph) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  *out_graph = NULL;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  qn__cuda_stream_t* stream = qn__cuda_stream(device, inner);
  qn__cuda_graph_t* graph = atomic_load(&stream->capture);
  qn_status_t status = QN_OK;
  if (!graph || graph->origin != stream) {
    status = qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                            "cuda:%d: the stream %s, so it cannot end a recording", id,
                            graph ? "only joined the one that records" : "records nothing");
  } else {
    status = end(stream, graph);
    if (qn_ok(status)) *out_graph = graph;
  }
  qn__cuda_leave(&scope);
  return status;
}

void qn__cuda_capture_abandon(qn__cuda_stream_t* stream) {
  qn__cuda_graph_t* graph = atomic_load(&stream->capture);
  if (!graph) return;
  if (graph->origin == stream) {
    qn_status_t status = end(stream, graph);
    if (qn_ok(status)) qn__cuda_graph_release(graph);
    qn_status_free(status);
    return;
  }
  // The stream had joined: the capture continues, and its end will report the missing join.
  qn__mutex_lock(&graph->device->mutex);
  for (qn__cuda_stream_t** at = &graph->members; *at; at = &(*at)->next_captured) {
    if (*at != stream) continue;
    *at = stream->next_captured;
    break;
  }
  atomic_store(&stream->capture, NULL);
  qn__mutex_unlock(&graph->device->mutex);
}

// ---------------------------------------------------------------------------------- launching

// Launches the graph, and clears or poisons its record before if needed. Only this thread clears
// the record, so no failure is lost.
static qn_status_t run_graph(qn__cuda_graph_t* graph, qn__cuda_stream_t* stream,
                             uint64_t position) {
  qn__cuda_device_t* device = graph->device;
  const bool may_fail = atomic_load_explicit(&graph->may_fail, memory_order_relaxed);
  if (may_fail && atomic_exchange(&graph->is_clear_due, false)) {
    qn_status_t status = qn__cuda_error_record_clear(device, graph->record, stream->native);
    if (!qn_ok(status)) {
      atomic_store(&graph->is_clear_due, true);
      return status;
    }
  } else if (may_fail && atomic_load(&graph->unread_count) > 0 &&
             graph->stream_number == stream->number) {
    // Not on another stream, where it could run at the same time as the launch that fails.
    QN_TRY(qn__cuda_error_record_poison(device, graph->record, stream->native));
  }
  // Read after the clear, so that a failure of this launch is not taken for one already reported.
  const uint32_t report_count = atomic_load(&graph->report_count);
  QN_TRY(qn__cuda_check(device, qn__cuda()->graph_launch(graph->exec, stream->native),
                        "launching a graph"));
  graph->stream_number = stream->number;
  if (may_fail) atomic_fetch_add(&graph->unread_count, 1);
  return may_fail ? qn__cuda_batch_copy_graph(stream, position, report_count) : QN_OK;
}

qn_status_t qn__cuda_graph_launch(int32_t id, void* self, void* inner) {
  qn__cuda_graph_t* graph = self;
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_enter_fast(id, &device, &scope));
  qn__cuda_stream_t* stream = qn__cuda_stream(device, inner);
  qn_status_t status = qn__cuda_not_capturing(stream, "launching a graph");
  uint64_t position;
  qn__cuda_tags_t tags;
  if (qn_ok(status)) status = qn__cuda_batch_begin(stream, NULL, graph, NULL, &position, &tags);
  if (qn_ok(status)) {
    status = run_graph(graph, stream, position);
    qn__cuda_batch_end(stream, position);
  }
  qn__cuda_leave(&scope);
  return status;
}

void qn__cuda_graph_destroy(int32_t id, void* self) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  if (qn__cuda_is_forked()) return;
  qn_status_t status = qn__cuda_enter(id, &device, &scope);
  qn__cuda_graph_release(self);
  if (qn_ok(status)) qn__cuda_leave(&scope);
  qn_status_free(status);
}

// ---------------------------------------------------------------------------- graphs of the host

typedef struct host_owner {
  qn__cuda_owner_t owner;
  struct host_owner* next;
} host_graph_owner_t;

static _Atomic(host_graph_owner_t*) destroyed;

static void host_owner_destroyed(void* self) {
  host_graph_owner_t* host_owner = self;
  host_owner->next = atomic_load(&destroyed);
  while (!atomic_compare_exchange_weak(&destroyed, &host_owner->next, host_owner)) continue;
}

void qn__cuda_host_graph_release_owners(void) {
  host_graph_owner_t* list = atomic_load(&destroyed) ? atomic_exchange(&destroyed, NULL) : NULL;
  while (list) {
    host_graph_owner_t* host_owner = list;
    list = host_owner->next;
    host_owner->owner.release(host_owner->owner.owner);
    qn__free(qn_allocator_default(), host_owner, sizeof *host_owner);
  }
}

qn_status_t qn__cuda_host_graph_retain_owner(qn__cuda_stream_t* stream, const qn_launch_t* launch) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__cuda_device_t* device = stream->device;
  if (!cu->capture_info || !cu->user_object_create || !cu->user_object_release ||
      !cu->graph_retain_user_object) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "cuda:%d: the driver is too old for functions in graphs of the host",
                          device->id);
  }
  CUstreamCaptureStatus state = QN__CU_CAPTURE_STATUS_NONE;
  uint64_t number = 0;
  CUgraph graph = NULL;
  QN_TRY(qn__cuda_check(device,
                        cu->capture_info(stream->native, &state, &number, &graph, NULL, NULL),
                        "querying a stream's capture"));
  if (state != QN__CU_CAPTURE_STATUS_ACTIVE) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "cuda:%d: what the host records on the stream is no longer valid",
                          device->id);
  }
  host_graph_owner_t* host_owner = qn__alloc_zero(qn_allocator_default(), 1, sizeof *host_owner);
  if (!host_owner) return qn__out_of_memory("a recorded call");
  CUuserObject object = NULL;
  qn_status_t status =
      qn__cuda_check(device,
                     cu->user_object_create(&object, host_owner, host_owner_destroyed, 1,
                                            QN__CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
                     "creating a user object");
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), host_owner, sizeof *host_owner);
    return status;
  }
  host_owner->owner = (qn__cuda_owner_t){launch->owner, launch->release, launch->describe};
  launch->retain(launch->owner);
  status = qn__cuda_check(
      device, cu->graph_retain_user_object(graph, object, 1, QN__CU_GRAPH_USER_OBJECT_MOVE),
      "retaining a function in a graph");
  // Drops the last reference, which calls `host_owner_destroyed`.
  if (!qn_ok(status)) (void)cu->user_object_release(object, 1);
  return status;
}
