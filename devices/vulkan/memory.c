// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/memory.c: blocks of memory, allocations from them, and addresses.
//
// Requirements:
//  1. An address is decoded without a lock. Block objects are freed only when the device is closed.
//     A block gets its uid when it is complete, and loses it before its memory is freed.
//  2. The driver is called without the lock. So a block is put into its pool only once it is
//     complete.
//  3. A block is destroyed only when no unfinished work can use it, even if the program freed it
//     too early: a retired block waits for a fence of all busy streams.
//  4. One empty block of each pool is kept. So a program that allocates and frees at the limit of a
//     block does not create and destroy a block each time.
#include "devices/vulkan/memory.h"

#include "base/alloc.h"
#include "devices/vulkan/context.h"
#include "devices/vulkan/stream.h"

#define SHARED_BYTES (UINT64_C(64) << 20)
#define SMALLEST_SHARED_BYTES (UINT64_C(1) << 20)

// ---------------------------------------------------------------------------------- blocks

// Finds the first memory type with all flags of `wanted` and none of `unwanted`; UINT32_MAX: none.
static uint32_t find_type(const qn__vk_info_t* info, uint32_t allowed, VkMemoryPropertyFlags wanted,
                          VkMemoryPropertyFlags unwanted) {
  for (uint32_t i = 0; i < info->memory.memoryTypeCount; i++) {
    VkMemoryPropertyFlags flags = info->memory.memoryTypes[i].propertyFlags;
    if ((allowed >> i & 1u) && (flags & wanted) == wanted && !(flags & unwanted)) return i;
  }
  return UINT32_MAX;
}

static void choose_types(qn__vk_device_t* device, uint32_t allowed) {
  const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  const VkMemoryPropertyFlags visible =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  const VkMemoryPropertyFlags cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  // Flags that such memory must not have: protected, or slow for the device.
  const VkMemoryPropertyFlags odd = VK_MEMORY_PROPERTY_PROTECTED_BIT |
                                    VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT |
                                    VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD;
  const VkMemoryPropertyFlags unified[][2] = {
      {local | visible | cached, odd}, {local | visible, odd}, {local, odd}, {0, odd}};
  const VkMemoryPropertyFlags discrete[][2] = {
      {local, odd | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT}, {local, odd}, {0, odd}, {0, odd}};
  const VkMemoryPropertyFlags host[][2] = {{visible | cached, odd | local},
                                           {visible | cached, odd},
                                           {visible, odd | local},
                                           {visible, odd}};
  const qn__vk_info_t* info = &device->info;
  qn__vk_memory_t* memory = &device->memory;
  memory->type[QN__VK_POOL_DEVICE] = memory->type[QN__VK_POOL_HOST] = UINT32_MAX;
  for (size_t i = 0; i < 4; i++) {
    const VkMemoryPropertyFlags* own = info->is_unified ? unified[i] : discrete[i];
    if (memory->type[QN__VK_POOL_DEVICE] == UINT32_MAX) {
      memory->type[QN__VK_POOL_DEVICE] = find_type(info, allowed, own[0], own[1]);
    }
    if (memory->type[QN__VK_POOL_HOST] == UINT32_MAX) {
      memory->type[QN__VK_POOL_HOST] = find_type(info, allowed, host[i][0], host[i][1]);
    }
  }
}

