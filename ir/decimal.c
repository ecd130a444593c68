// SPDX-License-Identifier: Apache-2.0
// ir/decimal.c: exact conversion between decimal text and float dtypes.
//
// A decimal is an integer D times a power of ten. Both sides of the fraction are big integers; 66
// bits of the quotient and whether anything is left decide the rounding, once, straight to the
// precision of the dtype (going through double first would round twice). Literals are rare and
// short, so the plain method is fast enough: one word each for "0.1".
#include <assert.h>

#include "ir/decimal.h"

#include <math.h>
#include <stdio.h>

#include "ir/arith.h"

enum {
  // A double's exact midpoints have at most 767 significant digits; what follows only breaks ties.
  MAX_DIGITS = 800,
  // 10^(800 + 400) * 2^70 and a doubling: below 4096 + 128 bits.
  MAX_WORDS = 144,
};

typedef struct big {
  uint32_t words[MAX_WORDS];  // little end first
  uint32_t count;
} big_t;

static void big_mul_add(big_t* big, uint32_t factor, uint32_t addend) {
  uint64_t carry = addend;
  for (uint32_t i = 0; i < big->count; i++) {
    carry += (uint64_t)big->words[i] * factor;
    big->words[i] = (uint32_t)carry;
    carry >>= 32;
  }
  if (carry && !QN_NEVER(big->count >= MAX_WORDS)) big->words[big->count++] = (uint32_t)carry;
}

static uint32_t big_bits(const big_t* big) {
  if (big->count == 0) return 0;
  return big->count * 32 - (uint32_t)__builtin_clz(big->words[big->count - 1]);
}

static void big_shift_left(big_t* big, uint32_t shift) {
  uint32_t words = shift / 32;
  uint32_t bits = shift % 32;
  if (QN_NEVER(big->count + words + 1 > MAX_WORDS)) return;
  big->words[big->count] = 0;
  for (uint32_t i = big->count + 1; i-- > 0;) {
    uint64_t high = big->words[i];
    uint64_t low = i > 0 ? big->words[i - 1] : 0;
    big->words[i + words] =
        bits ? (uint32_t)((high << bits) | (low >> (32 - bits))) : (uint32_t)high;
  }
  memset(big->words, 0, words * sizeof big->words[0]);
  big->count += words + 1;
  while (big->count > 0 && big->words[big->count - 1] == 0) big->count--;
}

static int big_compare(const big_t* a, const big_t* b) {
  if (a->count != b->count) return a->count < b->count ? -1 : 1;
  for (uint32_t i = a->count; i-- > 0;) {
    if (a->words[i] != b->words[i]) return a->words[i] < b->words[i] ? -1 : 1;
  }
  return 0;
}

static void big_subtract(big_t* a, const big_t* b) {
  assert(big_compare(a, b) >= 0);
  uint64_t borrow = 0;
  for (uint32_t i = 0; i < a->count; i++) {
    uint64_t take = (i < b->count ? b->words[i] : 0) + borrow;
    borrow = a->words[i] < take;
    a->words[i] = (uint32_t)(a->words[i] - take);
  }
  while (a->count > 0 && a->words[a->count - 1] == 0) a->count--;
}

// Rounds bits * 2^(exponent - 63) with something more below when is_sticky; the top bit is set.
static double round_to(qn__float_format_t format, uint64_t bits, int exponent, bool is_sticky) {
  assert(bits >> 63 == 1);
  int keep = format.precision;
  if (exponent < format.min_exponent) keep -= format.min_exponent - exponent;  // subnormal
  if (keep < 0) return 0.0;
  uint64_t kept = keep == 0 ? 0 : bits >> (64 - keep);
  uint64_t half = (uint64_t)1 << (63 - keep);
  uint64_t rest = keep == 0 ? bits : bits & ((half << 1) - 1);
  if (rest > half || (rest == half && (is_sticky || (kept & 1)))) kept++;
  double value = ldexp((double)kept, exponent + 1 - keep);
  return value > format.largest ? (double)INFINITY : value;
}

