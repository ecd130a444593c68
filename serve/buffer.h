// SPDX-License-Identifier: Apache-2.0
// serve/buffer.h: bytes that grow at their end: bodies of answers, decoded strings, arrays.
//
// An append that finds no memory changes nothing and sets `is_exhausted`; later appends do nothing.
// So a writer checks once, at the end. One thread at a time.
#ifndef SERVE_BUFFER_H_
#define SERVE_BUFFER_H_

#include <stdarg.h>
#include <string.h>

#include "quern/quern.h"

typedef struct serve_buffer {
  char* data;
  size_t size;
  size_t capacity;
  bool is_exhausted;
} serve_buffer_t;

// Frees the memory; the buffer is empty and can be used again. A zeroed buffer is empty.
void serve_buffer_free(serve_buffer_t* buffer);
// Empties the buffer and keeps its memory.
void serve_buffer_clear(serve_buffer_t* buffer);

// Makes room for `size` bytes, at least one, and returns the place, which becomes part of the
// buffer. Returns NULL without memory. The place is valid until the next append.
void* serve_buffer_extend(serve_buffer_t* buffer, size_t size);
// Gives the last `size` bytes back.
void serve_buffer_shrink(serve_buffer_t* buffer, size_t size);

void serve_buffer_append(serve_buffer_t* buffer, const void* data, size_t size);
void serve_buffer_text(serve_buffer_t* buffer, const char* text);
void serve_buffer_format(serve_buffer_t* buffer, const char* format, ...) QN_PRINTF(2, 3);

// Returns OUT_OF_MEMORY, naming `what`, after an append failed.
QN_MUST_USE qn_status_t serve_buffer_status(const serve_buffer_t* buffer, const char* what);

#endif  // SERVE_BUFFER_H_
