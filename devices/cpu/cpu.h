// devices/cpu/cpu.h: what the engine uses of the CPU device directly, so that a call on the default
// stream costs no more than filling a table on the stack.
//
// Thread rule: any thread. Read next: pool.c (threads), stream.c (queues), executable.c (code
// pool).
#ifndef QUERN_DEVICES_CPU_CPU_H_
#define QUERN_DEVICES_CPU_CPU_H_

#include "base/base.h"
#include "quern/backend.h"

extern const qn_device_table_t qn__cpu_device_table;

// One call in progress. `env` must be first: the kernel's table is this object.
typedef struct qn__cpu_call {
  qn_cpu_env_t env;
  // First failure; `state` goes 0 -> 1 (being written) -> 2 (written). Several threads may race for
  // it.
  _Atomic uint32_t failure_state;
  qn_kernel_failure_t failure;
} qn__cpu_call_t;

// A table ready to be copied: functions set, no failure.
extern const qn__cpu_call_t qn__cpu_call_template;

// The entry of function `index` of a loaded "cpu-image-1".
qn_cpu_kernel_t qn__cpu_executable_entry(void* executable, uint32_t index);

// Runs `run(self, call, words)` behind the work queued on `stream` (not NULL), with a copy of the
// words; a nonzero result is a failure described by launch->describe, and sticks to the stream.
// Both `self` is kept alive by launch->owner. Blocks only while the queue is full. Used for kernels
// that are not images.
typedef int32_t (*qn__cpu_run_fn_t)(void* self, qn__cpu_call_t* call, const uint64_t* words);
qn_status_t qn__cpu_enqueue(void* stream, qn__cpu_run_fn_t run, void* self,
                            const qn_launch_t* launch);

#endif  // QUERN_DEVICES_CPU_CPU_H_
