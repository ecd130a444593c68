// devices/cuda/cuda.h: the CUDA device: its objects, and what its files use of each other.
//
// Requirements on every call into the driver:
//  1. The device's primary context is current while it runs, and afterwards the one that the host
//     had (qn__cuda_enter, qn__cuda_leave). The primary context is retained on first use, for good.
//  2. Its result is looked at. A failure's message has the driver's name and text of it.
//  3. A failure after which the driver answers nothing else (an illegal address, say) is remembered
//     by the device: every later call on it says so at once (qn__cuda_check).
//  4. What might be refused while some stream is captured runs with the thread's capture mode
//     relaxed (qn__cuda_enter): captures, ours and the host's, neither break nor are broken.
//  5. No lock is held while anything waits for the GPU.
//  6. In a child of fork nothing is called: a context does not survive a fork.
//
// Thread rule: any thread. Read next: loader.c, stream.c, executable.c.
#ifndef QUERN_DEVICES_CUDA_CUDA_H_
#define QUERN_DEVICES_CUDA_CUDA_H_

#include <stdatomic.h>

#include "base/base.h"
#include "base/short_lock.h"
#include "base/thread.h"
#include "devices/cuda/driver.h"
#include "devices/gpu/plan.h"
#include "quern/backend.h"

#define QN__CUDA_MAX_DEVICES 64
// Blocks that a launch has at most, for each multiprocessor: kernels stride over the rest.
#define QN__CUDA_BLOCKS_PER_MULTIPROCESSOR 32

extern const qn_device_table_t qn__cuda_device_table;

typedef struct qn__cuda_stream qn__cuda_stream_t;
typedef struct qn__cuda_graph qn__cuda_graph_t;
typedef struct qn__cuda_block qn__cuda_block_t;
typedef struct qn__cuda_staging qn__cuda_staging_t;
typedef struct qn__cuda_executable qn__cuda_executable_t;
typedef struct qn__cuda_page qn__cuda_page_t;
typedef struct qn__cuda_error_record qn__cuda_error_record_t;
typedef struct qn__cuda_aligned qn__cuda_aligned_t;

enum { QN__CUDA_EVENTS = 64, QN__CUDA_SIZE_CLASSES = 64, QN__CUDA_BUCKETS = 256 };

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

  qn__mutex_t mutex;           // what follows, unless it says otherwise; never held during a wait
  _Atomic(CUcontext) context;  // NULL until first used
  _Atomic(CUresult) fatal;     // the failure after which nothing runs any more
  CUmemoryPool pool;           // NULL: none, workspace comes from the blocks
  bool is_peer_tried[QN__CUDA_MAX_DEVICES];
  qn__cuda_stream_t* default_stream;  // the legacy one; made with the context
  qn__cuda_aligned_t* aligned;        // allocations whose address is not the driver's own
  qn__cuda_page_t* records;
  qn__cuda_page_t* readbacks;
  qn__cuda_staging_t* staging;
  uint32_t staging_count;
  uint32_t capture_count;                   // streams that record
  qn__cuda_executable_t* deferred_unloads;  // to be unloaded when none records
  qn__cuda_block_t* free_blocks[QN__CUDA_SIZE_CLASSES];
  qn__cuda_block_t* live_blocks[QN__CUDA_BUCKETS];
  size_t cached_bytes;

  // Events between uses, under their own lock.
  qn__short_lock_t event_lock;
  uint32_t event_count;
  CUevent events[QN__CUDA_EVENTS];
} qn__cuda_device_t;

// ---- loader.c: the driver, devices, statuses

// The entry points; NULL when there is no usable driver. Opens it on the first call.
const qn__cuda_driver_t* qn__cuda(void);
// Devices that there are; 0 without a driver.
int32_t qn__cuda_count(void);
// Why there are none: one line; static storage.
const char* qn__cuda_absence(void);
// What the driver says of itself: 13000. 0 without one.
int qn__cuda_version(void);
// The version of the driver's package, "580.159.03"; "" when it cannot be told.
const char* qn__cuda_package_version(void);
// The device by number, whether or not it can be used; NULL when there is none.
qn__cuda_device_t* qn__cuda_device(int32_t id);
// True in a child of a fork of a process that had opened the driver.
bool qn__cuda_is_forked(void);
// Ok for QN__CU_OK; else a status with the driver's text, "cuda:0: WHAT: NAME (text)". Remembers
// what is fatal. `device` NULL: of none in particular.
qn_status_t qn__cuda_check(qn__cuda_device_t* device, CUresult result, const char* format, ...)
    QN_PRINTF(3, 4);
