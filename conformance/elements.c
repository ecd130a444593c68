// SPDX-License-Identifier: Apache-2.0
// conformance/elements.c: see elements.h.
#include "conformance/elements.h"

#include <math.h>
#include <string.h>

int conf_precision(qn_dtype_t dtype) {
  static const int bits[QN_DTYPE_COUNT] = {
      [QN_DTYPE_F16] = 11,     [QN_DTYPE_BF16] = 8,   [QN_DTYPE_F32] = 24,    [QN_DTYPE_F64] = 53,
      [QN_DTYPE_F8E4M3FN] = 4, [QN_DTYPE_F8E5M2] = 3, [QN_DTYPE_F4E2M1FN] = 2};
  return bits[dtype];
}

bool conf_is_float(qn_dtype_t dtype) {
  return conf_precision(dtype) > 0;
}

bool conf_is_stored(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_F8E4M3FN || dtype == QN_DTYPE_F8E5M2 || conf_is_packed(dtype);
}

bool conf_is_packed(qn_dtype_t dtype) {
  return qn_dtype_size_bits(dtype) == 4;
}

size_t conf_size_bytes(qn_dtype_t dtype, size_t count) {
  return conf_is_packed(dtype) ? (count + 1) / 2 : count * qn_dtype_size_bytes(dtype);
}

bool conf_is_signed(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_I8 || dtype == QN_DTYPE_I16 || dtype == QN_DTYPE_I32 ||
         dtype == QN_DTYPE_I64 || dtype == QN_DTYPE_I4;
}

uint64_t conf_bits(qn_dtype_t dtype, const void* data, size_t index) {
  size_t size = qn_dtype_size_bytes(dtype);
  uint64_t bits = 0;
  if (conf_is_packed(dtype)) return ((const uint8_t*)data)[index / 2] >> 4 * (index % 2) & 15;
  memcpy(&bits, (const uint8_t*)data + index * size, size);
  return bits;
}

void conf_bits_set(qn_dtype_t dtype, void* data, size_t index, uint64_t bits) {
  size_t size = qn_dtype_size_bytes(dtype);
  if (conf_is_packed(dtype)) {
    uint8_t* byte = (uint8_t*)data + index / 2;
    unsigned shift = 4 * (index % 2);
    *byte = (uint8_t)((*byte & ~(15u << shift)) | (bits & 15) << shift);
    return;
  }
  memcpy((uint8_t*)data + index * size, &bits, size);
}

int64_t conf_integer(qn_dtype_t dtype, const void* data, size_t index) {
  uint64_t bits = conf_bits(dtype, data, index);
  int shift = 64 - (int)qn_dtype_size_bits(dtype);
  return conf_is_signed(dtype) ? (int64_t)(bits << shift) >> shift : (int64_t)bits;
}

// ------------------------------------------------------------------------- floats of 4 to 16 bits

// A format of small floats. `largest` has the bits of the largest finite number; the codes above it
// are infinity, if the format has it, and NaN.
typedef struct small {
  int bits;
  int fraction_bits;
  int bias;
  uint64_t largest;
  uint64_t infinity;  // 0: none
  uint64_t nan;       // 0: none
} small_t;

static small_t small_of(qn_dtype_t dtype) {
  switch (dtype) {
    case QN_DTYPE_F16:
      return (small_t){16, 10, 15, 0x7BFF, 0x7C00, 0x7E00};
    case QN_DTYPE_BF16:
      return (small_t){16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0};
    case QN_DTYPE_F8E5M2:
      return (small_t){8, 2, 15, 0x7B, 0x7C, 0x7E};
    case QN_DTYPE_F4E2M1FN:
      return (small_t){4, 1, 1, 7, 0, 0};
    default:
      return (small_t){8, 3, 7, 0x7E, 0, 0x7F};
  }
}

static double small_to_double(small_t f, uint64_t bits) {
  uint64_t sign = UINT64_C(1) << (f.bits - 1);
  uint64_t code = bits & (sign - 1);
  int exponent = (int)(code >> f.fraction_bits);
  int fraction = (int)code & ((1 << f.fraction_bits) - 1);
  double magnitude = 0;
  if (code > f.largest) {
    magnitude = code == f.infinity ? (double)INFINITY : (double)NAN;
  } else if (exponent == 0) {
    magnitude = ldexp(fraction, 1 - f.bias - f.fraction_bits);
  } else {
    magnitude = ldexp(fraction + (1 << f.fraction_bits), exponent - f.bias - f.fraction_bits);
  }
  return bits & sign ? -magnitude : magnitude;
}

static uint64_t small_from_double(small_t f, double value) {
  uint64_t sign = signbit(value) ? UINT64_C(1) << (f.bits - 1) : 0;
  uint64_t beyond = f.infinity ? f.infinity : f.nan ? f.nan : f.largest;
  if (isnan(value)) return f.nan ? sign | f.nan : UINT64_C(1) << (f.bits - 1);  // -0
  if (isinf(value)) return sign | beyond;
  int exponent = 0;
  double magnitude = fabs(value);
  (void)frexp(magnitude, &exponent);
  // The unit in the last place; subnormals share that of the smallest normal numbers.
  int unit = exponent - 1 - f.fraction_bits;
  if (magnitude == 0 || unit < 1 - f.bias - f.fraction_bits) unit = 1 - f.bias - f.fraction_bits;
  double steps = nearbyint(ldexp(magnitude, -unit));
  int exponent_field = unit - (1 - f.bias - f.fraction_bits);
  // A significand at or above the hidden bit carries into the exponent by itself.
  double bits = steps + ldexp(exponent_field, f.fraction_bits);
  return sign | (bits > (double)f.largest ? beyond : (uint64_t)bits);
}

// --------------------------------------------------------------------------------------- any dtype

double conf_element(qn_dtype_t dtype, const void* data, size_t index) {
  uint64_t bits = conf_bits(dtype, data, index);
  double wide;
  float narrow;
  switch (dtype) {
    case QN_DTYPE_F64:
      memcpy(&wide, &bits, sizeof wide);
      return wide;
    case QN_DTYPE_F32:
      memcpy(&narrow, &bits, sizeof narrow);
      return (double)narrow;
    case QN_DTYPE_F16:
    case QN_DTYPE_BF16:
    case QN_DTYPE_F8E4M3FN:
    case QN_DTYPE_F8E5M2:
    case QN_DTYPE_F4E2M1FN:
      return small_to_double(small_of(dtype), bits);
    case QN_DTYPE_U64:
      return (double)bits;
    default:
      return (double)conf_integer(dtype, data, index);
  }
}

void conf_element_set(qn_dtype_t dtype, void* data, size_t index, double value) {
  uint64_t bits = 0;
  float narrow = (float)value;
  switch (dtype) {
    case QN_DTYPE_F64:
      memcpy(&bits, &value, sizeof value);
      break;
    case QN_DTYPE_F32:
      memcpy(&bits, &narrow, sizeof narrow);
      break;
    case QN_DTYPE_F16:
    case QN_DTYPE_BF16:
    case QN_DTYPE_F8E4M3FN:
    case QN_DTYPE_F8E5M2:
    case QN_DTYPE_F4E2M1FN:
      bits = small_from_double(small_of(dtype), value);
      break;
    case QN_DTYPE_BOOL:
      bits = value != 0.0;
      break;
    default:
      bits = (uint64_t)(int64_t)value;
  }
  conf_bits_set(dtype, data, index, bits);
}
