// SPDX-License-Identifier: Apache-2.0
// quern/quern.h: the interface of a program: from the text of a module to calls on a stream.
//
//   qn_engine_create(NULL, &engine);
//   qn_module_parse(text, strlen(text), NULL, &module);
//   qn_target_parse("cpu", &target);
//   qn_engine_function(engine, module, target, "saxpy", NULL, NULL, &saxpy);
//   qn_value_t args[] = {qn_value_float(2.0), qn_value_tensor(&x), qn_value_tensor(&y)};
//   qn_function_call(saxpy, args, 3, NULL);
//
// The other headers are for special work, and each includes what it needs:
//
//   ir.h       building modules without text, and reading them
//   target.h   reading targets, and listing their kinds, options and tags
//   device.h   attributes of devices, workspace, pinned memory, graphs, the CPU's threads
//   adaptive.h functions that specialise themselves for frequent values
//   observe.h  counters, times, traces and reasons of an engine
//   cache.h    tools that read and care for cache directories and bundles
//   warm.h     compiling lists of kernels ahead (a library of its own, libquern-warm)
//   backend.h  writing a device, a code generator or a kind of target
//
// Structs: `struct_size` lets a struct grow, and who fills the struct sets it. A program may be
// older than the library (its structs are shorter) or newer (they are longer).
//
//   options, tables   The program fills them: struct_size is their sizeof. Members that a shorter
//                     one lacks, and members that are left zero, have their default. What the
//                     library does not know of a longer one must be zero.
//   `out_` structs    The program sets struct_size to their sizeof, the library fills the rest:
//                     `qn_lookup_info_t info = {.struct_size = sizeof info};`. The library never
//                     writes beyond struct_size. Of a longer struct it zeroes the members that it
//                     does not know and lowers struct_size to what it knows.
//   structs of the    Arguments of callbacks, and structs that are returned by pointer. Their
//   library           struct_size is the library's: a member at or beyond it is not there.
//
// A struct_size that does not hold itself, such as 0, gives INVALID_ARGUMENT. Structs without one
// never grow: values, keys and views, elements of arrays (qn_setting_t, qn_option_info_t,
// qn_cache_section_t), and what changes with an ABI version (backend.h).
//
// NULL: a call that returns a status gives INVALID_ARGUMENT, naming the argument, for every pointer
// that is NULL and is not documented to be allowed. Other calls then do nothing, and return false,
// 0, "" or NULL (qn_future_is_ready and qn_engine_flush: true). Releasing NULL does nothing.
//
// The headers are C11 and C++11.
//
// Time: an argument `timeout_ns` is how long a call may wait: 0 does not wait,
// QN_TIMEOUT_INFINITE (or any negative number) waits for ever. An option `time_limit_ns` ends work
// that takes longer; 0, as for every option, is the default.
//
// Threads: any thread may call any function on any object, unless its comment says otherwise.
// Ownership: docs/ownership.md explains the words owned, borrowed, retained and consumed.
#ifndef QUERN_QUERN_H_
#define QUERN_QUERN_H_

#include "quern/config.h"
#include "quern/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// The timeout that waits for ever.
#define QN_TIMEOUT_INFINITE INT64_C(-1)

// Returns the version of the library at run time, such as "0.1.0". QN_VERSION_STRING is that of the
// headers. Static storage.
QN_API const char* qn_version(void);
// Returns one line with the version, the build id and the code generators of the build. Static
// storage.
QN_API const char* qn_build_info(void);

// ------------------------------------------------------------------------------------ log
//
// The library prints nothing. It passes messages to a sink, if the program sets one.

// How grave a message is.
typedef enum qn_log_level {
  QN_LOG_ERROR = 1,
  QN_LOG_WARN = 2,
  QN_LOG_INFO = 3,
  QN_LOG_DEBUG = 4,
} qn_log_level_t;

// Takes one message, terminated and borrowed for the call, on any thread.
typedef void (*qn_log_sink_fn_t)(void* self, qn_log_level_t level, const char* message);

// Sets the sink of the process, which gets messages of `level` and graver ones. The library prints
// nothing by itself: NULL, the default, is silent. The old sink and its `self` must stay valid
// until calls in progress have returned.
QN_API void qn_log_set_sink(qn_log_level_t level, qn_log_sink_fn_t sink, void* self);

// ------------------------------------------------------------------------------------ modules
//
// A module is a checked program. It never changes, so any threads may share it.

// A module.
typedef struct qn_module qn_module_t;

