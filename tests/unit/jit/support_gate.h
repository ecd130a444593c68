// SPDX-License-Identifier: Apache-2.0
// tests/unit/jit/support_gate.h: an engine whose generator compiles only when the test opens a
// gate.
//
// The generator replaces that of the `interp` target, so that its code can be called.
#ifndef QUERN_TESTS_UNIT_JIT_SUPPORT_GATE_H_
#define QUERN_TESTS_UNIT_JIT_SUPPORT_GATE_H_

#include "jit/engine/engine.h"
#include "tests/support/engine.h"
#include "tests/support/tempdir.h"

#define GATE_LOG 256
#define SECOND INT64_C(1000000000)
#define GATE_PATIENCE_NS (3600 * SECOND)

typedef struct gate {
  qn__mutex_t mutex;
  qn__cond_t moved;
  bool is_open;
  const char* only;             // only functions with this in their name are held; NULL: all
  qn_tier_t only_tier;          // 0: of every tier
  qn_status_code_t fails_with;  // OK: it does not
  int started_count, ended_count;
  char log[GATE_LOG][32];  // "name full", in the order in which they were begun
} gate_t;

typedef struct gated {
  gate_t gate;
  char directory[QN_TEST_PATH_SIZE];
  qn_engine_t* engine;
  qn_target_t* target;
} gated_t;

// `settings` may be NULL. The cache directory is a fresh one. The gate is closed. Nothing ends by
// itself because the machine is slow: failures are remembered, and files, compiles and publishes
// waited for, without end.
void gated_begin(gated_t* gated, const qn_engine_options_t* base);
// The same with these settings alone.
void gated_begin_with(gated_t* gated, const qn_setting_t* settings, size_t count);
void gated_end(gated_t* gated);
// The same for an engine that was destroyed while a compile hung: waits until the thread that was
// left behind has ended it. `left` was retained before the destroy.
void gated_end_left(gated_t* gated, qn_engine_t* left);
// Puts the gated generator into another engine.
void gate_install(gate_t* gate, qn_engine_t* engine);

void gate_set(gate_t* gate, bool is_open);
// Waits until so many compiles have begun, or ended.
void gate_await_started(gate_t* gate, int count);
void gate_await_ended(gate_t* gate, int count);
int gate_started(gate_t* gate);

// "func NAME(out y: i32[n]) { y[i] = VALUE }".
qn_module_t* module_of(const char* name, int value);
// Calls the function on three elements and gives what it wrote.
int call(qn_function_t* function);

qn_lookup_options_t lookup_with(qn_miss_policy_t miss, int64_t timeout_ns, int32_t priority);
// One lookup in this thread; the function is released again.
qn_status_t gated_look_up(gated_t* gated, qn_module_t* module, const char* name,
                          const qn_lookup_options_t* options, qn_lookup_info_t* info);
// Asks without waiting for the answer, so that the order of asking is known.
qn_future_t* gated_request(gated_t* gated, qn_module_t* module, const char* name, int32_t priority);
// Waits for the answer, expects the value, and releases what was future.
void await_value(qn_future_t* future, int value);
// Until so many, and no more, wait for a compile thread.
void await_queued(qn_engine_t* engine, uint32_t count);

// A lookup on a thread of its own.
typedef struct seeker {
  pthread_t thread;
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  const char* name;
  qn_lookup_options_t options;
  qn_lookup_info_t info;
  qn_function_t* function;  // owned
  qn_status_t status;       // owned
} seeker_t;
void seeker_start(seeker_t* seeker, gated_t* gated, qn_module_t* module, const char* name,
                  const qn_lookup_options_t* options);
void seeker_join(seeker_t* seeker);
// Joins, and expects the value.
void seeker_join_value(seeker_t* seeker, int value);

#endif  // QUERN_TESTS_UNIT_JIT_SUPPORT_GATE_H_
