// SPDX-License-Identifier: Apache-2.0
// cache/bundle_format.c: reads and writes header, index block and trailer of a bundle.
//
// Every byte is either compared with its only legal value or covered by a checksum, so that every
// cut and every changed bit is found.
#include "cache/bundle_format.h"

#include "base/reader.h"

static const uint8_t header_magic[8] = {0x89, 'Q', 'N', 'B', '\r', '\n', 0x1A, '\n'};
static const uint8_t index_magic[8] = {0x89, 'Q', 'N', 'I', '\r', '\n', 0x1A, '\n'};
static const uint8_t trailer_magic[8] = {0x89, 'Q', 'N', 'T', '\r', '\n', 0x1A, '\n'};

#define INDEX_SEED UINT64_C(0x716e2d696e646578)
#define TRAILER_SEED UINT64_C(0x716e2d747261696c)

#define FLAG_HASHES 1u  // of an index
#define FLAG_SIGNED 1u  // of a trailer

// ----------------------------------------------------------------------------------------
// identities

bool qn__bundle_identities_add(qn__bundle_identities_t* identities, qn_span_t identity) {
  if (identity.size == 0 || identity.size >= QN__BUNDLE_IDENTITY_BYTES) return false;
  for (size_t i = 0; i < identity.size; i++) {
    if (identity.data[i] < ' ' || identity.data[i] == 0x7F) return false;
  }
  char text[QN__BUNDLE_IDENTITY_BYTES];
  memcpy(text, identity.data, identity.size);
  text[identity.size] = '\0';
  uint32_t place = 0;
  int order = 1;
  while (place < identities->count && (order = strcmp(identities->texts[place], text)) < 0) place++;
  if (place < identities->count && order == 0) return true;
  if (identities->count == QN__BUNDLE_MAX_IDENTITIES) return false;
  memmove(identities->texts[place + 1], identities->texts[place],
          (identities->count - place) * sizeof identities->texts[0]);
  memcpy(identities->texts[place], text, identity.size + 1);
  identities->count++;
  assert(place == 0 || strcmp(identities->texts[place - 1], text) < 0);
  return true;
}

// ---------------------------------------------------------------------------------------- header

void qn__bundle_header_write(uint8_t out[QN__BUNDLE_HEADER_BYTES]) {
  memset(out, 0, QN__BUNDLE_HEADER_BYTES);
  memcpy(out, header_magic, sizeof header_magic);
  (void)qn__store_le(out + 8, QN__BUNDLE_VERSION, 4);
}

bool qn__bundle_header_is_good(const uint8_t bytes[QN__BUNDLE_HEADER_BYTES]) {
  uint8_t expected[QN__BUNDLE_HEADER_BYTES];
  qn__bundle_header_write(expected);
  return memcmp(bytes, expected, sizeof expected) == 0;
}

// ---------------------------------------------------------------------------------------- trailer

// Offsets in a trailer.
enum {
  AT_VERSION = 8,
  AT_FLAGS = 12,
  AT_INDEX_OFFSET = 16,
  AT_INDEX_SIZE = 24,
  AT_COUNT = 32,
  AT_OWN_OFFSET = 40,
  AT_RESERVED = 48,
  AT_INDEX_HASH = 64,
  AT_PUBLIC_KEY = 96,
  AT_SIGNATURE = 128,
  AT_RESERVED_TAIL = 192,
  AT_CHECKSUM = 240,
};

void qn__bundle_trailer_write(const qn__bundle_trailer_t* trailer,
                              uint8_t out[QN__BUNDLE_TRAILER_BYTES]) {
  memset(out, 0, QN__BUNDLE_TRAILER_BYTES);
  memcpy(out, trailer_magic, sizeof trailer_magic);
  (void)qn__store_le(out + AT_VERSION, QN__BUNDLE_VERSION, 4);
  (void)qn__store_le(out + AT_FLAGS, trailer->is_signed ? FLAG_SIGNED : 0, 4);
  (void)qn__store_le(out + AT_INDEX_OFFSET, trailer->index_offset, 8);
  (void)qn__store_le(out + AT_INDEX_SIZE, trailer->index_size, 8);
  (void)qn__store_le(out + AT_COUNT, trailer->count, 8);
  (void)qn__store_le(out + AT_OWN_OFFSET, trailer->trailer_offset, 8);
  if (!trailer->is_signed) return;
  memcpy(out + AT_INDEX_HASH, trailer->index_hash, sizeof trailer->index_hash);
  memcpy(out + AT_PUBLIC_KEY, trailer->public_key, sizeof trailer->public_key);
}

