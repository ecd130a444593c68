// SPDX-License-Identifier: Apache-2.0
// base/escape.c: shows text from outside without letting it act on a terminal.
#include "base/escape.h"

#include <stdio.h>

size_t qn__utf8_decode(qn_str_t text, uint32_t* out_code) {
  const uint8_t* s = (const uint8_t*)text.data;
  size_t size = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
  if (size == 0 || s[0] > 0xF4 || text.size < size) return 0;
  static const uint8_t masks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  uint32_t code = s[0] & masks[size];
  for (size_t i = 1; i < size; i++) {
    if ((s[i] & 0xC0) != 0x80) return 0;
    code = code << 6 | (s[i] & 0x3Fu);
  }
  // Overlong forms, surrogates and values above U+10FFFF are malformed.
  static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < smallest[size] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return 0;
  *out_code = code;
  return size;
}

bool qn__is_control(uint32_t code) {
  if (code < 0xA0) return code < 0x20 || code >= 0x7F;
  return code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

size_t qn_text_escape(const char* text, size_t size, bool keeps_lines, char* out, size_t capacity) {
  size_t length = 0;
  for (size_t i = 0; i < size;) {
    char escape[8];
    const char* piece = text + i;
    uint32_t code = 0;
    size_t taken = qn__utf8_decode((qn_str_t){text + i, size - i}, &code);
    size_t piece_size = taken;
    bool is_kept = keeps_lines && (*piece == '\n' || *piece == '\t');
    if (taken == 0 || (qn__is_control(code) && !is_kept)) {
      int written = snprintf(escape, sizeof escape, taken > 1 ? "\\u%04x" : "\\x%02x",
                             taken ? (unsigned)code : (unsigned)(uint8_t)*piece);
      piece = escape;
      piece_size = (size_t)written;
      taken = taken ? taken : 1;
    }
    // A text that does not fit ends after its last whole piece.
    if (length + piece_size < capacity) {
      memcpy(out + length, piece, piece_size);
      out[length + piece_size] = '\0';
    } else if (length < capacity) {
      out[length] = '\0';
      capacity = 0;
    }
    length += piece_size;
    i += taken;
  }
  if (length == 0 && capacity > 0) out[0] = '\0';
  return length;
}
