// SPDX-License-Identifier: Apache-2.0
// bench/serve/client.h: sends the requests of a trace at their times and records what comes back.
//
// One thread, epoll, connections that stay open. Open loop: a request is due at its scheduled
// instant, whatever the server does. If no connection is free then, another is opened; at the limit
// the request waits, and the wait counts in its latency. Closed loop: each connection sends its
// next request when it has the answer to the last one.
#ifndef BENCH_SERVE_CLIENT_H_
#define BENCH_SERVE_CLIENT_H_

#include "bench/serve/protocol.h"

// How a request ended: X(symbol, word of the records, explanation).
#define CLIENT_OUTCOMES(X)                                               \
  X(OK, "", "answered, status 200, embeddings as asked")                 \
  X(UNSENT, "unsent", "not sent before the end of --duration")           \
  X(CONNECT, "connect", "no connection could be opened")                 \
  X(TIMEOUT, "timeout", "no answer within --timeout of its instant")     \
  X(CLOSED, "closed", "the connection ended or broke before the answer") \
  X(PROTOCOL, "protocol", "the answer is not HTTP")                      \
  X(STATUS, "status", "a status other than 200")                         \
  X(BODY, "body", "an answer without the embeddings that were asked for")

typedef enum client_outcome {
#define CLIENT_ENUM(symbol, word, text) CLIENT_##symbol,
  CLIENT_OUTCOMES(CLIENT_ENUM)
#undef CLIENT_ENUM
      CLIENT_OUTCOME_COUNT
} client_outcome_t;

const char* client_outcome_word(client_outcome_t outcome);
const char* client_outcome_text(client_outcome_t outcome);

// Times in nanoseconds from the start; -1: never.
typedef struct client_record {
  int64_t scheduled_ns;  // closed loop: the instant of sending
  int64_t sent_ns;       // just before the first byte went
  int64_t done_ns;       // the last byte of the answer was read, or the failure was seen
  int64_t unread_ns;     // its last bytes lay in the socket for at most so long; -1: no answer
  uint64_t checksum;     // XXH3 of the embeddings as f32; 0: not checked
  uint64_t bytes;        // of the answer's body
  int32_t connection;    // in the order of their opening, from 0; -1: none
  int32_t status;        // of HTTP; 0: none
  client_outcome_t outcome;
  bool waited;         // at its instant no connection was free: not the generator's lag
  bool is_first_seen;  // the server's header x-quern-first-seen
  bool is_done;
} client_record_t;

typedef struct client_options {
  const char* host;
  const char* port;
  uint32_t connections;      // opened before the start
  uint32_t max_connections;  // the limit of those opened later
  uint32_t closed;           // closed loop with so many clients; 0: open loop
  int64_t timeout_ns;
  int64_t duration_ns;  // stops to send; 0: the whole trace
  int64_t spin_ns;      // polls instead of sleeping so long before an instant
  size_t hold_bytes;    // of bodies kept for checks after the run; further ones are checked at once
  size_t max_body_bytes;
} client_options_t;

// What the run was, beside its records.
typedef struct client_run {
  client_record_t* records;  // owned, as many as the trace has requests
  size_t count;
  uint32_t connections_opened;
  uint32_t text_width;     // of the embeddings
  int64_t wall_ns;         // from the start to the last answer
  int64_t cpu_ns;          // of this process meanwhile
  int64_t max_turn_ns;     // the longest time between two looks at the sockets
  float* embeddings;       // owned: [texts of the trace, text_width]; NULL unless asked for
  const char* body_error;  // of the first wrong body
  char refusal[200];       // the first answer with another status than 200, as far as it fits
  char error[256];         // of client_run() that returned false
} client_run_t;

// Returns false with `error` set if the run could not begin. client_run_free is due in either case.
bool client_run(const client_options_t* options, const protocol_t* protocol, const trace_t* trace,
                bool keeps_embeddings, client_run_t* out_run);
void client_run_free(client_run_t* run);

#endif  // BENCH_SERVE_CLIENT_H_
