// SPDX-License-Identifier: Apache-2.0
// serve/number.c: the Schubfach algorithm for f32; digits of integers; f64 by an exact fast path
// and strtod for the rest.
#include "serve/number.h"

#include <stdlib.h>
#include <string.h>

// ------------------------------------------------------------------------------------ printing

// Returns floor(e log10(2)) and floor(e log2(10)), for the exponents of an f32.
static int32_t log10_of_power_of_2(int32_t e) {
  return (e * 1262611) >> 22;
}
static int32_t log2_of_power_of_10(int32_t e) {
  return (e * 1741647) >> 19;
}
// Returns floor(log10(3/4 2^e)).
static int32_t log10_of_three_quarters(int32_t e) {
  return (e * 1262611 - 524031) >> 22;
}

enum { POWER_BASE = -31, POWER_END = 45 };
static const uint64_t powers[POWER_END - POWER_BASE + 1] = {
#include "serve/number_powers.inc"
};

// Returns floor(g c / 2^64) with its last bit set if the product is not exact.
static uint32_t round_to_odd(uint64_t g, uint32_t c) {
  const uint64_t low = (uint64_t)(uint32_t)g * c;
  const uint64_t high = (g >> 32) * c + (low >> 32);
  return (uint32_t)(high >> 32) | ((uint32_t)high > 1);
}

typedef struct decimal {
  uint32_t digits;
  int32_t exponent;  // the value is digits * 10^exponent
} decimal_t;

// Finds the decimal of fewest digits in the interval that rounds to `fraction` * 2^..., the nearest
// one if there are several. The value is finite and not zero.
static decimal_t shortest(uint32_t fraction, uint32_t exponent) {
  const bool is_normal = exponent != 0;
  const uint32_t c = is_normal ? fraction | 0x800000u : fraction;
  const int32_t q = (is_normal ? (int32_t)exponent : 1) - 150;
  if (is_normal && q <= 0 && q > -24 && (c & ((1u << -q) - 1)) == 0) {
    return (decimal_t){c >> -q, 0};  // an integer
  }
  const uint32_t is_odd = c & 1;
  // The interval below a power of two is half as long as the one above.
  const bool is_power = fraction == 0 && exponent > 1;
  const int32_t k = is_power ? log10_of_three_quarters(q) : log10_of_power_of_2(q);
  const int32_t h = q + log2_of_power_of_10(-k) + 1;
  const uint64_t g = powers[-k - POWER_BASE];
  const uint32_t lower = round_to_odd(g, (4 * c - 2 + is_power) << h) + is_odd;
  const uint32_t middle = round_to_odd(g, (4 * c) << h);
  const uint32_t upper = round_to_odd(g, (4 * c + 2) << h) - is_odd;
  const uint32_t s = middle / 4;
  if (s >= 10) {
    const uint32_t tens = s / 10;
    const bool is_low_inside = lower <= 40 * tens;
    const bool is_high_inside = 40 * tens + 40 <= upper;
    if (is_low_inside != is_high_inside) return (decimal_t){tens + is_high_inside, k + 1};
  }
  const bool is_low_inside = lower <= 4 * s;
  const bool is_high_inside = 4 * s + 4 <= upper;
  if (is_low_inside != is_high_inside) return (decimal_t){s + is_high_inside, k};
  const uint32_t half = 4 * s + 2;
  return (decimal_t){s + (middle > half || (middle == half && (s & 1))), k};
}

// Writes the digits of a number and returns how many there are.
static size_t put_digits(uint64_t value, char* out) {
  char reversed[20];
  size_t count = 0;
  do {
    reversed[count++] = (char)('0' + value % 10);
    value /= 10;
  } while (value != 0);
  for (size_t i = 0; i < count; ++i) out[i] = reversed[count - 1 - i];
  return count;
}

// Writes digits and an exponent: as they are, with a point between them, after zeros, or
// scientific.
static size_t put_decimal(decimal_t decimal, char* out) {
  enum { LEAST_PLAIN = -4, MOST_PLAIN = 9 };
  while (decimal.digits % 10 == 0) {
    decimal.digits /= 10;
    decimal.exponent++;
  }
  char digits[20];
  const size_t count = put_digits(decimal.digits, digits);
  const int32_t point = decimal.exponent + (int32_t)count;  // digits before the point
  char* at = out;
  if (point > LEAST_PLAIN && point <= 0) {
    *at++ = '0';
    *at++ = '.';
    for (int32_t i = point; i < 0; ++i) *at++ = '0';
    memcpy(at, digits, count);
    return (size_t)(at - out) + count;
  }
  if (point > 0 && point <= MOST_PLAIN) {
    for (int32_t i = 0; i < point; ++i) *at++ = i < (int32_t)count ? digits[i] : '0';
    if (point < (int32_t)count) {
      *at++ = '.';
      memcpy(at, digits + point, count - (size_t)point);
      at += count - (size_t)point;
    }
    return (size_t)(at - out);
  }
  *at++ = digits[0];
  if (count > 1) {
    *at++ = '.';
    memcpy(at, digits + 1, count - 1);
    at += count - 1;
  }
  *at++ = 'e';
  if (point - 1 < 0) *at++ = '-';
  at += put_digits((uint64_t)(point > 0 ? point - 1 : 1 - point), at);
  return (size_t)(at - out);
}

