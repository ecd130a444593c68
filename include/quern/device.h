// SPDX-License-Identifier: Apache-2.0
// quern/device.h: what quern.h does not need of devices: attributes, workspace, pinned memory, the
// driver's own streams, graphs, and the CPU's threads.
//
// "The errors of devices" are those that quern.h names in its section on devices.
#ifndef QUERN_DEVICE_H_
#define QUERN_DEVICE_H_

#include "quern/quern.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------ attributes
//
// A device answers questions about itself by attributes. Those of attributes.inc keep their
// numbers.

// Reads the name of a device, such as "cuda:1"; "cpu" is "cpu:0". The device need not exist.
// Errors: NOT_FOUND (an unknown type, with the nearest one), SYNTAX (the number).
QN_API QN_MUST_USE qn_status_t qn_device_parse(const char* text, qn_device_t* out_device);
// Returns the name of a type of devices, such as "cpu"; "unknown" for other values. Static storage.
QN_API const char* qn_device_type_text(int32_t type);

// A question to a device.
typedef enum qn_attribute {
#define QN_ATTRIBUTE(name, value, text, type, unit, doc) QN_ATTRIBUTE_##name = value,
#include "quern/attributes.inc"
#undef QN_ATTRIBUTE
} qn_attribute_t;

// What an answer holds.
typedef enum qn_attribute_type {
  QN_ATTRIBUTE_TYPE_NONE = 0,  // the device cannot answer
  QN_ATTRIBUTE_TYPE_BOOL = 1,
  QN_ATTRIBUTE_TYPE_INT = 2,
  QN_ATTRIBUTE_TYPE_STRING = 3,
} qn_attribute_type_t;
// The answer of a device.
typedef struct qn_attribute_value {
  qn_attribute_type_t type;  // NONE: the device cannot answer, or the question does not apply
  int64_t int_value;         // BOOL (0 or 1) and INT
  char string_value[256];    // STRING, terminated
} qn_attribute_value_t;

// Asks a device for one attribute. EXIST may be asked of any device. Errors: the errors of devices;
// INVALID_ARGUMENT (no attribute has this value).
QN_API QN_MUST_USE qn_status_t qn_device_attribute(qn_device_t device, qn_attribute_t attribute,
                                                   qn_attribute_value_t* out_value);
// Gives an attribute by its position in attributes.inc: its name ("warp_size"), unit and meaning,
// of static storage. Returns false beyond the last.
QN_API bool qn_attribute_at(size_t index, qn_attribute_t* out_attribute, const char** out_text,
                            const char** out_unit, const char** out_doc);

// ------------------------------------------------------------------------------------ memory
//
// Workspace is for temporary buffers between calls on one stream. Pinned memory is host memory for
// copies.

// Allocates temporary memory in the order of a stream (NULL: the default one): work that is
// enqueued on `stream` from now on may use it. `*out_pointer` is owned: qn_workspace_free. Errors:
// the errors of devices; INVALID_ARGUMENT (another device's stream), FAILED_PRECONDITION (CUDA: the
// host records a graph on the stream, or the stream records one and the driver has no memory
// pools).
QN_API QN_MUST_USE qn_status_t qn_workspace_allocate(qn_device_t device, qn_stream_t* stream,
                                                     size_t size_bytes, void** out_pointer);
// Frees workspace of the stream that it was allocated on. Work that is enqueued there already may
// still use it: another stream gets the memory only after this one has passed the point of the
// free. `pointer` NULL does nothing. Errors: the errors of devices; INVALID_ARGUMENT (another
// device's stream, or memory that is no workspace), FAILED_PRECONDITION (CUDA: the stream records a
// graph, and the memory is from before).
QN_API QN_MUST_USE qn_status_t qn_workspace_free(qn_device_t device, qn_stream_t* stream,
                                                 void* pointer);

// Allocates host memory that the device reads and writes without a staging copy (pinned). Devices
// without pinned memory give ordinary memory. `*out_pointer` is owned: qn_device_host_free. Errors:
// the errors of devices.
QN_API QN_MUST_USE qn_status_t qn_device_host_allocate(qn_device_t device, size_t size_bytes,
                                                       void** out_pointer);
