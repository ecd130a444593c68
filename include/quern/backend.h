// SPDX-License-Identifier: Apache-2.0
// quern/backend.h: for authors of backends: the tables of a device, a code generator, a kind of
// target and a plugin, the artifact between generator and device, and the ABI of CPU images.
// docs/new-backend.md walks through one.
//
// Tables, artifacts and requests follow the rule of struct_size (quern.h), for plugins and
// libraries of different versions: an optional function beyond a table's struct_size is NULL, a
// required one is an error that names it. A plugin reads only those members of a struct that are
// within its struct_size. Structs without struct_size (qn_launch_t, qn_kernel_failure_t,
// qn_driver_cache_t, qn_artifact_function_t, qn_artifact_site_t) change only with the ABI version
// of their table.
#ifndef QUERN_BACKEND_H_
#define QUERN_BACKEND_H_

#include "quern/device.h"
#include "quern/read.h"
#include "quern/target.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------ generators
//
// A code generator is a shared object `libquern-NAME.so` next to the library that exports
// `qn_codegen_entry`, or a table that a program or a plugin registers. The engine opens it on the
// first miss that needs it, never on a hit. Its input is canonical bytes and canonical JSON only:
// no pointers, no names of locals, no paths, so that equal keys give equal bytes. read.h reads the
// bytes.

// The version of qn_codegen_t and of what it uses.
#define QN_CODEGEN_ABI_VERSION 2u

// Why a running function stopped, which decides its message.
typedef enum qn_site_kind {
  QN_SITE_ASSERT = 1,    // `message` is the program's text
  QN_SITE_BOUNDS = 2,    // index and extent are reported; `buffer_id` and `dim` say where
  QN_SITE_DIVISION = 3,  // integer division by zero
  QN_SITE_EXTENT = 4,    // an allocation's extent is negative or too large; `buffer_id` says which
  QN_SITE_MEMORY = 5,    // workspace could not be allocated; `buffer_id` says for what
} qn_site_kind_t;

// One place of a function that may fail. Ids of buffers are those of the canonical bytes
// (parameters first, then allocations in program order). The engine knows their names.
typedef struct qn_artifact_site {
  qn_site_kind_t kind;  // what may fail there
  uint32_t buffer_id;   // UINT32_MAX: none
  uint32_t dim;         // BOUNDS and EXTENT: the dimension
  // The offset in the canonical bytes at which the access, division, assert or allocation begins,
  // as an expression or a statement. The engine knows its line in the text. 0: unknown.
  uint32_t place;
  const char* message;  // ASSERT; else NULL
} qn_artifact_site_t;

// One function of an artifact.
typedef struct qn_artifact_function {
  const char* name;          // of the module's function
  uint64_t code_offset;      // CPU: of the entry within the payload
  uint64_t code_size_bytes;  // CPU: of the entry
  uint32_t launch_count;     // consecutive outermost loops
  // Indices of the code are 32 bits wide: the call must check that no buffer has an element whose
  // linear index is beyond INT32_MAX.
  bool has_32_bit_indices;
  uint32_t site_count;              // of `sites`
  const qn_artifact_site_t* sites;  // the places that may fail
} qn_artifact_function_t;

// What a generator makes of one module. Everything is borrowed until `release`.
typedef struct qn_artifact {
  size_t struct_size;   // sizeof(qn_artifact_t)
  const char* format;   // "cpu-image-1", "interp-1"; a device says which formats it loads
  const char* isa;      // what the machine must have, as the target's ISA options in canonical JSON
  const void* payload;  // the code
  size_t payload_size;  // in bytes
  const void* metadata;                     // private between generator and device; may be empty
  size_t metadata_size;                     // in bytes
  size_t function_count;                    // of `functions`
  const qn_artifact_function_t* functions;  // all functions of the module
  void (*release)(struct qn_artifact* artifact);  // NULL if there is nothing to release
} qn_artifact_t;

// Copies an artifact with all that it points to, so that a generator may describe it by values of
// its own and free them. Does not call `release` of `from`. `*out_artifact` is owned: its
// `release`. Errors: INVALID_ARGUMENT, DATA_LOSS (a member is missing, or code lies outside of the
// payload; names it), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_artifact_copy(const qn_artifact_t* from,
                                                qn_artifact_t** out_artifact);

// The stages of a compile that a generator may report. Each is also a stage of the engine's times
// (docs/metrics.md).
typedef enum qn_compile_stage {
  QN_COMPILE_DECODE = 1,  // canonical bytes to a module, verified
  QN_COMPILE_PASSES = 2,  // passes on the module
  QN_COMPILE_EMIT = 3,    // the module to the compiler's language
  QN_COMPILE_OPTIMIZE =
      4,                   // the compiler's optimisations, where they are apart from the next stage
  QN_COMPILE_CODEGEN = 5,  // machine code, or what the driver takes
  QN_COMPILE_LINK = 6,     // linking, and checks of the result
} qn_compile_stage_t;

