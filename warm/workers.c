// SPDX-License-Identifier: Apache-2.0
// warm/workers.c: starts worker processes, hands out keys, takes results and replaces workers that
// end.
//
// One poll loop. Every wait has a deadline: a start, a key, an end. A worker that sends anything
// but the message that is due is killed: at worst its key is given up.
#include <ctype.h>
#include <stdio.h>
#include <unistd.h>

#include "warm/coordinator.h"

#define START_TIMEOUT_NS INT64_C(30000000000)
// A worker whose socket was closed waits for its publishes before it ends.
#define END_GRACE_NS INT64_C(6000000000)
// A worker that closed its socket is about to end.
#define DEATH_GRACE_NS INT64_C(1000000000)
// Starts in a row that may fail.
#define MAX_FAILED_STARTS 3u
#define RESTART_PAUSE_NS INT64_C(1000000000)
#define NO_TASK SIZE_MAX
#define PIPE_BYTES 65536u
// The tail as text: each byte may become four.
#define TAIL_TEXT_BYTES (4 * QN__WARM_TAIL_BYTES + 1)

static int64_t timeout_of(const qn__warm_up_t* up) {
  return up->options->time_limit_ns ? up->options->time_limit_ns : QN__WARM_DEFAULT_TIMEOUT_NS;
}

// ------------------------------------------------------------------------------------ workers

