// SPDX-License-Identifier: Apache-2.0
#define _DEFAULT_SOURCE  // madvise
// serve/bert/safetensors.c: the reader. It checks every number of the header before it accesses a
// byte of data, so that any file gives tensors that lie inside it, or an error.
//
// The file is read, not mapped: one that is cut or overwritten in its place would end the process,
// or change its results (docs/decisions.md).
#include "serve/bert/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/bert/try.h"

enum {
  PREFIX_BYTES = 8,
  DATA_ALIGNMENT = 64,  // of a cache line, which the format does not give
  HUGE_PAGE_BYTES = 2 << 20,
  HEADER_LIMIT_BYTES = 100 * 1000 * 1000,  // the format's own limit
};

struct safetensors {
  char* path;
  const uint8_t* bytes;  // the whole file
  size_t size_bytes;
  void* memory;              // owned: around `bytes`; NULL: they are borrowed
  size_t data_offset_bytes;  // of the data after the header
  json_t* header;
};

static const char metadata_name[] = "__metadata__";  // no tensor

static size_t dtype_size_bytes(const char* dtype) {
  static const struct {
    const char* text;
    size_t size_bytes;
  } dtypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
                {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
                {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; ++i) {
    if (strcmp(dtypes[i].text, dtype) == 0) {
      return dtypes[i].size_bytes;
    }
  }
  return 0;
}

static qn_status_t malformed(const safetensors_t* file, const char* name, const char* what) {
  return qn_status_make(QN_STATUS_DATA_LOSS, "%s: tensor \"%s\": %s", file->path, name, what);
}

// Reads and checks one entry of the header. `json` is the object of the tensor `name`.
static qn_status_t read_info(const safetensors_t* file, const char* name, const json_t* json,
                             safetensors_tensor_t* out_info) {
  const json_t* dtype = json_object_get(json, "dtype");
  const json_t* shape = json_object_get(json, "shape");
  const json_t* offsets = json_object_get(json, "data_offsets");
  if (!json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets)) {
    return malformed(file, name, "expected dtype, shape and data_offsets");
  }
  out_info->dtype = json_string_value(dtype);
  size_t size_bytes = dtype_size_bytes(out_info->dtype);
  if (size_bytes == 0) {
    return malformed(file, name, "unknown dtype");
  }
  out_info->rank = json_array_size(shape);
  if (out_info->rank > SAFETENSORS_MAX_RANK) {
    return malformed(file, name, "more than 8 dimensions");
  }
  const size_t data_bytes = file->size_bytes - file->data_offset_bytes;
  for (size_t i = 0; i < out_info->rank; ++i) {
    const json_t* extent = json_array_get(shape, i);
    if (!json_is_integer(extent) || json_integer_value(extent) < 0) {
      return malformed(file, name, "an extent that is no integer from 0");
    }
    out_info->shape[i] = json_integer_value(extent);
    if (__builtin_mul_overflow(size_bytes, (size_t)out_info->shape[i], &size_bytes)) {
      return malformed(file, name, "a shape that no memory can hold");
    }
  }
  const json_t* begin = json_array_get(offsets, 0);
  const json_t* end = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
      json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin)) {
    return malformed(file, name, "data_offsets are not a pair [begin, end]");
  }
  if ((uint64_t)json_integer_value(end) > data_bytes) {
    return malformed(file, name, "data beyond the end of the file; is it cut short?");
  }
  const size_t begin_bytes = (size_t)json_integer_value(begin);
  if ((size_t)json_integer_value(end) - begin_bytes != size_bytes) {
    return malformed(file, name, "data_offsets disagree with dtype and shape");
  }
  out_info->size_bytes = size_bytes;
  out_info->data = file->bytes + file->data_offset_bytes + begin_bytes;
  return QN_OK;
}

static qn_status_t io_error(const safetensors_t* file) {
  return qn_status_make(errno == ENOENT ? QN_STATUS_NOT_FOUND : QN_STATUS_IO, "%s: %s", file->path,
                        strerror(errno));
}

// Reads at most `size` bytes into `to`; fewer at the end of the file.
static qn_status_t read_bytes(const safetensors_t* file, int descriptor, uint8_t* to, size_t size,
                              size_t* out_count) {
  *out_count = 0;
  while (*out_count < size) {
    const ssize_t count = read(descriptor, to + *out_count, size - *out_count);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error(file);
    if (count == 0) break;
    *out_count += (size_t)count;
  }
  return QN_OK;
}

static uint64_t prefix_of(const uint8_t bytes[PREFIX_BYTES]) {
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < PREFIX_BYTES; ++i) header_bytes |= (uint64_t)bytes[i] << (8 * i);
  return header_bytes;
}

// Makes memory for a file of this size whose data begins at a boundary of DATA_ALIGNMENT.
static qn_status_t reserve(safetensors_t* file, size_t size, uint64_t header_bytes,
                           uint8_t** out_bytes) {
  const size_t lead = (size_t)((0 - header_bytes - PREFIX_BYTES) % DATA_ALIGNMENT);
  const bool is_huge = size >= HUGE_PAGE_BYTES;
  const size_t alignment = is_huge ? HUGE_PAGE_BYTES : DATA_ALIGNMENT;
  void* memory = NULL;
  if (size > SIZE_MAX / 2 || posix_memalign(&memory, alignment, lead + size) != 0) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "%s: no memory for its %zu bytes", file->path,
                          size);
  }
  // Faults of small pages take longer than the copy. A system without huge pages refuses.
  if (is_huge) (void)madvise(memory, lead + size, MADV_HUGEPAGE);
  file->memory = memory;
  *out_bytes = (uint8_t*)memory + lead;
  file->bytes = *out_bytes;
  return QN_OK;
}