// Frees pinned memory. Synchronise the work that uses it first. `pointer` NULL does nothing.
// Errors: the errors of devices; INVALID_ARGUMENT (memory that is not pinned memory of the device).
QN_API QN_MUST_USE qn_status_t qn_device_host_free(qn_device_t device, void* pointer);

// ------------------------------------------------------------------------------------ streams
//
// These calls connect the streams of quern with those of a driver.

// Returns the device of a stream.
QN_API qn_device_t qn_stream_device(const qn_stream_t* stream);
// Makes a stream of the driver's own `native` one, so that work of quern and of others stays in one
// order (CUDA: a CUstream). `native` is borrowed until qn_stream_destroy, which leaves it alive.
// `*out_stream` is owned: qn_stream_destroy. Errors: the errors of devices; UNSUPPORTED (the device
// has no such streams), INVALID_ARGUMENT (CUDA: a stream of another context, or the default stream
// of each thread).
QN_API QN_MUST_USE qn_status_t qn_stream_wrap(qn_device_t device, void* native,
                                              qn_stream_t** out_stream);
// Returns the driver's own object of a stream (CUDA: a CUstream), borrowed until the stream's
// destroy; NULL if the device has none, and for default streams.
QN_API void* qn_stream_native(qn_stream_t* stream);

// ------------------------------------------------------------------------------------ graphs
//
// A graph is calls that a stream recorded once, to be launched many times (CUDA graphs).

// Recorded calls. One thread at a time may launch a graph.
typedef struct qn_graph qn_graph_t;

// Begins to record: calls that are enqueued on `stream` until qn_stream_capture_end are not run.
// Lookups may load code meanwhile. Errors: the errors of devices; UNSUPPORTED (the device cannot
// record, or this is its default stream), FAILED_PRECONDITION (the stream records already),
// INVALID_ARGUMENT (another device's stream).
QN_API QN_MUST_USE qn_status_t qn_stream_capture_begin(qn_device_t device, qn_stream_t* stream);
// Ends recording and gives the graph. It keeps the buffers' addresses and the scalars of the
// recorded calls, and retains their functions; the buffers must stay alive as long as the graph is
// launched. `*out_graph` is owned: qn_graph_destroy. After an error the recording is dropped and
// the stream works as before. Errors: the errors of devices; UNSUPPORTED (the device cannot
// record), FAILED_PRECONDITION (the stream records nothing, or another stream began the recording),
// INVALID_ARGUMENT (another device's stream).
QN_API QN_MUST_USE qn_status_t qn_stream_capture_end(qn_device_t device, qn_stream_t* stream,
                                                     qn_graph_t** out_graph);
// Enqueues all recorded work on `stream` (NULL: the default one) of the graph's device. Errors: the
// errors of devices; INVALID_ARGUMENT (another device's stream), FAILED_PRECONDITION (the stream
// records).
QN_API QN_MUST_USE qn_status_t qn_graph_launch(qn_graph_t* graph, qn_stream_t* stream);
// Destroys a graph. Synchronise its launches first.
QN_API void qn_graph_destroy(qn_graph_t* graph);

// ------------------------------------------------------------------------------------ CPU threads
//
// Parallel loops on the CPU run on one pool of threads for the whole process. The settings below
// belong to the calling thread.

// Sets the calling thread's core budget: the number of threads, itself included, that a parallel
// loop may use at most. 0: all that the thread may use (its affinity mask, the cgroup's quota).
// Returns the old budget.
QN_API int32_t qn_cpu_set_core_budget(int32_t core_count);
// Returns how many cores budget 0 means. A change of the thread's affinity mask counts after 10 ms.
QN_API int32_t qn_cpu_core_count(void);

// Runs `task(task_self, i)` for every i in [0, count), on any threads, and returns when all are
// done.
typedef void (*qn_parallel_for_fn_t)(void* self, int32_t count,
                                     void (*task)(void* task_self, int32_t index), void* task_self);
// Makes the calling thread run its parallel loops by `parallel_for` instead of the shared pool.
// NULL: the pool again. Both are borrowed until they are replaced.
QN_API void qn_cpu_set_parallel_for(qn_parallel_for_fn_t parallel_for, void* self);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_DEVICE_H_
