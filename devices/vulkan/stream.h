// devices/vulkan/stream.h: streams: a timeline semaphore, and batches of commands that are
// recorded, submitted, and retired when the semaphore has reached their value.
//
// A stream's commands go into its open batch; a batch becomes one vkQueueSubmit. Values of the
// semaphore count batches: each signals one more than the batch before it. Thread rule: any thread;
// functions that say "locked" want the stream's mutex, which is never held while anything waits for
// the device. Read next: stream.c (recording and submitting), sync.c (waiting and retiring),
// record.c (errors), descriptors.c, copy.c.
#ifndef QUERN_DEVICES_VULKAN_STREAM_H_
#define QUERN_DEVICES_VULKAN_STREAM_H_

#include "devices/vulkan/command_allocator.h"
#include "devices/vulkan/context.h"
#include "devices/vulkan/executable.h"

typedef struct qn__vk_stream qn__vk_stream_t;
struct qn__vk_executable;

// Whom to ask for the message of a failed launch; retained until its batch has passed.
typedef struct qn__vk_owner {
  void* owner;
  void (*release)(void* owner);
  qn_status_t (*describe)(void* owner, const qn_kernel_failure_t* failure);
  // Its launches in the batch that may fail have `tag_count` tags from `first_tag` on.
  uint32_t first_tag;
  uint32_t tag_count;
  struct qn__vk_executable* unsaved;  // the driver may have more to store after this batch
} qn__vk_owner_t;

typedef struct qn__vk_wait {
  qn__vk_stream_t* from;  // retained
  uint64_t value;
} qn__vk_wait_t;

// What a command reads or writes of a block.
typedef struct qn__vk_access {
  uint64_t uid;
  uint64_t start, end;
  bool is_written;
} qn__vk_access_t;

enum { QN__VK_MAX_WAITS = 16, QN__VK_MAX_BATCHES = 32, QN__VK_MAX_ACCESSES = 32 };

typedef struct qn__vk_batch {
  struct qn__vk_batch* next;
  qn__vk_command_allocator_t command_allocator;  // what the driver records `commands` in
  VkCommandPool pool;
  VkCommandBuffer commands;
  uint64_t value;
  uint32_t number;  // among the stream's
  uint32_t command_count;
  bool has_tags;      // it has kernels that take the error record
  bool has_clearing;  // of the record
  uint32_t wait_count;
  qn__vk_wait_t waits[QN__VK_MAX_WAITS];
  size_t owner_count, owner_capacity;
  qn__vk_owner_t* owners;
  // Pinned memory that copies and parameters use until the batch has passed.
  size_t place_count, place_capacity;
  qn__vk_place_t* places;
  uint64_t staged_bytes;  // of them, on the way to the device
  // The rest of the newest place for parameters.
  qn__vk_place_t parameters;
  uint64_t parameters_left;
  // What is bound in `commands`.
  VkPipeline pipeline;
  VkDescriptorSet set;
  VkPipelineLayout layout;
  uint32_t dynamic_offset;
} qn__vk_batch_t;

// What a descriptor set binds.
typedef struct qn__vk_binding {
  uint64_t uid;
  uint64_t offset;
} qn__vk_binding_t;
typedef struct qn__vk_binding_source {
  VkBuffer buffer;
  uint64_t range;
} qn__vk_binding_source_t;
struct qn__vk_sets;

// What the stream's last launch was given, and what it came to: bindings, accesses, push constants.
typedef struct qn__vk_bound {
  uint64_t kernel_uid;  // 0: none that a later launch may rely on
  uint64_t generation;  // of the memory, before its blocks were looked at
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
  qn__vk_timeline_t* timeline_entry;  // where it comes from
  qn__vk_batch_t* open;               // being recorded; NULL: none
  _Atomic uint64_t open_since;        // one more than the flusher's tick at that moment; 0: none
  qn__vk_batch_t* first;              // submitted, oldest first
  qn__vk_batch_t* last;
  qn__vk_batch_t* spare;
  uint32_t batch_count;
  // Of a submit that failed: the next batch waits.
  uint32_t pending_wait_count;
  qn__vk_wait_t pending_waits[QN__VK_MAX_WAITS];
  _Atomic uint64_t enqueued;   // the value after which all that was enqueued is done
  _Atomic uint64_t completed;  // as far as it is known
  uint64_t submitted;
  _Atomic uint64_t staged_bytes;                 // of all batches
  _Atomic uint64_t launch_count, barrier_count;  // changed under the mutex
  // What the commands since the last barrier did, and in which stages.
  VkPipelineStageFlags open_stages;
  uint32_t access_count;
  qn__vk_access_t accesses[QN__VK_MAX_ACCESSES];
  const qn__vk_access_t* alone;  // the last command's, if there was no other; never followed
  // Errors: record.c.
  qn__vk_place_t error_record;
  qn__vk_place_t
      record_copies;  // copies, one for each batch; none where the host sees the record itself
  uint32_t last_tag;
  bool is_clear_pending;   // in front of the next kernel that takes the record
  bool is_failed;          // the record's failure has become the error, or come behind one
  qn_status_t error;       // sticks until a sync hands it over
  _Atomic uint32_t epoch;  // odd while one sticks
  struct qn__vk_sets* sets;
  qn__vk_bound_t bound;
  qn__vk_stream_t* next;  // in the device's list
};

