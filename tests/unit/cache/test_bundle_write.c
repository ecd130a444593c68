// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_bundle_write.c: tests writing bundles: equal bytes from equal entries,
// selection, merging, keys, and the n-th file call or allocation failing.
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quern/cache.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support_bundle.h"

enum { SAMPLES = 6, FILE_ROOM = 1 << 16 };

static sample_t samples[SAMPLES];
static char path[BUNDLE_PATH_SIZE], other[BUNDLE_PATH_SIZE], directory[BUNDLE_PATH_SIZE];
static uint8_t a_bytes[FILE_ROOM], b_bytes[FILE_ROOM];

static int set_up(void** state) {
  if (cache_set_up(state) != 0) return -1;
  for (unsigned i = 0; i < SAMPLES; i++) sample_make_by(&samples[i], i, 500 * i, "maker 1");
  bundle_path("a.qnb", path);
  bundle_path("b.qnb", other);
  bundle_path("cache", directory);
  return 0;
}

static int tear_down(void** state) {
  qn_fault_fs_remove();
  for (unsigned i = 0; i < SAMPLES; i++) sample_free(&samples[i]);
  return cache_tear_down(state);
}

static qn__disk_t* fill_directory(unsigned first, unsigned end) {
  qn__disk_options_t options = {.root = directory, .sweep_period_ns = -1};
  qn__disk_t* disk = open_cache(&options);
  assert_non_null(disk);
  for (unsigned i = first; i < end; i++) assert_true(put_and_wait(disk, &samples[i]));
  return disk;
}

static bool is_same_file(const char* a, const char* b) {
  long a_size = qn_test_read_file(a, a_bytes, FILE_ROOM);
  long b_size = qn_test_read_file(b, b_bytes, FILE_ROOM);
  return a_size > 0 && a_size < FILE_ROOM && a_size == b_size &&
         memcmp(a_bytes, b_bytes, (size_t)a_size) == 0;
}

static unsigned files_in(const char* folder) {
  unsigned count = 0;
  DIR* dir = opendir(folder);
  assert_non_null(dir);
  for (struct dirent* entry; (entry = readdir(dir));) count += entry->d_name[0] != '.';
  (void)closedir(dir);
  return count;
}

// ---------------------------------------------------------------------------------------- writer

static void entries_are_verified(void** state) {
  (void)state;
  qn__bundle_write_options_t options = {.path = path};
  qn__bundle_writer_t* writer;
  assert_true(qn_ok(qn__bundle_writer_create(&options, &writer)));
  qn__buffer_t bytes = sample_bytes(&samples[1]);
  bytes.data[120] ^= 1;
  assert_int_equal(qn_status_consume(qn__bundle_writer_add(writer, qn__buffer_as_span(&bytes))),
                   QN_STATUS_DATA_LOSS);
  qn__buffer_deinit(&bytes);
  assert_int_equal(files_in(cache_root), 1);
  qn__bundle_writer_destroy(writer);
  assert_int_equal(files_in(cache_root), 0);
}

static void limits_of_the_format(void** state) {
  (void)state;
  qn__bundle_write_options_t options = {.path = path};
  qn__bundle_writer_t* writer;
  assert_true(qn_ok(qn__bundle_writer_create(&options, &writer)));
  for (unsigned i = 0; i <= QN__BUNDLE_MAX_IDENTITIES; i++) {
    char maker[32];
    (void)snprintf(maker, sizeof maker, "maker %u", i);
    sample_t sample;
    sample_make_by(&sample, i, 10, maker);
    qn__buffer_t bytes = sample_bytes(&sample);
    qn_status_code_t code =
        qn_status_consume(qn__bundle_writer_add(writer, qn__buffer_as_span(&bytes)));
    assert_int_equal(code,
                     i < QN__BUNDLE_MAX_IDENTITIES ? QN_STATUS_OK : QN_STATUS_INVALID_ARGUMENT);
    qn__buffer_deinit(&bytes);
    sample_free(&sample);
  }
  qn__bundle_writer_destroy(writer);
  static const char* const bad_paths[] = {"", "/", "/tmp/"};
  for (size_t i = 0; i < QN_COUNT_OF(bad_paths); i++) {
    options.path = bad_paths[i];
    assert_int_equal(qn_status_consume(qn__bundle_writer_create(&options, &writer)),
                     QN_STATUS_INVALID_ARGUMENT);
  }
  char nowhere[BUNDLE_PATH_SIZE];
  bundle_path("no/such/a.qnb", nowhere);
  options.path = nowhere;
  assert_int_equal(qn_status_consume(qn__bundle_writer_create(&options, &writer)),
                   QN_STATUS_NOT_FOUND);
}

