// quern/backend.h: for authors of backends: the tables of a device, a code generator, a kind of
// target and a plugin, the artifact between generator and device, and the ABI of CPU images.
// docs/new-backend.md walks through one.
#ifndef QUERN_BACKEND_H_
#define QUERN_BACKEND_H_

#include "quern/device.h"
#include "quern/target.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------------------- code generators
//
// A code generator is a shared object `libquern-NAME.so` next to the library that exports
// `qn_codegen_entry`. The engine opens it on the first miss that needs it, never on a hit. Its
// input is canonical bytes and canonical JSON only: no pointers, no names of locals, no paths, so
// that equal keys give equal bytes.

#define QN_CODEGEN_ABI_VERSION 1u

// Why a running function stopped; which message it makes (see qn_artifact_site_t).
typedef enum qn_site_kind {
  QN_SITE_ASSERT = 1,    // `message` is the program's text
  QN_SITE_BOUNDS = 2,    // index and extent are reported; `buffer_id` and `dim` say where
  QN_SITE_DIVISION = 3,  // integer division by zero
  QN_SITE_EXTENT = 4,    // an allocation's extent is negative or too large; `buffer_id` says which
  QN_SITE_MEMORY = 5,    // workspace could not be allocated; `buffer_id` says for what
} qn_site_kind_t;

// One place of a function that may fail. Ids of buffers are those of the canonical bytes
// (parameters first, then allocations in program order); the engine knows their names.
typedef struct qn_artifact_site {
  qn_site_kind_t kind;
  uint32_t buffer_id;  // UINT32_MAX: none
  uint32_t dim;
  const char* message;  // ASSERT; else NULL
} qn_artifact_site_t;

typedef struct qn_artifact_function {
  const char* name;
  uint64_t code_offset;  // CPU: of the entry within the payload
  uint64_t code_size_bytes;
  uint32_t launch_count;  // consecutive outermost loops
  // Indices of the code are 32 bits wide: the call must check that no buffer has an element whose
  // linear index is beyond INT32_MAX.
  bool has_32_bit_indices;
  uint32_t site_count;
  const qn_artifact_site_t* sites;
} qn_artifact_function_t;

// What a generator makes of one module. Everything is borrowed until `release`.
typedef struct qn_artifact {
  size_t struct_size;  // sizeof(qn_artifact_t)
  const char* format;  // "cpu-image-1", "interp-1"; a device says which formats it loads
  const char* isa;     // what the machine must have, as the target's ISA options in canonical JSON
  const void* payload;
  size_t payload_size;
  // Private between generator and device; may be empty.
  const void* metadata;
  size_t metadata_size;
  size_t function_count;
  const qn_artifact_function_t* functions;
  void (*release)(struct qn_artifact* artifact);  // NULL when there is nothing to release
} qn_artifact_t;

typedef struct qn_compile_request {
  size_t struct_size;        // sizeof(qn_compile_request_t)
  const void* module_bytes;  // canonical
  size_t module_size;
  const char* target_json;  // canonical
  qn_tier_t tier;
  bool is_checked;  // trap out-of-bounds, division by zero
} qn_compile_request_t;

// The table of a generator. NULL members are optional features that it lacks.
typedef struct qn_codegen {
  uint32_t abi_version;  // QN_CODEGEN_ABI_VERSION
  size_t struct_size;    // sizeof(qn_codegen_t)
  const char* name;      // "llvm"
  // A generator's state; thread-safe; made once per engine process-wide. Errors: UNAVAILABLE.
  qn_status_t (*create)(void** out_self);
  void (*destroy)(void* self);
  // One line that identifies whatever decides the bytes: version and build ids of the generator and
  // of the compiler library that was really loaded. Terminated, borrowed until destroy.
  const char* (*identity)(void* self);
  // Any thread, many at once. Errors: UNSUPPORTED names the construct; INTERNAL for a broken
  // promise.
  qn_status_t (*compile)(void* self, const qn_compile_request_t* request,
                         qn_artifact_t** out_artifact);
  // Writes an intermediate form: "ir" (after the passes), "llvm", "asm", ... Errors: NOT_FOUND
  // lists the forms that there are.
  qn_status_t (*emit)(void* self, const qn_compile_request_t* request, const char* form,
                      qn_sink_t sink);
} qn_codegen_t;

// The one exported symbol. NULL when the generator cannot serve `abi_version`.
typedef const qn_codegen_t* (*qn_codegen_entry_fn_t)(uint32_t abi_version);
#define QN_CODEGEN_ENTRY_SYMBOL "qn_codegen_entry"

enum { QN_IDENTITY_BYTES = 256 };
// The identity by which the engine knows the shared object of generator `name` before it opens it,
// from the GNU build id (-Wl,--build-id) of the mapped object that holds `address`, a function or
// an object of the generator's own. A generator that answers with it has its hits without being
// opened; any other answer makes the first lookup of each process open it. Errors: NOT_FOUND (the
// object has no build id), INVALID_ARGUMENT (no name, or one of 32 characters and more).
QN_API QN_MUST_USE qn_status_t qn_codegen_identity(const char* name, const void* address,
                                                   char out_identity[QN_IDENTITY_BYTES]);

