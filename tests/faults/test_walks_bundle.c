// SPDX-License-Identifier: Apache-2.0
// tests/faults/test_walks_bundle.c: tests writing, growing, merging, opening and reading bundles
// with the n-th call failing. See walk.h.
//
// Also required: a bundle appears under its name whole or not at all; a replaced bundle is the old
// or the new one; a bundle that grows in place keeps its entries; no temporary file stays.
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

#include "cache/bundle_write.h"
#include "tests/faults/walk.h"

static char folder[QN_TEST_PATH_SIZE];  // of the bundles; the directory is cache_root
static char path_one[QN_TEST_PATH_SIZE + 16], path_two[QN_TEST_PATH_SIZE + 16];
static char path_out[QN_TEST_PATH_SIZE + 16];

// --------------------------------------------------------------------------------------- preparing

// Writes a bundle of the samples from `first` to before `end`, without faults.
static void make_bundle(const char* path, unsigned first, unsigned end) {
  qn__bundle_write_options_t options = {.path = path};
  qn__bundle_writer_t* writer;
  qn_status_t status = qn__bundle_writer_create(&options, &writer);
  for (unsigned i = first; qn_ok(status) && i < end; i++) {
    qn__buffer_t bytes;
    qn__buffer_init(&bytes, qn_allocator_default());
    WALK_CHECK(qn__entry_encode(&walk_samples[i].entry, &bytes));
    status = qn__bundle_writer_add(writer, qn__buffer_as_span(&bytes));
    qn__buffer_deinit(&bytes);
  }
  if (qn_ok(status)) status = qn__bundle_writer_finish(writer);
  WALK_CHECK(qn_ok(status));
  qn_status_free(status);
  qn__bundle_writer_destroy(writer);
}

static void with_entries(void) {
  (void)unlink(path_out);
  walk_put_samples(WALK_SAMPLES);
}

static void with_old_bundle(void) {
  walk_put_samples(WALK_SAMPLES);
  make_bundle(path_out, 0, 2);
}

static void with_bundles(void) {
  (void)unlink(path_out);
  make_bundle(path_one, 0, 4);
  make_bundle(path_two, 2, WALK_SAMPLES);
}

static void with_cut_bundle(void) {
  make_bundle(path_one, 0, WALK_SAMPLES);
  static uint8_t bytes[1 << 16];
  long size = qn_test_read_file(path_one, bytes, sizeof bytes);
  WALK_CHECK(size > 3000);
  // The index and the last entry are lost.
  if (size > 3000) WALK_CHECK(qn_test_write_file(path_one, bytes, (size_t)size * 3 / 4));
}

// -------------------------------------------------------------------------------------------- work

static qn__bundle_t* open_bundle(qn_allocator_t allocator, const char* path) {
  qn__bundle_options_t options = {.allocator = allocator, .path = path, .plugin_directory = ""};
  qn__bundle_t* bundle;
  qn_status_t status = qn__bundle_open(&options, &bundle);
  WALK_CHECK((bundle == NULL) == !qn_ok(status));
  qn_status_free(status);
  return bundle;
}

// Returns the number of samples in the bundle, and checks the bytes of each.
static unsigned get_all(qn__bundle_t* bundle) {
  unsigned count = 0;
  for (unsigned i = 0; i < WALK_SAMPLES; i++) {
    qn__hit_t hit;
    if (qn__bundle_get(bundle, &walk_samples[i].expected, &hit) == QN__GET_HIT) {
      WALK_CHECK(sample_equals(&walk_samples[i], &hit.entry));
      count++;
    }
    qn__bundle_hit_release(bundle, &hit);
  }
  return count;
}

static void open_and_get(qn_allocator_t allocator) {
  qn__bundle_t* bundle = open_bundle(allocator, path_one);
  if (!bundle) return;
  (void)get_all(bundle);
  for (uint64_t i = 0; i < qn__bundle_count(bundle); i++) {
    qn__hit_t hit;
    (void)qn__bundle_read(bundle, i, &hit);
    qn__bundle_hit_release(bundle, &hit);
  }
  qn__bundle_close(bundle);
}

