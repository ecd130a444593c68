// SPDX-License-Identifier: Apache-2.0
// cache/disk_claim.c: claims: one compile per key among the processes of a machine.
//
// Requirements:
// 1. Claims are advisory: no result of the cache depends on them. A process without one compiles.
// 2. A claim is a lock (of an open file description) on one byte of an empty file; the key gives
//    the offset of the byte. The kernel releases the lock when its holder ends, for whatever
//    reason. No times are compared and no file is left behind. Two keys share a byte with
//    probability 2^-62.
// 3. Every wait is bounded by the caller's deadline and by the directory's lock timeout. A holder
//    that is stopped or compiles for long costs that time and no more.
// 4. A waiter reads the entry in each round, and once more when it gets the claim, because another
//    process may have written the entry meanwhile.
// 5. The lock file lies where locks work: in the directory if its file system is local to this
//    machine, else in the caller's runtime directory, else nowhere. Locks on network file systems
//    hang, get lost, or have no holder.
// 6. No claim is taken in a read-only directory or while writing is off, because no entry would
//    follow; nor while another thread hangs in the file system, because the claim would hang, too.
// 7. A child of fork closes the descriptors of inherited claims and does not unlock: the lock
//    belongs to the open file that it shares with its parent. A holder unlocks before it closes, so
//    that another copy of the descriptor does not prolong the claim.
//
// Threads of one process exclude each other by claims as well.
#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "base/alloc.h"
#include "cache/disk_inner.h"

#define SHORTEST_PAUSE_NS INT64_C(1000000)
#define LONGEST_PAUSE_NS INT64_C(20000000)
#define OFFSET_MASK UINT64_C(0x3FFFFFFFFFFFFFFF)
#define ROOT_SEED UINT64_C(0x716e2d726f6f742d)

// ---------------------------------------------------------------------------------------- place

// True for a directory of this user that is closed to all others.
static bool is_private(const char* path, uid_t owner) {
  struct stat info;
  return qn__fs()->lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == owner &&
         (info.st_mode & 0077) == 0;
}

// Opens the lock file. Returns the descriptor, or -1. Changes `inout_offset` where several
// directories share one file.
static int open_lock_file(qn__disk_t* disk, uint64_t* inout_offset) {
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  const qn__fs_t* fs = qn__fs();
  char path[QN__DISK_PATH_BYTES];
  if (qn__fs_is_local(disk->root)) {
    qn__disk_path(disk, "/v1/lock", path);
    int fd = fs->open(path, flags & ~O_CREAT, 0);
    if (fd >= 0 || errno != ENOENT) return fd;
    char directory[QN__DISK_PATH_BYTES];
    qn__disk_path(disk, "/v1", directory);
    if (qn__disk_make_directory(disk, directory) != 0) return -1;
    fd = fs->open(path, flags, disk->lock_mode);
    if (fd >= 0 && disk->owner_count) (void)fs->fchmod(fd, disk->lock_mode);
    return fd;
  }
  if (!disk->runtime_dir || !qn__fs_is_local(disk->runtime_dir) ||
      !is_private(disk->runtime_dir, disk->owner)) {
    return -1;
  }
  size_t size = strlen(disk->runtime_dir);
  memcpy(path, disk->runtime_dir, size);
  memcpy(path + size, "/quern", 7);
  if (fs->mkdir(path, 0700) != 0 && errno != EEXIST) return -1;
  if (!is_private(path, disk->owner)) return -1;
  memcpy(path + size + 6, "/lock", 6);
  qn_span_t root = {(const uint8_t*)disk->root, disk->root_size};
  *inout_offset ^= qn__load_le64(qn__xxh128(root, ROOT_SEED).bytes);
  return fs->open(path, flags, 0600);
}

// ---------------------------------------------------------------------------------------- claims

void qn__disk_claim_release(qn__disk_claim_t* claim) {
  if (!claim) return;
  qn__disk_t* disk = claim->disk;
  // Unlocks first: neither a fork after this nor a slow close prolongs the claim. A child of fork
  // must not unlock; its descriptor is -1 already.
  int locked = claim->descriptor.fd;
  if (locked >= 0) (void)qn__fs()->unlock(locked, claim->offset);
  int fd = qn__disk_drop_descriptor(disk, &claim->descriptor);
  if (fd >= 0) (void)qn__fs()->close(fd);
  qn__free(disk->allocator, claim, sizeof *claim);
}

// Returns a claim whose byte is not locked yet; NULL without a lock file or memory.
static qn__disk_claim_t* open_claim(qn__disk_t* disk, qn_hash128_t key) {
  qn__disk_claim_t* claim = qn__alloc_zero(disk->allocator, 1, sizeof *claim);
  if (!claim) return NULL;
  uint64_t offset = qn__load_le64(key.bytes);
  claim->disk = disk;
  int fd = open_lock_file(disk, &offset);
  if (fd < 0) {
    qn__free(disk->allocator, claim, sizeof *claim);
    return NULL;
  }
  claim->offset = (int64_t)(offset & OFFSET_MASK);
  assert(claim->offset >= 0);
  qn__disk_record_descriptor(disk, &claim->descriptor, fd, claim);
  return claim;
}

// ---------------------------------------------------------------------------------------- claims

