// cache/disk_inner.h: what the files that make up a cache directory share.
//
// Thread rule: what is atomic or constant after the open is free for all; the rest belongs to
// `mutex`. Read next: disk.c.
#ifndef QUERN_CACHE_DISK_INNER_H_
#define QUERN_CACHE_DISK_INNER_H_

#include <stdatomic.h>

#include "base/fork.h"
#include "base/fs.h"
#include "base/thread.h"
#include "cache/disk.h"
#include "cache/scratch.h"

#define QN__DISK_PATH_BYTES 4096u
// What is appended to the root at most: "/v1/tmp/" and a temporary name.
#define QN__DISK_SUFFIX_BYTES 64u
#define QN__DISK_SHARDS 256u

// An entry on its way to the disk.
typedef struct qn__disk_node {
  struct qn__disk_node* next;
  qn__lease_t* lease;  // owned, may be NULL
  size_t size_bytes;
  qn_hash128_t key;
  _Alignas(16) uint8_t bytes[];
} qn__disk_node_t;

struct qn__lease {
  qn__disk_t* disk;
  struct qn__lease* next;  // of disk->leases, under its mutex
  struct qn__lease* previous;
  int fd;  // -1 in a child of fork that has inherited it
  int64_t offset;
};

// A directory that is being listed; lies on the stack of who does.
typedef struct qn__disk_stream {
  struct qn__disk_stream* next;
  struct qn__disk_stream* previous;
  int fd;  // -1 in a child of fork that has inherited it
} qn__disk_stream_t;

typedef enum qn__writer_state {
  QN__WRITER_NONE = 0,
  QN__WRITER_RUNNING,
  QN__WRITER_ENDED,
} qn__writer_state_t;

struct qn__disk {
  // Constant after the open.
  qn_allocator_t allocator;
  char* root;
  size_t root_size;
  char* runtime_dir;  // NULL: none
  uid_t owner;
  uid_t* owners;  // besides `owner`; a shared directory has some
  size_t owner_count;
  mode_t file_mode, dir_mode, lock_mode;
  bool is_read_only;
  uint64_t max_bytes, max_entries, min_free_bytes, max_queue_bytes;
  int64_t latch_ns, lock_timeout_ns, sweep_period_ns, hang_ns;
  void (*on_work)(void* self, qn__disk_work_t work, int64_t start_ns, const qn_hash128_t* key);
  void* on_work_self;

  struct {
#define QN_COUNTER(name, doc) _Atomic uint64_t name;
#include "cache/counters.inc"
#undef QN_COUNTER
  } counters;
  qn__scratch_t scratch;             // of reads
  _Atomic int64_t inside_since_ns;   // of the visit that is watched; 0: none is
  _Atomic int64_t latched_until_ns;  // qn__now_ns; 0: writing is on
  _Atomic bool is_closing;
  _Atomic bool has_ended_claims;  // nobody waits for another process any more
  _Atomic uint32_t serial;        // of temporary names

  // The queue and its writer, under `mutex`, which is never held over a file call.
  qn__mutex_t mutex;
  qn__cond_t work;  // something was queued, or is_closing
  qn__cond_t done;  // done_count rose, or the writer ended
  qn__disk_node_t* head;
  qn__disk_node_t** tail;
  qn__disk_node_t* in_flight;
  qn__disk_node_t* orphans;  // queued in the parent, before this process was forked
  int in_flight_fd;
  uint64_t queue_bytes;  // with what is in flight
  uint64_t put_count, done_count;
  qn__writer_state_t writer_state;
  pthread_t writer;
  bool is_away;       // the writer is in calls of the file system, without the lock
  bool is_abandoned;  // the close gave up waiting: the writer destroys
  // What a child of fork closes, under `mutex` as well.
  qn__lease_t* leases;
  qn__disk_stream_t* streams;

  // The writer's own.
  int64_t next_sweep_check_ns;
  uint64_t written_since_sweep;
  bool is_short_of_space;  // a write was refused for it since the last sweep

  qn__fork_node_t fork_node;
};

#define QN__COUNT(disk, name, amount) \
  ((void)atomic_fetch_add_explicit(&(disk)->counters.name, (amount), memory_order_relaxed))

