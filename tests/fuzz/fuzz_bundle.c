// SPDX-License-Identifier: Apache-2.0
#define _XOPEN_SOURCE 700  // S_IFREG
// tests/fuzz/fuzz_bundle.c: reads arbitrary bytes as the file of a bundle.
//
// A bundle that opens must have ascending keys, and each entry is refused or belongs to its key.
// Bits of the first byte select corrections, so that inputs pass the checksums: 1 the entries, 2
// the index, 4 the trailer. Files are in memory, below base/fs.h.
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "cache/bundle.h"
#include "cache/bundle_format.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void require(bool is_true) {
  if (!is_true) abort();
}

// ---------------------------------------------------------------------------------------- a file

static struct {
  uint8_t* bytes;
  size_t size;
} file;

static int fake_open(const char* path, int flags, mode_t mode) {
  (void)path;
  (void)flags;
  (void)mode;
  return 1000;
}
static int fake_close(int fd) {
  require(fd == 1000);
  return 0;
}
static int fake_fstat(int fd, struct stat* out) {
  require(fd == 1000);
  memset(out, 0, sizeof *out);
  out->st_mode = S_IFREG | 0644;
  out->st_uid = geteuid();
  out->st_size = (off_t)file.size;
  return 0;
}
static int fake_lstat(const char* path, struct stat* out) {
  (void)path;
  memset(out, 0, sizeof *out);
  out->st_mode = S_IFDIR | 0755;
  return 0;
}
static ssize_t fake_pread(int fd, void* out, size_t size, off_t offset) {
  require(fd == 1000 && offset >= 0);
  if ((size_t)offset >= file.size) return 0;
  if (size > file.size - (size_t)offset) size = file.size - (size_t)offset;
  memcpy(out, file.bytes + offset, size);
  return (ssize_t)size;
}

// ---------------------------------------------------------------------------------------- mending

static void mend_entries(void) {
  size_t at = QN__BUNDLE_HEADER_BYTES;
  while (at + QN__ENTRY_HEADER_BYTES <= file.size) {
    qn__entry_header_t header;
    if (!qn__entry_header_read(file.bytes + at, &header)) break;
    const uint64_t size = header.entry_bytes;
    if (size > file.size - at) break;
    uint8_t* entry = file.bytes + at;
    qn_hash128_t key = qn__preimage_key(
        (qn_span_t){entry + QN__ENTRY_HEADER_BYTES, (size_t)header.preimage_bytes});
    memcpy(entry + 16, key.bytes, sizeof key.bytes);
    qn__entry_seal(entry, (size_t)size);
    at += (size_t)size;
  }
}

static void mend_tail(uint8_t choice) {
  if (file.size < QN__BUNDLE_HEADER_BYTES + QN__BUNDLE_TRAILER_BYTES) return;
  size_t own = file.size - QN__BUNDLE_TRAILER_BYTES;
  uint8_t* trailer = file.bytes + own;
  if (choice & 4) {
    (void)qn__store_le(trailer + 40, own, 8);
    qn__bundle_trailer_seal(trailer, NULL);
  }
  uint64_t begin = qn__load_le64(trailer + 16);
  if (!(choice & 2) || begin >= own || own - begin < QN__BUNDLE_INDEX_HEADER_BYTES + 16) return;
  size_t size = own - (size_t)begin - QN__BUNDLE_CHECKSUM_BYTES;
  // The seed of the index's checksum.
  qn_hash128_t sum =
      qn__xxh128((qn_span_t){file.bytes + begin, size}, UINT64_C(0x716e2d696e646578));
  memcpy(file.bytes + begin + size, sum.bytes, sizeof sum.bytes);
}

// ---------------------------------------------------------------------------------------- reading

static void read_entry(qn__bundle_t* bundle, uint64_t index) {
  qn_hash128_t key = qn__bundle_key(bundle, index);
  (void)qn__bundle_created_ns(bundle, index);
  qn__hit_t hit, again;
  qn__get_result_t result = qn__bundle_read(bundle, index, &hit);
  require(result == QN__GET_HIT || result == QN__GET_BAD || result == QN__GET_NO_MEMORY);
  qn__expectation_t expected = {key, {NULL, 0}};
  if (result == QN__GET_HIT) {
    require(qn__hash128_equal(hit.entry.key, key));
    require(qn__hash128_equal(qn__preimage_key(hit.entry.preimage), key));
    require(qn__entry_size(&hit.entry) == qn__bundle_entry_size(bundle, index));
    expected.preimage = hit.entry.preimage;
    result = qn__bundle_get(bundle, &expected, &again);
    require(result == QN__GET_HIT || result == QN__GET_NO_MEMORY);
    if (result == QN__GET_HIT) {
      require(again.entry.payload.size == hit.entry.payload.size);
      qn__bundle_hit_release(bundle, &again);
    }
    qn__bundle_hit_release(bundle, &hit);
  } else {
    require(qn__bundle_get(bundle, &expected, &again) != QN__GET_HIT && !again.bytes);
  }
}

static void check_bundle(qn__bundle_t* bundle) {
  uint64_t count = qn__bundle_count(bundle);
  for (uint64_t i = 0; i < count; i++) {
    qn_hash128_t key = qn__bundle_key(bundle, i);
    if (i > 0) {
      qn_hash128_t before = qn__bundle_key(bundle, i - 1);
      require(memcmp(before.bytes, key.bytes, sizeof key.bytes) < 0);
    }
    if (i < 64) read_entry(bundle, i);
  }
  qn__expectation_t absent = {{{0xEE}}, {NULL, 0}};
  qn__hit_t hit;
  (void)qn__bundle_get(bundle, &absent, &hit);
  qn__bundle_hit_release(bundle, &hit);
  for (uint32_t i = 0; i < qn__bundle_identity_count(bundle); i++) {
    size_t size = strlen(qn__bundle_identity(bundle, i));
    require(size > 0 && size < QN__BUNDLE_IDENTITY_BYTES);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static qn__fs_t table;
  table = qn__fs_posix;
  table.open = fake_open;
  table.close = fake_close;
  table.fstat = fake_fstat;
  table.lstat = fake_lstat;
  table.pread = fake_pread;
  uint8_t choice = data[0];
  file.size = size - 1;
  file.bytes = malloc(size);
  if (!file.bytes) return 0;
  memcpy(file.bytes, data + 1, file.size);
  if (choice & 1) mend_entries();
  if (choice & 6) mend_tail(choice);
  const qn__fs_t* old = qn__fs_install(&table);
  qn__bundle_options_t options = {.path = "/bundle"};
  qn__bundle_t* bundle;
  qn_status_t status = qn__bundle_open(&options, &bundle);
  if (qn_ok(status)) {
    check_bundle(bundle);
    qn__bundle_close(bundle);
  } else {
    require(!bundle && qn_status_message(status)[0] != '\0');
    qn_status_free(status);
  }
  (void)qn__fs_install(old);
  free(file.bytes);
  return 0;
}
