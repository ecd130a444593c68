// devices/vulkan/workspace.c: temporary memory in stream order.
//
// A freed part is cached with its stream and the stream's last enqueued value. The same stream may
// reuse it at once, because its work runs in order; another stream only when that value has
// completed. Sizes are rounded up to four steps for each power of two, so that freed parts fit
// later requests. One mutex guards the cache.
#include "base/alloc.h"
#include "devices/vulkan/context.h"
#include "devices/vulkan/memory.h"
#include "devices/vulkan/stream.h"

#define CLASS_COUNT 192u
#define SMALLEST_BYTES 4096u
#define CACHE_LIMIT_BYTES (UINT64_C(512) << 20)
#define NONE UINT32_MAX

typedef struct cached {
  uint64_t address;
  uint64_t size_bytes;
  qn__vk_stream_t* stream;  // retained
  uint64_t completes_at;
  uint32_t next;
} cached_t;

typedef struct qn__vk_workspace {
  qn__mutex_t mutex;
  cached_t* nodes;
  size_t node_capacity;
  uint32_t node_count;  // ever used
  uint32_t first_spare;
  uint64_t acquired_count;  // in use; each has a node reserved for its return
  uint64_t cached_count;
  uint64_t cached_bytes;
  uint32_t classes[CLASS_COUNT];
} workspace_t;

// Rounds the size up; returns its class.
static uint32_t round_size(uint64_t* inout_size_bytes) {
  uint64_t size = *inout_size_bytes;
  if (size < SMALLEST_BYTES) size = SMALLEST_BYTES;
  uint32_t log = 63u - (uint32_t)__builtin_clzll(size);
  uint64_t step = UINT64_C(1) << (log - 2);
  size = (size + step - 1) & ~(step - 1);
  *inout_size_bytes = size;
  log = 63u - (uint32_t)__builtin_clzll(size);
  return (log - 12) * 4 + (uint32_t)(size >> (log - 2) & 3u);
}

qn_status_t qn__vk_workspace_init(qn__vk_device_t* device) {
  workspace_t* self = qn__alloc_zero(device->allocator, 1, sizeof *self);
  if (!self) return qn__out_of_memory("workspace");
  qn_status_t status = qn__mutex_init(&self->mutex);
  if (!qn_ok(status)) {
    qn__free(device->allocator, self, sizeof *self);
    return status;
  }
  self->first_spare = NONE;
  for (size_t i = 0; i < CLASS_COUNT; i++) self->classes[i] = NONE;
  device->memory.workspace = self;
  return QN_OK;
}

void qn__vk_workspace_deinit(qn__vk_device_t* device) {
  workspace_t* self = device->memory.workspace;
  (void)qn__vk_workspace_trim(device);
  qn__mutex_deinit(&self->mutex);
  qn__free(device->allocator, self->nodes, self->node_capacity * sizeof *self->nodes);
  qn__free(device->allocator, self, sizeof *self);
  device->memory.workspace = NULL;
}

static bool is_completed(const cached_t* cached) {
  return qn__vk_stream_has_completed(cached->stream, cached->completes_at);
}

// Removes a node from its list and adds it to the spare ones. Locked.
static cached_t unlink_node(workspace_t* self, uint32_t* at) {
  uint32_t index = *at;
  cached_t cached = self->nodes[index];
  *at = cached.next;
  self->nodes[index].next = self->first_spare;
  self->first_spare = index;
  self->cached_count--;
  self->cached_bytes -= cached.size_bytes;
  return cached;
}

// Removes a part that `stream` may use now, preferring its own. Locked.
static bool pop_usable(workspace_t* self, uint32_t class_index, const qn__vk_stream_t* stream,
                       cached_t* out_cached) {
  uint32_t* other = NULL;
  for (uint32_t* at = &self->classes[class_index]; *at != NONE; at = &self->nodes[*at].next) {
    const cached_t* cached = &self->nodes[*at];
    if (cached->stream == stream) {
      *out_cached = unlink_node(self, at);
      return true;
    }
    if (!other && is_completed(cached)) other = at;
  }
  if (other) *out_cached = unlink_node(self, other);
  return other != NULL;
}

// Reserves a node for the return of one more part. Locked.
static bool reserve_node(workspace_t* self, qn_allocator_t allocator) {
  void* nodes = self->nodes;
  size_t needed = (size_t)(self->acquired_count + self->cached_count + 1);
  bool is_done = qn__grow(allocator, &nodes, &self->node_capacity, needed, sizeof *self->nodes);
  self->nodes = nodes;
  return is_done;
}

