// SPDX-License-Identifier: Apache-2.0
// devices/gpu/run.h: running the launch plan of a function: the part of a call that CUDA and Vulkan
// share. A device supplies workspace and launches.
//
// Thread rule: any thread; each run has its own backend object. Read next: run.c.
#ifndef QUERN_DEVICES_GPU_RUN_H_
#define QUERN_DEVICES_GPU_RUN_H_

#include "devices/gpu/plan.h"
#include "quern/backend.h"

// One launch. `values` are in the order of the kernel's arguments: the address of a buffer or
// workspace, or the bits of a scalar. `ends` (buffers and workspaces): the address after the last
// byte.
typedef struct qn__gpu_launch {
  uint32_t kernel;        // index in the plan
  int64_t block_count;    // at least 1, of any size
  uint32_t thread_count;  // of a block
  const uint64_t* values;
  const uint64_t* ends;
} qn__gpu_launch_t;

typedef struct qn__gpu_backend {
  void* self;
  uint32_t max_threads;  // of a block: larger launches fail with a clear status
  // In stream order; `size_bytes` may be 0.
  qn_status_t (*workspace_allocate)(void* self, uint64_t size_bytes, uint64_t* out_address);
  void (*workspace_free)(void* self, uint64_t address);
  qn_status_t (*launch)(void* self, const qn__gpu_launch_t* launch);
} qn__gpu_backend_t;

// Runs the steps of function `index`. Frees workspace also after a failure. Errors: what the
// launch's `describe` makes of an assert, a bad extent or missing workspace (of OUT_OF_MEMORY);
// VALUE_ERROR when indices do not fit in 32 bits and there is no wider kernel, or too many threads;
// those of the backend. The hot path allocates nothing.
qn_status_t qn__gpu_run(const qn__gpu_plan_t* plan, uint32_t index, const qn_launch_t* launch,
                        const qn__gpu_backend_t* backend);

// Checks that the device has what an artifact's `isa` requires. Compares each option of its kind
// with the answer of `property` (target_property of the device's table). A required bool must hold;
// max_* and api_version must not exceed the device's; warp_size must be equal; arch must be
// compatible as for cubins (same major, at least the minor; exactly with suffix a; the family with
// f). Errors: INCOMPATIBLE names the first missing option.
qn_status_t qn__gpu_isa_check(const char* isa_json, int32_t id,
                              qn_status_t (*property)(int32_t id, const char* name,
                                                      qn_attribute_value_t* out_value));

#endif  // QUERN_DEVICES_GPU_RUN_H_
