// SPDX-License-Identifier: Apache-2.0
// cache/entry.c: encodes and decodes entries. The layout is in docs/cache-format.md.
//
// Requirements on decoding:
// 1. A size is used only after it was compared with its limit and with the number of bytes. The
//    limits keep every sum far from overflow.
// 2. Nothing but sizes is used before the checksum of all bytes matches.
// 3. Every byte of the file is compared or covered by the checksum, and the size is exact. An entry
//    that is cut or has a changed bit anywhere is refused.
// 4. The decoded entry has the key and the preimage that the caller expects.
// 5. Each refusal has a reason of its own.
// 6. A hit does not hash the module again: the checksum covers its bytes and a hit does not use
//    them. Tools that compile it call qn__entry_module_matches first.
#include "cache/entry.h"

#include "base/counter.h"
#include "base/reader.h"

// Like PNG's: not text, not UTF-8, and damaged by every conversion of line ends.
static const uint8_t magic[8] = {0x89, 'Q', 'N', 'E', '\r', '\n', 0x1A, '\n'};

// Of the reserved bytes at the end of the header.
enum { RESERVED_OFFSET = 80 };

#define CHECKSUM_SEED UINT64_C(0x716e2d656e747279)

static const struct {
  const char* name;
  const char* text;
  bool heals;
} reasons[QN__REASON_COUNT] = {
    {"none", "the entry is good", false},
#define QN_REASON(name_, lower, heals_, text_) {#lower, text_, heals_},
#include "cache/reasons.inc"
#undef QN_REASON
};

const char* qn__reason_name(qn__reason_t reason) {
  return (size_t)reason < QN__REASON_COUNT ? reasons[reason].name : "unknown";
}
const char* qn__reason_text(qn__reason_t reason) {
  return (size_t)reason < QN__REASON_COUNT ? reasons[reason].text : "unknown reason";
}
bool qn__reason_heals(qn__reason_t reason) {
  return (size_t)reason < QN__REASON_COUNT && reasons[reason].heals;
}
void qn__reason_count(qn__reason_t reason, _Atomic uint64_t* first) {
  if (QN_NEVER(reason <= QN__REASON_NONE || reason >= QN__REASON_COUNT)) return;
  qn__counter_add(&first[reason - QN__REASON_TRUNCATED], 1);
}

static uint64_t round_up(uint64_t size) {
  return (size + QN__ENTRY_ALIGNMENT - 1) & ~(uint64_t)(QN__ENTRY_ALIGNMENT - 1);
}

// The offsets of the sections. The sizes are within their limits.
typedef struct layout {
  uint64_t preimage, metadata, module, payload, checksum, end;
} layout_t;

static bool lay_out(const qn__entry_header_t* sizes, layout_t* out) {
  if (sizes->preimage_bytes > QN__ENTRY_MAX_PREIMAGE_BYTES ||
      sizes->metadata_bytes > QN__ENTRY_MAX_METADATA_BYTES ||
      sizes->module_bytes > QN__ENTRY_MAX_MODULE_BYTES ||
      sizes->payload_bytes > QN__ENTRY_MAX_PAYLOAD_BYTES) {
    return false;
  }
  out->preimage = QN__ENTRY_HEADER_BYTES;
  out->metadata = round_up(out->preimage + sizes->preimage_bytes);
  out->module = round_up(out->metadata + sizes->metadata_bytes);
  out->payload = round_up(out->module + sizes->module_bytes);
  out->checksum = round_up(out->payload + sizes->payload_bytes);
  out->end = out->checksum + QN__ENTRY_CHECKSUM_BYTES;
  assert(out->end <= QN__ENTRY_MAX_BYTES);
  return true;
}

static qn__entry_header_t sizes_of(const qn__entry_t* entry) {
  return (qn__entry_header_t){.preimage_bytes = entry->preimage.size,
                              .metadata_bytes = entry->metadata.size,
                              .module_bytes = entry->module.size,
                              .payload_bytes = entry->payload.size};
}

size_t qn__entry_size(const qn__entry_t* entry) {
  const qn__entry_header_t sizes = sizes_of(entry);
  layout_t layout;
  return lay_out(&sizes, &layout) ? (size_t)layout.end : 0;
}

