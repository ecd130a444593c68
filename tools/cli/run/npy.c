// SPDX-License-Identifier: Apache-2.0
// tools/cli/run/npy.c: reads and writes .npy files.
//
// The header is a Python dictionary literal with three keys; the reader accepts only what NumPy
// itself writes, in any order and spacing.
#include "tools/cli/run/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/file.h"

#define MAGIC "\x93NUMPY"
#define MAX_HEADER_BYTES 65536u

static const struct {
  const char* descr;
  qn_dtype_t dtype;
} descriptions[] = {
    {"|b1", QN_DTYPE_BOOL}, {"|i1", QN_DTYPE_I8},       {"<i2", QN_DTYPE_I16},
    {"<i4", QN_DTYPE_I32},  {"<i8", QN_DTYPE_I64},      {"|u1", QN_DTYPE_U8},
    {"<u2", QN_DTYPE_U16},  {"<u4", QN_DTYPE_U32},      {"<u8", QN_DTYPE_U64},
    {"<f2", QN_DTYPE_F16},  {"<f4", QN_DTYPE_F32},      {"<f8", QN_DTYPE_F64},
    {"<u2", QN_DTYPE_BF16}, {"|u1", QN_DTYPE_F8E4M3FN}, {"|u1", QN_DTYPE_F8E5M2},
    {"|u1", QN_DTYPE_I4},   {"|u1", QN_DTYPE_U4},       {"|u1", QN_DTYPE_F4E2M1FN},
};
enum { DESCRIPTION_COUNT = sizeof descriptions / sizeof descriptions[0] };

qn_status_t npy_make(qn_dtype_t dtype, int32_t rank, const int64_t* shape, npy_array_t* out_array) {
  memset(out_array, 0, sizeof *out_array);
  if (rank < 0 || rank > NPY_MAX_RANK) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "an array of rank %d: the limit is %d",
                          (int)rank, NPY_MAX_RANK);
  }
  size_t size_bytes = qn_dtype_size_bytes(dtype);
  bool is_packed = qn_dtype_size_bits(dtype) == 4;
  if (is_packed && (rank == 0 || shape[rank - 1] % 2 != 0)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "an array of %s: the last extent must be even", qn_dtype_text(dtype));
  }
  bool is_empty = false;
  for (int32_t d = 0; d < rank; d++) {
    if (shape[d] < 0) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "extent %d is %" PRId64 ", less than 0",
                            (int)d, shape[d]);
    }
    is_empty |= shape[d] == 0;
    if (shape[d] != 0 && size_bytes > PTRDIFF_MAX / (size_t)shape[d]) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the array's size in bytes overflows");
    }
    if (shape[d] != 0) size_bytes *= (size_t)shape[d];
    out_array->shape[d] = shape[d];
  }
  if (is_empty) size_bytes = 0;
  if (is_packed) size_bytes /= 2;
  if (posix_memalign(&out_array->data, 64, size_bytes ? size_bytes : 64) != 0) {
    out_array->data = NULL;
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for an array of %zu bytes",
                          size_bytes);
  }
  out_array->dtype = dtype;
  out_array->rank = rank;
  out_array->size_bytes = size_bytes;
  return QN_OK;
}

void npy_free(npy_array_t* array) {
  free(array->data);
  memset(array, 0, sizeof *array);
}

// Copies the elements between an array and memory with other strides.
static void copy_strided(const npy_array_t* array, const int64_t* strides, uint8_t* strided,
                         bool is_gather) {
  const size_t item_bytes = qn_dtype_size_bytes(array->dtype);
  uint8_t* element = array->data;
  int64_t index[NPY_MAX_RANK] = {0}, at = 0;
  for (size_t left = array->size_bytes; left > 0; left -= item_bytes, element += item_bytes) {
    uint8_t* other = strided + (size_t)at * item_bytes;
    memcpy(is_gather ? element : other, is_gather ? other : element, item_bytes);
    for (int32_t d = array->rank; d-- > 0;) {
      at += strides[d];
      if (++index[d] < array->shape[d]) break;
      at -= strides[d] * index[d];
      index[d] = 0;
    }
  }
}

