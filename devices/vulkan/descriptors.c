// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/descriptors.c: the descriptor sets of a stream, found by their bindings.
//
// Descriptors bind whole blocks, so a few sets serve all calls. A set with a destroyed block is
// never found again, because the uid of a block is never used twice; it is freed as one of the
// oldest. A set may be freed when the stream has completed its last use. Thread rule: the stream's
// mutex.
#include "base/alloc.h"
#include "devices/vulkan/stream.h"

#define BUCKET_COUNT 256u
#define MAX_SETS 1024u
#define POOL_SETS 64u
#define POOL_DESCRIPTORS 512u

typedef struct set_pool {
  struct set_pool* next;
  VkDescriptorPool handle;
} set_pool_t;

typedef struct cached_set {
  struct cached_set* next;   // in its bucket
  struct cached_set* older;  // by last use
  struct cached_set* newer;
  uint64_t hash;
  uint64_t last_used;  // a value of the stream
  VkDescriptorSet set;
  VkDescriptorPool pool;
  uint32_t count;
  bool has_parameters;
  qn__vk_binding_t bindings[];
} cached_set_t;

struct qn__vk_sets {
  cached_set_t* buckets[BUCKET_COUNT];
  cached_set_t* newest;
  cached_set_t* oldest;
  size_t entry_count;
  set_pool_t* pools;
};

static size_t cached_set_bytes(uint32_t count) {
  return sizeof(cached_set_t) + count * sizeof(qn__vk_binding_t);
}

qn_status_t qn__vk_sets_make(qn__vk_device_t* device, struct qn__vk_sets** out_sets) {
  *out_sets = qn__alloc_zero(device->allocator, 1, sizeof **out_sets);
  return *out_sets ? QN_OK : qn__out_of_memory("descriptor sets");
}

void qn__vk_sets_destroy(qn__vk_device_t* device, struct qn__vk_sets* sets) {
  while (sets->newest) {
    cached_set_t* entry = sets->newest;
    sets->newest = entry->older;
    qn__free(device->allocator, entry, cached_set_bytes(entry->count));
    atomic_fetch_sub_explicit(&device->set_count, 1, memory_order_relaxed);
  }
  while (sets->pools) {
    set_pool_t* pool = sets->pools;
    sets->pools = pool->next;
    device->vk.DestroyDescriptorPool(device->handle, pool->handle, NULL);
    qn__free(device->allocator, pool, sizeof *pool);
  }
  qn__free(device->allocator, sets, sizeof *sets);
}

static void list_remove(struct qn__vk_sets* sets, cached_set_t* entry) {
  *(entry->newer ? &entry->newer->older : &sets->newest) = entry->older;
  *(entry->older ? &entry->older->newer : &sets->oldest) = entry->newer;
}

static void list_push(struct qn__vk_sets* sets, cached_set_t* entry) {
  entry->newer = NULL;
  entry->older = sets->newest;
  *(sets->newest ? &sets->newest->newer : &sets->oldest) = entry;
  sets->newest = entry;
}

static void drop_oldest(qn__vk_stream_t* stream) {
  struct qn__vk_sets* sets = stream->sets;
  qn__vk_device_t* device = stream->device;
  cached_set_t* entry = sets->oldest;
  for (cached_set_t** at = &sets->buckets[entry->hash % BUCKET_COUNT]; *at; at = &(*at)->next) {
    if (*at != entry) continue;
    *at = entry->next;
    break;
  }
  list_remove(sets, entry);
  (void)device->vk.FreeDescriptorSets(device->handle, entry->pool, 1, &entry->set);
  qn__free(device->allocator, entry, cached_set_bytes(entry->count));
  sets->entry_count--;
  atomic_fetch_sub_explicit(&device->set_count, 1, memory_order_relaxed);
}

static qn_status_t add_pool(qn__vk_stream_t* stream) {
  qn__vk_device_t* device = stream->device;
  set_pool_t* pool = qn__alloc_zero(device->allocator, 1, sizeof *pool);
  if (!pool) return qn__out_of_memory("a descriptor pool");
  const VkDescriptorPoolSize sizes[] = {{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, POOL_DESCRIPTORS},
                                        {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER_DYNAMIC, POOL_SETS}};
  VkDescriptorPoolCreateInfo create = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                       .flags = VK_DESCRIPTOR_POOL_CREATE_FREE_DESCRIPTOR_SET_BIT,
                                       .maxSets = POOL_SETS,
                                       .poolSizeCount = QN_COUNT_OF(sizes),
                                       .pPoolSizes = sizes};
  VkResult result = device->vk.CreateDescriptorPool(device->handle, &create, NULL, &pool->handle);
  if (result != VK_SUCCESS) {
    qn__free(device->allocator, pool, sizeof *pool);
    return qn__vk_status(device, result, "vkCreateDescriptorPool");
  }
  pool->next = stream->sets->pools;
  stream->sets->pools = pool;
  return QN_OK;
}

