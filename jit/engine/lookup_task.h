// SPDX-License-Identifier: Apache-2.0
// jit/engine/lookup_task.h: a lookup that the memory table could not answer, as one task with
// states.
//
// One thread at a time runs the task: its leader. It steps from state to state (lookup_task.c). All
// other callers that want the same key join the task and wait for it (in_flight.h).
//
// Read next: lookup_task.c.
#ifndef QUERN_JIT_LOOKUP_TASK_H_
#define QUERN_JIT_LOOKUP_TASK_H_

#include <stdatomic.h>

#include "jit/codegen/artifact.h"
#include "jit/engine/pool.h"
#include "jit/engine/request.h"
#include "jit/engine/tier.h"

// In the order in which a task takes them. A hit of a tier goes to DONE at once.
typedef enum qn__lookup_state {
  QN__LOOKUP_KEY,      // hash module, target, options and generator
  QN__LOOKUP_LOCAL,    // search the directory and the bundles
  QN__LOOKUP_REMOTE,   // search the remote tier, if a caller allows it
  QN__LOOKUP_CLAIM,    // in the queue of compiles; then: claim the key among processes and machines
  QN__LOOKUP_COMPILE,  // open the generator and run it
  QN__LOOKUP_LOAD,     // check the artifact, and load it onto the device
  QN__LOOKUP_PUBLISH,  // hand the entry to the writers of the tiers
  QN__LOOKUP_DONE,     // the result is set, and does not change
} qn__lookup_state_t;

typedef enum qn__outcome {
  QN__OUTCOME_FOUND,      // an executable; for a compile ahead, an entry of a local tier
  QN__OUTCOME_FAILED,     // a status for all callers
  QN__OUTCOME_ABSENT,     // no tier has it, and no caller allows a compile
  QN__OUTCOME_RETRY,      // this leader cannot go on; another one may
  QN__OUTCOME_CANCELLED,  // the engine ends, or the process has forked
} qn__outcome_t;

typedef struct qn__lookup_result {
  qn__outcome_t outcome;
  qn_status_t status;           // owned; of FAILED
  qn_executable_t* executable;  // owned; of FOUND, but for a compile ahead
  qn_lookup_info_t info;        // as the leader sees it
  char why[512];                // of ABSENT: what the tiers said
} qn__lookup_result_t;

// The result of searching a tier.
typedef struct qn__answer {
  bool was_asked;
  bool was_rejected;  // a verified entry that the engine or the device did not accept
  qn__get_result_t result;
  qn__reason_t reason;  // of QN__GET_BAD
  int error;            // errno of QN__GET_ERROR
} qn__answer_t;

// Called once when a task is done, on the thread that completes it, with no lock held.
typedef struct qn__listener qn__listener_t;
typedef struct qn__lookup_task qn__lookup_task_t;
struct qn__listener {
  void (*on_done)(qn__listener_t* listener, qn__lookup_task_t* task);
  qn__listener_t* next;
};

struct qn__lookup_task {
  qn__task_t pool_task;  // first: the pool returns this pointer
  qn_engine_t* engine;   // retained
  _Atomic uint32_t reference_count;
  qn__request_t request;  // module and target retained
  qn__ident_t ident;

  // Of the leader. The result is for all once the state is DONE.
  bool is_on_pool;  // a thread of the pool runs it
  uint32_t generator;
  char identity[256];  // of the generator; "": not known yet
  qn__buffer_t preimage;
  qn_hash128_t key;
  char name[128];  // for people and profilers: "softmax@0123456789ab"
  bool has_asked_remote;
  qn__answer_t answers[QN__TIER_COUNT];
  qn__claim_t claims[QN__TIER_COUNT];
  bool holds_exit;          // see qn__generators_begin_work
  qn__compiled_t compiled;  // owned, between COMPILE and PUBLISH
  const qn_codegen_t* codegen;
  void* codegen_self;
  int64_t queue_ns;  // waited for a thread that compiles
  qn__lookup_result_t result;

  // Under the lock of the lookups in flight (in_flight.h).
  qn__lookup_state_t state;
  bool asks_remote;        // a caller allows it
  uint32_t compile_count;  // callers that allow a compile
  uint32_t waiter_count;
  bool is_orphan;        // of the parent of a fork
  char shown_name[128];  // name and key for the messages of other threads, once they are known
  qn_cache_key_t shown_key;
  qn__listener_t* listeners;
  qn__lookup_task_t* next;
};

// Runs the task in the calling thread, its leader, until it is done or the pool takes it over to
// compile. `may_compile_here`: compiles in this thread if the pool has none.
void qn__lookup_run(qn__lookup_task_t* task, bool may_compile_here);
// Searches only the local tiers in the calling thread; the pool does the rest.
void qn__lookup_run_local(qn__lookup_task_t* task);
// Hands the task to the pool. False if the pool has no thread: the caller still is the leader.
bool qn__lookup_submit(qn__lookup_task_t* task);
// Ends a task whose leader cannot go on (RETRY, CANCELLED).
void qn__lookup_give_up(qn__lookup_task_t* task, qn__outcome_t outcome);

// Checks that a compile ahead can put its entry, and waits until earlier puts are written, so that
// the claim sees them (ahead.c). Errors: FAILED_PRECONDITION.
qn_status_t qn__ahead_prepare(const qn_engine_t* engine);

// Says why a key has to be compiled: the class, and a sentence (miss_reason.c).
qn_miss_reason_t qn__miss_reason(const qn__lookup_task_t* task, char out[512]);

#endif  // QUERN_JIT_LOOKUP_TASK_H_
