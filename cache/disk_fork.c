// SPDX-License-Identifier: Apache-2.0
// cache/disk_fork.c: what a child of fork does with an open cache directory.
//
// The fork handlers hold the lock, so the child finds every list whole. The child has one thread:
// no writer, an empty queue. It closes the descriptors of the parent's other threads, which could
// never close them here: of temporary files, of claims, of directories that are being listed. A
// descriptor that another thread has just opened and not recorded yet stays open in the child; it
// closes on exec and holds no lock.
//
// Nothing is allocated or freed here, because the host's allocator may not be ready in a fork
// handler. Called by base/fork.c.
#include "cache/disk_inner.h"

// With the lock held.
static void insert(qn__disk_t* disk, qn__disk_descriptor_t* descriptor) {
  descriptor->previous = NULL;
  descriptor->next = disk->descriptors;
  if (descriptor->next) descriptor->next->previous = descriptor;
  disk->descriptors = descriptor;
}

void qn__disk_record_descriptor(qn__disk_t* disk, qn__disk_descriptor_t* descriptor, int fd,
                                qn__disk_claim_t* claim) {
  *descriptor = (qn__disk_descriptor_t){.claim = claim, .fd = fd};
  qn__mutex_lock(&disk->mutex);
  insert(disk, descriptor);
  assert(qn__disk_check(disk));
  qn__mutex_unlock(&disk->mutex);
}

int qn__disk_drop_descriptor(qn__disk_t* disk, qn__disk_descriptor_t* descriptor) {
  qn__mutex_lock(&disk->mutex);
  int fd = descriptor->fd;
  // A child keeps only the descriptors of claims in the list.
  if (fd >= 0 || descriptor->claim) {
    if (descriptor->previous) {
      descriptor->previous->next = descriptor->next;
    } else {
      assert(disk->descriptors == descriptor);
      disk->descriptors = descriptor->next;
    }
    if (descriptor->next) descriptor->next->previous = descriptor->previous;
  }
  assert(qn__disk_check(disk));
  qn__mutex_unlock(&disk->mutex);
  return fd;
}

static void close_descriptors(qn__disk_t* disk) {
  qn__disk_descriptor_t* next = disk->descriptors;
  disk->descriptors = NULL;
  while (next) {
    qn__disk_descriptor_t* descriptor = next;
    next = descriptor->next;
    if (descriptor->fd >= 0) (void)qn__fs()->close(descriptor->fd);
    descriptor->fd = -1;
    if (descriptor->claim) insert(disk, descriptor);  // its holder or the close frees the claim
  }
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
  atomic_store(&disk->inside_since_ns, 0);
  close_descriptors(disk);
  set_queue_aside(disk);
  assert(qn__disk_check(disk));
  // Like the mutex, the conditions may count threads of the parent.
  qn_status_free(qn__cond_init(&disk->work));
  qn_status_free(qn__cond_init(&disk->done));
}
