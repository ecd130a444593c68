// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_verify.h: checks the verifier's messages for programs.
#ifndef QUERN_TESTS_UNIT_IR_SUPPORT_VERIFY_H_
#define QUERN_TESTS_UNIT_IR_SUPPORT_VERIFY_H_

#include "base/base.h"
#include "tests/unit/ir/support_ir.h"

typedef struct qn_verify_case {
  const char* text;
  const char* code;  // NULL: the program is valid
  const char* part;  // of the message
} qn_verify_case_t;

// Fails the test (cmocka) unless the verifier says just that.
void qn__expect_verify(const qn_verify_case_t* expected);

#define QN_VERIFY_CASES(cases)                                                          \
  do {                                                                                  \
    for (size_t i_ = 0; i_ < QN_COUNT_OF(cases); i_++) qn__expect_verify(&(cases)[i_]); \
  } while (0)

#endif  // QUERN_TESTS_UNIT_IR_SUPPORT_VERIFY_H_
