// SPDX-License-Identifier: Apache-2.0
// ir/codes.h: the codes of the text reader's diagnostics, from codes.inc.
#ifndef QUERN_IR_CODES_H_
#define QUERN_IR_CODES_H_

typedef enum qn__code {
#define QN_CODE(name, code, doc) QN__CODE_##name,
#include "ir/codes.inc"
#undef QN_CODE
  QN__CODE_COUNT
} qn__ir_code_t;

// "QN0103".
const char* qn__code(qn__ir_code_t code);

#endif  // QUERN_IR_CODES_H_