size_t serve_f32_print(float value, char out_text[SERVE_F32_LENGTH]) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint32_t exponent = bits >> 23 & 0xff;
  const uint32_t fraction = bits & 0x7fffff;
  if (exponent == 0xff) {
    memcpy(out_text, "null", 4);
    return 4;
  }
  char* at = out_text;
  if (bits >> 31) *at++ = '-';
  if (exponent == 0 && fraction == 0) {
    *at++ = '0';
    return (size_t)(at - out_text);
  }
  at += put_decimal(shortest(fraction, exponent), at);
  return (size_t)(at - out_text);
}

size_t serve_i64_print(int64_t value, char out_text[SERVE_I64_LENGTH]) {
  char* at = out_text;
  if (value < 0) *at++ = '-';
  at += put_digits(value < 0 ? 0 - (uint64_t)value : (uint64_t)value, at);
  return (size_t)(at - out_text);
}

// ------------------------------------------------------------------------------------ reading

static bool is_digit(const char* at, const char* end) {
  return at < end && *at >= '0' && *at <= '9';
}

size_t serve_i64_read(const char* text, size_t size, int64_t* out_value) {
  const char* end = text + size;
  const char* at = text;
  const bool is_negative = at < end && *at == '-';
  at += is_negative;
  if (!is_digit(at, end)) return 0;
  if (*at == '0' && is_digit(at + 1, end)) return 0;
  enum { MAX_DIGITS = 19 };  // of an i64; a u64 holds each number of as many
  const char* first = at;
  uint64_t value = 0;
  for (; is_digit(at, end); ++at) value = 10 * value + (uint64_t)(*at - '0');
  if (at - first > MAX_DIGITS || value > (uint64_t)INT64_MAX + is_negative) return 0;
  if (at < end && (*at == '.' || *at == 'e' || *at == 'E')) return 0;
  *out_value = (int64_t)(is_negative ? 0 - value : value);
  return (size_t)(at - text);
}

// Reads a number of any length by strtod; the locale of the server is that of C.
static double read_slowly(const char* text, size_t size) {
  char small[64];
  char* copy = size < sizeof small ? small : malloc(size + 1);
  if (!copy) return 0.0 / 0.0;
  memcpy(copy, text, size);
  copy[size] = '\0';
  const double value = strtod(copy, NULL);
  if (copy != small) free(copy);
  return value;
}

size_t serve_f64_read(const char* text, size_t size, double* out_value) {
  // Exact in f64, so that one rounding remains where the digits are exact as well.
  static const double exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                 1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  enum { MAX_EXACT = 22, MAX_DIGITS = 19 };
  const char* end = text + size;
  const char* at = text;
  const bool is_negative = at < end && *at == '-';
  at += is_negative;
  if (!is_digit(at, end)) return 0;
  if (*at == '0' && is_digit(at + 1, end)) return 0;
  uint64_t digits = 0;
  int count = 0;
  int64_t exponent = 0;
  bool is_dropped = false;
  for (; is_digit(at, end); ++at) {
    if (count < MAX_DIGITS) {
      digits = 10 * digits + (uint64_t)(*at - '0');
      count += digits != 0;
    } else {
      is_dropped = true;
    }
  }
  if (at < end && *at == '.') {
    ++at;
    if (!is_digit(at, end)) return 0;
    for (; is_digit(at, end); ++at) {
      if (count < MAX_DIGITS) {
        digits = 10 * digits + (uint64_t)(*at - '0');
        count += digits != 0;
        exponent--;
      } else {
        is_dropped = true;
      }
    }
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    ++at;
    const bool is_small = at < end && *at == '-';
    at += at < end && (*at == '-' || *at == '+');
    if (!is_digit(at, end)) return 0;
    int64_t given = 0;
    for (; is_digit(at, end); ++at) {
      if (given < 100000) given = 10 * given + (*at - '0');
    }
    exponent += is_small ? -given : given;
  }
  const size_t length = (size_t)(at - text);
  if (is_dropped || digits > (UINT64_C(1) << 53) || exponent < -MAX_EXACT || exponent > MAX_EXACT) {
    *out_value = read_slowly(text, length);
    return length;
  }
  const double value =
      exponent < 0 ? (double)digits / exact[-exponent] : (double)digits * exact[exponent];
  *out_value = is_negative ? -value : value;
  return length;
}
