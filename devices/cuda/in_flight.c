// SPDX-License-Identifier: Apache-2.0
// devices/cuda/in_flight.c: the launches in flight on a stream. Keeps their owners alive, and finds
// the owner of a kernel that has written the error record.
//
// Requirements, and how each is met:
//  1. A launch allocates nothing and does not wait. Batches lie in a ring; consecutive launches of
//     one owner share a batch. The lock is held for a few instructions.
//  2. An owner is retained until the GPU has finished its launches. After every few dozen launches
//     an event, the mark, is recorded; when it has completed, the batches that it covers are
//     retired. A mark covers only complete batches: `pending_count` is the number of callers that
//     still enqueue, and no launch joins a batch below `marked_end`.
//  3. A failure finds its owner: a kernel writes the tag of its batch into the error record. A
//  batch
//     that can fail is retired only after a copy of the record was read that had been queued when
//     the batch was complete (`read_end`). A copy is queued before a mark or a wait, only if a
//     batch that can fail was added since the last copy. A wait finds the failure of any batch,
//     also of one that another thread still adds launches to, so a thread that waits after its call
//     gets the failure of that call.
//  4. A failure is reported once, though several copies contain it: a copy is valid only while the
//     record has not been cleared since (`record_epoch`, see error_record.c).
//  5. A launch waits only if the ring is full: for the oldest mark, without a lock.
//
// Invariants (qn__cuda_in_flight_check):
//  1. first <= marked_end <= next, and the ring holds at most QN__CUDA_BATCHES.
//  2. Batches below `marked_end` are complete.
//  3. read_end <= copied_end <= marked_end.
//  4. There are at most QN__CUDA_MARKS marks. Their positions ascend and are at most `marked_end`.
//  5. Each batch has a tag. Only the batch of a graph has a copy, and it has no owner.
//
// Read next: launch.c, stream.c.
#include <assert.h>
#include <sched.h>

#include "devices/cuda/cuda.h"

static qn__cuda_batch_t* batch_at(qn__cuda_stream_t* stream, uint64_t position) {
  return &stream->batches[position % QN__CUDA_BATCHES];
}

static bool check_batches(const qn__cuda_stream_t* stream) {
  for (uint64_t i = stream->first; i < stream->next; i++) {
    const qn__cuda_batch_t* batch = &stream->batches[i % QN__CUDA_BATCHES];
    if (i < stream->marked_end && batch->pending_count != 0) return false;
    if (batch->tags.upper == 0 || (batch->graph ? !!batch->owner.owner : batch->has_copy)) {
      return false;
    }
  }
  return true;
}

static bool check_marks(const qn__cuda_stream_t* stream) {
  if (stream->next_mark - stream->first_mark > QN__CUDA_MARKS) return false;
  uint64_t end = stream->marked_end;
  for (uint64_t i = stream->next_mark; i > stream->first_mark; i--) {
    const uint64_t position = stream->marks[(i - 1) % QN__CUDA_MARKS].position;
    if (position > end) return false;
    end = position;
  }
  return true;
}

bool qn__cuda_in_flight_check(const qn__cuda_stream_t* stream) {
  return stream->first <= stream->marked_end && stream->marked_end <= stream->next &&
         stream->next - stream->first <= QN__CUDA_BATCHES &&
         stream->read_end <= stream->copied_end && stream->copied_end <= stream->marked_end &&
         check_marks(stream) && check_batches(stream);
}

// Ends a change of the ring.
static void unlock_changed(qn__cuda_stream_t* stream) {
  assert(qn__cuda_in_flight_check(stream));
  qn__short_unlock(&stream->lock);
}

// ---------------------------------------------------------------------------------- marking

// Returns the end of the complete batches after `marked_end`. With the lock held.
static uint64_t complete_end(qn__cuda_stream_t* stream) {
  uint64_t position = stream->marked_end;
  while (position < stream->next && batch_at(stream, position)->pending_count == 0) position++;
  return position;
}

// Returns the position up to which records must have been read before complete batches below
// `position` are retired: the end of the last batch that can fail. With the lock held.
static uint64_t fallible_below(const qn__cuda_stream_t* stream, uint64_t position) {
  const uint64_t end = atomic_load_explicit(&stream->fallible_end, memory_order_relaxed);
  return end < position ? end : position;
}

