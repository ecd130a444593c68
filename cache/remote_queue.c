// SPDX-License-Identifier: Apache-2.0
// cache/remote_queue.c: the two threads that call the store, and the circuit breaker.
//
// Requirements.
//  1. Only the thread of a queue waits for the network. A caller waits for its operation until its
//     deadline and then leaves. If the operation runs by then, the thread frees it; if not, the
//     caller takes it out of the queue.
//  2. A get never waits for a put: puts have a thread and a connection of their own.
//  3. Gets and claims decide about the breaker. It opens at the first timeout, at the third error
//     in a row, and when the server denies a get. A closed breaker lets everything through. An open
//     one lets nothing through and refuses what is queued. After its period it lets one operation
//     through, the probe, and refuses the others. The probe closes the breaker, or opens it for
//     twice as long, at most 60 s.
//  4. A thread that does not return (a name lookup has no deadline) counts as a timeout. The first
//     caller that finds the running operation past its deadline opens the breaker; no operation is
//     let through until the thread is back.
//  5. Puts are dropped while the breaker is not closed. A put or a claim that the server denies
//     (read-only, role, out of memory) switches puts and claims off for `latch_ns`; gets go on. Any
//     other failure of a put loses that put alone: no caller waits for it.
//  6. An operation that fails on a connection that had been idle is tried once more on a new one,
//     because servers close idle connections. A claim is not: the first try may have taken it.
//  7. A child of fork has no thread, an empty queue and closed descriptors; its first operation
//     starts a thread.
//  8. No thread writes to the log or calls the store while it holds the lock.
//
// Not here: what callers see (remote.c). Thread rule: in remote_inner.h.
#include "base/alloc.h"
#include "base/log.h"
#include "cache/remote_inner.h"

#define MAX_FAILURES 3u
#define MAX_PERIOD_NS INT64_C(60000000000)
#define STACK_BYTES ((size_t)512 * 1024)

// ---- operations

static size_t op_bytes(size_t size) {
  return sizeof(qn__remote_op_t) + size;
}

qn__remote_op_t* qn__remote_op_make(qn__remote_t* remote, qn__remote_op_kind_t kind,
                                    size_t size_bytes) {
  qn__remote_op_t* op = qn__alloc(remote->allocator, op_bytes(size_bytes));
  if (!op) return NULL;
  memset(op, 0, sizeof *op);
  op->kind = kind;
  op->size_bytes = size_bytes;
  if (qn_status_consume(qn__cond_init(&op->done)) == QN_STATUS_OK) return op;
  qn__free(remote->allocator, op, op_bytes(size_bytes));
  return NULL;
}

static void free_memory(qn__remote_t* remote, qn__remote_op_t* op) {
  qn__free(remote->allocator, op->value, op->value_size);
  qn__free(remote->allocator, op, op_bytes(op->size_bytes));
}

void qn__remote_op_free(qn__remote_t* remote, qn__remote_op_t* op) {
  qn__cond_deinit(&op->done);
  free_memory(remote, op);
}

// Leaves the conditions alone: they may count threads of the parent process.
void qn__remote_free_orphans(qn__remote_t* remote) {
  while (remote->orphans) {
    qn__remote_op_t* op = remote->orphans;
    remote->orphans = op->next;
    free_memory(remote, op);
  }
}

static bool has_caller(const qn__remote_op_t* op) {
  return op->kind == QN__REMOTE_GET || op->kind == QN__REMOTE_CLAIM;
}

// Ends a put or an unclaim, whatever became of it.
static void finish_put(qn__remote_t* remote, qn__remote_op_t* op) {
  (void)QN_NEVER(has_caller(op) || remote->queue_bytes < op->size_bytes);
  remote->queue_bytes -= op->size_bytes;
  remote->done_count++;
  qn__cond_broadcast(&remote->done);
  qn__remote_op_free(remote, op);
}

// Empties a queue: wakes the callers, drops puts.
static void refuse_queue(qn__remote_queue_t* queue) {
  qn__remote_t* remote = queue->remote;
  qn__remote_op_t* op = queue->head;
  queue->head = NULL;
  queue->tail = &queue->head;
  while (op) {
    qn__remote_op_t* next = op->next;
    op->next = NULL;
    if (has_caller(op)) {
      op->state = QN__REMOTE_REFUSED;
      qn__cond_signal(&op->done);
    } else {
      if (op->kind == QN__REMOTE_PUT && remote->is_closing) {
        QN__REMOTE_COUNT(remote, remote_put_dropped_closing, 1);
      } else if (op->kind == QN__REMOTE_PUT) {
        QN__REMOTE_COUNT(remote, remote_put_dropped_off, 1);
      }
      finish_put(remote, op);
    }
    op = next;
  }
}

