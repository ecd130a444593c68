// SPDX-License-Identifier: Apache-2.0
// cache/remote.h: the remote tier: entries in a store that a fleet shares.
//
// Two threads make all network calls: one for gets and claims, one for puts; each has a connection.
// Callers wait with a deadline, so no name lookup, connect or read can hold one for longer. A value
// is a MAC and an entry; the MAC is verified before any other byte of the value is used. Failing
// gets open a circuit breaker: until it half-opens, gets return QN__GET_OFF at once and puts are
// dropped.
//
// Not here: the protocol (store.h). A child of fork may use the object and gets threads and
// connections of its own.
#ifndef QUERN_CACHE_REMOTE_H_
#define QUERN_CACHE_REMOTE_H_

#include "base/buffer.h"
#include "base/counter.h"
#include "cache/crypto.h"
#include "cache/hit.h"
#include "cache/store.h"

typedef struct qn__remote qn__remote_t;

typedef struct qn__remote_options {
  qn_allocator_t allocator;
  const char* url;       // "redis://[user[:password]@]host[:port][/database]", "redis+unix://path"
  const char* key_file;  // of the MAC; see qn__key_read
  // Part of the names in the store and of the MAC: at most 64 letters, digits, '.', '_', '-'; "" is
  // fine.
  const char* trust_domain;
  bool may_write;              // the role: false puts and claims nothing
  int64_t timeout_ns;          // of one operation, for its caller; 0: 200 ms
  int64_t connect_timeout_ns;  // 0: half of timeout_ns
  int64_t retry_ns;          // from opening the breaker to the first try; 0: 1 s, doubling to 60 s
  int64_t latch_ns;          // how long puts stay off after the server denies one; 0: 60 s
  int64_t put_timeout_ns;    // of one put, for which no caller waits; 0: ten times timeout_ns
  int64_t ttl_ms;            // of entries at the server; 0: 30 days; negative: until it evicts
  uint64_t max_entry_bytes;  // larger ones are neither put nor got; 0: 16 MiB
  uint64_t max_queue_bytes;  // of queued puts; 0: 64 MiB
  const char* plugin_directory;  // "" for the search
  // Replace the modules and the key file, for tests and for stores that are linked in. Borrowed
  // until the destroy.
  const qn__store_t* store;
  const qn__crypto_t* crypto;
  const uint8_t* key;  // QN__MAC_KEY_BYTES, copied
} qn__remote_options_t;

// Opens the modules and reads the key; connects to nothing and starts no thread. Errors:
// INVALID_ARGUMENT (URL, scheme, domain, no key), UNAVAILABLE (a module is missing), those of
// qn__key_read, PERMISSION_DENIED in a process with borrowed rights, OUT_OF_MEMORY.
qn_status_t qn__remote_create(const qn__remote_options_t* options, qn__remote_t** out_remote);
// Runs queued puts for at most `grace_ns`, and waits at most 0.1 s more for running calls. A thread
// that hangs in the network or in a name lookup ends by itself later. NULL is fine.
void qn__remote_destroy(qn__remote_t* remote, int64_t grace_ns);

// Waits until `deadline_ns` (qn__now_ns; INT64_MAX is fine) or the tier's own timeout, whichever
// comes first.
qn__get_result_t qn__remote_get(qn__remote_t* remote, const qn__expectation_t* expected,
                                int64_t deadline_ns, qn__hit_t* out_hit);
void qn__remote_hit_release(qn__remote_t* remote, qn__hit_t* hit);
// Queues a copy of the entry and returns at once. False when it was dropped; a counter says why.
bool qn__remote_put(qn__remote_t* remote, const qn__entry_t* entry);
// Claims `key` for this machine, so that one machine of the fleet compiles it. True when another
// machine holds the claim. False when this process holds it now, and when there is no answer: the
// claim is a hint. It ends with the put or after `ttl_ms`.
bool qn__remote_is_being_made(qn__remote_t* remote, qn_hash128_t key, int64_t ttl_ms,
                              int64_t deadline_ns);
// True when this process holds the claim of `key`. After taking it, get the entry once more:
// another machine may have put it between the first get and the claim.
bool qn__remote_has_claim(qn__remote_t* remote, qn_hash128_t key);
// Releases a claim without an entry (the compile failed).
void qn__remote_give_up(qn__remote_t* remote, qn_hash128_t key);
// Waits until all puts and releases so far are done or have failed. False when `timeout_ns` passes
// first.
bool qn__remote_flush(qn__remote_t* remote, int64_t timeout_ns);

// The circuit breaker.
typedef enum qn__breaker_state {
  QN__BREAKER_CLOSED = 0,
  QN__BREAKER_OPEN,
  QN__BREAKER_HALF_OPEN,  // the next get is the probe, or the probe is running
} qn__breaker_state_t;
qn__breaker_state_t qn__remote_breaker(qn__remote_t* remote, int64_t* out_period_ns);
// True while puts and claims are dropped: the breaker is not closed, or the server denied one.
bool qn__remote_is_writing_off(const qn__remote_t* remote);
// "closed", "open", "half-open". Static storage.
const char* qn__breaker_state_name(qn__breaker_state_t state);

// The URL with its credentials masked, for logs and messages. Borrowed until the destroy.
const char* qn__remote_url(const qn__remote_t* remote);
// Appends `url`, even a malformed one, with "***" for all between "://" and the last "@".
void qn__remote_mask_url(qn_str_t url, qn__buffer_t* out);

// The counters of remote_counters.inc.
qn__counter_set_t qn__remote_counters(const qn__remote_t* remote);
static inline uint64_t qn__remote_counter(const qn__remote_t* remote, const char* name) {
  return qn__counter_find(qn__remote_counters(remote), name);
}

#endif  // QUERN_CACHE_REMOTE_H_
