// SPDX-License-Identifier: Apache-2.0
// tests/faults/test_walks_engine.c: tests whole lookups over a directory and a bundle with the n-th
// file call, or the n-th allocation of the engine, failing. See walk.h.
//
// Also required: with any file system failure the engine can be created, every lookup succeeds, and
// kernels give correct results. Only a failing allocation may cause an error, which must be
// OUT_OF_MEMORY.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "quern/cache.h"
#include "tests/faults/kernels.h"
#include "tests/faults/walk.h"

#define MODULES 2

static char folder[QN_TEST_PATH_SIZE];
static char bundle_path[QN_TEST_PATH_SIZE + 16];

// Looks all modules up. No claim waits, because no other process holds one.
static void look_up_all(qn_allocator_t allocator, bool has_bundle) {
  const qn_setting_t settings[] = {{"lock_timeout", "5s"}, {"bundles", bundle_path}};
  qn_engine_t* engine = kernel_engine(allocator, cache_root, settings, has_bundle ? 2 : 1);
  WALK_CHECK(engine != NULL || walk_is_memory);
  for (unsigned i = 0; engine && i < MODULES; i++) {
    qn_source_t source;
    qn_status_t status = kernel_look_up(engine, i, "interp", NULL, &source);
    qn_status_code_t code = qn_status_code(status);
    WALK_CHECK(code == QN_STATUS_OK || (walk_is_memory && code == QN_STATUS_OUT_OF_MEMORY));
    qn_status_free(status);
  }
  if (engine) (void)qn_engine_flush(engine, WALK_PATIENCE_NS);
  qn_engine_destroy(engine);
}

static void with_directory(qn_allocator_t allocator) {
  look_up_all(allocator, false);
}
static void with_both(qn_allocator_t allocator) {
  look_up_all(allocator, true);
}

static void prepare_warm(void) {
  walk_remove_root();
  look_up_all(qn_allocator_default(), false);
}

static void write_bundle(void) {
  qn_cache_dir_t* dir;
  qn_status_t status = qn_cache_dir_open(cache_root, &dir);
  if (qn_ok(status)) status = qn_cache_bundle_write(bundle_path, dir, NULL, 0, NULL, NULL);
  WALK_CHECK(qn_ok(status));
  qn_status_free(status);
  qn_cache_dir_close(dir);
}

// Prepares a bundle with both modules and an empty directory.
static void prepare_bundle(void) {
  if (access(bundle_path, F_OK) != 0) {
    prepare_warm();
    write_bundle();
  }
  walk_remove_root();
}

// Prepares a bundle with both modules and damaged entries in the directory.
static void prepare_damaged(void) {
  prepare_bundle();
  prepare_warm();
  char path[QN_TEST_PATH_SIZE + 320];
  for (unsigned shard = 0; shard < 256; shard++) {
    (void)snprintf(path, sizeof path, "%s/v1/%02x", cache_root, shard);
    DIR* dir = opendir(path);
    if (!dir) continue;
    for (struct dirent* item; (item = readdir(dir));) {
      if (item->d_name[0] == '.') continue;
      (void)snprintf(path, sizeof path, "%s/v1/%02x/%s", cache_root, shard, item->d_name);
      WALK_CHECK(qn_test_write_file(path, "damaged", 7));
    }
    (void)closedir(dir);
  }
}

static void works_afterwards(void) {
  look_up_all(qn_allocator_default(), access(bundle_path, F_OK) == 0);
}

#define OPERATION(NAME, PREPARE, WORK)                                                \
  static void test_##NAME(void** state) {                                             \
    (void)state;                                                                      \
    walk(&(walk_operation_t){                                                         \
        .name = #NAME, .prepare = PREPARE, .work = WORK, .after = works_afterwards}); \
  }

OPERATION(lookup_cold, walk_remove_root, with_directory)
OPERATION(lookup_warm, prepare_warm, with_directory)
OPERATION(lookup_bundle, prepare_bundle, with_both)
OPERATION(lookup_damaged, prepare_damaged, with_both)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lookup_cold),
      cmocka_unit_test(test_lookup_warm),
      cmocka_unit_test(test_lookup_bundle),
      cmocka_unit_test(test_lookup_damaged),
  };
  walk_begin();
  if (!qn_test_tempdir_make(folder)) return 2;
  (void)snprintf(bundle_path, sizeof bundle_path, "%s/bundle", folder);
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  walk_print_totals();
  qn_test_tempdir_remove(folder);
  walk_end();
  return result;
}
