// SPDX-License-Identifier: Apache-2.0
// conformance/arrays.c: see arrays.h.
#include "conformance/arrays.h"

#include "quern/ir.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ------------------------------------------------------------------------------------------ fills

static uint64_t random_bits(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0xD1342543DE82EF95u + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

static double random_unit(uint64_t bits) {
  return (double)(bits >> 11) * 0x1p-53;
}

bool conf_is_flushed(const conf_t* c, qn_dtype_t dtype, double value) {
  if (dtype == QN_DTYPE_F64) return c->flushes_f64 && fabs(value) < 0x1p-1022;
  bool has_exponent_of_f32 = dtype == QN_DTYPE_F32 || dtype == QN_DTYPE_BF16;
  return has_exponent_of_f32 && c->flushes_f32 && fabs(value) < 0x1p-126;
}

// Values that are likely to be wrong, before random bits.
static void fill_bits(const conf_t* c, conf_array_t* array, uint8_t* data, uint64_t seed) {
  static const double floats[] = {0.0,   -0.0,   1.0,   -1.0,         0.5,           -0.5,
                                  1.5,   2.5,    -2.5,  3.0,          65504.0,       -65504.0,
                                  1e-3,  1e5,    -1e5,  2147483648.0, -2147483648.0, 4294967296.0,
                                  1e18,  -1e18,  1e-30, 3.3e38,       0.49999997,    8388609.0,
                                  255.5, -128.5, 127.5, 0.1};
  uint64_t top = UINT64_C(1) << (qn_dtype_size_bits(array->dtype) - 1);
  const uint64_t integers[] = {0, 1, ~UINT64_C(0), top, top - 1, top + 1, 2, 7};
  for (size_t i = 0; i < array->element_count; i++) {
    uint64_t bits = random_bits(seed, i);
    if (array->dtype == QN_DTYPE_BOOL) {
      conf_bits_set(array->dtype, data, i, bits >> 40 & 1);
    } else if (!conf_is_float(array->dtype)) {
      bool is_special = i < 64 || bits % 8 == 0;
      conf_bits_set(array->dtype, data, i, is_special ? integers[(bits >> 20) % 8] : bits);
    } else if (i < 3 || bits % 32 == 0) {
      const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
      conf_element_set(array->dtype, data, i, odd[(i + seed) % 3]);
    } else if (bits % 8 == 1) {
      conf_element_set(array->dtype, data, i, bits >> 30 & 1 ? 0.0 : -0.0);
    } else if (bits % 4 == 0 || i < 40) {
      conf_element_set(array->dtype, data, i, floats[(bits >> 20) % CONF_COUNT_OF(floats)]);
    } else {
      conf_bits_set(array->dtype, data, i, bits);
    }
    if (conf_is_flushed(c, array->dtype, conf_element(array->dtype, data, i))) {
      conf_element_set(array->dtype, data, i, 0.0);
    }
  }
}

typedef enum fill {
  FILL_RAND,  // floats in [-4, 4), integers in -8..8 (0..16 when unsigned)
  FILL_POS,   // floats in [0.1, 4.1), integers in 1..8
  FILL_BITS,  // awkward values first, then any bits
  FILL_ZERO,
  FILL_ONE,
  FILL_IOTA,   // 0, 1, 2, ...
  FILL_JUNK,   // the contents of an output before the call: not zero
  FILL_BELOW,  // belowN: integers in 0..N
} fill_t;
static const struct {
  const char* name;
  fill_t fill;
} fills[] = {{"rand", FILL_RAND}, {"pos", FILL_POS},   {"bits", FILL_BITS}, {"zero", FILL_ZERO},
             {"one", FILL_ONE},   {"iota", FILL_IOTA}, {"junk", FILL_JUNK}, {"below", FILL_BELOW}};

static double value_of(fill_t fill, qn_dtype_t dtype, uint64_t bits, size_t index, int64_t limit) {
  bool is_float = conf_is_float(dtype);
  switch (fill) {
    case FILL_RAND:
      if (dtype == QN_DTYPE_BOOL) return (double)(bits >> 40 & 1);
      if (is_float) return random_unit(bits) * 8.0 - 4.0;
      return (double)((int64_t)(bits >> 40) % 16 - (conf_is_signed(dtype) ? 8 : 0));
    case FILL_POS:
      return is_float ? random_unit(bits) * 4.0 + 0.1 : (double)(1 + (bits >> 40) % 7);
    case FILL_ONE:
      return 1.0;
    case FILL_IOTA:
      return dtype == QN_DTYPE_BOOL ? (double)(index & 1) : (double)index;
    case FILL_JUNK:
      return dtype == QN_DTYPE_BOOL ? 0.0 : 77.0;
    case FILL_BELOW:
      return (double)((int64_t)(bits >> 24) % limit);
    default:
      return 0.0;
  }
}

// ------------------------------------------------------------------------------------------- text

static bool odd_item(conf_t* c, const char* item) {
  conf_fail(c, "the suite's own arguments cannot be read at '%.40s'", item);
  return false;
}

static bool read_fill(const char** inout_at, fill_t* out_fill, int64_t* out_limit) {
  for (size_t i = 0; i < CONF_COUNT_OF(fills); i++) {
    size_t size = strlen(fills[i].name);
    if (strncmp(*inout_at, fills[i].name, size) != 0) continue;
    *out_fill = fills[i].fill;
    *inout_at += size;
    *out_limit = 1;
    if (fills[i].fill == FILL_BELOW)
      *out_limit = strtoll(*inout_at, (char**)(uintptr_t)inout_at, 10);
    return *(*inout_at)++ == ':' && *out_limit > 0;
  }
  return false;
}

static bool read_array(conf_t* c, const char* item, uint64_t seed, conf_array_t* out) {
  fill_t fill;
  int64_t limit;
  const char* at = item;
  char* end;
  if (!read_fill(&at, &fill, &limit)) return odd_item(c, item);
  while ('0' <= *at && *at <= '9' && out->rank < CONF_MAX_RANK) {
    out->shape[out->rank++] = strtoll(at, &end, 10);
    at = *end == 'x' ? end + 1 : end;
  }
  out->has_strides = *at == '/';
  for (int32_t d = 0; out->has_strides && d < out->rank; d++) {
    out->strides[d] = strtoll(at + 1, &end, 10);
    at = end;
  }
  if (*at == '@') {
    out->offset_bytes = (size_t)strtoull(at + 1, &end, 10);
    at = end;
  }
  if (*at != '\0' && *at != ' ' && *at != ';') return odd_item(c, item);
  bool is_empty = false;
  int64_t compact = 1, reach = 0;
  for (int32_t d = out->rank - 1; d >= 0; d--) {
    is_empty |= out->shape[d] == 0;
    int64_t stride = out->has_strides ? out->strides[d] : compact;
    reach += (out->shape[d] - 1) * stride;
    compact *= out->shape[d];
  }
  out->element_count = is_empty ? 0 : (size_t)reach + 1;
  out->size_bytes = out->offset_bytes + conf_size_bytes(out->dtype, out->element_count);
  out->host = conf_host_memory(c, out->size_bytes);
  if (!out->host) return false;
  memset(out->host, 0x5A, out->offset_bytes);
  uint8_t* data = out->host + out->offset_bytes;
  if (fill == FILL_BITS) {
    fill_bits(c, out, data, seed);
    return true;
  }
  for (size_t i = 0; i < out->element_count; i++) {
    double value = value_of(fill, out->dtype, random_bits(seed, i), i, limit);
    conf_element_set(out->dtype, data, i, value);
  }
  return true;
}

bool conf_args_make(conf_t* c, const qn_module_t* module, size_t index, const char* text,
                    conf_args_t* out) {
  memset(out, 0, sizeof *out);
  size_t count = qn_module_function_param_count(module, index);
  const char* at = text;
  for (size_t i = 0; i < count && i < CONF_MAX_ARGS; i++) {
    while (*at == ' ') at++;
    qn_param_info_t info = {.struct_size = sizeof info};
    if (!conf_ok(c, qn_module_param_info(module, index, i, &info))) return false;
    out->is_array[i] = info.is_buffer;
    out->arrays[i].dtype = info.dtype;
    if (info.is_buffer) {
      if (!read_array(c, at, i + 1, &out->arrays[i])) return false;
    } else {
      char* end;
      double number = strtod(at, &end);
      if (end == at) return odd_item(c, at);
      // Reads a whole number as an integer: a double cannot hold 2^63 - 1.
      char* whole_end;
      const int64_t whole = strtoll(at, &whole_end, 10);
      out->scalars[i] = conf_is_float(info.dtype)
                            ? qn_value_float(number)
                            : qn_value_int(whole_end == end ? whole : (int64_t)number);
    }
    at += strcspn(at, " ;");
    out->count = i + 1;
  }
  while (*at == ' ') at++;
  return *at == '\0' || *at == ';' ? true : odd_item(c, at);
}

// -------------------------------------------------------------------------------------- comparing

static bool is_close(const conf_t* c, qn_dtype_t dtype, const void* expected, const void* got,
                     size_t index, double tolerance) {
  if (conf_bits(dtype, expected, index) == conf_bits(dtype, got, index)) return true;
  if (!conf_is_float(dtype)) return false;
  double a = conf_element(dtype, expected, index), b = conf_element(dtype, got, index);
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  if (b == 0.0 && conf_is_flushed(c, dtype, a)) return true;
  // Without a tolerance, zeros of other signs differ.
  if (tolerance <= 0 || !isfinite(a) || !isfinite(b)) return false;
  return fabs(a - b) <= tolerance * (fabs(a) > 1.0 ? fabs(a) : 1.0);
}

static void element_text(qn_dtype_t dtype, const void* data, size_t index, char out[64]) {
  if (conf_is_float(dtype)) {
    (void)snprintf(out, 64, "%.9g (0x%" PRIx64 ")", conf_element(dtype, data, index),
                   conf_bits(dtype, data, index));
  } else {
    (void)snprintf(out, 64, "%.17g", conf_element(dtype, data, index));
  }
}

bool conf_array_compare(conf_t* c, const char* what, const conf_array_t* expected,
                        const uint8_t* got, double tolerance) {
  if (memcmp(expected->host, got, expected->size_bytes) == 0) return true;
  if (memcmp(expected->host, got, expected->offset_bytes) != 0) {
    conf_fail(c, "%s: bytes in front of the tensor were written", what);
    return false;
  }
  const uint8_t* wanted = expected->host + expected->offset_bytes;
  got += expected->offset_bytes;
  size_t wrong_count = 0, first = 0;
  for (size_t i = 0; i < expected->element_count; i++) {
    if (is_close(c, expected->dtype, wanted, got, i, tolerance)) continue;
    if (wrong_count++ == 0) first = i;
  }
  if (wrong_count == 0) return true;
  char wanted_text[64], got_text[64];
  element_text(expected->dtype, wanted, first, wanted_text);
  element_text(expected->dtype, got, first, got_text);
  conf_fail(c, "%s: %zu of %zu elements differ; element %zu is %s, expected %s", what, wrong_count,
            expected->element_count, first, got_text, wanted_text);
  return false;
}
