// SPDX-License-Identifier: Apache-2.0
// base/net.h: the table of all network calls of the library, so that tests can make the n-th one
// fail, deliver single bytes, or hang. Results follow POSIX: -1 and errno.
//
// Sockets are non-blocking and closed on exec. Only `wait` waits; `resolve` may take any time,
// because POSIX has no deadline for name lookups, so call it on a thread for which no caller waits.
//
// Modules get the table: a change of it raises QN__STORE_ABI_VERSION (cache/store.h).
//
// Not here: protocols, reconnecting, deadlines of operations. Thread rule: qn__net_install only
// before threads start.
#ifndef QUERN_BASE_NET_H_
#define QUERN_BASE_NET_H_

#include <netdb.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/base.h"

typedef struct qn__net {
  // getaddrinfo and freeaddrinfo: 0 or an EAI_ code. `service` is a number.
  int (*resolve)(const char* host, const char* service, const struct addrinfo* hints,
                 struct addrinfo** out_list);
  void (*free_list)(struct addrinfo* list);
  // Creates a stream socket, non-blocking and closed on exec.
  int (*socket)(int family);
  // Returns 0, or -1 with EINPROGRESS while it connects: wait for POLLOUT, then call `error`.
  int (*connect)(int fd, const struct sockaddr* address, socklen_t size);
  int (*error)(int fd);  // 0 or an errno: the result of connecting (SO_ERROR)
  int (*set_option)(int fd, int level, int name, int value);
  // Waits for `events` (poll.h) for at most `timeout_ns` (0: does not wait). Returns the events
  // that happened, 0 for none, or -1.
  int (*wait)(int fd, short events, int64_t timeout_ns);
  ssize_t (*send)(int fd, const void* data, size_t size);  // never raises SIGPIPE
  ssize_t (*recv)(int fd, void* data, size_t size);
  int (*close)(int fd);
} qn__net_t;

// Returns the table in use.
const qn__net_t* qn__net(void);
// For tests: replaces the table (borrowed until replaced again); NULL restores POSIX. Returns the
// old one.
const qn__net_t* qn__net_install(const qn__net_t* table);
extern const qn__net_t qn__net_posix;

#endif  // QUERN_BASE_NET_H_
