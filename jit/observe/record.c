// SPDX-License-Identifier: Apache-2.0
// jit/observe/record.c: appends keys to the file of QUERN_RECORD.
//
// Requirements:
//  1. Processes and threads share one file without a lock. Each line is one write to a descriptor
//     with O_APPEND, which Linux makes atomic for regular files (under the inode's lock). NFS
//     gives no such guarantee; readers of the list skip torn lines.
//  2. A short write (a full disk) leaves a partial line. The next line of this process then begins
//     with a newline, and so does the first line of a process that opens such a file. A line that
//     another process appends in between is lost together with the partial one.
//  3. Each key is written once per process; a child of fork inherits its parent's set. A service
//     with an unbounded number of keys fills the set and records no more.
//  4. No lock is held while the file is written. So a slow file delays only the lookup that
//     records, which has just compiled or read the cache.
#include "jit/observe/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fork.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "jit/observe/keyset.h"

struct qn__record {
  qn_allocator_t allocator;
  int fd;
  char* path;
  _Atomic bool is_torn;  // the file ends in a partial line
  _Atomic bool has_complained;
  qn__mutex_t mutex;
  bool has_mutex;
  qn__fork_node_t fork_node;
  qn__keyset_t keys;  // written by this process or its parents
};

static void complain(qn__record_t* record, const char* what, const char* reason) {
  if (atomic_exchange(&record->has_complained, true)) return;
  qn__log(QN_LOG_WARN, "QUERN_RECORD: %s '%s': %s", what, record->path, reason);
}

static void complain_errno(qn__record_t* record, const char* what, int error) {
  qn_status_t status = qn__fs_status(error, what, record->path);
  if (!atomic_exchange(&record->has_complained, true)) {
    qn__log(QN_LOG_WARN, "QUERN_RECORD: %s", qn_status_message(status));
  }
  qn_status_free(status);
}

// Returns whether the file ends in a partial line, left by a short write.
static bool ends_torn(int fd, off_t size) {
  char last = '\n';
  return size > 0 && qn__fs()->pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

// Opens the file. If it cannot be used, logs that and leaves fd at -1.
static void open_file(qn__record_t* record) {
  const qn__fs_t* fs = qn__fs();
  // Without O_NONBLOCK, opening a FIFO would block until another process opens it for reading.
  int flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  int fd = fs->open(record->path, flags, 0600);
  if (fd < 0) {
    complain_errno(record, "open", errno);
    return;
  }
  struct stat info;
  if (fs->fstat(fd, &info) != 0) {
    complain_errno(record, "stat", errno);
  } else if (!S_ISREG(info.st_mode)) {
    complain(record, "records into no other than a regular file, got", "nothing is recorded");
  } else {
    record->is_torn = ends_torn(fd, info.st_size);
    record->fd = fd;
    return;
  }
  (void)fs->close(fd);
}

qn_status_t qn__record_open(qn_allocator_t allocator, const char* path, qn__record_t** out_record) {
  *out_record = NULL;
  if (!path || !path[0]) return QN_OK;
  qn__record_t* record = qn__alloc_zero(allocator, 1, sizeof *record);
  if (!record) return qn__out_of_memory("the record of lookups");
  record->allocator = allocator;
  record->fd = -1;
  qn__keyset_init(&record->keys, allocator);
  record->path = qn__copy_cstr(allocator, qn__str(path));
  qn_status_t status =
      record->path ? qn__mutex_init(&record->mutex) : qn__out_of_memory("the record of lookups");
  if (qn_ok(status)) {
    record->has_mutex = true;
    open_file(record);
  }
  if (qn_ok(status) && record->fd >= 0) {
    record->fork_node = (qn__fork_node_t){.self = record, .mutex = &record->mutex};
    if (qn__fork_register(&record->fork_node)) {
      *out_record = record;
      return QN_OK;
    }
    record->fork_node.self = NULL;
    status = qn__out_of_memory("a fork handler");
  }
  qn__record_close(record);
  return status;
}

void qn__record_close(qn__record_t* record) {
  if (!record) return;
  if (record->fork_node.self) qn__fork_unregister(&record->fork_node);
  if (record->fd >= 0) (void)qn__fs()->close(record->fd);
  if (record->has_mutex) qn__mutex_deinit(&record->mutex);
  qn__keyset_deinit(&record->keys);
  qn__free_cstr(record->allocator, record->path);
  qn__free(record->allocator, record, sizeof *record);
}

// ------------------------------------------------------------------------------------ writing

// Adds a key. Returns false if the set has it already, is full, or lacks memory.
static bool add_key(qn__record_t* record, qn_hash128_t key) {
  qn__mutex_lock(&record->mutex);
  bool is_known = qn__keyset_has(&record->keys, key);
  bool is_full = !is_known && record->keys.count >= QN__RECORD_MAX_KEYS;
  bool is_new = !is_known && !is_full && qn__keyset_add(&record->keys, key) == QN__KEYSET_NEW;
  qn__mutex_unlock(&record->mutex);
  // After the unlock, because a log callback may do a lookup, which records.
  if (is_full) {
    complain(record, "no more is recorded into", "this process has looked up more than 65536 keys");
  }
  return is_new;
}

static void write_line(qn__record_t* record, qn_span_t line) {
  // The line's first newline is written only to end a partial line.
  if (!atomic_exchange(&record->is_torn, false)) {
    line.data++;
    line.size--;
  }
  ssize_t written = qn__fs()->write(record->fd, line.data, line.size);
  if (written == (ssize_t)line.size) return;
  atomic_store(&record->is_torn, true);
  if (written < 0) {
    complain_errno(record, "append to", errno);
  } else {
    complain(record, "a line was cut in", "the file system took a part of it; is it full?");
  }
}

void qn__record_note(qn__record_t* record, qn_hash128_t key, const qn_compile_request_t* request,
                     const char* name) {
  if (!record) return;
  if (!add_key(record, key)) return;
  qn__buffer_t line;
  qn__buffer_init(&line, record->allocator);
  qn__buffer_char(&line, '\n');
  qn__record_format(key, request, name, &line);
  if (line.has_failed) {
    complain(record, "no memory for a line of", "a key is missing in it");
  } else {
    write_line(record, qn__buffer_as_span(&line));
  }
  qn__buffer_deinit(&line);
}
