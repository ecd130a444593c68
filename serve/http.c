// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // SOCK_CLOEXEC, SOCK_NONBLOCK
// serve/http.c: connections and exchanges of libmicrohttpd.
//
// 1. A kept exchange is a suspended connection. The library does not watch it: the deadline is the
//    owner's, and a closed socket is found by looking (serve_exchange_is_gone).
// 2. An exchange may be resumed while the handler still returns. `state` decides who wakes the
//    connection.
// 3. The library closes a connection only after some time without any byte. So connections whose
//    headers, body or answer take too long as a whole are shut down by a thread of ours. It looks
//    at each once a second, at a few a turn, and holds the mutex for a turn alone: thousands of
//    slow clients that came at once do not stop the others. Requests set limits without a mutex.
// 4. The library may miss the end of a stream that comes with the last bytes, since its epoll
//    reports only changes. So the thread also looks for clients that left within a request.
// 5. MHD_stop_daemon ends the process while a connection is suspended; so callers resume all first.
// 6. MHD_quiesce_daemon may end the process: it and a thread of the pool both take the listener out
//    of an epoll set, and the second to do so panics (0.9.75). So a drain puts a silent socket in
//    the listener's place.
// 7. Connections that the kernel has accepted and the library has not would be reset by that. So
//    the drain accepts them and hands them to the library. They count until their first request is
//    there, as do others that were just accepted, but for a second only: a client that sends
//    nothing holds the end up no longer.
#include "serve/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "serve/clock.h"

enum { STATE_OPEN, STATE_KEPT, STATE_RESUMED };
enum {
  CONNECTION_MEMORY_BYTES = 64 << 10,  // headers, and pieces of a body as they come
  // A body of a refused request is read to its end up to this size, so that the client reads the
  // answer and keeps its connection. Beyond it, the connection is closed after the answer.
  MAX_DROPPED_BYTES = 1 << 20,
  BACKLOG = 1024,
  NANOSECONDS = 1000000000,
};
static const int64_t FRESH_NS = NANOSECONDS;
static const int64_t LOOK_NS = NANOSECONDS;  // from one look at a connection to the next
// At most 6400 looks a second, of a microsecond, or 20 where a connection ends. With more
// connections than that, looks are rarer.
static const int64_t TURN_NS = NANOSECONDS / 50;
enum { LOOKS_A_TURN = 128 };

typedef struct answer_header {
  struct answer_header* next;
  char* value;  // after the name, in the same memory
  char name[];
} answer_header_t;

// The time limits of one socket; in the list of the server.
typedef struct watch {
  struct watch* next;
  struct watch* previous;
  int64_t look_ns;    // of the next look; ascends in the list
  int64_t at_end_ns;  // limit_ns of the last look that found only the end of the stream; or 0
  int socket;
  atomic_bool is_receiving;      // a request is not complete, or none has begun
  atomic_int_fast64_t limit_ns;  // INT64_MAX: none now
  atomic_int_fast64_t fresh_ns;  // until then it counts without a request; 0: it had one
} watch_t;

typedef struct exchange {
  serve_exchange_t shown;
  serve_http_t* http;
  struct MHD_Connection* connection;
  watch_t* watch;
  atomic_int state;
  bool has_body;  // was handled
  bool is_answered;
  bool is_over_limit;    // of all bodies
  size_t counted_bytes;  // of body and answer, in bodies_bytes
  const char* answer_type;
  serve_buffer_t answer;
  answer_header_t* headers;
} exchange_t;

struct serve_http {
  serve_http_options_t options;
  serve_http_handler_t handler;
  struct MHD_Daemon* daemon;
  int listener;
  uint16_t port;
  atomic_bool is_draining;
  atomic_size_t exchange_count;
  atomic_size_t bodies_bytes;
  pthread_mutex_t mutex;  // of the list of watches
  pthread_cond_t stopped;
  pthread_t watcher;
  bool has_watcher;
  bool is_stopping;
  watch_t watches;  // head of a ring, by the next look
};

// The handler sees the first member.
static exchange_t* whole(const serve_exchange_t* shown) {
  return (exchange_t*)(uintptr_t)shown;
}

// ------------------------------------------------------------------------------------ time limits

static void link_watch(serve_http_t* http, watch_t* watch, int64_t look_ns) {
  watch->look_ns = look_ns;
  watch->next = &http->watches;
  watch->previous = http->watches.previous;
  watch->previous->next = watch;
  http->watches.previous = watch;
}

