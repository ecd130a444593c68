// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_protocols.c: arbitrary bytes as bodies of every route of the inference server.
//
// The first byte chooses the route. If the second is 'h', the rest of its line is the value of
// Inference-Header-Content-Length. What follows is the body. This file takes the place of
// serve/http.c: it calls the server as connections would. Each answer must be JSON, or JSON and as
// many bytes as it says, with a status that the protocols have.
// sources: tests/serve/support_fake.c
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "serve/clock.h"
#include "serve/server.h"
#include "tests/serve/support_fake.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void require(bool is_true) {
  if (!is_true) abort();
}

// ------------------------------------------------------------------------------------ serve/http.h

struct serve_http {
  serve_http_handler_t handler;
};

typedef struct connection {
  serve_exchange_t exchange;
  const char* length;      // a header of the request
  char answer_length[32];  // the same of the answer
  bool is_answered;
  serve_buffer_t answer;
  pthread_mutex_t mutex;
  pthread_cond_t resumed;
  bool is_resumed;
} connection_t;

// The exchange is the first member.
static connection_t* whole(const serve_exchange_t* exchange) {
  return (connection_t*)(uintptr_t)exchange;
}

qn_status_t serve_http_start(const serve_http_options_t* options,
                             const serve_http_handler_t* handler, serve_http_t** out_http) {
  (void)options;
  *out_http = malloc(sizeof **out_http);
  require(*out_http != NULL);
  (*out_http)->handler = *handler;
  return QN_OK;
}

uint16_t serve_http_port(const serve_http_t* http) {
  (void)http;
  return 1;
}

void serve_http_drain(serve_http_t* http) {
  (void)http;
}

size_t serve_http_count(serve_http_t* http) {
  (void)http;
  return 0;
}

void serve_http_stop(serve_http_t* http) {
  free(http);
}

const char* serve_exchange_header(const serve_exchange_t* exchange, const char* name) {
  return strcmp(name, "Inference-Header-Content-Length") == 0 ? whole(exchange)->length : NULL;
}

void serve_exchange_client(const serve_exchange_t* exchange, char* out_text, size_t size) {
  (void)exchange;
  (void)snprintf(out_text, size, "127.0.0.1");
}

bool serve_exchange_is_gone(const serve_exchange_t* exchange) {
  (void)exchange;
  return false;
}

void serve_exchange_add_header(serve_exchange_t* exchange, const char* name, const char* value) {
  connection_t* connection = whole(exchange);
  if (strcmp(name, "Inference-Header-Content-Length") != 0) return;
  (void)snprintf(connection->answer_length, sizeof connection->answer_length, "%s", value);
}

void serve_exchange_answer(serve_exchange_t* exchange, uint32_t status, const char* type,
                           serve_buffer_t* body) {
  (void)type;
  connection_t* connection = whole(exchange);
  require(!connection->is_answered);
  connection->is_answered = true;
  exchange->status = status;
  connection->answer = *body;
  *body = (serve_buffer_t){.data = NULL};
}

void serve_exchange_resume(serve_exchange_t* exchange) {
  connection_t* connection = whole(exchange);
  (void)pthread_mutex_lock(&connection->mutex);
  connection->is_resumed = true;
  (void)pthread_cond_signal(&connection->resumed);
  (void)pthread_mutex_unlock(&connection->mutex);
}

// ------------------------------------------------------------------------------------ the server

static fake_t fake = {
    .width = 3,
    .max_tokens = 8,
    .limits = {.batch_tokens = 64, .batch_sequences = 4, .queue_tokens = 64},
};
static serve_options_t options;
static serve_repository_t* repository;
static serve_server_t* server;

static void stop(void) {
  serve_server_stop(server);
  serve_repository_destroy(repository);
  serve_options_free(&options);
}