qn_status_t qn__vk_workspace_acquire(qn__vk_device_t* device, qn__vk_stream_t* stream,
                                     uint64_t size_bytes, uint64_t* out_address) {
  workspace_t* self = device->memory.workspace;
  if (size_bytes > UINT64_C(1) << 40) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "vulkan:%d: no workspace of %" PRIu64 " bytes",
                          device->id, size_bytes);
  }
  uint64_t rounded = size_bytes;
  uint32_t class_index = round_size(&rounded);
  cached_t cached = {0};
  qn__mutex_lock(&self->mutex);
  bool is_reserved = reserve_node(self, device->allocator);
  bool is_cached = is_reserved && pop_usable(self, class_index, stream, &cached);
  if (is_reserved) self->acquired_count++;
  qn__mutex_unlock(&self->mutex);
  if (!is_reserved) return qn__out_of_memory("workspace");
  if (is_cached) {
    qn__vk_stream_release(cached.stream);
    *out_address = cached.address;
    return QN_OK;
  }
  qn__vk_place_t place;
  qn_status_t status = qn__vk_memory_allocate(device, QN__VK_POOL_DEVICE, rounded, 0, &place);
  if (!qn_ok(status)) {
    qn__mutex_lock(&self->mutex);
    self->acquired_count--;
    qn__mutex_unlock(&self->mutex);
    return qn_status_annotate(status, "workspace of %" PRIu64 " bytes", size_bytes);
  }
  *out_address = qn__vk_address(device, place);
  return QN_OK;
}

static void free_cached(qn__vk_device_t* device, const cached_t* cached) {
  qn__vk_place_t place;
  if (qn__vk_decode(device, cached->address, 0, &place)) {
    qn_status_free(qn__vk_memory_free(device, place));
  }
  qn__vk_stream_release(cached->stream);
}

// Removes one cached part: of `stream` if given, else any whose work has completed. False: none.
// (The value of a failed submit is never completed, so a destroyed stream does not wait for it.)
static bool pop_completed(workspace_t* self, const qn__vk_stream_t* stream, uint64_t limit_bytes,
                          cached_t* out_cached) {
  bool is_found = false;
  qn__mutex_lock(&self->mutex);
  for (uint32_t c = CLASS_COUNT; c-- > 0 && !is_found && self->cached_bytes > limit_bytes;) {
    for (uint32_t* at = &self->classes[c]; *at != NONE; at = &self->nodes[*at].next) {
      const cached_t* cached = &self->nodes[*at];
      if (stream ? cached->stream != stream : !is_completed(cached)) continue;
      *out_cached = unlink_node(self, at);
      is_found = true;
      break;
    }
  }
  qn__mutex_unlock(&self->mutex);
  return is_found;
}

qn_status_t qn__vk_workspace_release(qn__vk_device_t* device, qn__vk_stream_t* stream,
                                     uint64_t address) {
  workspace_t* self = device->memory.workspace;
  qn__vk_place_t place;
  if (!qn__vk_decode(device, address, 0, &place)) return qn__vk_bad_address(device, address, 0);
  uint64_t size = qn__vk_memory_size(device, place);
  uint64_t rounded = size;
  uint32_t class_index = size == 0 ? 0 : round_size(&rounded);
  qn__mutex_lock(&self->mutex);
  bool is_known = size != 0 && rounded == size && self->acquired_count > 0;
  for (uint32_t at = is_known ? self->classes[class_index] : NONE; at != NONE;
       at = self->nodes[at].next) {
    is_known &= self->nodes[at].address != address;
  }
  if (is_known) {
    uint32_t index = self->first_spare;
    if (index != NONE) {
      self->first_spare = self->nodes[index].next;
    } else {
      index = self->node_count++;
    }
    qn__vk_stream_retain(stream);
    self->nodes[index] =
        (cached_t){.address = address,
                   .size_bytes = size,
                   .stream = stream,
                   .completes_at = atomic_load_explicit(&stream->enqueued, memory_order_acquire),
                   .next = self->classes[class_index]};
    self->classes[class_index] = index;
    self->acquired_count--;
    self->cached_count++;
    self->cached_bytes += size;
  }
  bool is_beyond = self->cached_bytes > CACHE_LIMIT_BYTES;
  qn__mutex_unlock(&self->mutex);
  if (!is_known) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "vulkan:%d: 0x%" PRIx64 " is not a workspace; freed twice?", device->id,
                          address);
  }
  cached_t cached;
  while (is_beyond && pop_completed(self, NULL, CACHE_LIMIT_BYTES, &cached))
    free_cached(device, &cached);
  return QN_OK;
}

bool qn__vk_workspace_trim(qn__vk_device_t* device) {
  cached_t cached;
  bool is_any = false;
  while (pop_completed(device->memory.workspace, NULL, 0, &cached)) {
    free_cached(device, &cached);
    is_any = true;
  }
  return is_any;
}

void qn__vk_workspace_forget(qn__vk_device_t* device, qn__vk_stream_t* stream) {
  cached_t cached;
  while (pop_completed(device->memory.workspace, stream, 0, &cached)) free_cached(device, &cached);
}

// ---------------------------------------------------------------------------------- the table's

qn_status_t qn__vk_workspace_allocate(int32_t id, void* stream, size_t size_bytes,
                                      void** out_pointer) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__vk_stream_t* own;
  QN_TRY(qn__vk_stream_of(device, stream, &own));
  uint64_t address;
  QN_TRY(qn__vk_workspace_acquire(device, own, size_bytes, &address));
  memcpy(out_pointer, &address, sizeof address);
  return QN_OK;
}

qn_status_t qn__vk_workspace_free(int32_t id, void* stream, void* pointer) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__vk_stream_t* own;
  QN_TRY(qn__vk_stream_of(device, stream, &own));
  return qn__vk_workspace_release(device, own, (uintptr_t)pointer);
}