// Records an event after the complete batches, and before it a copy of the error record if one is
// due. If that fails, a later mark covers the batches.
static void mark(qn__cuda_stream_t* stream) {
  qn__short_lock(&stream->lock);
  const uint64_t position = complete_end(stream);
  const bool may_mark = !stream->is_marking && position > stream->marked_end &&
                        stream->next_mark - stream->first_mark < QN__CUDA_MARKS;
  const size_t index = stream->next_mark % QN__CUDA_MARKS;
  const bool has_copy = may_mark && stream->copied_end < fallible_below(stream, position);
  const CUdeviceptr record = stream->record->address;
  const uint32_t record_epoch = stream->record_epoch;
  if (may_mark) {
    stream->is_marking = true;
    stream->marked_end = position;
    stream->unmarked_count = 0;
  }
  unlock_changed(stream);
  if (!may_mark) return;
  qn_status_t status = QN_OK;
  if (has_copy) {
    status = qn__cuda_error_record_copy(stream->device, record, stream->native,
                                        &stream->readback->marks[index]);
  }
  if (qn_ok(status)) {
    status = qn__cuda_check(stream->device,
                            qn__cuda()->event_record(stream->marks[index].event, stream->native),
                            "recording an event");
  }
  qn__short_lock(&stream->lock);
  if (qn_ok(status)) {
    stream->marks[index].position = position;
    stream->marks[index].has_copy = has_copy;
    stream->marks[index].record_epoch = record_epoch;
    if (has_copy && stream->copied_end < position) stream->copied_end = position;
    stream->next_mark++;
  }
  stream->is_marking = false;
  unlock_changed(stream);
  qn_status_free(status);
}

// ---------------------------------------------------------------------------------- retiring

static uint32_t upper_of(uint32_t tag) {
  return tag >> QN__CUDA_TAG_SHIFT << QN__CUDA_TAG_SHIFT;
}

// Finds the owner of the batch with a tag. With `retire_mutex` held, so that the batch stays.
static bool find_tag(qn__cuda_stream_t* stream, uint32_t tag, qn__cuda_owner_t* out_owner) {
  bool is_found = false;
  qn__short_lock(&stream->lock);
  for (uint64_t i = stream->first; i < stream->next && !is_found; i++) {
    const qn__cuda_batch_t* batch = batch_at(stream, i);
    is_found = batch->tags.upper == upper_of(tag) && !batch->graph;
    if (is_found) *out_owner = batch->owner;
  }
  qn__short_unlock(&stream->lock);
  return is_found;
}

// Converts a copy of the record to the stream's error. The copy was queued in epoch `record_epoch`,
// when all batches below `position` were complete. With `retire_mutex` held.
static void read_record(qn__cuda_stream_t* stream, uint64_t position, uint32_t record_epoch,
                        const qn_gpu_record_t* record) {
  qn__cuda_owner_t owner;
  const bool is_stale =
      stream->is_failed || stream->is_clear_due || stream->record_epoch != record_epoch;
  const bool has_failed = !is_stale && record->tag != 0 && find_tag(stream, record->tag, &owner);
  if (has_failed) {
    stream->is_failed = true;
    if (qn_ok(stream->error)) {
      const qn_kernel_failure_t failure = {record->site, record->index, record->extent};
      stream->error = owner.describe(owner.owner, &failure);
    }
  }
  qn__short_lock(&stream->lock);
  if (has_failed) stream->record->failed_upper = upper_of(record->tag);
  if (stream->read_end < position) stream->read_end = position;
  if (stream->copied_end < position) stream->copied_end = position;
  unlock_changed(stream);
}

// A batch that was removed from the ring, with the copy of its graph's record.
typedef struct retired {
  qn__cuda_batch_t batch;
  qn_gpu_record_t record;
} retired_t;

