// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/stream.h: streams. A stream is a timeline semaphore and batches of commands, which
// are recorded, submitted, and retired once the semaphore has reached their value.
//
// Commands go into the stream's open batch; a batch becomes one vkQueueSubmit. The semaphore counts
// batches: each batch signals the value of the one before plus one. Functions that say "locked"
// need the stream's mutex, which no thread holds while it waits for the device. Read next: stream.c
// (recording and submitting), sync.c (waiting and retiring), error_record.c, descriptors.c, copy.c.
#ifndef QUERN_DEVICES_VULKAN_STREAM_H_
#define QUERN_DEVICES_VULKAN_STREAM_H_

#include "devices/vulkan/command_allocator.h"
#include "devices/vulkan/context.h"
#include "devices/vulkan/executable.h"

typedef struct qn__vk_stream qn__vk_stream_t;
struct qn__vk_executable;

// Describes failures of a launch. Retained until its batch has completed.
typedef struct qn__vk_owner {
  void* owner;
  void (*release)(void* owner);
  qn_status_t (*describe)(void* owner, const qn_kernel_failure_t* failure);
  // The tags of its launches that may fail, in this batch: `tag_count` tags from `first_tag` on.
  uint32_t first_tag;
  uint32_t tag_count;
  struct qn__vk_executable* unsaved;  // the driver may have new pipeline data after this batch
} qn__vk_owner_t;

typedef struct qn__vk_wait {
  qn__vk_stream_t* from;  // retained
  uint64_t value;
} qn__vk_wait_t;

// A range of a block that a command reads or writes.
typedef struct qn__vk_access {
  uint64_t uid;
  uint64_t start, end;
  bool is_written;
} qn__vk_access_t;

enum { QN__VK_MAX_WAITS = 16, QN__VK_MAX_BATCHES = 32, QN__VK_MAX_ACCESSES = 32 };

typedef struct qn__vk_batch {
  struct qn__vk_batch* next;
  qn__vk_command_allocator_t command_allocator;  // host memory for `commands`
  VkCommandPool pool;
  VkCommandBuffer commands;
  uint64_t value;
  uint32_t number;  // the index among the stream's batches
  uint32_t command_count;
  bool has_tags;      // it has kernels that can fail
  bool has_clearing;  // of the error record
  uint32_t wait_count;
  qn__vk_wait_t waits[QN__VK_MAX_WAITS];
  size_t owner_count, owner_capacity;
  qn__vk_owner_t* owners;
  // Pinned memory that is freed when the batch has completed: staged copies and parameters.
  size_t place_count, place_capacity;
  qn__vk_place_t* places;
  uint64_t staged_bytes;  // of `places`, for uploads
  // The newest place for parameters, and its free bytes.
  qn__vk_place_t parameters;
  uint64_t parameters_left;
  // The state bound in `commands`.
  VkPipeline pipeline;
  VkDescriptorSet set;
  VkPipelineLayout layout;
  uint32_t dynamic_offset;
} qn__vk_batch_t;

// One binding of a descriptor set: the key of the search for a set.
typedef struct qn__vk_binding {
  uint64_t uid;
  uint64_t offset;
} qn__vk_binding_t;
typedef struct qn__vk_binding_source {
  VkBuffer buffer;
  uint64_t range;
} qn__vk_binding_source_t;
struct qn__vk_sets;

// The arguments of the stream's last launch, and the bindings, accesses and push constants that
// resulted.
typedef struct qn__vk_bound {
  uint64_t kernel_uid;  // 0: invalid
  uint64_t generation;  // of the memory, before its blocks were read
  uint64_t values[QN__VK_MAX_BINDINGS + 1];
  uint64_t ends[QN__VK_MAX_BINDINGS + 1];
  qn__vk_binding_t keys[QN__VK_MAX_BINDINGS + 1];
  qn__vk_binding_source_t sources[QN__VK_MAX_BINDINGS + 1];
  bool has_write;  // among the accesses
  uint32_t access_count;
  qn__vk_access_t accesses[QN__VK_MAX_BINDINGS + 1];
  uint8_t push[QN__VK_MAX_PARAMETER_BYTES + sizeof(uint64_t)];
} qn__vk_bound_t;