void npy_gather(npy_array_t* array, const int64_t* strides, const void* from) {
  uint8_t* strided = NULL;
  memcpy(&strided, &from, sizeof strided);  // it is not written
  copy_strided(array, strides, strided, true);
}

void npy_scatter(const npy_array_t* array, const int64_t* strides, void* to) {
  copy_strided(array, strides, to, false);
}

// ---------------------------------------------------------------------------------- parsing

typedef struct npy_parser {
  const char* name;
  const char* header;  // a dictionary of Python, with a final zero
  const char* at;
  size_t offset;  // of the header in the file
  bool is_fortran;
} npy_parser_t;

static qn_status_t malformed(const npy_parser_t* parser, const char* expected) {
  return qn_status_make(QN_STATUS_DATA_LOSS, "%s: offset %zu: expected %s", parser->name,
                        parser->offset + (size_t)(parser->at - parser->header), expected);
}

// Passes a word, after spaces.
static bool accept(npy_parser_t* parser, const char* word) {
  parser->at += strspn(parser->at, " \n\t");
  size_t size = strlen(word);
  if (strncmp(parser->at, word, size) != 0) return false;
  parser->at += size;
  return true;
}

// A string in single or double quotes without escapes, at most 31 characters.
static qn_status_t parse_string(npy_parser_t* parser, char out[32]) {
  bool is_single = accept(parser, "'");
  if (!is_single && !accept(parser, "\"")) return malformed(parser, "a quoted string");
  size_t size = strcspn(parser->at, is_single ? "'\\" : "\"\\");
  if (size > 31 || parser->at[size] == '\\') {
    return malformed(parser, "a short string without escapes");
  }
  memcpy(out, parser->at, size);
  out[size] = '\0';
  parser->at += size;
  if (!accept(parser, is_single ? "'" : "\"")) return malformed(parser, "the closing quote");
  return QN_OK;
}

static qn_status_t parse_dtype(npy_parser_t* parser, qn_dtype_t* out_dtype) {
  char descr[32];
  qn_status_t status = parse_string(parser, descr);
  if (!qn_ok(status)) return status;
  // NumPy writes '|' for bytes; '<' and '=' mean the same on the machines that this runs on.
  for (size_t i = 0; i < DESCRIPTION_COUNT; i++) {
    const char* known = descriptions[i].descr;
    if (strcmp(known + 1, descr + (descr[0] != '\0')) != 0) continue;
    if (descr[0] == known[0] || descr[0] == '=' || (descr[0] == '<' && known[0] == '|')) {
      *out_dtype = descriptions[i].dtype;
      return QN_OK;
    }
  }
  return qn_status_make(QN_STATUS_UNSUPPORTED,
                        "%s: dtype '%s': expected a little-endian bool, i1-i8, u1-u8, f2, f4 or f8",
                        parser->name, descr);
}

static qn_status_t parse_shape(npy_parser_t* parser, int32_t* out_rank, int64_t* out_shape) {
  if (!accept(parser, "(")) return malformed(parser, "'(' of the shape");
  int32_t rank = 0;
  while (!accept(parser, ")")) {
    if (rank == NPY_MAX_RANK) return malformed(parser, "at most 32 extents");
    if (parser->at[0] < '0' || parser->at[0] > '9') return malformed(parser, "an extent");
    char* end = NULL;
    errno = 0;
    out_shape[rank++] = strtoll(parser->at, &end, 10);
    if (errno != 0) return malformed(parser, "an extent below 2^63");
    parser->at = end;
    if (accept(parser, ",")) continue;
    if (!accept(parser, ")")) return malformed(parser, "',' or ')'");
    break;
  }
  *out_rank = rank;
  return QN_OK;
}

