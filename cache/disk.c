// SPDX-License-Identifier: Apache-2.0
// cache/disk.c: opens and closes a cache directory; its paths and counters.
//
// Not here: reading (disk_read.c), trust (disk_trust.c), claims (disk_claim.c), writing
// (disk_publish.c, disk_write.c), bounds (disk_sweep.c), listing (disk_scan.c). Read next:
// disk_read.c.
#include "cache/disk.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"
#include "cache/disk_inner.h"

// ---------------------------------------------------------------------------------------- paths

void qn__disk_path(const qn__disk_t* disk, const char* name, char* out) {
  // The open has checked the root.
  assert(disk->root_size + strlen(name) < QN__DISK_PATH_BYTES);
  memcpy(out, disk->root, disk->root_size);
  memcpy(out + disk->root_size, name, strlen(name) + 1);
}

// "<root>/v1/<ab>/<30 hex>.k"
void qn__disk_entry_path(const qn__disk_t* disk, qn_hash128_t key, char* out) {
  char* at = out + disk->root_size;
  memcpy(out, disk->root, disk->root_size);
  memcpy(at, "/v1/", 4);
  at = qn__hex(at + 4, key.bytes, 1);
  *at++ = '/';
  at = qn__hex(at, key.bytes + 1, 15);
  memcpy(at, ".k", 3);
}

void qn__disk_shard_path(const qn__disk_t* disk, unsigned shard, char* out) {
  assert(shard < QN__DISK_SHARDS);
  const uint8_t byte = (uint8_t)shard;
  char* at = out + disk->root_size;
  memcpy(out, disk->root, disk->root_size);
  memcpy(at, "/v1/", 4);
  *qn__hex(at + 4, &byte, 1) = '\0';
}

// "<root>/v1/tmp/<8 hex pid>-<16 hex>.t"
void qn__disk_temporary_path(const qn__disk_t* disk, char* out) {
  char name[QN__FS_TEMPORARY_NAME_BYTES];
  qn__fs_temporary_name(disk, name);
  char* at = out + disk->root_size;
  memcpy(out, disk->root, disk->root_size);
  (void)snprintf(at, QN__DISK_SUFFIX_BYTES, "/v1/tmp/%s.t", name);
}

// ------------------------------------------------------------------------------- open and close

static uint64_t or_default(uint64_t value, uint64_t fallback) {
  return value ? value : fallback;
}

static qn_status_t make_root(const qn__disk_t* disk, const qn__disk_options_t* options) {
  struct stat info;
  if (options->must_exist || options->is_read_only) return QN_OK;
  if (qn__fs()->lstat(disk->root, &info) == 0 || errno != ENOENT) return QN_OK;
  if (qn__fs_mkdirs(disk->root, 0700) != 0) return qn__fs_status(errno, "make", disk->root);
  return QN_OK;
}

static qn_status_t init_locks(qn__disk_t* disk) {
  QN_TRY(qn__mutex_init(&disk->mutex));
  qn_status_t status = qn__cond_init(&disk->work);
  if (qn_ok(status)) {
    status = qn__cond_init(&disk->done);
    if (qn_ok(status)) return QN_OK;
    qn__cond_deinit(&disk->work);
  }
  qn__mutex_deinit(&disk->mutex);
  return status;
}

static void free_memory(qn__disk_t* disk) {
  qn_allocator_t allocator = disk->allocator;
  qn__free(allocator, disk->owners, disk->owner_count * sizeof *disk->owners);
  qn__free_cstr(allocator, disk->runtime_dir);
  qn__free_cstr(allocator, disk->root);
  qn__free(allocator, disk, sizeof *disk);
}

static qn_status_t check_path(qn_str_t root) {
  if (root.size == 0) return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "cache directory is empty");
  if (root.size > QN__DISK_PATH_BYTES - QN__DISK_SUFFIX_BYTES) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "path of the cache directory has %zu bytes, more than the limit of %u",
                          root.size, QN__DISK_PATH_BYTES - QN__DISK_SUFFIX_BYTES);
  }
  return QN_OK;
}

