// SPDX-License-Identifier: Apache-2.0
// base/base.h: what every other file may use: statuses, views, checked sizes, assertions.
//
// Not here: memory (alloc.h, arena.h), growing text and bytes (buffer.h), parsing bytes (reader.h).
#ifndef QUERN_BASE_BASE_H_
#define QUERN_BASE_BASE_H_

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "quern/status.h"

// Returns the status of `expr` to the caller unless it is ok.
#define QN_TRY(expr)                     \
  do {                                   \
    qn_status_t qn_try_ = (expr);        \
    if (!qn_ok(qn_try_)) return qn_try_; \
  } while (0)

// True when `x`, which cannot happen, did. Stops a debug build; stays a branch in release.
#define QN_NEVER(x) ((x) ? (assert(false && "never: " #x), true) : false)

#define QN_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

// A borrowed text, not terminated.
typedef struct qn_str {
  const char* data;
  size_t size;
} qn_str_t;

#define QN_STR(literal) ((qn_str_t){(literal), sizeof(literal) - 1})
// The same for the members of constant tables.
#define QN_STR_INIT(literal) {(literal), sizeof(literal) - 1}
// For printf: "%.*s".
#define QN_STR_ARG(str) (int)(str).size, (str).data

static inline qn_str_t qn__str(const char* text) {
  return (qn_str_t){text, text ? strlen(text) : 0};
}
static inline bool qn__str_equal(qn_str_t a, qn_str_t b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

// Copies a text and terminates it. False when it does not fit.
static inline bool qn__str_copy(qn_str_t text, char* out, size_t capacity) {
  if (text.size >= capacity) return false;
  if (text.size > 0) memcpy(out, text.data, text.size);
  out[text.size] = '\0';
  return true;
}
// Takes the next part that is not empty off a list, "a:b". False after the last part, and for a
// NULL list.
bool qn__list_next(const char** inout_list, char separator, qn_str_t* out_part);

// Borrowed bytes.
typedef struct qn_span {
  const uint8_t* data;
  size_t size;
} qn_span_t;

static inline bool qn__span_equal(qn_span_t a, qn_span_t b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

// Checked size arithmetic. False on overflow; `out` has not changed then.
static inline bool qn__size_add(size_t a, size_t b, size_t* out) {
  size_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return false;
  *out = sum;
  return true;
}
static inline bool qn__size_mul(size_t a, size_t b, size_t* out) {
  size_t product;
  if (__builtin_mul_overflow(a, b, &product)) return false;
  *out = product;
  return true;
}

// A 128-bit digest or key. Printed as 32 lower-case hexadecimal digits, byte 0 first.
typedef struct qn_hash128 {
  uint8_t bytes[16];
} qn_hash128_t;

static inline bool qn__hash128_equal(qn_hash128_t a, qn_hash128_t b) {
  return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

// Little-endian integers in bytes.
static inline uint32_t qn__load_le32(const uint8_t* bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
         (uint32_t)bytes[3] << 24;
}
static inline uint64_t qn__load_le64(const uint8_t* bytes) {
  return qn__load_le32(bytes) | (uint64_t)qn__load_le32(bytes + 4) << 32;
}
// Stores the low `size` bytes of an integer. Returns the byte after them.
static inline uint8_t* qn__store_le(uint8_t* bytes, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(value >> (8 * i));
  return bytes + size;
}

// True when all bytes are zero, as reserved ones must be.
static inline bool qn__is_zero(const uint8_t* bytes, size_t size) {
  uint8_t any = 0;
  for (size_t i = 0; i < size; i++) any |= bytes[i];
  return any == 0;
}

// Writes two lower-case hexadecimal digits for each byte, without a terminator. Returns the
// character after them.
char* qn__hex(char* out, const uint8_t* bytes, size_t size);
// Returns the value of a hexadecimal digit of either case; -1 for another character.
int qn__hex_digit(char c);

// Returns the edit distance; `limit` + 1 when it is greater than `limit`.
size_t qn__edit_distance(qn_str_t a, qn_str_t b, size_t limit);

#endif  // QUERN_BASE_BASE_H_
