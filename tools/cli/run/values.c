// SPDX-License-Identifier: Apache-2.0
// tools/cli/run/values.c: parses the values of --arg and makes the arrays that they describe.
//
// rand: element i (row-major) is output i of SplitMix64 begun at SEED:
//   z = SEED + (i + 1) * 0x9E3779B97F4A7C15;  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
//   z = (z ^ z >> 27) * 0x94D049BB133111EB;   z = z ^ z >> 31
// A float is the topmost p bits of z times 2^-p, where p is the dtype's precision (f64 53, f32 24,
// f16 11, bf16 8, f8e4m3fn 4, f8e5m2 3, f4e2m1fn 2): uniform in [0, 1) and exact. An integer is
// z's upper half modulo 10, modulo 8 for i4; a bool is its lowest bit.
#include "tools/cli/run/values.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quern/device.h"
#include "tools/cli/args.h"
#include "tools/cli/run/elements.h"

#define FORMS "a number, true, false, FILE.npy, zeros:f32[2,3], ones:, iota: or rand:f32[2,3]:SEED"

typedef struct generator_name {
  const char* name;
  value_kind_t kind;
} generator_name_t;

static const generator_name_t generators[] = {
    {"zeros", VALUE_ZEROS}, {"ones", VALUE_ONES}, {"iota", VALUE_IOTA}, {"rand", VALUE_RAND}};
enum { GENERATOR_COUNT = sizeof generators / sizeof generators[0] };

static qn_status_t bad_value(const char* text, const char* why) {
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "value '%s': %s; expected " FORMS, text, why);
}

static bool parse_number(const char* text, value_spec_t* spec) {
  char* end = NULL;
  size_t digits = strspn(text, "+-0123456789");
  errno = 0;
  if (text[digits] == '\0') {
    long long value = strtoll(text, &end, 10);
    spec->kind = VALUE_INT;
    spec->int_value = value;
    if (*end == '\0' && end != text && errno == 0) return true;
    if (errno == ERANGE && value == LLONG_MAX) {
      errno = 0;
      spec->kind = VALUE_UINT;
      spec->int_value = (int64_t)strtoull(text, &end, 10);
      return *end == '\0' && errno == 0;
    }
    if (errno == ERANGE) return false;
  }
  spec->kind = VALUE_FLOAT;
  spec->float_value = strtod(text, &end);
  return end != text && *end == '\0';
}

// Reads "[2,3]" or nothing (rank 0) and moves `*inout_at` past it. Returns a reason, or NULL.
static const char* parse_shape(const char** inout_at, value_spec_t* spec) {
  const char* at = *inout_at;
  if (*at != '[') return NULL;
  at++;
  while (*at == ' ') at++;
  while (*at != ']') {
    if (spec->rank == NPY_MAX_RANK) return "a shape has at most 32 extents";
    if (*at < '0' || *at > '9') return "an extent is a number of 0 or more";
    char* end = NULL;
    errno = 0;
    long long extent = strtoll(at, &end, 10);
    if (errno != 0) return "an extent is beyond 2^63";
    spec->shape[spec->rank++] = extent;
    at = end;
    while (*at == ' ') at++;
    if (*at == ',') {
      at++;
      while (*at == ' ') at++;
    } else if (*at != ']') {
      return "',' or ']' is missing in the shape";
    }
  }
  *inout_at = at + 1;
  return NULL;
}

static qn_status_t parse_generated(const char* text, const char* rest, value_spec_t* spec) {
  char name[16];
  size_t size = strspn(rest, "abcdefghijklmnopqrstuvwxyz0123456789");
  if (size == 0 || size >= sizeof name) return bad_value(text, "a dtype is missing");
  memcpy(name, rest, size);
  name[size] = '\0';
  spec->dtype = qn_dtype_parse(name);
  if (spec->dtype == QN_DTYPE_NONE) {
    return qn_status_make(
        QN_STATUS_INVALID_ARGUMENT,
        "value '%s': unknown dtype '%s'; expected bool, i8 to i64, u8 to u64, f16, "
        "bf16, f32, f64, f8e4m3fn, f8e5m2, i4, u4 or f4e2m1fn",
        text, name);
  }
  rest += size;
  const char* reason = parse_shape(&rest, spec);
  if (reason) return bad_value(text, reason);
  if (spec->kind == VALUE_RAND && *rest == ':') {
    char* end = NULL;
    errno = 0;
    spec->seed = strtoull(rest + 1, &end, 10);
    if (rest[1] < '0' || rest[1] > '9' || errno != 0)
      return bad_value(text, "the seed is no number");
    rest = end;
  }
  if (*rest != '\0') return bad_value(text, "there is more after the shape");
  return QN_OK;
}

static bool ends_with(const char* text, const char* end) {
  size_t size = strlen(text), end_size = strlen(end);
  return size > end_size && strcmp(text + size - end_size, end) == 0;
}

