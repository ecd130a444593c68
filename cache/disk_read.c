// SPDX-License-Identifier: Apache-2.0
// cache/disk_read.c: reads entries from a cache directory.
//
// Requirements:
// 1. A hit costs one open, one fstat, one read and one close. No stat before the open, no lock, no
//    allocation but the bytes, and no mapping: a file that is replaced under a mapping on NFS
//    raises SIGBUS.
// 2. No symbolic link is followed, and no FIFO or device is waited for. A file of another user is
//    not read, unless that user is an owner of a shared directory.
// 3. An error of the file system is a miss and removes nothing: the next read may succeed.
// 4. A damaged file is a miss and is removed, if it still is the file that was read. If a good file
//    replaces it between that check and the removal, an entry is lost; no wrong one is read.
// 5. While one caller hangs in the file system (its server is gone), others make no call there,
//    neither to read nor to claim, because the kernel cannot interrupt them. Watching one caller at
//    a time is enough to notice.
// 6. The time of use is renewed at most daily, through the descriptor, so that it cannot change
//    another file.
//
// Not here: the bytes of an entry (entry.c), trusted files (disk_trust.c). Read next:
// disk_publish.c.
#include <errno.h>
#include <fcntl.h>

#include "cache/disk.h"
#include "cache/disk_inner.h"

#define DAY_NS INT64_C(86400000000000)

void qn__disk_hit_release(qn__disk_t* disk, qn__hit_t* hit) {
  if (!hit->bytes) return;
  qn__scratch_give(&disk->scratch, hit->bytes);
  memset(hit, 0, sizeof *hit);
}

static qn__get_result_t open_failed(int error, qn__hit_t* hit) {
  hit->error = error;
  if (error == ENOENT) return QN__GET_ABSENT;
  // O_NOFOLLOW gives ELOOP for a link; O_NONBLOCK gives ENXIO for a socket.
  if (error == ELOOP || error == ENXIO) return QN__GET_UNTRUSTED;
  return QN__GET_ERROR;
}

// Renews the time of use if it is a day old or in the future. Skips the file of another owner,
// which this user may not change: if only others use it, it is evicted once, and one of them writes
// it.
static void touch(qn__disk_t* disk, int fd, const struct stat* info) {
  int64_t age_ns = qn__wall_ns() - qn__disk_mtime_ns(info);
  if (disk->is_read_only || (age_ns < DAY_NS && age_ns > -DAY_NS)) return;
  if (info->st_uid != disk->owner && disk->owner != 0) return;
  const struct timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  if (qn__fs()->futimens(fd, times) == 0) {
    QN__DISK_COUNT(disk, disk_touched, 1);
  } else {
    QN__DISK_COUNT(disk, disk_touch_errors, 1);
  }
}

// Reads and verifies the open file. Fills `out_info` unless the result is ERROR.
static qn__get_result_t read_open_file(qn__disk_t* disk, int fd, const qn__expectation_t* expected,
                                       qn__hit_t* hit, struct stat* out_info) {
  if (qn__fs()->fstat(fd, out_info) != 0) {
    hit->error = errno;
    return QN__GET_ERROR;
  }
  if (!qn__disk_is_trusted_file(disk, out_info)) return QN__GET_UNTRUSTED;
  if ((uint64_t)out_info->st_size > QN__ENTRY_MAX_BYTES) {
    hit->reason = QN__REASON_LENGTHS;
    return QN__GET_BAD;
  }
  size_t size = (size_t)out_info->st_size;
  uint8_t* bytes = qn__scratch_take(&disk->scratch, size);
  if (!bytes) return QN__GET_NO_MEMORY;
  hit->error = qn__fs_pread_all(fd, bytes, size, 0);
  // The file ended before the size that fstat gave. That cannot happen on a sound file system,
  // because entries are published by rename.
  if (hit->error == ENODATA) hit->error = ESTALE;
  if (!hit->error) {
    hit->reason = qn__entry_decode((qn_span_t){bytes, size}, expected, &hit->entry);
    if (hit->reason == QN__REASON_NONE) {
      hit->bytes = bytes;
      hit->size_bytes = size;
      return QN__GET_HIT;
    }
  }
  qn__scratch_give(&disk->scratch, bytes);
  return hit->error ? QN__GET_ERROR : QN__GET_BAD;
}

// Removes a damaged file if it is still the one that was read.
static bool heal(qn__disk_t* disk, const char* path, const struct stat* seen) {
  struct stat now;
  if (qn__fs()->lstat(path, &now) == 0 && qn__disk_is_same_file(seen, &now) &&
      qn__fs()->unlink(path) == 0) {
    QN__DISK_COUNT(disk, disk_healed, 1);
    return true;
  }
  QN__DISK_COUNT(disk, disk_heal_skipped, 1);
  return false;
}

