// SPDX-License-Identifier: Apache-2.0
// devices/cpu/cpu.h: the parts of the CPU device that the engine calls directly, past the device
// table. A call on the default stream then costs no more than filling a table on the stack.
//
// Read next: pool.c (threads), parallel.c (loops), stream.c (queues), executable.c (loaded code).
#ifndef QUERN_DEVICES_CPU_CPU_H_
#define QUERN_DEVICES_CPU_CPU_H_

#include <stdatomic.h>

#include "base/base.h"
#include "quern/backend.h"

extern const qn_device_table_t qn__cpu_device_table;

// One call in progress. `env` must be first: a kernel's environment is this object. `failure` is
// written when `failure_state` is 2.
typedef struct qn__cpu_call {
  qn_cpu_env_t env;
  // The first failure. Several threads may race for it: `failure_state` goes from 0 to 1 (one
  // thread writes) to 2 (written).
  _Atomic uint32_t failure_state;
  qn_kernel_failure_t failure;
} qn__cpu_call_t;

// The functions that kernels call.
extern const qn_cpu_functions_t qn__cpu_functions;

// Begins a call.
static inline void qn__cpu_call_init(qn__cpu_call_t* call) {
  call->env.functions = &qn__cpu_functions;
  atomic_init(&call->failure_state, 0);
}

// Returns the entry of function `index` of a loaded "cpu-image-1".
qn_cpu_kernel_t qn__cpu_executable_entry(void* executable, uint32_t index);

// Carries out a queued launch, whose words are a copy; it has no ends. A failure sticks to the
// stream.
typedef qn_status_t (*qn__cpu_run_fn_t)(void* self, const qn_launch_t* launch);
// Queues `run(self, launch)` on `stream` (not NULL). launch->owner keeps `self` alive. Blocks only
// while the queue is full. Errors: UNSUPPORTED for too many words, OUT_OF_MEMORY.
qn_status_t qn__cpu_enqueue(void* stream, qn__cpu_run_fn_t run, void* self,
                            const qn_launch_t* launch);

#endif  // QUERN_DEVICES_CPU_CPU_H_
