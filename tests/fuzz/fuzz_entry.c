// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_entry.c: reads arbitrary bytes as an entry. An entry that decodes must encode to
// the same bytes.
//
// The first byte selects how the input is changed first: not at all, with a corrected checksum, or
// with corrected checksum and key. Otherwise few inputs would pass the checksum.
#include <stdlib.h>

#include "cache/entry.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void check(bool is_true) {
  if (!is_true) abort();
}

// Puts the key right where the lengths allow it.
static void mend_key(uint8_t* bytes, size_t size) {
  uint64_t preimage_size = 0;
  for (size_t i = 0; i < 8; i++) preimage_size |= (uint64_t)bytes[32 + i] << (8 * i);
  if (preimage_size > size - QN__ENTRY_HEADER_BYTES) return;
  qn_span_t preimage = {bytes + QN__ENTRY_HEADER_BYTES, (size_t)preimage_size};
  memcpy(bytes + 16, qn__preimage_key(preimage).bytes, 16);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  uint8_t choice = data[0];
  size--;
  uint8_t* bytes = malloc(size ? size : 1);
  if (!bytes) return 0;
  memcpy(bytes, data + 1, size);
  if (size >= QN__ENTRY_HEADER_BYTES + QN__ENTRY_CHECKSUM_BYTES) {
    if (choice & 2) mend_key(bytes, size);
    if (choice & 1) qn__entry_seal(bytes, size);
    qn__entry_header_t header;
    (void)qn__entry_header_read(bytes, &header);
  }

  qn__entry_t entry;
  qn__reason_t reason = qn__entry_decode((qn_span_t){bytes, size}, NULL, &entry);
  check(strlen(qn__reason_text(reason)) > 0);
  if (reason == QN__REASON_NONE) {
    (void)qn__entry_module_matches(&entry);
    qn__buffer_t again;
    qn__buffer_init(&again, qn_allocator_default());
    check(qn__entry_encode(&entry, &again));
    check(again.has_failed || (again.size == size && memcmp(again.data, bytes, size) == 0));
    qn__buffer_deinit(&again);
    qn__expectation_t expected = {entry.key, entry.preimage};
    qn__entry_t same;
    check(qn__entry_decode((qn_span_t){bytes, size}, &expected, &same) == QN__REASON_NONE);
    expected.preimage.size = entry.preimage.size / 2;
    check(qn__entry_decode((qn_span_t){bytes, size}, &expected, &same) == QN__REASON_COLLISION);
    check(qn__preimage_first_difference(entry.preimage, entry.preimage) == 0);
    check(qn__preimage_first_difference(entry.preimage, expected.preimage) != 0);
  }
  // As a preimage by itself, and against itself moved by one.
  qn_span_t span = {bytes, size}, rest = {bytes + (size ? 1 : 0), size ? size - 1 : 0};
  (void)qn__preimage_is_valid(span);
  (void)qn__preimage_first_difference(span, rest);
  free(bytes);
  return 0;
}