static void the_file_is_for_reading(void** state) {
  (void)state;
  mode_t old = umask(0);
  assert_true(write_bundle(path, samples, 1, NULL, false));
  (void)umask(old);
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0644);
  // A link in its place is replaced, not followed.
  assert_true(qn_test_write_file(other, "mine", 4));
  assert_int_equal(unlink(path), 0);
  assert_int_equal(symlink(other, path), 0);
  assert_true(write_bundle(path, samples, 1, NULL, false));
  assert_int_equal(lstat(path, &info), 0);
  assert_true(S_ISREG(info.st_mode));
  assert_int_equal(qn_test_read_file(other, a_bytes, 10), 4);
}

static void appending_has_its_rules(void** state) {
  (void)state;
  qn__bundle_write_options_t options = {.path = path, .is_appending = true};
  qn__bundle_writer_t* writer;
  assert_int_equal(qn_status_consume(qn__bundle_writer_create(&options, &writer)),
                   QN_STATUS_NOT_FOUND);
  assert_true(write_bundle(path, samples, 3, NULL, false));
  // A reader that has it open keeps the old file; a writer that does not finish leaves no trace.
  qn__bundle_t* old = open_bundle(path, NULL, NULL);
  assert_non_null(old);
  assert_true(qn_ok(qn__bundle_writer_create(&options, &writer)));
  qn__bundle_writer_destroy(writer);
  assert_true(write_bundle(path, samples + 3, 1, NULL, true));
  assert_int_equal(get_sample(old, &samples[2], NULL), QN__GET_HIT);
  assert_int_equal(get_sample(old, &samples[3], NULL), QN__GET_ABSENT);
  qn__bundle_close(old);
  qn__bundle_t* bundle = open_bundle(path, NULL, NULL);
  assert_non_null(bundle);
  assert_false(qn__bundle_is_truncated(bundle));
  assert_int_equal(qn__bundle_count(bundle), 4);
  for (unsigned i = 0; i < 4; i++) {
    assert_int_equal(get_sample(bundle, &samples[i], NULL), QN__GET_HIT);
  }
  qn__bundle_close(bundle);
  // The bundle lost its tail; or one of its entries is damaged.
  long size = qn_test_read_file(path, a_bytes, FILE_ROOM);
  assert_true(size > 0);
  assert_true(qn_test_write_file(path, a_bytes, (size_t)size - 1));
  assert_int_equal(qn_status_consume(qn__bundle_writer_create(&options, &writer)),
                   QN_STATUS_FAILED_PRECONDITION);
  a_bytes[QN__BUNDLE_HEADER_BYTES + 100] ^= 1;
  assert_true(qn_test_write_file(path, a_bytes, (size_t)size));
  assert_int_equal(qn_status_consume(qn__bundle_writer_create(&options, &writer)),
                   QN_STATUS_DATA_LOSS);
}

// ---------------------------------------------------------------------------------------- export