// What a generator compiles. Borrowed for the call.
typedef struct qn_compile_request {
  size_t struct_size;        // sizeof(qn_compile_request_t)
  const void* module_bytes;  // canonical
  size_t module_size;        // in bytes
  const char* target_json;   // canonical
  qn_tier_t tier;            // how much work to spend
  bool is_checked;           // trap out-of-bounds and division by zero
  // Called after each stage with its duration, on a thread of the compile; a stage may come several
  // times, and stages on several threads may overlap. NULL: not called.
  void (*on_stage)(void* self, qn_compile_stage_t stage, int64_t duration_ns);
  void* on_stage_self;  // passed to on_stage
  // Runs `run(arg, i)` for each i below `count`, on the calling thread and on idle compile threads
  // of the engine, begun in rising order, and returns when all have ended. After an error it begins
  // no more of them. Returns the error of the least i, which is the same for any number of threads.
  // The bytes of the artifact must not depend on that number either. `run` is called by several
  // threads at once, each i once; it may not call run_parallel. Errors: those of `run`; CANCELLED
  // in a child of fork that `run` made. NULL: the generator runs them in turn.
  qn_status_t (*run_parallel)(void* self, size_t count, qn_status_t (*run)(void* arg, size_t index),
                              void* arg);
  void* run_parallel_self;  // passed to run_parallel
} qn_compile_request_t;

// The table of a generator. `emit` may be NULL, and so may `create` and `destroy` of one without a
// state: the state is then NULL.
typedef struct qn_codegen {
  uint32_t abi_version;  // QN_CODEGEN_ABI_VERSION
  size_t struct_size;    // sizeof(qn_codegen_t)
  const char* name;      // "llvm"; at most 31 characters
  // Makes the state, which any threads use at once. Called once for each engine that compiles.
  // Errors: UNAVAILABLE (the compiler is not installed), OUT_OF_MEMORY.
  qn_status_t (*create)(void** out_self);
  // Destroys the state. No call on it runs.
  void (*destroy)(void* self);
  // Returns one line of at most 255 characters that names all that decides the bytes: version and
  // build ids of the generator and of the compiler library that was really loaded. Borrowed until
  // `destroy`. Not called for a generator that a qn_generator_info_t describes.
  const char* (*identity)(void* self);
  // Compiles. `*out_artifact` is owned: its `release`. Errors: UNSUPPORTED (names the construct
  // that cannot be compiled), INTERNAL (the compiler failed), UNAVAILABLE, OUT_OF_MEMORY.
  qn_status_t (*compile)(void* self, const qn_compile_request_t* request,
                         qn_artifact_t** out_artifact);
  // Writes an intermediate form: "ir" (after the passes), "llvm", "asm", ... Errors: NOT_FOUND (no
  // such form; lists the forms), those of `compile` and of the sink.
  qn_status_t (*emit)(void* self, const qn_compile_request_t* request, const char* form,
                      qn_sink_t sink);
} qn_codegen_t;

// The one symbol that a generator's object exports. Returns its table, or NULL if it cannot serve
// `abi_version`.
typedef const qn_codegen_t* (*qn_codegen_entry_fn_t)(uint32_t abi_version);
// The name of that symbol.
#define QN_CODEGEN_ENTRY_SYMBOL "qn_codegen_entry"

// The room of an identity, its terminator included.
enum { QN_IDENTITY_BYTES = 256 };
// Gives the identity by which the engine knows the shared object of generator `name` before it
// opens it. It comes from the GNU build id (-Wl,--build-id) of the mapped object that holds
// `address`, a function or an object of the generator. A generator with this identity has hits
// without being opened; with any other identity the first lookup of each process opens it. Errors:
// NOT_FOUND (the object has no build id), INVALID_ARGUMENT (no name, or one beyond 31 characters).
QN_API QN_MUST_USE qn_status_t qn_codegen_identity(const char* name, const void* address,
                                                   char out_identity[QN_IDENTITY_BYTES]);

// Registers a generator by its name for all engines: it then needs no shared object of its own.
// Call it before the first lookup that needs the generator. Calls `create` and `destroy` once to
// learn the identity. Copies the table; its texts are borrowed for the life of the process. Errors:
// INVALID_ARGUMENT (ABI version, missing members, name, identity), FAILED_PRECONDITION (the name is
// taken, or eight are registered), those of `create`.
QN_API QN_MUST_USE qn_status_t qn_codegen_register(const qn_codegen_t* table);

