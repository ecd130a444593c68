// cache/remote_lane.c: the threads that speak to the store, and the circuit breaker.
//
// Requirements.
//  1. Nobody waits for the network but a lane's own thread. A caller waits for its job, until its
//     deadline, and leaves: a job that runs by then is the thread's to free, one that does not is
//     taken out of the queue.
//  2. Gets never wait behind puts: those have a thread, a connection and a breaker of their own.
//  3. The breaker opens at the first timeout, at the third error in a row, and when the server
//     denies us. Until then everything is let through; while it is open nothing is, and what is
//     queued is refused at once. After its period one operation is let through, the probe; the
//     others are still refused. The probe closes the breaker or opens it for twice as long, at most
//     60 s.
//  4. A thread that does not come back (a name lookup has no deadline) counts as a timeout: the
//     first caller who finds it past its job's deadline opens the breaker, and nothing is let
//     through until the thread is back.
//  5. What a server denies to puts (read-only, role, out of memory) switches puts off and nothing
//     else.
//  6. An operation that fails on a connection that had been idle is tried once more on a new one:
//     servers close idle connections. Not a claim: the first try may have taken it.
//  7. A child of fork has no thread, an empty queue and closed descriptors; its first operation
//     starts a thread of its own.
//  8. Nothing is logged and no call of the store is made with the lock held.
//
// Not here: what callers see (remote.c). Thread rule: in remote_inner.h. Read next:
// redis/redis.c.
#include "base/alloc.h"
#include "base/log.h"
#include "cache/remote_inner.h"

#define MAX_FAILURES 3u
#define LONGEST_PERIOD_NS INT64_C(60000000000)
#define LANE_STACK_BYTES ((size_t)512 * 1024)

// ---- jobs

static size_t job_bytes(size_t size) {
  return sizeof(qn__remote_op_t) + size;
}

qn__remote_op_t* qn__job_make(qn__remote_t* remote, qn__job_kind_t kind, size_t size_bytes) {
  qn__remote_op_t* job = qn__alloc(remote->allocator, job_bytes(size_bytes));
  if (!job) return NULL;
  memset(job, 0, sizeof *job);
  job->kind = kind;
  job->size_bytes = size_bytes;
  if (qn_status_consume(qn__cond_init(&job->done)) == QN_STATUS_OK) return job;
  qn__free(remote->allocator, job, job_bytes(size_bytes));
  return NULL;
}

static void free_memory(qn__remote_t* remote, qn__remote_op_t* job) {
  qn__free(remote->allocator, job->value, job->value_size);
  qn__free(remote->allocator, job, job_bytes(job->size_bytes));
}

void qn__job_free(qn__remote_t* remote, qn__remote_op_t* job) {
  qn__cond_deinit(&job->done);
  free_memory(remote, job);
}

// Jobs of another process: their conditions may count threads that are not here.
void qn__remote_free_orphans(qn__remote_t* remote) {
  while (remote->orphans) {
    qn__remote_op_t* job = remote->orphans;
    remote->orphans = job->next;
    free_memory(remote, job);
  }
}

static bool has_caller(const qn__remote_op_t* job) {
  return job->kind == QN__JOB_GET || job->kind == QN__JOB_CLAIM;
}

// A put that is done or given up.
static void finish_put(qn__remote_queue_t* lane, qn__remote_op_t* job) {
  qn__remote_t* remote = lane->remote;
  remote->queue_bytes -= job->size_bytes;
  remote->done_count++;
  qn__cond_broadcast(&remote->done);
  qn__job_free(remote, job);
}

