// SPDX-License-Identifier: Apache-2.0
// tests/fake-cuda/ptx.h: translates inline PTX.
#ifndef QUERN_TESTS_FAKE_CUDA_PTX_H_
#define QUERN_TESTS_FAKE_CUDA_PTX_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// Writes a line `asm volatile("OPCODE OPERANDS;" : OUTPUTS : INPUTS : CLOBBERS);` as the call
// `fake_ptx_OPCODE(OPERANDS);`. Returns false, and writes nothing, for any other line; an
// instruction that it cannot parse becomes a line that does not compile.
bool fake_ptx_write(FILE* out, const char* line, size_t size);

#endif  // QUERN_TESTS_FAKE_CUDA_PTX_H_
