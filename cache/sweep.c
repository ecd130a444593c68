// cache/sweep.c: keeps the directory below its bounds.
//
// Requirements.
// 1. At most one sweep per period among all processes, claimed by a stamp file without a lock. Two
// sweeps
//    at once are harmless, so the claim may err on that side.
// 2. Sizes and counts are taken from the directory each time: a persistent counter drifts.
// 3. The least recently used go first, by the time of modification, which a hit renews daily.
// Access times
//    are useless under relatime, noatime and on NFS.
// 4. Only files whose names are ours are touched, and only if nothing changed since they were
// listed.
// 5. It goes down to four fifths, so that a full cache does not sweep for each new entry.
//
// Thread rule: on the writer thread, or on the caller's of qn__disk_sweep. Read next: scan.c.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cache/disk_inner.h"

#define TEMPORARY_LIFE_NS INT64_C(3600000000000)
// After an eighth of the bound has been written by this process alone, the period shrinks to this.
#define SHORTEST_PERIOD_NS INT64_C(60000000000)

// ---------------------------------------------------------------------------------------- the
// claim

static bool make_stamp(const char* stamp) {
  int fd = qn__fs()->open(stamp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return false;
  (void)qn__fs()->close(fd);
  return true;
}

static bool is_older_than(const struct stat* info, int64_t period_ns) {
  int64_t age_ns = qn__wall_ns() - qn__disk_mtime_ns(info);
  return age_ns >= period_ns || age_ns < -period_ns;  // a stamp from the future is none
}

// True when this process is to sweep. The stamp's time is that of the last claim. Whoever makes it
// has claimed; an old one is first renamed away, which only one process can do. The one that
// renamed a stamp which turns out to be new took it from a quicker process and puts it back.
static bool claim(qn__disk_t* disk, int64_t period_ns) {
  const qn__fs_t* fs = qn__fs();
  char stamp[QN__DISK_PATH_BYTES], taken[QN__DISK_PATH_BYTES];
  qn__disk_path(disk, "/v1/stamp", stamp);
  if (make_stamp(stamp)) return true;
  struct stat info;
  if (fs->lstat(stamp, &info) != 0 || !is_older_than(&info, period_ns)) return false;
  qn__disk_temporary_path(disk, taken);
  if (fs->rename(stamp, taken) != 0) return false;
  if (fs->lstat(taken, &info) == 0 && !is_older_than(&info, period_ns)) {
    (void)fs->rename(taken, stamp);
    return false;
  }
  (void)fs->unlink(taken);
  return make_stamp(stamp);
}

// ---------------------------------------------------------------------------------------- the
// sweep

typedef struct listing {
  qn__disk_t* disk;
  qn__disk_file_t* files;
  size_t count, capacity;
  uint64_t size_bytes;
  bool has_failed;
} listing_t;

static bool is_interrupted(const qn__disk_t* disk) {
  return atomic_load(&disk->is_closing);
}

static bool list_file(void* self, const qn__disk_file_t* file) {
  listing_t* list = self;
  void* items = list->files;
  if (is_interrupted(list->disk) || !qn__grow(list->disk->allocator, &items, &list->capacity,
                                              list->count + 1, sizeof *list->files)) {
    list->has_failed = true;
    return false;
  }
  list->files = items;
  list->files[list->count++] = *file;
  list->size_bytes += file->size_bytes;
  return true;
}

static int by_age(const void* a, const void* b) {
  const qn__disk_file_t* left = a;
  const qn__disk_file_t* right = b;
  return (left->modified_ns > right->modified_ns) - (left->modified_ns < right->modified_ns);
}

// True when the file is gone afterwards.
static bool evict(qn__disk_t* disk, const qn__disk_file_t* file) {
  char path[QN__DISK_PATH_BYTES];
  struct stat info;
  qn__disk_entry_path(disk, file->key, path);
  if (qn__fs()->lstat(path, &info) != 0) return errno == ENOENT;
  // Used or replaced since it was listed: it is not the oldest any more.
  if (qn__disk_mtime_ns(&info) != file->modified_ns || (uint64_t)info.st_size != file->size_bytes) {
    return false;
  }
  if (qn__fs()->unlink(path) != 0) return errno == ENOENT;
  QN__COUNT(disk, sweep_evicted, 1);
  QN__COUNT(disk, sweep_evicted_bytes, file->size_bytes);
  return true;
}

static void evict_oldest(qn__disk_t* disk, listing_t* list) {
  if (list->size_bytes <= disk->max_bytes && list->count <= disk->max_entries) return;
  uint64_t goal_bytes = disk->max_bytes / 5 * 4, goal_count = disk->max_entries / 5 * 4;
  uint64_t bytes = list->size_bytes, count = list->count;
  qsort(list->files, list->count, sizeof *list->files, by_age);
  for (size_t i = 0; i < list->count && (bytes > goal_bytes || count > goal_count); i++) {
    if (is_interrupted(disk)) break;
    if (!evict(disk, &list->files[i])) continue;
    bytes -= list->files[i].size_bytes;
    count--;
  }
}

static void remove_if_abandoned(void* self, const char* path, int64_t modified_ns) {
  qn__disk_t* disk = self;
  if (qn__wall_ns() - modified_ns < TEMPORARY_LIFE_NS) return;
  if (qn__fs()->unlink(path) == 0) QN__COUNT(disk, sweep_temporaries, 1);
}

bool qn__disk_sweep(qn__disk_t* disk) {
  if (disk->is_read_only) return false;
  listing_t list = {.disk = disk};
  int error = qn__disk_scan_temporaries(disk, remove_if_abandoned, disk);
  if (!error) error = qn__disk_scan(disk, list_file, &list, NULL);
  bool is_fine = !error && !list.has_failed;
  if (is_fine) {
    evict_oldest(disk, &list);
    QN__COUNT(disk, sweep_runs, 1);
  } else {
    QN__COUNT(disk, sweep_errors, 1);
  }
  qn__free(disk->allocator, list.files, list.capacity * sizeof *list.files);
  return is_fine;
}

bool qn__disk_sweep_if_due(qn__disk_t* disk) {
  if (disk->sweep_period_ns < 0) return false;
  int64_t now_ns = qn__now_ns();
  bool is_busy = disk->written_since_sweep > disk->max_bytes / 8;
  if (now_ns < disk->next_sweep_check_ns && !is_busy) return false;
  int64_t period_ns = disk->sweep_period_ns;
  if (is_busy && period_ns > SHORTEST_PERIOD_NS) period_ns = SHORTEST_PERIOD_NS;
  disk->next_sweep_check_ns = now_ns + period_ns;
  disk->written_since_sweep = 0;
  QN__COUNT(disk, sweep_checks, 1);
  if (!claim(disk, period_ns)) return false;
  (void)qn__disk_sweep(disk);
  return true;
}
