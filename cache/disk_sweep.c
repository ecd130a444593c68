// SPDX-License-Identifier: Apache-2.0
// cache/disk_sweep.c: keeps the directory below its bounds.
//
// Requirements:
// 1. All processes together do at most one sweep per period. A stamp file decides which one sweeps,
//    without a lock. Two sweeps at once are harmless, so the decision may err on that side.
// 2. Each sweep takes sizes and counts from the directory. A counter that persists would drift.
// 3. It removes the least recently used entries first, by their time of modification, which a hit
//    renews daily. Access times are useless under relatime, noatime and on NFS. An entry that was
//    used on its first day only looks like one that was never used, so neither goes earlier.
// 4. It touches only files whose names have the form of entries and temporary files, and only if
//    they have not changed since they were listed.
// 5. It removes down to four fifths of an exceeded bound, so that a full cache does not sweep for
//    each new entry. For free space on the file system it removes as much as is missing. If a write
//    failed for lack of space (a quota shows in no other way), it removes at least a fifth.
// 6. It works in steps. Between two steps the writer writes the entries that were queued meanwhile,
//    for which other processes may wait, and checks whether the directory is closing.
//
// Runs on the writer thread, or in the caller of qn__disk_sweep.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cache/disk_inner.h"

#define TEMPORARY_LIFE_NS INT64_C(3600000000000)
// The period becomes this short after this process alone has written an eighth of the bound.
#define SHORTEST_PERIOD_NS INT64_C(60000000000)
// Bytes to leave free by default, or a twentieth of the file system if that is less.
#define LARGEST_FREE_BYTES ((uint64_t)1 << 30)
// Files to remove between two steps.
#define STEP_FILES 64

// ------------------------------------------------------------------------------------ the stamp

