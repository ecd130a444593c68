// SPDX-License-Identifier: Apache-2.0
// serve/server.c: finding routes, checking keys, answering, and draining.
#include "serve/server.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "serve/clock.h"
#include "serve/json.h"
#include "serve/log.h"
#include "serve/memory.h"
#include "serve/protocols.h"

static const char json_type[] = "application/json";

// ------------------------------------------------------------------------------------ routes

// Matches a path, and writes what the stars match.
static bool matches(const char* pattern, const char* path, char parameters[][128]) {
  for (size_t i = 0; i < SERVE_MAX_PARAMETERS; ++i) parameters[i][0] = '\0';
  size_t star = 0;
  while (*pattern) {
    if (*pattern != '*') {
      if (*pattern++ != *path++) return false;
      continue;
    }
    const size_t size = strcspn(path, "/");
    if (size == 0 || size >= 128 || star == SERVE_MAX_PARAMETERS) return false;
    memcpy(parameters[star], path, size);
    parameters[star++][size] = '\0';
    path += size;
    ++pattern;
  }
  return *path == '\0';
}

// Finds the route of an exchange, or the error of having none.
static void find_route(serve_visit_t* visit) {
  const char* method = visit->exchange->method;
  const char* path = visit->exchange->path;
  if (strcmp(method, "HEAD") == 0) method = "GET";  // the library leaves the body out
  bool has_path = false;
  for (size_t t = 0; t < serve_all_routes_count; ++t) {
    const serve_routes_t* table = serve_all_routes[t];
    for (size_t i = 0; i < table->count; ++i) {
      const serve_route_t* route = &table->routes[i];
      if (!matches(route->pattern, path, visit->parameters)) continue;
      has_path = true;
      if (strcmp(route->method, method) != 0) continue;
      visit->route = route;
      return;
    }
  }
  if (has_path) {
    (void)serve_error_set(&visit->error, SERVE_NO_METHOD, "%.20s is no method of %.200s", method,
                          path);
  } else {
    (void)serve_error_set(&visit->error, SERVE_NOT_FOUND, "there is no %.200s", path);
  }
}

// ------------------------------------------------------------------------------------ keys

// Compares without a time that depends on where the texts differ.
static bool is_same(const char* a, size_t a_size, const char* b, size_t b_size) {
  uint8_t difference = a_size != b_size;
  for (size_t i = 0; i < a_size; ++i) {
    difference |= (uint8_t)(a[i] ^ b[b_size > 0 ? i % b_size : 0]);
  }
  return difference == 0;
}

// Returns true if the key is a line of the file. Looks at all lines.
static bool is_known_key(const char* keys, const char* key) {
  bool is_known = false;
  const size_t size = strlen(key);
  while (*keys) {
    const size_t line = strcspn(keys, "\r\n");
    if (line > 0 && *keys != '#') is_known |= is_same(key, size, keys, line);
    keys += line;
    keys += strspn(keys, "\r\n");
  }
  return is_known && size > 0;
}

static bool has_access(const serve_visit_t* visit) {
  const char* keys = visit->server->keys;
  if (!keys || visit->route->access == SERVE_ACCESS_OPEN) return true;
  const char* header = serve_exchange_header(visit->exchange, "Authorization");
  static const char scheme[] = "bearer ";
  for (size_t i = 0; header && i + 1 < sizeof scheme; ++i, ++header) {
    if (tolower((unsigned char)*header) != scheme[i]) return false;
  }
  return header && is_known_key(keys, header);
}

// ------------------------------------------------------------------------------------ answers

static void answer(serve_visit_t* visit, serve_buffer_t* body) {
  if (body->is_exhausted && visit->error.status == 0) {
    (void)serve_error_set(&visit->error, SERVE_INTERNAL, "no memory for the answer");
  }
  serve_exchange_t* exchange = visit->exchange;
  uint32_t status = visit->status;
  if (visit->error.status != 0) {
    serve_buffer_free(body);
    visit->type = json_type;
    const serve_protocol_t* protocol =
        visit->route ? visit->route->protocol : serve_protocol_of_path(exchange->path);
    protocol->write_error(&visit->error, body);
    status = visit->error.status;
  }
  if (visit->error.retry_after_s > 0) {
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)visit->error.retry_after_s);
    serve_exchange_add_header(exchange, "Retry-After", text);
  }
  if (status == SERVE_UNAUTHORIZED) {
    serve_exchange_add_header(exchange, "WWW-Authenticate", "Bearer");
  }
  serve_exchange_add_header(exchange, "x-request-id", visit->id);
  if (visit->call && visit->call->request.is_first_seen) {
    serve_exchange_add_header(exchange, "x-quern-first-seen", "1");
  }
  serve_exchange_answer(exchange, status, visit->type, body);
}

