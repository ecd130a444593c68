// SPDX-License-Identifier: Apache-2.0
// cache/bundle_api.c: the calls of quern/cache.h for bundles.
#include <limits.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/fs.h"
#include "base/struct_size.h"
#include "cache/bundle_write.h"
#include "cache/dir_inner.h"
#include "cache/entry_copy.h"

// How long an import waits for the directory's writer each time.
#define IMPORT_WAIT_NS INT64_C(60000000000)

struct qn_cache_bundle {
  qn__bundle_t* bundle;
  bool is_verified;
};

// ---------------------------------------------------------------------------------------- open

static qn_status_t read_keys(const char* const* files, size_t count, uint8_t* out_keys) {
  for (size_t i = 0; i < count; i++) {
    if (!files[i]) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "path %zu of a public key is NULL", i);
    }
    QN_TRY(
        qn__key_read(files[i], false, out_keys + i * QN__PUBLIC_KEY_BYTES, QN__PUBLIC_KEY_BYTES));
  }
  return QN_OK;
}

static qn_status_t open_with_keys(const char* path, const char* const* files, size_t count,
                                  qn__bundle_t** out_bundle) {
  qn_allocator_t allocator = qn_allocator_default();
  uint8_t* keys = NULL;
  size_t size = 0;
  if (count) {
    if (!qn__size_mul(count, QN__PUBLIC_KEY_BYTES, &size)) return qn__out_of_memory("keys");
    keys = qn__alloc(allocator, size);
    if (!keys) return qn__out_of_memory("keys");
  }
  qn__bundle_options_t options = {
      .allocator = allocator, .path = path, .public_keys = keys, .public_key_count = count};
  qn_status_t status = read_keys(files, count, keys);
  if (qn_ok(status)) status = qn__bundle_open(&options, out_bundle);
  qn__free(allocator, keys, size);
  return status;
}

qn_status_t qn_cache_bundle_open(const char* path, const char* const* public_key_files,
                                 size_t public_key_count, qn_cache_bundle_t** out_bundle) {
  QN_REQUIRE(out_bundle);
  *out_bundle = NULL;
  QN_REQUIRE(path);
  if (public_key_count && !public_key_files) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "the list of public keys of a bundle is NULL");
  }
  qn_allocator_t allocator = qn_allocator_default();
  qn_cache_bundle_t* handle = qn__alloc_zero(allocator, 1, sizeof *handle);
  if (!handle) return qn__out_of_memory("a bundle");
  qn_status_t status = open_with_keys(path, public_key_files, public_key_count, &handle->bundle);
  if (!qn_ok(status)) {
    qn__free(allocator, handle, sizeof *handle);
    return status;
  }
  handle->is_verified = public_key_count > 0;
  *out_bundle = handle;
  return QN_OK;
}

void qn_cache_bundle_close(qn_cache_bundle_t* bundle) {
  if (!bundle) return;
  qn__bundle_close(bundle->bundle);
  qn__free(qn_allocator_default(), bundle, sizeof *bundle);
}

// ---------------------------------------------------------------------------------------- looking

qn_status_t qn_cache_bundle_info(const qn_cache_bundle_t* bundle,
                                 qn_cache_bundle_info_t* out_info) {
  QN_REQUIRE(out_info);
  QN_STRUCT_CLEAR(qn_cache_bundle_info_t, out_info);
  QN_REQUIRE(bundle);
  qn_cache_bundle_info_t info = {
      .entry_count = qn__bundle_count(bundle->bundle),
      .size_bytes = qn__bundle_size(bundle->bundle),
      .is_truncated = qn__bundle_is_truncated(bundle->bundle),
      .is_verified = bundle->is_verified,
  };
  const uint8_t* signer = qn__bundle_signer(bundle->bundle);
  if (signer) *qn__hex(info.signer, signer, QN__PUBLIC_KEY_BYTES) = '\0';
  QN_STRUCT_WRITE(out_info, info);
  return QN_OK;
}

void qn_cache_bundle_generators(const qn_cache_bundle_t* bundle,
                                void (*on_generator)(void* self, const char* identity),
                                void* self) {
  if (!bundle || !on_generator) return;
  uint32_t count = qn__bundle_identity_count(bundle->bundle);
  for (uint32_t i = 0; i < count; i++) on_generator(self, qn__bundle_identity(bundle->bundle, i));
}

