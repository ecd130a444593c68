// SPDX-License-Identifier: Apache-2.0
// tests/unit/jit/support_adaptive.h: an engine with one adaptive function, whose time, processor
// time and durations of calls are the test's, and whose background makes its steps by hand.
#ifndef QUERN_TESTS_UNIT_JIT_SUPPORT_ADAPTIVE_H_
#define QUERN_TESTS_UNIT_JIT_SUPPORT_ADAPTIVE_H_

#include "jit/engine/adaptive.h"
#include "quern/adaptive.h"
#include "tests/unit/jit/support_gate.h"

#define MILLISECOND INT64_C(1000000)

// What the clocks of the background say, and the durations that samples get.
typedef struct fakes {
  int64_t clock_ns;
  int64_t cpu_ns;
  int64_t cost_ns;  // of each look at the processor's time
  int64_t generic_ns;
  int64_t special_ns;
} fakes_t;
extern fakes_t fakes;

// The module's function is f(k: i32, out y: i32[n, m]), with y[i, j] = k + 10 n + 100 m.
typedef struct world {
  gated_t gated;
  qn_module_t* module;
  qn_function_t* function;
} world_t;

void world_begin(world_t* world, const qn_setting_t* settings, size_t count);
void world_begin_with(world_t* world, const qn_engine_options_t* options);
void world_end(world_t* world);

// Makes the function adaptive for the names, or for n. Each of its calls is a sample.
void world_make(world_t* world, const qn_adaptive_name_t* names, size_t count,
                qn_adaptive_options_t options);
void world_make_for_n(world_t* world);

// Calls the function and checks what it wrote. n * m is at most 64.
void world_call(world_t* world, int64_t k, int64_t n, int64_t m, int times);
// One call of any function of that kind; `stream` may be NULL.
qn_status_t adaptive_call(qn_function_t* function, qn_stream_t* stream, int64_t k, int64_t n,
                          int64_t m, int32_t* y);

// One step of the background. Returns whether there was something to do.
bool world_step(world_t* world);
uint64_t world_counter(const world_t* world, const char* name);

// What qn_engine_variants says of the variant with `values`; `count`: of how many it speaks.
typedef struct find {
  const char* values;
  qn_variant_info_t info;
  char reason[256];
  int count;
} find_t;
void world_on_variant(void* find, const qn_variant_info_t* variant);
find_t world_look(const world_t* world, const char* values);
void world_assert_state(const world_t* world, const char* values, qn_variant_state_t state,
                        const char* reason);

// Calls often enough for a variant, and makes it: the first step finds it in the cache, or not; the
// second one compiles.
void world_bring_to_trial(world_t* world, int64_t k, int64_t n, int64_t m, const char* values);
// The same, and as many calls as a trial takes.
void world_bring_to_end(world_t* world, int64_t k, int64_t n, int64_t m, const char* values);

#endif  // QUERN_TESTS_UNIT_JIT_SUPPORT_ADAPTIVE_H_
