// SPDX-License-Identifier: Apache-2.0
// cache/bundle.c: reads entries from an open bundle.
//
// Requirements:
// 1. Opening reads header, trailer and index, but no entry. A search reads memory only.
// 2. A get costs one search, one pread and the verification of the entry, in a reused buffer. The
//    file is not mapped: if it shrank, reading the mapping would raise SIGBUS.
// 3. The descriptor identifies the bundle. A file that replaces it under its name is another
//    bundle; the checksum of each entry finds changes in place.
// 4. A bundle that must be signed returns only what the signature covers: the signature covers the
//    trailer, the hash in the trailer covers the index, the hash in each row covers its entry.
// 5. There is no lock, so a fork finds everything whole.
//
// Not here: opening (bundle_open.c), the layout (bundle_format.c), writing (bundle_write.c).
#include "cache/bundle.h"

#include <errno.h>

#include "base/fs.h"
#include "cache/bundle_inner.h"

#define COUNT(bundle, name, amount) \
  qn__counter_add(&(bundle)->counters[QN__BUNDLE_COUNTER_##name], (amount))

// ---------------------------------------------------------------------------------------- get

const uint8_t* qn__bundle_find_row(const qn__bundle_t* bundle, const qn_hash128_t* key) {
  size_t bucket = 0;
  if (bundle->fanout_bits)
    bucket = (size_t)(qn__bundle_prefix(key->bytes) >> (64 - bundle->fanout_bits));
  uint64_t low = bundle->fanout[bucket], high = bundle->fanout[bucket + 1];
  assert(low <= high && high <= bundle->count);
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    const uint8_t* at = bundle->rows + middle * bundle->row_bytes;
    int order = memcmp(at, key->bytes, sizeof key->bytes);
    if (order == 0) return at;
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return NULL;
}

static bool is_forged(const qn__bundle_t* bundle, const uint8_t* row, qn_span_t bytes) {
  if (!bundle->crypto) return false;
  assert(bundle->row_bytes == QN__BUNDLE_HASHED_ROW_BYTES);  // or the open had failed
  uint8_t hash[QN__SECURE_HASH_BYTES];
  bundle->crypto->hash(bytes, hash);
  return memcmp(hash, row + QN__BUNDLE_ROW_BYTES, QN__BUNDLE_HASH_BYTES) != 0;
}

// Reads and verifies the entry of a row. With `expected` NULL it must have the row's key.
static qn__get_result_t read_entry(qn__bundle_t* bundle, const uint8_t* row_bytes,
                                   const qn__expectation_t* expected, qn__hit_t* hit) {
  qn__bundle_row_t row = qn__bundle_row_load(row_bytes);
  assert(qn__bundle_row_is_sound(&row, bundle->file_size));
  uint8_t* bytes = qn__scratch_take(&bundle->scratch, (size_t)row.size);
  if (!bytes) return QN__GET_NO_MEMORY;
  qn_span_t span = {bytes, (size_t)row.size};
  qn__get_result_t result = QN__GET_HIT;
  int error = qn__bundle_pread(bundle, bytes, span.size, row.offset);
  if (error == ENODATA) {
    hit->reason = QN__REASON_TRUNCATED;
    result = QN__GET_BAD;
  } else if (error) {
    hit->error = error;
    result = QN__GET_ERROR;
  } else if (is_forged(bundle, row_bytes, span)) {
    result = QN__GET_UNTRUSTED;
  } else {
    hit->reason = qn__entry_decode(span, expected, &hit->entry);
    if (hit->reason == QN__REASON_NONE && !qn__hash128_equal(hit->entry.key, row.key)) {
      hit->reason = QN__REASON_KEY;
    }
    if (hit->reason != QN__REASON_NONE) result = QN__GET_BAD;
  }
  if (result == QN__GET_HIT) {
    hit->bytes = bytes;
    hit->size_bytes = span.size;
  } else {
    qn__scratch_give(&bundle->scratch, bytes);
    memset(&hit->entry, 0, sizeof hit->entry);
  }
  return result;
}

static void count_result(qn__bundle_t* bundle, qn__get_result_t result, const qn__hit_t* hit) {
  static const qn__bundle_counter_t counters[] = {
      [QN__GET_HIT] = QN__BUNDLE_COUNTER_bundle_hits,
      [QN__GET_ABSENT] = QN__BUNDLE_COUNTER_bundle_misses,
      [QN__GET_ERROR] = QN__BUNDLE_COUNTER_bundle_read_errors,
      [QN__GET_UNTRUSTED] = QN__BUNDLE_COUNTER_bundle_forged,
      [QN__GET_NO_MEMORY] = QN__BUNDLE_COUNTER_bundle_no_memory,
  };
  if (result == QN__GET_BAD) {
    qn__reason_count(hit->reason, &bundle->counters[QN__BUNDLE_COUNTER_bundle_bad_truncated]);
  } else if (!QN_NEVER(result >= QN_COUNT_OF(counters))) {
    qn__counter_add(&bundle->counters[counters[result]], 1);
  }
  if (result == QN__GET_HIT) COUNT(bundle, bundle_bytes_read, hit->size_bytes);
}

qn__get_result_t qn__bundle_get(qn__bundle_t* bundle, const qn__expectation_t* expected,
                                qn__hit_t* out_hit) {
  memset(out_hit, 0, sizeof *out_hit);
  const uint8_t* row = qn__bundle_find_row(bundle, &expected->key);
  qn__get_result_t result = row ? read_entry(bundle, row, expected, out_hit) : QN__GET_ABSENT;
  count_result(bundle, result, out_hit);
  return result;
}

qn__get_result_t qn__bundle_read(qn__bundle_t* bundle, uint64_t index, qn__hit_t* out_hit) {
  memset(out_hit, 0, sizeof *out_hit);
  if (index >= bundle->count) return QN__GET_ABSENT;
  return read_entry(bundle, bundle->rows + index * bundle->row_bytes, NULL, out_hit);
}

void qn__bundle_hit_release(qn__bundle_t* bundle, qn__hit_t* hit) {
  if (!hit->bytes) return;
  qn__scratch_give(&bundle->scratch, hit->bytes);
  memset(hit, 0, sizeof *hit);
}

// ---------------------------------------------------------------------------------------- looks

uint64_t qn__bundle_count(const qn__bundle_t* bundle) {
  return bundle->count;
}
const char* qn__bundle_path(const qn__bundle_t* bundle) {
  return bundle->path;
}
bool qn__bundle_is_truncated(const qn__bundle_t* bundle) {
  return bundle->is_truncated;
}
uint64_t qn__bundle_size(const qn__bundle_t* bundle) {
  return bundle->file_size;
}
const uint8_t* qn__bundle_signer(const qn__bundle_t* bundle) {
  return bundle->is_signed ? bundle->signer : NULL;
}
uint32_t qn__bundle_identity_count(const qn__bundle_t* bundle) {
  return bundle->identities.count;
}
const char* qn__bundle_identity(const qn__bundle_t* bundle, uint32_t index) {
  return bundle->identities.texts[index];
}

qn_hash128_t qn__bundle_key(const qn__bundle_t* bundle, uint64_t index) {
  return qn__bundle_row_load(bundle->rows + index * bundle->row_bytes).key;
}
uint64_t qn__bundle_entry_size(const qn__bundle_t* bundle, uint64_t index) {
  return qn__bundle_row_load(bundle->rows + index * bundle->row_bytes).size;
}

int64_t qn__bundle_created_ns(const qn__bundle_t* bundle, uint64_t index) {
  qn__bundle_row_t row = qn__bundle_row_load(bundle->rows + index * bundle->row_bytes);
  uint8_t bytes[QN__ENTRY_HEADER_BYTES];
  qn__entry_header_t header;
  bool is_read = qn__bundle_pread(bundle, bytes, sizeof bytes, row.offset) == 0 &&
                 qn__entry_header_read(bytes, &header);
  return is_read ? header.created_ns : 0;
}

static const qn__counter_row_t counter_rows[QN__BUNDLE_COUNTER_COUNT] = {
#define QN_COUNTER(name, doc) {#name, doc},
#include "cache/bundle_counters.inc"
#undef QN_COUNTER
};

qn__counter_set_t qn__bundle_counters(const qn__bundle_t* bundle) {
  return (qn__counter_set_t){counter_rows, bundle->counters, QN_COUNT_OF(counter_rows)};
}
