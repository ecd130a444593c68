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

typedef struct sizes {
  uint64_t preimage, metadata, module, payload;
} sizes_t;

static bool lay_out(sizes_t sizes, layout_t* out) {
  if (sizes.preimage > QN__ENTRY_MAX_PREIMAGE_BYTES ||
      sizes.metadata > QN__ENTRY_MAX_METADATA_BYTES || sizes.module > QN__ENTRY_MAX_MODULE_BYTES ||
      sizes.payload > QN__ENTRY_MAX_PAYLOAD_BYTES) {
    return false;
  }
  out->preimage = QN__ENTRY_HEADER_BYTES;
  out->metadata = round_up(out->preimage + sizes.preimage);
  out->module = round_up(out->metadata + sizes.metadata);
  out->payload = round_up(out->module + sizes.module);
  out->checksum = round_up(out->payload + sizes.payload);
  out->end = out->checksum + QN__ENTRY_CHECKSUM_BYTES;
  return true;
}

static sizes_t sizes_of(const qn__entry_t* entry) {
  return (sizes_t){entry->preimage.size, entry->metadata.size, entry->module.size,
                   entry->payload.size};
}

size_t qn__entry_size(const qn__entry_t* entry) {
  layout_t layout;
  return lay_out(sizes_of(entry), &layout) ? (size_t)layout.end : 0;
}

// Copies a section and fills the bytes up to `end` with zeros.
static void put_section(uint8_t* out, uint64_t begin, qn_span_t bytes, uint64_t end) {
  if (bytes.size) memcpy(out + begin, bytes.data, bytes.size);
  memset(out + begin + bytes.size, 0, (size_t)(end - begin) - bytes.size);
}

void qn__entry_write(const qn__entry_t* entry, uint8_t* out) {
  layout_t layout;
  if (QN_NEVER(!lay_out(sizes_of(entry), &layout))) return;
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
  size_t offset_a = 0, offset_b = 0;
  uint32_t tag_a, tag_b;
  qn_span_t a, b;
  while (qn__preimage_next(expected, &offset_a, &tag_a, &a) &&
         qn__preimage_next(stored, &offset_b, &tag_b, &b) && tag_a == tag_b) {
    if (a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0)) continue;
    bool is_digest = tag_a == QN__SECTION_MODULE && a.size == 56 && b.size == 56 &&
                     memcmp(a.data, b.data, 24) == 0;
    return is_digest ? QN__REASON_DIGEST : QN__REASON_COLLISION;
  }
  return QN__REASON_COLLISION;
}

