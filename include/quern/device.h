// quern/device.h: what quern.h does not need of devices: attributes, workspace, pinned memory, the
// driver's own streams, graphs, and the CPU's threads.
#ifndef QUERN_DEVICE_H_
#define QUERN_DEVICE_H_

#include "quern/quern.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------ attributes

// "cpu:0", "cuda:1", "cpu". Errors: SYNTAX; NOT_FOUND for an unknown type, with the nearest one.
QN_API QN_MUST_USE qn_status_t qn_device_parse(const char* text, qn_device_t* out_device);
// "cpu", "cuda", ...; "unknown". Static storage.
QN_API const char* qn_device_type_text(int32_t type);

typedef enum qn_attribute {
#define QN_ATTRIBUTE(name, value, text, type, unit, doc) QN_ATTRIBUTE_##name = value,
#include "quern/attributes.inc"
#undef QN_ATTRIBUTE
} qn_attribute_t;

typedef enum qn_attribute_type {
  QN_ATTRIBUTE_TYPE_NONE = 0,  // the device cannot answer
  QN_ATTRIBUTE_TYPE_BOOL = 1,
  QN_ATTRIBUTE_TYPE_INT = 2,
  QN_ATTRIBUTE_TYPE_STRING = 3,
} qn_attribute_type_t;
typedef struct qn_attribute_value {
  qn_attribute_type_t type;
  int64_t int_value;       // BOOL (0 or 1) and INT
  char string_value[256];  // STRING, terminated
} qn_attribute_value_t;

// EXIST may be asked of any device. Errors: NOT_FOUND for other attributes of a device that does
// not exist; INVALID_ARGUMENT for a value that is no attribute.
QN_API QN_MUST_USE qn_status_t qn_device_attribute(qn_device_t device, qn_attribute_t attribute,
                                                   qn_attribute_value_t* out_value);
// Name of an attribute ("warp_size") by position, for listings; false beyond the last.
QN_API bool qn_attribute_at(size_t index, qn_attribute_t* out_attribute, const char** out_text,
                            const char** out_unit, const char** out_doc);
// ---- memory

// Stream-ordered temporary memory: usable by work enqueued on `stream` from now on; freed memory is
// handed to another stream only after this one has passed the point of the free. `stream` NULL: the
// default stream of `device`. Owned: qn_workspace_free. Errors: OUT_OF_MEMORY, NOT_FOUND (no such
// device), INVALID_ARGUMENT (another device's stream), DEVICE_ERROR.
QN_API QN_MUST_USE qn_status_t qn_workspace_allocate(qn_device_t device, qn_stream_t* stream,
                                                     size_t size_bytes, void** out_pointer);
// Of the stream that it was allocated on; what is enqueued there may still use it. NULL is fine.
// Errors: NOT_FOUND, INVALID_ARGUMENT, DEVICE_ERROR.
QN_API QN_MUST_USE qn_status_t qn_workspace_free(qn_device_t device, qn_stream_t* stream,
                                                 void* pointer);

// Host memory that the device reads and writes without a staging copy (pinned). Owned:
// qn_device_host_free. Devices without such a notion give ordinary memory. Errors: OUT_OF_MEMORY,
// NOT_FOUND.
QN_API QN_MUST_USE qn_status_t qn_device_host_allocate(qn_device_t device, size_t size_bytes,
                                                       void** out_pointer);
// NULL is fine. Work that uses the memory must have been synchronised.
QN_API QN_MUST_USE qn_status_t qn_device_host_free(qn_device_t device, void* pointer);

// ---- streams

// Of any stream but the default one, which is NULL.
QN_API qn_device_t qn_stream_device(const qn_stream_t* stream);
// A stream that is the driver's own `native` one (CUDA: a CUstream; borrowed until the destroy,
// which leaves it alive), so that work of quern and of others stays in one order. Owned:
// qn_stream_destroy. Errors: UNSUPPORTED where a device has no such thing, INVALID_ARGUMENT.
QN_API QN_MUST_USE qn_status_t qn_stream_wrap(qn_device_t device, void* native,
                                              qn_stream_t** out_stream);
// The driver's own object behind a stream (CUDA: CUstream), borrowed until its destroy; NULL where
// there is none, and for NULL.
QN_API void* qn_stream_native(qn_stream_t* stream);

// ---- graphs: calls recorded once and run many times (CUDA graphs)

typedef struct qn_graph qn_graph_t;

// From here to qn_stream_capture_end, what is enqueued on `stream` is recorded, not run. Every
// function must have been called or loaded before: a lookup that loads code during the capture
// works, too, but other threads are not delayed for it. Errors: UNSUPPORTED, FAILED_PRECONDITION
// (the stream records already).
QN_API QN_MUST_USE qn_status_t qn_stream_capture_begin(qn_device_t device, qn_stream_t* stream);
// Owned: qn_graph_destroy. Memory, functions and scalars of the recorded calls are those of the
// capture; memory must stay alive as long as the graph is launched, functions are retained by the
// graph. On failure nothing is recorded and the stream works as before. Errors: UNSUPPORTED,
// FAILED_PRECONDITION (the stream records nothing), OUT_OF_MEMORY, DEVICE_ERROR.
QN_API QN_MUST_USE qn_status_t qn_stream_capture_end(qn_device_t device, qn_stream_t* stream,
                                                     qn_graph_t** out_graph);
// Enqueues all recorded work on `stream`, which must be of the graph's device. Errors:
// INVALID_ARGUMENT, DEVICE_ERROR.
QN_API QN_MUST_USE qn_status_t qn_graph_launch(qn_graph_t* graph, qn_stream_t* stream);
// Launches of it must have been synchronised. NULL is fine.
QN_API void qn_graph_destroy(qn_graph_t* graph);

// ---- the CPU device's threads

// The calling thread's core budget for parallel loops: at most this many threads, itself included.
// 0: all that the process may use (affinity and cgroup). Returns the old budget.
QN_API int32_t qn_cpu_set_core_budget(int32_t core_count);
// Threads of the shared pool plus one: what budget 0 means.
QN_API int32_t qn_cpu_core_count(void);

// Runs `task(task_self, i)` for every i in [0, count) on any threads and returns when all are done.
typedef void (*qn_parallel_for_fn_t)(void* self, int32_t count,
                                     void (*task)(void* task_self, int32_t index), void* task_self);
// Makes the calling thread use the host's own threads instead of the pool; NULL ends it.
QN_API void qn_cpu_set_parallel_for(qn_parallel_for_fn_t parallel_for, void* self);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_DEVICE_H_
