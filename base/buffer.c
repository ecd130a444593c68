// SPDX-License-Identifier: Apache-2.0
// base/buffer.c: see buffer.h.
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/escape.h"

void qn__buffer_init(qn__buffer_t* buffer, qn_allocator_t allocator) {
  *buffer = (qn__buffer_t){.allocator = allocator};
}

void qn__buffer_deinit(qn__buffer_t* buffer) {
  if (buffer->data) qn__free(buffer->allocator, buffer->data, buffer->capacity);
  qn__buffer_init(buffer, buffer->allocator);
}

void qn__buffer_clear(qn__buffer_t* buffer) {
  buffer->size = 0;
  buffer->has_failed = false;
  if (buffer->data) buffer->data[0] = 0;
}

qn_status_t qn__buffer_status(const qn__buffer_t* buffer, const char* what) {
  return buffer->has_failed ? qn__out_of_memory(what) : QN_OK;
}

bool qn__buffer_check(const qn__buffer_t* buffer) {
  if (!buffer->data) return !QN_NEVER(buffer->size != 0 || buffer->capacity != 0);
  return !QN_NEVER(buffer->size >= buffer->capacity || buffer->data[buffer->size] != 0);
}

// Makes room for `size` more bytes and a zero byte.
static bool reserve(qn__buffer_t* buffer, size_t size) {
  if (buffer->has_failed) return false;
  size_t needed;
  void* items = buffer->data;
  if (qn__size_add(buffer->size, size, &needed) && qn__size_add(needed, 1, &needed) &&
      qn__grow(buffer->allocator, &items, &buffer->capacity, needed < 64 && !items ? 64 : needed,
               1)) {
    buffer->data = items;
    assert(buffer->capacity > buffer->size + size);  // the zero byte fits, too
    return true;
  }
  buffer->has_failed = true;
  return false;
}

uint8_t* qn__buffer_extend(qn__buffer_t* buffer, size_t size) {
  if (!reserve(buffer, size)) return NULL;
  uint8_t* out = buffer->data + buffer->size;
  buffer->size += size;
  buffer->data[buffer->size] = 0;
  return out;
}

void qn__buffer_bytes(qn__buffer_t* buffer, const void* data, size_t size) {
  if (!reserve(buffer, size)) return;
  if (size) memcpy(buffer->data + buffer->size, data, size);
  buffer->size += size;
  buffer->data[buffer->size] = 0;
  assert(qn__buffer_check(buffer));
}

void qn__buffer_str(qn__buffer_t* buffer, qn_str_t text) {
  qn__buffer_bytes(buffer, text.data, text.size);
}

void qn__buffer_cstr(qn__buffer_t* buffer, const char* text) {
  qn__buffer_bytes(buffer, text, strlen(text));
}

void qn__buffer_char(qn__buffer_t* buffer, char c) {
  qn__buffer_bytes(buffer, &c, 1);
}

void qn__buffer_format(qn__buffer_t* buffer, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  // Formats in place first, because most pieces fit; if not, again with enough room.
  size_t room = buffer->data && !buffer->has_failed ? buffer->capacity - buffer->size : 0;
  int size = vsnprintf(room ? (char*)buffer->data + buffer->size : NULL, room, format, arguments);
  va_end(arguments);
  if (size < 0) {
    buffer->has_failed = true;
  } else if ((size_t)size < room) {
    buffer->size += (size_t)size;
  } else if (reserve(buffer, (size_t)size)) {
    (void)vsnprintf((char*)buffer->data + buffer->size, (size_t)size + 1, format, again);
    buffer->size += (size_t)size;
  } else if (buffer->data) {
    buffer->data[buffer->size] = 0;
  }
  va_end(again);
}

void qn__buffer_u8(qn__buffer_t* buffer, uint8_t value) {
  qn__buffer_bytes(buffer, &value, 1);
}

static void little_endian(qn__buffer_t* buffer, uint64_t value, size_t size) {
  uint8_t bytes[8];
  (void)qn__store_le(bytes, value, size);
  qn__buffer_bytes(buffer, bytes, size);
}

void qn__buffer_u16(qn__buffer_t* buffer, uint16_t value) {
  little_endian(buffer, value, 2);
}
void qn__buffer_u32(qn__buffer_t* buffer, uint32_t value) {
  little_endian(buffer, value, 4);
}
void qn__buffer_u64(qn__buffer_t* buffer, uint64_t value) {
  little_endian(buffer, value, 8);
}

void qn__buffer_varint(qn__buffer_t* buffer, uint64_t value) {
  uint8_t bytes[10];
  size_t size = 0;
  while (value >= 0x80) {
    bytes[size++] = (uint8_t)(value | 0x80);
    value >>= 7;
  }
  bytes[size++] = (uint8_t)value;
  qn__buffer_bytes(buffer, bytes, size);
}

void qn__buffer_svarint(qn__buffer_t* buffer, int64_t value) {
  uint64_t bits = (uint64_t)value << 1;
  qn__buffer_varint(buffer, value < 0 ? ~bits : bits);
}

void qn__buffer_run(qn__buffer_t* buffer, qn_span_t run) {
  qn__buffer_varint(buffer, run.size);
  qn__buffer_bytes(buffer, run.data, run.size);
}

void qn__buffer_json_string(qn__buffer_t* buffer, qn_str_t text) {
  const uint8_t* bytes = (const uint8_t*)text.data;
  qn__buffer_char(buffer, '"');
  for (size_t i = 0; i < text.size;) {
    uint32_t code;
    size_t size = qn__utf8_decode((qn_str_t){text.data + i, text.size - i}, &code);
    if (size == 0) {
      qn__buffer_cstr(buffer, "\xEF\xBF\xBD");
      i++;
      continue;
    }
    uint8_t c = bytes[i];
    if (c == '"' || c == '\\') {
      qn__buffer_char(buffer, '\\');
      qn__buffer_char(buffer, (char)c);
    } else if (c == '\n') {
      qn__buffer_cstr(buffer, "\\n");
    } else if (c == '\t') {
      qn__buffer_cstr(buffer, "\\t");
    } else if (c == '\r') {
      qn__buffer_cstr(buffer, "\\r");
    } else if (c < 0x20 || c == 0x7F) {
      qn__buffer_format(buffer, "\\u%04x", (unsigned)c);
    } else {
      qn__buffer_bytes(buffer, bytes + i, size);
    }
    i += size;
  }
  qn__buffer_char(buffer, '"');
}

uint8_t* qn__buffer_take(qn__buffer_t* buffer, size_t* out_size, size_t* out_capacity) {
  uint8_t* data = buffer->data;
  *out_size = buffer->size;
  *out_capacity = buffer->capacity;
  qn__buffer_init(buffer, buffer->allocator);
  return data;
}
