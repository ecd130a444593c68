// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/support_oracle.h: arguments for any function, and the comparison of a compiled
// kernel with the interpreter.
//
// Each buffer lies against an inaccessible page, before or behind it, so that reading one element
// too many stops the test. Thread rule: one thread.
#ifndef QUERN_TESTS_UNIT_LLVM_SUPPORT_ORACLE_H_
#define QUERN_TESTS_UNIT_LLVM_SUPPORT_ORACLE_H_

#include "support_emit.h"

typedef struct oracle_case {
  const qn__ir_func_t* function;
  const int64_t* symbols;
  uint64_t seed;
  bool has_specials;  // NaN, infinities, zeros of both signs, extreme integers
  // Floats may differ by this much, relative to the larger of the value and one; 0: same bits (any
  // NaN is as good as another).
  double tolerance;
  bool may_fail;  // the program may stop with a failure: then both must, and buffers do not matter
} oracle_case_t;

// Runs the interpreter and every kernel in `kernels` (of the same function at `index`) on equal
// arguments. Returns NULL when they agree, else a message (static storage).
const char* oracle_compare(const oracle_case_t* test, size_t index, kernels_t* const* kernels,
                           size_t count);

// The value of a shape expression; false when it has other parts than symbols and literals.
bool oracle_shape(const qn__ir_func_t* function, const int64_t* symbols, const qn__ir_expr_t* expr,
                  int64_t* out);

#endif  // QUERN_TESTS_UNIT_LLVM_SUPPORT_ORACLE_H_