static VkBufferCreateInfo buffer_of(uint64_t size_bytes) {
  return (VkBufferCreateInfo){.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                              .size = size_bytes,
                              .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                       VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                       VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                              .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
}

qn_status_t qn__vk_memory_init(qn__vk_device_t* device) {
  qn__vk_memory_t* memory = &device->memory;
  // The allowed memory types depend only on the usage of a buffer, so a small one tells them.
  VkBufferCreateInfo create = buffer_of(QN__VK_GRANULE);
  VkBuffer probe;
  QN_TRY(qn__vk_status(device, device->vk.CreateBuffer(device->handle, &create, NULL, &probe),
                       "vkCreateBuffer"));
  VkMemoryRequirements needs;
  device->vk.GetBufferMemoryRequirements(device->handle, probe, &needs);
  device->vk.DestroyBuffer(device->handle, probe, NULL);
  choose_types(device, needs.memoryTypeBits);
  for (size_t pool = 0; pool < QN__VK_POOL_COUNT; pool++) {
    uint32_t type = memory->type[pool];
    if (type == UINT32_MAX) {
      return qn_status_make(QN_STATUS_DEVICE_ERROR, "vulkan:%d: no memory that %s", device->id,
                            pool == QN__VK_POOL_HOST ? "the host sees" : "buffers lie in");
    }
    const VkPhysicalDeviceMemoryProperties* properties = &device->info.memory;
    VkMemoryPropertyFlags flags = properties->memoryTypes[type].propertyFlags;
    memory->is_mapped[pool] =
        pool == QN__VK_POOL_HOST ||
        (device->info.is_unified && (flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0 &&
         (flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) != 0);
    memory->is_cached[pool] = (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
    uint64_t heap = properties->memoryHeaps[properties->memoryTypes[type].heapIndex].size;
    uint64_t shared = SHARED_BYTES;
    while (shared > heap / 8 && shared > SMALLEST_SHARED_BYTES) shared /= 2;
    memory->shared_bytes[pool] = shared;
  }
  memory->next_uid = 1;
  QN_TRY(qn__mutex_init(&memory->mutex));
  qn_status_t status = qn__vk_workspace_init(device);
  if (!qn_ok(status)) qn__mutex_deinit(&memory->mutex);
  return status;
}

// The driver's part of a block's end; the object stays.
static void destroy_memory(qn__vk_device_t* device, qn__vk_block_t* block) {
  device->vk.DestroyBuffer(device->handle, block->buffer, NULL);
  device->vk.FreeMemory(device->handle, block->memory, NULL);
  uint64_t size = atomic_load_explicit(&block->size_bytes, memory_order_relaxed);
  atomic_fetch_sub(&device->memory.block_count, 1);
  atomic_fetch_sub(&device->memory.reserved_bytes, size);
  block->buffer = VK_NULL_HANDLE;
  block->memory = VK_NULL_HANDLE;
  qn__ranges_deinit(&block->ranges);
}

void qn__vk_memory_deinit(qn__vk_device_t* device) {
  qn__vk_memory_t* memory = &device->memory;
  qn__vk_workspace_deinit(device);
  // A fence may be the last to hold a stream, whose end gives memory back: before any block goes.
  for (uint32_t i = 0; i < memory->table_count; i++) {
    qn__vk_block_t* block = atomic_load(&memory->table[i]);
    qn__vk_fence_t* fence = block->fence;
    block->fence = NULL;
    if (fence) qn__vk_fence_release(fence);
  }
  for (uint32_t i = 0; i < memory->table_count; i++) {
    qn__vk_block_t* block = atomic_load(&memory->table[i]);
    if (block->buffer) destroy_memory(device, block);
    qn__free(device->allocator, block, sizeof *block);
  }
  qn__mutex_deinit(&memory->mutex);
}

static qn_status_t no_memory(const qn__vk_device_t* device, qn__vk_pool_t pool, uint64_t size_bytes,
                             const char* why) {
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY,
                        "vulkan:%d: no %s memory for %" PRIu64 " bytes: %s", device->id,
                        pool == QN__VK_POOL_HOST ? "pinned" : "device", size_bytes, why);
}

// Creates the buffer and memory of a block. Call it without the lock.
static qn_status_t create_memory(qn__vk_device_t* device, qn__vk_block_t* block, qn__vk_pool_t pool,
                                 uint64_t size_bytes) {
  uint32_t type = device->memory.type[pool];
  VkBufferCreateInfo create = buffer_of(size_bytes);
  VkResult result = device->vk.CreateBuffer(device->handle, &create, NULL, &block->buffer);
  if (result != VK_SUCCESS) {
    block->buffer = VK_NULL_HANDLE;
    return no_memory(device, pool, size_bytes, qn__vk_result_text(result));
  }
  VkMemoryRequirements needs;
  device->vk.GetBufferMemoryRequirements(device->handle, block->buffer, &needs);
  VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                   .allocationSize = needs.size,
                                   .memoryTypeIndex = type};
  if (needs.size > device->info.max_allocation_bytes) {
    result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
  } else {
    result = device->vk.AllocateMemory(device->handle, &allocate, NULL, &block->memory);
  }
  if (result == VK_SUCCESS) {
    result = device->vk.BindBufferMemory(device->handle, block->buffer, block->memory, 0);
    void* mapped = NULL;
    if (result == VK_SUCCESS && device->memory.is_mapped[pool]) {
      result = device->vk.MapMemory(device->handle, block->memory, 0, VK_WHOLE_SIZE, 0, &mapped);
    }
    block->mapped = mapped;
    if (result == VK_SUCCESS) return QN_OK;
    device->vk.FreeMemory(device->handle, block->memory, NULL);
    block->memory = VK_NULL_HANDLE;
  }
  device->vk.DestroyBuffer(device->handle, block->buffer, NULL);
  block->buffer = VK_NULL_HANDLE;
  if (result == VK_ERROR_DEVICE_LOST) return qn__vk_status(device, result, "vkAllocateMemory");
  return no_memory(device, pool, size_bytes, qn__vk_result_text(result));
}

// Returns a spare or new block object, with its index in the table. Locked.
static qn__vk_block_t* new_object(qn__vk_device_t* device) {
  qn__vk_memory_t* memory = &device->memory;
  qn__vk_block_t* block = memory->spare;
  if (block) {
    memory->spare = block->next;
    return block;
  }
  if (memory->table_count == QN__VK_MAX_BLOCKS) return NULL;
  block = qn__alloc_zero(device->allocator, 1, sizeof *block);
  if (!block) return NULL;
  block->index = memory->table_count++;
  atomic_store_explicit(&memory->table[block->index], block, memory_order_release);
  return block;
}

// Destroys the memory of retired blocks whose work has completed. Locked; unlocks for driver calls.
static void destroy_completed(qn__vk_device_t* device) {
  qn__vk_memory_t* memory = &device->memory;
  for (qn__vk_block_t** at = &memory->retired; *at;) {
    qn__vk_block_t* block = *at;
    if (block->fence && !qn__vk_fence_is_completed(block->fence)) {
      at = &block->next;
      continue;
    }
    *at = block->next;
    qn__vk_fence_t* fence = block->fence;
    block->fence = NULL;
    qn__mutex_unlock(&memory->mutex);
    if (fence) qn__vk_fence_release(fence);
    destroy_memory(device, block);
    qn__mutex_lock(&memory->mutex);
    block->next = memory->spare;
    memory->spare = block;
    at = &memory->retired;
  }
}

// Makes a block with memory. The caller owns it until the caller puts it into its pool.
static qn_status_t make_block(qn__vk_device_t* device, qn__vk_pool_t pool, uint64_t size_bytes,
                              bool is_dedicated, qn__vk_block_t** out_block) {
  qn__vk_memory_t* memory = &device->memory;
  qn__mutex_lock(&memory->mutex);
  destroy_completed(device);
  qn__vk_block_t* block = new_object(device);
  qn__mutex_unlock(&memory->mutex);
  if (!block) return no_memory(device, pool, size_bytes, "too many blocks, or no host memory");
  block->pool = pool;
  block->is_dedicated = is_dedicated;
  qn_status_t status = QN_OK;
  if (!qn__ranges_init(&block->ranges, device->allocator, QN__VK_GRANULE, size_bytes)) {
    status = qn__out_of_memory("a block of device memory");
  }
  if (qn_ok(status)) {
    status = create_memory(device, block, pool, size_bytes);
    if (!qn_ok(status)) qn__ranges_deinit(&block->ranges);
  }
  qn__mutex_lock(&memory->mutex);
  if (!qn_ok(status)) {
    block->next = memory->spare;
    memory->spare = block;
    qn__mutex_unlock(&memory->mutex);
    return status;
  }
  assert(atomic_load(&block->uid) == 0 && !block->fence);
  atomic_store_explicit(&block->size_bytes, size_bytes, memory_order_relaxed);
  atomic_store_explicit(&block->uid, memory->next_uid++, memory_order_release);
  qn__mutex_unlock(&memory->mutex);
  atomic_fetch_add(&memory->block_count, 1);
  atomic_fetch_add(&memory->reserved_bytes, size_bytes);
  *out_block = block;
  return QN_OK;
}

// ---------------------------------------------------------------------------------- allocations

static bool allocate_shared(qn__vk_device_t* device, qn__vk_pool_t pool, uint64_t size_bytes,
                            uint64_t alignment_bytes, qn__vk_place_t* out_place) {
  for (qn__vk_block_t* block = device->memory.pools[pool]; block; block = block->next) {
    if (block->is_dedicated) continue;
    uint64_t offset;
    if (!qn__ranges_allocate(&block->ranges, size_bytes, alignment_bytes, &offset)) continue;
    *out_place = (qn__vk_place_t){block, offset};
    return true;
  }
  return false;
}

static qn_status_t allocate(qn__vk_device_t* device, qn__vk_pool_t pool, uint64_t size_bytes,
                            uint64_t alignment_bytes, qn__vk_place_t* out_place) {
  qn__vk_memory_t* memory = &device->memory;
  uint64_t shared = memory->shared_bytes[pool];
  bool is_dedicated = size_bytes > shared / 2 || alignment_bytes > shared / 4;
  uint64_t block_bytes = shared;
  if (is_dedicated) {
    block_bytes = (size_bytes + QN__VK_GRANULE - 1) & ~(uint64_t)(QN__VK_GRANULE - 1);
  } else {
    qn__mutex_lock(&memory->mutex);
    bool is_done = allocate_shared(device, pool, size_bytes, alignment_bytes, out_place);
    qn__mutex_unlock(&memory->mutex);
    if (is_done) return QN_OK;
  }
  qn__vk_block_t* block = NULL;
  QN_TRY(make_block(device, pool, block_bytes, is_dedicated, &block));
  // Only host memory can be exhausted here. The empty block stays for later allocations. A
  // dedicated block needs no alignment: its address ends with zeros.
  uint64_t offset = 0;
  const bool is_done =
      qn__ranges_allocate(&block->ranges, size_bytes, is_dedicated ? 1 : alignment_bytes, &offset);
  assert(!is_done || offset == 0);
  qn__mutex_lock(&memory->mutex);
  block->next = memory->pools[pool];
  memory->pools[pool] = block;
  qn__mutex_unlock(&memory->mutex);
  if (!is_done) return qn__out_of_memory("a part of device memory");
  *out_place = (qn__vk_place_t){block, offset};
  return QN_OK;
}

// Removes a block from its pool and clears its uid, so that no later call finds it. Locked.
static void unlist_block(qn__vk_device_t* device, qn__vk_block_t* block) {
  qn__vk_memory_t* memory = &device->memory;
  for (qn__vk_block_t** at = &memory->pools[block->pool]; *at; at = &(*at)->next) {
    if (*at != block) continue;
    *at = block->next;
    break;
  }
  atomic_store_explicit(&block->uid, 0, memory_order_release);
  atomic_fetch_add_explicit(&memory->generation, 1, memory_order_release);
}

// Destroys an unlisted block once all work enqueued until now has completed, as that work may still
// use it.
static void retire_block(qn__vk_device_t* device, qn__vk_block_t* block) {
  qn__vk_memory_t* memory = &device->memory;
  qn__vk_fence_t* fence = NULL;
  while (!qn__vk_fence_create(device, &fence)) qn__vk_drain_all(device, INT64_MAX);
  qn__mutex_lock(&memory->mutex);
  assert(atomic_load(&block->uid) == 0 && !block->fence);
  block->fence = fence;
  block->next = memory->retired;
  memory->retired = block;
  destroy_completed(device);
  qn__mutex_unlock(&memory->mutex);
}

// Finds an empty block that is not needed; NULL: none. `keeps_one`: of the shared ones, one is
// needed. Locked.
static qn__vk_block_t* find_surplus(qn__vk_device_t* device, qn__vk_pool_t pool, bool keeps_one) {
  for (qn__vk_block_t* block = device->memory.pools[pool]; block; block = block->next) {
    if (block->ranges.allocated_count != 0) continue;
    if (!keeps_one || block->is_dedicated) return block;
    keeps_one = false;
  }
  return NULL;
}

static void drop_surplus(qn__vk_device_t* device, qn__vk_pool_t pool, bool keeps_one) {
  qn__vk_memory_t* memory = &device->memory;
  qn__mutex_lock(&memory->mutex);
  qn__vk_block_t* block = find_surplus(device, pool, keeps_one);
  if (block) unlist_block(device, block);
  destroy_completed(device);
  qn__mutex_unlock(&memory->mutex);
  if (block) retire_block(device, block);
}

qn_status_t qn__vk_memory_allocate(qn__vk_device_t* device, qn__vk_pool_t pool, uint64_t size_bytes,
                                   uint64_t alignment_bytes, qn__vk_place_t* out_place) {
  if (size_bytes > device->info.max_buffer_bytes || size_bytes > QN__VK_OFFSET_MASK) {
    return no_memory(device, pool, size_bytes, "beyond the largest buffer of the device");
  }
  if (size_bytes == 0) size_bytes = 1;
  if (alignment_bytes > UINT64_C(1) << 32) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "vulkan:%d: an alignment of %" PRIu64 " bytes; at most 4 GiB", device->id,
                          alignment_bytes);
  }
  qn_status_t status = allocate(device, pool, size_bytes, alignment_bytes, out_place);
  if (qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY &&
      !atomic_load_explicit(&device->is_lost, memory_order_relaxed)) {
    // Frees cached workspace, an empty block, and retired blocks, then tries again.
    qn_status_t first = status;
    qn__vk_drain_all(device, INT64_MAX);
    qn__vk_workspace_trim(device);
    drop_surplus(device, pool, false);
    status = allocate(device, pool, size_bytes, alignment_bytes, out_place);
    qn_status_free(first);
  }
  QN_TRY(status);
  atomic_fetch_add(&device->memory.used_bytes, qn__vk_memory_size(device, *out_place));
  return QN_OK;
}

