// SPDX-License-Identifier: Apache-2.0
// tests/serve/support_client.h: an HTTP client of a socket, for tests. Failures fail the test.
#ifndef QUERN_TESTS_SERVE_SUPPORT_CLIENT_H_
#define QUERN_TESTS_SERVE_SUPPORT_CLIENT_H_

#include <stddef.h>
#include <stdint.h>

// Connects to a port of this machine. Owned: close.
int client_connect(uint16_t port);
// The same; returns -1 if nothing listens there.
int client_try_connect(uint16_t port);
void client_send(int client, const char* text);
void client_send_bytes(int client, const void* data, size_t size);
// Reads one answer: the headers and as much body as they say, with a zero at the end. Returns its
// status; 0: the connection was closed before.
int client_receive(int client, char* out_text, size_t capacity);
// Reads one answer, which must have the status and contain `part`.
void client_expect(int client, int status, const char* part);
// Sends a request with a JSON body (NULL: none) on a connection of its own, and reads the answer.
int client_ask(uint16_t port, const char* method, const char* path, const char* body,
               char* out_text, size_t capacity);

// A request with any headers (each "Name: value\r\n") and any bytes as its body.
typedef struct client_request {
  const char* method;
  const char* path;
  const char* headers;
  const void* body;
  size_t size;
} client_request_t;
// Sends a request on a connection of its own, and reads the answer.
int client_exchange(uint16_t port, const client_request_t* request, char* out_text,
                    size_t capacity);
// Returns the body of an answer, and its size by Content-Length.
const char* client_body(const char* text, size_t* out_size);

// Returns a port that no program listens at now.
uint16_t client_free_port(void);

#endif  // QUERN_TESTS_SERVE_SUPPORT_CLIENT_H_
