// SPDX-License-Identifier: Apache-2.0
// tests/faults/test_walks.c: tests every operation of the cache directory with the n-th call
// failing. See walk.h. Elsewhere: bundles (test_walks_bundle.c), whole lookups
// (test_walks_engine.c).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/thread.h"
#include "tests/faults/walk.h"

#define DAY_S 86400

static const sample_t* const bystander = &walk_samples[0];
static const sample_t* const subject = &walk_samples[2];

static void with_entries(void) {
  walk_put_samples(WALK_SAMPLES);
}

static void with_bystander(void) {
  walk_remove_root();
  walk_put_samples(1);
}

// -------------------------------------------------------------------------------------------- get

static void get_twice(qn_allocator_t allocator) {
  qn__disk_t* disk = walk_open(allocator, NULL);
  if (!disk) return;
  (void)walk_get(disk, subject);
  (void)walk_get(disk, subject);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

static void with_damaged(void) {
  with_entries();
  walk_damage(subject);
}

static void get_put_get(qn_allocator_t allocator) {
  qn__disk_t* disk = walk_open(allocator, NULL);
  if (!disk) return;
  WALK_CHECK(walk_get(disk, subject) != QN__GET_HIT);
  (void)qn__disk_put(disk, &subject->entry, NULL);
  WALK_CHECK(qn__disk_flush(disk, WALK_PATIENCE_NS));
  (void)walk_get(disk, subject);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

static void with_aged(void) {
  char path[QN_TEST_PATH_SIZE + 64];
  with_entries();
  entry_path(subject, path);
  walk_set_age(path, 3 * DAY_S);
}

static void inspect(qn_allocator_t allocator) {
  qn__disk_t* disk = walk_open(allocator, NULL);
  if (!disk) return;
  qn__hit_t hit;
  bool is_removed;
  WALK_CHECK(qn__disk_inspect(disk, subject->entry.key, true, &hit, &is_removed) != QN__GET_HIT);
  if (qn__disk_inspect(disk, bystander->entry.key, true, &hit, &is_removed) == QN__GET_HIT) {
    WALK_CHECK(sample_equals(bystander, &hit.entry));
  }
  WALK_CHECK(!is_removed);
  qn__disk_hit_release(disk, &hit);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

// -------------------------------------------------------------------------------------------- put

static void put_two(qn_allocator_t allocator) {
  qn__disk_t* disk = walk_open(allocator, NULL);
  if (!disk) return;
  (void)qn__disk_put(disk, &subject->entry, NULL);
  (void)qn__disk_put(disk, &walk_samples[3].entry, NULL);
  WALK_CHECK(qn__disk_flush(disk, WALK_PATIENCE_NS));
  (void)walk_get(disk, subject);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

static void wipe_and_put(qn_allocator_t allocator) {
  qn__disk_t* disk = walk_open(allocator, NULL);
  if (!disk) return;
  walk_remove_root();
  (void)qn__disk_put(disk, &subject->entry, NULL);
  WALK_CHECK(qn__disk_flush(disk, WALK_PATIENCE_NS));
  (void)walk_get(disk, subject);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

static void put_and_remove(qn_allocator_t allocator) {
  qn__disk_t* disk = walk_open(allocator, NULL);
  if (!disk) return;
  (void)qn__disk_put(disk, &subject->entry, NULL);
  WALK_CHECK(qn__disk_flush(disk, WALK_PATIENCE_NS));
  (void)qn__disk_remove(disk, subject->entry.key);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

// ------------------------------------------------------------------------------------------- care

static bool count_file(void* self, const qn__disk_file_t* file) {
  (void)file;
  ++*(unsigned*)self;
  return true;
}

// Prepares more entries than the bound, old entries, and a temporary file of a writer that died.
static void with_much(void) {
  char path[QN_TEST_PATH_SIZE + 64];
  with_entries();
  for (unsigned i = 0; i < WALK_SAMPLES; i++) {
    entry_path(&walk_samples[i], path);
    walk_set_age(path, i == 0 ? 0 : 100 + i);
  }
  (void)snprintf(path, sizeof path, "%s/v1/tmp", cache_root);
  (void)qn__fs_mkdirs(path, 0700);
  (void)snprintf(path, sizeof path, "%s/v1/tmp/00000001-0123456789abcdef.t", cache_root);
  WALK_CHECK(qn_test_write_file(path, "left", 4));
  walk_set_age(path, 7300);
}

static void sweep(qn_allocator_t allocator) {
  qn__disk_t* disk =
      walk_open(allocator, &(qn__disk_options_t){.sweep_period_ns = -1, .max_entries = 5});
  if (!disk) return;
  (void)qn__disk_sweep(disk);
  for (unsigned i = 0; i < WALK_SAMPLES; i++) (void)walk_get(disk, &walk_samples[i]);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

// Runs a sweep on the writer thread, due because of an old stamp.
static void with_old_stamp(void) {
  char path[QN_TEST_PATH_SIZE + 64];
  with_much();
  (void)snprintf(path, sizeof path, "%s/v1/stamp", cache_root);
  WALK_CHECK(qn_test_write_file(path, "", 0));
  walk_set_age(path, 7300);
}

static void put_and_sweep(qn_allocator_t allocator) {
  qn__disk_t* disk =
      walk_open(allocator,
                &(qn__disk_options_t){.sweep_period_ns = INT64_C(3600000000000), .max_entries = 5});
  if (!disk) return;
  bool is_queued = qn__disk_put(disk, &subject->entry, NULL);
  WALK_CHECK(qn__disk_flush(disk, WALK_PATIENCE_NS));
  // The writer checks for a due sweep after its queue is empty, unless a call failed.
  int64_t deadline_ns = qn__now_ns() + WALK_PATIENCE_NS;
  while (is_queued && qn__disk_counter(disk, "sweep_runs") == 0 &&
         qn__disk_counter(disk, "sweep_errors") == 0 && qn_fault_fs_failures() == 0 &&
         qn__now_ns() < deadline_ns) {
    (void)sched_yield();
  }
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

static void scan(qn_allocator_t allocator) {
  qn__disk_t* disk = walk_open(allocator, NULL);
  if (!disk) return;
  unsigned count = 0;
  uint64_t temporaries;
  int error = qn__disk_scan(disk, count_file, &count, &temporaries);
  WALK_CHECK(count <= WALK_SAMPLES);
  WALK_CHECK(error || count > 0 || qn_fault_fs_failures() > 0);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

static void clear(qn_allocator_t allocator) {
  qn__disk_t* disk = walk_open(allocator, NULL);
  if (!disk) return;
  WALK_CHECK(qn__disk_clear(disk) <= WALK_SAMPLES);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

// ------------------------------------------------------------------------------------------ claim

// Claims the subject and puts it, like a lookup that compiles.
static void claim_and_put(qn_allocator_t allocator) {
  qn__disk_t* disk = walk_open(allocator, NULL);
  if (!disk) return;
  qn__hit_t hit;
  qn__disk_claim_t* claim;
  int64_t deadline_ns = qn__now_ns() + INT64_C(5000000);
  if (qn__disk_claim(disk, &subject->expected, deadline_ns, &hit, &claim) == QN__GET_HIT) {
    WALK_CHECK(sample_equals(subject, &hit.entry));
    WALK_CHECK(!claim);
    qn__disk_hit_release(disk, &hit);
  } else {
    WALK_CHECK(hit.bytes == NULL);
    (void)qn__disk_put(disk, &subject->entry, claim);
  }
  WALK_CHECK(qn__disk_flush(disk, WALK_PATIENCE_NS));
  (void)walk_get(disk, subject);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

// Stands for another process that holds the claim.
static qn__disk_t* holder;
static qn__disk_claim_t* held;

static void let_go(void) {
  qn__disk_claim_release(held);
  qn__disk_close(holder, WALK_PATIENCE_NS);
  held = NULL;
  holder = NULL;
}

static void with_holder(void) {
  if (holder) let_go();  // left by a failed run
  with_bystander();
  holder = walk_open(qn_allocator_default(), NULL);
  qn__hit_t hit;
  WALK_CHECK(holder &&
             qn__disk_claim(holder, &subject->expected, INT64_MAX, &hit, &held) != QN__GET_HIT);
  WALK_CHECK(held);
}

// Checks that the claim is free, after any death or failure.
static void claim_is_free(void) {
  if (holder) let_go();
  qn__disk_t* disk = walk_open(qn_allocator_default(), NULL);
  if (!disk) return;
  (void)qn__disk_remove(disk, subject->entry.key);
  qn__hit_t hit;
  qn__disk_claim_t* claim;
  WALK_CHECK(qn__disk_claim(disk, &subject->expected, qn__now_ns(), &hit, &claim) != QN__GET_HIT);
  WALK_CHECK(claim != NULL);
  qn__disk_claim_release(claim);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

#define KEEPS_BYSTANDER .keeps_bystander = true
#define BEGINS_WITH_LEFTOVER .begins_with_leftover = true
#define OPERATION(NAME, PREPARE, WORK, ...)                                                  \
  static void test_##NAME(void** state) {                                                    \
    (void)state;                                                                             \
    walk(&(walk_operation_t){.name = #NAME, .prepare = PREPARE, .work = WORK, __VA_ARGS__}); \
  }

OPERATION(get_hit, with_entries, get_twice, KEEPS_BYSTANDER)
OPERATION(get_absent, with_bystander, get_twice, KEEPS_BYSTANDER)
OPERATION(get_nothing_there, walk_remove_root, get_twice, .after = NULL)
OPERATION(get_damaged, with_damaged, get_put_get, KEEPS_BYSTANDER)
OPERATION(get_aged, with_aged, get_twice, KEEPS_BYSTANDER)
OPERATION(inspect_damaged, with_damaged, inspect, KEEPS_BYSTANDER)
OPERATION(put_fresh, walk_remove_root, put_two, .after = NULL)
OPERATION(put_beside, with_bystander, put_two, KEEPS_BYSTANDER)
OPERATION(put_over, with_entries, put_two, KEEPS_BYSTANDER)
OPERATION(put_after_wipe, with_entries, wipe_and_put, .after = NULL)
OPERATION(remove, with_entries, put_and_remove, KEEPS_BYSTANDER)
OPERATION(sweep, with_much, sweep, BEGINS_WITH_LEFTOVER)
OPERATION(sweep_when_due, with_old_stamp, put_and_sweep, BEGINS_WITH_LEFTOVER)
OPERATION(scan, with_entries, scan, KEEPS_BYSTANDER)
OPERATION(clear, with_much, clear, BEGINS_WITH_LEFTOVER)

OPERATION(claim_free, with_bystander, claim_and_put, .after = claim_is_free, KEEPS_BYSTANDER)
OPERATION(claim_answered, with_entries, claim_and_put, .after = claim_is_free, KEEPS_BYSTANDER)
OPERATION(claim_held, with_holder, claim_and_put, .after = claim_is_free, KEEPS_BYSTANDER)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_get_hit),
      cmocka_unit_test(test_get_absent),
      cmocka_unit_test(test_get_nothing_there),
      cmocka_unit_test(test_get_damaged),
      cmocka_unit_test(test_get_aged),
      cmocka_unit_test(test_inspect_damaged),
      cmocka_unit_test(test_put_fresh),
      cmocka_unit_test(test_put_beside),
      cmocka_unit_test(test_put_over),
      cmocka_unit_test(test_put_after_wipe),
      cmocka_unit_test(test_remove),
      cmocka_unit_test(test_sweep),
      cmocka_unit_test(test_sweep_when_due),
      cmocka_unit_test(test_scan),
      cmocka_unit_test(test_clear),
      cmocka_unit_test(test_claim_free),
      cmocka_unit_test(test_claim_answered),
      cmocka_unit_test(test_claim_held),
  };
  walk_begin();
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  walk_print_totals();
  walk_end();
  return result;
}
