// tests/unit/cache/support_remote.h: a store in memory that fails, denies and hangs on demand, and
// a keyed hash that is quick to make, in place of libquern-redis.so and libquern-sodium.so.
//
// Thread rule: everything of `fake` belongs to its mutex; the functions take it.
#ifndef QUERN_TESTS_UNIT_CACHE_SUPPORT_REMOTE_H_
#define QUERN_TESTS_UNIT_CACHE_SUPPORT_REMOTE_H_

#include <pthread.h>

#include "cache/remote.h"

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

#endif  // QUERN_TESTS_UNIT_CACHE_SUPPORT_REMOTE_H_
