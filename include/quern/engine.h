// quern/engine.h: from a module and a target to functions that can be called.
//
//   qn_engine_create(NULL, &engine);
//   qn_module_parse(text, strlen(text), NULL, &module);
//   qn_target_parse("cpu", &target);
//   qn_engine_function(engine, module, target, "saxpy", NULL, &saxpy);
//   qn_value_t args[] = {qn_float(2.0), qn_tensor_value(&x), qn_tensor_value(&y)};
//   qn_function_call(saxpy, args, 3, NULL);
//
// Engines, functions and executables may be used by any thread. The first lookup of a (module,
// target) consults the memory table, then the cache directory, and only then compiles; later ones
// find the memory table. A cache problem is a miss, never an error.
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

// ------------------------------------------------------------------------------------ tensors,
// values

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

// Type indices of tvm-ffi's TVMFFIAny.
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
} qn_value_type_t;

// 16 bytes, the same shape as TVMFFIAny.
typedef struct qn_value {
  int32_t type;  // qn_value_type_t
  uint32_t padding;
  union {
    int64_t int_value;  // INT, BOOL
    double float_value;
    void* pointer;
    const qn_tensor_t* tensor;
    const char* string;
    qn_dl_dtype_t dtype;
    qn_device_t device;
  };
} qn_value_t;

static inline qn_value_t qn_int(int64_t value) {
  qn_value_t v = {QN_VALUE_INT, 0, {0}};
  v.int_value = value;
  return v;
}
static inline qn_value_t qn_bool(bool value) {
  qn_value_t v = {QN_VALUE_BOOL, 0, {0}};
  v.int_value = value ? 1 : 0;
  return v;
}
static inline qn_value_t qn_float(double value) {
  qn_value_t v = {QN_VALUE_FLOAT, 0, {0}};
  v.float_value = value;
  return v;
}
static inline qn_value_t qn_tensor_value(const qn_tensor_t* tensor) {
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
  QN_CACHE_OFF = 1,
  QN_CACHE_RO = 2,
  QN_CACHE_RW = 3,
  QN_CACHE_REFRESH = 4,
} qn_cache_mode_t;

typedef enum qn_source {
  QN_SOURCE_COMPILED = 1,
  QN_SOURCE_MEMORY = 2,
  QN_SOURCE_DISK = 3,
} qn_source_t;
// "compiled", "memory", "disk". Static storage.
QN_API const char* qn_source_text(qn_source_t source);

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
} qn_engine_options_t;

// `options` may be NULL. Opens no compiler. An unusable cache directory is no error: the engine
// then works from memory, says so once in the log and counts it. Errors: INVALID_ARGUMENT,
// OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_create(const qn_engine_options_t* options,
                                                qn_engine_t** out_engine);
// Functions and executables that are still held stay usable. Waits for queued publishes for a
// bounded time. NULL is fine.
QN_API void qn_engine_destroy(qn_engine_t* engine);
// Waits until everything that was compiled so far is in the cache directory or was given up. False
// when `timeout_ns` passed first.
QN_API bool qn_engine_flush(qn_engine_t* engine, int64_t timeout_ns);

typedef struct qn_lookup_options {
  size_t struct_size;  // sizeof(qn_lookup_options_t)
  qn_tier_t tier;      // 0: FULL
  bool is_checked;     // trap out-of-bounds and division by zero
  // A miss is COMPILE_FORBIDDEN instead of a compile.
  bool is_compile_forbidden;
} qn_lookup_options_t;

// Where an executable came from and what it took.
typedef struct qn_lookup_info {
  qn_source_t source;
  char key[33];        // 32 hex digits
  int64_t lookup_ns;   // all of the lookup
  int64_t compile_ns;  // 0 unless compiled
  int64_t load_ns;     // verify and load; 0 for a memory hit
} qn_lookup_info_t;

// The executable of (module, target, options): from memory, from the directory or compiled, once
// per key however many threads ask. `options` and `out_info` may be NULL. Owned:
// qn_executable_release. Errors: whatever the code generator says (UNSUPPORTED, UNAVAILABLE, ...),
// INCOMPATIBLE (ISA beyond the machine), COMPILE_FORBIDDEN, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_executable(qn_engine_t* engine, qn_module_t* module,
                                                    qn_target_t* target,
                                                    const qn_lookup_options_t* options,
                                                    qn_lookup_info_t* out_info,
                                                    qn_executable_t** out_executable);
// Drops the engine's own reference: the code is unloaded when nobody holds it. True if it was
// there.
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

// qn_engine_executable and qn_executable_function in one. `options` and `out_info` may be NULL.
QN_API QN_MUST_USE qn_status_t qn_engine_function(qn_engine_t* engine, qn_module_t* module,
                                                  qn_target_t* target, const char* name,
                                                  const qn_lookup_options_t* options,
                                                  qn_lookup_info_t* out_info,
                                                  qn_function_t** out_function);

// Writes an intermediate form of what the lookup would compile: "ir", "llvm", "asm", "image", ...
// Always runs the generator. Errors: NOT_FOUND lists the forms.
QN_API QN_MUST_USE qn_status_t qn_engine_emit(qn_engine_t* engine, qn_module_t* module,
                                              qn_target_t* target,
                                              const qn_lookup_options_t* options, const char* form,
                                              qn_sink_t sink);

// Counters of an engine and its cache, by table (counters.inc files). Calls back name, value, doc.
QN_API void qn_engine_counters(qn_engine_t* engine,
                               void (*on_counter)(void* self, const char* name, uint64_t value,
                                                  const char* doc),
                               void* self);

// The options in force, with where each came from ("default", "environment", "program").
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
