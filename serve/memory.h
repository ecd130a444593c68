// SPDX-License-Identifier: Apache-2.0
// serve/memory.h: allocation through a qn_allocator_t, with checked sizes.
#ifndef QUERN_SERVE_MEMORY_H_
#define QUERN_SERVE_MEMORY_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quern/status.h"

// Bytes on their way from a file or into a string. Not terminated.
typedef struct serve_bytes {
  char* data;  // owned: serve_bytes_free
  size_t size;
  size_t capacity;
} serve_bytes_t;

// Returns memory for `count` elements, not initialised; NULL without memory or if the size
// overflows. `count` 0: a valid pointer.
void* serve_new(const qn_allocator_t* allocator, size_t count, size_t element_size);
// Frees what serve_new returned for the same count and size; NULL is ignored.
void serve_delete(const qn_allocator_t* allocator, void* pointer, size_t count,
                  size_t element_size);
// Makes room for `needed` elements by doubling. On failure `inout_pointer` stays as it was.
bool serve_grow(const qn_allocator_t* allocator, void** inout_pointer, size_t* inout_capacity,
                size_t needed, size_t element_size);

// Appends bytes. Returns false without memory.
bool serve_bytes_append(const qn_allocator_t* allocator, serve_bytes_t* bytes, const void* data,
                        size_t size);
void serve_bytes_free(const qn_allocator_t* allocator, serve_bytes_t* bytes);

// The status of a failed allocation; `what` is a noun.
qn_status_t serve_no_memory(const char* what);

// Reads a regular file of at most `max_size` bytes. Errors: NOT_FOUND, IO, UNSUPPORTED for a larger
// file, OUT_OF_MEMORY, all naming the file.
qn_status_t serve_file_read(const qn_allocator_t* allocator, const char* path, size_t max_size,
                            serve_bytes_t* out_bytes);

#endif  // QUERN_SERVE_MEMORY_H_