// Makes a relative path absolute, because the program may change its working directory later.
static qn_status_t set_root(qn__disk_t* disk, qn_str_t root) {
  qn__buffer_t path;
  qn__buffer_init(&path, disk->allocator);
  qn_status_t status = QN_OK;
  if (root.data[0] != '/') {
    char here[QN__DISK_PATH_BYTES];
    if (getcwd(here, sizeof here)) {
      qn__buffer_cstr(&path, here);
      if (here[1] != '\0') qn__buffer_char(&path, '/');
    } else {
      status = qn__fs_status(errno, "name", "the working directory");
    }
  }
  qn__buffer_str(&path, root);
  if (qn_ok(status)) status = qn__buffer_status(&path, "a cache directory");
  if (qn_ok(status)) status = check_path(qn__buffer_as_str(&path));
  if (qn_ok(status)) {
    disk->root = qn__copy_cstr(disk->allocator, qn__buffer_as_str(&path));
    disk->root_size = path.size;
    if (!disk->root) status = qn__out_of_memory("a cache directory");
  }
  qn__buffer_deinit(&path);
  return status;
}

// Copies what the options borrow.
static qn_status_t copy_options(qn__disk_t* disk, const qn__disk_options_t* options) {
  qn_str_t runtime_dir = qn__str(options->runtime_dir);
  // A directory that cannot be used counts as none.
  if (runtime_dir.size > 0 && runtime_dir.data[0] == '/' &&
      runtime_dir.size <= QN__DISK_PATH_BYTES - QN__DISK_SUFFIX_BYTES) {
    disk->runtime_dir = qn__copy_cstr(disk->allocator, runtime_dir);
    if (!disk->runtime_dir) return qn__out_of_memory("a cache directory");
  }
  if (options->owner_count == 0) return QN_OK;
  size_t size;
  if (!qn__size_mul(options->owner_count, sizeof *disk->owners, &size)) {
    return qn__out_of_memory("the owners of a cache directory");
  }
  disk->owners = qn__alloc(disk->allocator, size);
  if (!disk->owners) return qn__out_of_memory("the owners of a cache directory");
  memcpy(disk->owners, options->owners, size);
  disk->owner_count = options->owner_count;
  return QN_OK;
}

qn_status_t qn__disk_open(const qn__disk_options_t* options, qn__disk_t** out_disk) {
  *out_disk = NULL;
  if (qn__has_borrowed_rights()) {
    return qn_status_make(QN_STATUS_PERMISSION_DENIED,
                          "a process with borrowed user or group rights uses no cache directory");
  }
  qn_str_t root = qn__str(options->root);
  while (root.size > 1 && root.data[root.size - 1] == '/') root.size--;
  QN_TRY(check_path(root));
  qn_allocator_t allocator =
      options->allocator.reallocate ? options->allocator : qn_allocator_default();
  qn__disk_t* disk = qn__alloc_zero(allocator, 1, sizeof *disk);
  if (!disk) return qn__out_of_memory("a cache directory");
  disk->allocator = allocator;
  qn__scratch_init(&disk->scratch, allocator);
  disk->owner = geteuid();
  disk->is_read_only = options->is_read_only;
  disk->max_bytes = or_default(options->max_bytes, (uint64_t)2 << 30);
  disk->max_entries = or_default(options->max_entries, 65536);
  disk->min_free_bytes = options->min_free_bytes;
  disk->max_queue_bytes = or_default(options->max_queue_bytes, (uint64_t)64 << 20);
  disk->latch_ns = options->latch_ns > 0 ? options->latch_ns : INT64_C(60000000000);
  disk->lock_timeout_ns =
      options->lock_timeout_ns > 0 ? options->lock_timeout_ns : INT64_C(30000000000);
  disk->hang_ns = options->hang_ns > 0 ? options->hang_ns : INT64_C(2000000000);
  disk->sweep_period_ns =
      options->sweep_period_ns != 0 ? options->sweep_period_ns : INT64_C(3600000000000);
  disk->on_work = options->on_work;
  disk->on_work_self = options->on_work_self;
  disk->tail = &disk->head;

  struct stat info;
  qn_status_t status = copy_options(disk, options);
  if (qn_ok(status)) status = set_root(disk, root);
  if (qn_ok(status)) status = make_root(disk, options);
  if (qn_ok(status)) status = qn__disk_check_trust(disk, &info);
  if (qn_ok(status)) status = init_locks(disk);
  if (!qn_ok(status)) {
    free_memory(disk);
    return status;
  }
  qn__disk_set_modes(disk, &info);
  disk->fork_node =
      (qn__fork_node_t){.self = disk, .mutex = &disk->mutex, .child = qn__disk_fork_child};
  if (!qn__fork_register(&disk->fork_node)) {
    qn__disk_destroy(disk);
    return qn__out_of_memory("the fork handlers of a cache directory");
  }
  *out_disk = disk;
  return QN_OK;
}

