// SPDX-License-Identifier: Apache-2.0
// cache/disk_inner.h: what the files of the disk tier share.
//
// Thread rule: atomic members and those that are constant after the open need no lock; `mutex`
// guards the others.
#ifndef QUERN_CACHE_DISK_INNER_H_
#define QUERN_CACHE_DISK_INNER_H_

#include <stdatomic.h>

#include "base/counter.h"
#include "base/fork.h"
#include "base/fs.h"
#include "base/thread.h"
#include "cache/disk.h"
#include "cache/scratch.h"

#define QN__DISK_PATH_BYTES 4096u
// The longest suffix of a root: "/v1/tmp/" and a temporary name.
#define QN__DISK_SUFFIX_BYTES 64u
#define QN__DISK_SHARDS 256u

// An entry in the writer's queue.
typedef struct qn__disk_node {
  struct qn__disk_node* next;
  qn__disk_claim_t* claim;  // owned, may be NULL
  size_t size_bytes;
  qn_hash128_t key;
  _Alignas(16) uint8_t bytes[];
} qn__disk_node_t;

// A descriptor that a child of fork closes. It lies in a claim, or on the stack of the thread that
// uses it.
typedef struct qn__disk_descriptor {
  struct qn__disk_descriptor* next;  // of disk->descriptors, under its mutex
  struct qn__disk_descriptor* previous;
  qn__disk_claim_t* claim;  // NULL: it lies on a stack
  int fd;                   // -1 in a child of fork
} qn__disk_descriptor_t;

struct qn__disk_claim {
  qn__disk_t* disk;
  qn__disk_descriptor_t descriptor;  // of the lock file
  int64_t offset;
};

typedef enum qn__disk_writer_state {
  QN__DISK_WRITER_NONE = 0,
  QN__DISK_WRITER_RUNNING,
  QN__DISK_WRITER_ENDED,
} qn__disk_writer_state_t;

// The indices of the counters.
typedef enum qn__disk_counter {
#define QN_COUNTER(name, doc) QN__DISK_COUNTER_##name,
#include "cache/disk_counters.inc"
#undef QN_COUNTER
  QN__DISK_COUNTER_COUNT
} qn__disk_counter_t;

struct qn__disk {
  // Constant after the open.
  qn_allocator_t allocator;
  char* root;
  size_t root_size;
  char* runtime_dir;  // NULL: none
  uid_t owner;
  uid_t* owners;  // other users than `owner`; not empty for a shared directory
  size_t owner_count;
  mode_t file_mode, dir_mode, lock_mode;
  bool is_read_only;
  uint64_t max_bytes, max_entries, min_free_bytes, max_queue_bytes;
  int64_t latch_ns, lock_timeout_ns, sweep_period_ns, hang_ns;
  void (*on_work)(void* self, qn__disk_work_t work, int64_t start_ns, const qn_hash128_t* key);
  void* on_work_self;

  _Atomic uint64_t counters[QN__DISK_COUNTER_COUNT];
  qn__scratch_t scratch;             // buffers for reads
  _Atomic int64_t inside_since_ns;   // start of the watched call; 0: no call is watched
  _Atomic int64_t latched_until_ns;  // qn__now_ns; 0: writing is on
  _Atomic bool is_closing;
  _Atomic bool has_ended_claims;  // no claim waits any more

  // The queue and its writer, guarded by `mutex`, which no thread holds during a file call.
  qn__mutex_t mutex;
  qn__cond_t work;  // an entry was queued, or is_closing
  qn__cond_t done;  // done_count rose, or the writer ended
  qn__disk_node_t* head;
  qn__disk_node_t** tail;
  qn__disk_node_t* in_flight;
  qn__disk_node_t* orphans;  // entries that were queued in the parent before the fork
  uint64_t queue_bytes;      // with the entry in flight
  uint64_t put_count, done_count;
  qn__disk_writer_state_t writer_state;
  pthread_t writer;
  bool is_away;       // the writer is in file calls, without the lock
  bool is_abandoned;  // the close stopped waiting: the writer frees the object
  qn__disk_descriptor_t* descriptors;

  // Used by the writer alone.
  int64_t next_sweep_check_ns;
  uint64_t written_since_sweep;
  bool is_short_of_space;  // a write failed for lack of space since the last sweep

  qn__fork_node_t fork_node;
};

