// SPDX-License-Identifier: Apache-2.0
// serve/http.h: HTTP/1.1 by libmicrohttpd, behind this one interface so that it can be replaced.
//
// An exchange is a request and its answer. The handler gets each exchange when its headers are
// there (it may refuse it before a byte of the body is read), and when the body is complete. It
// answers at once, or keeps the exchange until some thread resumes it; then it gets the exchange
// again and must answer. So answers are made by the server's threads. Each exchange that was begun
// ends, answered or not.
//
// Limits that the server keeps itself: the size of a body, and of all bodies and answers together;
// the time for headers, body and answer; connections in all and of one address. A kept exchange has
// no time limit here; its deadline is its owner's.
#ifndef SERVE_HTTP_H_
#define SERVE_HTTP_H_

#include "serve/buffer.h"

typedef struct serve_http serve_http_t;

typedef struct serve_exchange {
  const char* method;
  const char* path;     // decoded, without the query
  serve_buffer_t body;  // of the request
  int64_t start_ns;     // CLOCK_MONOTONIC, when the headers were there
  uint32_t status;      // of the answer; 0: none was given
  size_t answer_bytes;  // of the answer's body
  bool is_sent;         // at the end: the answer was sent whole
  void* user;           // of the handler
} serve_exchange_t;

// The functions run on the server's threads. They must not block.
typedef struct serve_http_handler {
  void* self;
  // The headers are there. May set `user`, and answer.
  void (*begin)(void* self, serve_exchange_t* exchange);
  // The body is complete. Answers, or keeps the exchange for serve_exchange_resume.
  void (*handle)(void* self, serve_exchange_t* exchange);
  // A kept exchange was resumed. Answers.
  void (*resume)(void* self, serve_exchange_t* exchange);
  // The body is too large (413), all bodies are (429), or there is no memory for it (500). Answers.
  void (*refuse)(void* self, serve_exchange_t* exchange, uint32_t status, const char* message);
  // The exchange ends: frees `user`. Also called if the client went before handle().
  void (*end)(void* self, serve_exchange_t* exchange);
  // Reports an error of the library that concerns no exchange.
  void (*log)(void* self, const char* message);
} serve_http_handler_t;

typedef struct serve_http_options {
  const char* address;  // numeric, IPv4 or IPv6; "0.0.0.0", "::" (both families)
  uint16_t port;        // 0: any free port
  uint32_t thread_count;
  uint32_t max_connections;
  uint32_t max_connections_per_address;  // 0: no limit
  size_t max_body_bytes;
  size_t max_bodies_bytes;   // of all requests and answers that are under way
  int64_t receive_limit_ns;  // from a connection's start, or its last answer, to the end of
                             // headers; from there to the end of the body; and for the client to
                             // take the answer
  const char* tls_key;       // PEM; NULL: no TLS
  const char* tls_certificate;
} serve_http_options_t;

// Listens and serves. Options are copied; `handler` is copied, and its `self` borrowed until
// serve_http_stop returns. Errors: INVALID_ARGUMENT for the address, UNAVAILABLE for a port that is
// taken or a certificate that does not fit its key, OUT_OF_MEMORY.
QN_MUST_USE qn_status_t serve_http_start(const serve_http_options_t* options,
                                         const serve_http_handler_t* handler,
                                         serve_http_t** out_http);
uint16_t serve_http_port(const serve_http_t* http);
// Accepts the connections that wait for it, and no more, and closes each after its next answer.
void serve_http_drain(serve_http_t* http);
// Returns the number of exchanges that have begun and not ended, and of connections of the last
// second without a request so far.
size_t serve_http_count(serve_http_t* http);
// Closes all connections and frees the server. Every kept exchange must have been resumed.
// NULL is ignored.
void serve_http_stop(serve_http_t* http);

// Returns the value of a header of the request; NULL: there is none. Only in functions of the
// handler; borrowed until they return.
const char* serve_exchange_header(const serve_exchange_t* exchange, const char* name);
// Writes the client's address without its port.
void serve_exchange_client(const serve_exchange_t* exchange, char* out_text, size_t size);
// Returns true if the client has closed its connection. Any thread, while the exchange is kept.
bool serve_exchange_is_gone(const serve_exchange_t* exchange);

// Adds a header to the coming answer. `name` and `value` are copied. A value with control
// characters is left out.
void serve_exchange_add_header(serve_exchange_t* exchange, const char* name, const char* value);
// Answers, once, in a function of the handler. The memory of `body` is consumed; the buffer is
// empty afterwards. `type` must be a constant.
void serve_exchange_answer(serve_exchange_t* exchange, uint32_t status, const char* type,
                           serve_buffer_t* body);

// Makes a thread of the server call resume(). Any thread, once, also before handle() has returned.
void serve_exchange_resume(serve_exchange_t* exchange);

#endif  // SERVE_HTTP_H_
