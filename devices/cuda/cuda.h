// SPDX-License-Identifier: Apache-2.0
// devices/cuda/cuda.h: the CUDA device: its objects, and the functions its files share.
//
// Requirements on every call into the driver:
//  1. The device's primary context is current during the call. Afterwards the host's context is
//     current again (qn__cuda_enter, qn__cuda_leave). The primary context is retained on first use
//     and never released.
//  2. The result is checked. The message of a failure has the driver's name and text for it.
//  3. After a failure that the driver repeats for every later call (an illegal address, say), every
//     call on the device returns that failure at once (qn__cuda_check, qn__cuda_usable).
//  4. Calls that the driver may refuse during a capture run in the relaxed capture mode
//     (qn__cuda_enter), so that they neither fail nor end a capture of ours or of the host.
//  5. No lock is held during a wait for the GPU.
//  6. A child of fork calls nothing: a context does not survive a fork.
//
// Read next: loader.c, stream.c, executable.c.
#ifndef QUERN_DEVICES_CUDA_CUDA_H_
#define QUERN_DEVICES_CUDA_CUDA_H_

#include <stdatomic.h>

#include "base/arena.h"
#include "base/short_lock.h"
#include "base/thread.h"
#include "devices/cuda/driver.h"
#include "devices/workspace.h"
#include "quern/gpu.h"

#define QN__CUDA_MAX_DEVICES 64
// The most blocks of a launch, for each multiprocessor. Kernels stride over larger grids.
#define QN__CUDA_BLOCKS_PER_MULTIPROCESSOR 32

extern const qn_device_table_t qn__cuda_device_table;

typedef struct qn__cuda_stream qn__cuda_stream_t;
typedef struct qn__cuda_graph qn__cuda_graph_t;
typedef struct qn__cuda_staging qn__cuda_staging_t;
typedef struct qn__cuda_executable qn__cuda_executable_t;
typedef struct qn__cuda_page qn__cuda_page_t;
typedef struct qn__cuda_error_record qn__cuda_error_record_t;
typedef struct qn__cuda_aligned qn__cuda_aligned_t;

enum { QN__CUDA_EVENTS = 64 };

typedef struct qn__cuda_device {
  int32_t id;
  CUdevice handle;
  // Read once, when the driver is opened.
  int major;
  int minor;
  int multiprocessor_count;
  int max_threads;
  int max_shared_bytes;  // with the opt-in
  int max_grid;
  bool has_pools;

  qn__mutex_t mutex;           // of the members below, unless they say otherwise
  _Atomic(CUcontext) context;  // NULL until first used
  _Atomic(CUresult) fatal;     // the failure that ended the device; QN__CU_OK: none
  CUmemoryPool pool;           // NULL: workspace comes from the blocks below
  bool is_peer_tried[QN__CUDA_MAX_DEVICES];
  qn__cuda_stream_t* default_stream;  // the legacy one; created with the context
  qn__cuda_aligned_t* aligned;        // allocations whose address differs from the driver's
  qn__cuda_page_t* records;
  qn__cuda_page_t* readbacks;
  qn__cuda_staging_t* staging;
  uint32_t staging_count;
  uint32_t capture_count;                   // streams that record
  qn__cuda_executable_t* deferred_unloads;  // unloaded when no stream records

  qn__workspace_t blocks;  // under its own lock; unused if there is a pool

  // Free events, under their own lock.
  qn__short_lock_t event_lock;
  uint32_t event_count;
  CUevent events[QN__CUDA_EVENTS];
} qn__cuda_device_t;

// ---- loader.c: the driver, devices, statuses

// Returns the entry points; NULL without a usable driver. Opens the driver on the first call.
const qn__cuda_driver_t* qn__cuda(void);
// Returns the number of devices; 0 without a driver.
int32_t qn__cuda_count(void);
// Returns in one line why there are no devices. Static storage.
const char* qn__cuda_absence(void);
// Returns the driver's CUDA version, 13000 for 13.0; 0 without a driver.
int qn__cuda_version(void);
// Returns the version of the driver's package, "580.159.03"; "" if it is unknown.
const char* qn__cuda_package_version(void);
// Returns the device with number `id`, usable or not; NULL if there is none.
qn__cuda_device_t* qn__cuda_device(int32_t id);
// Returns true in a forked child whose parent had opened the driver.
bool qn__cuda_is_forked(void);
// Converts a driver result: ok for QN__CU_OK, else "cuda:0: WHAT: NAME (text)". Records in the
// device a failure that ends it. `device` may be NULL.
qn_status_t qn__cuda_check(qn__cuda_device_t* device, CUresult result, const char* format, ...)
    QN_PRINTF(3, 4);
