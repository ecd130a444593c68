// SPDX-License-Identifier: Apache-2.0
// base/buffer.h: growing bytes or text with a sticky failure flag: append freely, check once.
//
// Thread rule: one thread at a time.
#ifndef QUERN_BASE_BUFFER_H_
#define QUERN_BASE_BUFFER_H_

#include "base/base.h"

typedef struct qn__buffer {
  qn_allocator_t allocator;
  uint8_t* data;  // followed by a zero byte once something was appended
  size_t size;
  size_t capacity;
  bool has_failed;  // sticky: an allocation failed; later appends do nothing
} qn__buffer_t;

void qn__buffer_init(qn__buffer_t* buffer, qn_allocator_t allocator);
void qn__buffer_deinit(qn__buffer_t* buffer);
void qn__buffer_clear(qn__buffer_t* buffer);  // keeps the memory
qn_status_t qn__buffer_status(const qn__buffer_t* buffer, const char* what);

// Tests that the bytes fit and end with a zero. For tests and for debug builds.
bool qn__buffer_check(const qn__buffer_t* buffer);

// Appends `size` bytes for the caller to fill; NULL without memory, which sets the flag.
uint8_t* qn__buffer_extend(qn__buffer_t* buffer, size_t size);
void qn__buffer_bytes(qn__buffer_t* buffer, const void* data, size_t size);
void qn__buffer_str(qn__buffer_t* buffer, qn_str_t text);
void qn__buffer_cstr(qn__buffer_t* buffer, const char* text);
void qn__buffer_char(qn__buffer_t* buffer, char c);
void qn__buffer_format(qn__buffer_t* buffer, const char* format, ...) QN_PRINTF(2, 3);
// Little-endian integers and length-prefixed bytes; reader.h reads them.
void qn__buffer_u8(qn__buffer_t* buffer, uint8_t value);
void qn__buffer_u16(qn__buffer_t* buffer, uint16_t value);
void qn__buffer_u32(qn__buffer_t* buffer, uint32_t value);
void qn__buffer_u64(qn__buffer_t* buffer, uint64_t value);
void qn__buffer_varint(qn__buffer_t* buffer, uint64_t value);  // LEB128
void qn__buffer_svarint(qn__buffer_t* buffer, int64_t value);  // zigzag LEB128
void qn__buffer_run(qn__buffer_t* buffer, qn_span_t run);      // varint length, then the bytes
// Appends a JSON string with quotes and escapes. Invalid UTF-8 becomes U+FFFD.
void qn__buffer_json_string(qn__buffer_t* buffer, qn_str_t text);

static inline qn_str_t qn__buffer_as_str(const qn__buffer_t* buffer) {
  return (qn_str_t){(const char*)buffer->data, buffer->size};
}
static inline qn_span_t qn__buffer_as_span(const qn__buffer_t* buffer) {
  return (qn_span_t){buffer->data, buffer->size};
}
// Moves the bytes to the caller, which frees them with qn__free(allocator, data, *out_capacity).
uint8_t* qn__buffer_take(qn__buffer_t* buffer, size_t* out_size, size_t* out_capacity);

#endif  // QUERN_BASE_BUFFER_H_
