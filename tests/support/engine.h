// SPDX-License-Identifier: Apache-2.0
// tests/support/engine.h: engines, targets and counters, for tests that run quern whole.
#ifndef QUERN_TESTS_SUPPORT_ENGINE_H_
#define QUERN_TESTS_SUPPORT_ENGINE_H_

#include "quern/quern.h"
#include "quern/target.h"
#include "tests/support/must.h"

// Creates an engine that reads no environment; `struct_size` of the options need not be set.
qn_engine_t* must_engine(qn_engine_options_t options);
// Parses a target or fails the test.
qn_target_t* must_target(const char* text);
// Returns a counter of the engine; fails the test if there is none of the name.
uint64_t counter_of(qn_engine_t* engine, const char* name);

#endif  // QUERN_TESTS_SUPPORT_ENGINE_H_