uint64_t qn__vk_memory_size(qn__vk_device_t* device, qn__vk_place_t place) {
  qn__mutex_lock(&device->memory.mutex);
  uint64_t size = qn__ranges_size(&place.block->ranges, place.offset);
  qn__mutex_unlock(&device->memory.mutex);
  return size;
}

qn_status_t qn__vk_memory_free(qn__vk_device_t* device, qn__vk_place_t place) {
  qn__vk_memory_t* memory = &device->memory;
  qn__vk_block_t* block = place.block;
  uint64_t size = 0;
  qn__mutex_lock(&memory->mutex);
  // Another thread may have freed it, and with it the block.
  if (atomic_load(&block->uid) != 0) size = qn__ranges_size(&block->ranges, place.offset);
  if (size != 0) (void)qn__ranges_free(&block->ranges, place.offset);
  const bool has_surplus = size != 0 && block->ranges.allocated_count == 0 &&
                           find_surplus(device, block->pool, true) != NULL;
  const qn__vk_pool_t pool = block->pool;
  qn__mutex_unlock(&memory->mutex);
  if (size == 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "vulkan:%d: no allocation starts at 0x%" PRIx64 "; freed twice?",
                          device->id, qn__vk_address(device, place));
  }
  const uint64_t used_bytes = atomic_fetch_sub(&memory->used_bytes, size);
  (void)used_bytes;
  assert(used_bytes >= size);
  if (has_surplus) drop_surplus(device, pool, true);
  return QN_OK;
}

