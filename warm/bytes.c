// SPDX-License-Identifier: Apache-2.0
// warm/bytes.c: see bytes.h.
#include "warm/bytes.h"

void qn__warm_bytes_deinit(qn__warm_bytes_t* bytes) {
  if (bytes->data) {
    (void)bytes->allocator.reallocate(bytes->allocator.self, bytes->data, bytes->capacity, 0);
  }
  *bytes = (qn__warm_bytes_t){.allocator = bytes->allocator};
}

void qn__warm_bytes_clear(qn__warm_bytes_t* bytes) {
  bytes->size = 0;
  bytes->has_failed = false;
}

char* qn__warm_bytes_extend(qn__warm_bytes_t* bytes, size_t size) {
  char* data = NULL;
  if (!bytes->has_failed && size <= SIZE_MAX / 4 - bytes->size) {
    data = qn__warm_grow(bytes->allocator, bytes->data, &bytes->capacity, bytes->size + size, 1);
  }
  if (!data) {
    bytes->has_failed = true;
    return NULL;
  }
  bytes->data = data;
  bytes->size += size;
  return data + bytes->size - size;
}

void qn__warm_put(qn__warm_bytes_t* bytes, qn__warm_span_t span) {
  char* out = qn__warm_bytes_extend(bytes, span.size);
  if (out && span.size) memcpy(out, span.data, span.size);
}

void qn__warm_put_uint(qn__warm_bytes_t* bytes, uint64_t value, size_t width) {
  char* out = qn__warm_bytes_extend(bytes, width);
  for (size_t i = 0; out && i < width; i++) out[i] = (char)(unsigned char)(value >> (8 * i));
}

void qn__warm_put_run(qn__warm_bytes_t* bytes, qn__warm_span_t run) {
  if (run.size > UINT32_MAX) {
    bytes->has_failed = true;
    return;
  }
  qn__warm_put_uint(bytes, run.size, 4);
  qn__warm_put(bytes, run);
}

qn__warm_span_t qn__warm_take(qn__warm_reader_t* reader, size_t size) {
  if (reader->is_bad || size > reader->rest.size) {
    reader->is_bad = true;
    return (qn__warm_span_t){"", 0};
  }
  qn__warm_span_t taken = {reader->rest.data, size};
  reader->rest.data += size;
  reader->rest.size -= size;
  return taken;
}

uint64_t qn__warm_take_uint(qn__warm_reader_t* reader, size_t width) {
  qn__warm_span_t bytes = qn__warm_take(reader, width);
  uint64_t value = 0;
  for (size_t i = bytes.size; i-- > 0;) value = value << 8 | (unsigned char)bytes.data[i];
  return value;
}

qn__warm_span_t qn__warm_take_run(qn__warm_reader_t* reader) {
  return qn__warm_take(reader, (size_t)qn__warm_take_uint(reader, 4));
}

void* qn__warm_grow(qn_allocator_t allocator, void* items, size_t* inout_capacity, size_t count,
                    size_t item_bytes) {
  if (items && count <= *inout_capacity) return items;
  size_t capacity = *inout_capacity ? 2 * *inout_capacity : 16;
  if (capacity < count) capacity = count;
  if (capacity > SIZE_MAX / 2 / item_bytes) return NULL;
  void* grown = allocator.reallocate(allocator.self, items, *inout_capacity * item_bytes,
                                     capacity * item_bytes);
  if (grown) *inout_capacity = capacity;
  return grown;
}

qn_status_t qn__warm_no_memory(const char* what) {
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for %s", what);
}
