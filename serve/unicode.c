// SPDX-License-Identifier: Apache-2.0
// unicode.c: lookups in the generated tables, and UTF-8.
#include "serve/unicode.h"

// Code points from `first` on, whose decompositions are serve_unicode_values from `value` on.
typedef struct serve_unicode_run {
  uint32_t first;
  uint16_t count;
  uint16_t value;
} serve_unicode_run_t;

// A value is a code point, or this: `count` code points of serve_unicode_parts.
#define SERVE_UNICODE_PARTS(at, count) (((uint32_t)(count) << 24) | (at))

extern const serve_unicode_run_t serve_unicode_runs[];
extern const uint32_t serve_unicode_values[];
extern const uint32_t serve_unicode_parts[];

#include "serve/unicode_tables.inc"

_Static_assert(sizeof serve_unicode_top == (SERVE_UNICODE_LAST + 1) >> (SERVE_UNICODE_LEAF_BITS +
                                                                        SERVE_UNICODE_MIDDLE_BITS),
               "tools/dev/make-unicode-tables has other bits");

enum { HANGUL_FIRST = 0xAC00, HANGUL_COUNT = 11172, HANGUL_VOWELS = 21, HANGUL_TAILS = 28 };

uint32_t serve_unicode_decompose(uint32_t code_point, uint32_t out_parts[SERVE_UNICODE_MAX_PARTS]) {
  const uint32_t syllable = code_point - HANGUL_FIRST;
  if (syllable < HANGUL_COUNT) {
    const uint32_t tail = syllable % HANGUL_TAILS;
    out_parts[0] = 0x1100 + syllable / (HANGUL_VOWELS * HANGUL_TAILS);
    out_parts[1] = 0x1161 + syllable / HANGUL_TAILS % HANGUL_VOWELS;
    out_parts[2] = 0x11A7 + tail;
    return tail ? 3 : 2;
  }
  uint32_t low = 0;
  uint32_t high = sizeof serve_unicode_runs / sizeof serve_unicode_runs[0];
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (serve_unicode_runs[middle].first <= code_point) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const serve_unicode_run_t* run = &serve_unicode_runs[low];
  if (code_point - run->first >= run->count) {
    out_parts[0] = code_point;
    return 1;
  }
  const uint32_t value = serve_unicode_values[run->value + (code_point - run->first)];
  const uint32_t count = value >> 24;
  if (count == 0) {
    out_parts[0] = value;
    return 1;
  }
  for (uint32_t i = 0; i < count; i++) {
    out_parts[i] = serve_unicode_parts[(value & 0xFFFFFF) + i];
  }
  return count;
}

// Returns the number of bytes of the longest beginning of a valid sequence, and sets its value if
// it is whole. The second byte's range depends on the first (Unicode, table 3-7).
static uint32_t read_sequence(const uint8_t* at, const uint8_t* end, uint32_t* out_code_point,
                              bool* out_is_valid) {
  const uint8_t first = at[0];
  uint8_t least = 0x80;
  uint8_t most = 0xBF;
  uint32_t size;
  uint32_t value;
  if (first < 0xC2 || first > 0xF4) return 1;
  if (first < 0xE0) {
    size = 2;
    value = first & 0x1F;
  } else if (first < 0xF0) {
    size = 3;
    value = first & 0x0F;
    if (first == 0xE0) least = 0xA0;
    if (first == 0xED) most = 0x9F;
  } else {
    size = 4;
    value = first & 0x07;
    if (first == 0xF0) least = 0x90;
    if (first == 0xF4) most = 0x8F;
  }
  for (uint32_t i = 1; i < size; i++) {
    if (at + i == end || at[i] < least || at[i] > most) return i;
    value = (value << 6) | (at[i] & 0x3F);
    least = 0x80;
    most = 0xBF;
  }
  *out_code_point = value;
  *out_is_valid = true;
  return size;
}

uint32_t serve_utf8_read(const uint8_t* at, const uint8_t* end, uint32_t* out_code_point,
                         bool* out_is_valid) {
  if (*at < 0x80) {
    *out_code_point = *at;
    *out_is_valid = true;
    return 1;
  }
  *out_code_point = SERVE_UNICODE_REPLACEMENT;
  *out_is_valid = false;
  return read_sequence(at, end, out_code_point, out_is_valid);
}

uint32_t serve_utf8_write(uint32_t code_point, uint8_t out_bytes[4]) {
  if (code_point < 0x80) {
    out_bytes[0] = (uint8_t)code_point;
    return 1;
  }
  const uint32_t size = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
  for (uint32_t i = size - 1; i > 0; i--) {
    out_bytes[i] = (uint8_t)(0x80 | (code_point & 0x3F));
    code_point >>= 6;
  }
  out_bytes[0] = (uint8_t)((0xF00 >> size) | code_point);
  return size;
}

size_t serve_utf8_check(const void* text, size_t size) {
  const uint8_t* at = text;
  const uint8_t* end = at + size;
  while (at < end) {
    uint32_t code_point;
    bool is_valid;
    const uint32_t length = serve_utf8_read(at, end, &code_point, &is_valid);
    if (!is_valid) break;
    at += length;
  }
  return (size_t)(at - (const uint8_t*)text);
}