qn_status_t qn_cache_bundle_list(qn_cache_bundle_t* bundle,
                                 bool (*on_entry)(void* self, const qn_cache_entry_info_t* info),
                                 void* self) {
  QN_REQUIRE(bundle, on_entry);
  return qn__source_list((qn__source_t){.bundle = bundle->bundle}, on_entry, self);
}

qn_status_t qn_cache_bundle_read(qn_cache_bundle_t* bundle, const char* key_prefix,
                                 qn_cache_entry_t** out_entry) {
  QN_REQUIRE(out_entry);
  *out_entry = NULL;
  QN_REQUIRE(bundle, key_prefix);
  return qn__source_copy((qn__source_t){.bundle = bundle->bundle}, key_prefix, out_entry);
}

qn_status_t qn_cache_bundle_verify(qn_cache_bundle_t* bundle,
                                   void (*on_bad)(void* self, qn_cache_key_t key,
                                                  const char* reason),
                                   void* self, qn_cache_verify_report_t* out_report) {
  QN_REQUIRE(out_report);
  QN_STRUCT_CLEAR(qn_cache_verify_report_t, out_report);
  QN_REQUIRE(bundle);
  return qn__source_verify((qn__source_t){.bundle = bundle->bundle}, false, on_bad, self,
                           out_report);
}

// ---------------------------------------------------------------------------------------- writing

// Connects the internal callbacks with the public ones.
typedef struct chooser {
  const qn_cache_write_options_t* options;
  bool has_failed;  // no memory to copy an entry for the callback
} chooser_t;

static bool wants(void* self, const qn__entry_t* entry) {
  chooser_t* chooser = self;
  qn_cache_entry_info_t info = {.struct_size = sizeof info,
                                .key = qn__hash128_key(entry->key),
                                .size_bytes = qn__entry_size(entry),
                                .created_s = qn__to_seconds(entry->created_ns)};
  qn_cache_entry_t* shown;
  if (qn_status_consume(qn__entry_copy(entry, &info, &shown)) != QN_STATUS_OK) {
    chooser->has_failed = true;
    return false;
  }
  bool is_wanted = chooser->options->wants(chooser->options->self, shown);
  qn_cache_entry_free(shown);
  return is_wanted;
}

static void pass_bad(void* self, qn_hash128_t key, const char* reason) {
  const chooser_t* chooser = self;
  chooser->options->on_bad(chooser->options->self, qn__hash128_key(key), reason);
}

static qn_status_t write_sources(const char* path, const qn__source_t* sources, size_t count,
                                 const qn_cache_write_options_t* options,
                                 qn_cache_write_report_t* out_report) {
  uint8_t secret[QN__SECRET_KEY_BYTES];
  if (options->secret_key_file) {
    QN_TRY(qn__key_read(options->secret_key_file, true, secret, sizeof secret));
  }
  chooser_t chooser = {.options = options};
  qn__bundle_export_options_t inner = {
      .write = {.path = path,
                .secret_key = options->secret_key_file ? secret : NULL,
                .is_appending = options->is_appending},
      .wants = options->wants ? wants : NULL,
      .on_bad = options->on_bad ? pass_bad : NULL,
      .self = &chooser,
      .is_timeless = options->is_timeless,
      .has_failed = &chooser.has_failed,
  };
  qn__bundle_export_report_t report;
  qn_status_t status = qn__bundle_export(sources, count, &inner, &report);
  qn__wipe(secret, sizeof secret);
  qn_cache_write_report_t shown = {.written_count = report.written_count,
                                   .written_bytes = report.written_bytes,
                                   .unwanted_count = report.unwanted_count,
                                   .bad_count = report.bad_count};
  QN_STRUCT_WRITE(out_report, shown);
  return status;
}

qn_status_t qn_cache_bundle_write(const char* path, qn_cache_dir_t* dir,
                                  qn_cache_bundle_t* const* bundles, size_t bundle_count,
                                  const qn_cache_write_options_t* options,
                                  qn_cache_write_report_t* out_report) {
  QN_STRUCT_CLEAR(qn_cache_write_report_t, out_report);
  QN_REQUIRE(path);
  if (bundle_count) QN_REQUIRE(bundles);
  QN_STRUCT_READ(qn_cache_write_options_t, options, given);
  qn_allocator_t allocator = qn_allocator_default();
  size_t count = 0;
  qn__source_t* sources = qn__alloc_zero(allocator, bundle_count + 1, sizeof *sources);
  if (!sources) return qn__out_of_memory("the list of bundles");
  if (dir) sources[count++].disk = dir->disk;
  for (size_t i = 0; i < bundle_count; i++) sources[count++].bundle = bundles[i]->bundle;
  qn_status_t status = write_sources(path, sources, count, &given, out_report);
  qn__free(allocator, sources, (bundle_count + 1) * sizeof *sources);
  return status;
}