// The status of a device that can do nothing any more; ok while it can.
qn_status_t qn__cuda_usable(const qn__cuda_device_t* device);

// ---- context.c: being in the device's context

typedef struct qn__cuda_scope {
  CUcontext pushed;  // NULL: it was current before
  bool is_relaxed;
  CUstreamCaptureMode old_mode;
} qn__cuda_scope_t;
// Finds device `id`, makes its context on first use and makes it current with the capture mode
// relaxed. On failure nothing is to be left. Errors: UNAVAILABLE, DEVICE_ERROR, OUT_OF_MEMORY.
qn_status_t qn__cuda_enter(int32_t id, qn__cuda_device_t** out_device, qn__cuda_scope_t* scope);
// The same without touching the capture mode, for calls that no capture refuses.
qn_status_t qn__cuda_enter_fast(int32_t id, qn__cuda_device_t** out_device,
                                qn__cuda_scope_t* scope);
// Relaxes the capture mode behind qn__cuda_enter_fast, with a scope of its own to leave.
qn_status_t qn__cuda_relax(qn__cuda_device_t* device, qn__cuda_scope_t* scope);
void qn__cuda_leave(const qn__cuda_scope_t* scope);

// ---- event.c: events between uses

qn_status_t qn__cuda_event_acquire(qn__cuda_device_t* device, CUevent* out_event);
void qn__cuda_event_release(qn__cuda_device_t* device, CUevent event);

// ---- record.c: error records in device memory, and where the host reads copies of them

enum { QN__CUDA_BATCHES = 256, QN__CUDA_MARKS = 8, QN__CUDA_SYNCS = 8 };

// Copies of records in pinned memory, a stream's.
typedef struct qn__cuda_readback {
  qn__gpu_record_t marks[QN__CUDA_MARKS];     // of the stream's record, in front of each mark
  qn__gpu_record_t syncs[QN__CUDA_SYNCS];     // the same for each thread that waits
  qn__gpu_record_t graphs[QN__CUDA_BATCHES];  // of the graph's record, behind each launch of one
} qn__cuda_readback_t;

// In the context, with the device's lock held. What a record holds is undefined.
qn_status_t qn__cuda_error_record_allocate(qn__cuda_device_t* device, CUdeviceptr* out_record);
qn_status_t qn__cuda_readback_allocate(qn__cuda_device_t* device, qn__cuda_readback_t** out_readback);
// With the lock free. The GPU has passed all that may write it. 0 and NULL: none.
void qn__cuda_error_record_free(qn__cuda_device_t* device, CUdeviceptr record);
void qn__cuda_readback_free(qn__cuda_device_t* device, qn__cuda_readback_t* readback);
// In the order of the stream, and without waiting.
qn_status_t qn__cuda_error_record_clear(qn__cuda_device_t* device, CUdeviceptr record,
                                        CUstream native);
qn_status_t qn__cuda_error_record_copy(qn__cuda_device_t* device, CUdeviceptr record,
                                       CUstream native, qn__gpu_record_t* to);
// From here on not even the kernel goes on whose tag of a graph the record has.
qn_status_t qn__cuda_error_record_poison(qn__cuda_device_t* device, CUdeviceptr record,
                                         CUstream native);

// A record of a stream. A call has one from its first kernel to its last: behind a failure all that
// is left of it is skipped, whatever others begin meanwhile.
struct qn__cuda_error_record {
  CUdeviceptr address;
  _Atomic uint32_t call_count;    // that may launch more with it
  uint32_t failed_upper;          // of the tag that it was last seen to have (the stream's lock)
  qn__cuda_error_record_t* next;  // of the stream's
};
// The stream's first one. In the context, with the device's lock held.
qn_status_t qn__cuda_error_record_init(qn__cuda_stream_t* stream);
// Gives them all back. With the lock free.
void qn__cuda_error_record_deinit(qn__cuda_stream_t* stream);
// In front of the first kernel of a call that can fail: the record that it has, until
// qn__cuda_error_record_release, which comes behind its last kernel. It is cleared if that is due.
// Errors: of the driver, OUT_OF_MEMORY; then the kernel must not be launched.
qn_status_t qn__cuda_error_record_acquire(qn__cuda_stream_t* stream,
                                          qn__cuda_error_record_t** out_record);