static void unlink_watch(watch_t* watch) {
  watch->previous->next = watch->next;
  watch->next->previous = watch->previous;
}

// Sets the limit of a socket that has had a request.
static void set_limit(watch_t* watch, bool is_receiving, int64_t limit_ns) {
  if (!watch) return;
  atomic_store(&watch->is_receiving, is_receiving);
  atomic_store(&watch->limit_ns, limit_ns);
  atomic_store(&watch->fresh_ns, 0);
}

// Returns the watch of a socket, made if necessary. NULL without memory: there is no limit then.
static watch_t* watch_socket(serve_http_t* http, int socket) {
  (void)pthread_mutex_lock(&http->mutex);
  watch_t* watch = &http->watches;
  // Only a drain makes watches before the library reports the connection.
  if (atomic_load(&http->is_draining)) {
    for (watch = watch->next; watch != &http->watches && watch->socket != socket;) {
      watch = watch->next;
    }
  }
  if (watch == &http->watches && (watch = calloc(1, sizeof *watch)) != NULL) {
    const int64_t now = serve_now_ns();
    watch->socket = socket;
    atomic_init(&watch->is_receiving, true);
    atomic_init(&watch->limit_ns, now + http->options.receive_limit_ns);
    atomic_init(&watch->fresh_ns, now + FRESH_NS);
    link_watch(http, watch, now + LOOK_NS);
  }
  (void)pthread_mutex_unlock(&http->mutex);
  return watch;
}

static void end_watch(serve_http_t* http, watch_t* watch) {
  if (!watch) return;
  (void)pthread_mutex_lock(&http->mutex);
  unlink_watch(watch);
  (void)pthread_mutex_unlock(&http->mutex);
  free(watch);
}

static void on_connection(void* self, struct MHD_Connection* connection, void** socket_context,
                          enum MHD_ConnectionNotificationCode code) {
  serve_http_t* http = self;
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    const union MHD_ConnectionInfo* info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *socket_context = info ? watch_socket(http, info->connect_fd) : NULL;
    return;
  }
  end_watch(http, *socket_context);
  *socket_context = NULL;
}