qn_status_t value_parse(const char* text, value_spec_t* out_spec) {
  *out_spec = (value_spec_t){.kind = VALUE_FILE};
  if (ends_with(text, ".npy")) {
    out_spec->path = text;
    return QN_OK;
  }
  if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
    out_spec->kind = VALUE_BOOL;
    out_spec->int_value = text[0] == 't';
    return QN_OK;
  }
  const char* colon = strchr(text, ':');
  size_t size = colon ? (size_t)(colon - text) : 0;
  for (size_t i = 0; i < GENERATOR_COUNT && colon; i++) {
    if (strlen(generators[i].name) != size || memcmp(text, generators[i].name, size) != 0) continue;
    out_spec->kind = generators[i].kind;
    return parse_generated(text, colon + 1, out_spec);
  }
  if (colon) {
    char name[32] = "";
    if (size < sizeof name) memcpy(name, text, size);
    const char* near = nearest_name(name, generators, sizeof generators[0], GENERATOR_COUNT);
    if (near) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "value '%s': unknown generator; did you mean '%s:'?", text, near);
    }
    return bad_value(text, "unknown generator");
  }
  if (parse_number(text, out_spec)) return QN_OK;
  if (strspn(text, "+-0123456789") == strlen(text) && strpbrk(text, "0123456789")) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "value '%s' is beyond 64-bit integers", text);
  }
  return bad_value(text, "not understood");
}

bool value_is_array(const value_spec_t* spec) {
  return spec->kind >= VALUE_FILE;
}

qn_value_t value_scalar(const value_spec_t* spec) {
  if (spec->kind == VALUE_UINT) return qn_value_uint((uint64_t)spec->int_value);
  if (spec->kind == VALUE_FLOAT) return qn_value_float(spec->float_value);
  if (spec->kind == VALUE_BOOL) return qn_value_bool(spec->int_value != 0);
  return qn_value_int(spec->int_value);
}

// -------------------------------------------------------------------------------------- arrays

static uint64_t random_at(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

static void set_integer(npy_array_t* array, size_t index, uint64_t value) {
  conf_bits_set(array->dtype, array->data, index,
                array->dtype == QN_DTYPE_BOOL ? value & 1 : value);
}

static void set_random(npy_array_t* array, size_t index, uint64_t seed) {
  uint64_t bits = random_at(seed, index);
  int precision = conf_precision(array->dtype);
  if (precision > 0) {
    conf_element_set(array->dtype, array->data, index,
                     ldexp((double)(bits >> (64 - precision)), -precision));
  } else {
    set_integer(array, index,
                array->dtype == QN_DTYPE_BOOL
                    ? bits
                    : (bits >> 32) % (array->dtype == QN_DTYPE_I4 ? 8 : 10));
  }
}

static void fill(const value_spec_t* spec, npy_array_t* array) {
  if (spec->kind == VALUE_ZEROS) {
    memset(array->data, 0, array->size_bytes);
    return;
  }
  size_t count = (size_t)array_count(array);
  for (size_t i = 0; i < count; i++) {
    size_t value = spec->kind == VALUE_IOTA ? i : 1;
    if (spec->kind == VALUE_RAND) {
      set_random(array, i, spec->seed);
    } else if (conf_is_float(array->dtype)) {
      conf_element_set(array->dtype, array->data, i, (double)value);
    } else {
      set_integer(array, i, value);
    }
  }
}

// The system would promise memory that it does not have, and end the process at the first touch.
static qn_status_t check_memory(const value_spec_t* spec) {
  qn_attribute_value_t memory;
  qn_status_t status = qn_device_attribute((qn_device_t){QN_DEVICE_CPU, 0},
                                           QN_ATTRIBUTE_AVAILABLE_GLOBAL_MEMORY, &memory);
  if (qn_status_consume(status) != QN_STATUS_OK || memory.type != QN_ATTRIBUTE_TYPE_INT) {
    return QN_OK;
  }
  double size_bytes = (double)qn_dtype_size_bits(spec->dtype) / 8;
  for (int32_t d = 0; d < spec->rank; d++) size_bytes *= (double)spec->shape[d];
  // Not a number: an extent of 0 beside ones beyond all bounds, which npy_make refuses.
  if (!(size_bytes > (double)memory.int_value)) return QN_OK;
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY,
                        "an array of %.3g bytes: the machine has %" PRId64 " available", size_bytes,
                        memory.int_value);
}

qn_status_t value_make(const value_spec_t* spec, qn_dtype_t wanted, npy_array_t* out_array) {
  if (spec->kind == VALUE_FILE) {
    qn_status_t status = npy_read(spec->path, out_array);
    bool is_bf16 = wanted == QN_DTYPE_BF16 && out_array->dtype == QN_DTYPE_U16;
    bool is_stored = conf_is_stored(wanted) && out_array->dtype == QN_DTYPE_U8;
    if (qn_ok(status) && (is_bf16 || is_stored)) out_array->dtype = wanted;
    if (conf_is_packed(out_array->dtype) && out_array->rank > 0) {
      out_array->shape[out_array->rank - 1] *= 2;
    }
    return status;
  }
  *out_array = (npy_array_t){.dtype = QN_DTYPE_NONE};
  qn_status_t status = check_memory(spec);
  if (qn_ok(status)) status = npy_make(spec->dtype, spec->rank, spec->shape, out_array);
  if (qn_ok(status)) fill(spec, out_array);
  return status;
}
