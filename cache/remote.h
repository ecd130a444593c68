// cache/remote.h: the remote tier: entries in a store that a fleet shares.
//
// All network calls are made by threads of this object, one for what callers wait for and one for
// puts, each with a connection; callers wait with a deadline, so no name lookup, connect or read
// can hold one longer. A value is a MAC and an entry; the MAC is verified before anything else of
// it is looked at. Failures open a circuit breaker: until it half-opens, gets answer QN__GET_OFF at
// once. Puts have a breaker of their own.
//
// Not here: the protocol (store.h). Thread rule: any thread; a child of fork may go on and gets
// threads and connections of its own. Read next: remote.c.
#ifndef QUERN_CACHE_REMOTE_H_
#define QUERN_CACHE_REMOTE_H_

#include "base/buffer.h"
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
  bool may_write;              // the role: otherwise nothing is put or claimed
  int64_t timeout_ns;          // of one operation as a caller sees it; 0: 200 ms
  int64_t connect_timeout_ns;  // 0: half of timeout_ns
  int64_t retry_ns;          // from opening the breaker to the first try; 0: 1 s, doubling to 60 s
  int64_t latch_ns;          // how long puts stay off after the server denied one; 0: 60 s
  int64_t put_timeout_ns;    // of one put, which nobody waits for; 0: ten times timeout_ns
  int64_t ttl_ms;            // of entries at the server; 0: 30 days; negative: until it evicts
  uint64_t max_entry_bytes;  // larger ones are neither put nor got; 0: 16 MiB
  uint64_t max_queue_bytes;  // of puts behind the callers; 0: 64 MiB
  const char* plugin_directory;  // "" for the search
  // In place of the modules and the key file, for tests and for stores that are linked in; borrowed
  // until the destroy.
  const qn__store_t* store;
  const qn__crypto_t* crypto;
  const uint8_t* key;  // QN__MAC_KEY_BYTES, copied
} qn__remote_options_t;

// Opens the modules and reads the key; connects to nothing and starts no thread. Errors:
// INVALID_ARGUMENT (URL, scheme, domain, no key), UNAVAILABLE (a module is missing), those of
// qn__key_read, PERMISSION_DENIED in a process with borrowed rights, OUT_OF_MEMORY.
qn_status_t qn__remote_create(const qn__remote_options_t* options, qn__remote_t** out_remote);
// Lets queued puts go on for at most `grace_ns`, and waits at most 0.1 s more for calls under way:
// a thread that hangs in the network or in a name lookup is left to end by itself. NULL is fine.
void qn__remote_destroy(qn__remote_t* remote, int64_t grace_ns);

// Waits until `deadline_ns` (qn__now_ns; INT64_MAX is fine) or the tier's own timeout, whichever
// comes first.
qn__get_result_t qn__remote_get(qn__remote_t* remote, const qn__expectation_t* expected,
                                int64_t deadline_ns, qn__hit_t* out_hit);
void qn__remote_hit_release(qn__remote_t* remote, qn__hit_t* hit);
// One copy, no wait. False when it was dropped; the counter says why.
bool qn__remote_put(qn__remote_t* remote, const qn__entry_t* entry);
// The fleet's single flight, a hint: true when another machine says that it is making `key`. False
// at once when the tier is off or only reads. The claim ends with the put or after `ttl_ms`.
bool qn__remote_is_being_made(qn__remote_t* remote, qn_hash128_t key, int64_t ttl_ms,
                              int64_t deadline_ns);
// Whether this process holds the claim of `key`. Whoever has just got it asks for the entry once
// more: it may have come between the first question and the claim.
bool qn__remote_has_claim(qn__remote_t* remote, qn_hash128_t key);
// Gives a claim back without an entry (the compile failed).
void qn__remote_give_up(qn__remote_t* remote, qn_hash128_t key);
// Waits until everything put and given back so far is done or given up. False when `timeout_ns`
// passed first.
bool qn__remote_flush(qn__remote_t* remote, int64_t timeout_ns);

// The circuit breaker of gets, or of puts.
typedef enum qn__breaker_state {
  QN__BREAKER_CLOSED = 0,
  QN__BREAKER_OPEN,
  QN__BREAKER_HALF_OPEN,  // the next operation is the probe, or one is under way
} qn__breaker_state_t;
qn__breaker_state_t qn__remote_breaker(qn__remote_t* remote, bool of_puts, int64_t* out_period_ns);
// "closed", "open", "half-open". Static storage.
const char* qn__breaker_state_name(qn__breaker_state_t state);

// The URL with its credentials masked: what may be logged and shown. Borrowed until the destroy.
const char* qn__remote_url(const qn__remote_t* remote);
// Appends `url` with everything between "://" and the last "@" as "***", however malformed it is.
void qn__remote_mask_url(qn_str_t url, qn__buffer_t* out);

// Calls back for every counter of remote_counters.inc, in its order.
void qn__remote_counters(const qn__remote_t* remote,
                         void (*on_counter)(void* self, const char* name, uint64_t value,
                                            const char* doc),
                         void* self);
// One counter by name; 0 for a name that is not in the table.
uint64_t qn__remote_counter(const qn__remote_t* remote, const char* name);

#endif  // QUERN_CACHE_REMOTE_H_
