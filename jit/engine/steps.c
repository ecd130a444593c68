// jit/engine/steps.c: what the maker of a flight does at each of its stages.
//
// Requirements:
//  1. What may hang (files, network, other processes, compilers) is done with no lock held.
//  2. A flight that nobody wishes to be compiled ends after the tiers; whether somebody wishes is
//     decided under the lock, together with the landing.
//  3. Reads and compiles wait in lanes of their own: what is in a tier never waits for a compile.
// Thread rule: the maker alone, but for what flight.h says. Read next: lookup.c.
#include "base/alloc.h"
#include "jit/engine/flight_inner.h"

bool qn__flight_ask_local(qn__flight_t* flight) {
  qn__making_t* making = &flight->making;
  qn_status_t status = qn__making_key(making);
  if (!qn_ok(status)) {
    qn__flight_land(flight, QN__OUTCOME_FAILED, status, NULL);
    return true;
  }
  qn_executable_t* executable = qn__making_ask_local(making);
  if (executable) {
    qn__flight_land(flight, QN__OUTCOME_FOUND, QN_OK, executable);
    return true;
  }
  qn__flight_set_stage(flight, QN__FLIGHT_REMOTE);
  return false;
}

static bool has_remote(qn_engine_t* engine) {
  for (qn__tier_t* tier = qn__tier_first(engine); tier; tier = qn__tier_next(tier)) {
    if (tier->table->is_remote) return true;
  }
  return false;
}

// Somebody wishes for more than was done. Whoever boards after this has answered false meets no
// flight any more.
static bool is_wanted(qn__flight_t* flight) {
  if (flight->wish_count > 0) return true;
  return flight->asks_remote && !flight->has_asked_remote && has_remote(flight->engine);
}

bool qn__flight_ask_remote(qn__flight_t* flight) {
  qn_engine_t* engine = flight->engine;
  for (;;) {
    if (qn__flight_land_unless(flight, is_wanted, QN__OUTCOME_ABSENT)) return true;
    if (flight->has_asked_remote || !has_remote(engine)) break;
    qn_executable_t* executable = qn__making_ask_remote(&flight->making);
    if (executable) {
      qn__flight_land(flight, QN__OUTCOME_FOUND, QN_OK, executable);
      return true;
    }
    qn__mutex_lock(&engine->flights.mutex);
    flight->has_asked_remote = true;
    qn__mutex_unlock(&engine->flights.mutex);
  }
  return false;
}

void qn__flight_compile(qn__flight_t* flight, bool is_pooled) {
  qn__making_t* making = &flight->making;
  if (is_pooled) {
    making->queue_ns =
        qn__watch_end(flight->engine->watch, QN__STAGE_queue, flight->job.queued_ns, making->name);
  }
  qn_executable_t* executable = NULL;
  qn_status_t status = qn__making_compile(making, is_pooled, &executable);
  qn__flight_land(flight, qn_ok(status) ? QN__OUTCOME_FOUND : QN__OUTCOME_FAILED, status,
                  executable);
}

void qn__flight_give_up(qn__flight_t* flight, qn__outcome_t outcome) {
  qn__flight_land(flight, outcome, QN_OK, NULL);
}

// ---------------------------------------------------------------------------------------- pool

static void drop(qn__task_t* job) {
  qn__flight_give_up((qn__flight_t*)(void*)job, QN__OUTCOME_CANCELLED);
}

static void run(qn__task_t* job) {
  qn__flight_t* flight = (qn__flight_t*)(void*)job;
  if (flight->stage == QN__FLIGHT_COMPILE) {
    // Between the decision and the queue those who wished may have cancelled.
    if (qn__flight_land_unless(flight, is_wanted, QN__OUTCOME_RETRY)) return;
    qn__flight_compile(flight, true);
    return;
  }
  if (flight->stage == QN__FLIGHT_LOCAL && qn__flight_ask_local(flight)) return;
  if (qn__flight_ask_remote(flight)) return;
  // Only a pool that is being stopped takes no job from its own thread.
  if (!qn__flight_queue(flight)) qn__flight_give_up(flight, QN__OUTCOME_CANCELLED);
}

bool qn__flight_submit(qn__flight_t* flight) {
  flight->job.run = run;
  flight->job.drop = drop;
  flight->job.lane = QN__TASK_READ;
  return qn__pool_submit(&flight->engine->pool, &flight->job);
}

// Under the lock, so that whoever sees the stage knows that it is in the queue: what he submits
// after that is behind it.
bool qn__flight_queue(qn__flight_t* flight) {
  qn__flights_t* flights = &flight->engine->flights;
  flight->job.run = run;
  flight->job.drop = drop;
  flight->job.lane = QN__TASK_COMPILE;
  qn__mutex_lock(&flights->mutex);
  flight->stage = QN__FLIGHT_COMPILE;
  qn__cond_broadcast(&flights->moved);
  bool is_queued = qn__pool_submit(&flight->engine->pool, &flight->job);
  qn__mutex_unlock(&flights->mutex);
  return is_queued;
}

void qn__flight_hand_on(qn__flight_t* flight) {
  if (qn__flight_land_unless(flight, is_wanted, QN__OUTCOME_ABSENT)) return;
  if (!qn__flight_submit(flight)) qn__flight_give_up(flight, QN__OUTCOME_RETRY);
}