// Returns the failure that ended the device; ok while it works.
qn_status_t qn__cuda_usable(const qn__cuda_device_t* device);

// ---- context.c: entering and leaving the device's context

typedef struct qn__cuda_scope {
  CUcontext pushed;  // NULL: the context was current already
  bool is_relaxed;
  CUstreamCaptureMode old_mode;
} qn__cuda_scope_t;
// Makes the context of device `id` current and relaxes the capture mode. Creates the context on
// first use. After a failure there is nothing to leave. Errors: UNAVAILABLE, DEVICE_ERROR,
// OUT_OF_MEMORY.
qn_status_t qn__cuda_enter(int32_t id, qn__cuda_device_t** out_device, qn__cuda_scope_t* scope);
// Does the same without changing the capture mode, for calls that are legal during a capture.
qn_status_t qn__cuda_enter_fast(int32_t id, qn__cuda_device_t** out_device,
                                qn__cuda_scope_t* scope);
// Relaxes the capture mode after qn__cuda_enter_fast. `scope` is another one, left separately.
qn_status_t qn__cuda_relax(qn__cuda_device_t* device, qn__cuda_scope_t* scope);
void qn__cuda_leave(const qn__cuda_scope_t* scope);

// ---- event.c: a pool of events

qn_status_t qn__cuda_event_acquire(qn__cuda_device_t* device, CUevent* out_event);
void qn__cuda_event_release(qn__cuda_device_t* device, CUevent event);

// ---- error_record.c: error records in device memory, and pinned memory for copies of them

enum { QN__CUDA_BATCHES = 256, QN__CUDA_MARKS = 8, QN__CUDA_SYNCS = 8 };

// Copies of a stream's error records in pinned memory.
typedef struct qn__cuda_readback {
  qn_gpu_record_t marks[QN__CUDA_MARKS];     // of the stream's record, before each mark
  qn_gpu_record_t syncs[QN__CUDA_SYNCS];     // of the stream's record, one for each waiting thread
  qn_gpu_record_t graphs[QN__CUDA_BATCHES];  // of a graph's record, after each launch
} qn__cuda_readback_t;

// Allocates, in the context and with the device's lock held. The contents are undefined.
qn_status_t qn__cuda_error_record_allocate(qn__cuda_device_t* device, CUdeviceptr* out_record);
qn_status_t qn__cuda_readback_allocate(qn__cuda_device_t* device,
                                       qn__cuda_readback_t** out_readback);
// Frees, without the device's lock. The GPU must have finished all writes. 0 and NULL: no effect.
void qn__cuda_error_record_free(qn__cuda_device_t* device, CUdeviceptr record);
void qn__cuda_readback_free(qn__cuda_device_t* device, qn__cuda_readback_t* readback);
// Enqueue a clear, or a copy to pinned memory, on the stream.
qn_status_t qn__cuda_error_record_clear(qn__cuda_device_t* device, CUdeviceptr record,
                                        CUstream native);
qn_status_t qn__cuda_error_record_copy(qn__cuda_device_t* device, CUdeviceptr record,
                                       CUstream native, qn_gpu_record_t* to);
// Enqueues a change of the tag in a graph's record to one that no kernel has, so that every kernel
// is skipped, also the one that failed. A record without a tag stays empty.
qn_status_t qn__cuda_error_record_poison(qn__cuda_device_t* device, CUdeviceptr record,
                                         CUstream native);

// An error record of a stream. A call uses one record from its first kernel to its last. After a
// failure all its later kernels are skipped, whatever calls other threads begin meanwhile.
struct qn__cuda_error_record {
  CUdeviceptr address;
  _Atomic uint32_t call_count;    // calls that may still launch kernels with it
  uint32_t failed_upper;          // upper part of the last tag read from it (the stream's lock)
  qn__cuda_error_record_t* next;  // in the stream's list
};
// Allocates the stream's first record. In the context, with the device's lock held.
qn_status_t qn__cuda_error_record_init(qn__cuda_stream_t* stream);
// Frees all records of the stream. Without the device's lock.
void qn__cuda_error_record_deinit(qn__cuda_stream_t* stream);
// Gets the record of a call, before its first kernel that can fail. Enqueues a clear first if one
// is due. On failure the kernel must not be launched. Errors: those of the driver, OUT_OF_MEMORY.
qn_status_t qn__cuda_error_record_acquire(qn__cuda_stream_t* stream,
                                          qn__cuda_error_record_t** out_record);
