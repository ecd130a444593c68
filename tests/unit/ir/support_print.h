// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_print.h: helpers for tests of the printer and the formatter. The caller
// owns the returned texts.
#ifndef QUERN_TESTS_UNIT_IR_SUPPORT_PRINT_H_
#define QUERN_TESTS_UNIT_IR_SUPPORT_PRINT_H_

#include "ir/text.h"

// A text that must be valid. End with qn__body_deinit.
void must_parse_body(const char* text, qn__ir_body_t* out_body);
// Prints, parses and prints again: the second text must be the first, and formatting it must change
// nothing. For free().
char* qn_print_twice(const qn__ir_body_t* body);
char* qn_print_text(const char* text);
// Formats, and formats the result, which must not change. For qn_text_free.
char* qn_must_format(const char* text);
void qn_assert_lines_fit(const char* text);

#endif  // QUERN_TESTS_UNIT_IR_SUPPORT_PRINT_H_