// Counts what only the holder of the mutex changes: no locked instruction for each launch.
static inline void qn__vk_count(_Atomic uint64_t* counter) {
  uint64_t count = atomic_load_explicit(counter, memory_order_relaxed);
  atomic_store_explicit(counter, count + 1, memory_order_relaxed);
}

// Owned by the caller: qn__vk_stream_release. Errors: OUT_OF_MEMORY, DEVICE_ERROR.
qn_status_t qn__vk_stream_make(qn__vk_device_t* device, qn__vk_stream_t** out_stream);
void qn__vk_stream_retain(qn__vk_stream_t* stream);
void qn__vk_stream_release(qn__vk_stream_t* stream);
// The stream of a call: NULL is the device's default one, made at its first use. Borrowed.
qn_status_t qn__vk_stream_of(qn__vk_device_t* device, void* stream, qn__vk_stream_t** out_stream);

// ---- recording: stream.c
// Takes the stream's mutex with a batch open to be recorded. Waits, without the mutex, while too
// many are under way. On failure the mutex is not held.
qn_status_t qn__vk_stream_begin(qn__vk_stream_t* stream);
// Locked, with a batch open. Before a command of `stage` that does this: a barrier if it touches
// what a command since the last barrier wrote, or writes what one read.
void qn__vk_stream_order(qn__vk_stream_t* stream, VkPipelineStageFlags stage,
                         const qn__vk_access_t* accesses, uint32_t count);
// The same for a command that writes and does just what the one before it did, with the same array:
// it conflicts with it. False: the command before was another, or it was not alone behind a
// barrier.
bool qn__vk_stream_order_repeat(qn__vk_stream_t* stream, const qn__vk_access_t* accesses);
// Locked. Counts a command, and submits when enough have come together or the device has nothing
// to do; lets go of the mutex.
void qn__vk_stream_end(qn__vk_stream_t* stream);
// Locked. Submits what is recorded, or the waits that are owed; an error sticks to the stream.
void qn__vk_stream_flush(qn__vk_stream_t* stream);
// Without the mutex. Nothing comes behind the waits that are owed.
void qn__vk_stream_drop_pending_waits(qn__vk_stream_t* stream);
// Locked, with a batch open. Keeps a place until the batch has passed. False without memory.
bool qn__vk_stream_defer_free(qn__vk_stream_t* stream, qn__vk_place_t place);
// Locked, with a batch open. False without memory. `out_tag`: what launches that may fail are
// marked with.
bool qn__vk_stream_own(qn__vk_stream_t* stream, const qn_launch_t* launch, bool has_record,
                       struct qn__vk_executable* unsaved, uint32_t* out_tag);
// Locked, with a batch open. Is the launch's owner retained as the batch's last? Then a launch that
// needs no tag has nothing to own.
static inline bool qn__vk_stream_owns(const qn__vk_stream_t* stream, const qn_launch_t* launch) {
  const qn__vk_batch_t* batch = stream->open;
  return batch->owner_count > 0 && batch->owners[batch->owner_count - 1].owner == launch->owner;
}

