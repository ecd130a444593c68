// SPDX-License-Identifier: Apache-2.0
// conformance/suite.h: for authors of cases: the context of a case, its functions, and the tables.
//
// A case is a row of an area's table: a name and a function, or a text of IR with arguments
// (program.h). The context releases everything that a case uses after it, so a case returns where a
// check fails. Thread rule: a context belongs to the thread of the run; threads of a case must not
// touch it. Read next: memory.c (a plain area).
#ifndef QUERN_CONFORMANCE_SUITE_H_
#define QUERN_CONFORMANCE_SUITE_H_

#include "conformance/conformance.h"

#define CONF_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

typedef struct conf conf_t;

typedef struct conf_case {
  const char* feature;
  void (*run)(conf_t* c);
} conf_case_t;

// An area: plain cases, or a function that makes and runs its own. While the suite lists its
// features, conf_begin and conf_programs only name them.
typedef struct conf_area {
  const char* name;
  const conf_case_t* cases;
  size_t case_count;
  void (*run)(conf_t* c);
} conf_area_t;

extern const conf_area_t conf_area_attributes;  // attributes.c
extern const conf_area_t conf_area_memory;      // memory.c
extern const conf_area_t conf_area_copies;      // copies.c
extern const conf_area_t conf_area_streams;     // streams.c
extern const conf_area_t conf_area_graphs;      // graphs.c
extern const conf_area_t conf_area_statements;  // statements.c
extern const conf_area_t conf_area_scans;       // scans.c
extern const conf_area_t conf_area_grids;       // grids.c
extern const conf_area_t conf_area_atomics;     // atomics.c
extern const conf_area_t conf_area_exchanges;   // exchanges.c
extern const conf_area_t conf_area_failures;    // failures.c
extern const conf_area_t conf_area_dtypes;      // dtypes.c
extern const conf_area_t conf_area_operators;   // operators.c
extern const conf_area_t conf_area_math;        // math.c
extern const conf_area_t conf_area_shapes;      // shapes.c
extern const conf_area_t conf_area_products;    // products.c
extern const conf_area_t conf_area_calls;       // calls.c
extern const conf_area_t conf_area_threads;     // threads.c
extern const conf_area_t conf_area_cache;       // cache.c
extern const conf_area_t conf_area_random;      // random.c

typedef enum conf_kept_kind {
  CONF_KEPT_HOST = 1,
  CONF_KEPT_DEVICE,
  CONF_KEPT_STREAM,
  CONF_KEPT_FUNCTION,
  CONF_KEPT_EXECUTABLE,
  CONF_KEPT_MODULE,
} conf_kept_kind_t;

typedef struct conf_kept {
  conf_kept_kind_t kind;
  void* pointer;
  qn_device_t device;
} conf_kept_t;

struct conf {
  conf_options_t options;
  conf_totals_t totals;
  qn_device_t device;
  qn_engine_t* engine;  // without a cache
  qn_target_t* target;  // under test
  qn_target_t* oracle;  // the interpreter, with warps as wide as the target's
  int64_t warp_size;
  int64_t max_threads;  // of a block
  bool flushes_f32;     // denormal numbers are zeros
  bool flushes_f64;
  bool is_address;  // memory handles are addresses
  int long_rounds;  // of a loop that takes some milliseconds
  // The case that runs.
  const char* area;
  const char* feature;
  const char* variant;
  conf_verdict_t verdict;
  char why[1024];
  char* program;  // that shows the failure, owned; NULL: none
  int64_t begin_ns;
  conf_kept_t* kept;
  size_t kept_count;
  size_t kept_capacity;
};

// ---- the verdict

static inline bool conf_is_listing(const conf_t* c) {
  return c->engine == NULL;
}
// Whether the filter chooses a case of the area. `variant` NULL: none.
bool conf_wants(const conf_t* c, const char* feature, const char* variant);
// Before and after a case; conf_begin is false if the case is not chosen (or only listed).
bool conf_begin(conf_t* c, const char* feature, const char* variant);
void conf_end(conf_t* c);
// The first failure of a case counts.
void conf_fail(conf_t* c, const char* format, ...) QN_PRINTF(2, 3);
void conf_unsupported(conf_t* c, const char* format, ...) QN_PRINTF(2, 3);
// Checks that a status is ok. UNSUPPORTED and UNAVAILABLE make the case unsupported, other errors
// fail it. Consumes the status.
bool conf_ok(conf_t* c, qn_status_t status);
// Checks that a status has `code`, and all of `parts` (comma-separated, may be NULL) in its
// message; else the case fails. Unexpected UNSUPPORTED and UNAVAILABLE make it unsupported.
// Consumes the status.
bool conf_expect(conf_t* c, qn_status_t status, qn_status_code_t code, const char* parts);
#define CONF_CHECK(c, condition, ...) \
  do {                                \
    if (!(condition)) {               \
      conf_fail((c), __VA_ARGS__);    \
      return;                         \
    }                                 \
  } while (0)
#define CONF_TRY(c, expression)              \
  do {                                       \
    if (!conf_ok((c), (expression))) return; \
  } while (0)

// ---- resources of a case; NULL after a failure, which is then the verdict

void* conf_host_memory(conf_t* c, size_t size_bytes);  // zeroed
void* conf_device_memory(conf_t* c, size_t size_bytes);
void* conf_device_memory_of(conf_t* c, qn_device_t device, size_t size_bytes);
qn_stream_t* conf_stream(conf_t* c);
qn_module_t* conf_module(conf_t* c, const char* text);
// Compiles a function of `text` for the target.
qn_function_t* conf_function(conf_t* c, const char* text, const char* name, bool is_checked);
void conf_keep(conf_t* c, conf_kept_kind_t kind, void* pointer, qn_device_t device);
// Releases one of them before the end of the case.
void conf_drop(conf_t* c, void* pointer);

// Calls on the default stream and waits. Returns the error of the call, else of the sync.
qn_status_t conf_call(const conf_t* c, qn_function_t* function, const qn_value_t* args,
                      size_t count);

// Copies from host to device and back, complete on return.
bool conf_upload(conf_t* c, void* device_memory, size_t offset_bytes, const void* host,
                 size_t size_bytes);
bool conf_download(conf_t* c, void* host, const void* device_memory, size_t offset_bytes,
                   size_t size_bytes);
// Copies with all members of a qn_copy_t, without a sync.
qn_status_t conf_copy(qn_device_t from_device, const void* from, size_t from_offset_bytes,
                      qn_device_t to_device, void* to, size_t to_offset_bytes, size_t size_bytes,
                      bool is_host_pinned, qn_stream_t* stream);
// Makes a compact tensor of the device; `shape` is borrowed.
qn_tensor_t conf_tensor(const conf_t* c, void* data, qn_dtype_t dtype, int32_t rank,
                        int64_t* shape);
static inline qn_device_t conf_cpu(void) {
  qn_device_t device = {QN_DEVICE_CPU, 0};
  return device;
}

int64_t conf_now_ns(void);

#endif  // QUERN_CONFORMANCE_SUITE_H_
