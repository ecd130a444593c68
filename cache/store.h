// SPDX-License-Identifier: Apache-2.0
// cache/store.h: the table of a store: values by key, somewhere on the network. The remote tier
// uses one. `libquern-redis.so` is a store; another module with this table is another.
//
// A store moves bytes. The remote tier authenticates, retries, counts and stops asking. Every call
// has a deadline (qn__now_ns) and returns by then, except that a name lookup has no bound. Thread
// rule: one thread per connection object. Read next: remote.h, redis/redis.c.
#ifndef QUERN_CACHE_STORE_H_
#define QUERN_CACHE_STORE_H_

#include "base/base.h"
#include "base/net.h"

#define QN__STORE_ABI_VERSION 1u
#define QN__STORE_ENTRY_SYMBOL "qn_store_entry"

typedef enum qn__store_result {
  QN__STORE_OK = 0,
  QN__STORE_ABSENT,     // get: no such key; claim: another owner holds it
  QN__STORE_TIMEOUT,    // the deadline passed; the connection is closed
  QN__STORE_ERROR,      // refused, broken or malformed; the connection is closed
  QN__STORE_DENIED,     // the server does not permit it (credentials, role, memory)
  QN__STORE_LARGE,      // the value exceeds the limit; it was not read
  QN__STORE_NO_MEMORY,  // no memory here for the value or the command
} qn__store_result_t;

typedef struct qn__store {
  uint32_t abi_version;
  size_t struct_size;
  const char* scheme;  // "redis": the part of the URL before "://"
  // Parses the URL; connects to nothing. All network calls go through `net` (borrowed). Errors:
  // INVALID_ARGUMENT names the part of the URL and never quotes a password; OUT_OF_MEMORY.
  qn_status_t (*create)(qn_allocator_t allocator, const qn__net_t* net, const char* url,
                        void** out_connection);
  void (*destroy)(void* connection);
  // Connects and authenticates unless connected; reconnects if the peer has closed the connection.
  qn__store_result_t (*connect)(void* connection, int64_t deadline_ns);
  // True when the object has a connection; the peer may be gone.
  bool (*is_connected)(const void* connection);
  // *out_value is owned: *out_size bytes of the allocator of create; only after OK.
  qn__store_result_t (*get)(void* connection, qn_str_t key, size_t limit_bytes, int64_t deadline_ns,
                            uint8_t** out_value, size_t* out_size);
  // Replaces the value; the server removes it after `ttl_ms` (0: never).
  qn__store_result_t (*put)(void* connection, qn_str_t key, qn_span_t value, int64_t ttl_ms,
                            int64_t deadline_ns);
  // Takes a key for `ttl_ms` if it is free (SET NX PX). OK: taken; ABSENT: another owner holds it.
  qn__store_result_t (*claim)(void* connection, qn_str_t key, qn_str_t owner, int64_t ttl_ms,
                              int64_t deadline_ns);
  // Frees a claimed key if `owner` still holds it; ABSENT otherwise.
  qn__store_result_t (*unclaim)(void* connection, qn_str_t key, qn_str_t owner,
                                int64_t deadline_ns);
  void (*disconnect)(void* connection);
  // In a child of fork: closes the descriptors without telling the server. The parent's thread may
  // have been inside any call. Afterwards the object is not connected. Allocates and frees nothing.
  void (*forget)(void* connection);
  // Explains why the last call did not return OK; never contains a credential. Borrowed until the
  // next call.
  const char* (*message)(const void* connection);
} qn__store_t;

typedef const qn__store_t* (*qn__store_entry_fn_t)(uint32_t abi_version);

#endif  // QUERN_CACHE_STORE_H_