// How grave a diagnostic is.
typedef enum qn_severity {
  QN_SEVERITY_ERROR = 1,
  QN_SEVERITY_WARNING = 2,
  QN_SEVERITY_NOTE = 3,  // belongs to the error or warning before it
} qn_severity_t;

// One message about a text. Borrowed for the callback.
typedef struct qn_diagnostic {
  size_t struct_size;       // of the library
  qn_severity_t severity;   // how grave it is
  const char* code;         // "QN0103": stable, one per kind of mistake; "" for notes
  const char* message;      // one line
  const char* help;         // a suggestion, or ""
  const char* source_name;  // of the parse options
  uint32_t line;            // from 1; 0 when there is no place
  uint32_t column;          // from 1, in UTF-8 code points
  uint32_t end_column;      // one past the last column, on the same line
} qn_diagnostic_t;

// How to read a text.
typedef struct qn_parse_options {
  size_t struct_size;  // sizeof(qn_parse_options_t)
  // Name of the text in messages, such as a path. NULL: "<text>". Never part of the module's
  // identity.
  const char* source_name;
  // Called for each diagnostic in order. NULL: the status message alone has them, rendered.
  void (*on_diagnostic)(void* self, const qn_diagnostic_t* diagnostic);
  void* on_diagnostic_self;  // passed to on_diagnostic
  // Errors after which parsing gives up. 0: 20.
  uint32_t error_limit;
  // Zero: the default allocator.
  qn_allocator_t allocator;
  // Fixes symbols and integer scalars, as qn_module_specialize does, before the text is verified:
  // "d=128,attention.k=4". So `alloc acc: f32[d] in local` is legal. For texts only. NULL: none.
  const char* set;
} qn_parse_options_t;

// Parses and verifies UTF-8 text of `size` bytes. `options` may be NULL. `*out_module` is owned:
// qn_module_release. Errors: SYNTAX (the text does not parse), INVALID_MODULE (it breaks a rule of
// the language), both with a message that renders every diagnostic with line, column, source line
// and caret; INVALID_ARGUMENT (options, or a text beyond 256 MiB), NOT_FOUND (a name in `set` that
// no function has), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_module_parse(const char* text, size_t size,
                                               const qn_parse_options_t* options,
                                               qn_module_t** out_module);
// Adds a reference.
QN_API void qn_module_retain(qn_module_t* module);
// Drops a reference.
QN_API void qn_module_release(qn_module_t* module);

// ------------------------------------------------------------------------------------ targets
//
// A target says what code is generated for. It is a table of properties that never changes, in one
// of four written forms: a tag ("nvidia/h200"), a bare kind ("cpu"), a command line ("cpu
// -mcpu=znver3 -vector_width=256") or JSON ({"kind": "cpu", "mcpu": "znver3"}). `native` and
// `from_device=N` are resolved when the target is made, never later. A kind of GPU alone ("cuda")
// is device 0 of this machine where there is one.

// A target.
typedef struct qn_target qn_target_t;

// Reads any of the four forms, terminated. An ISA feature beyond this machine is an error only when
// code is loaded. `*out_target` is owned: qn_target_release. Errors: SYNTAX (malformed JSON or
// command line, with line and column), NOT_FOUND (unknown kind or tag, with the nearest one),
// INVALID_ARGUMENT (unknown option with the nearest name, wrong type, value out of range, an option
// that is given twice), UNAVAILABLE (`from_device` without such a device), DEVICE_ERROR (a device
// does not answer `from_device`), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_target_parse(const char* text, qn_target_t** out_target);
// Adds a reference.
QN_API void qn_target_retain(qn_target_t* target);
// Drops a reference.
QN_API void qn_target_release(qn_target_t* target);

// ------------------------------------------------------------------------------------ devices
//
// Types and ids of devices are DLPack's. A pointer of a device is an address only where the
// attribute POINTER_IS_ADDRESS holds (device.h); elsewhere it is an opaque handle.
//
// The errors of devices: any call on a device may give NOT_FOUND (no such device), UNAVAILABLE (a
// GPU was opened before this process was forked, or the process is ending; the system gives no
// thread), OUT_OF_MEMORY, and DEVICE_ERROR (the driver reports a failure). Comments below name what
// else a call gives.

// One device. Layout-compatible with DLPack's DLDevice.
typedef struct qn_device {
  int32_t type;  // QN_DEVICE_CPU, ..., or that of a plugin
  int32_t id;    // from 0
} qn_device_t;

