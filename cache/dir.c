// cache/dir.c: the calls of quern/cache.h for tools that list, read, verify and clear a directory.
//
// A directory that this process may only read (shipped by the administrator) opens, too; calls that
// would change it fail.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/struct_size.h"
#include "cache/dir_inner.h"
#include "cache/disk_inner.h"
#include "cache/entry_copy.h"

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

// ---------------------------------------------------------------------------------------- listing

// Returns the time of creation by the header of the file, unverified; 0 when it cannot be read.
static int64_t created_ns(const qn__disk_t* disk, qn_hash128_t key) {
  char path[QN__DISK_PATH_BYTES];
  uint8_t bytes[QN__ENTRY_HEADER_BYTES];
  qn__entry_header_t header = {.created_ns = 0};
  qn__disk_entry_path(disk, key, path);
  int fd = qn__fs()->open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
  if (fd < 0) return 0;
  if (qn__fs_pread_all(fd, bytes, sizeof bytes, 0) == 0) {
    (void)qn__entry_header_read(bytes, &header);
  }
  (void)qn__fs()->close(fd);
  return header.created_ns;
}

static qn_cache_entry_info_t info_of(const qn__disk_file_t* file, int64_t created) {
  return (qn_cache_entry_info_t){.struct_size = sizeof(qn_cache_entry_info_t),
                                 .key = qn__hash128_key(file->key),
                                 .size_bytes = file->size_bytes,
                                 .created_s = qn__to_seconds(created),
                                 .used_s = qn__to_seconds(file->modified_ns)};
}

typedef struct lister {
  qn__disk_t* disk;
  bool (*on_entry)(void* self, const qn_cache_entry_info_t* info);
  void* self;
} lister_t;

static bool list_one(void* self, const qn__disk_file_t* file) {
  lister_t* lister = self;
  qn_cache_entry_info_t info = info_of(file, created_ns(lister->disk, file->key));
  return lister->on_entry(lister->self, &info);
}

static qn_status_t scan_status(const qn_cache_dir_t* dir, int error) {
  return error ? qn__fs_status(error, "list", qn__disk_root(dir->disk)) : QN_OK;
}

qn_status_t qn_cache_dir_list(qn_cache_dir_t* dir,
                              bool (*on_entry)(void* self, const qn_cache_entry_info_t* info),
                              void* self) {
  QN_REQUIRE(dir, on_entry);
  lister_t lister = {dir->disk, on_entry, self};
  return scan_status(dir, qn__disk_scan(dir->disk, list_one, &lister, NULL));
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
  return scan_status(dir, error);
}

// --------------------------------------------------------------------------------------- one entry

typedef struct finder {
  const char* prefix;
  size_t size;
  unsigned count;
  qn__disk_file_t file;
} finder_t;

static bool match_prefix(void* self, const qn__disk_file_t* file) {
  finder_t* finder = self;
  char hex[33];
  qn__hash128_hex(file->key, hex);
  if (memcmp(hex, finder->prefix, finder->size) != 0) return true;
  finder->file = *file;
  return ++finder->count < 2;
}

static qn_status_t find(qn_cache_dir_t* dir, const char* key, qn__disk_file_t* out_file) {
  QN_TRY(qn__key_prefix_check(key));
  finder_t finder = {.prefix = key, .size = strlen(key)};
  QN_TRY(scan_status(dir, qn__disk_scan(dir->disk, match_prefix, &finder, NULL)));
  if (finder.count == 0) {
    return qn_status_make(QN_STATUS_NOT_FOUND, "no entry '%s' in '%s'", key,
                          qn__disk_root(dir->disk));
  }
  if (finder.count > 1) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "key '%s' fits more than one entry; give more digits", key);
  }
  *out_file = finder.file;
  return QN_OK;
}

qn_status_t qn_cache_dir_read(qn_cache_dir_t* dir, const char* key_prefix,
                              qn_cache_entry_t** out_entry) {
  QN_REQUIRE(out_entry);
  *out_entry = NULL;
  QN_REQUIRE(dir, key_prefix);
  qn__disk_file_t file = {0};
  QN_TRY(find(dir, key_prefix, &file));
  qn__hit_t hit;
  qn__get_result_t result = qn__disk_inspect(dir->disk, file.key, false, &hit, NULL);
  if (result != QN__GET_HIT) return qn__get_status(file.key, result, &hit);
  qn_cache_entry_info_t info = info_of(&file, hit.entry.created_ns);
  qn_status_t status = qn__entry_copy(&hit.entry, &info, out_entry);
  qn__disk_hit_release(dir->disk, &hit);
  return status;
}

// -------------------------------------------------------------------------------- verify and clear

typedef struct verifier {
  qn__disk_t* disk;
  bool is_healing;
  void (*on_bad)(void* self, qn_cache_key_t key, const char* reason);
  void* self;
  qn_cache_verify_report_t report;
} verifier_t;

static bool verify_one(void* self, const qn__disk_file_t* file) {
  verifier_t* verifier = self;
  qn_cache_verify_report_t* report = &verifier->report;
  qn__hit_t hit;
  bool is_removed;
  qn__get_result_t result =
      qn__disk_inspect(verifier->disk, file->key, verifier->is_healing, &hit, &is_removed);
  if (result == QN__GET_HIT) {
    qn__disk_hit_release(verifier->disk, &hit);
    report->good_count++;
    return true;
  }
  if (result == QN__GET_ABSENT) return true;
  qn_status_t status = qn__get_status(file->key, result, &hit);
  if (result == QN__GET_BAD) {
    report->bad_count++;
    report->removed_count += is_removed;
  } else {
    report->unreadable_count++;
  }
  if (verifier->on_bad) {
    verifier->on_bad(
        verifier->self, qn__hash128_key(file->key),
        result == QN__GET_BAD ? qn__reason_text(hit.reason) : qn_status_message(status));
  }
  qn_status_free(status);
  return true;
}

qn_status_t qn_cache_dir_verify(qn_cache_dir_t* dir, bool is_healing,
                                void (*on_bad)(void* self, qn_cache_key_t key, const char* reason),
                                void* self, qn_cache_verify_report_t* out_report) {
  QN_REQUIRE(out_report);
  QN_STRUCT_CLEAR(qn_cache_verify_report_t, out_report);
  QN_REQUIRE(dir);
  verifier_t verifier = {dir->disk, is_healing, on_bad, self, {0}};
  int error = qn__disk_scan(dir->disk, verify_one, &verifier, NULL);
  QN_STRUCT_WRITE(out_report, verifier.report);
  return scan_status(dir, error);
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