void qn__disk_destroy(qn__disk_t* disk) {
  assert(disk->writer_state != QN__DISK_WRITER_RUNNING && !disk->in_flight);
  qn__fork_unregister(&disk->fork_node);
  qn__disk_free_nodes(disk, disk->head);
  qn__disk_free_nodes(disk, disk->orphans);
  // Only claims are left, of a child of fork or of a caller that forgot them.
  while (disk->descriptors && !QN_NEVER(!disk->descriptors->claim)) {
    qn__disk_claim_release(disk->descriptors->claim);
  }
  qn__scratch_deinit(&disk->scratch);
  qn__cond_deinit(&disk->done);
  qn__cond_deinit(&disk->work);
  qn__mutex_deinit(&disk->mutex);
  free_memory(disk);
}

void qn__disk_close(qn__disk_t* disk, int64_t grace_ns) {
  if (disk && qn__disk_stop_writer(disk, grace_ns)) qn__disk_destroy(disk);
}

const char* qn__disk_root(const qn__disk_t* disk) {
  return disk->root;
}

// ----------------------------------------------------------------------------------------
// invariants

// The queue: what is queued or in flight is not done, and a writer will do it.
static bool check_queue(const qn__disk_t* disk) {
  uint64_t count = 0, size_bytes = 0;
  qn__disk_node_t* const* end = &disk->head;
  for (; *end; end = &(*end)->next) {
    count++;
    size_bytes += (*end)->size_bytes;
  }
  if (QN_NEVER(disk->tail != end)) return false;
  if (disk->in_flight) {
    if (QN_NEVER(disk->in_flight->next || !disk->is_away)) return false;
    count++;
    size_bytes += disk->in_flight->size_bytes;
  }
  if (QN_NEVER(size_bytes != disk->queue_bytes)) return false;
  if (QN_NEVER(count != disk->put_count - disk->done_count)) return false;
  return !QN_NEVER(count > 0 && disk->writer_state != QN__DISK_WRITER_RUNNING);
}

bool qn__disk_check(const qn__disk_t* disk) {
  if (!check_queue(disk)) return false;
  const qn__disk_descriptor_t* last = NULL;
  for (const qn__disk_descriptor_t* at = disk->descriptors; at; last = at, at = at->next) {
    if (QN_NEVER(at->previous != last)) return false;
    if (QN_NEVER(at->claim ? at->claim->disk != disk : at->fd < 0)) return false;
  }
  return true;
}

// ---------------------------------------------------------------------------------------- counters

static const qn__counter_row_t counter_rows[QN__DISK_COUNTER_COUNT] = {
#define QN_COUNTER(name, doc) {#name, doc},
#include "cache/disk_counters.inc"
#undef QN_COUNTER
};

qn__counter_set_t qn__disk_counters(const qn__disk_t* disk) {
  return (qn__counter_set_t){counter_rows, disk->counters, QN_COUNT_OF(counter_rows)};
}