// ---------------------------------------------------------------------------------- addresses

uint64_t qn__vk_address(const qn__vk_device_t* device, qn__vk_place_t place) {
  return QN__VK_ADDRESS_BIT | (uint64_t)device->id << QN__VK_DEVICE_SHIFT |
         (uint64_t)place.block->index << QN__VK_BLOCK_SHIFT | place.offset;
}

qn_status_t qn__vk_bad_address(const qn__vk_device_t* device, uint64_t address,
                               uint64_t size_bytes) {
  const char* why = "freed memory, or beyond the end of an allocation";
  if (address >> 57 != 1) {
    why = "not a handle of Vulkan memory";
  } else if ((address >> QN__VK_DEVICE_SHIFT & 15) != (uint64_t)device->id) {
    why = "memory of another Vulkan device";
  }
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "vulkan:%d: %" PRIu64 " bytes at 0x%" PRIx64 ": %s", device->id, size_bytes,
                        address, why);
}

bool qn__vk_find_pinned(qn__vk_device_t* device, const void* pointer, uint64_t size_bytes,
                        qn__vk_place_t* out_place) {
  bool is_found = false;
  uintptr_t address = (uintptr_t)pointer;
  qn__mutex_lock(&device->memory.mutex);
  for (qn__vk_block_t* block = device->memory.pools[QN__VK_POOL_HOST]; block && !is_found;
       block = block->next) {
    uintptr_t start = (uintptr_t)block->mapped;
    uint64_t size = atomic_load_explicit(&block->size_bytes, memory_order_relaxed);
    // The address after the last byte may be the first of another block.
    if (address < start || address - start >= size || size_bytes > size - (address - start)) {
      continue;
    }
    *out_place = (qn__vk_place_t){block, address - start};
    is_found = true;
  }
  qn__mutex_unlock(&device->memory.mutex);
  return is_found;
}

