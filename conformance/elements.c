// conformance/elements.c: see elements.h.
#include "conformance/elements.h"

#include <math.h>
#include <string.h>

int conf_precision(qn_dtype_t dtype) {
  static const int bits[QN_DTYPE_COUNT] = {
      [QN_DTYPE_F16] = 11, [QN_DTYPE_BF16] = 8, [QN_DTYPE_F32] = 24, [QN_DTYPE_F64] = 53};
  return bits[dtype];
}

bool conf_is_float(qn_dtype_t dtype) {
  return conf_precision(dtype) > 0;
}

bool conf_is_signed(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_I8 || dtype == QN_DTYPE_I16 || dtype == QN_DTYPE_I32 ||
         dtype == QN_DTYPE_I64;
}

uint64_t conf_bits(qn_dtype_t dtype, const void* data, size_t index) {
  size_t size = qn_dtype_size_bytes(dtype);
  uint64_t bits = 0;
  memcpy(&bits, (const uint8_t*)data + index * size, size);
  return bits;
}

void conf_bits_set(qn_dtype_t dtype, void* data, size_t index, uint64_t bits) {
  size_t size = qn_dtype_size_bytes(dtype);
  memcpy((uint8_t*)data + index * size, &bits, size);
}

int64_t conf_integer(qn_dtype_t dtype, const void* data, size_t index) {
  uint64_t bits = conf_bits(dtype, data, index);
  int shift = 64 - 8 * (int)qn_dtype_size_bytes(dtype);
  return conf_is_signed(dtype) ? (int64_t)(bits << shift) >> shift : (int64_t)bits;
}

// --------------------------------------------------------------------------------- floats of 16
// bits

// Converts a 16-bit float with `fraction_bits` stored bits.
static double small_to_double(uint64_t bits, int fraction_bits) {
  int exponent_bits = 15 - fraction_bits;
  int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  int fraction = (int)bits & ((1 << fraction_bits) - 1);
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

static uint64_t small_from_double(double value, int fraction_bits) {
  int exponent_bits = 15 - fraction_bits;
  int bias = (1 << (exponent_bits - 1)) - 1;
  uint64_t sign = signbit(value) ? 0x8000 : 0;
  uint64_t infinity = (UINT64_C(1) << 15) - (UINT64_C(1) << fraction_bits);
  if (isnan(value)) return sign | infinity | UINT64_C(1) << (fraction_bits - 1);
  if (isinf(value)) return sign | infinity;
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
  return sign | (bits >= (double)infinity ? infinity : (uint64_t)bits);
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
      return small_to_double(bits, conf_precision(dtype) - 1);
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
      bits = small_from_double(value, conf_precision(dtype) - 1);
      break;
    case QN_DTYPE_BOOL:
      bits = value != 0.0;
      break;
    default:
      bits = (uint64_t)(int64_t)value;
  }
  conf_bits_set(dtype, data, index, bits);
}
