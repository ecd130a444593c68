// jit/engine/flight.c: who waits for whom: boarding, waiting, landing.
//
// Requirements:
//  1. One flight per key: the list is searched and added to under one lock, and what has landed is
//     in the memory table before it leaves the list.
//  2. Nobody waits longer than he said, and who leaves changes nothing for the others.
//  3. A wish is never overlooked: what a maker does next it decides under the lock that those who
//     board hold.
//  4. A child of fork has none of its parent's flights: they are cancelled for whoever asks there.
// The list is short (keys that are being made at this moment), so it is searched from its head.
// Thread rule: in the headers. Read next: steps.c.
#include "jit/engine/flight.h"

#include "base/alloc.h"
#include "base/fork.h"
#include "jit/engine/flight_inner.h"

#define FAILED_PERIOD_NS INT64_C(1000000000)

// ---------------------------------------------------------------------------------------- fork

static void fork_prepare(void* self) {
  qn__mutex_lock(&((qn__flights_t*)self)->mutex);
}
static void fork_parent(void* self) {
  qn__mutex_unlock(&((qn__flights_t*)self)->mutex);
}
// The memory stays until the engine ends: allocators may not be ready here.
static void fork_child(void* self) {
  qn__flights_t* flights = self;
  qn_status_free(qn__mutex_init(&flights->mutex));
  qn_status_free(qn__cond_init(&flights->moved));
  while (flights->first) {
    qn__flight_t* flight = flights->first;
    flights->first = flight->next;
    flight->next = flights->orphans;
    flights->orphans = flight;
    flight->is_orphan = true;
    flight->stage = QN__FLIGHT_LANDED;
    flight->landing.outcome = QN__OUTCOME_CANCELLED;
  }
  flights->count = 0;
  flights->alarms = NULL;
  flights->has_alarm_job = false;
}

// -------------------------------------------------------------------------------------- making

qn_status_t qn__flights_init(qn__flights_t* flights, qn_engine_t* engine) {
  memset(flights, 0, sizeof *flights);
  flights->engine = engine;
  flights->failed_period_ns = FAILED_PERIOD_NS;
  QN_TRY(qn__mutex_init(&flights->mutex));
  QN_TRY(qn__cond_init(&flights->moved));
  flights->fork_node = (qn__fork_node_t){
      .self = flights, .prepare = fork_prepare, .parent = fork_parent, .child = fork_child};
  if (qn__fork_register(&flights->fork_node)) return QN_OK;
  flights->fork_node.self = NULL;
  return qn__out_of_memory("a fork handler");
}

void qn__flights_deinit(qn__flights_t* flights) {
  if (!flights->fork_node.self) return;
  qn__fork_unregister(&flights->fork_node);
  for (size_t i = 0; i < QN__FAILED_COUNT; i++) qn_status_free(flights->failed[i].status);
  qn__mutex_deinit(&flights->mutex);
  qn__cond_deinit(&flights->moved);
}

void qn__flights_close(qn__flights_t* flights) {
  if (!flights->fork_node.self) return;
  qn__mutex_lock(&flights->mutex);
  flights->is_closing = true;
  qn__cond_broadcast(&flights->moved);
  qn__mutex_unlock(&flights->mutex);
}

bool qn__flights_is_closing(qn__flights_t* flights) {
  qn__mutex_lock(&flights->mutex);
  bool is_closing = flights->is_closing;
  qn__mutex_unlock(&flights->mutex);
  return is_closing;
}

// Orphans are dropped with their listeners, which nobody will call: each holds what it waited for.
static void drop_orphans(qn__flights_t* flights) {
  qn__flight_t* orphan = flights->orphans;
  flights->orphans = NULL;
  while (orphan) {
    qn__flight_t* next = orphan->next;
    qn__listener_t* listener = orphan->listeners;
    orphan->listeners = NULL;
    while (listener) {
      qn__listener_t* after = listener->next;
      listener->on_land(listener, orphan);
      listener = after;
    }
    qn__flight_release(orphan);
    orphan = next;
  }
}

bool qn__flights_leave_tiers(qn__flights_t* flights) {
  if (!flights->fork_node.self) return true;
  drop_orphans(flights);
  qn__mutex_lock(&flights->mutex);
  bool is_last = flights->count == 0;
  flights->must_close_tiers = !is_last;
  qn__mutex_unlock(&flights->mutex);
  return is_last;
}

