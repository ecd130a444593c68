// SPDX-License-Identifier: Apache-2.0
// devices/cuda/workspace.c: temporary memory in stream order.
//
// If the driver has memory pools, a pool of quern's own serves it: the device's default pool
// belongs to the host too, and returns its memory to the system at every sync. Else there are
// cached blocks (../workspace.h), whose last use ends with an event. Workspace of recorded calls
// belongs to the graph (graph.c).
//
// Read next: copy.c.
#include "base/alloc.h"
#include "devices/cuda/cuda.h"

#define MAX_CACHED_BYTES (UINT64_C(256) << 20)

typedef struct device_block {
  qn__workspace_block_t cached;  // must be first: `is_passed` casts it back
  CUevent event;                 // after its last use; NULL: not used yet
} device_block_t;

// Reports, without waiting, whether all uses have completed. False if the query fails.
static bool is_passed(const qn__workspace_block_t* cached) {
  const device_block_t* block = (const device_block_t*)(const void*)cached;
  return !block->event || qn__cuda()->event_query(block->event) == QN__CU_OK;
}

qn_status_t qn__cuda_workspace_init(qn__cuda_device_t* device) {
  return qn__workspace_init(&device->blocks, MAX_CACHED_BYTES, is_passed);
}

void qn__cuda_workspace_make_pool(qn__cuda_device_t* device) {
  const qn__cuda_driver_t* cu = qn__cuda();
  if (!device->has_pools || device->pool) return;
  CUmemPoolProps props;
  memset(&props, 0, sizeof props);
  props.allocType = QN__CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = QN__CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = device->handle;
  if (cu->pool_create(&device->pool, &props) != QN__CU_OK) {
    device->pool = NULL;  // use the blocks
    return;
  }
  uint64_t keep = MAX_CACHED_BYTES;
  (void)cu->pool_set_attribute(device->pool, QN__CU_MEMPOOL_RELEASE_THRESHOLD, &keep);
}

// ---------------------------------------------------------------------------------- blocks

static void destroy_blocks(qn__cuda_device_t* device, qn__workspace_block_t* list) {
  while (list) {
    device_block_t* block = (device_block_t*)(void*)list;
    list = list->next;
    const CUresult result = qn__cuda()->mem_free(block->cached.address);
    qn_status_free(qn__cuda_check(device, result, "freeing memory"));
    qn__cuda_event_release(device, block->event);
    qn__free(qn_allocator_default(), block, sizeof *block);
  }
}

void qn__cuda_workspace_trim(qn__cuda_device_t* device, size_t max_cached_bytes) {
  if (device->pool) (void)qn__cuda()->pool_trim(device->pool, max_cached_bytes);
  destroy_blocks(device, qn__workspace_trim(&device->blocks, max_cached_bytes));
}

static qn_status_t allocate_block(qn__cuda_stream_t* stream, size_t size_bytes,
                                  CUdeviceptr* out_address) {
  qn__cuda_device_t* device = stream->device;
  uint32_t size_class;
  QN_TRY(qn__cuda_not_capturing(stream, "workspace on a driver without memory pools"));
  if (!qn__workspace_class_of(size_bytes, &size_class)) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "cuda:%d: no workspace of %zu bytes", device->id,
                          size_bytes);
  }
  qn__workspace_block_t* found = qn__workspace_acquire(&device->blocks, size_class, stream->number);
  if (found) {
    *out_address = found->address;
    return QN_OK;
  }
  device_block_t* block = qn__alloc_zero(qn_allocator_default(), 1, sizeof *block);
  if (!block) return qn__out_of_memory("workspace");
  qn_status_t status =
      qn__cuda_memory_allocate(device, qn__workspace_class_bytes(size_class), out_address);
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), block, sizeof *block);
    return status;
  }
  block->cached = (qn__workspace_block_t){.address = *out_address, .size_class = size_class};
  qn__workspace_add(&device->blocks, &block->cached);
  return QN_OK;
}

