// SPDX-License-Identifier: Apache-2.0
// cache/remote.c: the remote tier as callers use it: get, put, claim, give up, flush.
//
// A get costs a caller one allocation, one wait, the MAC and the decoding; one atomic load while
// the breaker is open. The caller computes the MAC and decodes, so that a large entry delays no
// other get. A put costs one copy. Every failure is a miss and a counter.
//
// Not here: options, create and destroy (remote_open.c), the threads and the breaker
// (remote_queue.c), names and the MAC (remote_value.c), the protocol (redis/redis.c). Read next:
// remote_queue.c.
#include "cache/remote.h"

#include <errno.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "cache/remote_inner.h"

#define CLAIM_MS INT64_C(30000)

// ---- gets

// True while the breaker lets nothing through, not even a probe. The only check that needs no lock.
static bool is_off(const qn__remote_t* remote) {
  int64_t until_ns = atomic_load_explicit(&remote->breaker.open_until_ns, memory_order_relaxed);
  return until_ns != 0 && qn__now_ns() < until_ns;
}

// Queues an operation and waits for it. True when the caller has to free the operation, in whatever
// state; false when the thread frees it.
static bool run_and_wait(qn__remote_t* remote, qn__remote_op_t* op, int64_t deadline_ns) {
  qn__remote_queue_t* queue = &remote->gets;
  int64_t now_ns = qn__now_ns();
  op->deadline_ns = qn__after(now_ns, remote->timeout_ns);
  if (deadline_ns > op->deadline_ns) deadline_ns = op->deadline_ns;
  qn__mutex_lock(&remote->mutex);
  if (!qn__remote_admits(remote, now_ns, &op->is_probe)) {
    op->state = QN__REMOTE_REFUSED;
  } else if (!qn__remote_queue_start(queue)) {
    if (op->is_probe) remote->breaker.is_probing = false;
    op->state = QN__REMOTE_DONE;
    op->result = QN__STORE_NO_MEMORY;
  } else {
    qn__remote_queue_push(queue, op);
  }
  bool is_in_time = true;
  while (op->state < QN__REMOTE_DONE && is_in_time) {
    is_in_time = qn__cond_wait_until(&op->done, &remote->mutex, deadline_ns);
  }
  bool is_mine = qn__remote_queue_leave(queue, op, is_in_time ? INT64_MIN : qn__now_ns());
  qn__mutex_unlock(&remote->mutex);
  return is_mine;
}

// Authenticates the value, then decodes it.
static qn__get_result_t open_value(qn__remote_t* remote, qn__remote_op_t* op,
                                   const qn__expectation_t* expected, qn__hit_t* hit) {
  const qn_span_t value = {op->value, op->value_size};
  if (!qn__remote_is_authentic(remote, (qn_str_t){op->name, op->name_size}, value)) {
    QN__REMOTE_COUNT(remote, remote_bad_mac, 1);
    return QN__GET_UNTRUSTED;
  }
  const qn_span_t entry = {value.data + QN__REMOTE_HEADER_BYTES,
                           value.size - QN__REMOTE_HEADER_BYTES};
  hit->reason = value.data[0] == QN__REMOTE_VERSION ? qn__entry_decode(entry, expected, &hit->entry)
                                                    : QN__REASON_VERSION;
  if (hit->reason != QN__REASON_NONE) {
    qn__reason_count(hit->reason, &remote->counters[QN__REMOTE_COUNTER_remote_bad_truncated]);
    return QN__GET_BAD;
  }
  assert(value.size > QN__REMOTE_HEADER_BYTES);  // it is authentic and decodes
  QN__REMOTE_COUNT(remote, remote_hits, 1);
  QN__REMOTE_COUNT(remote, remote_bytes_read, value.size);
  // The hit owns the value now.
  hit->bytes = op->value + QN__REMOTE_HEADER_BYTES;
  hit->size_bytes = entry.size;
  op->value = NULL;
  op->value_size = 0;
  return QN__GET_HIT;
}

