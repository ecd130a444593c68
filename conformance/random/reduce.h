// SPDX-License-Identifier: Apache-2.0
// conformance/random/reduce.h: makes a failing random program smaller.
#ifndef QUERN_CONFORMANCE_RANDOM_REDUCE_H_
#define QUERN_CONFORMANCE_RANDOM_REDUCE_H_

#include <stdbool.h>

// Returns a smaller text of a module that still fails, owned: free. It removes statements and
// blocks, puts literals in place of values and the first iteration in place of a loop, as long as
// `fails` returns true for the rest. `fails` is called for texts that may be no modules. A program
// that the generator made stays defined: barriers and stores to allocated memory go only together
// with what needs them.
char* gen_reduce(const char* text, bool (*fails)(void* self, const char* text), void* self);

#endif  // QUERN_CONFORMANCE_RANDOM_REDUCE_H_