// Empties the queue: callers are told, puts are dropped.
static void refuse_queue(qn__remote_queue_t* lane) {
  qn__remote_t* remote = lane->remote;
  qn__remote_op_t* job = lane->head;
  lane->head = NULL;
  lane->tail = &lane->head;
  while (job) {
    qn__remote_op_t* next = job->next;
    job->next = NULL;
    if (has_caller(job)) {
      job->state = QN__JOB_REFUSED;
      qn__cond_signal(&job->done);
    } else {
      if (job->kind == QN__JOB_PUT && remote->is_closing) {
        QN__REMOTE_COUNT(remote, remote_put_dropped_closing, 1);
      } else if (job->kind == QN__JOB_PUT) {
        QN__REMOTE_COUNT(remote, remote_put_dropped_off, 1);
      }
      finish_put(lane, job);
    }
    job = next;
  }
}

// ---- the breaker

// Opens the breaker, or opens it for longer. An operation that was let through before it opened
// changes nothing any more.
static void trip(qn__remote_queue_t* lane, bool is_probe, int64_t least_ns, int64_t now_ns) {
  bool is_open = atomic_load(&lane->open_until_ns) != 0;
  if (is_open && !is_probe) return;
  int64_t period_ns = lane->remote->retry_ns;
  if (is_open) {
    int64_t max_ns = period_ns > LONGEST_PERIOD_NS ? period_ns : LONGEST_PERIOD_NS;
    period_ns = lane->period_ns > max_ns / 2 ? max_ns : 2 * lane->period_ns;
  }
  if (period_ns < least_ns) period_ns = least_ns;
  lane->period_ns = period_ns;
  atomic_store(&lane->open_until_ns, qn__after(now_ns, period_ns));
  lane->is_probing = false;
  lane->is_logged = false;
  lane->is_denied = least_ns > 0;
  if (lane->is_puts) {
    QN__REMOTE_COUNT(lane->remote, remote_put_opened, 1);
  } else {
    QN__REMOTE_COUNT(lane->remote, remote_breaker_opened, 1);
  }
  refuse_queue(lane);
}

// True when the thread has not come back from a job in time.
static bool is_overdue(qn__remote_queue_t* lane, int64_t now_ns) {
  if (!lane->running || now_ns <= lane->running->deadline_ns) return false;
  trip(lane, false, 0, now_ns);
  return true;
}

bool qn__lane_takes_unclaims(qn__remote_queue_t* lane, int64_t now_ns) {
  return !is_overdue(lane, now_ns) && (atomic_load(&lane->open_until_ns) == 0 || lane->is_denied);
}

bool qn__lane_admits(qn__remote_queue_t* lane, int64_t now_ns, bool* out_is_probe) {
  *out_is_probe = false;
  if (is_overdue(lane, now_ns)) return false;
  int64_t until_ns = atomic_load(&lane->open_until_ns);
  if (until_ns == 0) return true;
  if (now_ns < until_ns || lane->is_probing || lane->running) return false;
  lane->is_probing = true;
  *out_is_probe = true;
  QN__REMOTE_COUNT(lane->remote, remote_breaker_probes, 1);
  return true;
}

// What an operation says about the store. True when the breaker closed by it.
static bool settle(qn__remote_queue_t* lane, const qn__remote_op_t* job, int64_t now_ns) {
  if (job->is_probe) lane->is_probing = false;
  // That a claim could be given back says nothing of puts.
  if (job->kind == QN__JOB_UNCLAIM && job->result == QN__STORE_OK) return false;
  switch (job->result) {
    case QN__STORE_NO_MEMORY:
      return false;
    case QN__STORE_TIMEOUT:
      trip(lane, job->is_probe, 0, now_ns);
      return false;
    case QN__STORE_ERROR:
      if (++lane->failure_count >= MAX_FAILURES || job->is_probe) {
        trip(lane, job->is_probe, 0, now_ns);
      }
      return false;
    case QN__STORE_DENIED:
      // Whether keys may be claimed says nothing about gets.
      if (job->kind == QN__JOB_CLAIM) {
        trip(&lane->remote->puts, false, lane->remote->latch_ns, now_ns);
        break;
      }
      trip(lane, job->is_probe, lane->is_puts ? lane->remote->latch_ns : 0, now_ns);
      return false;
    case QN__STORE_OK:
    case QN__STORE_ABSENT:
    case QN__STORE_LARGE:
      break;
  }
  lane->failure_count = 0;
  if (atomic_exchange(&lane->open_until_ns, 0) == 0) return false;
  QN__REMOTE_COUNT(lane->remote, remote_breaker_closed, 1);
  return true;
}

