// SPDX-License-Identifier: Apache-2.0
// jit/llvm/prepared.h: machine code of products (ir/prepared.h) that was compiled with the
// generator.
//
// jit/llvm/prepare/main.c compiles the kernels when quern is built, by this generator, for the
// targets of prepared.inc. Its output is a part of the generator, and so of its identity: keys of
// artifacts change with the kernels. An artifact contains the kernels that it calls: their bytes
// are position independent and refer to nothing outside themselves, as every image.
//
// A generator without them (that of the program which compiles them, or one that is built for
// another machine than it is built on) compiles products as a whole.
#ifndef QN_JIT_LLVM_PREPARED_H_
#define QN_JIT_LLVM_PREPARED_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/prepared.h"
#include "target/target.h"

// The words of a kernel: a, b, c, then its symbols in the order n, k, r, m, s, t.
enum {
  QN__PREPARED_POINTERS = 3,
  QN__PREPARED_ROWS = QN__PREPARED_POINTERS,
  QN__PREPARED_STEPS,
  QN__PREPARED_A_STRIDE,
  QN__PREPARED_COLUMNS,
  QN__PREPARED_B_STRIDE,
  QN__PREPARED_C_STRIDE,
  QN__PREPARED_WORDS,
};

// The kernels of one order of columns, as one image.
typedef struct qn__llvm_prepared_image {
  const uint8_t* bytes;  // 64-byte alignment is expected where they are loaded
  uint32_t size;
  uint32_t forms;  // bit i: has form i
  uint32_t offsets[qn__product_forms];
} qn__llvm_prepared_image_t;

typedef struct qn__llvm_prepared {
  // What the code requires of a target. Other numbers would be other code.
  uint64_t features;
  uint32_t vector_bytes, wide_multiplies, l2_bytes;
  uint32_t stack_bytes;                 // of the arrays of any kernel, at most
  qn__llvm_prepared_image_t images[2];  // columns across and along the reduction
} qn__llvm_prepared_t;

// Returns the compiled kernels, which end with a row without features. Only the C file that has
// them defines it.
const qn__llvm_prepared_t* qn__llvm_prepared_table(void) __attribute__((weak));

// Returns the kernels for a target, or NULL: there are none.
const qn__llvm_prepared_t* qn__llvm_prepared_find(const qn_target_t* target);
// Returns the set of kernels (ir/prepared.h) of a row.
uint32_t qn__llvm_prepared_set(const qn__llvm_prepared_t* prepared);
// Returns the size of the second cache that blocks are made for: all sizes with one result give one
// code. 0: no kernels are.
uint32_t qn__llvm_prepared_l2(const qn_target_t* target);

#endif  // QN_JIT_LLVM_PREPARED_H_