static qn__flight_t* make_flight(qn__flights_t* flights, const qn__request_t* request,
                                 const qn__ident_t* ident) {
  qn_engine_t* engine = flights->engine;
  qn__flight_t* flight = qn__alloc_zero(engine->allocator, 1, sizeof *flight);
  if (!flight) return NULL;
  atomic_init(&flight->reference_count, 2);  // the boarder's and the maker's
  qn__engine_retain(engine);
  flight->engine = engine;
  flight->job.priority = INT32_MIN;  // those who board raise it
  flight->request = *request;
  flight->request.generic = NULL;
  flight->ident = *ident;
  qn_module_retain(request->module);
  qn_target_retain(request->target);
  qn__making_init(&flight->making, engine, &flight->request);
  return flight;
}

void qn__flight_retain(qn__flight_t* flight) {
  atomic_fetch_add_explicit(&flight->reference_count, 1, memory_order_relaxed);
}

void qn__flight_release(qn__flight_t* flight) {
  if (!flight) return;
  if (atomic_fetch_sub_explicit(&flight->reference_count, 1, memory_order_acq_rel) != 1) return;
  qn_engine_t* engine = flight->engine;
  qn_status_free(flight->landing.status);
  qn_executable_release(flight->landing.executable);
  qn__making_deinit(&flight->making);
  qn_module_release(flight->request.module);
  qn_target_release(flight->request.target);
  qn__free(engine->allocator, flight, sizeof *flight);
  qn__engine_release(engine);
}

// ----------------------------------------------------------------------------- failed lately

// What says nothing about the key itself is not remembered.
static bool is_lasting(qn_status_t status) {
  switch (qn_status_code(status)) {
    case QN_STATUS_OUT_OF_MEMORY:
    case QN_STATUS_CANCELLED:
    case QN_STATUS_DEADLINE_EXCEEDED:
    case QN_STATUS_COMPILE_FORBIDDEN:
      return false;
    default:
      return true;
  }
}

static void remember_failure(qn__flights_t* flights, const qn__ident_t* ident, qn_status_t status) {
  if (!is_lasting(status)) return;
  qn_status_t copy = qn_status_clone(status);
  if (qn_status_code(copy) != qn_status_code(status))
    return;  // no memory, which says nothing either
  size_t slot = flights->failed_next;
  for (size_t i = 0; i < QN__FAILED_COUNT; i++) {
    if (flights->failed[i].status && qn__ident_equal(&flights->failed[i].ident, ident)) slot = i;
  }
  if (slot == flights->failed_next) flights->failed_next = (slot + 1) % QN__FAILED_COUNT;
  qn_status_free(flights->failed[slot].status);
  flights->failed[slot].status = copy;
  flights->failed[slot].ident = *ident;
  flights->failed[slot].until_ns = qn__now_ns() + flights->failed_period_ns;
}

// A copy of the status of a key that failed lately, or ok.
static qn_status_t recall_failure(qn__flights_t* flights, const qn__ident_t* ident) {
  for (size_t i = 0; i < QN__FAILED_COUNT; i++) {
    if (!flights->failed[i].status || !qn__ident_equal(&flights->failed[i].ident, ident)) continue;
    if (qn__now_ns() < flights->failed[i].until_ns) {
      return qn_status_clone(flights->failed[i].status);
    }
    qn_status_free(flights->failed[i].status);
    flights->failed[i].status = QN_OK;
  }
  return QN_OK;
}

void qn__flights_forget_failure(qn__flights_t* flights, const qn__ident_t* ident) {
  qn__mutex_lock(&flights->mutex);
  for (size_t i = 0; i < QN__FAILED_COUNT; i++) {
    if (!flights->failed[i].status || !qn__ident_equal(&flights->failed[i].ident, ident)) continue;
    qn_status_free(flights->failed[i].status);
    flights->failed[i].status = QN_OK;
  }
  qn__mutex_unlock(&flights->mutex);
}

// -------------------------------------------------------------------------------------- boarding

static void add_wish(qn__flight_t* flight, const qn__wish_t* wish) {
  flight->asks_remote |= wish->asks_remote;
  flight->wish_count += wish->may_compile;
  qn__pool_raise(&flight->engine->pool, &flight->job, wish->priority);
}