struct qn__vk_stream {
  qn__vk_device_t* device;
  _Atomic uint32_t reference_count;
  qn__mutex_t mutex;
  qn__vk_queue_t* queue;
  VkSemaphore timeline;
  qn__vk_timeline_t* timeline_entry;  // of `timeline`, for its return
  qn__vk_batch_t* open;               // the batch in recording; NULL: none
  _Atomic uint64_t open_since;        // the timer's tick when it was opened, plus one; 0: none
  qn__vk_batch_t* first;              // submitted, oldest first
  qn__vk_batch_t* last;
  qn__vk_batch_t* spare;
  uint32_t batch_count;
  // The waits of a submit that failed; the next batch takes them over.
  uint32_t pending_wait_count;
  qn__vk_wait_t pending_waits[QN__VK_MAX_WAITS];
  _Atomic uint64_t enqueued;   // the value of the last batch with work, submitted or open
  _Atomic uint64_t completed;  // the last value known to be completed
  uint64_t submitted;
  _Atomic uint64_t staged_bytes;                 // of all batches
  _Atomic uint64_t launch_count, barrier_count;  // changed under the mutex
  // The stages and accesses of the commands since the last barrier.
  VkPipelineStageFlags open_stages;
  uint32_t access_count;
  qn__vk_access_t accesses[QN__VK_MAX_ACCESSES];
  const qn__vk_access_t* alone;  // of the only command since the barrier, else NULL; never read
  // Errors: error_record.c.
  qn__vk_place_t error_record;
  qn__vk_place_t record_copies;  // copies for the host, one per batch; none if the record is mapped
  uint32_t last_tag;
  bool is_clear_pending;   // before the next kernel that can fail
  bool is_failed;          // the failure in the record was found; do not read it again
  qn_status_t error;       // kept until a sync returns it
  _Atomic uint32_t epoch;  // odd while there is an error
  struct qn__vk_sets* sets;
  qn__vk_bound_t bound;
  qn__vk_stream_t* next;  // in the device's list
};

// Increments a counter that only the holder of the mutex writes, so no atomic read-modify-write is
// needed for each launch.
static inline void qn__vk_count(_Atomic uint64_t* counter) {
  uint64_t count = atomic_load_explicit(counter, memory_order_relaxed);
  atomic_store_explicit(counter, count + 1, memory_order_relaxed);
}

// Creates a stream with one reference. Errors: OUT_OF_MEMORY, DEVICE_ERROR.
qn_status_t qn__vk_stream_make(qn__vk_device_t* device, qn__vk_stream_t** out_stream);
void qn__vk_stream_retain(qn__vk_stream_t* stream);
void qn__vk_stream_release(qn__vk_stream_t* stream);
// Returns the stream of a call. NULL means the default stream, created at its first use. Borrowed.
qn_status_t qn__vk_stream_of(qn__vk_device_t* device, void* stream, qn__vk_stream_t** out_stream);

// ---- recording: stream.c
// Locks the stream's mutex and opens a batch if none is open. While too many batches are in flight,
// waits without the mutex. On failure the mutex is not held.
qn_status_t qn__vk_stream_begin(qn__vk_stream_t* stream);
// Locked, with a batch open. Records a barrier before a command of `stage` with these accesses, if
// it conflicts with a command since the last barrier: one of the two writes the same memory.
void qn__vk_stream_order(qn__vk_stream_t* stream, VkPipelineStageFlags stage,
                         const qn__vk_access_t* accesses, uint32_t count);
// Does the same for a command that writes and repeats the accesses of the last one, given by the
// same array: then a barrier is needed. False, and no effect, unless that command is the only one
// since the last barrier.
bool qn__vk_stream_order_repeat(qn__vk_stream_t* stream, const qn__vk_access_t* accesses);
// Locked. Counts a command. Submits if the batch is large enough or the device is idle. Unlocks the
// mutex.
void qn__vk_stream_end(qn__vk_stream_t* stream);
// Locked. Submits the open batch, or a batch for pending waits. An error becomes the stream's
// error.
void qn__vk_stream_flush(qn__vk_stream_t* stream);
// Without the mutex. Drops the pending waits; call it only if no later work depends on them.
void qn__vk_stream_drop_pending_waits(qn__vk_stream_t* stream);
// Locked, with a batch open. Frees `place` when the batch has completed. False if memory is
// exhausted.
bool qn__vk_stream_defer_free(qn__vk_stream_t* stream, qn__vk_place_t place);
// Locked, with a batch open. Retains the launch's owner until the batch has completed. `*out_tag`:
// the tag that the launch writes if it fails; 0 without a record. False if memory is exhausted.
bool qn__vk_stream_own(qn__vk_stream_t* stream, const qn_launch_t* launch, bool has_record,
                       struct qn__vk_executable* unsaved, uint32_t* out_tag);
// Locked, with a batch open. Returns whether the batch retained this owner last. Then a launch
// without a tag need not call qn__vk_stream_own.
static inline bool qn__vk_stream_owns(const qn__vk_stream_t* stream, const qn_launch_t* launch) {
  const qn__vk_batch_t* batch = stream->open;
  return batch->owner_count > 0 && batch->owners[batch->owner_count - 1].owner == launch->owner;
}

