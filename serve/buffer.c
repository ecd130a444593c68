// SPDX-License-Identifier: Apache-2.0
// serve/buffer.c: growth by half, so that appending n bytes copies fewer than 3 n.
#include "serve/buffer.h"

#include <stdio.h>
#include <stdlib.h>

enum { LEAST_CAPACITY = 256 };

void serve_buffer_free(serve_buffer_t* buffer) {
  free(buffer->data);
  *buffer = (serve_buffer_t){.data = NULL};
}

void serve_buffer_clear(serve_buffer_t* buffer) {
  buffer->size = 0;
  buffer->is_exhausted = false;
}

static bool reserve(serve_buffer_t* buffer, size_t size) {
  if (buffer->is_exhausted) return false;
  if (size <= buffer->capacity - buffer->size) return true;
  size_t capacity = buffer->capacity + buffer->capacity / 2;
  if (capacity < LEAST_CAPACITY) capacity = LEAST_CAPACITY;
  if (size > SIZE_MAX / 2 - buffer->size) {
    buffer->is_exhausted = true;
    return false;
  }
  if (capacity < buffer->size + size) capacity = buffer->size + size;
  char* data = realloc(buffer->data, capacity);
  if (!data) {
    buffer->is_exhausted = true;
    return false;
  }
  buffer->data = data;
  buffer->capacity = capacity;
  return true;
}

void* serve_buffer_extend(serve_buffer_t* buffer, size_t size) {
  if (!reserve(buffer, size)) return NULL;
  void* place = buffer->data + buffer->size;
  buffer->size += size;
  return place;
}

void serve_buffer_shrink(serve_buffer_t* buffer, size_t size) {
  buffer->size -= size < buffer->size ? size : buffer->size;
}

void serve_buffer_append(serve_buffer_t* buffer, const void* data, size_t size) {
  if (size == 0) return;
  void* place = serve_buffer_extend(buffer, size);
  if (place) memcpy(place, data, size);
}

void serve_buffer_text(serve_buffer_t* buffer, const char* text) {
  serve_buffer_append(buffer, text, strlen(text));
}

void serve_buffer_format(serve_buffer_t* buffer, const char* format, ...) {
  va_list args;
  va_start(args, format);
  va_list again;
  va_copy(again, args);
  const int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  // vsnprintf writes a zero, which does not belong to the text.
  char* place = length < 0 ? NULL : serve_buffer_extend(buffer, (size_t)length + 1);
  if (place) {
    (void)vsnprintf(place, (size_t)length + 1, format, again);
    serve_buffer_shrink(buffer, 1);
  }
  va_end(again);
}

qn_status_t serve_buffer_status(const serve_buffer_t* buffer, const char* what) {
  if (!buffer->is_exhausted) return QN_OK;
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for %s", what);
}
