// SPDX-License-Identifier: Apache-2.0
// cache/bundle_format.h: the bytes of a bundle that are not entries: header, index block, trailer.
//
// docs/bundles.md has the layout byte by byte. The readers accept any bytes: they compare every
// size with the file before they use it.
//
// Not here: files (bundle_open.c, bundle_write.c). Pure functions.
#ifndef QUERN_CACHE_BUNDLE_FORMAT_H_
#define QUERN_CACHE_BUNDLE_FORMAT_H_

#include "cache/crypto.h"
#include "cache/entry.h"

#define QN__BUNDLE_VERSION 1u
#define QN__BUNDLE_HEADER_BYTES 64u
#define QN__BUNDLE_TRAILER_BYTES 256u
// Bytes of an index block before its rows, and of its checksum.
#define QN__BUNDLE_INDEX_HEADER_BYTES 64u
#define QN__BUNDLE_CHECKSUM_BYTES 16u
#define QN__BUNDLE_ROW_BYTES 32u  // key, offset, size
// A row of a signed bundle also has the first 24 bytes of the BLAKE2b-256 of its entry. 192 bits
// are enough against a second entry with the same hash, and opening a signed bundle mostly hashes
// rows.
#define QN__BUNDLE_HASH_BYTES 24u
#define QN__BUNDLE_HASHED_ROW_BYTES (QN__BUNDLE_ROW_BYTES + QN__BUNDLE_HASH_BYTES)
#define QN__BUNDLE_MAX_ENTRIES ((uint64_t)1 << 22)
// Bytes of the trailer that a signature covers.
#define QN__BUNDLE_SIGNED_BYTES 128u

// Identities of the code generators that compiled the entries, each terminated.
#define QN__BUNDLE_MAX_IDENTITIES 64u
#define QN__BUNDLE_IDENTITY_BYTES 256u
typedef struct qn__bundle_identities {
  uint32_t count;
  char texts[QN__BUNDLE_MAX_IDENTITIES][QN__BUNDLE_IDENTITY_BYTES];  // sorted
} qn__bundle_identities_t;
// Inserts an identity unless it is there. False when there is no room, or for bytes that are no
// text.
bool qn__bundle_identities_add(qn__bundle_identities_t* identities, qn_span_t identity);

// One row of an index.
typedef struct qn__bundle_row {
  qn_hash128_t key;
  uint64_t offset;  // of the entry in the file
  uint64_t size;
} qn__bundle_row_t;

static inline qn__bundle_row_t qn__bundle_row_load(const uint8_t* bytes) {
  qn__bundle_row_t row = {.offset = qn__load_le64(bytes + 16), .size = qn__load_le64(bytes + 24)};
  memcpy(row.key.bytes, bytes, sizeof row.key.bytes);
  return row;
}
static inline void qn__bundle_row_store(const qn__bundle_row_t* row, uint8_t* out) {
  memcpy(out, row->key.bytes, sizeof row->key.bytes);
  (void)qn__store_le(out + 16, row->offset, 8);
  (void)qn__store_le(out + 24, row->size, 8);
}
// Compares rows of either size for qsort: by key, then by offset.
int qn__bundle_row_compare(const void* a, const void* b);
// True when the row names a place before `end` that an entry can have.
static inline bool qn__bundle_row_is_sound(const qn__bundle_row_t* row, uint64_t end) {
  return row->offset >= QN__BUNDLE_HEADER_BYTES && row->offset % QN__ENTRY_ALIGNMENT == 0 &&
         row->size >= QN__ENTRY_HEADER_BYTES + QN__ENTRY_CHECKSUM_BYTES &&
         row->size % QN__ENTRY_ALIGNMENT == 0 && row->size <= QN__ENTRY_MAX_BYTES &&
         row->offset <= end && row->size <= end - row->offset;
}

// Writes and checks the header, which is constant.
void qn__bundle_header_write(uint8_t out[QN__BUNDLE_HEADER_BYTES]);
bool qn__bundle_header_is_good(const uint8_t bytes[QN__BUNDLE_HEADER_BYTES]);

typedef struct qn__bundle_trailer {
  uint64_t index_offset, index_size;
  uint64_t count;
  uint64_t trailer_offset;  // of this trailer
  bool is_signed;
  uint8_t index_hash[QN__SECURE_HASH_BYTES];  // BLAKE2b-256 of the index block, if signed
  uint8_t public_key[QN__PUBLIC_KEY_BYTES];
  uint8_t signature[QN__SIGNATURE_BYTES];
} qn__bundle_trailer_t;
// Writes all but signature and checksum.
void qn__bundle_trailer_write(const qn__bundle_trailer_t* trailer,
                              uint8_t out[QN__BUNDLE_TRAILER_BYTES]);
// Writes the signature (NULL: none) and the checksum.
void qn__bundle_trailer_seal(uint8_t bytes[QN__BUNDLE_TRAILER_BYTES], const uint8_t* signature);
// True when the bytes are a whole trailer at `offset` of its file.
bool qn__bundle_trailer_read(const uint8_t bytes[QN__BUNDLE_TRAILER_BYTES], uint64_t offset,
                             qn__bundle_trailer_t* out_trailer);
// Returns the offset that a trailer says it has in its bundle, unverified; 0 for other bytes.
uint64_t qn__bundle_trailer_distance(const uint8_t bytes[QN__BUNDLE_TRAILER_BYTES]);
// The signed message: a constant text, which keeps signatures of other things apart, and the start
// of the trailer.
#define QN__BUNDLE_MESSAGE_BYTES (32u + QN__BUNDLE_SIGNED_BYTES)
void qn__bundle_message(const uint8_t trailer[QN__BUNDLE_TRAILER_BYTES],
                        uint8_t out[QN__BUNDLE_MESSAGE_BYTES]);

// An index block.
typedef struct qn__bundle_index {
  uint64_t count;
  size_t row_bytes;     // 32 or 56
  const uint8_t* rows;  // borrowed from the block
} qn__bundle_index_t;
// Computes the size of a block; false when it exceeds the limits.
bool qn__bundle_index_size(uint64_t count, bool has_hashes,
                           const qn__bundle_identities_t* identities, uint64_t* out_size);
// Writes everything around the rows, which the caller has put at QN__BUNDLE_INDEX_HEADER_BYTES.
void qn__bundle_index_seal(uint64_t count, bool has_hashes,
                           const qn__bundle_identities_t* identities, uint8_t* block, size_t size);
// Returns the size of the block by its header; 0 for other bytes.
uint64_t qn__bundle_index_header_size(const uint8_t header[QN__BUNDLE_INDEX_HEADER_BYTES]);
// True when the block is whole, its keys rise strictly, and its rows lie before `end`.
// `out_identities` may be NULL.
bool qn__bundle_index_read(qn_span_t block, uint64_t end, qn__bundle_index_t* out_index,
                           qn__bundle_identities_t* out_identities);

#endif  // QUERN_CACHE_BUNDLE_FORMAT_H_
