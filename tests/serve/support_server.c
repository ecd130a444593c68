// SPDX-License-Identifier: Apache-2.0
// tests/serve/support_server.c: the fixture and waiting for it.
#include "tests/serve/support_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/serve/support_client.h"
#include "tests/support/must.h"

fake_t server_fake = {
    .width = 3,
    .max_tokens = 8,
    .limits = {.batch_tokens = 32, .batch_sequences = 4, .queue_tokens = 24},
};
char server_folder[QN_TEST_PATH_SIZE];

void server_write_file(const char* name, const char* text) {
  char path[QN_TEST_PATH_SIZE + 64];
  (void)snprintf(path, sizeof path, "%s/%s", server_folder, name);
  assert_true(qn_test_write_file(path, text, strlen(text)));
}

int server_make_folder(void** state) {
  (void)state;
  assert_true(qn_test_tempdir_make(server_folder));
  server_write_file("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n##c\n");
  return 0;
}

int server_remove_folder(void** state) {
  (void)state;
  qn_test_tempdir_remove(server_folder);
  return 0;
}

void server_expect(const char* body, const char* part) {
  if (!strstr(body, part)) fail_msg("no '%s' in %s", part, body);
}

static qn_status_t load(void* self, const char* from, const char* name, serve_model_t** out_model) {
  if (strcmp(from, "broken") != 0) return fake_load(self, from, name, out_model);
  *out_model = NULL;
  return qn_status_make(QN_STATUS_NOT_FOUND, "no such folder");
}

// ------------------------------------------------------------------------------------ the server

static qn_status_t try_start(server_fixture_t* fixture, int count, char** arguments) {
  *fixture = (server_fixture_t){.port = 0};
  atomic_store(&server_fake.is_blocked, false);
  atomic_store(&server_fake.fails, false);
  must(serve_options_read(count, arguments, &fixture->options));
  must(serve_repository_create(load, &server_fake, &fixture->repository));
  must(serve_repository_add(fixture->repository, "mini", server_folder));
  must(serve_repository_load(fixture->repository, "mini"));
  qn_status_t status =
      serve_server_start(&fixture->options, fixture->repository, NULL, &fixture->server);
  if (!qn_ok(status)) return status;
  fixture->port = serve_http_port(fixture->server->http);
  fixture->admin_port = fixture->server->admin ? serve_http_port(fixture->server->admin) : 0;
  return QN_OK;
}

void server_start_with(server_fixture_t* fixture, int count, char** arguments) {
  must(try_start(fixture, count, arguments));
}

void server_start(server_fixture_t* fixture) {
  char* arguments[] = {"--port=0", "--max-texts=3"};
  server_start_with(fixture, 2, arguments);
}

void server_start_with_keys(server_fixture_t* fixture, const char* text) {
  char path[QN_TEST_PATH_SIZE + 64];
  char* arguments[] = {"--port=0", path};
  server_write_file("keys", text);
  (void)snprintf(path, sizeof path, "--keys=%s/keys", server_folder);
  server_start_with(fixture, 2, arguments);
}

// The option takes no "any free port", so another program may take the port that was found free.
void server_start_with_admin(server_fixture_t* fixture) {
  enum { ATTEMPTS = 20 };
  char admin[32];
  char* arguments[] = {"--port=0", "--max-texts=3", admin};
  for (int i = 0; i < ATTEMPTS; ++i) {
    (void)snprintf(admin, sizeof admin, "--admin-port=%u", (unsigned)client_free_port());
    qn_status_t status = try_start(fixture, 3, arguments);
    if (qn_ok(status)) return;
    assert_int_equal(qn_status_consume(status), QN_STATUS_UNAVAILABLE);
    serve_repository_destroy(fixture->repository);
    serve_options_free(&fixture->options);
  }
  fail_msg("no free port");
}

void server_stop(server_fixture_t* fixture) {
  assert_true(serve_server_finish(fixture->server, INT64_C(60000000000)));
  serve_server_stop(fixture->server);
  serve_repository_destroy(fixture->repository);
  serve_options_free(&fixture->options);
}

const char* server_ask(const server_fixture_t* fixture, int status, const char* method,
                       const char* path, const char* body) {
  static char text[1 << 16];
  const int got = client_ask(fixture->port, method, path, body, text, sizeof text);
  if (got != status) fail_msg("%s %s: %d instead of %d: %s", method, path, got, status, text);
  return strstr(text, "\r\n\r\n") + 4;
}

const char* server_post(const server_fixture_t* fixture, int status, const char* path,
                        const char* body) {
  return server_ask(fixture, status, "POST", path, body);
}

static void* ask_later(void* self) {
  server_asker_t* asker = self;
  asker->status =
      client_ask(asker->port, "POST", asker->path, asker->body, asker->text, sizeof asker->text);
  return NULL;
}

void server_begin_asking(server_asker_t* asker) {
  assert_int_equal(pthread_create(&asker->thread, NULL, ask_later, asker), 0);
}

void server_end_asking(server_asker_t* asker) {
  (void)pthread_join(asker->thread, NULL);
}

void server_wait_for_batch(int before) {
  while (atomic_load(&server_fake.batches) == before) {
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

void server_wait_for_queue(const server_fixture_t* fixture, size_t requests) {
  serve_model_t* model = serve_repository_find(fixture->repository, NULL);
  serve_queue_state_t queue;
  do {
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    serve_queue_get_state(serve_model_queue(model), &queue);
  } while (queue.request_count < requests);
  serve_model_release(model);
}
