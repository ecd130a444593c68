// quern/engine.h: from a module and a target to functions that can be called.
//
//   qn_engine_create(NULL, &engine);
//   qn_module_parse(text, strlen(text), NULL, &module);
//   qn_target_parse("cpu", &target);
//   qn_engine_function(engine, module, target, "saxpy", NULL, NULL, &saxpy);
//   qn_value_t args[] = {qn_value_float(2.0), qn_value_tensor(&x), qn_value_tensor(&y)};
//   qn_function_call(saxpy, args, 3, NULL);
//
// Engines, functions, executables and futures may be used by any thread. The first lookup of a
// (module, target) asks the memory table, the cache directory, the bundles and the remote tier, and
// only then compiles; later ones find the memory table. A cache problem is a miss, never an error.
// A lookup that may not wait says so by its miss policy and its timeout. docs/lookups.md tells who
// waits for what; examples/server.c is a whole program.
//
// A struct that a program fills begins with `struct_size`: its sizeof, anything else is
// INVALID_ARGUMENT. Members that are left zero are the defaults.
#ifndef QUERN_ENGINE_H_
#define QUERN_ENGINE_H_

#include "quern/codegen.h"
#include "quern/device.h"
#include "quern/ir.h"
#include "quern/status.h"
#include "quern/target.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------ values

// Layout-compatible with DLPack's DLDataType.
typedef struct qn_dl_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} qn_dl_dtype_t;

// Layout-compatible with DLPack's DLTensor: a pointer to one may be cast to the other.
typedef struct qn_tensor {
  void* data;
  qn_device_t device;
  int32_t ndim;
  qn_dl_dtype_t dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; NULL: row-major
  uint64_t byte_offset;
} qn_tensor_t;

// The DLPack dtype of a dtype.
QN_API qn_dl_dtype_t qn_dtype_to_dl(qn_dtype_t dtype);

// Type indices of tvm-ffi's TVMFFIAny, and UINT, which it does not have: it ends below 64, where
// its objects begin.
typedef enum qn_value_type {
  QN_VALUE_NONE = 0,
  QN_VALUE_INT = 1,
  QN_VALUE_BOOL = 2,
  QN_VALUE_FLOAT = 3,
  QN_VALUE_POINTER = 4,
  QN_VALUE_DTYPE = 5,
  QN_VALUE_DEVICE = 6,
  QN_VALUE_TENSOR = 7,
  QN_VALUE_STRING = 8,
  QN_VALUE_UINT = 63,  // the bits of a uint64_t; taken wherever INT is, and for u64 beyond 2^63 - 1
} qn_value_type_t;

// 16 bytes, the same shape as TVMFFIAny.
typedef struct qn_value {
  int32_t type;  // qn_value_type_t
  uint32_t padding;
  union {
    int64_t int_value;  // INT, BOOL, UINT
    double float_value;
    void* pointer;
    const qn_tensor_t* tensor;
    const char* string;
    qn_dl_dtype_t dtype;
    qn_device_t device;
  };
} qn_value_t;

static inline qn_value_t qn_value_int(int64_t value) {
  qn_value_t v = {QN_VALUE_INT, 0, {0}};
  v.int_value = value;
  return v;
}
static inline qn_value_t qn_value_uint(uint64_t value) {
  qn_value_t v = {QN_VALUE_UINT, 0, {0}};
  v.int_value = (int64_t)value;
  return v;
}
static inline qn_value_t qn_value_bool(bool value) {
  qn_value_t v = {QN_VALUE_BOOL, 0, {0}};
  v.int_value = value ? 1 : 0;
  return v;
}
static inline qn_value_t qn_value_float(double value) {
  qn_value_t v = {QN_VALUE_FLOAT, 0, {0}};
  v.float_value = value;
  return v;
}
static inline qn_value_t qn_value_tensor(const qn_tensor_t* tensor) {
  qn_value_t v = {QN_VALUE_TENSOR, 0, {0}};
  v.tensor = tensor;
  return v;
}

// ------------------------------------------------------------------------------------ engine

typedef struct qn_engine qn_engine_t;
typedef struct qn_executable qn_executable_t;
typedef struct qn_function qn_function_t;

typedef enum qn_cache_mode {
  QN_CACHE_DEFAULT = 0,  // the environment, else RW
  QN_CACHE_OFF = 1,      // memory only: neither directory nor bundles nor remote tier
  QN_CACHE_RO = 2,       // tiers are read, none is written
  QN_CACHE_RW = 3,
  QN_CACHE_REFRESH = 4,  // no tier is read; directory and remote tier are written
} qn_cache_mode_t;

