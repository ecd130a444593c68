// SPDX-License-Identifier: Apache-2.0
// bench/serve/canned.c: serve_canned, a server that gives every request the same answer at once.
//
// It is the floor of serve_load: latency and rate against it are those of the generator, the kernel
// and this loop. usage: serve_canned PORT TEXTS WIDTH; answers as text-embeddings-inference does.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buffer.h"

typedef struct peer {
  int fd;
  size_t body_left;  // of the request whose head is complete
  size_t head_size;
  char head[4096];
} peer_t;

_Noreturn static void give_up(const char* what) {
  perror(what);
  exit(2);
}

static void make_answer(qn__buffer_t* answer, long texts, long width) {
  qn__buffer_t body;
  qn__buffer_init(&body, qn_allocator_default());
  for (long t = 0; t < texts; t++) {
    qn__buffer_cstr(&body, t == 0 ? "[[" : ",[");
    for (long i = 0; i < width; i++) qn__buffer_cstr(&body, i == 0 ? "0.0625" : ",0.0625");
    qn__buffer_char(&body, ']');
  }
  qn__buffer_char(&body, ']');
  qn__buffer_format(answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", body.size);
  qn__buffer_str(answer, qn__buffer_as_str(&body));
  if (answer->has_failed || body.has_failed) give_up("memory");
  qn__buffer_deinit(&body);
}

// Returns the number of requests whose last byte is in `data`, or -1 for a head that is no head.
static int count_requests(peer_t* peer, const char* data, size_t size) {
  int count = 0;
  while (size > 0) {
    if (peer->body_left > 0) {
      size_t taken = size < peer->body_left ? size : peer->body_left;
      peer->body_left -= taken;
      data += taken;
      size -= taken;
      count += peer->body_left == 0;
      continue;
    }
    if (peer->head_size + 1 >= sizeof peer->head) return -1;
    peer->head[peer->head_size++] = *data++;
    size--;
    if (peer->head_size < 4 || memcmp(peer->head + peer->head_size - 4, "\r\n\r\n", 4) != 0) {
      continue;
    }
    peer->head[peer->head_size] = '\0';
    const char* length = strstr(peer->head, "Content-Length: ");
    peer->body_left = length ? (size_t)strtoul(length + 16, NULL, 10) : 0;
    count += peer->body_left == 0;
    peer->head_size = 0;
  }
  return count;
}

// Waits for room if the socket is full. Returns false if the peer is gone.
static bool send_all(int fd, const uint8_t* data, size_t size) {
  while (size > 0) {
    ssize_t count = send(fd, data, size, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) data += count, size -= (size_t)count;
  }
  return true;
}

static void serve(peer_t* peer, const qn__buffer_t* answer) {
  static char bytes[1 << 16];
  ssize_t size = recv(peer->fd, bytes, sizeof bytes, 0);
  int count = size > 0 ? count_requests(peer, bytes, (size_t)size) : -1;
  bool is_alive = count >= 0;
  for (int i = 0; is_alive && i < count; i++) {
    is_alive = send_all(peer->fd, answer->data, answer->size);
  }
  if (is_alive) return;
  (void)close(peer->fd);
  free(peer);
}

int main(int argc, char** argv) {
  long port = argc == 4 ? strtol(argv[1], NULL, 10) : -1;
  if (port < 0 || port > 65535) {
    (void)fprintf(stderr, "usage: serve_canned PORT TEXTS WIDTH\n");
    return 2;
  }
  qn__buffer_t answer;
  qn__buffer_init(&answer, qn_allocator_default());
  make_answer(&answer, strtol(argv[2], NULL, 10), strtol(argv[3], NULL, 10));
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
  if (bind(listener, (struct sockaddr*)&address, size) != 0 || listen(listener, 4096) != 0 ||
      getsockname(listener, (struct sockaddr*)&address, &size) != 0) {
    give_up("listen");
  }
  (void)printf("%d\n", ntohs(address.sin_port));
  (void)fflush(stdout);
  int epoll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) != 0) give_up("epoll");
  for (;;) {
    struct epoll_event events[64];
    int count = epoll_wait(epoll, events, 64, -1);
    for (int i = 0; i < count; i++) {
      if (events[i].data.ptr) {
        serve(events[i].data.ptr, &answer);
        continue;
      }
      peer_t* peer = calloc(1, sizeof *peer);
      if (!peer || (peer->fd = accept(listener, NULL, NULL)) < 0) give_up("accept");
      (void)setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
      event = (struct epoll_event){.events = EPOLLIN, .data.ptr = peer};
      if (epoll_ctl(epoll, EPOLL_CTL_ADD, peer->fd, &event) != 0) give_up("epoll");
    }
  }
}