static qn_hash128_t trailer_checksum(const uint8_t* bytes) {
  return qn__xxh128((qn_span_t){bytes, AT_CHECKSUM}, TRAILER_SEED);
}

void qn__bundle_trailer_seal(uint8_t bytes[QN__BUNDLE_TRAILER_BYTES], const uint8_t* signature) {
  if (signature) memcpy(bytes + AT_SIGNATURE, signature, QN__SIGNATURE_BYTES);
  qn_hash128_t sum = trailer_checksum(bytes);
  memcpy(bytes + AT_CHECKSUM, sum.bytes, sizeof sum.bytes);
}

uint64_t qn__bundle_trailer_distance(const uint8_t bytes[QN__BUNDLE_TRAILER_BYTES]) {
  return memcmp(bytes, trailer_magic, sizeof trailer_magic) == 0
             ? qn__load_le64(bytes + AT_OWN_OFFSET)
             : 0;
}

bool qn__bundle_trailer_read(const uint8_t bytes[QN__BUNDLE_TRAILER_BYTES], uint64_t offset,
                             qn__bundle_trailer_t* out_trailer) {
  memset(out_trailer, 0, sizeof *out_trailer);
  if (memcmp(bytes, trailer_magic, sizeof trailer_magic) != 0) return false;
  qn_hash128_t sum = trailer_checksum(bytes);
  if (memcmp(sum.bytes, bytes + AT_CHECKSUM, sizeof sum.bytes) != 0) return false;
  qn__reader_t reader = qn__reader_make((qn_span_t){bytes, QN__BUNDLE_TRAILER_BYTES});
  (void)qn__read_bytes(&reader, sizeof trailer_magic);
  uint32_t version = qn__read_u32(&reader), flags = qn__read_u32(&reader);
  if (version != QN__BUNDLE_VERSION || (flags & ~FLAG_SIGNED)) return false;
  qn__bundle_trailer_t trailer = {.is_signed = (flags & FLAG_SIGNED) != 0};
  trailer.index_offset = qn__read_u64(&reader);
  trailer.index_size = qn__read_u64(&reader);
  trailer.count = qn__read_u64(&reader);
  trailer.trailer_offset = qn__read_u64(&reader);
  if (!qn__is_zero(bytes + AT_RESERVED, AT_INDEX_HASH - AT_RESERVED) ||
      !qn__is_zero(bytes + AT_RESERVED_TAIL, AT_CHECKSUM - AT_RESERVED_TAIL) ||
      (!trailer.is_signed &&
       !qn__is_zero(bytes + AT_INDEX_HASH, AT_RESERVED_TAIL - AT_INDEX_HASH))) {
    return false;
  }
  // The index ends where the trailer starts, and the trailer names its own offset.
  if (trailer.trailer_offset != offset || trailer.index_offset < QN__BUNDLE_HEADER_BYTES ||
      trailer.index_offset % QN__ENTRY_ALIGNMENT != 0 || trailer.index_offset > offset ||
      trailer.index_size != offset - trailer.index_offset ||
      trailer.count > QN__BUNDLE_MAX_ENTRIES) {
    return false;
  }
  memcpy(trailer.index_hash, bytes + AT_INDEX_HASH, sizeof trailer.index_hash);
  memcpy(trailer.public_key, bytes + AT_PUBLIC_KEY, sizeof trailer.public_key);
  memcpy(trailer.signature, bytes + AT_SIGNATURE, sizeof trailer.signature);
  *out_trailer = trailer;
  return true;
}

