// SPDX-License-Identifier: Apache-2.0
// tests/support/memory_program.h: random programs that memory bounds, with arguments.
//
// Reductions, loops and scans down columns, permutations of dimensions in any order of loops,
// concatenations, slices and copies with strides, batches, and rows that share matrices. All values
// are small multiples of a quarter, so that most sums are exact in any order. Thread rule: pure
// functions of the seed.
#ifndef QUERN_TESTS_SUPPORT_MEMORY_PROGRAM_H_
#define QUERN_TESTS_SUPPORT_MEMORY_PROGRAM_H_

#include "ir/ir.h"

enum { memory_program_params = 8, memory_program_bytes = 1 << 18 };

typedef struct memory_program {
  uint64_t seed;
  char text[4096];
  qn_module_t* module;
  int64_t symbols[12];  // in the order of the function's
} memory_program_t;

// Stops the program if the text is refused.
void memory_program_init(uint64_t seed, memory_program_t* out);
void memory_program_deinit(memory_program_t* program);

// Memory for a call: `memory_program_bytes` for each buffer.
typedef struct memory_args {
  uint8_t* data[memory_program_params];
  uint64_t words[memory_program_params + 12];  // addresses, then symbols
} memory_args_t;
void memory_args_init(const memory_program_t* program, memory_args_t* out);
void memory_args_deinit(memory_args_t* args);
// Returns NULL if all buffers are equal, else the name of the first that is not, and where.
const char* memory_args_compare(const memory_program_t* program, const memory_args_t* a,
                                const memory_args_t* b, size_t* out_index);

#endif  // QUERN_TESTS_SUPPORT_MEMORY_PROGRAM_H_
