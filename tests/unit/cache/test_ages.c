// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_ages.c: tests ages of entries: recording of uses, eviction of the oldest
// entries at the bounds, and sweeps claimed once a period.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/thread.h"
#include "tests/unit/cache/support.h"

#define DAY_S (24 * 3600)

static void use_is_recorded_daily(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(NULL);
  sample_t sample;
  sample_make(&sample, 1, 200);
  assert_true(put_and_wait(disk, &sample));
  char path[QN_TEST_PATH_SIZE + 64];
  entry_path(&sample, path);
  static const struct {
    int64_t age_s;
    bool touches;
  } cases[] = {{DAY_S - 3600, false}, {DAY_S + 100, true}, {100, false}, {-2 * DAY_S, true}};
  uint64_t touched = 0;
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    set_age(path, cases[i].age_s);
    qn__hit_t hit;
    assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_HIT);
    qn__disk_hit_release(disk, &hit);
    touched += cases[i].touches;
    assert_int_equal(qn__disk_counter(disk, "disk_touched"), touched);
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    int64_t age_s = qn__wall_ns() / 1000000000 - (int64_t)info.st_mtim.tv_sec;
    assert_true(cases[i].touches ? age_s < 1000 && age_s > -1000 : age_s >= cases[i].age_s);
  }
  qn__disk_close(disk, FOREVER_NS);
  // One that only reads leaves the time alone.
  qn__disk_options_t options = {.is_read_only = true};
  disk = open_cache(&options);
  set_age(path, 3 * DAY_S);
  qn__hit_t hit;
  assert_int_equal(qn__disk_get(disk, &sample.expected, &hit), QN__GET_HIT);
  qn__disk_hit_release(disk, &hit);
  assert_int_equal(qn__disk_counter(disk, "disk_touched"), 0);
  assert_false(qn__disk_put(disk, &sample.entry, NULL));
  assert_int_equal(qn__disk_counter(disk, "publish_dropped_read_only"), 1);
  assert_false(qn__disk_sweep(disk));
  assert_int_equal(qn__disk_clear(disk), 0);
  uint8_t junk[4] = {0};
  assert_int_equal(get_replaced(disk, &sample, junk, sizeof junk), QN__GET_BAD);
  assert_int_equal(access(path, F_OK), 0);
  qn__disk_close(disk, FOREVER_NS);
  sample_free(&sample);
}

static void the_oldest_are_evicted(void** state) {
  (void)state;
  // No sweep of the writer beside those that are counted here.
  qn__disk_options_t options = {.max_entries = 10, .sweep_period_ns = -1};
  qn__disk_t* disk = open_cache(&options);
  sample_t samples[20];
  char path[QN_TEST_PATH_SIZE + 64];
  for (unsigned i = 0; i < 20; i++) {
    sample_make(&samples[i], 4 * i + 1, 100);  // all of one size
    assert_true(put_and_wait(disk, &samples[i]));
  }
  // When all are there, so that a slow put makes none older than it is meant to be.
  for (unsigned i = 0; i < 20; i++) {
    entry_path(&samples[i], path);
    set_age(path, (i * 7 % 20) * 60);
  }
  char unknown[QN_TEST_PATH_SIZE + 64], old[QN_TEST_PATH_SIZE + 64], young[QN_TEST_PATH_SIZE + 64];
  (void)snprintf(unknown, sizeof unknown, "%s/v1/ab", cache_root);
  (void)mkdir(unknown, 0700);
  (void)snprintf(unknown, sizeof unknown, "%s/v1/ab/notes.txt", cache_root);
  assert_true(qn_test_write_file(unknown, "mine", 4));
  set_age(unknown, 1000 * DAY_S);
  (void)snprintf(old, sizeof old, "%s/v1/tmp/00000001-0123456789abcdef.t", cache_root);
  assert_true(qn_test_write_file(old, "left", 4));
  set_age(old, 3700);
  // From a time that has not come: it would be there until then.
  char early[QN_TEST_PATH_SIZE + 64];
  (void)snprintf(early, sizeof early, "%s/v1/tmp/00000001-0123456789abcded.t", cache_root);
  assert_true(qn_test_write_file(early, "left", 4));
  set_age(early, -1000 * DAY_S);
  (void)snprintf(young, sizeof young, "%s/v1/tmp/00000001-0123456789abcdee.t", cache_root);
  assert_true(qn_test_write_file(young, "busy", 4));
  assert_true(qn__disk_sweep(disk));
  for (unsigned i = 0; i < 20; i++) {
    entry_path(&samples[i], path);
    bool is_kept = i * 7 % 20 < 8;  // four fifths of ten
    assert_int_equal(access(path, F_OK), is_kept ? 0 : -1);
  }
  assert_int_equal(qn__disk_counter(disk, "sweep_evicted"), 12);
  assert_int_equal(qn__disk_counter(disk, "sweep_temporaries"), 2);
  assert_int_equal(access(unknown, F_OK), 0);
  assert_int_equal(access(old, F_OK), -1);
  assert_int_equal(access(early, F_OK), -1);
  assert_int_equal(access(young, F_OK), 0);
  // Within the bound nothing goes.
  assert_true(qn__disk_sweep(disk));
  assert_int_equal(qn__disk_counter(disk, "sweep_evicted"), 12);
  qn__disk_close(disk, FOREVER_NS);
  // By bytes.
  uint64_t entry_bytes = qn__entry_size(&samples[0].entry);
  options = (qn__disk_options_t){.max_bytes = entry_bytes * 5 + 1};
  disk = open_cache(&options);
  assert_true(qn__disk_sweep(disk));
  assert_int_equal(qn__disk_counter(disk, "sweep_evicted"), 8 - 4);
  assert_int_equal(qn__disk_counter(disk, "sweep_evicted_bytes"), 4 * entry_bytes);
  qn__disk_close(disk, FOREVER_NS);
  for (unsigned i = 0; i < 20; i++) sample_free(&samples[i]);
}

static void sweeps_are_claimed_once_a_period(void** state) {
  (void)state;
  qn__disk_t* disk = open_cache(NULL);
  sample_t sample;
  sample_make(&sample, 1, 100);
  char stamp[QN_TEST_PATH_SIZE + 64];
  (void)snprintf(stamp, sizeof stamp, "%s/v1/stamp", cache_root);
  static const struct {
    int64_t age_s;  // of the stamp
    bool sweeps;
  } cases[] = {{0, true}, {1800, false}, {3700, true}, {-7300, true}};
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    if (i > 0) set_age(stamp, cases[i].age_s);
    assert_true(put_and_wait(disk, &sample));
    qn__disk_close(disk, FOREVER_NS);
    struct stat info;
    assert_int_equal(lstat(stamp, &info), 0);
    int64_t age_s = qn__wall_ns() / 1000000000 - (int64_t)info.st_mtim.tv_sec;
    assert_int_equal(age_s < 900 && age_s > -900, cases[i].sweeps);
    disk = open_cache(NULL);
  }
  qn__disk_close(disk, FOREVER_NS);
  sample_free(&sample);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, cache_set_up, cache_tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(use_is_recorded_daily),
      TEST(the_oldest_are_evicted),
      TEST(sweeps_are_claimed_once_a_period),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
