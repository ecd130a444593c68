// SPDX-License-Identifier: Apache-2.0
// cache/entry_head.c: see entry_head.h.
#include "cache/entry_head.h"

#include <fcntl.h>

#include "base/fs.h"
#include "cache/bundle_inner.h"
#include "cache/disk_inner.h"

bool qn__entry_head_parse(qn__entry_head_t* head, size_t size, qn_hash128_t key) {
  if (size < QN__ENTRY_HEADER_BYTES || !qn__entry_header_read(head->bytes, &head->header)) {
    return false;
  }
  if (!qn__hash128_equal(head->header.key, key)) return false;
  if (head->header.preimage_bytes > size - QN__ENTRY_HEADER_BYTES) return false;
  head->preimage =
      (qn_span_t){head->bytes + QN__ENTRY_HEADER_BYTES, (size_t)head->header.preimage_bytes};
  return qn__preimage_is_valid(head->preimage) &&
         qn__hash128_equal(qn__preimage_key(head->preimage), key);
}

// Reads the start of an entry's file. Returns the number of bytes, or 0.
static size_t read_start(const qn__disk_t* disk, qn_hash128_t key, uint8_t* out, size_t capacity) {
  char path[QN__DISK_PATH_BYTES];
  qn__disk_entry_path(disk, key, path);
  const qn__fs_t* fs = qn__fs();
  int fd = fs->open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
  if (fd < 0) return 0;
  ssize_t size = fs->pread(fd, out, capacity, 0);
  (void)fs->close(fd);
  return size > 0 ? (size_t)size : 0;
}

bool qn__disk_read_head(const qn__disk_t* disk, qn_hash128_t key, qn__entry_head_t* out_head) {
  size_t size = read_start(disk, key, out_head->bytes, sizeof out_head->bytes);
  return qn__entry_head_parse(out_head, size, key);
}

int64_t qn__disk_created_ns(const qn__disk_t* disk, qn_hash128_t key) {
  uint8_t bytes[QN__ENTRY_HEADER_BYTES];
  qn__entry_header_t header;
  bool is_read = read_start(disk, key, bytes, sizeof bytes) == sizeof bytes &&
                 qn__entry_header_read(bytes, &header);
  return is_read ? header.created_ns : 0;
}

bool qn__bundle_read_head(const qn__bundle_t* bundle, uint64_t index, qn__entry_head_t* out_head) {
  if (index >= bundle->count) return false;
  qn__bundle_row_t row = qn__bundle_row_load(bundle->rows + index * bundle->row_bytes);
  size_t size = row.size < QN__ENTRY_HEAD_BYTES ? (size_t)row.size : QN__ENTRY_HEAD_BYTES;
  return qn__bundle_pread(bundle, out_head->bytes, size, row.offset) == 0 &&
         qn__entry_head_parse(out_head, size, row.key);
}

bool qn__bundle_find(const qn__bundle_t* bundle, qn_hash128_t key, uint64_t* out_index) {
  const uint8_t* row = qn__bundle_find_row(bundle, &key);
  if (row) *out_index = (uint64_t)(row - bundle->rows) / bundle->row_bytes;
  return row != NULL;
}
