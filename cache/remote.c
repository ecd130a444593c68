// cache/remote.c: the remote tier as its callers use it: get, put, claim, give up, flush.
//
// A get costs a caller one allocation, one wait, the MAC and the decoding; when the breaker is open
// it costs one atomic load. MAC and decoding are done by the caller, so that a slow one of them
// delays nobody else. A put costs one copy. What goes wrong is a miss and a counter.
//
// Not here: options and ends (remote_open.c), the threads and the breaker (remote_lane.c), names
// and the MAC (remote_value.c), the protocol (redis/redis.c). Thread rule: any thread. Read next:
// remote_lane.c.
#include "cache/remote.h"

#include <errno.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "cache/remote_inner.h"

#define CLAIM_MS INT64_C(30000)

// ---- asking

// True when the breaker is open and its time has not come: the one check that costs no lock.
static bool is_off(const qn__remote_queue_t* lane) {
  int64_t until_ns = atomic_load_explicit(&lane->open_until_ns, memory_order_relaxed);
  return until_ns != 0 && qn__now_ns() < until_ns;
}

// Queues a job for which the caller waits, and waits. True when the job is the caller's, whatever
// its state; otherwise it is gone.
static bool run_and_wait(qn__remote_t* remote, qn__remote_op_t* job, int64_t deadline_ns) {
  qn__remote_queue_t* lane = &remote->asks;
  int64_t now_ns = qn__now_ns();
  job->deadline_ns = qn__after(now_ns, remote->timeout_ns);
  if (deadline_ns > job->deadline_ns) deadline_ns = job->deadline_ns;
  qn__mutex_lock(&remote->mutex);
  if (!qn__lane_admits(lane, now_ns, &job->is_probe)) {
    job->state = QN__JOB_REFUSED;
  } else if (!qn__lane_start(lane)) {
    if (job->is_probe) lane->is_probing = false;
    job->state = QN__JOB_DONE;
    job->result = QN__STORE_NO_MEMORY;
  } else {
    qn__lane_push(lane, job);
  }
  bool is_in_time = true;
  while (job->state < QN__JOB_DONE && is_in_time) {
    is_in_time = qn__cond_wait_until(&job->done, &remote->mutex, deadline_ns);
  }
  bool is_mine = qn__lane_leave(lane, job, is_in_time ? INT64_MIN : qn__now_ns());
  qn__mutex_unlock(&remote->mutex);
  return is_mine;
}

