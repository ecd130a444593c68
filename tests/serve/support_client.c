// SPDX-License-Identifier: Apache-2.0
// tests/serve/support_client.c: sends and receives whole texts.
#include "tests/serve/support_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

int client_try_connect(uint16_t port) {
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in name = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  assert_true(client >= 0);
  if (connect(client, (struct sockaddr*)&name, sizeof name) == 0) return client;
  (void)close(client);
  return -1;
}

int client_connect(uint16_t port) {
  const int client = client_try_connect(port);
  assert_true(client >= 0);
  return client;
}

void client_send_bytes(int client, const void* data, size_t size) {
  const char* at = data;
  while (size > 0) {
    const ssize_t count = send(client, at, size, MSG_NOSIGNAL);
    assert_true(count > 0);
    at += count;
    size -= (size_t)count;
  }
}

void client_send(int client, const char* text) {
  client_send_bytes(client, text, strlen(text));
}

int client_receive(int client, char* out_text, size_t capacity) {
  size_t size = 0;
  for (;;) {
    out_text[size] = '\0';
    const char* body = strstr(out_text, "\r\n\r\n");
    const char* length = strstr(out_text, "\nContent-Length: ");
    if (body && length && size >= (size_t)(body + 4 - out_text) + strtoul(length + 17, NULL, 10)) {
      return atoi(out_text + 9);
    }
    assert_true(size + 1 < capacity);
    struct pollfd ready = {.fd = client, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
    // A byte at a time, so that the next answer stays in the socket.
    const ssize_t count = recv(client, out_text + size, 1, 0);
    if (count <= 0) return 0;
    size += (size_t)count;
  }
}

void client_expect(int client, int status, const char* part) {
  char text[4096];
  assert_int_equal(client_receive(client, text, sizeof text), status);
  if (!strstr(text, part)) fail_msg("no '%s' in: %s", part, text);
}

int client_exchange(uint16_t port, const client_request_t* request, char* out_text,
                    size_t capacity) {
  const int client = client_connect(port);
  char head[1024];
  const int length =
      snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n",
               request->method, request->path, request->headers, request->size);
  assert_true(length > 0 && (size_t)length < sizeof head);
  client_send(client, head);
  client_send_bytes(client, request->body, request->size);
  const int status = client_receive(client, out_text, capacity);
  (void)close(client);
  return status;
}

int client_ask(uint16_t port, const char* method, const char* path, const char* body,
               char* out_text, size_t capacity) {
  const client_request_t request = {method, path, "", body, body ? strlen(body) : 0};
  return client_exchange(port, &request, out_text, capacity);
}

const char* client_body(const char* text, size_t* out_size) {
  const char* length = strstr(text, "\nContent-Length: ");
  assert_non_null(length);
  *out_size = strtoul(length + 17, NULL, 10);
  return strstr(text, "\r\n\r\n") + 4;
}

uint16_t client_free_port(void) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof name;
  assert_int_equal(bind(listener, (struct sockaddr*)&name, size), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr*)&name, &size), 0);
  (void)close(listener);
  return ntohs(name.sin_port);
}
