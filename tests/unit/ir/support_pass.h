// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_pass.h: runs passes on a text and returns the resulting text.
#ifndef QUERN_TESTS_UNIT_IR_SUPPORT_PASS_H_
#define QUERN_TESTS_UNIT_IR_SUPPORT_PASS_H_

#include "ir/passes/passes.h"

// AVX2: 32 bytes, no masks.
extern const qn__pass_options_t qn_test_avx2;
extern const qn__pass_options_t qn_test_checked;

// Parses, verifies, runs the passes, verifies, prints. Fails the test on any error. Owned: free().
char* qn_test_pass(const char* text, const qn__pass_options_t* options,
                   const qn__pass_t* const* passes, size_t pass_count);

// The same with one pass; then the printed text must hold the lines of `expected` one after the
// other, in this order, spaces at the ends of lines aside. What follows a "!" must not
// appear in any line before the next one is found (or before the end).
void qn_test_expect(const qn__pass_t* pass, const qn__pass_options_t* options, const char* text,
                    const char* expected);
void qn_test_expect_all(const qn__pass_t* const* passes, size_t pass_count,
                        const qn__pass_options_t* options, const char* text, const char* expected);

// Runs passes on a text that parses; the status is the caller's.
qn_status_t qn_test_try(const char* text, qn_allocator_t allocator,
                        const qn__pass_options_t* options, const qn__pass_t* const* passes,
                        size_t pass_count, char** out_text);

#endif  // QUERN_TESTS_UNIT_IR_SUPPORT_PASS_H_
