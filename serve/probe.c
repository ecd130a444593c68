// SPDX-License-Identifier: Apache-2.0
// serve/probe.c: the smallest HTTP client, for images that have no other.
#include "serve/probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { TIMEOUT_S = 3, ANSWER_BYTES = 1024 };

static const char question[] =
    "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

typedef struct target_address {
  struct sockaddr_storage address;
  socklen_t size;
} target_address_t;

static bool read_address(const serve_options_t* options, target_address_t* out_place) {
  *out_place = (target_address_t){.size = 0};
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options->port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)options->port)};
  if (inet_pton(AF_INET, options->address, &v4.sin_addr) == 1) {
    if (v4.sin_addr.s_addr == htonl(INADDR_ANY)) v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memcpy(&out_place->address, &v4, sizeof v4);
    out_place->size = sizeof v4;
  } else if (inet_pton(AF_INET6, options->address, &v6.sin6_addr) == 1) {
    if (memcmp(&v6.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0) {
      v6.sin6_addr = in6addr_loopback;
    }
    memcpy(&out_place->address, &v6, sizeof v6);
    out_place->size = sizeof v6;
  }
  return out_place->size > 0;
}

// Reads what the server sends until it closes the connection; its rest is dropped.
static size_t read_answer(int client, char out_text[ANSWER_BYTES]) {
  size_t used = 0;
  ssize_t size = 1;
  while (size > 0 && used + 1 < ANSWER_BYTES) {
    size = recv(client, out_text + used, ANSWER_BYTES - 1 - used, 0);
    if (size > 0) used += (size_t)size;
  }
  out_text[used] = '\0';
  return used;
}

static qn_status_t ask(int client, const target_address_t* place) {
  const struct timeval limit = {.tv_sec = TIMEOUT_S};
  (void)setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  (void)setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);  // also of connect
  char text[ANSWER_BYTES];
  if (connect(client, (const struct sockaddr*)&place->address, place->size) != 0 ||
      send(client, question, sizeof question - 1, MSG_NOSIGNAL) != (ssize_t)sizeof question - 1 ||
      read_answer(client, text) == 0) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "no answer within %d s", TIMEOUT_S);
  }
  int code = 0;
  if (strncmp(text, "HTTP/1.1 ", 9) == 0) code = (int)strtol(text + 9, NULL, 10);
  if (code == 200) return QN_OK;
  const char* body = strstr(text, "\r\n\r\n");
  return qn_status_make(QN_STATUS_FAILED_PRECONDITION, "the server is not ready: status %d: %.300s",
                        code, body ? body + 4 : "");
}

qn_status_t serve_probe(const serve_options_t* options) {
  target_address_t place;
  qn_status_t status = QN_OK;
  int client = -1;
  if (*options->tls_certificate) {
    status = qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "--probe speaks no TLS; let the orchestrator ask over HTTPS");
  } else if (!read_address(options, &place)) {
    status = qn_status_make(QN_STATUS_INVALID_ARGUMENT, "'%.100s' is no numeric address",
                            options->address);
  } else if ((client = socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0) {
    status = qn_status_make(QN_STATUS_UNAVAILABLE, "no socket");
  } else {
    status = ask(client, &place);
  }
  if (client >= 0) (void)close(client);
  return qn_status_annotate(status, "probe of %s:%u", options->address, (unsigned)options->port);
}
