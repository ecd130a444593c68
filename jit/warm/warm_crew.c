// jit/warm/warm_crew.c: worker processes: starting them, handing out keys, hearing results, losing
// them.
//
// Every wait has a deadline: a start, a key, an end. Whatever a worker does, the worst is that its
// key is given up; what it says is read strictly, and a worker that says something else is killed.
// One poll loop. Not here: processes (warm_process.c), frames (warm_message.c).
// Thread rule: one thread. Read next: warm_worker.c.
#include "jit/warm/warm_crew.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "jit/engine/lookup.h"

#define START_TIMEOUT_NS INT64_C(30000000000)
// After the end of the conversation a worker waits for its publishes.
#define END_GRACE_NS INT64_C(6000000000)
// A worker that closed its socket is about to end.
#define DEATH_GRACE_NS INT64_C(1000000000)
// Starts that may fail one after the other.
#define MAX_FAILED_STARTS 3u
#define RESTART_PAUSE_NS INT64_C(1000000000)
#define NO_JOB SIZE_MAX
#define PIPE_BYTES 65536u

// ------------------------------------------------------------------------------------ workers

// Reads what the worker said on its standard error, and keeps the end of it. One that talks without
// end is heard a pipe's content at a time: others, and the clock, have their turn.
static void read_errors(qn__warm_worker_t* worker) {
  char data[QN__WARM_TAIL_BYTES];
  for (size_t turn = 0; turn < PIPE_BYTES / sizeof data; turn++) {
    ssize_t got = qn__process_receive(worker->process.errors, data, sizeof data);
    if (got < 0) return;
    if (got == 0) {
      // Nobody writes there any more: the poll need not look.
      (void)qn__fs()->close(worker->process.errors);
      worker->process.errors = -1;
      return;
    }
    size_t size = (size_t)got;
    size_t kept = worker->tail_size + size > QN__WARM_TAIL_BYTES ? QN__WARM_TAIL_BYTES - size
                                                                 : worker->tail_size;
    memmove(worker->tail, worker->tail + worker->tail_size - kept, kept);
    memcpy(worker->tail + kept, data, size);
    worker->tail_size = kept + size;
  }
}

// The tail as one line of text, for a message.
static const char* tail_text(qn__warm_worker_t* worker) {
  size_t size = 0;
  for (size_t i = 0; i < worker->tail_size; i++) {
    char c = worker->tail[i];
    worker->tail[size++] = (unsigned char)c < ' ' ? ' ' : c;
  }
  while (size > 0 && worker->tail[size - 1] == ' ') size--;
  worker->tail[size] = '\0';
  return worker->tail;
}

static void begin_send(qn__warm_worker_t* worker) {
  ssize_t sent = 0;
  while (worker->out_at < worker->out.size) {
    sent = qn__process_send(worker->process.socket, worker->out.data + worker->out_at,
                            worker->out.size - worker->out_at);
    if (sent <= 0) break;  // later, or the end is read soon
    worker->out_at += (size_t)sent;
  }
  if (sent < 0 || worker->out_at == worker->out.size) {
    qn__buffer_clear(&worker->out);
    worker->out_at = 0;
  }
}

static qn_status_t start_worker(qn__warmer_t* w, qn__warm_worker_t* worker) {
  // First what may fail without a process.
  worker->out_at = 0;
  qn__buffer_clear(&worker->in);
  qn__buffer_clear(&worker->out);
  qn__buffer_str(&worker->out, qn__buffer_as_str(&w->hello));
  QN_TRY(qn__buffer_status(&worker->out, "a message"));
  QN_TRY(qn__process_start(w->command, &worker->process));
  w->result->worker_count++;
  worker->state = QN__WORKER_STARTING;
  worker->job = NO_JOB;
  worker->deadline_ns = qn__now_ns() + START_TIMEOUT_NS;
  worker->tail_size = 0;
  begin_send(worker);
  return QN_OK;
}

static void note_failed_start(qn__warmer_t* w, qn_status_t status) {
  qn_status_free(w->start_status);
  w->start_status = status;
  w->failed_starts++;
  w->restart_ns = qn__now_ns() + RESTART_PAUSE_NS;
}

static void end_process(qn__warm_worker_t* worker, int64_t grace_ns, qn__process_end_t* out_end) {
  (void)qn__process_finish(&worker->process, grace_ns, out_end);
  worker->state = QN__WORKER_OFF;
  worker->job = NO_JOB;
}

