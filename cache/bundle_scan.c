// SPDX-License-Identifier: Apache-2.0
// cache/bundle_scan.c: finds the entries of a bundle whose tail is missing.
//
// Reads and verifies one entry after the other from the start. A whole index block with its
// trailer, where the file once ended, is skipped. Any other bytes end the scan: they and all after
// them count for nothing.
#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "cache/bundle_inner.h"

// Rows of the entries found so far, as in an index block without hashes.
typedef struct scan {
  qn__bundle_t* bundle;
  uint8_t* rows;
  size_t capacity;  // in rows
  size_t count;
} scan_t;

static qn_status_t failed(const qn__bundle_t* bundle, int error) {
  return qn__fs_status(error, "read bundle", bundle->path);
}

static bool add_row(scan_t* scan, const qn__bundle_row_t* row) {
  void* items = scan->rows;
  if (!qn__grow(scan->bundle->allocator, &items, &scan->capacity, scan->count + 1,
                QN__BUNDLE_ROW_BYTES)) {
    return false;
  }
  scan->rows = items;
  qn__bundle_row_store(row, scan->rows + scan->count * QN__BUNDLE_ROW_BYTES);
  scan->count++;
  return true;
}

// Reads the entry of `size` bytes at `offset`. *out_is_good false: it is not whole.
static qn_status_t scan_entry(scan_t* scan, uint64_t offset, uint64_t size, bool* out_is_good) {
  qn__bundle_t* bundle = scan->bundle;
  *out_is_good = false;
  if (size > bundle->file_size - offset || scan->count == QN__BUNDLE_MAX_ENTRIES) return QN_OK;
  uint8_t* bytes = qn__scratch_take(&bundle->scratch, (size_t)size);
  if (!bytes) return qn__out_of_memory("an entry of a bundle");
  int error = qn__bundle_pread(bundle, bytes, (size_t)size, offset);
  qn_status_t status = error && error != ENODATA ? failed(bundle, error) : QN_OK;
  qn__entry_t entry;
  if (!error &&
      qn__entry_decode((qn_span_t){bytes, (size_t)size}, NULL, &entry) == QN__REASON_NONE) {
    // A full list leaves identities out; they are hints.
    (void)qn__bundle_identities_add(&bundle->identities,
                                    qn__preimage_section(entry.preimage, QN__SECTION_GENERATOR));
    qn__bundle_row_t row = {entry.key, offset, size};
    *out_is_good = add_row(scan, &row);
    if (!*out_is_good) status = qn__out_of_memory("the index of a bundle");
  }
  qn__scratch_give(&bundle->scratch, bytes);
  return status;
}

// Reads an index block of `size` bytes at `offset` and the trailer after it.
static qn_status_t scan_index(scan_t* scan, uint64_t offset, uint64_t size, bool* out_is_good) {
  qn__bundle_t* bundle = scan->bundle;
  *out_is_good = false;
  uint64_t left = bundle->file_size - offset;
  if (left < QN__BUNDLE_TRAILER_BYTES || size > left - QN__BUNDLE_TRAILER_BYTES) return QN_OK;
  uint64_t whole = size + QN__BUNDLE_TRAILER_BYTES;
  uint8_t* bytes = qn__scratch_take(&bundle->scratch, (size_t)whole);
  if (!bytes) return qn__out_of_memory("the index of a bundle");
  int error = qn__bundle_pread(bundle, bytes, (size_t)whole, offset);
  qn_status_t status = error && error != ENODATA ? failed(bundle, error) : QN_OK;
  qn__bundle_index_t index;
  qn__bundle_trailer_t trailer;
  *out_is_good = !error &&
                 qn__bundle_index_read((qn_span_t){bytes, (size_t)size}, offset, &index, NULL) &&
                 qn__bundle_trailer_read(bytes + size, offset + size, &trailer) &&
                 trailer.index_offset == offset && trailer.count == index.count;
  qn__scratch_give(&bundle->scratch, bytes);
  return status;
}

static qn_status_t scan_all(scan_t* scan) {
  qn__bundle_t* bundle = scan->bundle;
  uint64_t offset = QN__BUNDLE_HEADER_BYTES;
  while (bundle->file_size - offset >= QN__ENTRY_HEADER_BYTES) {
    _Static_assert(QN__BUNDLE_INDEX_HEADER_BYTES <= QN__ENTRY_HEADER_BYTES, "one read for both");
    uint8_t header[QN__ENTRY_HEADER_BYTES];
    int error = qn__bundle_pread(bundle, header, sizeof header, offset);
    if (error == ENODATA) break;
    if (error) return failed(bundle, error);
    bool is_good = false;
    qn__entry_header_t entry;
    uint64_t size;
    if (qn__entry_header_read(header, &entry)) {
      size = entry.entry_bytes;
      QN_TRY(scan_entry(scan, offset, size, &is_good));
    } else {
      size = qn__bundle_index_header_size(header);
      if (size) QN_TRY(scan_index(scan, offset, size, &is_good));
      size += QN__BUNDLE_TRAILER_BYTES;
    }
    if (!is_good) break;
    offset += size;
    assert(offset <= bundle->file_size && offset % QN__ENTRY_ALIGNMENT == 0);
  }
  return QN_OK;
}

// Keeps the last row of each key.
static size_t drop_repeated(uint8_t* rows, size_t count) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    const uint8_t* row = rows + i * QN__BUNDLE_ROW_BYTES;
    if (i + 1 < count && memcmp(row, row + QN__BUNDLE_ROW_BYTES, sizeof(qn_hash128_t)) == 0) {
      continue;
    }
    memmove(rows + kept * QN__BUNDLE_ROW_BYTES, row, QN__BUNDLE_ROW_BYTES);
    kept++;
  }
  return kept;
}

qn_status_t qn__bundle_scan(qn__bundle_t* bundle) {
  scan_t scan = {.bundle = bundle};
  qn_status_t status = scan_all(&scan);
  // The bundle owns the rows from here, also after an error.
  bundle->memory = scan.rows;
  bundle->memory_size = scan.capacity * QN__BUNDLE_ROW_BYTES;
  bundle->row_bytes = QN__BUNDLE_ROW_BYTES;
  bundle->rows = scan.rows;
  if (!qn_ok(status)) return status;
  if (scan.count > 1) qsort(scan.rows, scan.count, QN__BUNDLE_ROW_BYTES, qn__bundle_row_compare);
  bundle->count = drop_repeated(scan.rows, scan.count);
  assert(bundle->count <= QN__BUNDLE_MAX_ENTRIES);
  return QN_OK;
}