static qn__get_result_t take_answer(qn__remote_t* remote, qn__remote_op_t* op,
                                    const qn__expectation_t* expected, qn__hit_t* hit) {
  if (op->state == QN__REMOTE_REFUSED) {
    QN__REMOTE_COUNT(remote, remote_off, 1);
    return QN__GET_OFF;
  }
  assert(op->state == QN__REMOTE_QUEUED || op->state == QN__REMOTE_DONE);
  // A get that is still queued has met its deadline.
  qn__store_result_t answer = op->state == QN__REMOTE_QUEUED ? QN__STORE_TIMEOUT : op->result;
  if (answer == QN__STORE_OK) return open_value(remote, op, expected, hit);
  static const struct {
    qn__remote_counter_t counter;
    qn__get_result_t result;
  } answers[] = {
      [QN__STORE_ABSENT] = {QN__REMOTE_COUNTER_remote_misses, QN__GET_ABSENT},
      [QN__STORE_TIMEOUT] = {QN__REMOTE_COUNTER_remote_timeouts, QN__GET_TIMEOUT},
      [QN__STORE_ERROR] = {QN__REMOTE_COUNTER_remote_errors, QN__GET_ERROR},
      [QN__STORE_DENIED] = {QN__REMOTE_COUNTER_remote_denied, QN__GET_ERROR},
      [QN__STORE_LARGE] = {QN__REMOTE_COUNTER_remote_large, QN__GET_BAD},
      [QN__STORE_NO_MEMORY] = {QN__REMOTE_COUNTER_remote_no_memory, QN__GET_NO_MEMORY},
  };
  if (answer >= QN_COUNT_OF(answers)) answer = QN__STORE_ERROR;  // of a store that is not ours
  qn__counter_add(&remote->counters[answers[answer].counter], 1);
  if (answer == QN__STORE_LARGE) hit->reason = QN__REASON_LENGTHS;
  if (answer == QN__STORE_DENIED) hit->error = EACCES;
  if (answer == QN__STORE_ERROR) hit->error = EIO;
  return answers[answer].result;
}

qn__get_result_t qn__remote_get(qn__remote_t* remote, const qn__expectation_t* expected,
                                int64_t deadline_ns, qn__hit_t* out_hit) {
  memset(out_hit, 0, sizeof *out_hit);
  if (is_off(remote)) {
    QN__REMOTE_COUNT(remote, remote_off, 1);
    return QN__GET_OFF;
  }
  qn__remote_op_t* op = qn__remote_op_make(remote, QN__REMOTE_GET, 0);
  if (!op) {
    QN__REMOTE_COUNT(remote, remote_no_memory, 1);
    return QN__GET_NO_MEMORY;
  }
  op->name_size = qn__remote_name(remote, expected->key, op->name);
  if (!run_and_wait(remote, op, deadline_ns)) {
    QN__REMOTE_COUNT(remote, remote_timeouts, 1);
    return QN__GET_TIMEOUT;
  }
  qn__get_result_t result = take_answer(remote, op, expected, out_hit);
  qn__remote_op_free(remote, op);
  return result;
}

void qn__remote_hit_release(qn__remote_t* remote, qn__hit_t* hit) {
  if (!hit->bytes) return;
  qn__free(remote->allocator, hit->bytes - QN__REMOTE_HEADER_BYTES,
           hit->size_bytes + QN__REMOTE_HEADER_BYTES);
  memset(hit, 0, sizeof *hit);
}

// ---- claims

// With the lock held: the claim of `key` that this process holds, or NULL.
static qn__remote_claim_t* find_claim(qn__remote_t* remote, qn_hash128_t key) {
  for (size_t i = 0; i < QN__REMOTE_CLAIMS; i++) {
    if (remote->claims[i].state == QN__REMOTE_CLAIM_HELD &&
        qn__hash128_equal(remote->claims[i].key, key)) {
      return &remote->claims[i];
    }
  }
  return NULL;
}