static void the_same_entries_give_the_same_bytes(void** state) {
  (void)state;
  qn__disk_t* disk = fill_directory(0, SAMPLES);
  qn__source_t source = {.disk = disk};
  qn__bundle_export_options_t options = {.write = {.path = path}};
  qn__bundle_export_report_t report;
  assert_true(qn_ok(qn__bundle_export(&source, 1, &options, &report)));
  assert_int_equal(report.written_count, SAMPLES);
  assert_int_equal(report.bad_count + report.unwanted_count, 0);
  // From a directory that was filled the other way round, and from two bundles that overlap.
  assert_int_equal(qn__disk_clear(disk), SAMPLES);
  qn__disk_close(disk, FOREVER_NS);
  for (unsigned i = SAMPLES; i-- > 0;) {
    disk = fill_directory(i, i + 1);
    if (i) qn__disk_close(disk, FOREVER_NS);
  }
  source.disk = disk;
  options.write.path = other;
  assert_true(qn_ok(qn__bundle_export(&source, 1, &options, &report)));
  assert_true(is_same_file(path, other));
  qn__disk_close(disk, FOREVER_NS);

  char first[BUNDLE_PATH_SIZE], second[BUNDLE_PATH_SIZE];
  bundle_path("c.qnb", first);
  bundle_path("d.qnb", second);
  assert_true(write_bundle(first, samples + 2, SAMPLES - 2, NULL, false));
  assert_true(write_bundle(second, samples, 4, NULL, false));
  qn__source_t bundles[2] = {{.bundle = open_bundle(first, NULL, NULL)},
                             {.bundle = open_bundle(second, NULL, NULL)}};
  assert_true(qn_ok(qn__bundle_export(bundles, 2, &options, &report)));
  assert_true(is_same_file(path, other));
  assert_int_equal(report.written_count, SAMPLES);
  qn__bundle_close(bundles[0].bundle);
  qn__bundle_close(bundles[1].bundle);
}

static void the_last_good_one_counts(void** state) {
  (void)state;
  sample_t later = samples[1];
  later.entry.created_ns += 5;
  assert_true(write_bundle(path, samples, SAMPLES, NULL, false));
  assert_true(write_bundle(other, &later, 1, NULL, false));
  qn__source_t sources[2] = {{.bundle = open_bundle(path, NULL, NULL)},
                             {.bundle = open_bundle(other, NULL, NULL)}};
  char out[BUNDLE_PATH_SIZE];
  bundle_path("out.qnb", out);
  qn__bundle_export_options_t options = {.write = {.path = out}};
  qn__bundle_export_report_t report;
  assert_true(qn_ok(qn__bundle_export(sources, 2, &options, &report)));
  qn__bundle_t* bundle = open_bundle(out, NULL, NULL);
  assert_non_null(bundle);
  assert_int_equal(get_sample(bundle, &later, NULL), QN__GET_HIT);
  qn__bundle_close(bundle);
  // The later one is damaged: the earlier one serves.
  long size = qn_test_read_file(other, a_bytes, FILE_ROOM);
  assert_true(size > 0);
  a_bytes[QN__BUNDLE_HEADER_BYTES + 100] ^= 1;
  assert_true(qn_test_write_file(other, a_bytes, (size_t)size));
  assert_true(qn_ok(qn__bundle_export(sources, 2, &options, &report)));
  assert_int_equal(report.bad_count, 1);
  assert_int_equal(report.written_count, SAMPLES);
  bundle = open_bundle(out, NULL, NULL);
  assert_non_null(bundle);
  assert_int_equal(get_sample(bundle, &samples[1], NULL), QN__GET_HIT);
  qn__bundle_close(bundle);
  // Without times both give the same.
  options.is_timeless = true;
  assert_true(qn_ok(qn__bundle_export(sources, 1, &options, &report)));
  qn__bundle_close(sources[1].bundle);
  assert_true(write_bundle(other, &later, 1, NULL, false));
  sources[1].bundle = open_bundle(other, NULL, NULL);
  char again[BUNDLE_PATH_SIZE];
  bundle_path("again.qnb", again);
  options.write.path = again;
  assert_true(qn_ok(qn__bundle_export(sources, 2, &options, &report)));
  assert_true(is_same_file(out, again));
  qn__bundle_close(sources[0].bundle);
  qn__bundle_close(sources[1].bundle);
}

static bool wants_none(void* self, const qn__entry_t* entry) {
  (void)self;
  (void)entry;
  return false;
}

static void nothing_to_write_is_said(void** state) {
  (void)state;
  qn__disk_t* disk = fill_directory(0, 2);
  qn__source_t source = {.disk = disk};
  qn__bundle_export_options_t options = {.write = {.path = path}, .wants = wants_none};
  qn__bundle_export_report_t report;
  assert_int_equal(qn_status_consume(qn__bundle_export(&source, 1, &options, &report)),
                   QN_STATUS_NOT_FOUND);
  assert_int_equal(report.unwanted_count, 2);
  assert_int_equal(access(path, F_OK), -1);
  assert_int_equal(files_in(cache_root), 1);
  qn__disk_close(disk, FOREVER_NS);
}

