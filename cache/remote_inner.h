// cache/remote_inner.h: what remote.c, remote_lane.c and remote_value.c share.
//
// Thread rule: what is atomic or constant after the creation is free for all; the rest belongs to
// `mutex`, which is never held over a call of the store. Read next: remote.c.
#ifndef QUERN_CACHE_REMOTE_INNER_H_
#define QUERN_CACHE_REMOTE_INNER_H_

#include <stdatomic.h>

#include "base/fork.h"
#include "base/thread.h"
#include "cache/remote.h"

// Of the value around an entry, and of the names; raised when either changes its meaning.
#define QN__REMOTE_VERSION 1u
// Version, 15 zeros, MAC; then the entry, so that it is aligned as the value is.
#define QN__REMOTE_HEADER_BYTES 48u
#define QN__REMOTE_MAC_OFFSET 16u
#define QN__REMOTE_DOMAIN_BYTES 64u
#define QN__REMOTE_NAME_BYTES 144u
#define QN__REMOTE_OWNER_BYTES 80u
// Claims that one process holds at once: more than any pool of compile threads.
#define QN__REMOTE_CLAIMS 64u

typedef enum qn__job_kind {
  QN__JOB_GET,
  QN__JOB_CLAIM,
  QN__JOB_PUT,
  QN__JOB_UNCLAIM
} qn__job_kind_t;
typedef enum qn__job_state {
  QN__JOB_QUEUED,
  QN__JOB_RUNNING,
  QN__JOB_DONE,     // `result` is meaningful
  QN__JOB_REFUSED,  // the breaker opened while it waited
} qn__job_state_t;

// One operation on its way. A get or a claim has a caller that waits and may leave: then the lane's
// thread frees the job. A put or an unclaim belongs to the lane.
typedef struct qn__job {
  struct qn__job* next;
  qn__job_kind_t kind;
  qn__job_state_t state;
  bool is_orphan;  // its caller has left
  bool is_probe;
  int64_t deadline_ns;
  int64_t ttl_ms;
  qn__store_result_t result;
  qn__cond_t done;  // gets and claims
  uint8_t* value;   // get: owned, what the store gave
  size_t value_size;
  size_t size_bytes;  // of `bytes`
  size_t name_size;
  char name[QN__REMOTE_NAME_BYTES];
  char claim[QN__REMOTE_NAME_BYTES];  // put, unclaim: the name of the claim, "" without one
  char owner[QN__REMOTE_OWNER_BYTES];
  _Alignas(16) uint8_t bytes[];  // put: header and entry
} qn__remote_op_t;

typedef enum qn__lane_state {
  QN__LANE_NONE = 0,
  QN__LANE_RUNNING,
  QN__LANE_ENDED
} qn__lane_state_t;

// A queue, a thread, a connection and a circuit breaker.
typedef struct qn__lane {
  struct qn__remote* remote;
  const char* thread_name;
  const char* what;  // "gets", "puts": for the log
  bool is_puts;
  void* connection;  // the thread's, and the fork handler's
  qn__cond_t work;   // something was queued, or is_closing
  qn__remote_op_t* head;
  qn__remote_op_t** tail;
  qn__remote_op_t* running;
  qn__lane_state_t state;
  bool is_away;  // the thread is in calls of the store or of a log, without the lock
  pthread_t thread;
  // The breaker.
  _Atomic int64_t open_until_ns;  // qn__now_ns; 0: closed
  int64_t period_ns;              // of the last opening
  unsigned failure_count;         // in a row
  bool is_probing;
  bool is_logged;  // that it opened
  bool is_denied;  // it opened because the server denied something: it is there, and in time
} qn__remote_queue_t;

typedef enum qn__claim_state {
  QN__CLAIM_NONE = 0,
  QN__CLAIM_ASKED,  // the store was asked; nobody else touches the place
  QN__CLAIM_HELD,
} qn__claim_state_t;

typedef struct qn__claim {
  qn__claim_state_t state;
  qn_hash128_t key;
  uint64_t serial;
} qn__claim_t;

struct qn__remote {
  // Constant after the creation.
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

  struct {
#define QN_COUNTER(name, doc) _Atomic uint64_t name;
#include "cache/remote_counters.inc"
#undef QN_COUNTER
  } counters;

  qn__mutex_t mutex;
  qn__cond_t done;           // done_count rose, or a lane ended
  qn__remote_queue_t asks;   // gets and claims
  qn__remote_queue_t puts;   // puts and unclaims
  qn__remote_op_t* orphans;  // left over from before this process was forked
  uint64_t queue_bytes;
  uint64_t put_count, done_count;
  uint64_t claim_serial;
  qn__claim_t claims[QN__REMOTE_CLAIMS];
  bool is_closing;
  bool is_abandoned;  // the destroy gave up waiting: the last lane that ends destroys

  qn__fork_node_t fork_node;
};

#define QN__REMOTE_COUNT(remote, name, amount) \
  ((void)atomic_fetch_add_explicit(&(remote)->counters.name, (amount), memory_order_relaxed))

// remote_value.c. Names are terminated and of at most QN__REMOTE_NAME_BYTES; the size comes back.
qn_status_t qn__remote_set_prefix(qn__remote_t* remote, const char* trust_domain);
size_t qn__remote_name(const qn__remote_t* remote, qn_hash128_t key, char* out);
size_t qn__remote_claim_name(const qn__remote_t* remote, qn_hash128_t key, char* out);
size_t qn__remote_owner(const qn__remote_t* remote, uint64_t serial, char* out);
// Fills the header of a value whose entry is in place.
void qn__remote_seal(const qn__remote_t* remote, qn_str_t name, uint8_t* value, size_t size);
// Whether the value was made for `name` by a holder of the key. Looks at nothing else.
bool qn__remote_is_authentic(const qn__remote_t* remote, qn_str_t name, qn_span_t value);

// remote_lane.c. All with the lock held unless said otherwise.
// Whether an operation may be queued; *out_is_probe: it is the one that finds out.
bool qn__lane_admits(qn__remote_queue_t* lane, int64_t now_ns, bool* out_is_probe);
// Whether a claim may be given back: that is never a probe, and goes on where only puts are denied.
bool qn__lane_takes_unclaims(qn__remote_queue_t* lane, int64_t now_ns);
// Starts the thread where there is none. False when there can be none.
bool qn__lane_start(qn__remote_queue_t* lane);
void qn__lane_push(qn__remote_queue_t* lane, qn__remote_op_t* job);
// The caller of `job` leaves: true when the job is the caller's again, to be freed.
bool qn__lane_leave(qn__remote_queue_t* lane, qn__remote_op_t* job, int64_t now_ns);
// Without the lock.
qn__remote_op_t* qn__job_make(qn__remote_t* remote, qn__job_kind_t kind, size_t size_bytes);
void qn__job_free(qn__remote_t* remote, qn__remote_op_t* job);
// With the lock held, or by the last user.
void qn__remote_free_orphans(qn__remote_t* remote);
void qn__remote_fork_prepare(void* self);
void qn__remote_fork_parent(void* self);
void qn__remote_fork_child(void* self);

// remote.c. Frees everything; nobody else uses the object any more.
void qn__remote_free(qn__remote_t* remote);

#endif  // QUERN_CACHE_REMOTE_INNER_H_