// With the lock held: reserves a slot of the table; NULL when the table is full.
static qn__remote_claim_t* reserve_claim(qn__remote_t* remote) {
  for (size_t i = 0; i < QN__REMOTE_CLAIMS; i++) {
    if (remote->claims[i].state != QN__REMOTE_CLAIM_NONE) continue;
    remote->claims[i].state = QN__REMOTE_CLAIM_REQUESTED;
    return &remote->claims[i];
  }
  return NULL;
}

// With the lock held: moves the claim of `key`, if this process holds it, into the operation that
// ends it.
static void hand_claim_over(qn__remote_t* remote, qn_hash128_t key, qn__remote_op_t* op) {
  qn__remote_claim_t* claim = find_claim(remote, key);
  if (!claim) return;
  (void)qn__remote_claim_name(remote, key, op->claim);
  (void)qn__remote_owner(remote, claim->serial, op->owner);
  claim->state = QN__REMOTE_CLAIM_NONE;
}

// Claims `key` at the store. True when another machine holds the claim; *out_is_taken: this process
// holds it now.
static bool request_claim(qn__remote_t* remote, qn_hash128_t key, uint64_t serial, int64_t ttl_ms,
                          int64_t deadline_ns, bool* out_is_taken) {
  *out_is_taken = false;
  qn__remote_op_t* op = qn__remote_op_make(remote, QN__REMOTE_CLAIM, 0);
  if (!op) return false;
  op->name_size = qn__remote_claim_name(remote, key, op->name);
  (void)qn__remote_owner(remote, serial, op->owner);
  op->ttl_ms = ttl_ms > 0 ? ttl_ms : CLAIM_MS;
  if (!run_and_wait(remote, op, deadline_ns)) return false;
  bool is_foreign = op->state == QN__REMOTE_DONE && op->result == QN__STORE_ABSENT;
  *out_is_taken = op->state == QN__REMOTE_DONE && op->result == QN__STORE_OK;
  qn__remote_op_free(remote, op);
  return is_foreign;
}