// Releases the owner or the graph of a batch, and reports a failure of the graph.
static void release_batch(qn__cuda_stream_t* stream, const retired_t* retired, bool is_passed) {
  const qn__cuda_batch_t* batch = &retired->batch;
  if (batch->graph) {
    qn_status_t status =
        is_passed && batch->has_copy
            ? qn__cuda_graph_failure(batch->graph, &retired->record, batch->report_count)
            : QN_OK;
    if (qn_ok(stream->error)) {
      stream->error = status;
    } else {
      qn_status_free(status);
    }
    qn__cuda_graph_release(batch->graph);
  } else if (batch->owner.owner) {
    batch->owner.release(batch->owner.owner);
  }
}

// Retires the batches below `position`, a few for each time the lock is taken, because releasing an
// owner may take long. With `retire_mutex` held.
static void retire(qn__cuda_stream_t* stream, uint64_t position, bool is_passed) {
  for (;;) {
    retired_t batch[16];
    size_t count = 0;
    qn__short_lock(&stream->lock);
    while (stream->first < position && count < QN_COUNT_OF(batch)) {
      retired_t* retired = &batch[count++];
      retired->batch = *batch_at(stream, stream->first);
      if (retired->batch.has_copy) {
        retired->record = stream->readback->graphs[stream->first % QN__CUDA_BATCHES];
      }
      stream->first++;
    }
    unlock_changed(stream);
    if (count == 0) return;
    for (size_t i = 0; i < count; i++) release_batch(stream, &batch[i], is_passed);
  }
}

void qn__cuda_in_flight_retire_all(qn__cuda_stream_t* stream, bool is_passed) {
  qn__mutex_lock(&stream->retire_mutex);
  qn__short_lock(&stream->lock);
  const uint64_t end = stream->marked_end = stream->next;
  unlock_changed(stream);
  retire(stream, end, is_passed);
  qn__mutex_unlock(&stream->retire_mutex);
}

// Retires the batches of completed marks. Returns at once if another thread does that already. The
// record needs no read where a mark has no copy: an earlier mark or a wait has read it.
static void retire_passed(qn__cuda_stream_t* stream) {
  const qn__cuda_driver_t* cu = qn__cuda();
  if (pthread_mutex_trylock(&stream->retire_mutex) != 0) return;
  for (;;) {
    qn__short_lock(&stream->lock);
    const bool is_any = stream->first_mark < stream->next_mark;
    const size_t index = stream->first_mark % QN__CUDA_MARKS;
    const uint64_t position = stream->marks[index].position;
    const bool has_copy = stream->marks[index].has_copy;
    const uint32_t record_epoch = stream->marks[index].record_epoch;
    qn__short_unlock(&stream->lock);
    if (!is_any || cu->event_query(stream->marks[index].event) != QN__CU_OK) break;
    if (has_copy) read_record(stream, position, record_epoch, &stream->readback->marks[index]);
    retire(stream, position, true);
    qn__short_lock(&stream->lock);
    assert(stream->first >= position && stream->first_mark < stream->next_mark);
    stream->first_mark++;
    unlock_changed(stream);
  }
  qn__mutex_unlock(&stream->retire_mutex);
}

// Records a mark and retires finished batches, in the relaxed capture mode, because the driver may
// refuse to query an event while another thread captures.
static void mark_and_retire(qn__cuda_stream_t* stream) {
  qn__cuda_scope_t scope;
  qn_status_free(qn__cuda_relax(stream->device, &scope));
  mark(stream);
  retire_passed(stream);
  qn__cuda_leave(&scope);
}

// ---------------------------------------------------------------------------------- waiting

// The batches that one wait covers, and the slot for its copy of the record.
typedef struct wait {
  uint64_t position;
  uint64_t required_end;  // records must have been read up to here, unless this wait reads one
  int slot;               // of `readback->syncs`; -1: none
  CUdeviceptr record;
  uint32_t record_epoch;
} wait_t;

static wait_t begin_wait(qn__cuda_stream_t* stream) {
  qn__short_lock(&stream->lock);
  wait_t wait = {.position = complete_end(stream),
                 .required_end = atomic_load_explicit(&stream->fallible_end, memory_order_relaxed),
                 .slot = -1,
                 .record = stream->record->address,
                 .record_epoch = stream->record_epoch};
  stream->marked_end = wait.position;
  stream->unmarked_count = 0;
  const uint32_t idle = ~stream->syncs_in_use & ((1u << QN__CUDA_SYNCS) - 1);
  if (stream->read_end < wait.required_end && idle) {
    wait.slot = __builtin_ctz(idle);
    stream->syncs_in_use |= 1u << wait.slot;
  }
  unlock_changed(stream);
  return wait;
}