// The processors of this machine, as one device. DLPack's kDLCPU.
#define QN_DEVICE_CPU 1
// An NVIDIA GPU. DLPack's kDLCUDA.
#define QN_DEVICE_CUDA 2
// Host memory that CUDA has pinned: memory of the CPU, so calls on the CPU and copies take it. No
// device has this type. DLPack's kDLCUDAHost.
#define QN_DEVICE_CUDA_HOST 3
// A GPU by Vulkan. DLPack's kDLVulkan.
#define QN_DEVICE_VULKAN 7
// The template of docs/new-backend.md. DLPack's kDLExtDev.
#define QN_DEVICE_NULL 12

// Returns how many devices of a type there are: 0 without a driver.
QN_API int32_t qn_device_count(int32_t type);

// Allocates device memory. `size_bytes` 0 gives a valid pointer. `alignment_bytes` is a power of
// two, or 0 for the device's own (64 at least). `*out_pointer` is owned: qn_device_free. Errors:
// the errors of devices; INVALID_ARGUMENT (alignment).
QN_API QN_MUST_USE qn_status_t qn_device_allocate(qn_device_t device, size_t size_bytes,
                                                  size_t alignment_bytes, void** out_pointer);
// Frees device memory. Synchronise the work that uses it first. `pointer` NULL does nothing.
// Errors: the errors of devices; INVALID_ARGUMENT (Vulkan: no allocation begins there).
QN_API QN_MUST_USE qn_status_t qn_device_free(qn_device_t device, void* pointer);

// A queue of work of one device.
typedef struct qn_stream qn_stream_t;

// One copy between two places in memory.
typedef struct qn_copy {
  size_t struct_size;        // sizeof(qn_copy_t)
  qn_device_t from_device;   // whose memory `from` is
  const void* from;          // address or handle
  size_t from_offset_bytes;  // of the first byte
  qn_device_t to_device;     // whose memory `to` is
  void* to;                  // address or handle
  size_t to_offset_bytes;    // of the first byte
  size_t size_bytes;         // 0 copies nothing
  // Host memory of this copy is pinned, stays alive and unchanged until the stream has passed the
  // copy. If false, the call returns only when host memory may be reused.
  bool is_host_pinned;
} qn_copy_t;

// Copies on `stream`: one of the device that is not the CPU, or of the source if both are not.
// NULL: that device's default stream. Copies between devices of two types go through host memory
// and are done on return. `copy` is borrowed for the call. Errors: the errors of devices;
// INVALID_ARGUMENT (a null address, overlapping ranges, a range beyond the address space or the
// memory, another device's stream), FAILED_PRECONDITION (CUDA: the stream cannot copy while the
// host records a graph).
QN_API QN_MUST_USE qn_status_t qn_device_copy(const qn_copy_t* copy, qn_stream_t* stream);

// ------------------------------------------------------------------------------------ streams
//
// A stream is a queue of work that runs in order. Several threads may use one; it keeps the order
// in which their calls return.

// Makes a stream. `*out_stream` is owned: qn_stream_destroy. Errors: the errors of devices;
// UNSUPPORTED (the device has its default stream only).
QN_API QN_MUST_USE qn_status_t qn_stream_create(qn_device_t device, qn_stream_t** out_stream);
// Gives the default stream of a device, which every device has. It is borrowed for the life of the
// process. Where a function takes NULL for the default stream, this handle is the same. On the CPU
// its work runs in the calling thread, so it is always idle. Errors: NOT_FOUND (no such device),
// OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_stream_default(qn_device_t device, qn_stream_t** out_stream);
// Waits for the queued work, drops its errors, and releases the stream; default streams stay.
QN_API void qn_stream_destroy(qn_stream_t* stream);
// Waits for all work enqueued before the call. Returns the first error of that work once; work
// after a failed one was skipped. `stream` NULL: the default one. Errors: those of the work
// (qn_function_call); the errors of devices; INVALID_ARGUMENT (another device's stream),
// FAILED_PRECONDITION (CUDA: the stream records a graph).
QN_API QN_MUST_USE qn_status_t qn_stream_sync(qn_device_t device, qn_stream_t* stream);
// Makes work enqueued on `to` after this call start only after the work enqueued on `from` before
// it. Both are streams of `device` (NULL: the default one). Returns at once, unless `to` is the
// CPU's default stream, whose work runs in the calling thread. Errors: the errors of devices;
// INVALID_ARGUMENT (another device's stream), UNSUPPORTED (the device cannot order streams),
// FAILED_PRECONDITION (CUDA: one of the two records a graph, and the other cannot join it).
QN_API QN_MUST_USE qn_status_t qn_stream_wait(qn_device_t device, qn_stream_t* from,
                                              qn_stream_t* to);