static void export_to(qn_allocator_t allocator, const qn__source_t* sources, size_t count,
                      bool is_appending) {
  qn__bundle_export_options_t options = {
      .write = {.allocator = allocator, .path = path_out, .is_appending = is_appending}};
  qn__bundle_export_report_t report;
  qn_status_t status = qn__bundle_export(sources, count, &options, &report);
  // An unreadable entry is an error. It must not be left out silently.
  if (qn_ok(status) && !walk_may_vanish) WALK_CHECK(report.written_count == WALK_SAMPLES);
  if (qn_ok(status)) WALK_CHECK(report.bad_count == 0);
  qn_status_free(status);
}

static void export_directory(qn_allocator_t allocator) {
  qn__disk_t* disk = walk_open(allocator, NULL);
  if (!disk) return;
  export_to(allocator, &(qn__source_t){.disk = disk}, 1, false);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

static void append_directory(qn_allocator_t allocator) {
  qn__disk_t* disk = walk_open(allocator, NULL);
  if (!disk) return;
  export_to(allocator, &(qn__source_t){.disk = disk}, 1, true);
  qn__disk_close(disk, WALK_PATIENCE_NS);
}

static void merge(qn_allocator_t allocator) {
  qn__bundle_t* one = open_bundle(allocator, path_one);
  qn__bundle_t* two = open_bundle(allocator, path_two);
  if (one && two) {
    export_to(allocator, (const qn__source_t[]){{.bundle = one}, {.bundle = two}}, 2, false);
  }
  qn__bundle_close(one);
  qn__bundle_close(two);
}

// ------------------------------------------------------------------------------------------- after

static void check_folder(void) {
  DIR* dir = opendir(folder);
  WALK_CHECK(dir != NULL);
  if (!dir) return;
  for (struct dirent* item; (item = readdir(dir));) {
    if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0) continue;
    bool is_ours = strcmp(item->d_name, "one") == 0 || strcmp(item->d_name, "two") == 0 ||
                   strcmp(item->d_name, "out") == 0;
    WALK_CHECK(is_ours || walk_may_leave);
    if (!is_ours) {
      char path[2 * QN_TEST_PATH_SIZE];
      (void)snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
      (void)unlink(path);
    }
  }
  (void)closedir(dir);
}

// Returns the number of samples in the output, or -1 if there is no output.
static int count_in_output(void) {
  if (access(path_out, F_OK) != 0) return -1;
  qn__bundle_t* bundle = open_bundle(qn_allocator_default(), path_out);
  WALK_CHECK(bundle != NULL);
  if (!bundle) return -1;
  WALK_CHECK(!qn__bundle_is_truncated(bundle));
  int count = (int)get_all(bundle);
  qn__bundle_close(bundle);
  return count;
}

static void whole_or_none(void) {
  int count = count_in_output();
  WALK_CHECK(count == -1 || count == WALK_SAMPLES || (walk_may_vanish && count > 0));
  check_folder();
}

static void old_or_new(void) {
  int count = count_in_output();
  WALK_CHECK(count == 2 || count == WALK_SAMPLES || (walk_may_vanish && count > 0));
  check_folder();
}

#define OPERATION(NAME, PREPARE, WORK, AFTER)                                                   \
  static void test_##NAME(void** state) {                                                       \
    (void)state;                                                                                \
    walk(&(walk_operation_t){.name = #NAME, .prepare = PREPARE, .work = WORK, .after = AFTER}); \
  }

OPERATION(bundle_open_get, with_bundles, open_and_get, check_folder)
OPERATION(bundle_open_cut, with_cut_bundle, open_and_get, check_folder)
OPERATION(bundle_export, with_entries, export_directory, whole_or_none)
OPERATION(bundle_export_over, with_old_bundle, export_directory, old_or_new)
OPERATION(bundle_append, with_old_bundle, append_directory, old_or_new)
OPERATION(bundle_merge, with_bundles, merge, whole_or_none)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bundle_open_get), cmocka_unit_test(test_bundle_open_cut),
      cmocka_unit_test(test_bundle_export),   cmocka_unit_test(test_bundle_export_over),
      cmocka_unit_test(test_bundle_append),   cmocka_unit_test(test_bundle_merge),
  };
  walk_begin();
  if (!qn_test_tempdir_make(folder)) return 2;
  (void)snprintf(path_one, sizeof path_one, "%s/one", folder);
  (void)snprintf(path_two, sizeof path_two, "%s/two", folder);
  (void)snprintf(path_out, sizeof path_out, "%s/out", folder);
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  walk_print_totals();
  qn_test_tempdir_remove(folder);
  walk_end();
  return result;
}
