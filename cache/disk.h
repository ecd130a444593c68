// SPDX-License-Identifier: Apache-2.0
// cache/disk.h: the disk tier: reads and verifies entries, writes them on a thread, bounds the size
// of the directory.
//
// No failure here is an error for a caller of get or put: it is a miss or a lost entry, and a
// counter. docs/cache-format.md has the layout of the directory and the publish protocol.
//
// Not here: the memory tier (jit/), the bytes of an entry (entry.h). Several processes may use a
// directory; a child of fork may use an open one. Read next: disk.c.
#ifndef QUERN_CACHE_DISK_H_
#define QUERN_CACHE_DISK_H_

#include <sys/types.h>

#include "base/counter.h"
#include "cache/hit.h"
#include "quern/status.h"

typedef struct qn__disk qn__disk_t;
// A claim: this process compiles the key, and others of this machine wait (disk_claim.c). Advisory:
// a process that does not get it in time compiles anyway.
typedef struct qn__disk_claim qn__disk_claim_t;

// What the writer thread does.
typedef enum qn__disk_work {
  QN__DISK_WORK_WRITE = 0,  // writes, syncs and renames one entry, or fails to
  QN__DISK_WORK_SWEEP = 1,
} qn__disk_work_t;

typedef struct qn__disk_options {
  qn_allocator_t allocator;  // zero: the default one
  const char* root;          // absolute, or relative to the working directory of the open
  bool is_read_only;     // writes, touches and removes nothing; root may then belong to uid 0, too
  bool must_exist;       // NOT_FOUND instead of creating the directory
  uint64_t max_bytes;    // 0: 2 GiB
  uint64_t max_entries;  // 0: 65,536
  // Bytes that a sweep leaves free on the file system; 0: 1 GiB, or a twentieth of it if that is
  // less.
  uint64_t min_free_bytes;
  // Other users who may own the root and its entries and share theirs. The group may write such a
  // directory. Borrowed for the open.
  const uid_t* owners;
  size_t owner_count;
  // Directory for lock files if the file system of the root is not known to be local; NULL: none.
  const char* runtime_dir;
  int64_t lock_timeout_ns;   // longest wait for the compile of another process; 0: 30 s
  uint64_t max_queue_bytes;  // 0: 64 MiB
  int64_t latch_ns;          // how long writing stays off after an error; 0: 60 s
  int64_t sweep_period_ns;   // 0: one hour; negative: only on request
  int64_t hang_ns;           // a read that takes longer keeps other callers away; 0: 2 s
  // Called on the writer thread after each of its works, with the queue's lock held: it may only
  // record. Not called after the close returned. `key` (NULL for a sweep) is borrowed for the call.
  // NULL is fine.
  void (*on_work)(void* self, qn__disk_work_t work, int64_t start_ns, const qn_hash128_t* key);
  void* on_work_self;
} qn__disk_options_t;

// Opens a cache directory and creates it (0700) if needed. Starts no thread. On failure *out_disk
// is NULL and the status names the broken rule; an engine logs it and works without a directory.
// Errors: PERMISSION_DENIED (not a directory, a symbolic link, another owner, writable by others),
// NOT_FOUND, INVALID_ARGUMENT (the path is empty or too long), IO, OUT_OF_MEMORY.
qn_status_t qn__disk_open(const qn__disk_options_t* options, qn__disk_t** out_disk);

// Writes the queue for at most `grace_ns` and drops the rest. Waits 0.1 s more for a running call
// of the file system; a writer that hangs in one ends by itself later. NULL is fine.
void qn__disk_close(qn__disk_t* disk, int64_t grace_ns);

// Reads an entry: open, fstat, read, close, verify. Only QN__GET_HIT needs a release. QN__GET_OFF:
// another thread hangs in the file system.
qn__get_result_t qn__disk_get(qn__disk_t* disk, const qn__expectation_t* expected,
                              qn__hit_t* out_hit);
// Releases the bytes of a hit. Does nothing after a miss or a release.
void qn__disk_hit_release(qn__disk_t* disk, qn__hit_t* hit);

// Queues a copy of the entry for the writer thread, which the first put starts. No file call, no
// wait. False when it was dropped; a counter says why. The key is computed from entry->preimage.
// `claim` (consumed, may be NULL) is released when the entry is written or dropped.
bool qn__disk_put(qn__disk_t* disk, const qn__entry_t* entry, qn__disk_claim_t* claim);
// Claims a key before compiling, among the processes of this machine. Returns HIT (to be released)
// when another process has written the entry meanwhile. Any other result means that the caller
// compiles; *out_claim is then its claim, or NULL when it got none: two processes may compile the
// same key then. Waits until `deadline_ns` (qn__now_ns) at most, and never longer than the
// directory's lock timeout. The claim of a process that dies ends at once. Release claims before
// closing the directory.
qn__get_result_t qn__disk_claim(qn__disk_t* disk, const qn__expectation_t* expected,
                                int64_t deadline_ns, qn__hit_t* out_hit,
                                qn__disk_claim_t** out_claim);
// Ends all waits for claims soon, and lets no later claim wait: the engine is being destroyed.
void qn__disk_end_claims(qn__disk_t* disk);
// Releases a claim without an entry. NULL is fine.
void qn__disk_claim_release(qn__disk_claim_t* claim);

// Waits until all entries put so far are written or dropped. False when `timeout_ns` passes first.
bool qn__disk_flush(qn__disk_t* disk, int64_t timeout_ns);

// The counters of disk_counters.inc.
qn__counter_set_t qn__disk_counters(const qn__disk_t* disk);
static inline uint64_t qn__disk_counter(const qn__disk_t* disk, const char* name) {
  return qn__counter_find(qn__disk_counters(disk), name);
}
// The bytes in the writer's queue; whether writing is off for a while.
uint64_t qn__disk_queue_bytes(qn__disk_t* disk);
bool qn__disk_is_writing_off(const qn__disk_t* disk);
// The root as opened. Borrowed until the close.
const char* qn__disk_root(const qn__disk_t* disk);

// Sweeps now, in the calling thread. False when an error stopped the sweep.
bool qn__disk_sweep(qn__disk_t* disk);

// A file whose name is that of an entry.
typedef struct qn__disk_file {
  qn_hash128_t key;
  uint64_t size_bytes;
  int64_t modified_ns;  // Unix time: creation, or last use to the day
} qn__disk_file_t;

// Calls `on_file` for every entry, by the name of its file, in no order, until it returns false.
// `out_temporaries` (may be NULL) counts temporary files. Returns 0 or the errno that stopped it.
int qn__disk_scan(qn__disk_t* disk, bool (*on_file)(void* self, const qn__disk_file_t* file),
                  void* self, uint64_t* out_temporaries);
// Reads and verifies any entry by its key, without counting or touching it. With `heals` it removes
// a damaged file and sets *out_removed (may be NULL).
qn__get_result_t qn__disk_inspect(qn__disk_t* disk, qn_hash128_t key, bool heals,
                                  qn__hit_t* out_hit, bool* out_removed);
// Removes one entry; removes all entries and temporary files. Errors are only counted.
bool qn__disk_remove(qn__disk_t* disk, qn_hash128_t key);
uint64_t qn__disk_clear(qn__disk_t* disk);

#endif  // QUERN_CACHE_DISK_H_
