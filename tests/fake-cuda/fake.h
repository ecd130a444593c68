// SPDX-License-Identifier: Apache-2.0
// tests/fake-cuda/fake.h: a CUDA driver that runs on the CPU, for tests: its types and internal
// functions.
//
// It exports the part of libcuda.so.1 that devices/cuda uses, and is stricter than NVIDIA's driver:
// every handle is looked up, every range must lie in an allocation, and a call that a capture
// forbids invalidates the capture as documented. Streams are threads. Kernels are C++ code compiled
// by the fake NVRTC (nvrtc.c, kernel.hpp), and their threads are fibers (run.c). Each allocation
// ends at an inaccessible page, and a fault becomes the error "illegal address".
//
// One lock protects all state; it is not held while an operation runs.
#ifndef QUERN_TESTS_FAKE_CUDA_FAKE_H_
#define QUERN_TESTS_FAKE_CUDA_FAKE_H_

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "devices/cuda/driver.h"
#include "tests/fake-cuda/control.h"
#include "tests/fake-cuda/kernel.h"

#define EXPORT __attribute__((visibility("default")))

// Results beyond those of driver.h.
enum {
  FAKE_INVALID_DEVICE = 101,
  FAKE_INVALID_CONTEXT = 201,
  FAKE_INVALID_HANDLE = 400,
  FAKE_NOT_FOUND = 500,
  FAKE_NOT_PERMITTED = 800,
  FAKE_LAUNCH_OUT_OF_RESOURCES = 701,
  FAKE_ILLEGAL_INSTRUCTION = 715,
  FAKE_CAPTURE_UNSUPPORTED = 900,
  FAKE_CAPTURE_INVALIDATED = 901,
  FAKE_CAPTURE_MERGE = 902,
  FAKE_CAPTURE_UNMATCHED = 903,
  FAKE_CAPTURE_UNJOINED = 904,
  FAKE_CAPTURE_ISOLATION = 905,
  FAKE_CAPTURE_IMPLICIT = 906,
  FAKE_CAPTURED_EVENT = 907,
  FAKE_CAPTURE_WRONG_THREAD = 908,
};

enum { MAX_DEVICES = 8, MAX_MEMBERS = 16 };

typedef struct fake_capture fake_capture_t;

// The common first members of all objects. `kind` distinguishes their types.
typedef enum fake_kind {
  KIND_CONTEXT = 1,
  KIND_STREAM,
  KIND_EVENT,
  KIND_MODULE,
  KIND_FUNCTION,
  KIND_POOL,
  KIND_GRAPH,
  KIND_EXEC,
  KIND_USER_OBJECT,
} fake_kind_t;
typedef struct fake_object {
  fake_kind_t kind;
  struct fake_object* next;
} fake_object_t;

struct CUctx_st {
  fake_object_t object;
  int ordinal;
  int reference_count;
  CUresult error;  // the one after which nothing runs
  CUstream legacy;
  bool can_reach[MAX_DEVICES];
};

typedef enum op_kind {
  OP_KERNEL = 1,
  OP_COPY,
  OP_FILL,
  OP_RECORD,
  OP_WAIT,
  OP_FREE,
  OP_GRAPH
} op_kind_t;
typedef struct op {
  op_kind_t kind;
  struct op* next;
  // KERNEL
  CUfunction function;
  unsigned grid;
  unsigned block;
  unsigned shared_bytes;
  void** params;  // copies, in one block of memory with the pointers
  // COPY, FILL
  void* to;
  const void* from;
  size_t size_bytes;
  unsigned value;
  // RECORD, WAIT
  CUevent event;
  uint64_t sequence;
  // FREE
  CUdeviceptr address;
  // GRAPH
  CUgraphExec exec;
  // In a graph: the stream that recorded it, and how much of each stream it comes behind.
  int member;
  uint64_t behind[MAX_MEMBERS];
} op_t;

struct CUstream_st {
  fake_object_t object;
  CUcontext context;
  unsigned flags;
  pthread_t thread;
  bool is_stopping;
  op_t* first;
  op_t* last;
  bool is_running;
  fake_capture_t* capture;
  int member;  // its number in the capture
};

// One record of an event that no stream has passed yet. An event may be recorded again on another
// stream meanwhile, and that stream may be the first to get there: what waits for one record must
// neither go on nor stay because of another.
typedef struct pending {
  uint64_t sequence;
  struct pending* next;
} pending_t;

struct CUevent_st {
  fake_object_t object;
  CUcontext context;
  uint64_t recorded;  // how often; the number of the latest record
  pending_t* pending;
  int use_count;  // operations that name it
  bool is_destroyed;
  fake_capture_t* capture;  // recorded in it, and not since
  uint64_t clock[MAX_MEMBERS];
};

struct fake_capture {
  CUgraph graph;
  CUstream origin;
  CUstreamCaptureMode mode;
  pthread_t thread;
  bool is_invalid;
  int member_count;
  CUstream members[MAX_MEMBERS];
  uint64_t clock[MAX_MEMBERS][MAX_MEMBERS];  // what each member has seen of each
  fake_capture_t* next;
};

struct CUuserObject_st {
  fake_object_t object;
  void* self;
  CUhostFn destroy;
  unsigned count;
};