// Returns true when all enqueued work is done, and for NULL: to ask the default stream, pass the
// handle that qn_stream_default gives.
QN_API bool qn_stream_is_idle(qn_stream_t* stream);

// Sets the device on which the calling thread's lookups load code, and its active stream to the
// default one. A new thread has cpu:0. Errors: NOT_FOUND (no such device).
QN_API QN_MUST_USE qn_status_t qn_set_active_device(qn_device_t device);
// Returns the calling thread's active device.
QN_API qn_device_t qn_active_device(void);
// Sets the stream on which the calling thread's calls run on `device`. NULL: the default one. The
// stream is borrowed until this thread replaces or destroys it. Errors: NOT_FOUND (no such device),
// INVALID_ARGUMENT (another device's stream), UNSUPPORTED (the thread has active streams on too
// many devices).
QN_API QN_MUST_USE qn_status_t qn_set_active_stream(qn_device_t device, qn_stream_t* stream);
// Returns the calling thread's active stream on `device`; NULL: the default one. Borrowed until it
// is destroyed.
QN_API qn_stream_t* qn_active_stream(qn_device_t device);

// ------------------------------------------------------------------------------------ values
//
// A value is one argument of a call: a scalar, or a pointer to a tensor.

// The type of an element or a scalar.
typedef enum qn_dtype {
  QN_DTYPE_NONE = 0,
#define QN_DTYPE(name, value, text, bits, class_, dl_code, dl_bits) QN_DTYPE_##name = value,
#include "quern/dtypes.inc"
#undef QN_DTYPE
  QN_DTYPE_COUNT
} qn_dtype_t;

// A dtype as DLPack writes it. Layout-compatible with DLPack's DLDataType.
typedef struct qn_dl_dtype {
  uint8_t code;    // DLPack's: 0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool
  uint8_t bits;    // of one element
  uint16_t lanes;  // 1
} qn_dl_dtype_t;

// A tensor. Layout-compatible with DLPack's DLTensor: a pointer to one may be cast to the other.
typedef struct qn_tensor {
  void* data;            // address or handle of the memory
  qn_device_t device;    // whose memory it is
  int32_t ndim;          // the rank
  qn_dl_dtype_t dtype;   // of the elements
  int64_t* shape;        // `ndim` extents; may be NULL if ndim is 0
  int64_t* strides;      // in elements; NULL: row-major
  uint64_t byte_offset;  // of the first element
} qn_tensor_t;

// Returns the DLPack dtype of a dtype; all zero for values that are no dtype.
QN_API qn_dl_dtype_t qn_dtype_to_dl(qn_dtype_t dtype);

// What a value holds. The numbers are the type indices of tvm-ffi's TVMFFIAny. It does not have
// UINT, whose number is the last before 64, where its objects begin.
typedef enum qn_value_type {
  QN_VALUE_NONE = 0,
  QN_VALUE_INT = 1,
  QN_VALUE_BOOL = 2,
  QN_VALUE_FLOAT = 3,
  QN_VALUE_POINTER = 4,  // reserved: no parameter takes one
  QN_VALUE_DTYPE = 5,    // reserved
  QN_VALUE_DEVICE = 6,   // reserved
  QN_VALUE_TENSOR = 7,
  QN_VALUE_STRING = 8,  // reserved
  QN_VALUE_UINT = 63,  // the bits of a uint64_t; taken wherever INT is, and for u64 beyond 2^63 - 1
} qn_value_type_t;

// One argument of a call: 16 bytes, the same shape as TVMFFIAny.
typedef struct qn_value {
  int32_t type;      // qn_value_type_t
  uint32_t padding;  // reserved: 0
  union {
    int64_t int_value;          // INT, BOOL, UINT
    double float_value;         // FLOAT
    void* pointer;              // POINTER
    const qn_tensor_t* tensor;  // TENSOR
    const char* string;         // STRING
    qn_dl_dtype_t dtype;        // DTYPE
    qn_device_t device;         // DEVICE
  };
} qn_value_t;