// ---- the invariants

static bool check_queue(const qn__remote_queue_t* queue, bool is_puts, uint64_t* inout_bytes,
                        uint64_t* inout_count) {
  qn__remote_op_t* const* end = &queue->head;
  for (; *end; end = &(*end)->next) {
    const qn__remote_op_t* op = *end;
    if (QN_NEVER(op->state != QN__REMOTE_QUEUED)) return false;
    if (QN_NEVER(has_caller(op) == is_puts)) return false;
    *inout_bytes += op->size_bytes;
    ++*inout_count;
  }
  if (QN_NEVER(queue->tail != end)) return false;
  if (queue->running) {
    if (QN_NEVER(queue->state != QN__REMOTE_THREAD_RUNNING || !queue->is_away)) return false;
    if (QN_NEVER(queue->running->state != QN__REMOTE_RUNNING)) return false;
    *inout_bytes += queue->running->size_bytes;
    ++*inout_count;
  }
  return true;
}

bool qn__remote_check(const qn__remote_t* remote) {
  uint64_t get_bytes = 0, get_count = 0, put_bytes = 0, put_count = 0;
  if (!check_queue(&remote->gets, false, &get_bytes, &get_count)) return false;
  if (!check_queue(&remote->puts, true, &put_bytes, &put_count)) return false;
  if (QN_NEVER(get_bytes != 0)) return false;
  if (QN_NEVER(put_bytes != remote->queue_bytes)) return false;
  if (QN_NEVER(put_count != remote->put_count - remote->done_count)) return false;
  bool is_open = atomic_load(&remote->breaker.open_until_ns) != 0;
  if (QN_NEVER(remote->breaker.is_probing && !is_open)) return false;
  for (size_t i = 0; i < QN__REMOTE_CLAIMS; i++) {
    const qn__remote_claim_t* claim = &remote->claims[i];
    if (claim->state != QN__REMOTE_CLAIM_HELD) continue;
    if (QN_NEVER(claim->serial == 0 || claim->serial > remote->claim_serial)) return false;
  }
  return true;
}

// ---- the breaker

// Opens the breaker, or opens it for longer. An operation that was let through before the breaker
// opened changes nothing when it fails later.
static void open_breaker(qn__remote_t* remote, bool is_probe, int64_t now_ns) {
  qn__remote_breaker_t* breaker = &remote->breaker;
  bool is_open = atomic_load(&breaker->open_until_ns) != 0;
  if (is_open && !is_probe) return;
  int64_t period_ns = remote->retry_ns;
  if (is_open) {
    int64_t max_ns = period_ns > MAX_PERIOD_NS ? period_ns : MAX_PERIOD_NS;
    period_ns = breaker->period_ns > max_ns / 2 ? max_ns : 2 * breaker->period_ns;
  }
  assert(period_ns >= remote->retry_ns);
  breaker->period_ns = period_ns;
  atomic_store(&breaker->open_until_ns, qn__after(now_ns, period_ns));
  breaker->is_probing = false;
  breaker->is_logged = false;
  QN__REMOTE_COUNT(remote, remote_breaker_opened, 1);
  refuse_queue(&remote->gets);
}

// Opens the breaker when the running get has not returned in time.
static bool is_overdue(qn__remote_t* remote, int64_t now_ns) {
  const qn__remote_op_t* running = remote->gets.running;
  if (!running || now_ns <= running->deadline_ns) return false;
  open_breaker(remote, false, now_ns);
  return true;
}

bool qn__remote_admits(qn__remote_t* remote, int64_t now_ns, bool* out_is_probe) {
  qn__remote_breaker_t* breaker = &remote->breaker;
  *out_is_probe = false;
  if (is_overdue(remote, now_ns)) return false;
  int64_t until_ns = atomic_load(&breaker->open_until_ns);
  if (until_ns == 0) return true;
  if (now_ns < until_ns || breaker->is_probing || remote->gets.running) return false;
  breaker->is_probing = true;
  *out_is_probe = true;
  QN__REMOTE_COUNT(remote, remote_breaker_probes, 1);
  return true;
}

bool qn__remote_is_writing_off(const qn__remote_t* remote) {
  if (atomic_load_explicit(&remote->breaker.open_until_ns, memory_order_relaxed) != 0) return true;
  int64_t until_ns = atomic_load_explicit(&remote->denied_until_ns, memory_order_relaxed);
  return until_ns != 0 && qn__now_ns() < until_ns;
}