// File systems tell any time. Beyond 190 years around 1970 it stays there, so that neither this
// product nor a difference to the time of day overflows.
#define QN__DISK_FARTHEST_S INT64_C(6000000000)
static inline int64_t qn__disk_mtime_ns(const struct stat* info) {
  int64_t time_s = (int64_t)info->st_mtim.tv_sec;
  if (time_s > QN__DISK_FARTHEST_S) time_s = QN__DISK_FARTHEST_S;
  if (time_s < -QN__DISK_FARTHEST_S) time_s = -QN__DISK_FARTHEST_S;
  return time_s * 1000000000 + info->st_mtim.tv_nsec;
}
// Whether two looks saw the same file with the same contents.
static inline bool qn__disk_is_same_file(const struct stat* a, const struct stat* b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
         qn__disk_mtime_ns(a) == qn__disk_mtime_ns(b);
}

// disk.c. Paths are written into QN__DISK_PATH_BYTES; `name` is a constant of at most 40
// characters.
void qn__disk_path(const qn__disk_t* disk, const char* name, char* out);
void qn__disk_shard_path(const qn__disk_t* disk, unsigned shard, char* out);
void qn__disk_entry_path(const qn__disk_t* disk, qn_hash128_t key, char* out);
void qn__disk_temporary_path(qn__disk_t* disk, char* out);
// Frees everything; nobody else uses the object any more.
void qn__disk_destroy(qn__disk_t* disk);

// disk_read.c.
// A get that counts neither a hit nor an absent entry.
qn__get_result_t qn__disk_look(qn__disk_t* disk, const qn__expectation_t* expected,
                               qn__hit_t* out_hit);
// Around the file calls of a caller's thread. REFUSED: the one who is watched hangs in the file
// system; stay out, and there is nothing to leave.
typedef enum qn__disk_visit {
  QN__VISIT_WATCHED,
  QN__VISIT_UNWATCHED,
  QN__VISIT_REFUSED,
} qn__disk_visit_t;
qn__disk_visit_t qn__disk_enter(qn__disk_t* disk);
void qn__disk_leave(qn__disk_t* disk, qn__disk_visit_t visit);

// trust.c.
// Whether the root may be used: OK or PERMISSION_DENIED, NOT_FOUND, IO.
qn_status_t qn__disk_check_trust(const qn__disk_t* disk, struct stat* out_info);
// Whether a file of the directory may be read.
bool qn__disk_is_trusted_file(const qn__disk_t* disk, const struct stat* info);
// Sets the modes of what is made, from those of the root.
void qn__disk_set_modes(qn__disk_t* disk, const struct stat* root);
// Makes a directory below the root, and the root above it, after a wipe or for the first time. The
// rules of trust are asked again. 0 or an errno.
int qn__disk_make_directory(const qn__disk_t* disk, const char* path);

// disk_fork.c.
void qn__disk_fork_prepare(void* self);
void qn__disk_fork_parent(void* self);
void qn__disk_fork_child(void* self);
// Around the life of a directory stream. False in a child of fork that has inherited it: its
// descriptor is closed, and it must not be touched any more.
void qn__disk_add_stream(qn__disk_t* disk, qn__disk_stream_t* stream, int fd);
bool qn__disk_drop_stream(qn__disk_t* disk, qn__disk_stream_t* stream);

// lease.c. With no thread left that holds any: frees all; or in a child, closes all.
void qn__disk_free_leases(qn__disk_t* disk);
void qn__disk_forget_leases(qn__disk_t* disk);

// publish.c.
// Whether writing is off for a while.
bool qn__disk_is_latched(const qn__disk_t* disk);
// On the writer thread: publishes what has been queued meanwhile.
void qn__disk_serve_queue(qn__disk_t* disk);
// Ends the writer. False when it did not end in time and owns the object from now on.
bool qn__disk_stop_writer(qn__disk_t* disk, int64_t grace_ns);
void qn__disk_free_nodes(qn__disk_t* disk, qn__disk_node_t* first);

// write.c. Puts a sealed entry in place: 0 or an errno. Leaves no temporary file but by a failing
// unlink.
int qn__disk_write_entry(qn__disk_t* disk, const qn__disk_node_t* node);

// sweep.c. On the writer thread, between two entries. True when it swept.
bool qn__disk_sweep_if_due(qn__disk_t* disk);

// scan.c. Entries of one shard: 0, an errno, or -1 when the callback stopped it.
int qn__disk_scan_shard(qn__disk_t* disk, unsigned shard,
                        bool (*on_file)(void* self, const qn__disk_file_t* file), void* self);
// Calls back for every temporary file; 0 or an errno.
int qn__disk_scan_temporaries(qn__disk_t* disk,
                              void (*on_file)(void* self, const char* path, int64_t modified_ns),
                              void* self);

#endif  // QUERN_CACHE_DISK_INNER_H_