// Makes an INT.
static inline qn_value_t qn_value_int(int64_t value) {
  qn_value_t v = {QN_VALUE_INT, 0, {0}};
  v.int_value = value;
  return v;
}
// Makes a UINT.
static inline qn_value_t qn_value_uint(uint64_t value) {
  qn_value_t v = {QN_VALUE_UINT, 0, {0}};
  v.int_value = (int64_t)value;
  return v;
}
// Makes a BOOL.
static inline qn_value_t qn_value_bool(bool value) {
  qn_value_t v = {QN_VALUE_BOOL, 0, {0}};
  v.int_value = value ? 1 : 0;
  return v;
}
// Makes a FLOAT.
static inline qn_value_t qn_value_float(double value) {
  qn_value_t v = {QN_VALUE_FLOAT, 0, {0}};
  v.float_value = value;
  return v;
}
// Makes a TENSOR. `tensor` is borrowed until the call returns.
static inline qn_value_t qn_value_tensor(const qn_tensor_t* tensor) {
  qn_value_t v = {QN_VALUE_TENSOR, 0, {0}};
  v.tensor = tensor;
  return v;
}

// ------------------------------------------------------------------------------------ engine
//
// An engine turns modules into loaded code. The first lookup of a (module, target) asks the memory
// table, the cache directory, the bundles and the remote tier, and only then compiles; later ones
// find the memory table. A cache problem is a miss, never an error. docs/lookups.md says which call
// waits for what; examples/server.c is a whole program.

// An engine.
typedef struct qn_engine qn_engine_t;
// The loaded code of one module for one target on one device.
typedef struct qn_executable qn_executable_t;
// A function that can be called.
typedef struct qn_function qn_function_t;

// Which tiers of the cache an engine uses.
typedef enum qn_cache_mode {
  QN_CACHE_DEFAULT = 0,  // the environment, else RW
  QN_CACHE_OFF = 1,      // memory only: neither directory nor bundles nor remote tier
  QN_CACHE_RO = 2,       // tiers are read, none is written
  QN_CACHE_RW = 3,
  QN_CACHE_REFRESH = 4,  // no tier is read; directory and remote tier are written
} qn_cache_mode_t;

// How much work a compile is.
typedef enum qn_tier {
  QN_TIER_FULL = 1,  // the best code
  QN_TIER_FAST = 2,  // the shortest compile
} qn_tier_t;

// Where an executable came from.
typedef enum qn_source {
  QN_SOURCE_COMPILED = 1,
  QN_SOURCE_MEMORY = 2,
  QN_SOURCE_DISK = 3,
  QN_SOURCE_BUNDLE = 4,
  QN_SOURCE_REMOTE = 5,
} qn_source_t;
// Returns "compiled", "memory", "disk", "bundle" or "remote"; "unknown" for other values. Static
// storage.
QN_API const char* qn_source_text(qn_source_t source);

// The key of a cache entry: 32 lower-case hexadecimal digits, terminated. "" is no key.
typedef struct qn_cache_key {
  char hex[33];  // the digits
} qn_cache_key_t;

// One option of options.inc by its name, with its value as text: {"jit", "forbid"}.
typedef struct qn_setting {
  const char* name;   // docs/options.md
  const char* value;  // as the environment writes it
} qn_setting_t;

// Why a lookup had to compile.
typedef enum qn_miss_reason {
  QN_MISSED_ABSENT = 1,      // no tier has the key
  QN_MISSED_DAMAGED = 2,     // an entry was there, and was refused
  QN_MISSED_UNREADABLE = 3,  // a tier could not be read
  QN_MISSED_REJECTED = 4,    // a good entry was there that the device did not accept
  QN_MISSED_NO_CACHE = 5,    // there is neither a directory nor a bundle nor a remote tier
  QN_MISSED_REFRESH = 6,     // the cache mode asks for a compile
} qn_miss_reason_t;
// Returns "absent", "damaged", ...; "unknown" for other values. Static storage.
QN_API const char* qn_miss_reason_text(qn_miss_reason_t reason);

// One compile that has ended. Borrowed for the callback.
typedef struct qn_compile_event {
  size_t struct_size;       // of the library
  const char* name;         // "softmax@0123456789ab": the first function and the key
  qn_cache_key_t key;       // of the entry
  const char* target_json;  // the target's canonical form
  qn_tier_t tier;           // of the lookup
  bool is_checked;          // of the lookup
  qn_miss_reason_t reason;  // why it had to compile
  const char* reason_text;  // a sentence: what the tiers said
  int64_t queue_ns;         // waited for a compile thread
  int64_t compile_ns;       // of the code generator
  size_t code_bytes;        // 0 if it failed
  qn_status_t status;       // borrowed; ok or why it failed
} qn_compile_event_t;