// ------------------------------------------------------------------------------------ devices
//
// A device is a table of functions for one type of devices. docs/new-backend.md goes through them.

// The version of qn_device_table_t and of what it uses.
#define QN_DEVICE_ABI_VERSION 1u

// What stopped a launch.
typedef struct qn_kernel_failure {
  uint32_t site;   // of the function's sites
  int64_t index;   // BOUNDS; else 0
  int64_t extent;  // BOUNDS and EXTENT; MEMORY: bytes; else 0
} qn_kernel_failure_t;

// One call of one function. Borrowed for the call.
typedef struct qn_launch {
  const uint64_t* words;  // as for qn_cpu_kernel_t
  uint32_t word_count;    // of `words`
  // One for each parameter: the address after the last byte of a buffer (equal to its word if it is
  // empty); unspecified for scalars.
  const uint64_t* ends;
  // The call, for the functions below. A device that returns before the work is done retains it
  // until then.
  void* owner;
  void (*retain)(void* owner);   // adds a reference
  void (*release)(void* owner);  // drops a reference
  // Makes the status of a failure.
  qn_status_t (*describe)(void* owner, const qn_kernel_failure_t* failure);
} qn_launch_t;

// What a driver makes of an artifact on its own (Vulkan's pipeline data), kept in the engine's
// cache beside the artifact's entry. `identity` names the driver and all that the data depends on;
// data of another identity is never given. The members may be NULL: nothing is kept.
typedef struct qn_driver_cache {
  void* self;  // passed to each call
  // Calls `sink` once with the stored bytes, verified. Does not call it if there are none.
  void (*get)(void* self, const char* identity, qn_sink_t sink);
  // Copies the bytes and stores them in the background. Failures are counted, not reported.
  void (*put)(void* self, const char* identity, const void* data, size_t size_bytes);
  void (*retain)(void* self);   // a device that keeps the table after `load` retains it
  void (*release)(void* self);  // and releases it in `unload`
} qn_driver_cache_t;

// How an artifact is loaded. Borrowed for the call.
typedef struct qn_load_options {
  size_t struct_size;              // sizeof(qn_load_options_t)
  const char* name;                // for profilers and debuggers: "softmax@0123456789ab"
  bool has_perf_map;               // write perf's map of symbols (QUERN_PERF)
  bool has_gdb;                    // register the code with gdb (QUERN_GDB)
  qn_driver_cache_t driver_cache;  // for the driver's own data
} qn_load_options_t;

