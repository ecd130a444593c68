// SPDX-License-Identifier: Apache-2.0
// tests/serve/test_http.c: connections and exchanges, with clients of plain sockets.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "serve/http.h"
#include "tests/serve/support_client.h"

enum { MAX_BODY = 1000, MAX_KEPT = 64, PATIENCE_MS = 60000, LARGE_ANSWER = 64 << 20 };

// Answers "METHOD PATH SIZE" at once; keeps what goes to /keep until the test resumes it.
typedef struct service {
  serve_http_t* http;
  pthread_mutex_t mutex;
  serve_exchange_t* kept[MAX_KEPT];
  size_t kept_count;
  atomic_int begun, ended, sent;
  atomic_bool blocks;  // "/block" holds its thread
} service_t;

static service_t service = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void begin(void* self, serve_exchange_t* exchange) {
  (void)self;
  exchange->user = exchange;
  (void)atomic_fetch_add(&service.begun, 1);
  if (strcmp(exchange->path, "/refused") == 0) {
    serve_buffer_t body = {.data = NULL};
    serve_buffer_text(&body, "no");
    serve_exchange_answer(exchange, 401, "text/plain", &body);
  }
}

static void echo(serve_exchange_t* exchange) {
  serve_buffer_t body = {.data = NULL};
  serve_buffer_format(&body, "%s %s %zu", exchange->method, exchange->path, exchange->body.size);
  const char* id = serve_exchange_header(exchange, "X-Request-Id");
  if (id) serve_exchange_add_header(exchange, "x-request-id", id);
  serve_exchange_answer(exchange, 200, "text/plain", &body);
}

static void answer(void* self, serve_exchange_t* exchange) {
  (void)self;
  echo(exchange);
}