static qn_status_t parse_entry(npy_parser_t* parser, unsigned* inout_seen, npy_array_t* out) {
  char key[32];
  qn_status_t status = parse_string(parser, key);
  if (!qn_ok(status)) return status;
  if (!accept(parser, ":")) return malformed(parser, "':'");
  static const char* const keys[] = {"descr", "fortran_order", "shape"};
  unsigned which = 0;
  while (which < 3 && strcmp(key, keys[which]) != 0) which++;
  if (which == 3 || (*inout_seen & (1u << which))) {
    return malformed(parser, "'descr', 'fortran_order' and 'shape', once each");
  }
  *inout_seen |= 1u << which;
  if (which == 0) return parse_dtype(parser, &out->dtype);
  if (which == 2) return parse_shape(parser, &out->rank, out->shape);
  if (accept(parser, "False")) return QN_OK;
  parser->is_fortran = accept(parser, "True");
  return parser->is_fortran ? QN_OK : malformed(parser, "True or False");
}

static qn_status_t parse_header(npy_parser_t* parser, npy_array_t* out) {
  if (!accept(parser, "{")) return malformed(parser, "'{' of the header");
  unsigned seen = 0;
  while (!accept(parser, "}")) {
    qn_status_t status = parse_entry(parser, &seen, out);
    if (!qn_ok(status)) return status;
    if (accept(parser, ",")) continue;
    if (!accept(parser, "}")) return malformed(parser, "',' or '}'");
    break;
  }
  if (seen != 7) return malformed(parser, "'descr', 'fortran_order' and 'shape' in the header");
  parser->at += strspn(parser->at, " \n\t");
  return QN_OK;
}

// Finds the header in the bytes of a file, and sets where it begins and its size.
static qn_status_t find_header(npy_parser_t* parser, const uint8_t* raw, size_t size,
                               size_t* out_header_bytes) {
  if (size < 10 || memcmp(raw, MAGIC, 6) != 0) {
    return malformed(parser, "the magic of a .npy file, \\x93NUMPY, and a header");
  }
  parser->offset = 6;
  if (raw[6] < 1 || raw[6] > 3) return malformed(parser, "format version 1, 2 or 3");
  bool is_long = raw[6] >= 2;
  parser->offset = is_long ? 12 : 10;
  if (size < parser->offset) return malformed(parser, "the length of the header");
  *out_header_bytes = raw[8] | (size_t)raw[9] << 8;
  if (is_long) *out_header_bytes |= (size_t)raw[10] << 16 | (size_t)raw[11] << 24;
  if (*out_header_bytes <= MAX_HEADER_BYTES && *out_header_bytes <= size - parser->offset) {
    return QN_OK;
  }
  return qn_status_make(QN_STATUS_DATA_LOSS, "%s: offset 8: the header has %zu bytes, the file %zu",
                        parser->name, *out_header_bytes, size);
}

// Reads elements whose first index is the fastest.
static void gather_fortran(npy_array_t* array, const uint8_t* from) {
  int64_t strides[NPY_MAX_RANK], stride = 1;
  for (int32_t d = 0; d < array->rank; d++) {
    strides[d] = stride;
    stride *= array->shape[d] > 0 ? array->shape[d] : 1;
  }
  npy_gather(array, strides, from);
}

