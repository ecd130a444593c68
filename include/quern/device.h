// quern/device.h: devices: attributes, memory, copies, streams, the active device and stream of a
// thread; and, for authors of backends, the table that a device implements.
//
// Device types and ids are DLPack's. Memory is an opaque handle unless the attribute
// POINTER_IS_ADDRESS holds. All calls are thread-safe; a stream may be used by several threads, and
// keeps the order in which calls on it return.
#ifndef QUERN_DEVICE_H_
#define QUERN_DEVICE_H_

#include "quern/codegen.h"
#include "quern/status.h"
#include "quern/target.h"

#ifdef __cplusplus
extern "C" {
#endif

// DLPack's DLDevice.
typedef struct qn_device {
  int32_t type;
  int32_t id;
} qn_device_t;

#define QN_DEVICE_CPU 1
#define QN_DEVICE_CUDA 2
#define QN_DEVICE_VULKAN 7
#define QN_DEVICE_NULL 12  // DLPack's kDLExtDev: the template of docs/new-backend.md

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
// Number of devices of a type: 0 when there are none or no driver.
QN_API int32_t qn_device_count(int32_t type);

// ---- memory

// `size_bytes` 0 gives a valid handle. `alignment_bytes` is a power of two, 0 for the device's own
// (64 at least). Owned: qn_device_free. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT, NOT_FOUND (no such
// device).
QN_API QN_MUST_USE qn_status_t qn_device_allocate(qn_device_t device, size_t size_bytes,
                                                  size_t alignment_bytes, void** out_pointer);
// NULL is fine. Work that uses the memory must have been synchronised. Errors: NOT_FOUND,
// DEVICE_ERROR.
QN_API QN_MUST_USE qn_status_t qn_device_free(qn_device_t device, void* pointer);

typedef struct qn_stream qn_stream_t;

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

typedef struct qn_copy {
  size_t struct_size;  // sizeof(qn_copy_t)
  qn_device_t from_device;
  const void* from;
  size_t from_offset_bytes;
  qn_device_t to_device;
  void* to;
  size_t to_offset_bytes;
  size_t size_bytes;
  // Host memory of this copy is pinned and stays alive and unchanged until the stream has passed
  // it. Without it the call does not return before host memory may be reused.
  bool is_host_pinned;
} qn_copy_t;
// Copies on `stream`, which is one of the device that the copy comes from, or, where that is the
// CPU, goes to (NULL: the default one of that device). `copy` is borrowed for the call. Errors:
// INVALID_ARGUMENT (another struct_size, a null address, overlapping ranges, another device's
// stream), NOT_FOUND (no such device), UNSUPPORTED between devices that cannot, DEVICE_ERROR.
QN_API QN_MUST_USE qn_status_t qn_device_copy(const qn_copy_t* copy, qn_stream_t* stream);

// Host memory that the device reads and writes without a staging copy (pinned). Owned:
// qn_device_host_free. Devices without such a notion give ordinary memory. Errors: OUT_OF_MEMORY,
// NOT_FOUND.
QN_API QN_MUST_USE qn_status_t qn_device_host_allocate(qn_device_t device, size_t size_bytes,
                                                       void** out_pointer);
// NULL is fine. Work that uses the memory must have been synchronised.
QN_API QN_MUST_USE qn_status_t qn_device_host_free(qn_device_t device, void* pointer);

// ---- streams

// An in-order queue of work. Owned: qn_stream_destroy. Errors: NOT_FOUND (no such device),
// UNSUPPORTED (the device has its default stream only), OUT_OF_MEMORY, DEVICE_ERROR.
QN_API QN_MUST_USE qn_status_t qn_stream_create(qn_device_t device, qn_stream_t** out_stream);
// Lets queued work finish, then releases the stream; errors that stuck are dropped. NULL is fine.
QN_API void qn_stream_destroy(qn_stream_t* stream);
// Of any stream but the default one, which is NULL.
QN_API qn_device_t qn_stream_device(const qn_stream_t* stream);
// Waits for all work enqueued before the call. The first error of that work is returned, once, and
// then forgotten; work behind a failed one was skipped. `stream` NULL: the default one. Errors:
// those of the work; NOT_FOUND (no such device), INVALID_ARGUMENT (another device's stream).
QN_API QN_MUST_USE qn_status_t qn_stream_sync(qn_device_t device, qn_stream_t* stream);
// Work enqueued on `to` after this call starts only after the work enqueued on `from` before this
// call. Both are streams of `device` (NULL: the default one). Does not wait. Errors: NOT_FOUND,
// INVALID_ARGUMENT (another device's stream), UNSUPPORTED, DEVICE_ERROR.
QN_API QN_MUST_USE qn_status_t qn_stream_wait(qn_device_t device, qn_stream_t* from,
                                              qn_stream_t* to);
// True when nothing enqueued is left to do, and for NULL.
QN_API bool qn_stream_is_idle(qn_stream_t* stream);

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

// ---- active device and stream of the calling thread

// Default: cpu:0 and its default stream (NULL), which runs in the caller.
// Errors: NOT_FOUND when there is no such device. Sets the active stream of that device to NULL.
QN_API QN_MUST_USE qn_status_t qn_set_active_device(qn_device_t device);
QN_API qn_device_t qn_active_device(void);
// `stream` (borrowed until replaced or destroyed by this thread) must belong to `device`; NULL is
// the default one. Errors: NOT_FOUND, INVALID_ARGUMENT (another device's stream), UNSUPPORTED (the
// thread has active streams on too many devices).
QN_API QN_MUST_USE qn_status_t qn_set_active_stream(qn_device_t device, qn_stream_t* stream);
// NULL: the default one. Borrowed until it is destroyed.
QN_API qn_stream_t* qn_active_stream(qn_device_t device);

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

// -------------------------------------------------------------------------- for backend authors

#define QN_DEVICE_ABI_VERSION 1u

// What stopped a launch; `site` indexes the function's sites. A site of UINT32_MAX: no site,
// `status` tells.
typedef struct qn_kernel_failure {
  uint32_t site;
  int64_t index;
  int64_t extent;
} qn_kernel_failure_t;

// One call of one function. The words are as for qn_cpu_kernel_t; the ends are, for each parameter
// that is a buffer, the address behind its last byte (equal to the word when it is empty), and
// unspecified for scalars. `owner` is whom to ask for the message of a failure; a device that
// returns before the work is done retains it until then.
typedef struct qn_launch {
  const uint64_t* words;
  uint32_t word_count;
  const uint64_t* ends;  // one per parameter
  void* owner;
  void (*retain)(void* owner);
  void (*release)(void* owner);
  qn_status_t (*describe)(void* owner, const qn_kernel_failure_t* failure);
} qn_launch_t;

// What a driver makes of an artifact on its own (Vulkan's pipeline data), kept in the engine's
// cache beside the artifact's entry. `identity` names the driver and all that the data depends on;
// data of another identity is never given. The members may be NULL: nothing is kept. Any thread.
typedef struct qn_driver_store {
  void* self;
  // Calls `sink` with the stored bytes, verified, at most once; no call: there are none.
  void (*get)(void* self, const char* identity, qn_sink_t sink);
  // Copies the bytes and stores them behind the caller's back; failures are counted, not reported.
  void (*put)(void* self, const char* identity, const void* data, size_t size_bytes);
  // A device that keeps the store beyond `load` retains it until `unload`.
  void (*retain)(void* self);
  void (*release)(void* self);
} qn_driver_store_t;

typedef struct qn_load_options {
  size_t struct_size;
  const char* name;  // for profilers and debuggers: "softmax@0123456789ab"
  bool has_perf_map;
  bool has_gdb;
  qn_driver_store_t store;
} qn_load_options_t;

// The table of a device type. NULL members are optional: the answer is then none or UNSUPPORTED.
// `id` is the device's number. Streams are the device's own objects; NULL is its default stream.
typedef struct qn_device_table {
  uint32_t abi_version;  // QN_DEVICE_ABI_VERSION
  size_t struct_size;    // sizeof(qn_device_table_t)
  int32_t type;
  const char* name;
  int32_t (*count)(void);
  qn_status_t (*attribute)(int32_t id, qn_attribute_t attribute, qn_attribute_value_t* out_value);
  qn_status_t (*allocate)(int32_t id, size_t size_bytes, size_t alignment_bytes,
                          void** out_pointer);
  qn_status_t (*free)(int32_t id, void* pointer);
  qn_status_t (*workspace_allocate)(int32_t id, void* stream, size_t size_bytes,
                                    void** out_pointer);
  qn_status_t (*workspace_free)(int32_t id, void* stream, void* pointer);
  // At least one side is this device; the other is this device or the CPU.
  qn_status_t (*copy)(int32_t id, void* stream, const qn_copy_t* copy);
  qn_status_t (*stream_create)(int32_t id, void** out_stream);
  void (*stream_destroy)(int32_t id, void* stream);
  qn_status_t (*stream_sync)(int32_t id, void* stream);
  qn_status_t (*stream_wait)(int32_t id, void* from, void* to);
  bool (*stream_is_idle)(int32_t id, void* stream);
  // Is `format` (qn_artifact_t) one that this device loads?
  bool (*accepts)(const char* format);
  // Errors: INCOMPATIBLE when the machine lacks what artifact->isa asks for; DATA_LOSS. The
  // artifact is borrowed for the call only.
  qn_status_t (*load)(int32_t id, const qn_artifact_t* artifact, const qn_load_options_t* options,
                      void** out_executable);
  // No launch of it is queued any more (the engine's references see to that).
  void (*unload)(int32_t id, void* executable);
  // Enqueues, or for the CPU's default stream runs, function `index` of the executable. Never
  // blocks for queued work except when a queue is full.
  qn_status_t (*launch)(int32_t id, void* executable, uint32_t index, void* stream,
                        const qn_launch_t* launch);
  qn_status_t (*host_allocate)(int32_t id, size_t size_bytes, void** out_pointer);
  qn_status_t (*host_free)(int32_t id, void* pointer);
  qn_status_t (*stream_wrap)(int32_t id, void* native, void** out_stream);
  void* (*stream_native)(int32_t id, void* stream);
  qn_status_t (*capture_begin)(int32_t id, void* stream);
  qn_status_t (*capture_end)(int32_t id, void* stream, void** out_graph);
  qn_status_t (*graph_launch)(int32_t id, void* graph, void* stream);
  void (*graph_destroy)(int32_t id, void* graph);
  // What from_device asks: the value of the target option `name` ("max_threads_per_block"); none
  // when the device has no answer, and the option's default holds.
  qn_status_t (*target_property)(int32_t id, const char* name, qn_attribute_value_t* out_value);
  // Why `count` is 0, as one line for messages ("the driver cannot be opened: ..."); "" or NULL
  // when there is nothing to say. Static storage.
  const char* (*absence)(void);
} qn_device_table_t;

// Adds a device type; the table is borrowed for the life of the process. Errors: INVALID_ARGUMENT
// (ABI version, missing members), FAILED_PRECONDITION (type taken).
QN_API QN_MUST_USE qn_status_t qn_device_register(const qn_device_table_t* table);

// ---- plugins: devices, generators and target kinds in one shared object

#define QN_PLUGIN_ABI_VERSION 1u

// What a plugin adds. Lists may be empty; everything is borrowed for the life of the process.
typedef struct qn_plugin {
  uint32_t abi_version;  // QN_PLUGIN_ABI_VERSION
  size_t struct_size;    // sizeof(qn_plugin_t)
  const char* name;
  size_t device_count;
  const qn_device_table_t* const* devices;
  size_t generator_count;
  const qn_codegen_t* const* generators;
  size_t kind_count;
  const qn_target_kind_info_t* const* kinds;
} qn_plugin_t;

// The one exported symbol. NULL when the plugin cannot serve `abi_version`.
typedef const qn_plugin_t* (*qn_plugin_entry_fn_t)(uint32_t abi_version);
#define QN_PLUGIN_ENTRY_SYMBOL "qn_plugin_entry"

// Opens the shared object at `path` (a path, never a name that is searched for), which stays open,
// and registers what its entry gives: devices, generators, then kinds. Nothing else happens: code
// is run on its devices when a program asks. One that was loaded before is loaded: OK. Any thread,
// before the first use of what it adds; not from a plugin's own `create`.
// Errors: INVALID_ARGUMENT (no path), UNAVAILABLE (it cannot be opened, has no such entry or
// another version), those of qn_device_register, qn_codegen_register and qn_target_kind_register,
// naming the plugin; what was registered before the error stays.
QN_API QN_MUST_USE qn_status_t qn_plugin_load(const char* path);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_DEVICE_H_
