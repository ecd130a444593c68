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
// Reads one answer: the headers and as much body as they say, with a zero at the end. Returns its
// status; 0: the connection was closed before.
int client_receive(int client, char* out_text, size_t capacity);
// Reads one answer, which must have the status and contain `part`.
void client_expect(int client, int status, const char* part);
// Sends a request with a JSON body (NULL: none) on a connection of its own, and reads the answer.
int client_ask(uint16_t port, const char* method, const char* path, const char* body,
               char* out_text, size_t capacity);

#endif  // QUERN_TESTS_SERVE_SUPPORT_CLIENT_H_
