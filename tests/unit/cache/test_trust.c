// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // setgroups
// tests/unit/cache/test_trust.c: tests cache directories shared by several users: trusted owners,
// file modes, and processes of two users at work. Needs root, to switch users.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"

#define HOUR_NS INT64_C(3600000000000)
enum { ANNA = 1234, BERT = 1235, MALLORY = 1666, TEAM = 5555 };

static const uid_t team[] = {ANNA, BERT};
static char root[QN_TEST_PATH_SIZE + 8];
static sample_t samples[4];

static int set_up(void** state) {
  if (cache_set_up(state) != 0) return -1;
  for (unsigned i = 0; i < QN_COUNT_OF(samples); i++) sample_make(&samples[i], i, 100);
  // Others must get at what lies below.
  (void)chmod(cache_root, 0755);
  (void)snprintf(root, sizeof root, "%s/shared", cache_root);
  return mkdir(root, 0700);
}

static int tear_down(void** state) {
  for (unsigned i = 0; i < QN_COUNT_OF(samples); i++) sample_free(&samples[i]);
  return cache_tear_down(state);
}

static bool needs_root(void) {
  if (geteuid() == 0) return true;
  skip();
  return false;
}

static void set_root(uid_t owner, mode_t mode) {
  assert_int_equal(chown(root, owner, TEAM), 0);
  assert_int_equal(chmod(root, mode), 0);
}

static qn__disk_t* open_shared(bool is_read_only) {
  qn__disk_options_t options = {.root = root,
                                .owners = team,
                                .owner_count = QN_COUNT_OF(team),
                                .is_read_only = is_read_only,
                                .sweep_period_ns = -1};
  qn__disk_t* disk;
  return qn_status_consume(qn__disk_open(&options, &disk)) == QN_STATUS_OK ? disk : NULL;
}

static bool opens(bool is_read_only) {
  qn__disk_t* disk = open_shared(is_read_only);
  qn__disk_close(disk, FOREVER_NS);
  return disk != NULL;
}

// Runs `work` as another user, umask 077: its result, or -1.
static int as_user(uid_t user, int (*work)(void)) {
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const gid_t group = TEAM;
    (void)umask(077);
    if (setgroups(1, &group) != 0 || setgid(TEAM) != 0 || setuid(user) != 0) _exit(100);
    _exit(work());
  }
  int status;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

static void the_root_belongs_to_an_owner(void** state) {
  (void)state;
  if (!needs_root()) return;
  static const struct {
    uid_t owner;
    mode_t mode;
    bool opens;
  } cases[] = {
      {0, 0700, true},     {ANNA, 0700, true},     {BERT, 02770, true},
      {ANNA, 0775, true},  {ANNA, 01777, true},    {ANNA, 0777, false},
      {ANNA, 0702, false}, {MALLORY, 0700, false}, {MALLORY, 02770, false},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    set_root(cases[i].owner, cases[i].mode);
    assert_int_equal(opens(false), cases[i].opens);
    assert_int_equal(opens(true), cases[i].opens);
  }
  // The parent counts as ever.
  set_root(ANNA, 0700);
  assert_int_equal(chmod(cache_root, 0777), 0);
  assert_false(opens(false));
  assert_int_equal(chmod(cache_root, 0755), 0);
}

