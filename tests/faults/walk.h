// SPDX-License-Identifier: Apache-2.0
// tests/faults/walk.h: runs operations of the cache with every possible single fault.
//
// An operation first prepares a directory without faults. Then it does its work while one call
// fails, or all calls from one on. The driver repeats this for n = 1, 2, ... until a run reaches no
// failure. After each run it checks that
//   1. no file, memory or temporary file is left over;
//   2. a put and a get without faults work;
//   3. the operation's own conditions (WALK_CHECK, which also works in children) hold.
//
// The check runs each fault once at every call, or for long operations at a sample of the calls
// that differs between faults. QUERN_FAULTS_FULL=1 runs all. Thread rule: one walk at a time.
#ifndef QUERN_TESTS_FAULTS_WALK_H_
#define QUERN_TESTS_FAULTS_WALK_H_

#include "base/base.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"

#define WALK_PATIENCE_NS INT64_C(60000000000)

typedef struct walk_operation {
  const char* name;
  // Prepares the state before the work, without faults. The directory is cache_root.
  void (*prepare)(void);
  // Does the work, with faults. Must close everything that it opens. Memory comes from `allocator`.
  void (*work)(qn_allocator_t allocator);
  // Checks conditions after the work, or after the death of its process, without faults. May be
  // NULL.
  void (*after)(void);
  bool keeps_bystander;  // sample 0, put by `prepare`, must still be found afterwards
  bool
      begins_with_leftover;  // prepare leaves a temporary file, which a fault may leave where it is
} walk_operation_t;

// Records the first failed condition of a run with its place.
#define WALK_CHECK(condition) walk_check((condition), #condition, __FILE__, __LINE__)
void walk_check(bool is_fine, const char* condition, const char* file, int line);

// True if the last run may have left a temporary file, because it was killed or an unlink failed.
// For `after`.
extern bool walk_may_leave;
// True if files may have seemed to vanish in the run, because a fault was ENOENT.
extern bool walk_may_vanish;
// True if the fault of the run is a failing allocation.
extern bool walk_is_memory;

// The samples of all operations. Sample 0 is the bystander.
#define WALK_SAMPLES 6
extern sample_t walk_samples[WALK_SAMPLES];

// Create the directory of the walks, and remove it with its contents.
void walk_begin(void);
void walk_end(void);
// Runs all faults on one operation. Fails the cmocka test at the first failed run.
void walk(const walk_operation_t* operation);
// Prints a line such as "get_hit: 123 calls failing, ..." for every operation so far, and the sums.
void walk_print_totals(void);

// Helpers of the operations.
// Opens the directory of the walk. Returns NULL if a fault prevents it.
qn__disk_t* walk_open(qn_allocator_t allocator, const qn__disk_options_t* changes);
// Gets a sample and checks that the result is the right bytes or a miss.
qn__get_result_t walk_get(qn__disk_t* disk, const sample_t* sample);
void walk_remove_root(void);
void walk_put_samples(unsigned count);
void walk_damage(const sample_t* sample);
// Sets the time of modification of a path relative to now.
void walk_set_age(const char* path, int64_t age_s);

#endif  // QUERN_TESTS_FAULTS_WALK_H_