// ---------------------------------------------------------------------------------------- import

// True when the directory has the whole entry.
static bool is_present(qn__disk_t* disk, qn_hash128_t key) {
  qn__hit_t hit;
  if (qn__disk_inspect(disk, key, false, &hit, NULL) != QN__GET_HIT) return false;
  qn__disk_hit_release(disk, &hit);
  return true;
}

// Puts an entry; waits when the writer's queue is full. Does not wait again for a writer that did
// not finish in time.
static void put(qn__disk_t* disk, const qn__entry_t* entry, bool* inout_is_stuck) {
  if (qn__disk_put(disk, entry, NULL) || *inout_is_stuck) return;
  *inout_is_stuck = !qn__disk_flush(disk, IMPORT_WAIT_NS);
  if (!*inout_is_stuck) (void)qn__disk_put(disk, entry, NULL);
}

qn_status_t qn_cache_dir_import(qn_cache_dir_t* dir, qn_cache_bundle_t* bundle,
                                void (*on_bad)(void* self, qn_cache_key_t key, const char* reason),
                                void* self, qn_cache_import_report_t* out_report) {
  QN_REQUIRE(out_report);
  QN_STRUCT_CLEAR(qn_cache_import_report_t, out_report);
  QN_REQUIRE(dir, bundle);
  qn_cache_import_report_t report = {0};
  qn__disk_t* disk = dir->disk;
  if (dir->is_read_only) {
    return qn_status_make(QN_STATUS_PERMISSION_DENIED, "cache directory '%s' may only be read",
                          qn__disk_root(disk));
  }
  uint64_t done_before = qn__disk_counter(disk, "publish_done"), put_count = 0;
  uint64_t count = qn__bundle_count(bundle->bundle);
  bool is_stuck = false;
  for (uint64_t i = 0; i < count; i++) {
    qn_hash128_t key = qn__bundle_key(bundle->bundle, i);
    if (is_present(disk, key)) {
      report.present_count++;
      continue;
    }
    qn__hit_t hit;
    qn__get_result_t result = qn__bundle_read(bundle->bundle, i, &hit);
    if (result != QN__GET_HIT) {
      report.bad_count++;
      qn__source_report((qn__source_t){.bundle = bundle->bundle}, key, result, &hit, on_bad, self);
      continue;
    }
    put_count++;
    put(disk, &hit.entry, &is_stuck);
    qn__bundle_hit_release(bundle->bundle, &hit);
  }
  (void)qn__disk_flush(disk, IMPORT_WAIT_NS);
  // Entries that another thread imports through the same object count here as well.
  uint64_t done_count = qn__disk_counter(disk, "publish_done") - done_before;
  report.imported_count = done_count < put_count ? done_count : put_count;
  report.failed_count = put_count - report.imported_count;
  QN_STRUCT_WRITE(out_report, report);
  return QN_OK;
}

// ---------------------------------------------------------------------------------------- keys

qn_status_t qn_cache_make_keys(const char* prefix) {
  QN_REQUIRE(prefix);
  if (!prefix[0] || strlen(prefix) > PATH_MAX - 8) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the name of a pair of keys is %s",
                          prefix[0] ? "too long" : "empty");
  }
  const qn__crypto_t* crypto;
  QN_TRY(qn__crypto_open(NULL, &crypto));
  char public_path[PATH_MAX], secret_path[PATH_MAX];
  (void)snprintf(public_path, sizeof public_path, "%s.pub", prefix);
  (void)snprintf(secret_path, sizeof secret_path, "%s.key", prefix);
  uint8_t public_key[QN__PUBLIC_KEY_BYTES], secret_key[QN__SECRET_KEY_BYTES];
  crypto->make_keys(public_key, secret_key);
  // The public key first: without it a secret key is useless.
  qn_status_t status = qn__key_write(public_path, false, public_key, sizeof public_key);
  if (qn_ok(status)) {
    status = qn__key_write(secret_path, true, secret_key, sizeof secret_key);
    if (!qn_ok(status)) (void)qn__fs()->unlink(public_path);
  }
  qn__wipe(secret_key, sizeof secret_key);
  return status;
}
