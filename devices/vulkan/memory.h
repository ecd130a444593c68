// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/memory.h: allocates device memory and pinned host memory from blocks.
//
// A block is one VkBuffer. An address of device memory is a number on which pointer arithmetic
// works: bit 57 is set, then come four bits of the device, thirteen of the block and forty of the
// offset. Decoding takes no lock: it finds the block in a table and detects freed blocks. Pinned
// memory has the addresses that the host uses.
//
// Read next: memory.c, ../ranges.h, workspace.c.
#ifndef QUERN_DEVICES_VULKAN_MEMORY_H_
#define QUERN_DEVICES_VULKAN_MEMORY_H_

#define VK_NO_PROTOTYPES
#include <stdatomic.h>
#include <vulkan/vulkan_core.h>

#include "base/thread.h"
#include "devices/ranges.h"
#include "devices/workspace.h"
#include "quern/backend.h"

enum {
  QN__VK_MAX_BLOCKS = 8192,
  QN__VK_GRANULE = 256,  // allocations start at multiples of this many bytes
};

// An address, from above: the bit, the device, the block, the offset.
#define QN__VK_ADDRESS_BIT (UINT64_C(1) << 57)
#define QN__VK_DEVICE_SHIFT 53u
#define QN__VK_BLOCK_SHIFT 40u
#define QN__VK_OFFSET_MASK ((UINT64_C(1) << QN__VK_BLOCK_SHIFT) - 1)

struct qn__vk_device;
struct qn__vk_stream;
struct qn__vk_fence;

typedef enum qn__vk_pool {
  QN__VK_POOL_DEVICE = 0,  // the device's own memory
  QN__VK_POOL_HOST = 1,    // the host's, cached, mapped
  QN__VK_POOL_COUNT = 2,
} qn__vk_pool_t;

typedef struct qn__vk_block {
  _Atomic uint64_t uid;  // never used twice; 0: the block has no memory
  _Atomic uint64_t size_bytes;
  VkBuffer buffer;
  VkDeviceMemory memory;
  uint8_t* mapped;  // NULL: the host cannot access it
  qn__vk_pool_t pool;
  uint32_t index;              // in the table
  bool is_dedicated;           // for one allocation, and destroyed with it
  qn__ranges_t ranges;         // the allocations
  struct qn__vk_block* next;   // in its pool, in `spare` or in `retired`
  struct qn__vk_fence* fence;  // retired: the work that may still use it; NULL: none
} qn__vk_block_t;

typedef struct qn__vk_memory {
  qn__mutex_t mutex;
  _Atomic(qn__vk_block_t*) table[QN__VK_MAX_BLOCKS];
  uint32_t table_count;  // entries that were ever used
  qn__vk_block_t* pools[QN__VK_POOL_COUNT];
  qn__vk_block_t* spare;    // objects without memory
  qn__vk_block_t* retired;  // freed, but unfinished work may still use them
  uint64_t next_uid;
  _Atomic uint64_t generation;       // increases when a block loses its uid
  uint32_t type[QN__VK_POOL_COUNT];  // memory type
  bool is_mapped[QN__VK_POOL_COUNT];
  bool is_cached[QN__VK_POOL_COUNT];         // by the host, if it is mapped
  uint64_t shared_bytes[QN__VK_POOL_COUNT];  // the size of a shared block
  _Atomic uint64_t block_count, reserved_bytes, used_bytes;
  qn__workspace_t workspace;
} qn__vk_memory_t;

// A position in a block.
typedef struct qn__vk_place {
  qn__vk_block_t* block;
  uint64_t offset;
} qn__vk_place_t;

qn_status_t qn__vk_memory_init(struct qn__vk_device* device);
void qn__vk_memory_deinit(struct qn__vk_device* device);

// Allocates memory from a shared block, or a dedicated block for large sizes. `alignment_bytes`: a
// power of two. Errors: OUT_OF_MEMORY.
qn_status_t qn__vk_memory_allocate(struct qn__vk_device* device, qn__vk_pool_t pool,
                                   uint64_t size_bytes, uint64_t alignment_bytes,
                                   qn__vk_place_t* out_place);
// Frees an allocation. Errors: INVALID_ARGUMENT if none starts at `place`.
qn_status_t qn__vk_memory_free(struct qn__vk_device* device, qn__vk_place_t place);
// Returns the size of the allocation that starts at `place`; 0: none does.
uint64_t qn__vk_memory_size(struct qn__vk_device* device, qn__vk_place_t place);

// Returns the address of a place in device memory.
uint64_t qn__vk_address(const struct qn__vk_device* device, qn__vk_place_t place);
// Makes the error for an address that qn__vk_decode rejects: it says why.
qn_status_t qn__vk_bad_address(const struct qn__vk_device* device, uint64_t address,
                               uint64_t size_bytes);
// Finds the place of a pointer to pinned memory; false: it is no pinned memory of this device.
bool qn__vk_find_pinned(struct qn__vk_device* device, const void* pointer, uint64_t size_bytes,
                        qn__vk_place_t* out_place);

// ---- members of the device's table
qn_status_t qn__vk_allocate(int32_t id, size_t size_bytes, size_t alignment_bytes,
                            void** out_pointer);
qn_status_t qn__vk_free(int32_t id, void* pointer);
qn_status_t qn__vk_host_allocate(int32_t id, size_t size_bytes, void** out_pointer);
qn_status_t qn__vk_host_free(int32_t id, void* pointer);
qn_status_t qn__vk_workspace_allocate(int32_t id, void* stream, size_t size_bytes,
                                      void** out_pointer);
qn_status_t qn__vk_workspace_free(int32_t id, void* stream, void* pointer);
qn_status_t qn__vk_copy(int32_t id, void* stream, const qn_copy_t* copy);

// ---- workspace in the order of streams (workspace.c)
qn_status_t qn__vk_workspace_init(struct qn__vk_device* device);
void qn__vk_workspace_deinit(struct qn__vk_device* device);
// Returns workspace for work of `stream`: a cached part if one is usable now, else new memory.
qn_status_t qn__vk_workspace_acquire(struct qn__vk_device* device, struct qn__vk_stream* stream,
                                     uint64_t size_bytes, uint64_t* out_address);
// Caches a workspace again, for this stream at once and for others when the work enqueued until now
// has completed. Errors: INVALID_ARGUMENT if the address is no workspace in use.
qn_status_t qn__vk_workspace_release(struct qn__vk_device* device, struct qn__vk_stream* stream,
                                     uint64_t address);
// Frees the cached parts whose work has completed.
void qn__vk_workspace_trim(struct qn__vk_device* device);
// Frees the cached parts of a stream that is destroyed; its work has completed.
void qn__vk_workspace_forget(struct qn__vk_device* device, struct qn__vk_stream* stream);

#endif  // QUERN_DEVICES_VULKAN_MEMORY_H_