static void describe_end(const qn__process_end_t* end, char out[96]) {
  char signal_text[32];
  if (!end->is_known) {
    (void)snprintf(out, 96, "is gone");
  } else if (end->signal) {
    (void)snprintf(out, 96, "died of %s", qn__signal_text(end->signal, signal_text));
  } else {
    (void)snprintf(out, 96, "exited with code %d", end->code);
  }
}

// The worker has ended, or (`is_noise`) says what no worker says.
static void lose_worker(qn__warmer_t* w, qn__warm_worker_t* worker, bool is_noise) {
  qn__worker_state_t state = worker->state;
  size_t job = worker->job;
  qn__process_end_t end;
  if (worker->process.errors >= 0) read_errors(worker);
  end_process(worker, is_noise ? 0 : DEATH_GRACE_NS, &end);
  char how[96];
  if (is_noise) {
    (void)snprintf(how, sizeof how, "sent what no worker sends");
  } else {
    describe_end(&end, how);
  }
  const char* tail = tail_text(worker);
  // Also one that said it was ready, and left: the next one may do the same, without end.
  if (state == QN__WORKER_STARTING || state == QN__WORKER_IDLE) {
    note_failed_start(
        w, qn_status_make(QN_STATUS_UNAVAILABLE, "'%s warm --worker' does not work: it %s%s%s",
                          w->command, how, tail[0] ? "; it said: " : "", tail));
  }
  if (state != QN__WORKER_BUSY) return;
  w->busy_count--;
  if (w->keys[job].attempt_count < QN__WARM_MAX_ATTEMPTS && !w->result->is_cancelled) {
    w->queue[w->tail++] = job;
    return;
  }
  char message[QN__WARM_TAIL_BYTES + 256];
  (void)snprintf(message, sizeof message, "%u workers did not survive it, the last %s%s%s",
                 (unsigned)w->keys[job].attempt_count, how, tail[0] ? "; it said: " : "", tail);
  qn__warm_verdict_t verdict = {.outcome = QN_WARM_CRASHED,
                                .signal = end.signal,
                                .code = QN_STATUS_INTERNAL,
                                .error = message};
  w->made_count++;
  qn__warm_finish_key(w, job, &verdict);
}

// What takes longer than it may is killed.
static void time_out(qn__warmer_t* w, qn__warm_worker_t* worker) {
  qn__worker_state_t state = worker->state;
  size_t job = worker->job;
  qn__process_end_t end;
  qn__process_kill(&worker->process);
  end_process(worker, 0, &end);
  if (state == QN__WORKER_STARTING) {
    note_failed_start(
        w, qn_status_make(QN_STATUS_UNAVAILABLE, "'%s warm --worker' said nothing for %d seconds",
                          w->command, (int)(START_TIMEOUT_NS / 1000000000)));
  }
  if (state != QN__WORKER_BUSY) return;
  char message[96];
  double seconds =
      (double)(w->options->timeout_ns ? w->options->timeout_ns : QN__WARM_DEFAULT_TIMEOUT_NS) / 1e9;
  (void)snprintf(message, sizeof message, "its worker was killed after %g s", seconds);
  qn__warm_verdict_t verdict = {
      .outcome = QN_WARM_TIMED_OUT, .code = QN_STATUS_DEADLINE_EXCEEDED, .error = message};
  w->busy_count--;
  w->made_count++;
  qn__warm_finish_key(w, job, &verdict);
}

// ------------------------------------------------------------------------------------ messages

static bool take_result(qn__warmer_t* w, qn__warm_worker_t* worker,
                        const qn__warm_message_t* message) {
  if (worker->state != QN__WORKER_BUSY || message->id != worker->job) return false;
  size_t job = worker->job;
  worker->state = QN__WORKER_IDLE;
  worker->job = NO_JOB;
  w->busy_count--;
  w->made_count++;
  w->failed_starts = 0;
  char* text = qn__copy_cstr(w->engine->allocator, message->text);
  qn__warm_verdict_t verdict = {
      .outcome = message->outcome,
      .key = message->key,
      .compile_ns = message->outcome == QN_WARM_COMPILED ? message->compile_ns : 0,
      .code = message->code,
      .error = text};
  qn__warm_finish_key(w, job, &verdict);
  qn__free_cstr(w->engine->allocator, text);
  return true;
}

