// devices/cpu/stream.h: in-order queues of work on the pool.
//
// Thread rule: any thread. Read next: stream.c.
#ifndef QUERN_DEVICES_CPU_STREAM_H_
#define QUERN_DEVICES_CPU_STREAM_H_

#include "base/base.h"
#include "devices/cpu/cpu.h"

typedef struct qn__cpu_stream qn__cpu_stream_t;

// More words than any call has.
#define QN__CPU_MAX_WORDS 128u

qn_status_t qn__cpu_stream_create(qn__cpu_stream_t** out_stream);
// Waits for the queue, then drops the caller's reference.
void qn__cpu_stream_destroy(qn__cpu_stream_t* stream);
void qn__cpu_stream_retain(qn__cpu_stream_t* stream);
void qn__cpu_stream_release(qn__cpu_stream_t* stream);
// Waits for what was enqueued before; gives the first error, once.
qn_status_t qn__cpu_stream_sync(qn__cpu_stream_t* stream);
// `to` NULL: the caller waits.
qn_status_t qn__cpu_stream_wait(qn__cpu_stream_t* from, qn__cpu_stream_t* to);
// Copies behind the queued work; both ranges stay valid until then.
qn_status_t qn__cpu_stream_copy(qn__cpu_stream_t* stream, void* to, const void* from,
                                size_t size_bytes);
// How much was enqueued, and how much of it is over.
uint64_t qn__cpu_stream_enqueued(qn__cpu_stream_t* stream);
uint64_t qn__cpu_stream_completed(qn__cpu_stream_t* stream);

#endif  // QUERN_DEVICES_CPU_STREAM_H_