static bool is_stream_over(int socket) {
  char byte;
  const ssize_t count = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

// Shuts a socket down if its time is over, or its client left before its request was complete. Two
// looks say so: between them the library handles a request whose last bytes it has read. Does
// nothing if a new limit was set meanwhile.
static void look_at(watch_t* watch, int64_t now) {
  int_fast64_t limit_ns = atomic_load(&watch->limit_ns);
  bool must_end = limit_ns <= now;
  if (!must_end) {
    const bool was_at_end = watch->at_end_ns == limit_ns;
    const bool is_at_end =
        limit_ns < INT64_MAX && atomic_load(&watch->is_receiving) && is_stream_over(watch->socket);
    watch->at_end_ns = is_at_end ? limit_ns : 0;
    must_end = was_at_end && is_at_end;
  }
  if (must_end && atomic_compare_exchange_strong(&watch->limit_ns, &limit_ns, INT64_MAX)) {
    (void)shutdown(watch->socket, SHUT_RDWR);
  }
}

// Looks at the first connections of the list. Returns when the next one is due.
static int64_t look(serve_http_t* http) {
  const int64_t now = serve_now_ns();
  watch_t* watch = http->watches.next;
  for (int i = 0; i < LOOKS_A_TURN && watch != &http->watches && watch->look_ns <= now; ++i) {
    unlink_watch(watch);
    link_watch(http, watch, now + LOOK_NS);
    look_at(watch, now);
    watch = http->watches.next;
  }
  return watch == &http->watches ? now + LOOK_NS : watch->look_ns;
}

// Shuts sockets down whose time is over; the library then closes them as if the client had.
static void* watch_connections(void* self) {
  serve_http_t* http = self;
  int64_t wake_ns = 0;
  (void)pthread_mutex_lock(&http->mutex);
  while (!http->is_stopping) {
    const int64_t next_ns = serve_now_ns() + TURN_NS;
    if (wake_ns < next_ns) wake_ns = next_ns;
    const struct timespec wake = {.tv_sec = wake_ns / NANOSECONDS,
                                  .tv_nsec = wake_ns % NANOSECONDS};
    (void)pthread_cond_timedwait(&http->stopped, &http->mutex, &wake);
    wake_ns = look(http);
  }
  (void)pthread_mutex_unlock(&http->mutex);
  return NULL;
}

// ------------------------------------------------------------------------------------ exchanges

static exchange_t* exchange_create(serve_http_t* http, struct MHD_Connection* connection) {
  exchange_t* exchange = calloc(1, sizeof *exchange);
  if (!exchange) return NULL;
  exchange->http = http;
  exchange->connection = connection;
  exchange->shown.start_ns = serve_now_ns();
  atomic_init(&exchange->state, STATE_OPEN);
  const union MHD_ConnectionInfo* info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  exchange->watch = info ? info->socket_context : NULL;
  (void)atomic_fetch_add(&http->exchange_count, 1);
  return exchange;
}

static void exchange_destroy(exchange_t* exchange) {
  serve_http_t* http = exchange->http;
  (void)atomic_fetch_sub(&http->bodies_bytes, exchange->counted_bytes);
  serve_buffer_free(&exchange->shown.body);
  serve_buffer_free(&exchange->answer);
  while (exchange->headers) {
    answer_header_t* header = exchange->headers;
    exchange->headers = header->next;
    free(header);
  }
  free(exchange);
  (void)atomic_fetch_sub(&http->exchange_count, 1);
}

static void on_completed(void* self, struct MHD_Connection* connection, void** inout_context,
                         enum MHD_RequestTerminationCode code) {
  (void)connection;
  serve_http_t* http = self;
  exchange_t* exchange = *inout_context;
  *inout_context = NULL;
  if (!exchange) return;
  exchange->shown.is_sent = code == MHD_REQUEST_TERMINATED_COMPLETED_OK;
  set_limit(exchange->watch, true, serve_now_ns() + http->options.receive_limit_ns);
  http->handler.end(http->handler.self, &exchange->shown);
  exchange_destroy(exchange);
}

static void count_bytes(exchange_t* exchange, size_t size) {
  (void)atomic_fetch_add(&exchange->http->bodies_bytes, size);
  exchange->counted_bytes += size;
}

// The answer has memory until the client has taken it, so it counts as a body, and has a limit.
static enum MHD_Result send_answer(exchange_t* exchange) {
  serve_http_t* http = exchange->http;
  serve_buffer_t* body = &exchange->answer;
  exchange->shown.answer_bytes = body->size;
  count_bytes(exchange, body->size);
  set_limit(exchange->watch, false, serve_now_ns() + http->options.receive_limit_ns);
  struct MHD_Response* response =
      MHD_create_response_from_buffer(body->size, body->data, MHD_RESPMEM_MUST_FREE);
  if (!response) return MHD_NO;  // closes the connection
  *body = (serve_buffer_t){.data = NULL};
  enum MHD_Result is_good = MHD_YES;
  if (exchange->answer_type) {
    is_good &=
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, exchange->answer_type);
  }
  for (const answer_header_t* header = exchange->headers; header; header = header->next) {
    is_good &= MHD_add_response_header(response, header->name, header->value);
  }
  if (atomic_load(&http->is_draining)) {
    is_good &= MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
  }
  if (is_good == MHD_YES) {
    is_good = MHD_queue_response(exchange->connection, exchange->shown.status, response);
  }
  MHD_destroy_response(response);
  return is_good;
}

static void refuse(exchange_t* exchange, uint32_t status, const char* message) {
  const serve_http_handler_t* handler = &exchange->http->handler;
  handler->refuse(handler->self, &exchange->shown, status, message);
}

static void refuse_size(exchange_t* exchange) {
  char message[96];
  (void)snprintf(message, sizeof message, "the body has more than %zu bytes",
                 exchange->http->options.max_body_bytes);
  refuse(exchange, MHD_HTTP_CONTENT_TOO_LARGE, message);
}