// Copies a header if it is short and has visible characters alone.
static void copy_header(const serve_exchange_t* exchange, const char* name, char* out,
                        size_t size) {
  const char* value = serve_exchange_header(exchange, name);
  const size_t length = value ? strlen(value) : 0;
  out[0] = '\0';
  if (length == 0 || length >= size) return;
  for (size_t i = 0; i < length; ++i) {
    if (value[i] <= ' ' || value[i] > '~') return;
  }
  memcpy(out, value, length + 1);
}

// Returns true if a text is 2, 32, 16 and 2 lower-case hex digits with dashes between, as W3C's
// Trace Context wants it, and neither id is zero. Later versions may append more.
static bool is_trace(const char* text) {
  static const char form[] = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
  for (size_t i = 0; i + 1 < sizeof form; ++i) {
    const bool is_hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (form[i] == 'x' ? !is_hex : text[i] != '-') return false;
  }
  const char next = text[sizeof form - 1];
  const bool is_first_version = strncmp(text, "00", 2) == 0;
  return strncmp(text, "ff", 2) != 0 && (next == '\0' || (next == '-' && !is_first_version)) &&
         strspn(text + 3, "0") < 32 && strspn(text + 36, "0") < 16;
}

static void begin_for(serve_server_t* server, serve_exchange_t* exchange, bool is_admin) {
  serve_visit_t* visit = calloc(1, sizeof *visit);
  exchange->user = visit;
  if (!visit) {
    serve_exchange_answer(exchange, SERVE_INTERNAL, NULL, &(serve_buffer_t){.data = NULL});
    return;
  }
  static atomic_uint_fast64_t next_id;
  visit->server = server;
  visit->exchange = exchange;
  visit->type = json_type;
  visit->status = 200;
  copy_header(exchange, "x-request-id", visit->id, sizeof visit->id);
  copy_header(exchange, "traceparent", visit->trace, sizeof visit->trace);
  if (!is_trace(visit->trace)) visit->trace[0] = '\0';  // such a one is to be ignored
  if (!visit->id[0]) {
    (void)snprintf(visit->id, sizeof visit->id, "%llx-%llx",
                   (unsigned long long)server->start_ns / 1000,
                   (unsigned long long)atomic_fetch_add(&next_id, 1));
  }
  find_route(visit);
  const char* coding = serve_exchange_header(exchange, "Content-Encoding");
  if (visit->route && (visit->route->access == SERVE_ACCESS_ADMIN) && !is_admin) {
    visit->route = NULL;
    (void)serve_error_set(&visit->error, SERVE_NOT_FOUND,
                          "%.200s is only at the address for management", exchange->path);
  } else if (visit->route && !has_access(visit)) {
    (void)serve_error_set(&visit->error, SERVE_UNAUTHORIZED,
                          "a key is needed: Authorization: Bearer KEY");
  } else if (coding && strcmp(coding, "identity") != 0) {
    (void)serve_error_set(&visit->error, SERVE_BAD_REQUEST,
                          "the body has coding '%.40s'; send it plain", coding);
  }
  if (visit->error.status != 0) answer(visit, &(serve_buffer_t){.data = NULL});
}

static void begin(void* self, serve_exchange_t* exchange) {
  begin_for(self, exchange, false);
}

static void begin_admin(void* self, serve_exchange_t* exchange) {
  begin_for(self, exchange, true);
}

static void handle(void* self, serve_exchange_t* exchange) {
  (void)self;
  serve_visit_t* visit = exchange->user;
  serve_buffer_t body = {.data = NULL};
  visit->read = (serve_trace_span_t){exchange->start_ns, serve_now_ns(), serve_trace_thread()};
  const bool is_good = visit->route->handle(visit, &body);
  if (is_good && visit->is_kept) return;  // and no longer ours
  answer(visit, &body);
}

static void resume(void* self, serve_exchange_t* exchange) {
  (void)self;
  serve_visit_t* visit = exchange->user;
  serve_buffer_t body = {.data = NULL};
  if (!visit->call) {  // the work of serve_visit_work
    if (visit->error.status == 0) (void)visit->route->write(visit, &body);
    answer(visit, &body);
    return;
  }
  const int64_t start_ns = serve_now_ns();
  if (serve_call_complete(visit->call, &visit->error)) {
    (void)visit->route->write(visit, &body);
    visit->write = (serve_trace_span_t){start_ns, serve_now_ns(), serve_trace_thread()};
    serve_metrics_add(serve_model_metrics(visit->call->model), SERVE_COUNTER_OUTPUT_NS,
                      (uint64_t)(visit->write.end_ns - start_ns));
  }
  serve_call_trim(visit->call);  // the client may take the answer slowly
  answer(visit, &body);
}