typedef enum qn_source {
  QN_SOURCE_COMPILED = 1,
  QN_SOURCE_MEMORY = 2,
  QN_SOURCE_DISK = 3,
  QN_SOURCE_BUNDLE = 4,
  QN_SOURCE_REMOTE = 5,
} qn_source_t;
// "compiled", "memory", "disk", "bundle", "remote". Static storage.
QN_API const char* qn_source_text(qn_source_t source);

// One option of options.inc by its name, with its value as text: {"jit", "forbid"}.
typedef struct qn_setting {
  const char* name;
  const char* value;
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
// "absent", "damaged", ... Static storage.
QN_API const char* qn_miss_reason_text(qn_miss_reason_t reason);

// One compile, told when it has ended. Borrowed for the callback.
typedef struct qn_compile_event {
  size_t struct_size;  // of the library: members beyond it are not there
  const char* name;    // "softmax@0123456789ab": the first function and the key
  const char* key;     // 32 hex digits
  const char* target_json;
  qn_tier_t tier;
  bool is_checked;
  qn_miss_reason_t reason;
  const char* reason_text;  // a sentence: what the tiers said
  int64_t queue_ns;         // waited for a compile thread
  int64_t compile_ns;       // of the code generator
  size_t code_bytes;        // 0 when it failed
  qn_status_t status;       // borrowed; ok or why it failed
} qn_compile_event_t;

typedef struct qn_engine_options {
  size_t struct_size;  // sizeof(qn_engine_options_t)
  // Zero-initialised: the default.
  qn_allocator_t allocator;
  // NULL: QUERN_CACHE_DIR and the XDG rules, unless ignores_environment; "" : memory only. A
  // relative path is meant from the working directory of the moment when the engine is made.
  const char* cache_dir;
  qn_cache_mode_t cache_mode;
  uint64_t cache_max_bytes;  // 0: 2 GiB
  // Keeps users of one directory apart: part of every key. NULL: "".
  const char* cache_namespace;
  // The environment (options.inc) is read for whatever is not set here, unless this is true.
  bool ignores_environment;
  // Directory of the code generators. NULL: beside the library, then its quern/ folder.
  const char* generator_dir;
  // Log messages of the library at `log_level` and graver (1 error, 2 warn, 3 info, 4 debug). The
  // sink is process-wide. NULL: silent.
  void (*on_log)(void* self, int level, const char* message);
  void* on_log_self;
  int log_level;
  // Any options of options.inc; what is set here wins over the environment and over the fields
  // above. Borrowed for the call. Errors: INVALID_ARGUMENT for unknown names, with the nearest.
  const qn_setting_t* settings;
  size_t setting_count;
  // Hears of every compile, failed ones too, on the thread that compiled. It may look up, but must
  // not wait for lookups of its own. NULL: nobody.
  void (*on_compile)(void* self, const qn_compile_event_t* event);
  void* on_compile_self;
} qn_engine_options_t;

// `options` may be NULL. Opens no compiler. An unusable cache directory is no error: the engine
// then works from memory, says so once in the log and counts it. Errors: INVALID_ARGUMENT,
// OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_create(const qn_engine_options_t* options,
                                                qn_engine_t** out_engine);
// Functions and executables that are still held stay usable, and futures that are still held may
// be waited for and released. Cancels compiles that have not begun; waits for those that run and
// for queued publishes for a bounded time. Not from a callback of the engine. NULL is fine.
QN_API void qn_engine_destroy(qn_engine_t* engine);
// Waits until everything that was compiled so far is in the cache directory and, where this engine
// writes it, in the remote tier, or was given up. False when `timeout_ns` (0: not at all) passed
// first. Compiles that still run are not waited for. Any thread.
QN_API bool qn_engine_flush(qn_engine_t* engine, int64_t timeout_ns);

// What a lookup does when neither memory nor the cache has the key.
typedef enum qn_miss_policy {
  QN_MISS_BLOCK = 0,  // waits for the compile
  // Takes what is ready of the same function; the better one follows. For qn_engine_function: other
  // lookups take it as BLOCK.
  QN_MISS_FALLBACK = 1,
  QN_MISS_FAIL = 2,  // COMPILE_FORBIDDEN, which names the key and says what the tiers answered
} qn_miss_policy_t;
// The fourth way, to come back later, is qn_engine_request.

typedef struct qn_lookup_options {
  size_t struct_size;  // sizeof(qn_lookup_options_t)
  qn_tier_t tier;      // 0: FULL
  bool is_checked;     // trap out-of-bounds and division by zero
  qn_miss_policy_t miss;
  // 0: none. Else the call returns within this time, whatever file systems, networks, other
  // processes and compilers do; what it started goes on behind it and ends up in the cache.
  int64_t timeout_ns;
  // Of the compile, among those that wait for a compile thread: higher first, equals in their
  // order.
  int32_t priority;
  // FALLBACK: a module that has a function of the same name which takes the same arguments (the
  // one with free symbols, beside one for a fixed shape). NULL: only variants of the module itself.
  qn_module_t* generic;
} qn_lookup_options_t;