// Sleeps for a time that grows from round to round and differs between waiters.
static void pause_a_round(int64_t* inout_pause_ns, const void* self, int64_t left_ns) {
  struct {
    int64_t now_ns;
    const void* self;
  } seed = {qn__now_ns(), self};
  qn_hash128_t random = qn__xxh128((qn_span_t){(const uint8_t*)&seed, sizeof seed}, 0);
  int64_t pause_ns = *inout_pause_ns * 3 / 4 + *inout_pause_ns * random.bytes[0] / 512;
  *inout_pause_ns += *inout_pause_ns / 2;
  if (*inout_pause_ns > LONGEST_PAUSE_NS) *inout_pause_ns = LONGEST_PAUSE_NS;
  if (pause_ns > left_ns) pause_ns = left_ns;
  struct timespec pause = {.tv_sec = (time_t)(pause_ns / 1000000000),
                           .tv_nsec = (long)(pause_ns % 1000000000)};
  (void)nanosleep(&pause, NULL);  // a signal may end it early
}

typedef enum lock_result {
  LOCK_TAKEN,
  LOCK_BUSY,
  LOCK_FAILED,
} lock_result_t;

static lock_result_t try_lock(const qn__disk_claim_t* claim) {
  if (qn__fs()->try_lock(claim->descriptor.fd, claim->offset) == 0) return LOCK_TAKEN;
  return errno == EAGAIN || errno == EACCES ? LOCK_BUSY : LOCK_FAILED;
}

// Waits until the byte is locked or the entry is there. LOCK_BUSY: neither happened in time, or
// *out_result is HIT.
static lock_result_t wait_for_lock(qn__disk_t* disk, const qn__disk_claim_t* claim,
                                   const qn__expectation_t* expected, int64_t deadline_ns,
                                   qn__hit_t* out_hit, qn__get_result_t* out_result) {
  int64_t pause_ns = SHORTEST_PAUSE_NS;
  for (;;) {
    int64_t now_ns = qn__now_ns();  // positive: the difference below cannot overflow
    if (now_ns >= deadline_ns || qn__disk_is_writing_off(disk) ||
        atomic_load(&disk->has_ended_claims)) {
      return LOCK_BUSY;
    }
    pause_a_round(&pause_ns, claim, deadline_ns - now_ns);
    // The entry comes first: with it no claim is needed.
    *out_result = qn__disk_read(disk, expected, out_hit);
    if (*out_result == QN__GET_HIT) return LOCK_BUSY;
    lock_result_t lock = try_lock(claim);
    if (lock != LOCK_BUSY) return lock;
  }
}

void qn__disk_end_claims(qn__disk_t* disk) {
  atomic_store(&disk->has_ended_claims, true);
}

qn__get_result_t qn__disk_claim(qn__disk_t* disk, const qn__expectation_t* expected,
                                int64_t deadline_ns, qn__hit_t* out_hit,
                                qn__disk_claim_t** out_claim) {
  memset(out_hit, 0, sizeof *out_hit);
  *out_claim = NULL;
  if (disk->is_read_only || qn__disk_is_writing_off(disk)) {
    QN__DISK_COUNT(disk, claim_off, 1);
    return QN__GET_ABSENT;
  }
  qn__disk_call_t visit = qn__disk_begin_call(disk);
  if (visit == QN__DISK_CALL_REFUSED) {
    QN__DISK_COUNT(disk, claim_off, 1);
    return QN__GET_OFF;
  }
  qn__disk_claim_t* claim = open_claim(disk, expected->key);
  qn__disk_end_call(disk, visit);
  if (!claim) {
    QN__DISK_COUNT(disk, claim_unavailable, 1);
    return QN__GET_ABSENT;
  }
  qn__get_result_t result = QN__GET_ABSENT;
  lock_result_t lock = try_lock(claim);
  if (lock == LOCK_BUSY) {
    int64_t start_ns = qn__now_ns();
    int64_t bound_ns = qn__after(start_ns, disk->lock_timeout_ns);
    if (deadline_ns < bound_ns) bound_ns = deadline_ns;
    if (bound_ns <= start_ns) {
      QN__DISK_COUNT(disk, claim_busy, 1);
      qn__disk_claim_release(claim);
      return result;
    }
    QN__DISK_COUNT(disk, claim_waited, 1);
    lock = wait_for_lock(disk, claim, expected, bound_ns, out_hit, &result);
    QN__DISK_COUNT(disk, claim_wait_ns, (uint64_t)(qn__now_ns() - start_ns));
  }
  assert(result != QN__GET_HIT || lock == LOCK_BUSY);
  // Another process may have written the entry and released its claim after the caller's miss.
  if (lock == LOCK_TAKEN) result = qn__disk_read(disk, expected, out_hit);
  if (result == QN__GET_HIT) {
    QN__DISK_COUNT(disk, claim_hits, 1);
  } else if (lock == LOCK_TAKEN) {
    QN__DISK_COUNT(disk, claim_taken, 1);
    *out_claim = claim;
    return result;
  } else if (lock == LOCK_BUSY) {
    QN__DISK_COUNT(disk, claim_timeouts, 1);
  } else {
    QN__DISK_COUNT(disk, claim_unavailable, 1);
  }
  qn__disk_claim_release(claim);
  return result;
}
