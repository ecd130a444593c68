// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_ir.h: what the tests of modules share: samples, parsing, comparing bytes.
//
// Thread rule: one thread.
#ifndef QUERN_TESTS_UNIT_IR_SUPPORT_IR_H_
#define QUERN_TESTS_UNIT_IR_SUPPORT_IR_H_

#include "quern/ir.h"

// The six programs of examples/ir, each also as calls of the builder (support_build.c).
typedef struct qn_sample {
  const char* name;  // "softmax"
  void (*build)(qn_builder_t* builder);
} qn_sample_t;
extern const qn_sample_t qn_samples[];
extern const size_t qn_sample_count;

// The text of examples/ir/NAME.qn. Free with qn_sample_text_free.
char* qn_sample_text(const char* name, size_t* out_size);
void qn_sample_text_free(char* text, size_t size);

// Every construct of the language in one module.
extern const char qn_all_constructs[];

bool qn_same_bytes(const qn_module_t* a, const qn_module_t* b);

#endif  // QUERN_TESTS_UNIT_IR_SUPPORT_IR_H_
