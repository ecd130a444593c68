// SPDX-License-Identifier: Apache-2.0
// devices/cpu/stream.h: in-order queues of work on the pool.
#ifndef QUERN_DEVICES_CPU_STREAM_H_
#define QUERN_DEVICES_CPU_STREAM_H_

#include "base/base.h"
#include "devices/cpu/cpu.h"

typedef struct qn__cpu_stream qn__cpu_stream_t;

// The largest number of argument words of a launch.
#define QN__CPU_MAX_WORDS 128u

// Members of the device's table. The default stream (NULL) runs its work in the callers, so it
// never has outstanding work.
qn_status_t qn__cpu_stream_create(int32_t id, void** out_stream);
// Waits until the queue is empty, then releases the caller's reference.
void qn__cpu_stream_destroy(int32_t id, void* stream);
// Waits for the tasks that were enqueued before. Returns the first error and clears it.
qn_status_t qn__cpu_stream_sync(int32_t id, void* stream);
// Makes later tasks of `to` wait for the tasks that `from` has now. If `to` is NULL, the caller
// waits.
qn_status_t qn__cpu_stream_wait(int32_t id, void* from, void* to);
bool qn__cpu_stream_is_idle(int32_t id, void* stream);

void qn__cpu_stream_retain(qn__cpu_stream_t* stream);
void qn__cpu_stream_release(qn__cpu_stream_t* stream);
// Waits for the tasks that were enqueued before. Their errors stay.
void qn__cpu_stream_drain(qn__cpu_stream_t* stream);
// Queues a copy. Both ranges must stay valid until it has run.
qn_status_t qn__cpu_stream_copy(qn__cpu_stream_t* stream, void* to, const void* from,
                                size_t size_bytes);
// Returns how many tasks were ever enqueued, and how many of them are completed.
uint64_t qn__cpu_stream_enqueued(qn__cpu_stream_t* stream);
uint64_t qn__cpu_stream_completed(qn__cpu_stream_t* stream);

#endif  // QUERN_DEVICES_CPU_STREAM_H_
