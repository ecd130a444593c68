// SPDX-License-Identifier: Apache-2.0
// tests/remote/support.h: servers for the tests of the remote tier: a scripted server that behaves
// or misbehaves as configured, and redis-server in a private directory.
//
// Thread rule: one test thread. The scripted server runs in a thread, redis-server in a process.
#ifndef QUERN_TESTS_REMOTE_SUPPORT_H_
#define QUERN_TESTS_REMOTE_SUPPORT_H_

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "tests/support/tempdir.h"

// How the scripted server treats a connection.
typedef enum peer_kind {
  PEER_GOOD,       // a small store: GET, SET, SET NX, EVAL of an unclaim, AUTH, SELECT
  PEER_DRIP,       // the same, its answers byte by byte
  PEER_TRICKLE,    // begins a value of PEER_TRICKLE_BYTES and sends a byte of it now and then
  PEER_SILENT,     // reads, never answers
  PEER_DEAF,       // accepts, never reads
  PEER_GREETS,     // sends `reply` at each connection
  PEER_ANSWERS,    // sends the whole `reply` to any command, then stays open
  PEER_SAYS_LESS,  // sends `reply` and closes
  PEER_NO_ACCEPT,  // its backlog is full
  PEER_FORGETFUL,  // good, but closes after each answer
} peer_kind_t;

// A count that no test reaches.
#define PEER_TRICKLE_BYTES 100000000

typedef struct peer peer_t;

// Starts the server on a free port of 127.0.0.1. `reply` (borrowed) is for the kinds that name it.
peer_t* peer_start(peer_kind_t kind, const void* reply, size_t reply_size);
void peer_stop(peer_t* peer);
int peer_port(const peer_t* peer);
// Return the number of accepted connections and of answered commands.
long peer_connections(peer_t* peer);

// Reserves a port of 127.0.0.1 without a listener, until the returned descriptor is closed.
int port_of_nobody(int* out_port);

// Starts redis-server with extra options ("--requirepass", "x", NULL). Returns NULL if it does not
// start; sets *out_is_missing if it is not installed.
typedef struct redis_server {
  char directory[QN_TEST_PATH_SIZE];
  char unix_path[QN_TEST_PATH_SIZE + 16];
  int port;
  pid_t pid;
} redis_server_t;
bool redis_start(redis_server_t* server, const char* const* options, bool* out_is_missing);
// Restarts the server on the same port, without data.
bool redis_restart(redis_server_t* server, const char* const* options);
void redis_kill(redis_server_t* server);
void redis_stop(redis_server_t* server);
// Sends one command over a separate connection and returns the first bytes of the answer.
bool redis_say(const redis_server_t* server, const char* command, char* out, size_t room);

#endif  // QUERN_TESTS_REMOTE_SUPPORT_H_
