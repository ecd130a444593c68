// cache/lease.c: one compile per key among the processes of a machine.
//
// Requirements.
// 1. Advisory: no answer of the cache depends on it. Whoever does not get a lease goes on without.
// 2. A lease is a lock of an open file description on one byte of one empty file, at an offset that
//    the key gives. The kernel frees it when its holder ends, however that happens; no time is ever
//    compared, nothing is left behind, and two keys share a byte with a probability of 2^-62.
// 3. Whoever waits has a bound: the caller's deadline, and the directory's lock timeout. A holder
//    that is stopped, or compiles for very long, costs the bound and no more.
// 4. Whoever waits looks into the directory each round, and again when it has got the lease: what
//    another process has put meanwhile is the answer.
// 5. The file lies where locks are known to work: in the directory if its file system is one of
//    this machine alone, else below the caller's runtime directory, else nowhere. Locks of network
//    file systems hang, get lost, or are held by nobody.
// 6. Never in a directory that is only read, nor while writing is off: nobody could profit. Nor
//    while somebody hangs in its file system: whoever asks would, too.
// 7. A child of fork closes what it inherited of leases, and unlocks nothing: the lock belongs to
//    the file that both have open. The holder unlocks before it closes, so that a copy of the
//    descriptor elsewhere keeps nobody waiting.
//
// Thread rule: any thread. Threads of one process have leases that exclude each other as well.
// Read next: publish.c, where a lease ends.
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

// A directory of this user alone.
static bool is_private(const char* path, uid_t owner) {
  struct stat info;
  return qn__fs()->lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == owner &&
         (info.st_mode & 0077) == 0;
}

static uint64_t load_u64(const uint8_t* bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; i++) value |= (uint64_t)bytes[i] << (8 * i);
  return value;
}

// Opens the file of locks; the descriptor, or -1. `inout_offset` changes where several directories
// share a file.
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
  *inout_offset ^= load_u64(qn__xxh128(root, ROOT_SEED).bytes);
  return fs->open(path, flags, 0600);
}

// ---------------------------------------------------------------------------------------- leases

static void register_lease(qn__lease_t* lease) {
  qn__disk_t* disk = lease->disk;
  qn__mutex_lock(&disk->mutex);
  lease->next = disk->leases;
  if (lease->next) lease->next->previous = lease;
  disk->leases = lease;
  qn__mutex_unlock(&disk->mutex);
}

// The descriptor that is to be closed; -1 in a child that has inherited the lease.
static int unregister_lease(qn__lease_t* lease) {
  qn__disk_t* disk = lease->disk;
  qn__mutex_lock(&disk->mutex);
  if (lease->previous) {
    lease->previous->next = lease->next;
  } else {
    disk->leases = lease->next;
  }
  if (lease->next) lease->next->previous = lease->previous;
  int fd = lease->fd;
  qn__mutex_unlock(&disk->mutex);
  return fd;
}

void qn__lease_release(qn__lease_t* lease) {
  if (!lease) return;
  qn__disk_t* disk = lease->disk;
  // First of all, so that neither a fork from here on nor a slow close keeps others waiting. The
  // child of a fork must not do it; that it has no descriptor is then known already.
  if (lease->fd >= 0) (void)qn__fs()->unlock(lease->fd, lease->offset);
  int fd = unregister_lease(lease);
  if (fd >= 0) (void)qn__fs()->close(fd);
  qn__free(disk->allocator, lease, sizeof *lease);
}

void qn__disk_free_leases(qn__disk_t* disk) {
  while (disk->leases) qn__lease_release(disk->leases);
}

void qn__disk_forget_leases(qn__disk_t* disk) {
  for (qn__lease_t* lease = disk->leases; lease; lease = lease->next) {
    if (lease->fd >= 0) (void)qn__fs()->close(lease->fd);
    lease->fd = -1;
  }
}

// A lease that is open but not locked yet; NULL when there can be none.
static qn__lease_t* open_lease(qn__disk_t* disk, qn_hash128_t key) {
  qn__lease_t* lease = qn__alloc_zero(disk->allocator, 1, sizeof *lease);
  if (!lease) return NULL;
  uint64_t offset = load_u64(key.bytes);
  lease->disk = disk;
  lease->fd = open_lock_file(disk, &offset);
  if (lease->fd < 0) {
    qn__free(disk->allocator, lease, sizeof *lease);
    return NULL;
  }
  lease->offset = (int64_t)(offset & OFFSET_MASK);
  register_lease(lease);
  return lease;
}