// Ends the call's use of the record, after its last kernel.
void qn__cuda_error_record_release(qn__cuda_error_record_t* record);

// ---- stream.c, in_flight.c

// The object that a launch retains, and that describes a failure of its kernels.
typedef struct qn__cuda_owner {
  void* owner;
  void (*release)(void* owner);
  qn_status_t (*describe)(void* owner, const qn_kernel_failure_t* failure);
} qn__cuda_owner_t;

// A tag in an error record. The upper part is the number of a batch (or of an owner in a graph),
// the lower part that of a kernel in it. A kernel runs only if the record is empty or has its own
// tag, so two kernels that can use one record never have equal tags: a batch takes no more kernels
// than it has tags, and the number of a failed batch is not used again while its tag is in the
// record.
enum { QN__CUDA_TAG_SHIFT = 12, QN__CUDA_TAGS = 1 << 12, QN__CUDA_MAX_TAGGED = 0xfffff };

// A graph's kernels have the same tags at each launch. Their highest bit is set. The highest bit of
// their lowest byte is clear, unlike in a tag that qn__cuda_error_record_poison has changed.
enum { QN__CUDA_GRAPH_SHIFT = 7, QN__CUDA_MAX_GRAPH_OWNERS = 0x7ffff };
#define QN__CUDA_GRAPH_TAG UINT32_C(0x80000000)

typedef struct qn__cuda_tags {
  uint32_t upper;  // never 0
  uint32_t first;  // lower parts are the low bits of QN__CUDA_TAGS numbers from here on
} qn__cuda_tags_t;

// Consecutive launches of one owner, or one launch of a graph, that may still run on the GPU.
typedef struct qn__cuda_batch {
  qn__cuda_tags_t tags;    // of their kernels
  uint32_t pending_count;  // callers between qn__cuda_batch_begin and _end
  qn__cuda_owner_t owner;
  qn__cuda_graph_t* graph;  // retained; a batch has either a graph or an owner
  bool has_copy;            // of the graph's record, in the stream's read-back memory
  uint32_t report_count;    // of the graph, before the launch
} qn__cuda_batch_t;

enum { QN__CUDA_LAUNCHES_PER_MARK = 32 };

struct qn__cuda_stream {
  qn__cuda_device_t* device;
  CUstream native;
  uint64_t number;  // unique; the default stream's is 0
  bool is_owned;    // false: the host's, or the default stream
  qn__cuda_readback_t* readback;
  _Atomic uint32_t kernel_count;       // the number of the next kernel that has a tag
  _Atomic uint64_t fallible_end;       // batches that can fail are below
  _Atomic(qn__cuda_graph_t*) capture;  // the graph that it records; NULL: none
  _Atomic bool is_shared;              // the host has the native stream, and may capture on it
  qn__cuda_stream_t* next_captured;    // in the same capture

  qn__mutex_t retire_mutex;  // of retiring batches; never held during a wait
  qn_status_t error;         // the first failure of retired batches
  bool is_failed;            // the record's failure is known, and no sync has returned it yet

  // Written with both the mutex above and the lock below held; read with either.
  qn__cuda_error_record_t* record;   // of new calls
  uint32_t record_epoch;             // the number of clears
  bool is_clear_due;                 // before the next kernel that can fail
  qn__cuda_error_record_t* records;  // all of the stream

  qn__short_lock_t lock;  // of all members below
  uint64_t first;         // batches [first, next)
  uint64_t next;
  uint64_t marked_end;      // batches below are covered by a mark or a wait: no launch joins them
  uint32_t unmarked_count;  // launches since the last mark
  bool is_marking;
  uint64_t copied_end;    // failures of batches below are in a copy that is queued or read
  uint64_t read_end;      // failures of batches below are in a copy that was read
  uint32_t syncs_in_use;  // slots of `readback->syncs`, a bit for each
  uint64_t first_mark;    // marks [first_mark, next_mark)
  uint64_t next_mark;
  struct {
    CUevent event;
    uint64_t position;      // the event comes after all batches below
    bool has_copy;          // a copy of the record was queued before the event
    uint32_t record_epoch;  // of the copy
  } marks[QN__CUDA_MARKS];
  qn__cuda_batch_t batches[QN__CUDA_BATCHES];
};