// How an engine is made.
typedef struct qn_engine_options {
  size_t struct_size;  // sizeof(qn_engine_options_t)
  // Zero: the default allocator. It must outlive everything that the engine makes.
  qn_allocator_t allocator;
  // NULL: QUERN_CACHE_DIR and the XDG rules, unless ignores_environment; "" : memory only. A
  // relative path is resolved once, when the engine is made.
  const char* cache_dir;
  qn_cache_mode_t cache_mode;  // which tiers are used
  uint64_t cache_max_bytes;    // 0: 2 GiB
  // Part of every key: keeps users of one directory apart. NULL: "".
  const char* cache_namespace;
  // False: options that are not set here come from the environment (options.inc).
  bool ignores_environment;
  // Directories of code generators, separated by colons, which are searched before the places of
  // quern's own (docs/install.md); the word "none" ends the search. NULL: only those places.
  const char* generator_dir;
  // Any options of options.inc; what is set here wins over the environment and over the fields
  // above. Borrowed for the call.
  const qn_setting_t* settings;
  size_t setting_count;  // of `settings`
  // Called after every compile, also a failed one, on the thread that compiled. It may start
  // lookups, but must not wait for one. NULL: not called.
  void (*on_compile)(void* self, const qn_compile_event_t* event);
  void* on_compile_self;  // passed to on_compile
} qn_engine_options_t;

// Makes an engine. `options` may be NULL. Opens no compiler. `*out_engine` is owned:
// qn_engine_destroy. A cache directory that cannot be used is not an error: the engine then works
// from memory, logs it once and counts it; so it is for bundles and the remote tier. Errors:
// INVALID_ARGUMENT (an unknown setting, with the nearest name; a bad value), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_create(const qn_engine_options_t* options,
                                                qn_engine_t** out_engine);
// Destroys the engine. Functions, executables and futures that the program holds stay valid.
// Cancels compiles that have not begun; waits a bounded time for running compiles and queued
// writes. Must not be called from a callback of the engine.
QN_API void qn_engine_destroy(qn_engine_t* engine);
// Waits until all entries compiled before the call are written to the cache directory and the
// remote tier, or were given up. Does not wait for compiles that still run. Returns false if
// `timeout_ns` passed first.
QN_API bool qn_engine_flush(qn_engine_t* engine, int64_t timeout_ns);

// What a lookup does when neither memory nor the cache has the key. To come back later instead, use
// qn_engine_request.
typedef enum qn_miss_policy {
  QN_MISS_BLOCK = 0,  // waits for the compile
  // Takes a ready variant of the same function, and compiles the requested one in the background.
  // For qn_engine_function; other lookups treat it as BLOCK.
  QN_MISS_FALLBACK = 1,
  QN_MISS_FAIL = 2,  // COMPILE_FORBIDDEN, which names the key and says what the tiers answered
} qn_miss_policy_t;

// How a lookup is done.
typedef struct qn_lookup_options {
  size_t struct_size;  // sizeof(qn_lookup_options_t)
  qn_tier_t tier;      // 0: FULL
  bool is_checked;     // trap out-of-bounds and division by zero
  qn_miss_policy_t miss;
  // The call returns within this time, even if file systems, networks, other processes or compilers
  // are slow; the compile that it started goes on into the cache. 0: no limit.
  int64_t time_limit_ns;
  // Among compiles that wait for a thread: higher first, equals in their order.
  int32_t priority;
  // FALLBACK: a module that has a function of the same name which takes the same arguments (the
  // one with free symbols, beside one for a fixed shape). NULL: only variants of the module itself.
  qn_module_t* generic;
} qn_lookup_options_t;

// Where an executable came from and how long that took.
typedef struct qn_lookup_info {
  size_t struct_size;  // sizeof(qn_lookup_info_t)
  qn_source_t source;
  qn_cache_key_t key;
  int64_t lookup_ns;   // all of the lookup
  int64_t compile_ns;  // 0 unless compiled
  int64_t load_ns;     // verify and load; 0 for a memory hit
  bool is_fallback;    // FALLBACK: a variant was returned; the requested one is not ready yet
  qn_tier_t tier;      // of the returned code
} qn_lookup_info_t;