// The caller holds the lock. `fresh` is used up if *out_boarding has it.
static qn_status_t board_locked(qn__flights_t* flights, const qn__ident_t* ident,
                                const qn__wish_t* wish, qn__flight_t* fresh,
                                qn__boarding_t* out_boarding) {
  if (flights->is_closing) {
    return qn_status_make(QN_STATUS_CANCELLED, "the engine is being destroyed");
  }
  qn__flight_t* flight = flights->first;
  while (flight && !qn__ident_equal(&flight->ident, ident)) flight = flight->next;
  if (flight) {
    qn__flight_retain(flight);
    add_wish(flight, wish);
    out_boarding->flight = flight;
    return QN_OK;
  }
  // Whoever made it may have landed since the caller looked.
  out_boarding->executable = qn__table_peek(&flights->engine->table, ident);
  if (out_boarding->executable) return QN_OK;
  if (wish->may_compile) {
    qn_status_t status = recall_failure(flights, ident);
    if (!qn_ok(status)) {
      qn__count(flights->engine, QN__COUNTER_failed_remembered, 1);
      return status;
    }
  }
  add_wish(fresh, wish);
  fresh->next = flights->first;
  flights->first = fresh;
  flights->count++;
  out_boarding->flight = fresh;
  out_boarding->is_maker = true;
  return QN_OK;
}

qn_status_t qn__flight_board(qn__flights_t* flights, const qn__request_t* request,
                             const qn__ident_t* ident, const qn__wish_t* wish,
                             qn__boarding_t* out_boarding) {
  qn__exit_watch_caller();
  *out_boarding = (qn__boarding_t){0};
  qn__flight_t* fresh = make_flight(flights, request, ident);
  if (!fresh) return qn__out_of_memory("a lookup");
  qn__mutex_lock(&flights->mutex);
  qn_status_t status = board_locked(flights, ident, wish, fresh, out_boarding);
  qn__mutex_unlock(&flights->mutex);
  if (!out_boarding->is_maker) {
    qn__flight_release(fresh);
    qn__flight_release(fresh);
  }
  return status;
}

void qn__flight_cancel(qn__flight_t* flight) {
  qn_engine_t* engine = flight->engine;
  qn__mutex_lock(&engine->flights.mutex);
  bool is_unwanted = flight->stage != QN__FLIGHT_LANDED && --flight->wish_count == 0 &&
                     flight->waiter_count == 0 && !flight->listeners &&
                     qn__pool_withdraw(&engine->pool, &flight->job);
  // The lock is let go first: whoever boards between meets a flight that lands as RETRY.
  qn__mutex_unlock(&engine->flights.mutex);
  if (is_unwanted) qn__flight_land(flight, QN__OUTCOME_RETRY, QN_OK, NULL);
}

bool qn__flight_listen(qn__flight_t* flight, qn__listener_t* listener) {
  qn__flights_t* flights = &flight->engine->flights;
  qn__mutex_lock(&flights->mutex);
  bool is_flying = flight->stage != QN__FLIGHT_LANDED;
  if (is_flying) {
    listener->next = flight->listeners;
    flight->listeners = listener;
  }
  qn__mutex_unlock(&flights->mutex);
  return is_flying;
}

bool qn__flight_unlisten(qn__flight_t* flight, qn__listener_t* listener) {
  qn__flights_t* flights = &flight->engine->flights;
  qn__mutex_lock(&flights->mutex);
  qn__listener_t** at = &flight->listeners;
  while (*at && *at != listener) at = &(*at)->next;
  bool was_there = *at != NULL;
  if (was_there) *at = listener->next;
  qn__mutex_unlock(&flights->mutex);
  return was_there;
}

// --------------------------------------------------------------------------------------- waiting

bool qn__flight_wait(qn__flight_t* flight, qn__flight_stage_t stage, int64_t deadline_ns) {
  qn__flights_t* flights = &flight->engine->flights;
  qn__mutex_lock(&flights->mutex);
  flight->waiter_count++;
  bool is_in_time = true;
  while (flight->stage < stage && is_in_time) {
    is_in_time = qn__cond_wait_until(&flights->moved, &flights->mutex, deadline_ns);
  }
  flight->waiter_count--;
  bool is_there = flight->stage >= stage;
  qn__mutex_unlock(&flights->mutex);
  return is_there;
}

qn__flight_stage_t qn__flight_stage_now(qn__flight_t* flight) {
  qn__flights_t* flights = &flight->engine->flights;
  qn__mutex_lock(&flights->mutex);
  qn__flight_stage_t stage = flight->stage;
  qn__mutex_unlock(&flights->mutex);
  return stage;
}

bool qn__flight_is_orphan(const qn__flight_t* flight) {
  return flight->is_orphan;
}

static bool has_found(const qn__flight_t* flight) {
  return flight->stage == QN__FLIGHT_LANDED && flight->landing.outcome == QN__OUTCOME_FOUND;
}