// ---- the thread

static qn__store_result_t connect_to(qn__remote_queue_t* lane, int64_t deadline_ns) {
  qn__remote_t* remote = lane->remote;
  bool was_connected = remote->store->is_connected(lane->connection);
  int64_t limit_ns = qn__after(qn__now_ns(), remote->connect_timeout_ns);
  qn__store_result_t result =
      remote->store->connect(lane->connection, limit_ns < deadline_ns ? limit_ns : deadline_ns);
  if (result != QN__STORE_OK) {
    QN__REMOTE_COUNT(remote, remote_connect_failed, 1);
  } else if (!was_connected) {
    QN__REMOTE_COUNT(remote, remote_connects, 1);
  }
  return result;
}

static void unclaim(qn__remote_queue_t* lane, const char* name, const char* owner,
                    int64_t deadline_ns) {
  qn__remote_t* remote = lane->remote;
  if (connect_to(lane, deadline_ns) == QN__STORE_OK &&
      remote->store->unclaim(lane->connection, qn__str(name), qn__str(owner), deadline_ns) ==
          QN__STORE_OK) {
    QN__REMOTE_COUNT(remote, remote_claims_released, 1);
  }
}

static qn__store_result_t attempt(qn__remote_queue_t* lane, qn__remote_op_t* job) {
  const qn__store_t* store = lane->remote->store;
  const qn_str_t name = {job->name, job->name_size};
  qn__store_result_t result = connect_to(lane, job->deadline_ns);
  if (result != QN__STORE_OK) return result;
  switch (job->kind) {
    case QN__JOB_GET:
      return store->get(lane->connection, name,
                        (size_t)lane->remote->max_entry_bytes + QN__REMOTE_HEADER_BYTES,
                        job->deadline_ns, &job->value, &job->value_size);
    case QN__JOB_CLAIM:
      return store->claim(lane->connection, name, qn__str(job->owner), job->ttl_ms,
                          job->deadline_ns);
    case QN__JOB_PUT:
      return store->put(lane->connection, name, (qn_span_t){job->bytes, job->size_bytes},
                        job->ttl_ms, job->deadline_ns);
    case QN__JOB_UNCLAIM:
      return QN__STORE_OK;
  }
  return QN__STORE_ERROR;
}

static qn__store_result_t perform(qn__remote_queue_t* lane, qn__remote_op_t* job) {
  qn__remote_t* remote = lane->remote;
  if (job->kind == QN__JOB_PUT) {
    uint8_t* entry = job->bytes + QN__REMOTE_HEADER_BYTES;
    qn__entry_seal(entry, job->size_bytes - QN__REMOTE_HEADER_BYTES);
    qn__remote_seal(remote, (qn_str_t){job->name, job->name_size}, job->bytes, job->size_bytes);
  }
  bool was_connected = remote->store->is_connected(lane->connection);
  qn__store_result_t result = attempt(lane, job);
  if (result == QN__STORE_ERROR && was_connected && job->kind != QN__JOB_CLAIM) {
    QN__REMOTE_COUNT(remote, remote_retried, 1);
    result = attempt(lane, job);
  }
  // A claim outlives a put that failed: another machine may make the entry then.
  if (job->claim[0] && remote->store->is_connected(lane->connection)) {
    unclaim(lane, job->claim, job->owner, job->deadline_ns);
  }
  return result;
}