// ---------------------------------------------------------------------------------------- public

static bool wants_large(void* self, const qn_cache_entry_t* entry) {
  ++*(unsigned*)self;
  for (size_t i = 0; i < entry->section_count; i++) {
    if (strcmp(entry->sections[i].name, "payload") == 0) {
      return entry->sections[i].size_bytes >= 1000;
    }
  }
  return false;
}

static bool count_info(void* self, const qn_cache_entry_info_t* info) {
  unsigned* count = self;
  assert_int_equal(strlen(info->key.hex), 32);
  assert_true(info->size_bytes > 200 && info->created_s == 1700000000 && info->used_s == 0);
  return ++*count < 3;
}

static void count_generator(void* self, const char* identity) {
  assert_string_equal(identity, "maker 1");
  ++*(unsigned*)self;
}

static void the_public_calls(void** state) {
  (void)state;
  qn__disk_close(fill_directory(0, SAMPLES), FOREVER_NS);
  qn_cache_dir_t* dir;
  assert_true(qn_ok(qn_cache_dir_open(directory, &dir)));
  unsigned asked = 0;
  qn_cache_write_options_t options = {
      .struct_size = sizeof options, .wants = wants_large, .self = &asked};
  qn_cache_write_report_t report = {.struct_size = sizeof report};
  assert_true(qn_ok(qn_cache_bundle_write(path, dir, NULL, 0, &options, &report)));
  assert_int_equal(asked, SAMPLES);
  assert_int_equal(report.written_count, 4);
  assert_int_equal(report.unwanted_count, 2);
  qn_cache_bundle_t* bundle;
  assert_true(qn_ok(qn_cache_bundle_open(path, NULL, 0, &bundle)));
  qn_cache_bundle_info_t info = {.struct_size = sizeof info};
  assert_true(qn_ok(qn_cache_bundle_info(bundle, &info)));
  assert_int_equal(info.entry_count, 4);
  assert_true(!info.is_truncated && !info.is_verified && info.signer[0] == '\0');
  struct stat file;
  assert_int_equal(stat(path, &file), 0);
  assert_int_equal(info.size_bytes, file.st_size);
  unsigned count = 0;
  qn_cache_bundle_generators(bundle, count_generator, &count);
  assert_int_equal(count, 1);
  count = 0;
  assert_true(qn_ok(qn_cache_bundle_list(bundle, count_info, &count)));
  assert_int_equal(count, 3);
  qn_cache_verify_report_t verified = {.struct_size = sizeof verified};
  assert_true(qn_ok(qn_cache_bundle_verify(bundle, NULL, NULL, &verified)));
  assert_int_equal(verified.good_count, 4);
  // One entry by a part of its key.
  char key[33];
  qn__hash128_hex(samples[SAMPLES - 1].entry.key, key);
  qn_cache_entry_t* entry;
  assert_true(qn_ok(qn_cache_bundle_read(bundle, key, &entry)));
  assert_string_equal(entry->info->key.hex, key);
  qn_cache_entry_free(entry);
  assert_int_equal(qn_status_consume(qn_cache_bundle_read(bundle, "00000000", &entry)),
                   QN_STATUS_NOT_FOUND);
  assert_int_equal(qn_status_consume(qn_cache_bundle_read(bundle, "00", &entry)),
                   QN_STATUS_INVALID_ARGUMENT);
  // Back into the directory: what is there already stays.
  uint64_t removed;
  assert_true(qn_ok(qn_cache_dir_clear(dir, &removed)));
  qn_cache_import_report_t imported = {.struct_size = sizeof imported};
  assert_true(qn_ok(qn_cache_dir_import(dir, bundle, NULL, NULL, &imported)));
  assert_int_equal(imported.imported_count, 4);
  assert_true(qn_ok(qn_cache_dir_import(dir, bundle, NULL, NULL, &imported)));
  assert_int_equal(imported.present_count, 4);
  assert_int_equal(imported.imported_count + imported.bad_count + imported.failed_count, 0);
  assert_true(qn_ok(qn_cache_bundle_write(other, dir, &bundle, 1, NULL, NULL)));
  assert_true(is_same_file(path, other));
  qn_cache_bundle_close(bundle);
  qn_cache_bundle_close(NULL);
  qn_cache_dir_close(dir);
  // Misuse.
  assert_int_equal(qn_status_consume(qn_cache_bundle_open(NULL, NULL, 0, &bundle)),
                   QN_STATUS_INVALID_ARGUMENT);
  assert_int_equal(qn_status_consume(qn_cache_bundle_write(path, NULL, NULL, 0, NULL, NULL)),
                   QN_STATUS_NOT_FOUND);
  options.struct_size = 3;
  assert_int_equal(qn_status_consume(qn_cache_bundle_write(path, NULL, NULL, 0, &options, NULL)),
                   QN_STATUS_INVALID_ARGUMENT);
}