// Reads the record and retires the batches after a wait. Returns false if the record must be copied
// in another wait, because no slot was free. Skips the record of a device that has ended.
static bool end_wait(qn__cuda_stream_t* stream, const wait_t* wait, bool is_copied, bool is_dead) {
  qn__mutex_lock(&stream->retire_mutex);
  if (is_copied && !is_dead) {
    read_record(stream, wait->position, wait->record_epoch, &stream->readback->syncs[wait->slot]);
  }
  qn__short_lock(&stream->lock);
  const bool is_done = is_dead || is_copied || stream->read_end >= wait->required_end;
  qn__short_unlock(&stream->lock);
  if (is_done) retire(stream, wait->position, !is_dead);
  qn__mutex_unlock(&stream->retire_mutex);
  return is_done;
}

// Waits once. Sets `*out_is_done` to false if the record must still be read.
static qn_status_t wait_once(qn__cuda_stream_t* stream, const char* what, bool* out_is_done) {
  qn__cuda_device_t* device = stream->device;
  const wait_t wait = begin_wait(stream);
  qn_status_t copy_status = QN_OK;
  if (wait.slot >= 0) {
    copy_status = qn__cuda_error_record_copy(device, wait.record, stream->native,
                                             &stream->readback->syncs[wait.slot]);
  }
  const bool is_copied = wait.slot >= 0 && qn_ok(copy_status);
  qn_status_t status =
      qn__cuda_check(device, qn__cuda()->stream_synchronize(stream->native), "%s", what);
  // After a failure that does not end the device, its work may continue.
  const bool is_dead = atomic_load(&device->fatal) != QN__CU_OK;
  *out_is_done = true;
  if (qn_ok(status) || is_dead) *out_is_done = end_wait(stream, &wait, is_copied, is_dead);
  // The slot is free even if its copy is still queued: the next copy into it comes later on the
  // stream, and is read after that.
  qn__short_lock(&stream->lock);
  assert(wait.slot < 0 || (stream->syncs_in_use >> wait.slot & 1) != 0);
  if (wait.slot >= 0) stream->syncs_in_use &= ~(1u << wait.slot);
  qn__short_unlock(&stream->lock);
  if (!qn_ok(status)) {
    qn_status_free(copy_status);
    return status;
  }
  return copy_status;
}

qn_status_t qn__cuda_in_flight_wait(qn__cuda_stream_t* stream, const char* what) {
  for (;;) {
    bool is_done;
    QN_TRY(wait_once(stream, what, &is_done));
    if (is_done) return QN_OK;
    // All slots were in use by other waiting threads.
    (void)sched_yield();
  }
}

// ---------------------------------------------------------------------------------- launches

// Waits for the oldest mark if the ring is full, or for the stream if there is no mark.
static qn_status_t wait_for_oldest(qn__cuda_stream_t* stream) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__short_lock(&stream->lock);
  const bool is_full = stream->next - stream->first == QN__CUDA_BATCHES;
  const bool is_any = stream->first_mark < stream->next_mark;
  const CUevent event = stream->marks[stream->first_mark % QN__CUDA_MARKS].event;
  qn__short_unlock(&stream->lock);
  if (!is_full) return QN_OK;
  if (is_any) {
    return qn__cuda_check(stream->device, cu->event_synchronize(event), "waiting for an event");
  }
  return qn__cuda_in_flight_wait(stream, "waiting for a stream");
}

// Waits until the ring has a free slot.
static __attribute__((noinline)) qn_status_t wait_for_slot(qn__cuda_stream_t* stream) {
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_relax(stream->device, &scope));
  mark(stream);
  retire_passed(stream);
  qn_status_t status = wait_for_oldest(stream);
  retire_passed(stream);
  qn__cuda_leave(&scope);
  return status;
}