void qn__cuda_error_record_release(qn__cuda_error_record_t* record);

// ---- stream.c, flight.c

// Whom to ask about a failure, and who is kept alive.
typedef struct qn__cuda_owner {
  void* owner;
  void (*release)(void* owner);
  qn_status_t (*describe)(void* owner, const qn_kernel_failure_t* failure);
} qn__cuda_owner_t;

// A tag in an error record: which flight (or which owner of a graph) above, which of its kernels
// below. A kernel goes on only under its own tag, so no two that may meet in a record have the same
// one: a flight takes no more kernels than it has tags for, and the number of a flight that has
// failed is not given again.
enum { QN__CUDA_TAG_SHIFT = 12, QN__CUDA_TAGS = 1 << 12, QN__CUDA_MAX_TAGGED = 0xfffff };

// A graph's kernels have the same tags at each launch: all with the highest bit set, and the
// highest one of the lowest byte clear, which tells them from what qn__cuda_error_record_poison
// leaves.
enum { QN__CUDA_GRAPH_SHIFT = 7, QN__CUDA_MAX_GRAPH_OWNERS = 0x7ffff };
#define QN__CUDA_GRAPH_TAG UINT32_C(0x80000000)

typedef struct qn__cuda_tags {
  uint32_t upper;  // never 0
  uint32_t first;  // the lower parts are the low bits of QN__CUDA_TAGS numbers from here on
} qn__cuda_tags_t;

// Launches that the GPU may not have passed: those of one owner in a row, or one of a graph.
typedef struct qn__cuda_batch {
  qn__cuda_tags_t tags;    // of their kernels
  uint32_t pending_count;  // callers between qn__cuda_batch_begin and _end
  qn__cuda_owner_t owner;
  qn__cuda_graph_t* graph;  // retained; then there is no owner
  bool has_copy;            // of the graph's record, in the stream's mirror
  uint32_t report_count;    // of the graph when the copy was queued
} qn__cuda_batch_t;

enum { QN__CUDA_LAUNCHES_PER_MARK = 32 };

struct qn__cuda_stream {
  qn__cuda_device_t* device;
  CUstream native;
  uint64_t number;  // unique; the default stream's is 0
  bool is_owned;    // else the host's, or the default one
  qn__cuda_readback_t* readback;
  _Atomic uint32_t kernel_count;       // the number of the next kernel that has a tag
  _Atomic uint64_t fallible_end;       // flights that can fail are below
  _Atomic(qn__cuda_graph_t*) capture;  // what it records; NULL: nothing
  _Atomic bool is_shared;              // the host knows the native stream, and may record on it
  qn__cuda_stream_t* next_captured;    // of the same capture

  qn__mutex_t retire_mutex;  // who takes flights out; never held during a wait
  qn_status_t error;         // the first failure of flights that were taken out
  bool is_failed;            // the record's failure has been found, and no sync has told it

  // Changed with both the mutex above and the lock below.
  qn__cuda_error_record_t* record;  // of calls that begin
  uint32_t record_epoch;            // how often it has been cleared
  bool is_clear_due;                // in front of the next kernel that can fail
  qn__cuda_error_record_t* records;

  qn__short_lock_t lock;  // of all below
  uint64_t first;         // flights [first, next)
  uint64_t next;
  uint64_t marked_end;      // flights below are behind a mark, or about to be: nothing joins them
  uint32_t unmarked_count;  // launches since the last mark
  bool is_marking;
  uint64_t copied_end;    // a copy that a mark is behind, or that was read, tells of flights below
  uint64_t read_end;      // one that was read does
  uint32_t syncs_in_use;  // places of the mirror, a bit for each
  uint64_t first_mark;    // marks [first_mark, next_mark)
  uint64_t next_mark;
  struct {
    CUevent event;
    uint64_t position;      // recorded behind all flights below it
    bool has_copy;          // of the record, in the mirror, in front of the event
    uint32_t record_epoch;  // of the copy
  } marks[QN__CUDA_MARKS];
  qn__cuda_batch_t batches[QN__CUDA_BATCHES];
};

