// base/net.h: the one seam through which every network call of the library goes, so that tests can
// make the n-th one fail, give one byte at a time, or hang. Results follow POSIX: -1 and errno.
//
// Sockets are non-blocking and closed on exec from the start; the only call that waits is `wait`,
// and the one that may take as long as it likes is `resolve` (a name lookup has no deadline
// anywhere in POSIX), so whoever calls it does so on a thread that nobody waits for.
//
// The table is handed to modules: a change of it raises QN__STORE_ABI_VERSION (cache/store.h).
//
// Not here: protocols, reconnecting, deadlines of operations. Thread rule: calls are thread-safe;
// qn__net_install is for tests before threads start. Read next: net.c, cache/redis/redis.c.
#ifndef QUERN_BASE_NET_H_
#define QUERN_BASE_NET_H_

#include <netdb.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/base.h"

typedef struct qn__net {
  // getaddrinfo and its inverse: 0 or an EAI_ code. `service` is a number.
  int (*resolve)(const char* host, const char* service, const struct addrinfo* hints,
                 struct addrinfo** out_list);
  void (*free_list)(struct addrinfo* list);
  // A stream socket, non-blocking and closed on exec.
  int (*socket)(int family);
  // 0, or -1 with EINPROGRESS when the connection is under way: wait for POLLOUT, then ask `error`.
  int (*connect)(int fd, const struct sockaddr* address, socklen_t size);
  int (*error)(int fd);  // 0 or an errno: how the connecting ended (SO_ERROR)
  int (*set_option)(int fd, int level, int name, int value);
  // Waits for `events` (poll.h) for at most `timeout_ns` (0: only looks): what happened, 0 when
  // nothing did, or -1.
  int (*wait)(int fd, short events, int64_t timeout_ns);
  ssize_t (*send)(int fd, const void* data, size_t size);  // never raises SIGPIPE
  ssize_t (*recv)(int fd, void* data, size_t size);
  int (*close)(int fd);
} qn__net_t;

// The table in force.
const qn__net_t* qn__net(void);
// Tests: replaces the table (borrowed until replaced again); NULL restores POSIX. Returns the old
// one.
const qn__net_t* qn__net_install(const qn__net_t* table);
extern const qn__net_t qn__net_posix;

#endif  // QUERN_BASE_NET_H_
