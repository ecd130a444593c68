// SPDX-License-Identifier: Apache-2.0
// cache/disk_publish.c: the queue of entries to write, and the thread that writes them.
//
// Requirements (disk_write.c has those on writing; docs/cache-format.md repeats all of them):
// 1. No entry is read back: the caller runs the bytes that it compiled.
// 2. A put costs the caller one copy. It makes no file call and waits for none: no thread holds the
//    lock during one. A full queue drops the newest entry.
// 3. ENOSPC, EDQUOT, EROFS, EACCES and EPERM switch writing off for a while. Any other error loses
//    the entry at hand only. Callers see neither.
// 4. Closing drops what is left in the queue after its grace period; exit drops all of it.
// 5. A child of fork has no writer and an empty queue, and holds neither lock nor descriptor of the
//    parent (disk_fork.c). Its first put starts a writer.
// 6. The claim of an entry ends when the entry is written or dropped, on every path.
//
// Thread rule: put, flush and stop from any thread; the rest runs on the writer.
#include <errno.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cache/disk_inner.h"

// How long a close waits for a running file call, after its grace period.
#define LAST_CALL_NS INT64_C(100000000)
#define WRITER_STACK_BYTES ((size_t)256 * 1024)

static size_t node_bytes(size_t size) {
  return sizeof(qn__disk_node_t) + size;
}

// Not with the lock held if the node has a claim: releasing it makes file calls.
static void free_node(qn__disk_t* disk, qn__disk_node_t* node) {
  qn__disk_claim_release(node->claim);
  qn__free(disk->allocator, node, node_bytes(node->size_bytes));
}

void qn__disk_free_nodes(qn__disk_t* disk, qn__disk_node_t* first) {
  while (first) {
    qn__disk_node_t* next = first->next;
    free_node(disk, first);
    first = next;
  }
}

// ----------------------------------------------------------------------------------- one entry

static bool is_refusal(int error) {
  return error == ENOSPC || error == EDQUOT || error == EROFS || error == EACCES || error == EPERM;
}

bool qn__disk_is_writing_off(const qn__disk_t* disk) {
  int64_t until_ns = atomic_load_explicit(&disk->latched_until_ns, memory_order_relaxed);
  return until_ns != 0 && qn__now_ns() < until_ns;
}

static void latch(qn__disk_t* disk, int error) {
  atomic_store(&disk->latched_until_ns, qn__after(qn__now_ns(), disk->latch_ns));
  QN__DISK_COUNT(disk, publish_latched, 1);
  qn_status_t status = qn__fs_status(error, "write to", disk->root);
  qn__log(QN_LOG_WARN, "cache: %s; writing is off for %" PRId64 " s", qn_status_message(status),
          disk->latch_ns / 1000000000);
  qn_status_free(status);
}

static void count_failure(qn__disk_t* disk, int error) {
  if (error == ENOSPC || error == EDQUOT) {
    QN__DISK_COUNT(disk, publish_failed_space, 1);
  } else if (is_refusal(error)) {
    QN__DISK_COUNT(disk, publish_failed_denied, 1);
  } else {
    QN__DISK_COUNT(disk, publish_failed_io, 1);
  }
}

// Writes an entry. False when writing is off and nothing was tried.
static bool publish(qn__disk_t* disk, qn__disk_node_t* node) {
  if (qn__disk_is_writing_off(disk)) {
    QN__DISK_COUNT(disk, publish_dropped_latched, 1);
    return false;
  }
  qn__entry_seal(node->bytes, node->size_bytes);
  int error = qn__disk_write_entry(disk, node);
  // Some file systems deny a call while a directory is being removed and allow it a moment later. A
  // second denial is final.
  if (error == EACCES || error == EPERM) error = qn__disk_write_entry(disk, node);
  if (error) {
    count_failure(disk, error);
    disk->is_short_of_space |= error == ENOSPC || error == EDQUOT;
    if (is_refusal(error)) latch(disk, error);
    return true;
  }
  QN__DISK_COUNT(disk, publish_done, 1);
  QN__DISK_COUNT(disk, publish_bytes, node->size_bytes);
  disk->written_since_sweep += node->size_bytes;
  return true;
}

// ---------------------------------------------------------------------------------- the writer