// The inner object of `stream`; the device's default one for NULL.
qn__cuda_stream_t* qn__cuda_stream(qn__cuda_device_t* device, void* stream);
// In the context, with the device's lock held.
qn_status_t qn__cuda_stream_make(qn__cuda_device_t* device, CUstream native, bool is_owned,
                                 qn__cuda_stream_t** out_stream);
// Waits for nothing: what is in flight has been passed (`is_passed`), or never will be.
void qn__cuda_stream_free(qn__cuda_stream_t* stream, bool is_passed);

qn_status_t qn__cuda_stream_create(int32_t id, void** out_stream);
void qn__cuda_stream_destroy(int32_t id, void* stream);
qn_status_t qn__cuda_stream_sync(int32_t id, void* stream);
qn_status_t qn__cuda_stream_wait(int32_t id, void* from, void* to);
bool qn__cuda_stream_is_idle(int32_t id, void* stream);
qn_status_t qn__cuda_stream_wrap(int32_t id, void* native, void** out_stream);
void* qn__cuda_stream_native(int32_t id, void* stream);
// Is the stream one on which the host records a graph of its own?
qn_status_t qn__cuda_is_recorded_by_host(const qn__cuda_stream_t* stream, bool* out_is_recorded);
// FAILED_PRECONDITION while the stream records, for us or for the host; ok else.
qn_status_t qn__cuda_not_capturing(const qn__cuda_stream_t* stream, const char* what);

// A place for a call (`launch`), or for the launch of a graph (`graph`); its owner or graph is
// retained. `record`: of a call that goes on, which gets another place; NULL: of one that begins,
// which may have that of the call before, if that is of the same owner. Waits only when hundreds
// are in flight. Gives the position and the tags.
qn_status_t qn__cuda_batch_begin(qn__cuda_stream_t* stream, const qn_launch_t* launch,
                                 qn__cuda_graph_t* graph, const qn__cuda_error_record_t* record,
                                 uint64_t* out_position, qn__cuda_tags_t* out_tags);
// All its work has been enqueued, or failed to be. Now and then marks the place and looks what has
// been passed.
void qn__cuda_batch_end(qn__cuda_stream_t* stream, uint64_t position);
// In front of the first kernel of a call that can fail, behind qn__cuda_error_record_acquire, and
// where it goes on in another flight: a copy of the record will be asked for.
void qn__cuda_batch_may_fail(qn__cuda_stream_t* stream, uint64_t position);
// Behind the launch of a graph that can fail, in front of qn__cuda_batch_end: copies its record.
// `report_count`: the graph's failures that had been told in front of the launch.
qn_status_t qn__cuda_batch_copy_graph(qn__cuda_stream_t* stream, uint64_t position,
                                      uint32_t report_count);
// Waits for all that has been enqueued, with no lock held, reads the record if something of it
// could fail, and lets go of it. What failed becomes the stream's error. The status is of the
// waiting.
qn_status_t qn__cuda_in_flight_wait(qn__cuda_stream_t* stream, const char* what);
// Lets go of all flights; `is_passed`: the GPU has passed them.
void qn__cuda_in_flight_retire_all(qn__cuda_stream_t* stream, bool is_passed);

// ---- memory.c, workspace.c, copy.c

qn_status_t qn__cuda_allocate(int32_t id, size_t size_bytes, size_t alignment_bytes,
                              void** out_pointer);
qn_status_t qn__cuda_free(int32_t id, void* pointer);
qn_status_t qn__cuda_host_allocate(int32_t id, size_t size_bytes, void** out_pointer);
qn_status_t qn__cuda_host_free(int32_t id, void* pointer);
// cuMemAlloc; without memory, once more after what is kept has been given back. In the context.
qn_status_t qn__cuda_memory_allocate(qn__cuda_device_t* device, size_t size_bytes,
                                     CUdeviceptr* out_address);

qn_status_t qn__cuda_workspace_allocate(int32_t id, void* stream, size_t size_bytes,
                                        void** out_pointer);
qn_status_t qn__cuda_workspace_free(int32_t id, void* stream, void* pointer);
// The same in the context.
qn_status_t qn__cuda_stream_workspace_allocate(qn__cuda_stream_t* stream, size_t size_bytes,
                                               CUdeviceptr* out_address);
