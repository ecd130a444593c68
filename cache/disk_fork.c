// cache/disk_fork.c: what a fork leaves to the child of a cache directory.
//
// The lock is held over the fork, so the child finds every list whole. It has one thread: no
// writer, an empty queue. It closes what the parent's other threads had open and could never close
// here: the file in the making, leases, directories being listed. (A fork in the few instructions
// between an open and its entry in a list, or in the middle of another thread's get, leaves that
// descriptor open in the child; it closes on exec and holds no lock.) Nothing is allocated or freed
// here, because an allocator of the host's may not be ready yet in a fork handler.
//
// Thread rule: run by base/fork.c. Read next: publish.c.
#include "cache/disk_inner.h"

void qn__disk_fork_prepare(void* self) {
  qn__disk_t* disk = self;
  qn__mutex_lock(&disk->mutex);
}

void qn__disk_fork_parent(void* self) {
  qn__disk_t* disk = self;
  qn__mutex_unlock(&disk->mutex);
}

static void close_streams(qn__disk_t* disk) {
  for (qn__disk_stream_t* stream = disk->streams; stream; stream = stream->next) {
    (void)qn__fs()->close(stream->fd);
    stream->fd = -1;
  }
  disk->streams = NULL;
}

// What was queued is the parent's to write; here it is only set aside until it can be freed.
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
  disk->writer_state = QN__WRITER_NONE;
  disk->is_away = false;
}

void qn__disk_fork_child(void* self) {
  qn__disk_t* disk = self;
  if (disk->in_flight_fd >= 0) (void)qn__fs()->close(disk->in_flight_fd);
  disk->in_flight_fd = -1;
  atomic_store(&disk->inside_since_ns, 0);
  qn__disk_forget_leases(disk);
  close_streams(disk);
  set_queue_aside(disk);
  qn__mutex_unlock(&disk->mutex);
  // The lock and the conditions may still count threads of the parent's, which will never leave
  // them: they are made anew. None of the three calls allocates.
  qn_status_free(qn__cond_init(&disk->work));
  qn_status_free(qn__cond_init(&disk->done));
  qn_status_free(qn__mutex_init(&disk->mutex));
}

void qn__disk_add_stream(qn__disk_t* disk, qn__disk_stream_t* stream, int fd) {
  qn__mutex_lock(&disk->mutex);
  *stream = (qn__disk_stream_t){.next = disk->streams, .fd = fd};
  if (stream->next) stream->next->previous = stream;
  disk->streams = stream;
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