// Operations in the order of their recording, which is one that their dependencies allow.
struct CUgraph_st {
  fake_object_t object;
  CUcontext context;
  op_t* first;
  op_t* last;
  size_t op_count;
  CUdeviceptr memory[64];  // of recorded allocations
  int memory_count;
  CUuserObject kept[256];
  int kept_count;
  int exec_count;
  bool is_destroyed;
};
struct CUgraphExec_st {
  fake_object_t object;
  CUcontext context;
  CUgraph graph;
  int use_count;
  bool is_destroyed;
};

struct CUmod_st {
  fake_object_t object;
  CUcontext context;
  void* library;
  const fake_module_t* exported;
  int function_count;
  CUfunction functions;
};
struct CUfunc_st {
  fake_object_t object;
  CUmodule module;
  const fake_kernel_t* kernel;
  int max_dynamic_bytes;
};
struct CUmemPoolHandle_st {
  fake_object_t object;
  int ordinal;
};

typedef enum memory_kind { MEMORY_DEVICE = 1, MEMORY_POOL, MEMORY_HOST } memory_kind_t;

typedef struct fake_settings {
  int device_count;
  int version;
  int capability;
  int has_pools;
  int peer;
  size_t memory_bytes;
  long seed;
  int has_races;
} fake_settings_t;

extern fake_settings_t fake_settings;
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;
extern fake_cuda_counts_t fake_counts;
extern unsigned fake_last_launch[3];

// ---- context.c

enum {
  NEEDS_CONTEXT = 1,  // a current one that is not broken
  UNSAFE = 2,         // a capture may forbid it
};
// Counts the call, returns a requested failure, and checks the call's preconditions. Takes the lock
// on success only.
CUresult fake_enter(const char* entry, unsigned needs);
static inline CUresult fake_leave(CUresult result) {
  (void)pthread_mutex_unlock(&fake_lock);
  return result;
}
#define ENTER(needs)                                   \
  do {                                                 \
    CUresult entered_ = fake_enter(__func__, (needs)); \
    if (entered_ != QN__CU_OK) return entered_;        \
  } while (0)
void fake_violation(const char* format, ...) __attribute__((format(printf, 1, 2)));
CUcontext fake_current(void);
CUcontext fake_context_of(int ordinal);
void fake_add(fake_object_t* object, fake_kind_t kind);
void fake_remove(fake_object_t* object);
const fake_object_t* fake_first(void);
// Is it one of ours, of this kind, and alive?
bool fake_is(const void* handle, fake_kind_t kind);

// ---- memory.c

CUdeviceptr fake_memory_make(memory_kind_t kind, int ordinal, size_t size_bytes);
bool fake_memory_free(CUdeviceptr address, memory_kind_t kind);
// Does an allocation of one of the kinds (bits 1 << kind) hold the range? Its device in
// out_ordinal.
bool fake_memory_has(const void* address, size_t size_bytes, unsigned kinds, int* out_ordinal);

// ---- stream.c

CUresult fake_stream_find(CUstream handle, CUstream* out_stream);
// The same for queries: does not invalidate another stream's capture.
CUresult fake_stream_ask(CUstream handle, CUstream* out_stream);
// Queues the operation, or records it. Consumed.
CUresult fake_enqueue(CUstream stream, op_t* op);
op_t* fake_op(op_kind_t kind);
void fake_op_free(op_t* op);
void fake_stream_drain(CUstream stream);
void fake_event_release(CUevent event);

// ---- capture.c

CUresult fake_capture_check_unsafe(void);
void fake_capture_invalidate(fake_capture_t* capture);
// The legacy stream waits for all blocking ones: while one of the context captures it is unusable.
CUresult fake_capture_check_legacy(const struct CUctx_st* context, bool is_asked);
// Calls a function that must not call the driver.
void fake_call_host(CUhostFn function, void* self);
void fake_capture_append(CUstream stream, op_t* op);
CUresult fake_capture_wait(CUstream stream, CUevent event);
void fake_exec_release(CUgraphExec exec);

// ---- run.c

extern const fake_hooks_t fake_run_hooks;
// Runs all blocks. Returns the error that stopped them, or QN__CU_OK.
CUresult fake_run(const fake_kernel_t* kernel, const fake_module_t* module, unsigned grid,
                  unsigned block, unsigned shared_bytes, void** params, uint64_t number);
// Of a thread that runs work; freed when the thread ends.
void fake_run_init(void);

// ---- race.c

typedef struct fake_races fake_races_t;
fake_races_t* fake_races_make(void);  // NULL without memory
void fake_races_free(fake_races_t* races);
void fake_races_begin(fake_races_t* races, const char* kernel);
void fake_races_block(fake_races_t* races, unsigned block);
// All threads of the block have met; lanes of the warp that begins with thread `first` have.
void fake_races_barrier(fake_races_t* races);
void fake_races_meet(fake_races_t* races, unsigned first, unsigned lanes);
void fake_races_fence(fake_races_t* races, unsigned thread);
void fake_races_access(fake_races_t* races, const void* address, unsigned size, unsigned thread,
                       unsigned how, bool is_shared);

#endif  // QUERN_TESTS_FAKE_CUDA_FAKE_H_
