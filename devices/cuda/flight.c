// devices/cuda/flight.c: what is in flight on a stream: who must be kept alive, and whom to ask
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
//  3. A failure finds its owner: a kernel writes its flight's tag. Before flights are freed the
//     record is looked at, and the first failure becomes a status while its owner is still there.
//     The record itself is cleared at the next sync alone, so that work behind is skipped until
//     then.
//  4. A full ring is the one reason to wait, for the oldest mark, with no lock held.
// Thread rule: any thread. Read next: launch.c, stream.c.
#include "devices/cuda/cuda.h"

static qn__cuda_flight_t* flight_at(qn__cuda_stream_t* stream, uint64_t position) {
  return &stream->flights[position % QN__CUDA_FLIGHTS];
}

// The end of the flights from `marked` on that nobody is still adding to. Holds the lock.
static uint64_t covered(qn__cuda_stream_t* stream) {
  uint64_t position = stream->marked;
  while (position < stream->next && flight_at(stream, position)->pending_count == 0) position++;
  return position;
}

uint64_t qn__cuda_flight_covered(qn__cuda_stream_t* stream) {
  qn__short_lock(&stream->lock);
  const uint64_t position = covered(stream);
  stream->marked = position;
  qn__short_unlock(&stream->lock);
  return position;
}

// Records an event behind the flights that are complete. Without an event they wait for the next.
static void mark(qn__cuda_stream_t* stream) {
  qn__short_lock(&stream->lock);
  const uint64_t position = covered(stream);
  const bool may_mark = !stream->is_marking && position > stream->marked &&
                        stream->next_mark - stream->first_mark < QN__CUDA_MARKS;
  const size_t index = stream->next_mark % QN__CUDA_MARKS;
  if (may_mark) {
    stream->is_marking = true;
    stream->marked = position;
    stream->unmarked_count = 0;
  }
  qn__short_unlock(&stream->lock);
  if (!may_mark) return;
  qn_status_t status = qn__cuda_check(
      stream->device, qn__cuda()->event_record(stream->marks[index].event, stream->native),
      "recording an event");
  qn__short_lock(&stream->lock);
  if (qn_ok(status)) {
    stream->marks[index].position = position;
    stream->next_mark++;
  }
  stream->is_marking = false;
  qn__short_unlock(&stream->lock);
  qn_status_free(status);
}

// ---------------------------------------------------------------------------------- taking out

// The flight of a tag below `position`; holds the drain lock, under which none is taken out.
static bool find_tag(qn__cuda_stream_t* stream, uint64_t position, uint32_t tag,
                     qn__cuda_owner_t* out_owner) {
  bool is_found = false;
  qn__short_lock(&stream->lock);
  for (uint64_t i = stream->first; i < position && !is_found; i++) {
    const qn__cuda_flight_t* flight = flight_at(stream, i);
    is_found = flight->tag == tag >> QN__CUDA_TAG_SHIFT << QN__CUDA_TAG_SHIFT && !flight->graph;
    if (is_found) *out_owner = flight->owner;
  }
  qn__short_unlock(&stream->lock);
  return is_found;
}

// Turns what the record says of the flights below `position` into the stream's error.
static void look(qn__cuda_stream_t* stream, uint64_t position) {
  qn__cuda_owner_t owner;
  const uint32_t tag = qn__cuda_record_tag(&stream->record);
  if (tag == 0 || tag == stream->error_tag || !find_tag(stream, position, tag, &owner)) return;
  stream->error_tag = tag;
  if (!qn_ok(stream->error)) return;
  const qn_kernel_failure_t failure = qn__cuda_record_read(&stream->record);
  stream->error = owner.describe(owner.owner, &failure);
}

static void let_go(qn__cuda_stream_t* stream, const qn__cuda_flight_t* flight) {
  if (flight->graph) {
    qn_status_t status = qn__cuda_graph_failure(flight->graph);
    if (qn_ok(stream->error)) {
      stream->error = status;
    } else {
      qn_status_free(status);
    }
    qn__cuda_graph_release(flight->graph);
  } else if (flight->owner.owner) {
    flight->owner.release(flight->owner.owner);
  }
}

// With the drain lock held.
static void drain_locked(qn__cuda_stream_t* stream, uint64_t position) {
  look(stream, position);
  for (;;) {
    qn__cuda_flight_t batch[16];
    size_t count = 0;
    qn__short_lock(&stream->lock);
    while (stream->first < position && count < QN_COUNT_OF(batch)) {
      batch[count++] = *flight_at(stream, stream->first++);
    }
    qn__short_unlock(&stream->lock);
    if (count == 0) return;
    for (size_t i = 0; i < count; i++) let_go(stream, &batch[i]);
  }
}

void qn__cuda_flight_drain(qn__cuda_stream_t* stream, uint64_t position) {
  qn__mutex_lock(&stream->drain_mutex);
  drain_locked(stream, position);
  qn__mutex_unlock(&stream->drain_mutex);
}