static qn_status_t free_block(qn__cuda_stream_t* stream, CUdeviceptr address) {
  qn__cuda_device_t* device = stream->device;
  QN_TRY(qn__cuda_not_capturing(stream, "workspace on a driver without memory pools"));
  device_block_t* block = (device_block_t*)(void*)qn__workspace_remove(&device->blocks, address);
  if (!block) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "cuda:%d: 0x%llx is no workspace", device->id,
                          address);
  }
  qn_status_t status = block->event ? QN_OK : qn__cuda_event_acquire(device, &block->event);
  if (qn_ok(status)) {
    status = qn__cuda_check(device, qn__cuda()->event_record(block->event, stream->native),
                            "recording an event");
  }
  if (!qn_ok(status)) {
    // Without an event the end of its use is unknown: leak it.
    qn__cuda_event_release(device, block->event);
    qn__free(qn_allocator_default(), block, sizeof *block);
    return status;
  }
  block->cached.stream = stream->number;
  destroy_blocks(device, qn__workspace_release(&device->blocks, &block->cached));
  return QN_OK;
}

// ---------------------------------------------------------------------------------- pool or blocks

qn_status_t qn__cuda_stream_workspace_allocate(qn__cuda_stream_t* stream, size_t size_bytes,
                                               CUdeviceptr* out_address) {
  qn__cuda_device_t* device = stream->device;
  const qn__cuda_driver_t* cu = qn__cuda();
  *out_address = 0;
  if (size_bytes == 0) size_bytes = 1;
  qn__cuda_graph_t* graph = atomic_load_explicit(&stream->capture, memory_order_acquire);
  if (graph) return qn__cuda_graph_workspace_allocate(graph, size_bytes, out_address);
  qn__cuda_scope_t scope;
  if (!device->pool) {
    QN_TRY(qn__cuda_relax(device, &scope));
    qn_status_t status = allocate_block(stream, size_bytes, out_address);
    qn__cuda_leave(&scope);
    return status;
  }
  CUresult result = cu->pool_alloc(out_address, size_bytes, device->pool, stream->native);
  if (result == QN__CU_OUT_OF_MEMORY) {
    QN_TRY(qn__cuda_relax(device, &scope));
    (void)cu->pool_trim(device->pool, 0);
    result = cu->pool_alloc(out_address, size_bytes, device->pool, stream->native);
    qn__cuda_leave(&scope);
  }
  return qn__cuda_check(device, result, "allocating %zu bytes of workspace", size_bytes);
}

qn_status_t qn__cuda_stream_workspace_free(qn__cuda_stream_t* stream, CUdeviceptr address) {
  qn__cuda_device_t* device = stream->device;
  qn__cuda_graph_t* graph = atomic_load_explicit(&stream->capture, memory_order_acquire);
  if (graph && qn__cuda_graph_workspace_free(graph, address)) return QN_OK;
  if (graph) {
    // The driver would end the capture: a graph frees only memory that it has allocated.
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "cuda:%d: workspace from before a recording cannot be freed in it: free "
                          "it on a stream that does not record",
                          device->id);
  }
  if (!device->pool) {
    qn__cuda_scope_t scope;
    QN_TRY(qn__cuda_relax(device, &scope));
    qn_status_t status = free_block(stream, address);
    qn__cuda_leave(&scope);
    return status;
  }
  return qn__cuda_check(device, qn__cuda()->pool_free(address, stream->native),
                        "freeing workspace");
}

// Refuses a stream on which the host captures: there, only memory that the graph has allocated may
// be freed, and nowhere else.
static qn_status_t not_recorded_by_host(const qn__cuda_stream_t* stream) {
  bool is_recorded;
  QN_TRY(qn__cuda_is_recorded_by_host(stream, &is_recorded));
  return is_recorded ? qn__cuda_not_capturing(stream, "workspace of the caller's") : QN_OK;
}

qn_status_t qn__cuda_workspace_allocate(int32_t id, void* inner, size_t size_bytes,
                                        void** out_pointer) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  CUdeviceptr address = 0;
  qn__cuda_stream_t* stream = qn__cuda_stream(device, inner);
  qn_status_t status = not_recorded_by_host(stream);
  if (qn_ok(status)) status = qn__cuda_stream_workspace_allocate(stream, size_bytes, &address);
  qn__cuda_leave(&scope);
  if (qn_ok(status)) *out_pointer = (void*)(uintptr_t)address;
  return status;
}

qn_status_t qn__cuda_workspace_free(int32_t id, void* inner, void* pointer) {
  qn__cuda_device_t* device;
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_enter(id, &device, &scope));
  qn__cuda_stream_t* stream = qn__cuda_stream(device, inner);
  qn_status_t status = not_recorded_by_host(stream);
  if (qn_ok(status)) {
    status = qn__cuda_stream_workspace_free(stream, (CUdeviceptr)(uintptr_t)pointer);
  }
  qn__cuda_leave(&scope);
  return status;
}
