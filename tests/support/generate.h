// SPDX-License-Identifier: Apache-2.0
// tests/support/generate.h: random modules (conformance/random) for tests.
#ifndef QUERN_TESTS_SUPPORT_GENERATE_H_
#define QUERN_TESTS_SUPPORT_GENERATE_H_

#include "conformance/random/generate.h"
#include "ir/ir.h"

// Reads QUERN_TEST_SEEDS=FIRST[:COUNT], which runs other seeds than a test's own.
void qn_generate_seeds(uint64_t* inout_first, uint64_t* inout_count);

#endif  // QUERN_TESTS_SUPPORT_GENERATE_H_
