// SPDX-License-Identifier: Apache-2.0
// ir/prepared.h: kernels of products that are compiled before there is a program.
//
// A product of two f32 matrices is the same code in every program. So a code generator may have the
// machine code of its forms for common targets: it then compiles only the loop over tasks and what
// the program does with the sums. Each kernel is the function below, in one form (`block`,
// ir/passes/cpu/blocks.c), as a thread runs it.
//
//   func product(a: f32[n, k] strides [r, 1], b: f32[k, m] strides [s, 1],
//                out c: f32[n, m] strides [t, 1])
//
// With the columns along the reduction, b is f32[m, k] strides [s, 1].
#ifndef QUERN_IR_PREPARED_H_
#define QUERN_IR_PREPARED_H_

#include <stdbool.h>
#include <stdint.h>

// The forms of a product, in the order in which a call tries them: the last one that fits it.
typedef enum qn__product_form {
  QN__FORM_LOOPS,    // as the program has them
  QN__FORM_BLOCKS,   // packed
  QN__FORM_ROWS,     // few rows
  QN__FORM_ALONG,    // few rows, and columns along the reduction
  QN__FORM_SMALL,    // operands that are read where they are
  QN__FORM_COLUMNS,  // few columns
  qn__product_forms
} qn__product_form_t;

// A kernel is a form of a product whose columns are adjacent in memory (`is_across`) or lie along
// the reduction.
enum { qn__prepared_kernels = 2 * qn__product_forms };

static inline uint32_t qn__prepared_number(qn__product_form_t form, bool is_across) {
  return (uint32_t)form + (is_across ? 0 : (uint32_t)qn__product_forms);
}

#endif  // QUERN_IR_PREPARED_H_
