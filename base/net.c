// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // ppoll
// base/net.c: the POSIX table of net.h.
//
// Calls that a signal interrupts are repeated inside, except `wait`, whose caller knows the time
// that is left, and `connect`, which continues by itself.
#include "base/net.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

static int posix_resolve(const char* host, const char* service, const struct addrinfo* hints,
                         struct addrinfo** out_list) {
  return getaddrinfo(host, service, hints, out_list);
}
static void posix_free_list(struct addrinfo* list) {
  freeaddrinfo(list);
}
static int posix_socket(int family) {
  return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}
static int posix_connect(int fd, const struct sockaddr* address, socklen_t size) {
  int result = connect(fd, address, size);
  // An interrupted connect continues in the background, as a non-blocking one does.
  if (result == -1 && errno == EINTR) errno = EINPROGRESS;
  return result;
}
static int posix_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}
static int posix_set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof value);
}
static int posix_wait(int fd, short events, int64_t timeout_ns) {
  struct pollfd item = {.fd = fd, .events = events};
  if (timeout_ns < 0) timeout_ns = 0;
  const struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
  int result = ppoll(&item, 1, &timeout, NULL);
  return result > 0 ? item.revents : result;
}
static ssize_t posix_send(int fd, const void* data, size_t size) {
  ssize_t result;
  do {
    result = send(fd, data, size, MSG_NOSIGNAL);
  } while (result == -1 && errno == EINTR);
  return result;
}
static ssize_t posix_recv(int fd, void* data, size_t size) {
  ssize_t result;
  do {
    result = recv(fd, data, size, 0);
  } while (result == -1 && errno == EINTR);
  return result;
}
// On Linux the descriptor is closed even when close returns EINTR.
static int posix_close(int fd) {
  return close(fd);
}

const qn__net_t qn__net_posix = {
    .resolve = posix_resolve,
    .free_list = posix_free_list,
    .socket = posix_socket,
    .connect = posix_connect,
    .error = posix_error,
    .set_option = posix_set_option,
    .wait = posix_wait,
    .send = posix_send,
    .recv = posix_recv,
    .close = posix_close,
};

static _Atomic(const qn__net_t*) table_in_force = &qn__net_posix;

const qn__net_t* qn__net(void) {
  return atomic_load_explicit(&table_in_force, memory_order_relaxed);
}

const qn__net_t* qn__net_install(const qn__net_t* table) {
  return atomic_exchange(&table_in_force, table ? table : &qn__net_posix);
}