// Returns the inner object of `stream`; the device's default stream for NULL.
qn__cuda_stream_t* qn__cuda_stream(qn__cuda_device_t* device, void* stream);
// Creates the object of a native stream. In the context, with the device's lock held.
qn_status_t qn__cuda_stream_make(qn__cuda_device_t* device, CUstream native, bool is_owned,
                                 qn__cuda_stream_t** out_stream);
// Frees without waiting: the GPU has finished the batches in flight (`is_passed`), or never will.
void qn__cuda_stream_free(qn__cuda_stream_t* stream, bool is_passed);

qn_status_t qn__cuda_stream_create(int32_t id, void** out_stream);
void qn__cuda_stream_destroy(int32_t id, void* stream);
qn_status_t qn__cuda_stream_sync(int32_t id, void* stream);
qn_status_t qn__cuda_stream_wait(int32_t id, void* from, void* to);
bool qn__cuda_stream_is_idle(int32_t id, void* stream);
qn_status_t qn__cuda_stream_wrap(int32_t id, void* native, void** out_stream);
void* qn__cuda_stream_native(int32_t id, void* stream);
// Reports whether the host captures a graph of its own on the stream.
qn_status_t qn__cuda_is_recorded_by_host(const qn__cuda_stream_t* stream, bool* out_is_recorded);
// Returns FAILED_PRECONDITION while the stream records, for us or for the host.
qn_status_t qn__cuda_not_capturing(const qn__cuda_stream_t* stream, const char* what);

// Adds a call (`launch`) or the launch of a graph (`graph`) to the batches in flight and retains
// its owner or graph. Returns the batch's position and tags. `record` NULL: a new call, which may
// join the newest batch if that has the same owner. Else a call that continues in a new batch, with
// the same record. Waits only if the ring is full.
qn_status_t qn__cuda_batch_begin(qn__cuda_stream_t* stream, const qn_launch_t* launch,
                                 qn__cuda_graph_t* graph, const qn__cuda_error_record_t* record,
                                 uint64_t* out_position, qn__cuda_tags_t* out_tags);
// Ends the caller's enqueueing, after success or failure. Records a mark and retires finished
// batches every QN__CUDA_LAUNCHES_PER_MARK launches.
void qn__cuda_batch_end(qn__cuda_stream_t* stream, uint64_t position);
// Makes later marks and waits copy the error record. Called after qn__cuda_error_record_acquire and
// before the kernel, once for each batch of the call.
void qn__cuda_batch_may_fail(qn__cuda_stream_t* stream, uint64_t position);
// Enqueues a copy of the graph's record, between the launch and qn__cuda_batch_end. `report_count`:
// the number of the graph's failures that had been reported before the launch.
qn_status_t qn__cuda_batch_copy_graph(qn__cuda_stream_t* stream, uint64_t position,
                                      uint32_t report_count);
// Waits for all enqueued work without a lock, reads the record if a batch could fail, and retires
// the batches. A kernel's failure becomes the stream's error; the status is that of the wait.
qn_status_t qn__cuda_in_flight_wait(qn__cuda_stream_t* stream, const char* what);
// Retires all batches. `is_passed`: the GPU has finished them.
void qn__cuda_in_flight_retire_all(qn__cuda_stream_t* stream, bool is_passed);
// Checks the invariants of the ring, which in_flight.c lists. Debug builds call it after each
// change, with the lock held.
bool qn__cuda_in_flight_check(const qn__cuda_stream_t* stream);

// ---- memory.c, workspace.c, copy.c

qn_status_t qn__cuda_allocate(int32_t id, size_t size_bytes, size_t alignment_bytes,
                              void** out_pointer);
qn_status_t qn__cuda_free(int32_t id, void* pointer);
qn_status_t qn__cuda_host_allocate(int32_t id, size_t size_bytes, void** out_pointer);
qn_status_t qn__cuda_host_free(int32_t id, void* pointer);
// Calls cuMemAlloc. If memory is short, returns cached workspace to the driver and tries once more.
// In the context.
qn_status_t qn__cuda_memory_allocate(qn__cuda_device_t* device, size_t size_bytes,
                                     CUdeviceptr* out_address);

qn_status_t qn__cuda_workspace_allocate(int32_t id, void* stream, size_t size_bytes,
                                        void** out_pointer);
qn_status_t qn__cuda_workspace_free(int32_t id, void* stream, void* pointer);
// Allocate and free workspace of a stream, or of the graph that it records. In the context.
qn_status_t qn__cuda_stream_workspace_allocate(qn__cuda_stream_t* stream, size_t size_bytes,
                                               CUdeviceptr* out_address);