// False for what a worker does not say.
static bool take_message(qn__warmer_t* w, qn__warm_worker_t* worker,
                         const qn__warm_message_t* message) {
  switch (message->kind) {
    case QN__WARM_READY:
      if (worker->state != QN__WORKER_STARTING || message->protocol != QN__WARM_PROTOCOL)
        return false;
      worker->state = QN__WORKER_IDLE;
      return true;
    case QN__WARM_BROKEN:
      if (worker->state != QN__WORKER_STARTING) return false;
      note_failed_start(
          w, qn_status_make(message->code == QN_STATUS_OK ? QN_STATUS_UNAVAILABLE : message->code,
                            "a worker cannot work: %.*s", QN_STR_ARG(message->text)));
      worker->state = QN__WORKER_ENDING;  // it has told why
      w->failed_starts = MAX_FAILED_STARTS;
      return false;
    case QN__WARM_RESULT:
      return take_result(w, worker, message);
    case QN__WARM_HELLO:
    case QN__WARM_JOB:
      break;
  }
  return false;
}

// Takes whole frames from the front of what has come. False when it is none.
static bool take_frames(qn__warmer_t* w, qn__warm_worker_t* worker) {
  size_t at = 0;
  bool is_good = true;
  while (is_good && worker->in.size - at >= QN__WARM_LENGTH_BYTES) {
    size_t size;
    is_good = qn__warm_message_length(worker->in.data + at, &size);
    if (!is_good || worker->in.size - at - QN__WARM_LENGTH_BYTES < size) break;
    qn__warm_message_t message;
    is_good = qn__warm_message_decode(
                  (qn_span_t){worker->in.data + at + QN__WARM_LENGTH_BYTES, size}, &message) &&
              take_message(w, worker, &message);
    at += QN__WARM_LENGTH_BYTES + size;
  }
  size_t left = worker->in.size - at;
  if (at > 0) {
    memmove(worker->in.data, worker->in.data + at, left);
    worker->in.size = left;
  }
  return is_good;
}

static void hear_worker(qn__warmer_t* w, qn__warm_worker_t* worker) {
  uint8_t data[4096];
  for (;;) {
    ssize_t got = qn__process_receive(worker->process.socket, data, sizeof data);
    if (got < 0) return;
    if (got > 0) {
      qn__buffer_bytes(&worker->in, data, (size_t)got);
      if (!worker->in.has_failed && take_frames(w, worker)) continue;
    }
    lose_worker(w, worker, got > 0);
    return;
  }
}

static void give_job(qn__warmer_t* w, qn__warm_worker_t* worker) {
  size_t job = w->queue[w->head++];
  const qn__warm_entry_t* entry = &w->list->entries[job];
  qn__warm_message_t message = {
      .kind = QN__WARM_JOB,
      .id = job,
      .tier = entry->tier,
      .is_checked = entry->is_checked,
      .target_json = qn__str(qn_target_json(entry->target)),
      .module = {entry->module->bytes, entry->module->byte_count},
  };
  w->keys[job].attempt_count++;
  qn__warm_message_encode(&message, &worker->out);
  if (worker->out.has_failed) {
    qn__buffer_clear(&worker->out);
    qn__warm_verdict_t verdict = {
        .outcome = QN_WARM_FAILED,
        .code = QN_STATUS_OUT_OF_MEMORY,
        .error = "no memory to hand the module to a worker, or it is too large"};
    qn__warm_finish_key(w, job, &verdict);
    return;
  }
  worker->state = QN__WORKER_BUSY;
  worker->job = job;
  worker->deadline_ns = qn__deadline_after(w->options->timeout_ns ? w->options->timeout_ns
                                                                  : QN__WARM_DEFAULT_TIMEOUT_NS);
  w->busy_count++;
  begin_send(worker);
}

// ------------------------------------------------------------------------------------ the loop

static size_t waiting_count(const qn__warmer_t* w) {
  return w->tail - w->head;
}

static size_t count_workers(const qn__warmer_t* w, qn__worker_state_t state) {
  size_t count = 0;
  for (size_t i = 0; i < w->worker_count; i++) count += w->workers[i].state == state;
  return count;
}