static qn_status_t read_opened(safetensors_t* file, int descriptor) {
  struct stat info;
  if (fstat(descriptor, &info) != 0) return io_error(file);
  if (!S_ISREG(info.st_mode)) {
    return qn_status_make(QN_STATUS_IO, "%s: not a regular file", file->path);
  }
  uint8_t prefix[PREFIX_BYTES] = {0};
  size_t count = 0;
  BERT_TRY(read_bytes(file, descriptor, prefix, sizeof prefix, &count));
  if (count < sizeof prefix) {
    return qn_status_make(QN_STATUS_DATA_LOSS, "%s: %zu bytes are too few for safetensors",
                          file->path, count);
  }
  const size_t size = (size_t)info.st_size;
  uint8_t* bytes = NULL;
  BERT_TRY(reserve(file, size > sizeof prefix ? size : sizeof prefix, prefix_of(prefix), &bytes));
  memcpy(bytes, prefix, sizeof prefix);
  size_t rest = size > sizeof prefix ? size - sizeof prefix : 0;
  BERT_TRY(read_bytes(file, descriptor, bytes + sizeof prefix, rest, &count));
  file->size_bytes = sizeof prefix + count;
  if (file->size_bytes == size) return QN_OK;
  return qn_status_make(QN_STATUS_DATA_LOSS, "%s: it had %zu bytes, and %zu when it was read",
                        file->path, size, file->size_bytes);
}

// Reads the whole file into memory.
static qn_status_t read_file(safetensors_t* file) {
  const int descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return io_error(file);
  qn_status_t status = read_opened(file, descriptor);
  (void)close(descriptor);
  return status;
}

static qn_status_t read_header(safetensors_t* file) {
  if (file->size_bytes < PREFIX_BYTES) {
    return qn_status_make(QN_STATUS_DATA_LOSS, "%s: %zu bytes are too few for safetensors",
                          file->path, file->size_bytes);
  }
  const uint64_t header_bytes = prefix_of(file->bytes);
  if (header_bytes > HEADER_LIMIT_BYTES || header_bytes > file->size_bytes - PREFIX_BYTES) {
    return qn_status_make(QN_STATUS_DATA_LOSS,
                          "%s: a header of %llu bytes in a file of %zu; is it safetensors?",
                          file->path, (unsigned long long)header_bytes, file->size_bytes);
  }
  file->data_offset_bytes = PREFIX_BYTES + (size_t)header_bytes;
  json_error_t error;
  file->header = json_loadb((const char*)file->bytes + PREFIX_BYTES, (size_t)header_bytes,
                            JSON_REJECT_DUPLICATES, &error);
  if (file->header == NULL) {
    return qn_status_make(QN_STATUS_DATA_LOSS, "%s: header: %s (byte %d)", file->path, error.text,
                          error.position);
  }
  if (!json_is_object(file->header)) {
    return qn_status_make(QN_STATUS_DATA_LOSS, "%s: the header is no JSON object", file->path);
  }
  for (void* at = json_object_iter(file->header); at != NULL;
       at = json_object_iter_next(file->header, at)) {
    const char* name = json_object_iter_key(at);
    if (strcmp(name, metadata_name) != 0) {
      safetensors_tensor_t info;
      BERT_TRY(read_info(file, name, json_object_iter_value(at), &info));
    }
  }
  return QN_OK;
}

static qn_status_t create(const char* path, safetensors_t** out_file) {
  safetensors_t* file = calloc(1, sizeof *file);
  if (file == NULL || (file->path = strdup(path)) == NULL) {
    free(file);
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "%s: no memory for the reader", path);
  }
  *out_file = file;
  return QN_OK;
}

static qn_status_t finish(safetensors_t* file, qn_status_t status, safetensors_t** out_file) {
  if (qn_ok(status)) {
    status = read_header(file);
  }
  if (qn_ok(status)) {
    *out_file = file;
  } else {
    safetensors_close(file);
  }
  return status;
}

qn_status_t safetensors_open(const char* path, safetensors_t** out_file) {
  safetensors_t* file = NULL;
  *out_file = NULL;
  BERT_TRY(create(path, &file));
  return finish(file, read_file(file), out_file);
}

qn_status_t safetensors_read(const char* path, const void* bytes, size_t size_bytes,
                             safetensors_t** out_file) {
  safetensors_t* file = NULL;
  *out_file = NULL;
  BERT_TRY(create(path, &file));
  file->bytes = bytes;
  file->size_bytes = size_bytes;
  return finish(file, QN_OK, out_file);
}

void safetensors_close(safetensors_t* file) {
  if (file == NULL) {
    return;
  }
  json_decref(file->header);
  free(file->memory);
  free(file->path);
  free(file);
}

const char* safetensors_path(const safetensors_t* file) {
  return file->path;
}

bool safetensors_get(const safetensors_t* file, const char* name,
                     safetensors_tensor_t* out_tensor) {
  const json_t* json = json_object_get(file->header, name);
  if (json == NULL || strcmp(name, metadata_name) == 0) {
    return false;
  }
  // It was checked when the file was opened, so this cannot fail.
  qn_status_t status = read_info(file, name, json, out_tensor);
  const bool is_good = qn_ok(status);
  qn_status_free(status);
  return is_good;
}

const char* safetensors_next(const safetensors_t* file, const char* name) {
  void* at = name != NULL ? json_object_iter_at(file->header, name) : NULL;
  at = name != NULL ? json_object_iter_next(file->header, at) : json_object_iter(file->header);
  if (at != NULL && strcmp(json_object_iter_key(at), metadata_name) == 0) {
    at = json_object_iter_next(file->header, at);
  }
  return at != NULL ? json_object_iter_key(at) : NULL;
}