qn_status_t qn__cuda_stream_workspace_free(qn__cuda_stream_t* stream, CUdeviceptr address);
// Returns cached memory to the driver, down to `max_cached_bytes`. In the context.
void qn__cuda_workspace_trim(qn__cuda_device_t* device, size_t max_cached_bytes);
// Prepares the cache of blocks, before any other call.
qn_status_t qn__cuda_workspace_init(qn__cuda_device_t* device);
// Creates the memory pool if the driver has pools. In the context, with the device's lock held.
void qn__cuda_workspace_make_pool(qn__cuda_device_t* device);

qn_status_t qn__cuda_copy(int32_t id, void* stream, const qn_copy_t* copy);

// ---- executable.c, launch.c

typedef struct qn__cuda_kernel {
  CUfunction function;
  uint32_t max_threads;
  qn_gpu_kernel_info_t info;
} qn__cuda_kernel_t;

struct qn__cuda_executable {
  qn__cuda_device_t* device;
  qn__arena_t arena;
  qn_gpu_plan_t* plan;
  CUmodule module;  // NULL without kernels
  qn__cuda_kernel_t* kernels;
  qn__cuda_executable_t* next_deferred;
};

// How plans launch kernels; `self` of a run is launch.c's.
extern const qn_gpu_runner_t qn__cuda_runner;

bool qn__cuda_accepts(const char* format);
qn_status_t qn__cuda_load(int32_t id, const qn_artifact_t* artifact,
                          const qn_load_options_t* options, void** out_executable);
void qn__cuda_unload(int32_t id, void* executable);
// Unloads the executables whose unload waits for captures, if no stream records. In the context.
void qn__cuda_unload_deferred(qn__cuda_device_t* device);
qn_status_t qn__cuda_launch(int32_t id, void* executable, uint32_t index, void* stream,
                            const qn_launch_t* launch);

// ---- graph.c

qn_status_t qn__cuda_capture_begin(int32_t id, void* stream);
qn_status_t qn__cuda_capture_end(int32_t id, void* stream, void** out_graph);
qn_status_t qn__cuda_graph_launch(int32_t id, void* graph, void* stream);
void qn__cuda_graph_destroy(int32_t id, void* graph);
// Ends the stream's capture before the stream is destroyed.
void qn__cuda_capture_abandon(qn__cuda_stream_t* stream);
// Adds `to` to the capture of `from`, because it waits for `from`.
void qn__cuda_capture_join(qn__cuda_stream_t* from, qn__cuda_stream_t* to);
// Retains the owner of a launch until the graph is freed. Returns the tags of its kernels.
qn_status_t qn__cuda_graph_retain_owner(qn__cuda_graph_t* graph, const qn_launch_t* launch,
                                        qn__cuda_tags_t* out_tags);
// Returns the number of the next kernel that has a tag.
uint32_t qn__cuda_graph_next_kernel(qn__cuda_graph_t* graph);
// Retains the owner of a launch in the graph that the host captures on the stream.
qn_status_t qn__cuda_host_graph_retain_owner(qn__cuda_stream_t* stream, const qn_launch_t* launch);
// Releases the owners retained by graphs of the host that were destroyed.
void qn__cuda_host_graph_release_owners(void);
CUdeviceptr qn__cuda_graph_record(const qn__cuda_graph_t* graph);
// Notes that the graph has a kernel that can fail.
void qn__cuda_graph_may_fail(qn__cuda_graph_t* graph);
// Allocate and free workspace of recorded calls, which lives as long as the graph. `free` returns
// false for other memory.
qn_status_t qn__cuda_graph_workspace_allocate(qn__cuda_graph_t* graph, size_t size_bytes,
                                              CUdeviceptr* out_address);
bool qn__cuda_graph_workspace_free(qn__cuda_graph_t* graph, CUdeviceptr address);
void qn__cuda_graph_retain(qn__cuda_graph_t* graph);
void qn__cuda_graph_release(qn__cuda_graph_t* graph);
// Converts a copy of the graph's record to a status: the failure, or ok if there is none or if it
// has been reported since `report_count` was read before the launch.
qn_status_t qn__cuda_graph_failure(qn__cuda_graph_t* graph, const qn_gpu_record_t* record,
                                   uint32_t report_count);

// ---- attributes.c

qn_status_t qn__cuda_attribute(int32_t id, qn_attribute_t attribute,
                               qn_attribute_value_t* out_value);
qn_status_t qn__cuda_target_property(int32_t id, const char* name, qn_attribute_value_t* out_value);

#endif  // QUERN_DEVICES_CUDA_CUDA_H_
