// tests/faults/walk.h: one driver for all walks: operations of the cache times faults.
//
// An operation brings its directory into a state (prepare, without faults), and then does its work
// while one call, or all from one on, fail. The driver walks n = 1, 2, ... until a run meets no
// failure, and checks after each run what must hold always: nothing is open, no memory and no
// temporary file is left, and a put and a get without faults work. An operation adds what it knows
// itself with WALK_CHECK, which works in children as well.
//
// Each fault is walked once over every call in the check (for operations of many calls: over a
// sample that differs from fault to fault); everything, with QUERN_FAULTS_FULL=1. Thread rule: one
// walk at a time.
#ifndef QUERN_TESTS_FAULTS_WALK_H_
#define QUERN_TESTS_FAULTS_WALK_H_

#include "base/base.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"

#define WALK_PATIENCE_NS INT64_C(60000000000)

typedef struct walk_operation {
  const char* name;
  // Without faults: the state in which the work begins. The directory is cache_root.
  void (*prepare)(void);
  // With faults. Whatever it opens it closes; memory comes from `allocator`.
  void (*work)(qn_allocator_t allocator);
  // Without faults, after the work and after the death of the process that did it; may be NULL.
  void (*after)(void);
  bool keeps_bystander;  // sample 0, put by prepare, must be found afterwards
  bool
      begins_with_leftover;  // prepare leaves a temporary file, which a fault may leave where it is
} walk_operation_t;

// Records that something is wrong, once per run, with the place.
#define WALK_CHECK(condition) walk_check((condition), #condition, __FILE__, __LINE__)
void walk_check(bool is_fine, const char* condition, const char* file, int line);

// Whether the run that just ended may have left a temporary file: it was killed, or the removal was
// refused. For `after`.
extern bool walk_may_leave;
// Whether files may have seemed to vanish in the run: ENOENT was among what was said.
extern bool walk_may_vanish;
// Whether it is memory that fails in the run.
extern bool walk_is_memory;

// The samples that operations work with; made once. Sample 0 is the bystander.
#define WALK_SAMPLES 6
extern sample_t walk_samples[WALK_SAMPLES];

// The directory of the walks; made, and removed with everything in it.
void walk_begin(void);
void walk_end(void);
// All faults over one operation. The cmocka test fails at the first run that went wrong.
void walk(const walk_operation_t* operation);
// "get_hit: 123 calls failing, ..." for every operation so far, and the sums.
void walk_print_totals(void);

// Helpers of the operations.
// Opens the directory of the walk; NULL when it cannot (a fault).
qn__disk_t* walk_open(qn_allocator_t allocator, const qn__disk_options_t* changes);
// A get whose answer is the right bytes or a miss.
qn__get_result_t walk_get(qn__disk_t* disk, const sample_t* sample);
void walk_remove_root(void);
void walk_put_samples(unsigned count);
void walk_damage(const sample_t* sample);
// Sets the time of modification of a path relative to now.
void walk_set_age(const char* path, int64_t age_s);

#endif  // QUERN_TESTS_FAULTS_WALK_H_