// The table of a device type. `id` is the device's number. Streams are the device's own objects;
// NULL is its default stream. Handles of memory are numbers in one flat space of each device, from
// 1 to 2^62: a handle is a multiple of the alignment that was asked for, and of 64; the ranges
// [handle, handle + size) of live allocations share no number. They need not be addresses. Any
// thread calls the members. docs/new-backend.md lists those that must be there, and what callers
// get without the others.
typedef struct qn_device_table {
  uint32_t abi_version;  // QN_DEVICE_ABI_VERSION
  size_t struct_size;    // sizeof(qn_device_table_t)
  int32_t type;          // DLPack's, or one of your own below 64
  const char* name;      // "cpu"
  // Returns how many devices there are; the number may change, and 0 is no error. NULL: 1.
  int32_t (*count)(void);
  // Answers qn_device_attribute; `*out_value` comes as NONE, and stays so if the device does not
  // know. Not called for EXIST. NULL: always NONE.
  qn_status_t (*attribute)(int32_t id, qn_attribute_t attribute, qn_attribute_value_t* out_value);
  // Does qn_device_allocate, whose alignment has been checked.
  qn_status_t (*allocate)(int32_t id, size_t size_bytes, size_t alignment_bytes,
                          void** out_pointer);
  // Does qn_device_free. `pointer` is not NULL.
  qn_status_t (*free)(int32_t id, void* pointer);
  // Does qn_workspace_allocate. NULL: `allocate`.
  qn_status_t (*workspace_allocate)(int32_t id, void* stream, size_t size_bytes,
                                    void** out_pointer);
  // Does qn_workspace_free. `pointer` is not NULL. NULL: a sync and `free`.
  qn_status_t (*workspace_free)(int32_t id, void* stream, void* pointer);
  // Does qn_device_copy, whose ranges have been checked. At least one side is this device; the
  // other is this device type or the CPU. UNSUPPORTED for two devices of this type: qn_device_copy
  // then copies through the host.
  qn_status_t (*copy)(int32_t id, void* stream, const qn_copy_t* copy);
  // Does qn_stream_create.
  qn_status_t (*stream_create)(int32_t id, void** out_stream);
  // Does qn_stream_destroy.
  void (*stream_destroy)(int32_t id, void* stream);
  // Does qn_stream_sync. NULL: the default stream's work is always done.
  qn_status_t (*stream_sync)(int32_t id, void* stream);
  // Does qn_stream_wait. The streams differ.
  qn_status_t (*stream_wait)(int32_t id, void* from, void* to);
  // Does qn_stream_is_idle. NULL: true.
  bool (*stream_is_idle)(int32_t id, void* stream);
  // Returns whether the device loads artifacts of this format.
  bool (*accepts)(const char* format);
  // Loads an artifact, which is borrowed for the call. Errors: INCOMPATIBLE (the machine lacks what
  // artifact->isa needs), DATA_LOSS (malformed bytes), OUT_OF_MEMORY, DEVICE_ERROR.
  qn_status_t (*load)(int32_t id, const qn_artifact_t* artifact, const qn_load_options_t* options,
                      void** out_executable);
  // Unloads. No launch of the executable is queued any more.
  void (*unload)(int32_t id, void* executable);
  // Enqueues function `index` of the executable; on the CPU's default stream, runs it. Waits for
  // queued work only if a queue is full.
  qn_status_t (*launch)(int32_t id, void* executable, uint32_t index, void* stream,
                        const qn_launch_t* launch);
  // Does qn_device_host_allocate. NULL: ordinary memory.
  qn_status_t (*host_allocate)(int32_t id, size_t size_bytes, void** out_pointer);
  // Does qn_device_host_free. `pointer` is not NULL.
  qn_status_t (*host_free)(int32_t id, void* pointer);
  // Does qn_stream_wrap.
  qn_status_t (*stream_wrap)(int32_t id, void* native, void** out_stream);
  // Does qn_stream_native.
  void* (*stream_native)(int32_t id, void* stream);
  // Does qn_stream_capture_begin.
  qn_status_t (*capture_begin)(int32_t id, void* stream);
  // Does qn_stream_capture_end.
  qn_status_t (*capture_end)(int32_t id, void* stream, void** out_graph);
  // Does qn_graph_launch.
  qn_status_t (*graph_launch)(int32_t id, void* graph, void* stream);
  // Does qn_graph_destroy.
  void (*graph_destroy)(int32_t id, void* graph);
  // Gives the value of the target option `name` ("max_threads_per_block") on the device, for
  // from_device; none if the device has no answer, so that the option's default holds. NULL: the
  // attribute of that name.
  qn_status_t (*target_property)(int32_t id, const char* name, qn_attribute_value_t* out_value);
  // Returns why `count` is 0, as one line for messages ("the driver cannot be opened: ..."); "" or
  // NULL if unknown. Static storage.
  const char* (*absence)(void);
} qn_device_table_t;

// Registers a device type. Copies the table; its texts are borrowed for the life of the process.
// Errors: INVALID_ARGUMENT (ABI version, type, missing members), FAILED_PRECONDITION (the type is
// taken), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_device_register(const qn_device_table_t* table);

// Checks what code needs (qn_artifact_t's `isa`) against one device, by its `target_property`: for
// a device's `load`. Errors: INCOMPATIBLE (names the first option that is missing; or the text
// cannot be read), UNAVAILABLE (no kind is for devices of the type), those of `target_property`.
QN_API QN_MUST_USE qn_status_t qn_target_check_isa(const char* isa_json, int32_t device_type,
                                                   int32_t device_id);

// ------------------------------------------------------------------------------------ target kinds
//
// A kind of target names a code generator and a type of devices, and has a table of options.

// Registers a kind of target: how it is written, which code generator it needs and which devices
// run it. Call it before the first target of the kind. Options may be in any order. A device's
// answers are compared with ISA options by type: a BOOL that is true must be there, an INT is a
// maximum, texts are equal, a list is contained. The table is copied, its texts are borrowed for
// the life of the process. Errors: INVALID_ARGUMENT (names, defaults, more than 256 options),
// FAILED_PRECONDITION (the name is taken, or 32 are registered), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_target_kind_register(const qn_target_kind_info_t* info);

// ------------------------------------------------------------------------------------ plugins
//
// A plugin is devices, generators and kinds of targets in one shared object (qn_plugin_load).

// The version of qn_plugin_t.
#define QN_PLUGIN_ABI_VERSION 1u