// Allocates from the newest pool with room; older pools have room after sets were dropped.
static qn_status_t allocate_set(qn__vk_stream_t* stream, const qn__vk_layout_t* layout,
                                cached_set_t* entry) {
  qn__vk_device_t* device = stream->device;
  VkDescriptorSetAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                          .descriptorSetCount = 1,
                                          .pSetLayouts = &layout->set};
  VkResult result = VK_ERROR_OUT_OF_POOL_MEMORY;
  for (set_pool_t* pool = stream->sets->pools; pool; pool = pool->next) {
    allocate.descriptorPool = entry->pool = pool->handle;
    result = device->vk.AllocateDescriptorSets(device->handle, &allocate, &entry->set);
    if (result == VK_SUCCESS) return QN_OK;
    if (result != VK_ERROR_OUT_OF_POOL_MEMORY && result != VK_ERROR_FRAGMENTED_POOL) {
      return qn__vk_status(device, result, "vkAllocateDescriptorSets");
    }
  }
  QN_TRY(add_pool(stream));
  allocate.descriptorPool = entry->pool = stream->sets->pools->handle;
  result = device->vk.AllocateDescriptorSets(device->handle, &allocate, &entry->set);
  return qn__vk_status(device, result, "vkAllocateDescriptorSets");
}

static void write_set(qn__vk_device_t* device, const cached_set_t* entry,
                      const qn__vk_binding_source_t* sources) {
  VkDescriptorBufferInfo infos[QN__VK_MAX_BINDINGS + 1];
  VkWriteDescriptorSet writes[QN__VK_MAX_BINDINGS + 1];
  for (uint32_t i = 0; i < entry->count; i++) {
    bool is_dynamic = entry->has_parameters && i + 1 == entry->count;
    infos[i] =
        (VkDescriptorBufferInfo){sources[i].buffer, entry->bindings[i].offset, sources[i].range};
    writes[i] = (VkWriteDescriptorSet){
        .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
        .dstSet = entry->set,
        .dstBinding = i,
        .descriptorCount = 1,
        .descriptorType = is_dynamic ? VK_DESCRIPTOR_TYPE_STORAGE_BUFFER_DYNAMIC
                                     : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
        .pBufferInfo = &infos[i]};
  }
  device->vk.UpdateDescriptorSets(device->handle, entry->count, writes, 0, NULL);
}

static uint64_t hash_of(uint32_t count, bool has_parameters, const qn__vk_binding_t* bindings) {
  uint64_t hash = count * 2 + (has_parameters ? 1 : 0);
  for (uint32_t i = 0; i < count; i++) {
    hash = (hash ^ bindings[i].uid) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ (hash >> 29) ^ bindings[i].offset) * UINT64_C(0xBF58476D1CE4E5B9);
  }
  return hash ^ (hash >> 32);
}

static bool is_equal(const qn__vk_binding_t* a, const qn__vk_binding_t* b, uint32_t count) {
  uint64_t difference = 0;
  for (uint32_t i = 0; i < count; i++) {
    difference |= (a[i].uid ^ b[i].uid) | (a[i].offset ^ b[i].offset);
  }
  return difference == 0;
}

VkDescriptorSet qn__vk_sets_reuse_last(qn__vk_stream_t* stream) {
  cached_set_t* entry = stream->sets->newest;
  assert(entry && entry->last_used <= stream->open->value);
  entry->last_used = stream->open->value;
  return entry->set;
}

qn_status_t qn__vk_sets_find(qn__vk_stream_t* stream, const qn__vk_layout_t* layout, uint32_t count,
                             bool has_parameters, const qn__vk_binding_t* bindings,
                             const qn__vk_binding_source_t* sources, VkDescriptorSet* out_set) {
  struct qn__vk_sets* sets = stream->sets;
  qn__vk_device_t* device = stream->device;
  uint64_t value = stream->open->value;
  // Most launches bind the same buffers as the launch before.
  cached_set_t* entry = sets->newest;
  if (entry && entry->count == count && entry->has_parameters == has_parameters &&
      is_equal(entry->bindings, bindings, count)) {
    entry->last_used = value;
    *out_set = entry->set;
    return QN_OK;
  }
  uint64_t hash = hash_of(count, has_parameters, bindings);
  cached_set_t** bucket = &sets->buckets[hash % BUCKET_COUNT];
  for (entry = *bucket; entry; entry = entry->next) {
    if (entry->hash != hash || entry->count != count || entry->has_parameters != has_parameters ||
        !is_equal(entry->bindings, bindings, count)) {
      continue;
    }
    list_remove(sets, entry);
    list_push(sets, entry);
    entry->last_used = value;
    *out_set = entry->set;
    return QN_OK;
  }
  while (sets->entry_count >= MAX_SETS &&
         sets->oldest->last_used <=
             atomic_load_explicit(&stream->completed, memory_order_relaxed)) {
    drop_oldest(stream);
  }
  entry = qn__alloc(device->allocator, cached_set_bytes(count));
  if (!entry) return qn__out_of_memory("a descriptor set");
  *entry = (cached_set_t){
      .hash = hash, .last_used = value, .count = count, .has_parameters = has_parameters};
  memcpy(entry->bindings, bindings, count * sizeof *bindings);
  qn_status_t status = allocate_set(stream, layout, entry);
  if (!qn_ok(status)) {
    qn__free(device->allocator, entry, cached_set_bytes(count));
    return status;
  }
  write_set(device, entry, sources);
  entry->next = *bucket;
  *bucket = entry;
  list_push(sets, entry);
  sets->entry_count++;
  atomic_fetch_add_explicit(&device->set_count, 1, memory_order_relaxed);
  *out_set = entry->set;
  return QN_OK;
}
