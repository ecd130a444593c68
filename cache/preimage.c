// SPDX-License-Identifier: Apache-2.0
// cache/preimage.c: writes, reads and compares preimages.
//
// Layout: the four bytes "QNK1", then for each section its tag (u32), its size (u32) and its bytes,
// little-endian, with strictly rising tags. The size precedes the bytes, so that two different
// lists of sections never have the same bytes.
#include "cache/preimage.h"

#define MAGIC_BYTES 4u
#define SECTION_HEADER_BYTES 8u
static const uint8_t magic[MAGIC_BYTES] = {'Q', 'N', 'K', '1'};

// Differs from the seed of the entry's checksum, so that no hash is valid as both.
#define KEY_SEED UINT64_C(0x716e2d6b65792d31)

void qn__preimage_begin(qn__buffer_t* buffer) {
  qn__buffer_bytes(buffer, magic, sizeof magic);
}

void qn__preimage_add(qn__buffer_t* buffer, qn__section_t tag, qn_span_t bytes) {
  if (bytes.size > UINT32_MAX) {
    buffer->has_failed = true;
    return;
  }
  qn__buffer_u32(buffer, (uint32_t)tag);
  qn__buffer_u32(buffer, (uint32_t)bytes.size);
  qn__buffer_bytes(buffer, bytes.data, bytes.size);
}

void qn__preimage_add_module(qn__buffer_t* buffer, size_t size, qn_hash128_t digest,
                             const qn__sha256_t* second_digest) {
  uint8_t section[8 + 16 + 32];
  (void)qn__store_le(section, size, 8);
  memcpy(section + 8, digest.bytes, 16);
  memcpy(section + 24, second_digest->bytes, 32);
  qn__preimage_add(buffer, QN__SECTION_MODULE, (qn_span_t){section, sizeof section});
}

qn_hash128_t qn__preimage_key(qn_span_t preimage) {
  return qn__xxh128(preimage, KEY_SEED);
}

bool qn__preimage_next(qn_span_t preimage, size_t* inout_offset, uint32_t* out_tag,
                       qn_span_t* out_bytes) {
  size_t offset = *inout_offset;
  assert(offset <= preimage.size);
  if (offset == 0) {
    if (preimage.size < MAGIC_BYTES || memcmp(preimage.data, magic, MAGIC_BYTES) != 0) return false;
    *inout_offset = offset = MAGIC_BYTES;
  }
  if (preimage.size - offset < SECTION_HEADER_BYTES) return false;
  uint32_t size = qn__load_le32(preimage.data + offset + 4);
  if (size > preimage.size - offset - SECTION_HEADER_BYTES) return false;
  *out_tag = qn__load_le32(preimage.data + offset);
  *out_bytes = (qn_span_t){preimage.data + offset + SECTION_HEADER_BYTES, size};
  *inout_offset = offset + SECTION_HEADER_BYTES + size;
  assert(*inout_offset <= preimage.size);
  return true;
}

bool qn__preimage_is_valid(qn_span_t preimage) {
  size_t offset = 0;
  uint32_t tag = 0, last = 0;
  qn_span_t bytes;
  while (qn__preimage_next(preimage, &offset, &tag, &bytes)) {
    if (tag <= last) return false;
    last = tag;
  }
  return offset > 0 && offset == preimage.size;
}

qn_span_t qn__preimage_section(qn_span_t preimage, uint32_t tag) {
  size_t offset = 0;
  uint32_t found = 0;
  qn_span_t bytes;
  while (qn__preimage_next(preimage, &offset, &found, &bytes)) {
    if (found == tag) return bytes;
  }
  return (qn_span_t){NULL, 0};
}

uint32_t qn__preimage_first_difference(qn_span_t a, qn_span_t b) {
  size_t offset_a = 0, offset_b = 0;
  for (;;) {
    uint32_t tag_a = UINT32_MAX, tag_b = UINT32_MAX;  // after every section: the end
    qn_span_t bytes_a = {NULL, 0}, bytes_b = {NULL, 0};
    bool has_a = qn__preimage_next(a, &offset_a, &tag_a, &bytes_a);
    bool has_b = qn__preimage_next(b, &offset_b, &tag_b, &bytes_b);
    if (!has_a && !has_b) break;
    // Only one of them has the section: return its tag.
    if (tag_a != tag_b) return tag_a < tag_b ? tag_a : tag_b;
    if (!qn__span_equal(bytes_a, bytes_b)) return tag_a;
  }
  // The remaining bytes do not parse: the versions of the format differ.
  return qn__span_equal(a, b) ? 0 : QN__SECTION_SCHEMA;
}

const char* qn__section_text(uint32_t tag) {
  switch (tag) {
#define QN_SECTION(name, tag_value, text, is_text, doc) \
  case tag_value:                                       \
    return text;
#include "cache/sections.inc"
#undef QN_SECTION
    default:
      return "unknown";
  }
}

bool qn__section_is_text(uint32_t tag) {
  switch (tag) {
#define QN_SECTION(name, tag_value, text, is_text, doc) \
  case tag_value:                                       \
    return is_text;
#include "cache/sections.inc"
#undef QN_SECTION
    default:
      return false;
  }
}
