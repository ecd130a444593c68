// SPDX-License-Identifier: Apache-2.0
// tests/faults/kernels.h: small modules whose results are known, for tests of whole lookups.
//
// Nothing here asserts, so that children of fork can use it.
#ifndef QUERN_TESTS_FAULTS_KERNELS_H_
#define QUERN_TESTS_FAULTS_KERNELS_H_

#include "quern/quern.h"

// y[i] = x[i] * (number + 3) + 7 * number. Owned; NULL when there is no memory.
qn_module_t* kernel_module(unsigned number);
// Whether calls of the function give what the module of that number says.
bool kernel_is_right(qn_function_t* function, unsigned number);

// Looks a module up and calls it. Returns OK, the status of the lookup, or DATA_LOSS for a wrong
// result.
qn_status_t kernel_look_up(qn_engine_t* engine, unsigned number, const char* target,
                           const qn_lookup_options_t* options, qn_source_t* out_source);

// Creates an engine on a directory that ignores the environment. Returns NULL on failure.
// `settings` may be NULL.
qn_engine_t* kernel_engine(qn_allocator_t allocator, const char* directory,
                           const qn_setting_t* settings, size_t setting_count);
uint64_t kernel_counter(qn_engine_t* engine, const char* name);

#endif  // QUERN_TESTS_FAULTS_KERNELS_H_