static void deny_writing(qn__remote_t* remote, int64_t now_ns) {
  atomic_store(&remote->denied_until_ns, qn__after(now_ns, remote->latch_ns));
  refuse_queue(&remote->puts);
}

// Applies the result of a get or a claim to the breaker. True when it closed the breaker.
static bool settle(qn__remote_t* remote, const qn__remote_op_t* op, int64_t now_ns) {
  qn__remote_breaker_t* breaker = &remote->breaker;
  assert(has_caller(op));  // requirement 5
  if (op->is_probe) breaker->is_probing = false;
  switch (op->result) {
    case QN__STORE_NO_MEMORY:
      return false;
    case QN__STORE_TIMEOUT:
      open_breaker(remote, op->is_probe, now_ns);
      return false;
    case QN__STORE_ERROR:
      if (++breaker->failure_count >= MAX_FAILURES || op->is_probe) {
        open_breaker(remote, op->is_probe, now_ns);
      }
      return false;
    case QN__STORE_DENIED:
      // The server answers: that it denies a claim says nothing about gets.
      if (op->kind == QN__REMOTE_CLAIM) break;
      open_breaker(remote, op->is_probe, now_ns);
      return false;
    case QN__STORE_OK:
    case QN__STORE_ABSENT:
    case QN__STORE_LARGE:
      break;
  }
  breaker->failure_count = 0;
  if (atomic_exchange(&breaker->open_until_ns, 0) == 0) return false;
  QN__REMOTE_COUNT(remote, remote_breaker_closed, 1);
  return true;
}

// ---- calls of the store, without the lock

static qn__store_result_t connect_to(qn__remote_queue_t* queue, int64_t deadline_ns) {
  qn__remote_t* remote = queue->remote;
  bool was_connected = remote->store->is_connected(queue->connection);
  int64_t limit_ns = qn__after(qn__now_ns(), remote->connect_timeout_ns);
  qn__store_result_t result =
      remote->store->connect(queue->connection, limit_ns < deadline_ns ? limit_ns : deadline_ns);
  if (result != QN__STORE_OK) {
    QN__REMOTE_COUNT(remote, remote_connect_failed, 1);
  } else if (!was_connected) {
    QN__REMOTE_COUNT(remote, remote_connects, 1);
  }
  return result;
}

static void unclaim(qn__remote_queue_t* queue, const char* name, const char* owner,
                    int64_t deadline_ns) {
  qn__remote_t* remote = queue->remote;
  if (connect_to(queue, deadline_ns) == QN__STORE_OK &&
      remote->store->unclaim(queue->connection, qn__str(name), qn__str(owner), deadline_ns) ==
          QN__STORE_OK) {
    QN__REMOTE_COUNT(remote, remote_claims_released, 1);
  }
}

static qn__store_result_t attempt(qn__remote_queue_t* queue, qn__remote_op_t* op) {
  const qn__store_t* store = queue->remote->store;
  const qn_str_t name = {op->name, op->name_size};
  qn__store_result_t result = connect_to(queue, op->deadline_ns);
  if (result != QN__STORE_OK) return result;
  switch (op->kind) {
    case QN__REMOTE_GET:
      return store->get(queue->connection, name,
                        (size_t)queue->remote->max_entry_bytes + QN__REMOTE_HEADER_BYTES,
                        op->deadline_ns, &op->value, &op->value_size);
    case QN__REMOTE_CLAIM:
      return store->claim(queue->connection, name, qn__str(op->owner), op->ttl_ms, op->deadline_ns);
    case QN__REMOTE_PUT:
      return store->put(queue->connection, name, (qn_span_t){op->bytes, op->size_bytes}, op->ttl_ms,
                        op->deadline_ns);
    case QN__REMOTE_UNCLAIM:
      return QN__STORE_OK;
  }
  return QN__STORE_ERROR;
}

static qn__store_result_t perform(qn__remote_queue_t* queue, qn__remote_op_t* op) {
  qn__remote_t* remote = queue->remote;
  if (op->kind == QN__REMOTE_PUT) {
    uint8_t* entry = op->bytes + QN__REMOTE_HEADER_BYTES;
    qn__entry_seal(entry, op->size_bytes - QN__REMOTE_HEADER_BYTES);
    qn__remote_seal(remote, (qn_str_t){op->name, op->name_size}, op->bytes, op->size_bytes);
  }
  bool was_connected = remote->store->is_connected(queue->connection);
  qn__store_result_t result = attempt(queue, op);
  if (result == QN__STORE_ERROR && was_connected && op->kind != QN__REMOTE_CLAIM) {
    QN__REMOTE_COUNT(remote, remote_retried, 1);
    result = attempt(queue, op);
  }
  // The claim ends after the put: another machine finds the entry, or makes it if the put failed.
  if (op->claim[0] && remote->store->is_connected(queue->connection)) {
    unclaim(queue, op->claim, op->owner, op->deadline_ns);
  }
  return result;
}

