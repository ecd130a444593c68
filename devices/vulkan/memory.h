// devices/vulkan/memory.h: device memory and the host's pinned memory, cut from blocks.
//
// A block is one VkBuffer. An address of device memory is a number, made so that arithmetic on it
// is right: bit 57, four bits of the device, thirteen of the block, forty of the offset. It is
// decoded without a lock: blocks are found in a table, and a block that was given back is noticed.
// Pinned memory has the addresses that the host uses.
//
// Thread rule: any thread. Read next: memory.c, ranges.h, workspace.c.
#ifndef QUERN_DEVICES_VULKAN_MEMORY_H_
#define QUERN_DEVICES_VULKAN_MEMORY_H_

#define VK_NO_PROTOTYPES
#include <stdatomic.h>
#include <vulkan/vulkan_core.h>

#include "base/thread.h"
#include "devices/vulkan/ranges.h"
#include "quern/backend.h"

enum { QN__VK_MAX_BLOCKS = 8192 };

// An address, from above: the bit, the device, the block, the offset.
#define QN__VK_ADDRESS_BIT (UINT64_C(1) << 57)
#define QN__VK_DEVICE_SHIFT 53u
#define QN__VK_BLOCK_SHIFT 40u
#define QN__VK_OFFSET_MASK ((UINT64_C(1) << QN__VK_BLOCK_SHIFT) - 1)

struct qn__vk_device;
struct qn__vk_stream;
struct qn__vk_fence;
struct qn__vk_workspace;

typedef enum qn__vk_pool {
  QN__VK_POOL_DEVICE = 0,  // the device's own memory
  QN__VK_POOL_HOST = 1,    // the host's, cached, mapped
  QN__VK_POOL_COUNT = 2,
} qn__vk_pool_t;

typedef struct qn__vk_block {
  _Atomic uint64_t uid;  // never used twice; 0: there is no memory behind this block
  _Atomic uint64_t size_bytes;
  VkBuffer buffer;
  VkDeviceMemory memory;
  uint8_t* mapped;  // NULL: the host does not see it
  qn__vk_pool_t pool;
  uint32_t index;             // in the table
  bool is_dedicated;          // one allocation of its own
  qn__ranges_t ranges;        // shared ones
  uint64_t dedicated_bytes;   // that were asked for
  struct qn__vk_block* next;  // of its pool, or of those that wait for their end
  struct qn__vk_fence* fence;
} qn__vk_block_t;

typedef struct qn__vk_memory {
  qn__mutex_t mutex;
  _Atomic(qn__vk_block_t*) table[QN__VK_MAX_BLOCKS];
  uint32_t table_count;  // places that were ever used
  qn__vk_block_t* pools[QN__VK_POOL_COUNT];
  qn__vk_block_t* spare;    // objects without memory behind them
  qn__vk_block_t* retired;  // of no use any more, but work may still be under way
  uint64_t next_uid;
  _Atomic uint64_t generation;       // goes up whenever a block has lost its uid
  uint32_t type[QN__VK_POOL_COUNT];  // memory type
  bool is_mapped[QN__VK_POOL_COUNT];
  bool is_cached[QN__VK_POOL_COUNT];         // by the host, where it is mapped
  uint64_t shared_bytes[QN__VK_POOL_COUNT];  // of a block that many share
  _Atomic uint64_t block_count, reserved_bytes, used_bytes;
  struct qn__vk_workspace* workspace;
} qn__vk_memory_t;

// A part of a block.
typedef struct qn__vk_place {
  qn__vk_block_t* block;
  uint64_t offset;
} qn__vk_place_t;

qn_status_t qn__vk_memory_init(struct qn__vk_device* device);
void qn__vk_memory_deinit(struct qn__vk_device* device);

// `alignment_bytes`: a power of two. Errors: OUT_OF_MEMORY.
qn_status_t qn__vk_memory_allocate(struct qn__vk_device* device, qn__vk_pool_t pool,
                                   uint64_t size_bytes, uint64_t alignment_bytes,
                                   qn__vk_place_t* out_place);
// Errors: INVALID_ARGUMENT when no allocation begins there.
qn_status_t qn__vk_memory_free(struct qn__vk_device* device, qn__vk_place_t place);
// The size of the allocation that begins there; 0: none does.
uint64_t qn__vk_memory_size(struct qn__vk_device* device, qn__vk_place_t place);

uint64_t qn__vk_address(const struct qn__vk_device* device, qn__vk_place_t place);
// The status of an address that does not decode.
qn_status_t qn__vk_bad_address(const struct qn__vk_device* device, uint64_t address,
                               uint64_t size_bytes);
// The same for pinned memory of the host's.
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
qn_status_t qn__vk_workspace_acquire(struct qn__vk_device* device, struct qn__vk_stream* stream,
                                     uint64_t size_bytes, uint64_t* out_address);
qn_status_t qn__vk_workspace_release(struct qn__vk_device* device, struct qn__vk_stream* stream,
                                     uint64_t address);
// Gives kept memory back whose stream has passed it; true when there was any.
bool qn__vk_workspace_trim(struct qn__vk_device* device);
// The stream ends: its work is over.
void qn__vk_workspace_forget(struct qn__vk_device* device, struct qn__vk_stream* stream);

#endif  // QUERN_DEVICES_VULKAN_MEMORY_H_
