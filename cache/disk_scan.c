// SPDX-License-Identifier: Apache-2.0
// cache/disk_scan.c: lists the files of a cache directory by their names.
//
// Only names of the exact form of entries and temporary files count; all other files are ignored. A
// file that vanishes meanwhile is skipped.
#include <errno.h>

#include "cache/disk_inner.h"

#define ENTRY_NAME_CHARACTERS 32u      // 30 digits, ".k"
#define TEMPORARY_NAME_CHARACTERS 27u  // 8 digits, "-", 16 digits, ".t"

static bool are_digits(const char* text, size_t size) {
  for (size_t i = 0; i < size; i++) {
    if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f'))) return false;
  }
  return true;
}

static bool is_temporary_name(const char* name) {
  return strlen(name) == TEMPORARY_NAME_CHARACTERS && are_digits(name, 8) && name[8] == '-' &&
         are_digits(name + 9, 16) && strcmp(name + 25, ".t") == 0;
}

static bool is_entry_name(unsigned shard, const char* name, qn_hash128_t* out_key) {
  if (strlen(name) != ENTRY_NAME_CHARACTERS || strcmp(name + 30, ".k") != 0) return false;
  const uint8_t first = (uint8_t)shard;
  char hex[32];
  memcpy(qn__hex(hex, &first, 1), name, 30);
  return qn__hash128_parse((qn_str_t){hex, sizeof hex}, out_key);
}

// Calls `on_name` for each name in a directory until it returns false. Returns 0, an errno, or -1
// when the callback stopped it.
static int each_name(qn__disk_t* disk, const char* path,
                     bool (*on_name)(void* self, const char* name), void* self) {
  const qn__fs_t* fs = qn__fs();
  DIR* dir = fs->opendir(path);
  if (!dir) return errno == ENOENT ? 0 : errno;
  qn__disk_descriptor_t descriptor;
  qn__disk_record_descriptor(disk, &descriptor, dirfd(dir), NULL);
  int result = 0;
  for (;;) {
    errno = 0;
    struct dirent* item = fs->readdir(dir);
    if (!item) {
      result = errno;
      break;
    }
    if (!on_name(self, item->d_name)) {
      result = -1;
      break;
    }
  }
  // In a child that a callback forked, the stream has lost its descriptor.
  if (qn__disk_drop_descriptor(disk, &descriptor) < 0) return ECANCELED;
  (void)fs->closedir(dir);
  return result;
}

typedef struct shard_scan {
  qn__disk_t* disk;
  unsigned shard;
  bool (*on_file)(void* self, const qn__disk_file_t* file);
  void* self;
} shard_scan_t;

static bool see_entry(void* self, const char* name) {
  shard_scan_t* scan = self;
  qn__disk_file_t file;
  if (!is_entry_name(scan->shard, name, &file.key)) return true;
  char path[QN__DISK_PATH_BYTES];
  struct stat info = {0};
  qn__disk_entry_path(scan->disk, file.key, path);
  if (qn__fs()->lstat(path, &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return true;
    // The file exists but cannot be described now. It gets size 0 and time 0: a reader reports the
    // error, and a sweep, which checks again, finds it changed and leaves it.
    memset(&info, 0, sizeof info);
  } else if (!S_ISREG(info.st_mode)) {
    return true;
  }
  file.size_bytes = (uint64_t)info.st_size;
  file.modified_ns = qn__disk_mtime_ns(&info);
  return scan->on_file(scan->self, &file);
}

typedef struct temporary_scan {
  qn__disk_t* disk;
  char directory[QN__DISK_PATH_BYTES];
  void (*on_file)(void* self, const char* path, int64_t modified_ns);
  void* self;
} temporary_scan_t;

static bool see_temporary(void* self, const char* name) {
  temporary_scan_t* scan = self;
  if (!is_temporary_name(name)) return true;
  size_t size = strlen(scan->directory);
  char path[QN__DISK_PATH_BYTES];
  memcpy(path, scan->directory, size);
  path[size] = '/';
  memcpy(path + size + 1, name, TEMPORARY_NAME_CHARACTERS + 1);
  struct stat info;
  if (qn__fs()->lstat(path, &info) == 0 && S_ISREG(info.st_mode)) {
    scan->on_file(scan->self, path, qn__disk_mtime_ns(&info));
  }
  return true;
}

int qn__disk_scan_temporaries(qn__disk_t* disk,
                              void (*on_file)(void* self, const char* path, int64_t modified_ns),
                              void* self) {
  temporary_scan_t scan = {.disk = disk, .on_file = on_file, .self = self};
  qn__disk_path(disk, "/v1/tmp", scan.directory);
  return each_name(disk, scan.directory, see_temporary, &scan);
}

static void count_one(void* self, const char* path, int64_t modified_ns) {
  (void)path;
  (void)modified_ns;
  ++*(uint64_t*)self;
}

int qn__disk_scan_shard(qn__disk_t* disk, unsigned shard,
                        bool (*on_file)(void* self, const qn__disk_file_t* file), void* self) {
  char path[QN__DISK_PATH_BYTES];
  qn__disk_shard_path(disk, shard, path);
  shard_scan_t scan = {disk, shard, on_file, self};
  return each_name(disk, path, see_entry, &scan);
}

int qn__disk_scan(qn__disk_t* disk, bool (*on_file)(void* self, const qn__disk_file_t* file),
                  void* self, uint64_t* out_temporaries) {
  if (out_temporaries) {
    *out_temporaries = 0;
    int error = qn__disk_scan_temporaries(disk, count_one, out_temporaries);
    if (error) return error;
  }
  for (unsigned shard = 0; shard < QN__DISK_SHARDS; shard++) {
    int result = qn__disk_scan_shard(disk, shard, on_file, self);
    if (result == -1) return 0;
    if (result) return result;
  }
  return 0;
}

bool qn__disk_remove(qn__disk_t* disk, qn_hash128_t key) {
  char path[QN__DISK_PATH_BYTES];
  qn__disk_entry_path(disk, key, path);
  return !disk->is_read_only && qn__fs()->unlink(path) == 0;
}

typedef struct clearing {
  qn__disk_t* disk;
  uint64_t removed;
} clearing_t;

static bool clear_entry(void* self, const qn__disk_file_t* file) {
  clearing_t* clearing = self;
  clearing->removed += qn__disk_remove(clearing->disk, file->key);
  return true;
}

static void clear_temporary(void* self, const char* path, int64_t modified_ns) {
  (void)self;
  (void)modified_ns;
  (void)qn__fs()->unlink(path);
}

uint64_t qn__disk_clear(qn__disk_t* disk) {
  clearing_t clearing = {disk, 0};
  if (disk->is_read_only) return 0;
  (void)qn__disk_scan_temporaries(disk, clear_temporary, NULL);
  (void)qn__disk_scan(disk, clear_entry, &clearing, NULL);
  return clearing.removed;
}