// ---- the thread

static void count_put(qn__remote_t* remote, const qn__remote_op_t* op) {
  if (op->kind != QN__REMOTE_PUT) return;
  qn__remote_counter_t counter = QN__REMOTE_COUNTER_remote_put_failed_error;
  if (op->result == QN__STORE_OK) {
    counter = QN__REMOTE_COUNTER_remote_put_done;
    QN__REMOTE_COUNT(remote, remote_put_bytes, op->size_bytes);
  }
  if (op->result == QN__STORE_TIMEOUT) counter = QN__REMOTE_COUNTER_remote_put_failed_timeout;
  if (op->result == QN__STORE_DENIED) counter = QN__REMOTE_COUNTER_remote_put_failed_denied;
  if (op->result == QN__STORE_NO_MEMORY) counter = QN__REMOTE_COUNTER_remote_put_dropped_memory;
  qn__counter_add(&remote->counters[counter], 1);
}

static void log_off(const qn__remote_queue_t* queue, const char* what, int64_t period_ns) {
  const qn__remote_t* remote = queue->remote;
  qn__log(QN_LOG_WARN, "remote: %s: %s; %s are off for %" PRId64 " ms", remote->url,
          remote->store->message(queue->connection), what, period_ns / 1000000);
}

// Runs `op` without the lock. False when its deadline passed while it was queued: that says nothing
// about the store, and an operation that is not `running` cannot count as one that hangs.
static bool call_store(qn__remote_queue_t* queue, qn__remote_op_t* op) {
  qn__remote_t* remote = queue->remote;
  int64_t now_ns = qn__now_ns();
  if (!has_caller(op)) op->deadline_ns = qn__after(now_ns, remote->put_timeout_ns);
  op->state = QN__REMOTE_RUNNING;
  op->result = QN__STORE_TIMEOUT;
  if (now_ns >= op->deadline_ns) return false;
  assert(!queue->running && !op->next);
  queue->running = op;
  queue->is_away = true;
  assert(qn__remote_check(remote));
  qn__mutex_unlock(&remote->mutex);
  qn__store_result_t result = perform(queue, op);
  qn__mutex_lock(&remote->mutex);
  assert(qn__remote_check(remote));
  queue->running = NULL;
  queue->is_away = false;
  op->result = result;
  return true;
}

// Runs one operation from the queue to its end. Called with the lock held; releases it meanwhile.
static void run_op(qn__remote_queue_t* queue, qn__remote_op_t* op) {
  qn__remote_t* remote = queue->remote;
  qn__remote_breaker_t* breaker = &remote->breaker;
  bool is_get = has_caller(op);
  bool was_run = call_store(queue, op);
  if (!was_run && op->is_probe) breaker->is_probing = false;
  bool has_closed = is_get && was_run && settle(remote, op, qn__now_ns());
  bool has_opened = is_get && atomic_load(&breaker->open_until_ns) != 0 && !breaker->is_logged;
  breaker->is_logged |= has_opened;
  int64_t period_ns = breaker->period_ns;
  bool is_denied = op->result == QN__STORE_DENIED && op->kind != QN__REMOTE_GET;
  bool is_unwanted = op->kind == QN__REMOTE_CLAIM && op->is_orphan && op->result == QN__STORE_OK;
  if (!is_get) {
    count_put(remote, op);
    finish_put(remote, op);
    op = NULL;
  } else if (!op->is_orphan) {
    op->state = QN__REMOTE_DONE;
    qn__cond_signal(&op->done);
    op = NULL;
  }
  if (is_denied) deny_writing(remote, qn__now_ns());
  assert(qn__remote_check(remote));
  queue->is_away = is_unwanted || has_opened || has_closed || is_denied;
  qn__mutex_unlock(&remote->mutex);

  if (is_denied) log_off(queue, "puts", remote->latch_ns);
  if (has_opened) log_off(queue, "gets", period_ns);
  if (has_closed) qn__log(QN_LOG_INFO, "remote: %s: gets are on again", remote->url);
  if (is_unwanted) {
    unclaim(queue, op->name, op->owner, qn__after(qn__now_ns(), remote->timeout_ns));
  }
  if (op) qn__remote_op_free(remote, op);
  qn__mutex_lock(&remote->mutex);
  queue->is_away = false;
}

