// SPDX-License-Identifier: Apache-2.0
// tests/soak/verify.c: the final check: with all workers stopped, every entry in the directory must
// be right or refused, and equal to the output of a fresh compile.
//
// Thread rule: one thread, in a process of its own.
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "quern/cache.h"
#include "tests/soak/worker.h"

static void put_all(void) {
  qn__disk_options_t options = {.root = soak_options.root, .sweep_period_ns = -1};
  qn__disk_t* disk;
  qn_status_t status = qn__disk_open(&options, &disk);
  if (!qn_ok(status)) soak_violation("open when all is quiet: %s", qn_status_message(status));
  qn_status_free(status);
  if (!disk) return;
  for (unsigned i = 0; i < SOAK_SAMPLES; i++) {
    soak_get_one(disk, &soak_samples[i]);
    if (!put_and_wait(disk, &soak_samples[i]))
      soak_violation("a put when all is quiet did not succeed");
    qn__hit_t hit;
    qn__get_result_t result = qn__disk_get(disk, &soak_samples[i].expected, &hit);
    if (result != QN__GET_HIT) {
      soak_violation("a get after a put when all is quiet gives %d", (int)result);
    } else if (soak_is_hit_right(&soak_samples[i], &hit, "get when all is quiet")) {
      qn__disk_hit_release(disk, &hit);
    }
  }
  soak_age_temporaries();
  uint64_t temporaries = 0;
  unsigned count = 0;
  if (!qn__disk_sweep(disk) || qn__disk_scan(disk, soak_see_file, &count, &temporaries) != 0) {
    soak_violation("a sweep when all is quiet did not succeed");
  }
  if (temporaries) {
    soak_violation("%llu temporary files are left after a sweep", (unsigned long long)temporaries);
  }
  qn__disk_close(disk, GRACE_NS);
}

static bool is_equal(qn_span_t a, qn_span_t b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

typedef struct comparison {
  qn__disk_t* fresh;
  qn__disk_t* soaked;
} comparison_t;

static bool compare_entry(void* self, const qn__disk_file_t* file) {
  comparison_t* both = self;
  qn__hit_t wanted, found;
  if (qn__disk_inspect(both->fresh, file->key, false, &wanted, NULL) != QN__GET_HIT) return true;
  if (qn__disk_inspect(both->soaked, file->key, true, &found, NULL) == QN__GET_HIT) {
    if (!is_equal(wanted.entry.payload, found.entry.payload) ||
        !is_equal(wanted.entry.metadata, found.entry.metadata)) {
      soak_violation("an engine's entry has other bytes than a compile gives now");
    }
    SOAK_COUNT(hits);
  }
  qn__disk_hit_release(both->fresh, &wanted);
  qn__disk_hit_release(both->soaked, &found);
  return true;
}

// Checks that entries published by engines equal the output of a new compile.
static void compare_with_fresh_compiles(void) {
  char directory[QN_TEST_PATH_SIZE];
  if (!qn_test_tempdir_make(directory)) return;
  char saved[QN_TEST_PATH_SIZE];
  memcpy(saved, soak_options.root, sizeof saved);
  memcpy(soak_options.root, directory, sizeof directory);
  static soak_process_t process;
  qn_fault_heap_init(&process.heap);
  soak_thread_t thread = {.process = &process, .random = 5};
  qn_engine_t* engine = soak_open_engine(&process);
  for (unsigned i = 0; engine && i < SOAK_MODULES; i++) {
    soak_look_up_one(&thread, engine, i, false, false);
    if (soak_options.has_compiler) soak_look_up_one(&thread, engine, i, true, false);
  }
  if (engine) (void)qn_engine_flush(engine, GRACE_NS);
  qn_engine_destroy(engine);
  memcpy(soak_options.root, saved, sizeof saved);
  comparison_t both = {NULL, NULL};
  qn__disk_options_t options = {.root = directory, .sweep_period_ns = -1};
  qn_status_free(qn__disk_open(&options, &both.fresh));
  options.root = soak_options.root;
  qn_status_free(qn__disk_open(&options, &both.soaked));
  if (both.fresh && both.soaked) (void)qn__disk_scan(both.fresh, compare_entry, &both, NULL);
  qn__disk_close(both.fresh, GRACE_NS);
  qn__disk_close(both.soaked, GRACE_NS);
  qn_test_tempdir_remove(directory);
}

static void verify_again(void) {
  qn_cache_dir_t* dir;
  qn_cache_verify_report_t report = {.struct_size = sizeof report};
  for (int round = 0; round < 2; round++) {
    qn_status_t status = qn_cache_dir_open(soak_options.root, &dir);
    if (qn_ok(status)) status = qn_cache_dir_verify(dir, true, NULL, NULL, &report);
    if (!qn_ok(status)) {
      soak_violation("verify: %s", qn_status_message(status));
    } else if (round == 1 && (report.bad_count || report.unreadable_count)) {
      soak_violation("%llu entries are bad after all were healed",
                     (unsigned long long)(report.bad_count + report.unreadable_count));
    }
    qn_cache_dir_close(dir);
    qn_status_free(status);
  }
}

void soak_verify_all(void) {
  soak_damage_undo();
  // Runs in a child, so that this process has no threads and no compiler.
  (void)fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    put_all();
    compare_with_fresh_compiles();
    verify_again();
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
      WEXITSTATUS(status) != 0) {
    soak_violation("the verifying process ended badly (%d)", status);
  }
  SOAK_COUNT(verified);
}
