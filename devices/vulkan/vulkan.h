// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/vulkan.h: the Vulkan device for the registry and tests.
//
// Read next: context.h (the objects inside), device.c.
#ifndef QUERN_DEVICES_VULKAN_VULKAN_H_
#define QUERN_DEVICES_VULKAN_VULKAN_H_

#include "base/base.h"
#include "quern/backend.h"

extern const qn_device_table_t qn__vulkan_device_table;

// Returns OK if there is a device. Else the error names the missing loader, driver or feature.
qn_status_t qn__vulkan_available(void);

// Counters of one device, for tests and benchmarks.
typedef struct qn__vulkan_stats {
  uint64_t block_count;     // driver buffers, for device and pinned memory
  uint64_t reserved_bytes;  // the sum of their sizes
  uint64_t used_bytes;      // allocated
  uint64_t submit_count;    // since the device was opened
  uint64_t launch_count;    // recorded dispatches
  uint64_t barrier_count;   // between dispatches and copies
  uint64_t set_count;       // cached descriptor sets
  uint64_t pipeline_count;  // created
} qn__vulkan_stats_t;
// Reads the counters; opens the device if needed.
qn_status_t qn__vulkan_stats(int32_t id, qn__vulkan_stats_t* out_stats);

// Destroys devices and the instance, for tests. The next query enumerates them again and uses
// `allocator` for all host memory. No object of the device may be in use.
void qn__vulkan_reset(qn_allocator_t allocator);

// Puts a barrier before every command, for tests. The validation layer assumes that a kernel
// accesses all memory that its descriptors bind, and here a descriptor binds a whole block.
void qn__vulkan_order_everything(bool is_on);

#endif  // QUERN_DEVICES_VULKAN_VULKAN_H_
