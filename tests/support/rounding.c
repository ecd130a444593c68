// SPDX-License-Identifier: Apache-2.0
// tests/support/rounding.c: see rounding.h.
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct list {
  qn_test_rounding_t* items;
  size_t count;
  size_t capacity;
} list_t;

static void add(list_t* list, uint64_t from, uint32_t to) {
  if (list->count < list->capacity) {
    list->items[list->count] = (qn_test_rounding_t){from, (uint16_t)to};
  }
  list->count++;
}

static uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Both signs.
static void add_double(list_t* list, uint64_t bits, uint32_t to) {
  add(list, bits, to);
  add(list, bits | UINT64_C(1) << 63, to | 0x8000);
}

// The value of a pattern that is no NaN; that of infinity is the next power of two.
static double widen(bool is_bf16, uint32_t bits) {
  int mantissa_bits = is_bf16 ? 7 : 10;
  int exponent = (int)(bits >> mantissa_bits);
  double mantissa = (double)(bits & ((1u << mantissa_bits) - 1));
  double one = (double)(1u << mantissa_bits);
  int lowest = is_bf16 ? -126 : -14;
  return exponent == 0 ? ldexp(mantissa, lowest - mantissa_bits)
                       : ldexp(one + mantissa, exponent - 1 + lowest - mantissa_bits);
}

static void add_doubles(list_t* list, bool is_bf16) {
  const uint32_t infinity = is_bf16 ? 0x7F80 : 0x7C00;
  // In units of the last place of f64: among them those that f32 rounds away, and half of its unit.
  static const uint64_t steps[] = {1,
                                   2,
                                   UINT64_C(1) << 20,
                                   (UINT64_C(1) << 28) - 1,
                                   UINT64_C(1) << 28,
                                   (UINT64_C(1) << 28) + 1,
                                   UINT64_C(1) << 29,
                                   (UINT64_C(1) << 32) + 1,
                                   UINT64_C(1) << 36,
                                   UINT64_C(1) << 37};
  enum { STEPS = sizeof steps / sizeof steps[0] };
  for (uint32_t k = 0; k < infinity; k++) {
    uint64_t exact = bits_of(widen(is_bf16, k));
    uint64_t middle = bits_of((widen(is_bf16, k) + widen(is_bf16, k + 1)) / 2);
    add_double(list, exact, k);
    add_double(list, middle, k + (k & 1));
    for (size_t s = 0; s < STEPS; s++) {
      if (k > 0) add_double(list, exact - steps[s], k);
      if (k > 0) add_double(list, exact + steps[s], k);
      add_double(list, middle - steps[s], k);
      add_double(list, middle + steps[s], k + 1);
    }
  }
  const struct {
    uint64_t bits;
    uint32_t to;
  } rest[] = {
      {1, 0},  // the smallest f64
      {bits_of(0x1p-1022), 0},
      {bits_of(0x1p-149), 0},
      {bits_of(0x1.8p-149), 0},
      {bits_of(0x1.fffffep127), infinity},  // the largest f32
      {bits_of(0x1.ffffffp127), infinity},  // halfway behind it
      {bits_of(0x1.fffffffffffffp1023), infinity},
      {UINT64_C(0x7FF) << 52, infinity},
      {UINT64_C(0x7FF0000000000001), 0x7FFF},  // NaNs, signalling first
      {UINT64_C(0x7FF0000020000000), 0x7FFF},
      {UINT64_C(0x7FF4000000000000), 0x7FFF},
      {UINT64_C(0x7FF8000000000000), 0x7FFF},
      {UINT64_C(0x7FFFFFFFFFFFFFFF), 0x7FFF},
  };
  for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
    add_double(list, rest[i].bits, rest[i].to);
  }
}

static void add_integer(list_t* list, qn_test_source_t source, uint64_t magnitude, uint32_t to) {
  bool is_signed = source == QN_TEST_FROM_I32 || source == QN_TEST_FROM_I64;
  bool is_32 = source == QN_TEST_FROM_I32 || source == QN_TEST_FROM_U32;
  uint64_t most = is_32 ? UINT32_MAX : UINT64_MAX;
  if (is_signed) most >>= 1;
  if (magnitude <= most) add(list, magnitude, to);
  // There is one negative number more.
  if (!is_signed || magnitude > most + 1 || magnitude == 0) return;
  uint64_t negative = 0 - magnitude;
  add(list, is_32 ? (uint32_t)negative : negative, to | 0x8000);
}

static void add_integers(list_t* list, qn_test_source_t source) {
  const uint32_t bf16_of_128 = 0x4300;
  add_integer(list, source, 0, 0);
  add_integer(list, source, 1, 0x3F80);
  for (uint32_t e = 1; e <= 56; e++) {
    for (uint32_t m = 128; m < 256; m++) {
      uint32_t k = bf16_of_128 + (e << 7) + (m - 128);
      uint64_t exact = (uint64_t)m << e;
      uint64_t half = UINT64_C(1) << (e - 1);
      add_integer(list, source, exact, k);
      add_integer(list, source, exact + half, k + (k & 1));
      for (uint64_t step = 1; step < half; step *= 2) {
        add_integer(list, source, exact + step, k);
        add_integer(list, source, exact + half - step, k);
        add_integer(list, source, exact + half + step, k + 1);
        add_integer(list, source, exact + 2 * half - step, k + 1);
      }
    }
  }
}

qn_test_rounding_t* qn_test_rounding_cases(qn_test_source_t source, bool is_bf16,
                                           size_t* out_count) {
  list_t list = {NULL, 0, 0};
  for (int pass = 0; pass < 2; pass++) {
    list.capacity = list.count;
    list.count = 0;
    list.items = pass == 0 ? NULL : calloc(list.capacity, sizeof *list.items);
    if (pass == 1 && list.items == NULL) return NULL;
    if (source == QN_TEST_FROM_F64) {
      add_doubles(&list, is_bf16);
    } else {
      add_integers(&list, source);
    }
  }
  *out_count = list.count;
  return list.items;
}

bool qn_test_rounding_is_right(const qn_test_rounding_t* item, bool is_bf16, uint16_t have) {
  if ((item->to & 0x7FFF) != 0x7FFF) return have == item->to;
  uint16_t quiet = is_bf16 ? 0x7FC0 : 0x7E00;
  return (have & quiet) == quiet;
}
