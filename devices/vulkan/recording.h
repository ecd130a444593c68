// devices/vulkan/recording.h: the host memory that a driver takes for the commands of a batch.
//
// Drivers that record on the host take some pieces of memory for each command (lavapipe: eight for
// a barrier, push constants and a dispatch) and give them back together when the batch's command
// pool is reset. By malloc that costs more than the rest of recording, the more when the pieces of
// many batches have been mixed in its lists (bench/bench_vulkan.c). So each command pool gets
// callbacks with pages of its own: taking moves a mark, and a page that nothing is left of begins
// anew.
//
// Not here: memory of the device (memory.c). Thread rule: one thread at a time, as the command pool
// itself; drivers call back in the thread that calls them alone. Read next: recording.c.
#ifndef QUERN_DEVICES_VULKAN_RECORDING_H_
#define QUERN_DEVICES_VULKAN_RECORDING_H_

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "base/base.h"

struct qn__vk_page;

typedef struct qn__vk_recording {
  VkAllocationCallbacks callbacks;  // for the command pool, from its making to its end
  qn_allocator_t allocator;
  bool is_begun;
  struct qn__vk_page* current;  // of those in the list; NULL: none yet
  struct qn__vk_page* pages;
} qn__vk_recording_t;

// `recording` stays where it is until the command pool is destroyed.
void qn__vk_recording_init(qn__vk_recording_t* recording, qn_allocator_t allocator);
// What is taken from now on is taken for commands; before, for what lives as long as the pool.
void qn__vk_recording_begin(qn__vk_recording_t* recording);
// The command pool is gone.
void qn__vk_recording_deinit(qn__vk_recording_t* recording);

#endif  // QUERN_DEVICES_VULKAN_RECORDING_H_