static void count_put(qn__remote_t* remote, const qn__remote_op_t* job) {
  if (job->kind != QN__JOB_PUT) return;
  switch (job->result) {
    case QN__STORE_OK:
      QN__REMOTE_COUNT(remote, remote_put_done, 1);
      QN__REMOTE_COUNT(remote, remote_put_bytes, job->size_bytes);
      break;
    case QN__STORE_TIMEOUT:
      QN__REMOTE_COUNT(remote, remote_put_failed_timeout, 1);
      break;
    case QN__STORE_DENIED:
      QN__REMOTE_COUNT(remote, remote_put_failed_denied, 1);
      break;
    case QN__STORE_NO_MEMORY:
      QN__REMOTE_COUNT(remote, remote_put_dropped_memory, 1);
      break;
    case QN__STORE_ABSENT:
    case QN__STORE_LARGE:
    case QN__STORE_ERROR:
      QN__REMOTE_COUNT(remote, remote_put_failed_error, 1);
      break;
  }
}

static void log_open(const qn__remote_queue_t* lane, int64_t period_ns) {
  const qn__remote_t* remote = lane->remote;
  qn__log(QN__LOG_WARN, "remote: %s: %s; %s are off for %" PRId64 " ms", remote->url,
          remote->store->message(lane->connection), lane->what, period_ns / 1000000);
}

// With the lock held and let go inside: one job from the queue to its end.
static void run_job(qn__remote_queue_t* lane, qn__remote_op_t* job) {
  qn__remote_t* remote = lane->remote;
  int64_t now_ns = qn__now_ns();
  if (!has_caller(job)) job->deadline_ns = qn__after(now_ns, remote->put_timeout_ns);
  job->state = QN__JOB_RUNNING;
  job->result = QN__STORE_TIMEOUT;
  // A job that waited in the queue for too long says nothing of the store: it is never `running`,
  // or who comes meanwhile would take it for one that hangs.
  bool is_in_time = now_ns < job->deadline_ns;
  if (is_in_time) {
    lane->running = job;
    lane->is_away = true;
    qn__mutex_unlock(&remote->mutex);
    qn__store_result_t result = perform(lane, job);
    now_ns = qn__now_ns();
    qn__mutex_lock(&remote->mutex);
    lane->running = NULL;
    lane->is_away = false;
    job->result = result;
  }
  if (!is_in_time && job->is_probe) lane->is_probing = false;
  bool has_closed = is_in_time && settle(lane, job, now_ns);
  bool has_opened = atomic_load(&lane->open_until_ns) != 0 && !lane->is_logged;
  lane->is_logged |= has_opened;
  int64_t period_ns = lane->period_ns;
  bool gives_claim_back =
      job->kind == QN__JOB_CLAIM && job->is_orphan && job->result == QN__STORE_OK;
  if (!has_caller(job)) {
    count_put(remote, job);
    finish_put(lane, job);
    job = NULL;
  } else if (!job->is_orphan) {
    job->state = QN__JOB_DONE;
    qn__cond_signal(&job->done);
    job = NULL;
  }
  lane->is_away = gives_claim_back || has_opened || has_closed;
  qn__mutex_unlock(&remote->mutex);

  if (gives_claim_back) {
    unclaim(lane, job->name, job->owner, qn__after(qn__now_ns(), remote->timeout_ns));
  }
  if (job) qn__job_free(remote, job);
  if (has_opened) log_open(lane, period_ns);
  if (has_closed) qn__log(QN__LOG_INFO, "remote: %s: %s are on again", remote->url, lane->what);
  qn__mutex_lock(&remote->mutex);
  lane->is_away = false;
}

static bool is_running(const qn__remote_queue_t* lane) {
  return lane->state == QN__LANE_RUNNING;
}

