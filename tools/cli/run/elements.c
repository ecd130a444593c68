#include "tools/cli/run/elements.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int dtype_precision(qn_dtype_t dtype) {
  static const int bits[QN_DTYPE_COUNT] = {
      [QN_DTYPE_F16] = 11, [QN_DTYPE_BF16] = 8, [QN_DTYPE_F32] = 24, [QN_DTYPE_F64] = 53};
  return bits[dtype];
}

bool dtype_is_float(qn_dtype_t dtype) {
  return dtype_precision(dtype) > 0;
}

// Converts a 16-bit float with `fraction_bits` stored bits.
static double small_to_double(uint16_t bits, int fraction_bits) {
  int exponent_bits = 15 - fraction_bits;
  int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  int fraction = bits & ((1 << fraction_bits) - 1);
  double magnitude = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    magnitude = fraction ? (double)NAN : (double)INFINITY;
  } else if (exponent == 0) {
    magnitude = ldexp(fraction, 1 - bias - fraction_bits);
  } else {
    magnitude = ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  }
  return bits >> 15 ? -magnitude : magnitude;
}

static uint16_t small_from_double(double value, int fraction_bits) {
  int exponent_bits = 15 - fraction_bits;
  int bias = (1 << (exponent_bits - 1)) - 1;
  uint16_t sign = (uint16_t)(signbit(value) ? 0x8000 : 0);
  uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << fraction_bits);
  if (isnan(value)) return (uint16_t)(sign | infinity | (1 << (fraction_bits - 1)));
  if (isinf(value)) return (uint16_t)(sign | infinity);
  int exponent = 0;
  double magnitude = fabs(value);
  (void)frexp(magnitude, &exponent);
  // The unit in the last place; subnormals share that of the smallest normal numbers.
  int unit = exponent - 1 - fraction_bits;
  if (magnitude == 0 || unit < 1 - bias - fraction_bits) unit = 1 - bias - fraction_bits;
  double steps = nearbyint(ldexp(magnitude, -unit));
  int exponent_field = unit - (1 - bias - fraction_bits);
  // A significand at or above the hidden bit carries into the exponent by itself.
  double bits = steps + ldexp(exponent_field, fraction_bits);
  return (uint16_t)(sign | (bits >= infinity ? infinity : (uint16_t)bits));
}

static void* element_at(const npy_array_t* array, int64_t index) {
  return (char*)array->data + (size_t)index * qn_dtype_size_bytes(array->dtype);
}

// Returns an integer or boolean element; a u64 beyond 2^63 - 1 wraps.
static int64_t get_int(const npy_array_t* array, int64_t index) {
  size_t size = qn_dtype_size_bytes(array->dtype);
  uint64_t bits = 0;
  memcpy(&bits, element_at(array, index), size);
  bool is_signed = array->dtype >= QN_DTYPE_I8 && array->dtype <= QN_DTYPE_I64;
  int shift = is_signed ? 64 - 8 * (int)size : 0;
  return is_signed ? (int64_t)(bits << shift) >> shift : (int64_t)bits;
}

double element_get(const npy_array_t* array, int64_t index) {
  const void* at = element_at(array, index);
  switch (array->dtype) {
    case QN_DTYPE_F16:
      return small_to_double(*(const uint16_t*)at, 10);
    case QN_DTYPE_BF16:
      return small_to_double(*(const uint16_t*)at, 7);
    case QN_DTYPE_F32:
      return (double)*(const float*)at;
    case QN_DTYPE_F64:
      return *(const double*)at;
    case QN_DTYPE_U64:
      return (double)(uint64_t)get_int(array, index);
    default:
      return (double)get_int(array, index);
  }
}

void element_set_float(npy_array_t* array, int64_t index, double value) {
  void* at = element_at(array, index);
  switch (array->dtype) {
    case QN_DTYPE_F16:
      *(uint16_t*)at = small_from_double(value, 10);
      break;
    case QN_DTYPE_BF16:
      *(uint16_t*)at = small_from_double(value, 7);
      break;
    case QN_DTYPE_F32:
      *(float*)at = (float)value;
      break;
    case QN_DTYPE_F64:
      *(double*)at = value;
      break;
    default:
      break;
  }
}

void element_set_int(npy_array_t* array, int64_t index, uint64_t value) {
  if (array->dtype == QN_DTYPE_BOOL) value &= 1;
  memcpy(element_at(array, index), &value, qn_dtype_size_bytes(array->dtype));
}

static const char* float_text(double value, qn_dtype_t dtype, char out[40]) {
  if (isnan(value)) return "nan";
  if (isinf(value)) return value < 0 ? "-inf" : "inf";
  // Adds digits until the text reads back as the same value of the dtype.
  npy_array_t one = {.dtype = dtype};
  union {
    uint16_t small;
    float single;
    double value;
  } slot;
  one.data = &slot;
  int digits = 0;
  do {
    (void)snprintf(out, 40, "%.*g", ++digits, value);
    element_set_float(&one, 0, strtod(out, NULL));
  } while (element_get(&one, 0) != value && digits < 17);
  // 10, not 1e+01: as many digits as the integer part has.
  int integer_digits = value == 0 ? 1 : 1 + (int)floor(log10(fabs(value)));
  if (strchr(out, 'e') && integer_digits > digits && integer_digits <= 9) {
    (void)snprintf(out, 40, "%.0f", value);
  }
  return out;
}

const char* element_text(const npy_array_t* array, int64_t index, char out[40]) {
  if (dtype_is_float(array->dtype)) return float_text(element_get(array, index), array->dtype, out);
  int64_t value = get_int(array, index);
  if (array->dtype == QN_DTYPE_BOOL) return value ? "true" : "false";
  bool is_unsigned = array->dtype == QN_DTYPE_U64;
  (void)snprintf(out, 40, is_unsigned ? "%" PRIu64 : "%" PRId64, value);
  return out;
}

json_t* element_json(const npy_array_t* array, int64_t index) {
  char text[40];
  if (dtype_is_float(array->dtype)) {
    double value = element_get(array, index);
    return isfinite(value) ? json_real(value) : json_string(element_text(array, index, text));
  }
  int64_t value = get_int(array, index);
  if (array->dtype == QN_DTYPE_BOOL) return json_boolean(value != 0);
  if (array->dtype == QN_DTYPE_U64 && value < 0) {
    return json_string(element_text(array, index, text));
  }
  return json_integer(value);
}

int64_t array_count(const npy_array_t* array) {
  int64_t count = 1;
  for (int32_t d = 0; d < array->rank; d++) count *= array->shape[d];
  return count;
}

const char* array_text(const npy_array_t* array, char out[512]) {
  int size = snprintf(out, 512, "%s[", qn_dtype_text(array->dtype));
  for (int32_t d = 0; d < array->rank && size < 480; d++) {
    size += snprintf(out + size, 512 - (size_t)size, "%s%" PRId64, d ? ", " : "", array->shape[d]);
  }
  (void)snprintf(out + size, 512 - (size_t)size, "]");
  return out;
}
