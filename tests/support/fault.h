// SPDX-License-Identifier: Apache-2.0
// tests/support/fault.h: failures on demand of the n-th allocation or the n-th file call.
//
// Typical use is a walk: arm the first call, run the work, check that it ended well (the right
// bytes or a clean error, without a leak), then go on with the next call until a run does not reach
// the armed call. qn_fault_walk_alloc is that loop for allocations.
//
// Thread rule: arm from one thread. Counters are atomic, so the work itself may use threads.
#ifndef QUERN_TESTS_SUPPORT_FAULT_H_
#define QUERN_TESTS_SUPPORT_FAULT_H_

#include <stdatomic.h>

#include "base/base.h"

typedef enum qn_fault_mode {
  QN_FAULT_ONCE = 0,    // only the n-th call fails
  QN_FAULT_ALWAYS = 1,  // the n-th and every later one
} qn_fault_mode_t;

// --- memory ---

// An allocator over malloc that fails on demand, counts live blocks, checks the size of every freed
// block, and fills blocks with a pattern before use and after free.
typedef struct qn_fault_heap {
  _Atomic long fail_at;  // 1 is the next allocation; 0 never
  _Atomic qn_fault_mode_t mode;
  _Atomic long call_count;     // allocations and growths since the last arming
  _Atomic long failure_count;  // failed ones of these
  _Atomic long live_blocks;
  _Atomic long live_bytes;
  _Atomic long size_errors;  // blocks resized or freed with a wrong size
} qn_fault_heap_t;

void qn_fault_heap_init(qn_fault_heap_t* heap);
// Returns an allocator that borrows `heap`. `heap` must outlive every block.
qn_allocator_t qn_fault_heap_allocator(qn_fault_heap_t* heap);
// Restarts the count. `fail_at` 0 disarms. Other threads may be allocating.
void qn_fault_heap_arm(qn_fault_heap_t* heap, long fail_at, qn_fault_mode_t mode);

// Runs `work(allocator, user)` with the n-th allocation failing, n = 1, 2, ..., once and from then
// on, until a run reaches no failure. Returns the number of runs. `work` returns false to report a
// defect. On false, on a leak or on a wrong size the walk ends with -n.
long qn_fault_walk_alloc(bool (*work)(qn_allocator_t allocator, void* user), void* user);

// --- files ---

typedef enum qn_fault_kind {
  QN_FAULT_ERRNO = 0,        // the call fails with an errno and has no effect
  QN_FAULT_SHORT_READ = 1,   // read and pread give at most one byte
  QN_FAULT_SHORT_WRITE = 2,  // write takes at most one byte
  QN_FAULT_KILL = 3,         // the process is killed before the call
} qn_fault_kind_t;

// Installs the table of failing calls, disarmed. The second function restores POSIX.
void qn_fault_fs_install(void);
void qn_fault_fs_remove(void);
// Makes the n-th call from now (1: the next, 0: never) fail according to `kind`. For SHORT_READ and
// SHORT_WRITE only reads or writes are counted. `error` is the errno for ERRNO.
void qn_fault_fs_arm(long fail_at, qn_fault_mode_t mode, qn_fault_kind_t kind, int error);
// Makes one in `one_in` calls fail at random: with a usual errno, or as a short read or write. The
// failures follow from the seed and the order of the calls.
void qn_fault_fs_arm_storm(uint64_t seed, uint32_t one_in);
// Return the number of calls since the arming, and of calls that were made to fail.
long qn_fault_fs_calls(void);
long qn_fault_fs_failures(void);
// Returns the number of descriptors and directory streams opened since the install and not yet
// closed.
long qn_fault_fs_open_count(void);
// Returns the number of calls of one function ("open", "read", ...) since the arming.
long qn_fault_fs_calls_of(const char* name);
// The same for calls that were made to fail.
long qn_fault_fs_failures_of(const char* name);
// Returns the errnos that a file system may plausibly report at any time.
const int* qn_fault_errnos(size_t* out_count);

// Sets a hook that is called before every file call with its name and path ("" for calls on
// descriptors), outside of any lock. Tests use it to act between two calls. NULL removes it.
void qn_fault_fs_hook(void (*hook)(void* user, const char* call, const char* path), void* user);

#endif  // QUERN_TESTS_SUPPORT_FAULT_H_