static void entries_belong_to_an_owner(void** state) {
  (void)state;
  if (!needs_root()) return;
  set_root(ANNA, 02770);
  qn__disk_t* disk = open_shared(false);
  assert_non_null(disk);
  assert_true(put_and_wait(disk, &samples[1]));
  char hex[33], path[sizeof root + 64];
  qn__hash128_hex(samples[1].entry.key, hex);
  (void)snprintf(path, sizeof path, "%s/v1/%.2s/%s.k", root, hex, hex + 2);
  static const struct {
    uid_t owner;
    mode_t mode;
    bool is_read;
  } cases[] = {
      {0, 0640, true},     {ANNA, 0640, true},  {BERT, 0600, true}, {MALLORY, 0640, false},
      {ANNA, 0660, false}, {ANNA, 0642, false}, {BERT, 0644, true},
  };
  uint64_t untrusted = 0;
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    assert_int_equal(chown(path, cases[i].owner, TEAM), 0);
    assert_int_equal(chmod(path, cases[i].mode), 0);
    qn__hit_t hit;
    assert_int_equal(qn__disk_get(disk, &samples[1].expected, &hit),
                     cases[i].is_read ? QN__GET_HIT : QN__GET_UNTRUSTED);
    qn__disk_hit_release(disk, &hit);
    untrusted += !cases[i].is_read;
    assert_int_equal(qn__disk_counter(disk, "disk_untrusted"), untrusted);
    assert_int_equal(access(path, F_OK), 0);  // nothing is removed
  }
  qn__disk_close(disk, FOREVER_NS);
}

// Also in a directory of one user: it may be open for reading, and a file in it for writing, as a
// careless copy leaves it. What is put in its place is as it should be.
static void what_others_may_write_is_not_read(void** state) {
  (void)state;
  qn__disk_options_t options = {.root = root, .sweep_period_ns = -1};
  qn__disk_t* disk = open_cache(&options);
  assert_true(put_and_wait(disk, &samples[1]));
  char hex[33], path[sizeof root + 64];
  qn__hash128_hex(samples[1].entry.key, hex);
  (void)snprintf(path, sizeof path, "%s/v1/%.2s/%s.k", root, hex, hex + 2);
  static const mode_t modes[] = {0620, 0602, 0666};
  for (size_t i = 0; i < QN_COUNT_OF(modes); i++) {
    assert_int_equal(chmod(path, modes[i]), 0);
    qn__hit_t hit;
    assert_int_equal(qn__disk_get(disk, &samples[1].expected, &hit), QN__GET_UNTRUSTED);
    assert_int_equal(qn__disk_counter(disk, "disk_untrusted"), i + 1);
    assert_true(put_and_wait(disk, &samples[1]));
    assert_int_equal(qn__disk_get(disk, &samples[1].expected, &hit), QN__GET_HIT);
    qn__disk_hit_release(disk, &hit);
  }
  qn__disk_close(disk, FOREVER_NS);
}

// ---------------------------------------------------------------------------- two users at work

static int put_as_me(void) {
  qn__disk_t* disk = open_shared(false);
  if (!disk) return 10;
  qn__hit_t hit;
  qn__disk_claim_t* claim;
  if (qn__disk_claim(disk, &samples[1].expected, 0, &hit, &claim) == QN__GET_HIT) return 11;
  if (!claim) return 12;
  if (!qn__disk_put(disk, &samples[1].entry, claim)) return 13;
  if (!qn__disk_flush(disk, FOREVER_NS)) return 14;
  if (qn__disk_counter(disk, "publish_done") != 1) return 15;
  qn__disk_close(disk, FOREVER_NS);
  return 0;
}

static int use_as_me(void) {
  qn__disk_t* disk = open_shared(false);
  if (!disk) return 20;
  qn__hit_t hit;
  if (qn__disk_get(disk, &samples[1].expected, &hit) != QN__GET_HIT) return 21;
  if (!sample_equals(&samples[1], &hit.entry)) return 22;
  qn__disk_hit_release(disk, &hit);
  qn__disk_claim_t* claim;
  (void)qn__disk_claim(disk, &samples[2].expected, 0, &hit, &claim);
  if (!claim) return 23;  // the other's file of locks
  if (!qn__disk_put(disk, &samples[2].entry, claim)) return 24;
  if (!qn__disk_flush(disk, FOREVER_NS)) return 26;
  // In the shard that the other one has made, and in the other one's place.
  if (!put_and_wait(disk, &samples[1])) return 25;
  qn__disk_close(disk, FOREVER_NS);
  return 0;
}