// ---- errors: error_record.c. Locked, unless they say otherwise.
// Allocates the record and its copies. Needs no lock. After a failure, deinit must be called too.
qn_status_t qn__vk_error_record_init(qn__vk_stream_t* stream);
void qn__vk_error_record_deinit(qn__vk_stream_t* stream);
// With a batch open. Clears the record, in stream order.
void qn__vk_error_record_clear(qn__vk_stream_t* stream);
// With an open batch that has kernels which can fail, before it ends: copies the record to where
// the host can read it.
void qn__vk_error_record_copy(qn__vk_stream_t* stream);
// Checks the record of a completed batch. A failure becomes the stream's error.
void qn__vk_error_record_check(qn__vk_stream_t* stream, const qn__vk_batch_t* batch);
// Sets the stream's error if it has none. Consumes the status.
void qn__vk_stream_set_error(qn__vk_stream_t* stream, qn_status_t status);
// Returns the stream's error and resets it. Owned by the caller.
qn_status_t qn__vk_stream_take_error(qn__vk_stream_t* stream);
// Returns the epoch for a call that begins now. Without the mutex.
static inline uint32_t qn__vk_stream_epoch(const qn__vk_stream_t* stream) {
  return atomic_load_explicit(&stream->epoch, memory_order_relaxed) & ~1u;
}
// Returns whether a launch of a call that began in `epoch` may run. False if there is an error, or
// was one since the call began.
static inline bool qn__vk_stream_accepts(const qn__vk_stream_t* stream, uint32_t epoch) {
  return atomic_load_explicit(&stream->epoch, memory_order_relaxed) == epoch;
}

// ---- waiting: sync.c
// Asks the driver for progress and releases the resources of completed batches. Without the mutex.
void qn__vk_stream_retire(qn__vk_stream_t* stream);
// Locked. Asks the driver for progress; returns whether all enqueued work has completed.
bool qn__vk_stream_poll(qn__vk_stream_t* stream);
// Returns whether the stream has completed this value; asks the driver only if it is not known.
// Needs no mutex.
bool qn__vk_stream_has_completed(qn__vk_stream_t* stream, uint64_t value);
// Waits for a submitted value. Without the mutex. Errors: DEADLINE_EXCEEDED, DEVICE_ERROR.
qn_status_t qn__vk_stream_wait_value(qn__vk_stream_t* stream, uint64_t value, uint64_t timeout_ns);
// Submits and waits for all work enqueued before.
qn_status_t qn__vk_stream_drain(qn__vk_stream_t* stream);

// The work of all streams of a device that was enqueued before a point in time.
typedef struct qn__vk_fence qn__vk_fence_t;
// Creates a fence of all busy streams. `*out_fence` NULL: no stream is busy. False if memory is
// exhausted.
bool qn__vk_fence_create(qn__vk_device_t* device, qn__vk_fence_t** out_fence);
bool qn__vk_fence_is_completed(qn__vk_fence_t* fence);
void qn__vk_fence_release(qn__vk_fence_t* fence);
// Submits and waits for the work of all streams, until the deadline.
void qn__vk_drain_all(qn__vk_device_t* device, int64_t deadline_ns);
// Submits the batches of all streams that were opened at `tick` of the submit timer or before.
// Returns whether younger ones are open.
bool qn__vk_submit_old_batches(qn__vk_device_t* device, uint64_t tick);

// ---- semaphores of streams: timelines.c
// Gives the stream a free or new semaphore, and its value. Errors: OUT_OF_MEMORY, DEVICE_ERROR.
qn_status_t qn__vk_timeline_acquire(qn__vk_stream_t* stream);
// Returns the semaphore of a stream whose work has completed.
void qn__vk_timeline_release(qn__vk_stream_t* stream);
// Destroys all semaphores; no stream may exist.
void qn__vk_timelines_deinit(qn__vk_device_t* device);

// ---- batches that stayed open too long: submit_timer.c
// Makes sure that a batch which is open now is submitted soon. Call it without a stream's mutex.
void qn__vk_submit_timer_arm(qn__vk_device_t* device);
// Stops the thread, if it runs.
void qn__vk_submit_timer_stop(qn__vk_device_t* device);

// ---- descriptor sets: descriptors.c. Locked.
qn_status_t qn__vk_sets_make(qn__vk_device_t* device, struct qn__vk_sets** out_sets);
void qn__vk_sets_destroy(qn__vk_device_t* device, struct qn__vk_sets* sets);
// Finds or creates the set with exactly these bindings. Errors: OUT_OF_MEMORY, DEVICE_ERROR.
qn_status_t qn__vk_sets_find(qn__vk_stream_t* stream, const qn__vk_layout_t* layout, uint32_t count,
                             bool has_parameters, const qn__vk_binding_t* bindings,
                             const qn__vk_binding_source_t* sources, VkDescriptorSet* out_set);
// Returns the set that the last search found, and marks it as used. There must be one.
VkDescriptorSet qn__vk_sets_reuse_last(qn__vk_stream_t* stream);

// ---- members of the device's table: sync.c
qn_status_t qn__vk_stream_create(int32_t id, void** out_stream);
void qn__vk_stream_destroy(int32_t id, void* stream);
qn_status_t qn__vk_stream_sync(int32_t id, void* stream);
qn_status_t qn__vk_stream_wait(int32_t id, void* from, void* to);
bool qn__vk_stream_is_idle(int32_t id, void* stream);

#endif  // QUERN_DEVICES_VULKAN_STREAM_H_
