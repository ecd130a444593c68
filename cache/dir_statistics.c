// SPDX-License-Identifier: Apache-2.0
// cache/dir_statistics.c: statistics of a cache directory: its entries and its place.
//
// Reads only the heads of entries (entry_head.h), so ten thousand entries take a moment. Verifies
// only the preimage, whose hash is the name of the file.
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/struct_size.h"
#include "cache/dir_inner.h"
#include "cache/disk_inner.h"
#include "cache/entry_head.h"

#define SECTION_BYTES 4096u

typedef struct summary_walk {
  qn__disk_t* disk;
  bool (*on_entry)(void* self, const qn_cache_summary_t* summary);
  void* self;
  qn__entry_head_t head;
  char target[SECTION_BYTES], generator[SECTION_BYTES];
  char options[SECTION_BYTES], cache_namespace[SECTION_BYTES];
} summary_walk_t;

// Returns a section as text; cuts off what does not fit.
static const char* text_of(const qn__entry_head_t* head, uint32_t tag, char out[SECTION_BYTES]) {
  qn_span_t section = qn__preimage_section(head->preimage, tag);
  size_t size = section.size < SECTION_BYTES ? section.size : SECTION_BYTES - 1;
  if (size) memcpy(out, section.data, size);
  out[size] = '\0';
  return out;
}

static bool summarise(void* self, const qn__disk_file_t* file) {
  summary_walk_t* walk = self;
  qn__entry_head_t* head = &walk->head;
  qn_cache_entry_info_t info = {.struct_size = sizeof info,
                                .key = qn__hash128_key(file->key),
                                .size_bytes = file->size_bytes,
                                .used_s = file->modified_ns / 1000000000};
  qn_cache_summary_t summary = {.struct_size = sizeof summary, .info = &info};
  if (qn__disk_read_head(walk->disk, file->key, head)) {
    info.created_s = head->header.created_ns / 1000000000;
    summary.compile_ns = head->header.compile_ns > 0 ? (uint64_t)head->header.compile_ns : 0;
    summary.code_bytes = head->header.payload_bytes;
    summary.target = text_of(head, QN__SECTION_TARGET, walk->target);
    summary.generator = text_of(head, QN__SECTION_GENERATOR, walk->generator);
    summary.options = text_of(head, QN__SECTION_OPTIONS, walk->options);
    summary.cache_namespace = text_of(head, QN__SECTION_NAMESPACE, walk->cache_namespace);
  }
  return walk->on_entry(walk->self, &summary);
}

qn_status_t qn_cache_dir_survey(qn_cache_dir_t* dir,
                                bool (*on_entry)(void* self, const qn_cache_summary_t* summary),
                                void* self) {
  QN_REQUIRE(dir, on_entry);
  qn_allocator_t allocator = qn_allocator_default();
  summary_walk_t* walk = qn__alloc(allocator, sizeof *walk);
  if (!walk) return qn__out_of_memory("a survey of the cache");
  walk->disk = dir->disk;
  walk->on_entry = on_entry;
  walk->self = self;
  int error = qn__disk_scan(dir->disk, summarise, walk, NULL);
  qn__free(allocator, walk, sizeof *walk);
  return error ? qn__fs_status(error, "list", qn__disk_root(dir->disk)) : QN_OK;
}

// ------------------------------------------------------------------------------------- place

// Counts the locks on an inode in /proc/locks, with lines such as "1: OFDLCK ADVISORY WRITE -1
// 00:2f:1234 7 7". Ignores the device: layered file systems show another one there.
static uint64_t count_locks(uint64_t inode) {
  uint8_t* text;
  size_t size;
  qn_allocator_t allocator = qn_allocator_default();
  qn_status_t status = qn__fs_read_file(allocator, "/proc/locks", (size_t)16 << 20, &text, &size);
  if (qn_status_consume(status) != QN_STATUS_OK) return 0;
  uint64_t count = 0;
  char wanted[32];
  int length = snprintf(wanted, sizeof wanted, ":%llu ", (unsigned long long)inode);
  char* line = (char*)text;
  while (*line) {
    char* end = strchr(line, '\n');
    if (end) *end = '\0';
    // A line with "->" is a waiter, not a lock.
    const char* at = length > 0 ? strstr(line, wanted) : NULL;
    if (at && strstr(line, "OFDLCK") && !strstr(line, "->")) count++;
    if (!end) break;
    line = end + 1;
  }
  qn__free(allocator, text, size + 1);
  return count;
}

qn_status_t qn_cache_dir_place(qn_cache_dir_t* dir, qn_cache_place_t* out_place) {
  QN_REQUIRE(out_place);
  QN_STRUCT_CLEAR(qn_cache_place_t, out_place);
  QN_REQUIRE(dir);
  qn_cache_place_t place = {0};
  const qn__fs_t* fs = qn__fs();
  char path[QN__DISK_PATH_BYTES];
  struct stat info;
  if (fs->statvfs_free(qn__disk_root(dir->disk), &place.free_bytes, &place.total_bytes) != 0) {
    place.free_bytes = place.total_bytes = 0;
  }
  qn__disk_path(dir->disk, "/v1/stamp", path);
  if (fs->lstat(path, &info) == 0) place.swept_s = (int64_t)info.st_mtim.tv_sec;
  qn__disk_path(dir->disk, "/v1/lock", path);
  if (fs->lstat(path, &info) == 0) place.lock_count = count_locks((uint64_t)info.st_ino);
  QN_STRUCT_WRITE(out_place, place);
  return QN_OK;
}