static void keys_and_signatures(void** state) {
  (void)state;
  char prefix[BUNDLE_PATH_SIZE], public_file[BUNDLE_PATH_SIZE], secret_file[BUNDLE_PATH_SIZE];
  bundle_path("release", prefix);
  bundle_path("release.pub", public_file);
  bundle_path("release.key", secret_file);
  qn_status_code_t code = qn_status_consume(qn_cache_make_keys(prefix));
  if (code == QN_STATUS_UNAVAILABLE) skip();
  assert_int_equal(code, QN_STATUS_OK);
  assert_int_equal(qn_status_consume(qn_cache_make_keys(prefix)), QN_STATUS_FAILED_PRECONDITION);
  struct stat info;
  assert_int_equal(stat(secret_file, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0600);
  assert_int_equal(info.st_size, 129);
  assert_int_equal(stat(public_file, &info), 0);
  assert_int_equal(info.st_size, 65);

  qn__disk_close(fill_directory(0, SAMPLES), FOREVER_NS);
  qn_cache_dir_t* dir;
  assert_true(qn_ok(qn_cache_dir_open(directory, &dir)));
  qn_cache_write_options_t options = {.struct_size = sizeof options,
                                      .secret_key_file = secret_file};
  assert_true(qn_ok(qn_cache_bundle_write(path, dir, NULL, 0, &options, NULL)));
  assert_true(qn_ok(qn_cache_bundle_write(other, dir, NULL, 0, &options, NULL)));
  assert_true(is_same_file(path, other));
  const char* keys[] = {public_file};
  qn_cache_bundle_t* bundle;
  assert_true(qn_ok(qn_cache_bundle_open(path, keys, 1, &bundle)));
  qn_cache_bundle_info_t bundle_info = {.struct_size = sizeof bundle_info};
  assert_true(qn_ok(qn_cache_bundle_info(bundle, &bundle_info)));
  assert_true(bundle_info.is_verified);
  assert_int_equal(qn_test_read_file(public_file, a_bytes, FILE_ROOM), 65);
  assert_memory_equal(bundle_info.signer, a_bytes, 64);
  qn_cache_bundle_close(bundle);

  // Key files: the rules of trust, and what is no key.
  assert_int_equal(chmod(secret_file, 0640), 0);
  assert_int_equal(qn_status_consume(qn_cache_bundle_write(path, dir, NULL, 0, &options, NULL)),
                   QN_STATUS_PERMISSION_DENIED);
  assert_int_equal(chmod(public_file, 0666), 0);
  assert_int_equal(qn_status_consume(qn_cache_bundle_open(path, keys, 1, &bundle)),
                   QN_STATUS_PERMISSION_DENIED);
  assert_int_equal(chmod(public_file, 0644), 0);
  keys[0] = cache_root;
  assert_int_equal(qn_status_consume(qn_cache_bundle_open(path, keys, 1, &bundle)),
                   QN_STATUS_PERMISSION_DENIED);
  keys[0] = "/nosuch";
  assert_int_equal(qn_status_consume(qn_cache_bundle_open(path, keys, 1, &bundle)),
                   QN_STATUS_NOT_FOUND);
  keys[0] = other;
  static const char* const no_keys[] = {"",
                                        "abc",
                                        "zz",
                                        " \n",
                                        "00112233445566778899aabbccddeeff00112233445566778899aabbcc"
                                        "ddeefg",
                                        "00112233445566778899aabbccddeeff00112233445566778899aabbcc"
                                        "ddeeff00"};
  for (size_t i = 0; i < QN_COUNT_OF(no_keys); i++) {
    assert_true(qn_test_write_file(other, no_keys[i], strlen(no_keys[i])));
    assert_int_equal(qn_status_consume(qn_cache_bundle_open(path, keys, 1, &bundle)),
                     QN_STATUS_SYNTAX);
  }
  // White space and capitals are fine.
  uint8_t key[QN__PUBLIC_KEY_BYTES];
  assert_true(qn_test_write_file(
      other, " 00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff\r\n", 67));
  assert_true(qn_ok(qn__key_read(other, false, key, sizeof key)));
  assert_int_equal(key[0], 0);
  assert_int_equal(key[10], 0xAA);
  assert_int_equal(key[31], 0xFF);
  qn_cache_dir_close(dir);
}

static void no_cryptography_is_said(void** state) {
  (void)state;
  const qn__crypto_t* crypto;
  qn_status_t status = qn__crypto_open(cache_root, &crypto);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNAVAILABLE);
  assert_non_null(strstr(qn_status_message(status), "libquern-sodium.so"));
  qn_status_free(status);
  char module[BUNDLE_PATH_SIZE];
  bundle_path("libquern-sodium.so", module);
  assert_true(qn_test_write_file(module, "no module", 9));
  status = qn__crypto_open(cache_root, &crypto);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNAVAILABLE);
  qn_status_free(status);
  uint8_t secret[QN__SECRET_KEY_BYTES] = {0};
  qn__bundle_write_options_t options = {
      .path = path, .secret_key = secret, .plugin_directory = "/nosuch"};
  qn__bundle_writer_t* writer;
  assert_int_equal(qn_status_consume(qn__bundle_writer_create(&options, &writer)),
                   QN_STATUS_UNAVAILABLE);
  assert_int_equal(access(path, F_OK), -1);
}

