// SPDX-License-Identifier: Apache-2.0
// cache/remote_inner.h: what the files of the remote tier share.
//
// Thread rule: atomic and constant members need no lock. `mutex` guards the others; no thread holds
// it while it calls the store.
#ifndef QUERN_CACHE_REMOTE_INNER_H_
#define QUERN_CACHE_REMOTE_INNER_H_

#include <stdatomic.h>

#include "base/counter.h"
#include "base/fork.h"
#include "base/thread.h"
#include "cache/remote.h"

// Version of the value around an entry and of the names; raised when either changes its meaning.
#define QN__REMOTE_VERSION 1u
// A value: version, 15 zeros, MAC, then the entry, which is aligned as the value is.
#define QN__REMOTE_HEADER_BYTES 48u
#define QN__REMOTE_MAC_OFFSET 16u
#define QN__REMOTE_DOMAIN_BYTES 64u
#define QN__REMOTE_NAME_BYTES 144u
#define QN__REMOTE_OWNER_BYTES 80u
// Claims that one process holds at once: more than any pool of compile threads.
#define QN__REMOTE_CLAIMS 64u

typedef enum qn__remote_op_kind {
  QN__REMOTE_GET,
  QN__REMOTE_CLAIM,
  QN__REMOTE_PUT,
  QN__REMOTE_UNCLAIM
} qn__remote_op_kind_t;
typedef enum qn__remote_op_state {
  QN__REMOTE_QUEUED,
  QN__REMOTE_RUNNING,
  QN__REMOTE_DONE,     // `result` is meaningful
  QN__REMOTE_REFUSED,  // the breaker opened while the operation was queued
} qn__remote_op_state_t;

// One operation of the store. The caller of a get or a claim waits for it and may leave before it
// ends; the thread frees the operation then. The thread owns puts and unclaims from the start.
typedef struct qn__remote_op {
  struct qn__remote_op* next;
  qn__remote_op_kind_t kind;
  qn__remote_op_state_t state;
  bool is_orphan;  // its caller has left
  bool is_probe;   // it decides whether the breaker closes
  int64_t deadline_ns;
  int64_t ttl_ms;
  qn__store_result_t result;
  qn__cond_t done;  // get, claim
  uint8_t* value;   // get: owned, from the store
  size_t value_size;
  size_t size_bytes;  // of `bytes`
  size_t name_size;
  char name[QN__REMOTE_NAME_BYTES];
  char claim[QN__REMOTE_NAME_BYTES];  // put, unclaim: the name of the claim, "" without one
  char owner[QN__REMOTE_OWNER_BYTES];
  _Alignas(16) uint8_t bytes[];  // put: header and entry
} qn__remote_op_t;

typedef enum qn__remote_thread_state {
  QN__REMOTE_THREAD_NONE = 0,
  QN__REMOTE_THREAD_RUNNING,
  QN__REMOTE_THREAD_ENDED
} qn__remote_thread_state_t;

// A queue of operations, the thread that runs them, and its connection.
typedef struct qn__remote_queue {
  struct qn__remote* remote;
  const char* thread_name;
  void* connection;  // used by the thread and the fork handler
  qn__cond_t work;   // an operation was queued, or is_closing
  qn__remote_op_t* head;
  qn__remote_op_t** tail;
  qn__remote_op_t* running;
  qn__remote_thread_state_t state;
  bool is_away;  // the thread is in a call of the store or writes to the log, without the lock
  pthread_t thread;
} qn__remote_queue_t;

// The circuit breaker.
typedef struct qn__remote_breaker {
  _Atomic int64_t open_until_ns;  // qn__now_ns; 0: closed
  int64_t period_ns;              // of the last opening
  unsigned failure_count;         // in a row
  bool is_probing;
  bool is_logged;  // the log says that it opened
} qn__remote_breaker_t;

typedef enum qn__remote_claim_state {
  QN__REMOTE_CLAIM_NONE = 0,
  QN__REMOTE_CLAIM_REQUESTED,  // one caller waits for the store's answer and owns the slot
  QN__REMOTE_CLAIM_HELD,
} qn__remote_claim_state_t;

typedef struct qn__remote_claim {
  qn__remote_claim_state_t state;
  qn_hash128_t key;
  uint64_t serial;
} qn__remote_claim_t;