qn__reason_t qn__entry_decode(qn_span_t bytes, const qn__expectation_t* expected,
                              qn__entry_t* out_entry) {
  memset(out_entry, 0, sizeof *out_entry);
  size_t magic_size = bytes.size < sizeof magic ? bytes.size : sizeof magic;
  if (magic_size && memcmp(bytes.data, magic, magic_size) != 0) return QN__REASON_MAGIC;
  qn__reader_t reader = qn__reader_make(bytes);
  (void)qn__read_bytes(&reader, sizeof magic);
  uint32_t version = qn__read_u32(&reader);
  if (!reader.has_overrun && version != QN__ENTRY_VERSION) return QN__REASON_VERSION;
  uint32_t flags = qn__read_u32(&reader);
  qn_span_t key = qn__read_bytes(&reader, sizeof out_entry->key.bytes);
  sizes_t sizes;
  sizes.preimage = qn__read_u64(&reader);
  sizes.metadata = qn__read_u64(&reader);
  sizes.payload = qn__read_u64(&reader);
  uint64_t created_ns = qn__read_u64(&reader);
  uint64_t compile_ns = qn__read_u64(&reader);
  sizes.module = qn__read_u64(&reader);
  const size_t reserved = 80;
  (void)qn__read_bytes(&reader, QN__ENTRY_HEADER_BYTES - reserved);
  if (reader.has_overrun) return QN__REASON_TRUNCATED;
  if (flags != 0 || !is_zero(bytes.data, reserved, reader.offset)) return QN__REASON_FLAGS;

  layout_t layout;
  if (!lay_out(sizes, &layout)) return QN__REASON_LENGTHS;
  if (layout.end > bytes.size) return QN__REASON_TRUNCATED;
  if (layout.end < bytes.size) return QN__REASON_TRAILING;
  qn_hash128_t sum = checksum(bytes.data, bytes.size);
  if (memcmp(sum.bytes, bytes.data + layout.checksum, sizeof sum.bytes) != 0) {
    return QN__REASON_CHECKSUM;
  }
  if (!is_zero(bytes.data, layout.preimage + sizes.preimage, layout.metadata) ||
      !is_zero(bytes.data, layout.metadata + sizes.metadata, layout.module) ||
      !is_zero(bytes.data, layout.module + sizes.module, layout.payload) ||
      !is_zero(bytes.data, layout.payload + sizes.payload, layout.checksum)) {
    return QN__REASON_PADDING;
  }

  qn__entry_t entry = {
      .created_ns = (int64_t)created_ns,
      .compile_ns = (int64_t)compile_ns,
      .preimage = {bytes.data + layout.preimage, (size_t)sizes.preimage},
      .metadata = {bytes.data + layout.metadata, (size_t)sizes.metadata},
      .module = {bytes.data + layout.module, (size_t)sizes.module},
      .payload = {bytes.data + layout.payload, (size_t)sizes.payload},
  };
  memcpy(entry.key.bytes, key.data, sizeof entry.key.bytes);
  if (!expected) {
    if (!qn__preimage_is_valid(entry.preimage)) return QN__REASON_PREIMAGE;
    if (!qn__hash128_equal(qn__preimage_key(entry.preimage), entry.key)) return QN__REASON_KEY;
  } else {
    if (!qn__hash128_equal(expected->key, entry.key)) return QN__REASON_KEY;
    qn_span_t wanted = expected->preimage;
    if (wanted.size != entry.preimage.size ||
        (wanted.size && memcmp(wanted.data, entry.preimage.data, wanted.size) != 0)) {
      return explain(wanted, entry.preimage);
    }
  }
  *out_entry = entry;
  return QN__REASON_NONE;
}

bool qn__entry_module_matches(const qn__entry_t* entry) {
  size_t offset = 0;
  uint32_t tag;
  qn_span_t section;
  while (qn__preimage_next(entry->preimage, &offset, &tag, &section)) {
    if (tag != QN__SECTION_MODULE) continue;
    if (section.size != 8 + 16 + 32) return false;
    qn__reader_t reader = qn__reader_make(section);
    if (qn__read_u64(&reader) != entry->module.size) return false;
    qn_hash128_t first = qn__xxh128(entry->module, 0);
    if (memcmp(first.bytes, section.data + 8, sizeof first.bytes) != 0) return false;
    qn__sha256_t second = qn__sha256(entry->module);
    return memcmp(second.bytes, section.data + 24, sizeof second.bytes) == 0;
  }
  return false;
}

uint64_t qn__entry_header_size(const uint8_t* header) {
  qn__reader_t reader = qn__reader_make((qn_span_t){header, QN__ENTRY_HEADER_BYTES});
  if (memcmp(qn__read_bytes(&reader, sizeof magic).data, magic, sizeof magic) != 0) return 0;
  if (qn__read_u32(&reader) != QN__ENTRY_VERSION) return 0;
  (void)qn__read_bytes(&reader, 20);
  sizes_t sizes;
  sizes.preimage = qn__read_u64(&reader);
  sizes.metadata = qn__read_u64(&reader);
  sizes.payload = qn__read_u64(&reader);
  (void)qn__read_bytes(&reader, 16);
  sizes.module = qn__read_u64(&reader);
  layout_t layout;
  return lay_out(sizes, &layout) ? layout.end : 0;
}

int64_t qn__entry_header_created(const uint8_t* header) {
  qn__reader_t reader = qn__reader_make((qn_span_t){header, QN__ENTRY_HEADER_BYTES});
  if (memcmp(qn__read_bytes(&reader, sizeof magic).data, magic, sizeof magic) != 0) return 0;
  if (qn__read_u32(&reader) != QN__ENTRY_VERSION) return 0;
  (void)qn__read_bytes(&reader, 44);
  return (int64_t)qn__read_u64(&reader);
}
