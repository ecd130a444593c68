// SPDX-License-Identifier: Apache-2.0
// base/struct_size.h: the structs of the interface that begin with `struct_size`, between programs,
// plugins and libraries of different versions. The head of quern/quern.h states the rule.
//
// - A struct that the other side filled (options, tables) may be shorter, because the other side is
//   older: the rest is zero. It may be longer, because the other side is newer: the rest must be
//   zero. QN_STRUCT_READ.
// - A struct that the library fills for a program (infos, reports) is filled as far as the
//   program's struct_size goes. What a longer one has beyond this library's is zeroed, and its
//   struct_size becomes this library's. QN_STRUCT_CLEAR, then QN_STRUCT_WRITE.
// - A struct that the library hands to a callback, or returns by pointer, has the library's sizeof.
//
// Needs the public status.h alone and no object file, so that libquern-warm can use it, too.
#ifndef QUERN_BASE_STRUCT_SIZE_H_
#define QUERN_BASE_STRUCT_SIZE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "quern/status.h"

// Larger than any struct of the interface will be: a size beyond it was never set.
enum { QN__LARGEST_STRUCT = 4096 };

// Reads the struct_size at `offset` of a struct. Errors: INVALID_ARGUMENT naming `type`: it does
// not hold itself, or is beyond 4 KiB.
static inline qn_status_t qn__struct_size(const char* type, const void* given, size_t offset,
                                          size_t* out_size) {
  memcpy(out_size, (const uint8_t*)given + offset, sizeof *out_size);
  if (*out_size >= offset + sizeof *out_size && *out_size <= QN__LARGEST_STRUCT) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s: struct_size is %zu; set it to sizeof(%s)",
                        type, *out_size, type);
}

// Copies a struct that the other side filled to `out`, which has the `size` of this library and
// receives it as struct_size. `given` NULL: all defaults. Errors: those of qn__struct_size;
// INVALID_ARGUMENT naming both sizes: a member beyond `size` is set.
static inline qn_status_t qn__struct_read(const char* type, size_t offset, const void* given,
                                          void* out, size_t size) {
  uint8_t* bytes = (uint8_t*)out;
  size_t stated = 0;
  if (given) {
    qn_status_t status = qn__struct_size(type, given, offset, &stated);
    if (!qn_ok(status)) return status;
  }
  uint8_t any = 0;
  for (size_t i = size; i < stated; i++) any |= ((const uint8_t*)given)[i];
  if (any) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "%s: struct_size is %zu, of which this library knows %zu bytes, and a "
                          "member beyond them is set",
                          type, stated, size);
  }
  size_t shared = stated < size ? stated : size;
  if (shared) memcpy(bytes, given, shared);
  memset(bytes + shared, 0, size - shared);
  memcpy(bytes + offset, &size, sizeof size);
  return QN_OK;
}

// Zeroes a struct of a program that the library will fill, and lowers its struct_size to `size` if
// it is larger. `out` NULL: does nothing. Errors: those of qn__struct_size; `out` then stays as it
// was.
static inline qn_status_t qn__struct_clear(const char* type, void* out, size_t size) {
  if (!out) return QN_OK;
  size_t stated;
  qn_status_t status = qn__struct_size(type, out, 0, &stated);
  if (!qn_ok(status)) return status;
  memset(out, 0, stated);
  if (stated < size) size = stated;
  memcpy(out, &size, sizeof size);
  return QN_OK;
}

// Copies as much of `filled` as `out` holds, which was cleared; its struct_size stays. `out` NULL:
// does nothing.
static inline void qn__struct_write(void* out, const void* filled, size_t size) {
  if (!out) return;
  size_t stated;
  memcpy(&stated, out, sizeof stated);
  if (stated < size) size = stated;
  const size_t head = sizeof stated;
  memcpy((uint8_t*)out + head, (const uint8_t*)filled + head, size - head);
}

// A member that a table must have.
typedef struct qn__required {
  const char* name;
  bool is_there;
} qn__required_t;
#define QN_REQUIRED(table, member) {#member, (table)->member != NULL}

// Checks the table `name` (may be NULL) of another version: a member that is beyond its struct_size
// is missing, too. Errors: INVALID_ARGUMENT naming the first that is missing.
static inline qn_status_t qn__require_members(const char* type, const char* name,
                                              const qn__required_t* required, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (required[i].is_there) continue;
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s '%s': %s is missing", type,
                          name ? name : "", required[i].name);
  }
  return QN_OK;
}

// Declares `name`, a copy of what the other side filled, or returns the error.
#define QN_STRUCT_READ(type, given, name) \
  type name;                              \
  QN_TRY(qn__struct_read(#type, offsetof(type, struct_size), (given), &name, sizeof name))

// Zeroes the program's struct `out` (may be NULL), or returns the error.
#define QN_STRUCT_CLEAR(type, out) QN_TRY(qn__struct_clear(#type, (out), sizeof(type)))

// Fills the program's struct `out` (may be NULL), which was cleared, from `filled`.
#define QN_STRUCT_WRITE(out, filled) qn__struct_write((out), &(filled), sizeof(filled))

#endif  // QUERN_BASE_STRUCT_SIZE_H_