static int evict_as_me(void) {
  qn__disk_options_t options = {.root = root,
                                .owners = team,
                                .owner_count = QN_COUNT_OF(team),
                                .max_bytes = 1,
                                .sweep_period_ns = -1};
  qn__disk_t* disk;
  if (qn_status_consume(qn__disk_open(&options, &disk)) != QN_STATUS_OK) return 30;
  if (!qn__disk_sweep(disk)) return 31;
  int evicted = (int)qn__disk_counter(disk, "sweep_evicted");
  qn__disk_close(disk, FOREVER_NS);
  return evicted;
}

static void expect_mode(const char* name, mode_t mode) {
  char path[sizeof root + 128];
  struct stat info;
  (void)snprintf(path, sizeof path, "%s/v1%s", root, name);
  assert_int_equal(lstat(path, &info), 0);
  if ((info.st_mode & 07777) != mode) fail_msg("%s is %o", name, info.st_mode & 07777);
  assert_int_equal(info.st_gid, TEAM);
}

static void two_users_share(void** state) {
  (void)state;
  if (!needs_root()) return;
  set_root(ANNA, 02770);
  assert_int_equal(as_user(ANNA, put_as_me), 0);
  char hex[33], name[64];
  qn__hash128_hex(samples[1].entry.key, hex);
  (void)snprintf(name, sizeof name, "/%.2s", hex);
  expect_mode("", 02770);
  expect_mode("/tmp", 02770);
  expect_mode("/lock", 0660);
  expect_mode(name, 02770);
  (void)snprintf(name, sizeof name, "/%.2s/%s.k", hex, hex + 2);
  expect_mode(name, 0640);
  assert_int_equal(as_user(BERT, use_as_me), 0);
  expect_mode(name, 0640);
  assert_int_equal(as_user(ANNA, evict_as_me), 2);
}

// --------------------------------------------------------------------- a stranger in the group

// What a stranger of the group puts a link in the place of, at the moment at which rights are set.
static const char* swapped;
static char victim[sizeof root + 16];

static void swap_for_link(void* self, const char* call, const char* path) {
  (void)self;
  (void)path;
  if (strstr(call, "chmod") == NULL) return;
  char pattern[sizeof root + 64];
  (void)snprintf(pattern, sizeof pattern, "%s/v1/%s", root, swapped);
  glob_t found;
  if (glob(pattern, 0, NULL, &found) != 0) return;
  char aside[sizeof root + 64];
  (void)snprintf(aside, sizeof aside, "%s/aside", root);
  if (rename(found.gl_pathv[0], aside) == 0) (void)!symlink(victim, found.gl_pathv[0]);
  globfree(&found);
}

static void links_do_not_widen_rights(void** state) {
  (void)state;
  if (!needs_root()) return;
  static const struct {
    const char* name;
    bool is_directory;
  } cases[] = {{"lock", false}, {"tmp/*.t", false}, {"tmp", true}};
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    set_root(0, 02770);
    (void)snprintf(victim, sizeof victim, "%s/victim%zu", cache_root, i);
    if (cases[i].is_directory) {
      assert_int_equal(mkdir(victim, 0700), 0);
    } else {
      int fd = open(victim, O_WRONLY | O_CREAT, 0600);
      assert_true(fd >= 0);
      (void)close(fd);
    }
    swapped = cases[i].name;
    qn__disk_t* disk = open_shared(false);
    assert_non_null(disk);
    qn_fault_fs_install();
    qn_fault_fs_hook(swap_for_link, NULL);
    qn__hit_t hit;
    qn__disk_claim_t* claim;
    (void)qn__disk_claim(disk, &samples[1].expected, 0, &hit, &claim);
    (void)qn__disk_put(disk, &samples[1].entry, claim);
    assert_true(qn__disk_flush(disk, FOREVER_NS));
    qn__disk_close(disk, FOREVER_NS);
    qn_fault_fs_remove();
    struct stat info;
    assert_int_equal(stat(victim, &info), 0);
    assert_int_equal(info.st_mode & 07777, cases[i].is_directory ? 0700 : 0600);
    qn_test_tempdir_remove(root);
    assert_int_equal(mkdir(root, 0700), 0);
  }
}

