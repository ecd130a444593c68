// devices/cuda/in_flight.c: what is in flight on a stream: who must be kept alive, and whom to ask
// when a kernel has written the error record.
//
// Requirements, and how each is met:
//  1. A launch allocates nothing and waits for nothing: flights lie in a ring; launches of one
//  owner
//     in a row share one; the lock is held for a few instructions.
//  2. An owner is kept until the GPU has passed its launches. Every few dozen launches an event, a
//     mark, is recorded behind them; a mark that is over frees what lies below. A mark covers
//     flights only as far as all their work had been enqueued before the event was: callers that
//     are still about to enqueue hold a flight's pending_count, and nothing joins a flight below
//     `marked`.
//  3. A failure finds its owner: a kernel writes its flight's tag into the record, which lies in
//     device memory. Flights of which one could fail are freed only behind a look at a copy of the
//     record that was queued when all their work had been: `seen` is how far such looks reach. In
//     it the first failure becomes a status while its owner is still there. A copy is queued in
//     front of a mark or of a wait, and only if a flight that could fail is beyond the last one.
//     A wait finds any flight's failure, also where another thread is still adding to it or to one
//     before it: who has called and then waits is told.
//  4. A failure is found once, though several copies show it and calls come and go: a copy counts
//     only as long as the record has not been cleared since (`record_epoch`, see record.c).
//  5. A full ring is the one reason to wait, for the oldest mark, with no lock held.
// Thread rule: any thread. Read next: launch.c, stream.c.
#include <sched.h>

#include "devices/cuda/cuda.h"

static qn__cuda_batch_t* batch_at(qn__cuda_stream_t* stream, uint64_t position) {
  return &stream->batches[position % QN__CUDA_BATCHES];
}

// The end of the flights from `marked` on that nobody is still adding to. Holds the lock.
static uint64_t covered(qn__cuda_stream_t* stream) {
  uint64_t position = stream->marked_end;
  while (position < stream->next && batch_at(stream, position)->pending_count == 0) position++;
  return position;
}

// How far a look at the record must reach before flights below `position`, which are complete, are
// taken out: behind the last one that can fail. Holds the lock.
static uint64_t fallible_below(const qn__cuda_stream_t* stream, uint64_t position) {
  const uint64_t end = atomic_load_explicit(&stream->fallible_end, memory_order_relaxed);
  return end < position ? end : position;
}

// Records an event behind the flights that are complete, and behind a copy of the error record if
// one is due. Without an event they wait for the next.
static void mark(qn__cuda_stream_t* stream) {
  qn__short_lock(&stream->lock);
  const uint64_t position = covered(stream);
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
  qn__short_unlock(&stream->lock);
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
  qn__short_unlock(&stream->lock);
  qn_status_free(status);
}

// ---------------------------------------------------------------------------------- taking out

static uint32_t upper_of(uint32_t tag) {
  return tag >> QN__CUDA_TAG_SHIFT << QN__CUDA_TAG_SHIFT;
}

// The flight of a tag; holds the drain lock, under which none is taken out.
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

// Turns what a copy of the record says, which was queued in this epoch when flights below
// `position` were complete, into the stream's error. With the drain lock held.
static void read_record(qn__cuda_stream_t* stream, uint64_t position, uint32_t record_epoch,
                        const qn__gpu_record_t* record) {
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
  qn__short_unlock(&stream->lock);
}

// A flight that was taken out, with what its place of the mirror held.
typedef struct retired {
  qn__cuda_batch_t batch;
  qn__gpu_record_t record;
} retired_t;

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

// With the drain lock held.
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
    qn__short_unlock(&stream->lock);
    if (count == 0) return;
    for (size_t i = 0; i < count; i++) release_batch(stream, &batch[i], is_passed);
  }
}

void qn__cuda_in_flight_retire_all(qn__cuda_stream_t* stream, bool is_passed) {
  qn__mutex_lock(&stream->retire_mutex);
  retire(stream, stream->next, is_passed);
  qn__mutex_unlock(&stream->retire_mutex);
}