// ---------------------------------------------------------------------------------------- faults

static const int errors[] = {ENOSPC, EDQUOT, EIO,    EACCES, EROFS,
                             ESTALE, EBUSY,  EMFILE, EINTR,  ENOENT};

// Makes a bundle of a directory and another bundle. True when it says so; then the file must be it.
static bool try_export(qn_allocator_t allocator, qn__disk_t* disk) {
  qn__bundle_options_t open_options = {.allocator = allocator, .path = other};
  qn__source_t sources[2] = {{.disk = disk}, {.disk = NULL}};
  qn_status_t status = qn__bundle_open(&open_options, &sources[1].bundle);
  if (qn_ok(status)) {
    qn__bundle_export_options_t options = {.write = {.allocator = allocator, .path = path}};
    qn__bundle_export_report_t report;
    status = qn__bundle_export(sources, 2, &options, &report);
    qn__bundle_close(sources[1].bundle);
  }
  bool is_done = qn_ok(status);
  if (!is_done) assert_true(qn_status_message(status)[0] != '\0');
  qn_status_free(status);
  return is_done;
}

// A bundle that opens gives the right bytes or misses.
static void try_gets(qn_allocator_t allocator) {
  qn__bundle_options_t options = {.allocator = allocator, .path = other};
  qn__bundle_t* bundle;
  if (qn_status_consume(qn__bundle_open(&options, &bundle)) != QN_STATUS_OK) return;
  for (unsigned i = 0; i < SAMPLES; i++) (void)get_sample(bundle, &samples[i], NULL);
  qn__bundle_close(bundle);
}

// ENOENT is what an entry says that went away meanwhile: it may be left out.
static void check_outcome(bool is_done, int error) {
  if (is_done) {
    qn__bundle_t* bundle = open_bundle(path, NULL, NULL);
    assert_non_null(bundle);
    uint64_t count = qn__bundle_count(bundle);
    assert_true(count == SAMPLES || (error == ENOENT && count > 3));
    assert_false(qn__bundle_is_truncated(bundle));
    qn__bundle_close(bundle);
    assert_int_equal(unlink(path), 0);
  } else {
    assert_int_equal(access(path, F_OK), -1);
  }
}

