// cache/disk.h: the disk tier: verified reads, publishing behind the caller, bounded size.
//
// Nothing that goes wrong here is an error to a caller of get or put: it is a miss or a lost
// publish, and a counter. docs/cache-format.md has the layout of the directory and the publish
// protocol; the top of disk_read.c and publish.c repeat the requirements that they meet.
//
// Not here: the memory tier (jit/), the bytes of an entry (entry.h). Thread rule: any thread,
// several processes; a child of fork may go on using what it inherited. Read next: disk.c.
#ifndef QUERN_CACHE_DISK_H_
#define QUERN_CACHE_DISK_H_

#include <sys/types.h>

#include "cache/hit.h"
#include "quern/status.h"

typedef struct qn__disk qn__disk_t;
// The right to make one key, among the processes of this machine (lease.c). Advisory: whoever does
// not get it in time goes on without.
typedef struct qn__lease qn__lease_t;

// What the writer thread spends its time on.
typedef enum qn__disk_work {
  QN__DISK_WORK_WRITE = 0,  // write, sync and rename of one entry, also when it failed
  QN__DISK_WORK_SWEEP = 1,
} qn__disk_work_t;

typedef struct qn__disk_options {
  qn_allocator_t allocator;  // zero: the default one
  const char* root;          // absolute, or relative to the working directory at the open
  bool is_read_only;     // nothing is written, touched or removed; root's owner may also be uid 0
  bool must_exist;       // NOT_FOUND instead of making the directory
  uint64_t max_bytes;    // 0: 2 GiB
  uint64_t max_entries;  // 0: 65,536
  // What a sweep leaves free on the file system; 0: 1 GiB or a twentieth of it, whichever is less.
  uint64_t min_free_bytes;
  // Users who may own the root and its entries besides this one, and share what they make; the
  // directory then may be writable by its group. Borrowed for the open.
  const uid_t* owners;
  size_t owner_count;
  // Where lock files go when the root's file system is not known to be local; NULL: nowhere.
  const char* runtime_dir;
  int64_t lock_timeout_ns;   // the longest wait for another process's compile; 0: 30 s
  uint64_t max_queue_bytes;  // 0: 64 MiB
  int64_t latch_ns;          // how long writing stays off after a refusal; 0: 60 s
  int64_t sweep_period_ns;   // 0: one hour; negative: only when asked
  int64_t hang_ns;           // a read that takes longer keeps others from trying; 0: 2 s
  // Hears of each work of the writer when it has ended, on the writer's thread with the lock of the
  // queue held: it may only record. Not called any more once the close has returned. `key` (NULL
  // for a sweep) is borrowed for the call. NULL: nobody.
  void (*on_work)(void* self, qn__disk_work_t work, int64_t start_ns, const qn_hash128_t* key);
  void* on_work_self;
} qn__disk_options_t;

// Opens a cache directory, making it (0700) where needed. On failure *out_disk is NULL and the
// status says which rule is broken; an engine logs it and works from memory. Errors:
// PERMISSION_DENIED (not a directory, a symbolic link, another owner, writable by others),
// NOT_FOUND, INVALID_ARGUMENT (the path is empty or too long), IO, OUT_OF_MEMORY. Starts no thread.
qn_status_t qn__disk_open(const qn__disk_options_t* options, qn__disk_t** out_disk);

// Lets the writer finish its queue for at most `grace_ns`, then drops the rest. A call of the file
// system that is under way is waited for by 0.1 s more: a writer that hangs in one is left to end
// by itself. NULL is fine.
void qn__disk_close(qn__disk_t* disk, int64_t grace_ns);

// Looks an entry up: open, fstat, read, close, verify. Only QN__GET_HIT leaves something to
// release. QN__GET_OFF: another thread hangs in the file system.
qn__get_result_t qn__disk_get(qn__disk_t* disk, const qn__expectation_t* expected,
                              qn__hit_t* out_hit);
// Gives the bytes of a hit back; harmless on a miss and on a hit that was released.
void qn__disk_hit_release(qn__disk_t* disk, qn__hit_t* hit);

// Hands an entry to the writer thread (started by the first put): one copy, no file call, no wait.
// False when it was dropped; the counter says why. The key is derived from entry->preimage.
// `lease` (consumed, may be NULL) is released when the entry is in place or given up.
bool qn__disk_put(qn__disk_t* disk, const qn__entry_t* entry, qn__lease_t* lease);
// Before compiling: asks the other processes of this machine. Returns HIT when one of them has put
// the entry meanwhile (to be released); any other result means that the caller is to make it, and
// *out_lease is its claim, or NULL when none can be had (nobody waits then, two may compile). Waits
// at most until `deadline_ns` (qn__now_ns; not at all when it has passed), and never longer than
// the directory's lock timeout. A holder that died is noticed at once. Allocation and file faults
// only ever mean "no lease". Leases end before the directory is closed.
qn__get_result_t qn__disk_claim(qn__disk_t* disk, const qn__expectation_t* expected,
                                int64_t deadline_ns, qn__hit_t* out_hit, qn__lease_t** out_lease);
// From now on no claim waits, and those that do return within a moment: the engine ends.
void qn__disk_end_claims(qn__disk_t* disk);
// Gives a claim back without an entry. NULL is fine.
void qn__lease_release(qn__lease_t* lease);

// Waits until everything put so far is in place or given up. False when `timeout_ns` passed first.
bool qn__disk_flush(qn__disk_t* disk, int64_t timeout_ns);

// Calls back for every counter of counters.inc, in its order.
void qn__disk_counters(const qn__disk_t* disk,
                       void (*on_counter)(void* self, const char* name, uint64_t value,
                                          const char* doc),
                       void* self);
// One counter by name; 0 for a name that is not in the table.
uint64_t qn__disk_counter(const qn__disk_t* disk, const char* name);
// What waits for the writer, and whether writing is switched off for a while.
uint64_t qn__disk_queue_bytes(qn__disk_t* disk);
bool qn__disk_is_off(const qn__disk_t* disk);
// The root as opened. Borrowed until the close.
const char* qn__disk_root(const qn__disk_t* disk);

// Runs a sweep now whatever its period, in the calling thread. False when an error stopped it.
bool qn__disk_sweep(qn__disk_t* disk);

// A file of the directory that carries the name of an entry.
typedef struct qn__disk_file {
  qn_hash128_t key;
  uint64_t size_bytes;
  int64_t modified_ns;  // Unix time: creation, or the last use to the day
} qn__disk_file_t;

// Calls back for every entry by its name alone, in no order, until the callback returns false.
// `out_temporaries` (may be NULL): files in the making. 0 or the errno that stopped the scan.
int qn__disk_scan(qn__disk_t* disk, bool (*on_file)(void* self, const qn__disk_file_t* file),
                  void* self, uint64_t* out_temporaries);
// Reads and verifies any entry of the directory by its key, without touching or counting it.
// `heals`: a damaged one is removed and *out_removed (may be NULL) says so.
qn__get_result_t qn__disk_inspect(qn__disk_t* disk, qn_hash128_t key, bool heals,
                                  qn__hit_t* out_hit, bool* out_removed);
// Removes one entry; or all entries and every temporary file. Errors are counted, not raised.
bool qn__disk_remove(qn__disk_t* disk, qn_hash128_t key);
uint64_t qn__disk_clear(qn__disk_t* disk);

#endif  // QUERN_CACHE_DISK_H_