// Takes out what marks say has been passed. Somebody else may be at it: then there is nothing to
// do. What a mark without a copy covers has been seen: by marks before it, or by a wait.
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
    stream->first_mark++;
    qn__short_unlock(&stream->lock);
  }
  qn__mutex_unlock(&stream->retire_mutex);
}

// Marks, and looks what is over. Under a relaxed capture mode, because a query of an event may be
// refused while another thread captures.
static void mark_and_retire(qn__cuda_stream_t* stream) {
  qn__cuda_scope_t scope;
  qn_status_free(qn__cuda_relax(stream->device, &scope));
  mark(stream);
  retire_passed(stream);
  qn__cuda_leave(&scope);
}

// ---------------------------------------------------------------------------------- waiting

// What one wait covers, and the place of the mirror for its copy.
typedef struct wait {
  uint64_t position;
  uint64_t required_end;  // records must have been read up to here, unless this wait reads one
  int slot;               // -1: none
  CUdeviceptr record;
  uint32_t record_epoch;
} wait_t;

static wait_t begin_wait(qn__cuda_stream_t* stream) {
  qn__short_lock(&stream->lock);
  wait_t wait = {.position = covered(stream),
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
  qn__short_unlock(&stream->lock);
  return wait;
}

// Behind the wait: false if the record must be copied and waited for once more. A device that does
// nothing any more has nothing to say.
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

// One wait; `*out_is_done` is false if the record is still to be read.
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
  // After another failure than one that ends the device, its work may go on.
  const bool is_dead = atomic_load(&device->fatal) != QN__CU_OK;
  *out_is_done = true;
  if (qn_ok(status) || is_dead) *out_is_done = end_wait(stream, &wait, is_copied, is_dead);
  // A copy that is still on its way is in front of any other that lands there, and of its look.
  qn__short_lock(&stream->lock);
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
    // As many threads as there are places wait already.
    (void)sched_yield();
  }
}

// ---------------------------------------------------------------------------------- launches

// Waits for the oldest mark, or for the stream if there is none.
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

// The ring is full.
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

// Tags that no flight of the ring has, nor the record: that of calls that begin, where none is
// given. Holds the lock.
static qn__cuda_tags_t next_tags(const qn__cuda_stream_t* stream,
                                 const qn__cuda_error_record_t* record) {
  if (!record) record = stream->record;
  const uint32_t number = (uint32_t)(stream->next % (QN__CUDA_MAX_TAGGED - 1)) + 1;
  uint32_t upper = number << QN__CUDA_TAG_SHIFT;
  // The one number that is nobody's otherwise.
  if (upper == record->failed_upper) upper = (uint32_t)QN__CUDA_MAX_TAGGED << QN__CUDA_TAG_SHIFT;
  return (qn__cuda_tags_t){upper,
                           atomic_load_explicit(&stream->kernel_count, memory_order_relaxed)};
}

// Joins the newest flight if it may and that is of the same owner, or takes a place. Holds the
// lock.
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
    qn__short_unlock(&stream->lock);
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

// The flight is still being added to, so nobody looks at it or at its place of the mirror.
qn_status_t qn__cuda_batch_copy_graph(qn__cuda_stream_t* stream, uint64_t position,
                                      uint32_t report_count) {
  qn__cuda_batch_t* batch = batch_at(stream, position);
  QN_TRY(qn__cuda_error_record_copy(stream->device, qn__cuda_graph_record(batch->graph),
                                    stream->native,
                                    &stream->readback->graphs[position % QN__CUDA_BATCHES]));
  qn__short_lock(&stream->lock);
  batch->has_copy = true;
  batch->report_count = report_count;
  qn__short_unlock(&stream->lock);
  return QN_OK;
}

void qn__cuda_batch_end(qn__cuda_stream_t* stream, uint64_t position) {
  qn__short_lock(&stream->lock);
  batch_at(stream, position)->pending_count--;
  const bool is_due = ++stream->unmarked_count >= QN__CUDA_LAUNCHES_PER_MARK;
  qn__short_unlock(&stream->lock);
  if (__builtin_expect(is_due, 0)) mark_and_retire(stream);
}
