// SPDX-License-Identifier: Apache-2.0
// tests/support/rounding.h: the expected results of conversions to f16 and bf16, derived without
// the library's arithmetic: values on, just below and just above the middle of each two neighbours.
//
// Consecutive bit patterns are neighbours. The middle rounds to the even one; values below or above
// it, by however little, round to the lower or upper one.
#ifndef QUERN_TESTS_SUPPORT_ROUNDING_H_
#define QUERN_TESTS_SUPPORT_ROUNDING_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum qn_test_source {
  QN_TEST_FROM_F64,
  QN_TEST_FROM_I32,
  QN_TEST_FROM_U32,
  QN_TEST_FROM_I64,
  QN_TEST_FROM_U64,
} qn_test_source_t;

typedef struct qn_test_rounding {
  uint64_t from;  // the bits, in the low half those of 32
  uint16_t to;    // 0x7fff: any NaN that is quiet
} qn_test_rounding_t;

// All cases of a pair, of integers only those to bf16 (f16 ends where f32 holds every integer).
// Freed with free(); NULL when memory is short.
qn_test_rounding_t* qn_test_rounding_cases(qn_test_source_t source, bool is_bf16,
                                           size_t* out_count);
// Is `have`, a pattern of the format, what the case asks for?
bool qn_test_rounding_is_right(const qn_test_rounding_t* item, bool is_bf16, uint16_t have);

#endif  // QUERN_TESTS_SUPPORT_ROUNDING_H_
