// tests/support/fault.h: failures on demand: the n-th allocation, the n-th file call.
//
// The way to use both is a walk: arm the first call, do the work, check that it ended well (the
// right bytes or a clean error, nothing leaked), and go on with the next until a run in which the
// armed call was never reached. See qn_fault_walk_alloc for the loop over allocations.
//
// Not here: failures of threads or devices. Thread rule: arming is for one thread; counting is
// atomic, so that the work itself may use threads. Read next: tempdir.h.
#ifndef QUERN_TESTS_SUPPORT_FAULT_H_
#define QUERN_TESTS_SUPPORT_FAULT_H_

#include <stdatomic.h>

#include "base/base.h"

typedef enum qn_fault_mode {
  QN_FAULT_ONCE = 0,    // only the n-th call fails
  QN_FAULT_ALWAYS = 1,  // the n-th and every later one
} qn_fault_mode_t;

// --- memory ---

// An allocator over malloc that fails on demand, counts what lives, checks that every block comes
// back with the size it was asked for, and fills blocks with a pattern before use and after free.
typedef struct qn_fault_heap {
  _Atomic long fail_at;  // 1 is the next allocation; 0 never
  _Atomic qn_fault_mode_t mode;
  _Atomic long call_count;     // allocations and growths since the last arming
  _Atomic long failure_count;  // of them failed
  _Atomic long live_blocks;
  _Atomic long live_bytes;
  _Atomic long size_errors;  // blocks resized or freed with another size than theirs
} qn_fault_heap_t;

void qn_fault_heap_init(qn_fault_heap_t* heap);
// Borrows `heap`, which must outlive every block.
qn_allocator_t qn_fault_heap_allocator(qn_fault_heap_t* heap);
// Restarts the count. `fail_at` 0 disarms. Other threads may be allocating.
void qn_fault_heap_arm(qn_fault_heap_t* heap, long fail_at, qn_fault_mode_t mode);

// Runs `work(allocator, user)` with the n-th allocation failing, n = 1, 2, ..., once and from then
// on, until a run meets no failure, and returns the number of runs. `work` returns false to report
// that something is wrong. On false, on a leak or on a wrong size the walk ends with -n.
long qn_fault_walk_alloc(bool (*work)(qn_allocator_t allocator, void* user), void* user);

// --- files ---

typedef enum qn_fault_kind {
  QN_FAULT_ERRNO = 0,        // the call fails with an errno and has no effect
  QN_FAULT_SHORT_READ = 1,   // read and pread give at most one byte
  QN_FAULT_SHORT_WRITE = 2,  // write takes at most one byte
  QN_FAULT_KILL = 3,         // the process is killed before the call
} qn_fault_kind_t;

// Puts the table of failing calls in place of POSIX, disarmed; the second restores POSIX.
void qn_fault_fs_install(void);
void qn_fault_fs_remove(void);
// The n-th call from now (1 is the next, 0 never) behaves as `kind` says. For SHORT_READ and
// SHORT_WRITE only reads or writes are counted. `error` is for ERRNO.
void qn_fault_fs_arm(long fail_at, qn_fault_mode_t mode, qn_fault_kind_t kind, int error);
// A storm instead: each call fails with odds of one in `one_in`, with an errno of the usual ones,
// or is short if it reads or writes. What happens follows from the seed and the order of the calls.
void qn_fault_fs_arm_storm(uint64_t seed, uint32_t one_in);
// Calls since the arming, and how many of them were made to fail.
long qn_fault_fs_calls(void);
long qn_fault_fs_failures(void);
// Descriptors and directory streams opened through the table and not closed, since the install.
long qn_fault_fs_open_count(void);
// The number of calls of one entry of the table ("open", "read", ...) since the arming.
long qn_fault_fs_calls_of(const char* name);
// The same for the calls that were made to fail.
long qn_fault_fs_failures_of(const char* name);
// The errnos that a file system may well say at any time; `out_count` of them.
const int* qn_fault_errnos(size_t* out_count);

// Called before every file call with its name and path ("" for calls on descriptors), outside of
// any lock: for tests that let something happen between two calls. NULL removes it.
void qn_fault_fs_hook(void (*hook)(void* user, const char* call, const char* path), void* user);

#endif  // QUERN_TESTS_SUPPORT_FAULT_H_
