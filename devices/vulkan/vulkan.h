// devices/vulkan/vulkan.h: the Vulkan device as the registry and tests see it.
//
// Thread rule: any thread. Read next: context.h (what is inside), device.c.
#ifndef QUERN_DEVICES_VULKAN_VULKAN_H_
#define QUERN_DEVICES_VULKAN_VULKAN_H_

#include "base/base.h"
#include "quern/backend.h"

extern const qn_device_table_t qn__vulkan_device_table;

// Why there is no device: no loader, no driver, or what the devices lack. OK when there is one.
qn_status_t qn__vulkan_available(void);

// Counters of one device, for tests and benchmarks.
typedef struct qn__vulkan_stats {
  uint64_t block_count;     // buffers of the driver's, for device memory and for the host's
  uint64_t reserved_bytes;  // of them together
  uint64_t used_bytes;      // handed out
  uint64_t submit_count;    // since the device was opened
  uint64_t launch_count;    // dispatches that were recorded
  uint64_t barrier_count;   // between dispatches and copies
  uint64_t set_count;       // descriptor sets that are kept
  uint64_t pipeline_count;  // that were made
} qn__vulkan_stats_t;
qn_status_t qn__vulkan_stats(int32_t id, qn__vulkan_stats_t* out_stats);

// For tests, while nothing of the device is in use: destroys devices and the instance, so that the
// next question finds them anew with `allocator` for all memory of the host's.
void qn__vulkan_reset(qn_allocator_t allocator);

// For tests: a barrier in front of every command. The validation layer takes a descriptor for an
// access to all that it binds, which is a whole block here.
void qn__vulkan_order_everything(bool is_on);

#endif  // QUERN_DEVICES_VULKAN_VULKAN_H_