static void start(void) {
  static char limit[] = "--max-texts=4";
  char* arguments[] = {limit};
  char folder[] = "/tmp/quern-fuzz-XXXXXX";
  require(mkdtemp(folder) != NULL);
  char path[64];
  (void)snprintf(path, sizeof path, "%s/vocab.txt", folder);
  FILE* file = fopen(path, "w");
  require(file != NULL);
  require(fputs("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n##c\n", file) >= 0);
  require(fclose(file) == 0);
  require(qn_ok(serve_options_read(1, arguments, &options)));
  require(qn_ok(serve_repository_create(fake_load, &fake, &repository)));
  require(qn_ok(serve_repository_add(repository, "m", folder)));
  require(qn_ok(serve_repository_load(repository, "m")));
  require(unlink(path) == 0 && rmdir(folder) == 0);
  require(qn_ok(serve_server_start(&options, repository, NULL, &server)));
  require(atexit(stop) == 0);
}

// ------------------------------------------------------------------------------------ answers

static void check_json(const char* data, size_t size, size_t following) {
  json_error_t error;
  json_t* root = json_loadb(size > 0 ? data : "", size, JSON_ALLOW_NUL, &error);
  require(root != NULL);
  size_t said = 0;
  const json_t* outputs = json_object_get(root, "outputs");
  const json_t* parameters = json_object_get(json_array_get(outputs, 0), "parameters");
  if (parameters) {
    said = (size_t)json_integer_value(json_object_get(parameters, "binary_data_size"));
  }
  require(said == following);
  json_decref(root);
}

static void check_answer(const connection_t* connection) {
  static const uint32_t statuses[] = {200, 400, 404, 413, 422, 429, 504};
  bool is_known = false;
  for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; ++i) {
    is_known |= connection->exchange.status == statuses[i];
  }
  require(connection->is_answered && is_known);
  const serve_buffer_t* answer = &connection->answer;
  const size_t json_size =
      connection->answer_length[0] ? strtoul(connection->answer_length, NULL, 10) : answer->size;
  require(json_size <= answer->size);
  check_json(answer->data, json_size, answer->size - json_size);
}

static void exchange_once(connection_t* connection) {
  const serve_http_handler_t* handler = &server->http->handler;
  serve_exchange_t* exchange = &connection->exchange;
  handler->begin(handler->self, exchange);
  if (!connection->is_answered) handler->handle(handler->self, exchange);
  if (!connection->is_answered) {
    (void)pthread_mutex_lock(&connection->mutex);
    while (!connection->is_resumed) {
      (void)pthread_cond_wait(&connection->resumed, &connection->mutex);
    }
    (void)pthread_mutex_unlock(&connection->mutex);
    handler->resume(handler->self, exchange);
  }
  check_answer(connection);
  handler->end(handler->self, exchange);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const char* const paths[] = {"/v2/models/m/infer",  "/v1/embeddings", "/embed",
                                      "/embed_all",          "/tokenize",      "/decode",
                                      "/v2/repository/index"};
  if (!server) start();
  if (size < 2) return 0;
  connection_t connection = {.exchange = {.method = "POST", .start_ns = serve_now_ns()}};
  connection.exchange.path = paths[data[0] % (sizeof paths / sizeof paths[0])];
  (void)pthread_mutex_init(&connection.mutex, NULL);
  (void)pthread_cond_init(&connection.resumed, NULL);
  char header[64];
  size_t at = 1;
  if (data[1] == 'h') {
    size_t length = 0;
    for (at = 2; at < size && data[at] != '\n' && length + 1 < sizeof header; ++at) {
      header[length++] = (char)data[at];
    }
    header[length] = '\0';
    connection.length = header;
    at += at < size;
  }
  serve_buffer_append(&connection.exchange.body, data + at, size - at);
  exchange_once(&connection);
  serve_buffer_free(&connection.exchange.body);
  serve_buffer_free(&connection.answer);
  (void)pthread_cond_destroy(&connection.resumed);
  (void)pthread_mutex_destroy(&connection.mutex);
  return 0;
}
