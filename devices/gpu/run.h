// devices/gpu/run.h: running the launch plan of a function: the part of a call that CUDA and Vulkan
// share. A device hands in what only it can do: workspace and launches.
//
// Thread rule: any thread; one run uses its backend object alone. Read next: run.c.
#ifndef QUERN_DEVICES_GPU_RUN_H_
#define QUERN_DEVICES_GPU_RUN_H_

#include "devices/gpu/plan.h"
#include "quern/backend.h"

// The values of one launch. `values` are in the order of the kernel's arguments: a buffer's or
// workspace's address, or a scalar's bits. `ends` (buffers and workspaces): the address behind the
// last byte.
typedef struct qn__gpu_launch {
  uint32_t kernel;        // index in the plan
  int64_t block_count;    // at least 1, of any size
  uint32_t thread_count;  // of a block
  const uint64_t* values;
  const uint64_t* ends;
} qn__gpu_launch_t;

typedef struct qn__gpu_backend {
  void* self;
  uint32_t max_threads;  // of a block: launches beyond it are refused with a clear status
  // Stream-ordered; `size_bytes` may be 0.
  qn_status_t (*workspace_allocate)(void* self, uint64_t size_bytes, uint64_t* out_address);
  void (*workspace_free)(void* self, uint64_t address);
  qn_status_t (*launch)(void* self, const qn__gpu_launch_t* launch);
} qn__gpu_backend_t;

// Runs the steps of function `index`. Workspace is freed whatever happens. Errors: what the
// launch's `describe` makes of an assert, a bad extent or missing workspace (of OUT_OF_MEMORY);
// VALUE_ERROR when indices do not fit in 32 bits and there is no wider kernel, or too many threads;
// those of the backend. The hot path allocates nothing.
qn_status_t qn__gpu_run(const qn__gpu_plan_t* plan, uint32_t index, const qn_launch_t* launch,
                        const qn__gpu_backend_t* backend);

// Has the machine what an artifact's `isa` asks for? Compares each ISA option of the target kind
// with what `property` (target_property of the device's table) answers: a bool that is asked for
// must hold; of max_* and api_version at most what the device has; warp_size equal; arch as cubins
// are compatible (same major, minor at least; exactly with suffix a; the family with f). Errors:
// INCOMPATIBLE names the first that is missing.
qn_status_t qn__gpu_isa_check(const char* isa_json, int32_t id,
                              qn_status_t (*property)(int32_t id, const char* name,
                                                      qn_attribute_value_t* out_value));

#endif  // QUERN_DEVICES_GPU_RUN_H_