// What the engine must know of a plugin's generator before it opens it. An identity is then made by
// the engine, from the build ids of the generator's object (-Wl,--build-id) and of all that is
// named here: the generator's own `identity` is not called and may be NULL.
typedef struct qn_generator_info {
  size_t struct_size;  // sizeof(qn_generator_info_t)
  const char* name;    // of the generator, as kinds of targets have it; at most 31 characters
  // Name of the file in the plugin's folder that exports QN_CODEGEN_ENTRY_SYMBOL, and is opened at
  // the first miss. NULL: the table is among the plugin's `generators`.
  const char* object;
  // What the output depends on outside of the object, such as the compiler that it runs: paths, or
  // names that are looked for in the folders of PATH. A file's build id counts; where it has none,
  // all its bytes, which are then read in every process.
  size_t file_count;
  const char* const* files;
  // Names of the generators that it calls: their identities count.
  size_t used_count;
  const char* const* used;
} qn_generator_info_t;

// What a plugin adds. Lists may be empty. Everything is borrowed for the life of the process.
typedef struct qn_plugin {
  uint32_t abi_version;                       // QN_PLUGIN_ABI_VERSION
  size_t struct_size;                         // sizeof(qn_plugin_t)
  const char* name;                           // for messages
  size_t device_count;                        // of `devices`
  const qn_device_table_t* const* devices;    // registered first
  size_t generator_count;                     // of `generators`
  const qn_codegen_t* const* generators;      // registered next
  size_t kind_count;                          // of `kinds`
  const qn_target_kind_info_t* const* kinds;  // registered last
  size_t info_count;                          // of `infos`
  const qn_generator_info_t* const* infos;    // of its generators, as far as they need any
} qn_plugin_t;

// The one symbol that a plugin exports. Returns its table, or NULL if it cannot serve
// `abi_version`.
typedef const qn_plugin_t* (*qn_plugin_entry_fn_t)(uint32_t abi_version);
// The name of that symbol.
#define QN_PLUGIN_ENTRY_SYMBOL "qn_plugin_entry"

// ------------------------------------------------------------------------------------ CPU images
//
// An image is position independent: text and read-only data side by side, no relocations, no
// imports. Its alignment is 64 bytes. It reaches everything outside through the environment that
// the kernel is passed.
//
// The metadata of an image is the table of its code symbols, for profilers and debuggers: a count,
// then for each symbol its offset, its size (LEB128) and its name (length and bytes), by rising
// offset. The symbols are the entries and their parts, such as the bodies of parallel loops. The
// table may be empty.

// The version of qn_cpu_functions_t and of qn_cpu_kernel_t.
#define QN_CPU_ABI_VERSION 2u

// A call in progress, as a kernel sees it.
typedef struct qn_cpu_env qn_cpu_env_t;

// Runs iterations [begin, end) of a parallel loop. Returns nonzero after a failure, which it has
// reported through `fail`.
typedef int32_t (*qn_cpu_body_t)(const qn_cpu_env_t* env, void* closure, int64_t begin,
                                 int64_t end);

// The functions that a kernel may call.
typedef struct qn_cpu_functions {
  uint32_t abi_version;  // QN_CPU_ABI_VERSION
  uint32_t struct_size;  // of this struct, in bytes
  // Runs `body` over ranges that cover [0, count), on any threads, and returns when all are done:
  // 0, or nonzero if one failed (others may then be skipped). `closure` is on the kernel's stack.
  // `grain` is the least number of iterations worth a thread of its own.
  int32_t (*parallel)(const qn_cpu_env_t* env, qn_cpu_body_t body, void* closure, int64_t count,
                      int64_t grain);
  // Returns workspace, aligned to 64 bytes and not zeroed; NULL if there is none.
  void* (*allocate)(const qn_cpu_env_t* env, int64_t size_bytes);
  // Frees workspace, in the reverse order of allocating it.
  void (*release)(const qn_cpu_env_t* env, void* pointer);
  // Records a failure at `site` (of the function's sites), of which the first one counts. The
  // kernel then returns nonzero. `index` and `extent` are 0 where the kind of site has none.
  void (*fail)(const qn_cpu_env_t* env, uint32_t site, int64_t index, int64_t extent);
} qn_cpu_functions_t;

// The environment of a kernel: the device's own state of the call may follow the pointer.
struct qn_cpu_env {
  const qn_cpu_functions_t* functions;  // of the device
};

// The entry of a function. `words` has one 64-bit word for each parameter, in order (the address of
// a buffer's first element, or a scalar's bits zero-extended), then one for each symbol (i64), in
// the order of first appearance. Returns 0, or nonzero after `fail`.
typedef int32_t (*qn_cpu_kernel_t)(const qn_cpu_env_t* env, const uint64_t* words);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_BACKEND_H_
