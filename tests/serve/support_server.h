// SPDX-License-Identifier: Apache-2.0
// tests/serve/support_server.h: a server of the fake encoder, with results of 3 numbers, texts of
// at most 8 tokens, and a queue of 24.
//
// The vocabulary is [PAD] [UNK] [CLS] [SEP] a b ##c. A folder "broken" is an error of the load.
// Failures fail the test.
#ifndef QUERN_TESTS_SERVE_SUPPORT_SERVER_H_
#define QUERN_TESTS_SERVE_SUPPORT_SERVER_H_

#include <pthread.h>

#include "serve/server.h"
#include "tests/serve/support_fake.h"
#include "tests/support/tempdir.h"

extern fake_t server_fake;
extern char server_folder[QN_TEST_PATH_SIZE];  // of the tokenizer

// Of a group of tests.
int server_make_folder(void** state);
int server_remove_folder(void** state);
// Writes a file into the folder.
void server_write_file(const char* name, const char* text);

typedef struct server_fixture {
  serve_options_t options;
  serve_repository_t* repository;
  serve_server_t* server;
  uint16_t port;
  uint16_t admin_port;  // 0: none
} server_fixture_t;

// Starts a server with one model, "mini", of the folder. `arguments` are those of quern-serve.
void server_start_with(server_fixture_t* fixture, int count, char** arguments);
// The same on any free port, with at most 3 texts in a request.
void server_start(server_fixture_t* fixture);
// The same with an address for management.
void server_start_with_admin(server_fixture_t* fixture);
// The same on any free port, for clients with a key of the file of keys that has this text.
void server_start_with_keys(server_fixture_t* fixture, const char* text);
void server_stop(server_fixture_t* fixture);

// Asks for a path and returns the body of the answer, which must have the status. Valid until the
// next call.
const char* server_ask(const server_fixture_t* fixture, int status, const char* method,
                       const char* path, const char* body);
const char* server_post(const server_fixture_t* fixture, int status, const char* path,
                        const char* body);

// A POST on a thread of its own, which waits for the answer.
typedef struct server_asker {
  uint16_t port;
  const char* path;
  const char* body;  // NULL: none
  pthread_t thread;
  int status;       // after server_end_asking
  char text[4096];  // the same: the answer
} server_asker_t;

void server_begin_asking(server_asker_t* asker);
void server_end_asking(server_asker_t* asker);

// Checks that a body contains a part.
void server_expect(const char* body, const char* part);

// Waits until the encoder has begun another batch than the `before` ones; until so many wait.
void server_wait_for_batch(int before);
void server_wait_for_queue(const server_fixture_t* fixture, size_t requests);

#endif  // QUERN_TESTS_SERVE_SUPPORT_SERVER_H_
