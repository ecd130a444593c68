// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/command_allocator.h: allocates the host memory that a driver uses to record the
// commands of one batch.
//
// Drivers that record on the host allocate some pieces for each command (lavapipe: eight for a
// barrier, push constants and a dispatch). They free them all when the batch's command pool is
// reset. With malloc this costs more than the rest of recording, above all once the pieces of many
// batches are mixed in its free lists (bench/bench_vulkan.c). So each command pool gets callbacks
// with its own pages: an allocation moves a mark, and an empty page starts again at its beginning.
//
// Device memory: see memory.h. Thread rule: one thread at a time, as for the command pool. Drivers
// call back only in the thread that calls them.
#ifndef QUERN_DEVICES_VULKAN_COMMAND_ALLOCATOR_H_
#define QUERN_DEVICES_VULKAN_COMMAND_ALLOCATOR_H_

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "base/base.h"

struct qn__vk_page;

typedef struct qn__vk_command_allocator {
  VkAllocationCallbacks callbacks;  // for the command pool, while it exists
  qn_allocator_t allocator;
  bool is_begun;
  struct qn__vk_page* current;  // one of `pages`; NULL: none yet
  struct qn__vk_page* pages;
} qn__vk_command_allocator_t;

// Prepares the callbacks. They hold a pointer to `self`, so `self` must not move while the command
// pool exists.
void qn__vk_command_allocator_init(qn__vk_command_allocator_t* self, qn_allocator_t allocator);
// Starts to use pages. Call it once the pool and its command buffer exist: their own memory lives
// as long as the pool and would keep a page in use.
void qn__vk_command_allocator_begin(qn__vk_command_allocator_t* self);
// Frees the pages. Call it after the command pool is destroyed.
void qn__vk_command_allocator_deinit(qn__vk_command_allocator_t* self);

#endif  // QUERN_DEVICES_VULKAN_COMMAND_ALLOCATOR_H_
