// SPDX-License-Identifier: Apache-2.0
// base/base.c: lists, hexadecimal digits, and the edit distance for "did you mean".
#include "base/base.h"

// Names are short; a longer text matches none.
#define LONGEST_NAME 127

bool qn__list_next(const char** inout_list, char separator, qn_str_t* out_part) {
  const char* at = *inout_list;
  while (at && *at == separator) at++;
  *out_part = (qn_str_t){at, 0};
  while (at && *at && *at != separator) at++;
  out_part->size = (size_t)(at - out_part->data);
  *inout_list = at;
  return out_part->size > 0;
}

char* qn__hex(char* out, const uint8_t* bytes, size_t size) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < size; i++) {
    *out++ = digits[bytes[i] >> 4];
    *out++ = digits[bytes[i] & 15];
  }
  return out;
}

int qn__hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

// Optimal string alignment: an insertion, a deletion, a replacement and a swap of neighbours cost
// one each. Swapped letters are the most common typing error.
size_t qn__edit_distance(qn_str_t a, qn_str_t b, size_t limit) {
  size_t difference = a.size > b.size ? a.size - b.size : b.size - a.size;
  if (difference > limit || a.size > LONGEST_NAME || b.size > LONGEST_NAME) return limit + 1;
  size_t rows[3][LONGEST_NAME + 1];
  size_t *before = rows[0], *above = rows[1], *row = rows[2];
  for (size_t j = 0; j <= b.size; j++) above[j] = j;
  for (size_t i = 1; i <= a.size; i++) {
    row[0] = i;
    size_t best = i;
    for (size_t j = 1; j <= b.size; j++) {
      size_t replace = above[j - 1] + (a.data[i - 1] != b.data[j - 1]);
      row[j] = smaller(replace, smaller(above[j], row[j - 1]) + 1);
      if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] && a.data[i - 2] == b.data[j - 1]) {
        row[j] = smaller(row[j], before[j - 2] + 1);
      }
      best = smaller(best, row[j]);
    }
    // A swap reaches back two rows, so one row above the limit does not decide yet.
    if (best > limit + 1) return limit + 1;
    size_t* oldest = before;
    before = above;
    above = row;
    row = oldest;
  }
  return above[b.size] <= limit ? above[b.size] : limit + 1;
}