// Copies a section and fills the bytes up to `end` with zeros.
static void put_section(uint8_t* out, uint64_t begin, qn_span_t bytes, uint64_t end) {
  assert(begin % QN__ENTRY_ALIGNMENT == 0 && bytes.size <= end - begin);
  if (bytes.size) memcpy(out + begin, bytes.data, bytes.size);
  memset(out + begin + bytes.size, 0, (size_t)(end - begin) - bytes.size);
}

void qn__entry_write(const qn__entry_t* entry, uint8_t* out) {
  const qn__entry_header_t sizes = sizes_of(entry);
  layout_t layout;
  if (QN_NEVER(!lay_out(&sizes, &layout))) return;
  qn_hash128_t key = qn__preimage_key(entry->preimage);
  uint8_t* at = out;
  memcpy(at, magic, sizeof magic);
  at = qn__store_le(at + sizeof magic, QN__ENTRY_VERSION, 4);
  at = qn__store_le(at, 0, 4);  // flags
  memcpy(at, key.bytes, sizeof key.bytes);
  at = qn__store_le(at + sizeof key.bytes, entry->preimage.size, 8);
  at = qn__store_le(at, entry->metadata.size, 8);
  at = qn__store_le(at, entry->payload.size, 8);
  at = qn__store_le(at, (uint64_t)entry->created_ns, 8);
  at = qn__store_le(at, (uint64_t)entry->compile_ns, 8);
  at = qn__store_le(at, entry->module.size, 8);
  assert(at - out == RESERVED_OFFSET);
  memset(at, 0, QN__ENTRY_HEADER_BYTES - (size_t)(at - out));
  put_section(out, layout.preimage, entry->preimage, layout.metadata);
  put_section(out, layout.metadata, entry->metadata, layout.module);
  put_section(out, layout.module, entry->module, layout.payload);
  put_section(out, layout.payload, entry->payload, layout.checksum);
}

static qn_hash128_t checksum(const uint8_t* bytes, size_t size) {
  return qn__xxh128((qn_span_t){bytes, size - QN__ENTRY_CHECKSUM_BYTES}, CHECKSUM_SEED);
}

void qn__entry_seal(uint8_t* bytes, size_t size) {
  qn_hash128_t sum = checksum(bytes, size);
  memcpy(bytes + size - QN__ENTRY_CHECKSUM_BYTES, sum.bytes, sizeof sum.bytes);
}

bool qn__entry_encode(const qn__entry_t* entry, qn__buffer_t* buffer) {
  size_t size = qn__entry_size(entry);
  if (size == 0) return false;
  uint8_t* out = qn__buffer_extend(buffer, size);
  if (!out) return true;  // the buffer's sticky flag reports the failure
  qn__entry_write(entry, out);
  qn__entry_seal(out, size);
  return true;
}

static bool is_zero(const uint8_t* bytes, uint64_t begin, uint64_t end) {
  return qn__is_zero(bytes + begin, (size_t)(end - begin));
}

// Explains why two preimages with one key differ: another module, which only the second digest
// tells apart, or another section.
static qn__reason_t explain(qn_span_t expected, qn_span_t stored) {
  if (qn__preimage_first_difference(expected, stored) != QN__SECTION_MODULE) {
    return QN__REASON_COLLISION;
  }
  qn_span_t a = qn__preimage_section(expected, QN__SECTION_MODULE);
  qn_span_t b = qn__preimage_section(stored, QN__SECTION_MODULE);
  bool is_digest = a.size == 56 && b.size == 56 && memcmp(a.data, b.data, 24) == 0;
  return is_digest ? QN__REASON_DIGEST : QN__REASON_COLLISION;
}