// Returns tags that no batch in the ring has and that are not in `record` (NULL: the record of new
// calls). With the lock held.
static qn__cuda_tags_t next_tags(const qn__cuda_stream_t* stream,
                                 const qn__cuda_error_record_t* record) {
  if (!record) record = stream->record;
  const uint32_t number = (uint32_t)(stream->next % (QN__CUDA_MAX_TAGGED - 1)) + 1;
  uint32_t upper = number << QN__CUDA_TAG_SHIFT;
  // The one number that no position has.
  if (upper == record->failed_upper) upper = (uint32_t)QN__CUDA_MAX_TAGGED << QN__CUDA_TAG_SHIFT;
  return (qn__cuda_tags_t){upper,
                           atomic_load_explicit(&stream->kernel_count, memory_order_relaxed)};
}

// Joins the newest batch if it is open and has the same owner, else adds one. Returns false if the
// ring is full. With the lock held.
static bool join_or_add(qn__cuda_stream_t* stream, const qn_launch_t* launch,
                        qn__cuda_graph_t* graph, const qn__cuda_error_record_t* record,
                        uint64_t* out_position) {
  if (!graph && !record && stream->next > stream->marked_end) {
    qn__cuda_batch_t* newest = batch_at(stream, stream->next - 1);
    if (!newest->graph && newest->owner.owner == launch->owner) {
      newest->pending_count++;
      *out_position = stream->next - 1;
      return true;
    }
  }
  if (stream->next - stream->first == QN__CUDA_BATCHES) return false;
  qn__cuda_batch_t* batch = batch_at(stream, stream->next);
  *batch =
      (qn__cuda_batch_t){.tags = next_tags(stream, record), .pending_count = 1, .graph = graph};
  if (launch) {
    batch->owner = (qn__cuda_owner_t){launch->owner, launch->release, launch->describe};
    launch->retain(launch->owner);
  } else {
    qn__cuda_graph_retain(graph);
  }
  *out_position = stream->next++;
  return true;
}

qn_status_t qn__cuda_batch_begin(qn__cuda_stream_t* stream, const qn_launch_t* launch,
                                 qn__cuda_graph_t* graph, const qn__cuda_error_record_t* record,
                                 uint64_t* out_position, qn__cuda_tags_t* out_tags) {
  for (;;) {
    qn__short_lock(&stream->lock);
    const bool is_added = join_or_add(stream, launch, graph, record, out_position);
    if (is_added) *out_tags = batch_at(stream, *out_position)->tags;
    unlock_changed(stream);
    if (is_added) return QN_OK;
    QN_TRY(wait_for_slot(stream));
  }
}

void qn__cuda_batch_may_fail(qn__cuda_stream_t* stream, uint64_t position) {
  uint64_t end = atomic_load_explicit(&stream->fallible_end, memory_order_relaxed);
  while (end <= position &&
         !atomic_compare_exchange_weak_explicit(&stream->fallible_end, &end, position + 1,
                                                memory_order_relaxed, memory_order_relaxed)) {
    continue;
  }
}

// Writes to the batch and its slot without `retire_mutex`: the batch is not complete, so no other
// thread reads them.
qn_status_t qn__cuda_batch_copy_graph(qn__cuda_stream_t* stream, uint64_t position,
                                      uint32_t report_count) {
  qn__cuda_batch_t* batch = batch_at(stream, position);
  QN_TRY(qn__cuda_error_record_copy(stream->device, qn__cuda_graph_record(batch->graph),
                                    stream->native,
                                    &stream->readback->graphs[position % QN__CUDA_BATCHES]));
  qn__short_lock(&stream->lock);
  assert(batch->graph && batch->pending_count > 0 && position >= stream->marked_end);
  batch->has_copy = true;
  batch->report_count = report_count;
  unlock_changed(stream);
  return QN_OK;
}

void qn__cuda_batch_end(qn__cuda_stream_t* stream, uint64_t position) {
  qn__short_lock(&stream->lock);
  assert(position >= stream->first && position < stream->next);
  assert(batch_at(stream, position)->pending_count > 0);
  batch_at(stream, position)->pending_count--;
  const bool is_due = ++stream->unmarked_count >= QN__CUDA_LAUNCHES_PER_MARK;
  unlock_changed(stream);
  if (__builtin_expect(is_due, 0)) mark_and_retire(stream);
}