qn_status_t npy_parse(const char* name, const void* bytes, size_t size, npy_array_t* out_array) {
  memset(out_array, 0, sizeof *out_array);
  const uint8_t* raw = bytes;
  size_t header_bytes = 0;
  npy_parser_t parser = {.name = name, .header = ""};
  parser.at = parser.header;
  qn_status_t status = find_header(&parser, raw, size, &header_bytes);
  if (!qn_ok(status)) return status;
  char* header = strndup((const char*)raw + parser.offset, header_bytes);
  if (!header) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "%s: no memory", name);
  npy_array_t array = {.rank = 0};
  parser.header = parser.at = header;
  status = parse_header(&parser, &array);
  if (qn_ok(status) && parser.at != header + header_bytes) {
    status = malformed(&parser, "the end of the header");
  }
  free(header);
  if (!qn_ok(status)) return status;
  size_t begin = parser.offset + header_bytes, left = size - begin;
  // Checks the size before it allocates memory.
  double count = 1;
  for (int32_t d = 0; d < array.rank; d++) count *= (double)array.shape[d];
  if (count * (double)qn_dtype_size_bytes(array.dtype) > (double)left) {
    return qn_status_make(QN_STATUS_DATA_LOSS,
                          "%s: offset %zu: expected %.0f elements of %s, got %zu bytes", name,
                          begin, count, qn_dtype_text(array.dtype), left);
  }
  int64_t shape[NPY_MAX_RANK];
  memcpy(shape, array.shape, sizeof shape);
  status = npy_make(array.dtype, array.rank, shape, &array);
  if (!qn_ok(status)) return qn_status_annotate(status, "%s", name);
  if (array.size_bytes != left) {
    status =
        qn_status_make(QN_STATUS_DATA_LOSS, "%s: offset %zu: expected %zu bytes of data, got %zu",
                       name, begin, array.size_bytes, left);
  }
  // Any other byte in a bool is a value that no program expects.
  for (size_t i = begin; i < size && qn_ok(status) && array.dtype == QN_DTYPE_BOOL; i++) {
    if (raw[i] <= 1) continue;
    status =
        qn_status_make(QN_STATUS_DATA_LOSS, "%s: offset %zu: expected a bool of 0 or 1, got %d",
                       name, i, (int)raw[i]);
  }
  if (!qn_ok(status)) {
    npy_free(&array);
    return status;
  }
  if (parser.is_fortran) {
    gather_fortran(&array, raw + begin);
  } else {
    memcpy(array.data, raw + begin, left);
  }
  *out_array = array;
  return QN_OK;
}

// ---------------------------------------------------------------------------------- files

qn_status_t npy_read(const char* path, npy_array_t* out_array) {
  memset(out_array, 0, sizeof *out_array);
  text_t text;
  qn_status_t status = text_read(path, &text);
  if (qn_ok(status)) status = npy_parse(path, text.data, text.size, out_array);
  text_free(&text);
  return status;
}

qn_status_t npy_write(const char* path, qn_dtype_t dtype, int32_t rank, const int64_t* shape,
                      const void* data) {
  const char* descr = NULL;
  for (size_t i = 0; i < DESCRIPTION_COUNT && !descr; i++) {
    if (descriptions[i].dtype == dtype) descr = descriptions[i].descr;
  }
  if (!descr || rank < 0 || rank > NPY_MAX_RANK) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "%s: no .npy form of %s with rank %d", path,
                          qn_dtype_text(dtype), (int)rank);
  }
  char header[1024];
  int size =
      snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  size_t count = 1;
  bool is_packed = qn_dtype_size_bits(dtype) == 4;  // written as its bytes
  for (int32_t d = 0; d < rank; d++) {
    int64_t extent = is_packed && d + 1 == rank ? shape[d] / 2 : shape[d];
    size +=
        snprintf(header + size, sizeof header - (size_t)size, "%s%" PRId64, d ? ", " : "", extent);
    count *= (size_t)extent;
  }
  size += snprintf(header + size, sizeof header - (size_t)size, "%s), }", rank == 1 ? "," : "");
  // Data begins at a multiple of 64, after spaces and a newline.
  size_t padded = ((size_t)size + 11 + 63) / 64 * 64 - 10;
  memset(header + size, ' ', padded - (size_t)size);
  header[padded - 1] = '\n';
  uint8_t prefix[10] = {
      0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)padded, (uint8_t)(padded >> 8)};
  FILE* file = fopen(path, "wb");
  if (!file) return file_error("create", path);
  size_t item_bytes = qn_dtype_size_bytes(dtype);
  bool is_written = fwrite(prefix, 1, sizeof prefix, file) == sizeof prefix &&
                    fwrite(header, 1, padded, file) == padded &&
                    fwrite(data, item_bytes, count, file) == count;
  if (fclose(file) != 0 || !is_written) return file_error("write", path);
  return QN_OK;
}
