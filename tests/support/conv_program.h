// SPDX-License-Identifier: Apache-2.0
// tests/support/conv_program.h: random convolutions written as loops, for the passes that compute
// products. Strides, dilations, paddings, layouts, forms of the condition and orders of the loops
// vary; extents are literals or symbols. All values are multiples of 1/4, so that every order of a
// sum gives the same result.
#ifndef QUERN_TESTS_SUPPORT_CONV_PROGRAM_H_
#define QUERN_TESTS_SUPPORT_CONV_PROGRAM_H_

#include "tests/support/memory_program.h"

// Stops the program if the text is refused. For memory_args_init and memory_program_deinit.
void conv_program_init(uint64_t seed, memory_program_t* out);

#endif  // QUERN_TESTS_SUPPORT_CONV_PROGRAM_H_
