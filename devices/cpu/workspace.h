// devices/cpu/workspace.h: temporary memory in the order of streams.
//
// Thread rule: any thread. Read next: workspace.c.
#ifndef QUERN_DEVICES_CPU_WORKSPACE_H_
#define QUERN_DEVICES_CPU_WORKSPACE_H_

#include "devices/cpu/stream.h"

// `stream` NULL: work that is over when its caller frees. Aligned to 64 bytes; NULL when out of
// memory.
void* qn__workspace_take(qn__cpu_stream_t* stream, size_t size_bytes);
void qn__workspace_give(qn__cpu_stream_t* stream, void* pointer);

#endif  // QUERN_DEVICES_CPU_WORKSPACE_H_
