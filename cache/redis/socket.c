// SPDX-License-Identifier: Apache-2.0
// cache/redis/socket.c: a socket whose every operation has a deadline.
//
// The socket never blocks; only wait_for waits. A name may have several addresses: each gets an
// equal share of the remaining time, so that a dead address costs its share only. The addresses of
// a name are kept for a minute, even if their lookup came too late for its caller; so the next
// attempt has them at once.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/un.h>

#include "base/thread.h"
#include "cache/redis/redis.h"

#define REMEMBER_NS INT64_C(60000000000)

qn__store_result_t qn__redis_fail(qn__redis_t* redis, qn__store_result_t result, const char* format,
                                  ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(redis->message, sizeof redis->message, format, args);
  va_end(args);
  qn__redis_close_socket(redis);
  return result;
}

static qn__store_result_t fail_errno(qn__redis_t* redis, const char* what, int error) {
  char text[128];
  if (strerror_r(error, text, sizeof text) != 0) text[0] = '\0';
  return qn__redis_fail(redis, QN__STORE_ERROR, "cannot %s: %s", what, text);
}

void qn__redis_close_socket(qn__redis_t* redis) {
  int fd = atomic_exchange(&redis->fd, -1);
  if (fd >= 0) (void)redis->net->close(fd);
  redis->in_begin = redis->in_end = 0;
}

void qn__redis_free_addresses(qn__redis_t* redis) {
  struct addrinfo* list = redis->addresses;
  redis->addresses = NULL;
  if (list) redis->net->free_list(list);
}

// Waits for the socket. OK when it is ready for `events`, or has failed: the next call reports
// that.
static qn__store_result_t wait_for(qn__redis_t* redis, short events, int64_t deadline_ns,
                                   const char* what) {
  for (;;) {
    int64_t left_ns = deadline_ns - qn__now_ns();
    if (left_ns <= 0)
      return qn__redis_fail(redis, QN__STORE_TIMEOUT, "no answer in time: %s", what);
    int happened = redis->net->wait(redis->fd, events, left_ns);
    if (happened > 0) return QN__STORE_OK;
    if (happened < 0 && errno != EINTR) return fail_errno(redis, what, errno);
  }
}

// ---- connect

static qn__store_result_t connect_to(qn__redis_t* redis, const struct sockaddr* address,
                                     socklen_t size, int64_t deadline_ns) {
  const qn__net_t* net = redis->net;
  int fd = net->socket(address->sa_family);
  if (fd < 0) return fail_errno(redis, "make a socket", errno);
  atomic_store(&redis->fd, fd);
  if (address->sa_family != AF_UNIX) {
    // Both are optional: a request is one small packet, and keep-alives detect a lost peer.
    (void)net->set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    (void)net->set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  }
  if (net->connect(fd, address, size) == 0) return QN__STORE_OK;
  if (errno != EINPROGRESS) return fail_errno(redis, "connect", errno);
  qn__store_result_t result = wait_for(redis, POLLOUT, deadline_ns, "connect");
  if (result != QN__STORE_OK) return result;
  int error = net->error(fd);
  return error ? fail_errno(redis, "connect", error) : QN__STORE_OK;
}

static qn__store_result_t connect_unix(qn__redis_t* redis, int64_t deadline_ns) {
  union {
    struct sockaddr any;
    struct sockaddr_un local;
  } address;
  memset(&address, 0, sizeof address);
  address.local.sun_family = AF_UNIX;
  static_assert(sizeof address.local.sun_path >= sizeof redis->url.path, "a path fits");
  memcpy(address.local.sun_path, redis->url.path, sizeof redis->url.path);
  return connect_to(redis, &address.any, sizeof address.local, deadline_ns);
}

static qn__store_result_t look_up(qn__redis_t* redis) {
  if (redis->addresses && qn__now_ns() - redis->resolved_ns > REMEMBER_NS) {
    qn__redis_free_addresses(redis);
  }
  if (redis->addresses) return QN__STORE_OK;
  struct addrinfo hints;
  memset(&hints, 0, sizeof hints);
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  struct addrinfo* list = NULL;
  int error = redis->net->resolve(redis->url.host, redis->url.port, &hints, &list);
  if (error != 0 || !list) {
    return qn__redis_fail(redis, QN__STORE_ERROR, "cannot look up '%s': %s", redis->url.host,
                          error ? gai_strerror(error) : "no address");
  }
  redis->addresses = list;
  redis->resolved_ns = qn__now_ns();
  return QN__STORE_OK;
}

static qn__store_result_t connect_tcp(qn__redis_t* redis, int64_t deadline_ns) {
  qn__store_result_t result = look_up(redis);
  if (result != QN__STORE_OK) return result;
  int64_t left_count = 0;
  for (const struct addrinfo* at = redis->addresses; at; at = at->ai_next) left_count++;
  for (const struct addrinfo* at = redis->addresses; at; at = at->ai_next) {
    int64_t now_ns = qn__now_ns();
    if (now_ns >= deadline_ns) {
      return qn__redis_fail(redis, QN__STORE_TIMEOUT, "no time left to connect to '%s'",
                            redis->url.host);
    }
    int64_t share_ns = now_ns + (deadline_ns - now_ns) / left_count--;
    result = connect_to(redis, at->ai_addr, at->ai_addrlen, share_ns);
    if (result == QN__STORE_OK) return QN__STORE_OK;
  }
  qn__redis_free_addresses(redis);
  return result;
}

qn__store_result_t qn__redis_open_socket(qn__redis_t* redis, int64_t deadline_ns) {
  return redis->url.is_unix ? connect_unix(redis, deadline_ns) : connect_tcp(redis, deadline_ns);
}

// ---- bytes

static bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

qn__store_result_t qn__redis_send(qn__redis_t* redis, const void* data, size_t size,
                                  int64_t deadline_ns) {
  const uint8_t* bytes = data;
  while (size > 0) {
    ssize_t sent = redis->net->send(redis->fd, bytes, size);
    if (sent < 0 && !would_block(errno)) return fail_errno(redis, "send", errno);
    if (sent > 0) {
      bytes += sent;
      size -= (size_t)sent;
    }
    // Also after a partial send: a peer that takes single bytes is too slow as well.
    if (size > 0) {
      qn__store_result_t result = wait_for(redis, POLLOUT, deadline_ns, "send");
      if (result != QN__STORE_OK) return result;
    }
  }
  return QN__STORE_OK;
}

qn__store_result_t qn__redis_recv(qn__redis_t* redis, void* data, size_t size, int64_t deadline_ns,
                                  size_t* out_size) {
  *out_size = 0;
  for (;;) {
    qn__store_result_t result = wait_for(redis, POLLIN, deadline_ns, "receive");
    if (result != QN__STORE_OK) return result;
    ssize_t got = redis->net->recv(redis->fd, data, size);
    if (got > 0) {
      *out_size = (size_t)got;
      return QN__STORE_OK;
    }
    if (got == 0) return qn__redis_fail(redis, QN__STORE_ERROR, "the server closed the connection");
    if (!would_block(errno)) return fail_errno(redis, "receive", errno);
  }
}
