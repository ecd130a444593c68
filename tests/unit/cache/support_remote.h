// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/support_remote.h: a store in memory that fails, denies and hangs on demand, and
// a fast keyed hash, as replacements for libquern-redis.so and libquern-sodium.so.
//
// Thread rule: the functions lock the mutex of `fake`, which protects its members.
#ifndef QUERN_TESTS_UNIT_CACHE_SUPPORT_REMOTE_H_
#define QUERN_TESTS_UNIT_CACHE_SUPPORT_REMOTE_H_

#include <pthread.h>
#include <sys/types.h>

#include "cache/remote_inner.h"
#include "tests/unit/cache/support.h"

#define SECOND INT64_C(1000000000)
#define HOUR (3600 * SECOND)
#define NEVER INT64_MAX

typedef enum fake_call {
  FAKE_CONNECT,
  FAKE_GET,
  FAKE_PUT,
  FAKE_CLAIM,
  FAKE_UNCLAIM,
  FAKE_CALLS
} fake_call_t;

extern const qn__store_t fake_store;
extern const qn__crypto_t fake_crypto;

// Empties the store and forgets every order; all calls work.
void fake_reset(void);
// The next `count` calls of a kind (-1: all from now on) end with `result`.
void fake_order(fake_call_t call, qn__store_result_t result, int count);
// From now on calls of a kind do not return until fake_release, whatever their deadline.
void fake_hold(fake_call_t call);
void fake_release(fake_call_t call);
// Waits until `count` calls of a kind are being held.
void fake_wait_held(fake_call_t call, int count);
// Calls of a kind that are under way.
int fake_held(fake_call_t call);
long fake_calls(fake_call_t call);
// Connections that exist, and those that are connected.
long fake_connections(void);
// The limit that the last get was given.
size_t fake_limit(void);
// Reads, replaces or removes a value; its size, or 0. `name` NULL: the only one that is no claim.
size_t fake_value(const char* name, uint8_t* out, size_t room, char* out_name, size_t name_room);
void fake_set_value(const char* name, const uint8_t* data, size_t size);
bool fake_has(const char* name);
long fake_count(void);
// A fork while no call changes the store, so that the child's copy is whole. The child is free to
// use it once the remote tier has forgotten its connections, which it does in the fork.
pid_t fake_fork(void);

// Options over the two, with long times, so that nothing ends by itself: a test shortens what it is
// about.
qn__remote_options_t remote_usual(void);
qn__remote_t* remote_make(const qn__remote_options_t* options);
// Destroys a tier of which no call hangs, and waits for its threads however late they are: the
// destroy alone may leave one behind that is held up in writing a line to the log. NULL is fine.
void remote_end(qn__remote_t* remote);
// Asserts that a hit is the sample, and releases it.
qn__get_result_t remote_get_by(qn__remote_t* remote, const sample_t* sample, int64_t deadline_ns);
qn__get_result_t remote_get(qn__remote_t* remote, const sample_t* sample);
// Asserts that the sample gets to the store.
void remote_put(qn__remote_t* remote, const sample_t* sample);
// Asserts the state and the period of a breaker.
void remote_is_breaker(qn__remote_t* remote, qn__breaker_state_t state, int64_t period_ns);
int remote_set_up(void** state);

#endif  // QUERN_TESTS_UNIT_CACHE_SUPPORT_REMOTE_H_
