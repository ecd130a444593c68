// SPDX-License-Identifier: Apache-2.0
// serve/unicode.h: what the Python package `tokenizers` does with each code point, and UTF-8.
//
// The tables are generated from the package itself (tools/dev/make-unicode-tables), because its own
// tables belong to several versions of Unicode: those of a library would differ on hundreds of
// assigned code points.
#ifndef QUERN_SERVE_UNICODE_H_
#define QUERN_SERVE_UNICODE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  SERVE_UNICODE_DROP = 1,         // removed by clean_text: controls, formats, unassigned, U+FFFD
  SERVE_UNICODE_SPACE = 2,        // white space; some of it is also DROP
  SERVE_UNICODE_PUNCTUATION = 4,  // a word of its own
  SERVE_UNICODE_MARK = 8,         // removed by strip_accents, after the decomposition
  SERVE_UNICODE_CHINESE = 16,     // a word of its own with handle_chinese_chars
  SERVE_UNICODE_DECOMPOSES = 32,  // serve_unicode_decompose changes it
  SERVE_UNICODE_WORD = 64,        // beside it an added token with single_word is not found
  SERVE_UNICODE_LAST = 0x10FFFF,  // the last code point
  SERVE_UNICODE_REPLACEMENT = 0xFFFD,
  SERVE_UNICODE_MAX_PARTS = 3,
  SERVE_UNICODE_LEAF_BITS = 5,
  SERVE_UNICODE_MIDDLE_BITS = 6,
};

// What many code points have in common.
typedef struct serve_unicode_kind {
  uint8_t flags;  // SERVE_UNICODE_*
  uint8_t order;  // rank of the canonical combining class; 0: starts a sequence
  int32_t lower;  // added to the code point gives its lower case
} serve_unicode_kind_t;

// Three levels: the top by the high bits gives a middle block, which gives a leaf, which gives a
// kind.
extern const serve_unicode_kind_t serve_unicode_kinds[];
extern const uint8_t serve_unicode_leaves[];
extern const uint16_t serve_unicode_middles[];
extern const uint8_t serve_unicode_top[];

// Returns the kind of a code point up to SERVE_UNICODE_LAST.
static inline const serve_unicode_kind_t* serve_unicode_kind(uint32_t code_point) {
  const uint32_t leaf = code_point >> SERVE_UNICODE_LEAF_BITS;
  const uint32_t top = serve_unicode_top[leaf >> SERVE_UNICODE_MIDDLE_BITS];
  const uint32_t in_middle = leaf & ((1u << SERVE_UNICODE_MIDDLE_BITS) - 1);
  const uint32_t middle = serve_unicode_middles[(top << SERVE_UNICODE_MIDDLE_BITS) | in_middle];
  const uint32_t in_leaf = code_point & ((1u << SERVE_UNICODE_LEAF_BITS) - 1);
  return &serve_unicode_kinds[serve_unicode_leaves[(middle << SERVE_UNICODE_LEAF_BITS) | in_leaf]];
}

// Writes the canonical decomposition of a code point that has the flag DECOMPOSES, and returns its
// length. Parts after the first that have the flag MARK are left out.
uint32_t serve_unicode_decompose(uint32_t code_point, uint32_t out_parts[SERVE_UNICODE_MAX_PARTS]);

// The one code point whose lower case has two: U+0130.
enum { SERVE_UNICODE_TWO_LOWER = 0x130, SERVE_UNICODE_SECOND_LOWER = 0x307 };

// Reads a code point from `at` < `end` and returns the number of its bytes. Invalid bytes give
// U+FFFD as in Python's decode(errors="replace"): one for each longest beginning of a valid
// sequence, and at least one byte. `out_is_valid` says which of both it was.
uint32_t serve_utf8_read(const uint8_t* at, const uint8_t* end, uint32_t* out_code_point,
                         bool* out_is_valid);
// Writes a code point and returns the number of its bytes, at most 4.
uint32_t serve_utf8_write(uint32_t code_point, uint8_t out_bytes[4]);
// Returns the offset of the first byte that is not UTF-8; `size` if all is.
size_t serve_utf8_check(const void* text, size_t size);

#endif  // QUERN_SERVE_UNICODE_H_