static int refuse_as_me(void) {
  return open_shared(false) ? 1 : 0;
}

static int put_twice_as_me(void) {
  qn__disk_t* disk = open_shared(false);
  if (!disk) return 40;
  // In Anna's place: not allowed, and no reason to stop writing.
  (void)qn__disk_put(disk, &samples[1].entry, NULL);
  if (!qn__disk_flush(disk, FOREVER_NS)) return 41;
  if (qn__disk_counter(disk, "publish_failed_io") != 1) return 42;
  if (qn__disk_counter(disk, "publish_latched") != 0) return 43;
  if (!put_and_wait(disk, &samples[2])) return 44;
  qn__disk_close(disk, FOREVER_NS);
  return 0;
}

static void make_stamp(int64_t age_s) {
  char path[sizeof root + 16];
  (void)snprintf(path, sizeof path, "%s/v1/stamp", root);
  int fd = open(path, O_WRONLY | O_CREAT, 0600);
  struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
  assert_true(fd >= 0 && fchown(fd, ANNA, TEAM) == 0 && futimens(fd, times) == 0);
  (void)close(fd);
}

static int sweep_count;
static void count_sweep(void* self, qn__disk_work_t work, int64_t start_ns,
                        const qn_hash128_t* key) {
  (void)self;
  (void)start_ns;
  (void)key;
  sweep_count += work == QN__DISK_WORK_SWEEP;
}

// How many sweeps a writer begins that finds a stamp.
static int count_sweeps_as_me(void) {
  qn__disk_options_t options = {.root = root,
                                .owners = team,
                                .owner_count = QN_COUNT_OF(team),
                                .sweep_period_ns = HOUR_NS,
                                .on_work = count_sweep};
  qn__disk_t* disk;
  if (qn_status_consume(qn__disk_open(&options, &disk)) != QN_STATUS_OK) return 50;
  if (!put_and_wait(disk, &samples[3])) return 51;
  int64_t deadline_ns = qn__now_ns() + FOREVER_NS;
  while (qn__disk_counter(disk, "sweep_checks") == 0 && qn__now_ns() < deadline_ns) {
    (void)sched_yield();
  }
  // Waits for the writer, which tells of what it is at before it ends.
  qn__disk_close(disk, FOREVER_NS);
  return sweep_count;
}

static void a_sticky_bit_keeps_entries_apart(void** state) {
  (void)state;
  if (!needs_root()) return;
  set_root(ANNA, 03770);
  assert_int_equal(as_user(ANNA, put_as_me), 0);
  assert_int_equal(as_user(BERT, put_twice_as_me), 0);
  assert_int_equal(as_user(BERT, evict_as_me), 1);  // its own
  // A stamp that cannot be taken away is no reason to let the directory grow.
  make_stamp(100);
  assert_int_equal(as_user(BERT, count_sweeps_as_me), 0);
  make_stamp(7300);
  assert_int_equal(as_user(BERT, count_sweeps_as_me), 1);
}

static void a_stranger_is_refused(void** state) {
  (void)state;
  if (!needs_root()) return;
  set_root(MALLORY, 02770);
  assert_int_equal(as_user(ANNA, refuse_as_me), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_root_belongs_to_an_owner),
      TEST(entries_belong_to_an_owner),
      TEST(what_others_may_write_is_not_read),
      TEST(two_users_share),
      TEST(a_sticky_bit_keeps_entries_apart),
      TEST(links_do_not_widen_rights),
      TEST(a_stranger_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