// Reads the worker's standard error and keeps the end of it. Stops after one pipe's content, so
// that a worker that writes without end holds up neither the others nor the clock.
static void read_errors(qn__warm_worker_t* worker) {
  char data[QN__WARM_TAIL_BYTES];
  for (size_t turn = 0; turn < PIPE_BYTES / sizeof data; turn++) {
    ssize_t got = qn__warm_process_receive(worker->process.errors, data, sizeof data);
    if (got < 0) return;
    if (got == 0) {
      // The other end is closed: the poll need not look.
      (void)close(worker->process.errors);
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

// Returns the tail as one line of text, for a message.
static const char* tail_text(qn__warm_worker_t* worker, char out[TAIL_TEXT_BYTES]) {
  size_t size = worker->tail_size;
  for (size_t i = 0; i < size; i++) {
    if (isspace((unsigned char)worker->tail[i])) worker->tail[i] = ' ';
  }
  while (size > 0 && worker->tail[size - 1] == ' ') size--;
  (void)qn_text_escape(worker->tail, size, false, out, TAIL_TEXT_BYTES);
  return out;
}

static void send_to(qn__warm_worker_t* worker) {
  assert(worker->out_at <= worker->out.size);
  ssize_t sent = 0;
  while (worker->out_at < worker->out.size) {
    sent = qn__warm_process_send(worker->process.socket, worker->out.data + worker->out_at,
                                 worker->out.size - worker->out_at);
    if (sent <= 0) break;  // later, or the end is read soon
    worker->out_at += (size_t)sent;
  }
  if (sent < 0 || worker->out_at == worker->out.size) {
    qn__warm_bytes_clear(&worker->out);
    worker->out_at = 0;
  }
}

static qn_status_t start_worker(qn__warm_up_t* up, qn__warm_worker_t* worker) {
  // The message first: it may fail without leaving a process.
  worker->out_at = 0;
  qn__warm_bytes_clear(&worker->in);
  qn__warm_bytes_clear(&worker->out);
  qn__warm_put(&worker->out, (qn__warm_span_t){up->hello.data, up->hello.size});
  if (worker->out.has_failed) return qn__warm_no_memory("a message");
  qn_status_t status = qn__warm_process_start(up->command, &worker->process);
  if (!qn_ok(status)) return status;
  up->result->worker_count++;
  worker->state = QN__WORKER_STARTING;
  worker->task = NO_TASK;
  worker->deadline_ns = qn__warm_now_ns() + START_TIMEOUT_NS;
  worker->tail_size = 0;
  send_to(worker);
  return QN_OK;
}

static void note_failed_start(qn__warm_up_t* up, qn_status_t status) {
  qn_status_free(up->start_status);
  up->start_status = status;
  up->failed_starts++;
  up->restart_ns = qn__warm_now_ns() + RESTART_PAUSE_NS;
}

static void end_process(qn__warm_worker_t* worker, int64_t grace_ns,
                        qn__warm_process_end_t* out_end) {
  (void)qn__warm_process_finish(&worker->process, grace_ns, out_end);
  worker->state = QN__WORKER_OFF;
  worker->task = NO_TASK;
}

static void describe_end(const qn__warm_process_end_t* end, char out[96]) {
  char signal_text[32];
  if (!end->is_known) {
    (void)snprintf(out, 96, "is gone");
  } else if (end->signal) {
    (void)snprintf(out, 96, "died of %s", qn__warm_signal_text(end->signal, signal_text));
  } else {
    (void)snprintf(out, 96, "exited with code %d", end->code);
  }
}

// Ends a worker that has left or (`is_noise`) sent bytes that are no message. Queues its key again,
// or gives it up.
static void lose_worker(qn__warm_up_t* up, qn__warm_worker_t* worker, bool is_noise) {
  qn__warm_worker_state_t state = worker->state;
  size_t task = worker->task;
  qn__warm_process_end_t end;
  if (worker->process.errors >= 0) read_errors(worker);
  end_process(worker, is_noise ? 0 : DEATH_GRACE_NS, &end);
  char how[96];
  if (is_noise) {
    (void)snprintf(how, sizeof how, "sent bytes that are no message");
  } else {
    describe_end(&end, how);
  }
  char tail_buffer[TAIL_TEXT_BYTES];
  const char* tail = tail_text(worker, tail_buffer);
  // Also for a worker that was ready and left: the next ones may do the same, without end.
  if (state == QN__WORKER_STARTING || state == QN__WORKER_IDLE) {
    note_failed_start(
        up, qn_status_make(QN_STATUS_UNAVAILABLE, "'%s warm --worker' does not work: it %s%s%s",
                           up->command, how, tail[0] ? "; it said: " : "", tail));
  }
  if (state != QN__WORKER_BUSY) return;
  up->busy_count--;
  if (up->keys[task].attempt_count < QN__WARM_MAX_ATTEMPTS && !up->result->is_cancelled) {
    assert(up->tail < up->queue_capacity);
    up->queue[up->tail++] = task;
    return;
  }
  char message[TAIL_TEXT_BYTES + 256];
  (void)snprintf(message, sizeof message, "%u workers did not survive it, the last %s%s%s",
                 (unsigned)up->keys[task].attempt_count, how, tail[0] ? "; it said: " : "", tail);
  qn__warm_verdict_t verdict = {.outcome = QN_WARM_CRASHED,
                                .signal = end.signal,
                                .code = QN_STATUS_INTERNAL,
                                .error = message};
  up->made_count++;
  qn__warm_finish_key(up, task, &verdict);
}

// Kills a worker whose start or key takes too long.
static void time_out(qn__warm_up_t* up, qn__warm_worker_t* worker) {
  qn__warm_worker_state_t state = worker->state;
  size_t task = worker->task;
  qn__warm_process_end_t end;
  qn__warm_process_kill(&worker->process);
  end_process(worker, 0, &end);
  if (state == QN__WORKER_STARTING) {
    note_failed_start(up, qn_status_make(QN_STATUS_UNAVAILABLE,
                                         "'%s warm --worker' did not answer for %d seconds",
                                         up->command, (int)(START_TIMEOUT_NS / 1000000000)));
  }
  if (state != QN__WORKER_BUSY) return;
  char message[96];
  double seconds = (double)timeout_of(up) / 1e9;
  (void)snprintf(message, sizeof message, "its worker was killed after %g s", seconds);
  qn__warm_verdict_t verdict = {
      .outcome = QN_WARM_TIMED_OUT, .code = QN_STATUS_DEADLINE_EXCEEDED, .error = message};
  up->busy_count--;
  up->made_count++;
  qn__warm_finish_key(up, task, &verdict);
}

// ------------------------------------------------------------------------------------ messages

static bool take_result(qn__warm_up_t* up, qn__warm_worker_t* worker,
                        const qn__warm_message_t* message) {
  if (worker->state != QN__WORKER_BUSY || message->id != worker->task) return false;
  size_t task = worker->task;
  worker->state = QN__WORKER_IDLE;
  worker->task = NO_TASK;
  up->busy_count--;
  up->made_count++;
  up->failed_starts = 0;
  qn_allocator_t allocator = up->allocator;
  qn__warm_span_t said = message->text;
  size_t text_size = qn_text_escape(said.data, said.size, true, NULL, 0) + 1;
  char* text = allocator.reallocate(allocator.self, NULL, 0, text_size);
  if (text) (void)qn_text_escape(said.data, said.size, true, text, text_size);
  qn__warm_verdict_t verdict = {
      .outcome = message->outcome,
      .key = message->key,
      .compile_ns = message->outcome == QN_WARM_COMPILED ? message->compile_ns : 0,
      .code = message->code,
      .error = text};
  qn__warm_finish_key(up, task, &verdict);
  (void)allocator.reallocate(allocator.self, text, text_size, 0);
  return true;
}

// Takes a message. False when it is not due.
static bool take_message(qn__warm_up_t* up, qn__warm_worker_t* worker,
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
          up, qn_status_make(message->code == QN_STATUS_OK ? QN_STATUS_UNAVAILABLE : message->code,
                             "a worker cannot work: %.*s", (int)message->text.size,
                             message->text.data));
      worker->state = QN__WORKER_ENDING;  // it has sent the reason
      up->failed_starts = MAX_FAILED_STARTS;
      return false;
    case QN__WARM_RESULT:
      return take_result(up, worker, message);
    case QN__WARM_HELLO:
    case QN__WARM_TASK:
      break;
  }
  return false;
}

// Takes whole frames from the front of the received bytes. False when they are no frames.
static bool take_frames(qn__warm_up_t* up, qn__warm_worker_t* worker) {
  size_t at = 0;
  bool is_good = true;
  while (is_good && worker->in.size - at >= QN__WARM_LENGTH_BYTES) {
    size_t size;
    is_good = qn__warm_message_length(worker->in.data + at, &size);
    if (!is_good || worker->in.size - at - QN__WARM_LENGTH_BYTES < size) break;
    qn__warm_message_t message;
    is_good =
        qn__warm_message_decode(
            (qn__warm_span_t){worker->in.data + at + QN__WARM_LENGTH_BYTES, size}, &message) &&
        take_message(up, worker, &message);
    at += QN__WARM_LENGTH_BYTES + size;
  }
  assert(at <= worker->in.size);
  size_t left = worker->in.size - at;
  if (at > 0) {
    memmove(worker->in.data, worker->in.data + at, left);
    worker->in.size = left;
  }
  return is_good;
}

static void receive_from(qn__warm_up_t* up, qn__warm_worker_t* worker) {
  char data[4096];
  for (;;) {
    ssize_t got = qn__warm_process_receive(worker->process.socket, data, sizeof data);
    if (got < 0) return;
    if (got > 0) {
      qn__warm_put(&worker->in, (qn__warm_span_t){data, (size_t)got});
      if (!worker->in.has_failed && take_frames(up, worker)) continue;
    }
    lose_worker(up, worker, got > 0);
    return;
  }
}

static void give_task(qn__warm_up_t* up, qn__warm_worker_t* worker) {
  assert(worker->state == QN__WORKER_IDLE && up->head < up->tail);
  size_t task = up->queue[up->head++];
  const qn__warm_entry_t* entry = &up->list->entries[task];
  qn__warm_message_t message = {
      .kind = QN__WARM_TASK,
      .id = task,
      .tier = entry->tier,
      .is_checked = entry->is_checked,
      .target_json = qn__warm_span(qn_target_json(entry->target)),
  };
  message.module.data = qn_module_bytes(entry->module, &message.module.size);
  assert(!up->keys[task].is_done && up->keys[task].attempt_count < QN__WARM_MAX_ATTEMPTS);
  up->keys[task].attempt_count++;
  qn__warm_message_encode(&message, &worker->out);
  if (worker->out.has_failed) {
    qn__warm_bytes_clear(&worker->out);
    qn__warm_verdict_t verdict = {
        .outcome = QN_WARM_FAILED,
        .code = QN_STATUS_OUT_OF_MEMORY,
        .error = "no memory to hand the module to a worker, or it is too large"};
    qn__warm_finish_key(up, task, &verdict);
    return;
  }
  worker->state = QN__WORKER_BUSY;
  worker->task = task;
  int64_t now_ns = qn__warm_now_ns(), timeout_ns = timeout_of(up);
  worker->deadline_ns = timeout_ns < INT64_MAX - now_ns ? now_ns + timeout_ns : INT64_MAX;
  up->busy_count++;
  send_to(worker);
}

// ------------------------------------------------------------------------------------ the loop

static size_t waiting_count(const qn__warm_up_t* up) {
  return up->tail - up->head;
}

static size_t count_workers(const qn__warm_up_t* up, qn__warm_worker_state_t state) {
  size_t count = 0;
  for (size_t i = 0; i < up->worker_count; i++) count += up->workers[i].state == state;
  return count;
}

#ifndef NDEBUG
// Checks the counts, and that each busy worker has a key that is not done.
static bool check(const qn__warm_up_t* up) {
  for (size_t i = 0; i < up->worker_count; i++) {
    const qn__warm_worker_t* worker = &up->workers[i];
    if ((worker->state == QN__WORKER_BUSY) != (worker->task != NO_TASK) &&
        worker->state != QN__WORKER_OFF) {
      return false;
    }
    if (worker->state == QN__WORKER_BUSY && up->keys[worker->task].is_done) return false;
  }
  return up->head <= up->tail && up->tail <= up->queue_capacity &&
         up->busy_count == count_workers(up, QN__WORKER_BUSY);
}
#endif

// Hands keys to idle workers and starts more while keys wait. Errors: no worker can be started.
static qn_status_t staff(qn__warm_up_t* up) {
  for (size_t i = 0; i < up->worker_count && waiting_count(up) > 0; i++) {
    if (up->workers[i].state == QN__WORKER_IDLE) give_task(up, &up->workers[i]);
  }
  size_t coming = count_workers(up, QN__WORKER_STARTING);
  bool has_any =
      coming + count_workers(up, QN__WORKER_BUSY) + count_workers(up, QN__WORKER_IDLE) > 0;
  if (up->failed_starts >= MAX_FAILED_STARTS && !has_any && waiting_count(up) > 0) {
    qn_status_t status = up->start_status;
    up->start_status = QN_OK;
    return status;
  }
  // After a failed start only one worker is started at a time.
  if (up->failed_starts > 0 && (coming > 0 || (has_any && qn__warm_now_ns() < up->restart_ns))) {
    return QN_OK;
  }
  for (size_t i = 0; i < up->worker_count && coming < waiting_count(up); i++) {
    if (up->workers[i].state != QN__WORKER_OFF) continue;
    qn_status_t status = start_worker(up, &up->workers[i]);
    if (!qn_ok(status)) {
      note_failed_start(up, status);
      break;
    }
    coming++;
    if (up->failed_starts > 0) break;
  }
  return QN_OK;
}

static void wait_for_workers(qn__warm_up_t* up) {
  int64_t now_ns = qn__warm_now_ns();
  int64_t wake_ns = now_ns + QN__WARM_TICK_NS;
  for (size_t i = 0; i < up->worker_count; i++) {
    const qn__warm_worker_t* worker = &up->workers[i];
    struct pollfd* fds = &up->fds[2 * i];
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
  // A signal only makes the tick come early.
  if (poll(up->fds, (nfds_t)(2 * up->worker_count), left_ms) < 0) {
    for (size_t i = 0; i < 2 * up->worker_count; i++) up->fds[i].revents = 0;
  }
}

static void serve_workers(qn__warm_up_t* up) {
  int64_t now_ns = qn__warm_now_ns();
  for (size_t i = 0; i < up->worker_count; i++) {
    qn__warm_worker_t* worker = &up->workers[i];
    const struct pollfd* fds = &up->fds[2 * i];
    if (worker->state == QN__WORKER_OFF) continue;
    if (fds[1].fd >= 0 && fds[1].revents) read_errors(worker);
    if (fds[0].fd >= 0 && (fds[0].revents & POLLOUT)) send_to(worker);
    if (fds[0].fd >= 0 && (fds[0].revents & ~POLLOUT)) receive_from(up, worker);
    if ((worker->state == QN__WORKER_BUSY || worker->state == QN__WORKER_STARTING) &&
        now_ns >= worker->deadline_ns) {
      time_out(up, worker);
    }
  }
}

qn_status_t qn__warm_run_workers(qn__warm_up_t* up) {
  int64_t report_ns = 0;
  up->work_start_ns = qn__warm_now_ns();
  while (waiting_count(up) + up->busy_count > 0 && !up->result->is_cancelled) {
    qn_status_t status = staff(up);
    if (!qn_ok(status)) return status;
    assert(check(up));
    wait_for_workers(up);
    serve_workers(up);
    if (qn__warm_now_ns() - report_ns < QN__WARM_TICK_NS) continue;
    report_ns = qn__warm_now_ns();
    qn__warm_report(up, NULL);
  }
  return QN_OK;
}

// Kills busy workers: their keys are not waited for. Idle ones end by themselves and close their
// engines.
void qn__warm_end_workers(qn__warm_up_t* up) {
  qn__warm_process_end_t end;
  for (size_t i = 0; i < up->worker_count; i++) {
    qn__warm_worker_t* worker = &up->workers[i];
    if (worker->state == QN__WORKER_BUSY || worker->state == QN__WORKER_STARTING)
      qn__warm_process_kill(&worker->process);
    if (worker->state != QN__WORKER_OFF) qn__warm_process_hang_up(&worker->process);
  }
  int64_t deadline_ns = qn__warm_now_ns() + END_GRACE_NS;
  for (size_t i = 0; i < up->worker_count; i++) {
    qn__warm_worker_t* worker = &up->workers[i];
    int64_t left_ns = deadline_ns - qn__warm_now_ns();
    if (worker->state != QN__WORKER_OFF) end_process(worker, left_ns > 0 ? left_ns : 0, &end);
  }
}