// ---------------------------------------------------------------------------------------- claims

// Longer from round to round, and not the same for all who wait.
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
  (void)nanosleep(&pause, NULL);  // a signal ends it early, which is as well
}

typedef enum grip {
  GRIP_GOT,
  GRIP_BUSY,
  GRIP_BROKEN,
} grip_t;

static grip_t try_grip(const qn__lease_t* lease) {
  if (qn__fs()->try_lock(lease->fd, lease->offset) == 0) return GRIP_GOT;
  return errno == EAGAIN || errno == EACCES ? GRIP_BUSY : GRIP_BROKEN;
}

// Waits for the lease or the entry. GRIP_BUSY: neither came in time.
static grip_t wait_for_grip(qn__disk_t* disk, const qn__lease_t* lease,
                            const qn__expectation_t* expected, int64_t deadline_ns,
                            qn__hit_t* out_hit, qn__get_result_t* out_result) {
  int64_t pause_ns = SHORTEST_PAUSE_NS;
  for (;;) {
    int64_t now_ns = qn__now_ns();  // positive: the difference below cannot overflow
    if (now_ns >= deadline_ns || qn__disk_is_latched(disk) ||
        atomic_load(&disk->has_ended_claims)) {
      return GRIP_BUSY;
    }
    pause_a_round(&pause_ns, lease, deadline_ns - now_ns);
    // The entry first: whoever finds it needs no lease.
    *out_result = qn__disk_look(disk, expected, out_hit);
    if (*out_result == QN__GET_HIT) return GRIP_BUSY;
    grip_t grip = try_grip(lease);
    if (grip != GRIP_BUSY) return grip;
  }
}

void qn__disk_end_claims(qn__disk_t* disk) {
  atomic_store(&disk->has_ended_claims, true);
}

qn__get_result_t qn__disk_claim(qn__disk_t* disk, const qn__expectation_t* expected,
                                int64_t deadline_ns, qn__hit_t* out_hit, qn__lease_t** out_lease) {
  memset(out_hit, 0, sizeof *out_hit);
  *out_lease = NULL;
  if (disk->is_read_only || qn__disk_is_latched(disk)) {
    QN__COUNT(disk, claim_off, 1);
    return QN__GET_ABSENT;
  }
  qn__disk_visit_t visit = qn__disk_enter(disk);
  if (visit == QN__VISIT_REFUSED) {
    QN__COUNT(disk, claim_off, 1);
    return QN__GET_OFF;
  }
  qn__lease_t* lease = open_lease(disk, expected->key);
  qn__disk_leave(disk, visit);
  if (!lease) {
    QN__COUNT(disk, claim_unavailable, 1);
    return QN__GET_ABSENT;
  }
  qn__get_result_t result = QN__GET_ABSENT;
  grip_t grip = try_grip(lease);
  if (grip == GRIP_BUSY) {
    int64_t start_ns = qn__now_ns();
    int64_t bound_ns = qn__after(start_ns, disk->lock_timeout_ns);
    if (deadline_ns < bound_ns) bound_ns = deadline_ns;
    if (bound_ns <= start_ns) {
      QN__COUNT(disk, claim_busy, 1);
      qn__lease_release(lease);
      return result;
    }
    QN__COUNT(disk, claim_waited, 1);
    grip = wait_for_grip(disk, lease, expected, bound_ns, out_hit, &result);
    QN__COUNT(disk, claim_wait_ns, (uint64_t)(qn__now_ns() - start_ns));
  }
  // Between the caller's miss and the lease somebody may have put the entry and let go.
  if (grip == GRIP_GOT) result = qn__disk_look(disk, expected, out_hit);
  if (result == QN__GET_HIT) {
    QN__COUNT(disk, claim_hits, 1);
  } else if (grip == GRIP_GOT) {
    QN__COUNT(disk, claim_taken, 1);
    *out_lease = lease;
    return result;
  } else if (grip == GRIP_BUSY) {
    QN__COUNT(disk, claim_timeouts, 1);
  } else {
    QN__COUNT(disk, claim_unavailable, 1);
  }
  qn__lease_release(lease);
  return result;
}
