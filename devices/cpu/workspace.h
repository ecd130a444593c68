// SPDX-License-Identifier: Apache-2.0
// devices/cpu/workspace.h: stream-ordered temporary memory.
#ifndef QUERN_DEVICES_CPU_WORKSPACE_H_
#define QUERN_DEVICES_CPU_WORKSPACE_H_

#include "devices/cpu/stream.h"

// Returns memory aligned to 64 bytes, or NULL when out of memory. With `stream` NULL the memory is
// for the caller's own work, which is over when it frees the memory.
void* qn__cpu_workspace_allocate(qn__cpu_stream_t* stream, size_t size_bytes);
// Frees memory for later tasks of `stream` at once, and for all others after the tasks that the
// stream has now. `pointer` may be NULL.
void qn__cpu_workspace_free(qn__cpu_stream_t* stream, void* pointer);

#endif  // QUERN_DEVICES_CPU_WORKSPACE_H_