// Adds a piece of the body, or answers that it is too large.
static void take_piece(exchange_t* exchange, const char* data, size_t size) {
  serve_http_t* http = exchange->http;
  serve_buffer_t* body = &exchange->shown.body;
  if (exchange->is_answered) return;  // refused: the rest is dropped
  if (size > http->options.max_body_bytes - body->size) {
    refuse_size(exchange);
    return;
  }
  count_bytes(exchange, size);
  if (atomic_load(&http->bodies_bytes) > http->options.max_bodies_bytes) {
    refuse(exchange, MHD_HTTP_TOO_MANY_REQUESTS, "too many large requests are under way");
    return;
  }
  serve_buffer_append(body, data, size);
  if (body->is_exhausted) {
    refuse(exchange, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory for the body");
  }
}

// Calls the handler with a complete body, and suspends the connection if it keeps the exchange.
static enum MHD_Result handle(exchange_t* exchange) {
  serve_http_t* http = exchange->http;
  exchange->has_body = true;
  http->handler.handle(http->handler.self, &exchange->shown);
  if (exchange->is_answered) return send_answer(exchange);
  struct MHD_Connection* connection = exchange->connection;
  MHD_suspend_connection(connection);
  int state = STATE_OPEN;
  if (!atomic_compare_exchange_strong(&exchange->state, &state, STATE_KEPT)) {
    MHD_resume_connection(connection);
  }
  return MHD_YES;
}

static enum MHD_Result resume(exchange_t* exchange) {
  serve_http_t* http = exchange->http;
  if (atomic_load(&exchange->state) != STATE_RESUMED) return MHD_YES;
  http->handler.resume(http->handler.self, &exchange->shown);
  return exchange->is_answered ? send_answer(exchange) : MHD_NO;
}

// Returns the size of the body that the headers announce; 0 if they do not.
static uint64_t announced_bytes(const exchange_t* exchange) {
  const char* text = serve_exchange_header(&exchange->shown, MHD_HTTP_HEADER_CONTENT_LENGTH);
  return text ? strtoull(text, NULL, 10) : 0;
}

// Called once with the headers, then with pieces of the body, then without data, and again after a
// kept exchange was resumed.
static enum MHD_Result on_access(void* self, struct MHD_Connection* connection, const char* url,
                                 const char* method, const char* version, const char* data,
                                 size_t* inout_size, void** inout_context) {
  (void)version;
  serve_http_t* http = self;
  exchange_t* exchange = *inout_context;
  if (!exchange) {
    exchange = exchange_create(http, connection);
    if (!exchange) return MHD_NO;
    *inout_context = exchange;
    exchange->shown.method = method;
    exchange->shown.path = url;
    set_limit(exchange->watch, true, exchange->shown.start_ns + http->options.receive_limit_ns);
    http->handler.begin(http->handler.self, &exchange->shown);
    const uint64_t size = announced_bytes(exchange);
    if (!exchange->is_answered && size > http->options.max_body_bytes) {
      refuse_size(exchange);
    }
    const bool is_refused = exchange->is_answered;
    return is_refused && size > MAX_DROPPED_BYTES ? send_answer(exchange) : MHD_YES;
  }
  if (*inout_size > 0) {
    take_piece(exchange, data, *inout_size);
    *inout_size = 0;
    return MHD_YES;
  }
  set_limit(exchange->watch, false, INT64_MAX);
  if (exchange->is_answered) return send_answer(exchange);
  return exchange->has_body ? resume(exchange) : handle(exchange);
}

// ------------------------------------------------------------------------------------ the answer

const char* serve_exchange_header(const serve_exchange_t* exchange, const char* name) {
  return MHD_lookup_connection_value(whole(exchange)->connection, MHD_HEADER_KIND, name);
}

void serve_exchange_client(const serve_exchange_t* exchange, char* out_text, size_t size) {
  const union MHD_ConnectionInfo* info =
      MHD_get_connection_info(whole(exchange)->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  const struct sockaddr* address = info ? info->client_addr : NULL;
  out_text[0] = '\0';
  if (!address) return;
  const bool is_v6 = address->sa_family == AF_INET6;
  const void* bytes =
      is_v6 ? (const void*)&((const struct sockaddr_in6*)(const void*)address)->sin6_addr
            : (const void*)&((const struct sockaddr_in*)(const void*)address)->sin_addr;
  if (!inet_ntop(address->sa_family, bytes, out_text, (socklen_t)size)) out_text[0] = '\0';
}

bool serve_exchange_is_gone(const serve_exchange_t* exchange) {
  const union MHD_ConnectionInfo* info =
      MHD_get_connection_info(whole(exchange)->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info && is_stream_over(info->connect_fd);
}

void serve_exchange_add_header(serve_exchange_t* shown, const char* name, const char* value) {
  exchange_t* exchange = whole(shown);
  for (const char* at = value; *at; ++at) {
    if ((uint8_t)*at < 0x20 || *at == 0x7f) return;
  }
  const size_t name_size = strlen(name) + 1;
  const size_t value_size = strlen(value) + 1;
  answer_header_t* header = malloc(sizeof *header + name_size + value_size);
  if (!header) return;
  header->value = header->name + name_size;
  memcpy(header->name, name, name_size);
  memcpy(header->value, value, value_size);
  header->next = exchange->headers;
  exchange->headers = header;
}

void serve_exchange_answer(serve_exchange_t* shown, uint32_t status, const char* type,
                           serve_buffer_t* body) {
  exchange_t* exchange = whole(shown);
  shown->status = status;
  exchange->answer_type = type;
  exchange->answer = *body;
  *body = (serve_buffer_t){.data = NULL};
  exchange->is_answered = true;
}

void serve_exchange_resume(serve_exchange_t* shown) {
  exchange_t* exchange = whole(shown);
  struct MHD_Connection* connection = exchange->connection;
  // Unless the exchange was kept, its thread wakes the connection, and may end it after this.
  if (atomic_exchange(&exchange->state, STATE_RESUMED) == STATE_KEPT) {
    MHD_resume_connection(connection);
  }
}

// ------------------------------------------------------------------------------------ the server

static void on_log(void* self, const char* format, va_list args) QN_PRINTF(2, 0);
static void on_log(void* self, const char* format, va_list args) {
  serve_http_t* http = self;
  char message[512];
  (void)vsnprintf(message, sizeof message, format, args);
  message[strcspn(message, "\r\n")] = '\0';
  http->handler.log(http->handler.self, message);
}

// Opens the socket that listens, and finds its port.
static qn_status_t listen_at(serve_http_t* http) {
  const char* address = http->options.address;
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(http->options.port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(http->options.port)};
  const bool is_v6 = inet_pton(AF_INET6, address, &v6.sin6_addr) == 1;
  if (!is_v6 && inet_pton(AF_INET, address, &v4.sin_addr) != 1) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "'%s' is not a numeric address, such as 127.0.0.1 or ::", address);
  }
  struct sockaddr* name = is_v6 ? (struct sockaddr*)(void*)&v6 : (struct sockaddr*)(void*)&v4;
  socklen_t size = is_v6 ? sizeof v6 : sizeof v4;
  const int on = 1;
  const int off = 0;
  http->listener = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  bool is_good = http->listener >= 0;
  if (is_good) (void)setsockopt(http->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (is_good && is_v6)
    (void)setsockopt(http->listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  is_good = is_good && bind(http->listener, name, size) == 0 &&
            listen(http->listener, BACKLOG) == 0 && getsockname(http->listener, name, &size) == 0;
  if (!is_good) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "cannot listen at %s, port %u: %s", address,
                          (unsigned)http->options.port, strerror(errno));
  }
  http->port = ntohs(is_v6 ? v6.sin6_port : v4.sin_port);
  return QN_OK;
}

static qn_status_t start_daemon(serve_http_t* http) {
  const serve_http_options_t* options = &http->options;
  struct MHD_OptionItem items[16];
  size_t count = 0;
  items[count++] = (struct MHD_OptionItem){MHD_OPTION_LISTEN_SOCKET, http->listener, NULL};
  if (options->thread_count > 1) {  // the library warns of a pool of one
    items[count++] =
        (struct MHD_OptionItem){MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)options->thread_count, NULL};
  }
  items[count++] = (struct MHD_OptionItem){MHD_OPTION_CONNECTION_LIMIT,
                                           (intptr_t)options->max_connections, NULL};
  items[count++] = (struct MHD_OptionItem){MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                                           (intptr_t)options->max_connections_per_address, NULL};
  items[count++] = (struct MHD_OptionItem){
      MHD_OPTION_CONNECTION_TIMEOUT, (intptr_t)(options->receive_limit_ns / NANOSECONDS + 1), NULL};
  items[count++] =
      (struct MHD_OptionItem){MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY_BYTES, NULL};
  items[count++] = (struct MHD_OptionItem){MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL};
  if (options->tls_key) {
    items[count++] =
        (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, (void*)(uintptr_t)options->tls_key};
    items[count++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0,
                                             (void*)(uintptr_t)options->tls_certificate};
  }
  items[count] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
  unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
  if (options->tls_key) flags |= MHD_USE_TLS;
  http->daemon = MHD_start_daemon(
      flags, http->port, NULL, NULL, on_access, http, MHD_OPTION_EXTERNAL_LOGGER, on_log, http,
      MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
      http, MHD_OPTION_ARRAY, items, MHD_OPTION_END);
  if (http->daemon) return QN_OK;
  return qn_status_make(
      QN_STATUS_UNAVAILABLE, "the HTTP server does not start%s",
      options->tls_key ? "; do the certificate and its key belong together?" : "");
}

