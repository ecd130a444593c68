// SPDX-License-Identifier: Apache-2.0
// tests/support/fault_net.c: the table of failing network calls of fault_net.h.
#include "tests/support/fault_net.h"

#include <errno.h>

typedef enum call {
  CALL_RESOLVE,
  CALL_SOCKET,
  CALL_CONNECT,
  CALL_ERROR,
  CALL_SET_OPTION,
  CALL_WAIT,
  CALL_SEND,
  CALL_RECV,
  CALL_CLOSE
} call_t;

static struct {
  _Atomic long fail_at;
  _Atomic qn_fault_mode_t mode;
  _Atomic qn_fault_net_kind_t kind;
  _Atomic int error;
  _Atomic long calls, failures, open_count;
  void (*_Atomic on_resolve)(void* user);
  void* _Atomic user;
} state;

void qn_fault_net_arm(long fail_at, qn_fault_mode_t mode, qn_fault_net_kind_t kind, int error) {
  state.fail_at = fail_at;
  state.mode = mode;
  state.kind = kind;
  state.error = error;
  atomic_store(&state.calls, 0);
  atomic_store(&state.failures, 0);
}

long qn_fault_net_calls(void) {
  return atomic_load(&state.calls);
}
long qn_fault_net_failures(void) {
  return atomic_load(&state.failures);
}
long qn_fault_net_open_count(void) {
  return atomic_load(&state.open_count);
}
void qn_fault_net_on_resolve(void (*hook)(void* user), void* user) {
  state.user = user;
  state.on_resolve = hook;
}

static bool is_counted(call_t call) {
  switch (state.kind) {
    case QN_FAULT_NET_ERRNO:
      return true;
    case QN_FAULT_NET_SHORT:
      return call == CALL_SEND || call == CALL_RECV;
    case QN_FAULT_NET_CLOSED:
      return call == CALL_RECV;
    case QN_FAULT_NET_SILENT:
      return call == CALL_WAIT;
  }
  return false;
}

static bool strikes(call_t call) {
  if (!is_counted(call)) return false;
  long n = atomic_fetch_add(&state.calls, 1) + 1;
  const long at = state.fail_at;
  bool is_hit = at > 0 && (state.mode == QN_FAULT_ALWAYS ? n >= at : n == at);
  if (is_hit) atomic_fetch_add(&state.failures, 1);
  errno = state.error;
  return is_hit;
}

static int fault_resolve(const char* host, const char* service, const struct addrinfo* hints,
                         struct addrinfo** out_list) {
  void (*hook)(void* user) = state.on_resolve;
  if (hook) hook(state.user);
  if (strikes(CALL_RESOLVE)) return EAI_AGAIN;
  int result = qn__net_posix.resolve(host, service, hints, out_list);
  if (result == 0) atomic_fetch_add(&state.open_count, 1);
  return result;
}
static void fault_free_list(struct addrinfo* list) {
  atomic_fetch_sub(&state.open_count, 1);
  qn__net_posix.free_list(list);
}
static int fault_socket(int family) {
  if (strikes(CALL_SOCKET)) return -1;
  int fd = qn__net_posix.socket(family);
  if (fd >= 0) atomic_fetch_add(&state.open_count, 1);
  return fd;
}
static int fault_connect(int fd, const struct sockaddr* address, socklen_t size) {
  return strikes(CALL_CONNECT) ? -1 : qn__net_posix.connect(fd, address, size);
}
static int fault_error(int fd) {
  return strikes(CALL_ERROR) ? state.error : qn__net_posix.error(fd);
}
static int fault_set_option(int fd, int level, int name, int value) {
  return strikes(CALL_SET_OPTION) ? -1 : qn__net_posix.set_option(fd, level, name, value);
}
static int fault_wait(int fd, short events, int64_t timeout_ns) {
  if (strikes(CALL_WAIT)) return state.kind == QN_FAULT_NET_SILENT ? 0 : -1;
  return qn__net_posix.wait(fd, events, timeout_ns);
}
static ssize_t fault_send(int fd, const void* data, size_t size) {
  if (strikes(CALL_SEND)) {
    if (state.kind != QN_FAULT_NET_SHORT) return -1;
    if (size > 1) size = 1;
  }
  return qn__net_posix.send(fd, data, size);
}
static ssize_t fault_recv(int fd, void* data, size_t size) {
  if (strikes(CALL_RECV)) {
    if (state.kind == QN_FAULT_NET_CLOSED) return 0;
    if (state.kind != QN_FAULT_NET_SHORT) return -1;
    if (size > 1) size = 1;
  }
  return qn__net_posix.recv(fd, data, size);
}
static int fault_close(int fd) {
  bool is_hit = strikes(CALL_CLOSE);
  int error = errno;
  int result = qn__net_posix.close(fd);
  if (result == 0) atomic_fetch_sub(&state.open_count, 1);
  if (!is_hit) return result;
  errno = error;
  return -1;
}

const qn__net_t qn_fault_net = {
    .resolve = fault_resolve,
    .free_list = fault_free_list,
    .socket = fault_socket,
    .connect = fault_connect,
    .error = fault_error,
    .set_option = fault_set_option,
    .wait = fault_wait,
    .send = fault_send,
    .recv = fault_recv,
    .close = fault_close,
};
