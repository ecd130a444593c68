// SPDX-License-Identifier: Apache-2.0
// What the test and the benchmarks of the math functions share: a loop over one operation,
// compiled in memory for a chosen processor.
//
// What it is: math_kernel_create makes `for (i…) out[i] = op(a[i], b[i], c[i])` in vectors of some
// lanes with qn__llvm_math_emit, refuses an object that refers to anything outside itself, and
// links it alone. What it is not: the way the engine compiles (jit/llvm/); this needs nothing of it
// but math.h. Threads: a kernel is made and freed by one thread and may be called by any. Next:
// tests/unit/llvm/test_math.c.
#ifndef QN_TESTS_MATH_SWEEP_H_
#define QN_TESTS_MATH_SWEEP_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quern/ir.h"

// All pointers are to `count` elements of the kernel's type; count is a multiple of the lanes.
typedef void (*math_loop_t)(const void* a, const void* b, const void* c, void* out, uint64_t count);

typedef struct {
  const char* cpu;  // "x86-64", "x86-64-v3", "x86-64-v4" or "native"
  qn_op_t op;
  bool is_f64;
  unsigned lanes;  // 1 for scalars
  int level;  // 0: no passes, code generation without optimisation; 1: no passes; 2: default<O2>
  bool fast;
} math_kernel_spec_t;

typedef struct math_kernel math_kernel_t;

// With MATH_DUMP=FILE in the environment the assembly of the last kernel made is left in that file.
// NULL with a message (static storage of the calling thread) in out_error if it cannot be made.
math_kernel_t* math_kernel_create(const math_kernel_spec_t* spec, const char** out_error);
math_loop_t math_kernel_loop(const math_kernel_t* kernel);
// Bytes of the object's code and of its constants.
size_t math_kernel_size_bytes(const math_kernel_t* kernel);
void math_kernel_free(math_kernel_t* kernel);

// Whether this machine can run code for the processor.
bool math_cpu_is_here(const char* cpu);

#endif  // QN_TESTS_MATH_SWEEP_H_