bool qn__remote_is_being_made(qn__remote_t* remote, qn_hash128_t key, int64_t ttl_ms,
                              int64_t deadline_ns) {
  if (!remote->may_write) return false;
  if (qn__remote_is_writing_off(remote)) {
    QN__REMOTE_COUNT(remote, remote_claims_failed, 1);
    return false;
  }
  qn__mutex_lock(&remote->mutex);
  bool is_ours = find_claim(remote, key) != NULL;
  qn__remote_claim_t* claim = is_ours ? NULL : reserve_claim(remote);
  uint64_t serial = ++remote->claim_serial;
  qn__mutex_unlock(&remote->mutex);
  if (is_ours) return false;
  bool is_taken = false, is_foreign = false;
  if (claim) is_foreign = request_claim(remote, key, serial, ttl_ms, deadline_ns, &is_taken);
  if (claim) {
    qn__mutex_lock(&remote->mutex);
    // Only a child of fork clears a slot that its caller owns.
    assert(claim->state != QN__REMOTE_CLAIM_HELD);
    *claim =
        (qn__remote_claim_t){is_taken ? QN__REMOTE_CLAIM_HELD : QN__REMOTE_CLAIM_NONE, key, serial};
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

// With the lock held: queues a put or an unclaim. Returns the counter of why it was dropped, or
// NULL. An unclaim needs only a store that answers: it is queued while the server denies puts.
static _Atomic uint64_t* push_put(qn__remote_t* remote, qn__remote_op_t* op) {
  qn__remote_queue_t* queue = &remote->puts;
  if (remote->queue_bytes + op->size_bytes > remote->max_queue_bytes) {
    return &remote->counters[QN__REMOTE_COUNTER_remote_put_dropped_full];
  }
  bool is_off_now = op->kind == QN__REMOTE_UNCLAIM
                        ? atomic_load(&remote->breaker.open_until_ns) != 0
                        : qn__remote_is_writing_off(remote);
  if (is_off_now) return &remote->counters[QN__REMOTE_COUNTER_remote_put_dropped_off];
  if (!qn__remote_queue_start(queue)) {
    return &remote->counters[QN__REMOTE_COUNTER_remote_put_dropped_memory];
  }
  assert(!op->next && op->state == QN__REMOTE_QUEUED);
  remote->queue_bytes += op->size_bytes;
  remote->put_count++;
  qn__remote_queue_push(queue, op);
  return NULL;
}

void qn__remote_give_up(qn__remote_t* remote, qn_hash128_t key) {
  if (!remote->may_write) return;
  qn__remote_op_t* op = qn__remote_op_make(remote, QN__REMOTE_UNCLAIM, 0);
  if (!op) return;  // the claim ends by its time to live
  qn__mutex_lock(&remote->mutex);
  hand_claim_over(remote, key, op);
  bool is_queued = op->claim[0] && !push_put(remote, op);
  qn__mutex_unlock(&remote->mutex);
  if (!is_queued) qn__remote_op_free(remote, op);
}

// ---- puts

static bool put(qn__remote_t* remote, const qn__entry_t* entry, qn_hash128_t key) {
  size_t size = qn__entry_size(entry);
  if (size == 0 || size > remote->max_entry_bytes) {
    QN__REMOTE_COUNT(remote, remote_put_dropped_size, 1);
    return false;
  }
  if (qn__remote_is_writing_off(remote)) {
    QN__REMOTE_COUNT(remote, remote_put_dropped_off, 1);
    return false;
  }
  qn__remote_op_t* op = qn__remote_op_make(remote, QN__REMOTE_PUT, QN__REMOTE_HEADER_BYTES + size);
  if (!op) {
    QN__REMOTE_COUNT(remote, remote_put_dropped_memory, 1);
    return false;
  }
  op->name_size = qn__remote_name(remote, key, op->name);
  op->ttl_ms = remote->ttl_ms;
  qn__entry_write(entry, op->bytes + QN__REMOTE_HEADER_BYTES);
  qn__mutex_lock(&remote->mutex);
  _Atomic uint64_t* dropped = push_put(remote, op);
  if (!dropped) hand_claim_over(remote, key, op);
  qn__mutex_unlock(&remote->mutex);
  if (!dropped) {
    QN__REMOTE_COUNT(remote, remote_put_queued, 1);
    return true;
  }
  atomic_fetch_add_explicit(dropped, 1, memory_order_relaxed);
  qn__remote_op_free(remote, op);
  return false;
}

bool qn__remote_put(qn__remote_t* remote, const qn__entry_t* entry) {
  if (!remote->may_write) {
    QN__REMOTE_COUNT(remote, remote_put_dropped_role, 1);
    return false;
  }
  qn_hash128_t key = qn__preimage_key(entry->preimage);
  bool is_queued = put(remote, entry, key);
  // Other machines need not wait for an entry that does not come.
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
  assert(remote->done_count <= remote->put_count);
  qn__mutex_unlock(&remote->mutex);
  return is_done;
}

// ---- state and counters

qn__breaker_state_t qn__remote_breaker(qn__remote_t* remote, int64_t* out_period_ns) {
  qn__mutex_lock(&remote->mutex);
  int64_t until_ns = atomic_load(&remote->breaker.open_until_ns);
  if (out_period_ns) *out_period_ns = until_ns ? remote->breaker.period_ns : 0;
  qn__mutex_unlock(&remote->mutex);
  if (until_ns == 0) return QN__BREAKER_CLOSED;
  return qn__now_ns() < until_ns ? QN__BREAKER_OPEN : QN__BREAKER_HALF_OPEN;
}

const char* qn__breaker_state_name(qn__breaker_state_t state) {
  static const char* const names[] = {"closed", "open", "half-open"};
  return names[state];
}

const char* qn__remote_url(const qn__remote_t* remote) {
  return remote->url;
}

static const qn__counter_row_t counter_rows[QN__REMOTE_COUNTER_COUNT] = {
#define QN_COUNTER(name, doc) {#name, doc},
#include "cache/remote_counters.inc"
#undef QN_COUNTER
};

qn__counter_set_t qn__remote_counters(const qn__remote_t* remote) {
  return (qn__counter_set_t){counter_rows, remote->counters, QN_COUNT_OF(counter_rows)};
}