// Where an executable came from and what it took.
typedef struct qn_lookup_info {
  qn_source_t source;
  char key[33];        // 32 hex digits
  int64_t lookup_ns;   // all of the lookup
  int64_t compile_ns;  // 0 unless compiled
  int64_t load_ns;     // verify and load; 0 for a memory hit
  // FALLBACK: what was given is not what was asked for; that is still being made.
  bool is_fallback;
  qn_tier_t tier;  // of what was given
} qn_lookup_info_t;

// The executable of (module, target, options) on the calling thread's active device, if that is of
// the target's type, else on the first device of that type (qn_set_active_device): from memory,
// from a tier of the cache or compiled, once per key however many threads ask (docs/lookups.md).
// `options` and `out_info` may be NULL. Owned: qn_executable_release. Errors: whatever the code
// generator says (UNSUPPORTED, UNAVAILABLE, ...; for a second also what it said to another lookup),
// INCOMPATIBLE (ISA beyond the machine), COMPILE_FORBIDDEN, DEADLINE_EXCEEDED, CANCELLED (the
// engine is being destroyed), UNAVAILABLE (no compile thread can be started, and the lookup has a
// deadline), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_executable(qn_engine_t* engine, qn_module_t* module,
                                                    qn_target_t* target,
                                                    const qn_lookup_options_t* options,
                                                    qn_lookup_info_t* out_info,
                                                    qn_executable_t** out_executable);
// Drops the engine's own reference: the code is unloaded when nobody holds it. The tiers keep the
// entry. Forgets that its compile failed lately. Of `options` (may be NULL) tier and is_checked
// count. True if it was there.
QN_API bool qn_engine_unload(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                             const qn_lookup_options_t* options);
QN_API void qn_executable_retain(qn_executable_t* executable);
// NULL is fine.
QN_API void qn_executable_release(qn_executable_t* executable);
// A function of the executable by name. Owned: qn_function_release. It keeps the executable and the
// module alive. Errors: NOT_FOUND with the nearest name.
QN_API QN_MUST_USE qn_status_t qn_executable_function(qn_executable_t* executable,
                                                      qn_module_t* module, const char* name,
                                                      qn_function_t** out_function);

// qn_engine_executable and qn_executable_function in one, with the errors of both. `options` and
// `out_info` may be NULL. Owned: qn_function_release.
QN_API QN_MUST_USE qn_status_t qn_engine_function(qn_engine_t* engine, qn_module_t* module,
                                                  qn_target_t* target, const char* name,
                                                  const qn_lookup_options_t* options,
                                                  qn_lookup_info_t* out_info,
                                                  qn_function_t** out_function);

// ------------------------------------------------------------------------------------ requests

// A lookup under way. Any thread.
typedef struct qn_future qn_future_t;

// Starts a lookup of a function and returns at once: files, network and compile are left to the
// engine's compile threads (a memory hit is ready immediately). `options->timeout_ns` bounds the
// whole lookup: a future that is still waiting for a compile thread then ends with
// DEADLINE_EXCEEDED. Owned: qn_future_release. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_request(qn_engine_t* engine, qn_module_t* module,
                                                 qn_target_t* target, const char* name,
                                                 const qn_lookup_options_t* options,
                                                 qn_future_t** out_future);
// True once qn_future_wait answers without waiting.
QN_API bool qn_future_is_ready(const qn_future_t* future);
// Waits at most `timeout_ns` (0: not at all; negative: for ever). The function is owned by the
// caller; asking again gives it again. `out_info` may be NULL. Errors: those of the lookup,
// DEADLINE_EXCEEDED (the lookup goes on), CANCELLED.
QN_API QN_MUST_USE qn_status_t qn_future_wait(qn_future_t* future, int64_t timeout_ns,
                                              qn_lookup_info_t* out_info,
                                              qn_function_t** out_function);
// Calls back once when it is ready, on the thread that made it so, or at once when it is. For event
// loops. One callback per future; it must not release the future.
QN_API void qn_future_notify(qn_future_t* future, void (*on_ready)(void* self), void* self);
// Nobody wants it any more: whoever waits gets CANCELLED. What has not begun, and nobody else waits
// for, never will; a compile that runs goes on into the cache.
QN_API void qn_future_cancel(qn_future_t* future);
// Does not cancel. NULL is fine.
QN_API void qn_future_release(qn_future_t* future);

// Writes an intermediate form of what the lookup would compile: "ir", "llvm", "asm", "image", ...
// Always runs the generator, in the calling thread. Errors: NOT_FOUND lists the forms; those of the
// generator and of the sink.
QN_API QN_MUST_USE qn_status_t qn_engine_emit(qn_engine_t* engine, qn_module_t* module,
                                              qn_target_t* target,
                                              const qn_lookup_options_t* options, const char* form,
                                              qn_sink_t sink);

