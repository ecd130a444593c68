// jit/engine/flight.h: keys that are being looked for and made, so that each is made once however
// many threads ask.
//
// A flight goes through stages: the local tiers are asked, then the remote one, then it is
// compiled. Whoever begins a flight is its maker: it takes it through the stages itself or hands it
// to the pool. Everybody else waits for as long as he likes, or listens. A flight is only compiled
// if somebody on board wishes for that; and it goes on when those who wished have lost patience.
//
// Not here: what is done at each stage (steps.c, making.h), what is made already (table.h). Thread
// rule: any thread. Read next: flight.c, steps.c.
#ifndef QUERN_JIT_FLIGHT_H_
#define QUERN_JIT_FLIGHT_H_

#include "jit/engine/pool.h"
#include "jit/engine/request.h"
#include "jit/engine/table.h"

typedef enum qn__flight_stage {
  QN__FLIGHT_LOCAL,    // directory and bundles are asked, or wait to be
  QN__FLIGHT_REMOTE,   // neither has it
  QN__FLIGHT_COMPILE,  // nor has the remote tier: it is compiled, or waits to be
  QN__FLIGHT_LANDED,
} qn__flight_stage_t;

typedef enum qn__outcome {
  QN__OUTCOME_FOUND,      // an executable
  QN__OUTCOME_FAILED,     // a status for everybody
  QN__OUTCOME_ABSENT,     // no tier has it, and nobody wished for a compile
  QN__OUTCOME_RETRY,      // the maker cannot go on; another one may
  QN__OUTCOME_CANCELLED,  // the engine ends, or the process has forked
} qn__outcome_t;

typedef struct qn__flight qn__flight_t;

// Called once when a flight lands, on the landing thread, with no lock held.
typedef struct qn__listener qn__listener_t;
struct qn__listener {
  void (*on_land)(qn__listener_t* listener, qn__flight_t* flight);
  qn__listener_t* next;
};

// What somebody who boards wants besides the local tiers.
typedef struct qn__wish {
  bool asks_remote;
  bool may_compile;
  int32_t priority;
} qn__wish_t;

#define QN__FAILED_COUNT 64u

typedef struct qn__flights {
  qn_engine_t* engine;
  qn__mutex_t mutex;
  qn__cond_t moved;  // a flight has changed its stage
  qn__flight_t* first;
  qn__flight_t* orphans;  // of the parent's threads, in a child of fork
  uint32_t count;         // in the list
  bool is_closing;        // nobody boards any more
  bool must_close_tiers;  // the last flight does
  // Compiles that failed lately, so that a burst of lookups fails once.
  struct {
    qn__ident_t ident;
    qn_status_t status;  // owned; ok: free
    int64_t until_ns;
  } failed[QN__FAILED_COUNT];
  size_t failed_next;
  int64_t failed_period_ns;
  // Futures whose owners want to be told when their time is over (future.c).
  qn_future_t* alarms;
  qn__task_t alarm_job;
  bool has_alarm_job;
  qn__fork_node_t fork_node;
} qn__flights_t;

// The object must not move afterwards. Made after the engine's table, pool and generators.
qn_status_t qn__flights_init(qn__flights_t* flights, qn_engine_t* engine);
void qn__flights_deinit(qn__flights_t* flights);
// From now on nobody boards (CANCELLED).
void qn__flights_close(qn__flights_t* flights);
bool qn__flights_is_closing(qn__flights_t* flights);
// True when no flight uses the tiers any more; else the last one will close them.
bool qn__flights_leave_tiers(qn__flights_t* flights);

// What boarding gave: an executable that landed meanwhile, or a flight and whether the caller is
// its maker.
typedef struct qn__boarding {
  qn_executable_t* executable;  // retained, or NULL
  qn__flight_t* flight;         // retained, or NULL
  bool is_maker;
} qn__boarding_t;
// Errors: that of a compile which failed lately (for those who may compile), CANCELLED,
// OUT_OF_MEMORY.
qn_status_t qn__flight_board(qn__flights_t* flights, const qn__request_t* request,
                             const qn__ident_t* ident, const qn__wish_t* wish,
                             qn__boarding_t* out_boarding);
void qn__flight_retain(qn__flight_t* flight);
void qn__flight_release(qn__flight_t* flight);
// Takes a wish for a compile back: a flight that nobody wishes for any more, and that waits in the
// queue, ends there.
void qn__flight_cancel(qn__flight_t* flight);
// Borrows the listener until it was called. False when the flight has landed already: it never is.
bool qn__flight_listen(qn__flight_t* flight, qn__listener_t* listener);
// A listener is not to be called any more; false when it was or is being called.
bool qn__flight_unlisten(qn__flight_t* flight, qn__listener_t* listener);
// Forgets that a key failed lately.
void qn__flights_forget_failure(qn__flights_t* flights, const qn__ident_t* ident);

// Waits until the flight is at `stage` or beyond; false when the deadline passed first.
bool qn__flight_wait(qn__flight_t* flight, qn__flight_stage_t stage, int64_t deadline_ns);
// Waits until one of the two has landed with an executable or both have landed. `b` may be NULL.
bool qn__flight_wait_either(qn__flight_t* a, qn__flight_t* b, int64_t deadline_ns);

qn__flight_stage_t qn__flight_stage_now(qn__flight_t* flight);
// It was a parent's, before a fork. The caller holds the lock of the flights.
bool qn__flight_is_orphan(const qn__flight_t* flight);

// Of a flight that has landed.
typedef struct qn__landing {
  qn__outcome_t outcome;
  qn_status_t status;           // borrowed; FAILED
  qn_executable_t* executable;  // borrowed; FOUND
  qn_lookup_info_t info;        // as its maker sees it
  char why[512];                // ABSENT: what the tiers said
} qn__landing_t;
const qn__landing_t* qn__flight_landing(const qn__flight_t* flight);
// "softmax@0123456789ab" and the key in hexadecimal, once the local tiers have been asked.
void qn__flight_name(qn__flight_t* flight, char out_name[128], char out_key[33]);

// ---- for makers (steps.c)

// Asks directory and bundles in this thread; true when it has landed.
bool qn__flight_ask_local(qn__flight_t* flight);
// After that, in this thread: asks the remote tier if anybody wishes. True when it has landed, for
// nobody wishes for a compile; false: it is to be compiled.
bool qn__flight_ask_remote(qn__flight_t* flight);
// Hands the flight to the pool before it has asked all tiers, or after that, to be compiled. False:
// the caller is its maker still.
bool qn__flight_submit(qn__flight_t* flight);
bool qn__flight_queue(qn__flight_t* flight);
// Compiles in this thread, and lands it.
void qn__flight_compile(qn__flight_t* flight, bool is_pooled);
// After the local tiers, for a maker who does no more: lands the flight if nobody wishes for more,
// else hands it on.
void qn__flight_hand_on(qn__flight_t* flight);
// Ends a flight whose maker cannot go on.
void qn__flight_give_up(qn__flight_t* flight, qn__outcome_t outcome);

#endif  // QUERN_JIT_FLIGHT_H_
