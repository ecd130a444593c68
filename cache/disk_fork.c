// cache/disk_fork.c: what a child of fork does with an open cache directory.
//
// The fork handlers hold the lock, so the child finds every list whole. The child has one thread:
// no writer, an empty queue. It closes the descriptors of the parent's other threads, which could
// never close them here: the temporary file, claims, directories that are being listed. A
// descriptor that another thread has just opened and not recorded yet stays open in the child; it
// closes on exec and holds no lock.
//
// Nothing is allocated or freed here, because the host's allocator may not be ready in a fork
// handler. Called by base/fork.c.
#include "cache/disk_inner.h"

static void close_streams(qn__disk_t* disk) {
  for (qn__disk_stream_t* stream = disk->streams; stream; stream = stream->next) {
    (void)qn__fs()->close(stream->fd);
    stream->fd = -1;
  }
  disk->streams = NULL;
}

// Keeps the parent's queue in `orphans` until it can be freed; the parent writes it.
static void set_queue_aside(qn__disk_t* disk) {
  qn__disk_node_t** end = &disk->orphans;
  while (*end) end = &(*end)->next;
  if (disk->in_flight) {
    *end = disk->in_flight;
    end = &disk->in_flight->next;
  }
  *end = disk->head;
  disk->in_flight = NULL;
  disk->head = NULL;
  disk->tail = &disk->head;
  disk->queue_bytes = 0;
  disk->done_count = disk->put_count;
  disk->writer_state = QN__DISK_WRITER_NONE;
  disk->is_away = false;
}

void qn__disk_fork_child(void* self) {
  qn__disk_t* disk = self;
  if (disk->in_flight_fd >= 0) (void)qn__fs()->close(disk->in_flight_fd);
  disk->in_flight_fd = -1;
  atomic_store(&disk->inside_since_ns, 0);
  qn__disk_forget_claims(disk);
  close_streams(disk);
  set_queue_aside(disk);
  assert(qn__disk_check(disk));
  // Like the mutex, the conditions may count threads of the parent.
  qn_status_free(qn__cond_init(&disk->work));
  qn_status_free(qn__cond_init(&disk->done));
}

void qn__disk_add_stream(qn__disk_t* disk, qn__disk_stream_t* stream, int fd) {
  qn__mutex_lock(&disk->mutex);
  *stream = (qn__disk_stream_t){.next = disk->streams, .fd = fd};
  if (stream->next) stream->next->previous = stream;
  disk->streams = stream;
  assert(qn__disk_check(disk));
  qn__mutex_unlock(&disk->mutex);
}

bool qn__disk_drop_stream(qn__disk_t* disk, qn__disk_stream_t* stream) {
  qn__mutex_lock(&disk->mutex);
  bool is_mine = stream->fd >= 0;
  if (is_mine) {
    if (stream->previous) {
      stream->previous->next = stream->next;
    } else {
      disk->streams = stream->next;
    }
    if (stream->next) stream->next->previous = stream->previous;
  }
  qn__mutex_unlock(&disk->mutex);
  return is_mine;
}
