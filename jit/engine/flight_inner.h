// jit/engine/flight_inner.h: what a flight is made of, for flight.c and steps.c.
//
// Thread rule: `making` and `job` belong to the maker; the rest to the mutex of the flights, but
// for what has landed, which is constant. Read next: flight.c.
#ifndef QUERN_JIT_FLIGHT_INNER_H_
#define QUERN_JIT_FLIGHT_INNER_H_

#include "jit/engine/making.h"

struct qn__flight {
  qn__task_t job;  // first: the pool gives this pointer back
  qn_engine_t* engine;
  _Atomic uint32_t reference_count;
  qn__request_t request;  // module and target retained
  qn__ident_t ident;
  qn__making_t making;

  qn__flight_stage_t stage;
  uint32_t wish_count;    // of those who may compile
  uint32_t waiter_count;  // in qn__flight_wait and its like
  bool asks_remote;       // somebody wishes
  bool has_asked_remote;
  bool is_orphan;  // of a parent of fork
  char name[128];
  qn_cache_key_t key;
  qn__listener_t* listeners;
  qn__landing_t landing;  // status and executable owned
  qn__flight_t* next;
};

// Lands the flight: takes it from the list, hands the outcome to all who wait or listen, releases
// the maker's reference. `status` and `executable` are consumed.
void qn__flight_land(qn__flight_t* flight, qn__outcome_t outcome, qn_status_t status,
                     qn_executable_t* executable);
// The same unless `keeps` says under the lock that the flight must go on; true when it has landed.
bool qn__flight_land_unless(qn__flight_t* flight, bool (*keeps)(qn__flight_t* flight),
                            qn__outcome_t outcome);
void qn__flight_set_stage(qn__flight_t* flight, qn__flight_stage_t stage);

#endif  // QUERN_JIT_FLIGHT_INNER_H_