// Looks up one function: qn_engine_executable and qn_executable_function in one. `options` and
// `out_info` may be NULL. `*out_function` is owned: qn_function_release. Errors: those of
// qn_engine_executable and qn_executable_function.
QN_API QN_MUST_USE qn_status_t qn_engine_function(qn_engine_t* engine, qn_module_t* module,
                                                  qn_target_t* target, const char* name,
                                                  const qn_lookup_options_t* options,
                                                  qn_lookup_info_t* out_info,
                                                  qn_function_t** out_function);
// Looks up the executable of (module, target, options): in memory, then in the tiers of the cache,
// then by a compile, of which there is one per key however many threads ask. It is for the calling
// thread's active device if that is of the target's type, else for the first device of that type.
// `options` and `out_info` may be NULL. `*out_executable` is owned: qn_executable_release.
// Errors of any lookup: INVALID_ARGUMENT (options), OUT_OF_MEMORY; NOT_FOUND or UNAVAILABLE (no
// device of the type); COMPILE_FORBIDDEN (the key is not cached, and QN_MISS_FAIL or the option
// `jit` forbids a compile); DEADLINE_EXCEEDED (`time_limit_ns` passed); CANCELLED (the engine is
// being destroyed, or the process has forked); UNAVAILABLE (the lookup has a time limit, and no
// compile thread can be started); INCOMPATIBLE (the machine lacks an ISA option of the target);
// DEVICE_ERROR and UNSUPPORTED (the device does not load the code). Errors of compiles, also for
// one second after another lookup got them: UNSUPPORTED (the generator cannot compile the module),
// UNAVAILABLE (the generator or its compiler is not installed), INTERNAL (the compiler failed),
// DATA_LOSS (the artifact of a generator is malformed).
QN_API QN_MUST_USE qn_status_t qn_engine_executable(qn_engine_t* engine, qn_module_t* module,
                                                    qn_target_t* target,
                                                    const qn_lookup_options_t* options,
                                                    qn_lookup_info_t* out_info,
                                                    qn_executable_t** out_executable);
// Drops the engine's own reference to an executable, and forgets a failure of its compile. The code
// is unloaded when the last reference is gone; the tiers keep the entry. Of `options` (may be NULL)
// only tier and is_checked are used. Returns true if the executable was in memory.
QN_API bool qn_engine_unload(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                             const qn_lookup_options_t* options);
// Adds a reference.
QN_API void qn_executable_retain(qn_executable_t* executable);
// Drops a reference.
QN_API void qn_executable_release(qn_executable_t* executable);
// Gives a function of the executable by name. It keeps the executable and the module alive.
// `*out_function` is owned: qn_function_release. Errors: NOT_FOUND (no such function, with the
// nearest name), INVALID_ARGUMENT (not the module of the executable), UNSUPPORTED (more than 128
// parameters and symbols, or a shape that nests too deep), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_executable_function(qn_executable_t* executable,
                                                      qn_module_t* module, const char* name,
                                                      qn_function_t** out_function);

// ------------------------------------------------------------------------------------ futures
//
// A future is a lookup that runs in the background, while the program does other work.

// A lookup in progress.
typedef struct qn_future qn_future_t;

// Starts a lookup of a function and returns at once: the engine's threads read files, ask the
// network and compile (a memory hit is ready immediately). `options->time_limit_ns` limits the
// whole lookup: a future that still waits for a compile thread then ends with DEADLINE_EXCEEDED.
// `options` may be NULL. `*out_future` is owned: qn_future_release. Errors: INVALID_ARGUMENT
// (options), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_request(qn_engine_t* engine, qn_module_t* module,
                                                 qn_target_t* target, const char* name,
                                                 const qn_lookup_options_t* options,
                                                 qn_future_t** out_future);
// Returns true when qn_future_wait will not wait.
QN_API bool qn_future_is_ready(const qn_future_t* future);
// Waits for the function at most `timeout_ns`. May be called again, and gives the function again.
// `out_info` may be NULL. `*out_function` is owned: qn_function_release. Errors: those of
// qn_engine_function; DEADLINE_EXCEEDED (`timeout_ns` passed, and the lookup continues), CANCELLED
// (also by qn_future_cancel).
QN_API QN_MUST_USE qn_status_t qn_future_wait(qn_future_t* future, int64_t timeout_ns,
                                              qn_lookup_info_t* out_info,
                                              qn_function_t** out_function);