static long walk_files(qn_fault_kind_t kind, int error) {
  long runs = 0;
  qn__disk_t* disk = fill_directory(0, 3);
  for (int mode = QN_FAULT_ONCE; mode <= QN_FAULT_ALWAYS; mode++) {
    for (long n = 1;; n++) {
      qn_fault_heap_t heap;
      qn_fault_heap_init(&heap);
      qn_fault_fs_install();
      qn_fault_fs_arm(n, (qn_fault_mode_t)mode, kind, error);
      bool is_done = try_export(qn_fault_heap_allocator(&heap), disk);
      long failures = qn_fault_fs_failures();
      assert_int_equal(qn_fault_fs_open_count(), 0);
      qn_fault_fs_remove();
      assert_int_equal(heap.live_blocks, 0);
      assert_int_equal(heap.size_errors, 0);
      check_outcome(is_done, error);
      runs++;
      if (failures == 0) {
        assert_true(is_done);
        break;
      }
    }
    for (long n = 1;; n++) {
      qn_fault_heap_t heap;
      qn_fault_heap_init(&heap);
      qn_fault_fs_install();
      qn_fault_fs_arm(n, (qn_fault_mode_t)mode, kind, error);
      try_gets(qn_fault_heap_allocator(&heap));
      long failures = qn_fault_fs_failures();
      assert_int_equal(qn_fault_fs_open_count(), 0);
      qn_fault_fs_remove();
      assert_int_equal(heap.live_blocks, 0);
      runs++;
      if (failures == 0) break;
    }
  }
  assert_int_equal(qn__disk_clear(disk), 3);
  qn__disk_close(disk, FOREVER_NS);
  return runs;
}

static void every_file_call_may_fail(void** state) {
  (void)state;
  // Whole, and without a tail, so that the scan is walked too.
  for (int is_cut = 0; is_cut <= 1; is_cut++) {
    assert_true(write_bundle(other, samples + 2, SAMPLES - 2, NULL, false));
    if (is_cut) {
      struct stat info;
      assert_int_equal(stat(other, &info), 0);
      assert_int_equal(truncate(other, info.st_size - 30), 0);
    }
    int descriptors = qn_test_descriptor_count();
    for (size_t i = 0; i < QN_COUNT_OF(errors); i++) {
      assert_true(walk_files(QN_FAULT_ERRNO, errors[i]) > 40);
    }
    assert_true(walk_files(QN_FAULT_SHORT_READ, 0) > 4);
    assert_true(walk_files(QN_FAULT_SHORT_WRITE, 0) > 4);
    assert_int_equal(qn_test_descriptor_count(), descriptors);
  }
}

static bool allocating_work(qn_allocator_t allocator, void* user) {
  check_outcome(try_export(allocator, user), 0);
  try_gets(allocator);
  return true;
}

static void every_allocation_may_fail(void** state) {
  (void)state;
  assert_true(write_bundle(other, samples + 2, SAMPLES - 2, NULL, false));
  qn__disk_t* disk = fill_directory(0, 3);
  assert_true(qn_fault_walk_alloc(allocating_work, disk) > 10);
  struct stat info;
  assert_int_equal(stat(other, &info), 0);
  assert_int_equal(truncate(other, info.st_size - 30), 0);
  assert_true(qn_fault_walk_alloc(allocating_work, disk) > 10);
  qn__disk_close(disk, FOREVER_NS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
      TEST(entries_are_verified),
      TEST(limits_of_the_format),
      TEST(the_file_is_for_reading),
      TEST(appending_has_its_rules),
      TEST(the_same_entries_give_the_same_bytes),
      TEST(the_last_good_one_counts),
      TEST(nothing_to_write_is_said),
      TEST(the_public_calls),
      TEST(keys_and_signatures),
      TEST(no_cryptography_is_said),
      TEST(every_file_call_may_fail),
      TEST(every_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("bundle_write", tests, NULL, NULL);
}