static void handle(void* self, serve_exchange_t* exchange) {
  (void)self;
  while (strcmp(exchange->path, "/block") == 0 && atomic_load(&service.blocks)) {
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  if (strcmp(exchange->path, "/large") == 0) {
    serve_buffer_t body = {.data = NULL};
    (void)memset(serve_buffer_extend(&body, LARGE_ANSWER), 'x', LARGE_ANSWER);
    serve_exchange_answer(exchange, 200, "text/plain", &body);
    return;
  }
  if (strncmp(exchange->path, "/keep", 5) != 0) {
    echo(exchange);
    return;
  }
  (void)pthread_mutex_lock(&service.mutex);
  assert_true(service.kept_count < MAX_KEPT);
  service.kept[service.kept_count++] = exchange;
  (void)pthread_mutex_unlock(&service.mutex);
}

static void refuse(void* self, serve_exchange_t* exchange, uint32_t status, const char* message) {
  (void)self;
  serve_buffer_t body = {.data = NULL};
  serve_buffer_text(&body, message);
  serve_exchange_answer(exchange, status, "text/plain", &body);
}

static void end(void* self, serve_exchange_t* exchange) {
  (void)self;
  assert_ptr_equal(exchange->user, exchange);
  (void)atomic_fetch_add(&service.sent, exchange->is_sent);
  (void)atomic_fetch_add(&service.ended, 1);
}

static void quiet(void* self, const char* message) {
  (void)self;
  (void)message;
}

static void start(int64_t receive_limit_ns) {
  const serve_http_options_t options = {.address = "127.0.0.1",
                                        .thread_count = 2,
                                        .max_connections = 200,
                                        .max_body_bytes = MAX_BODY,
                                        .max_bodies_bytes = 5 * MAX_BODY,
                                        .receive_limit_ns = receive_limit_ns};
  const serve_http_handler_t handler = {.begin = begin,
                                        .handle = handle,
                                        .resume = answer,
                                        .refuse = refuse,
                                        .end = end,
                                        .log = quiet};
  service.kept_count = 0;
  atomic_store(&service.begun, 0);
  atomic_store(&service.ended, 0);
  atomic_store(&service.sent, 0);
  qn_status_t status = serve_http_start(&options, &handler, &service.http);
  assert_true(qn_ok(status));
}

static void stop(void) {
  serve_http_stop(service.http);
  assert_int_equal(atomic_load(&service.begun), atomic_load(&service.ended));
}

static void wait_until(bool (*is_true)(size_t), size_t wanted) {
  for (int i = 0; !is_true(wanted); ++i) {
    assert_true(i < PATIENCE_MS);
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

static bool is_kept(size_t wanted) {
  (void)pthread_mutex_lock(&service.mutex);
  const bool is_true = service.kept_count >= wanted;
  (void)pthread_mutex_unlock(&service.mutex);
  return is_true;
}

static bool has_ended(size_t wanted) {
  return atomic_load(&service.ended) >= (int)wanted && serve_http_count(service.http) == 0;
}

// ------------------------------------------------------------------------------------ clients

static int connect_client(void) {
  return client_connect(serve_http_port(service.http));
}

static void resume_kept(size_t index) {
  (void)pthread_mutex_lock(&service.mutex);
  serve_exchange_t* exchange = service.kept[index];
  (void)pthread_mutex_unlock(&service.mutex);
  serve_exchange_resume(exchange);
}

// ------------------------------------------------------------------------------------ tests

static void test_plain(void** state) {
  (void)state;
  start(INT64_C(60000000000));
  const int client = connect_client();
  // Several requests on one connection, with and without a body, whole and in chunks.
  client_send(client, "GET /a%20b?q=1 HTTP/1.1\r\nHost: x\r\nX-Request-Id: 17\r\n\r\n");
  char text[4096];
  assert_int_equal(client_receive(client, text, sizeof text), 200);
  assert_non_null(strstr(text, "GET /a b 0"));
  assert_non_null(strstr(text, "x-request-id: 17"));
  client_send(client, "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel");
  client_send(client, "lo");
  client_expect(client, 200, "POST /b 5");
  client_send(client,
              "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
              "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
  client_expect(client, 200, "POST /c 7");
  // Two at once.
  client_send(client, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
  client_expect(client, 200, "GET /1 0");
  client_expect(client, 200, "GET /2 0");
  // A refused request: its body is dropped, and the connection stays.
  client_send(client, "POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
  client_expect(client, 401, "no");
  client_send(client, "GET /3 HTTP/1.1\r\nHost: x\r\n\r\n");
  client_expect(client, 200, "GET /3 0");
  (void)close(client);
  wait_until(has_ended, 7);
  assert_int_equal(atomic_load(&service.sent), 7);
  stop();
}

static void test_too_large(void** state) {
  (void)state;
  start(INT64_C(60000000000));
  int client = connect_client();
  client_send(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n");
  client_expect(client, 413, "the body has more than 1000 bytes");
  (void)close(client);
  // In chunks, nothing announces the size.
  client = connect_client();
  client_send(client, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 30; ++i) {
    char piece[64] = "28\r\n0123456789012345678901234567890123456789\r\n";
    client_send(client, piece);
  }
  client_send(client, "0\r\n\r\n");
  client_expect(client, 413, "the body has more than 1000 bytes");
  (void)close(client);
  wait_until(has_ended, 2);
  stop();
}

// The bodies of all requests together are bounded, and the bound is free again afterwards.
static void test_all_bodies(void** state) {
  (void)state;
  start(INT64_C(60000000000));
  enum { CLIENTS = 6 };
  int clients[CLIENTS];
  char body[MAX_BODY + 1];
  memset(body, 'x', MAX_BODY);
  body[MAX_BODY] = '\0';
  for (size_t i = 0; i < CLIENTS; ++i) {
    clients[i] = connect_client();
    client_send(clients[i], "POST /keep HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
    client_send(clients[i], body);
    if (i < CLIENTS - 1) wait_until(is_kept, i + 1);
  }
  client_expect(clients[CLIENTS - 1], 429, "too many large requests");
  for (size_t i = 0; i + 1 < CLIENTS; ++i) {
    resume_kept(i);
    client_expect(clients[i], 200, "POST /keep 1000");
  }
  client_send(clients[0], "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  client_send(clients[0], body);
  client_expect(clients[0], 200, "POST /b 1000");
  for (size_t i = 0; i < CLIENTS; ++i) (void)close(clients[i]);
  wait_until(has_ended, CLIENTS + 1);
  stop();
}

static void* resume_all(void* self) {
  const size_t count = *(size_t*)self;
  for (size_t i = 0; i < count; ++i) {
    wait_until(is_kept, i + 1);
    resume_kept(i);
  }
  return NULL;
}

// Another thread resumes an exchange while the handler still returns.
static void test_kept(void** state) {
  (void)state;
  start(INT64_C(60000000000));
  size_t count = MAX_KEPT;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, resume_all, &count), 0);
  int clients[4];
  for (int i = 0; i < 4; ++i) clients[i] = connect_client();
  for (size_t i = 0; i < MAX_KEPT; i += 4) {
    for (int k = 0; k < 4; ++k) client_send(clients[k], "GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int k = 0; k < 4; ++k) client_expect(clients[k], 200, "GET /keep 0");
  }
  (void)pthread_join(thread, NULL);
  for (int i = 0; i < 4; ++i) (void)close(clients[i]);
  wait_until(has_ended, MAX_KEPT);
  stop();
}

static void test_gone(void** state) {
  (void)state;
  start(INT64_C(60000000000));
  const int client = connect_client();
  client_send(client, "GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
  wait_until(is_kept, 1);
  assert_false(serve_exchange_is_gone(service.kept[0]));
  (void)close(client);
  for (int i = 0; !serve_exchange_is_gone(service.kept[0]); ++i) {
    assert_true(i < PATIENCE_MS);
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  resume_kept(0);
  wait_until(has_ended, 1);
  stop();
}

// Clients that send half a header or half a body are closed; one that waits for a kept answer not.
static void test_slow_clients(void** state) {
  (void)state;
  start(INT64_C(6000000000));
  const int header = connect_client();
  const int body = connect_client();
  const int waiting = connect_client();
  client_send(header, "GET / HTTP/1.1\r\nHos");
  client_send(body, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc");
  client_send(waiting, "GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
  char text[4096];
  assert_int_equal(client_receive(header, text, sizeof text), 0);
  assert_int_equal(client_receive(body, text, sizeof text), 0);
  wait_until(is_kept, 1);
  assert_false(serve_exchange_is_gone(service.kept[0]));
  resume_kept(0);
  client_expect(waiting, 200, "GET /keep 0");
  (void)close(header);
  (void)close(body);
  (void)close(waiting);
  wait_until(has_ended, 2);
  stop();
}

static void test_drain(void** state) {
  (void)state;
  start(INT64_C(60000000000));
  const int client = connect_client();
  client_send(client, "GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
  wait_until(is_kept, 1);
  serve_http_drain(service.http);
  assert_int_equal(serve_http_count(service.http), 1);
  resume_kept(0);
  client_expect(client, 200, "Connection: close");
  (void)close(client);
  wait_until(has_ended, 1);
  stop();
}

// An answer that is not taken counts as a body, and its connection ends with its time.
static void test_slow_reader(void** state) {
  (void)state;
  start(2000000000);
  const int slow = connect_client();
  client_send(slow, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  char text[4096];
  assert_true(recv(slow, text, 1, 0) == 1);
  assert_int_equal(
      client_ask(serve_http_port(service.http), "POST", "/", "body", text, sizeof text), 429);
  size_t size = 1;
  ssize_t count;
  while ((count = recv(slow, text, 1000, 0)) > 0) {  // at most 500 KB a second
    size += (size_t)count;
    (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  }
  assert_true(size < LARGE_ANSWER);
  (void)close(slow);
  wait_until(has_ended, 2);
  assert_int_equal(
      client_ask(serve_http_port(service.http), "POST", "/", "body", text, sizeof text), 200);
  stop();
}

static bool has_begun(size_t wanted) {
  return (size_t)atomic_load(&service.begun) >= wanted;
}

static bool has_drained(size_t wanted) {
  return serve_http_count(service.http) == wanted;
}

// Clients that leave in the middle of a request do not hold it until its time is over.
static void test_left(void** state) {
  (void)state;
  enum { LEFT = 100 };
  start(INT64_C(3600000000000));
  for (size_t i = 0; i < LEFT; ++i) {
    const int client = connect_client();
    client_send(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf");
    (void)close(client);
  }
  wait_until(has_ended, LEFT);
  wait_until(has_drained, 0);
  stop();
}

// Connections that the server has not accepted when it drains are served; later ones are refused.
static void test_drain_backlog(void** state) {
  (void)state;
  enum { BLOCKED = 2, WAITING = 20 };  // as many as threads; of the connections that wait
  static const char blocking[] = "GET /block HTTP/1.1\r\nHost: x\r\n\r\n";
  int clients[BLOCKED + WAITING];
  start(INT64_C(60000000000));
  atomic_store(&service.blocks, true);
  // A thread may get more than one of the first connections, so some of these may wait as well.
  for (size_t i = 0; i < BLOCKED + WAITING; ++i) {
    clients[i] = connect_client();
    client_send(clients[i], blocking);
  }
  wait_until(has_begun, 1);
  serve_http_drain(service.http);
  assert_int_equal(client_try_connect(serve_http_port(service.http)), -1);
  assert_false(has_drained(0));
  atomic_store(&service.blocks, false);
  wait_until(has_drained, 0);
  stop();
  for (size_t i = 0; i < BLOCKED + WAITING; ++i) {
    client_expect(clients[i], 200, "Connection: close");
    (void)close(clients[i]);
  }
}

// Whatever comes, the server answers or closes, at the latest after the time limit, and serves the
// next client.
static void test_rubbish(void** state) {
  (void)state;
  start(INT64_C(6000000000));
  static const char* const texts[] = {
      "\r\n\r\n\r\n",
      "GET\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
      "GET / HTTP/1.1\r\n\r\n",
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    const int client = connect_client();
    client_send(client, texts[i]);
    (void)shutdown(client, SHUT_WR);
    char text[4096];
    (void)client_receive(client, text, sizeof text);
    (void)close(client);
  }
  const int client = connect_client();
  client_send(client, "GET /after HTTP/1.1\r\nHost: x\r\n\r\n");
  client_expect(client, 200, "GET /after 0");
  (void)close(client);
  stop();
}

static void test_refused_options(void** state) {
  (void)state;
  const serve_http_handler_t handler = {.begin = begin,
                                        .handle = handle,
                                        .resume = answer,
                                        .refuse = refuse,
                                        .end = end,
                                        .log = quiet};
  serve_http_options_t options = {.address = "localhost", .thread_count = 1, .max_connections = 4};
  serve_http_t* http = NULL;
  qn_status_t status = serve_http_start(&options, &handler, &http);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  assert_non_null(strstr(qn_status_message(status), "'localhost' is not a numeric address"));
  qn_status_free(status);
  assert_null(http);
  start(INT64_C(60000000000));
  options.address = "127.0.0.1";
  options.port = serve_http_port(service.http);
  status = serve_http_start(&options, &handler, &http);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNAVAILABLE);
  qn_status_free(status);
  stop();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plain),      cmocka_unit_test(test_too_large),
      cmocka_unit_test(test_all_bodies), cmocka_unit_test(test_kept),
      cmocka_unit_test(test_gone),       cmocka_unit_test(test_slow_clients),
      cmocka_unit_test(test_drain),      cmocka_unit_test(test_drain_backlog),
      cmocka_unit_test(test_left),       cmocka_unit_test(test_slow_reader),
      cmocka_unit_test(test_rubbish),    cmocka_unit_test(test_refused_options),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
