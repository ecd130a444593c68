// quern/codegen.h: for authors of code generators: the artifact that one makes, the table that it
// exports, and the ABI between a CPU image and the CPU device.
//
// A code generator is a shared object `libquern-NAME.so` next to the library that exports
// `qn_codegen_entry`. The engine opens it on the first miss that needs it, never on a hit.
// Its input is canonical bytes and canonical JSON only: no pointers, no names of locals, no paths,
// so that equal keys give equal bytes. docs/new-backend.md walks through one.
#ifndef QUERN_CODEGEN_H_
#define QUERN_CODEGEN_H_

#include "quern/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QN_CODEGEN_ABI_VERSION 1u

typedef enum qn_tier {
  QN_TIER_FULL = 1,  // the best code
  QN_TIER_FAST = 2,  // the shortest compile
} qn_tier_t;

// Where bytes are written. A status other than ok stops the writer and is passed on.
typedef struct qn_sink {
  void* self;
  qn_status_t (*write)(void* self, const void* data, size_t size_bytes);
} qn_sink_t;

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

// --------------------------------------------------------------------------- ABI of CPU images
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

#endif  // QUERN_CODEGEN_H_