// Creates the stamp. A full disk cannot hold a stamp, but needs the sweep: true as well.
static bool make_stamp(const char* stamp) {
  int fd = qn__fs()->open(stamp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno == ENOSPC || errno == EDQUOT;
  (void)qn__fs()->close(fd);
  return true;
}

// A time far in the future counts as old, or it would prevent sweeps until then.
static bool is_older_than(int64_t modified_ns, int64_t period_ns) {
  int64_t age_ns = qn__wall_ns() - modified_ns;
  return age_ns >= period_ns || age_ns < -period_ns;
}

// True when this process has to sweep. The stamp's time is that of the last sweep. The process that
// creates the stamp sweeps. An old stamp is renamed away first, which only one process can do. If
// the renamed stamp turns out to be new, a quicker process has just made it, so it is put back.
static bool claim(qn__disk_t* disk, int64_t period_ns) {
  const qn__fs_t* fs = qn__fs();
  char stamp[QN__DISK_PATH_BYTES], taken[QN__DISK_PATH_BYTES];
  qn__disk_path(disk, "/v1/stamp", stamp);
  if (make_stamp(stamp)) return true;
  struct stat info;
  if (fs->lstat(stamp, &info) != 0 || !is_older_than(qn__disk_mtime_ns(&info), period_ns))
    return false;
  qn__disk_temporary_path(disk, taken);
  // A sticky bit may protect another owner's stamp; then each process sweeps for itself.
  if (fs->rename(stamp, taken) != 0) return errno == EACCES || errno == EPERM;
  if (fs->lstat(taken, &info) == 0 && !is_older_than(qn__disk_mtime_ns(&info), period_ns)) {
    (void)fs->rename(taken, stamp);
    return false;
  }
  (void)fs->unlink(taken);
  return make_stamp(stamp);
}

// ----------------------------------------------------------------------------------- the sweep

// Returns about what a file takes on the disk.
static uint64_t block_bytes(uint64_t size_bytes) {
  return (size_bytes + 4095) & ~UINT64_C(4095);
}

typedef struct listing {
  qn__disk_t* disk;
  qn__disk_file_t* files;
  size_t count, capacity;
  uint64_t size_bytes, block_bytes;
  bool is_on_writer;
  bool is_for_space;  // a write failed for lack of space
  bool has_failed;
} listing_t;

// Does what is due between two steps. False when the sweep has to end.
static bool step(const listing_t* list) {
  if (atomic_load(&list->disk->is_closing)) return false;
  if (list->is_on_writer) qn__disk_write_queued(list->disk);
  return true;
}

static bool list_file(void* self, const qn__disk_file_t* file) {
  listing_t* list = self;
  void* items = list->files;
  if (atomic_load(&list->disk->is_closing) ||
      !qn__grow(list->disk->allocator, &items, &list->capacity, list->count + 1,
                sizeof *list->files)) {
    list->has_failed = true;
    return false;
  }
  list->files = items;
  list->files[list->count++] = *file;
  list->size_bytes += file->size_bytes;
  list->block_bytes += block_bytes(file->size_bytes);
  return true;
}

// Lists all entries. Returns 0 or an errno.
static int list_all(listing_t* list) {
  for (unsigned shard = 0; shard < QN__DISK_SHARDS; shard++) {
    if (!step(list)) list->has_failed = true;
    if (list->has_failed) return 0;
    int result = qn__disk_scan_shard(list->disk, shard, list_file, list);
    if (result > 0) return result;
  }
  return 0;
}

static int by_age(const void* a, const void* b) {
  const qn__disk_file_t* left = a;
  const qn__disk_file_t* right = b;
  return (left->modified_ns > right->modified_ns) - (left->modified_ns < right->modified_ns);
}

// Removes one file. True when it is gone.
static bool evict(qn__disk_t* disk, const qn__disk_file_t* file) {
  char path[QN__DISK_PATH_BYTES];
  struct stat info;
  qn__disk_entry_path(disk, file->key, path);
  if (qn__fs()->lstat(path, &info) != 0) return errno == ENOENT;
  // It was used or replaced since it was listed, so it is not the oldest any more.
  if (qn__disk_mtime_ns(&info) != file->modified_ns || (uint64_t)info.st_size != file->size_bytes) {
    return false;
  }
  if (qn__fs()->unlink(path) != 0) return errno == ENOENT;
  QN__DISK_COUNT(disk, sweep_evicted, 1);
  QN__DISK_COUNT(disk, sweep_evicted_bytes, file->size_bytes);
  return true;
}

// Returns the bytes to remove for the free space of the file system; 0 when it cannot be asked.
static uint64_t missing_bytes(const qn__disk_t* disk) {
  uint64_t free_bytes, total_bytes, wanted = disk->min_free_bytes;
  if (qn__fs()->statvfs_free(disk->root, &free_bytes, &total_bytes) != 0) return 0;
  if (wanted == 0) {
    wanted = total_bytes / 20;
    if (wanted > LARGEST_FREE_BYTES) wanted = LARGEST_FREE_BYTES;
  }
  return free_bytes < wanted ? wanted - free_bytes : 0;
}

// Returns four fifths of the bound if `value` exceeds it.
static uint64_t goal_below(uint64_t value, uint64_t bound) {
  assert(bound > 0);  // the open has replaced 0 by the default
  return value > bound ? bound - bound / 5 : bound;
}

// Removes the oldest entries. Returns the bytes removed.
static uint64_t evict_oldest(qn__disk_t* disk, listing_t* list) {
  uint64_t bytes = list->size_bytes, count = list->count, gone = 0;
  uint64_t goal_bytes = goal_below(bytes, disk->max_bytes);
  uint64_t goal_count = goal_below(count, disk->max_entries);
  uint64_t missing = missing_bytes(disk);
  uint64_t fifth = list->block_bytes / 5;
  if (list->is_for_space && missing < fifth) missing = fifth;
  if (bytes <= goal_bytes && count <= goal_count && missing == 0) return 0;
  // Without files there is no array.
  if (list->count > 0) qsort(list->files, list->count, sizeof *list->files, by_age);
  for (size_t i = 0; i < list->count; i++) {
    if (bytes <= goal_bytes && count <= goal_count && gone >= missing) break;
    if (i % STEP_FILES == 0 && !step(list)) break;
    if (!evict(disk, &list->files[i])) continue;
    assert(bytes >= list->files[i].size_bytes && count > 0);
    bytes -= list->files[i].size_bytes;
    gone += block_bytes(list->files[i].size_bytes);
    count--;
  }
  return gone;
}

static void remove_if_abandoned(void* self, const char* path, int64_t modified_ns) {
  qn__disk_t* disk = self;
  if (!is_older_than(modified_ns, TEMPORARY_LIFE_NS)) return;
  if (qn__fs()->unlink(path) == 0) QN__DISK_COUNT(disk, sweep_temporaries, 1);
}

static bool sweep(listing_t* list, uint64_t* out_gone_bytes) {
  qn__disk_t* disk = list->disk;
  *out_gone_bytes = 0;
  int error = qn__disk_scan_temporaries(disk, remove_if_abandoned, disk);
  if (!error) error = list_all(list);
  bool is_fine = !error && !list->has_failed;
  if (is_fine) {
    *out_gone_bytes = evict_oldest(disk, list);
    QN__DISK_COUNT(disk, sweep_runs, 1);
  } else {
    QN__DISK_COUNT(disk, sweep_errors, 1);
  }
  qn__free(disk->allocator, list->files, list->capacity * sizeof *list->files);
  return is_fine;
}

bool qn__disk_sweep(qn__disk_t* disk) {
  listing_t list = {.disk = disk};
  uint64_t gone_bytes;
  return !disk->is_read_only && sweep(&list, &gone_bytes);
}

bool qn__disk_sweep_if_due(qn__disk_t* disk) {
  if (disk->sweep_period_ns < 0) return false;
  int64_t now_ns = qn__now_ns();
  // Read before the sweep: a write that fails during it is for the next one.
  bool is_for_space = disk->is_short_of_space;
  disk->is_short_of_space = false;
  bool is_urgent = is_for_space || disk->written_since_sweep > disk->max_bytes / 8;
  if (now_ns < disk->next_sweep_check_ns && !is_urgent) return false;
  int64_t period_ns = disk->sweep_period_ns;
  if (is_urgent && period_ns > SHORTEST_PERIOD_NS) period_ns = SHORTEST_PERIOD_NS;
  disk->next_sweep_check_ns = now_ns + period_ns;
  disk->written_since_sweep = 0;
  QN__DISK_COUNT(disk, sweep_checks, 1);
  if (!claim(disk, period_ns)) return false;
  listing_t list = {.disk = disk, .is_on_writer = true, .is_for_space = is_for_space};
  uint64_t gone_bytes;
  (void)sweep(&list, &gone_bytes);
  // There is space again, so writing is on again.
  if (is_for_space && gone_bytes > 0) atomic_store(&disk->latched_until_ns, 0);
  return true;
}
