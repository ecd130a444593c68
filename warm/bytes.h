// SPDX-License-Identifier: Apache-2.0
// warm/bytes.h: a growing array of bytes, and reading bytes from a message.
//
// Numbers are little-endian; a run is a length (u32) and that many bytes. Both sides have a flag
// that sticks: a caller checks it once, at the end.
#ifndef QUERN_WARM_BYTES_H_
#define QUERN_WARM_BYTES_H_

#include <assert.h>
#include <string.h>

#include "quern/status.h"

// Borrowed bytes.
typedef struct qn__warm_span {
  const char* data;
  size_t size;
} qn__warm_span_t;

static inline qn__warm_span_t qn__warm_span(const char* text) {
  return (qn__warm_span_t){text, strlen(text)};
}

typedef struct qn__warm_bytes {
  qn_allocator_t allocator;
  char* data;
  size_t size;
  size_t capacity;
  bool has_failed;  // no memory; later appends do nothing
} qn__warm_bytes_t;

void qn__warm_bytes_deinit(qn__warm_bytes_t* bytes);
// Empties it and keeps the memory.
void qn__warm_bytes_clear(qn__warm_bytes_t* bytes);
// Appends `size` bytes for the caller to fill. NULL (and the flag) without memory.
char* qn__warm_bytes_extend(qn__warm_bytes_t* bytes, size_t size);
void qn__warm_put(qn__warm_bytes_t* bytes, qn__warm_span_t span);
void qn__warm_put_uint(qn__warm_bytes_t* bytes, uint64_t value, size_t width);
// Sets the flag when the run is longer than 4 GiB.
void qn__warm_put_run(qn__warm_bytes_t* bytes, qn__warm_span_t run);

typedef struct qn__warm_reader {
  qn__warm_span_t rest;
  bool is_bad;  // the bytes ended early, or a value is malformed; reads then return nothing
} qn__warm_reader_t;

qn__warm_span_t qn__warm_take(qn__warm_reader_t* reader, size_t size);
uint64_t qn__warm_take_uint(qn__warm_reader_t* reader, size_t width);
qn__warm_span_t qn__warm_take_run(qn__warm_reader_t* reader);

// The array `items` with room for `count` items, or NULL without memory; `items` is then as before.
void* qn__warm_grow(qn_allocator_t allocator, void* items, size_t* inout_capacity, size_t count,
                    size_t item_bytes);
qn_status_t qn__warm_no_memory(const char* what);

#endif  // QUERN_WARM_BYTES_H_