// The indices of the counters.
typedef enum qn__remote_counter {
#define QN_COUNTER(name, doc) QN__REMOTE_COUNTER_##name,
#include "cache/remote_counters.inc"
#undef QN_COUNTER
  QN__REMOTE_COUNTER_COUNT
} qn__remote_counter_t;

struct qn__remote {
  // Constant after creation.
  qn_allocator_t allocator;
  const qn__store_t* store;
  const qn__crypto_t* crypto;
  uint8_t key[QN__MAC_KEY_BYTES];
  char* url;  // masked
  char prefix[QN__REMOTE_NAME_BYTES];
  size_t prefix_size;
  uint8_t token[16];  // of this object, in owners of claims
  bool may_write;
  int64_t timeout_ns, connect_timeout_ns, put_timeout_ns, retry_ns, latch_ns, ttl_ms;
  uint64_t max_entry_bytes, max_queue_bytes;

  _Atomic uint64_t counters[QN__REMOTE_COUNTER_COUNT];

  qn__mutex_t mutex;
  qn__cond_t done;          // done_count rose, or a thread ended
  qn__remote_queue_t gets;  // gets and claims
  qn__remote_queue_t puts;  // puts and unclaims
  qn__remote_breaker_t breaker;
  _Atomic int64_t denied_until_ns;  // qn__now_ns: the server denied a put or a claim; 0: it did not
  qn__remote_op_t* orphans;         // the parent's operations, in a child of fork
  uint64_t queue_bytes;
  uint64_t put_count, done_count;
  uint64_t claim_serial;
  qn__remote_claim_t claims[QN__REMOTE_CLAIMS];
  bool is_closing;
  bool is_abandoned;  // the destroy stopped waiting: the last thread that ends frees the object

  qn__fork_node_t fork_node;
};

#define QN__REMOTE_COUNT(remote, name, amount) \
  qn__counter_add(&(remote)->counters[QN__REMOTE_COUNTER_##name], (amount))

// remote_value.c. Names are terminated and have at most QN__REMOTE_NAME_BYTES. Returns the size.
qn_status_t qn__remote_set_prefix(qn__remote_t* remote, const char* trust_domain);
size_t qn__remote_name(const qn__remote_t* remote, qn_hash128_t key, char* out);
size_t qn__remote_claim_name(const qn__remote_t* remote, qn_hash128_t key, char* out);
size_t qn__remote_owner(const qn__remote_t* remote, uint64_t serial, char* out);
// Fills the header of a value whose entry is in place.
void qn__remote_seal(const qn__remote_t* remote, qn_str_t name, uint8_t* value, size_t size);
// True when a holder of the key made the value for `name`. Reads nothing else of it.
bool qn__remote_is_authentic(const qn__remote_t* remote, qn_str_t name, qn_span_t value);

// remote_queue.c. With the lock held, unless the comment says otherwise.
// True when the breaker lets a get or a claim through; *out_is_probe: it decides for the others.
bool qn__remote_admits(qn__remote_t* remote, int64_t now_ns, bool* out_is_probe);
// Starts the thread if it does not run. False when it cannot start.
bool qn__remote_queue_start(qn__remote_queue_t* queue);
void qn__remote_queue_push(qn__remote_queue_t* queue, qn__remote_op_t* op);
// The caller of `op` leaves. True when the caller has to free the operation.
bool qn__remote_queue_leave(qn__remote_queue_t* queue, qn__remote_op_t* op, int64_t now_ns);
// Without the lock.
qn__remote_op_t* qn__remote_op_make(qn__remote_t* remote, qn__remote_op_kind_t kind,
                                    size_t size_bytes);
void qn__remote_op_free(qn__remote_t* remote, qn__remote_op_t* op);
// Also without the lock, by the last user.
void qn__remote_free_orphans(qn__remote_t* remote);
// Tests the requirements on queues, counts, breaker and claims. For debug builds and tests.
bool qn__remote_check(const qn__remote_t* remote);
void qn__remote_fork_child(void* self);

// remote_open.c. Frees everything, by the last user.
void qn__remote_free(qn__remote_t* remote);

#endif  // QUERN_CACHE_REMOTE_INNER_H_