// Hands keys to idle workers and starts more while keys wait. Errors: no worker can be had.
static qn_status_t staff(qn__warmer_t* w) {
  for (size_t i = 0; i < w->worker_count && waiting_count(w) > 0; i++) {
    if (w->workers[i].state == QN__WORKER_IDLE) give_job(w, &w->workers[i]);
  }
  size_t coming = count_workers(w, QN__WORKER_STARTING);
  bool has_any = coming + count_workers(w, QN__WORKER_BUSY) + count_workers(w, QN__WORKER_IDLE) > 0;
  if (w->failed_starts >= MAX_FAILED_STARTS && !has_any && waiting_count(w) > 0) {
    qn_status_t status = w->start_status;
    w->start_status = QN_OK;
    return status;
  }
  // After a failure one start at a time tells whether the next one works.
  if (w->failed_starts > 0 && (coming > 0 || (has_any && qn__now_ns() < w->restart_ns))) {
    return QN_OK;
  }
  for (size_t i = 0; i < w->worker_count && coming < waiting_count(w); i++) {
    if (w->workers[i].state != QN__WORKER_OFF) continue;
    qn_status_t status = start_worker(w, &w->workers[i]);
    if (!qn_ok(status)) {
      note_failed_start(w, status);
      break;
    }
    coming++;
    if (w->failed_starts > 0) break;
  }
  return QN_OK;
}

static void wait_for_workers(qn__warmer_t* w) {
  int64_t now_ns = qn__now_ns();
  int64_t wake_ns = now_ns + QN__WARM_TICK_NS;
  for (size_t i = 0; i < w->worker_count; i++) {
    const qn__warm_worker_t* worker = &w->workers[i];
    struct pollfd* fds = &w->fds[2 * i];
    fds[0] = (struct pollfd){.fd = -1};
    fds[1] = (struct pollfd){.fd = -1};
    if (worker->state == QN__WORKER_OFF) continue;
    fds[0].fd = worker->process.socket;
    fds[0].events = (short)(worker->out.size ? POLLIN | POLLOUT : POLLIN);
    fds[1].fd = worker->process.errors;
    fds[1].events = POLLIN;
    if (worker->state != QN__WORKER_IDLE && worker->deadline_ns < wake_ns)
      wake_ns = worker->deadline_ns;
  }
  int64_t left_ns = wake_ns - now_ns;
  int left_ms = left_ns <= 0 ? 0 : (int)(left_ns / 1000000) + 1;
  // An interrupt by a signal is a tick that comes early.
  if (poll(w->fds, (nfds_t)(2 * w->worker_count), left_ms) < 0) {
    for (size_t i = 0; i < 2 * w->worker_count; i++) w->fds[i].revents = 0;
  }
}

static void serve_workers(qn__warmer_t* w) {
  int64_t now_ns = qn__now_ns();
  for (size_t i = 0; i < w->worker_count; i++) {
    qn__warm_worker_t* worker = &w->workers[i];
    const struct pollfd* fds = &w->fds[2 * i];
    if (worker->state == QN__WORKER_OFF) continue;
    if (fds[1].fd >= 0 && fds[1].revents) read_errors(worker);
    if (fds[0].fd >= 0 && (fds[0].revents & POLLOUT)) begin_send(worker);
    if (fds[0].fd >= 0 && (fds[0].revents & ~POLLOUT)) hear_worker(w, worker);
    if ((worker->state == QN__WORKER_BUSY || worker->state == QN__WORKER_STARTING) &&
        now_ns >= worker->deadline_ns) {
      time_out(w, worker);
    }
  }
}

qn_status_t qn__warm_work(qn__warmer_t* w) {
  int64_t told_ns = 0;
  w->work_start_ns = qn__now_ns();
  while (waiting_count(w) + w->busy_count > 0 && !w->result->is_cancelled) {
    QN_TRY(staff(w));
    wait_for_workers(w);
    serve_workers(w);
    if (qn__now_ns() - told_ns < QN__WARM_TICK_NS) continue;
    told_ns = qn__now_ns();
    qn__warm_tell(w, NULL);
  }
  return QN_OK;
}

// Those who work are killed: nobody waits for their keys any more. The others have nothing left but
// to close their engines.
void qn__warm_dismiss(qn__warmer_t* w) {
  qn__process_end_t end;
  for (size_t i = 0; i < w->worker_count; i++) {
    qn__warm_worker_t* worker = &w->workers[i];
    if (worker->state == QN__WORKER_BUSY || worker->state == QN__WORKER_STARTING)
      qn__process_kill(&worker->process);
    if (worker->state != QN__WORKER_OFF) qn__process_hang_up(&worker->process);
  }
  int64_t deadline_ns = qn__now_ns() + END_GRACE_NS;
  for (size_t i = 0; i < w->worker_count; i++) {
    qn__warm_worker_t* worker = &w->workers[i];
    int64_t left_ns = deadline_ns - qn__now_ns();
    if (worker->state != QN__WORKER_OFF) end_process(worker, left_ns > 0 ? left_ns : 0, &end);
  }
}