bool qn__flight_wait_either(qn__flight_t* a, qn__flight_t* b, int64_t deadline_ns) {
  if (!b) return qn__flight_wait(a, QN__FLIGHT_LANDED, deadline_ns);
  qn__flights_t* flights = &a->engine->flights;
  qn__mutex_lock(&flights->mutex);
  a->waiter_count++;
  b->waiter_count++;
  bool is_in_time = true;
  bool is_there = false;
  for (;;) {
    is_there = has_found(a) || has_found(b) ||
               (a->stage == QN__FLIGHT_LANDED && b->stage == QN__FLIGHT_LANDED);
    if (is_there || !is_in_time) break;
    is_in_time = qn__cond_wait_until(&flights->moved, &flights->mutex, deadline_ns);
  }
  a->waiter_count--;
  b->waiter_count--;
  qn__mutex_unlock(&flights->mutex);
  return is_there;
}

const qn__landing_t* qn__flight_landing(const qn__flight_t* flight) {
  return &flight->landing;
}

void qn__flight_name(qn__flight_t* flight, char out_name[128], char out_key[33]) {
  qn__flights_t* flights = &flight->engine->flights;
  qn__mutex_lock(&flights->mutex);
  memcpy(out_name, flight->name, sizeof flight->name);
  memcpy(out_key, flight->key.hex, sizeof flight->key.hex);
  qn__mutex_unlock(&flights->mutex);
}

// --------------------------------------------------------------------------------------- landing

void qn__flight_set_stage(qn__flight_t* flight, qn__flight_stage_t stage) {
  qn__flights_t* flights = &flight->engine->flights;
  qn__mutex_lock(&flights->mutex);
  if (flight->stage < stage) flight->stage = stage;
  if (flight->making.has_key && flight->key.hex[0] == '\0') {
    memcpy(flight->name, flight->making.name, sizeof flight->name);
    flight->key = flight->making.info.key;
  }
  qn__cond_broadcast(&flights->moved);
  qn__mutex_unlock(&flights->mutex);
}

// The caller holds the lock. What is left to do without it: the listeners to call.
static qn__listener_t* land_locked(qn__flights_t* flights, qn__flight_t* flight,
                                   qn__outcome_t outcome, qn_status_t status,
                                   qn_executable_t* executable, bool* out_closes) {
  qn__flight_t** at = &flights->first;
  while (*at && *at != flight) at = &(*at)->next;
  if (*at) {
    *at = flight->next;
    flights->count--;
    *out_closes = flights->count == 0 && flights->must_close_tiers;
  }
  qn__listener_t* listeners = flight->listeners;
  flight->listeners = NULL;
  flight->landing.outcome = outcome;
  flight->landing.status = status;
  flight->landing.executable = executable;
  flight->landing.info = flight->making.info;
  flight->stage = QN__FLIGHT_LANDED;
  if (outcome == QN__OUTCOME_FAILED) remember_failure(flights, &flight->ident, status);
  qn__cond_broadcast(&flights->moved);
  return listeners;
}

static void finish(qn__flight_t* flight, qn__listener_t* listeners, bool closes_tiers) {
  while (listeners) {
    qn__listener_t* next = listeners->next;
    listeners->on_land(listeners, flight);
    listeners = next;
  }
  if (closes_tiers) qn__engine_close_cache(flight->engine);
  // An orphan is released with the engine.
  if (!flight->is_orphan) qn__flight_release(flight);
}

void qn__flight_land(qn__flight_t* flight, qn__outcome_t outcome, qn_status_t status,
                     qn_executable_t* executable) {
  qn__flights_t* flights = &flight->engine->flights;
  // Without memory for the table the waiters still get their code.
  if (executable) {
    qn_status_free(qn__table_put(&flight->engine->table, &flight->ident, executable));
  }
  bool closes_tiers = false;
  qn__mutex_lock(&flights->mutex);
  qn__listener_t* listeners =
      land_locked(flights, flight, outcome, status, executable, &closes_tiers);
  qn__mutex_unlock(&flights->mutex);
  finish(flight, listeners, closes_tiers);
}

bool qn__flight_land_unless(qn__flight_t* flight, bool (*keeps)(qn__flight_t* flight),
                            qn__outcome_t outcome) {
  qn__flights_t* flights = &flight->engine->flights;
  bool closes_tiers = false;
  // Nobody reads it before the flight has landed.
  if (outcome == QN__OUTCOME_ABSENT) {
    (void)qn__making_reason(&flight->making, flight->landing.why);
  }
  qn__mutex_lock(&flights->mutex);
  if (keeps(flight)) {
    qn__mutex_unlock(&flights->mutex);
    return false;
  }
  qn__listener_t* listeners = land_locked(flights, flight, outcome, QN_OK, NULL, &closes_tiers);
  qn__mutex_unlock(&flights->mutex);
  finish(flight, listeners, closes_tiers);
  return true;
}