static bool is_running(const qn__remote_queue_t* queue) {
  return queue->state == QN__REMOTE_THREAD_RUNNING;
}

static void* run_queue(void* arg) {
  qn__remote_queue_t* queue = arg;
  qn__remote_t* remote = queue->remote;
  qn__mutex_lock(&remote->mutex);
  for (;;) {
    while (!queue->head && !remote->is_closing) qn__cond_wait(&queue->work, &remote->mutex);
    if (remote->is_closing) break;
    qn__remote_op_t* op = queue->head;
    queue->head = op->next;
    if (!queue->head) queue->tail = &queue->head;
    op->next = NULL;
    run_op(queue, op);
  }
  refuse_queue(queue);
  assert(!queue->running && !queue->head);
  queue->state = QN__REMOTE_THREAD_ENDED;
  qn__cond_broadcast(&remote->done);
  bool is_last = remote->is_abandoned && !is_running(&remote->gets) && !is_running(&remote->puts);
  qn__mutex_unlock(&remote->mutex);
  if (is_last) qn__remote_free(remote);
  return NULL;
}

bool qn__remote_queue_start(qn__remote_queue_t* queue) {
  if (queue->state == QN__REMOTE_THREAD_RUNNING) return true;
  qn__remote_free_orphans(queue->remote);
  qn_status_t status =
      qn__thread_start(&queue->thread, queue->thread_name, STACK_BYTES, run_queue, queue);
  if (qn_status_consume(status) != QN_STATUS_OK) return false;
  queue->state = QN__REMOTE_THREAD_RUNNING;
  return true;
}

void qn__remote_queue_push(qn__remote_queue_t* queue, qn__remote_op_t* op) {
  (void)QN_NEVER(op->next || op->state != QN__REMOTE_QUEUED);
  *queue->tail = op;
  queue->tail = &op->next;
  assert(qn__remote_check(queue->remote));
  qn__cond_signal(&queue->work);
}

bool qn__remote_queue_leave(qn__remote_queue_t* queue, qn__remote_op_t* op, int64_t now_ns) {
  // Refuses the queue, and this operation with it, when the thread hangs.
  (void)is_overdue(queue->remote, now_ns);
  if (op->state == QN__REMOTE_RUNNING) {
    op->is_orphan = true;
    if (op->kind == QN__REMOTE_GET) QN__REMOTE_COUNT(queue->remote, remote_orphaned, 1);
    return false;
  }
  if (op->state != QN__REMOTE_QUEUED) return true;
  qn__remote_op_t** at = &queue->head;
  while (*at != op) {
    assert(*at);  // a queued operation is in its queue
    at = &(*at)->next;
  }
  *at = op->next;
  if (queue->tail == &op->next) queue->tail = at;
  if (op->is_probe) queue->remote->breaker.is_probing = false;
  assert(qn__remote_check(queue->remote));
  return true;
}

// ---- fork

static void forget_queue(qn__remote_queue_t* queue) {
  qn__remote_t* remote = queue->remote;
  if (queue->connection) remote->store->forget(queue->connection);
  qn__remote_op_t** end = &remote->orphans;
  while (*end) end = &(*end)->next;
  if (queue->running) {
    // The parent's thread may have been writing these members.
    queue->running->value = NULL;
    queue->running->value_size = 0;
    queue->running->next = NULL;
    *end = queue->running;
    end = &queue->running->next;
  }
  *end = queue->head;
  queue->running = NULL;
  queue->head = NULL;
  queue->tail = &queue->head;
  queue->state = QN__REMOTE_THREAD_NONE;
  queue->is_away = false;
  qn_status_free(qn__cond_init(&queue->work));
}

// The parent runs the queued operations and holds the claims. The child keeps their memory in
// `orphans`, because the host's allocator may not be ready in a fork handler.
void qn__remote_fork_child(void* self) {
  qn__remote_t* remote = self;
  forget_queue(&remote->gets);
  forget_queue(&remote->puts);
  remote->breaker.is_probing = false;
  memset(remote->claims, 0, sizeof remote->claims);
  remote->queue_bytes = 0;
  remote->done_count = remote->put_count;
  // Like the mutex, the condition may count threads of the parent.
  qn_status_free(qn__cond_init(&remote->done));
  assert(qn__remote_check(remote));
}
