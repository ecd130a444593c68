// SPDX-License-Identifier: Apache-2.0
// jit/engine/adaptive.h: what an engine knows about an adaptive function: the values that its calls
// had, and the variants that it has for some of them.
//
// Thread rule: under the mutex of the background, except qn__candidate_make and _drop. Not here:
// the call (jit/call/dispatch.h), the thread and its budget (background.h), the public calls
// (variants.c). Read next: adaptive.c.
#ifndef QUERN_JIT_ADAPTIVE_H_
#define QUERN_JIT_ADAPTIVE_H_

#include "jit/engine/background.h"
#include "jit/engine/request.h"

#define QN__ADAPTIVE_MAX_TUPLES 128u
#define QN__TRIAL_MAX_TURNS 128u

// A symbol or scalar that variants fix.
typedef struct qn__adaptive_name {
  char* name;       // owned
  char* qualified;  // owned: "f.rows"
  qn_dtype_t dtype;
  int64_t min_value, max_value;
  int64_t* values;  // owned; NULL: all within the bounds
  size_t value_count;
} qn__adaptive_name_t;

// The times of a trial, in the order of the calls.
typedef struct qn__trial {
  uint32_t generic_count, special_count;
  int64_t generic_ns[QN__TRIAL_MAX_TURNS], special_ns[QN__TRIAL_MAX_TURNS];
} qn__trial_t;

// A value for each name, and what became of them.
typedef struct qn__tuple {
  uint64_t words[QN__DISPATCH_MAX_NAMES];
  int64_t values[QN__DISPATCH_MAX_NAMES];
  qn_variant_state_t state;
  // SEEN: estimates from samples, halved each minute.
  uint64_t call_count;
  int64_t time_ns;   // of the calls that the host could time
  bool is_absent;    // the tiers do not have it
  int64_t retry_ns;  // nothing is tried before
  char reason[200];  // why not
  // TRIAL and KEPT.
  uint32_t slot;
  qn_function_t* special;  // owned
  qn_module_t* module;     // owned
  qn__trial_t* trial;      // owned
  int64_t used_ns;         // when a call last used it
  uint64_t served_count;
  // Of the latest variant.
  qn_cache_key_t key;
  int64_t generic_ns, special_ns;
} qn__tuple_t;

struct qn__adaptive {
  qn__adaptive_t* next;
  qn_engine_t* engine;
  qn__dispatch_t* dispatch;  // retained
  qn__request_t request;     // of variants; module and target retained
  char* name;                // owned: of the function
  uint32_t name_count;
  qn__adaptive_name_t names[QN__DISPATCH_MAX_NAMES];
  uint32_t max_variants, min_calls;
  bool keeps_unmeasured;
  uint32_t slots;                          // taken, a bit each
  uint64_t calls[QN__DISPATCH_MAX_CASES];  // of each slot, at the last update
  int64_t halved_ns;
  qn__tuple_t** tuples;
  size_t tuple_count, tuple_capacity;
};

// A variant that is to be made.
typedef struct qn__candidate {
  qn__adaptive_t* adaptive;
  qn__tuple_t* tuple;
  bool may_compile;
  // The result.
  qn_module_t* module;
  qn_function_t* special;
  bool is_absent;  // the tiers do not have it, and it may not be compiled
  bool is_compiled;
  qn_cache_key_t key;
  qn_status_t status;  // owned
} qn__candidate_t;

void qn__adaptive_destroy(qn__adaptive_t* adaptive);  // NULL is fine
// Reads the samples; ends trials; drops variants that are not used.
void qn__adaptive_update(qn__adaptive_t* adaptive, int64_t now_ns);
// Takes the function's best values if they are more worth a variant than *inout_best.
void qn__adaptive_choose(qn__adaptive_t* adaptive, int64_t now_ns, qn__candidate_t* inout_best);
// Keeps the variant of a tuple, which ends its trial.
void qn__adaptive_keep(qn__adaptive_t* adaptive, qn__tuple_t* tuple);
// Refuses values for good. They have no variant, and a reason.
void qn__adaptive_ban(qn__adaptive_t* adaptive, qn__tuple_t* tuple);
// Removes a variant; its values may get one again. False if calls hold too many old tables.
bool qn__adaptive_drop(qn__adaptive_t* adaptive, qn__tuple_t* tuple);
// Makes room for the variant, at the cost of one that is little used; false if there is none.
bool qn__candidate_begin(qn__candidate_t* candidate, int64_t now_ns);
// Looks the variant up. Without the mutex.
void qn__candidate_make(qn__candidate_t* candidate);
// Puts the variant to trial, or notes why there is none.
void qn__candidate_end(qn__candidate_t* candidate, int64_t now_ns);
void qn__candidate_drop(qn__candidate_t* candidate);

#endif  // QUERN_JIT_ADAPTIVE_H_