// Drops the queue. Called with the lock held; releases it meanwhile.
static void drop_queue(qn__disk_t* disk) {
  while (disk->head) {
    qn__disk_node_t* dropped = disk->head;
    for (qn__disk_node_t* node = dropped; node; node = node->next) {
      QN__DISK_COUNT(disk, publish_dropped_closing, 1);
      disk->done_count++;
      disk->queue_bytes -= node->size_bytes;
    }
    disk->head = NULL;
    disk->tail = &disk->head;
    // Releasing claims makes file calls; a close waits without a bound only for a writer in none.
    disk->is_away = true;
    qn__cond_broadcast(&disk->done);
    qn__mutex_unlock(&disk->mutex);
    qn__disk_free_nodes(disk, dropped);
    qn__mutex_lock(&disk->mutex);
    disk->is_away = false;
  }
}

// Reports a work. Called with the lock held, so that no report follows a close that did not wait.
static void tell(const qn__disk_t* disk, qn__disk_work_t work, int64_t start_ns,
                 const qn_hash128_t* key) {
  if (disk->on_work && !disk->is_abandoned) disk->on_work(disk->on_work_self, work, start_ns, key);
}

// Writes the first entry of the queue. False when there is none or the directory is closing. Called
// with the lock held; releases it meanwhile.
static bool serve_one(qn__disk_t* disk) {
  if (!disk->head || atomic_load(&disk->is_closing)) return false;
  qn__disk_node_t* node = disk->head;
  disk->head = node->next;
  if (!disk->head) disk->tail = &disk->head;
  node->next = NULL;
  disk->in_flight = node;
  disk->is_away = true;
  assert(qn__disk_check(disk));
  qn__mutex_unlock(&disk->mutex);

  int64_t start_ns = qn__now_ns();
  bool has_tried = publish(disk, node);

  qn__mutex_lock(&disk->mutex);
  assert(disk->in_flight == node && disk->is_away);
  if (has_tried) tell(disk, QN__DISK_WORK_WRITE, start_ns, &node->key);
  // Processes that wait for the entry continue after this.
  qn__disk_claim_t* claim = node->claim;
  node->claim = NULL;
  qn__mutex_unlock(&disk->mutex);
  qn__disk_claim_release(claim);
  qn__mutex_lock(&disk->mutex);
  disk->is_away = false;
  disk->in_flight = NULL;
  disk->queue_bytes -= node->size_bytes;
  free_node(disk, node);
  disk->done_count++;
  assert(qn__disk_check(disk));
  qn__cond_broadcast(&disk->done);
  return true;
}

void qn__disk_write_queued(qn__disk_t* disk) {
  qn__mutex_lock(&disk->mutex);
  assert(disk->is_away && !disk->in_flight);
  while (serve_one(disk)) {
  }
  disk->is_away = true;  // the sweep goes on
  qn__mutex_unlock(&disk->mutex);
}

// Sweeps if due. After an error for lack of space a sweep may help; after another error it could
// not remove files either. Called with the lock held; releases it meanwhile.
static void sweep_if_due(qn__disk_t* disk) {
  if (atomic_load(&disk->is_closing)) return;
  if (qn__disk_is_writing_off(disk) && !disk->is_short_of_space) return;
  disk->is_away = true;
  qn__mutex_unlock(&disk->mutex);
  int64_t start_ns = qn__now_ns();
  bool has_swept = qn__disk_sweep_if_due(disk);
  qn__mutex_lock(&disk->mutex);
  assert(disk->is_away && !disk->in_flight);
  disk->is_away = false;
  if (has_swept) tell(disk, QN__DISK_WORK_SWEEP, start_ns, NULL);
}

static void* write_queue(void* arg) {
  qn__disk_t* disk = arg;
  qn__mutex_lock(&disk->mutex);
  while (!atomic_load(&disk->is_closing)) {
    if (!disk->head) {
      qn__cond_wait(&disk->work, &disk->mutex);
    } else if (serve_one(disk) && !disk->head) {
      sweep_if_due(disk);
    }
  }
  drop_queue(disk);
  assert(!disk->in_flight && disk->queue_bytes == 0 && disk->done_count == disk->put_count);
  disk->writer_state = QN__DISK_WRITER_ENDED;
  qn__cond_broadcast(&disk->done);
  bool is_mine = disk->is_abandoned;
  qn__mutex_unlock(&disk->mutex);
  if (is_mine) qn__disk_destroy(disk);
  return NULL;
}

// Starts the writer unless it runs. False when it cannot start. With the lock held.
static bool has_writer(qn__disk_t* disk) {
  if (disk->writer_state == QN__DISK_WRITER_RUNNING) return true;
  qn_status_t status =
      qn__thread_start(&disk->writer, "quern-cache", WRITER_STACK_BYTES, write_queue, disk);
  if (qn_status_consume(status) != QN_STATUS_OK) return false;
  disk->writer_state = QN__DISK_WRITER_RUNNING;
  return true;
}