// Counters of an engine and its cache, by table (counters.inc files; docs/metrics.md). Calls back
// name, value, doc, of static storage, in the calling thread. They begin at 0 with the engine and
// never go down; names stay. Any thread.
QN_API void qn_engine_counters(qn_engine_t* engine,
                               void (*on_counter)(void* self, const char* name, uint64_t value,
                                                  const char* doc),
                               void* self);

// How long the stages of lookups took, by table (jit/observe/stages.inc). Names and docs are of
// static storage. Any thread.
typedef struct qn_stage_info {
  const char* name;
  const char* doc;
  uint64_t count;
  int64_t total_ns;
  int64_t max_ns;
  int64_t p50_ns, p90_ns, p99_ns;  // upper ends of buckets: at most an eighth too large
} qn_stage_info_t;
QN_API void qn_engine_stages(qn_engine_t* engine,
                             void (*on_stage)(void* self, const qn_stage_info_t* stage),
                             void* self);
// All counters, gauges and histograms in the text format of Prometheus (version 0.0.4), names
// "quern_...". Any thread. Errors: those of the sink, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_metrics(qn_engine_t* engine, qn_sink_t sink);
// The spans that are kept (option `trace`), as JSON for chrome://tracing and Perfetto. Errors:
// those of the sink; FAILED_PRECONDITION when the engine keeps none.
QN_API QN_MUST_USE qn_status_t qn_engine_trace(qn_engine_t* engine, qn_sink_t sink);

// Why a lookup would hit or miss. Strings are owned by the explanation.
typedef struct qn_explanation {
  char key[33];
  // "memory", "disk", "bundle", or "" when no local tier has the key.
  const char* found_in;
  // The nearest entry (the one whose key agrees in the most sections, the module counting most), or
  // "" when there is none to compare with; and the first section that differs.
  char nearest_key[33];
  const char* section;  // "target", "module", ...
  const char* wanted;   // what the lookup has: "target.cpu: znver3"
  const char* cached;   // what the entry has
  const char* text;     // the whole in one sentence for people
} qn_explanation_t;
// Looks, compiles nothing, opens no compiler, asks no network. Of `options` (may be NULL) tier and
// is_checked count. It reads the beginnings of entries: milliseconds for a thousand, at most about
// two seconds. Any thread. Owned: qn_explanation_free. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_explain(qn_engine_t* engine, qn_module_t* module,
                                                 qn_target_t* target,
                                                 const qn_lookup_options_t* options,
                                                 qn_explanation_t** out_explanation);
// NULL is fine.
QN_API void qn_explanation_free(qn_explanation_t* explanation);

// The options in force, with where each came from ("default", "environment", "program"). Strings
// are borrowed for the callback; credentials are shown as ***. Any thread.
QN_API void qn_engine_config(qn_engine_t* engine,
                             void (*on_option)(void* self, const char* name,
                                               const char* environment, const char* value,
                                               const char* origin, const char* doc),
                             void* self);

// ------------------------------------------------------------------------------------ functions

QN_API void qn_function_retain(qn_function_t* function);
// NULL is fine.
QN_API void qn_function_release(qn_function_t* function);
// "saxpy(a: f32, x: f32[n], inout y: f32[n])". Borrowed until the function is released.
QN_API const char* qn_function_signature(const qn_function_t* function);

// True while calls run another variant than the one that was asked for (QN_MISS_FALLBACK); it
// becomes false once, when that one has landed, and stays true when it cannot be made. Any thread.
QN_API bool qn_function_is_fallback(const qn_function_t* function);

// Calls the function on the active stream of its device for this thread. One value per parameter:
// buffers take TENSOR, integer scalars INT or BOOL, float scalars FLOAT or INT, bool BOOL or INT
// 0/1. Everything is checked before anything runs: TYPE_ERROR and VALUE_ERROR name the function
// with its signature, the argument, what was expected and what came. On the CPU's default stream
// the call returns when the work is done, with the errors of the program (ASSERTION, OUT_OF_BOUNDS,
// DIVISION_BY_ZERO); on other streams it enqueues, tensors' memory is borrowed until the stream has
// passed the call, and such errors come from the next qn_stream_sync. `result`, if not NULL, is set
// to NONE. Allocates nothing.
QN_API QN_MUST_USE qn_status_t qn_function_call(qn_function_t* function, const qn_value_t* args,
                                                size_t count, qn_value_t* result);

// The same on a named stream (NULL: the default one) instead of the active one.
QN_API QN_MUST_USE qn_status_t qn_function_call_on(qn_function_t* function, qn_stream_t* stream,
                                                   const qn_value_t* args, size_t count,
                                                   qn_value_t* result);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_ENGINE_H_
