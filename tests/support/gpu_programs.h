// SPDX-License-Identifier: Apache-2.0
// tests/support/gpu_programs.h: modules with every operator, conversion, reduction, kind of memory,
// atomic and exchange on every dtype, for tests of code generators that print text. Their results
// are tested in conformance.
#ifndef QUERN_TESTS_SUPPORT_GPU_PROGRAMS_H_
#define QUERN_TESTS_SUPPORT_GPU_PROGRAMS_H_

#include "base/buffer.h"

// Every operator, conversion and reduction, tables, local memory, scalars, atomics: functions of
// one parallel loop each, with many operators or conversions of a dtype in one loop.
void qn_test_programs_of_operators(qn__buffer_t* out);
// Shuffles and reductions over warps and blocks, and shared memory with a barrier, in blocks of
// `threads`.
void qn_test_programs_of_threads(int threads, qn__buffer_t* out);
// Lazy operators, views, strides, nests, loops, `fast`, grids, large shared memory, literals,
// asserts.
void qn_test_programs_of_constructs(qn__buffer_t* out);

#endif  // QUERN_TESTS_SUPPORT_GPU_PROGRAMS_H_
