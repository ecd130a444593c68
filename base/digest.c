// SPDX-License-Identifier: Apache-2.0
// base/digest.c: XXH3-128 by the xxHash library, SHA-256 of our own (FIPS 180-4), and hexadecimal.
//
// An attacker can construct two inputs with one XXH3; SHA-256 resists that.
#include "base/digest.h"

#include <xxhash.h>

#if defined(__x86_64__)
// Distributions build xxHash for the oldest x86-64. Some add a second set of functions that choose
// AVX2 or AVX-512 at run time. The weak reference uses them where they exist.
XXH128_hash_t XXH3_128bits_withSeed_dispatch(const void* input, size_t size, XXH64_hash_t seed)
    __attribute__((weak));
#endif

static XXH128_hash_t hash_bytes(qn_span_t bytes, uint64_t seed) {
#if defined(__x86_64__)
  if (XXH3_128bits_withSeed_dispatch && bytes.size > 240) {
    return XXH3_128bits_withSeed_dispatch(bytes.data, bytes.size, seed);
  }
#endif
  return XXH3_128bits_withSeed(bytes.data, bytes.size, seed);
}

qn_hash128_t qn__xxh128(qn_span_t bytes, uint64_t seed) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash_bytes(bytes, seed));
  qn_hash128_t hash;
  memcpy(hash.bytes, canonical.digest, sizeof hash.bytes);
  return hash;
}

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t x, unsigned n) {
  return (x >> n) | (x << (32 - n));
}

static void sha256_block(uint32_t state[8], const uint8_t block[64]) {
  uint32_t w[64];
  for (size_t i = 0; i < 16; i++) {
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
           (uint32_t)block[4 * i + 2] << 8 | (uint32_t)block[4 * i + 3];
  }
  for (size_t i = 16; i < 64; i++) {
    uint32_t low = rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ (w[i - 15] >> 3);
    uint32_t high = rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + low + w[i - 7] + high;
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (size_t i = 0; i < 64; i++) {
    uint32_t sum1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
    uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
    uint32_t sum0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
    uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t v[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; i++) state[i] += v[i];
}

qn__sha256_t qn__sha256(qn_span_t bytes) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  size_t offset = 0;
  for (; bytes.size - offset >= 64; offset += 64) sha256_block(state, bytes.data + offset);
  // The last bytes, a one bit, zeros and the length in bits fill one block or two.
  uint8_t tail[128] = {0};
  size_t rest = bytes.size - offset;
  assert(rest < 64);
  if (rest) memcpy(tail, bytes.data + offset, rest);
  tail[rest] = 0x80;
  size_t tail_size = rest < 56 ? 64 : 128;
  uint64_t bit_count = (uint64_t)bytes.size * 8;
  for (size_t i = 0; i < 8; i++) tail[tail_size - 1 - i] = (uint8_t)(bit_count >> (8 * i));
  for (size_t i = 0; i < tail_size; i += 64) sha256_block(state, tail + i);
  qn__sha256_t digest;
  for (size_t i = 0; i < 32; i++) digest.bytes[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

void qn__hash128_hex(qn_hash128_t hash, char out[33]) {
  *qn__hex(out, hash.bytes, sizeof hash.bytes) = '\0';
}

qn_cache_key_t qn__hash128_key(qn_hash128_t hash) {
  qn_cache_key_t key;
  qn__hash128_hex(hash, key.hex);
  return key;
}

bool qn__hash128_parse(qn_str_t text, qn_hash128_t* out_hash) {
  if (text.size != 32) return false;
  qn_hash128_t hash;
  for (size_t i = 0; i < 16; i++) {
    int high = qn__hex_digit(text.data[2 * i]), low = qn__hex_digit(text.data[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    hash.bytes[i] = (uint8_t)(high << 4 | low);
  }
  char canonical[33];
  qn__hash128_hex(hash, canonical);
  *out_hash = hash;
  return memcmp(canonical, text.data, text.size) == 0;
}
