// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_parse.h: helpers for tests of the parser: a text that parses, and a text
// that must be refused for one reason.
#ifndef QUERN_TESTS_UNIT_IR_SUPPORT_PARSE_H_
#define QUERN_TESTS_UNIT_IR_SUPPORT_PARSE_H_

#include "ir/text.h"

typedef struct qn_parsed {
  qn__diag_t diag;
  qn__ir_body_t body;
  bool is_good;
} qn_parsed_t;

// Call qn_parsed_release in every case.
void qn_parse_text(qn_parsed_t* out_parsed, const char* text);
void qn_parsed_release(qn_parsed_t* parsed);

// The only error is `code`.
void qn_assert_error(const char* text, const char* code);

// The beginning of a function with parameters of many dtypes.
#define QN_PARSE_HEADER                                                                    \
  "func f(x: f32[n, m], out y: f32[n, m], a: f32, h: f16, d: f64, k: i32, q: i8, u: u64, " \
  "o: bool, t: i16[4]) {\n"

#endif  // QUERN_TESTS_UNIT_IR_SUPPORT_PARSE_H_