static void refuse(void* self, serve_exchange_t* exchange, uint32_t status, const char* message) {
  (void)self;
  serve_visit_t* visit = exchange->user;
  if (status == SERVE_TOO_MANY) visit->error.retry_after_s = 1;
  (void)serve_error_set(&visit->error, status, "%s", message);
  answer(visit, &(serve_buffer_t){.data = NULL});
}

static void log_visit(const serve_visit_t* visit) {
  const serve_exchange_t* exchange = visit->exchange;
  const bool is_error = exchange->status >= SERVE_INTERNAL;
  if (!is_error && !visit->server->options->log_requests) return;
  char client[64];
  serve_exchange_client(exchange, client, sizeof client);
  serve_field_t fields[12];
  size_t count = 0;
  fields[count++] = SERVE_TEXT("request_id", visit->id);
  if (visit->trace[0]) fields[count++] = SERVE_TEXT("traceparent", visit->trace);
  fields[count++] = SERVE_TEXT("client", client);
  fields[count++] = SERVE_TEXT("method", exchange->method);
  fields[count++] = SERVE_TEXT("path", exchange->path);
  fields[count++] = SERVE_NUMBER("status", exchange->status);
  fields[count++] = SERVE_NUMBER("bytes", exchange->answer_bytes);
  fields[count++] = SERVE_NUMBER("us", (serve_now_ns() - exchange->start_ns) / 1000);
  if (visit->call && visit->call->offsets.size > 0) {
    fields[count++] = SERVE_NUMBER("texts", serve_call_count(visit->call));
    fields[count++] = SERVE_NUMBER("first_seen", visit->call->request.is_first_seen);
  }
  if (visit->error.status != 0) fields[count++] = SERVE_TEXT("error", visit->error.message);
  serve_log(is_error ? SERVE_LOG_ERROR : SERVE_LOG_INFO, "request", fields, count);
}

static void trace_visit(const serve_visit_t* visit) {
  const serve_exchange_t* exchange = visit->exchange;
  serve_trace_request_t record = {
      .status = exchange->status, .read = visit->read, .write = visit->write};
  (void)snprintf(record.id, sizeof record.id, "%s", visit->id);
  (void)snprintf(record.parent, sizeof record.parent, "%s", visit->trace);
  (void)snprintf(record.path, sizeof record.path, "%s", exchange->path);
  record.whole = (serve_trace_span_t){exchange->start_ns, serve_now_ns(), serve_trace_thread()};
  const serve_call_t* call = visit->call;
  if (call && call->encode_start_ns > 0) {
    const serve_request_t* request = &call->request;
    record.texts = serve_call_count(call);
    record.batch = request->counted_batch;
    record.encode = (serve_trace_span_t){
        call->encode_start_ns, call->encode_start_ns + call->encode_ns, visit->read.thread};
    const int64_t left_ns = request->taken_ns > 0 ? request->taken_ns : request->done_ns;
    record.queue = (serve_trace_span_t){request->queued_ns, left_ns, visit->read.thread};
    record.compute = (serve_trace_span_t){request->computed_ns, 0, request->compute_thread};
    if (request->queued_ns > 0) record.tokens = serve_call_all_tokens(call);
  }
  serve_trace_add_request(visit->server->trace, &record);
}

static void end(void* self, serve_exchange_t* exchange) {
  (void)self;
  serve_visit_t* visit = exchange->user;
  if (!visit) return;
  if (visit->server->trace) trace_visit(visit);
  log_visit(visit);
  if (visit->free_state) visit->free_state(visit->state);
  serve_call_destroy(visit->call);
  free(visit);
}

static void log_library(void* self, const char* message) {
  (void)self;
  const serve_field_t field = SERVE_TEXT("reason", message);
  serve_log(SERVE_LOG_WARNING, "http", &field, 1);
}

// ------------------------------------------------------------------------------------ the server