// Calls `on_ready` once, for event loops: on the thread that completes the lookup, or at once if
// the future is ready. A future has one callback, which must not release the future.
QN_API void qn_future_notify(qn_future_t* future, void (*on_ready)(void* self), void* self);
// Cancels the lookup. Waiters get CANCELLED. A compile that has not begun is dropped unless another
// lookup waits for it; one that runs continues, and is cached.
QN_API void qn_future_cancel(qn_future_t* future);
// Releases the future. Does not cancel.
QN_API void qn_future_release(qn_future_t* future);

// ------------------------------------------------------------------------------------ functions
//
// A function checks the arguments of every call before it runs.

// Adds a reference.
QN_API void qn_function_retain(qn_function_t* function);
// Drops a reference. Calls that are queued on streams hold their own.
QN_API void qn_function_release(qn_function_t* function);
// Returns the signature: "saxpy(a: f32, x: f32[n], inout y: f32[n])". Borrowed until the function
// is released.
QN_API const char* qn_function_signature(const qn_function_t* function);
// Returns true while calls run a variant instead of the requested code (QN_MISS_FALLBACK). It
// becomes false when that code is ready, and stays true when its compile fails.
QN_API bool qn_function_is_fallback(const qn_function_t* function);
// Computes the shapes and strides of all buffers of a call from the arguments that exist, so that a
// program can allocate those of `out` parameters: qn_module_infer_shapes (ir.h) for a function that
// was looked up. `out_strides` may be NULL. Errors: those of qn_module_infer_shapes.
QN_API QN_MUST_USE qn_status_t qn_function_infer_shapes(const qn_function_t* function,
                                                        const qn_value_t* args, size_t arg_count,
                                                        int64_t* const* out_shapes,
                                                        int64_t* const* out_strides);

// Calls the function on the calling thread's active stream of its device. `args` has one value per
// parameter: buffers take TENSOR; integer scalars INT, UINT or BOOL; float scalars FLOAT or INT;
// bool takes BOOL, or INT 0 or 1. `result`, if not NULL, is set to NONE (reserved). Allocates
// nothing.
//
// On the CPU's default stream the call returns when the work is done, with its errors. On other
// streams it enqueues: the tensors' memory is borrowed until the stream has passed the call, and
// errors of the work come from the next qn_stream_sync.
//
// Errors before the work begins: TYPE_ERROR (count of arguments, type, dtype, rank) and VALUE_ERROR
// (shape, strides, alignment, device, aliasing, range, a null address), which name the function
// with its signature, the argument, the expected and the given value; INVALID_ARGUMENT
// (Vulkan: a buffer is not memory of the device, or not aligned to its elements); the errors of
// devices; UNSUPPORTED and FAILED_PRECONDITION (CUDA: the function cannot be recorded into a graph
// of the host, or the default stream cannot be used while the host records). Errors of the work:
// ASSERTION (an assert of the program), OUT_OF_BOUNDS and DIVISION_BY_ZERO (checked code),
// VALUE_ERROR (the extent of an allocation), OUT_OF_MEMORY (workspace), DEVICE_ERROR.
QN_API QN_MUST_USE qn_status_t qn_function_call(qn_function_t* function, const qn_value_t* args,
                                                size_t count, qn_value_t* result);
// Calls the function on `stream` (NULL: the default one) instead of the active one. Errors: those
// of qn_function_call; INVALID_ARGUMENT (another device's stream).
QN_API QN_MUST_USE qn_status_t qn_function_call_on(qn_function_t* function, qn_stream_t* stream,
                                                   const qn_value_t* args, size_t count,
                                                   qn_value_t* result);

// ------------------------------------------------------------------------------------ plugins
//
// A plugin is a shared object with devices, code generators and kinds of targets of other authors.

// Opens the shared object at `path` (never a name that is searched for), which stays open, and
// registers its devices, generators and kinds of targets, in this order. Loading it again changes
// nothing. Call it before the first use of what it adds, and not from a plugin's own `create`.
// After an error, parts that were registered before it stay. Errors: INVALID_ARGUMENT (an empty
// path, or one beyond 4 KiB), UNAVAILABLE (the object cannot be opened, has no entry or serves
// another version); those of qn_device_register, qn_codegen_register and qn_target_kind_register
// (backend.h).
QN_API QN_MUST_USE qn_status_t qn_plugin_load(const char* path);
// Loads the plugins of a list that is separated by colons. NULL: that of QUERN_PLUGINS. An engine
// does the same with its option `plugins` when it is made; a program that names kinds of targets or
// devices before that calls this first. Errors: those of qn_plugin_load; the list is left there.
QN_API QN_MUST_USE qn_status_t qn_plugin_load_list(const char* paths);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_QUERN_H_
