// jit/flight.h: keys that are being made, so that each is made once however many threads ask.
//
// Not here: what is made already (table.h). Thread rule: any thread. Read next: flight.c.
#ifndef QUERN_JIT_FLIGHT_H_
#define QUERN_JIT_FLIGHT_H_

#include "jit/table.h"

typedef struct qn__flight qn__flight_t;

typedef struct qn__flights {
  qn__table_t* table;
  qn__mutex_t mutex;
  qn__cond_t done;
  qn__flight_t* first;
  qn__fork_node_t fork_node;
} qn__flights_t;

// Borrows `table`. The object must not move afterwards.
qn_status_t qn__flights_init(qn__flights_t* flights, qn__table_t* table);
void qn__flights_deinit(qn__flights_t* flights);

// Either the caller is the first who asks for `ident`, and must end the flight (`*out_flight` not
// NULL); or it waited for who was, and gets that one's executable (retained) or a copy of its
// error.
qn_status_t qn__flight_board(qn__flights_t* flights, const qn__ident_t* ident,
                             qn__flight_t** out_flight, qn_executable_t** out_executable);
// Hands the outcome to all who wait: `executable` is borrowed, `status` too.
void qn__flight_land(qn__flights_t* flights, qn__flight_t* flight, qn_status_t status,
                     qn_executable_t* executable);

#endif  // QUERN_JIT_FLIGHT_H_
