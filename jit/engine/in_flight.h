// SPDX-License-Identifier: Apache-2.0
// jit/engine/in_flight.h: the lookups in flight, one task for each key, so that many threads that
// look up one key compile it once.
//
// The first caller of a key becomes the leader and runs the task. All others join: they wait until
// their deadline, or listen. A task is compiled only if a caller that joined allows it, and it
// continues when its callers no longer wait.
//
// Not here: what the leader does (lookup_task.h), what is loaded already (table.h). Read next:
// lookup_task.h, in_flight.c.
#ifndef QUERN_JIT_IN_FLIGHT_H_
#define QUERN_JIT_IN_FLIGHT_H_

#include "jit/engine/lookup_task.h"
#include "jit/engine/recent_failures.h"

typedef struct qn__in_flight {
  qn_engine_t* engine;
  qn__mutex_t mutex;
  qn__cond_t changed;  // a task has reached REMOTE, CLAIM or DONE; a future is ready
  qn__lookup_task_t* first;
  qn__lookup_task_t* orphans;  // of the parent's threads, in a child of fork
  uint32_t count;              // in the list of `first`
  bool is_closing;             // no caller joins any more
  qn__recent_failures_t failures;
  // Futures with a deadline and a callback (future.c).
  qn_future_t* timed_futures;
  qn__task_t timer_task;
  bool has_timer_task;
  qn__fork_node_t fork_node;
} qn__in_flight_t;

// The object must not move afterwards. Made after the engine's table, pool and generators.
qn_status_t qn__in_flight_init(qn__in_flight_t* in_flight, qn_engine_t* engine);
void qn__in_flight_deinit(qn__in_flight_t* in_flight);
// From now on no caller joins (CANCELLED).
void qn__in_flight_close(qn__in_flight_t* in_flight);
bool qn__in_flight_is_closing(qn__in_flight_t* in_flight);
// Drops the tasks and listeners that a child of fork inherited.
void qn__in_flight_drop_orphans(qn__in_flight_t* in_flight);
// Checks requirements 1 and 2 of in_flight.c. The caller holds the lock.
bool qn__in_flight_check(const qn__in_flight_t* in_flight);

// ---- for callers

// What a caller allows besides a search of the local tiers.
typedef struct qn__lookup_needs {
  bool asks_remote;
  bool may_compile;
  int32_t priority;
} qn__lookup_needs_t;

// The result of joining: an executable that was loaded meanwhile, or a task and whether the caller
// is its leader, which must run it (qn__lookup_run).
typedef struct qn__join {
  qn_executable_t* executable;  // retained, or NULL
  qn__lookup_task_t* task;      // retained, or NULL
  bool is_leader;
} qn__join_t;

// Joins the task of a key, or starts it as its leader. Errors: that of a recent failed compile (for
// callers that allow compiling), CANCELLED, OUT_OF_MEMORY.
qn_status_t qn__in_flight_join(qn__in_flight_t* in_flight, const qn__request_t* request,
                               const qn__ident_t* ident, const qn__lookup_needs_t* needs,
                               qn__join_t* out_join);
void qn__lookup_task_retain(qn__lookup_task_t* task);
void qn__lookup_task_release(qn__lookup_task_t* task);  // NULL is fine

// Waits until the task has reached `state`; false when the deadline passed first.
bool qn__in_flight_wait(qn__lookup_task_t* task, qn__lookup_state_t state, int64_t deadline_ns);
// Waits until one of the two has an executable, or both are done. `b` may be NULL.
bool qn__in_flight_wait_either(qn__lookup_task_t* a, qn__lookup_task_t* b, int64_t deadline_ns);
qn__lookup_state_t qn__in_flight_state(qn__lookup_task_t* task);
// Copies "softmax@0123456789ab" and the key in hexadecimal, empty before they are known.
void qn__in_flight_name(qn__lookup_task_t* task, char out_name[128], char out_key[33]);
// Borrows the listener until it is called. False when the task is done: it never is called then.
bool qn__in_flight_listen(qn__lookup_task_t* task, qn__listener_t* listener);
// Removes a listener; false if it was called or is being called.
bool qn__in_flight_unlisten(qn__lookup_task_t* task, qn__listener_t* listener);
// Withdraws the caller's permission to compile. If no caller needs a queued task, the task ends.
void qn__in_flight_cancel(qn__lookup_task_t* task);
// Forgets the recent failure of a key.
void qn__in_flight_forget_failure(qn__in_flight_t* in_flight, const qn__ident_t* ident);

// ---- for leaders (lookup_task.c)

// Returns what the callers allow now.
void qn__in_flight_needs(qn__lookup_task_t* task, bool* out_asks_remote, bool* out_may_compile);
// Publishes that the task has reached a state, and its name.
void qn__in_flight_advance(qn__lookup_task_t* task, qn__lookup_state_t state);
// Publishes CLAIM and queues the task to be compiled. False: the caller still is its leader.
bool qn__in_flight_queue(qn__lookup_task_t* task);
// Ends the task with the result that is set: loads it into the memory table, wakes the waiters,
// calls the listeners and releases the leader's reference. Does nothing and returns false if the
// outcome is ABSENT and a caller allows more than was tried.
bool qn__in_flight_complete(qn__lookup_task_t* task);

#endif  // QUERN_JIT_IN_FLIGHT_H_