static void* run_lane(void* arg) {
  qn__remote_queue_t* lane = arg;
  qn__remote_t* remote = lane->remote;
  qn__mutex_lock(&remote->mutex);
  for (;;) {
    while (!lane->head && !remote->is_closing) qn__cond_wait(&lane->work, &remote->mutex);
    if (remote->is_closing) break;
    qn__remote_op_t* job = lane->head;
    lane->head = job->next;
    if (!lane->head) lane->tail = &lane->head;
    job->next = NULL;
    run_job(lane, job);
  }
  refuse_queue(lane);
  lane->state = QN__LANE_ENDED;
  qn__cond_broadcast(&remote->done);
  bool is_mine = remote->is_abandoned && !is_running(&remote->asks) && !is_running(&remote->puts);
  qn__mutex_unlock(&remote->mutex);
  if (is_mine) qn__remote_free(remote);
  return NULL;
}

bool qn__lane_start(qn__remote_queue_t* lane) {
  if (lane->state == QN__LANE_RUNNING) return true;
  qn__remote_free_orphans(lane->remote);
  qn_status_t status =
      qn__thread_start(&lane->thread, lane->thread_name, LANE_STACK_BYTES, run_lane, lane);
  if (qn_status_consume(status) != QN_STATUS_OK) return false;
  lane->state = QN__LANE_RUNNING;
  return true;
}

void qn__lane_push(qn__remote_queue_t* lane, qn__remote_op_t* job) {
  *lane->tail = job;
  lane->tail = &job->next;
  qn__cond_signal(&lane->work);
}

bool qn__lane_leave(qn__remote_queue_t* lane, qn__remote_op_t* job, int64_t now_ns) {
  // Refuses the queue, and this job with it, when the thread hangs.
  (void)is_overdue(lane, now_ns);
  if (job->state == QN__JOB_RUNNING) {
    job->is_orphan = true;
    if (job->kind == QN__JOB_GET) QN__REMOTE_COUNT(lane->remote, remote_orphaned, 1);
    return false;
  }
  if (job->state != QN__JOB_QUEUED) return true;
  qn__remote_op_t** at = &lane->head;
  while (*at != job) at = &(*at)->next;
  *at = job->next;
  if (lane->tail == &job->next) lane->tail = at;
  if (job->is_probe) lane->is_probing = false;
  return true;
}

// ---- fork

void qn__remote_fork_prepare(void* self) {
  qn__remote_t* remote = self;
  qn__mutex_lock(&remote->mutex);
}

void qn__remote_fork_parent(void* self) {
  qn__remote_t* remote = self;
  qn__mutex_unlock(&remote->mutex);
}

static void forget_lane(qn__remote_queue_t* lane) {
  qn__remote_t* remote = lane->remote;
  if (lane->connection) remote->store->forget(lane->connection);
  qn__remote_op_t** end = &remote->orphans;
  while (*end) end = &(*end)->next;
  if (lane->running) {
    // What the thread was filling is not ours to look at.
    lane->running->value = NULL;
    lane->running->value_size = 0;
    lane->running->next = NULL;
    *end = lane->running;
    end = &lane->running->next;
  }
  *end = lane->head;
  lane->running = NULL;
  lane->head = NULL;
  lane->tail = &lane->head;
  lane->is_probing = false;
  lane->state = QN__LANE_NONE;
  lane->is_away = false;
  qn_status_free(qn__cond_init(&lane->work));
}

// The child has this thread alone. What was queued or claimed is the parent's; the memory is only
// set aside, because an allocator of the host's may not be ready yet in a fork handler.
void qn__remote_fork_child(void* self) {
  qn__remote_t* remote = self;
  forget_lane(&remote->asks);
  forget_lane(&remote->puts);
  memset(remote->claims, 0, sizeof remote->claims);
  remote->queue_bytes = 0;
  remote->done_count = remote->put_count;
  // Made anew instead of being let go, as in publish.c: they count threads of the parent's.
  qn_status_free(qn__cond_init(&remote->done));
  qn_status_free(qn__mutex_init(&remote->mutex));
}
