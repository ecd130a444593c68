// SPDX-License-Identifier: Apache-2.0
// memory.c: arrays, growing bytes and whole files.
#include "serve/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The C allocator returns a valid pointer for no bytes only by chance.
static bool size_of(size_t count, size_t element_size, size_t* out_size) {
  if (element_size != 0 && count > SIZE_MAX / element_size) return false;
  *out_size = count * element_size;
  if (*out_size == 0) *out_size = 1;
  return true;
}

void* serve_new(const qn_allocator_t* allocator, size_t count, size_t element_size) {
  size_t size;
  if (!size_of(count, element_size, &size)) return NULL;
  return allocator->reallocate(allocator->self, NULL, 0, size);
}

void serve_delete(const qn_allocator_t* allocator, void* pointer, size_t count,
                  size_t element_size) {
  size_t size;
  if (pointer == NULL || !size_of(count, element_size, &size)) return;
  (void)allocator->reallocate(allocator->self, pointer, size, 0);
}

bool serve_grow(const qn_allocator_t* allocator, void** inout_pointer, size_t* inout_capacity,
                size_t needed, size_t element_size) {
  size_t capacity = *inout_capacity;
  if (needed <= capacity) return true;
  if (needed > SIZE_MAX / 2 / element_size) return false;
  capacity = capacity < needed / 2 ? needed : capacity * 2;
  if (capacity < needed) capacity = needed;
  if (capacity < 16) capacity = 16;
  const size_t old_size = *inout_capacity * element_size;
  void* grown =
      allocator->reallocate(allocator->self, *inout_pointer, old_size, capacity * element_size);
  if (grown == NULL) return false;
  *inout_pointer = grown;
  *inout_capacity = capacity;
  return true;
}

bool serve_bytes_append(const qn_allocator_t* allocator, serve_bytes_t* bytes, const void* data,
                        size_t size) {
  if (size == 0) return true;
  if (size > SIZE_MAX - bytes->size) return false;
  void* grown = bytes->data;
  if (!serve_grow(allocator, &grown, &bytes->capacity, bytes->size + size, 1)) return false;
  bytes->data = grown;
  memcpy(bytes->data + bytes->size, data, size);
  bytes->size += size;
  return true;
}

void serve_bytes_free(const qn_allocator_t* allocator, serve_bytes_t* bytes) {
  if (bytes->data) {
    (void)allocator->reallocate(allocator->self, bytes->data, bytes->capacity, 0);
  }
  *bytes = (serve_bytes_t){0};
}

qn_status_t serve_no_memory(const char* what) {
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for %s", what);
}

static qn_status_t file_error(const char* path, int error) {
  const bool is_missing = error == ENOENT || error == ENOTDIR;
  return qn_status_make(is_missing ? QN_STATUS_NOT_FOUND : QN_STATUS_IO, "cannot read '%s': %s",
                        path, strerror(error));
}

static qn_status_t read_all(const qn_allocator_t* allocator, int file, const char* path,
                            size_t size, serve_bytes_t* bytes) {
  void* data = NULL;
  if (!serve_grow(allocator, &data, &bytes->capacity, size, 1)) return serve_no_memory(path);
  bytes->data = data;
  while (bytes->size < size) {
    const ssize_t got = read(file, bytes->data + bytes->size, size - bytes->size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error(path, errno);
    if (got == 0) break;
    bytes->size += (size_t)got;
  }
  return QN_OK;
}

qn_status_t serve_file_read(const qn_allocator_t* allocator, const char* path, size_t max_size,
                            serve_bytes_t* out_bytes) {
  *out_bytes = (serve_bytes_t){0};
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return file_error(path, errno);
  struct stat facts;
  qn_status_t status = QN_OK;
  if (fstat(file, &facts) != 0) {
    status = file_error(path, errno);
  } else if (!S_ISREG(facts.st_mode)) {
    status = qn_status_make(QN_STATUS_IO, "cannot read '%s': not a file", path);
  } else if ((uintmax_t)facts.st_size > max_size) {
    status = qn_status_make(QN_STATUS_UNSUPPORTED, "'%s' has %ju bytes, at most %zu are read", path,
                            (uintmax_t)facts.st_size, max_size);
  } else {
    status = read_all(allocator, file, path, (size_t)facts.st_size, out_bytes);
  }
  (void)close(file);
  if (!qn_ok(status)) serve_bytes_free(allocator, out_bytes);
  return status;
}
