// SPDX-License-Identifier: Apache-2.0
// serve/server.h: routes: from an exchange to a protocol's functions, with keys, ids and log lines.
//
// Each protocol file, such as tei.c, exports a table of routes. A route's
// handle() reads the request; it answers, or submits a call and keeps the exchange. When the call
// has ended, write() makes the answer. Both run on threads of the HTTP server.
#ifndef SERVE_SERVER_H_
#define SERVE_SERVER_H_

#include <pthread.h>

#include "serve/call.h"
#include "serve/http.h"
#include "serve/json.h"
#include "serve/options.h"
#include "serve/repository.h"

typedef struct serve_server serve_server_t;
typedef struct serve_visit serve_visit_t;

enum { SERVE_MAX_PARAMETERS = 2, SERVE_ID_BYTES = 128 };

// How a protocol says that something is wrong.
typedef struct serve_protocol {
  const char* name;
  // Appends the body. May change the status, where the protocol has its own.
  void (*write_error)(serve_error_t* error, serve_buffer_t* out);
} serve_protocol_t;

typedef enum serve_access {
  SERVE_ACCESS_OPEN,   // without a key: health, metrics
  SERVE_ACCESS_KEY,    // with a key, if the server has keys
  SERVE_ACCESS_ADMIN,  // only at the address for management
} serve_access_t;

typedef struct serve_route {
  const char* method;
  const char* pattern;  // segments; "*" matches one and becomes a parameter
  serve_access_t access;
  const serve_protocol_t* protocol;
  // Appends the answer to `out`; or keeps the exchange by serve_visit_submit or serve_visit_work.
  // Returns false with `visit->error` set.
  bool (*handle)(serve_visit_t* visit, serve_buffer_t* out);
  // Appends the answer of a call or of work that went well. NULL: the route keeps no exchanges.
  bool (*write)(serve_visit_t* visit, serve_buffer_t* out);
} serve_route_t;

typedef struct serve_routes {
  const serve_route_t* routes;
  size_t count;
} serve_routes_t;

// An exchange on its way through a route.
struct serve_visit {
  serve_server_t* server;
  serve_exchange_t* exchange;
  const serve_route_t* route;                  // NULL: there is none
  char parameters[SERVE_MAX_PARAMETERS][128];  // what the stars matched
  char id[SERVE_ID_BYTES];                     // x-request-id, or made here
  char trace[64];                              // traceparent, or ""
  serve_call_t* call;                          // owned
  serve_error_t error;
  const char* type;  // of the answer; JSON unless the route says otherwise
  uint32_t status;   // of the answer; 200 unless the route says otherwise
  bool is_kept;
  serve_trace_span_t read;             // for the trace: until the body was complete
  serve_trace_span_t write;            // and the answer of a call
  bool (*work)(serve_visit_t* visit);  // of serve_visit_work
  void* state;                         // of the protocol; owned
  void (*free_state)(void* state);
};

// What the routes need to know of the server.
struct serve_server {
  const serve_options_t* options;  // borrowed
  serve_repository_t* repository;  // borrowed
  serve_trace_t* trace;            // borrowed; NULL: none
  serve_call_limits_t limits;
  int64_t start_ns;
  int64_t start_time;  // seconds since 1970
  atomic_bool is_draining;
  serve_http_t* http;
  serve_http_t* admin;  // NULL: no management
  char* keys;           // of clients: the text of the file; NULL: none are needed
  pthread_mutex_t mutex;
  pthread_cond_t is_idle;
  size_t work_count;  // threads of serve_visit_work
};

// Starts listening. `options`, `repository` and `trace` (of requests; NULL: none) are borrowed
// until serve_server_stop. Errors: those of serve_http_start; those of serve_file_read for the
// files of keys and TLS; INVALID_ARGUMENT for one of the two TLS files.
QN_MUST_USE qn_status_t serve_server_start(const serve_options_t* options,
                                           serve_repository_t* repository, serve_trace_t* trace,
                                           serve_server_t** out_server);
// Returns true if all models are ready and the server is not draining.
bool serve_server_is_ready(serve_server_t* server);
// Makes ready answer 503, and serves on.
void serve_server_begin_drain(serve_server_t* server);
// Accepts no more connections, and waits for exchanges that are under way, at most this long.
// Returns false if some are left.
bool serve_server_finish(serve_server_t* server, int64_t timeout_ns);
// Every exchange with a call must have been resumed: stop the models before. Waits for loads that
// are under way, which use the repository. NULL is ignored.
void serve_server_stop(serve_server_t* server);

// Returns the model of a name (NULL: the first), retained; sets an error if there is none.
serve_model_t* serve_visit_model(serve_visit_t* visit, const char* name);
// Reads the first `size` bytes of the body as an object: calls `read` for each member, before its
// value. False with an error of `read`, or with that of the JSON.
bool serve_visit_read(serve_visit_t* visit, size_t size,
                      bool (*read)(serve_json_t* json, void* self), void* self);
// Creates `visit->call`, without a model so far. False with an error without memory.
bool serve_visit_begin_call(serve_visit_t* visit);
// Gives the call the model of a name (NULL: the first). False with an error if there is none.
bool serve_visit_choose_model(serve_visit_t* visit, const char* name);
// Submits `visit->call` and keeps the exchange.
bool serve_visit_submit(serve_visit_t* visit);
// Runs `work` on a thread of its own and keeps the exchange until it returns. For what blocks, such
// as loading a model. `work` may set `visit->error`, and touches the exchange no more.
bool serve_visit_work(serve_visit_t* visit, bool (*work)(serve_visit_t* visit));

#endif  // SERVE_SERVER_H_