double qn__decimal_parse(qn_dtype_t dtype, qn_str_t text) {
  big_t number = {.count = 0};
  bool is_sticky = false;
  bool is_after_point = false;
  uint32_t digits = 0;
  int64_t exponent = 0;
  size_t i = 0;
  for (; i < text.size && text.data[i] != 'e' && text.data[i] != 'E'; i++) {
    char c = text.data[i];
    if (c == '.') is_after_point = true;
    if (c < '0' || c > '9') continue;
    if (digits < MAX_DIGITS) {
      if (number.count == 0) {
        number.words[0] = (uint32_t)(c - '0');
        number.count = c != '0';
      } else {
        big_mul_add(&number, 10, (uint32_t)(c - '0'));
      }
      if (number.count) digits++;
      if (is_after_point) exponent--;
    } else {
      is_sticky = is_sticky || c != '0';
      if (!is_after_point) exponent++;
    }
  }
  if (i < text.size) {
    bool is_negative = i + 1 < text.size && text.data[i + 1] == '-';
    int64_t written = 0;
    for (i++; i < text.size; i++) {
      char c = text.data[i];
      if (c >= '0' && c <= '9' && written < 100000000) written = written * 10 + (c - '0');
    }
    exponent += is_negative ? -written : written;
  }
  if (number.count == 0) return 0.0;
  // Beyond these every dtype has infinity or zero.
  if (exponent + (int64_t)digits > 400) return (double)INFINITY;
  if (exponent + (int64_t)digits < -400) return 0.0;

  big_t divisor = {.words = {1}, .count = 1};
  for (int64_t e = exponent; e > 0; e--) big_mul_add(&number, 10, 0);
  for (int64_t e = exponent; e < 0; e++) big_mul_add(&divisor, 10, 0);
  // Scale to divisor <= number < 2 * divisor; the quotient's exponent is what that took.
  int power = (int)big_bits(&number) - (int)big_bits(&divisor);
  if (power > 0) big_shift_left(&divisor, (uint32_t)power);
  if (power < 0) big_shift_left(&number, (uint32_t)-power);
  if (big_compare(&number, &divisor) < 0) {
    big_shift_left(&number, 1);
    power--;
  }
  assert(big_compare(&number, &divisor) >= 0);
  uint64_t bits = 0;
  for (int bit = 0; bit < 64; bit++) {
    bits <<= 1;
    if (big_compare(&number, &divisor) >= 0) {
      big_subtract(&number, &divisor);
      bits |= 1;
    }
    big_shift_left(&number, 1);
  }
  return round_to(qn__float_format(dtype), bits, power, is_sticky || number.count != 0);
}

// The digits of `value` (positive, finite) rounded to `count` places, and the exponent of the
// first.
static int digits_of(double value, int count, char out_digits[20]) {
  char text[64];
  (void)snprintf(text, sizeof text, "%.*e", count - 1, value);
  // The locale changes only the separator between the first digit and the rest.
  int found = 0;
  const char* c = text;
  for (; *c && *c != 'e'; c++) {
    if (*c >= '0' && *c <= '9' && found < 19) out_digits[found++] = *c;
  }
  int exponent = 0;
  bool is_negative = *c == 'e' && c[1] == '-';
  for (; *c; c++) {
    if (*c >= '0' && *c <= '9') exponent = exponent * 10 + (*c - '0');
  }
  while (found > 1 && out_digits[found - 1] == '0') found--;
  out_digits[found] = '\0';
  return is_negative ? -exponent : exponent;
}

static void write_digits(qn__buffer_t* out, const char* digits, int exponent) {
  int count = (int)strlen(digits);
  if (exponent < -5 || exponent > 15) {
    qn__buffer_char(out, digits[0]);
    if (count > 1) {
      qn__buffer_char(out, '.');
      qn__buffer_cstr(out, digits + 1);
    }
    qn__buffer_format(out, "e%d", exponent);
    return;
  }
  if (exponent < 0) {
    qn__buffer_cstr(out, "0.");
    for (int i = -1; i > exponent; i--) qn__buffer_char(out, '0');
    qn__buffer_cstr(out, digits);
    return;
  }
  for (int i = 0; i <= exponent; i++) qn__buffer_char(out, i < count ? digits[i] : '0');
  qn__buffer_char(out, '.');
  qn__buffer_cstr(out, count > exponent + 1 ? digits + exponent + 1 : "0");
}

void qn__decimal_print(qn_dtype_t dtype, double value, qn__buffer_t* out) {
  if (!isnan(value) && signbit(value)) qn__buffer_char(out, '-');
  value = fabs(value);
  if (!isfinite(value) || value == 0.0) {
    qn__buffer_cstr(out, isnan(value) ? "nan" : isinf(value) ? "inf" : "0.0");
    return;
  }
  char digits[20] = "";
  int exponent = 0;
  for (int count = 1; count <= 17; count++) {
    exponent = digits_of(value, count, digits);
    char text[48];
    (void)snprintf(text, sizeof text, "%se%d", digits, exponent - (int)strlen(digits) + 1);
    if (qn__decimal_parse(dtype, qn__str(text)) == value) break;
  }
  write_digits(out, digits, exponent);
}
