// devices/cuda/workspace.c: temporary memory in stream order.
//
// If the driver has memory pools, a pool of quern's own serves it: the device's default pool
// belongs to the host too, and returns its memory to the system at every sync. Else there are
// cached blocks of powers of two. The stream that freed a block may reuse it at once; other streams
// only after the event that follows its last use. Workspace of recorded calls belongs to the graph
// (graph.c).
//
// Read next: copy.c.
#include "base/alloc.h"
#include "devices/cuda/cuda.h"

#define MAX_CACHED_BYTES ((size_t)256 << 20)
#define SMALLEST_CLASS 12u  // 4 KiB

struct qn__cuda_block {
  CUdeviceptr address;
  uint32_t size_class;
  uint64_t stream;  // number of the stream that last freed it
  CUevent event;    // after its last use; NULL: not used yet
  qn__cuda_block_t* next;
};

void qn__cuda_workspace_init(qn__cuda_device_t* device) {
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

static size_t class_bytes(uint32_t size_class) {
  return (size_t)1 << size_class;
}

static bool class_of(size_t size_bytes, uint32_t* out_class) {
  uint32_t size_class = SMALLEST_CLASS;
  while (size_class < QN__CUDA_SIZE_CLASSES - 2 && class_bytes(size_class) < size_bytes) {
    size_class++;
  }
  *out_class = size_class;
  return class_bytes(size_class) >= size_bytes;
}

static qn__cuda_block_t** bucket_of(qn__cuda_device_t* device, CUdeviceptr address) {
  return &device->live_blocks[(address >> SMALLEST_CLASS) % QN__CUDA_BUCKETS];
}

// Reports, without waiting, whether all uses have completed. False if the query fails.
static bool is_passed(const qn__cuda_block_t* block) {
  return !block->event || qn__cuda()->event_query(block->event) == QN__CU_OK;
}

static void destroy_blocks(qn__cuda_device_t* device, qn__cuda_block_t* list) {
  while (list) {
    qn__cuda_block_t* block = list;
    list = block->next;
    qn_status_free(qn__cuda_check(device, qn__cuda()->mem_free(block->address), "freeing memory"));
    qn__cuda_event_release(device, block->event);
    qn__free(qn_allocator_default(), block, sizeof *block);
  }
}

// Unlinks free blocks whose uses have completed, until at most `max_cached_bytes` remain. With the
// lock held.
static qn__cuda_block_t* unlink_passed(qn__cuda_device_t* device, size_t max_cached_bytes) {
  qn__cuda_block_t* list = NULL;
  for (uint32_t c = QN__CUDA_SIZE_CLASSES; c-- > SMALLEST_CLASS;) {
    for (qn__cuda_block_t** at = &device->free_blocks[c];
         *at && device->cached_bytes > max_cached_bytes;) {
      qn__cuda_block_t* block = *at;
      if (!is_passed(block)) {
        at = &block->next;
        continue;
      }
      *at = block->next;
      block->next = list;
      list = block;
      device->cached_bytes -= class_bytes(c);
    }
  }
  return list;
}

void qn__cuda_workspace_trim(qn__cuda_device_t* device, size_t max_cached_bytes) {
  if (device->pool) (void)qn__cuda()->pool_trim(device->pool, max_cached_bytes);
  qn__mutex_lock(&device->mutex);
  qn__cuda_block_t* list = unlink_passed(device, max_cached_bytes);
  qn__mutex_unlock(&device->mutex);
  destroy_blocks(device, list);
}

static qn_status_t allocate_block(qn__cuda_stream_t* stream, size_t size_bytes,
                                  CUdeviceptr* out_address) {
  qn__cuda_device_t* device = stream->device;
  uint32_t size_class;
  QN_TRY(qn__cuda_not_capturing(stream, "workspace on a driver without memory pools"));
  if (!class_of(size_bytes, &size_class)) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "cuda:%d: no workspace of %zu bytes", device->id,
                          size_bytes);
  }
  qn__cuda_block_t* found = NULL;
  qn__mutex_lock(&device->mutex);
  for (qn__cuda_block_t** at = &device->free_blocks[size_class]; *at; at = &(*at)->next) {
    if ((*at)->stream != stream->number && !is_passed(*at)) continue;
    found = *at;
    *at = found->next;
    device->cached_bytes -= class_bytes(size_class);
    break;
  }
  qn__mutex_unlock(&device->mutex);
  if (!found) {
    found = qn__alloc_zero(qn_allocator_default(), 1, sizeof *found);
    if (!found) return qn__out_of_memory("workspace");
    found->size_class = size_class;
    qn_status_t status = qn__cuda_memory_allocate(device, class_bytes(size_class), &found->address);
    if (!qn_ok(status)) {
      qn__free(qn_allocator_default(), found, sizeof *found);
      return status;
    }
  }
  *out_address = found->address;
  qn__mutex_lock(&device->mutex);
  qn__cuda_block_t** bucket = bucket_of(device, found->address);
  found->next = *bucket;
  *bucket = found;
  qn__mutex_unlock(&device->mutex);
  return QN_OK;
}

static qn_status_t free_block(qn__cuda_stream_t* stream, CUdeviceptr address) {
  qn__cuda_device_t* device = stream->device;
  qn__cuda_block_t* block = NULL;
  QN_TRY(qn__cuda_not_capturing(stream, "workspace on a driver without memory pools"));
  qn__mutex_lock(&device->mutex);
  for (qn__cuda_block_t** at = bucket_of(device, address); *at; at = &(*at)->next) {
    if ((*at)->address != address) continue;
    block = *at;
    *at = block->next;
    break;
  }
  qn__mutex_unlock(&device->mutex);
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
  block->stream = stream->number;
  qn__mutex_lock(&device->mutex);
  block->next = device->free_blocks[block->size_class];
  device->free_blocks[block->size_class] = block;
  device->cached_bytes += class_bytes(block->size_class);
  qn__cuda_block_t* list =
      device->cached_bytes > MAX_CACHED_BYTES ? unlink_passed(device, MAX_CACHED_BYTES) : NULL;
  qn__mutex_unlock(&device->mutex);
  destroy_blocks(device, list);
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
