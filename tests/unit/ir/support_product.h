// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_product.h: shared by the tests of products on GPUs and CPUs: programs, and
// the comparison of one as written with its mapped form, in the interpreter.
#ifndef QUERN_TESTS_UNIT_IR_SUPPORT_PRODUCT_H_
#define QUERN_TESTS_UNIT_IR_SUPPORT_PRODUCT_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ir/passes/passes.h"

// A module of one function, whose parameters are all buffers.
typedef struct qn_test_program {
  const char* name;
  const char* text;
} qn_test_program_t;

// The values of the symbols m, n and k. All others are 2.
typedef struct qn_test_shape {
  int64_t m, n, k;
} qn_test_shape_t;

// The loops of a matrix: what follows closes both.
#define NEST "parallel i in 0..m { parallel j in 0..n { "

// Products that have tiles on a GPU and blocks on a CPU. The first is a plain matrix product.
extern const qn_test_program_t qn_test_products[];
extern const size_t qn_test_product_count;

// Appends a test of `run` for each program, which is its state.
void qn_test_add_programs(struct CMUnitTest* tests, size_t capacity, size_t* inout_count,
                          const qn_test_program_t* programs, size_t program_count,
                          CMUnitTestFunction run);

// Parses a program, or fails the test. Owned: qn_module_release.
qn_module_t* qn_test_parse(const qn_test_program_t* program);

// Runs the program as written and mapped, and fails the test where results differ by more than
// `tolerance` of the largest value; 0: bit for bit.
void qn_test_compare(const qn_test_program_t* program, const qn_module_t* module,
                     const qn__ir_body_t* mapped, qn_test_shape_t shape, double tolerance);

// Returns true if `is_it` holds for a statement of the block, or of one inside.
bool qn_test_any(qn__ir_block_t* block, bool (*is_it)(const qn__ir_stmt_t*));

#endif  // QUERN_TESTS_UNIT_IR_SUPPORT_PRODUCT_H_
