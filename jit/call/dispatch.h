// SPDX-License-Identifier: Apache-2.0
// jit/call/dispatch.h: an adaptive function: chooses among special functions by the values of a
// call, and notes what calls have.
//
// A dispatch has a generic function and a table of cases. A case is a function that is special for
// values of some words of a call (symbols and integer scalars). A call binds its arguments by the
// plan of the generic function, compares the words, and runs the kernel of the case or the generic
// one. Of one call in sixteen, and of all calls of a case in a trial, it writes a sample.
//
// Thread rule: any thread calls. One thread at a time, the owner's, sets cases, reads samples and
// counts (jit/engine/adaptive.c). Not here: which cases there should be. Read next: dispatch.c.
#ifndef QUERN_JIT_DISPATCH_H_
#define QUERN_JIT_DISPATCH_H_

#include "base/thread.h"
#include "jit/call/executable.h"

#define QN__DISPATCH_MAX_NAMES 8u
#define QN__DISPATCH_MAX_CASES 8u
#define QN__DISPATCH_SAMPLES 256u  // of the ring: a power of two

// What one call had. Words are those of the kernel: integers as the dtype's bits.
typedef struct qn__dispatch_sample {
  uint64_t words[QN__DISPATCH_MAX_NAMES];
  int64_t duration_ns;  // -1: the host cannot time the call
  uint32_t slot;        // of the case that ran; QN__DISPATCH_MAX_CASES: the generic function
  bool is_turn;         // of a trial
} qn__dispatch_sample_t;

// Makes a dispatch for `generic` (retained), whose calls are guarded by `words`: indices of
// parameters, and behind them of symbols. `count` is 1 to QN__DISPATCH_MAX_NAMES. Owned:
// qn__dispatch_release. Errors: OUT_OF_MEMORY.
qn_status_t qn__dispatch_create(qn_function_t* generic, const uint32_t* words, uint32_t count,
                                qn__dispatch_t** out_dispatch);
void qn__dispatch_retain(qn__dispatch_t* dispatch);
// The last reference ends it. No call may be in flight then.
void qn__dispatch_release(qn__dispatch_t* dispatch);
qn_function_t* qn__dispatch_generic(const qn__dispatch_t* dispatch);  // borrowed

// Marks that the function is released. Its owner then releases its reference.
void qn__dispatch_close(qn__dispatch_t* dispatch);
bool qn__dispatch_is_closed(const qn__dispatch_t* dispatch);

// Makes the call.
qn_status_t qn__dispatch_call(qn__dispatch_t* dispatch, qn_stream_t* stream, const qn_value_t* args,
                              size_t count);

// ---- for the owner

// Sets a case: `special` (retained) serves calls whose words equal `words`. It is the function of
// the same name in a module that differs from the generic one's by these values alone. In a trial
// every other call runs it, and all are sampled. Replaces the case of this slot. Errors:
// OUT_OF_MEMORY; UNSUPPORTED (its code takes smaller tensors than the generic code);
// FAILED_PRECONDITION (calls still hold too many old tables: try again later).
qn_status_t qn__dispatch_set(qn__dispatch_t* dispatch, uint32_t slot, const uint64_t* words,
                             qn_function_t* special, bool is_trial);
// Removes a case. Errors: OUT_OF_MEMORY, FAILED_PRECONDITION.
qn_status_t qn__dispatch_clear(qn__dispatch_t* dispatch, uint32_t slot);
// Ends trials in favour of the generic function, and samples no more.
void qn__dispatch_freeze(qn__dispatch_t* dispatch);
// Releases tables that no call holds any more.
void qn__dispatch_sweep(qn__dispatch_t* dispatch);
// Takes the oldest sample; false if there is none.
bool qn__dispatch_take(qn__dispatch_t* dispatch, qn__dispatch_sample_t* out_sample);
// Returns the number of calls that ran the case of a slot since the dispatch was made.
uint64_t qn__dispatch_calls(const qn__dispatch_t* dispatch, uint32_t slot);
// Samples one call of `period`, a power of two. One of 16 at first.
void qn__dispatch_set_period(qn__dispatch_t* dispatch, uint32_t period);
uint32_t qn__dispatch_period(const qn__dispatch_t* dispatch);
// Holds the current table as a call does, until qn__dispatch_unhold. For tests.
void qn__dispatch_hold(qn__dispatch_t* dispatch);
void qn__dispatch_unhold(qn__dispatch_t* dispatch);
// In a child of fork: forgets the calls of threads that only the parent has, and their samples.
void qn__dispatch_forget_calls(qn__dispatch_t* dispatch);

#endif  // QUERN_JIT_DISPATCH_H_
