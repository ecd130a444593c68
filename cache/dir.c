// SPDX-License-Identifier: Apache-2.0
// cache/dir.c: the calls of quern/cache.h for tools that list, read, verify and clear a directory.
//
// A directory that this process may only read (shipped by the administrator) opens, too; calls that
// would change it fail.
#include "base/alloc.h"
#include "base/argument.h"
#include "base/fs.h"
#include "base/struct_size.h"
#include "cache/dir_inner.h"
#include "cache/source.h"

qn_status_t qn_cache_dir_open(const char* path, qn_cache_dir_t** out_dir) {
  QN_REQUIRE(out_dir);
  *out_dir = NULL;
  QN_REQUIRE(path);
  qn_allocator_t allocator = qn_allocator_default();
  qn_cache_dir_t* dir = qn__alloc_zero(allocator, 1, sizeof *dir);
  if (!dir) return qn__out_of_memory("a cache directory");
  qn__disk_options_t options = {
      .allocator = allocator, .root = path, .must_exist = true, .sweep_period_ns = -1};
  qn_status_t status = qn__disk_open(&options, &dir->disk);
  if (qn_status_code(status) == QN_STATUS_PERMISSION_DENIED) {
    options.is_read_only = true;
    if (qn_status_consume(qn__disk_open(&options, &dir->disk)) == QN_STATUS_OK) {
      qn_status_free(status);
      status = QN_OK;
      dir->is_read_only = true;
    }
  }
  if (!qn_ok(status)) {
    qn__free(allocator, dir, sizeof *dir);
    return status;
  }
  *out_dir = dir;
  return QN_OK;
}

void qn_cache_dir_close(qn_cache_dir_t* dir) {
  if (!dir) return;
  qn__disk_close(dir->disk, 0);
  qn__free(qn_allocator_default(), dir, sizeof *dir);
}

qn_status_t qn_cache_dir_list(qn_cache_dir_t* dir,
                              bool (*on_entry)(void* self, const qn_cache_entry_info_t* info),
                              void* self) {
  QN_REQUIRE(dir, on_entry);
  return qn__source_list((qn__source_t){.disk = dir->disk}, on_entry, self);
}

static bool add_usage(void* self, const qn__disk_file_t* file) {
  qn_cache_usage_t* usage = self;
  usage->entry_count++;
  usage->size_bytes += file->size_bytes;
  return true;
}

qn_status_t qn_cache_dir_usage(qn_cache_dir_t* dir, qn_cache_usage_t* out_usage) {
  QN_REQUIRE(out_usage);
  QN_STRUCT_CLEAR(qn_cache_usage_t, out_usage);
  QN_REQUIRE(dir);
  qn_cache_usage_t usage = {0};
  int error = qn__disk_scan(dir->disk, add_usage, &usage, &usage.temporary_count);
  QN_STRUCT_WRITE(out_usage, usage);
  return error ? qn__fs_status(error, "list", qn__disk_root(dir->disk)) : QN_OK;
}

qn_status_t qn_cache_dir_read(qn_cache_dir_t* dir, const char* key_prefix,
                              qn_cache_entry_t** out_entry) {
  QN_REQUIRE(out_entry);
  *out_entry = NULL;
  QN_REQUIRE(dir, key_prefix);
  return qn__source_copy((qn__source_t){.disk = dir->disk}, key_prefix, out_entry);
}

qn_status_t qn_cache_dir_verify(qn_cache_dir_t* dir, bool is_healing,
                                void (*on_bad)(void* self, qn_cache_key_t key, const char* reason),
                                void* self, qn_cache_verify_report_t* out_report) {
  QN_REQUIRE(out_report);
  QN_STRUCT_CLEAR(qn_cache_verify_report_t, out_report);
  QN_REQUIRE(dir);
  return qn__source_verify((qn__source_t){.disk = dir->disk}, is_healing, on_bad, self, out_report);
}

qn_status_t qn_cache_dir_clear(qn_cache_dir_t* dir, uint64_t* out_removed_count) {
  QN_REQUIRE(out_removed_count);
  *out_removed_count = 0;
  QN_REQUIRE(dir);
  if (dir->is_read_only) {
    return qn_status_make(QN_STATUS_PERMISSION_DENIED, "cache directory '%s' may only be read",
                          qn__disk_root(dir->disk));
  }
  *out_removed_count = qn__disk_clear(dir->disk);
  return QN_OK;
}