qn_status_t qn__cuda_stream_workspace_free(qn__cuda_stream_t* stream, CUdeviceptr address);
// Gives kept memory back to the driver. In the context.
void qn__cuda_workspace_trim(qn__cuda_device_t* device, size_t max_cached_bytes);
// Makes the pool where the driver has them; without one the blocks do. In the context, locked.
void qn__cuda_workspace_init(qn__cuda_device_t* device);

qn_status_t qn__cuda_copy(int32_t id, void* stream, const qn_copy_t* copy);

// ---- executable.c, launch.c

typedef struct qn__cuda_kernel {
  CUfunction function;
  uint32_t max_threads;
  uint32_t dynamic_shared_bytes;
} qn__cuda_kernel_t;

struct qn__cuda_executable {
  qn__cuda_device_t* device;
  qn__arena_t arena;
  qn__gpu_plan_t plan;
  CUmodule module;  // NULL without kernels
  qn__cuda_kernel_t* kernels;
  const bool* has_record;  // per function: it can fail on the device
  qn__cuda_executable_t* next_deferred;
};

bool qn__cuda_accepts(const char* format);
qn_status_t qn__cuda_load(int32_t id, const qn_artifact_t* artifact,
                          const qn_load_options_t* options, void** out_executable);
void qn__cuda_unload(int32_t id, void* executable);
// Unloads what waited for captures to end. In the context.
void qn__cuda_unload_deferred(qn__cuda_device_t* device);
qn_status_t qn__cuda_launch(int32_t id, void* executable, uint32_t index, void* stream,
                            const qn_launch_t* launch);

// ---- graph.c

qn_status_t qn__cuda_capture_begin(int32_t id, void* stream);
qn_status_t qn__cuda_capture_end(int32_t id, void* stream, void** out_graph);
qn_status_t qn__cuda_graph_launch(int32_t id, void* graph, void* stream);
void qn__cuda_graph_destroy(int32_t id, void* graph);
// Ends a capture whose stream is destroyed.
void qn__cuda_capture_abandon(qn__cuda_stream_t* stream);
// `to` waits for `from`, which records: it records the same from here on.
void qn__cuda_capture_join(qn__cuda_stream_t* from, qn__cuda_stream_t* to);
// Keeps the owner of a launch alive as long as the graph; gives its kernels' tags.
qn_status_t qn__cuda_graph_retain_owner(qn__cuda_graph_t* graph, const qn_launch_t* launch,
                                        qn__cuda_tags_t* out_tags);
// Of the next kernel that has a tag.
uint32_t qn__cuda_graph_next_kernel(qn__cuda_graph_t* graph);
// The same for a graph that the host records on a stream of its own.
qn_status_t qn__cuda_host_graph_retain_owner(qn__cuda_stream_t* stream, const qn_launch_t* launch);
// Lets go what foreign graphs kept that are gone.
void qn__cuda_host_graph_release_owners(void);
CUdeviceptr qn__cuda_graph_record(const qn__cuda_graph_t* graph);
// A kernel that can fail has been recorded.
void qn__cuda_graph_may_fail(qn__cuda_graph_t* graph);
// Workspace of what is recorded: it lives as long as the graph.
qn_status_t qn__cuda_graph_workspace_allocate(qn__cuda_graph_t* graph, size_t size_bytes,
                                              CUdeviceptr* out_address);
bool qn__cuda_graph_workspace_free(qn__cuda_graph_t* graph, CUdeviceptr address);
void qn__cuda_graph_retain(qn__cuda_graph_t* graph);
void qn__cuda_graph_release(qn__cuda_graph_t* graph);
// What a copy of the graph's record means, behind a launch in front of which so many failures had
// been told. Ok: nothing, or what has been told.
qn_status_t qn__cuda_graph_failure(qn__cuda_graph_t* graph, const qn__gpu_record_t* record,
                                   uint32_t report_count);

// ---- attributes.c

qn_status_t qn__cuda_attribute(int32_t id, qn_attribute_t attribute,
                               qn_attribute_value_t* out_value);
qn_status_t qn__cuda_target_property(int32_t id, const char* name, qn_attribute_value_t* out_value);

#endif  // QUERN_DEVICES_CUDA_CUDA_H_