static qn__reason_t read_header(qn_span_t bytes, qn__entry_header_t* out, layout_t* out_layout) {
  size_t magic_size = bytes.size < sizeof magic ? bytes.size : sizeof magic;
  if (magic_size && memcmp(bytes.data, magic, magic_size) != 0) return QN__REASON_MAGIC;
  qn__reader_t reader = qn__reader_make(bytes);
  (void)qn__read_bytes(&reader, sizeof magic);
  uint32_t version = qn__read_u32(&reader);
  if (!reader.has_overrun && version != QN__ENTRY_VERSION) return QN__REASON_VERSION;
  uint32_t flags = qn__read_u32(&reader);
  qn_span_t key = qn__read_bytes(&reader, sizeof out->key.bytes);
  out->preimage_bytes = qn__read_u64(&reader);
  out->metadata_bytes = qn__read_u64(&reader);
  out->payload_bytes = qn__read_u64(&reader);
  out->created_ns = (int64_t)qn__read_u64(&reader);
  out->compile_ns = (int64_t)qn__read_u64(&reader);
  out->module_bytes = qn__read_u64(&reader);
  assert(reader.has_overrun || reader.offset == RESERVED_OFFSET);
  (void)qn__read_bytes(&reader, QN__ENTRY_HEADER_BYTES - RESERVED_OFFSET);
  if (reader.has_overrun) return QN__REASON_TRUNCATED;
  memcpy(out->key.bytes, key.data, sizeof out->key.bytes);
  if (flags != 0 || !is_zero(bytes.data, RESERVED_OFFSET, reader.offset)) return QN__REASON_FLAGS;
  if (!lay_out(out, out_layout)) return QN__REASON_LENGTHS;
  out->entry_bytes = out_layout->end;
  return QN__REASON_NONE;
}

bool qn__entry_header_read(const uint8_t* bytes, qn__entry_header_t* out_header) {
  layout_t layout;
  qn_span_t span = {bytes, QN__ENTRY_HEADER_BYTES};
  if (read_header(span, out_header, &layout) == QN__REASON_NONE) return true;
  memset(out_header, 0, sizeof *out_header);
  return false;
}

qn__reason_t qn__entry_decode(qn_span_t bytes, const qn__expectation_t* expected,
                              qn__entry_t* out_entry) {
  memset(out_entry, 0, sizeof *out_entry);
  qn__entry_header_t header;
  layout_t layout;
  qn__reason_t reason = read_header(bytes, &header, &layout);
  if (reason != QN__REASON_NONE) return reason;
  if (layout.end > bytes.size) return QN__REASON_TRUNCATED;
  if (layout.end < bytes.size) return QN__REASON_TRAILING;
  qn_hash128_t sum = checksum(bytes.data, bytes.size);
  if (memcmp(sum.bytes, bytes.data + layout.checksum, sizeof sum.bytes) != 0) {
    return QN__REASON_CHECKSUM;
  }
  if (!is_zero(bytes.data, layout.preimage + header.preimage_bytes, layout.metadata) ||
      !is_zero(bytes.data, layout.metadata + header.metadata_bytes, layout.module) ||
      !is_zero(bytes.data, layout.module + header.module_bytes, layout.payload) ||
      !is_zero(bytes.data, layout.payload + header.payload_bytes, layout.checksum)) {
    return QN__REASON_PADDING;
  }

  qn__entry_t entry = {
      .key = header.key,
      .created_ns = header.created_ns,
      .compile_ns = header.compile_ns,
      .preimage = {bytes.data + layout.preimage, (size_t)header.preimage_bytes},
      .metadata = {bytes.data + layout.metadata, (size_t)header.metadata_bytes},
      .module = {bytes.data + layout.module, (size_t)header.module_bytes},
      .payload = {bytes.data + layout.payload, (size_t)header.payload_bytes},
  };
  if (!expected) {
    if (!qn__preimage_is_valid(entry.preimage)) return QN__REASON_PREIMAGE;
    if (!qn__hash128_equal(qn__preimage_key(entry.preimage), entry.key)) return QN__REASON_KEY;
  } else {
    if (!qn__hash128_equal(expected->key, entry.key)) return QN__REASON_KEY;
    if (!qn__span_equal(expected->preimage, entry.preimage)) {
      return explain(expected->preimage, entry.preimage);
    }
  }
  *out_entry = entry;
  return QN__REASON_NONE;
}

bool qn__entry_module_matches(const qn__entry_t* entry) {
  qn_span_t section = qn__preimage_section(entry->preimage, QN__SECTION_MODULE);
  if (section.size != 8 + 16 + 32) return false;
  qn__reader_t reader = qn__reader_make(section);
  if (qn__read_u64(&reader) != entry->module.size) return false;
  qn_hash128_t first = qn__xxh128(entry->module, 0);
  if (memcmp(first.bytes, section.data + 8, sizeof first.bytes) != 0) return false;
  qn__sha256_t second = qn__sha256(entry->module);
  return memcmp(second.bytes, section.data + 24, sizeof second.bytes) == 0;
}