// Counts failures and bytes.
static void count_result(qn__disk_t* disk, qn__get_result_t result, const qn__hit_t* hit,
                         const struct stat* info) {
  switch (result) {
    case QN__GET_HIT:
      QN__DISK_COUNT(disk, disk_bytes_read, (uint64_t)info->st_size);
      break;
    case QN__GET_ABSENT:
      break;
    case QN__GET_BAD:
      qn__reason_count(hit->reason, &disk->counters[QN__DISK_COUNTER_disk_bad_truncated]);
      break;
    case QN__GET_ERROR:
      if (hit->error == EACCES || hit->error == EPERM) {
        QN__DISK_COUNT(disk, disk_read_denied, 1);
      } else {
        QN__DISK_COUNT(disk, disk_read_errors, 1);
      }
      break;
    case QN__GET_UNTRUSTED:
      if (S_ISREG(info->st_mode)) {
        QN__DISK_COUNT(disk, disk_untrusted, 1);
      } else {
        QN__DISK_COUNT(disk, disk_not_regular, 1);
      }
      break;
    case QN__GET_NO_MEMORY:
      QN__DISK_COUNT(disk, disk_no_memory, 1);
      break;
    case QN__GET_TIMEOUT:  // only other tiers
    case QN__GET_OFF:      // counted by the caller
      break;
  }
}

#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)

qn__disk_call_t qn__disk_begin_call(qn__disk_t* disk) {
  int64_t now_ns = qn__now_ns();
  int64_t since_ns = 0;
  if (atomic_compare_exchange_strong(&disk->inside_since_ns, &since_ns, now_ns)) {
    return QN__DISK_CALL_WATCHED;
  }
  return now_ns - since_ns > disk->hang_ns ? QN__DISK_CALL_REFUSED : QN__DISK_CALL_UNWATCHED;
}

void qn__disk_end_call(qn__disk_t* disk, qn__disk_call_t visit) {
  if (visit == QN__DISK_CALL_WATCHED) atomic_store(&disk->inside_since_ns, 0);
}

static qn__get_result_t read_once(qn__disk_t* disk, const char* path,
                                  const qn__expectation_t* expected, qn__hit_t* hit,
                                  struct stat* out_info) {
  int fd = qn__fs()->open(path, OPEN_FLAGS, 0);
  if (fd < 0) return open_failed(errno, hit);
  qn__get_result_t result = read_open_file(disk, fd, expected, hit, out_info);
  if (result == QN__GET_HIT) touch(disk, fd, out_info);
  (void)qn__fs()->close(fd);
  return result;
}

qn__get_result_t qn__disk_read(qn__disk_t* disk, const qn__expectation_t* expected,
                               qn__hit_t* out_hit) {
  memset(out_hit, 0, sizeof *out_hit);
  char path[QN__DISK_PATH_BYTES];
  qn__disk_entry_path(disk, expected->key, path);
  struct stat info = {0};
  qn__disk_call_t visit = qn__disk_begin_call(disk);
  if (visit == QN__DISK_CALL_REFUSED) {
    QN__DISK_COUNT(disk, disk_off, 1);
    return QN__GET_OFF;
  }
  qn__get_result_t result = read_once(disk, path, expected, out_hit, &info);
  // NFS gives ESTALE for a file that another machine has just replaced: the name leads to the new
  // one. Tries once more; a second ESTALE is an error.
  if (result == QN__GET_ERROR && out_hit->error == ESTALE) {
    out_hit->error = 0;
    result = read_once(disk, path, expected, out_hit, &info);
  }
  qn__disk_end_call(disk, visit);
  count_result(disk, result, out_hit, &info);
  if (result == QN__GET_BAD && qn__reason_heals(out_hit->reason) && !disk->is_read_only) {
    (void)heal(disk, path, &info);
  }
  return result;
}

qn__get_result_t qn__disk_get(qn__disk_t* disk, const qn__expectation_t* expected,
                              qn__hit_t* out_hit) {
  qn__get_result_t result = qn__disk_read(disk, expected, out_hit);
  if (result == QN__GET_HIT) QN__DISK_COUNT(disk, disk_hits, 1);
  if (result == QN__GET_ABSENT) QN__DISK_COUNT(disk, disk_misses, 1);
  return result;
}

qn__get_result_t qn__disk_inspect(qn__disk_t* disk, qn_hash128_t key, bool heals,
                                  qn__hit_t* out_hit, bool* out_removed) {
  memset(out_hit, 0, sizeof *out_hit);
  if (out_removed) *out_removed = false;
  char path[QN__DISK_PATH_BYTES];
  qn__disk_entry_path(disk, key, path);
  int fd = qn__fs()->open(path, OPEN_FLAGS, 0);
  if (fd < 0) return open_failed(errno, out_hit);
  struct stat info;
  qn__get_result_t result = read_open_file(disk, fd, NULL, out_hit, &info);
  (void)qn__fs()->close(fd);
  if (result == QN__GET_HIT && !qn__hash128_equal(out_hit->entry.key, key)) {
    qn__disk_hit_release(disk, out_hit);
    out_hit->reason = QN__REASON_KEY;
    result = QN__GET_BAD;
  }
  if (result == QN__GET_BAD && heals && qn__reason_heals(out_hit->reason) && !disk->is_read_only) {
    bool is_removed = heal(disk, path, &info);
    if (out_removed) *out_removed = is_removed;
  }
  return result;
}