// Copies the entry as the file will hold it, without the checksum. NULL when it cannot be written.
static qn__disk_node_t* make_node(qn__disk_t* disk, const qn__entry_t* entry) {
  if (disk->is_read_only) {
    QN__DISK_COUNT(disk, publish_dropped_read_only, 1);
    return NULL;
  }
  if (qn__disk_is_writing_off(disk)) {
    QN__DISK_COUNT(disk, publish_dropped_latched, 1);
    return NULL;
  }
  size_t size = qn__entry_size(entry);
  if (size == 0) {
    QN__DISK_COUNT(disk, publish_dropped_size, 1);
    return NULL;
  }
  qn__disk_node_t* node = qn__alloc(disk->allocator, node_bytes(size));
  if (!node) {
    QN__DISK_COUNT(disk, publish_dropped_memory, 1);
    return NULL;
  }
  node->next = NULL;
  node->claim = NULL;
  node->size_bytes = size;
  node->key = qn__preimage_key(entry->preimage);
  qn__entry_write(entry, node->bytes);
  return node;
}

bool qn__disk_put(qn__disk_t* disk, const qn__entry_t* entry, qn__disk_claim_t* claim) {
  qn__disk_node_t* node = make_node(disk, entry);
  if (!node) {
    qn__disk_claim_release(claim);
    return false;
  }
  node->claim = claim;
  qn__mutex_lock(&disk->mutex);
  qn__disk_node_t* orphans = disk->orphans;
  disk->orphans = NULL;
  bool is_full = disk->queue_bytes + node->size_bytes > disk->max_queue_bytes;
  bool is_queued = !is_full && has_writer(disk);
  if (is_queued) {
    *disk->tail = node;
    disk->tail = &node->next;
    disk->queue_bytes += node->size_bytes;
    disk->put_count++;
    assert(qn__disk_check(disk));
  }
  qn__mutex_unlock(&disk->mutex);
  // Without the lock, or the writer would wake up and wait for it.
  if (is_queued) qn__cond_signal(&disk->work);
  qn__disk_free_nodes(disk, orphans);
  if (is_queued) {
    QN__DISK_COUNT(disk, publish_queued, 1);
    return true;
  }
  free_node(disk, node);
  if (is_full) {
    QN__DISK_COUNT(disk, publish_dropped_full, 1);
  } else {
    QN__DISK_COUNT(disk, publish_dropped_memory, 1);
  }
  return false;
}

bool qn__disk_flush(qn__disk_t* disk, int64_t timeout_ns) {
  int64_t deadline_ns = qn__after(qn__now_ns(), timeout_ns);
  qn__mutex_lock(&disk->mutex);
  uint64_t goal = disk->put_count;
  bool is_in_time = true;
  while (disk->done_count < goal && is_in_time) {
    is_in_time = qn__cond_wait_until(&disk->done, &disk->mutex, deadline_ns);
  }
  bool is_done = disk->done_count >= goal;
  assert(disk->done_count <= disk->put_count);
  qn__mutex_unlock(&disk->mutex);
  return is_done;
}

bool qn__disk_stop_writer(qn__disk_t* disk, int64_t grace_ns) {
  int64_t deadline_ns = qn__after(qn__after(qn__now_ns(), grace_ns), LAST_CALL_NS);
  (void)qn__disk_flush(disk, grace_ns);
  qn__mutex_lock(&disk->mutex);
  atomic_store(&disk->is_closing, true);
  qn__cond_signal(&disk->work);
  // A writer that is in no call ends soon; only a busy machine delays it.
  bool is_in_time = true;
  while (disk->writer_state == QN__DISK_WRITER_RUNNING && (is_in_time || !disk->is_away)) {
    if (disk->is_away) {
      is_in_time = qn__cond_wait_until(&disk->done, &disk->mutex, deadline_ns);
    } else {
      qn__cond_wait(&disk->done, &disk->mutex);
    }
  }
  if (disk->writer_state == QN__DISK_WRITER_RUNNING) {
    disk->is_abandoned = true;
    (void)pthread_detach(disk->writer);
    qn__mutex_unlock(&disk->mutex);
    return false;
  }
  bool has_ended = disk->writer_state == QN__DISK_WRITER_ENDED;
  qn__mutex_unlock(&disk->mutex);
  if (has_ended) (void)pthread_join(disk->writer, NULL);
  return true;
}

uint64_t qn__disk_queue_bytes(qn__disk_t* disk) {
  qn__mutex_lock(&disk->mutex);
  uint64_t bytes = disk->queue_bytes;
  qn__mutex_unlock(&disk->mutex);
  return bytes;
}