qn_status_t serve_http_start(const serve_http_options_t* options,
                             const serve_http_handler_t* handler, serve_http_t** out_http) {
  *out_http = NULL;
  serve_http_t* http = calloc(1, sizeof *http);
  if (!http) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the HTTP server");
  http->options = *options;
  http->handler = *handler;
  http->listener = -1;
  http->watches.next = http->watches.previous = &http->watches;
  pthread_condattr_t attributes;
  (void)pthread_condattr_init(&attributes);
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&http->stopped, &attributes);
  (void)pthread_condattr_destroy(&attributes);
  (void)pthread_mutex_init(&http->mutex, NULL);
  qn_status_t status = listen_at(http);
  if (qn_ok(status)) status = start_daemon(http);
  if (qn_ok(status)) {
    http->has_watcher = pthread_create(&http->watcher, NULL, watch_connections, http) == 0;
    if (!http->has_watcher) {
      status = qn_status_make(QN_STATUS_UNAVAILABLE, "no thread for the limits of connections");
    }
  }
  if (!qn_ok(status)) {
    serve_http_stop(http);
    return status;
  }
  *out_http = http;
  return QN_OK;
}

uint16_t serve_http_port(const serve_http_t* http) {
  return http->port;
}

// Returns how many connections the library can take without reaching the limit of one of its
// threads, which would then take a listener out of its epoll set that is not there any more.
static size_t free_places(const serve_http_t* http) {
  const union MHD_DaemonInfo* info =
      MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
  const size_t limit = http->options.max_connections / http->options.thread_count;
  return info && limit > info->num_connections + 1 ? limit - info->num_connections - 1 : 0;
}