// Reads a file whole, as a text. Owned: free.
static qn_status_t read_file(const char* path, const char* what, char** out_text) {
  enum { MAX_BYTES = 1 << 20 };
  *out_text = NULL;
  const qn_allocator_t allocator = qn_allocator_default();
  serve_bytes_t bytes;
  qn_status_t status = serve_file_read(&allocator, path, MAX_BYTES, &bytes);
  if (qn_ok(status)) {
    *out_text = strndup(bytes.size > 0 ? bytes.data : "", bytes.size);
    if (!*out_text) status = serve_no_memory(path);
  }
  serve_bytes_free(&allocator, &bytes);
  return qn_status_annotate(status, "%s", what);
}

static qn_status_t start_http(serve_server_t* server, const char* key, const char* certificate) {
  const serve_options_t* given = server->options;
  serve_http_options_t options = {
      .address = given->address,
      .port = (uint16_t)given->port,
      .thread_count = (uint32_t)given->http_threads,
      .max_connections = (uint32_t)given->max_connections,
      .max_connections_per_address = (uint32_t)given->max_client_connections,
      .max_body_bytes = given->max_body,
      .max_bodies_bytes = given->max_bodies,
      .receive_limit_ns = given->receive_timeout,
      .tls_key = key,
      .tls_certificate = certificate,
  };
  serve_http_handler_t handler = {.self = server,
                                  .begin = begin,
                                  .handle = handle,
                                  .resume = resume,
                                  .refuse = refuse,
                                  .end = end,
                                  .log = log_library};
  qn_status_t status = serve_http_start(&options, &handler, &server->http);
  if (!qn_ok(status) || given->admin_port == 0) return status;
  options.address = given->admin_address;
  options.port = (uint16_t)given->admin_port;
  options.thread_count = 1;
  handler.begin = begin_admin;
  return serve_http_start(&options, &handler, &server->admin);
}

qn_status_t serve_server_start(const serve_options_t* options, serve_repository_t* repository,
                               serve_trace_t* trace, serve_server_t** out_server) {
  *out_server = NULL;
  serve_server_t* server = calloc(1, sizeof *server);
  if (!server) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the server");
  server->options = options;
  server->repository = repository;
  server->trace = trace;
  server->start_ns = serve_now_ns();
  server->start_time = time(NULL);
  (void)pthread_mutex_init(&server->mutex, NULL);
  (void)pthread_cond_init(&server->is_idle, NULL);
  server->limits = (serve_call_limits_t){.max_texts = options->max_texts,
                                         .max_text_tokens = options->max_text_tokens,
                                         .timeout_ns = options->request_timeout};
  char* key = NULL;
  char* certificate = NULL;
  qn_status_t status = QN_OK;
  if (*options->keys) status = read_file(options->keys, "keys", &server->keys);
  if (qn_ok(status) && *options->tls_key) status = read_file(options->tls_key, "TLS key", &key);
  if (qn_ok(status) && *options->tls_certificate) {
    status = read_file(options->tls_certificate, "TLS certificate", &certificate);
  }
  if (qn_ok(status) && !key != !certificate) {
    status =
        qn_status_make(QN_STATUS_INVALID_ARGUMENT, "--tls-key and --tls-certificate go together");
  }
  if (qn_ok(status)) status = start_http(server, key, certificate);
  free(key);  // the library has read them
  free(certificate);
  if (!qn_ok(status)) {
    serve_server_stop(server);
    return status;
  }
  *out_server = server;
  return QN_OK;
}

bool serve_server_is_ready(serve_server_t* server) {
  return !atomic_load(&server->is_draining) && serve_repository_is_ready(server->repository);
}

void serve_server_begin_drain(serve_server_t* server) {
  atomic_store(&server->is_draining, true);
}

bool serve_server_finish(serve_server_t* server, int64_t timeout_ns) {
  const int64_t limit_ns = serve_now_ns() + timeout_ns;
  serve_http_drain(server->http);
  if (server->admin) serve_http_drain(server->admin);
  for (;;) {
    const size_t count =
        serve_http_count(server->http) + (server->admin ? serve_http_count(server->admin) : 0);
    if (count == 0) return true;
    if (serve_now_ns() >= limit_ns) return false;
    (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
}

void serve_server_stop(serve_server_t* server) {
  if (!server) return;
  (void)pthread_mutex_lock(&server->mutex);
  while (server->work_count > 0) (void)pthread_cond_wait(&server->is_idle, &server->mutex);
  (void)pthread_mutex_unlock(&server->mutex);
  serve_http_stop(server->http);
  serve_http_stop(server->admin);
  (void)pthread_cond_destroy(&server->is_idle);
  (void)pthread_mutex_destroy(&server->mutex);
  free(server->keys);
  free(server);
}