void qn__bundle_message(const uint8_t trailer[QN__BUNDLE_TRAILER_BYTES],
                        uint8_t out[QN__BUNDLE_MESSAGE_BYTES]) {
  static const char domain[32] = "quern bundle signature, format 1";
  _Static_assert(QN__BUNDLE_MESSAGE_BYTES == sizeof domain + AT_SIGNATURE, "length of the message");
  memcpy(out, domain, sizeof domain);
  memcpy(out + sizeof domain, trailer, AT_SIGNATURE);
}

// ---------------------------------------------------------------------------------------- index

int qn__bundle_row_compare(const void* a, const void* b) {
  int order = memcmp(a, b, sizeof(qn_hash128_t));
  if (order) return order;
  uint64_t x = qn__bundle_row_load(a).offset, y = qn__bundle_row_load(b).offset;
  return x < y ? -1 : x > y;
}

static size_t row_bytes_of(bool has_hashes) {
  return has_hashes ? QN__BUNDLE_HASHED_ROW_BYTES : QN__BUNDLE_ROW_BYTES;
}

// Returns the size of the identities after `row_size` bytes of rows. Each identity is a length
// (u32) and its text; zeros fill the whole to a multiple of 16.
static uint64_t identities_size(const qn__bundle_identities_t* identities, uint64_t row_size) {
  uint64_t size = row_size;
  for (uint32_t i = 0; i < identities->count; i++) size += 4 + strlen(identities->texts[i]);
  return ((size + 15) & ~(uint64_t)15) - row_size;
}

bool qn__bundle_index_size(uint64_t count, bool has_hashes,
                           const qn__bundle_identities_t* identities, uint64_t* out_size) {
  if (count > QN__BUNDLE_MAX_ENTRIES) return false;
  uint64_t row_size = count * row_bytes_of(has_hashes);
  *out_size = QN__BUNDLE_INDEX_HEADER_BYTES + row_size + identities_size(identities, row_size) +
              QN__BUNDLE_CHECKSUM_BYTES;
  return true;
}

static qn_hash128_t index_checksum(const uint8_t* block, size_t size) {
  return qn__xxh128((qn_span_t){block, size - QN__BUNDLE_CHECKSUM_BYTES}, INDEX_SEED);
}

void qn__bundle_index_seal(uint64_t count, bool has_hashes,
                           const qn__bundle_identities_t* identities, uint8_t* block, size_t size) {
  memset(block, 0, QN__BUNDLE_INDEX_HEADER_BYTES);
  memcpy(block, index_magic, sizeof index_magic);
  (void)qn__store_le(block + 8, QN__BUNDLE_VERSION, 4);
  (void)qn__store_le(block + 12, has_hashes ? FLAG_HASHES : 0, 4);
  (void)qn__store_le(block + 16, size, 8);
  (void)qn__store_le(block + 24, count, 8);
  (void)qn__store_le(block + 32, identities->count, 8);
  size_t row_size = (size_t)count * row_bytes_of(has_hashes);
  assert(identities->count <= QN__BUNDLE_MAX_IDENTITIES && size % QN__ENTRY_ALIGNMENT == 0);
  uint8_t* at = block + QN__BUNDLE_INDEX_HEADER_BYTES + row_size;
  memset(at, 0, (size_t)identities_size(identities, row_size));
  for (uint32_t i = 0; i < identities->count; i++) {
    size_t length = strlen(identities->texts[i]);
    (void)qn__store_le(at, (uint32_t)length, 4);
    memcpy(at + 4, identities->texts[i], length);
    at += 4 + length;
  }
  assert(at <= block + size - QN__BUNDLE_CHECKSUM_BYTES);
  qn_hash128_t sum = index_checksum(block, size);
  memcpy(block + size - QN__BUNDLE_CHECKSUM_BYTES, sum.bytes, sizeof sum.bytes);
}

// The fields of a block's header, within their limits.
typedef struct index_header {
  uint64_t size, count, identity_count;
  bool has_hashes;
} index_header_t;

