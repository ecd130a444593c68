// SPDX-License-Identifier: Apache-2.0
// tests/interface/support_plan.h: the smallest launch plan, as bytes and loaded.
#ifndef QUERN_TESTS_INTERFACE_SUPPORT_PLAN_H_
#define QUERN_TESTS_INTERFACE_SUPPORT_PLAN_H_

#include "quern/gpu.h"
#include "tests/support/must.h"

static inline qn_status_t plan_allocate(void* self, uint64_t size_bytes, uint64_t* out_address) {
  (void)self, (void)size_bytes;
  *out_address = 64;
  return QN_OK;
}
static inline void plan_free(void* self, uint64_t address) {
  (void)self, (void)address;
}
static inline qn_status_t plan_launch(void* self, const qn_gpu_launch_t* launch) {
  (void)self, (void)launch;
  return QN_OK;
}

static const qn_gpu_runner_t plan_runner = {.abi_version = QN_GPU_ABI_VERSION,
                                            .struct_size = sizeof plan_runner,
                                            .workspace_allocate = plan_allocate,
                                            .workspace_free = plan_free,
                                            .launch = plan_launch};

// An artifact of one kernel `k` of one thread, and of one function that binds a local to 0.
static inline qn_artifact_t plan_artifact(void) {
  static const uint8_t bytes[] = {2, 1, 1, 'k', 0, 0, 1, 0, 0, 0, 0, 1,
                                  0, 0, 1, 0,   1, 1, 0, 1, 1, 0, 0};
  return (qn_artifact_t){.struct_size = sizeof(qn_artifact_t),
                         .metadata = bytes,
                         .metadata_size = sizeof bytes,
                         .function_count = 1};
}

static inline qn_gpu_plan_t* plan_loaded(void) {
  const qn_artifact_t artifact = plan_artifact();
  qn_gpu_plan_t* plan;
  must(qn_gpu_plan_load(&artifact, &plan_runner, 1, &plan));
  return plan;
}

#endif  // QUERN_TESTS_INTERFACE_SUPPORT_PLAN_H_
