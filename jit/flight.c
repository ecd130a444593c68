// jit/flight.c: see flight.h.
#include "jit/flight.h"

#include "base/alloc.h"

struct qn__flight {
  qn__ident_t ident;
  bool is_done;
  uint32_t waiter_count;
  qn_status_t status;           // owned
  qn_executable_t* executable;  // retained for the waiters
  qn__flight_t* next;
};

static void fork_prepare(void* self) {
  qn__mutex_lock(&((qn__flights_t*)self)->mutex);
}
static void fork_parent(void* self) {
  qn__mutex_unlock(&((qn__flights_t*)self)->mutex);
}
// Flights of the parent's threads never land here: the child makes those keys itself.
static void fork_child(void* self) {
  qn__flights_t* flights = self;
  qn_status_free(qn__mutex_init(&flights->mutex));
  qn_status_free(qn__cond_init(&flights->done));
  flights->first = NULL;
}

qn_status_t qn__flights_init(qn__flights_t* flights, qn__table_t* table) {
  memset(flights, 0, sizeof *flights);
  flights->table = table;
  QN_TRY(qn__mutex_init(&flights->mutex));
  QN_TRY(qn__cond_init(&flights->done));
  flights->fork_node = (qn__fork_node_t){
      .self = flights, .prepare = fork_prepare, .parent = fork_parent, .child = fork_child};
  if (!qn__fork_register(&flights->fork_node)) return qn__out_of_memory("a fork handler");
  return QN_OK;
}

void qn__flights_deinit(qn__flights_t* flights) {
  if (flights->fork_node.self) qn__fork_unregister(&flights->fork_node);
  qn__mutex_deinit(&flights->mutex);
  qn__cond_deinit(&flights->done);
}

static void release_flight(qn__flights_t* flights, qn__flight_t* flight) {
  qn_status_free(flight->status);
  qn_executable_release(flight->executable);
  qn__free(flights->table->allocator, flight, sizeof *flight);
}

static qn_status_t wait_for(qn__flights_t* flights, qn__flight_t* flight,
                            qn_executable_t** out_executable) {
  flight->waiter_count++;
  while (!flight->is_done) qn__cond_wait(&flights->done, &flights->mutex);
  qn_status_t status = qn_status_clone(flight->status);
  if (flight->executable) {
    qn_executable_retain(flight->executable);
    *out_executable = flight->executable;
  }
  bool is_last = --flight->waiter_count == 0;
  qn__mutex_unlock(&flights->mutex);
  if (is_last) release_flight(flights, flight);
  return status;
}

qn_status_t qn__flight_board(qn__flights_t* flights, const qn__ident_t* ident,
                             qn__flight_t** out_flight, qn_executable_t** out_executable) {
  *out_flight = NULL;
  *out_executable = NULL;
  qn__flight_t* fresh = qn__alloc_zero(flights->table->allocator, 1, sizeof *fresh);
  if (!fresh) return qn__out_of_memory("a lookup");
  qn__mutex_lock(&flights->mutex);
  for (qn__flight_t* flight = flights->first; flight; flight = flight->next) {
    if (!qn__ident_equal(&flight->ident, ident)) continue;
    qn__free(flights->table->allocator, fresh, sizeof *fresh);
    return wait_for(flights, flight, out_executable);
  }
  // Whoever made it may have landed since the caller looked.
  *out_executable = qn__table_peek(flights->table, ident);
  if (!*out_executable) {
    fresh->ident = *ident;
    fresh->next = flights->first;
    flights->first = fresh;
    *out_flight = fresh;
  }
  qn__mutex_unlock(&flights->mutex);
  if (*out_executable) qn__free(flights->table->allocator, fresh, sizeof *fresh);
  return QN_OK;
}

void qn__flight_land(qn__flights_t* flights, qn__flight_t* flight, qn_status_t status,
                     qn_executable_t* executable) {
  qn__mutex_lock(&flights->mutex);
  for (qn__flight_t** at = &flights->first; *at; at = &(*at)->next) {
    if (*at != flight) continue;
    *at = flight->next;
    break;
  }
  bool is_alone = flight->waiter_count == 0;
  if (!is_alone) {
    flight->is_done = true;
    flight->status = qn_status_clone(status);
    if (executable) qn_executable_retain(executable);
    flight->executable = executable;
    qn__cond_broadcast(&flights->done);
  }
  qn__mutex_unlock(&flights->mutex);
  if (is_alone) release_flight(flights, flight);
}