// ---- errors: record.c. Locked, unless they say otherwise.
// The record and its copies; no lock. On failure, too, unmake is to be called.
qn_status_t qn__vk_error_record_init(qn__vk_stream_t* stream);
void qn__vk_error_record_deinit(qn__vk_stream_t* stream);
// With a batch open: clears the record in the order of the stream.
void qn__vk_error_record_clear(qn__vk_stream_t* stream);
// With a batch open that has kernels which take the record, in front of its end: lets the host see
// what they wrote.
void qn__vk_error_record_copy(qn__vk_stream_t* stream);
// A batch has passed: a failure that it left behind becomes the stream's error.
void qn__vk_error_record_check(qn__vk_stream_t* stream, const qn__vk_batch_t* batch);
// The stream's error, if it has none yet. Consumes the status.
void qn__vk_stream_set_error(qn__vk_stream_t* stream, qn_status_t status);
// The stream's error, which sticks no more. Owned by the caller.
qn_status_t qn__vk_stream_take_error(qn__vk_stream_t* stream);
// Asked at the beginning of a call, by any thread without the mutex ...
static inline uint32_t qn__vk_stream_epoch(const qn__vk_stream_t* stream) {
  return atomic_load_explicit(&stream->epoch, memory_order_relaxed) & ~1u;
}
// ... so that each of its launches can be: false for what is to be skipped, as an error sticks or
// has stuck since.
static inline bool qn__vk_stream_accepts(const qn__vk_stream_t* stream, uint32_t epoch) {
  return atomic_load_explicit(&stream->epoch, memory_order_relaxed) == epoch;
}

// ---- waiting: sync.c
// Asks the driver how far the stream is, and lets go of what has passed. Takes the mutex.
void qn__vk_stream_retire(qn__vk_stream_t* stream);
// Locked. The same question; true when all that was enqueued is done.
bool qn__vk_stream_poll(qn__vk_stream_t* stream);
// Any thread, without the mutex: has the stream passed this value? Asks the driver if need be.
bool qn__vk_stream_has_completed(qn__vk_stream_t* stream, uint64_t value);
// Without the mutex. Waits for a submitted value.
qn_status_t qn__vk_stream_wait_value(qn__vk_stream_t* stream, uint64_t value, uint64_t timeout_ns);
// Submits and waits for all that was enqueued before.
qn_status_t qn__vk_stream_drain(qn__vk_stream_t* stream);

// A moment of all streams of a device: what was enqueued before it.
typedef struct qn__vk_fence qn__vk_fence_t;
// `*out_fence` NULL: nothing is under way. False without memory.
bool qn__vk_fence_create(qn__vk_device_t* device, qn__vk_fence_t** out_fence);
bool qn__vk_fence_is_completed(qn__vk_fence_t* fence);
void qn__vk_fence_release(qn__vk_fence_t* fence);
// Submits all streams of the device and waits for them.
void qn__vk_drain_all(qn__vk_device_t* device, int64_t deadline_ns);
// Submits what was opened to be recorded at this tick of the flusher or before, on all streams of
// the device; true when there is younger work.
bool qn__vk_submit_old_batches(qn__vk_device_t* device, uint64_t tick);

// ---- the semaphores of streams: timelines.c
// Gives the stream a semaphore, and the value that it has. Errors: OUT_OF_MEMORY, DEVICE_ERROR.
qn_status_t qn__vk_timeline_acquire(qn__vk_stream_t* stream);
// Takes it back from a stream whose work is over.
void qn__vk_timeline_release(qn__vk_stream_t* stream);
// Without streams. Destroys them all.
void qn__vk_timelines_deinit(qn__vk_device_t* device);

// ---- work that nobody waits for: flusher.c
// Something is recorded and not submitted: it is submitted within a moment, unless it has been by
// then. Without a stream's mutex.
void qn__vk_submit_timer_arm(qn__vk_device_t* device);
// Ends the thread, if there is one.
void qn__vk_submit_timer_stop(qn__vk_device_t* device);

// ---- descriptor sets: descriptors.c. Locked.
qn_status_t qn__vk_sets_make(qn__vk_device_t* device, struct qn__vk_sets** out_sets);
void qn__vk_sets_destroy(qn__vk_device_t* device, struct qn__vk_sets* sets);
// The set that binds just this; made if there is none. Errors: OUT_OF_MEMORY, DEVICE_ERROR.
qn_status_t qn__vk_sets_find(qn__vk_stream_t* stream, const qn__vk_layout_t* layout, uint32_t count,
                             bool has_parameters, const qn__vk_binding_t* bindings,
                             const qn__vk_binding_source_t* sources, VkDescriptorSet* out_set);
// The set that was found last, used again; there must have been one.
VkDescriptorSet qn__vk_sets_reuse_last(qn__vk_stream_t* stream);

// ---- members of the device's table: sync.c
qn_status_t qn__vk_stream_create(int32_t id, void** out_stream);
void qn__vk_stream_destroy(int32_t id, void* stream);
qn_status_t qn__vk_stream_sync(int32_t id, void* stream);
qn_status_t qn__vk_stream_wait(int32_t id, void* from, void* to);
bool qn__vk_stream_is_idle(int32_t id, void* stream);

#endif  // QUERN_DEVICES_VULKAN_STREAM_H_