// Authenticates first, then decodes.
static qn__get_result_t open_value(qn__remote_t* remote, qn__remote_op_t* job,
                                   const qn__expectation_t* expected, qn__hit_t* hit) {
  const qn_span_t value = {job->value, job->value_size};
  if (!qn__remote_is_authentic(remote, (qn_str_t){job->name, job->name_size}, value)) {
    QN__REMOTE_COUNT(remote, remote_bad_mac, 1);
    return QN__GET_UNTRUSTED;
  }
  const qn_span_t entry = {value.data + QN__REMOTE_HEADER_BYTES,
                           value.size - QN__REMOTE_HEADER_BYTES};
  hit->reason = value.data[0] == QN__REMOTE_VERSION ? qn__entry_decode(entry, expected, &hit->entry)
                                                    : QN__REASON_VERSION;
  switch (hit->reason) {
    case QN__REASON_NONE:
      break;
#define QN_REASON(NAME, name, heals, text)          \
  case QN__REASON_##NAME:                           \
    QN__REMOTE_COUNT(remote, remote_bad_##name, 1); \
    return QN__GET_BAD;
#include "cache/reasons.inc"
#undef QN_REASON
    case QN__REASON_COUNT:
      return QN__GET_BAD;
  }
  QN__REMOTE_COUNT(remote, remote_hits, 1);
  QN__REMOTE_COUNT(remote, remote_bytes_read, value.size);
  // The hit takes the value over.
  hit->bytes = job->value + QN__REMOTE_HEADER_BYTES;
  hit->size_bytes = entry.size;
  job->value = NULL;
  job->value_size = 0;
  return QN__GET_HIT;
}

static qn__get_result_t take_answer(qn__remote_t* remote, qn__remote_op_t* job,
                                    const qn__expectation_t* expected, qn__hit_t* hit) {
  if (job->state == QN__JOB_REFUSED) {
    QN__REMOTE_COUNT(remote, remote_off, 1);
    return QN__GET_OFF;
  }
  if (job->state == QN__JOB_QUEUED) {
    QN__REMOTE_COUNT(remote, remote_timeouts, 1);
    return QN__GET_TIMEOUT;
  }
  switch (job->result) {
    case QN__STORE_OK:
      return open_value(remote, job, expected, hit);
    case QN__STORE_ABSENT:
      QN__REMOTE_COUNT(remote, remote_misses, 1);
      return QN__GET_ABSENT;
    case QN__STORE_TIMEOUT:
      QN__REMOTE_COUNT(remote, remote_timeouts, 1);
      return QN__GET_TIMEOUT;
    case QN__STORE_LARGE:
      QN__REMOTE_COUNT(remote, remote_large, 1);
      hit->reason = QN__REASON_LENGTHS;
      return QN__GET_BAD;
    case QN__STORE_NO_MEMORY:
      QN__REMOTE_COUNT(remote, remote_no_memory, 1);
      return QN__GET_NO_MEMORY;
    case QN__STORE_DENIED:
      QN__REMOTE_COUNT(remote, remote_denied, 1);
      hit->error = EACCES;
      return QN__GET_ERROR;
    case QN__STORE_ERROR:
      break;
  }
  QN__REMOTE_COUNT(remote, remote_errors, 1);
  hit->error = EIO;
  return QN__GET_ERROR;
}

qn__get_result_t qn__remote_get(qn__remote_t* remote, const qn__expectation_t* expected,
                                int64_t deadline_ns, qn__hit_t* out_hit) {
  memset(out_hit, 0, sizeof *out_hit);
  if (is_off(&remote->asks)) {
    QN__REMOTE_COUNT(remote, remote_off, 1);
    return QN__GET_OFF;
  }
  qn__remote_op_t* job = qn__job_make(remote, QN__JOB_GET, 0);
  if (!job) {
    QN__REMOTE_COUNT(remote, remote_no_memory, 1);
    return QN__GET_NO_MEMORY;
  }
  job->name_size = qn__remote_name(remote, expected->key, job->name);
  if (!run_and_wait(remote, job, deadline_ns)) {
    QN__REMOTE_COUNT(remote, remote_timeouts, 1);
    return QN__GET_TIMEOUT;
  }
  qn__get_result_t result = take_answer(remote, job, expected, out_hit);
  qn__job_free(remote, job);
  return result;
}

void qn__remote_hit_release(qn__remote_t* remote, qn__hit_t* hit) {
  if (!hit->bytes) return;
  qn__free(remote->allocator, hit->bytes - QN__REMOTE_HEADER_BYTES,
           hit->size_bytes + QN__REMOTE_HEADER_BYTES);
  memset(hit, 0, sizeof *hit);
}

// ---- claims

// With the lock held.
static qn__claim_t* find_claim(qn__remote_t* remote, qn_hash128_t key) {
  for (size_t i = 0; i < QN__REMOTE_CLAIMS; i++) {
    if (remote->claims[i].state == QN__CLAIM_HELD &&
        qn__hash128_equal(remote->claims[i].key, key)) {
      return &remote->claims[i];
    }
  }
  return NULL;
}

// A place in the table, in use until it is given back; NULL when it is full.
static qn__claim_t* reserve_claim(qn__remote_t* remote) {
  for (size_t i = 0; i < QN__REMOTE_CLAIMS; i++) {
    if (remote->claims[i].state != QN__CLAIM_NONE) continue;
    remote->claims[i].state = QN__CLAIM_ASKED;
    return &remote->claims[i];
  }
  return NULL;
}

// Moves the claim of `key`, if this process holds it, into a job that ends it.
static void hand_claim_over(qn__remote_t* remote, qn_hash128_t key, qn__remote_op_t* job) {
  qn__claim_t* claim = find_claim(remote, key);
  if (!claim) return;
  (void)qn__remote_claim_name(remote, key, job->claim);
  (void)qn__remote_owner(remote, claim->serial, job->owner);
  claim->state = QN__CLAIM_NONE;
}

// Asks the store; whether another machine has the key. *out_is_taken: we have it now.
static bool ask_for_claim(qn__remote_t* remote, qn_hash128_t key, uint64_t serial, int64_t ttl_ms,
                          int64_t deadline_ns, bool* out_is_taken) {
  *out_is_taken = false;
  qn__remote_op_t* job = qn__job_make(remote, QN__JOB_CLAIM, 0);
  if (!job) return false;
  job->name_size = qn__remote_claim_name(remote, key, job->name);
  (void)qn__remote_owner(remote, serial, job->owner);
  job->ttl_ms = ttl_ms > 0 ? ttl_ms : CLAIM_MS;
  if (!run_and_wait(remote, job, deadline_ns)) return false;
  bool is_foreign = job->state == QN__JOB_DONE && job->result == QN__STORE_ABSENT;
  *out_is_taken = job->state == QN__JOB_DONE && job->result == QN__STORE_OK;
  qn__job_free(remote, job);
  return is_foreign;
}

bool qn__remote_is_being_made(qn__remote_t* remote, qn_hash128_t key, int64_t ttl_ms,
                              int64_t deadline_ns) {
  if (!remote->may_write) return false;
  if (is_off(&remote->asks) || is_off(&remote->puts)) {
    QN__REMOTE_COUNT(remote, remote_claims_failed, 1);
    return false;
  }
  qn__mutex_lock(&remote->mutex);
  bool is_ours = find_claim(remote, key) != NULL;
  qn__claim_t* claim = is_ours ? NULL : reserve_claim(remote);
  uint64_t serial = ++remote->claim_serial;
  qn__mutex_unlock(&remote->mutex);
  if (is_ours) return false;
  bool is_taken = false, is_foreign = false;
  if (claim) is_foreign = ask_for_claim(remote, key, serial, ttl_ms, deadline_ns, &is_taken);
  if (claim) {
    qn__mutex_lock(&remote->mutex);
    *claim = (qn__claim_t){is_taken ? QN__CLAIM_HELD : QN__CLAIM_NONE, key, serial};
    qn__mutex_unlock(&remote->mutex);
  }
  if (is_foreign) {
    QN__REMOTE_COUNT(remote, remote_claims_foreign, 1);
  } else if (is_taken) {
    QN__REMOTE_COUNT(remote, remote_claims_taken, 1);
  } else {
    QN__REMOTE_COUNT(remote, remote_claims_failed, 1);
  }
  return is_foreign;
}

bool qn__remote_has_claim(qn__remote_t* remote, qn_hash128_t key) {
  qn__mutex_lock(&remote->mutex);
  bool has = find_claim(remote, key) != NULL;
  qn__mutex_unlock(&remote->mutex);
  return has;
}

// With the lock held: queues a job that nobody waits for. Why not, or NULL.
static _Atomic uint64_t* push_put(qn__remote_t* remote, qn__remote_op_t* job) {
  qn__remote_queue_t* lane = &remote->puts;
  if (remote->queue_bytes + job->size_bytes > remote->max_queue_bytes) {
    return &remote->counters.remote_put_dropped_full;
  }
  int64_t now_ns = qn__now_ns();
  bool is_let_in = job->kind == QN__JOB_UNCLAIM ? qn__lane_takes_unclaims(lane, now_ns)
                                                : qn__lane_admits(lane, now_ns, &job->is_probe);
  if (!is_let_in) return &remote->counters.remote_put_dropped_off;
  if (!qn__lane_start(lane)) {
    if (job->is_probe) lane->is_probing = false;
    return &remote->counters.remote_put_dropped_memory;
  }
  remote->queue_bytes += job->size_bytes;
  remote->put_count++;
  qn__lane_push(lane, job);
  return NULL;
}

void qn__remote_give_up(qn__remote_t* remote, qn_hash128_t key) {
  if (!remote->may_write) return;
  qn__remote_op_t* job = qn__job_make(remote, QN__JOB_UNCLAIM, 0);
  if (!job) return;  // the claim ends by itself
  qn__mutex_lock(&remote->mutex);
  hand_claim_over(remote, key, job);
  bool is_queued = job->claim[0] && !push_put(remote, job);
  qn__mutex_unlock(&remote->mutex);
  if (!is_queued) qn__job_free(remote, job);
}

// ---- putting

static bool put(qn__remote_t* remote, const qn__entry_t* entry, qn_hash128_t key) {
  size_t size = qn__entry_size(entry);
  if (size == 0 || size > remote->max_entry_bytes) {
    QN__REMOTE_COUNT(remote, remote_put_dropped_size, 1);
    return false;
  }
  if (is_off(&remote->puts)) {
    QN__REMOTE_COUNT(remote, remote_put_dropped_off, 1);
    return false;
  }
  qn__remote_op_t* job = qn__job_make(remote, QN__JOB_PUT, QN__REMOTE_HEADER_BYTES + size);
  if (!job) {
    QN__REMOTE_COUNT(remote, remote_put_dropped_memory, 1);
    return false;
  }
  job->name_size = qn__remote_name(remote, key, job->name);
  job->ttl_ms = remote->ttl_ms;
  qn__entry_write(entry, job->bytes + QN__REMOTE_HEADER_BYTES);
  qn__mutex_lock(&remote->mutex);
  _Atomic uint64_t* dropped = push_put(remote, job);
  if (!dropped) hand_claim_over(remote, key, job);
  qn__mutex_unlock(&remote->mutex);
  if (!dropped) {
    QN__REMOTE_COUNT(remote, remote_put_queued, 1);
    return true;
  }
  atomic_fetch_add_explicit(dropped, 1, memory_order_relaxed);
  qn__job_free(remote, job);
  return false;
}

bool qn__remote_put(qn__remote_t* remote, const qn__entry_t* entry) {
  if (!remote->may_write) {
    QN__REMOTE_COUNT(remote, remote_put_dropped_role, 1);
    return false;
  }
  qn_hash128_t key = qn__preimage_key(entry->preimage);
  bool is_queued = put(remote, entry, key);
  // Others need not wait for what does not come.
  if (!is_queued) qn__remote_give_up(remote, key);
  return is_queued;
}

bool qn__remote_flush(qn__remote_t* remote, int64_t timeout_ns) {
  int64_t deadline_ns = qn__after(qn__now_ns(), timeout_ns);
  qn__mutex_lock(&remote->mutex);
  uint64_t goal = remote->put_count;
  bool is_in_time = true;
  while (remote->done_count < goal && is_in_time) {
    is_in_time = qn__cond_wait_until(&remote->done, &remote->mutex, deadline_ns);
  }
  bool is_done = remote->done_count >= goal;
  qn__mutex_unlock(&remote->mutex);
  return is_done;
}

// ---- looking

qn__breaker_state_t qn__remote_breaker(qn__remote_t* remote, bool of_puts, int64_t* out_period_ns) {
  const qn__remote_queue_t* lane = of_puts ? &remote->puts : &remote->asks;
  qn__mutex_lock(&remote->mutex);
  int64_t until_ns = atomic_load(&lane->open_until_ns);
  if (out_period_ns) *out_period_ns = until_ns ? lane->period_ns : 0;
  qn__breaker_state_t state = QN__BREAKER_CLOSED;
  if (until_ns != 0) {
    state = qn__now_ns() < until_ns ? QN__BREAKER_OPEN : QN__BREAKER_HALF_OPEN;
  }
  qn__mutex_unlock(&remote->mutex);
  return state;
}

const char* qn__breaker_state_name(qn__breaker_state_t state) {
  static const char* const names[] = {"closed", "open", "half-open"};
  return names[state];
}

const char* qn__remote_url(const qn__remote_t* remote) {
  return remote->url;
}

void qn__remote_counters(const qn__remote_t* remote,
                         void (*on_counter)(void* self, const char* name, uint64_t value,
                                            const char* doc),
                         void* self) {
#define QN_COUNTER(name, doc) \
  on_counter(self, #name, atomic_load_explicit(&remote->counters.name, memory_order_relaxed), doc);
#include "cache/remote_counters.inc"
#undef QN_COUNTER
}

typedef struct wanted {
  const char* name;
  uint64_t value;
} wanted_t;

static void take_counter(void* self, const char* name, uint64_t value, const char* doc) {
  (void)doc;
  wanted_t* wanted = self;
  if (strcmp(name, wanted->name) == 0) wanted->value = value;
}

uint64_t qn__remote_counter(const qn__remote_t* remote, const char* name) {
  wanted_t wanted = {name, 0};
  qn__remote_counters(remote, take_counter, &wanted);
  return wanted.value;
}