static bool read_header(const uint8_t* bytes, index_header_t* out) {
  qn__reader_t reader = qn__reader_make((qn_span_t){bytes, QN__BUNDLE_INDEX_HEADER_BYTES});
  qn_span_t magic = qn__read_bytes(&reader, sizeof index_magic);
  if (memcmp(magic.data, index_magic, sizeof index_magic) != 0) return false;
  uint32_t version = qn__read_u32(&reader), flags = qn__read_u32(&reader);
  if (version != QN__BUNDLE_VERSION || (flags & ~FLAG_HASHES)) return false;
  out->has_hashes = (flags & FLAG_HASHES) != 0;
  out->size = qn__read_u64(&reader);
  out->count = qn__read_u64(&reader);
  out->identity_count = qn__read_u64(&reader);
  if (!qn__is_zero(bytes + reader.offset, QN__BUNDLE_INDEX_HEADER_BYTES - reader.offset))
    return false;
  if (out->count > QN__BUNDLE_MAX_ENTRIES || out->identity_count > QN__BUNDLE_MAX_IDENTITIES) {
    return false;
  }
  uint64_t least = QN__BUNDLE_INDEX_HEADER_BYTES + out->count * row_bytes_of(out->has_hashes) +
                   QN__BUNDLE_CHECKSUM_BYTES;
  uint64_t most = least + QN__BUNDLE_MAX_IDENTITIES * (4 + QN__BUNDLE_IDENTITY_BYTES) + 16;
  return out->size >= least && out->size <= most && out->size % QN__ENTRY_ALIGNMENT == 0;
}

uint64_t qn__bundle_index_header_size(const uint8_t header[QN__BUNDLE_INDEX_HEADER_BYTES]) {
  index_header_t read;
  return read_header(header, &read) ? read.size : 0;
}

// Reads identities; they must be sorted and followed by zeros only.
static bool read_identities(qn_span_t bytes, uint64_t count, qn__bundle_identities_t* out) {
  qn__reader_t reader = qn__reader_make(bytes);
  out->count = 0;
  for (uint64_t i = 0; i < count; i++) {
    uint32_t length = qn__read_u32(&reader);
    if (length >= QN__BUNDLE_IDENTITY_BYTES) return false;
    qn_span_t text = qn__read_bytes(&reader, length);
    if (reader.has_overrun || !qn__bundle_identities_add(out, text)) return false;
    // An identity that is not greater than the last one is not sorted.
    const char* last = out->texts[out->count - 1];
    if (out->count != i + 1 || strlen(last) != length || memcmp(last, text.data, length) != 0) {
      return false;
    }
  }
  size_t left = qn__reader_left(&reader);
  return left < 16 && qn__is_zero(bytes.data + reader.offset, left);
}

bool qn__bundle_index_read(qn_span_t block, uint64_t end, qn__bundle_index_t* out_index,
                           qn__bundle_identities_t* out_identities) {
  index_header_t header;
  if (block.size < QN__BUNDLE_INDEX_HEADER_BYTES || !read_header(block.data, &header) ||
      header.size != block.size) {
    return false;
  }
  qn_hash128_t sum = index_checksum(block.data, block.size);
  if (memcmp(sum.bytes, block.data + block.size - sizeof sum.bytes, sizeof sum.bytes) != 0) {
    return false;
  }
  size_t row_bytes = row_bytes_of(header.has_hashes);
  const uint8_t* rows = block.data + QN__BUNDLE_INDEX_HEADER_BYTES;
  for (uint64_t i = 0; i < header.count; i++) {
    const uint8_t* at = rows + i * row_bytes;
    qn__bundle_row_t row = qn__bundle_row_load(at);
    if (!qn__bundle_row_is_sound(&row, end)) return false;
    if (i > 0 && memcmp(at - row_bytes, at, sizeof row.key.bytes) >= 0) return false;
  }
  const uint8_t* texts = rows + header.count * row_bytes;
  assert(texts <= block.data + block.size - QN__BUNDLE_CHECKSUM_BYTES);  // by read_header
  qn_span_t rest = {texts, (size_t)(block.data + block.size - QN__BUNDLE_CHECKSUM_BYTES - texts)};
  qn__bundle_identities_t* identities = out_identities;
  qn__bundle_identities_t unused;
  if (!read_identities(rest, header.identity_count, identities ? identities : &unused)) {
    return false;
  }
  *out_index = (qn__bundle_index_t){header.count, row_bytes, rows};
  return true;
}