// Makes a generator of this process known by its name, for all engines: it then needs no shared
// object of its own. The table is borrowed for the life of the process; `create` and `destroy` are
// called once for the identity. Before the first lookup that needs it; any thread. Errors:
// INVALID_ARGUMENT (ABI version, missing members, identity), FAILED_PRECONDITION (the name is
// taken, too many), those of `create`.
QN_API QN_MUST_USE qn_status_t qn_codegen_register(const qn_codegen_t* table);

// ------------------------------------------------------------------------------------ devices

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
typedef struct qn_driver_cache {
  void* self;
  // Calls `sink` with the stored bytes, verified, at most once; no call: there are none.
  void (*get)(void* self, const char* identity, qn_sink_t sink);
  // Copies the bytes and stores them behind the caller's back; failures are counted, not reported.
  void (*put)(void* self, const char* identity, const void* data, size_t size_bytes);
  // A device that keeps the handle beyond `load` retains it until `unload`.
  void (*retain)(void* self);
  void (*release)(void* self);
} qn_driver_cache_t;

typedef struct qn_load_options {
  size_t struct_size;
  const char* name;  // for profilers and debuggers: "softmax@0123456789ab"
  bool has_perf_map;
  bool has_gdb;
  qn_driver_cache_t driver_cache;
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

// The same for what code says of itself (qn_artifact_t's `isa`) and one device, by its
// `target_property`: for a device's `load`. Errors: INCOMPATIBLE, naming the first option that is
// missing, or a text that cannot be read; UNAVAILABLE when no kind is for devices of that type.
QN_API QN_MUST_USE qn_status_t qn_target_check_isa(const char* isa_json, int32_t device_type,
                                                   int32_t device_id);

// ------------------------------------------------------------------------------------ kinds of
// targets

// Adds a kind of target: how it is written, which code generator it wants and which devices run it.
// The table is copied, its texts are borrowed for the life of the process. Options may be in any
// order; `from_device`, and the load of code where a device asks for it, hold a device's answers
// against them by type: a BOOL that is true must be there, an INT is a most, texts are equal, a
// list is contained. Any thread; before the first target of the kind. Errors: INVALID_ARGUMENT
// (names, defaults), FAILED_PRECONDITION (the name is taken, too many kinds).
QN_API QN_MUST_USE qn_status_t qn_target_kind_register(const qn_target_kind_info_t* info);
// ------------------------------------------------------------------------------------ plugins
//
// A plugin is devices, generators and kinds of targets in one shared object (qn_plugin_load).

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

// ------------------------------------------------------------------------------------ images of
// the CPU
//
// An image is position independent: text and read-only data side by side, no relocations, no
// imports. Its alignment is 64 bytes. Everything outside is reached through the table that the
// kernel is passed.
//
// The metadata of an image is the table of its code symbols, for profilers and debuggers: a count,
// then per symbol its offset, its size (LEB128) and its name (length and bytes), by rising offset.
// It has the entries and what they are made of, such as the bodies of parallel loops. It may be
// empty.

#define QN_CPU_ABI_VERSION 1u

typedef struct qn_cpu_env qn_cpu_env_t;

// Runs iterations [begin, end) of a parallel loop. Nonzero: failed (already reported through
// `fail`).
typedef int32_t (*qn_cpu_body_t)(const qn_cpu_env_t* env, void* closure, int64_t begin,
                                 int64_t end);

struct qn_cpu_env {
  uint32_t abi_version;  // QN_CPU_ABI_VERSION
  uint32_t struct_size;
  // Runs `body` over ranges that cover [0, count), on any threads, and returns when all are done:
  // 0, or nonzero when one failed (the others may then be skipped). `closure` is on the kernel's
  // stack. `grain` is the least number of iterations worth a thread of its own.
  int32_t (*parallel)(const qn_cpu_env_t* env, qn_cpu_body_t body, void* closure, int64_t count,
                      int64_t grain);
  // Workspace aligned to 64 bytes, not zeroed; NULL when there is none. Freed in reverse order.
  void* (*allocate)(const qn_cpu_env_t* env, int64_t size_bytes);
  void (*release)(const qn_cpu_env_t* env, void* pointer);
  // Records a failure at `site` (index into the function's sites); the first one counts. The kernel
  // then returns nonzero. index and extent are 0 where the kind has none.
  void (*fail)(const qn_cpu_env_t* env, uint32_t site, int64_t index, int64_t extent);
};

// The entry of a function. `words` holds, in the order of the parameters, one 64-bit word each: the
// address of a buffer's first element, or a scalar's bits zero-extended; then the symbols (i64) in
// the order of first appearance. Returns 0, or nonzero after `fail`.
typedef int32_t (*qn_cpu_kernel_t)(const qn_cpu_env_t* env, const uint64_t* words);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_BACKEND_H_
