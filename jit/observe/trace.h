// SPDX-License-Identifier: Apache-2.0
// jit/observe/trace.h: writes the spans of a watch as a trace for chrome://tracing and Perfetto.
#ifndef QUERN_JIT_TRACE_H_
#define QUERN_JIT_TRACE_H_

#include "base/buffer.h"
#include "jit/observe/watch.h"

// Writes the trace of a watch to a sink. Errors: those of the sink; OUT_OF_MEMORY.
qn_status_t qn__trace_put(const qn__watch_t* watch, qn_allocator_t allocator, qn_sink_t sink);
// Writes the trace to the file `name`, in which "%p" is replaced by the process id. Does nothing
// for a watch without spans, for the name "", and for a name without "%p" in a child of fork.
// Failures are only logged.
void qn__trace_write(const qn__watch_t* watch, qn_allocator_t allocator, const char* name);

#endif  // QUERN_JIT_TRACE_H_
