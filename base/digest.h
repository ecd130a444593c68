// SPDX-License-Identifier: Apache-2.0
// base/digest.h: XXH3-128 for keys and checksums, and SHA-256 as the second digest of a module: a
// collision of one is found by the other.
#ifndef QUERN_BASE_DIGEST_H_
#define QUERN_BASE_DIGEST_H_

#include "base/base.h"
#include "quern/quern.h"

// Returns XXH3-128 as canonical (big-endian) bytes.
qn_hash128_t qn__xxh128(qn_span_t bytes, uint64_t seed);

typedef struct qn__sha256 {
  uint8_t bytes[32];
} qn__sha256_t;
qn__sha256_t qn__sha256(qn_span_t bytes);

// Writes 32 hexadecimal digits and a terminator.
void qn__hash128_hex(qn_hash128_t hash, char out[33]);
// The same as the public type of keys.
qn_cache_key_t qn__hash128_key(qn_hash128_t hash);
// False unless `text` is exactly 32 lower-case hexadecimal digits.
bool qn__hash128_parse(qn_str_t text, qn_hash128_t* out_hash);

#endif  // QUERN_BASE_DIGEST_H_