// Takes out what marks say has been passed. Somebody else may be at it: then there is nothing to
// do.
static void collect(qn__cuda_stream_t* stream) {
  const qn__cuda_driver_t* cu = qn__cuda();
  if (pthread_mutex_trylock(&stream->drain_mutex) != 0) return;
  for (;;) {
    qn__short_lock(&stream->lock);
    const bool is_any = stream->first_mark < stream->next_mark;
    const size_t index = stream->first_mark % QN__CUDA_MARKS;
    const uint64_t position = stream->marks[index].position;
    qn__short_unlock(&stream->lock);
    if (!is_any || cu->event_query(stream->marks[index].event) != QN__CU_OK) break;
    drain_locked(stream, position);
    qn__short_lock(&stream->lock);
    stream->first_mark++;
    qn__short_unlock(&stream->lock);
  }
  qn__mutex_unlock(&stream->drain_mutex);
}

// Marks, and looks what is over. Under a relaxed capture mode, because a query of an event may be
// refused while another thread captures.
static void mark_and_collect(qn__cuda_stream_t* stream) {
  qn__cuda_scope_t scope;
  qn_status_free(qn__cuda_relax(stream->device, &scope));
  mark(stream);
  collect(stream);
  qn__cuda_leave(&scope);
}

// ---------------------------------------------------------------------------------- launches

// Waits for the oldest mark, or for the stream if there is none.
static qn_status_t wait_for_oldest(qn__cuda_stream_t* stream) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__short_lock(&stream->lock);
  const bool is_full = stream->next - stream->first == QN__CUDA_FLIGHTS;
  const bool is_any = stream->first_mark < stream->next_mark;
  const CUevent event = stream->marks[stream->first_mark % QN__CUDA_MARKS].event;
  qn__short_unlock(&stream->lock);
  if (!is_full) return QN_OK;
  if (is_any) {
    return qn__cuda_check(stream->device, cu->event_synchronize(event), "waiting for an event");
  }
  const uint64_t position = qn__cuda_flight_covered(stream);
  QN_TRY(qn__cuda_check(stream->device, cu->stream_synchronize(stream->native),
                        "waiting for a stream"));
  qn__cuda_flight_drain(stream, position);
  return QN_OK;
}

// The ring is full.
static __attribute__((noinline)) qn_status_t wait_for_place(qn__cuda_stream_t* stream) {
  qn__cuda_scope_t scope;
  QN_TRY(qn__cuda_relax(stream->device, &scope));
  mark(stream);
  collect(stream);
  qn_status_t status = wait_for_oldest(stream);
  collect(stream);
  qn__cuda_leave(&scope);
  return status;
}

// Joins the newest flight if it is of the same owner, or takes a place. Holds the lock.
static bool take_place(qn__cuda_stream_t* stream, const qn_launch_t* launch,
                       qn__cuda_graph_t* graph, uint64_t* out_position) {
  if (launch && stream->next > stream->marked) {
    qn__cuda_flight_t* newest = flight_at(stream, stream->next - 1);
    if (!newest->graph && newest->owner.owner == launch->owner) {
      newest->pending_count++;
      *out_position = stream->next - 1;
      return true;
    }
  }
  if (stream->next - stream->first == QN__CUDA_FLIGHTS) return false;
  const uint32_t number = (uint32_t)(stream->next % QN__CUDA_MAX_TAGGED) + 1;
  qn__cuda_flight_t* flight = flight_at(stream, stream->next);
  *flight =
      (qn__cuda_flight_t){.tag = number << QN__CUDA_TAG_SHIFT, .pending_count = 1, .graph = graph};
  if (launch) {
    flight->owner = (qn__cuda_owner_t){launch->owner, launch->release, launch->describe};
    launch->retain(launch->owner);
  } else {
    qn__cuda_graph_retain(graph);
  }
  *out_position = stream->next++;
  return true;
}

qn_status_t qn__cuda_flight_begin(qn__cuda_stream_t* stream, const qn_launch_t* launch,
                                  qn__cuda_graph_t* graph, uint64_t* out_position,
                                  uint32_t* out_tag) {
  for (;;) {
    qn__short_lock(&stream->lock);
    const bool is_taken = take_place(stream, launch, graph, out_position);
    if (is_taken) *out_tag = flight_at(stream, *out_position)->tag;
    qn__short_unlock(&stream->lock);
    if (is_taken) return QN_OK;
    QN_TRY(wait_for_place(stream));
  }
}

void qn__cuda_flight_end(qn__cuda_stream_t* stream, uint64_t position) {
  qn__short_lock(&stream->lock);
  flight_at(stream, position)->pending_count--;
  const bool is_due = ++stream->unmarked_count >= QN__CUDA_LAUNCHES_PER_MARK;
  qn__short_unlock(&stream->lock);
  if (__builtin_expect(is_due, 0)) mark_and_collect(stream);
}
