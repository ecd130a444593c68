// SPDX-License-Identifier: Apache-2.0
// cache/redis/redis.h: what the files of libquern-redis.so share: URL, connection, replies.
//
// Thread rule: one thread per connection; forget runs in a child of fork, which does not have that
// thread.
#ifndef QUERN_CACHE_REDIS_REDIS_H_
#define QUERN_CACHE_REDIS_REDIS_H_

#include <stdatomic.h>

#include "cache/store.h"

#define QN__REDIS_HOST_BYTES 256u
#define QN__REDIS_PATH_BYTES 108u  // of sockaddr_un
#define QN__REDIS_SECRET_BYTES 512u
// Bytes of the longest first line of a reply.
#define QN__REDIS_LINE_BYTES 4096u
#define QN__REDIS_TEXT_BYTES 160u

typedef struct qn__redis_url {
  bool is_unix;
  bool has_password;
  char host[QN__REDIS_HOST_BYTES];  // of TCP, without brackets
  char port[8];
  char path[QN__REDIS_PATH_BYTES];
  char user[QN__REDIS_SECRET_BYTES];
  char password[QN__REDIS_SECRET_BYTES];
  char database[12];  // "" for the first one
} qn__redis_url_t;

// Parses "redis://[[user]:password@]host[:port][/database]" and
// "redis+unix://[[user]:password@]path[?db=number]"; user and password may contain %XX. Errors:
// INVALID_ARGUMENT names the part and quotes nothing of it.
qn_status_t qn__redis_url_parse(const char* text, qn__redis_url_t* out);

typedef enum qn__redis_reply_type {
  QN__REDIS_STATUS,
  QN__REDIS_ERROR,
  QN__REDIS_INTEGER,
  QN__REDIS_NIL,
  QN__REDIS_BULK,
} qn__redis_reply_type_t;

typedef struct qn__redis_reply {
  qn__redis_reply_type_t type;
  uint64_t integer;
  char text[QN__REDIS_TEXT_BYTES];  // of a status or an error: printable, cut if too long
} qn__redis_reply_t;

typedef struct qn__redis {
  qn_allocator_t allocator;
  const qn__net_t* net;
  qn__redis_url_t url;
  _Atomic int fd;  // -1: not connected
  // The addresses of the server, and the time of their lookup.
  struct addrinfo* addresses;
  int64_t resolved_ns;
  qn__redis_reply_t reply;  // the reply that is being read
  // Bytes received and not used yet.
  uint8_t in[QN__REDIS_LINE_BYTES];
  size_t in_begin, in_end;
  // The value that is being received. Its size is set first, so that a child of fork can free it.
  uint8_t* value;
  size_t value_size;
  char message[256];
} qn__redis_t;

// socket.c. All return by the deadline. A failure closes the connection and sets the message.
qn__store_result_t qn__redis_fail(qn__redis_t* redis, qn__store_result_t result, const char* format,
                                  ...) QN_PRINTF(3, 4);
qn__store_result_t qn__redis_open_socket(qn__redis_t* redis, int64_t deadline_ns);
void qn__redis_close_socket(qn__redis_t* redis);
void qn__redis_free_addresses(qn__redis_t* redis);
qn__store_result_t qn__redis_send(qn__redis_t* redis, const void* data, size_t size,
                                  int64_t deadline_ns);
// Receives at least one byte, at most `size`.
qn__store_result_t qn__redis_recv(qn__redis_t* redis, void* data, size_t size, int64_t deadline_ns,
                                  size_t* out_size);

// reply.c. Reads one reply into redis->reply; a bulk string of at most `limit_bytes` becomes
// redis->value. Anything else (an array, a longer string, bytes after the reply) closes the
// connection.
qn__store_result_t qn__redis_read_reply(qn__redis_t* redis, size_t limit_bytes,
                                        int64_t deadline_ns);
void qn__redis_drop_value(qn__redis_t* redis);

// redis.c.
extern const qn__store_t qn__redis_store;

#endif  // QUERN_CACHE_REDIS_REDIS_H_