// ---------------------------------------------------------------------------------- the table's

qn_status_t qn__vk_allocate(int32_t id, size_t size_bytes, size_t alignment_bytes,
                            void** out_pointer) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__vk_place_t place;
  QN_TRY(qn__vk_memory_allocate(device, QN__VK_POOL_DEVICE, size_bytes, alignment_bytes, &place));
  // The number only looks like a pointer: no code dereferences it.
  uint64_t address = qn__vk_address(device, place);
  memcpy(out_pointer, &address, sizeof address);
  return QN_OK;
}

qn_status_t qn__vk_free(int32_t id, void* pointer) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__vk_place_t place;
  if (!qn__vk_decode(device, (uintptr_t)pointer, 0, &place)) {
    return qn__vk_bad_address(device, (uintptr_t)pointer, 0);
  }
  return qn__vk_memory_free(device, place);
}

qn_status_t qn__vk_host_allocate(int32_t id, size_t size_bytes, void** out_pointer) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__vk_place_t place;
  QN_TRY(qn__vk_memory_allocate(device, QN__VK_POOL_HOST, size_bytes, 0, &place));
  *out_pointer = place.block->mapped + place.offset;
  return QN_OK;
}

qn_status_t qn__vk_host_free(int32_t id, void* pointer) {
  qn__vk_device_t* device;
  QN_TRY(qn__vk_use(id, &device));
  qn__vk_place_t place;
  if (!qn__vk_find_pinned(device, pointer, 0, &place)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "vulkan:%d: %p is not pinned memory of this device", id, pointer);
  }
  return qn__vk_memory_free(device, place);
}