// Hands the connections that wait at a listener to the library.
static void accept_rest(serve_http_t* http, int listener) {
  for (size_t left = free_places(http); left > 0;) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    struct sockaddr* address = (struct sockaddr*)(void*)&name;
    const int client = accept4(listener, address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (client < 0) return;
    watch_t* watch = watch_socket(http, client);
    // It closes the socket if it cannot take it.
    if (MHD_add_connection(http->daemon, client, address, size) != MHD_YES) end_watch(http, watch);
    --left;
  }
}

void serve_http_drain(serve_http_t* http) {
  if (atomic_exchange(&http->is_draining, true)) return;
  const int idle = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int listener = fcntl(http->listener, F_DUPFD_CLOEXEC, 0);
  // Without descriptors it goes on to listen, and only answers with "Connection: close".
  if (idle >= 0 && listener >= 0 && dup3(idle, http->listener, O_CLOEXEC) >= 0)
    accept_rest(http, listener);
  if (listener >= 0) (void)close(listener);
  if (idle >= 0) (void)close(idle);
}

size_t serve_http_count(serve_http_t* http) {
  size_t count = 0;
  const int64_t now = serve_now_ns();
  (void)pthread_mutex_lock(&http->mutex);
  for (watch_t* watch = http->watches.next; watch != &http->watches; watch = watch->next) {
    count += atomic_load(&watch->fresh_ns) > now;
  }
  (void)pthread_mutex_unlock(&http->mutex);
  // Read after the watches: a connection is among them until its exchange has begun.
  return count + atomic_load(&http->exchange_count);
}

void serve_http_stop(serve_http_t* http) {
  if (!http) return;
  if (http->has_watcher) {
    (void)pthread_mutex_lock(&http->mutex);
    http->is_stopping = true;
    (void)pthread_cond_signal(&http->stopped);
    (void)pthread_mutex_unlock(&http->mutex);
    (void)pthread_join(http->watcher, NULL);
  }
  if (http->daemon) MHD_stop_daemon(http->daemon);
  // The library closes its listener.
  if (http->listener >= 0 && !http->daemon) (void)close(http->listener);
  (void)pthread_cond_destroy(&http->stopped);
  (void)pthread_mutex_destroy(&http->mutex);
  free(http);
}