#define QN__DISK_COUNT(disk, name, amount) \
  qn__counter_add(&(disk)->counters[QN__DISK_COUNTER_##name], (amount))

// A file may have any time. Clamps it to 190 years around 1970, so that neither this product nor a
// difference to the present overflows.
#define QN__DISK_FARTHEST_S INT64_C(6000000000)
static inline int64_t qn__disk_mtime_ns(const struct stat* info) {
  int64_t time_s = (int64_t)info->st_mtim.tv_sec;
  if (time_s > QN__DISK_FARTHEST_S) time_s = QN__DISK_FARTHEST_S;
  if (time_s < -QN__DISK_FARTHEST_S) time_s = -QN__DISK_FARTHEST_S;
  return time_s * 1000000000 + info->st_mtim.tv_nsec;
}
// True when both describe the same file with the same contents.
static inline bool qn__disk_is_same_file(const struct stat* a, const struct stat* b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
         qn__disk_mtime_ns(a) == qn__disk_mtime_ns(b);
}

// disk.c. Paths need QN__DISK_PATH_BYTES; `name` is a constant of at most 40 characters.
void qn__disk_path(const qn__disk_t* disk, const char* name, char* out);
void qn__disk_shard_path(const qn__disk_t* disk, unsigned shard, char* out);
void qn__disk_entry_path(const qn__disk_t* disk, qn_hash128_t key, char* out);
void qn__disk_temporary_path(const qn__disk_t* disk, char* out);
// Frees everything, by the last user.
void qn__disk_destroy(qn__disk_t* disk);
// Tests the requirements on the queue and the lists, with the lock held. For debug builds and
// tests.
bool qn__disk_check(const qn__disk_t* disk);

// disk_read.c. Gets an entry without counting a hit or a miss.
qn__get_result_t qn__disk_read(qn__disk_t* disk, const qn__expectation_t* expected,
                               qn__hit_t* out_hit);
// Brackets the file calls of a caller's thread. REFUSED: the watched call hangs in the file system;
// make no call, and do not end it.
typedef enum qn__disk_call {
  QN__DISK_CALL_WATCHED,
  QN__DISK_CALL_UNWATCHED,
  QN__DISK_CALL_REFUSED,
} qn__disk_call_t;
qn__disk_call_t qn__disk_begin_call(qn__disk_t* disk);
void qn__disk_end_call(qn__disk_t* disk, qn__disk_call_t visit);

// disk_trust.c. Checks the rules for the root. Errors: PERMISSION_DENIED, NOT_FOUND, IO.
qn_status_t qn__disk_check_trust(const qn__disk_t* disk, struct stat* out_info);
// True when a file of the directory may be read.
bool qn__disk_is_trusted_file(const qn__disk_t* disk, const struct stat* info);
// Sets the modes of new files and directories, from those of the root.
void qn__disk_set_modes(qn__disk_t* disk, const struct stat* root);
// Creates a directory below the root, and the root if needed, for the first time or after a wipe.
// Checks the rules of trust again. Returns 0 or an errno.
int qn__disk_make_directory(const qn__disk_t* disk, const char* path);

// disk_fork.c.
void qn__disk_fork_child(void* self);
// Records an open descriptor, so that a child of fork closes it. `claim` NULL: `descriptor` lies on
// the stack of the caller.
void qn__disk_record_descriptor(qn__disk_t* disk, qn__disk_descriptor_t* descriptor, int fd,
                                qn__disk_claim_t* claim);
// Returns the descriptor to close; -1 in a child of fork, which has closed it.
int qn__disk_drop_descriptor(qn__disk_t* disk, qn__disk_descriptor_t* descriptor);

// disk_publish.c.
// On the writer thread: writes the entries that were queued meanwhile.
void qn__disk_write_queued(qn__disk_t* disk);
// Ends the writer. False when it did not end in time; it frees the object later.
bool qn__disk_stop_writer(qn__disk_t* disk, int64_t grace_ns);
void qn__disk_free_nodes(qn__disk_t* disk, qn__disk_node_t* first);

// disk_write.c. Writes a sealed entry under its name. Returns 0 or an errno. Leaves a temporary
// file only if removing it fails.
int qn__disk_write_entry(qn__disk_t* disk, const qn__disk_node_t* node);

// disk_sweep.c. On the writer thread, between two entries. True when it swept.
bool qn__disk_sweep_if_due(qn__disk_t* disk);

// disk_scan.c. Calls `on_file` for the entries of one shard. Returns 0, an errno, or -1 when the
// callback stopped it.
int qn__disk_scan_shard(qn__disk_t* disk, unsigned shard,
                        bool (*on_file)(void* self, const qn__disk_file_t* file), void* self);
// Calls `on_file` for every temporary file. Returns 0 or an errno.
int qn__disk_scan_temporaries(qn__disk_t* disk,
                              void (*on_file)(void* self, const char* path, int64_t modified_ns),
                              void* self);

#endif  // QUERN_CACHE_DISK_INNER_H_
